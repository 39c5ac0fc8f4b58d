//! The coordinator: all runs, each with a task that owns it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graphmill_net::Endpoint;
use tokio::sync::{mpsc, oneshot, watch};

use crate::calls::Call;
use crate::etcd::{Etcd, EtcdUrl, Leader, PREFIX};
use crate::keeper::{EtcdKeeper, FileKeeper, KeepError, Keeper, MemoryKeeper};
use crate::machine::Outcome;
use crate::records::{self, Kept};
use crate::state::State;
use crate::stores::{Operation, Stored};
use crate::task::{Again, Command, Glance, LONGEST_WAIT, Memory, Reply, Status, Task};
use crate::values::ValueError;
use crate::{InvalidSettings, Node, Settings, check_run, storage};

/// The most runs.
const RUNS: usize = 4_096;
/// The longest address of a member.
const LONGEST_ADDRESS: usize = 256;
/// How long runs are remembered that nobody needs.
const MEMORY: Memory = Memory { left: Duration::from_secs(3600), closed: Duration::from_secs(24 * 3600) };
/// How long etcd may take to hear that a leader goes.
const RESIGNING: Duration = Duration::from_secs(2);
/// Requests that a run may be behind.
const QUEUE: usize = 4_096;

/// Where runs are kept.
#[derive(Debug, Clone)]
pub enum Keeping {
    /// In memory, as long as the coordinator lives.
    Memory,
    /// In a folder, a file for each run.
    Folder(PathBuf),
    /// In etcd, shared with others of which one leads; members reach this one at the address.
    Etcd(Arc<Etcd>, String),
}

impl Keeping {
    /// A folder, or etcd as `etcd://host:port,host:port/prefix`; members reach this coordinator at the address. To be called
    /// inside a runtime.
    ///
    /// # Errors
    /// When there is no way to etcd, or none for members to here.
    pub fn parse(text: &str, address: &Endpoint) -> Result<Self, KeepError> {
        if !text.starts_with("etcd://") {
            return Ok(Self::Folder(text.into()));
        }
        let url: EtcdUrl = text.parse().map_err(KeepError::Etcd)?;
        if url.prefix.is_some() {
            return Err(KeepError::Etcd(
                "say where runs are kept as etcd://HOST:PORT/PREFIX, without `prefix=`".to_owned(),
            ));
        }
        if !can_be_reached(address) {
            return Err(KeepError::Address(address.to_string()));
        }
        let prefix = if url.path.is_empty() { PREFIX } else { &url.path };
        Ok(Self::Etcd(Arc::new(Etcd::open(&url, prefix)?), address.to_string()))
    }
}

/// Whether an address means something to others: it has a port, and is not that of every host.
fn can_be_reached(address: &Endpoint) -> bool {
    match address {
        Endpoint::Unix(_) => true,
        Endpoint::Tcp { host, port } => {
            *port != 0 && host.parse::<std::net::IpAddr>().map_or(true, |number| !number.is_unspecified())
        }
    }
}

/// Why the coordinator does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// What was asked makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// There is no such run.
    #[error("there is no run `{0}`; a run begins when its first member joins")]
    Unknown(String),
    /// A round is long over.
    #[error("{0}")]
    Over(String),
    /// There is no room.
    #[error("{0}")]
    Exhausted(String),
    /// A value is not as it must be.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// Values did not come in time.
    #[error("{0} did not come within the time")]
    TimedOut(String),
    /// Another coordinator serves.
    #[error("this coordinator stands by: {0}")]
    Standby(String),
    /// The run cannot be kept, so nothing is promised.
    #[error("the run cannot be kept: {0}")]
    Unkept(String),
}

impl From<InvalidSettings> for Refused {
    fn from(error: InvalidSettings) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// All runs.
#[derive(Debug)]
pub struct Coordinator {
    keeping: Keeping,
    memory: Memory,
    /// Who leads, where several share runs.
    leader: Option<watch::Receiver<Leader>>,
    runs: Mutex<HashMap<String, Handle>>,
    /// The storage servers of runs.
    registries: Mutex<HashMap<String, storage::Handle>>,
    /// Held while a run is opened, so that none is opened twice.
    opening: tokio::sync::Mutex<()>,
    tickets: std::sync::atomic::AtomicU64,
}

/// A run's task.
#[derive(Debug, Clone)]
struct Handle {
    commands: mpsc::Sender<Command>,
    /// Counts its changes.
    changes: watch::Receiver<u64>,
}

impl Coordinator {
    /// A coordinator; to be made inside a runtime.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn new(keeping: Keeping) -> Result<Arc<Self>, KeepError> {
        Self::remembering(keeping, MEMORY)
    }

    fn remembering(keeping: Keeping, memory: Memory) -> Result<Arc<Self>, KeepError> {
        if let Keeping::Folder(path) = &keeping {
            let failed = |source| KeepError::Io { doing: "make", path: path.clone(), source };
            std::fs::create_dir_all(path).map_err(failed)?;
        }
        let leader = match &keeping {
            Keeping::Etcd(etcd, address) => Some(etcd.campaign(address.clone())),
            Keeping::Memory | Keeping::Folder(_) => None,
        };
        let (runs, registries, opening) = (Mutex::default(), Mutex::default(), tokio::sync::Mutex::default());
        Ok(Arc::new(Self { keeping, memory, leader, runs, registries, opening, tickets: 1.into() }))
    }

    /// Lets another coordinator lead at once, where several share runs. To be called by a process that ends and serves nobody any
    /// more: it can keep nothing from here on.
    pub async fn resign(&self) {
        if let (Keeping::Etcd(etcd, _), Ok(revision)) = (&self.keeping, self.leads()) {
            // Whoever stands by need not wait for more than the lease.
            let _ = tokio::time::timeout(RESIGNING, etcd.resign(revision)).await;
        }
    }

    /// Joins a run, which begins if it is new; answered when the outcome is known. Whoever drops this waits no more.
    ///
    /// # Errors
    /// When settings or member make no sense, or are not the run's.
    pub async fn join(
        &self,
        run: &str,
        member: Node,
        settings: Settings,
        within: Duration,
    ) -> Result<Outcome, Refused> {
        self.ask_to_join(run, member, settings, within, None).await
    }

    /// The same, said again because the answer may have been lost: a round is not left that the member was not told of.
    ///
    /// # Errors
    /// As for [`Self::join`].
    pub async fn join_again(
        &self,
        run: &str,
        member: Node,
        settings: Settings,
        within: Duration,
        told: Option<u64>,
    ) -> Result<Outcome, Refused> {
        self.ask_to_join(run, member, settings, within, Some(Again { told })).await
    }

    async fn ask_to_join(
        &self,
        run: &str,
        member: Node,
        settings: Settings,
        within: Duration,
        again: Option<Again>,
    ) -> Result<Outcome, Refused> {
        settings.check()?;
        check_member(&member)?;
        if within.is_zero() || within > LONGEST_WAIT {
            return Err(Refused::Invalid(format!("a join may take 1 ms to 30 days, not {within:?}")));
        }
        let handle = self.open(run, Some(&settings)).await?;
        let member = Arc::new(member);
        let ticket = self.tickets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let mut abandoned = Abandoned { commands: handle.commands.clone(), waits: Some((Arc::clone(&member), ticket)) };
        handle.send(Command::Join { member, settings, within, again, ticket, reply }).await?;
        let answered = received(answer).await;
        abandoned.waits = None;
        answered
    }

    /// A member is alive; whether it is on any list.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn keep_alive(&self, run: &str, member: Node) -> Result<bool, Refused> {
        check_member(&member)?;
        self.ask(run, |reply| Command::KeepAlive { member: Arc::new(member), reply }).await
    }

    /// A member leaves for good.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn leave(&self, run: &str, member: Node) -> Result<(), Refused> {
        check_member(&member)?;
        self.ask(run, |reply| Command::Leave { member: Arc::new(member), reply }).await
    }

    /// Ends a run for good; with settings also one that has not begun.
    ///
    /// # Errors
    /// When there is no such run, or the settings make no sense.
    pub async fn close(&self, run: &str, settings: Option<Settings>) -> Result<(), Refused> {
        if let Some(settings) = &settings {
            settings.check()?;
        }
        let (reply, answer) = oneshot::channel();
        self.open(run, settings.as_ref()).await?.send(Command::Close { reply }).await?;
        received(answer).await
    }

    /// Where a run stands for a member.
    ///
    /// # Errors
    /// When there is no such run.
    pub(crate) async fn glance(&self, run: &str, member: Node) -> Result<Glance, Refused> {
        check_member(&member)?;
        self.ask(run, |reply| Command::Glance { member, reply }).await
    }

    /// Where a run stands.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn status(&self, run: &str) -> Result<Status, Refused> {
        self.ask(run, |reply| Command::Status { reply }).await
    }

    /// Does something with the store of a round.
    ///
    /// # Errors
    /// When it cannot be done, or what is waited for does not come.
    pub async fn store(&self, run: &str, round: u64, operation: Operation) -> Result<Stored, Refused> {
        self.ask(run, |reply| Command::Store { round, operation, call: None, reply }).await
    }

    /// The same for a call that may be sent again, and is to be done once.
    ///
    /// # Errors
    /// As for [`Self::store`].
    pub async fn store_once(&self, run: &str, round: u64, operation: Operation, call: Call) -> Result<Stored, Refused> {
        self.ask(run, |reply| Command::Store { round, operation, call: Some(call), reply }).await
    }

    /// What tells of changes of a run.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn changes(&self, run: &str) -> Result<watch::Receiver<u64>, Refused> {
        Ok(self.open(run, None).await?.changes)
    }

    /// A storage server comes, or comes back; the partitions that are its own.
    ///
    /// # Errors
    /// When it does not fit the run's other servers.
    pub async fn register_server(&self, run: &str, arrival: storage::Arrival) -> Result<BTreeSet<u32>, Refused> {
        self.ask_registry(run, |reply| storage::Command::Register { arrival, reply }).await
    }

    /// A storage server is alive, and serves these partitions; whether it is known.
    ///
    /// # Errors
    /// When that cannot be kept.
    pub async fn renew_server(
        &self,
        run: &str,
        address: String,
        incarnation: u64,
        serving: BTreeSet<u32>,
    ) -> Result<bool, Refused> {
        self.ask_registry(run, |reply| storage::Command::Renew { address, incarnation, serving, reply }).await
    }

    /// A storage server goes.
    ///
    /// # Errors
    /// When that cannot be kept.
    pub async fn remove_server(&self, run: &str, address: String, incarnation: u64) -> Result<(), Refused> {
        self.ask_registry(run, |reply| storage::Command::Remove { address, incarnation, reply }).await
    }

    /// The storage servers of a run; there may be none.
    ///
    /// # Errors
    /// When there is no room for another run.
    pub async fn storage(&self, run: &str) -> Result<storage::Status, Refused> {
        self.ask_registry(run, |reply| storage::Command::Status { reply }).await
    }

    /// What tells of changes of the storage servers of a run.
    ///
    /// # Errors
    /// When there is no room for another run.
    pub async fn storage_changes(&self, run: &str) -> Result<watch::Receiver<u64>, Refused> {
        Ok(self.open_registry(run).await?.changes)
    }

    async fn ask_registry<T>(
        &self,
        run: &str,
        command: impl FnOnce(Reply<T>) -> storage::Command,
    ) -> Result<T, Refused> {
        let (reply, answer) = oneshot::channel();
        let sent = self.open_registry(run).await?.commands.send(command(reply)).await;
        sent.map_err(|_| ended())?;
        received(answer).await
    }

    /// A registry that is under way, or was kept, or a new one.
    async fn open_registry(&self, run: &str) -> Result<storage::Handle, Refused> {
        check_run(run)?;
        let leader = self.leads()?;
        let open = |registries: &HashMap<String, storage::Handle>| {
            registries.get(run).filter(|handle| !handle.commands.is_closed()).cloned()
        };
        if let Some(handle) = open(&lock(&self.registries)) {
            return Ok(handle);
        }
        let _opening = self.opening.lock().await;
        {
            let mut registries = lock(&self.registries);
            if let Some(handle) = open(&registries) {
                return Ok(handle);
            }
            if registries.len() >= RUNS {
                registries.retain(|_, handle| !handle.commands.is_closed());
            }
            if registries.len() >= RUNS {
                return Err(Refused::Exhausted(format!("there are {RUNS} runs already, the most a coordinator takes")));
            }
        }
        let place = match &self.keeping {
            Keeping::Memory => storage::Place::Memory,
            Keeping::Folder(folder) => storage::Place::File(folder.join(file_name(run, "storage"))),
            // No run can be called so: names have no control characters.
            Keeping::Etcd(etcd, _) => storage::Place::Etcd(Arc::clone(etcd), format!("{run}\u{1}storage"), leader),
        };
        let handle = storage::Handle::open(run, place, self.leader.clone()).await?;
        lock(&self.registries).insert(run.to_owned(), handle.clone());
        Ok(handle)
    }

    /// The runs that are under way here.
    pub fn runs(&self) -> Vec<String> {
        let under_way = |(run, handle): (&String, &Handle)| (!handle.commands.is_closed()).then(|| run.clone());
        let mut runs: BTreeSet<_> = lock(&self.runs).iter().filter_map(under_way).collect();
        // A registry that was only looked at is no run.
        let registries = lock(&self.registries);
        runs.extend(registries.iter().filter(|(_, handle)| *handle.changes.borrow() > 0).map(|(run, _)| run.clone()));
        runs.into_iter().collect()
    }

    async fn ask<T>(&self, run: &str, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refused> {
        let (reply, answer) = oneshot::channel();
        self.open(run, None).await?.send(command(reply)).await?;
        received(answer).await
    }

    /// A run that is under way, or was kept; with settings it begins if there is none.
    async fn open(&self, run: &str, settings: Option<&Settings>) -> Result<Handle, Refused> {
        check_run(run)?;
        self.leads()?;
        if let Some(handle) = self.under_way(run) {
            return Ok(handle);
        }
        let _opening = self.opening.lock().await;
        if let Some(handle) = self.under_way(run) {
            return Ok(handle);
        }
        let unkept = |error: &dyn std::fmt::Display| Refused::Unkept(error.to_string());
        let keeper = match &self.keeping {
            Keeping::Memory => Keeper::Memory(MemoryKeeper::default()),
            Keeping::Folder(folder) => {
                let path = folder.join(file_name(run, "rendezvous"));
                if settings.is_none() && !path.exists() {
                    return Err(Refused::Unknown(run.to_owned()));
                }
                Keeper::File(FileKeeper::open(path).await.map_err(|error| unkept(&error))?)
            }
            Keeping::Etcd(etcd, _) => {
                let leader = self.leads()?;
                Keeper::Etcd(EtcdKeeper::new(Arc::clone(etcd), run, leader))
            }
        };
        let kept = keeper.read().await.map_err(|error| unkept(&error))?;
        let token = kept.as_ref().map(|(_, token)| *token);
        let kept = kept.map(|(records, _)| records::read(&records)).transpose().map_err(|error| unkept(&error))?;
        let kept = match (kept.flatten(), settings) {
            (Some(kept), _) => kept,
            (None, Some(settings)) => Kept {
                settings: settings.clone(),
                state: State::default(),
                values: BTreeMap::new(),
                calls: BTreeMap::new(),
            },
            (None, None) => return Err(Refused::Unknown(run.to_owned())),
        };
        let mut runs = lock(&self.runs);
        if runs.len() >= RUNS {
            runs.retain(|_, handle| !handle.commands.is_closed());
        }
        if runs.len() >= RUNS {
            return Err(Refused::Exhausted(format!("there are {RUNS} runs already, the most a coordinator takes")));
        }
        let (commands, queue) = mpsc::channel(QUEUE);
        let (changed, changes) = watch::channel(0);
        let task = Task::new(run.to_owned(), kept, keeper, token, self.memory, changed);
        tokio::spawn(task.work(queue, self.leader.clone()));
        let handle = Handle { commands, changes };
        runs.insert(run.to_owned(), handle.clone());
        Ok(handle)
    }

    /// Fails unless this coordinator leads, if that is a question at all; the revision at which it became the leader.
    fn leads(&self) -> Result<i64, Refused> {
        match self.leader.as_ref().map(|leader| leader.borrow().clone()) {
            None => Ok(0),
            Some(Leader::Here(revision)) => Ok(revision),
            Some(Leader::Elsewhere(address)) => Err(Refused::Standby(format!("the coordinator at {address} leads"))),
            Some(Leader::Unknown(reason)) => Err(Refused::Standby(format!("it is not known who leads: {reason}"))),
        }
    }

    fn under_way(&self, run: &str) -> Option<Handle> {
        lock(&self.runs).get(run).filter(|handle| !handle.commands.is_closed()).cloned()
    }
}

impl Handle {
    async fn send(&self, command: Command) -> Result<(), Refused> {
        self.commands.send(command).await.map_err(|_| ended())
    }
}

/// Tells a run that somebody who wanted to join has hung up.
struct Abandoned {
    commands: mpsc::Sender<Command>,
    waits: Option<(Arc<Node>, u64)>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some((member, ticket)) = self.waits.take() {
            // If the queue is full it is not told; its answer goes nowhere then, which harms nobody.
            let _ = self.commands.try_send(Command::Abandon { member, ticket });
        }
    }
}

async fn received<T>(answer: oneshot::Receiver<Result<T, Refused>>) -> Result<T, Refused> {
    answer.await.unwrap_or_else(|_| Err(ended()))
}

fn ended() -> Refused {
    Refused::Unkept("it has just ended; try again".to_owned())
}

fn check_member(member: &Node) -> Result<(), Refused> {
    let length = member.address.len();
    if length == 0 || length > LONGEST_ADDRESS || member.address.chars().any(char::is_control) {
        let limit = format!("a member's address has 1 to {LONGEST_ADDRESS} bytes and no control characters");
        return Err(Refused::Invalid(format!("{limit}, not {length} bytes")));
    }
    Ok(())
}

/// A run's name as that of a file: what is not plain is written in hexadecimal.
fn file_name(run: &str, kind: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in run.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            name.push(byte.into());
        } else {
            let _ = write!(name, "%{byte:02x}");
        }
    }
    // File systems end names at 255 bytes.
    if name.len() > 200 {
        name = format!("{}%{:016x}", &name[..180], xxhash_rust::xxh3::xxh3_64(run.as_bytes()));
    }
    format!("{name}.{kind}")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_that_nobody_needs_is_forgotten_and_its_name_is_free_again() {
        let folder = tempfile::tempdir().unwrap();
        let within = Duration::from_secs(30);
        let memory = Memory { left: Duration::from_millis(200), closed: Duration::from_secs(2) };
        let node = Node::new("host", 1, 0);
        for keeping in [Keeping::Memory, Keeping::Folder(folder.path().to_owned())] {
            let coordinator = Coordinator::remembering(keeping, memory).unwrap();
            for run in ["left", "closed"] {
                coordinator.join(run, node.clone(), Settings::new(1, 1), within).await.unwrap();
            }
            coordinator.close("closed", None).await.unwrap();
            for run in ["left", "closed"] {
                coordinator.leave(run, node.clone()).await.unwrap();
            }
            let gone = async |run: &str| {
                let began = std::time::Instant::now();
                while !matches!(coordinator.status(run).await, Err(Refused::Unknown(_))) {
                    assert!(began.elapsed() < within);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                began.elapsed()
            };
            gone("left").await;
            assert!(gone("closed").await > memory.left, "that it is closed is remembered for longer");
            assert_eq!(coordinator.runs(), Vec::<String>::new());
            let other = Settings { expected: Some(1), ..Settings::new(1, 2) };
            let again = coordinator.join("closed", node.clone(), other, within).await.unwrap();
            assert_eq!(again, Outcome::Joined { round: 0, rank: 0, world_size: 1 });
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "what is forgotten leaves no file");
    }
}

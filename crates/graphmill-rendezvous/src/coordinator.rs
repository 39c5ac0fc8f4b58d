//! The coordinator: all runs, each with a task that owns it.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::keeper::{Etcd, EtcdKeeper, FileKeeper, KeepError, Keeper, Leader, MemoryKeeper};
use crate::machine::Outcome;
use crate::records::{self, Kept};
use crate::state::State;
use crate::task::{Command, LONGEST_WAIT, Operation, Reply, Status, Stored, Task};
use crate::values::ValueError;
use crate::{InvalidSettings, Node, Settings, check_run};

/// The most runs.
const RUNS: usize = 4_096;
/// The longest address of a member.
const LONGEST_ADDRESS: usize = 256;
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
    /// A folder, or etcd as `etcd://host:port,host:port/prefix`; members reach this coordinator at the address.
    ///
    /// # Errors
    /// When an address of etcd is none.
    pub fn parse(text: &str, address: &str) -> Result<Self, KeepError> {
        let Some(rest) = text.strip_prefix("etcd://") else { return Ok(Self::Folder(text.into())) };
        let (nodes, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = if prefix.is_empty() { "graphmill" } else { prefix };
        let nodes: Vec<_> = nodes.split(',').map(|node| format!("http://{node}")).collect();
        Ok(Self::Etcd(Arc::new(Etcd::new(&nodes, prefix)?), address.to_owned()))
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
    /// Who leads, where several share runs.
    leader: Option<watch::Receiver<Leader>>,
    runs: Mutex<HashMap<String, Handle>>,
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
        if let Keeping::Folder(path) = &keeping {
            let failed = |source| KeepError::Io { doing: "make", path: path.clone(), source };
            std::fs::create_dir_all(path).map_err(failed)?;
        }
        let leader = match &keeping {
            Keeping::Etcd(etcd, address) => Some(etcd.campaign(address.clone())),
            Keeping::Memory | Keeping::Folder(_) => None,
        };
        let (runs, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Ok(Arc::new(Self { keeping, leader, runs, opening, tickets: 1.into() }))
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
        again: bool,
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

    /// Ends a run for good.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn close(&self, run: &str) -> Result<(), Refused> {
        self.ask(run, |reply| Command::Close { reply }).await
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
        self.ask(run, |reply| Command::Store { round, operation, reply }).await
    }

    /// What tells of changes of a run.
    ///
    /// # Errors
    /// When there is no such run.
    pub async fn changes(&self, run: &str) -> Result<watch::Receiver<u64>, Refused> {
        Ok(self.open(run, None).await?.changes)
    }

    /// The runs that are under way here.
    pub fn runs(&self) -> Vec<String> {
        let mut runs: Vec<_> = lock(&self.runs).keys().cloned().collect();
        runs.sort_unstable();
        runs
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
                let path = folder.join(file_name(run));
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
            (None, Some(settings)) => {
                Kept { settings: settings.clone(), state: State::default(), values: BTreeMap::new() }
            }
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
        let task = Task::new(run.to_owned(), kept, keeper, token, changed);
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
        self.commands.send(command).await.map_err(|_| Refused::Unkept("it has just ended; try again".to_owned()))
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
    answer.await.unwrap_or_else(|_| Err(Refused::Unkept("it has just ended; try again".to_owned())))
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
fn file_name(run: &str) -> String {
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
    format!("{name}.rendezvous")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! A registry under way: the task that owns it. As for a run, what is told is kept before it is told.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::records;
use super::registry::{Arrival, Registry, Server, Terms, Unfit};
use crate::coordinator::Refused;
use crate::etcd::{Etcd, Leader};
use crate::keeper::{EtcdKeeper, FileKeeper, KeepError, Keeper, MemoryKeeper, Token, Written};
use crate::records::Records;
use crate::task::{AT_ONCE, Answer, Reply, dethroned};

/// Requests that a registry may be behind.
const QUEUE: usize = 4_096;
/// How long a registry without servers is remembered.
const IDLE: Duration = Duration::from_secs(3600);

/// What a registry is asked.
pub(crate) enum Command {
    Register { arrival: Arrival, reply: Reply<BTreeSet<u32>> },
    Renew { address: String, incarnation: u64, serving: BTreeSet<u32>, reply: Reply<bool> },
    Remove { address: String, incarnation: u64, reply: Reply<()> },
    Status { reply: Reply<Status> },
}

/// Where a registry stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// What its servers agree on.
    pub terms: Option<Terms>,
    /// Servers whose leases run, by address, and how long ago they were heard of.
    pub servers: Vec<(String, Server, Duration)>,
    /// Partitions that nobody serves.
    pub missing: Vec<u32>,
}

/// Where a registry is kept, once there is something to keep.
#[derive(Debug)]
pub(crate) enum Place {
    Memory,
    File(PathBuf),
    Etcd(Arc<Etcd>, String, i64),
}

impl Place {
    /// Whether something may have been kept there.
    fn is_used(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::File(path) => path.exists(),
            Self::Etcd(..) => true,
        }
    }

    async fn open(&self) -> Result<Keeper, KeepError> {
        Ok(match self {
            Self::Memory => Keeper::Memory(MemoryKeeper::default()),
            Self::File(path) => Keeper::File(FileKeeper::open(path.clone()).await?),
            Self::Etcd(etcd, name, leader) => Keeper::Etcd(EtcdKeeper::new(Arc::clone(etcd), name, *leader)),
        })
    }
}

/// A registry's task.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
    /// Counts its changes.
    pub(crate) changes: watch::Receiver<u64>,
}

impl Handle {
    /// Opens what is kept at a place, and serves it.
    pub(crate) async fn open(
        run: &str,
        place: Place,
        leader: Option<watch::Receiver<Leader>>,
    ) -> Result<Self, Refused> {
        let unkept = |error: &dyn std::fmt::Display| Refused::Unkept(error.to_string());
        let keeper = if place.is_used() { Some(place.open().await.map_err(|error| unkept(&error))?) } else { None };
        let kept = match &keeper {
            Some(keeper) => keeper.read().await.map_err(|error| unkept(&error))?,
            None => None,
        };
        let (found, token) = kept.map_or((Records::new(), None), |(found, token)| (found, Some(token)));
        let (terms, servers) = records::read(&found).map_err(|error| unkept(&error))?;
        let (commands, queue) = mpsc::channel(QUEUE);
        let (changed, changes) = watch::channel(0);
        let task = Task {
            run: run.to_owned(),
            registry: Registry::restored(terms, servers, Duration::ZERO),
            place,
            keeper,
            token,
            began: Instant::now(),
            changed,
            answers: Vec::new(),
        };
        tokio::spawn(task.work(queue, leader));
        Ok(Self { commands, changes })
    }
}

struct Task {
    run: String,
    registry: Registry,
    place: Place,
    keeper: Option<Keeper>,
    token: Option<Token>,
    began: Instant,
    changed: watch::Sender<u64>,
    answers: Vec<Answer>,
}

impl Task {
    /// Serves until nobody needs it any more, or it cannot be kept.
    async fn work(mut self, mut queue: mpsc::Receiver<Command>, mut leader: Option<watch::Receiver<Leader>>) {
        let mut dethroned = std::pin::pin!(dethroned(leader.as_mut()));
        let mut last_used = Instant::now();
        loop {
            let forget = last_used + IDLE;
            // A lease ends strictly after its time.
            let end = self.registry.next_end().map(|end| self.began + end + Duration::from_nanos(1));
            let wake = end.map_or(forget, |end| end.min(forget));
            tokio::select! {
                command = queue.recv() => {
                    let Some(command) = command else { return };
                    self.take(command);
                    for _ in 1..AT_ONCE {
                        let Ok(command) = queue.try_recv() else { break };
                        self.take(command);
                    }
                }
                () = &mut dethroned => return,
                () = tokio::time::sleep_until(wake.into()) => self.registry.pass(self.began.elapsed()),
            }
            if let Err(reason) = self.keep().await {
                let run = &self.run;
                tracing::error!(run, reason, "a registry cannot be kept; it begins again from what was kept");
                return;
            }
            if self.registry.living().next().is_some() {
                last_used = Instant::now();
            } else if Instant::now() >= forget {
                return;
            }
        }
    }

    fn take(&mut self, command: Command) {
        let now = self.began.elapsed();
        match command {
            Command::Register { arrival, reply } => {
                let address = arrival.address.clone();
                match self.registry.register(arrival, now) {
                    Ok(assigned) => {
                        tracing::info!(run = self.run, address, ?assigned, "a server registered");
                        self.answer(reply, assigned);
                    }
                    Err(Unfit::Invalid(reason)) => drop(reply.send(Err(Refused::Invalid(reason)))),
                    Err(full @ Unfit::Full) => drop(reply.send(Err(Refused::Exhausted(full.to_string())))),
                }
            }
            Command::Renew { address, incarnation, serving, reply } => {
                let known = self.registry.renew(&address, incarnation, serving, now);
                self.answer(reply, known);
            }
            Command::Remove { address, incarnation, reply } => {
                self.registry.remove(&address, incarnation, now);
                self.answer(reply, ());
            }
            Command::Status { reply } => {
                self.registry.pass(now);
                let status = self.status(now);
                self.answer(reply, status);
            }
        }
    }

    fn status(&self, now: Duration) -> Status {
        let age = |server: &Server| now.saturating_sub(server.heard.unwrap_or(now));
        let servers = self.registry.living();
        Status {
            terms: self.registry.terms().cloned(),
            servers: servers.map(|(address, server)| (address.clone(), server.clone(), age(server))).collect(),
            missing: self.registry.missing(),
        }
    }

    /// Answers when everything is kept.
    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: T) {
        self.answers.push(Box::new(move |unkept| {
            let _ = reply.send(match unkept {
                None => Ok(answer),
                Some(reason) => Err(Refused::Unkept(reason.to_owned())),
            });
        }));
    }

    /// Keeps what has changed, then answers.
    async fn keep(&mut self) -> Result<(), String> {
        let written = self.write().await;
        let unkept = written.err().map(|error| error.to_string());
        for answer in self.answers.drain(..) {
            answer(unkept.as_deref());
        }
        if self.registry.take_changed() {
            self.changed.send_modify(|changes| *changes += 1);
        }
        unkept.map_or(Ok(()), Err)
    }

    async fn write(&mut self) -> Result<(), KeepError> {
        let touched = self.registry.take_touched();
        let Some(terms) = self.registry.terms().filter(|_| !touched.is_empty()) else { return Ok(()) };
        let servers = self.registry.servers();
        let mut changes: Vec<_> =
            touched.iter().map(|address| records::server_change(address, servers.get(address))).collect();
        // Few bytes, and last: what it says holds for the others.
        changes.push(records::terms_change(terms));
        let keeper = match &mut self.keeper {
            Some(keeper) => keeper,
            none => none.insert(self.place.open().await?),
        };
        match keeper.write(changes, self.token).await? {
            Written::Set(token) => self.token = Some(token),
            Written::Stale(_) => return Err(KeepError::Stale),
        }
        Ok(())
    }
}

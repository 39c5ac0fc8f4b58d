//! A registry as servers and clients have it: followed, and kept up with.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use graphmill_wire::proto::{
    RegisterServerRequest, RemoveServerRequest, RenewServerRequest, RunRequest, StorageStatus,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::registry::Arrival;
use super::wire::settings;
use crate::client::{Connection, Error};

/// The most partitions that are named in a message.
const SHOWN: usize = 16;
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// The pause before a coordinator that is away is asked again: doubled each time, up to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

impl Connection {
    /// The registry of a run.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn storage(&self, run: &str, within: Duration) -> Result<StorageStatus, Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("describe the run's servers", within, |mut service| {
            let request = request.clone();
            async move { service.describe_storage(request).await }
        })
        .await
    }

    /// The registry of a run now, and whenever it changes.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn watch_storage(&self, run: &str, within: Duration) -> Result<tonic::Streaming<StorageStatus>, Error> {
        let request = RunRequest { run: run.to_owned() };
        self.ask("watch the run's servers", within, |mut service| {
            let request = request.clone();
            async move { service.watch_storage(request).await }
        })
        .await
    }

    async fn register(&self, run: &str, arrival: &Arrival) -> Result<BTreeSet<u32>, Error> {
        let request = RegisterServerRequest {
            run: run.to_owned(),
            address: arrival.address.clone(),
            incarnation: arrival.incarnation,
            settings: Some(settings(&arrival.terms)),
            lease_ms: arrival.lease.as_millis() as u64,
            wanted: arrival.wanted.iter().copied().collect(),
            serving: arrival.serving.iter().copied().collect(),
        };
        let registered = self.ask("register a server", ANSWER, |mut service| {
            let request = request.clone();
            async move { service.register_server(request).await }
        });
        Ok(registered.await?.assigned.into_iter().collect())
    }

    async fn renew(&self, run: &str, arrival: &Arrival, within: Duration) -> Result<bool, Error> {
        let request = RenewServerRequest {
            run: run.to_owned(),
            address: arrival.address.clone(),
            incarnation: arrival.incarnation,
            serving: arrival.serving.iter().copied().collect(),
        };
        let renewed = self.ask("keep a server's lease", within, |mut service| {
            let request = request.clone();
            async move { service.renew_server(request).await }
        });
        Ok(renewed.await?.known)
    }
}

/// A server's place in a registry.
#[derive(Debug, Clone)]
pub struct Registration {
    /// How coordinators are reached.
    pub connection: Connection,
    /// The run.
    pub run: String,
    /// What it says when it comes; what it serves is said apart.
    pub arrival: Arrival,
}

impl Registration {
    /// Leaves the registry.
    ///
    /// # Errors
    /// When no coordinator answers; the lease ends all the same.
    pub async fn leave(&self, within: Duration) -> Result<(), Error> {
        let (address, incarnation) = (self.arrival.address.clone(), self.arrival.incarnation);
        let request = RemoveServerRequest { run: self.run.clone(), address, incarnation };
        let left = self.connection.ask("leave the registry", within, |mut service| {
            let request = request.clone();
            async move { service.remove_server(request).await }
        });
        left.await.map(drop)
    }
}

/// Registers a server and keeps its lease, with what it serves as that changes. While no coordinator answers it goes on
/// trying, and registers again with one that does not know it. Ends only when it is refused, and says why.
pub async fn keep_registered(registration: Registration, mut serving: watch::Receiver<BTreeSet<u32>>) -> Error {
    let Registration { connection, run, mut arrival } = registration;
    let interval = arrival.lease / 3;
    let (mut known, mut pause) = (false, PAUSE.0);
    loop {
        arrival.serving.clone_from(&serving.borrow_and_update());
        let asked = if known {
            connection.renew(&run, &arrival, arrival.lease).await.map(|renewed| known = renewed)
        } else {
            connection.register(&run, &arrival).await.map(|assigned| {
                known = true;
                tracing::info!(run, address = arrival.address, ?assigned, "registered");
            })
        };
        match asked {
            Ok(()) if known => pause = PAUSE.0,
            Ok(()) => {
                // A coordinator that knows nobody must not give a spare what others come back with.
                if arrival.serving.is_empty() {
                    tokio::time::sleep(arrival.lease).await;
                }
                tracing::warn!(
                    run,
                    address = arrival.address,
                    "the coordinator does not know this server; registering again"
                );
                continue;
            }
            Err(error @ (Error::Refused { .. } | Error::Denied { .. })) => return error,
            Err(error) => {
                tracing::warn!(run, address = arrival.address, %error, "a server's lease was not kept up");
                tokio::time::sleep(pause.min(interval)).await;
                pause = (2 * pause).min(PAUSE.1);
                continue;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            // Whoever tells what is served is gone; the lease goes on until this is dropped.
            changed = serving.changed() => if changed.is_err() {
                tokio::time::sleep(interval).await;
            }
        }
    }
}

/// A registry that is followed, also across coordinators that go and come.
#[derive(Debug)]
pub struct Following {
    status: watch::Receiver<Option<Arc<StorageStatus>>>,
    /// Why the coordinator is not heard, if it is not.
    trouble: Arc<Mutex<Option<Error>>>,
    task: JoinHandle<()>,
}

/// Follows the registry of a run; to be called inside a runtime.
pub fn follow(connection: Connection, run: &str) -> Following {
    let (sender, status) = watch::channel(None);
    let trouble: Arc<Mutex<Option<Error>>> = Arc::default();
    let (run, noted) = (run.to_owned(), Arc::clone(&trouble));
    let task = tokio::spawn(async move {
        let mut pause = PAUSE.0;
        loop {
            match connection.watch_storage(&run, ANSWER).await {
                Ok(mut changes) => {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    pause = PAUSE.0;
                    // A coordinator that is gone without a word is noticed by the connection.
                    while let Ok(Some(status)) = changes.message().await {
                        sender.send_replace(Some(Arc::new(status)));
                    }
                }
                Err(error) => {
                    tracing::debug!(run, %error, "the registry is not heard");
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    // Whoever waits looks at the reason.
                    sender.send_modify(|_| {});
                }
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE.1);
        }
    });
    Following { status, trouble, task }
}

impl Following {
    /// What was heard last, and what tells of changes.
    pub fn status(&self) -> watch::Receiver<Option<Arc<StorageStatus>>> {
        self.status.clone()
    }

    /// Why the coordinator is not heard now, if it is not.
    pub fn trouble(&self) -> Option<Error> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The registry when every partition is served.
    ///
    /// # Errors
    /// When that is not so in time, with what is missing; or when the coordinator refuses.
    pub async fn complete(&self, run: &str, within: Duration) -> Result<Arc<StorageStatus>, Incomplete> {
        let mut status = self.status();
        let complete = async {
            loop {
                if let Some(refused @ (Error::Denied { .. } | Error::Refused { .. })) = self.trouble() {
                    return Err(Incomplete::Refused(refused));
                }
                let now = status.borrow_and_update().clone();
                if let Some(now) = now
                    && now.settings.is_some()
                    && now.missing.is_empty()
                    && !now.servers.is_empty()
                {
                    return Ok(now);
                }
                if status.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        if let Ok(complete) = tokio::time::timeout(within, complete).await {
            return complete;
        }
        let now = self.status.borrow().clone();
        Err(Incomplete::Late(match (now, self.trouble()) {
            (_, Some(error)) => error.to_string(),
            (None, None) => "no coordinator answered".to_owned(),
            (Some(status), None) => missing(run, &status),
        }))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why not every partition is served.
#[derive(Debug)]
pub enum Incomplete {
    /// The coordinator refuses to tell.
    Refused(Error),
    /// Not in time; what is missing, in words.
    Late(String),
}

/// Which partitions of a run are missing, in words.
pub fn missing(run: &str, status: &StorageStatus) -> String {
    let Some(settings) = status.settings.as_ref().filter(|_| !status.servers.is_empty()) else {
        return format!("run `{run}` has no server yet");
    };
    let name = |partition: &u32| {
        let assigned = status.servers.iter().find(|server| server.assigned.contains(partition));
        match assigned {
            Some(server) => format!("{partition} (which {} is opening)", server.address),
            None => partition.to_string(),
        }
    };
    let mut names: Vec<_> = status.missing.iter().take(SHOWN).map(name).collect();
    if status.missing.len() > SHOWN {
        names.push(format!("{} more", status.missing.len() - SHOWN));
    }
    let (parts, servers) = (settings.parts, status.servers.len());
    let word = if servers == 1 { "server" } else { "servers" };
    format!("of {parts} partitions, run `{run}` misses {}; it has {servers} {word}", names.join(", "))
}

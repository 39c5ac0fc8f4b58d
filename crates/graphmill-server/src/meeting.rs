//! A server that meets others through a coordinator (`docs/rendezvous.md`, "Storage"): it registers, opens what it is
//! assigned, and learns from the registry who its peers are. While no coordinator answers it serves what it has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use graphmill_graph::Dataset;
use graphmill_net::Endpoint;
use graphmill_rendezvous::Place;
use graphmill_rendezvous::client::{ConnectOptions, Connection};
use graphmill_rendezvous::storage::{self, Arrival, Registration, Terms};
use graphmill_sample::law;
use graphmill_wire::proto::StorageStatus;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::StartError;
use crate::cluster::{Announced, Cluster, Dialing};

/// How long a coordinator may take to hear that a server leaves.
const LEAVING: Duration = Duration::from_secs(2);
/// The pause before partitions that could not be opened are tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Opens further partitions of a dataset: the result has them, and those that were open.
pub type OpenPartitions = Arc<dyn Fn(&Dataset, &[u32]) -> Result<Dataset, String> + Send + Sync>;

/// Where servers of a run meet, and what this one brings.
#[derive(Clone)]
pub struct Rendezvous {
    /// Where coordinators are. They are reached with the token and the certificates that peers are.
    pub coordinators: Place,
    /// The run.
    pub run: String,
    /// Where others reach this server, if not where it listens.
    pub advertise: Option<Endpoint>,
    /// The partitions to serve; none leaves it to the coordinator.
    pub partitions: BTreeSet<u32>,
    /// Servers that each partition is placed on.
    pub replicas: u32,
    /// Servers that partitions are shared out among; 0 means as many as there are partitions.
    pub servers: u32,
    /// How long the coordinator waits for a sign of life.
    pub lease: Duration,
    /// How partitions are opened.
    pub open: OpenPartitions,
}

impl std::fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { coordinators, run, .. } = self;
        f.debug_struct("Rendezvous").field("coordinators", coordinators).field("run", run).finish_non_exhaustive()
    }
}

/// A server's part in a run, while it lasts.
#[derive(Debug)]
pub(crate) struct Meeting {
    registration: Registration,
    task: JoinHandle<()>,
    /// Tells when the server cannot go on.
    failed: watch::Receiver<Option<String>>,
}

impl Meeting {
    /// Begins to register; to be called inside a runtime.
    pub(crate) fn start(
        cluster: &Arc<Cluster>,
        rendezvous: Rendezvous,
        listen: &Endpoint,
        incarnation: u64,
        dialing: Dialing,
    ) -> Result<Self, StartError> {
        let address = rendezvous.advertise.clone().unwrap_or_else(|| listen.clone());
        if let Endpoint::Tcp { host, .. } = &address
            && ["0.0.0.0", "::"].contains(&host.as_str())
        {
            let reason = format!("{address} is no address to reach this server at; say one with --advertise");
            return Err(StartError::Options(reason));
        }
        let connecting = ConnectOptions { token: dialing.token.clone(), tls: dialing.tls.clone() };
        let connection = Connection::open(&rendezvous.coordinators, &connecting)
            .map_err(|error| StartError::Options(error.to_string()))?;
        let dataset = &cluster.dataset;
        let arrival = Arrival {
            address: address.to_string(),
            incarnation,
            terms: Terms {
                fingerprint: dataset.fingerprint().to_string(),
                law: law::VERSION,
                parts: dataset.parts(),
                replicas: rendezvous.replicas,
                servers: rendezvous.servers,
            },
            lease: rendezvous.lease,
            wanted: rendezvous.partitions,
            serving: BTreeSet::new(),
        };
        let (serving, served) = watch::channel(cluster.lineup().partitions().into_iter().collect());
        let registration = Registration { connection: connection.clone(), run: rendezvous.run.clone(), arrival };
        let (failing, failed) = watch::channel(None);
        let follower = Follower {
            cluster: Arc::downgrade(cluster),
            address: address.to_string(),
            incarnation,
            open: rendezvous.open,
            dialing,
            serving,
            opening: None,
        };
        let following = storage::follow(connection, &rendezvous.run);
        let (keeping, run) = (registration.clone(), rendezvous.run);
        let task = tokio::spawn(async move {
            let reason = tokio::select! {
                refused = storage::keep_registered(keeping, served) => refused.to_string(),
                reason = follower.work(following) => reason,
            };
            tracing::error!(run, reason, "this server cannot take part");
            let _ = failing.send(Some(reason));
        });
        Ok(Self { registration, task, failed })
    }

    /// Waits until the server cannot go on, and says why; for ever, if all is well.
    pub(crate) async fn failed(&self) -> String {
        let mut failed = self.failed.clone();
        match failed.wait_for(Option::is_some).await.map(|reason| reason.clone()) {
            Ok(Some(reason)) => reason,
            _ => std::future::pending().await,
        }
    }

    /// Leaves the registry, so that others take over at once.
    pub(crate) async fn leave(&self) {
        self.task.abort();
        if let Err(error) = self.registration.leave(LEAVING).await {
            tracing::warn!(%error, "the coordinator was not told; this server's lease ends by itself");
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Does what the registry says.
struct Follower {
    cluster: std::sync::Weak<Cluster>,
    address: String,
    incarnation: u64,
    open: OpenPartitions,
    dialing: Dialing,
    serving: watch::Sender<BTreeSet<u32>>,
    /// Partitions that are being opened, on a thread of their own: that may take minutes.
    opening: Option<JoinHandle<Result<Dataset, String>>>,
}

impl Follower {
    /// Follows the registry for as long as the server is there; ends when it can serve nothing, and says why.
    async fn work(mut self, following: storage::Following) -> String {
        let mut status = following.status();
        let mut again: Option<tokio::time::Instant> = None;
        loop {
            let now = status.borrow_and_update().clone();
            let Some(cluster) = self.cluster.upgrade() else { return "it is gone".to_owned() };
            if let Some(now) = now {
                self.learn_peers(&cluster, &now);
                if self.opening.is_none() && again.is_none_or(|at| at <= tokio::time::Instant::now()) {
                    again = None;
                    self.open_assigned(&cluster, &now);
                }
            }
            drop(cluster);
            let opened = async {
                match &mut self.opening {
                    Some(opening) => opening.await,
                    None => std::future::pending().await,
                }
            };
            let pause = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = status.changed() => if changed.is_err() {
                    return "the registry is not followed any more".to_owned();
                },
                () = pause => {}
                opened = opened => {
                    self.opening = None;
                    let opened = opened.unwrap_or_else(|error| Err(format!("opening partitions failed: {error}")));
                    if let Err(reason) = self.take(opened) {
                        if self.serving.borrow().is_empty() {
                            return reason;
                        }
                        tracing::error!(reason, "partitions of a server that is gone cannot be opened; trying again");
                        again = Some(tokio::time::Instant::now() + AGAIN);
                    }
                }
            }
        }
    }

    fn learn_peers(&self, cluster: &Arc<Cluster>, status: &StorageStatus) {
        let others = status.servers.iter().filter(|server| server.address != self.address);
        let announced: Vec<Announced> = others
            .filter(|server| !server.serving.is_empty())
            .filter_map(|server| {
                let endpoint = server.address.parse().ok()?;
                Some(Announced { endpoint, incarnation: server.incarnation, partitions: server.serving.clone() })
            })
            .collect();
        cluster.set_peers(&announced, &self.dialing);
    }

    /// Begins to open what the registry gave to this server and is not here yet.
    fn open_assigned(&mut self, cluster: &Cluster, status: &StorageStatus) {
        let is_own = |server: &&graphmill_wire::proto::StorageServer| {
            server.address == self.address && server.incarnation == self.incarnation
        };
        let Some(own) = status.servers.iter().find(is_own) else { return };
        let lineup = cluster.lineup();
        let parts = lineup.dataset.parts();
        let here = lineup.partitions();
        let wanted: Vec<u32> =
            own.assigned.iter().copied().filter(|part| *part < parts && !here.contains(part)).collect();
        if wanted.is_empty() {
            return;
        }
        tracing::info!(partitions = ?wanted, "opening partitions");
        let (dataset, open) = (Arc::clone(&lineup.dataset), Arc::clone(&self.open));
        self.opening = Some(tokio::task::spawn_blocking(move || open(&dataset, &wanted)));
    }

    /// Serves what was opened, and says so.
    fn take(&self, opened: Result<Dataset, String>) -> Result<(), String> {
        let Some(cluster) = self.cluster.upgrade() else { return Ok(()) };
        cluster.hold(opened?);
        let partitions = cluster.lineup().partitions();
        tracing::info!(?partitions, "serving");
        self.serving.send_replace(partitions.into_iter().collect());
        Ok(())
    }
}

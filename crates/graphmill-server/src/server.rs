//! A running server: what it is told, how it starts, how it stops.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use graphmill_graph::{Dataset, guard};
use graphmill_net::{Accepted, ClientTls, Endpoint, Listener, ServerTls, Token};
use graphmill_wire::proto::dataset_service_server::DatasetServiceServer;
use graphmill_wire::proto::sampling_service_server::SamplingServiceServer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tonic::service::Routes;

use crate::budget::Budget;
use crate::cluster::{Cluster, Connected, Dialing};
use crate::connection::{self, Greeting};
use crate::core::Core;
use crate::dataset::DatasetApi;
use crate::limits::{Limits, STARVED};
use crate::meeting::{Meeting, Rendezvous};
use crate::metrics::Metrics;
use crate::registry::Registry;
use crate::sampling::SamplingApi;
use crate::scheduler::Scheduler;
use crate::work::Work;
use crate::{Refusal, http, job, strays};

/// How long workers may take to notice, once the time to finish is over, that nobody waits for their batches.
const GIVING_UP: Duration = Duration::from_secs(5);

/// How often it is looked whether a mapped file cannot be read any more.
const LOOK: Duration = Duration::from_millis(50);
/// The most connections at once that are being told that there are too many, and the most of those that only watch.
const TURNED_AWAY: usize = 64;
const WATCHING: usize = 64;

/// How a server is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens, for all planes.
    pub listen: Vec<Endpoint>,
    /// A further address for health and metrics alone, which it tells everyone there.
    pub watch_listen: Option<Endpoint>,
    /// Servers with the other partitions.
    pub peers: Vec<Endpoint>,
    /// Where it meets servers with the other partitions, instead.
    pub rendezvous: Option<Rendezvous>,
    /// Threads that sample.
    pub threads: usize,
    /// What clients and peers must know.
    pub token: Option<Token>,
    /// How it shows who it is.
    pub tls: Option<ServerTls>,
    /// How it reaches peers.
    pub peer_tls: Option<ClientTls>,
    /// Whether it may listen beyond this host without token and certificates.
    pub insecure: bool,
    /// How long a silent client keeps its channels.
    pub lease: Duration,
    /// How long a sampler waits for peers with the partitions it needs.
    pub peer_wait: Duration,
    /// How long a peer may be silent, and a question take to arrive.
    pub patience: Duration,
    /// How much it takes on at once.
    pub limits: Limits,
    /// Whether clients on this host may get batches in shared memory.
    pub shared_memory: bool,
    /// Further services on the same address, each with a guard of its own.
    pub services: Routes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: vec![Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 0 }],
            watch_listen: None,
            peers: Vec::new(),
            rendezvous: None,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            token: None,
            tls: None,
            peer_tls: None,
            insecure: false,
            lease: Duration::from_secs(30),
            peer_wait: Duration::from_secs(10),
            patience: Duration::from_secs(30),
            limits: Limits::default(),
            shared_memory: true,
            services: Routes::default(),
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An option is not safe or not sound.
    #[error("{0}")]
    Options(String),
    /// It cannot listen.
    #[error("cannot listen")]
    Listen(#[from] graphmill_net::Error),
    /// The system refused something.
    #[error("cannot start")]
    System(#[from] std::io::Error),
    /// The dataset does not fit together.
    #[error(transparent)]
    Dataset(#[from] Refusal),
    /// The description of the control plane is broken.
    #[error("cannot describe the control plane")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    core: Arc<Core>,
    endpoints: Vec<Endpoint>,
    watch: Option<Endpoint>,
    accepting: tokio::task::JoinHandle<()>,
    threads: Vec<JoinHandle<()>>,
    meeting: Option<Meeting>,
    health: tonic_health::server::HealthReporter,
    /// Made for this server alone.
    socket_folder: Option<PathBuf>,
}

/// What was left when a server stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Channels that nobody had closed.
    pub channels: usize,
    /// Batches that were still under way.
    pub batches: usize,
}

impl Server {
    /// Starts to serve the opened partitions of a dataset; to be called inside a runtime.
    pub async fn start(dataset: Dataset, options: Options) -> Result<Self, StartError> {
        check(&options)?;
        raise_descriptors();
        let incarnation = incarnation();
        let fingerprint = dataset.fingerprint().to_string();
        let client = {
            let mut client = [0; 16];
            client[..8].copy_from_slice(&incarnation.to_le_bytes());
            client[8..12].copy_from_slice(&std::process::id().to_le_bytes());
            client
        };
        let dialing = |endpoint: &Endpoint| Dialing {
            endpoint: endpoint.clone(),
            tls: options.peer_tls.clone(),
            token: options.token.clone(),
            fingerprint: fingerprint.clone(),
            client,
        };
        let peer_dialing = options.listen.first().map(dialing);
        let peers = options.peers.iter().map(dialing).collect();
        let cluster = Cluster::new(Arc::new(dataset), peers, options.limits.row_cache)?;
        // A batch that waits for peers holds no thread, so there may be more batches than threads.
        let waits = if cluster.lineup().is_whole() && options.rendezvous.is_none() { 1 } else { 4 };
        let budget = Budget::new(options.limits.memory);
        let core = Arc::new(Core {
            cluster,
            registry: Registry::new(incarnation, options.lease, options.limits.channels),
            work: Arc::new(Work::new(options.threads.max(1) * waits, Arc::clone(&budget))),
            budget,
            limits: options.limits,
            connections: AtomicUsize::new(0),
            metrics: Metrics::new(),
            incarnation,
            threads: options.threads.max(1),
            peer_wait: options.peer_wait,
            started: Instant::now(),
            unsent: Arc::default(),
            stopping: AtomicBool::new(false),
        });

        let mut listen = options.listen.clone();
        strays::remove(&strays::base()).await;
        let unix_socket = options.shared_memory.then(|| unix_socket(incarnation)).flatten();
        listen.extend(unix_socket.iter().cloned().map(Endpoint::Unix));
        let listener = Listener::bind(&listen, options.tls.clone()).await?;
        let endpoints = listener.local_endpoints()[..options.listen.len()].to_vec();
        let watch_listener = match &options.watch_listen {
            Some(endpoint) => Some(Listener::bind(std::slice::from_ref(endpoint), None).await?),
            None => None,
        };
        let watch = watch_listener.as_ref().and_then(|listener| listener.local_endpoints().first().cloned());

        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<SamplingServiceServer<SamplingApi>>().await;
        health.set_serving::<DatasetServiceServer<DatasetApi>>().await;
        let router = http::router(&core, options.token.clone(), health_service, options.services)?;

        let begin = {
            let core = Arc::downgrade(&core);
            move |turn, memory: &mut crate::work::Memory| {
                if let Some(core) = core.upgrade() {
                    job::begin(&core, turn, memory);
                }
            }
        };
        let threads = core.work.start(core.threads, begin)?;
        let peers = core.cluster.connect();
        let greeting = Arc::new(Greeting {
            token: options.token.clone(),
            unix_socket: unix_socket.as_ref().map(|path| path.to_string_lossy().into_owned()),
            lease: options.lease,
            patience: options.patience,
        });
        let accepting = tokio::spawn(accept(Arc::clone(&core), greeting, listener, router, watch_listener, peers));
        let socket_folder = unix_socket.and_then(|path| path.parent().map(PathBuf::from));
        let mut server = Self { core, endpoints, watch, accepting, threads, meeting: None, health, socket_folder };
        // Last, when others can reach it.
        if let (Some(rendezvous), Some(dialing), Some(listen)) =
            (options.rendezvous, peer_dialing, server.endpoints.first())
        {
            let meeting = Meeting::start(&server.core.cluster, rendezvous, listen, incarnation, dialing)?;
            server.meeting = Some(meeting);
        }
        Ok(server)
    }

    /// Where it listens, with the ports it was given.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Where health and metrics are, if they have an address of their own.
    pub fn watch_endpoint(&self) -> Option<&Endpoint> {
        self.watch.as_ref()
    }

    /// For how long no client has had a lease any more; nothing while one has, or before the first.
    pub fn deserted(&self) -> Option<Duration> {
        self.core.registry.deserted()
    }

    /// Waits until it cannot go on, because the coordinator refuses it, its partitions cannot be opened, or a mapped file
    /// cannot be read any more; for ever, if all is well.
    pub async fn failed(&self) -> String {
        let meeting = async {
            match &self.meeting {
                Some(meeting) => meeting.failed().await,
                None => std::future::pending().await,
            }
        };
        let lost_page = async {
            loop {
                if let Some(page) = guard::lost_page() {
                    return page.to_string();
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            reason = meeting => reason,
            reason = lost_page => reason,
        }
    }

    /// Stops: takes nothing new, finishes what is under way within a time, and lets go of everyone.
    pub async fn stop(mut self, within: Duration) -> Leftovers {
        self.core.stopping.store(true, Ordering::Release);
        self.health.set_not_serving::<SamplingServiceServer<SamplingApi>>().await;
        self.health.set_not_serving::<DatasetServiceServer<DatasetApi>>().await;
        // A probe that names no service asks about all of them.
        self.health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        if let Some(meeting) = &self.meeting {
            meeting.leave().await;
        }
        let channels = self.core.registry.channels();
        // What waits is not begun; clients ask elsewhere, or again.
        self.core.work.scheduler(Scheduler::forget_waiting);
        let deadline = Instant::now() + within;
        let running = |core: &Core| core.work.scheduler(|scheduler| scheduler.running());
        let unsent = |core: &Core| core.unsent.load(Ordering::Acquire);
        while running(&self.core) + unsent(&self.core) > 0 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let leftovers = Leftovers { channels: channels.len(), batches: running(&self.core) };
        self.accepting.abort();
        // With the task its sockets are gone.
        let _ = (&mut self.accepting).await;
        self.core.work.stop();
        // What is still sampled is given up at its next step.
        self.core.cancel(&self.core.registry.channels());
        let deadline = Instant::now() + GIVING_UP;
        // A worker that stands still over a lost page is not waited for.
        let waits = || guard::lost_page().is_none() && self.threads.iter().any(|thread| !thread.is_finished());
        while waits() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        leftovers
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        self.core.work.stop();
        if let Some(folder) = &self.socket_folder {
            // Stays where its socket is still open, because the server was not stopped in good order.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn check(options: &Options) -> Result<(), StartError> {
    if options.listen.is_empty() {
        return Err(StartError::Options("a server needs an address to listen on".to_owned()));
    }
    options.limits.check().map_err(StartError::Options)?;
    let guarded = options.token.is_some() || options.tls.as_ref().is_some_and(ServerTls::is_mutual);
    check_open(options.listen.iter().chain(&options.watch_listen), guarded || options.insecure)
}

/// Fails if an address can be reached from other hosts and is not to be.
pub(crate) fn check_open<'a>(listen: impl IntoIterator<Item = &'a Endpoint>, may: bool) -> Result<(), StartError> {
    match listen.into_iter().find(|endpoint| !endpoint.is_loopback()) {
        Some(open) if !may => Err(StartError::Options(format!(
            "{open} can be reached from other hosts: give a token (--token-file) or mutual TLS (--tls-client-ca), or say \
             --insecure"
        ))),
        _ => Ok(()),
    }
}

/// Lets this process have as many descriptors as it may: each connection takes one, and each piece of shared memory.
pub(crate) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, connections beyond the old limit wait in the system.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A number that another start of the server does not have: 31 bits of the clock's microseconds.
fn incarnation() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    (now ^ u64::from(std::process::id()) << 20) & 0x7fff_ffff | 1
}

/// A place for the socket that memory is shared over, in a folder that only this user can reach; nothing where the path
/// would be longer than sockets allow.
fn unix_socket(incarnation: u64) -> Option<PathBuf> {
    const LONGEST: usize = 107;
    let path = strays::socket(&strays::base(), std::process::id(), incarnation);
    if path.as_os_str().len() > LONGEST {
        tracing::warn!(path = %path.display(), "no shared memory: the path of its socket is too long; set TMPDIR");
        return None;
    }
    Some(path)
}

/// Takes connections, ends leases and keeps up with peers, until it is aborted.
async fn accept(
    core: Arc<Core>,
    greeting: Arc<Greeting>,
    listener: Listener,
    router: axum::Router,
    watch: Option<Listener>,
    _peers: Connected,
) {
    // Dropped with this task, so that no connection outlives the server.
    let (mut connections, mut watching, mut turned_away) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    let pages = http::watch(&core);
    let mut sweep =
        tokio::time::interval((greeting.lease / 10).clamp(Duration::from_millis(20), Duration::from_secs(1)));
    let watched = async |watch: &Option<Listener>| match watch {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) if connections.len() >= core.limits.connections => {
                    core.metrics.refused("connections");
                    // Who comes when even these are too many is dropped without a word.
                    if turned_away.len() < TURNED_AWAY {
                        turned_away.spawn(turn_away(accepted, core.limits.connections));
                    }
                }
                Ok(Accepted::Data { stream, peer }) => {
                    connections.spawn(connection::serve(Arc::clone(&core), Arc::clone(&greeting), stream, peer));
                }
                Ok(Accepted::Http { stream, .. }) => {
                    connections.spawn(http::serve(stream, router.clone()));
                }
                Err(error) => {
                    tracing::error!(%error, "cannot take connections any more");
                    return;
                }
            },
            accepted = watched(&watch) => {
                if let Ok(Accepted::Http { stream, .. }) = accepted && watching.len() < WATCHING {
                    watching.spawn(http::serve(stream, pages.clone()));
                }
            }
            _ = sweep.tick() => {
                core.sweep();
                if let Some(since) = Instant::now().checked_sub(STARVED) {
                    core.refuse_starved(since);
                }
            }
            Some(_) = connections.join_next() => {}
            Some(_) = watching.join_next() => {}
            Some(_) = turned_away.join_next() => {}
        }
        core.connections.store(connections.len(), Ordering::Relaxed);
    }
}

/// Tells somebody that there are too many connections.
async fn turn_away(accepted: Accepted, most: usize) {
    let (Accepted::Data { peer, .. } | Accepted::Http { peer, .. }) = &accepted;
    tracing::warn!(peer = peer.address, connections = most, "refused a connection: there are as many as may be");
    let refusal = Refusal::busy(format!(
        "this server has {most} connections already, as many as may be (--max-connections); try again later, or another \
         server"
    ));
    match accepted {
        Accepted::Data { stream, .. } => connection::turn_away(stream, refusal).await,
        Accepted::Http { stream, .. } => http::turn_away(stream, refusal).await,
    }
}

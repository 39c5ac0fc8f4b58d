//! An object server: a process, or a part of one, that holds objects for others.

mod blob;
mod budget;
mod connection;
mod store;
mod tray;

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_net::{Accepted, Endpoint, Listener, ServerTls, Stopping, Token, random};
use graphmill_wire::proto;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

use crate::config::seconds;
use crate::life::READY;
use crate::wire::lock;
use crate::{Error, Result, ServerConfig};

use blob::Blob;
use budget::Budget;
use store::Store;

/// The most connections at a time.
const CONNECTIONS: usize = 4096;
/// How often objects whose time is over are looked for.
const SWEEP: Duration = Duration::from_millis(250);
/// Objects from this size on go through shared memory.
const SHARED_FROM: u64 = 64 << 10;
/// How long a started server tries to listen where another is just about to leave.
const LEAVING: Duration = Duration::from_secs(1);
/// The longest path of a socket.
const LONGEST_PATH: usize = 107;

/// What all connections of a server share.
#[derive(Debug)]
struct Core {
    token: Option<Token>,
    generation: u64,
    budget: Arc<Budget>,
    object_limit: u64,
    ttl: Option<Duration>,
    /// How long it stays without a connection; none if it was started by hand.
    linger: Option<Duration>,
    /// The socket for shared memory.
    unix_socket: Option<String>,
    /// How many objects may be in shared memory, each of which takes a descriptor.
    descriptors: Arc<Budget>,
    /// Whether objects make room for others.
    evicts: bool,
    store: Mutex<Store>,
    /// Objects that clients have mapped, by the connection that lent them and the numbers that they are returned by.
    lent: Mutex<HashMap<u64, HashMap<u32, Arc<Blob>>>>,
    started: Instant,
    connections: AtomicUsize,
    /// A connection came or ended.
    changed: Notify,
    /// A client told it to stop.
    stop: Notify,
}

impl Core {
    fn stats(&self) -> proto::ObjectStats {
        let store = lock(&self.store);
        let counts = store.counts;
        proto::ObjectStats {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            objects: store.len() as u64,
            used: self.budget.used(),
            budget: self.budget.total(),
            object_limit: self.object_limit,
            connections: self.connections.load(Ordering::Relaxed) as u64,
            waiting_gets: store.waiting() as u64,
            waiting_puts: self.budget.waiting() as u64,
            puts: counts.puts,
            gets: counts.gets,
            hits: counts.hits,
            refused: counts.refused,
            evicted: counts.evicted,
            expired: counts.expired,
            spawned: self.linger.is_some(),
        }
    }
}

/// A server that runs until it is stopped or dropped.
#[derive(Debug)]
pub struct Server {
    core: Arc<Core>,
    endpoints: Vec<Endpoint>,
    accepting: JoinHandle<()>,
    /// Made for this server alone.
    socket_folder: Option<PathBuf>,
}

impl Server {
    /// Starts to listen; to be called inside a runtime.
    ///
    /// # Errors
    /// When the configuration cannot be right, or an address cannot be listened on.
    pub async fn start(config: &ServerConfig) -> Result<Self> {
        let endpoints = config.endpoints()?;
        let (token, tls) = (config.token()?, config.tls()?);
        check_open(&endpoints, config, token.is_some(), tls.as_ref())?;
        let generation = random() | 1;
        let mut listen = endpoints.clone();
        let is_unix = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Unix(_));
        let own_socket = endpoints.iter().find(|endpoint| is_unix(endpoint)).cloned();
        // Whoever came by a Unix socket shares memory there; others are shown one.
        let made_socket = (config.shared_memory && own_socket.is_none()).then(|| unix_socket(generation)).flatten();
        listen.extend(made_socket.iter().cloned().map(Endpoint::Unix));
        let start =
            |error: graphmill_net::Error| Error::Start { at: config.listen.join(", "), reason: error.to_string() };
        let listener = Listener::bind(&listen, tls).await.map_err(start)?;
        let unix_socket = match (&own_socket, &made_socket) {
            (Some(Endpoint::Unix(path)), _) | (_, Some(path)) if config.shared_memory => {
                path.to_str().map(str::to_owned)
            }
            _ => None,
        };
        let budget = Budget::new(config.budget);
        let descriptors = Budget::new(if config.shared_memory { shared_objects() } else { 0 });
        let core = Arc::new(Core {
            token,
            generation,
            budget,
            object_limit: config.object_limit(),
            ttl: config.ttl.map(|ttl| seconds("ttl", ttl)).transpose()?,
            linger: config.linger.map(|linger| seconds("linger", linger)).transpose()?,
            unix_socket,
            descriptors,
            evicts: config.evict,
            store: Mutex::new(Store::new(config.evict)),
            lent: Mutex::default(),
            started: Instant::now(),
            connections: AtomicUsize::new(0),
            changed: Notify::new(),
            stop: Notify::new(),
        });
        let endpoints = listener.local_endpoints()[..endpoints.len()].to_vec();
        let accepting = tokio::spawn(accept(Arc::clone(&core), listener));
        let socket_folder = made_socket.and_then(|path| path.parent().map(PathBuf::from));
        Ok(Self { core, endpoints, accepting, socket_folder })
    }

    /// Where it listens, with the ports it was given.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Ends when a client told the server to stop, or nobody has used it for its linger time.
    pub async fn unused(&self) {
        let core = &self.core;
        loop {
            let changed = core.changed.notified();
            let linger = core.linger.filter(|_| core.connections.load(Ordering::Acquire) == 0);
            let alone = async {
                match linger {
                    Some(linger) => tokio::time::sleep(linger).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = core.stop.notified() => return,
                // Somebody may have come at this very moment.
                () = alone => if core.connections.load(Ordering::Acquire) == 0 { return },
                () = changed => {}
            }
        }
    }

    /// Stops, and lets go of everyone.
    pub async fn stop(mut self) {
        self.accepting.abort();
        // With the task its sockets are gone.
        let _ = (&mut self.accepting).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
        if let Some(folder) = &self.socket_folder {
            // Stays where its socket is still open, because the server was not stopped in good order.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Runs a server in this thread until a signal (SIGTERM, SIGINT, or SIGHUP unless that is ignored), a client or the end of its
/// use stops it. `listening` is told where it listens.
///
/// # Errors
/// When it cannot start.
pub fn start_server(config: &ServerConfig, listening: impl FnOnce(&[Endpoint])) -> Result<()> {
    run(config, Duration::ZERO, listening)
}

/// Runs a server that a connector started, in this process: reads its configuration from standard input, prints a line when it
/// listens, and returns when nobody uses it any more. What `spawn.command` names must end up here.
///
/// # Errors
/// When it cannot start.
pub fn serve_spawned() -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| Error::config(format!("standard input: {error}")))?;
    let config = ServerConfig::from_json(&text)?;
    run(&config, LEAVING, |_| {
        use std::io::Write as _;
        let mut stdout = std::io::stdout().lock();
        // A starter that is gone needs not be told.
        let _ = writeln!(stdout, "{READY}").and_then(|()| stdout.flush());
    })
}

fn run(config: &ServerConfig, patience: Duration, listening: impl FnOnce(&[Endpoint])) -> Result<()> {
    raise_descriptor_limit();
    let failed = |error: std::io::Error| Error::Start { at: config.listen.join(", "), reason: error.to_string() };
    // One thread needs no other to be woken: small objects are faster by it.
    let runtime = match config.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build(),
    };
    let runtime = runtime.map_err(failed)?;
    runtime.block_on(async {
        let mut stopping = Stopping::listen().map_err(failed)?;
        let began = Instant::now();
        let server = loop {
            match Server::start(config).await {
                Err(Error::Start { .. }) if began.elapsed() < patience => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                started => break started?,
            }
        };
        listening(server.endpoints());
        tokio::select! {
            () = stopping.asked() => {}
            () = server.unused() => {}
        }
        server.stop().await;
        Ok(())
    })
}

/// Takes connections and forgets what is over, until it is aborted.
async fn accept(core: Arc<Core>, listener: Listener) {
    // Dropped with this task, so that no connection outlives the server.
    let mut connections = JoinSet::new();
    let mut sweep = tokio::time::interval(SWEEP);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(_) if connections.len() >= CONNECTIONS => {
                    tracing::warn!(connections = connections.len(), "too many connections; one more is dropped");
                }
                Ok(Accepted::Data { stream, peer }) => {
                    connections.spawn(connection::serve(Arc::clone(&core), stream, peer));
                }
                Ok(Accepted::Http { peer, .. }) => {
                    tracing::debug!(peer = peer.address, "dropping a connection: an object server does not speak HTTP");
                }
                Err(error) => {
                    tracing::error!(%error, "cannot take connections any more");
                    return;
                }
            },
            _ = sweep.tick() => lock(&core.store).expire(Instant::now()),
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Fails if an address can be reached from other hosts and is not to be.
fn check_open(endpoints: &[Endpoint], config: &ServerConfig, token: bool, tls: Option<&ServerTls>) -> Result<()> {
    let guarded = token || tls.is_some_and(ServerTls::is_mutual) || config.insecure;
    match endpoints.iter().find(|endpoint| !endpoint.is_loopback()) {
        Some(open) if !guarded => Err(Error::config(format!(
            "{open} can be reached from other hosts: give a token (token_file) or mutual TLS (tls_client_ca), or say \
             insecure"
        ))),
        _ => Ok(()),
    }
}

/// A place for the socket that memory is shared over, in a folder that only this user can reach; nothing where the path would
/// be longer than sockets allow.
fn unix_socket(generation: u64) -> Option<PathBuf> {
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let path = base.join(format!("graphmill-objects-{generation:x}")).join("memory.sock");
    if path.as_os_str().len() > LONGEST_PATH {
        tracing::warn!(path = %path.display(), "no shared memory: the path of its socket is too long; set TMPDIR");
        return None;
    }
    Some(path)
}

/// Lets this process have as many descriptors as the system allows it.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, fewer objects are in shared memory.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// How many objects may take a descriptor: half of those that this process may have.
fn shared_objects() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2
}

//! Storage servers as a client sees them: members that are reached, kept up with, and asked for batches.

mod control;
mod dataset;
mod homes;
mod inbox;
mod member;
mod roster;
mod servers;
mod sharding;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graphmill_graph::Manifest;
use graphmill_net::{ClientTls, Endpoint, Token, random};
use graphmill_wire::proto::sampling_service_client::SamplingServiceClient;
use graphmill_wire::proto::{LeaveRequest, StatusRequest, StatusResponse};
use tokio::runtime::Runtime;

use crate::{Error, Result};
use control::Control;
use member::Member;
use roster::{Members, Roster};

pub use dataset::{
    AnchorLabels, EdgeIndex, EdgeLayout, Meta, Original, Padded, PartitionBook, RemoteDataset, Rows, compress,
};
pub(crate) use inbox::Receiving;
pub use servers::Servers;
pub use sharding::{ServerSlice, Shard, rank_slices};
pub use source::Seeding;
pub(crate) use source::{RemoteSource, Seeded};

/// How long to wait for the first data connection before servers without one are tried.
const CONNECTING: Duration = Duration::from_secs(2);

/// The time to take leave in: who ends a program, by Ctrl-C say, does not wait for a server that is frozen.
const FAREWELL: Duration = Duration::from_secs(1);

/// How batches come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transport {
    /// In shared memory where the server is on this host, else over its address.
    #[default]
    Auto,
    /// Over the address that was given.
    Socket,
    /// Over the server's Unix socket, which it must have.
    UnixSocket,
    /// In shared memory, or not at all.
    SharedMemory,
}

/// How servers are reached.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// What the servers want to hear.
    pub token: Option<Token>,
    /// Whom to trust, and who this is.
    pub tls: Option<ClientTls>,
    /// How batches come.
    pub transport: Transport,
    /// How long a call, or a batch that is waited for, may take.
    pub deadline: Duration,
    /// A name that keeps this run's backends apart from those of others on the same servers.
    pub run: String,
    /// A name for people: the rank, say.
    pub worker: String,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            token: None,
            tls: None,
            transport: Transport::Auto,
            deadline: Duration::from_secs(60),
            run: String::new(),
            worker: String::new(),
        }
    }
}

/// A connection to the storage servers of one dataset.
#[derive(Debug)]
pub struct Remote {
    /// Sends, receives and renews leases, whatever the threads of the program do. Always there until it is dropped.
    runtime: Option<Runtime>,
    roster: Arc<Roster>,
    /// Whether servers come and go as a registry tells.
    follows: bool,
    options: ConnectOptions,
    client: [u8; 16],
    manifest: Manifest,
    /// Whose connection it is: a child of this process has neither its threads nor a say in its locks.
    process: u32,
}

/// What arrived, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Batches received.
    pub batches: u64,
    /// Bytes of batches that came through a socket.
    pub socket_bytes: u64,
    /// Bytes of batches that came in shared memory.
    pub shared_bytes: u64,
    /// Bytes of batches in shared memory that were copied, because too many were held.
    pub copied_bytes: u64,
}

impl Remote {
    /// Connects to the servers at some addresses, all of one dataset.
    ///
    /// # Errors
    /// When none of them can be reached in time, or they refuse.
    pub fn connect(addresses: &[Endpoint], options: ConnectOptions) -> Result<Arc<Self>> {
        Self::connect_to(&Servers::At(addresses.to_vec()), options)
    }

    /// Connects to the servers at some addresses, or to those of a run: waits until they serve every partition, and from
    /// then on learns of servers that come and go.
    ///
    /// # Errors
    /// When no server can be reached in time, a partition is not served in time, or somebody refuses.
    pub fn connect_to(servers: &Servers, options: ConnectOptions) -> Result<Arc<Self>> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("graphmill-client")
            .enable_all()
            .build()
            .map_err(|error| Error::servers(format!("there is no thread to be had for connections: {error}")))?;
        let client = client_id();
        let (addresses, following) = runtime.block_on(servers.find(&options))?;
        if addresses.is_empty() {
            return Err(Error::servers("no server was named"));
        }
        let controls: Vec<Control> = {
            let _inside = runtime.enter();
            addresses.iter().map(|endpoint| Control::new(endpoint.clone(), &options, None)).collect()
        };
        let described = runtime.block_on(control::describe(&controls, options.deadline))?;
        let manifest = Manifest::parse(described.manifest.as_bytes(), std::path::Path::new("the server's manifest"))?;
        let roster = {
            let _inside = runtime.enter();
            Roster::start(&addresses, &options, client, described.fingerprint)
        };
        let follows = following.is_some();
        if let Some(following) = following {
            runtime.spawn(Arc::clone(&roster).keep_up(following));
        }
        let process = std::process::id();
        Ok(Arc::new(Self { runtime: Some(runtime), roster, follows, options, client, manifest, process }))
    }

    /// The servers that are known now.
    pub(crate) fn members(&self) -> Members {
        self.roster.members()
    }

    /// Among how many servers ids are shared out: one number for all who ask, so where servers come and go it is that of
    /// the partitions.
    pub(crate) fn server_count(&self) -> u32 {
        if self.follows { self.manifest.parts } else { self.members().len() as u32 }
    }

    /// Whether this is a copy, in a child of the process that connected.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Fails in such a copy, which has none of the threads that would answer.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() {
            return Err(Error::servers("this process was forked from the one that connected; connect again"));
        }
        Ok(())
    }

    /// What the dataset holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What each server says of itself, or why it does not.
    pub fn status(&self) -> Vec<(Endpoint, Result<StatusResponse>)> {
        let ask = |member: &Arc<Member>| {
            let control = member.control.clone();
            let status = self.block_on(async move {
                let mut service = SamplingServiceClient::new(control.transport());
                service.status(StatusRequest {}).await
            });
            let status = status.and_then(|status| {
                status
                    .map(tonic::Response::into_inner)
                    .map_err(|status| member.control.error("ask for its status", &status))
            });
            (member.control.endpoint.clone(), status)
        };
        self.members().iter().map(ask).collect()
    }

    /// What arrived so far.
    pub fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        for member in self.members().iter() {
            let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            traffic.batches += counted(&member.counters.batches);
            traffic.socket_bytes += counted(&member.counters.socket_bytes);
            traffic.shared_bytes += counted(&member.counters.shared_bytes);
            traffic.copied_bytes += counted(&member.counters.copied_bytes);
        }
        traffic
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime is there until the connection is dropped")
    }

    /// Waits for something on the connection's own threads, so that it works on any thread of the program; never longer
    /// than the deadline.
    pub(crate) fn block_on<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T> {
        self.block_on_within(self.options.deadline, future)
    }

    /// The same with a deadline of its own.
    pub(crate) fn block_on_within<T: Send + 'static>(
        &self,
        within: Duration,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        self.check_process()?;
        let within = within.min(self.options.deadline);
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.runtime().spawn(async move {
            let _ = sender.send(future.await);
        });
        receiver.recv_timeout(within).map_err(|_| Error::Late {
            what: "an answer".to_owned(),
            seconds: within.as_secs_f64(),
            reason: self.describe_members(),
        })
    }

    /// The members in the order to ask them: those that are connected first. Waits a little for one that is.
    pub(crate) fn members_by_health(&self) -> Vec<Arc<Member>> {
        let deadline = Instant::now() + CONNECTING.min(self.options.deadline);
        while !self.members().iter().any(|member| member.is_up()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut members = self.members().to_vec();
        members.sort_by_key(|member| !member.is_up());
        members
    }

    fn describe_members(&self) -> String {
        let members: Vec<_> = self.members().iter().map(|member| member.describe()).collect();
        if members.is_empty() { "no server is known".to_owned() } else { members.join("; ") }
    }
}

impl Drop for Remote {
    /// Gives the leases back, if that can be done soon; else they end by themselves.
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        if self.is_forked() {
            // Its threads are the parent's, who goes on with them.
            return std::mem::forget(runtime);
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let members = self.members();
        for member in members.iter() {
            member.stop();
            let (control, client, sender) = (member.control.clone(), self.client.to_vec(), sender.clone());
            runtime.spawn(async move {
                let mut service = SamplingServiceClient::new(control.transport());
                let _ = service.leave(LeaveRequest { client }).await;
                let _ = sender.send(());
            });
        }
        drop(sender);
        let deadline = Instant::now() + FAREWELL;
        for _ in members.iter() {
            let left = deadline.saturating_duration_since(Instant::now());
            if receiver.recv_timeout(left).is_err() {
                break;
            }
        }
        runtime.shutdown_background();
    }
}

/// 16 random bytes.
fn client_id() -> [u8; 16] {
    let mut client = [0; 16];
    client[..8].copy_from_slice(&random().to_le_bytes());
    client[8..].copy_from_slice(&random().to_le_bytes());
    client
}

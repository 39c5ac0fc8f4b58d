//! Backends and channels over the control plane.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use graphmill_sample::{Config, PartitionLists, Plan};
use graphmill_wire::proto::sampling_service_server::SamplingService;
use graphmill_wire::proto::{
    BackendStatus, ChannelStatus, CloseChannelRequest, CloseChannelResponse, DescribeChannelRequest, LeaveRequest,
    LeaveResponse, OpenBackendRequest, OpenBackendResponse, OpenChannel, OpenChannelRequest, OpenChannelResponse,
    PeerStatus, StartEpochRequest, StartEpochResponse, StatusRequest, StatusResponse, open_channel_request,
};
use serde_json::Value;
use tonic::{Request, Response, Status, Streaming};

use crate::Refusal;
use crate::connection::client_id;
use crate::core::Core;
use crate::limits::MOST_CREDITS;
use crate::registry::{Channel, Found};
use crate::scheduler::{Activity, Bounds};
use crate::seeds::{self, Listed, SeedCache};

/// The most edges that a batch may have here, whoever asks: they are held in memory.
const MAX_EDGES: u64 = 100_000_000;
/// The most seeds of a batch here: they, and what is found of them, are held in memory.
const MAX_SEEDS: u64 = 10_000_000;
/// How long a client may take between two parts of a list of seeds.
const PART: Duration = Duration::from_secs(30);
/// What a channel may take unless its client asks for less or more, and the most it is given.
const CREDITS: (u64, u64) = (16, MOST_CREDITS);
const BYTES: (u64, u64) = (256 << 20, 4 << 30);

/// The service.
#[derive(Debug)]
pub(crate) struct SamplingApi {
    core: Arc<Core>,
    cache: SeedCache,
}

impl SamplingApi {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, cache: SeedCache::default() }
    }

    async fn open_backend(&self, request: OpenBackendRequest) -> Result<OpenBackendResponse, Refusal> {
        self.core.check_open()?;
        let config = read_config(&request.config)?;
        if config.max_edges > MAX_EDGES {
            return Err(Refusal::invalid(format!("max_edges is {}, this server allows {MAX_EDGES}", config.max_edges)));
        }
        let text = canonical(&config)?;
        let key = if request.key.is_empty() {
            format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.to_string().as_bytes()))
        } else {
            request.key
        };
        let (cluster, peer_wait) = (Arc::clone(&self.core.cluster), self.core.peer_wait);
        let make = async move {
            cluster.complete(peer_wait).await?;
            // A plan reads the manifest and looks things up: microseconds.
            Ok(Plan::new(config, &cluster.dataset)?)
        };
        let backend = self.core.registry.backend(&request.run, &key, &text, make).await?;
        Ok(OpenBackendResponse { backend: backend.id, key })
    }

    async fn open_channel(&self, open: OpenChannel, mut listed: Listed) -> Result<OpenChannelResponse, Refusal> {
        self.core.check_open()?;
        let backend = self.core.registry.backend_by_id(open.backend)?;
        backend.check(&canonical(&read_config(&open.config)?)?)?;
        if open.batch_size == 0 {
            return Err(Refusal::invalid("batch_size is 0, expected at least 1"));
        }
        if open.client.len() != 16 {
            return Err(Refusal::invalid("a client names itself with 16 bytes"));
        }
        let charge = listed.take_charge();
        let wanted = open.seeds.as_ref().ok_or_else(|| Refusal::invalid("a channel needs seeds"))?;
        let seeds = seeds::resolve(&self.core.cluster, &self.cache, &backend.plan, wanted, listed).await?;
        let most = open.batch_size.min(seeds.len() as u64);
        if most > MAX_SEEDS {
            return Err(Refusal::invalid(format!("a batch would have {most} seeds, this server allows {MAX_SEEDS}")));
        }
        let cuts = seeds::cuts(&self.core.cluster, &self.cache, &backend.plan, &open, &seeds).await?;
        let bounds = Bounds { credits: limit(open.max_credits, CREDITS) as usize, bytes: limit(open.max_bytes, BYTES) };
        let list = Arc::clone(&seeds);
        let word = tokio::task::spawn_blocking(move || list.word()).await;
        let word = word.map_err(|error| Refusal::internal(error.to_string()))?;
        let mut response = OpenChannelResponse {
            channel: 0,
            seeds: seeds.len() as u64,
            seed_word: word,
            partition_seeds: cuts.lists().map(|lists| lists.sizes().to_vec()).unwrap_or_default(),
            partitioning: cuts.lists().map_or(0, PartitionLists::word),
            partitions: self.core.cluster.dataset.partitions().map(|(number, _)| number).collect(),
        };
        let client = client_id(&open.client);
        let opened = self.core.open(client, &backend, bounds, |id| {
            Channel::new(id, Arc::clone(&backend), client, open.worker, (Arc::clone(&seeds), charge), cuts)
        });
        let channel = opened.inspect_err(|refusal| self.core.count("channels", refusal))?;
        tracing::info!(
            channel = channel.id,
            backend = backend.id,
            worker = channel.worker,
            seeds = seeds.len(),
            "channel opened"
        );
        response.channel = channel.id;
        Ok(response)
    }

    fn close(&self, id: u64, client: &[u8]) {
        let began = Instant::now();
        if !self.core.close(id, client) {
            return;
        }
        let took = began.elapsed();
        if took > Duration::from_secs(1) {
            tracing::warn!(channel = id, ?took, "closing a channel was slow");
        } else {
            tracing::info!(channel = id, "channel closed");
        }
    }

    fn describe(&self, channel: &Channel) -> ChannelStatus {
        let seen = self.core.work.scheduler(|scheduler| scheduler.seen(channel.id));
        let mut status = ChannelStatus {
            channel: channel.id,
            backend: channel.backend.id,
            worker: channel.worker.clone(),
            seeds: channel.seeds.len() as u64,
            total: channel.batches(),
            state: "removing".to_owned(),
            ..ChannelStatus::default()
        };
        if let Some(seen) = seen {
            status.epoch = seen.epoch;
            status.submitted = seen.submitted;
            status.completed = seen.completed;
            status.failed = seen.failed;
            status.waiting_credits = seen.waiting as u64;
            status.running = seen.running as u64;
            status.buffered_batches = seen.buffered;
            status.buffered_bytes = seen.buffered_bytes;
            status.work = seen.work;
            status.last_credit_age_ms = seen.last_credit.elapsed().as_millis() as u64;
            let state = match seen.activity {
                Activity::Idle => "idle",
                Activity::Runnable => "runnable",
                Activity::Parked => "parked",
                Activity::Starved => "starved",
            };
            state.clone_into(&mut status.state);
        }
        status
    }

    fn find(&self, id: u64) -> Result<Arc<Channel>, Refusal> {
        open(id, self.core.registry.find(id))
    }

    pub(crate) fn status(&self) -> StatusResponse {
        let (core, lineup) = (&self.core, self.core.cluster.lineup());
        let channels: Vec<ChannelStatus> =
            core.registry.channels().iter().map(|channel| self.describe(channel)).collect();
        let in_state = |state: &str| channels.iter().filter(|channel| channel.state == state).count() as u64;
        let backend = |backend: &Arc<crate::registry::Backend>| BackendStatus {
            backend: backend.id,
            run: backend.run.clone(),
            key: backend.key.clone(),
            config: backend.config.to_string(),
            channels: backend.channels() as u64,
        };
        let peer = |peer: &Arc<crate::cluster::Peer>| PeerStatus {
            address: peer.endpoint().to_string(),
            connected: peer.is_connected(),
            partitions: peer.partitions(),
            bytes_sent: peer.bytes_sent.load(Ordering::Relaxed),
            bytes_received: peer.bytes_received.load(Ordering::Relaxed),
        };
        StatusResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: core.incarnation,
            uptime_ms: core.started.elapsed().as_millis() as u64,
            fingerprint: core.cluster.dataset.fingerprint().to_string(),
            parts: core.cluster.dataset.parts(),
            partitions: lineup.partitions(),
            threads: core.threads as u32,
            backends: core.registry.backends().iter().map(backend).collect(),
            peers: lineup.peers().iter().map(peer).collect(),
            clients: core.registry.clients() as u64,
            registered: channels.len() as u64,
            active: in_state("runnable") + in_state("starved") + in_state("parked"),
            runnable: in_state("runnable"),
            starved: in_state("starved"),
            parked: in_state("parked"),
            removing: in_state("removing"),
            channels,
            connections: core.connections.load(Ordering::Relaxed) as u64,
            max_connections: core.limits.connections as u64,
            max_channels: core.limits.channels as u64,
            memory_bytes: core.budget.taken(),
            memory_budget: core.budget.total(),
        }
    }
}

/// A channel that is open, or why it is not.
fn open(id: u64, found: Found) -> Result<Arc<Channel>, Refusal> {
    match found {
        Found::Open(channel) => Ok(channel),
        Found::Closed => Err(Refusal::invalid(format!("channel {id} is closed"))),
        Found::Lost => Err(Refusal::unavailable(format!("channel {id} is lost; open it again"))),
        Found::Never => Err(Refusal::invalid(format!("there never was a channel {id}"))),
    }
}

/// What a client asked for, if anything, up to the most there is.
fn limit(asked: u64, (usual, most): (u64, u64)) -> u64 {
    if asked == 0 { usual } else { asked.min(most) }
}

fn read_config(text: &str) -> Result<Config, Refusal> {
    serde_json::from_str(text)
        .map_err(|error| Refusal::invalid(format!("the sampler's configuration cannot be read: {error}")))
}

/// The configuration with everything said, so that two that mean the same are equal.
fn canonical(config: &Config) -> Result<Value, Refusal> {
    serde_json::to_value(config).map_err(|error| Refusal::internal(error.to_string()))
}

#[tonic::async_trait]
impl SamplingService for SamplingApi {
    async fn open_backend(
        &self,
        request: Request<OpenBackendRequest>,
    ) -> Result<Response<OpenBackendResponse>, Status> {
        Ok(Response::new(self.open_backend(request.into_inner()).await?))
    }

    async fn open_channel(
        &self,
        request: Request<Streaming<OpenChannelRequest>>,
    ) -> Result<Response<OpenChannelResponse>, Status> {
        let mut parts = request.into_inner();
        let (mut open, mut listed) = (None, Listed::default());
        loop {
            let part = tokio::time::timeout(PART, parts.message()).await;
            let part = part.map_err(|_| Refusal::unavailable("a list of seeds did not arrive in time"))??;
            match (part.and_then(|part| part.part), &open) {
                (None, _) => break,
                (Some(open_channel_request::Part::Open(first)), None) => open = Some(first),
                (Some(open_channel_request::Part::Seeds(chunk)), Some(_)) => {
                    listed.add(&chunk, &self.core.budget).inspect_err(|refusal| self.core.count("memory", refusal))?;
                }
                _ => return Err(Refusal::invalid("a channel is opened first, then its seeds follow").into()),
            }
        }
        let open = open.ok_or_else(|| Refusal::invalid("nothing was asked for"))?;
        Ok(Response::new(self.open_channel(open, listed).await?))
    }

    async fn start_epoch(&self, request: Request<StartEpochRequest>) -> Result<Response<StartEpochResponse>, Status> {
        let StartEpochRequest { channel: id, epoch, client } = request.into_inner();
        let channel = match self.core.registry.find(id) {
            // Silence for a channel that its own client has closed.
            Found::Closed => return Ok(Response::new(StartEpochResponse { epoch })),
            found => open(id, found)?,
        };
        if channel.client != *client {
            return Err(Refusal::invalid(format!("channel {id} is another client's")).into());
        }
        let current = self.core.work.scheduler(|scheduler| scheduler.start(channel.id, epoch));
        // It may have been closed just now.
        Ok(Response::new(StartEpochResponse { epoch: current.unwrap_or(epoch) }))
    }

    async fn close_channel(
        &self,
        request: Request<CloseChannelRequest>,
    ) -> Result<Response<CloseChannelResponse>, Status> {
        let CloseChannelRequest { channel, client } = request.into_inner();
        self.close(channel, &client);
        Ok(Response::new(CloseChannelResponse {}))
    }

    async fn describe_channel(
        &self,
        request: Request<DescribeChannelRequest>,
    ) -> Result<Response<ChannelStatus>, Status> {
        let channel = self.find(request.into_inner().channel)?;
        Ok(Response::new(self.describe(&channel)))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Result<Response<LeaveResponse>, Status> {
        let channels = self.core.registry.leave(client_id(&request.into_inner().client));
        self.core.cancel(&channels);
        Ok(Response::new(LeaveResponse { channels: channels.len() as u64 }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        Ok(Response::new(self.status()))
    }
}

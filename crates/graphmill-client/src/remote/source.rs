//! What a loader asks of storage servers: a sampler's configuration, seeds, and the channels that were opened for them.

use std::error::Error as _;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use graphmill_graph::Split;
use graphmill_sample::{Config, Cuts, Cutting, SeedList, SeedOrder};
use graphmill_wire::proto::sampling_service_client::SamplingServiceClient;
use graphmill_wire::proto::{
    self, AllEdges, AllNodes, CloseChannelRequest, ListedNodes, ListedPairs, OpenBackendRequest, OpenChannel,
    OpenChannelRequest, OpenChannelResponse, SeedChunk, open_channel, open_channel_request,
};

use super::control::Control;
use super::homes;
use super::inbox::lock;
use super::member::Member;
use super::{Members, Remote, Traffic};
use crate::{Error, Options, Result};

/// How long a channel may take to be opened: a server waits for its peers meanwhile, but one that is frozen must not hold up
/// a reader whom others could serve.
const OPENING: Duration = Duration::from_secs(15);
/// Seeds in a message.
const CHUNK: usize = 1 << 17;
/// The most batches on their way or waiting: so many that a server, which gives a channel 1024 credits, takes all of them
/// twice.
const WIDEST: usize = 508;
/// The most sets of channels that are kept for epochs to come.
const RESTING: usize = 4;
/// What a refusal carries if it is for want of room, which there may be in a moment.
const BUSY: &str = "graphmill-busy";
/// The longest pause before a server that had no room is asked again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a backend that is being closed may take before it can be opened again.
const CLOSING: Duration = Duration::from_secs(2);

/// The seeds of a remote loader: named, and resolved where the graph is, or listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seeding {
    /// All nodes of the task's type.
    All,
    /// The nodes of a split.
    Split(Split),
    /// Every edge of the task's type, as a pair.
    Edges,
    /// These.
    Listed(SeedList),
}

impl From<SeedList> for Seeding {
    fn from(list: SeedList) -> Self {
        Self::Listed(list)
    }
}

/// What a loader's batches come from.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    remote: Arc<Remote>,
    config: String,
    seeding: Arc<Seeding>,
    cutting: Cutting,
    seed_order: SeedOrder,
    prefetch: usize,
    /// The seeds and their partitioning, as the first server has them.
    words: Arc<OnceLock<(u64, u64)>>,
    /// Channels that no epoch uses now.
    resting: Mutex<Vec<ChannelSet>>,
}

/// What servers said of a loader's seeds.
#[derive(Debug)]
pub(crate) struct Seeded {
    pub(crate) cuts: Cuts,
    /// A word for the seeds.
    pub(crate) word: u64,
    /// In partition order, a word for who owns them.
    pub(crate) partitioning: Option<u64>,
}

/// A channel per server, where one was opened.
#[derive(Debug, Default)]
pub(super) struct ChannelSet {
    numbers: Vec<(Arc<Member>, u64)>,
    /// The epoch they are in; a channel never goes back.
    epoch: u64,
}

impl ChannelSet {
    pub(super) fn get(&self, member: &Arc<Member>) -> Option<u64> {
        self.numbers.iter().find(|(known, _)| Arc::ptr_eq(known, member)).map(|(_, channel)| *channel)
    }

    pub(super) fn add(&mut self, member: &Arc<Member>, channel: u64) {
        self.numbers.push((Arc::clone(member), channel));
    }

    pub(super) fn forget(&mut self, channel: u64) {
        self.numbers.retain(|(_, number)| *number != channel);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Arc<Member>, u64)> {
        self.numbers.iter()
    }
}

impl RemoteSource {
    /// Opens a first channel, so that what does not fit is known at once. Also says what the seeds are.
    pub(crate) fn new(
        remote: &Arc<Remote>,
        config: &Config,
        seeding: Seeding,
        options: &Options,
    ) -> Result<(Arc<Self>, Seeded)> {
        let config = serde_json::to_string(config).map_err(|error| Error::options(error.to_string()))?;
        let (cutting, prefetch) = (options.cutting(), options.prefetch.max(1));
        let source = Self {
            remote: Arc::clone(remote),
            config,
            seeding: Arc::new(seeding),
            cutting,
            seed_order: options.seed_order,
            prefetch,
            words: Arc::default(),
            resting: Mutex::default(),
        };
        let mut first = None;
        let mut unavailable = None;
        for member in remote.members_by_health() {
            match source.open_channel(&member) {
                Ok(opened) => {
                    first = Some((member, opened));
                    break;
                }
                Err(error @ (Error::Unavailable { .. } | Error::Late { .. })) => unavailable = Some(error),
                Err(error) => return Err(error),
            }
        }
        let Some((member, opened)) = first else {
            return Err(unavailable.unwrap_or_else(|| Error::servers("no server was named")));
        };
        let mut set = ChannelSet::default();
        set.add(&member, opened.channel);
        lock(&source.resting).push(set);
        let seeded = match options.seed_order {
            SeedOrder::Global => {
                let cuts = Cuts::global(cutting, opened.seeds);
                Seeded { cuts, word: opened.seed_word, partitioning: None }
            }
            SeedOrder::Partition => {
                let sum = opened.partition_seeds.iter().try_fold(0, |sum: u64, &seeds| sum.checked_add(seeds));
                if opened.partition_seeds.len() != remote.manifest.parts as usize || sum != Some(opened.seeds) {
                    return Err(Error::Refused {
                        server: member.control.endpoint.to_string(),
                        doing: "open a channel in partition order".to_owned(),
                        reason: format!(
                            "it told the seeds of {} partitions, expected {} and {} seeds in all",
                            opened.partition_seeds.len(),
                            remote.manifest.parts,
                            opened.seeds
                        ),
                    });
                }
                let cuts = Cuts::by_partition(cutting, &opened.partition_seeds)?;
                homes::learn(remote, |_| true);
                Seeded { cuts, word: opened.seed_word, partitioning: Some(opened.partitioning) }
            }
        };
        Ok((Arc::new(source), seeded))
    }

    /// Closes the channels of servers that have none of the partitions whose batches are asked for first.
    pub(crate) fn keep_homes(&self, partitions: &[u32]) {
        let mut strangers = ChannelSet::default();
        for set in &mut *lock(&self.resting) {
            let (kept, others) =
                std::mem::take(&mut set.numbers).into_iter().partition(|(member, _)| member.may_have(partitions));
            set.numbers = kept;
            strangers.numbers.extend::<Vec<_>>(others);
        }
        self.close(&strangers);
    }

    /// Asks servers that can be reached now, and have not said yet, for their partitions.
    pub(super) fn learn_homes(&self) {
        if self.seed_order == SeedOrder::Partition {
            homes::learn(&self.remote, Member::is_up);
        }
    }

    pub(super) fn members(&self) -> Members {
        self.remote.members()
    }

    pub(super) fn is_forked(&self) -> bool {
        self.remote.is_forked()
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.remote.traffic()
    }

    pub(super) fn describe_members(&self) -> String {
        self.remote.describe_members()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.remote.options.deadline
    }

    /// How many batches may be on their way or wait here.
    pub(crate) fn window(&self) -> usize {
        self.prefetch.saturating_mul(self.members().len().max(1)).min(WIDEST)
    }

    /// The same where only servers with some partitions are asked.
    pub(super) fn window_at_homes(&self, partitions: &[u32]) -> usize {
        let asked = self.members().iter().filter(|member| member.may_have(partitions)).count();
        self.prefetch.saturating_mul(asked.max(1)).min(WIDEST)
    }

    /// Channels for an epoch: such as have not gone past it.
    pub(super) fn channels(&self, epoch: u64) -> ChannelSet {
        let mut resting = lock(&self.resting);
        let place = resting.iter().position(|set| set.epoch <= epoch);
        let mut set = place.map(|place| resting.swap_remove(place)).unwrap_or_default();
        set.numbers.retain(|(member, _)| !member.is_stopped());
        set
    }

    /// Channels for this epoch or a later one.
    pub(super) fn give_back(&self, mut set: ChannelSet, epoch: u64) {
        set.epoch = epoch;
        let mut resting = lock(&self.resting);
        if resting.len() < RESTING {
            resting.push(set);
        } else {
            drop(resting);
            self.close(&set);
        }
    }

    /// Closes channels in the background; the servers do it by themselves if they are not told.
    fn close(&self, set: &ChannelSet) {
        let Some(runtime) = &self.remote.runtime else { return };
        for (member, channel) in set.iter() {
            runtime.spawn(close(member.control.clone(), self.remote.client.to_vec(), *channel));
        }
    }

    /// Opens a channel on a server in the background, and tells then how that went. A channel that nobody wants any more is
    /// closed.
    pub(super) fn open(&self, member: &Arc<Member>, tell: impl FnOnce(Result<u64>) -> bool + Send + 'static) {
        let Some(runtime) = &self.remote.runtime else { return };
        let (server, opening) = (Arc::clone(member), self.opening(member));
        let (within, client) = (OPENING.min(self.deadline()), self.remote.client.to_vec());
        runtime.spawn(async move {
            let late = |_| {
                let what = "an answer".to_owned();
                Err(Error::Late { what, seconds: within.as_secs_f64(), reason: server.describe() })
            };
            let opened = tokio::time::timeout(within, opening).await.unwrap_or_else(late).map(|opened| opened.channel);
            let channel = opened.as_ref().ok().copied();
            if let (false, Some(channel)) = (tell(opened), channel) {
                close(server.control.clone(), client, channel).await;
            }
        });
    }

    /// Opens a channel on a server, and waits for it.
    fn open_channel(&self, member: &Arc<Member>) -> Result<OpenChannelResponse> {
        self.remote.block_on_within(OPENING, self.opening(member))?
    }

    /// Opens a channel, and sees to it that all servers have the same seeds in the same partitions.
    fn opening(&self, member: &Arc<Member>) -> impl Future<Output = Result<OpenChannelResponse>> + Send + use<> {
        let asked = self.ask_for_channel(member);
        let (member, words, client) = (Arc::clone(member), Arc::clone(&self.words), self.remote.client.to_vec());
        async move {
            let opened = asked.await?;
            member.tell_partitions(opened.partitions.clone());
            let told = (opened.seed_word, opened.partitioning);
            if *words.get_or_init(|| told) == told {
                return Ok(opened);
            }
            close(member.control.clone(), client, opened.channel).await;
            Err(Error::Refused {
                server: member.control.endpoint.to_string(),
                doing: "open a channel".to_owned(),
                reason:
                    "it has other seeds, or the seeds in other partitions, than the first server that was asked; let \
                         all of them serve the same dataset"
                        .to_owned(),
            })
        }
    }

    fn ask_for_channel(&self, member: &Member) -> impl Future<Output = Result<OpenChannelResponse>> + Send + use<> {
        let control = member.control.clone();
        let (config, seeding) = (self.config.clone(), Arc::clone(&self.seeding));
        let (run, worker) = (self.remote.options.run.clone(), self.remote.options.worker.clone());
        let (client, Cutting { batch_size, shuffle, drop_last }) = (self.remote.client.to_vec(), self.cutting);
        let request = OpenBackendRequest { run, key: String::new(), config: config.clone() };
        let open = OpenChannel {
            backend: 0,
            client,
            config,
            batch_size,
            shuffle,
            drop_last,
            seeds: Some(announce(&seeding)),
            // Servers may come while it is open, and the window grow.
            max_credits: (2 * WIDEST + 8) as u64,
            max_bytes: 0,
            worker,
            seed_order: match self.seed_order {
                SeedOrder::Global => proto::SeedOrder::Global,
                SeedOrder::Partition => proto::SeedOrder::Partition,
            }
            .into(),
        };
        let deadline = OPENING.min(self.deadline());
        async move {
            let (began, mut pause) = (Instant::now(), Duration::from_millis(10));
            let mut service = SamplingServiceClient::new(control.transport());
            loop {
                let (doing, status) = match service.open_backend(request.clone()).await {
                    Err(status) => ("open a backend", status),
                    Ok(backend) => {
                        let open = OpenChannel { backend: backend.into_inner().backend, ..open.clone() };
                        let first = OpenChannelRequest { part: Some(open_channel_request::Part::Open(open)) };
                        let chunks = Chunks { seeding: Arc::clone(&seeding), next: 0 };
                        match service.open_channel(tokio_stream::iter(std::iter::once(first).chain(chunks))).await {
                            Ok(opened) => return Ok(opened.into_inner()),
                            Err(status) => ("open a channel", status),
                        }
                    }
                };
                // The last channel of another rank may have closed just now, and the backend with it. What the transport
                // says, and not the server, has a source.
                let closing = status.code() == tonic::Code::Unavailable && status.source().is_none();
                let patience = if status.metadata().contains_key(BUSY) { deadline } else { CLOSING };
                if !closing || began.elapsed() + pause > patience {
                    return Err(control.error(doing, &status));
                }
                tokio::time::sleep(pause).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

impl Drop for RemoteSource {
    fn drop(&mut self) {
        if self.is_forked() {
            return;
        }
        let sets = std::mem::take(&mut *lock(&self.resting));
        for set in &sets {
            self.close(set);
        }
    }
}

async fn close(control: Control, client: Vec<u8>, channel: u64) {
    let mut service = SamplingServiceClient::new(control.transport());
    if let Err(status) = service.close_channel(CloseChannelRequest { channel, client }).await {
        tracing::debug!(server = %control.endpoint, channel, reason = status.message(), "not closed");
    }
}

fn announce(seeding: &Seeding) -> open_channel::Seeds {
    match seeding {
        Seeding::All => open_channel::Seeds::All(AllNodes {}),
        Seeding::Split(split) => open_channel::Seeds::Split(split.to_string()),
        Seeding::Edges => open_channel::Seeds::Edges(AllEdges {}),
        Seeding::Listed(list @ (SeedList::All(_) | SeedList::Nodes(_))) => {
            open_channel::Seeds::Nodes(ListedNodes { count: list.len() as u64 })
        }
        Seeding::Listed(SeedList::Pairs { src, classes, .. }) => {
            open_channel::Seeds::Pairs(ListedPairs { count: src.len() as u64, classes: classes.is_some() })
        }
    }
}

/// A list of seeds, message by message.
struct Chunks {
    seeding: Arc<Seeding>,
    next: usize,
}

impl Iterator for Chunks {
    type Item = OpenChannelRequest;

    fn next(&mut self) -> Option<OpenChannelRequest> {
        let Seeding::Listed(list) = &*self.seeding else { return None };
        let place = self.next..(self.next + CHUNK).min(list.len());
        if place.is_empty() {
            return None;
        }
        self.next = place.end;
        let chunk = match list {
            SeedList::All(_) => {
                SeedChunk { ids: place.flat_map(|id| (id as u64).to_le_bytes()).collect(), ..SeedChunk::default() }
            }
            SeedList::Nodes(ids) => {
                SeedChunk { ids: bytemuck::cast_slice(&ids[place]).to_vec(), ..SeedChunk::default() }
            }
            SeedList::Pairs { src, dst, classes } => SeedChunk {
                ids: bytemuck::cast_slice(&src[place.clone()]).to_vec(),
                others: bytemuck::cast_slice(&dst[place.clone()]).to_vec(),
                classes: classes.as_ref().map(|list| bytemuck::cast_slice(&list[place]).to_vec()).unwrap_or_default(),
            },
        };
        Some(OpenChannelRequest { part: Some(open_channel_request::Part::Seeds(chunk)) })
    }
}

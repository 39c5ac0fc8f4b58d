//! What a loader asks of storage servers: a sampler's configuration, seeds, and the channels that were opened for them.

use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use graphmill_graph::Split;
use graphmill_sample::{Config, Cutting, SeedList};
use graphmill_wire::proto::sampling_service_client::SamplingServiceClient;
use graphmill_wire::proto::{
    AllEdges, AllNodes, CloseChannelRequest, ListedNodes, ListedPairs, OpenBackendRequest, OpenChannel,
    OpenChannelRequest, OpenChannelResponse, SeedChunk, open_channel, open_channel_request,
};

use super::inbox::lock;
use super::member::Member;
use super::{Remote, Traffic};
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
    prefetch: usize,
    /// Channels that no epoch uses now.
    resting: Mutex<Vec<ChannelSet>>,
}

/// A channel per server, where one was opened.
#[derive(Debug, Default)]
pub(super) struct ChannelSet {
    numbers: Vec<Option<u64>>,
    /// The epoch they are in; a channel never goes back.
    epoch: u64,
}

impl ChannelSet {
    pub(super) fn get(&self, member: usize) -> Option<u64> {
        self.numbers.get(member).copied().flatten()
    }

    pub(super) fn set(&mut self, member: usize, channel: u64) {
        if let Some(number) = self.numbers.get_mut(member) {
            *number = Some(channel);
        }
    }

    pub(super) fn forget(&mut self, channel: u64) {
        self.numbers.iter_mut().filter(|number| **number == Some(channel)).for_each(|number| *number = None);
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.numbers.iter().copied()
    }
}

impl RemoteSource {
    /// Opens a first channel, so that what does not fit is known at once. Also says how many seeds there are, and a word for
    /// them.
    pub(crate) fn new(
        remote: &Arc<Remote>,
        config: &Config,
        seeding: Seeding,
        options: &Options,
    ) -> Result<(Arc<Self>, u64, u64)> {
        let config = serde_json::to_string(config).map_err(|error| Error::options(error.to_string()))?;
        let (cutting, prefetch) = (options.cutting(), options.prefetch.max(1));
        let source = Self {
            remote: Arc::clone(remote),
            config,
            seeding: Arc::new(seeding),
            cutting,
            prefetch,
            resting: Mutex::default(),
        };
        let mut first = None;
        let mut unavailable = None;
        for member in remote.members_by_health() {
            match source.open_channel(member) {
                Ok(opened) => {
                    first = Some((member, opened));
                    break;
                }
                Err(error @ (Error::Unavailable { .. } | Error::Late { .. })) => unavailable = Some(error),
                Err(error) => return Err(error),
            }
        }
        let Some((member, opened)) = first else {
            return Err(unavailable.unwrap_or_else(|| Error::options("no server was named")));
        };
        let mut set = source.no_channels();
        set.set(member, opened.channel);
        lock(&source.resting).push(set);
        Ok((Arc::new(source), opened.seeds, opened.seed_word))
    }

    pub(super) fn members(&self) -> &[Arc<Member>] {
        &self.remote.members
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
    pub(super) fn window(&self) -> usize {
        self.prefetch.saturating_mul(self.members().len()).min(WIDEST)
    }

    fn no_channels(&self) -> ChannelSet {
        ChannelSet { numbers: vec![None; self.members().len()], epoch: 0 }
    }

    /// Channels for an epoch: such as have not gone past it.
    pub(super) fn channels(&self, epoch: u64) -> ChannelSet {
        let mut resting = lock(&self.resting);
        let place = resting.iter().position(|set| set.epoch <= epoch);
        place.map_or_else(|| self.no_channels(), |place| resting.swap_remove(place))
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
        for (member, channel) in self.members().iter().zip(set.numbers()) {
            let Some(channel) = channel else { continue };
            let (control, client) = (member.control.clone(), self.remote.client.to_vec());
            runtime.spawn(async move {
                let mut service = SamplingServiceClient::new(control.transport());
                if let Err(status) = service.close_channel(CloseChannelRequest { channel, client }).await {
                    tracing::debug!(server = %control.endpoint, channel, reason = status.message(), "not closed");
                }
            });
        }
    }

    /// Opens a channel on a server.
    pub(super) fn open(&self, member: usize) -> Result<u64> {
        Ok(self.open_channel(member)?.channel)
    }

    fn open_channel(&self, member: usize) -> Result<OpenChannelResponse> {
        let control = self.members()[member].control.clone();
        let (config, seeding) = (self.config.clone(), Arc::clone(&self.seeding));
        let (run, worker) = (self.remote.options.run.clone(), self.remote.options.worker.clone());
        let (client, Cutting { batch_size, shuffle, drop_last }) = (self.remote.client.to_vec(), self.cutting);
        let max_credits = (2 * self.window() + 8) as u64;
        let request = OpenBackendRequest { run, key: String::new(), config: config.clone() };
        let open = OpenChannel {
            backend: 0,
            client,
            config,
            batch_size,
            shuffle,
            drop_last,
            seeds: Some(announce(&seeding)),
            max_credits,
            max_bytes: 0,
            worker,
        };
        self.remote.block_on_within(OPENING, async move {
            let began = Instant::now();
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
                if !closing || began.elapsed() > CLOSING {
                    return Err(control.error(doing, &status));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })?
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

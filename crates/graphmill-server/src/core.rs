//! What all parts of a server share.

use std::time::Instant;

use graphmill_wire::{Header, Kind, Message};

use crate::Refusal;
use crate::budget::{Budget, Share};
use crate::cluster::Cluster;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::registry::{Backend, Channel, ClientId, Found, Registry};
use crate::scheduler::{Bounds, Turn};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::work::Work;

/// The inside of a server.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) registry: Registry,
    pub(crate) work: Arc<Work>,
    pub(crate) metrics: Metrics,
    pub(crate) budget: Arc<Budget>,
    pub(crate) limits: Limits,
    /// Connections on the main addresses.
    pub(crate) connections: AtomicUsize,
    pub(crate) incarnation: u64,
    pub(crate) threads: usize,
    pub(crate) peer_wait: std::time::Duration,
    pub(crate) started: Instant,
    /// Whether it finishes what is under way and takes nothing new.
    pub(crate) stopping: AtomicBool,
    /// Frames that wait to be written, over all connections.
    pub(crate) unsent: Arc<AtomicUsize>,
}

impl Core {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Fails while the server stops.
    pub(crate) fn check_open(&self) -> Result<(), Refusal> {
        if self.is_stopping() {
            return Err(Refusal::unavailable("this server stops; ask another one, or later"));
        }
        Ok(())
    }

    /// The channel of a batch, unless nobody waits for the batch any more.
    pub(crate) fn channel_in_epoch(&self, turn: Turn) -> Option<Arc<Channel>> {
        let Found::Open(channel) = self.registry.find(turn.channel) else { return None };
        let current = self.work.scheduler(|scheduler| scheduler.epoch(turn.channel)) == Some(turn.epoch);
        (current && !channel.is_closed()).then_some(channel)
    }

    /// Counts a refusal that is for want of room.
    pub(crate) fn count(&self, limit: &'static str, refusal: &Refusal) {
        if refusal.busy {
            self.metrics.refused(limit);
        }
    }

    /// Tells clients for whose batches there was no memory since some time, so that they ask again, later or elsewhere.
    pub(crate) fn refuse_starved(&self, since: Instant) {
        let starved = self.work.scheduler(|scheduler| scheduler.take_starved(since));
        for &(channel, epoch, g, bytes) in &starved {
            let Found::Open(channel) = self.registry.find(channel) else { continue };
            let Some(outlet) = channel.outlet() else { continue };
            let refusal = self
                .budget
                .refusal(bytes, Share::Whole)
                .while_doing(&format!("cannot sample batch {g} of epoch {epoch}"));
            let header = Header { channel: channel.id, epoch, g, ..Header::new(Kind::Failed) };
            outlet.send_message(header, Message::Failed(refusal.failed()));
            self.metrics.refused("memory");
        }
        if !starved.is_empty() {
            let (batches, taken, budget) = (starved.len(), self.budget.taken(), self.budget.total());
            tracing::warn!(batches, taken, budget, "refused batches: the memory budget is taken");
        }
    }

    /// Opens a channel of a client, made by `make`, which is given its number.
    ///
    /// # Errors
    /// As for [`Registry::open`].
    pub(crate) fn open(
        &self,
        client: ClientId,
        backend: &Arc<Backend>,
        bounds: Bounds,
        make: impl FnOnce(u64) -> Channel,
    ) -> Result<Arc<Channel>, Refusal> {
        self.registry.open(client, backend, |id| {
            // Before anybody can find it.
            self.work.scheduler(|scheduler| scheduler.add(id, bounds, Instant::now()));
            make(id)
        })
    }

    /// Closes a channel for its client; says whether it was open.
    pub(crate) fn close(&self, id: u64, client: &[u8]) -> bool {
        if matches!(self.registry.find(id), Found::Open(channel) if channel.client != client) {
            return false;
        }
        let closed = self.registry.close(id);
        self.cancel(closed.as_slice());
        closed.is_some()
    }

    /// Ends the leases of clients that were silent for too long, with all that they have.
    pub(crate) fn sweep(&self) {
        let (clients, channels) = self.registry.sweep();
        if !clients.is_empty() {
            tracing::warn!(clients = clients.len(), channels = channels.len(), "leases ended");
        }
        self.cancel(&channels);
    }

    /// Cancels what channels have under way. They were taken out of the registry before.
    pub(crate) fn cancel(&self, channels: &[Arc<Channel>]) {
        for channel in channels {
            channel.closed.store(true, Ordering::Relaxed);
        }
        self.work.scheduler(|scheduler| channels.iter().for_each(|channel| scheduler.remove(channel.id)));
    }
}

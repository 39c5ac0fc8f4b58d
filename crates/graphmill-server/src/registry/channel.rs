//! One rank's stream of batches.

use std::time::Duration;

use graphmill_sample::{BatchId, Cut, SeedCuts, SeedList};

use super::{Backend, ClientId};
use crate::budget::Charge;
use crate::life::Queued;
use crate::outlet::Outlet;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};

/// A line of the log after so many batches of a channel.
const LOGGED: u64 = 1000;
/// A batch that waited longer for a worker, or took longer, is worth a warning.
const SLOW: Duration = Duration::from_secs(5);

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) id: u64,
    pub(crate) backend: Arc<Backend>,
    pub(crate) client: ClientId,
    pub(crate) worker: String,
    pub(crate) seeds: Arc<SeedList>,
    /// For seeds that the client listed.
    _charge: Option<Charge>,
    cuts: SeedCuts,
    pub(crate) closed: AtomicBool,
    /// The connection that asked last, where batches go.
    outlet: Mutex<Option<Arc<Outlet>>>,
    /// The spans of batches that wait.
    pub(crate) lives: Queued,
    /// Batches so far, the microseconds that they waited and took, how many were slow, and how many failed.
    done: AtomicU64,
    queued: AtomicU64,
    took: AtomicU64,
    slow: AtomicU64,
    failed: AtomicU64,
}

/// How a channel's batches were served so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetches {
    pub(crate) batches: u64,
    /// From asking for a batch to having it, over all of them.
    pub(crate) took: Duration,
    pub(crate) slow: u64,
}

impl Channel {
    pub(crate) fn new(
        id: u64,
        backend: Arc<Backend>,
        client: ClientId,
        worker: String,
        (seeds, charge): (Arc<SeedList>, Option<Charge>),
        cuts: SeedCuts,
    ) -> Self {
        Self {
            id,
            backend,
            client,
            worker,
            seeds,
            _charge: charge,
            cuts,
            closed: AtomicBool::new(false),
            outlet: Mutex::default(),
            lives: Queued::default(),
            done: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            took: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Takes the seeds of a batch.
    pub(crate) fn cut(&self, batch: BatchId, into: &mut Cut) -> graphmill_sample::Result<()> {
        into.fill(&self.seeds, self.cuts.positions(self.backend.plan.config().seed, batch))
    }

    /// How many batches an epoch has, over all ranks.
    pub(crate) fn batches(&self) -> u64 {
        self.cuts.cuts().batches()
    }

    /// Counts a batch that waited and took so long, and says so now and then.
    pub(crate) fn count(&self, queued: Duration, took: Duration) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let all_queued =
            self.queued.fetch_add(queued.as_micros() as u64, Ordering::Relaxed) + queued.as_micros() as u64;
        let all_took = self.took.fetch_add(took.as_micros() as u64, Ordering::Relaxed) + took.as_micros() as u64;
        if queued > SLOW || took > SLOW {
            let slow = self.slow.fetch_add(1, Ordering::Relaxed) + 1;
            // Ever more rarely: where one is slow, more are.
            if slow.is_power_of_two() {
                tracing::warn!(channel = self.id, worker = self.worker, slow, ?queued, ?took, "a slow batch");
            }
        }
        if done.is_multiple_of(LOGGED) {
            let mean = |sum: u64| Duration::from_micros(sum / done);
            let (queued, took, slow) = (mean(all_queued), mean(all_took), self.slow.load(Ordering::Relaxed));
            tracing::info!(channel = self.id, worker = self.worker, batches = done, ?queued, ?took, slow, "served");
        }
    }

    /// Counts a batch that failed, and says so ever more rarely: clients ask again for what nobody serves at the moment, until
    /// somebody does.
    pub(crate) fn count_failed(&self, epoch: u64, g: u64, reason: &str) {
        let failed = self.failed.fetch_add(1, Ordering::Relaxed) + 1;
        if failed.is_power_of_two() {
            tracing::warn!(channel = self.id, worker = self.worker, failed, epoch, g, reason, "a batch failed");
        }
    }

    /// How its batches were served so far.
    pub(crate) fn fetches(&self) -> Fetches {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let took = Duration::from_micros(count(&self.queued) + count(&self.took));
        Fetches { batches: count(&self.done), took, slow: count(&self.slow) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Batches go to this connection from now on.
    pub(crate) fn attach(&self, outlet: &Arc<Outlet>) {
        let mut current = lock(&self.outlet);
        if !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, outlet)) {
            *current = Some(Arc::clone(outlet));
        }
    }

    /// Where batches go, while there is someone to take them.
    pub(crate) fn outlet(&self) -> Option<Arc<Outlet>> {
        lock(&self.outlet).clone().filter(|outlet| !outlet.is_closed())
    }
}

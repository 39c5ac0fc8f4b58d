//! One rank's stream of batches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use graphmill_sample::{Cutting, Epoch, SeedList};

use super::{Backend, ClientId};
use crate::cluster::lock;
use crate::outlet::Outlet;

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) id: u64,
    pub(crate) backend: Arc<Backend>,
    pub(crate) client: ClientId,
    pub(crate) worker: String,
    pub(crate) seeds: Arc<SeedList>,
    pub(crate) cutting: Cutting,
    pub(crate) closed: AtomicBool,
    /// The connection that asked last, where batches go.
    outlet: Mutex<Option<Arc<Outlet>>>,
}

impl Channel {
    pub(crate) fn new(
        id: u64,
        backend: Arc<Backend>,
        client: ClientId,
        worker: String,
        seeds: Arc<SeedList>,
        cutting: Cutting,
    ) -> Self {
        Self { id, backend, client, worker, seeds, cutting, closed: AtomicBool::new(false), outlet: Mutex::default() }
    }

    /// An epoch over its seeds.
    pub(crate) fn epoch(&self, number: u64) -> Epoch {
        Epoch::new(self.cutting, self.seeds.len() as u64, self.backend.plan.config().seed, number)
    }

    /// How many batches an epoch has, over all ranks.
    pub(crate) fn batches(&self) -> u64 {
        self.cutting.batches(self.seeds.len() as u64)
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

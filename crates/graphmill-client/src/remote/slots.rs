//! Shared memory at the client's end: slots that batches lie in until their last user lets go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

use graphmill_net::MappedSlot;
use graphmill_sample::Slot;
use graphmill_wire::proto;
use tokio::sync::mpsc;

use super::inbox::lock;

/// How often this process was about to fork. A child sees what the parent's slots hold, for as long as it likes; so whatever
/// was held then is never written again.
static FORKS: AtomicU64 = AtomicU64::new(0);

fn count_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// A client that holds this many slots gets further batches as copies, so that it never waits for itself.
const HELD: usize = 4;

/// The slots of one connection.
#[derive(Debug)]
pub(super) struct Slots {
    mapped: Mutex<Mapped>,
    /// Where returned slots are announced.
    returns: mpsc::UnboundedSender<proto::Return>,
}

#[derive(Debug, Default)]
struct Mapped {
    /// Slots that no batch is in.
    idle: HashMap<u32, MappedSlot>,
    held: usize,
}

impl Slots {
    pub(super) fn new(returns: mpsc::UnboundedSender<proto::Return>) -> Arc<Self> {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // Without it a fork is not noticed: a child would see later batches in the place of what it was given.
            if let Err(error) = graphmill_net::before_fork(count_fork) {
                tracing::warn!(%error, "forks cannot be noticed; do not fork while batches are held");
            }
        });
        Arc::new(Self { mapped: Mutex::default(), returns })
    }

    /// A slot that the server has made, or made anew.
    pub(super) fn add(&self, number: u32, slot: MappedSlot) {
        lock(&self.mapped).idle.insert(number, slot);
    }

    /// The batch in a slot that the server has announced.
    pub(super) fn take(self: &Arc<Self>, number: u32, bytes: usize) -> Option<HeldSlot> {
        let mut mapped = lock(&self.mapped);
        let slot = mapped.idle.remove(&number)?;
        mapped.held += 1;
        let forks = FORKS.load(Ordering::SeqCst);
        Some(HeldSlot { slots: Arc::clone(self), number, slot: Some(slot), bytes, forks, edited: false })
    }

    /// Whether so many slots are held that a batch should be copied out of its own.
    pub(super) fn crowded(&self) -> bool {
        lock(&self.mapped).held > HELD
    }
}

/// A slot with a batch.
#[derive(Debug)]
pub(super) struct HeldSlot {
    slots: Arc<Slots>,
    number: u32,
    slot: Option<MappedSlot>,
    bytes: usize,
    forks: u64,
    edited: bool,
}

impl Slot for HeldSlot {
    fn bytes(&self) -> &[u8] {
        self.slot.as_ref().and_then(|slot| slot.bytes().get(..self.bytes)).unwrap_or_default()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.edited = true;
        let bytes = self.bytes;
        self.slot.as_mut().and_then(|slot| slot.bytes_mut().get_mut(..bytes)).unwrap_or_default()
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        // What was edited is a private copy, which would hide what the server writes next.
        let forked = self.forks != FORKS.load(Ordering::SeqCst);
        let clean = !forked && (!self.edited || slot.drop_private_pages(self.bytes).is_ok());
        let mut mapped = lock(&self.slots.mapped);
        mapped.held -= 1;
        let mut back = proto::Return::default();
        if clean {
            mapped.idle.insert(self.number, slot);
            back.returned.push(self.number);
        } else {
            back.retired.push(self.number);
        }
        drop(mapped);
        // A connection that is gone needs nothing back.
        let _ = self.slots.returns.send(back);
    }
}

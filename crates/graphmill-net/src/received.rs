//! Shared memory at the receiver's end: slots that hold what was sent until its last user lets go.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Once;

use graphmill_wire::proto;
use tokio::sync::mpsc;

use crate::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::{MappedSlot, PageMap, forks};

/// Whoever holds this many slots should copy out of further ones, so that it never waits for itself.
const HELD: usize = 12;
/// The same in bytes, with one more that is as large as the last. A channel sends no more once 256 MiB are held, unless its client asked
/// for another bound, and the next one may be larger.
const HELD_BYTES: usize = 192 << 20;

/// The most idle slots of a connection; a sender needs far fewer.
const MOST: usize = 256;

/// The slots that one connection has brought.
#[derive(Debug)]
pub struct ReceivedSlots {
    mapped: Mutex<Mapped>,
    /// Where returned slots are announced.
    returns: mpsc::UnboundedSender<proto::Return>,
    /// What tells whether a slot was edited.
    pages: PageMap,
}

#[derive(Debug, Default)]
struct Mapped {
    /// Slots that nothing is in.
    idle: HashMap<u32, MappedSlot>,
    held: usize,
    held_bytes: usize,
}

impl ReceivedSlots {
    /// Slots whose return is announced to `returns`, which are to be sent to where they came from.
    pub fn new(returns: mpsc::UnboundedSender<proto::Return>) -> Arc<Self> {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // A child would see later batches in the place of what it was given.
            if forks().is_none() {
                tracing::warn!("forks cannot be noticed; do not fork while batches are held");
            }
        });
        Arc::new(Self { mapped: Mutex::default(), returns, pages: PageMap::open() })
    }

    /// Takes a slot that the other side has made, or made anew.
    ///
    /// # Errors
    /// When it came without its memory, the memory is not as it should be, or there are too many.
    pub fn accept(&self, slot: &proto::Slot, memory: Option<OwnedFd>) -> Result<(), String> {
        let refused = |reason: String| format!("cannot use its shared memory: {reason}");
        let memory = memory.ok_or_else(|| refused("no descriptor came along".to_owned()))?;
        let mapped = MappedSlot::map(memory, slot.bytes as usize).map_err(|error| refused(error.to_string()))?;
        let mut slots = lock(&self.mapped);
        slots.idle.insert(slot.slot, mapped);
        if slots.idle.len() > MOST {
            return Err(refused(format!("there are more than {MOST} idle slots")));
        }
        Ok(())
    }

    /// What is in a slot that was announced before: so many bytes. Nothing if there is no such slot, or it is shorter.
    pub fn take(self: &Arc<Self>, number: u32, bytes: usize) -> Option<HeldSlot> {
        let mut mapped = lock(&self.mapped);
        if mapped.idle.get(&number)?.bytes().len() < bytes {
            return None;
        }
        let slot = mapped.idle.remove(&number)?;
        mapped.held += 1;
        mapped.held_bytes += bytes;
        let (forks, process) = (forks(), std::process::id());
        Some(HeldSlot { slots: Arc::clone(self), number, slot: Some(slot), bytes, forks, process, edited: false })
    }

    /// Whether so many slots are held that what is in the last one, so many bytes, should be copied.
    pub fn crowded(&self, last: usize) -> bool {
        let mapped = lock(&self.mapped);
        mapped.held > HELD || mapped.held_bytes.saturating_add(last) > HELD_BYTES
    }
}

/// A slot with something in it; it goes back when this is dropped.
#[derive(Debug)]
pub struct HeldSlot {
    slots: Arc<ReceivedSlots>,
    number: u32,
    slot: Option<MappedSlot>,
    bytes: usize,
    /// Whatever was held at a fork is never written again.
    forks: Option<u64>,
    process: u32,
    edited: bool,
}

impl HeldSlot {
    /// Its bytes; fewer than asked for if the slot is shorter.
    pub fn bytes(&self) -> &[u8] {
        self.slot.as_ref().and_then(|slot| slot.bytes().get(..self.bytes)).unwrap_or_default()
    }

    /// Its bytes, to be edited: nobody else sees it. Whether they are is found out when it goes back.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.edited = true;
        let bytes = self.bytes;
        self.slot.as_mut().and_then(|slot| slot.bytes_mut().get_mut(..bytes)).unwrap_or_default()
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        if self.process != std::process::id() {
            // In a child the lock may be held for ever, by a thread that only the parent has.
            return;
        }
        // What was edited is a private copy, which would hide what the server writes next.
        let forked = self.forks != forks();
        let edited = self.edited && slot.has_private_pages(&self.slots.pages, self.bytes);
        let clean = !forked && (!edited || slot.drop_private_pages(self.bytes).is_ok());
        let mut mapped = lock(&self.slots.mapped);
        mapped.held -= 1;
        mapped.held_bytes -= self.bytes;
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

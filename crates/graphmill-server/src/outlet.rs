//! The way out of a data connection: frames wait here for the socket, batches in memory that may be shared.

use std::os::fd::{AsFd as _, OwnedFd};

use graphmill_net::{FrameWriter, HUGE_PAGE, SharedSlot};
use graphmill_wire::{Header, Kind, Message, proto};
use tokio::sync::mpsc;

use crate::Refusal;
use crate::backlog::Backlog;
use crate::budget::{Budget, Charge, Charged, Share};
use crate::life::Life;
use crate::scheduler::ChannelId;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::work::{Urgent, Work};

/// The most slots of one connection: some being written, some on their way, some with the client's user.
const SLOTS: usize = 16;
/// The most bytes of slots that rows lie in; further ones go through the socket.
const ROW_SLOTS: usize = 256 << 20;
/// The channel of what is no batch; none has this number.
const NO_CHANNEL: ChannelId = 0;
/// Slots are a multiple of this long, so that all of a large one can lie in huge pages.
const SLOT_UNIT: usize = HUGE_PAGE;

/// Where a connection's frames are put. Whoever has it may send; the connection's own task writes.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: mpsc::UnboundedSender<Out>,
    /// What waits to be taken, and the questions under way.
    pub(crate) backlog: Arc<Backlog>,
    /// Frames that wait to be written on the whole server.
    waiting_everywhere: Arc<AtomicUsize>,
    /// What all memory is charged to.
    budget: Arc<Budget>,
    /// None on a connection without shared memory.
    slots: Option<Mutex<Vec<Slot>>>,
}

/// A frame on its way out.
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) header: Header,
    pub(crate) message: Message,
    pub(crate) body: Body,
    /// Whose batch it is, and its bytes: to be told when it was written. A batch in a slot counts until the slot returns.
    batch: Option<(ChannelId, u64)>,
    /// The life of a batch, which ends when it is written.
    _life: Option<Life>,
}

#[derive(Debug)]
pub(crate) enum Body {
    None,
    Buffer(Charged),
    Bytes {
        bytes: Vec<u8>,
        _charge: Charge,
    },
    /// The slot whose descriptor rides along.
    Slot(u32),
}

/// A piece of memory that both sides see.
#[derive(Debug)]
struct Slot {
    /// None while it is being made, or a batch written to it.
    memory: Option<SlotMemory>,
    /// The bytes of its memory, wherever that is.
    room: usize,
    state: SlotState,
}

/// Memory that can be shared, and is charged for as long as it is.
#[derive(Debug)]
struct SlotMemory {
    shared: SharedSlot,
    _charge: Charge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotState {
    /// The client does not have it yet, or not as it is now.
    New,
    /// There was no memory for it; the next one that is needed takes its number.
    Unmade,
    Free,
    /// With the client, for a channel's batch of so many bytes.
    Out(ChannelId, u64),
    /// The client will never give it back.
    Retired,
}

/// Memory for one batch.
#[derive(Debug)]
pub(crate) enum BatchMemory {
    Heap(Charged),
    Slot(LentSlot),
}

/// A slot that a batch is being written to. It is free again if the batch is not sent.
#[derive(Debug)]
pub(crate) struct LentSlot {
    outlet: Arc<Outlet>,
    number: usize,
    memory: Option<SlotMemory>,
    bytes: usize,
}

impl BatchMemory {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(buffer) => buffer.bytes_mut(),
            Self::Slot(slot) => slot.bytes_mut(),
        }
    }
}

impl LentSlot {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().map(|memory| &mut memory.shared.bytes_mut()[..self.bytes]).unwrap_or_default()
    }
}

impl Outlet {
    pub(crate) fn new(
        slots: bool,
        budget: Arc<Budget>,
        waiting_everywhere: Arc<AtomicUsize>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Out>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let slots = slots.then(Mutex::default);
        (Arc::new(Self { queue, backlog: Arc::default(), waiting_everywhere, budget, slots }), receiver)
    }

    /// A frame was written, or never will be; the questions that may be answered now.
    pub(crate) fn written(&self, out: &Out) -> Vec<Urgent> {
        self.waiting_everywhere.fetch_sub(1, Ordering::AcqRel);
        self.backlog.taken(out.held())
    }

    /// Has a question answered, once the peer has taken enough of what was answered before.
    pub(crate) fn hand_over(self: &Arc<Self>, work: &Work, question: Urgent) {
        if self.is_closed() {
            return;
        }
        let outlet = Arc::clone(self);
        work.urgent(move |memory| {
            if let Some(question) = outlet.backlog.answer_now(question) {
                question(memory);
            }
        });
    }

    /// Whether the connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Memory for what a peer asks.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Charged, Refusal> {
        self.budget.buffer(bytes)
    }

    /// Memory for a batch: a slot if one is free or can be made. How much of it a client holds is up to its channels.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn memory(self: &Arc<Self>, bytes: usize) -> Result<BatchMemory, Refusal> {
        self.memory_with(bytes, usize::MAX)
    }

    /// The same for rows, which no channel bounds.
    ///
    /// # Errors
    /// As for [`Self::memory`].
    pub(crate) fn memory_for_rows(self: &Arc<Self>, bytes: usize) -> Result<BatchMemory, Refusal> {
        self.memory_with(bytes, ROW_SLOTS)
    }

    fn memory_with(self: &Arc<Self>, bytes: usize, most: usize) -> Result<BatchMemory, Refusal> {
        match self.slot(bytes, most) {
            Some(slot) => Ok(BatchMemory::Slot(slot)),
            None => Ok(BatchMemory::Heap(self.budget.buffer(bytes)?)),
        }
    }

    /// A slot, if all of them have no more bytes than `most` then.
    fn slot(self: &Arc<Self>, bytes: usize, most: usize) -> Option<LentSlot> {
        let mut slots = lock(self.slots.as_ref()?);
        let lend = |number: usize, memory| LentSlot { outlet: Arc::clone(self), number, memory: Some(memory), bytes };
        let usable = |slot: &Slot| matches!(slot.state, SlotState::Free | SlotState::New);
        let fits = |slot: &Slot| slot.memory.as_ref().is_some_and(|memory| memory.shared.bytes().len() >= bytes);
        if let Some(number) = slots.iter().position(|slot| usable(slot) && fits(slot)) {
            return slots[number].memory.take().map(|memory| lend(number, memory));
        }
        // A free slot that has become too small is made anew; else there is one more, if there may be.
        let small =
            slots.iter().position(|slot| usable(slot) && slot.memory.is_some() || slot.state == SlotState::Unmade);
        let alive = slots.iter().filter(|slot| slot.state != SlotState::Retired).count();
        if small.is_none() && alive >= SLOTS {
            return None;
        }
        let room = (bytes + bytes / 4).next_multiple_of(SLOT_UNIT);
        let others = slots.iter().enumerate().filter(|(number, _)| Some(*number) != small);
        if others.map(|(_, slot)| slot.room).sum::<usize>().saturating_add(room) > most {
            return None;
        }
        let charge = self.budget.take(room as u64, Share::Half)?;
        let number = small.unwrap_or_else(|| {
            slots.push(Slot { memory: None, room: 0, state: SlotState::Unmade });
            slots.len() - 1
        });
        let before = std::mem::replace(&mut slots[number], Slot { memory: None, room, state: SlotState::New });
        // Without the lock: finding memory takes milliseconds, and the connection's task is not to wait for it.
        drop(slots);
        match SharedSlot::create(room) {
            Ok(shared) => Some(lend(number, SlotMemory { shared, _charge: charge })),
            Err(error) => {
                tracing::warn!(%error, bytes = room, "cannot make shared memory; the batch goes through the socket");
                let slot = &mut lock(self.slots.as_ref()?)[number];
                if slot.state == SlotState::New {
                    *slot = before;
                }
                None
            }
        }
    }

    /// Sends a batch; its channel is told when the client has taken it.
    /// If nobody can take it any more, or there is no memory left for it, the answer is no, and no channel is told.
    pub(crate) fn send_batch(
        &self,
        header: Header,
        head: proto::BatchHead,
        memory: BatchMemory,
        channel: ChannelId,
        life: Life,
    ) -> bool {
        let bytes = head.bytes;
        let message = |slot| Message::Batch(proto::BatchHead { slot, ..head });
        self.send_memory(header, message, memory, (channel, bytes), Some(life))
    }

    /// Sends rows to a peer.
    pub(crate) fn send_rows(&self, header: Header, row_bytes: usize, bytes: usize, memory: BatchMemory) {
        let (row_bytes, bytes) = (row_bytes as u64, bytes as u64);
        let message = |slot| Message::Rows(proto::Rows { row_bytes, bytes, slot });
        self.send_memory(header, message, memory, (NO_CHANNEL, bytes), None);
    }

    /// Sends what is in memory: through the socket, or by the number of its slot.
    fn send_memory(
        &self,
        header: Header,
        message: impl FnOnce(Option<u32>) -> Message,
        memory: BatchMemory,
        (channel, bytes): (ChannelId, u64),
        life: Option<Life>,
    ) -> bool {
        let memory = match self.own(memory) {
            Ok(memory) => memory,
            Err(refusal) => {
                self.send_message(header, Message::Failed(refusal.failed()));
                return false;
            }
        };
        let mut slot = match memory {
            BatchMemory::Heap(buffer) => {
                let batch = (channel != NO_CHANNEL).then_some((channel, bytes));
                let body = Body::Buffer(buffer);
                return self.send(Out { header, message: message(None), body, batch, _life: life });
            }
            BatchMemory::Slot(slot) => slot,
        };
        let (number, memory) = (slot.number, slot.memory.take());
        let is_new = {
            let Some(slots) = &self.slots else { return false };
            let slot = &mut lock(slots)[number];
            let is_new = slot.state == SlotState::New;
            (slot.memory, slot.state) = (memory, SlotState::Out(channel, bytes));
            is_new
        };
        let number = number as u32;
        if is_new {
            let bytes = self.slot_bytes(number as usize) as u64;
            let message = Message::Slot(proto::Slot { slot: number, bytes });
            let header = Header::new(message.kind());
            self.send(Out { header, message, body: Body::Slot(number), batch: None, _life: None });
        }
        let message = message(Some(number));
        let sent = self.send(Out { header, message, body: Body::None, batch: None, _life: life });
        // Who ends the connection may have counted it already as lost.
        sent || !self.forget(number as usize)
    }

    /// Gives a slot up that is with the client; says whether it was.
    fn forget(&self, number: usize) -> bool {
        let Some(slots) = &self.slots else { return false };
        let slot = &mut lock(slots)[number];
        let was_out = matches!(slot.state, SlotState::Out(..));
        if was_out {
            *slot = Slot::RETIRED;
        }
        was_out
    }

    /// Memory that can be sent here: a slot of another connection, which its client has left while the batch was made, is
    /// copied.
    fn own(&self, memory: BatchMemory) -> Result<BatchMemory, Refusal> {
        match memory {
            BatchMemory::Slot(mut slot) if !std::ptr::eq(Arc::as_ptr(&slot.outlet), self) => {
                let mut buffer = self.budget.buffer_instead(slot.bytes)?;
                buffer.bytes_mut().copy_from_slice(slot.bytes_mut());
                Ok(BatchMemory::Heap(buffer))
            }
            memory => Ok(memory),
        }
    }

    fn slot_bytes(&self, number: usize) -> usize {
        let slots = self.slots.as_ref().map(lock);
        slots.and_then(|slots| slots[number].memory.as_ref().map(|memory| memory.shared.bytes().len())).unwrap_or(0)
    }

    /// Sends a frame without a body.
    pub(crate) fn send_message(&self, header: Header, message: Message) {
        self.send(Out { header, message, body: Body::None, batch: None, _life: None });
    }

    /// Sends an answer to a peer.
    ///
    /// # Errors
    /// When there is no room to keep it until it is written.
    pub(crate) fn send_bytes(&self, header: Header, message: Message, body: Vec<u8>) -> Result<(), Refusal> {
        let bytes = body.capacity() as u64;
        let charge = self.budget.take(bytes, Share::Whole).ok_or_else(|| self.budget.refusal(bytes, Share::Whole))?;
        self.send(Out {
            header,
            message,
            body: Body::Bytes { bytes: body, _charge: charge },
            batch: None,
            _life: None,
        });
        Ok(())
    }

    /// Says whether there is a connection to send it over.
    fn send(&self, out: Out) -> bool {
        self.waiting_everywhere.fetch_add(1, Ordering::AcqRel);
        let sent = self.backlog.sent(out.held(), || self.queue.send(out).is_ok());
        if !sent {
            self.waiting_everywhere.fetch_sub(1, Ordering::AcqRel);
        }
        sent
    }

    /// The client gave slots back; for each, whose batch was in it and of how many bytes.
    pub(crate) fn returned(&self, back: &proto::Return) -> Vec<(ChannelId, u64)> {
        let Some(slots) = &self.slots else { return Vec::new() };
        let mut slots = lock(slots);
        let mut batches = Vec::new();
        for (list, next) in [(&back.returned, SlotState::Free), (&back.retired, SlotState::Retired)] {
            for &number in list {
                let Some(slot) = slots.get_mut(number as usize) else { continue };
                let SlotState::Out(channel, bytes) = slot.state else { continue };
                batches.push((channel, bytes));
                slot.state = next;
                if next == SlotState::Retired {
                    *slot = Slot::RETIRED;
                }
            }
        }
        batches
    }

    /// Gives up all slots, once the connection is gone; for each that is with the client and will not come back, whose batch
    /// was in it and of how many bytes.
    pub(crate) fn give_up(&self) -> Vec<(ChannelId, u64)> {
        let Some(slots) = &self.slots else { return Vec::new() };
        let mut lost = Vec::new();
        for slot in lock(slots).iter_mut() {
            if let SlotState::Out(channel, bytes) = slot.state {
                lost.push((channel, bytes));
            }
            *slot = Slot::RETIRED;
        }
        lost
    }

    /// What the client needs to map a slot; nothing if it was retired before it was announced.
    pub(crate) fn descriptor(&self, slot: u32) -> Option<OwnedFd> {
        let slots = lock(self.slots.as_ref()?);
        let memory = slots.get(slot as usize)?.memory.as_ref()?;
        memory.shared.fd().try_clone_to_owned().ok()
    }

    /// Writes a frame.
    ///
    /// # Errors
    /// When the connection is broken.
    pub(crate) async fn write(&self, out: &Out, writer: &mut FrameWriter) -> graphmill_net::Result<()> {
        match &out.body {
            Body::None => writer.write(out.header, &out.message, &[]).await,
            Body::Bytes { bytes, .. } => writer.write(out.header, &out.message, &[bytes]).await,
            Body::Buffer(buffer) => writer.write(out.header, &out.message, &[buffer.bytes()]).await,
            Body::Slot(number) => {
                match self.descriptor(*number) {
                    Some(fd) => writer.write_with_fd(out.header, &out.message, fd.as_fd()).await,
                    // The client never sees it.
                    None => Ok(()),
                }
            }
        }
    }
}

impl Slot {
    const RETIRED: Self = Self { memory: None, room: 0, state: SlotState::Retired };
}

impl Out {
    /// The bytes that it holds while it waits; those of a batch are its channel's.
    fn held(&self) -> usize {
        let body = match &self.body {
            Body::Buffer(buffer) if self.batch.is_none() => buffer.bytes().len(),
            Body::Bytes { bytes, .. } => bytes.len(),
            Body::None | Body::Buffer(_) | Body::Slot(_) => 0,
        };
        size_of::<Self>() + self.message.encoded_len() + body
    }

    pub(crate) fn batch(&self) -> Option<(ChannelId, u64)> {
        self.batch
    }

    /// Whether it holds memory of the budget.
    pub(crate) fn is_charged(&self) -> bool {
        matches!(self.body, Body::Buffer(_) | Body::Bytes { .. })
    }

    pub(crate) fn is_batch(&self) -> bool {
        self.header.kind == Kind::Batch
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        let (Some(memory), Some(slots)) = (self.memory.take(), &self.outlet.slots) else { return };
        let slot = &mut lock(slots)[self.number];
        if slot.state != SlotState::Retired {
            slot.memory = Some(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_made_for_a_connection_that_is_gone_goes_to_the_next_as_a_copy() {
        let (before, _) = Outlet::new(true, Budget::new(64 << 20), Arc::default());
        let (now, mut queue) = Outlet::new(true, Budget::new(64 << 20), Arc::default());
        let mut memory = before.memory(3).unwrap();
        assert!(matches!(memory, BatchMemory::Slot(_)));
        memory.bytes_mut().copy_from_slice(b"abc");
        let head = proto::BatchHead { bytes: 3, ..proto::BatchHead::default() };
        assert!(now.send_batch(Header::new(Kind::Batch), head, memory, 7, Life::unheard()));
        let sent = queue.try_recv().unwrap();
        let (Message::Batch(head), Body::Buffer(buffer)) = (&sent.message, &sent.body) else { panic!("{sent:?}") };
        assert_eq!((head.slot, buffer.bytes(), sent.batch()), (None, &b"abc"[..], Some((7, 3))));
        assert!(now.give_up().is_empty() && before.give_up().is_empty());
    }
}

//! The way out of a data connection: frames wait here for the socket, batches in memory that may be shared.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use graphmill_net::{FrameWriter, SharedSlot};
use graphmill_sample::{Buffer, Pool};
use graphmill_wire::{Header, Kind, Message, proto};
use tokio::sync::mpsc;

use crate::Refusal;
use crate::backlog::Backlog;
use crate::cluster::lock;
use crate::life::Life;
use crate::scheduler::ChannelId;
use crate::work::Urgent;

/// The most slots of one connection: some being written, some on their way, some with the client's user.
const SLOTS: usize = 8;
/// The most bytes of slots that rows lie in; further ones go through the socket.
const ROW_SLOTS: usize = 256 << 20;
/// Idle memory that is kept for questions and rows.
const KEPT_BYTES: usize = 64 << 20;
/// The channel of what is no batch; none has this number.
const NO_CHANNEL: ChannelId = 0;
/// Slots are a multiple of this long.
const SLOT_UNIT: usize = 2 << 20;

/// Where a connection's frames are put. Whoever has it may send; the connection's own task writes.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: mpsc::UnboundedSender<Out>,
    /// What waits to be taken, and the questions under way.
    pub(crate) backlog: Arc<Backlog>,
    /// Frames that wait to be written on the whole server.
    waiting_everywhere: Arc<AtomicUsize>,
    /// What batches are written to when they are not shared.
    pool: Pool,
    /// The memory of questions, and of rows that are not shared.
    question_pool: Pool,
    /// None on a connection without shared memory.
    slots: Option<Mutex<Vec<Slot>>>,
}

/// A frame on its way out.
#[derive(Debug)]
pub(crate) struct Out {
    header: Header,
    message: Message,
    body: Body,
    /// Whose batch it is, and its bytes: to be told when it was written. A batch in a slot counts until the slot returns.
    batch: Option<(ChannelId, u64)>,
    /// The life of a batch, which ends when it is written.
    _life: Option<Life>,
}

#[derive(Debug)]
enum Body {
    None,
    Buffer(Buffer),
    Bytes(Vec<u8>),
    /// The slot whose descriptor rides along.
    Slot(u32),
}

/// A piece of memory that both sides see.
#[derive(Debug)]
struct Slot {
    /// None while a batch is being written to it.
    memory: Option<SharedSlot>,
    /// The bytes of its memory, wherever that is.
    room: usize,
    state: SlotState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotState {
    /// The client does not have it yet, or not as it is now.
    New,
    Free,
    /// With the client, for a channel's batch of so many bytes.
    Out(ChannelId, u64),
    /// The client will never give it back.
    Retired,
}

/// Memory for one batch.
#[derive(Debug)]
pub(crate) enum BatchMemory {
    Heap(Buffer),
    Slot(LentSlot),
}

/// A slot that a batch is being written to. It is free again if the batch is not sent.
#[derive(Debug)]
pub(crate) struct LentSlot {
    outlet: Arc<Outlet>,
    number: usize,
    memory: Option<SharedSlot>,
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
        self.memory.as_mut().map(|memory| &mut memory.bytes_mut()[..self.bytes]).unwrap_or_default()
    }
}

impl Outlet {
    pub(crate) fn new(
        slots: bool,
        batches: usize,
        waiting_everywhere: Arc<AtomicUsize>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Out>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        let outlet = Self {
            queue,
            backlog: Arc::default(),
            waiting_everywhere,
            pool: Pool::new(batches),
            question_pool: Pool::bounded(batches, KEPT_BYTES),
            slots: slots.then(Mutex::default),
        };
        (Arc::new(outlet), receiver)
    }

    /// A frame was written, or never will be; the questions that may be answered now.
    pub(crate) fn written(&self, out: &Out) -> Vec<Urgent> {
        self.waiting_everywhere.fetch_sub(1, Ordering::AcqRel);
        self.backlog.taken(out.held())
    }

    /// Whether the connection is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Memory for a question.
    pub(crate) fn buffer(&self, bytes: usize) -> graphmill_sample::Result<Buffer> {
        self.question_pool.take(bytes)
    }

    /// Memory for a batch: a slot if one is free or can be made. How much of it a client holds is up to its channels.
    pub(crate) fn memory(self: &Arc<Self>, bytes: usize) -> graphmill_sample::Result<BatchMemory> {
        Ok(match self.slot(bytes, usize::MAX) {
            Some(slot) => BatchMemory::Slot(slot),
            None => BatchMemory::Heap(self.pool.take(bytes)?),
        })
    }

    /// The same for rows, which no channel bounds.
    pub(crate) fn memory_for_rows(self: &Arc<Self>, bytes: usize) -> graphmill_sample::Result<BatchMemory> {
        Ok(match self.slot(bytes, ROW_SLOTS) {
            Some(slot) => BatchMemory::Slot(slot),
            None => BatchMemory::Heap(self.question_pool.take(bytes)?),
        })
    }

    /// A slot, if all of them have no more bytes than `most` then.
    fn slot(self: &Arc<Self>, bytes: usize, most: usize) -> Option<LentSlot> {
        let mut slots = lock(self.slots.as_ref()?);
        let lend = |number: usize, memory| LentSlot { outlet: Arc::clone(self), number, memory: Some(memory), bytes };
        let usable = |slot: &Slot| matches!(slot.state, SlotState::Free | SlotState::New);
        let fits = |slot: &Slot| slot.memory.as_ref().is_some_and(|memory| memory.bytes().len() >= bytes);
        if let Some(number) = slots.iter().position(|slot| usable(slot) && fits(slot)) {
            return slots[number].memory.take().map(|memory| lend(number, memory));
        }
        // A free slot that has become too small is made anew; else there is one more, if there may be.
        let small = slots.iter().position(|slot| usable(slot) && slot.memory.is_some());
        let alive = slots.iter().filter(|slot| slot.state != SlotState::Retired).count();
        if small.is_none() && alive >= SLOTS {
            return None;
        }
        let room = (bytes + bytes / 4).next_multiple_of(SLOT_UNIT);
        let others = slots.iter().enumerate().filter(|(number, _)| Some(*number) != small);
        if others.map(|(_, slot)| slot.room).sum::<usize>().saturating_add(room) > most {
            return None;
        }
        let memory = match SharedSlot::create(room) {
            Ok(memory) => memory,
            Err(error) => {
                tracing::warn!(%error, bytes = room, "cannot make shared memory; the batch goes through the socket");
                return None;
            }
        };
        let number = small.unwrap_or_else(|| {
            slots.push(Slot { memory: None, room, state: SlotState::New });
            slots.len() - 1
        });
        slots[number] = Slot { memory: None, room, state: SlotState::New };
        Some(lend(number, memory))
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
            Err(error) => {
                self.send_message(header, Message::Failed(Refusal::from(error).failed()));
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
    fn own(&self, memory: BatchMemory) -> graphmill_sample::Result<BatchMemory> {
        match memory {
            BatchMemory::Slot(mut slot) if !std::ptr::eq(Arc::as_ptr(&slot.outlet), self) => {
                let mut buffer = self.pool.take(slot.bytes)?;
                buffer.bytes_mut().copy_from_slice(slot.bytes_mut());
                Ok(BatchMemory::Heap(buffer))
            }
            memory => Ok(memory),
        }
    }

    fn slot_bytes(&self, number: usize) -> usize {
        let slots = self.slots.as_ref().map(lock);
        slots.and_then(|slots| slots[number].memory.as_ref().map(|memory| memory.bytes().len())).unwrap_or(0)
    }

    /// Sends a frame without a body.
    pub(crate) fn send_message(&self, header: Header, message: Message) {
        self.send(Out { header, message, body: Body::None, batch: None, _life: None });
    }

    /// Sends an answer to a peer.
    pub(crate) fn send_bytes(&self, header: Header, message: Message, body: Vec<u8>) {
        self.send(Out { header, message, body: Body::Bytes(body), batch: None, _life: None });
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

    /// Gives up what is with the client and will not come back, once the connection is gone.
    pub(crate) fn outstanding(&self) -> Vec<(ChannelId, u64)> {
        let Some(slots) = &self.slots else { return Vec::new() };
        let mut lost = Vec::new();
        for slot in lock(slots).iter_mut() {
            if let SlotState::Out(channel, bytes) = slot.state {
                lost.push((channel, bytes));
                *slot = Slot::RETIRED;
            }
        }
        lost
    }

    /// Writes a frame; says whose batch was in it.
    ///
    /// # Errors
    /// When the connection is broken.
    pub(crate) async fn write(&self, out: &Out, writer: &mut FrameWriter) -> graphmill_net::Result<()> {
        match &out.body {
            Body::None => writer.write(out.header, &out.message, &[]).await,
            Body::Bytes(bytes) => writer.write(out.header, &out.message, &[bytes]).await,
            Body::Buffer(buffer) => writer.write(out.header, &out.message, &[buffer.bytes()]).await,
            Body::Slot(number) => {
                let fd = self.slots.as_ref().map(lock).and_then(|slots| {
                    let memory = slots.get(*number as usize)?.memory.as_ref()?;
                    memory.fd().try_clone_to_owned().ok()
                });
                match fd {
                    Some(fd) => writer.write_with_fd(out.header, &out.message, fd.as_fd()).await,
                    // It was retired before it was announced: the client never sees it.
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
            Body::Bytes(bytes) => bytes.len(),
            Body::None | Body::Buffer(_) | Body::Slot(_) => 0,
        };
        size_of::<Self>() + self.message.encoded_len() + body
    }

    pub(crate) fn batch(&self) -> Option<(ChannelId, u64)> {
        self.batch
    }

    pub(crate) fn is_batch(&self) -> bool {
        self.header.kind == Kind::Batch
    }
}

impl Drop for LentSlot {
    fn drop(&mut self) {
        let (Some(memory), Some(slots)) = (self.memory.take(), &self.outlet.slots) else { return };
        lock(slots)[self.number].memory = Some(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_made_for_a_connection_that_is_gone_goes_to_the_next_as_a_copy() {
        let (before, _) = Outlet::new(true, 1, Arc::default());
        let (now, mut queue) = Outlet::new(true, 1, Arc::default());
        let mut memory = before.memory(3).unwrap();
        assert!(matches!(memory, BatchMemory::Slot(_)));
        memory.bytes_mut().copy_from_slice(b"abc");
        let head = proto::BatchHead { bytes: 3, ..proto::BatchHead::default() };
        assert!(now.send_batch(Header::new(Kind::Batch), head, memory, 7, Life::unheard()));
        let sent = queue.try_recv().unwrap();
        let (Message::Batch(head), Body::Buffer(buffer)) = (&sent.message, &sent.body) else { panic!("{sent:?}") };
        assert_eq!((head.slot, buffer.bytes(), sent.batch()), (None, &b"abc"[..], Some((7, 3))));
        assert!(now.outstanding().is_empty() && before.outstanding().is_empty());
    }
}

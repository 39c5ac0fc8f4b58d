//! Shared memory, from a batch that is written to the user who lets go of it: whoever holds a slot sees what was sent.

use std::time::Instant;

use graphmill_wire::{Header, Kind, Message, proto};
use shuttle::future::block_on;
use shuttle::sync::mpsc::channel;
use tokio::sync::mpsc::unbounded_channel;

use crate::life::Life;
use crate::outlet::{BatchMemory, Body, Outlet};
use crate::queue::Queue;
use crate::received::{HeldSlot, ReceivedSlots};
use crate::scheduler::{Bounds, ChannelId};
use crate::support::{AN_HOUR, Connection, MUCH, World, models};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, thread};

models![
    1200 who_holds_a_slot_sees_what_was_sent_until_it_lets_go,
    3000 a_slot_is_sent_again_only_when_it_can_be_taken_again,
    1200 a_slot_that_does_not_come_back_is_never_written_again,
    1200 a_slot_that_is_made_larger_is_announced_before_it_is_used,
    3000 each_batch_is_told_of_once_however_the_connection_ends,
    3000 a_slot_that_is_being_written_when_the_connection_ends_is_given_back,
];

const CHANNEL: ChannelId = 1 << 32;

/// Sends a batch of so many bytes, whose first and last are its number. Says whether anybody can take it.
fn send(outlet: &Arc<Outlet>, g: u64, bytes: usize) -> bool {
    let mut memory = outlet.memory(bytes).unwrap();
    // Somebody may look while it is written.
    for place in [0, bytes - 1] {
        memory.bytes_mut()[place] = g as u8;
        let_others_go_on();
    }
    let header = Header { channel: CHANNEL, g, ..Header::new(Kind::Batch) };
    let head = proto::BatchHead { bytes: bytes as u64, ..proto::BatchHead::default() };
    outlet.send_batch(header, head, memory, CHANNEL, Life::unheard())
}

/// Somebody else may go on here. A yield would ask for it, and whoever sleeps would not sleep for long.
fn let_others_go_on() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// What a user was given.
enum Given {
    Slot(HeldSlot),
    Copy(Vec<u8>),
}

impl Given {
    /// Whether it is what was sent.
    fn is(&self, g: u64) -> bool {
        let bytes = match self {
            Self::Slot(slot) => slot.bytes(),
            Self::Copy(copy) => copy,
        };
        bytes.first() == Some(&(g as u8)) && bytes.last() == Some(&(g as u8))
    }
}

/// A server that sends batches of some sizes; a client that receives them; its user, who holds `held` of them at a time and
/// edits some; and returns on their way back, as retired if it is said so.
fn exchange(sizes: &'static [usize], held: usize, retires: fn(u32) -> bool) {
    let world = World::new(0, AN_HOUR, MUCH);
    let Connection { core, outlet, waiting } = Connection::new(&world.core, true);
    let (returns, mut returned) = unbounded_channel::<proto::Return>();
    let (give, given) = channel::<(u64, Given)>();
    let (open, ended) = channel::<()>();
    let (may, credits) = channel::<()>();
    let server = {
        let outlet = Arc::clone(&outlet);
        thread::spawn(move || {
            for (g, &bytes) in (0..).zip(sizes) {
                // As many as the user holds, and one more; then it goes on when one comes back.
                if g > held as u64 {
                    credits.recv().unwrap();
                }
                assert!(send(&outlet, g, bytes));
            }
        })
    };
    let client = {
        let outlet = Arc::clone(&outlet);
        thread::spawn(move || {
            let slots = ReceivedSlots::new(returns);
            let mut queue = Queue::new(&core, &outlet, waiting);
            let mut left = sizes.len();
            while left > 0 {
                let out = block_on(queue.next()).unwrap();
                match (&out.message, &out.body) {
                    (Message::Slot(slot), Body::Slot(number)) => {
                        slots.accept(slot, outlet.descriptor(*number)).unwrap();
                    }
                    (Message::Batch(proto::BatchHead { slot: Some(slot), bytes, .. }), _) => {
                        let taken = slots.take(*slot, *bytes as usize).expect("a slot is announced before it is used");
                        give.send((out.header.g, Given::Slot(taken))).unwrap();
                        left -= 1;
                    }
                    (Message::Batch(_), Body::Buffer(buffer)) => {
                        give.send((out.header.g, Given::Copy(buffer.bytes().to_vec()))).unwrap();
                        left -= 1;
                    }
                    other => panic!("{other:?}"),
                }
                queue.gone();
            }
            drop((give, slots));
            // The connection goes on for as long as its user holds something.
            assert!(ended.recv().is_err());
        })
    };
    let user = thread::spawn(move || {
        let (mut holds, mut in_slots) = (Vec::<(u64, Given)>::new(), 0);
        for (g, mut one) in given {
            in_slots += usize::from(matches!(one, Given::Slot(_)));
            assert!(one.is(g), "batch {g} has other bytes than were sent");
            if let (Given::Slot(slot), true) = (&mut one, g % 2 == 0) {
                // What a user edits is the user's alone.
                let last = slot.bytes().len() - 1;
                slot.bytes_mut()[last] = g as u8;
            }
            holds.push((g, one));
            if holds.len() > held {
                let (g, one) = holds.remove(0);
                assert!(one.is(g), "batch {g} was changed while it was held");
            }
        }
        assert!(holds.iter().all(|(g, one)| one.is(*g)), "batches were changed while they were held");
        in_slots
    });
    let mut told = 0;
    while let Some(mut back) = block_on(returned.recv()) {
        let (retired, kept) = back.returned.iter().partition(|&&number| retires(number));
        (back.returned, back.retired) = (kept, retired);
        for batch in outlet.returned(&back) {
            assert!(sizes.iter().any(|&bytes| batch == (CHANNEL, bytes as u64)));
            told += 1;
            // The server may have sent everything.
            let _ = may.send(());
        }
    }
    server.join().unwrap();
    assert_eq!(told, user.join().unwrap(), "each batch in a slot is told of once");
    drop((outlet, open));
    client.join().unwrap();
    world.end();
}

fn who_holds_a_slot_sees_what_was_sent_until_it_lets_go() {
    exchange(&[100, 100, 100, 100], 1, |_| false);
}

fn a_slot_is_sent_again_only_when_it_can_be_taken_again() {
    exchange(&[100; 6], 0, |_| false);
}

fn a_slot_that_does_not_come_back_is_never_written_again() {
    exchange(&[100, 100, 100, 100], 1, |number| number % 2 == 0);
}

fn a_slot_that_is_made_larger_is_announced_before_it_is_used() {
    exchange(&[100, 3 << 20, 100, 3 << 20], 0, |_| false);
}

fn each_batch_is_told_of_once_however_the_connection_ends() {
    const SENT: u64 = 3;
    let world = World::new(0, AN_HOUR, MUCH);
    let Connection { core, outlet, waiting } = Connection::new(&world.core, true);
    // One more is finished than is sent, so that whatever is told of twice shows.
    core.work.scheduler(|scheduler| {
        scheduler.add(CHANNEL, Bounds { credits: 8, bytes: 1 << 20 }, Instant::now());
        scheduler.credit(CHANNEL, 1, &[0, 1, 2, 3], Instant::now());
        for _ in 0..=SENT {
            let room = crate::scheduler::Room { used: 0, most: MUCH, whole: MUCH };
            let turn = scheduler.take_turn(room, Instant::now()).unwrap();
            scheduler.finished(turn, 1, 100);
        }
    });
    let server = {
        let (core, outlet) = (Arc::clone(&core), Arc::clone(&outlet));
        thread::spawn(move || {
            for g in 0..SENT {
                if !send(&outlet, g, 100) {
                    core.work.scheduler(|scheduler| scheduler.consumed(CHANNEL, 100));
                }
            }
        })
    };
    let client = {
        let (core, outlet) = (Arc::clone(&core), Arc::clone(&outlet));
        thread::spawn(move || {
            // It gives one back, whether it has it or not.
            let back = proto::Return { returned: vec![0], retired: Vec::new() };
            for (channel, bytes) in outlet.returned(&back) {
                core.work.scheduler(|scheduler| scheduler.consumed(channel, bytes));
            }
        })
    };
    let mut queue = Queue::new(&core, &outlet, waiting);
    // The announcement of a slot, so that it ends between this and its batch at times.
    block_on(queue.next());
    queue.gone();
    drop(queue);
    server.join().unwrap();
    client.join().unwrap();
    let seen = core.work.scheduler(|scheduler| scheduler.seen(CHANNEL)).unwrap();
    assert_eq!((seen.buffered, seen.buffered_bytes), (1, 100));
    core.work.scheduler(|scheduler| scheduler.remove(CHANNEL));
    drop(outlet);
    world.end();
}

fn a_slot_that_is_being_written_when_the_connection_ends_is_given_back() {
    let world = World::new(0, AN_HOUR, MUCH);
    let Connection { core, outlet, waiting } = Connection::new(&world.core, true);
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let outlet = Arc::clone(&outlet);
            thread::spawn(move || {
                // Batches that are given up.
                for _ in 0..2 {
                    let memory = outlet.memory(100).unwrap();
                    let_others_go_on();
                    drop(memory);
                }
                let rows = outlet.memory_for_rows(100).unwrap();
                assert!(matches!(rows, BatchMemory::Slot(_)));
            })
        })
        .collect();
    drop(Queue::new(&core, &outlet, waiting));
    for writer in writers {
        writer.join().unwrap();
    }
    drop(outlet);
    world.end();
}

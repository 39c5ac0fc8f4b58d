//! Readers of a soak: ranks as processes that are checked batch by batch, and started again where they stood when they were
//! killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};

use crate::good_day::GoodDay;
use crate::rank::{Order, Rank, Told};
use crate::support::Workplace;

/// What a reader has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) batches: AtomicU64,
    pub(crate) epochs: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) duplicated: AtomicU64,
    pub(crate) wrong: AtomicU64,
    /// How often it was killed and went on.
    pub(crate) kills: AtomicU64,
}

/// A reader, whatever process it is now.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) seen: Seen,
    process: Mutex<Option<u32>>,
    /// Whether the process was killed on purpose.
    killed: AtomicBool,
    over: AtomicBool,
    /// Why it cannot go on.
    failed: Mutex<Option<String>>,
}

impl Reader {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            seen: Seen::default(),
            process: Mutex::default(),
            killed: AtomicBool::new(false),
            over: AtomicBool::new(false),
            failed: Mutex::default(),
        }
    }

    /// Reads until it is over.
    pub(crate) fn work(&self, place: &Workplace, order: &Order, good: &Arc<Mutex<GoodDay>>) {
        let (mut next, mut order) = ((0, 0), order.clone());
        while !self.over.load(Ordering::SeqCst) {
            let mut rank = Rank::start(place, &order);
            *self.process.lock().unwrap() = Some(rank.child.id());
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            while let Some(told) = rank.next() {
                self.check(&told, &mut next, good);
                order.state = Some(told.state);
            }
            *self.process.lock().unwrap() = None;
            let status = rank.child.wait().unwrap();
            if self.killed.swap(false, Ordering::SeqCst) {
                self.seen.kills.fetch_add(1, Ordering::Relaxed);
            } else if !self.over.load(Ordering::SeqCst) {
                *self.failed.lock().unwrap() = Some(format!("{} ended with {status}", self.name));
                return;
            }
        }
    }

    /// Compares a batch with that of a good day, and expects the one after it.
    fn check(&self, told: &Told, next: &mut (u64, usize), good: &Arc<Mutex<GoodDay>>) {
        let mut good = good.lock().unwrap();
        let (epoch, place) = *next;
        let expected = good.epoch(epoch);
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let found = (told.epoch, told.digest().0 as usize);
        if found < (epoch, place) {
            add(&self.seen.duplicated);
            return;
        }
        if found > (epoch, place) {
            add(&self.seen.lost);
        } else if expected[place] != told.digest() {
            add(&self.seen.wrong);
        }
        add(&self.seen.batches);
        let (epoch, place) = found;
        *next = if place + 1 == expected.len() {
            add(&self.seen.epochs);
            (epoch + 1, 0)
        } else {
            (epoch, place + 1)
        };
    }

    /// The process that reads now.
    pub(crate) fn process(&self) -> Option<u32> {
        *self.process.lock().unwrap()
    }

    /// Sends a signal to whoever reads now.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = self.process.lock().unwrap();
        if let Some(pid) = process.and_then(|process| Pid::from_raw(process as i32)) {
            if signal == Signal::KILL {
                self.killed.store(true, Ordering::SeqCst);
            }
            kill_process(pid, signal).unwrap();
        }
    }

    /// Lets it read no more.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.signal(Signal::TERM);
    }

    pub(crate) fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap().clone()
    }
}

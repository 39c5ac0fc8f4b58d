//! Threads that sample ahead of the reader, never further than the window allows.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use graphmill_sample::Batch;

use super::embedded::Embedded;
use super::order::Order;
use super::rounds::Rounds;
use crate::{Error, Result};

/// How long whoever leaves an epoch waits for its workers. A worker looks between hops and is there long before, unless its
/// batch is huge; then it ends by itself, and whoever pressed Ctrl-C does not wait for it. The next epoch's workers do.
const PATIENCE: Duration = Duration::from_millis(100);

/// The workers of one epoch.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    source: Arc<Embedded>,
    order: Order,
    /// How many rounds there are to sample.
    rounds: usize,
    /// The most rounds that are claimed and not yet handed out.
    window: usize,
    progress: Mutex<Progress>,
    /// The reader has left; a batch under way is given up.
    stopped: AtomicBool,
    /// A round is ready, or a worker ended.
    ready: Condvar,
    /// There is room in the window.
    room: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// Rounds that nobody has claimed.
    todo: Rounds,
    claimed: usize,
    handed_out: usize,
    ready: VecDeque<(u64, Result<Batch>)>,
    /// Workers that have ended.
    ended: usize,
}

impl Workers {
    pub(super) fn start(source: &Arc<Embedded>, order: Order, todo: Rounds, threads: usize, window: usize) -> Self {
        let shared = Arc::new(Shared {
            source: Arc::clone(source),
            order,
            rounds: todo.len(),
            window,
            progress: Mutex::new(Progress { todo, claimed: 0, handed_out: 0, ready: VecDeque::new(), ended: 0 }),
            stopped: AtomicBool::new(false),
            ready: Condvar::new(),
            room: Condvar::new(),
        });
        let work = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("graphmill-loader".to_owned()).spawn(move || shared.work()).ok()
        };
        let threads = (0..threads.min(shared.rounds)).map_while(work).collect();
        Self { shared, threads }
    }

    /// Whether there is a thread at work.
    pub(super) fn any(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Whether a round, or any, is ready or all were handed out. Waits for it, but not longer than this.
    pub(super) fn ready(&self, wanted: Option<u64>, within: Duration) -> bool {
        let waits = |progress: &mut Progress| {
            let there = progress.ready.iter().any(|(round, _)| wanted.is_none_or(|wanted| wanted == *round));
            !there && progress.handed_out < self.shared.rounds
        };
        let waited = self.shared.ready.wait_timeout_while(self.shared.lock(), within, waits);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The result of a round, or of whichever is ready first.
    pub(super) fn next(&self, wanted: Option<u64>) -> Option<(u64, Result<Batch>)> {
        let mut progress = self.shared.lock();
        loop {
            if progress.handed_out == self.shared.rounds {
                return None;
            }
            let place = progress.ready.iter().position(|(round, _)| wanted.is_none_or(|wanted| wanted == *round));
            if let Some(found) = place.and_then(|place| progress.ready.remove(place)) {
                progress.handed_out += 1;
                self.shared.room.notify_one();
                return Some(found);
            }
            progress = self.shared.ready.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Under the lock, so that no worker looks just before and sleeps just after.
        let progress = self.shared.lock();
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.room.notify_all();
        self.shared.source.wake();
        let at_work = |progress: &mut Progress| progress.ended < self.threads.len();
        let waited = self.shared.ready.wait_timeout_while(progress, PATIENCE, at_work);
        if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
            return;
        }
        for thread in self.threads.drain(..) {
            // A worker catches the panics of sampling; nothing else of it can panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut worker = self.source.worker();
        while let Some(round) = self.claim() {
            let Some(turn) = self.source.turn(&self.stopped) else { break };
            let outcome =
                catch_unwind(AssertUnwindSafe(|| self.source.load(&mut worker, &self.order, round, &self.stopped)));
            let result = outcome.unwrap_or_else(|panic| {
                // What the sampler was doing is unknown, so it does not go on.
                worker = self.source.new_worker();
                let batch = self.order.batch(round);
                Err(Error::Panicked { epoch: batch.epoch, g: batch.g, message: message(panic.as_ref()) })
            });
            drop(turn);
            self.lock().ready.push_back((round, result));
            self.ready.notify_all();
        }
        self.source.give_back(worker);
        self.lock().ended += 1;
        self.ready.notify_all();
    }

    /// The next round to sample; nothing when all are claimed or the reader has left.
    fn claim(&self) -> Option<u64> {
        let mut progress = self.lock();
        loop {
            if self.stopped.load(Ordering::Relaxed) || progress.todo.is_empty() {
                return None;
            }
            if progress.claimed - progress.handed_out < self.window {
                progress.claimed += 1;
                return progress.todo.next();
            }
            progress = self.room.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

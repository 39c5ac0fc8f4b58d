//! The worker threads: one pool for all channels of all backends, and for the questions of peers.
//!
//! Peers' questions and batches whose answers have arrived go first: they are short, and others wait for them. No task
//! waits for anything, so no thread is ever held up, and two servers cannot wait for each other.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use graphmill_sample::{Answer, AnswerScratch, Cut};

use crate::budget::{Budget, Share};
use crate::scheduler::{Room, Scheduler, Turn};
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, lock};

/// Something that others wait for.
pub(crate) type Urgent = Box<dyn FnOnce(&mut Memory) + Send>;

/// What a worker does next.
pub(crate) enum Task {
    /// Something that others wait for.
    Urgent(Urgent),
    /// A batch that nobody has begun.
    Begin(Turn),
}

/// What a worker keeps from task to task.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) scratch: AnswerScratch,
    pub(crate) answer: Answer,
    pub(crate) cut: Cut,
}

/// The queue of the workers.
pub(crate) struct Work {
    state: Mutex<State>,
    wake: Condvar,
    /// What the memory of batches is taken from.
    budget: Arc<Budget>,
}

struct State {
    urgent: VecDeque<Urgent>,
    scheduler: Scheduler,
    stopped: bool,
}

impl Work {
    pub(crate) fn new(most_batches: usize, budget: Arc<Budget>) -> Self {
        let state = State { urgent: VecDeque::new(), scheduler: Scheduler::new(most_batches), stopped: false };
        Self { state: Mutex::new(state), wake: Condvar::new(), budget }
    }

    /// Has something done before any new batch.
    pub(crate) fn urgent(&self, task: impl FnOnce(&mut Memory) + Send + 'static) {
        self.lock().urgent.push_back(Box::new(task));
        self.wake.notify_one();
    }

    /// Looks at the scheduler, or changes it; what it then has to do is begun.
    pub(crate) fn scheduler<T>(&self, change: impl FnOnce(&mut Scheduler) -> T) -> T {
        let result = change(&mut self.lock().scheduler);
        self.wake.notify_all();
        result
    }

    /// There is memory again that batches may wait for.
    pub(crate) fn wake(&self) {
        drop(self.lock());
        self.wake.notify_all();
    }

    /// Ends the workers after what they are doing now.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(task) = state.urgent.pop_front() {
                return Some(Task::Urgent(task));
            }
            let (used, most, whole) =
                (self.budget.used(), self.budget.limit(Share::Most), self.budget.limit(Share::Whole));
            if let Some(turn) = state.scheduler.take_turn(Room { used, most, whole }, Instant::now()) {
                return Some(Task::Begin(turn));
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Starts so many workers; `begin` samples a batch.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub(crate) fn start(
        self: &Arc<Self>,
        threads: usize,
        begin: impl Fn(Turn, &mut Memory) + Send + Sync + 'static,
    ) -> std::io::Result<Vec<JoinHandle<()>>> {
        let begin = Arc::new(begin);
        (0..threads.max(1))
            .map(|number| {
                let (work, begin) = (Arc::clone(self), Arc::clone(&begin));
                let run = move || {
                    let mut memory = Memory::default();
                    while let Some(task) = work.next() {
                        let outcome = catch_unwind(AssertUnwindSafe(|| match task {
                            Task::Urgent(task) => task(&mut memory),
                            Task::Begin(turn) => begin(turn, &mut memory),
                        }));
                        if outcome.is_err() {
                            // Tasks catch their own panics; this one had nobody to tell. What it left behind is not used.
                            tracing::error!("a worker's task panicked");
                            memory = Memory::default();
                        }
                    }
                };
                Builder::new().name(format!("graphmill-{number}")).spawn(run)
            })
            .collect()
    }
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

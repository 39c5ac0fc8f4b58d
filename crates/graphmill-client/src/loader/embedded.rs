//! Sampling in this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use graphmill_graph::Dataset;
use graphmill_sample::{Batch, BatchId, Cut, Plan, Pool, Sampler, SeedCuts, SeedList, Times, View};

use super::{Order, Report};
use crate::Result;

/// What it takes to sample in this process, shared by all threads.
#[derive(Debug)]
pub(super) struct Embedded {
    plan: Arc<Plan>,
    view: Arc<View>,
    seeds: SeedList,
    cuts: SeedCuts,
    pool: Pool,
    /// Workers that rest between epochs, with their memory; as many as sample at once.
    resting: Mutex<Vec<Worker>>,
    threads: usize,
    /// How many more threads may sample now: those of an epoch that was left may still be at it.
    turns: Mutex<usize>,
    turn_ended: Condvar,
}

/// A thread's turn to sample.
pub(super) struct Turn<'a>(&'a Embedded);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.turns.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.turn_ended.notify_one();
    }
}

/// What a thread samples with.
#[derive(Debug)]
pub(super) struct Worker {
    sampler: Sampler,
    cut: Cut,
}

impl Worker {
    pub(super) fn times(&self) -> Times {
        self.sampler.times()
    }
}

impl Embedded {
    /// A source that so many threads sample from at once, and that keeps up to so many idle buffers.
    pub(super) fn new(
        plan: Arc<Plan>,
        dataset: &Dataset,
        seeds: SeedList,
        cuts: SeedCuts,
        threads: usize,
        kept: usize,
    ) -> Self {
        let view = Arc::new(View::new(dataset));
        let (resting, turns, turn_ended) = (Mutex::default(), Mutex::new(threads), Condvar::new());
        Self { plan, view, seeds, cuts, pool: Pool::new(kept), resting, threads, turns, turn_ended }
    }

    /// Waits for a turn to sample; nothing if this is stopped meanwhile.
    pub(super) fn turn(&self, stopped: &AtomicBool) -> Option<Turn<'_>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if stopped.load(Ordering::Relaxed) {
                return None;
            }
            if *turns > 0 {
                *turns -= 1;
                return Some(Turn(self));
            }
            turns = self.turn_ended.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets those who wait for a turn see that they were stopped.
    pub(super) fn wake(&self) {
        drop(self.turns.lock());
        self.turn_ended.notify_all();
    }

    pub(super) fn report(&self) -> Report {
        let resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = Report { idle_bytes: self.pool.idle_bytes(), ..Report::default() };
        for worker in &*resting {
            report.times += worker.sampler.times();
            report.scratch_bytes += worker.sampler.scratch_bytes();
        }
        report
    }

    /// A rested worker if there is one.
    pub(super) fn worker(&self) -> Worker {
        let rested = self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        rested.unwrap_or_else(|| self.new_worker())
    }

    pub(super) fn new_worker(&self) -> Worker {
        let sampler = Sampler::new(Arc::clone(&self.plan), Arc::clone(&self.view), self.pool.clone());
        Worker { sampler, cut: Cut::default() }
    }

    pub(super) fn give_back(&self, worker: Worker) {
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        if resting.len() < self.threads {
            resting.push(worker);
        }
    }

    /// The positions in the seed list that make a batch.
    pub(super) fn positions(&self, batch: BatchId) -> impl Iterator<Item = u64> + '_ {
        self.cuts.positions(self.plan.config().seed, batch)
    }

    /// Samples the batch of a round, unless it is stopped meanwhile.
    pub(super) fn load(&self, worker: &mut Worker, order: &Order, round: u64, stopped: &AtomicBool) -> Result<Batch> {
        let batch = order.batch(round);
        worker.cut.fill(&self.seeds, self.positions(batch))?;
        Ok(worker.sampler.sample_unless(stopped, worker.cut.seeds(&self.seeds), batch)?)
    }
}

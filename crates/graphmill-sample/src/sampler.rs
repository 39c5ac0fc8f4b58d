//! The embedded driver: a machine beside the data, every question answered at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::batch::{Batch, Layout, Pool};
use crate::law::BatchId;
use crate::machine::{Machine, Seeds, Step};
use crate::plan::Plan;
use crate::view::{AnswerScratch, View};
use crate::{Error, Result};

/// Samples batches from a view, one at a time; one per thread.
#[derive(Debug)]
pub struct Sampler {
    plan: Arc<Plan>,
    view: Arc<View>,
    pool: Pool,
    machine: Machine,
    scratch: AnswerScratch,
    times: Times,
}

/// Where the time of a sampler went.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// Reading and drawing from neighbour lists.
    pub draw: Duration,
    /// From global ids to rows.
    pub renumber: Duration,
    /// Writing nodes and edges into the batch.
    pub assemble: Duration,
    /// Copying features and labels into the batch.
    pub gather: Duration,
}

impl Sampler {
    /// A sampler of a view by a plan for the same dataset.
    pub fn new(plan: Arc<Plan>, view: Arc<View>, pool: Pool) -> Self {
        let machine = Machine::new(&plan);
        Self { plan, view, pool, machine, scratch: AnswerScratch::default(), times: Times::default() }
    }

    /// Samples a batch.
    ///
    /// # Errors
    /// When a seed is unknown, the batch is too large or the dataset is damaged. The sampler stays usable.
    pub fn sample(&mut self, seeds: Seeds<'_>, id: BatchId) -> Result<Batch> {
        self.sample_unless(&AtomicBool::new(false), seeds, id)
    }

    /// The same, unless it is stopped meanwhile.
    ///
    /// # Errors
    /// As for [`Self::sample`], and when it was stopped.
    pub fn sample_unless(&mut self, stopped: &AtomicBool, seeds: Seeds<'_>, id: BatchId) -> Result<Batch> {
        let mut clock = Instant::now();
        let mut lap = |time: &mut Duration| {
            let now = Instant::now();
            *time += now - clock;
            clock = now;
        };
        self.machine.begin(&self.plan, seeds, id)?;
        while self.machine.step(&self.plan)? == Step::Need {
            lap(&mut self.times.renumber);
            if stopped.load(Ordering::Relaxed) {
                return Err(Error::Stopped { epoch: id.epoch, g: id.g });
            }
            for (need, answer) in self.machine.needs() {
                self.view.answer(&need, answer, &mut self.scratch)?;
            }
            lap(&mut self.times.draw);
        }
        lap(&mut self.times.renumber);
        let layout = Layout::of(&self.plan, &self.machine);
        let mut buffer = self.pool.take(layout.bytes())?;
        layout.write(&self.plan, &self.machine, buffer.bytes_mut())?;
        lap(&mut self.times.assemble);
        for (rows, place) in layout.gathers(&self.plan, &self.machine) {
            self.view.gather(rows, &mut buffer.bytes_mut()[place])?;
        }
        lap(&mut self.times.gather);
        let size = self.machine.batch_size(&self.plan);
        Ok(Batch::new(id, size, Arc::clone(&self.plan), layout, buffer))
    }

    /// Where its time went so far.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Bytes of memory that it keeps from batch to batch.
    pub fn scratch_bytes(&self) -> usize {
        self.machine.scratch_bytes() + self.scratch.bytes()
    }
}

impl std::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.draw += other.draw;
        self.renumber += other.renumber;
        self.assemble += other.assemble;
        self.gather += other.gather;
    }
}

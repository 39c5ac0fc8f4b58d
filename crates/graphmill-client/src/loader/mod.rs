//! The embedded loader.

mod order;
mod state;
mod workers;

use std::sync::{Arc, Mutex, PoisonError};

use graphmill_graph::Dataset;
use graphmill_sample::{Batch, Config, Plan, Pool, Sampler, Times, View, law};

use crate::seeds::Cut;
use crate::{Error, Result, SeedList};
use order::Order;
use workers::Workers;

pub use state::State;

/// How seeds become batches, and batches are handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Seeds per batch.
    pub batch_size: usize,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Whether a last batch with fewer seeds is left out.
    pub drop_last: bool,
    /// Threads that sample ahead; with none, batches are sampled when they are asked for.
    pub threads: usize,
    /// Whether batches come in order, or as they are ready.
    pub ordered: bool,
    /// How many batches may wait to be taken, beside those being sampled.
    pub prefetch: usize,
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// Whether all ranks have equally many batches; so by default when there are several.
    pub even: Option<bool>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch_size: 1024,
            shuffle: false,
            drop_last: false,
            threads: 1,
            ordered: true,
            prefetch: 2,
            rank: 0,
            world_size: 1,
            even: None,
        }
    }
}

impl Options {
    fn is_even(&self) -> bool {
        self.even.unwrap_or(self.world_size > 1)
    }

    fn check(&self) -> Result<()> {
        if self.batch_size == 0 {
            return Err(Error::options("batch_size is 0, expected at least 1"));
        }
        if self.threads > 1024 || self.prefetch > 1 << 20 {
            return Err(Error::options(format!(
                "there are {} threads and {} batches ahead, expected at most 1024 and {}",
                self.threads,
                self.prefetch,
                1 << 20,
            )));
        }
        if self.rank >= self.world_size {
            return Err(Error::options(format!(
                "rank is {}, expected below world_size, which is {}",
                self.rank, self.world_size
            )));
        }
        Ok(())
    }
}

/// Epochs of batches from a dataset of this process.
#[derive(Debug)]
pub struct Loader {
    source: Arc<Source>,
}

/// What batches are made from, shared by all threads.
#[derive(Debug)]
struct Source {
    plan: Arc<Plan>,
    view: Arc<View>,
    seeds: SeedList,
    options: Options,
    pool: Pool,
    /// Workers that rest between epochs, with their memory.
    resting: Mutex<Vec<Worker>>,
}

/// What a thread samples with.
#[derive(Debug)]
struct Worker {
    sampler: Sampler,
    cut: Cut,
}

/// What a loader's workers did and hold.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Where their time went.
    pub times: Times,
    /// Bytes of memory that they keep from batch to batch.
    pub scratch_bytes: usize,
    /// Bytes of idle batch buffers.
    pub idle_bytes: usize,
}

impl Loader {
    /// A loader of a dataset, whose partitions must all be opened.
    ///
    /// # Errors
    /// When configuration, seeds or options do not fit each other or the dataset.
    pub fn new(dataset: &Dataset, config: Config, seeds: SeedList, options: Options) -> Result<Self> {
        options.check()?;
        seeds.check()?;
        let plan = Plan::new(config, dataset)?;
        if plan.seed_types().1.is_some() != matches!(seeds, SeedList::Pairs { .. }) {
            return Err(Error::options("links are sampled from pairs, everything else from nodes"));
        }
        let pool = Pool::new(options.threads + options.prefetch + 2);
        let (plan, view) = (Arc::new(plan), Arc::new(View::new(dataset)));
        Ok(Self { source: Arc::new(Source { plan, view, seeds, options, pool, resting: Mutex::default() }) })
    }

    /// What its batches are made by.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.source.plan
    }

    /// How many batches this rank has in an epoch.
    pub fn len(&self) -> usize {
        self.source.order(0, 0).rounds() as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches of an epoch.
    pub fn epoch(&self, epoch: u64) -> Batches {
        Batches::new(&self.source, epoch, 0, 0, &[])
    }

    /// The batches of an epoch from a round on.
    pub fn epoch_from(&self, epoch: u64, round: u64) -> Batches {
        Batches::new(&self.source, epoch, 0, round, &[])
    }

    /// The batches of an epoch that were not handed out when a state was taken.
    ///
    /// # Errors
    /// When the state belongs to other batches than this loader's.
    pub fn resume(&self, state: &State) -> Result<Batches> {
        state.check(&self.source.state(0, 0))?;
        let options = &self.source.options;
        if (state.rank, state.world_size) == (options.rank, options.world_size) {
            return Ok(Batches::new(&self.source, state.epoch, state.start, state.rounds, &state.ahead));
        }
        if !state.ahead.is_empty() {
            return Err(Error::State {
                what: "list of batches handed out of order",
                found: format!("{:?} of rank {} of {}", state.ahead, state.rank, state.world_size),
                expected: "empty when the number of ranks changes, or the same rank and number of ranks".to_owned(),
            });
        }
        let start = state.start.saturating_add(state.rounds.saturating_mul(state.world_size.into()));
        Ok(Batches::new(&self.source, state.epoch, start, 0, &[]))
    }

    /// What resting workers did so far; all of them rest when no epoch is under way.
    pub fn report(&self) -> Report {
        let resting = self.source.resting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut report = Report { idle_bytes: self.source.pool.idle_bytes(), ..Report::default() };
        for worker in &*resting {
            report.times += worker.sampler.times();
            report.scratch_bytes += worker.sampler.scratch_bytes();
        }
        report
    }
}

impl Source {
    fn order(&self, epoch: u64, start: u64) -> Order {
        Order::new(&self.options, self.seeds.len() as u64, self.plan.config().seed, epoch, start)
    }

    /// The state at the beginning of an epoch.
    fn state(&self, epoch: u64, start: u64) -> State {
        let Options { batch_size, shuffle, drop_last, rank, world_size, .. } = self.options;
        State {
            law: law::VERSION,
            fingerprint: self.plan.fingerprint().to_string(),
            config: format!("{:016x}", self.plan.config_word()),
            seeds: format!("{:016x}/{batch_size}/{}{}", self.seeds.word(), u8::from(shuffle), u8::from(drop_last)),
            epoch,
            start,
            rank,
            world_size,
            rounds: 0,
            ahead: Vec::new(),
        }
    }

    /// A rested worker if there is one.
    fn worker(&self) -> Worker {
        let rested = self.resting.lock().unwrap_or_else(PoisonError::into_inner).pop();
        rested.unwrap_or_else(|| self.new_worker())
    }

    fn new_worker(&self) -> Worker {
        let sampler = Sampler::new(Arc::clone(&self.plan), Arc::clone(&self.view), self.pool.clone());
        Worker { sampler, cut: Cut::default() }
    }

    fn give_back(&self, worker: Worker) {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    fn load(&self, worker: &mut Worker, order: &Order, round: u64) -> Result<Batch> {
        let batch = order.batch(round);
        worker.cut.fill(&self.seeds, order.positions(batch.g));
        Ok(worker.sampler.sample(worker.cut.seeds(&self.seeds), batch)?)
    }
}

/// The batches of one epoch. A batch that fails is an error in its place; the others follow.
#[derive(Debug)]
pub struct Batches {
    source: Arc<Source>,
    order: Order,
    state: State,
    /// Rounds to hand out, in order; none with workers out of order.
    next: std::vec::IntoIter<u64>,
    left: usize,
    workers: Option<Workers>,
    inline: Option<Worker>,
}

impl Batches {
    fn new(source: &Arc<Source>, epoch: u64, start: u64, rounds: u64, ahead: &[u64]) -> Self {
        let order = source.order(epoch, start);
        let todo: Vec<u64> = (rounds..order.rounds()).filter(|round| !ahead.contains(round)).collect();
        let Options { threads, prefetch, .. } = source.options;
        let state = State { rounds, ahead: ahead.to_vec(), ..source.state(epoch, start) };
        let start = || Workers::start(source, order, todo.clone(), threads, threads + prefetch);
        // A system that has no thread to give still has this one.
        let workers = (threads > 0).then(start).filter(|workers| workers.any() || todo.is_empty());
        let inline = workers.is_none().then(|| source.worker());
        let (left, next) = (todo.len(), todo.into_iter());
        Self { source: Arc::clone(source), order, state, next, left, workers, inline }
    }

    /// Where this epoch stands: what was handed out is not sampled again.
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// Where the time went of sampling on the caller's own thread.
    pub fn times(&self) -> Times {
        self.inline.as_ref().map(|worker| worker.sampler.times()).unwrap_or_default()
    }

    fn hand_out(&mut self, round: u64) {
        self.left -= 1;
        self.state.ahead.push(round);
        self.state.ahead.sort_unstable();
        while let Some(place) = self.state.ahead.iter().position(|&ahead| ahead == self.state.rounds) {
            self.state.ahead.remove(place);
            self.state.rounds += 1;
        }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let (round, batch) = match (&self.workers, &mut self.inline) {
            (Some(workers), _) => {
                let wanted = if self.source.options.ordered { Some(self.next.next()?) } else { None };
                workers.next(wanted)?
            }
            (None, Some(worker)) => {
                let round = self.next.next()?;
                (round, self.source.load(worker, &self.order, round))
            }
            (None, None) => return None,
        };
        self.hand_out(round);
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Batches {}

impl Drop for Batches {
    fn drop(&mut self) {
        // What a sampler was doing when it panicked is unknown, so it does not go on.
        if let Some(worker) = self.inline.take().filter(|_| !std::thread::panicking()) {
            self.source.give_back(worker);
        }
    }
}

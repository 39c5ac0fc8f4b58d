//! Loaders: where batches come from, in which order they are handed out, how far a rank has come.

mod embedded;
mod order;
mod rounds;
mod standing;
mod state;
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use graphmill_graph::Dataset;
use graphmill_sample::{Batch, Config, Cuts, Cutting, PartitionLists, Plan, SeedCuts, SeedList, SeedOrder, Times, law};

use crate::remote::{Receiving, Remote, RemoteSource, Seeded, Seeding};
use crate::{Error, Result};
use embedded::{Embedded, Worker};
use workers::Workers;

pub(crate) use order::Order;
pub(crate) use rounds::Rounds;
pub use standing::Standing;
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
    /// Whether batches are cut from all seeds, or from those of each partition.
    pub seed_order: SeedOrder,
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
            seed_order: SeedOrder::Global,
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
    pub(crate) fn cutting(&self) -> Cutting {
        Cutting { batch_size: self.batch_size as u64, shuffle: self.shuffle, drop_last: self.drop_last }
    }

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

/// Epochs of batches from a dataset of this process, or from storage servers.
#[derive(Debug)]
pub struct Loader {
    about: Arc<About>,
    origin: Origin,
}

/// What the batches are, wherever they come from.
#[derive(Debug)]
struct About {
    plan: Arc<Plan>,
    options: Options,
    cuts: Cuts,
    /// A word for the seeds.
    seed_word: u64,
    /// In partition order, a word for who owns them.
    partitioning: Option<u64>,
}

/// Where the batches come from.
#[derive(Debug)]
enum Origin {
    Embedded(Arc<Embedded>),
    Remote(Arc<RemoteSource>),
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
        let plan = Arc::new(plan);
        let cuts = match options.seed_order {
            SeedOrder::Global => SeedCuts::global(options.cutting(), seeds.len() as u64),
            SeedOrder::Partition => {
                let node_type = plan.seed_types().0;
                let (book, name) = (dataset.node_book(node_type), &dataset.node_types()[node_type].name);
                let lists = PartitionLists::new(&seeds, book, name)?;
                SeedCuts::by_partition(options.cutting(), Arc::new(lists))?
            }
        };
        let about = About {
            plan: Arc::clone(&plan),
            cuts: cuts.cuts().clone(),
            seed_word: seeds.word(),
            partitioning: cuts.lists().map(PartitionLists::word),
            options,
        };
        let Options { threads, prefetch, .. } = about.options;
        let embedded = Embedded::new(plan, dataset, seeds, cuts, threads.max(1), threads + prefetch + 2);
        Ok(Self { about: Arc::new(about), origin: Origin::Embedded(Arc::new(embedded)) })
    }

    /// A loader of batches that storage servers sample.
    ///
    /// # Errors
    /// When configuration, seeds or options do not fit each other or the dataset, or no server can be reached.
    pub fn remote(remote: &Arc<Remote>, config: Config, seeds: impl Into<Seeding>, options: Options) -> Result<Self> {
        options.check()?;
        let seeding = seeds.into();
        if let Seeding::Listed(list) = &seeding {
            list.check()?;
        }
        let plan = Arc::new(Plan::remote(config, remote.manifest())?);
        let (source, Seeded { cuts, word, partitioning }) =
            RemoteSource::new(remote, plan.config(), seeding, &options)?;
        let about = About { plan, options, cuts, seed_word: word, partitioning };
        if partitioning.is_some() {
            // The first channel is wherever it could be opened.
            let order = about.order(0, 0);
            source.keep_homes(&order.partitions((0..order.rounds()).take(source.window())));
        }
        Ok(Self { about: Arc::new(about), origin: Origin::Remote(source) })
    }

    /// What its batches are made by.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.about.plan
    }

    /// How many batches this rank has in an epoch.
    pub fn len(&self) -> usize {
        self.about.order(0, 0).rounds() as usize
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The batches of an epoch.
    pub fn epoch(&self, epoch: u64) -> Batches {
        self.batches(epoch, 0, 0, &[])
    }

    /// The batches of an epoch from a round on.
    pub fn epoch_from(&self, epoch: u64, round: u64) -> Batches {
        self.batches(epoch, 0, round, &[])
    }

    /// The batches of an epoch that were not handed out when a state was taken.
    ///
    /// # Errors
    /// When the state belongs to other batches than this loader's.
    pub fn resume(&self, state: &State) -> Result<Batches> {
        state.check(&self.about.state(0, 0))?;
        if state.epoch == u64::MAX {
            return Err(Error::State {
                what: "epoch",
                found: state.epoch.to_string(),
                expected: "one that another can follow".to_owned(),
            });
        }
        let options = &self.about.options;
        if (state.rank, state.world_size) == (options.rank, options.world_size) {
            return Ok(self.batches(state.epoch, state.start, state.rounds, &state.ahead));
        }
        if !state.ahead.is_empty() {
            return Err(Error::State {
                what: "list of batches handed out of order",
                found: format!("{:?} of rank {} of {}", state.ahead, state.rank, state.world_size),
                expected: "empty when the number of ranks changes, or the same rank and number of ranks".to_owned(),
            });
        }
        let start = state.start.saturating_add(state.rounds.saturating_mul(state.world_size.into()));
        Ok(self.batches(state.epoch, start, 0, &[]))
    }

    /// The state before the first batch of an epoch.
    pub fn state(&self, epoch: u64) -> State {
        self.about.state(epoch, 0)
    }

    /// What resting workers did so far; all of them rest soon after the last epoch. Servers tell of theirs themselves.
    pub fn report(&self) -> Report {
        match &self.origin {
            Origin::Embedded(embedded) => embedded.report(),
            Origin::Remote(_) => Report::default(),
        }
    }

    fn batches(&self, epoch: u64, start: u64, rounds: u64, ahead: &[u64]) -> Batches {
        let order = self.about.order(epoch, start);
        let todo = Rounds::new(rounds..order.rounds(), ahead);
        let Options { threads, prefetch, .. } = self.about.options;
        let state = State { rounds, ahead: ahead.to_vec(), ..self.about.state(epoch, start) };
        let feed = match &self.origin {
            Origin::Remote(source) => {
                Feed::Remote(Box::new(Receiving::new(source, &self.about.plan, order.clone(), todo.clone())))
            }
            Origin::Embedded(embedded) => {
                let start = || Workers::start(embedded, order.clone(), todo.clone(), threads, threads + prefetch);
                // A system that has no thread to give still has this one.
                match (threads > 0).then(start).filter(|workers| workers.any() || todo.is_empty()) {
                    Some(workers) => Feed::Workers(workers),
                    None => Feed::Inline(Arc::clone(embedded), Some(Box::new(embedded.worker()))),
                }
            }
        };
        let standing = Standing::new(state, todo.len());
        Batches { about: Arc::clone(&self.about), order, standing, next: todo, feed }
    }
}

impl About {
    fn order(&self, epoch: u64, start: u64) -> Order {
        Order::new(&self.options, self.cuts.clone(), epoch, start)
    }

    /// The state at the beginning of an epoch.
    fn state(&self, epoch: u64, start: u64) -> State {
        let Options { batch_size, shuffle, drop_last, rank, world_size, .. } = self.options;
        State {
            law: law::VERSION,
            fingerprint: self.plan.fingerprint().to_string(),
            config: format!("{:016x}", self.plan.config_word()),
            seeds: format!("{:016x}/{batch_size}/{}{}", self.seed_word, u8::from(shuffle), u8::from(drop_last)),
            partitioning: self.partitioning.map(|word| format!("{word:016x}")),
            epoch,
            start,
            rank,
            world_size,
            rounds: 0,
            ahead: Vec::new(),
        }
    }
}

/// The batches of one epoch. A batch that fails is an error in its place; the others follow.
#[derive(Debug)]
pub struct Batches {
    about: Arc<About>,
    order: Order,
    standing: Standing,
    /// Rounds to hand out, in order; none where they come as they are ready.
    next: Rounds,
    feed: Feed,
}

/// Who makes the batches of an epoch.
#[derive(Debug)]
enum Feed {
    /// The thread that asks. The worker is gone only while it is being given back.
    Inline(Arc<Embedded>, Option<Box<Worker>>),
    Workers(Workers),
    Remote(Box<Receiving>),
}

impl Batches {
    /// Where this epoch stands: what was handed out is not sampled again.
    pub fn state(&self) -> State {
        self.standing.state()
    }

    /// The same for others to ask, also while this is waited for.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// The next batch with its round, for those who cannot be sure that it arrives: it counts as handed out only when
    /// [`Standing::hand_out`] is told so.
    pub fn next_round(&mut self) -> Option<(u64, Result<Batch>)> {
        let ordered = self.about.options.ordered || matches!(self.feed, Feed::Inline(..));
        let wanted = if ordered { Some(self.next.next()?) } else { None };
        let (round, batch) = match &mut self.feed {
            Feed::Workers(workers) => workers.next(wanted)?,
            Feed::Remote(receiving) => receiving.next(wanted)?,
            Feed::Inline(embedded, worker) => {
                let round = wanted?;
                (round, embedded.load(worker.as_mut()?, &self.order, round, &AtomicBool::new(false)))
            }
        };
        self.standing.end_round(round);
        Some((round, batch))
    }

    /// Waits until the next batch can be had without waiting, but not longer than this: for those who must look elsewhere
    /// now and then. Says whether it can.
    pub fn ready(&mut self, within: Duration) -> bool {
        let wanted = self.next.peek().filter(|_| self.about.options.ordered);
        match &mut self.feed {
            Feed::Inline(..) => true,
            Feed::Workers(workers) => workers.ready(wanted, within),
            Feed::Remote(receiving) => receiving.ready(wanted, within),
        }
    }

    /// Where the time went of sampling on the caller's own thread.
    pub fn times(&self) -> Times {
        match &self.feed {
            Feed::Inline(_, Some(worker)) => worker.times(),
            _ => Times::default(),
        }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let (round, batch) = self.next_round()?;
        // A batch that failed is not handed out: who resumes from here asks for it again.
        if batch.is_ok() {
            self.standing.hand_out(round);
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.standing.left();
        (left, Some(left))
    }
}

impl ExactSizeIterator for Batches {}

impl Drop for Batches {
    fn drop(&mut self) {
        // What a sampler was doing when it panicked is unknown, so it does not go on.
        if let Feed::Inline(embedded, worker) = &mut self.feed
            && let Some(worker) = worker.take().filter(|_| !std::thread::panicking())
        {
            embedded.give_back(*worker);
        }
    }
}

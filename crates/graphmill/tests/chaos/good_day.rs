//! What a run without faults gives: the same loader in one process.

use std::collections::HashMap;

use graphmill_client::{Loader, Options, SeedList};
use graphmill_graph::{Dataset, Split};
use graphmill_sample::{Batch, Config};
use xxhash_rust::xxh3::xxh3_64;

use crate::support::Workplace;

/// A batch as it can be compared: its number and a hash of its bytes.
pub(crate) type Digest = (u64, u64);

pub(crate) fn digest(batch: &Batch) -> Digest {
    (batch.id().g, xxh3_64(batch.bytes()))
}

/// Two hops with features and labels: what is sampled.
pub(crate) fn config() -> Config {
    Config { features: vec!["x".to_owned()], labels: true, seed: 5, ..Config::neighbors(&[5, 3]) }
}

/// The epochs of the train split of `g4`, as they were when nothing went wrong.
pub(crate) struct GoodDay {
    loader: Loader,
    known: HashMap<u64, Vec<Digest>>,
}

impl GoodDay {
    /// With batches of so many seeds.
    pub(crate) fn new(place: &Workplace, batch_size: usize) -> Self {
        let dataset = Dataset::open(place.path("g4")).unwrap();
        let seeds = SeedList::split(&dataset, None, Split::Train).unwrap();
        let options = Options { batch_size, shuffle: true, threads: 0, ..Options::default() };
        Self { loader: Loader::new(&dataset, config(), seeds, options).unwrap(), known: HashMap::new() }
    }

    /// The batches of an epoch, in order.
    pub(crate) fn epoch(&mut self, epoch: u64) -> &[Digest] {
        let Self { loader, known } = self;
        known.entry(epoch).or_insert_with(|| loader.epoch(epoch).map(|batch| digest(&batch.unwrap())).collect())
    }
}

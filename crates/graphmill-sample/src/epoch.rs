//! Which seeds make which batch of an epoch: the same for everyone who asks, whoever samples it.

use graphmill_graph::random::Permutation;

use crate::law;

/// One pass over a seed list, cut into batches.
#[derive(Debug, Clone, Copy)]
pub struct Epoch {
    number: u64,
    seeds: u64,
    batch_size: u64,
    batches: u64,
    permutation: Option<Permutation>,
}

/// How a seed list is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cutting {
    /// Seeds per batch; at least one.
    pub batch_size: u64,
    /// Whether each epoch has an order of its own.
    pub shuffle: bool,
    /// Whether a last batch with fewer seeds is left out.
    pub drop_last: bool,
}

impl Cutting {
    /// How many batches so many seeds make.
    pub fn batches(&self, seeds: u64) -> u64 {
        let batch_size = self.batch_size.max(1);
        if self.drop_last { seeds / batch_size } else { seeds.div_ceil(batch_size) }
    }
}

impl Epoch {
    /// An epoch over so many seeds, in an order drawn from a random seed.
    pub fn new(cutting: Cutting, seeds: u64, seed: u64, number: u64) -> Self {
        Self {
            number,
            seeds,
            batch_size: cutting.batch_size.max(1),
            batches: cutting.batches(seeds),
            permutation: cutting.shuffle.then(|| Permutation::new(seeds, law::shuffle(seed, number))),
        }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// How many batches it has, over all ranks.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The positions in the seed list that make a batch.
    pub fn positions(&self, g: u64) -> impl Iterator<Item = u64> + use<> {
        let permutation = self.permutation;
        let start = g.saturating_mul(self.batch_size).min(self.seeds);
        let end = start.saturating_add(self.batch_size).min(self.seeds);
        (start..end).map(move |index| permutation.map_or(index, |permutation| permutation.at(index)))
    }
}

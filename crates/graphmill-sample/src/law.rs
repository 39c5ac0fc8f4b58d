//! The law of determinism: the keys under which everything random is drawn (`docs/sampling.md`, section 1).
//!
//! No draw depends on a thread, on the order in which answers arrive, or on floating point.

use graphmill_graph::EdgeTypeName;
use graphmill_graph::random::{Stream, mix};

/// The version of the law. Batches of two versions differ; peers refuse each other's.
pub const VERSION: u64 = 1;

/// What a draw is for; keeps draws of different kinds apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Shuffle = 1,
    Neighbors = 2,
    Negatives = 3,
    Ppr = 4,
}

/// Which batch it is, of which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BatchId {
    /// The pass over the seeds.
    pub epoch: u64,
    /// The batch's number in the epoch, over all ranks.
    pub g: u64,
    /// Whether it stands in for a missing batch, so that all ranks have equally many.
    pub repeated: bool,
}

/// The stream that orders the seeds of an epoch.
pub(crate) fn shuffle(seed: u64, epoch: u64) -> Stream {
    Stream::new(seed, &[VERSION, Purpose::Shuffle as u64, epoch])
}

/// The stream that orders the seeds of one partition in an epoch.
pub(crate) fn shuffle_partition(seed: u64, epoch: u64, partition: u64) -> Stream {
    Stream::new(seed, &[VERSION, Purpose::Shuffle as u64, epoch, partition])
}

/// The stream of all draws of one purpose in one hop along one edge type.
pub(crate) fn stream(purpose: Purpose, seed: u64, batch: BatchId, hop: usize, edge_type: u64) -> Stream {
    Stream::new(seed, &[VERSION, purpose as u64, batch.epoch, batch.g, hop as u64, edge_type])
}

/// An edge type's name as a word: FNV-1a over its parts, a zero byte between them.
pub(crate) fn name_word(name: &EdgeTypeName) -> u64 {
    let bytes = [name.src.as_bytes(), &[0], name.relation.as_bytes(), &[0], name.dst.as_bytes()];
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// The words drawn for one node, one after the other: a `SplitMix64` sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draws(u64);

impl Draws {
    #[inline]
    pub(crate) fn new(stream: Stream, node: u64) -> Self {
        Self(stream.at(node))
    }

    #[inline]
    pub(crate) fn word(self, index: u64) -> u64 {
        mix(self.0.wrapping_add((index + 1).wrapping_mul(Stream::STEP)))
    }

    /// The word at an index as a number below `bound`.
    #[inline]
    pub(crate) fn below(self, index: u64, bound: u64) -> u64 {
        ((u128::from(self.word(index)) * u128::from(bound)) >> 64) as u64
    }
}

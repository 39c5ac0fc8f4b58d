//! Which seeds make which batch of an epoch: the same for everyone who asks, whoever samples it.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use graphmill_graph::random::Permutation;
use serde::{Deserialize, Serialize};

use crate::law::{self, BatchId};
use crate::{Error, PartitionLists, Result};

/// The most seeds that are cut by partition: places of batches are compared as fractions, whose products must fit.
const MOST: u64 = 1 << 62;

/// What the batches of an epoch are cut from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeedOrder {
    /// The whole seed list.
    #[default]
    Global,
    /// The seeds of each partition, so that a batch has seeds of one partition alone.
    Partition,
}

impl fmt::Display for SeedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Partition => "partition",
        })
    }
}

impl FromStr for SeedOrder {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "global" => Ok(Self::Global),
            "partition" => Ok(Self::Partition),
            _ => Err(format!("there is no seed order `{text}`; there are: global, partition")),
        }
    }
}

/// How a list of seeds is cut.
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
    fn batches(&self, seeds: u64) -> u64 {
        let batch_size = self.batch_size.max(1);
        if self.drop_last { seeds / batch_size } else { seeds.div_ceil(batch_size) }
    }
}

/// The batches of every epoch, as far as numbers tell: how many there are, and from which list each is cut.
#[derive(Debug, Clone)]
pub struct Cuts {
    cutting: Cutting,
    batches: u64,
    lists: Lists,
}

#[derive(Debug, Clone)]
enum Lists {
    Whole(u64),
    ByPartition(Arc<[List]>),
}

/// The seeds of one partition.
#[derive(Debug, Clone, Copy)]
struct List {
    /// Where it begins when all lists are laid end to end.
    start: u64,
    seeds: u64,
    batches: u64,
}

impl Cuts {
    /// Cuts of the whole list.
    pub fn global(cutting: Cutting, seeds: u64) -> Self {
        Self { cutting, batches: cutting.batches(seeds), lists: Lists::Whole(seeds) }
    }

    /// Cuts of lists, one per partition, of so many seeds each.
    ///
    /// # Errors
    /// When there are more seeds than anyone can have.
    pub fn by_partition(cutting: Cutting, seeds: &[u64]) -> Result<Self> {
        let (mut start, mut batches) = (0, 0);
        let mut lists = Vec::with_capacity(seeds.len());
        for &seeds in seeds {
            lists.push(List { start, seeds, batches: cutting.batches(seeds) });
            start = seeds
                .checked_add(start)
                .filter(|&sum| sum <= MOST)
                .ok_or_else(|| Error::config(format!("there are more than {MOST} seeds")))?;
            batches += cutting.batches(seeds);
        }
        Ok(Self { cutting, batches, lists: Lists::ByPartition(lists.into()) })
    }

    /// How many batches an epoch has, over all ranks.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The partition that owns a batch's seeds, where there is one.
    pub fn partition(&self, g: u64) -> Option<u32> {
        match &self.lists {
            Lists::Whole(_) => None,
            Lists::ByPartition(lists) => turn(lists, self.batches, g).map(|turn| turn.list as u32),
        }
    }

    /// The indices that make a batch: in the seed list, or in the lists of all partitions laid end to end.
    fn indices(&self, seed: u64, batch: BatchId) -> impl Iterator<Item = u64> + use<> {
        let (start, seeds, batch_number, stream) = match &self.lists {
            Lists::Whole(seeds) => (0, *seeds, batch.g, law::shuffle(seed, batch.epoch)),
            Lists::ByPartition(lists) => match turn(lists, self.batches, batch.g) {
                Some(Turn { list, batch: number }) => {
                    let stream = law::shuffle_partition(seed, batch.epoch, list as u64);
                    (lists[list].start, lists[list].seeds, number, stream)
                }
                None => (0, 0, 0, law::shuffle(seed, batch.epoch)),
            },
        };
        let permutation = self.cutting.shuffle.then(|| Permutation::new(seeds, stream));
        let cut = cut(seeds, self.cutting.batch_size.max(1), batch_number);
        cut.map(move |index| start + permutation.map_or(index, |permutation| permutation.at(index)))
    }
}

/// The places of a batch in the order of its list.
fn cut(seeds: u64, batch_size: u64, number: u64) -> Range<u64> {
    let start = number.saturating_mul(batch_size).min(seeds);
    start..start.saturating_add(batch_size).min(seeds)
}

/// A batch of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Turn {
    list: usize,
    batch: u64,
}

/// Whose turn it is: batch `k` of a list of `T` stands at `(2k + 1) / T`, and batches are numbered in the order of where they
/// stand, then of lists. Nobody materialises that order: up to a place `x / total` there are `x / 2` batches, give or take one for
/// every two lists, so only a few per list are compared.
fn turn(lists: &[List], total: u64, g: u64) -> Option<Turn> {
    if g >= total {
        return None;
    }
    let (twice, spread, total) = (2 * u128::from(g), lists.len() as u128, u128::from(total));
    // How many batches of a list stand before `bound / total`.
    let before = |list: &List, bound: u128| {
        let batches = u128::from(list.batches);
        ((bound * batches).div_ceil(total) / 2).min(batches) as u64
    };
    let mut passed = 0;
    let mut near = Vec::with_capacity(3 * lists.len() + 1);
    for (place, list) in lists.iter().enumerate() {
        let first = before(list, twice.saturating_sub(spread));
        passed += first;
        near.extend((first..before(list, twice + spread + 2)).map(|batch| Turn { list: place, batch }));
    }
    let order = |one: &Turn, other: &Turn| -> Ordering {
        let stands = |turn: &Turn, of: &Turn| (2 * u128::from(turn.batch) + 1) * u128::from(lists[of.list].batches);
        stands(one, other).cmp(&stands(other, one)).then(one.list.cmp(&other.list))
    };
    let place = usize::try_from(g - passed).ok().filter(|&place| place < near.len())?;
    Some(*near.select_nth_unstable_by(place, order).1)
}

/// The cuts of a seed list, with where the seeds of each stand in it.
#[derive(Debug, Clone)]
pub struct SeedCuts {
    cuts: Cuts,
    lists: Option<Arc<PartitionLists>>,
}

impl SeedCuts {
    /// Cuts of a whole list of so many seeds.
    pub fn global(cutting: Cutting, seeds: u64) -> Self {
        Self { cuts: Cuts::global(cutting, seeds), lists: None }
    }

    /// Cuts of the lists of partitions.
    ///
    /// # Errors
    /// When there are more seeds than anyone can have.
    pub fn by_partition(cutting: Cutting, lists: Arc<PartitionLists>) -> Result<Self> {
        Ok(Self { cuts: Cuts::by_partition(cutting, lists.sizes())?, lists: Some(lists) })
    }

    /// The numbers alone.
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }

    /// The lists that are cut, where they are those of partitions.
    pub fn lists(&self) -> Option<&PartitionLists> {
        self.lists.as_deref()
    }

    /// The positions in the seed list that make a batch, in an order drawn from a random seed.
    pub fn positions(&self, seed: u64, batch: BatchId) -> impl Iterator<Item = u64> + '_ {
        let lists = self.lists();
        self.cuts.indices(seed, batch).map(move |index| lists.map_or(index, |lists| lists.position(index)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn cutting(batch_size: u64, shuffle: bool, drop_last: bool) -> Cutting {
        Cutting { batch_size, shuffle, drop_last }
    }

    /// The order of turns, as the law says it.
    fn turns(batches: &[u64]) -> Vec<Turn> {
        let turn = |(list, &count): (usize, &u64)| (0..count).map(move |batch| Turn { list, batch });
        let mut turns: Vec<Turn> = batches.iter().enumerate().flat_map(turn).collect();
        turns.sort_by(|one, other| {
            let (left, right) = (
                u128::from(2 * one.batch + 1) * u128::from(batches[other.list]),
                u128::from(2 * other.batch + 1) * u128::from(batches[one.list]),
            );
            left.cmp(&right).then(one.list.cmp(&other.list))
        });
        turns
    }

    proptest! {
        #[test]
        fn a_turn_is_found_without_the_others(sizes in vec(prop_oneof![Just(0), 0u64..40, 0u64..600], 0..12)) {
            let cuts = Cuts::by_partition(cutting(1, false, false), &sizes).unwrap();
            let Lists::ByPartition(lists) = &cuts.lists else { unreachable!() };
            let expected = turns(&sizes);
            prop_assert_eq!(cuts.batches(), expected.len() as u64);
            let found: Vec<Turn> = (0..cuts.batches()).map(|g| turn(lists, cuts.batches(), g).unwrap()).collect();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(turn(lists, cuts.batches(), cuts.batches()), None);
        }

        #[test]
        fn every_list_is_met_once_and_its_short_batch_is_dropped(
            sizes in vec(0u64..50, 1..6), batch_size in 1u64..9, shuffle: bool, drop_last: bool, epoch in 0u64..3,
        ) {
            let cuts = Cuts::by_partition(cutting(batch_size, shuffle, drop_last), &sizes).unwrap();
            let mut met = vec![0; sizes.iter().sum::<u64>() as usize];
            let starts: Vec<u64> = (0..sizes.len()).map(|list| sizes[..list].iter().sum()).collect();
            for g in 0..cuts.batches() {
                let indices: Vec<u64> = cuts.indices(7, BatchId { epoch, g, repeated: false }).collect();
                let list = cuts.partition(g).unwrap() as usize;
                prop_assert!(!indices.is_empty() && indices.len() as u64 <= batch_size);
                prop_assert!(!drop_last || indices.len() as u64 == batch_size);
                for index in indices {
                    prop_assert!((starts[list]..starts[list] + sizes[list]).contains(&index));
                    met[index as usize] += 1;
                }
            }
            let dropped = |size: u64| if drop_last { size % batch_size } else { 0 };
            let missing = met.iter().filter(|&&times| times == 0).count() as u64;
            prop_assert_eq!(missing, sizes.iter().map(|&size| dropped(size)).sum::<u64>());
            prop_assert!(met.iter().all(|&times| times <= 1));
        }
    }

    #[test]
    fn lists_of_any_length_have_turns() {
        let sizes = [1 << 61, 1, 1 << 60, 0, (1 << 60) - 1];
        let cuts = Cuts::by_partition(cutting(1, false, false), &sizes).unwrap();
        let met: Vec<u32> = (0..5).map(|g| cuts.partition(g).unwrap()).collect();
        assert_eq!(met, [0, 2, 4, 0, 0]);
        assert_eq!(cuts.partition((1 << 61) - 1), Some(1));
        assert!(Cuts::by_partition(cutting(1, false, false), &[1 << 62, 1]).is_err());
        assert!(Cuts::by_partition(cutting(1, false, false), &[u64::MAX, u64::MAX]).is_err());
    }
}

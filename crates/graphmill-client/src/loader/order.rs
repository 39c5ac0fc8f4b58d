//! Which batches of an epoch a rank takes.

use graphmill_sample::{BatchId, Cuts};

use super::Options;

/// The order of one epoch for one rank.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    cuts: Cuts,
    epoch: u64,
    start: u64,
    rank: u64,
    world_size: u64,
    even: bool,
    drop_last: bool,
}

impl Order {
    /// The order of an epoch from a place on.
    pub(super) fn new(options: &Options, cuts: Cuts, epoch: u64, start: u64) -> Self {
        Self {
            epoch,
            start: start.min(cuts.batches()),
            cuts,
            rank: options.rank.into(),
            world_size: options.world_size.into(),
            even: options.is_even(),
            drop_last: options.drop_last,
        }
    }

    /// The epoch's number.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many batches the rank has.
    pub(super) fn rounds(&self) -> u64 {
        let left = self.cuts.batches() - self.start;
        match (self.even, self.drop_last) {
            (true, false) => left.div_ceil(self.world_size),
            (true, true) => left / self.world_size,
            (false, _) => left.saturating_sub(self.rank).div_ceil(self.world_size),
        }
    }

    /// The batch of a round.
    pub(crate) fn batch(&self, round: u64) -> BatchId {
        let place = self.start + round * self.world_size + self.rank;
        let batches = self.cuts.batches();
        BatchId { epoch: self.epoch, g: place % batches.max(1), repeated: place >= batches }
    }

    /// The partitions that own the seeds of some rounds; none in global order.
    pub(crate) fn partitions(&self, rounds: impl Iterator<Item = u64>) -> Vec<u32> {
        rounds.filter_map(|round| self.partition(self.batch(round).g)).collect()
    }

    /// The partition that owns a batch's seeds, where there is one.
    pub(crate) fn partition(&self, g: u64) -> Option<u32> {
        self.cuts.partition(g)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use graphmill_sample::{PartitionLists, SeedCuts};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// Seeds that are cut as a whole, or by the partitions that own them.
    fn owned() -> impl Strategy<Value = (usize, Option<Vec<u32>>)> {
        (0usize..200).prop_flat_map(|seeds| (Just(seeds), option::of(vec(0u32..5, seeds))))
    }

    fn cuts(options: &Options, (seeds, owners): &(usize, Option<Vec<u32>>)) -> SeedCuts {
        match owners {
            None => SeedCuts::global(options.cutting(), *seeds as u64),
            Some(owners) => {
                let lists = PartitionLists::of_owners(owners, 5).unwrap();
                SeedCuts::by_partition(options.cutting(), Arc::new(lists)).unwrap()
            }
        }
    }

    proptest! {
        #[test]
        fn all_ranks_together_meet_every_seed_once(
            seeds in owned(), batch_size in 1usize..20, world_size in 1u32..5, shuffle: bool, even: bool, epoch in 0u64..3,
        ) {
            let mut met = vec![0; seeds.0];
            for rank in 0..world_size {
                let options =
                    Options { batch_size, shuffle, rank, world_size, even: Some(even), ..Options::default() };
                let cuts = cuts(&options, &seeds);
                let order = Order::new(&options, cuts.cuts().clone(), epoch, 0);
                for round in 0..order.rounds() {
                    let batch = order.batch(round);
                    let positions: Vec<u64> = cuts.positions(7, batch).collect();
                    prop_assert!(!positions.is_empty() && positions.len() <= batch_size);
                    if let Some(owners) = &seeds.1 {
                        let partition = order.partition(batch.g);
                        prop_assert!(positions.iter().all(|&position| Some(owners[position as usize]) == partition));
                    }
                    positions.iter().filter(|_| !batch.repeated).for_each(|&position| met[position as usize] += 1);
                }
            }
            prop_assert!(met.iter().all(|&times| times == 1));
        }

        #[test]
        fn even_ranks_have_equally_many_and_only_the_last_round_repeats(
            seeds in owned(), batch_size in 1usize..20, world_size in 1u32..6, drop_last: bool, start in 0u64..10,
        ) {
            let order = |rank| {
                let options =
                    Options { batch_size, drop_last, rank, world_size, even: Some(true), ..Options::default() };
                Order::new(&options, cuts(&options, &seeds).cuts().clone(), 0, start)
            };
            let orders: Vec<Order> = (0..world_size).map(order).collect();
            let rounds = orders[0].rounds();
            for order in &orders {
                prop_assert_eq!(order.rounds(), rounds);
                for round in 0..rounds {
                    let repeated = order.batch(round).repeated;
                    prop_assert!(!repeated || (round + 1 == rounds && !drop_last));
                    prop_assert!(order.batch(round).g < order.cuts.batches());
                }
            }
        }

        #[test]
        fn a_resumed_order_goes_on_where_the_rounds_ended(
            seeds in owned(), batch_size in 1usize..9, before in 1u32..5, after in 1u32..5, rounds in 0u64..9,
        ) {
            let order = |rank, world_size, start| {
                let options = Options { batch_size, rank, world_size, even: Some(false), ..Options::default() };
                Order::new(&options, cuts(&options, &seeds).cuts().clone(), 0, start)
            };
            let mut met = Vec::new();
            let first: Vec<Order> = (0..before).map(|rank| order(rank, before, 0)).collect();
            let had = rounds.min(first[0].rounds());
            for one in &first {
                met.extend((0..had.min(one.rounds())).map(|round| one.batch(round).g));
            }
            for rank in 0..after {
                let one = order(rank, after, had * u64::from(before));
                met.extend((0..one.rounds()).map(|round| one.batch(round).g));
            }
            met.sort_unstable();
            prop_assert_eq!(met, (0..first[0].cuts.batches()).collect::<Vec<_>>());
        }
    }
}

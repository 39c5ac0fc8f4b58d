//! Which batches of an epoch a rank takes.

use graphmill_sample::{BatchId, Epoch};

use super::Options;

/// The order of one epoch for one rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    epoch: Epoch,
    start: u64,
    rank: u64,
    world_size: u64,
    even: bool,
    drop_last: bool,
}

impl Order {
    /// The order of an epoch over so many seeds, from a place on.
    pub(super) fn new(options: &Options, seeds: u64, seed: u64, epoch: u64, start: u64) -> Self {
        let epoch = Epoch::new(options.cutting(), seeds, seed, epoch);
        Self {
            epoch,
            start: start.min(epoch.batches()),
            rank: options.rank.into(),
            world_size: options.world_size.into(),
            even: options.is_even(),
            drop_last: options.drop_last,
        }
    }

    /// The epoch's number.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.number()
    }

    /// How many batches the rank has.
    pub(super) fn rounds(&self) -> u64 {
        let left = self.epoch.batches() - self.start;
        match (self.even, self.drop_last) {
            (true, false) => left.div_ceil(self.world_size),
            (true, true) => left / self.world_size,
            (false, _) => left.saturating_sub(self.rank).div_ceil(self.world_size),
        }
    }

    /// The batch of a round.
    pub(crate) fn batch(&self, round: u64) -> BatchId {
        let place = self.start + round * self.world_size + self.rank;
        let batches = self.epoch.batches();
        BatchId { epoch: self.epoch.number(), g: place % batches.max(1), repeated: place >= batches }
    }

    /// The positions in the seed list that make a batch.
    pub(super) fn positions(&self, g: u64) -> impl Iterator<Item = u64> + use<> {
        self.epoch.positions(g)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn all_ranks_together_meet_every_seed_once(
            seeds in 0u64..200, batch_size in 1usize..20, world_size in 1u32..5, shuffle: bool, epoch in 0u64..3,
        ) {
            let mut met = vec![0; seeds as usize];
            for rank in 0..world_size {
                let options = Options { batch_size, shuffle, rank, world_size, ..Options::default() };
                let order = Order::new(&options, seeds, 7, epoch, 0);
                for round in 0..order.rounds() {
                    let batch = order.batch(round);
                    let positions: Vec<u64> = order.positions(batch.g).collect();
                    prop_assert!(!positions.is_empty() && positions.len() <= batch_size);
                    positions.iter().filter(|_| !batch.repeated).for_each(|&position| met[position as usize] += 1);
                }
            }
            prop_assert!(met.iter().all(|&times| times == 1));
        }

        #[test]
        fn even_ranks_have_equally_many_and_only_the_last_round_repeats(
            seeds in 1u64..200, batch_size in 1usize..20, world_size in 1u32..6, drop_last: bool, start in 0u64..10,
        ) {
            let options =
                |rank| Options { batch_size, drop_last, rank, world_size, even: Some(true), ..Options::default() };
            let orders: Vec<Order> = (0..world_size).map(|rank| Order::new(&options(rank), seeds, 7, 0, start)).collect();
            let rounds = orders[0].rounds();
            for order in &orders {
                prop_assert_eq!(order.rounds(), rounds);
                for round in 0..rounds {
                    let repeated = order.batch(round).repeated;
                    prop_assert!(!repeated || (round + 1 == rounds && !drop_last));
                    prop_assert!(order.batch(round).g < order.epoch.batches());
                }
            }
        }

        #[test]
        fn a_resumed_order_goes_on_where_the_rounds_ended(
            seeds in 1u64..200, batch_size in 1usize..9, before in 1u32..5, after in 1u32..5, rounds in 0u64..9,
        ) {
            let order = |rank, world_size, start| {
                let options = Options { batch_size, rank, world_size, even: Some(false), ..Options::default() };
                Order::new(&options, seeds, 7, 0, start)
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
            prop_assert_eq!(met, (0..seeds.div_ceil(batch_size as u64)).collect::<Vec<_>>());
        }
    }
}

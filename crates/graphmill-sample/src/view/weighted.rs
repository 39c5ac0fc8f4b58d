//! Positions of a list by weight, from the running sum of its integer weights. What is drawn is exact integer arithmetic
//! (`docs/sampling.md`, section 4); floating point only chooses where a search begins.

use super::floyd;
use crate::cache::prefetch;
use crate::law::Draws;

/// Draws that do not depend on each other are made side by side, up to so many.
const SIDE_BY_SIDE: usize = 64;

/// Reusable memory of draws without replacement.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    taken: floyd::Taken,
    /// Positions with their weights.
    removed: Vec<(usize, u64)>,
}

impl Scratch {
    pub(super) fn bytes(&self) -> usize {
        self.taken.bytes() + size_of::<(usize, u64)>() * self.removed.capacity()
    }
}

/// A list that is drawn from: its running sums, and how to guess where a sum is.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    sums: &'a [u64],
    total: u64,
    /// Positions per weight.
    scale: f64,
}

impl<'a> Weighted<'a> {
    #[inline]
    pub(super) fn new(sums: &'a [u64]) -> Self {
        let total = sums.last().copied().unwrap_or(0);
        Self { sums, total, scale: sums.len() as f64 / total as f64 }
    }

    /// Begins to load what `count` draws will look at first.
    #[inline]
    pub(super) fn expect(&self, draws: Draws, count: usize) {
        for index in 0..count.min(SIDE_BY_SIDE) {
            prefetch(self.sums, self.guess(draws.below(index as u64, self.total)));
        }
    }

    /// Hands `count` positions to `emit`, or none if no weight is positive.
    pub(super) fn replaced(&self, draws: Draws, count: usize, mut emit: impl FnMut(usize)) {
        let mut drawn = [0; SIDE_BY_SIDE];
        let mut index = 0;
        while self.total > 0 && index < count {
            let side_by_side = (count - index).min(SIDE_BY_SIDE);
            self.draw(draws, index as u64, &mut drawn[..side_by_side]);
            drawn[..side_by_side].iter().for_each(|&position| emit(position));
            index += side_by_side;
        }
    }

    /// Hands up to `count` distinct positions of positive weight to `emit`: draws that repeat an earlier one are refused; when
    /// too many were, what was taken is removed before each further draw.
    pub(super) fn distinct(&self, draws: Draws, count: usize, scratch: &mut Scratch, mut emit: impl FnMut(usize)) {
        if self.total == 0 {
            return;
        }
        let attempts = 4 * count as u64 + 16;
        scratch.taken.reset(count);
        let mut left = count;
        let mut attempt = 0;
        let mut drawn = [0; SIDE_BY_SIDE];
        while left > 0 && attempt < attempts {
            // As many as are missing never take one too many.
            let side_by_side = left.min(SIDE_BY_SIDE).min((attempts - attempt) as usize);
            self.draw(draws, attempt, &mut drawn[..side_by_side]);
            attempt += side_by_side as u64;
            for &position in &drawn[..side_by_side] {
                if scratch.taken.insert(position as u64) {
                    left -= 1;
                    emit(position);
                }
            }
        }
        if left > 0 {
            scratch.removed.clear();
            let taken = scratch.taken.positions().map(|position| position as usize);
            scratch.removed.extend(taken.map(|position| (position, self.weight(position))));
            self.remaining(draws, attempts, left, &mut scratch.removed, emit);
        }
    }

    /// Draws from what was not removed, while there is any.
    #[cold]
    fn remaining(
        &self,
        draws: Draws,
        attempts: u64,
        count: usize,
        removed: &mut Vec<(usize, u64)>,
        mut emit: impl FnMut(usize),
    ) {
        removed.sort_unstable();
        let mut left = removed.iter().fold(self.total, |left, (_, weight)| left.saturating_sub(*weight));
        for attempt in attempts..attempts + count as u64 {
            if left == 0 {
                return;
            }
            let mut drawn = draws.below(attempt, left);
            let mut place = 0;
            for &(position, weight) in &*removed {
                if drawn < self.sums[position].saturating_sub(weight) {
                    break;
                }
                drawn = drawn.wrapping_add(weight);
                place += 1;
            }
            let position = self.find(drawn);
            // A damaged table of a mapped dataset may not ascend; it must not panic, nor draw for ever.
            let weight = self.weight(position).max(1);
            removed.insert(place, (position, weight));
            left = left.saturating_sub(weight);
            emit(position);
        }
    }

    fn weight(&self, position: usize) -> u64 {
        self.sums[position].saturating_sub(position.checked_sub(1).map_or(0, |before| self.sums[before]))
    }

    /// Positions for some words from an index on. Guessing, looking there and guessing again ends a few places from where it
    /// should; the loads of all second guesses are under way before the first is looked at.
    #[inline]
    fn draw(&self, draws: Draws, first: u64, positions: &mut [usize]) {
        let mut wanted = [0; SIDE_BY_SIDE];
        let wanted = &mut wanted[..positions.len()];
        for (index, wanted) in wanted.iter_mut().enumerate() {
            *wanted = draws.below(first + index as u64, self.total);
        }
        if self.sums.len() <= SHORT {
            for (position, &wanted) in positions.iter_mut().zip(&*wanted) {
                *position = self.find(wanted);
            }
            return;
        }
        for (position, &wanted) in positions.iter_mut().zip(&*wanted) {
            *position = self.nearer(self.guess(wanted), wanted);
            prefetch(self.sums, *position);
        }
        for (position, &wanted) in positions.iter_mut().zip(&*wanted) {
            *position = self.near(self.nearer(*position, wanted), wanted);
        }
    }

    /// Where a sum would be if all weights were alike.
    #[inline]
    fn guess(&self, wanted: u64) -> usize {
        ((wanted as f64 * self.scale) as usize).min(self.sums.len().saturating_sub(1))
    }

    /// Where a sum would be, seen from a position, if the weights from there on were alike.
    #[inline]
    fn nearer(&self, position: usize, wanted: u64) -> usize {
        let missing = wanted.wrapping_sub(self.sums[position]).cast_signed();
        let steps = (missing as f64 * self.scale) as isize;
        position.saturating_add_signed(steps).min(self.sums.len() - 1)
    }

    /// The first position whose sum exceeds `wanted`, which is mostly a few places from `position`.
    #[inline]
    fn near(&self, mut position: usize, wanted: u64) -> usize {
        for _ in 0..NEAR {
            if self.sums[position] <= wanted {
                position = (position + 1).min(self.sums.len() - 1);
            } else if position > 0 && self.sums[position - 1] > wanted {
                position -= 1;
            } else {
                return position;
            }
        }
        self.find(wanted)
    }

    /// The first position whose sum exceeds `wanted`, which is below the last sum, whatever the weights.
    #[inline]
    fn find(&self, wanted: u64) -> usize {
        // The last place is for damaged tables, which may not ascend.
        self.sums.partition_point(|&sum| sum <= wanted).min(self.sums.len() - 1)
    }
}

/// Lists that are not longer lie in a few cache lines, and are searched by halves.
const SHORT: usize = 64;
/// Steps from the last guess before a search by halves.
const NEAR: usize = 12;

#[cfg(test)]
mod tests {
    use graphmill_graph::random::Stream;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_search_finds_what_a_scan_finds(weights in proptest::collection::vec(prop_oneof![Just(0u64), 1u64..9, 1u64 << 40..1 << 41], 1..500), word: u64) {
            let sums: Vec<u64> = weights.iter().scan(0, |sum, weight| { *sum += weight; Some(*sum) }).collect();
            let total = sums[sums.len() - 1];
            prop_assume!(total > 0);
            let draws = Draws::new(Stream::new(word, &[]), 0);
            let mut found = [0; 9];
            Weighted::new(&sums).draw(draws, 3, &mut found);
            for (index, found) in (3..).zip(found) {
                let wanted = draws.below(index, total);
                prop_assert_eq!(Some(found), sums.iter().position(|&sum| sum > wanted));
            }
        }
    }
}

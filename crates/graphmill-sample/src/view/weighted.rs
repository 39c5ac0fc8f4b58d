//! Positions of a list by weight, in exact integer arithmetic (`docs/sampling.md`, section 4): from its alias table, or from the
//! running sums of its integer weights when something was removed.

use graphmill_graph::alias::Entry;

use super::floyd;
use crate::Result;
use crate::cache::{LINE, prefetch};
use crate::law::Draws;
use crate::room::grow;

/// Up to so many positions, bits that they share tell most of what was taken.
const FEW: usize = 64;
/// The most attempts whose entries begin to load ahead.
const EXPECTED: usize = 64;
/// Entries in a cache line.
const IN_LINE: usize = LINE / size_of::<u64>();

/// Reusable memory of draws without replacement.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    taken: floyd::Taken,
    /// Positions with their weights.
    removed: Vec<(usize, u64)>,
}

impl Scratch {
    /// Sees that there is memory for so many positions.
    pub(super) fn make_room(&mut self, count: usize) -> Result<()> {
        self.removed.clear();
        grow(&mut self.removed, "edges of an answer", count)?;
        self.taken.make_room(count)
    }

    pub(super) fn bytes(&self) -> usize {
        self.taken.bytes() + size_of::<(usize, u64)>() * self.removed.capacity()
    }
}

/// The tables of a list that is not empty.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    /// Where the list begins.
    start: usize,
    alias: &'a [u64],
    sums: &'a [u64],
}

impl<'a> Weighted<'a> {
    /// The list from `start` to `end`, if the tables have it.
    #[inline]
    pub(super) fn new(alias: &'a [u64], sums: &'a [u64], start: usize, end: usize) -> Option<Self> {
        let (alias, sums) = (alias.get(start..end)?, sums.get(start..end)?);
        (start < end).then_some(Self { start, alias, sums })
    }

    /// Begins to load what the first `count` attempts will read.
    #[inline]
    pub(super) fn expect(&self, draws: Draws, count: usize) {
        let count = count.min(EXPECTED);
        if self.alias.len() / IN_LINE < count {
            // All of it is less than what is drawn from it.
            (0..self.alias.len()).step_by(IN_LINE).for_each(|place| prefetch(self.alias, place));
            prefetch(self.alias, self.alias.len() - 1);
        } else {
            (0..count).for_each(|index| prefetch(self.alias, self.cell(draws.word(index as u64)).0));
        }
    }

    /// Appends `count` positions, or none if no weight is positive.
    #[inline]
    pub(super) fn replaced(&self, draws: Draws, count: usize, positions: &mut Vec<usize>) {
        if !self.is_void(draws) {
            positions.extend((0..count as u64).map(|index| self.start + self.attempt(draws.word(index))));
        }
    }

    /// Appends up to `count` distinct positions of positive weight, `count` being less than the list's length: attempts that
    /// repeat an earlier one are refused; when too many were, what was taken is removed before each further draw.
    #[inline]
    pub(super) fn distinct(&self, draws: Draws, count: usize, scratch: &mut Scratch, positions: &mut Vec<usize>) {
        if self.is_void(draws) {
            return;
        }
        let attempts = 4 * count as u64 + 16;
        let before = positions.len();
        positions.resize(before + count, 0);
        let taken = &mut positions[before..];
        let found = match self.alias.len() {
            _ if count > FEW => self.many(draws, attempts, taken, &mut scratch.taken),
            ..=64 => self.few::<1>(draws, attempts, taken),
            _ => self.few::<16>(draws, attempts, taken),
        };
        positions.truncate(before + found);
        if found < count {
            self.remaining(draws, attempts, count - found, &mut scratch.removed, positions, before);
        }
    }

    /// Attempts until all is taken; says how many were. Bits note what was taken; in a list with more positions than bits, one
    /// that is set may be another position's.
    #[inline]
    fn few<const WORDS: usize>(&self, draws: Draws, attempts: u64, taken: &mut [usize]) -> usize {
        let is_shared = self.alias.len() > 64 * WORDS;
        let mut bits = [0u64; WORDS];
        let mut found = 0;
        for index in 0..attempts {
            let position = self.attempt(draws.word(index));
            let word = &mut bits[position / 64 % WORDS];
            let mut repeated = *word >> (position % 64) & 1 == 1;
            *word |= 1 << (position % 64);
            if is_shared && repeated {
                repeated = taken[..found].contains(&(self.start + position));
            }
            taken[found] = self.start + position;
            found += usize::from(!repeated);
            if found == taken.len() {
                break;
            }
        }
        found
    }

    /// The same for any number of positions.
    fn many(&self, draws: Draws, attempts: u64, taken: &mut [usize], noted: &mut floyd::Taken) -> usize {
        noted.reset(taken.len());
        let mut found = 0;
        for index in 0..attempts {
            let position = self.attempt(draws.word(index));
            if noted.insert(position as u64) {
                taken[found] = self.start + position;
                found += 1;
                if found == taken.len() {
                    break;
                }
            }
        }
        found
    }

    /// Draws `count` more positions from what was not taken since `before`, while there is any.
    #[cold]
    fn remaining(
        &self,
        draws: Draws,
        attempts: u64,
        count: usize,
        removed: &mut Vec<(usize, u64)>,
        positions: &mut Vec<usize>,
        before: usize,
    ) {
        let taken = positions[before..].iter().map(|position| position - self.start);
        removed.clear();
        removed.extend(taken.map(|position| (position, self.weight(position))));
        removed.sort_unstable();
        let total = self.sums[self.sums.len() - 1];
        let mut left = removed.iter().fold(total, |left, (_, weight)| left.saturating_sub(*weight));
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
            // The last place is for damaged tables, which may not ascend.
            let position = self.sums.partition_point(|&sum| sum <= drawn).min(self.sums.len() - 1);
            // Nor must they be drawn from for ever.
            let weight = self.weight(position).max(1);
            removed.insert(place, (position, weight));
            left = left.saturating_sub(weight);
            positions.push(self.start + position);
        }
    }

    fn weight(&self, position: usize) -> u64 {
        self.sums[position].saturating_sub(position.checked_sub(1).map_or(0, |before| self.sums[before]))
    }

    /// Whether no weight is positive: then, and only then, entries are their places.
    #[inline]
    fn is_void(&self, draws: Draws) -> bool {
        let (place, _) = self.cell(draws.word(0));
        self.alias[place] == place as u64
    }

    /// The position that a word gives.
    #[inline]
    fn attempt(&self, word: u64) -> usize {
        let (place, fraction) = self.cell(word);
        let Entry { threshold, other } = Entry::from_word(self.alias[place]);
        // A damaged table of a mapped dataset may lead anywhere.
        let other = (other as usize).min(self.alias.len() - 1);
        std::hint::select_unpredictable(fraction < threshold, place, other)
    }

    /// The cell of a word, and where in it the word falls.
    #[inline]
    fn cell(&self, word: u64) -> (usize, u32) {
        let product = u128::from(word) * self.alias.len() as u128;
        ((product >> 64) as usize, (product >> 32) as u32)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_graph::alias;
    use graphmill_graph::random::Stream;
    use graphmill_graph::weights::running_sums;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_distinct_and_all_ways_agree(
            weights in prop_oneof![
                proptest::collection::vec(0f32..1.0, 2..65),
                proptest::collection::vec(prop_oneof![Just(0f32), 1f32..9.0, Just(1e12f32)], 2..3000),
            ],
            share in 0.0f64..1.0,
            seed: u64,
        ) {
            let (alias, sums): (Vec<u64>, Vec<u64>) = (alias::table(&weights).collect(), running_sums(&weights).collect());
            let list = Weighted { start: 0, alias: &alias, sums: &sums };
            let draws = Draws::new(Stream::new(seed, &[]), 7);
            let count = ((weights.len() as f64 * share) as usize).clamp(1, weights.len() - 1);
            let attempts = 4 * count as u64 + 16;
            let way = |way: &dyn Fn(&mut [usize]) -> usize| {
                let mut taken = vec![0; count];
                let found = way(&mut taken);
                taken.truncate(found);
                taken
            };
            let expected = way(&|taken| list.many(draws, attempts, taken, &mut floyd::Taken::default()));
            prop_assert_eq!(&way(&|taken| list.few::<16>(draws, attempts, taken)), &expected);
            prop_assert_eq!(&way(&|taken| list.few::<1>(draws, attempts, taken)), &expected);

            let mut all = vec![];
            list.distinct(draws, count, &mut Scratch::default(), &mut all);
            let positive = weights.iter().filter(|&&weight| weight > 0.0).count();
            prop_assert_eq!(all.len(), count.min(positive));
            prop_assert!(all.iter().all(|&position| weights[position] > 0.0));
            if positive > 0 {
                prop_assert_eq!(&all[..expected.len()], &expected[..]);
            }
            all.sort_unstable();
            prop_assert!(all.is_sorted_by(|a, b| a < b));
        }
    }
}

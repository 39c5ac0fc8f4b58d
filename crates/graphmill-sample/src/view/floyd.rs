//! Distinct positions of a list, by Floyd's method: one word per position, whatever the list's length.

use std::hint::select_unpredictable;

use crate::Result;
use crate::law::Draws;
use crate::room::grow;

/// Up to so many positions, comparing all of them now and then costs less than a table.
const FEW: usize = 32;
/// The longest list with a bit for each position.
pub(super) const MEDIUM: usize = 256;
/// The longest list whose positions are the bits of a word.
pub(super) const SHORT: usize = 64;

/// Positions taken so far, when there are many.
#[derive(Debug, Default)]
pub(super) struct Taken {
    slots: Vec<u64>,
}

impl Taken {
    pub(super) fn bytes(&self) -> usize {
        8 * self.slots.capacity()
    }

    /// Sees that there is memory for so many positions.
    pub(super) fn make_room(&mut self, count: usize) -> Result<()> {
        self.slots.clear();
        grow(&mut self.slots, "edges of an answer", (2 * count).next_power_of_two())
    }

    /// Makes room for so many positions and forgets all.
    pub(super) fn reset(&mut self, count: usize) {
        self.slots.clear();
        self.slots.resize((2 * count).next_power_of_two(), 0);
    }

    /// Adds a position; false if it is there already.
    #[inline]
    pub(super) fn insert(&mut self, position: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut slot = position.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 7 & mask;
        loop {
            match self.slots[slot] {
                0 => {
                    self.slots[slot] = position + 1;
                    return true;
                }
                found if found == position + 1 => return false,
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Appends `count` distinct positions of a list of `length` that begins at `start`; `count < length`.
#[inline]
pub(super) fn floyd(draws: Draws, list: (usize, usize), count: usize, taken: &mut Taken, positions: &mut Vec<usize>) {
    if count > FEW {
        return many(draws, list, count, taken, positions);
    }
    let before = positions.len();
    positions.resize(before + count, 0);
    few(draws, list, &mut positions[before..]);
}

/// Fills a few places with distinct positions of a list that has more of them and begins at `start`.
#[inline]
fn few(draws: Draws, (start, length): (usize, usize), positions: &mut [usize]) {
    if length <= SHORT {
        short(draws, start, length, positions);
    } else if length <= MEDIUM {
        medium(draws, start, length, positions);
    } else {
        long(draws, start, length, positions);
    }
}

/// What was taken of a short list is one word.
#[inline]
pub(super) fn short(draws: Draws, start: usize, length: usize, positions: &mut [usize]) {
    let mut taken = 0u64;
    fill(draws, length, positions, |last, drawn| {
        let position = select_unpredictable(taken >> drawn & 1 == 1, last, drawn);
        taken |= 1 << position;
        start + position
    });
}

/// What was taken of a longer list is a few words.
#[inline]
pub(super) fn medium(draws: Draws, start: usize, length: usize, positions: &mut [usize]) {
    let mut taken = [0u64; MEDIUM / 64];
    fill(draws, length, positions, |last, drawn| {
        let was_taken = taken[drawn / 64 % taken.len()] >> (drawn % 64) & 1 == 1;
        let position = select_unpredictable(was_taken, last, drawn);
        taken[position / 64 % taken.len()] |= 1 << (position % 64);
        start + position
    });
}

/// In a long list mostly nothing is drawn twice. What is drawn does not depend on what was taken, so all of it is drawn, and
/// noted in bits that several positions share; only if one was set already are positions compared.
#[inline]
pub(super) fn long(draws: Draws, start: usize, length: usize, positions: &mut [usize]) {
    let mut bits = [0u64; 16];
    let mut shared = 0;
    fill(draws, length, positions, |_, drawn| {
        let word = &mut bits[drawn / 64 % 16];
        shared |= *word >> (drawn % 64);
        *word |= 1 << (drawn % 64);
        start + drawn
    });
    if shared & 1 == 1 {
        let first = start + length - positions.len();
        for index in 0..positions.len() {
            if positions[..index].contains(&positions[index]) {
                positions[index] = first + index;
            }
        }
    }
}

/// Fills places with what is made of the last position that may be taken next, and of one drawn up to it.
#[inline]
fn fill(draws: Draws, length: usize, positions: &mut [usize], mut taken: impl FnMut(usize, usize) -> usize) {
    let first = length - positions.len();
    for (index, place) in positions.iter_mut().enumerate() {
        let last = first + index;
        *place = taken(last, draws.below(index as u64, last as u64 + 1) as usize);
    }
}

fn many(draws: Draws, (start, length): (usize, usize), count: usize, taken: &mut Taken, positions: &mut Vec<usize>) {
    taken.reset(count);
    for index in 0..count {
        let last = (length - count + index) as u64;
        let drawn = draws.below(index as u64, last + 1);
        let position = if taken.insert(drawn) {
            drawn
        } else {
            taken.insert(last);
            last
        };
        positions.push(start + position as usize);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_graph::random::Stream;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_distinct_and_all_ways_agree(length in prop_oneof![2usize..65, 65usize..3000], share in 0.0f64..1.0, seed: u64) {
            let count = ((length as f64 * share) as usize).clamp(1, length - 1);
            let draws = Draws::new(Stream::new(seed, &[]), 7);
            let (mut by_table, mut by_eye) = (Vec::new(), Vec::new());
            many(draws, (0, length), count, &mut Taken::default(), &mut by_table);
            let mut sorted = by_table.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), count);
            prop_assert!(sorted.iter().all(|&position| position < length));
            let mut agrees = |way: fn(Draws, usize, usize, &mut [usize])| {
                by_eye.resize(count, 0);
                way(draws, 0, length, &mut by_eye);
                by_eye == by_table
            };
            prop_assert!(length > SHORT || agrees(short), "short");
            prop_assert!(length > MEDIUM || agrees(medium), "medium");
            prop_assert!(agrees(long), "long");
        }
    }
}

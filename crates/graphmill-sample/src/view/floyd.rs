//! Distinct positions of a list, by Floyd's method: one word per position, whatever the list's length.

use crate::law::Draws;

/// Up to so many positions, comparing all of them now and then costs less than a table.
const FEW: usize = 32;
/// The longest list with a bit for each position.
const MEDIUM: usize = 256;

/// Positions taken so far, when there are many.
#[derive(Debug, Default)]
pub(super) struct Taken {
    slots: Vec<u64>,
}

impl Taken {
    pub(super) fn bytes(&self) -> usize {
        8 * self.slots.capacity()
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
pub(super) fn floyd(
    draws: Draws,
    (start, length): (usize, usize),
    count: usize,
    taken: &mut Taken,
    positions: &mut Vec<usize>,
) {
    if length <= 64 {
        short(draws, start, length, count, positions);
    } else if length <= MEDIUM {
        medium(draws, start, length, count, positions);
    } else if count <= FEW {
        long(draws, start, length, count, positions);
    } else {
        many(draws, start, length, count, taken, positions);
    }
}

/// What was taken of a short list is one word.
#[inline]
fn short(draws: Draws, start: usize, length: usize, count: usize, positions: &mut Vec<usize>) {
    let mut taken = 0u64;
    positions.extend((length - count..length).enumerate().map(|(index, last)| {
        let drawn = draws.below(index as u64, last as u64 + 1) as usize;
        let position = select(taken >> drawn & 1, last, drawn);
        taken |= 1 << position;
        start + position
    }));
}

/// One number or the other by a bit; a coin toss that a branch would mispredict.
#[inline]
fn select(bit: u64, set: usize, clear: usize) -> usize {
    clear ^ ((set ^ clear) & 0usize.wrapping_sub(bit as usize))
}

/// What was taken of a longer list is a few words.
#[inline]
fn medium(draws: Draws, start: usize, length: usize, count: usize, positions: &mut Vec<usize>) {
    let mut taken = [0u64; MEDIUM / 64];
    positions.extend((length - count..length).enumerate().map(|(index, last)| {
        let drawn = draws.below(index as u64, last as u64 + 1) as usize;
        let position = select(taken[drawn / 64 % taken.len()] >> (drawn % 64) & 1, last, drawn);
        taken[position / 64 % taken.len()] |= 1 << (position % 64);
        start + position
    }));
}

/// In a long list mostly nothing is drawn twice. What is drawn does not depend on what was taken, so all of it is drawn, and
/// noted in bits that several positions share; only if one was set already are positions compared.
#[inline]
fn long(draws: Draws, start: usize, length: usize, count: usize, positions: &mut Vec<usize>) {
    let mut bits = [0u64; 16];
    let mut shared = 0;
    let before = positions.len();
    positions.extend((length - count..length).enumerate().map(|(index, last)| {
        let drawn = draws.below(index as u64, last as u64 + 1) as usize;
        let word = &mut bits[drawn / 64 % 16];
        shared |= *word >> (drawn % 64);
        *word |= 1 << (drawn % 64);
        start + drawn
    }));
    if shared & 1 == 1 {
        let taken = &mut positions[before..];
        for index in 0..count {
            if taken[..index].contains(&taken[index]) {
                taken[index] = start + length - count + index;
            }
        }
    }
}

fn many(draws: Draws, start: usize, length: usize, count: usize, taken: &mut Taken, positions: &mut Vec<usize>) {
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
            many(draws, 0, length, count, &mut Taken::default(), &mut by_table);
            let mut sorted = by_table.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), count);
            prop_assert!(sorted.iter().all(|&position| position < length));
            let mut agrees = |way: fn(Draws, usize, usize, usize, &mut Vec<usize>)| {
                by_eye.clear();
                way(draws, 0, length, count, &mut by_eye);
                by_eye == by_table
            };
            prop_assert!(length > 64 || agrees(short), "short");
            prop_assert!(length > MEDIUM || agrees(medium), "medium");
            prop_assert!(agrees(long), "long");
        }
    }
}

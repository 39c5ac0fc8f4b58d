//! Distinct positions of a list, by Floyd's method: one word per position, whatever the list's length.

use crate::law::Draws;

/// Up to so many positions, a few bits and at worst a look at all of them cost less than a table.
const FEW: usize = 64;

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
    } else if count <= FEW && u32::try_from(length).is_ok() {
        few(draws, start, length, count, positions);
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

/// A bit for each position modulo their number. A bit that is set means "taken" in a list that is not longer, and "look" in a
/// longer one, where it happens rarely.
const BITS: usize = 1024;

#[inline]
fn few(draws: Draws, start: usize, length: usize, count: usize, positions: &mut Vec<usize>) {
    let mut bits = [0u64; BITS / 64];
    let mut all = [0u32; FEW];
    positions.extend((length - count..length).enumerate().map(|(index, last)| {
        let drawn = draws.below(index as u64, last as u64 + 1) as usize;
        let mut again = bits[drawn % BITS / 64] >> (drawn % 64) & 1;
        if length > BITS && again == 1 {
            again = all[..index].contains(&(drawn as u32)).into();
        }
        let position = select(again, last, drawn);
        bits[position % BITS / 64] |= 1 << (position % 64);
        all[index] = position as u32;
        start + position
    }));
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
            if count <= FEW {
                few(draws, 0, length, count, &mut by_eye);
                prop_assert_eq!(&by_eye, &by_table);
            }
            if length <= 64 {
                by_eye.clear();
                short(draws, 0, length, count, &mut by_eye);
                prop_assert_eq!(by_eye, by_table);
            }
        }
    }
}

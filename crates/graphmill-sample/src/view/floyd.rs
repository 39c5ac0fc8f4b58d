//! Distinct positions of a list, by Floyd's method: one word per position, whatever the list's length.

use crate::law::Draws;

/// Up to so many positions, looking through all of them costs less than a table.
const FEW: usize = 48;

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
    fn reset(&mut self, count: usize) {
        self.slots.clear();
        self.slots.resize((2 * count).next_power_of_two(), 0);
    }

    /// Adds a position; false if it is there already.
    fn insert(&mut self, position: u64) -> bool {
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

/// Hands `count` distinct positions below `length` to `emit`; `count < length`.
#[inline]
pub(super) fn floyd(draws: Draws, length: usize, count: usize, taken: &mut Taken, emit: impl FnMut(usize)) {
    match u32::try_from(length) {
        Ok(length) if count <= 16 => few::<2>(draws, length, count, emit),
        Ok(length) if count <= FEW => few::<6>(draws, length, count, emit),
        _ => many(draws, length, count, taken, emit),
    }
}

/// Positions are compared eight at a time, which the compiler turns into vector instructions.
#[inline]
fn few<const EIGHTS: usize>(draws: Draws, length: u32, count: usize, mut emit: impl FnMut(usize)) {
    // No position is the largest number: it marks a place that is still free.
    let mut taken = [[u32::MAX; 8]; EIGHTS];
    for index in 0..count {
        let last = length - count as u32 + index as u32;
        let drawn = draws.below(index as u64, u64::from(last) + 1) as u32;
        let holds = |eight: &[u32; 8]| eight.iter().fold(false, |found, &position| found | (position == drawn));
        let again = taken[..=index / 8].iter().fold(false, |found, eight| found | holds(eight));
        let position = if again { last } else { drawn };
        taken[index / 8][index % 8] = position;
        emit(position as usize);
    }
}

fn many(draws: Draws, length: usize, count: usize, taken: &mut Taken, mut emit: impl FnMut(usize)) {
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
        emit(position as usize);
    }
}

#[cfg(test)]
mod tests {
    use graphmill_graph::random::Stream;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_are_distinct_and_both_ways_agree(length in 2usize..2000, share in 0.0f64..1.0, seed: u64) {
            let count = ((length as f64 * share) as usize).clamp(1, length - 1);
            let draws = Draws::new(Stream::new(seed, &[]), 7);
            let (mut by_table, mut by_eye) = (Vec::new(), Vec::new());
            many(draws, length, count, &mut Taken::default(), |position| by_table.push(position));
            let mut sorted = by_table.clone();
            sorted.sort_unstable();
            sorted.dedup();
            prop_assert_eq!(sorted.len(), count);
            prop_assert!(sorted.iter().all(|&position| position < length));
            if count <= FEW {
                few::<6>(draws, length as u32, count, |position| by_eye.push(position));
                prop_assert_eq!(by_eye, by_table);
            }
        }
    }
}

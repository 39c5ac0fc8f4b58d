//! Positions of a list by weight, from the running sum of its integer weights. Everything is exact integer arithmetic
//! (`docs/sampling.md`, section 4).

use crate::law::Draws;
use crate::prefetch::prefetch;

/// What was taken of a list: positions in ascending order with their weights.
#[derive(Debug, Default)]
pub(super) struct Taken(Vec<(usize, u64)>);

impl Taken {
    pub(super) fn bytes(&self) -> usize {
        size_of::<(usize, u64)>() * self.0.capacity()
    }
}

/// Hands up to `count` distinct positions of positive weight to `emit`.
pub(super) fn distinct(sums: &[u64], draws: Draws, count: usize, taken: &mut Taken, mut emit: impl FnMut(usize)) {
    let mut left = sums.last().copied().unwrap_or(0);
    taken.0.clear();
    for index in 0..count {
        if left == 0 {
            return;
        }
        let mut drawn = draws.below(index as u64, left);
        let mut place = 0;
        for &(position, weight) in &taken.0 {
            if drawn < before(sums, position) {
                break;
            }
            drawn = drawn.wrapping_add(weight);
            place += 1;
        }
        let position = find(sums, drawn);
        // A damaged table of a mapped dataset may not ascend; it must not panic.
        let weight = sums[position].saturating_sub(before(sums, position));
        taken.0.insert(place, (position, weight));
        left = left.saturating_sub(weight.max(1));
        emit(position);
    }
}

/// Hands `count` positions to `emit`, or none if no weight is positive.
pub(super) fn replaced(sums: &[u64], draws: Draws, count: usize, mut emit: impl FnMut(usize)) {
    let total = sums.last().copied().unwrap_or(0);
    if total > 0 {
        for index in 0..count {
            emit(find(sums, draws.below(index as u64, total)));
        }
    }
}

/// Begins to load what the draws will look at: exactly so where nothing is taken away and weights are alike.
pub(super) fn expect(sums: &[u64], draws: Draws, count: usize) {
    let Some(&total) = sums.last() else { return };
    for index in 0..count.min(32) {
        prefetch(sums, guess(sums.len(), draws.below(index as u64, total.max(1)), total));
    }
}

/// The sum before a position.
fn before(sums: &[u64], position: usize) -> u64 {
    position.checked_sub(1).map_or(0, |last| sums[last])
}

/// Where a sum would be if all weights were alike.
fn guess(length: usize, wanted: u64, total: u64) -> usize {
    // Floating point only chooses where the search begins, never what it finds.
    ((wanted as f64 / total as f64 * length as f64) as usize).min(length - 1)
}

/// The first position whose sum exceeds `wanted`, which is below the last sum. Searches outward from a guess, so that lists
/// with weights of one size cost a cache line or two, and any list at most twice the logarithm of its length.
pub(super) fn find(sums: &[u64], wanted: u64) -> usize {
    let length = sums.len();
    let start = guess(length, wanted, sums[length - 1]);
    let (mut low, mut high);
    let mut stride = 8;
    if sums[start] > wanted {
        high = start;
        low = start;
        loop {
            low = low.saturating_sub(stride);
            if low == 0 || sums[low] <= wanted {
                break;
            }
            high = low;
            stride *= 2;
        }
    } else {
        low = start + 1;
        high = low;
        while high < length && sums[high] <= wanted {
            low = high + 1;
            high = (high + stride).min(length);
            stride *= 2;
        }
        high = high.min(length - 1);
    }
    (low + sums[low..=high].partition_point(|&sum| sum <= wanted)).min(length - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_search_finds_what_a_scan_finds(weights in proptest::collection::vec(prop_oneof![Just(0u64), 1u64..9, 1u64 << 40..1 << 41], 1..200), word: u64) {
            let sums: Vec<u64> = weights.iter().scan(0, |sum, weight| { *sum += weight; Some(*sum) }).collect();
            let total = sums[sums.len() - 1];
            prop_assume!(total > 0);
            let wanted = word % total;
            let scanned = sums.iter().position(|&sum| sum > wanted);
            prop_assert_eq!(Some(find(&sums, wanted)), scanned);
        }
    }
}

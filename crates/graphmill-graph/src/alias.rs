//! Alias tables: a position by weight in one step, whatever the list's length.
//!
//! The sum of a list's integer weights is shared out to equal cells, one for each place, so that a cell has at most two owners:
//! its place and one other. A draw picks a cell, then one of the two. `docs/format.md` has the rule; it is exact, and needs no
//! memory beside the weights, for a list need not fit in it.

use crate::weights::Scale;

/// The longest list that has a table: places are stored in 32 bits.
pub const MAX_LIST: usize = u32::MAX as usize;

/// The threshold of a cell that has one owner.
const WHOLE: u32 = u32::MAX;

/// An entry of a table: of `2^32` draws from a cell `threshold` are its own place, all others the place `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// How much of the cell belongs to its place; 0 if that has no weight.
    pub threshold: u32,
    /// Who owns the rest, counted from the list's start.
    pub other: u32,
}

impl Entry {
    /// The entry as it is stored.
    #[inline]
    pub const fn to_word(self) -> u64 {
        (self.threshold as u64) << 32 | self.other as u64
    }

    /// A stored entry.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self { threshold: (word >> 32) as u32, other: word as u32 }
    }
}

/// The table of a list that is not longer than [`MAX_LIST`].
pub fn table(weights: &[f32]) -> impl Iterator<Item = u64> {
    let cells = Cells::new(weights);
    // Light places are met in ascending order, and so are heavy ones, but not all of them together. Each kind has a sweep
    // of its own, which skips the other.
    let (mut light, mut heavy) = (Sweep::new(cells), Sweep::new(cells));
    (0..weights.len()).map(move |place| {
        let size = cells.size(place);
        let sweep = if size < cells.sum { &mut light } else { &mut heavy };
        let shared = sweep.find(|shared| shared.place == place);
        let (threshold, other) = shared.map_or((WHOLE, place), |shared| (cells.threshold(shared.kept), shared.other));
        Entry { threshold: if size == 0 { 0 } else { threshold }, other: other as u32 }.to_word()
    })
}

/// The integer weights of a list, in `n`-ths for `n` places: so every cell holds the sum. Sizes and sums are below `2^62`; only
/// numbers that are no weights make them wrap.
#[derive(Clone, Copy)]
struct Cells<'a> {
    weights: &'a [f32],
    scale: Scale,
    sum: u64,
}

impl<'a> Cells<'a> {
    fn new(weights: &'a [f32]) -> Self {
        let scale = Scale::of(weights);
        let sum = weights.iter().fold(0u64, |sum, &weight| sum.wrapping_add(scale.integer(weight)));
        Self { weights, scale, sum }
    }

    fn size(&self, place: usize) -> u64 {
        self.scale.integer(self.weights[place]).wrapping_mul(self.weights.len() as u64)
    }

    /// The first place from `start` on that is light, or heavy.
    fn next(&self, start: usize, light: bool) -> Option<usize> {
        (start..self.weights.len()).find(|&place| (self.size(place) < self.sum) == light)
    }

    /// Of a cell that keeps less than the sum.
    fn threshold(&self, kept: u64) -> u32 {
        let share = (u128::from(kept) << 32) / u128::from(self.sum);
        (share as u32).max(1)
    }
}

/// A cell with two owners.
struct Shared {
    place: usize,
    kept: u64,
    other: usize,
}

/// Fills up the cells of light places from heavy ones; a heavy one with less than a cell left is filled up by the next.
struct Sweep<'a> {
    cells: Cells<'a>,
    light: Option<usize>,
    heavy: Option<usize>,
    /// What the heavy place has left.
    rest: u64,
}

impl<'a> Sweep<'a> {
    fn new(cells: Cells<'a>) -> Self {
        let (light, heavy) = (cells.next(0, true), cells.next(0, false));
        Self { cells, light, heavy, rest: heavy.map_or(0, |place| cells.size(place)) }
    }
}

impl Iterator for Sweep<'_> {
    type Item = Shared;

    fn next(&mut self) -> Option<Shared> {
        let heavy = self.heavy?;
        if self.rest < self.cells.sum {
            let kept = self.rest;
            self.heavy = self.cells.next(heavy + 1, false);
            let other = self.heavy?;
            self.rest = kept.wrapping_add(self.cells.size(other)).wrapping_sub(self.cells.sum);
            return Some(Shared { place: heavy, kept, other });
        }
        let place = self.light?;
        let kept = self.cells.size(place);
        self.rest = self.rest.wrapping_add(kept).wrapping_sub(self.cells.sum);
        self.light = self.cells.next(place + 1, true);
        Some(Shared { place, kept, other: heavy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(weights: &[f32]) -> Vec<(u32, u32)> {
        table(weights).map(Entry::from_word).map(|entry| (entry.threshold, entry.other)).collect()
    }

    #[test]
    fn equal_weights_own_their_cells_alone() {
        assert_eq!(entries(&[3.0]), [(WHOLE, 0)]);
        assert_eq!(entries(&[0.7; 3]), [(WHOLE, 0), (WHOLE, 1), (WHOLE, 2)]);
    }

    #[test]
    fn heavy_places_fill_up_light_cells_and_each_other() {
        // The mean is 2: places 0, 2 and 4 lack 1.5, 1 and 2 of it, which 1 and 3 have in excess.
        let half = 1 << 31;
        assert_eq!(
            entries(&[0.5, 4.0, 1.0, 4.5, 0.0]),
            [(half / 2, 1), (3 * (half / 2), 3), (half, 1), (WHOLE, 3), (0, 3)]
        );
    }

    #[test]
    fn zero_is_never_drawn_and_the_smallest_weight_is() {
        assert_eq!(entries(&[0.0, 1.0, 0.0]), [(0, 1), (WHOLE, 1), (0, 1)]);
        assert_eq!(entries(&[1e-30, f32::MAX]), [(1, 1), (WHOLE, 1)]);
        // Place 1 gives all of itself to other cells; what it keeps of its own says that it has a weight.
        assert_eq!(entries(&[0.0, 2.0, 0.0, 2.0]), [(0, 1), (1, 3), (0, 1), (WHOLE, 3)]);
    }

    #[test]
    fn without_any_weight_entries_are_their_places() {
        assert!(entries(&[]).is_empty());
        assert_eq!(table(&[0.0, -0.0, 0.0]).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn numbers_that_are_no_weights_do_no_harm() {
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0] {
            for weights in [vec![number], vec![1.0, number, f32::INFINITY, number], vec![number; 9]] {
                assert_eq!(table(&weights).count(), weights.len());
            }
        }
    }
}

//! Rows of `f32` that become `f16` on their way into a batch: nearest, ties to even (`docs/sampling.md`, section 3).

use half::f16;
use half::slice::HalfFloatSliceExt as _;

use crate::cache::prefetch_row;
use crate::{Error, Result};

/// How many rows ahead a row begins to load.
const ROWS_AHEAD: usize = 16;

/// Converts `count` rows to their places in `into`, where each takes `size` bytes.
///
/// # Errors
/// What `row` says of one that is not there, or when one has not twice the size.
///
/// # Panics
/// When a place is past the end.
#[inline]
pub(super) fn halve_rows<'a>(
    into: &mut [u8],
    size: usize,
    count: usize,
    row: impl Fn(usize) -> Result<&'a [u8]>,
    place: impl Fn(usize) -> usize,
) -> Result<()> {
    for index in 0..count {
        if index + ROWS_AHEAD < count {
            prefetch_row(row(index + ROWS_AHEAD)?);
        }
        let from = row(index)?;
        if from.len() != 2 * size {
            return Err(Error::answer(format!("a row of f32 has {} bytes, expected {}", from.len(), 2 * size)));
        }
        let to = &mut into[place(index) * size..][..size];
        match (bytemuck::try_cast_slice::<u8, f32>(from), bytemuck::try_cast_slice_mut::<u8, f16>(to)) {
            (Ok(from), Ok(to)) => to.convert_from_f32_slice(from),
            // Tensors are aligned, wherever they lie; what is not is converted all the same.
            _ => {
                for (from, to) in from.as_chunks().0.iter().zip(into[place(index) * size..][..size].as_chunks_mut().0) {
                    *to = f16::from_f32(f32::from_le_bytes(*from)).to_le_bytes();
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The nearest of all halves to a number, the even one of two: found by looking at each.
    fn nearest(number: f32) -> u16 {
        if number.is_nan() {
            return (number.to_bits() >> 16) as u16 & 0x8000 | 0x7e00 | (number.to_bits() >> 13) as u16 & 0x03ff;
        }
        let sign = (number.to_bits() >> 16) as u16 & 0x8000;
        let value = |bits: u16| match bits {
            // Infinity stands where the next number would be.
            0x7c00 => 65536.0,
            bits => f64::from(f16::from_bits(bits).to_f32()),
        };
        let (mut low, mut high) = (0u16, 0x7c00u16);
        let wanted = f64::from(number.abs()).min(65536.0);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if value(middle) <= wanted { low = middle } else { high = middle }
        }
        let (below, above) = (wanted - value(low), value(high) - wanted);
        let up = match above.total_cmp(&below) {
            std::cmp::Ordering::Equal => low & 1 == 1,
            nearer => nearer.is_lt(),
        };
        sign | if up { high } else { low }
    }

    fn halved(numbers: &[f32]) -> Vec<u16> {
        let mut out = vec![0u16; numbers.len()];
        let bytes = bytemuck::cast_slice(numbers);
        halve_rows(bytemuck::cast_slice_mut(&mut out), 2 * numbers.len(), 1, |_| Ok(bytes), |_| 0).unwrap();
        out
    }

    proptest! {
        #[test]
        fn every_number_becomes_the_nearest(
            any in proptest::collection::vec(any::<u32>().prop_map(f32::from_bits), 1..40),
            small in proptest::collection::vec(-70000.0f32..70000.0, 1..40),
            tiny in proptest::collection::vec(-1e-4f32..1e-4, 1..40),
        ) {
            let numbers = [any, small, tiny].concat();
            let expected: Vec<u16> = numbers.iter().map(|&number| nearest(number)).collect();
            prop_assert_eq!(halved(&numbers), expected, "{:?}", numbers);
        }

        #[test]
        fn rows_go_to_their_places_aligned_or_not(shift in 0usize..2, width in 1usize..20, count in 1usize..40) {
            let numbers: Vec<f32> = (0..count * width).map(|number| number as f32 / 3.0).collect();
            let mut unaligned = vec![0u8; 4 * numbers.len() + shift];
            unaligned[shift..].copy_from_slice(bytemuck::cast_slice(&numbers));
            let mut out = vec![0u8; 2 * numbers.len() + shift];
            let row = |index: usize| Ok(&unaligned[shift..][index * 4 * width..][..4 * width]);
            halve_rows(&mut out[shift..], 2 * width, count, row, |index| count - 1 - index).unwrap();
            let expected: Vec<u8> = numbers
                .chunks(width)
                .rev()
                .flatten()
                .flat_map(|&number| nearest(number).to_le_bytes())
                .collect();
            prop_assert_eq!(&out[shift..], &expected[..]);
        }
    }

    #[test]
    fn the_edges_of_half_precision() {
        let numbers = [65504.0, 65519.99, 65520.0, -1e10, 5.960_464_5e-8, 2.980_232_2e-8, -0.0, f32::INFINITY, 2049.0];
        let bits = [0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x0001, 0x0000, 0x8000, 0x7c00, 0x6800];
        assert_eq!(halved(&numbers), bits);
    }
}

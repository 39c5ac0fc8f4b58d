//! Weights as integers, so that drawing by weight is exact.
//!
//! The weights of a list become integers whose sum is below `2^62`, and a dataset stores their running sums: a draw is a
//! whole number below the last of them and a binary search. Lists of neighbours are drawn from in one step, by their
//! [`crate::alias`] tables, while nothing is left out of them. `docs/format.md` has the rules. Numbers that may not be
//! weights give some integer or other, never a panic.

/// The sums of integer weights stay below two to this power.
const SUM_BITS: i32 = 62;

/// Whether a number may be a weight: finite and not negative.
pub fn is_weight(number: f32) -> bool {
    number.is_finite() && number >= 0.0
}

/// What the weights of one list are multiplied with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale(f64);

impl Scale {
    /// The scale of a list of `count` weights with this `largest`.
    pub fn new(count: u64, largest: f32) -> Self {
        if largest > 0.0 {
            let shift = SUM_BITS - bit_length(count);
            Self(power_of_two(shift - exponent(largest)))
        } else {
            Self(0.0)
        }
    }

    /// The scale of a list.
    pub fn of(weights: &[f32]) -> Self {
        Self::new(weights.len() as u64, weights.iter().copied().fold(0.0, f32::max))
    }

    /// A weight of the list as an integer: 0 for 0, at least 1 for anything above.
    pub fn integer(self, weight: f32) -> u64 {
        if weight == 0.0 { 0 } else { ((f64::from(weight) * self.0) as u64).max(1) }
    }
}

/// The running sums of a list's integer weights, each up to and including its place.
pub fn running_sums(weights: &[f32]) -> impl Iterator<Item = u64> {
    let scale = Scale::of(weights);
    weights.iter().scan(0u64, move |sum, &weight| {
        // Wraps for nothing that is a weight.
        *sum = sum.wrapping_add(scale.integer(weight));
        Some(*sum)
    })
}

fn bit_length(number: u64) -> i32 {
    (u64::BITS - number.leading_zeros()).cast_signed()
}

/// The least integer `e` with `weight < 2^e`, for a weight above 0. As a double no `f32` is subnormal, so the exponent
/// stands in the bits.
fn exponent(weight: f32) -> i32 {
    (f64::from(weight).to_bits() >> 52) as i32 - 1022
}

/// From the bits: `powi` does not promise exactness.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023).clamp(1, 2046) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smallest `f32` above 0.
    const TINY: f32 = f32::from_bits(1);

    fn sums(weights: &[f32]) -> Vec<u64> {
        running_sums(weights).collect()
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        assert!(sums(&[]).is_empty());
        assert_eq!(sums(&[0.0, -0.0]), [0, 0]);
        // Three weights: s = 60. The largest is 1, so e = 1 and a weight of 1 is 2^59.
        assert_eq!(sums(&[0.0, 1.0, 0.0]), [0, 1 << 59, 1 << 59]);
    }

    #[test]
    fn a_single_weight_fills_half_of_its_room_or_more() {
        for weight in [1.0, TINY, f32::MIN_POSITIVE, 0.75, 3.0, f32::MAX] {
            let [sum] = sums(&[weight])[..] else { panic!() };
            assert!((1 << 60..1 << 61).contains(&sum), "{weight:e}: {sum}");
        }
        assert_eq!(sums(&[TINY]), [1 << 60]);
        assert_eq!(sums(&[f32::MAX]), [(1 << 61) - (1 << 37)]);
    }

    #[test]
    fn equal_weights_are_equal_integers_whatever_they_are() {
        for weight in [TINY, 1e-40, 0.3, 1.0, 1e30, f32::MAX] {
            let sums = sums(&[weight; 5]);
            assert!((0..5).all(|place| sums[place] == sums[0] * (place as u64 + 1)), "{weight:e}: {sums:?}");
        }
    }

    #[test]
    fn ratios_are_kept_and_what_is_too_small_for_them_is_one() {
        // Four weights: s = 59. Below 4 = 2^2 a weight of 1 is 2^57.
        assert_eq!(sums(&[1.0, 2.0, 0.5, 3.0]), [1 << 57, 3 << 57, 7 << 56, 13 << 56]);
        // Subnormal weights have a scale of their own, beside the largest one they are next to nothing.
        assert_eq!(sums(&[TINY, TINY * 3.0]), [1 << 58, 1 << 60]);
        assert_eq!(sums(&[TINY, 1.0, 1e-30]), [1, (1 << 59) + 1, (1 << 59) + 2]);
        assert_eq!(sums(&[f32::MAX, TINY])[1], sums(&[f32::MAX, TINY])[0] + 1);
    }

    #[test]
    fn integers_are_rounded_down() {
        // A list so long that a weight of 1 is 2^20: bit_length(2^40) = 41, s = 21, e = 1.
        let scale = Scale::new(1 << 40, 1.0);
        assert_eq!(scale.integer(1.0), 1 << 20);
        assert_eq!(scale.integer(1.0 - f32::EPSILON / 2.0), (1 << 20) - 1);
        assert_eq!(scale.integer(1.5 / 1_048_576.0), 1);
        assert_eq!(scale.integer(0.5 / 1_048_576.0), 1);
    }

    #[test]
    fn the_sum_of_the_longest_lists_stays_below_its_bound() {
        for count in [1, 2, 3, 255, 256, (1 << 40) - 1, 1 << 40] {
            for largest in [TINY, 1.0, f32::MAX] {
                let integer = Scale::new(count, largest).integer(largest);
                assert!(u128::from(integer) * u128::from(count) < 1 << 62, "{count} weights of {largest:e}");
            }
        }
    }

    #[test]
    fn numbers_that_are_no_weights_do_no_harm() {
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0] {
            assert!(!is_weight(number));
            assert_eq!(sums(&[1.0, number, f32::INFINITY, number]).len(), 4);
            Scale::new(u64::MAX, number).integer(number);
        }
        assert!(is_weight(0.0) && is_weight(-0.0) && is_weight(TINY) && is_weight(f32::MAX));
    }
}

//! The integer weights of `docs/format.md` and the tables made of them, in whole numbers alone.

use std::collections::VecDeque;

/// The running sums of a list's integer weights, given the weights' bits.
pub fn running_sums(list: &[u32]) -> Vec<u64> {
    let mut sum = 0;
    let mut add = |integer: u64| {
        sum += integer;
        sum
    };
    integers(list).into_iter().map(&mut add).collect()
}

/// The alias table of a list, given the weights' bits.
pub fn alias_table(list: &[u32]) -> Vec<u64> {
    let integers = integers(list);
    let (n, sum) = (list.len() as u128, integers.iter().map(|&integer| u128::from(integer)).sum::<u128>());
    let mut left: Vec<u128> = integers.iter().map(|&integer| u128::from(integer) * n).collect();
    let (mut light, mut heavy): (VecDeque<usize>, VecDeque<usize>) =
        (0..list.len()).partition(|&place| left[place] < sum);
    let mut table: Vec<(u128, usize)> = (0..list.len()).map(|place| ((1 << 32) - 1, place)).collect();
    while let Some(&giver) = heavy.front() {
        let (taker, giver) = if left[giver] < sum {
            heavy.pop_front();
            (giver, heavy[0])
        } else if let Some(taker) = light.pop_front() {
            (taker, giver)
        } else {
            break;
        };
        table[taker] = (((left[taker] << 32) / sum).max(1), giver);
        left[giver] -= sum - left[taker];
    }
    let entry = |(&integer, (threshold, other)): (&u64, (u128, usize))| {
        (if integer == 0 { 0 } else { threshold as u64 }) << 32 | other as u64
    };
    integers.iter().zip(table).map(entry).collect()
}

fn integers(list: &[u32]) -> Vec<u64> {
    // Numbers that are not negative are in the order of their bits.
    let largest = list.iter().map(|bits| bits & !SIGN).max().unwrap_or(0);
    let (digits, place) = parts(largest);
    let least_power_above = bit_length(digits) + place;
    let s = 62 - bit_length(list.len() as u64);
    let integer = |&bits: &u32| match parts(bits & !SIGN) {
        (0, _) => 0,
        (digits, place) => shifted(digits, place + s - least_power_above).max(1),
    };
    list.iter().map(integer).collect()
}

const SIGN: u32 = 1 << 31;

/// Digits and place of a weight, which is `digits * 2^place`.
fn parts(bits: u32) -> (u64, i32) {
    let fraction = u64::from(bits & 0x007f_ffff);
    match (bits >> 23) as i32 {
        0 => (fraction, -149),
        exponent => (fraction | 1 << 23, exponent - 150),
    }
}

fn shifted(digits: u64, by: i32) -> u64 {
    if by >= 0 { digits << by } else { digits.checked_shr(by.unsigned_abs()).unwrap_or(0) }
}

fn bit_length(number: u64) -> i32 {
    64 - number.leading_zeros() as i32
}

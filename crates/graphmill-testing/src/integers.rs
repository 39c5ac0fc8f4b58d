//! The integer weights of `docs/format.md`, in whole numbers alone.

/// The running sums of a list's integer weights, given the weights' bits.
pub fn running_sums(list: &[u32]) -> Vec<u64> {
    // Numbers that are not negative are in the order of their bits.
    let largest = list.iter().map(|bits| bits & !SIGN).max().unwrap_or(0);
    let (digits, place) = parts(largest);
    let least_power_above = bit_length(digits) + place;
    let s = 62 - bit_length(list.len() as u64);
    let integer = |&bits: &u32| match parts(bits & !SIGN) {
        (0, _) => 0,
        (digits, place) => shifted(digits, place + s - least_power_above).max(1),
    };
    let mut sum = 0;
    let mut add = |integer: u64| {
        sum += integer;
        sum
    };
    list.iter().map(integer).map(&mut add).collect()
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

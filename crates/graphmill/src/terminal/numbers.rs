//! Numbers as people write and read them: `20M` and `2GiB` in, `20,000,000` and `1.2 GB` out.

use std::time::Duration;

const COUNT_SUFFIXES: [(&str, u64); 3] = [("k", 1_000), ("m", 1_000_000), ("g", 1_000_000_000)];
const SIZE_SUFFIXES: [(&str, u64); 9] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("b", 1),
];

/// Reads a count such as `10000`, `1_000_000`, `10k`, `1.5M`, `2G`.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    parse(text, &COUNT_SUFFIXES).ok_or_else(|| "write a whole number such as 1_000_000, 10k, 20M or 2G".to_owned())
}

/// Reads a size such as `500MB`, `2GiB` or a number of bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    parse(text, &SIZE_SUFFIXES).ok_or_else(|| "write a size such as 2GiB, 500MB or a number of bytes".to_owned())
}

fn parse(text: &str, suffixes: &[(&str, u64)]) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let suffixed = suffixes.iter().find_map(|&(suffix, scale)| Some((lower.strip_suffix(suffix)?, scale)));
    let (digits, scale) = suffixed.unwrap_or((&lower, 1));
    let (whole, fraction) = digits.trim_end().split_once('.').unwrap_or((digits.trim_end(), "0"));
    let whole: u64 = whole_number(whole)?.checked_mul(scale)?;
    // The part after the point must come out as a whole number too: 1.5k is 1500, 1.5 is nothing.
    let tenths = 10u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part = u128::from(whole_number(fraction)?) * u128::from(scale);
    let exact = part.is_multiple_of(u128::from(tenths));
    exact.then_some(whole.checked_add(u64::try_from(part / u128::from(tenths)).ok()?)).flatten()
}

fn whole_number(text: &str) -> Option<u64> {
    let grouped = text.starts_with(|first: char| first.is_ascii_digit()) && !text.ends_with('_');
    if grouped { text.replace('_', "").parse().ok() } else { None }
}

/// `20000000` as `20,000,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1234567890` as `1.2 GB`.
pub(crate) fn bytes(number: u64) -> String {
    match scaled(number as f64, &["B", "kB", "MB", "GB", "TB", "PB"]) {
        (_, 0, _) => format!("{number} B"),
        (value, _, unit) => format!("{value:.1} {unit}"),
    }
}

/// `4812345.6` as `4.8M`.
pub(crate) fn approximate(number: f64) -> String {
    match scaled(number, &["", "k", "M", "G", "T"]) {
        (value, 0, _) => format!("{value:.0}"),
        (value, _, unit) => format!("{value:.1}{unit}"),
    }
}

/// A share of a whole: `12.3%`.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}%", 100.0 * fraction(part, whole))
}

/// A share of a whole between 0 and 1; nothing of nothing is 0.
pub(crate) fn fraction(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A time: `0.42 s`, `12.3 s`, `3 min 12 s`.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 10.0 => format!("{seconds:.2} s"),
        seconds if seconds < 100.0 => format!("{seconds:.1} s"),
        seconds if seconds < 6000.0 => format!("{} min {:02} s", seconds as u64 / 60, seconds as u64 % 60),
        seconds => format!("{} h {:02} min", seconds as u64 / 3600, seconds as u64 % 3600 / 60),
    }
}

/// How many per second; never infinite.
pub(crate) fn rate(number: u64, time: Duration) -> f64 {
    number as f64 / time.as_secs_f64().max(1e-6)
}

fn scaled<'a>(mut value: f64, units: &[&'a str]) -> (f64, usize, &'a str) {
    let mut place = 0;
    // 999.95 would be printed as 1000.0 of the smaller unit.
    while value >= 999.95 && place + 1 < units.len() {
        value /= 1000.0;
        place += 1;
    }
    (value, place, units[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_people_write_them() {
        let cases = [("34", 34), ("1_000_000", 1_000_000), ("10k", 10_000), ("20M", 20_000_000), ("1.5m", 1_500_000)];
        for (text, expected) in cases {
            assert_eq!(parse_count(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_count_is_refused() {
        for text in ["", "k", "-1", "1.5", "1.2345k", "_1", "1_", "1e6", "20MB", "20000000000G", "1.", ".5k", "١"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_know_both_thousands() {
        let cases = [("2GiB", 2 << 30), ("500MB", 500_000_000), ("4096", 4096), ("1.5 KiB", 1536), ("7b", 7)];
        for (text, expected) in cases {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        assert!(parse_size("2G").is_err());
    }

    #[test]
    fn numbers_are_printed_to_be_read() {
        assert_eq!([count(0), count(999), count(1000), count(20_000_000)], ["0", "999", "1,000", "20,000,000"]);
        assert_eq!([bytes(0), bytes(999), bytes(999_999), bytes(1_234_567_890)], ["0 B", "999 B", "1.0 MB", "1.2 GB"]);
        assert_eq!([approximate(12.3), approximate(4_812_345.6)], ["12", "4.8M"]);
        let times = [0.421, 12.34, 192.0, 7260.0].map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(times, ["0.42 s", "12.3 s", "3 min 12 s", "2 h 01 min"]);
    }
}

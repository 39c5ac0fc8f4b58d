//! Faults in a row, drawn from a seed.

use std::time::Duration;

use super::{Fault, Way};

/// Faults and how long each lasts, without end: every other one mends everything.
#[derive(Debug, Clone)]
pub struct Storm {
    random: Random,
    longest: Duration,
    calm: bool,
}

impl Storm {
    /// A storm whose faults, and the calm between them, last up to so long.
    pub fn new(seed: u64, longest: Duration) -> Self {
        Self { random: Random::new(seed), longest, calm: false }
    }
}

impl Iterator for Storm {
    type Item = (Fault, Duration);

    fn next(&mut self) -> Option<Self::Item> {
        let lasts = self.longest.mul_f64(0.1 + 0.9 * self.random.below(1000) as f64 / 1000.0);
        self.calm = !self.calm;
        if !self.calm {
            return Some((Fault::Heal, lasts));
        }
        let way = if self.random.below(2) == 0 { Way::Up } else { Way::Down };
        let fault = match self.random.below(5) {
            0 => Fault::Latency(way, lasts / 4),
            1 => Fault::Stall(way),
            2 => Fault::Partition,
            3 => Fault::Reset,
            _ => Fault::HalfClose(way),
        };
        Some((fault, lasts))
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a limit, near enough to evenly.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(mix(self.0)) * u128::from(limit)) >> 64) as u64
    }
}

/// Stirs the bits of a number (the finish of splitmix64).
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

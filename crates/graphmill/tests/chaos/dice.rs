//! Chance that can be had again.

use std::time::Duration;

use graphmill_graph::random::Stream;

/// The seed, unless `CHAOS_SEED` says another.
const SEED: u64 = 8;

/// The seed of everything that happens.
pub(crate) fn seed() -> u64 {
    std::env::var("CHAOS_SEED").map_or(SEED, |seed| seed.parse().expect("CHAOS_SEED is a number"))
}

/// Throws of one purpose, one after the other.
#[derive(Debug)]
pub(crate) struct Dice {
    stream: Stream,
    thrown: u64,
}

impl Dice {
    /// The dice of a purpose, which has a number.
    pub(crate) fn new(purpose: u64) -> Self {
        Self { stream: Stream::new(seed(), &[purpose]), thrown: 0 }
    }

    /// A number below a bound.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.thrown += 1;
        self.stream.below(self.thrown, bound as u64) as usize
    }

    /// One of several.
    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A time between two others.
    pub(crate) fn between(&mut self, (least, most): (Duration, Duration)) -> Duration {
        least + most.saturating_sub(least).mul_f64(self.below(1000) as f64 / 1000.0)
    }

    /// A seed for somebody else.
    pub(crate) fn seed(&mut self) -> u64 {
        self.thrown += 1;
        self.stream.at(self.thrown)
    }
}

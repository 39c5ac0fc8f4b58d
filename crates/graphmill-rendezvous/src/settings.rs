//! What a run is told once, by whoever comes first.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest last call and keep-alive interval, and the most keep-alives that may be missed. Times are added up, and what a
/// stranger sends must not overflow a clock.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
const MOST_MISSED: u32 = 1000;
/// The longest name of a run.
const LONGEST_RUN: usize = 256;

/// How a run's rounds are formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The fewest participants of a round.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// How long a round that has enough participants waits for more.
    pub last_call: Duration,
    /// How often a member says that it is alive.
    pub keep_alive: Duration,
    /// How many times in a row it may fail to.
    pub missed: u32,
    /// Whether members that stay keep their ranks.
    pub stable_ranks: bool,
    /// How many participants are expected; when they are there, nobody else is waited for.
    pub expected: Option<u32>,
}

impl Settings {
    /// Settings for so many participants, everything else as usual.
    pub fn new(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            last_call: Duration::from_secs(30),
            keep_alive: Duration::from_secs(5),
            missed: 3,
            stable_ranks: true,
            expected: None,
        }
    }

    /// How old the last word of a member may be, at most.
    pub fn lease(&self) -> Duration {
        self.keep_alive * self.missed
    }

    /// # Errors
    /// When no round can be formed by them.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        let Self { min, max, last_call, keep_alive, missed, expected, .. } = *self;
        let refuse = |reason: String| Err(InvalidSettings { reason });
        if min == 0 {
            return refuse("the fewest participants are 0, expected at least 1".to_owned());
        }
        if max < min {
            return refuse(format!("the most participants are {max}, fewer than the fewest, {min}"));
        }
        if last_call.is_zero() || keep_alive.is_zero() || missed == 0 {
            return refuse("last call, keep-alive interval and missed keep-alives must be above 0".to_owned());
        }
        if last_call > LONGEST || keep_alive > LONGEST || missed > MOST_MISSED {
            return refuse(format!(
                "last call and keep-alive interval are {last_call:?} and {keep_alive:?}, {missed} may be missed; expected at most a \
                 day each, and {MOST_MISSED}"
            ));
        }
        match expected {
            Some(expected) if expected < min || expected > max => {
                refuse(format!("{expected} participants are expected, but {min} to {max} can take part"))
            }
            _ => Ok(()),
        }
    }
}

/// Why settings make no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InvalidSettings {
    reason: String,
}

impl InvalidSettings {
    pub(crate) fn new(reason: String) -> Self {
        Self { reason }
    }
}

/// # Errors
/// When a name cannot be that of a run.
pub fn check_run(run: &str) -> Result<(), InvalidSettings> {
    let refuse = |reason: String| Err(InvalidSettings { reason });
    if run.is_empty() {
        return refuse("a run needs a name that is not empty".to_owned());
    }
    if run.len() > LONGEST_RUN || run.chars().any(char::is_control) {
        return refuse(format!("a run's name has at most {LONGEST_RUN} bytes and no control characters"));
    }
    Ok(())
}

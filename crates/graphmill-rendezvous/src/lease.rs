//! A member's own view of its lease.
//!
//! The coordinator's clock decides when a member is dead. A member that counts from the moment at which it *sent* its last sign
//! of life that was answered is never later: it takes itself for dead before others take its place.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A lease.
#[derive(Debug)]
pub(crate) struct Lease {
    lasts: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last sign of life was sent that is known to have come; nothing while the member is in no round.
    since: Option<Instant>,
    /// Whether the coordinator has said that it does not know this member.
    unknown: bool,
    /// Counts the rounds, so that an answer from before is not taken for one of now.
    rounds: u64,
}

/// A sign of life that was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    at: Instant,
    rounds: u64,
}

impl Lease {
    pub(crate) fn new(lasts: Duration) -> Self {
        Self { lasts, state: Mutex::default() }
    }

    /// The member is in a round; it was heard of at that time or later.
    pub(crate) fn begin(&self, asked: Instant) {
        let mut state = self.lock();
        let since = state.since.map_or(asked, |since| since.max(asked));
        *state = State { since: Some(since), unknown: false, rounds: state.rounds + 1 };
    }

    /// The member is in no round any more, and knows it.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        *state = State { since: None, unknown: false, rounds: state.rounds + 1 };
    }

    /// A sign of life is sent.
    pub(crate) fn ask(&self) -> Sent {
        Sent { at: Instant::now(), rounds: self.lock().rounds }
    }

    /// It was answered.
    pub(crate) fn answer(&self, sent: Sent, known: bool) {
        let mut state = self.lock();
        if state.rounds != sent.rounds || state.since.is_none() {
            return;
        }
        state.unknown = !known;
        if known {
            state.since = Some(sent.at);
        }
    }

    /// Whether the member believes to be in a round, or has to be told that it is not.
    pub(crate) fn is_held(&self) -> bool {
        self.lock().since.is_some()
    }

    /// Whether the member is not in the round any more that it was told of, as far as it can know.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.lock();
        state.since.is_some_and(|since| state.unknown || since.elapsed() >= self.lasts)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_not_heard_of_takes_itself_for_dead() {
        let lasts = Duration::from_secs(60);
        let lease = Lease::new(lasts);
        assert!(!lease.is_lost() && !lease.is_held(), "it was never in a round");
        lease.begin(Instant::now());
        assert!(!lease.is_lost() && lease.is_held());
        let sent = lease.ask();
        lease.answer(sent, false);
        assert!(lease.is_lost(), "nobody knows it");
        lease.answer(lease.ask(), true);
        assert!(!lease.is_lost(), "the coordinator was restarted, and has found it again");
        lease.begin(Instant::now());
        lease.answer(sent, false);
        assert!(!lease.is_lost(), "that was about the round before");
        lease.end();
        assert!(!lease.is_lost(), "it has left");
        if let Some(past) = Instant::now().checked_sub(lasts) {
            lease.begin(past);
            assert!(lease.is_lost(), "its time is over");
        }
    }
}

//! How much memory objects may take, and who waits for some.
//!
//! What is granted is a [`Charge`], which lives as long as the memory that it stands for: an object that is evicted and still
//! read stays charged until its last reader lets go.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::wire::lock;

/// For how long somebody who waits is not passed by others. After that whoever needs less and fits goes first: one that waits for
/// more than there may ever be would keep everyone else waiting.
pub(super) const RIGHT_OF_WAY: Duration = Duration::from_secs(1);

/// A number of bytes, and those who wait for a part of it in the order in which they came.
#[derive(Debug)]
pub(super) struct Budget {
    total: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    bytes: u64,
    since: Instant,
    to: oneshot::Sender<Charge>,
}

impl Waiting {
    fn has_right_of_way(&self, now: Instant) -> bool {
        !self.to.is_closed() && now.duration_since(self.since) < RIGHT_OF_WAY
    }
}

impl Budget {
    pub(super) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, state: Mutex::default() })
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn used(&self) -> u64 {
        lock(&self.state).used
    }

    pub(super) fn waiting(&self) -> usize {
        lock(&self.state).waiting.iter().filter(|one| !one.to.is_closed()).count()
    }

    /// How many bytes are to be given back before there are so many.
    pub(super) fn lacking(&self, bytes: u64) -> u64 {
        self.used().saturating_add(bytes).saturating_sub(self.total)
    }

    /// So many bytes, if there are as many and nobody who waits has the right of way.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        self.take_at(Instant::now(), bytes)
    }

    fn take_at(self: &Arc<Self>, now: Instant, bytes: u64) -> Option<Charge> {
        let mut state = lock(&self.state);
        let is_free = !state.waiting.iter().any(|one| one.has_right_of_way(now));
        (is_free && self.fits(&state, bytes)).then(|| self.charge(&mut state, bytes))
    }

    /// So many bytes, when there are as many and nobody who came before has the right of way. Dropping what is returned gives
    /// up the place.
    pub(super) fn wait(self: &Arc<Self>, bytes: u64) -> oneshot::Receiver<Charge> {
        let (to, charge) = oneshot::channel();
        let (mut state, now) = (lock(&self.state), Instant::now());
        state.waiting.push_back(Waiting { bytes, since: now, to });
        self.grant(state, now);
        charge
    }

    /// Somebody gave up, or has lost the right of way: others may fit.
    pub(super) fn look_again(self: &Arc<Self>) {
        self.grant(lock(&self.state), Instant::now());
    }

    /// Serves those who wait, in their order, as far as it goes.
    fn grant(self: &Arc<Self>, mut state: std::sync::MutexGuard<'_, State>, now: Instant) {
        let (mut unwanted, mut is_free) = (Vec::new(), true);
        for one in std::mem::take(&mut state.waiting) {
            if one.to.is_closed() {
                continue;
            }
            if is_free && self.fits(&state, one.bytes) {
                let charge = self.charge(&mut state, one.bytes);
                // Whoever gives up at this very moment gives it back, but not while the lock is held.
                unwanted.extend(one.to.send(charge).err());
            } else {
                is_free &= !one.has_right_of_way(now);
                state.waiting.push_back(one);
            }
        }
        drop(state);
        drop(unwanted);
    }

    fn fits(&self, state: &State, bytes: u64) -> bool {
        state.used.checked_add(bytes).is_some_and(|used| used <= self.total)
    }

    fn charge(self: &Arc<Self>, state: &mut State, bytes: u64) -> Charge {
        state.used += bytes;
        Charge { budget: Arc::clone(self), bytes }
    }
}

/// Bytes that were granted; they are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = lock(&self.budget.state);
        state.used -= self.bytes;
        if !state.waiting.is_empty() {
            self.budget.grant(state, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Takes, waits and lets go at random: never more than the total is out, and nobody waits who could be served.
        #[test]
        fn the_total_is_never_exceeded(steps in proptest::collection::vec((0u8..4, 0u64..60), 0..200)) {
            let budget = Budget::new(100);
            let (mut held, mut waiting) = (Vec::new(), Vec::new());
            for (what, bytes) in steps {
                match what {
                    0 => held.extend(budget.take(bytes)),
                    1 => waiting.push(budget.wait(bytes)),
                    2 if !held.is_empty() => drop(held.remove(bytes as usize % held.len())),
                    3 if !waiting.is_empty() => {
                        drop(waiting.remove(bytes as usize % waiting.len()));
                        budget.look_again();
                    }
                    _ => {}
                }
                let mut still = Vec::new();
                for mut one in waiting {
                    match one.try_recv() {
                        Ok(charge) => held.push(charge),
                        Err(_) => still.push(one),
                    }
                }
                waiting = still;
                let out: u64 = held.iter().map(Charge::bytes).sum();
                prop_assert!(out <= 100);
                prop_assert_eq!(budget.used(), out);
                prop_assert_eq!(budget.waiting(), waiting.len());
            }
        }
    }

    #[test]
    fn a_small_one_does_not_overtake_a_large_one_that_has_just_come() {
        let budget = Budget::new(100);
        let first = budget.take(60).unwrap();
        let mut large = budget.wait(80);
        assert!(budget.take(10).is_none(), "whoever needs little would always be first");
        let mut small = budget.wait(10);
        assert!(small.try_recv().is_err());
        drop(first);
        assert_eq!((large.try_recv().unwrap().bytes(), small.try_recv().unwrap().bytes()), (80, 10));
    }

    #[test]
    fn a_large_one_that_has_waited_keeps_nobody_else_waiting_and_is_served_when_it_fits() {
        let budget = Budget::new(100);
        let first = budget.take(60).unwrap();
        let mut large = budget.wait(80);
        let (mut small, mut larger) = (budget.wait(10), budget.wait(50));
        let later = Instant::now() + RIGHT_OF_WAY;
        budget.grant(lock(&budget.state), later);
        let small = small.try_recv().unwrap();
        assert!(large.try_recv().is_err() && larger.try_recv().is_err());
        let more = budget.take_at(later, 10).unwrap();
        assert!(budget.take_at(later, 21).is_none());
        drop((first, more));
        let large = large.try_recv().unwrap();
        assert!(larger.try_recv().is_err());
        drop((small, large));
        assert_eq!(larger.try_recv().unwrap().bytes(), 50);
    }

    #[test]
    fn one_that_gives_up_makes_way() {
        let budget = Budget::new(100);
        let _first = budget.take(60).unwrap();
        let large = budget.wait(80);
        let mut small = budget.wait(10);
        assert!(small.try_recv().is_err());
        drop(large);
        budget.look_again();
        assert_eq!(small.try_recv().unwrap().bytes(), 10);
    }
}

//! How far an epoch has come, for those who ask while another thread waits for its next batch.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::State;

/// Where the batches of an epoch stand. Clones are of the same epoch.
#[derive(Debug, Clone)]
pub struct Standing {
    progress: Arc<Mutex<Progress>>,
}

#[derive(Debug)]
struct Progress {
    /// As if all rounds that are over had been handed out.
    state: State,
    /// Rounds that are over, and not handed out: their batches failed, or are on their way.
    missed: BTreeSet<u64>,
    left: usize,
}

impl Standing {
    pub(super) fn new(mut state: State, left: usize) -> Self {
        let State { rounds, ahead, .. } = &mut state;
        ahead.retain(|round| *round >= *rounds);
        let progress = Progress { state, missed: BTreeSet::new(), left };
        Self { progress: Arc::new(Mutex::new(progress)) }
    }

    /// What was handed out: who resumes from here gets the others.
    pub fn state(&self) -> State {
        let progress = self.lock();
        let mut state = progress.state.clone();
        if let Some(&first) = progress.missed.first() {
            // As if they had not come: those after them came ahead.
            let mut ahead: BTreeSet<u64> = state.ahead.drain(..).collect();
            if first < state.rounds {
                ahead.extend(first..state.rounds);
                state.rounds = first;
            }
            state.ahead = ahead.difference(&progress.missed).copied().collect();
        }
        state
    }

    /// How many batches are still to come.
    pub fn left(&self) -> usize {
        self.lock().left
    }

    /// The batch of a round that is over reached whoever asked for it.
    pub fn hand_out(&self, round: u64) {
        self.lock().missed.remove(&round);
    }

    /// A round is over; its batch came or failed.
    pub(super) fn end_round(&self, round: u64) {
        let mut progress = self.lock();
        progress.left -= 1;
        progress.missed.insert(round);
        let State { rounds, ahead, .. } = &mut progress.state;
        ahead.push(round);
        ahead.sort_unstable();
        let follow = ahead.iter().zip(*rounds..).take_while(|(ahead, round)| **ahead == *round).count();
        ahead.drain(..follow);
        *rounds += follow as u64;
    }

    /// A holder that panicked left it sound: every change is a few steps that cannot.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

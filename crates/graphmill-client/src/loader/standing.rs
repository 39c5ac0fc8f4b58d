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
    /// As if all that is over had been handed out.
    state: State,
    /// Rounds that are over, but whose batches did not come, or did not reach whoever asked for them.
    missed: BTreeSet<u64>,
    /// The round of the last batch, while it may still be taken back.
    last: Option<u64>,
    left: usize,
}

impl Standing {
    pub(super) fn new(state: State, left: usize) -> Self {
        let progress = Progress { state, missed: BTreeSet::new(), last: None, left };
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

    /// Says that the last batch, unless it was kept, did not reach whoever asked for it: who resumes from here gets it again.
    pub fn take_back(&self) {
        let mut progress = self.lock();
        let last = progress.last.take();
        progress.missed.extend(last);
    }

    /// Says that the last batch did reach whoever asked for it.
    pub fn keep(&self) {
        self.lock().last = None;
    }

    /// A round is over; its batch came, or did not.
    pub(super) fn end_round(&self, round: u64, came: bool) {
        let mut progress = self.lock();
        progress.left -= 1;
        progress.last = came.then_some(round);
        if !came {
            progress.missed.insert(round);
        }
        let State { rounds, ahead, .. } = &mut progress.state;
        ahead.push(round);
        ahead.sort_unstable();
        while let Some(place) = ahead.iter().position(|&ahead| ahead == *rounds) {
            ahead.remove(place);
            *rounds += 1;
        }
    }

    /// A holder that panicked left it sound: every change is a few steps that cannot.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The calls that changed a round's store, so that one whose answer was lost is answered again, and not done again.

use std::collections::{BTreeMap, VecDeque};

/// How many calls of each caller are remembered. One that is sent again has at most as many others beside it as its caller
/// makes at a time.
const REMEMBERED: usize = 16;
/// How many callers are: as many as a run has members.
const CALLERS: usize = 65_536;

/// A call: who makes it, and the how manieth of that caller it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Another one for every caller.
    pub caller: u64,
    /// Goes up with every call of it.
    pub number: u64,
}

/// The latest calls of all callers to a round's store, and the number that each was answered with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    by_caller: BTreeMap<u64, BTreeMap<u64, i64>>,
    /// In the order in which they came.
    callers: VecDeque<u64>,
}

impl Calls {
    /// What a call was answered with, if it was done before.
    pub(crate) fn done(&self, call: Call) -> Option<i64> {
        self.by_caller.get(&call.caller)?.get(&call.number).copied()
    }

    /// Notes that a call was done; the callers of whom something else is remembered now.
    pub(crate) fn note(&mut self, call: Call, answer: i64) -> impl Iterator<Item = u64> + use<> {
        let mut forgotten = None;
        if !self.by_caller.contains_key(&call.caller) {
            self.callers.push_back(call.caller);
            if self.by_caller.len() >= CALLERS {
                forgotten = self.callers.pop_front().inspect(|first| drop(self.by_caller.remove(first)));
            }
        }
        let answers = self.by_caller.entry(call.caller).or_default();
        answers.insert(call.number, answer);
        if answers.len() > REMEMBERED {
            answers.pop_first();
        }
        [Some(call.caller), forgotten].into_iter().flatten()
    }

    /// What is remembered of a caller.
    pub(crate) fn of(&self, caller: u64) -> Option<&BTreeMap<u64, i64>> {
        self.by_caller.get(&caller)
    }

    /// All callers.
    pub(crate) fn callers(&self) -> impl Iterator<Item = u64> {
        self.by_caller.keys().copied()
    }

    /// Takes over what was kept of a caller; whether it can be so.
    pub(crate) fn restore(&mut self, caller: u64, answers: BTreeMap<u64, i64>) -> bool {
        if answers.len() > REMEMBERED || self.by_caller.len() >= CALLERS {
            return false;
        }
        self.callers.push_back(caller);
        self.by_caller.insert(caller, answers).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_calls_of_each_caller_are_remembered() {
        let mut calls = Calls::default();
        let call = |caller, number| Call { caller, number };
        for number in 0..20 {
            assert_eq!(calls.note(call(7, number), 10 * number as i64).collect::<Vec<_>>(), [7]);
        }
        assert_eq!(
            (calls.done(call(7, 19)), calls.done(call(7, 4)), calls.done(call(7, 3))),
            (Some(190), Some(40), None)
        );
        assert_eq!(calls.done(call(8, 19)), None, "that is another's");
        for caller in 100..100 + CALLERS as u64 {
            calls.note(call(caller, 0), 1).for_each(drop);
        }
        assert_eq!(
            (calls.callers().count(), calls.done(call(7, 19))),
            (CALLERS, None),
            "who came first is forgotten first"
        );
    }
}

//! The rounds of an epoch that are still to come. There may be as many as a graph has nodes, so nobody lists them.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// Rounds: some that come first, then the others, ascending.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    /// Put back by whoever had taken them.
    first: VecDeque<u64>,
    rest: Range<u64>,
    /// Those of the rest that are left out.
    without: BTreeSet<u64>,
}

impl Rounds {
    /// A range of rounds without some that were handed out before.
    pub(super) fn new(rest: Range<u64>, without: &[u64]) -> Self {
        let without = without.iter().copied().filter(|round| rest.contains(round)).collect();
        Self { first: VecDeque::new(), rest, without }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        let rest = self.rest.end.saturating_sub(self.rest.start) as usize;
        self.first.len() + rest - self.without.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next one, which stays.
    pub(crate) fn peek(&self) -> Option<u64> {
        let rest = || self.rest.clone().find(|round| !self.without.contains(round));
        self.first.front().copied().or_else(rest)
    }

    /// Puts a round before all others.
    pub(crate) fn put_back(&mut self, round: u64) {
        self.first.push_front(round);
    }

    /// Leaves a round out.
    pub(crate) fn leave_out(&mut self, round: u64) {
        self.first.retain(|first| *first != round);
        if self.rest.contains(&round) {
            self.without.insert(round);
        }
    }
}

impl Iterator for Rounds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let without = &mut self.without;
        self.first.pop_front().or_else(|| self.rest.find(|round| !without.remove(round)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rounds_are_the_list_that_nobody_makes(
            start in 0u64..20, len in 0u64..20, without in vec(0u64..50, 0..9), steps in vec((0u8..3, 0u64..50), 0..40),
        ) {
            let mut rounds = Rounds::new(start..start + len, &without);
            let mut listed: VecDeque<u64> = (start..start + len).filter(|round| !without.contains(round)).collect();
            let mut taken = Vec::new();
            for (step, round) in steps {
                match step {
                    0 => {
                        let round = rounds.next();
                        prop_assert_eq!(round, listed.pop_front());
                        taken.extend(round);
                    }
                    1 => if let Some(round) = taken.pop() {
                        rounds.put_back(round);
                        listed.push_front(round);
                    },
                    _ => {
                        rounds.leave_out(round);
                        listed.retain(|listed| *listed != round);
                    }
                }
                prop_assert_eq!((rounds.len(), rounds.peek()), (listed.len(), listed.front().copied()));
            }
            prop_assert!(rounds.eq(listed));
        }
    }

    #[test]
    fn more_rounds_than_there_is_memory_for_cost_nothing() {
        let mut rounds = Rounds::new(3..u64::MAX, &[4]);
        assert_eq!(rounds.len() as u64, u64::MAX - 4);
        assert_eq!((rounds.next(), rounds.next(), rounds.peek()), (Some(3), Some(5), Some(6)));
    }
}

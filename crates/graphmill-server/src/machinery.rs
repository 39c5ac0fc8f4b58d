//! What it takes to make a batch, with memory that is used again for the next one of the same backend.

use graphmill_sample::{Machine, Plan, Split};

use crate::rows::RowLists;

/// A sampler's machine, and lists to ask several owners.
#[derive(Debug)]
pub(crate) struct Machinery {
    pub(crate) machine: Machine,
    /// Per question under way, its shares.
    pub(crate) splits: Vec<Split>,
    pub(crate) rows: RowLists,
}

impl Machinery {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { machine: Machine::new(plan), splits: Vec::new(), rows: RowLists::default() }
    }

    /// Bytes that it holds.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let splits: usize = self.splits.iter().map(Split::scratch_bytes).sum();
        self.machine.scratch_bytes() + splits + self.rows.scratch_bytes()
    }
}

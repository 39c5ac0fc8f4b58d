//! Where a loader stands in an epoch, to be stored and resumed from.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The state of a loader: what its batches depend on, and which of them were handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// The law version.
    pub law: u64,
    /// The dataset's fingerprint.
    pub fingerprint: String,
    /// A word for the sampler's configuration.
    pub config: String,
    /// A word for the seed list and how it is cut into batches.
    pub seeds: String,
    /// In partition order, a word for which partition owns which seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitioning: Option<String>,
    /// The epoch.
    pub epoch: u64,
    /// The place at which this loader began.
    pub start: u64,
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
    /// Rounds handed out without a gap.
    pub rounds: u64,
    /// Further rounds handed out out of order.
    pub ahead: Vec<u64>,
}

impl State {
    /// Fails with the first thing that differs in what batches depend on.
    pub(super) fn check(&self, expected: &Self) -> Result<()> {
        let law = (self.law.to_string(), expected.law.to_string());
        let partitioning =
            |state: &Self| state.partitioning.clone().unwrap_or_else(|| "none (global order)".to_owned());
        let partitioning = (partitioning(self), partitioning(expected));
        let parts = [
            ("law version", &law.0, &law.1),
            ("dataset", &self.fingerprint, &expected.fingerprint),
            ("sampler configuration", &self.config, &expected.config),
            ("seed list or batch size", &self.seeds, &expected.seeds),
            ("partitioning", &partitioning.0, &partitioning.1),
        ];
        for (what, found, expected) in parts {
            if found != expected {
                return Err(Error::State { what, found: found.clone(), expected: expected.clone() });
            }
        }
        Ok(())
    }
}

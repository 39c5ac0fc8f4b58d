//! What can go wrong with a batch.

use crate::law::BatchId;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a sampler could not be made, or a batch not be sampled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration does not fit the dataset, or contradicts itself.
    #[error("the sampler cannot be configured: {reason}")]
    Config {
        /// What does not fit, and what to do.
        reason: String,
    },
    /// The dataset refused: an unknown name or id, or damaged content.
    #[error(transparent)]
    Dataset(#[from] graphmill_graph::Error),
    /// A batch would be larger than its bound.
    #[error("batch {g} of epoch {epoch} has more than {limit} {what}; lower the fanouts or the batch size{remedy}")]
    TooLarge {
        /// The epoch.
        epoch: u64,
        /// The batch.
        g: u64,
        /// `edges` or `nodes`.
        what: &'static str,
        /// The bound.
        limit: u64,
        /// How to raise the bound, if it can be raised.
        remedy: &'static str,
    },
    /// More of something than there is memory for.
    #[error("there is no memory for {count} {what}; ask for fewer at a time")]
    Memory {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
    },
    /// Whoever wanted the batch does not any more.
    #[error("batch {g} of epoch {epoch} is not needed any more")]
    Stopped {
        /// The epoch.
        epoch: u64,
        /// The batch.
        g: u64,
    },
    /// Nobody has a partition that a batch needs.
    #[error("partition {partition} is with no server that can be reached")]
    Unowned {
        /// The partition.
        partition: u32,
    },
    /// An answer does not fit what was asked, so it comes from another graph or is damaged.
    #[error("an answer does not fit its request: {reason}")]
    Answer {
        /// What was expected and found.
        reason: String,
    },
}

impl Error {
    pub(crate) fn config(reason: impl Into<String>) -> Self {
        Self::Config { reason: reason.into() }
    }

    pub(crate) fn too_many_edges(batch: BatchId, limit: u64) -> Self {
        let BatchId { epoch, g, .. } = batch;
        Self::TooLarge { epoch, g, what: "edges", limit, remedy: ", or raise max_edges of the configuration" }
    }

    pub(crate) fn answer(reason: impl Into<String>) -> Self {
        Self::Answer { reason: reason.into() }
    }
}

//! Foreign files into a dataset, as a `graph.toml` describes.

use std::path::Path;

use graphmill_graph::{Manifest, Replace};

use crate::{Job, Result};

/// What to do with a row that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Stop with file, row number and reason.
    Stop,
    /// Count it and go on.
    Skip,
}

/// How to ingest.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What to do with a row that cannot be used.
    pub on_error: OnError,
    /// Bytes of memory for sorting edges and ids.
    pub memory: u64,
    /// What to do when the target exists.
    pub replace: Replace,
}

/// What an ingest made.
#[derive(Debug)]
pub struct Report {
    /// The dataset's manifest.
    pub manifest: Manifest,
    /// Rows that were skipped.
    pub skipped: u64,
    /// The first few of them, as messages.
    pub examples: Vec<String>,
}

/// Reads what a `graph.toml` describes and writes the dataset to `out`.
pub fn ingest(config: &Path, out: &Path, options: &Options, job: &Job<'_>) -> Result<Report> {
    let _ = (config, out, options, job);
    Err(crate::Error::option("not yet"))
}

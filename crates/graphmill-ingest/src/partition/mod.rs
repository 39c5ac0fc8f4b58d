//! Cutting a dataset into partitions.

use std::path::{Path, PathBuf};

use graphmill_graph::{Dataset, Manifest, Replace};

use crate::{Job, Result};

/// How nodes are assigned to partitions.
#[derive(Debug, Clone)]
pub enum Method {
    /// Equal stretches of ids.
    Range,
    /// By a hash of the id.
    Hash,
    /// Linear deterministic greedy: next to most neighbours, within a balance.
    Ldg,
    /// As a file says: one file per node type (`type=path`), or a single path for a homogeneous graph; `.npy` of integers, or text/CSV with a number per line.
    File(Vec<(Option<String>, PathBuf)>),
}

/// Cuts a dataset (of any number of partitions) into `parts` and writes the result to `out`.
pub fn partition(
    source: &Dataset,
    parts: u32,
    method: &Method,
    out: &Path,
    replace: Replace,
    job: &Job<'_>,
) -> Result<Manifest> {
    let _ = (source, parts, method, out, replace, job);
    Err(crate::Error::option("not yet"))
}

//! Cutting a dataset into partitions.
//!
//! An assignment says which partition owns each node; everything else follows: a node's features, labels and splits go
//! with it, and so do its neighbour lists, unchanged. Nodes are never renumbered and the fingerprint stays the same.

mod assign;
mod ldg;
mod write;

use std::path::{Path, PathBuf};

use graphmill_graph::{Dataset, MAX_PARTS, Manifest, Replace};

use crate::{Error, Job, Result};

/// Linux lets a process map 65,530 files unless told otherwise (`vm.max_map_count`); some are needed for other things.
const MAX_ARRAYS: u64 = 60_000;

/// How nodes are assigned to partitions.
#[derive(Debug, Clone)]
pub enum Method {
    /// Equal stretches of ids.
    Range,
    /// By a hash of the id.
    Hash,
    /// Linear deterministic greedy (Stanton and Kliot 2012), restreamed: next to most neighbours, within a balance.
    Ldg,
    /// As files say: one per node type, or a single one without a type for a homogeneous graph. The n-th number of a
    /// file is the partition of node n.
    File(Vec<(Option<String>, PathBuf)>),
}

impl Method {
    /// The name used in manifests and on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Range => "range",
            Self::Hash => "hash",
            Self::Ldg => "ldg",
            Self::File(_) => "file",
        }
    }
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
    if parts == 0 || parts > MAX_PARTS {
        return Err(Error::option(format!("expected 1 to {MAX_PARTS} partitions, found {parts}")));
    }
    let arrays = source.manifest().arrays() / u64::from(source.parts());
    if u64::from(parts) * arrays > MAX_ARRAYS {
        return Err(Error::option(format!(
            "{parts} partitions of {arrays} arrays are more files than a process may map; ask for at most {}",
            MAX_ARRAYS / arrays.max(1)
        )));
    }
    let books = assign::assign(source, parts, method, job)?;
    write::write(source, &books, method.name(), out, replace, job)
}

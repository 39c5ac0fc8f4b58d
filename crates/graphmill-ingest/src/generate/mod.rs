//! Graphs from a seed.

use std::path::Path;

use graphmill_graph::{Manifest, Replace};

use crate::{Job, Layout, Result};

/// The shape of a generated graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// R-MAT: a power law of degrees.
    Rmat,
    /// Uniformly random edges.
    Uniform,
    /// A stochastic block model with features and labels that a model can learn.
    Sbm,
    /// Zachary's karate club.
    Karate,
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Options {
    /// The shape.
    pub kind: Kind,
    /// Number of nodes; ignored for karate.
    pub nodes: u64,
    /// Number of directed edges; ignored for karate.
    pub edges: u64,
    /// Width of the feature `x` (f32); 0 for none.
    pub features: u64,
    /// Number of classes of the label; 0 for none.
    pub classes: u64,
    /// Same seed, same bytes.
    pub seed: u64,
    /// Which lists to store.
    pub layout: Layout,
    /// Whether to store edge ids.
    pub edge_ids: bool,
    /// Whether edges get random weights in (0, 1].
    pub weights: bool,
    /// Bytes of memory for sorting edges.
    pub memory: u64,
}

/// Makes a graph.
pub fn generate(options: &Options, out: &Path, replace: Replace, job: &Job<'_>) -> Result<Manifest> {
    let _ = (options, out, replace, job);
    Err(crate::Error::option("not yet"))
}

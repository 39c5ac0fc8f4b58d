//! Where a new dataset goes, and the line that says what was written there.

use std::path::PathBuf;
use std::time::Duration;

use graphmill_graph::{Manifest, Replace};

use crate::terminal::numbers;

/// The place of a new dataset.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// Directory to write the dataset to; it appears there only when it is complete
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// Replace the dataset that is there; until the new one is complete the old one stays
    #[arg(long)]
    force: bool,
}

impl Target {
    pub(crate) fn replace(&self) -> Replace {
        if self.force { Replace::Yes } else { Replace::No }
    }

    /// What was written, how large it is and how long it took.
    pub(crate) fn written(&self, manifest: &Manifest, time: Duration) -> String {
        let edges = num_edges(manifest);
        format!(
            "wrote {}: {} nodes, {} edges, {} in {} ({} edges/s)",
            self.out.display(),
            numbers::count(num_nodes(manifest)),
            numbers::count(edges),
            numbers::bytes(manifest.bytes_of(|_| true) + manifest.book_bytes()),
            numbers::duration(time),
            numbers::approximate(numbers::rate(edges, time)),
        )
    }
}

/// Nodes of all types.
pub(crate) fn num_nodes(manifest: &Manifest) -> u64 {
    manifest.node_types.iter().map(|info| info.count).sum()
}

/// Edges of all types.
pub(crate) fn num_edges(manifest: &Manifest) -> u64 {
    manifest.edge_types.iter().map(|info| info.count).sum()
}

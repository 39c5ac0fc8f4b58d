//! What the memory of this machine allows: the bandwidths that a gather is measured against.

use std::time::Instant;

use graphmill_graph::Dataset;
use graphmill_sample::{Batch, Field};

/// Bandwidths in bytes per second, one thread.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Ceiling {
    /// Fetching the same rows in the same order with plain loads, and doing nothing with them.
    pub(crate) random_read_bytes_per_s: f64,
    /// Copying a large stretch of memory to another.
    pub(crate) copy_bytes_per_s: f64,
}

/// The nodes of some measured batches, per node type.
#[derive(Debug, Default)]
pub(crate) struct Rows(Vec<Vec<u64>>);

/// Nodes that are remembered; a few batches say enough.
const MOST_NODES: usize = 400_000;
/// Bytes copied in one measurement.
const COPIED: usize = 256 << 20;
const LINE: usize = 64;

impl Rows {
    /// Remembers the nodes of a batch, unless there are enough.
    pub(crate) fn add(&mut self, batch: &Batch) {
        self.0.resize(batch.plan().node_types().len(), Vec::new());
        for (place, ids) in self.0.iter_mut().enumerate() {
            if ids.len() < MOST_NODES {
                ids.extend(batch.ints(Field::Node(place)).iter().map(|&id| id as u64));
            }
        }
    }

    /// Measures with these nodes.
    pub(crate) fn measure(&self, dataset: &Dataset) -> anyhow::Result<Ceiling> {
        let mut rows = Vec::new();
        for (place, ids) in self.0.iter().enumerate() {
            for &id in ids {
                let location = dataset.locate_node(place, id)?;
                let nodes = dataset.partition(location.partition)?.nodes(place);
                let features = (0..).map_while(|feature| nodes.feature(feature));
                rows.extend(features.filter_map(|feature| feature.row(location.row)));
            }
        }
        let best = |measure: &dyn Fn() -> f64| (0..5).map(|_| measure()).fold(0.0, f64::max);
        Ok(Ceiling { random_read_bytes_per_s: best(&|| fetch(&rows)), copy_bytes_per_s: best(&copy) })
    }
}

/// Touches every cache line once, and asks for none ahead of its turn: what the processor finds by itself.
fn fetch(rows: &[&[u8]]) -> f64 {
    let began = Instant::now();
    let touched = rows.iter().map(|row| row.iter().step_by(LINE).map(|&byte| u64::from(byte)).sum::<u64>());
    std::hint::black_box(touched.sum::<u64>());
    rows.iter().map(|row| row.len()).sum::<usize>() as f64 / began.elapsed().as_secs_f64()
}

fn copy() -> f64 {
    let source = vec![1u8; COPIED];
    let mut target = vec![2u8; COPIED];
    let began = Instant::now();
    target.copy_from_slice(&source);
    std::hint::black_box(&target);
    COPIED as f64 / began.elapsed().as_secs_f64()
}

//! Neighbour lists of one partition, edge type and direction.

use std::ops::Range;
use std::path::PathBuf;

use crate::array::Array;
use crate::{Error, IdArray, Result};

/// Neighbour lists: the list of row `r` is `neighbors[indptr[r]..indptr[r + 1]]`, sorted by (timestamp if any,
/// neighbour id, edge id). Edge ids, weights and timestamps stand beside the neighbours.
#[derive(Debug, Clone)]
pub struct Adjacency {
    pub(crate) indptr: IdArray,
    pub(crate) neighbors: IdArray,
    pub(crate) edge_ids: Option<IdArray>,
    pub(crate) weights: Option<Array<f32>>,
    pub(crate) cumulative: Option<Array<u64>>,
    pub(crate) alias: Option<Array<u64>>,
    pub(crate) timestamps: Option<Array<i64>>,
    /// Where the offsets are stored, for messages.
    pub(crate) path: PathBuf,
}

impl Adjacency {
    /// Number of lists.
    pub fn rows(&self) -> usize {
        self.indptr.len().saturating_sub(1)
    }

    /// Number of edges in all lists.
    pub fn edges(&self) -> usize {
        self.neighbors.len()
    }

    /// Where each list begins and ends.
    pub fn indptr(&self) -> &IdArray {
        &self.indptr
    }

    /// The lists, one after the other.
    pub fn neighbors(&self) -> &IdArray {
        &self.neighbors
    }

    /// Edge ids beside the neighbours, if stored.
    pub fn edge_ids(&self) -> Option<&IdArray> {
        self.edge_ids.as_ref()
    }

    /// Weights beside the neighbours, if there are any.
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// In each list the running sums of its integer weights, if there are weights: what to draw from parts of it. See
    /// [`crate::weights`].
    pub fn cumulative(&self) -> Option<&[u64]> {
        self.cumulative.as_deref()
    }

    /// In each list its alias table, if there are weights: what to draw from all of it. See [`crate::alias`].
    pub fn alias(&self) -> Option<&[u64]> {
        self.alias.as_deref()
    }

    /// Timestamps beside the neighbours, if there are any.
    pub fn timestamps(&self) -> Option<&[i64]> {
        self.timestamps.as_deref()
    }

    /// Where the list of a row lies.
    ///
    /// # Errors
    /// When the row does not exist or the stored offsets are damaged.
    pub fn list(&self, row: usize) -> Result<Range<usize>> {
        let indptr = self.indptr.as_slice();
        let (Some(start), Some(end)) = (indptr.get(row), indptr.get(row.saturating_add(1))) else {
            return Err(Error::corrupt(&self.path, format!("expected a list for row {row}, found {}", self.rows())));
        };
        if start > end || end > self.edges() as u64 {
            return Err(Error::corrupt(
                &self.path,
                format!("the list of row {row} goes from {start} to {end} of {} edges", self.edges()),
            ));
        }
        Ok(start as usize..end as usize)
    }
}

//! What one partition holds of one node type.

use crate::array::{Array, Tensor};
use crate::book::RowIds;
use crate::{IdArray, Originals, Split};

/// The owned nodes of one type in one partition: features, labels, weights, timestamps, splits, original
/// ids, all in row order.
#[derive(Debug, Clone)]
pub struct NodeStore {
    pub(crate) rows: usize,
    /// The first id of a range partition.
    pub(crate) start: u64,
    /// Row to id, where the book is not a range.
    pub(crate) ids: Option<IdArray>,
    pub(crate) features: Vec<Tensor>,
    pub(crate) label: Option<Tensor>,
    pub(crate) weights: Option<Array<f32>>,
    pub(crate) timestamps: Option<Array<i64>>,
    pub(crate) splits: [Option<IdArray>; 3],
    pub(crate) originals: Option<Originals>,
}

impl NodeStore {
    /// How many nodes it owns.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The id of a row; nothing past the end.
    pub fn id(&self, row: usize) -> Option<u64> {
        if row < self.rows { self.row_ids().get(row) } else { None }
    }

    /// A feature by its place in the node type's list.
    pub fn feature(&self, place: usize) -> Option<&Tensor> {
        self.features.get(place)
    }

    /// The label, if nodes have one.
    pub fn label(&self) -> Option<&Tensor> {
        self.label.as_ref()
    }

    /// Weights, if nodes have them. To draw by them there is [`crate::Dataset::node_cumulative`].
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// Timestamps, if nodes have them.
    pub fn timestamps(&self) -> Option<&[i64]> {
        self.timestamps.as_deref()
    }

    /// The owned ids of a split in ascending order, if there is such a split.
    pub fn split(&self, split: Split) -> Option<&IdArray> {
        self.splits[split as usize].as_ref()
    }

    /// Original ids, if the dataset kept them.
    pub fn originals(&self) -> Option<&Originals> {
        self.originals.as_ref()
    }

    pub(crate) fn row_ids(&self) -> RowIds<'_> {
        match &self.ids {
            Some(ids) => RowIds::Listed(ids.as_slice()),
            None => RowIds::Stretch(self.start),
        }
    }
}

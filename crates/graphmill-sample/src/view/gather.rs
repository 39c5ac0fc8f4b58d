//! Rows of features and labels, copied or converted once, straight into the batch.

use graphmill_graph::{DType, Tensor};

use super::half::halve_rows;
use super::{Rows, View};
use crate::cache::{ENTRIES_AHEAD, prefetch};
use crate::places::copy_rows;
use crate::{Error, Result};

/// Where rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// A feature of a node type, both by place.
    Node {
        /// The type.
        node_type: usize,
        /// The feature.
        feature: usize,
    },
    /// The label of a node type.
    Label {
        /// The type.
        node_type: usize,
    },
    /// A feature of an edge type, both by place.
    Edge {
        /// The type.
        edge_type: usize,
        /// The feature.
        feature: usize,
    },
}

/// Rows to be copied.
#[derive(Debug, Clone, Copy)]
pub struct Gather<'a> {
    /// From where.
    pub source: Source,
    /// Whether elements of `f32` become `f16` on the way.
    pub half: bool,
    /// Whose rows, in order.
    pub ids: &'a [u64],
}

impl View {
    /// Copies the rows of ids, one after the other.
    ///
    /// # Errors
    /// When an id is out of range, its partition is not opened, or rows cannot become `f16`.
    pub fn gather(&self, gather: Gather<'_>, into: &mut [u8]) -> Result<()> {
        let (rows, feature) = self.rows(gather.source)?;
        if gather.ids.is_empty() || into.is_empty() {
            return Ok(());
        }
        let size = into.len() / gather.ids.len();
        rows.copy(feature, gather, size, into, |index| index)
    }

    /// Copies the rows of ids to places among the rows of `into`, which has room for `count` rows.
    ///
    /// # Errors
    /// As for [`Self::gather`], or when a place is out of range.
    pub fn gather_to(&self, gather: Gather<'_>, places: &[u32], count: usize, into: &mut [u8]) -> Result<()> {
        let (rows, feature) = self.rows(gather.source)?;
        if count == 0 || into.is_empty() {
            return Ok(());
        }
        let size = into.len() / count;
        if places.len() != gather.ids.len() || places.iter().any(|&place| place as usize >= count) {
            return Err(Error::answer("rows have no place to go"));
        }
        rows.copy(feature, gather, size, into, |index| places[index] as usize)
    }

    /// The bytes of a gathered row.
    ///
    /// # Errors
    /// When there are no such rows here, or they cannot become `f16`.
    pub fn row_bytes(&self, source: Source, half: bool) -> Result<usize> {
        let (rows, feature) = self.rows(source)?;
        let opened = rows.parts.iter().position(Option::is_some).unwrap_or(0);
        let tensor = rows.tensor(opened as u32, feature)?;
        if half {
            check_half(tensor)?;
        }
        Ok(if half { tensor.row_bytes() / 2 } else { tensor.row_bytes() })
    }

    fn rows(&self, source: Source) -> Result<(&Rows, Option<usize>)> {
        let (rows, feature) = match source {
            Source::Node { node_type, feature } => (self.nodes.get(node_type), Some(feature)),
            Source::Label { node_type } => (self.nodes.get(node_type), None),
            Source::Edge { edge_type, feature } => (self.edges.get(edge_type).and_then(Option::as_ref), Some(feature)),
        };
        Ok((rows.ok_or_else(|| Error::answer(format!("there are no rows of {source:?}")))?, feature))
    }
}

impl Rows {
    /// Copies the rows of ids, each to its place.
    #[inline]
    fn copy(
        &self,
        feature: Option<usize>,
        Gather { ids, half, .. }: Gather<'_>,
        size: usize,
        into: &mut [u8],
        place: impl Fn(usize) -> usize,
    ) -> Result<()> {
        if self.owners.whole() {
            let tensor = self.tensor(0, feature)?;
            let row = |index: usize| tensor.row(ids[index] as usize).ok_or_else(|| self.absent(ids[index], feature));
            if half {
                check_half(tensor)?;
                return halve_rows(into, size, ids.len(), row, place);
            }
            copy_rows(into, size, ids.len(), row, place)
        } else {
            let book = self.owners.book.open();
            let tensors: Vec<_> =
                (0..self.parts.len() as u32).map(|partition| self.tensor(partition, feature).ok()).collect();
            let listed = book.listed();
            let row = |index: usize| {
                if let (Some((partitions, rows)), Some(&later)) = (listed, ids.get(index + ENTRIES_AHEAD)) {
                    prefetch(partitions, later as usize);
                    prefetch(rows, later as usize);
                }
                let found = book
                    .locate(ids[index])
                    .and_then(|location| tensors.get(location.partition as usize)?.as_ref()?.row(location.row));
                found.ok_or_else(|| self.absent(ids[index], feature))
            };
            if half {
                tensors.iter().copied().flatten().try_for_each(check_half)?;
                return halve_rows(into, size, ids.len(), row, place);
            }
            copy_rows(into, size, ids.len(), row, place)
        }
    }

    /// Why an id has no row here.
    #[cold]
    fn absent(&self, id: u64, feature: Option<usize>) -> Error {
        let owner = self.owners.locate(id).and_then(|location| self.tensor(location.partition, feature));
        owner.err().unwrap_or_else(|| Error::answer(format!("there is no row for {id}")))
    }

    fn tensor(&self, partition: u32, feature: Option<usize>) -> Result<&Tensor> {
        let part = self.parts.get(partition as usize).and_then(Option::as_ref).ok_or_else(|| {
            Error::answer(format!("partition {partition} of `{}` is not opened here", self.owners.name))
        })?;
        let tensor = match feature {
            Some(feature) => part.0.get(feature),
            None => part.1.as_ref(),
        };
        tensor.ok_or_else(|| Error::answer(format!("`{}` has no such rows", self.owners.name)))
    }
}

/// Fails unless elements can become `f16`.
fn check_half(tensor: &Tensor) -> Result<()> {
    match tensor.dtype() {
        DType::F32 => Ok(()),
        dtype => Err(Error::answer(format!("rows of {dtype} were asked for as f16; only f32 can be"))),
    }
}

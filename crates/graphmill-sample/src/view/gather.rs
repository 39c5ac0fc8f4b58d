//! Rows of features and labels, copied once, straight into the batch.

use graphmill_graph::Tensor;

use super::{Rows, View};
use crate::cache::{prefetch_row, prefetch_write};
use crate::{Error, Result};

/// How many rows ahead a row begins to load.
const ROWS_AHEAD: usize = 64;
/// How many rows ahead the place of a row is claimed.
pub(crate) const WRITES_AHEAD: usize = 8;
/// How many bytes of rows may be on their way, that the second cache keeps them.
const BYTES_AHEAD: usize = 64 << 10;

/// Where rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Whose rows, in order.
    pub ids: &'a [u64],
}

impl View {
    /// Copies the rows of ids, one after the other.
    ///
    /// # Errors
    /// When an id is out of range or its partition is not opened.
    pub fn gather(&self, gather: Gather<'_>, into: &mut [u8]) -> Result<()> {
        let (rows, feature) = self.rows(gather.source)?;
        rows.gather(feature, gather.ids, into)
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
        rows.copy(feature, gather.ids, size, |index, row| {
            if let Some(&place) = places.get(index + WRITES_AHEAD) {
                prefetch_write(into, place as usize * size, size);
            }
            into[places[index] as usize * size..][..size].copy_from_slice(row);
        })
    }

    /// The bytes of a row.
    ///
    /// # Errors
    /// When there are no such rows here.
    pub fn row_bytes(&self, source: Source) -> Result<usize> {
        let (rows, feature) = self.rows(source)?;
        let opened = rows.parts.iter().position(Option::is_some).unwrap_or(0);
        Ok(rows.tensor(opened as u32, feature)?.row_bytes())
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
    fn gather(&self, feature: Option<usize>, ids: &[u64], into: &mut [u8]) -> Result<()> {
        if ids.is_empty() || into.is_empty() {
            return Ok(());
        }
        let size = into.len() / ids.len();
        self.copy(feature, ids, size, |index, row| {
            prefetch_write(into, (index + WRITES_AHEAD) * size, size);
            into[index * size..][..size].copy_from_slice(row);
        })
    }

    /// Hands the rows of ids to `copy`, with their indices, in order.
    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn copy(&self, feature: Option<usize>, ids: &[u64], size: usize, copy: impl FnMut(usize, &[u8])) -> Result<()> {
        if self.owners.whole() {
            let tensor = self.tensor(0, feature)?;
            copy_ahead(ids, size, |id| tensor.row(id as usize).ok_or_else(|| self.absent(id, feature)), copy)
        } else {
            let book = self.owners.book.open();
            let tensors: Vec<_> =
                (0..self.parts.len() as u32).map(|partition| self.tensor(partition, feature).ok()).collect();
            let find = |id| {
                let found = book
                    .locate(id)
                    .and_then(|location| tensors.get(location.partition as usize)?.as_ref()?.row(location.row));
                found.ok_or_else(|| self.absent(id, feature))
            };
            copy_ahead(ids, size, find, copy)
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

/// Copies rows. They are found a stretch at a time, so that what finds them stays in the nearest cache meanwhile; each
/// begins to load some rows before its turn.
#[inline(always)]
#[allow(clippy::inline_always)]
fn copy_ahead<'a>(
    ids: &[u64],
    size: usize,
    find: impl Fn(u64) -> Result<&'a [u8]>,
    mut copy: impl FnMut(usize, &[u8]),
) -> Result<()> {
    // A power of two, so that a place in the ring costs no division.
    let ahead = 1 << (BYTES_AHEAD / size.max(1)).clamp(4, ROWS_AHEAD).ilog2();
    let mut found: [&[u8]; 2 * ROWS_AHEAD] = [&[]; 2 * ROWS_AHEAD];
    let place = |index: usize| index & (2 * ahead - 1) & (2 * ROWS_AHEAD - 1);
    // The rows before the first only give the first ones time to load.
    for step in 0..ids.len() + ahead {
        if step % ahead == 0 {
            for (index, &id) in ids.iter().enumerate().skip(step).take(ahead) {
                let row = find(id)?;
                if row.len() != size {
                    return Err(Error::answer(format!("a row has {} bytes, expected {size}", row.len())));
                }
                found[place(index)] = row;
            }
        }
        if step < ids.len() {
            prefetch_row(found[place(step)]);
        }
        if let Some(index) = step.checked_sub(ahead) {
            copy(index, found[place(index)]);
        }
    }
    Ok(())
}

//! Rows of features and labels, copied once, straight into the batch.

use graphmill_graph::Tensor;

use super::{Rows, View};
use crate::prefetch::prefetch;
use crate::{Error, Result};

/// How many rows ahead a row begins to load.
const ROWS_AHEAD: usize = 8;
/// The bytes of a cache line.
const LINE: usize = 64;

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
        let (rows, feature) = match gather.source {
            Source::Node { node_type, feature } => (self.nodes.get(node_type), Some(feature)),
            Source::Label { node_type } => (self.nodes.get(node_type), None),
            Source::Edge { edge_type, feature } => (self.edges.get(edge_type).and_then(Option::as_ref), Some(feature)),
        };
        let rows = rows.ok_or_else(|| Error::answer(format!("there are no rows of {:?}", gather.source)))?;
        rows.gather(feature, gather.ids, into)
    }
}

impl Rows {
    fn gather(&self, feature: Option<usize>, ids: &[u64], into: &mut [u8]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let row_bytes = into.len() / ids.len();
        if self.owners.whole() && row_bytes > 0 {
            let tensor = self.tensor(0, feature)?;
            if tensor.row_bytes() == row_bytes {
                return self.gather_whole(tensor, ids, into);
            }
        }
        if row_bytes == 0 {
            return Ok(());
        }
        for (&id, row) in ids.iter().zip(into.chunks_exact_mut(row_bytes)) {
            let location = self.owners.locate(id)?;
            let stored = self.tensor(location.partition, feature)?.row(location.row);
            let stored = stored.filter(|stored| stored.len() == row_bytes);
            row.copy_from_slice(stored.ok_or_else(|| Error::answer(format!("there is no row for {id}")))?);
        }
        Ok(())
    }

    fn gather_whole(&self, tensor: &Tensor, ids: &[u64], into: &mut [u8]) -> Result<()> {
        let (bytes, size) = (tensor.bytes(), tensor.row_bytes());
        let begin = |id: u64| (id as usize).wrapping_mul(size);
        let load = |id: u64| {
            for line in (0..size).step_by(LINE) {
                prefetch(bytes, begin(id).wrapping_add(line));
            }
        };
        ids.iter().take(ROWS_AHEAD).for_each(|&id| load(id));
        for (index, row) in into.chunks_exact_mut(size).enumerate() {
            if let Some(&later) = ids.get(index + ROWS_AHEAD) {
                load(later);
            }
            let id = ids[index];
            match bytes.get(begin(id)..begin(id).wrapping_add(size)) {
                Some(stored) if id < self.owners.book.count() => copy_row(stored, row),
                _ => return Err(self.owners.locate(id).err().unwrap_or_else(|| Error::answer(format!("no row {id}")))),
            }
        }
        Ok(())
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

/// Copies a row line by line, without the call that a copy of unknown length is.
#[inline]
fn copy_row(from: &[u8], to: &mut [u8]) {
    let (lines, rest) = from.as_chunks::<LINE>();
    let (to_lines, to_rest) = to.as_chunks_mut::<LINE>();
    for (to, line) in to_lines.iter_mut().zip(lines) {
        *to = *line;
    }
    to_rest.copy_from_slice(rest);
}

//! Rows of features and labels, copied once, straight into the batch.

use graphmill_graph::Tensor;

use super::{Rows, View};
use crate::cache::{LINE, prefetch, stream, streamed};
use crate::{Error, Result};

/// How many rows ahead a row begins to load.
const ROWS_AHEAD: usize = 8;
/// A tensor that is larger is written past the caches: it would push out the graph, and be pushed out before it is used.
const STREAMED: usize = 4 << 20;

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
        if ids.is_empty() || into.is_empty() {
            return Ok(());
        }
        if self.owners.whole() {
            let tensor = self.tensor(0, feature)?;
            copy_rows(ids, into, |id| tensor.row(id as usize).ok_or_else(|| self.absent(id)))
        } else {
            copy_rows(ids, into, |id| {
                let location = self.owners.locate(id)?;
                self.tensor(location.partition, feature)?.row(location.row).ok_or_else(|| self.absent(id))
            })
        }
    }

    #[cold]
    fn absent(&self, id: u64) -> Error {
        self.owners.locate(id).err().unwrap_or_else(|| Error::answer(format!("there is no row for {id}")))
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

/// Copies rows, each of which begins to load some rows before its turn.
fn copy_rows<'a>(ids: &[u64], into: &mut [u8], find: impl Fn(u64) -> Result<&'a [u8]>) -> Result<()> {
    if into.len() > STREAMED {
        let copied = copy_ahead(ids, into, find, stream_row);
        streamed();
        copied
    } else {
        copy_ahead(ids, into, find, <[u8]>::copy_from_slice)
    }
}

#[inline(always)]
#[allow(clippy::inline_always)]
fn copy_ahead<'a>(
    ids: &[u64],
    into: &mut [u8],
    find: impl Fn(u64) -> Result<&'a [u8]>,
    copy: impl Fn(&mut [u8], &[u8]),
) -> Result<()> {
    let size = into.len() / ids.len();
    let load = |id: u64| {
        let row = find(id)?;
        if row.len() != size {
            return Err(Error::answer(format!("a row has {} bytes, expected {size}", row.len())));
        }
        (0..size).step_by(LINE).for_each(|line| prefetch(row, line));
        Ok(row)
    };
    let mut ahead: [&[u8]; ROWS_AHEAD] = [&[]; ROWS_AHEAD];
    for (slot, &id) in ahead.iter_mut().zip(ids) {
        *slot = load(id)?;
    }
    for (index, to) in into.chunks_exact_mut(size).enumerate() {
        let row = ahead[index % ROWS_AHEAD];
        if let Some(&later) = ids.get(index + ROWS_AHEAD) {
            ahead[index % ROWS_AHEAD] = load(later)?;
        }
        copy(to, row);
    }
    Ok(())
}

/// Copies a row past the caches.
#[inline(always)]
#[allow(clippy::inline_always)]
fn stream_row(to: &mut [u8], from: &[u8]) {
    let ((lines, rest), (to_lines, to_rest)) = (from.as_chunks::<LINE>(), to.as_chunks_mut::<LINE>());
    stream(lines, to_lines);
    to_rest.copy_from_slice(rest);
}

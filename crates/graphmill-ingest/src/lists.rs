//! Edges in any order into sorted neighbour lists.
//!
//! An edge becomes one record per stored direction; records are sorted by (list owner, timestamp, neighbour, edge id)
//! within a bound of memory and stream straight into the dataset's arrays. The smallest record that can tell two edges
//! apart is used: plain edges sort as one 64-bit word.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use bytemuck::{Pod, Zeroable};
use graphmill_graph::path::{self, EdgeArray};
use graphmill_graph::{ArrayWriter, DatasetWriter, Direction, EdgeRole, EdgeTypeInfo, IdWidth, Place};

use crate::sort::{Record, Sorter};
use crate::tables::WrittenLists;
use crate::{Error, Job, Result, Unit};

/// Which neighbour lists to store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Lists of sources per target (CSC), what message passing walks.
    #[default]
    In,
    /// Lists of targets per source (CSR).
    Out,
    /// Both, at twice the size.
    Both,
}

impl Layout {
    /// The direction samplers walk unless told otherwise.
    pub(crate) fn edge_dir(self) -> Direction {
        match self {
            Self::In | Self::Both => Direction::In,
            Self::Out => Direction::Out,
        }
    }

    /// The directions to store, the primary one first. Label edges are asked for by their source, the anchor.
    pub(crate) fn directions(self, role: EdgeRole) -> Vec<Direction> {
        match (self, role) {
            (Self::Both, EdgeRole::Message) => vec![Direction::In, Direction::Out],
            (Self::Both, EdgeRole::Label) => vec![Direction::Out, Direction::In],
            (Self::In, EdgeRole::Message) => vec![Direction::In],
            (Self::Out, _) | (Self::In, EdgeRole::Label) => vec![Direction::Out],
        }
    }
}

/// One edge of the input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    pub(crate) src: u64,
    pub(crate) dst: u64,
    /// The input row.
    pub(crate) id: u64,
    pub(crate) timestamp: i64,
    pub(crate) weight: f32,
}

/// What happens to edges on the way in.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EdgeRules {
    /// Store each edge reversed too, under the same id.
    pub(crate) undirected: bool,
    /// Of edges with the same ends and timestamp keep the first.
    pub(crate) drop_duplicates: bool,
    /// Leave out edges from a node to itself.
    pub(crate) drop_self_loops: bool,
}

/// Collects the edges of one type and writes their lists.
pub(crate) struct ListsBuilder {
    info: EdgeTypeInfo,
    rules: EdgeRules,
    counts: EndCounts,
    lists: Vec<(Direction, AnySorter)>,
}

/// How many nodes stand at each end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndCounts {
    pub(crate) src: u64,
    pub(crate) dst: u64,
}

impl EndCounts {
    fn owner(self, direction: Direction) -> u64 {
        match direction {
            Direction::In => self.dst,
            Direction::Out => self.src,
        }
    }

    fn neighbor(self, direction: Direction) -> u64 {
        match direction {
            Direction::In => self.src,
            Direction::Out => self.dst,
        }
    }
}

impl ListsBuilder {
    /// Begins the lists of an edge type; `info` says what is stored, its counts are filled in at the end.
    pub(crate) fn new(info: EdgeTypeInfo, counts: EndCounts, rules: EdgeRules, memory: u64, scratch: &Path) -> Self {
        let share = memory / info.layouts.len().max(1) as u64;
        let lists =
            info.layouts.iter().map(|&direction| (direction, AnySorter::new(&info, counts, share, scratch))).collect();
        Self { info, rules, counts, lists }
    }

    /// Takes edges whose ends exist.
    pub(crate) fn push(&mut self, edges: &[Edge]) -> Result<()> {
        for edge in edges {
            let is_loop = edge.src == edge.dst && self.info.name.src == self.info.name.dst;
            if is_loop && self.rules.drop_self_loops {
                continue;
            }
            for (direction, sorter) in &mut self.lists {
                let (owner, neighbor) = match direction {
                    Direction::In => (edge.dst, edge.src),
                    Direction::Out => (edge.src, edge.dst),
                };
                sorter.push(owner, neighbor, edge)?;
                if self.rules.undirected && !is_loop {
                    sorter.push(neighbor, owner, edge)?;
                }
            }
        }
        Ok(())
    }

    /// Sorts and writes the lists of edges that came from `input_rows` rows; returns the type with its counts. The
    /// sources of label edges are the `anchors`, in ascending order.
    pub(crate) fn finish(
        mut self,
        input_rows: u64,
        writer: &DatasetWriter,
        anchors: &mut Vec<u64>,
        job: &Job<'_>,
    ) -> Result<EdgeTypeInfo> {
        self.info.id_count = if self.info.edge_ids { input_rows } else { 0 };
        for (direction, sorter) in self.lists {
            let rows = self.counts.owner(direction);
            let neighbor = IdWidth::for_count(self.counts.neighbor(direction));
            let mut lists = ListsWriter::new(writer, &self.info, direction, rows, neighbor)?;
            let stage = job.stage(&format!("sorting {} `{direction}`", self.info.name), Unit::Edges, None);
            let mut pending = 0;
            let wanted = self.info.role == EdgeRole::Label && direction == Direction::Out;
            sorter.for_each(|listed| {
                if wanted && anchors.last() != Some(&listed.owner) {
                    anchors.push(listed.owner);
                }
                pending += 1;
                if pending == 1 << 16 {
                    stage.advance(std::mem::take(&mut pending))?;
                }
                lists.push(&listed, self.rules.drop_duplicates, job)
            })?;
            stage.advance(pending)?;
            self.info.count = lists.finish(writer, &mut self.info, job)?;
        }
        Ok(self.info)
    }
}

/// An edge as it stands in a list.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Listed {
    owner: u64,
    neighbor: u64,
    id: u64,
    timestamp: i64,
    weight: f32,
}

/// Nothing but its ends, both below 2^32.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(transparent)]
struct Plain(u64);

impl Record for Plain {
    type Key = u64;

    fn key(&self) -> u64 {
        self.0
    }
}

/// Ends below 2^32 and an id, with or without a weight.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Numbered {
    ends: u64,
    id: u64,
    weight: f32,
    padding: u32,
}

impl Record for Numbered {
    type Key = (u64, u64);

    fn key(&self) -> (u64, u64) {
        (self.ends, self.id)
    }
}

/// Everything an edge can have.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Full {
    owner: u64,
    neighbor: u64,
    id: u64,
    timestamp: i64,
    weight: f32,
    padding: u32,
}

impl Record for Full {
    type Key = (u64, i64, u64, u64);

    fn key(&self) -> Self::Key {
        (self.owner, self.timestamp, self.neighbor, self.id)
    }
}

/// A sorter of the smallest record that will do.
enum AnySorter {
    Plain(Sorter<Plain>),
    Numbered(Sorter<Numbered>),
    Full(Sorter<Full>),
}

impl AnySorter {
    fn new(info: &EdgeTypeInfo, counts: EndCounts, memory: u64, scratch: &Path) -> Self {
        let narrow = [counts.src, counts.dst].iter().all(|&count| IdWidth::for_count(count) == IdWidth::U32);
        if !narrow || info.timestamps {
            Self::Full(Sorter::new(memory, scratch))
        } else if info.edge_ids || info.weights {
            Self::Numbered(Sorter::new(memory, scratch))
        } else {
            Self::Plain(Sorter::new(memory, scratch))
        }
    }

    fn push(&mut self, owner: u64, neighbor: u64, edge: &Edge) -> Result<()> {
        let Edge { id, timestamp, weight, .. } = *edge;
        match self {
            Self::Plain(sorter) => sorter.push(Plain(owner << 32 | neighbor)),
            Self::Numbered(sorter) => sorter.push(Numbered { ends: owner << 32 | neighbor, id, weight, padding: 0 }),
            Self::Full(sorter) => sorter.push(Full { owner, neighbor, id, timestamp, weight, padding: 0 }),
        }
    }

    fn for_each(self, mut take: impl FnMut(Listed) -> Result<()>) -> Result<()> {
        let ends = |ends: u64| (ends >> 32, ends & u64::from(u32::MAX));
        match self {
            Self::Plain(sorter) => sorter.for_each(|record| {
                let (owner, neighbor) = ends(record.0);
                take(Listed { owner, neighbor, id: 0, timestamp: 0, weight: 0.0 })
            }),
            Self::Numbered(sorter) => sorter.for_each(|record| {
                let (owner, neighbor) = ends(record.ends);
                take(Listed { owner, neighbor, id: record.id, timestamp: 0, weight: record.weight })
            }),
            Self::Full(sorter) => sorter.for_each(|record| {
                let Full { owner, neighbor, id, timestamp, weight, .. } = *record;
                take(Listed { owner, neighbor, id, timestamp, weight })
            }),
        }
    }
}

/// Writes the arrays of one direction from edges in list order.
struct ListsWriter {
    direction: Direction,
    rows: u64,
    neighbors: (ArrayWriter, IdWidth),
    edge_ids: Option<(ArrayWriter, IdWidth)>,
    weights: Option<ArrayWriter>,
    timestamps: Option<ArrayWriter>,
    /// Offsets as `u64`: their stored width depends on how many edges there are in the end.
    offsets: BufWriter<File>,
    offsets_written: u64,
    edges: u64,
    last: Option<Listed>,
}

impl ListsWriter {
    fn new(
        writer: &DatasetWriter,
        info: &EdgeTypeInfo,
        direction: Direction,
        rows: u64,
        neighbor: IdWidth,
    ) -> Result<Self> {
        let array = |array| writer.array(Place::Part(0), &path::edge(&info.name, array));
        let width = info.id_width();
        let scratch = writer.scratch()?;
        let offsets = tempfile::tempfile_in(&scratch).map_err(Error::io("create a temporary file in", &scratch))?;
        Ok(Self {
            direction,
            rows,
            neighbors: (array(EdgeArray::Neighbors(direction, neighbor))?, neighbor),
            edge_ids: if info.edge_ids { Some((array(EdgeArray::EdgeIds(direction, width))?, width)) } else { None },
            weights: info.weights.then(|| array(EdgeArray::Weights(direction))).transpose()?,
            timestamps: info.timestamps.then(|| array(EdgeArray::Timestamps(direction))).transpose()?,
            offsets: BufWriter::with_capacity(1 << 20, offsets),
            offsets_written: 0,
            edges: 0,
            last: None,
        })
    }

    fn push(&mut self, edge: &Listed, drop_duplicates: bool, job: &Job<'_>) -> Result<()> {
        let ends = |edge: &Listed| (edge.owner, edge.neighbor, edge.timestamp);
        if drop_duplicates && self.last.as_ref().is_some_and(|last| ends(last) == ends(edge)) {
            return Ok(());
        }
        self.last = Some(*edge);
        self.open_lists(edge.owner + 1, job)?;
        self.edges += 1;
        self.neighbors.0.write_id(self.neighbors.1, edge.neighbor)?;
        if let Some((edge_ids, width)) = &mut self.edge_ids {
            edge_ids.write_id(*width, edge.id)?;
        }
        if let Some(weights) = &mut self.weights {
            weights.write(&edge.weight.to_le_bytes())?;
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.write(&edge.timestamp.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes the offsets of all lists up to the one before `rows`, so that `rows` offsets are written.
    fn open_lists(&mut self, rows: u64, job: &Job<'_>) -> Result<()> {
        while self.offsets_written < rows {
            let offset = self.edges.to_le_bytes();
            self.offsets.write_all(&offset).map_err(Error::io("write", "temporary list offsets"))?;
            self.offsets_written += 1;
            if self.offsets_written.is_multiple_of(1 << 16) {
                job.check()?;
            }
        }
        Ok(())
    }

    /// Ends the arrays; returns the number of edges.
    fn finish(mut self, writer: &DatasetWriter, info: &mut EdgeTypeInfo, job: &Job<'_>) -> Result<u64> {
        self.open_lists(self.rows + 1, job)?;
        info.count = self.edges;
        let width = info.indptr_width();
        let path = path::edge(&info.name, EdgeArray::Indptr(self.direction, width));
        let mut indptr = writer.array(Place::Part(0), &path)?;
        let temporary = |source| Error::io("read back", "temporary list offsets")(source);
        let mut offsets = self.offsets.into_inner().map_err(|error| temporary(error.into_error()))?;
        offsets.rewind().map_err(temporary)?;
        let mut offsets = BufReader::with_capacity(1 << 20, offsets);
        let open_tables = |weights| WrittenLists::new(writer, info, self.direction, weights);
        let mut tables = self.weights.map(open_tables).transpose()?;
        let mut offset = [0; 8];
        for row in 0..=self.rows {
            if row.is_multiple_of(1 << 16) {
                job.check()?;
            }
            offsets.read_exact(&mut offset).map_err(temporary)?;
            let offset = u64::from_le_bytes(offset);
            indptr.write_id(width, offset)?;
            if let Some(tables) = &mut tables {
                tables.end_list(offset)?;
            }
        }
        indptr.finish()?;
        tables.map(WrittenLists::finish).transpose()?;
        self.neighbors.0.finish()?;
        self.edge_ids.map(|(array, _)| array.finish()).transpose()?;
        self.timestamps.map(ArrayWriter::finish).transpose()?;
        Ok(self.edges)
    }
}

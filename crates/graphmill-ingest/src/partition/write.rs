//! Writing a dataset again under other partition books.

use std::ops::Range;
use std::path::Path;

use graphmill_graph::path::{self, EdgeArray, NodeArray};
use graphmill_graph::weights::Scale;
use graphmill_graph::{
    ArrayWriter, BookBuilder, Dataset, DatasetWriter, Direction, EdgeTypeInfo, FeatureInfo, IdWidth, Location,
    Manifest, NodeTypeInfo, OriginalId, Partition, Place, Replace, Tensor,
};
use rayon::prelude::*;

use crate::tables::ListTables;
use crate::{Error, Job, Result, Stage, Unit};

pub(super) fn write(
    source: &Dataset,
    books: &[BookBuilder],
    method: &str,
    out: &Path,
    replace: Replace,
    job: &Job<'_>,
) -> Result<Manifest> {
    let writer = DatasetWriter::create(out, replace)?;
    let parts = books.first().map_or(1, BookBuilder::parts);
    let mut node_types = source.node_types().to_vec();
    for (info, book) in node_types.iter_mut().zip(books) {
        info.book = book.write(&writer, |array| path::node_book(&info.name, array))?;
    }
    let mut edge_types = source.edge_types().to_vec();
    let mut edge_books = Vec::new();
    for (place, info) in edge_types.iter_mut().enumerate() {
        let book = edge_book(source, place, books, parts, job)?;
        if let Some(book) = &book {
            info.book = Some(book.write(&writer, |array| path::edge_book(&info.name, array))?);
        }
        edge_books.push(book);
    }
    let copy = Copy { source, writer: &writer, books, edge_books: &edge_books };
    let nodes: u64 = node_types.iter().map(|info| info.count).sum();
    let edges: u64 = edge_types.iter().map(|info| info.count * info.layouts.len() as u64).sum();
    let node_stage = job.stage("copying nodes", Unit::Nodes, Some(nodes));
    (0..parts).into_par_iter().try_for_each(|part| copy.nodes(part, &node_stage))?;
    (0..node_types.len()).into_par_iter().try_for_each(|place| copy.node_table(place, job))?;
    drop(node_stage);
    let edge_stage = job.stage("copying edges", Unit::Edges, Some(edges));
    let cuts =
        (0..parts).into_par_iter().map(|part| copy.edges(part, &edge_stage)).collect::<Result<Vec<Vec<u64>>>>()?;
    drop(edge_stage);
    for (place, info) in edge_types.iter_mut().enumerate() {
        info.cut = cuts.iter().map(|cut| cut[place]).sum();
    }
    let mut manifest = Manifest::new(source.manifest().homogeneous, source.manifest().edge_dir, node_types, edge_types);
    manifest.parts = parts;
    method.clone_into(&mut manifest.method);
    let expected = source.fingerprint();
    writer.finish_if(manifest, |found| {
        if found != expected {
            let path = source.path().to_owned();
            return Err(graphmill_graph::Error::Fingerprint { path, expected, found }.into());
        }
        job.check()
    })
}

/// Where the features of each edge go: to the lowest partition that has the edge in its primary lists.
fn edge_book(
    source: &Dataset,
    edge_type: usize,
    books: &[BookBuilder],
    parts: u32,
    job: &Job<'_>,
) -> Result<Option<BookBuilder>> {
    const NOBODY: u16 = u16::MAX;
    let info = &source.edge_types()[edge_type];
    if info.features.is_empty() {
        return Ok(None);
    }
    if parts == 1 {
        return Ok(Some(BookBuilder::Range(vec![0, info.id_count])));
    }
    let direction = info.primary();
    let owners = &books[source.manifest().node_type(info.name.list_owner(direction))?];
    let mut owner = vec![NOBODY; info.id_count as usize];
    let stage = job.stage(&format!("placing the features of {}", info.name), Unit::Edges, Some(info.count));
    for (_, partition) in source.partitions() {
        let nodes = partition.nodes(source.manifest().node_type(info.name.list_owner(direction))?);
        let Some(lists) = partition.edges(edge_type).lists(direction) else { continue };
        let Some(edge_ids) = lists.edge_ids() else { continue };
        for row in 0..lists.rows() {
            let part = owners.owner(nodes.id(row).unwrap_or(0)) as u16;
            let list = lists.list(row)?;
            stage.advance(list.len() as u64)?;
            for id in edge_ids.as_slice().slice(list).iter().flat_map(|ids| ids.iter()) {
                let own = owner.get_mut(id as usize).ok_or_else(|| damaged(source, "an edge id is out of range"))?;
                *own = part.min(*own);
            }
        }
    }
    owner.iter_mut().filter(|own| **own == NOBODY).for_each(|own| *own = 0);
    Ok(Some(BookBuilder::Assigned { owner, parts }))
}

/// The bytes of a list in an array of ids.
fn span<'a>(bytes: &'a [u8], list: &Range<usize>, width: IdWidth) -> &'a [u8] {
    &bytes[list.start * width.size()..list.end * width.size()]
}

fn damaged(source: &Dataset, reason: &str) -> Error {
    Error::input(source.path().display().to_string(), format!("{reason}; check it with graphmill inspect --verify"))
}

/// Copies the rows and lists of the source into new partitions.
struct Copy<'a> {
    source: &'a Dataset,
    writer: &'a DatasetWriter,
    books: &'a [BookBuilder],
    edge_books: &'a [Option<BookBuilder>],
}

impl Copy<'_> {
    fn nodes(&self, part: u32, stage: &Stage) -> Result<()> {
        for (place, info) in self.source.node_types().iter().enumerate() {
            self.node_arrays(part, place, info)?;
            stage.advance(self.books[place].ids(part).count() as u64)?;
        }
        Ok(())
    }

    fn node_arrays(&self, part: u32, place: usize, info: &NodeTypeInfo) -> Result<()> {
        let book = &self.books[place];
        let array = |array| self.writer.array(Place::Part(part), &path::node(&info.name, array));
        let width = info.id_width();
        if matches!(book, BookBuilder::Assigned { .. }) {
            self.ids(book, part, &path::node(&info.name, NodeArray::Ids(width)), width)?;
        }
        for (feature, described) in info.features.iter().enumerate() {
            let path = path::node(&info.name, NodeArray::Feature(described));
            self.node_rows(part, place, &path, |partition| partition.nodes(place).feature(feature))?;
        }
        if let Some(label) = info.label {
            let path = path::node(&info.name, NodeArray::Label(label.dtype));
            self.node_rows(part, place, &path, |partition| partition.nodes(place).label())?;
        }
        if info.weights {
            let mut weights = array(NodeArray::Weights)?;
            for id in book.ids(part) {
                weights.write(&self.node_weight(place, id)?.to_le_bytes())?;
            }
            weights.finish()?;
        }
        if info.timestamps {
            let mut timestamps = array(NodeArray::Timestamps)?;
            for id in book.ids(part) {
                let (partition, row) = self.node(place, id)?;
                let values = partition.nodes(place).timestamps().unwrap_or_default();
                timestamps.write(&values.get(row).copied().unwrap_or_default().to_le_bytes())?;
            }
            timestamps.finish()?;
        }
        for (split, _) in info.splits.iter() {
            let mut ids = array(NodeArray::Split(split, width))?;
            for id in self.source.split_ids(place, split)? {
                if id < info.count && book.owner(id) == part {
                    ids.write_id(width, id)?;
                }
            }
            ids.finish()?;
        }
        if info.original_ids.is_some() {
            self.originals(part, place, info)?;
        }
        Ok(())
    }

    /// Writes what nodes of a type are drawn from, made from the weights again: a table of the source that is damaged goes
    /// no further.
    fn node_table(&self, place: usize, job: &Job<'_>) -> Result<()> {
        let info = &self.source.node_types()[place];
        if !info.weights {
            return Ok(());
        }
        let stores = self.source.partitions().map(|(_, partition)| partition.nodes(place));
        let weights = stores.flat_map(|nodes| nodes.weights().unwrap_or_default());
        let scale = Scale::new(info.count, weights.copied().fold(0.0, f32::max));
        let mut table = self.writer.array(Place::Book, &path::node_cumulative(&info.name))?;
        let mut sum = 0u64;
        for id in 0..info.count {
            if id.is_multiple_of(1 << 16) {
                job.check()?;
            }
            sum = sum.wrapping_add(scale.integer(self.node_weight(place, id)?));
            table.write(&sum.to_le_bytes())?;
        }
        Ok(table.finish()?)
    }

    fn originals(&self, part: u32, place: usize, info: &NodeTypeInfo) -> Result<()> {
        use graphmill_graph::OriginalKind::{Int, String};
        let array = |array| self.writer.array(Place::Part(part), &path::node(&info.name, array));
        let mut ints = (info.original_ids == Some(Int)).then(|| array(NodeArray::OriginalInts)).transpose()?;
        let mut offsets = (info.original_ids == Some(String)).then(|| array(NodeArray::OriginalOffsets)).transpose()?;
        let mut text = (info.original_ids == Some(String)).then(|| array(NodeArray::OriginalText)).transpose()?;
        let mut end = 0u64;
        if let Some(offsets) = &mut offsets {
            offsets.write(&end.to_le_bytes())?;
        }
        for id in self.books[place].ids(part) {
            let (partition, row) = self.node(place, id)?;
            let original = partition.nodes(place).originals().map(|originals| originals.get(row)).transpose()?;
            match (original.flatten(), &mut ints, &mut offsets, &mut text) {
                (Some(OriginalId::Int(key)), Some(ints), ..) => ints.write(&key.to_le_bytes())?,
                (Some(OriginalId::String(key)), _, Some(offsets), Some(text)) => {
                    end += key.len() as u64;
                    text.write(key.as_bytes())?;
                    offsets.write(&end.to_le_bytes())?;
                }
                _ => return Err(damaged(self.source, "an original id is missing")),
            }
        }
        [ints, offsets, text].into_iter().flatten().try_for_each(|array| Ok(array.finish()?))
    }

    /// Copies the edges of a partition; returns how many of each type are cut.
    fn edges(&self, part: u32, stage: &Stage) -> Result<Vec<u64>> {
        let mut cuts = Vec::new();
        for (place, info) in self.source.edge_types().iter().enumerate() {
            let mut cut = 0;
            for &direction in &info.layouts {
                let foreign = self.lists(part, place, info, direction, stage)?;
                if direction == info.primary() {
                    cut = foreign;
                }
            }
            cuts.push(cut);
            let Some(book) = &self.edge_books[place] else { continue };
            if matches!(book, BookBuilder::Assigned { .. }) {
                let width = info.id_width();
                self.ids(book, part, &path::edge(&info.name, EdgeArray::Ids(width)), width)?;
            }
            for (feature, described) in info.features.iter().enumerate() {
                self.edge_rows(part, place, info, feature, described)?;
            }
        }
        Ok(cuts)
    }

    /// Copies the lists of one direction; returns how many neighbours belong to another partition.
    fn lists(&self, part: u32, place: usize, info: &EdgeTypeInfo, direction: Direction, stage: &Stage) -> Result<u64> {
        let array = |array| self.writer.array(Place::Part(part), &path::edge(&info.name, array));
        let owner = self.source.manifest().node_type(info.name.list_owner(direction))?;
        let neighbor = self.source.manifest().node_type(info.name.neighbor(direction))?;
        let neighbor_width = self.source.node_types()[neighbor].id_width();
        let neighbor_book = &self.books[neighbor];
        let neighbor_count = self.source.node_types()[neighbor].count;
        let width = info.id_width();

        let mut indptr = array(EdgeArray::Indptr(direction, info.indptr_width()))?;
        let mut neighbors = array(EdgeArray::Neighbors(direction, neighbor_width))?;
        let mut edge_ids = info.edge_ids.then(|| array(EdgeArray::EdgeIds(direction, width))).transpose()?;
        let mut weights = info.weights.then(|| array(EdgeArray::Weights(direction))).transpose()?;
        let mut tables = info.weights.then(|| ListTables::new(self.writer, info, direction, part)).transpose()?;
        let mut timestamps = info.timestamps.then(|| array(EdgeArray::Timestamps(direction))).transpose()?;
        let (mut end, mut cut, mut pending) = (0, 0, 0);
        indptr.write_id(info.indptr_width(), 0)?;
        for id in self.books[owner].ids(part) {
            let (partition, row) = self.node(owner, id)?;
            let Some(lists) = partition.edges(place).lists(direction) else {
                return Err(damaged(self.source, "neighbour lists are missing"));
            };
            let list = lists.list(row)?;
            end += list.len() as u64;
            indptr.write_id(info.indptr_width(), end)?;
            for neighbor in lists.neighbors().as_slice().slice(list.clone()).iter().flat_map(|ids| ids.iter()) {
                if neighbor >= neighbor_count {
                    return Err(damaged(self.source, "a neighbour is out of range"));
                }
                cut += u64::from(neighbor_book.owner(neighbor) != part);
            }
            neighbors.write(span(lists.neighbors().bytes(), &list, neighbor_width))?;
            if let (Some(array), Some(ids)) = (&mut edge_ids, lists.edge_ids()) {
                array.write(span(ids.bytes(), &list, width))?;
            }
            if let (Some(array), Some(values)) = (&mut weights, lists.weights()) {
                array.write(bytemuck::cast_slice(&values[list.clone()]))?;
            }
            if let (Some(tables), Some(values)) = (&mut tables, lists.weights()) {
                tables.write(&values[list.clone()])?;
            }
            if let (Some(array), Some(values)) = (&mut timestamps, lists.timestamps()) {
                array.write(bytemuck::cast_slice(&values[list.clone()]))?;
            }
            pending += list.len() as u64;
            if pending >= 1 << 14 {
                stage.advance(std::mem::take(&mut pending))?;
            }
        }
        stage.advance(pending)?;
        indptr.finish()?;
        neighbors.finish()?;
        [edge_ids, weights, timestamps].into_iter().flatten().try_for_each(ArrayWriter::finish)?;
        tables.map(ListTables::finish).transpose()?;
        Ok(cut)
    }

    fn ids(&self, book: &BookBuilder, part: u32, path: &str, width: IdWidth) -> Result<()> {
        let mut ids = self.writer.array(Place::Part(part), path)?;
        book.ids(part).try_for_each(|id| ids.write_id(width, id))?;
        Ok(ids.finish()?)
    }

    fn node_rows<'s>(
        &'s self,
        part: u32,
        place: usize,
        path: &str,
        tensor: impl Fn(&'s Partition) -> Option<&'s Tensor>,
    ) -> Result<()> {
        let mut array = self.writer.array(Place::Part(part), path)?;
        for id in self.books[place].ids(part) {
            let (partition, row) = self.node(place, id)?;
            let bytes = tensor(partition).and_then(|tensor| tensor.row(row));
            array.write(bytes.ok_or_else(|| damaged(self.source, "a row is missing"))?)?;
        }
        Ok(array.finish()?)
    }

    fn edge_rows(
        &self,
        part: u32,
        place: usize,
        info: &EdgeTypeInfo,
        feature: usize,
        described: &FeatureInfo,
    ) -> Result<()> {
        let path = path::edge(&info.name, EdgeArray::Feature(described));
        let mut array = self.writer.array(Place::Part(part), &path)?;
        let (Some(target), Some(source)) = (&self.edge_books[place], self.source.edge_book(place)) else {
            return Err(damaged(self.source, "an edge book is missing"));
        };
        for id in target.ids(part) {
            let location = source.locate(id)?.ok_or_else(|| damaged(self.source, "an edge id is out of range"))?;
            let tensor = self.source.partition(location.partition)?.edges(place).feature(feature);
            let bytes = tensor.and_then(|tensor| tensor.row(location.row));
            array.write(bytes.ok_or_else(|| damaged(self.source, "a row is missing"))?)?;
        }
        Ok(array.finish()?)
    }

    fn node_weight(&self, place: usize, id: u64) -> Result<f32> {
        let (partition, row) = self.node(place, id)?;
        let weight = partition.nodes(place).weights().and_then(|weights| weights.get(row));
        weight.copied().ok_or_else(|| damaged(self.source, "a weight is missing"))
    }

    fn node(&self, place: usize, id: u64) -> Result<(&Partition, usize)> {
        let Location { partition, row } = self.source.locate_node(place, id)?;
        Ok((self.source.partition(partition)?, row))
    }
}

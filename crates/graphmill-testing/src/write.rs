//! The oracle writer: follows `docs/format.md` line by line, one partition and one list after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use graphmill_graph::path::{self, EdgeArray, NodeArray};
use graphmill_graph::{
    BookBuilder, BookInfo, DatasetWriter, Direction, EdgeRole, EdgeTypeInfo, EdgeTypeName, FeatureInfo, IdWidth,
    LabelInfo, Manifest, NodeTypeInfo, Place, Replace, Result, Split,
};

use crate::{ModelEdge, ModelEdges, ModelGraph, ModelNodes, ModelOriginals, ModelTensor};
use crate::{alias_table, running_sums};

/// Which partition owns which node.
#[derive(Debug, Clone)]
pub struct Assignment {
    parts: u32,
    books: BTreeMap<String, BookBuilder>,
}

impl Assignment {
    /// Everything in one partition.
    pub fn whole(graph: &ModelGraph) -> Self {
        Self::new(graph, 1, |_, count| BookBuilder::Range(vec![0, count]))
    }

    /// Equal stretches of ids.
    pub fn ranges(graph: &ModelGraph, parts: u32) -> Self {
        Self::new(graph, parts, |_, count| {
            BookBuilder::Range((0..=u64::from(parts)).map(|part| count * part / u64::from(parts)).collect())
        })
    }

    /// An owner for each id of each type.
    pub fn assigned(graph: &ModelGraph, parts: u32, owner: impl Fn(&str, u64) -> u16) -> Self {
        Self::new(graph, parts, |name, count| BookBuilder::Assigned {
            owner: (0..count).map(|id| owner(name, id)).collect(),
            parts,
        })
    }

    /// A book for each node type, given its name and count.
    pub fn new(graph: &ModelGraph, parts: u32, book: impl Fn(&str, u64) -> BookBuilder) -> Self {
        Self { parts, books: graph.nodes.iter().map(|(name, nodes)| (name.clone(), book(name, nodes.count))).collect() }
    }

    /// Number of partitions.
    pub fn parts(&self) -> u32 {
        self.parts
    }

    /// The book of a node type.
    pub fn book(&self, node_type: &str) -> &BookBuilder {
        &self.books[node_type]
    }
}

/// Writes a new dataset. Edge types of role `label` get the layout `out` as well when it is not asked for.
pub fn write(graph: &ModelGraph, target: &Path, layouts: &[Direction], assignment: &Assignment) -> Result<Manifest> {
    write_with(DatasetWriter::create(target, Replace::No)?, graph, layouts, assignment)
}

/// Writes a dataset through a writer that was made already.
pub fn write_with(
    writer: DatasetWriter,
    graph: &ModelGraph,
    layouts: &[Direction],
    assignment: &Assignment,
) -> Result<Manifest> {
    let oracle = Oracle { writer: &writer, layouts, assignment };
    let nodes = graph.nodes.iter().map(|(name, nodes)| oracle.nodes(name, nodes)).collect::<Result<_>>()?;
    let edges = graph.edges.iter().map(|(name, edges)| oracle.edges(name, edges)).collect::<Result<_>>()?;
    let mut manifest = Manifest::new(graph.homogeneous, graph.edge_dir, nodes, edges);
    manifest.parts = assignment.parts;
    writer.finish(manifest)
}

struct Oracle<'a> {
    writer: &'a DatasetWriter,
    layouts: &'a [Direction],
    assignment: &'a Assignment,
}

impl Oracle<'_> {
    fn nodes(&self, name: &str, nodes: &ModelNodes) -> Result<NodeTypeInfo> {
        let book = self.assignment.book(name);
        let mut info = NodeTypeInfo::new(name, nodes.count);
        info.book = book.write(self.writer, |array| path::node_book(name, array))?;
        info.features = feature_infos(&nodes.features);
        info.label =
            nodes.label.as_ref().map(|label| LabelInfo { kind: label.kind, dtype: label.dtype, width: label.width });
        info.weights = nodes.weights.is_some();
        info.timestamps = nodes.timestamps.is_some();
        info.original_ids = nodes.originals.as_ref().map(ModelOriginals::kind);
        for split in Split::ALL {
            if let Some(members) = nodes.split(split) {
                info.splits.set(split, members.len() as u64);
            }
        }
        if let Some(weights) = &nodes.weights {
            self.put(Place::Book, &path::node_cumulative(name), &word_bytes(&running_sums(weights)))?;
        }
        for partition in 0..self.assignment.parts {
            let owned: Vec<u64> = book.ids(partition).collect();
            self.node_arrays(&info, nodes, &owned, partition)?;
        }
        Ok(info)
    }

    fn node_arrays(&self, info: &NodeTypeInfo, nodes: &ModelNodes, owned: &[u64], partition: u32) -> Result<()> {
        let width = info.id_width();
        let put = |array, bytes: &[u8]| self.put(Place::Part(partition), &path::node(&info.name, array), bytes);
        if matches!(info.book, BookInfo::Assigned { .. }) {
            put(NodeArray::Ids(width), &id_bytes(width, owned))?;
        }
        for feature in &info.features {
            let bytes = rows(&nodes.features[&feature.name].rows, owned);
            self.place(partition, &path::node(&info.name, NodeArray::Feature(feature)), &bytes)?;
        }
        if let Some(label) = &nodes.label {
            put(NodeArray::Label(label.dtype), &rows(&label.rows, owned))?;
        }
        if let Some(weights) = &nodes.weights {
            let bytes: Vec<u8> = owned.iter().flat_map(|&id| weights[id as usize].to_le_bytes()).collect();
            put(NodeArray::Weights, &bytes)?;
        }
        if let Some(timestamps) = &nodes.timestamps {
            put(NodeArray::Timestamps, &int_bytes(timestamps, owned))?;
        }
        for split in Split::ALL {
            if let Some(members) = nodes.split(split) {
                let here: Vec<u64> = owned.iter().copied().filter(|id| members.contains(id)).collect();
                put(NodeArray::Split(split, width), &id_bytes(width, &here))?;
            }
        }
        match &nodes.originals {
            None => Ok(()),
            Some(ModelOriginals::Ints(keys)) => put(NodeArray::OriginalInts, &int_bytes(keys, owned)),
            Some(ModelOriginals::Strings(keys)) => {
                let (mut offsets, mut text) = (0u64.to_le_bytes().to_vec(), Vec::new());
                for &id in owned {
                    text.extend_from_slice(keys[id as usize].as_bytes());
                    offsets.extend_from_slice(&(text.len() as u64).to_le_bytes());
                }
                put(NodeArray::OriginalOffsets, &offsets)?;
                put(NodeArray::OriginalText, &text)
            }
        }
    }

    fn edges(&self, name: &EdgeTypeName, edges: &ModelEdges) -> Result<EdgeTypeInfo> {
        let mut layouts = self.layouts.to_vec();
        if edges.role == EdgeRole::Label && !layouts.contains(&Direction::Out) {
            layouts.push(Direction::Out);
        }
        let (src, dst) = (self.assignment.book(&name.src), self.assignment.book(&name.dst));
        let mut info = EdgeTypeInfo::new(name.clone(), edges.edges.len() as u64, layouts);
        info.role = edges.role;
        info.edge_ids = edges.edge_ids;
        info.id_count = edges.id_count;
        info.weights = edges.weights;
        info.timestamps = edges.timestamps;
        info.features = feature_infos(&edges.features);
        info.cut = edges.edges.iter().filter(|edge| src.owner(edge.src) != dst.owner(edge.dst)).count() as u64;
        for partition in 0..self.assignment.parts {
            for &direction in &info.layouts {
                self.list_arrays(&info, edges, direction, partition)?;
            }
        }
        if !info.features.is_empty() {
            let book = self.edge_book(&info, edges);
            info.book = Some(book.write(self.writer, |array| path::edge_book(name, array))?);
            for partition in 0..self.assignment.parts {
                let owned: Vec<u64> = book.ids(partition).collect();
                self.edge_features(&info, edges, &owned, partition)?;
            }
        }
        Ok(info)
    }

    fn list_arrays(&self, info: &EdgeTypeInfo, model: &ModelEdges, direction: Direction, partition: u32) -> Result<()> {
        let (owner, neighbor) = (info.name.list_owner(direction), info.name.neighbor(direction));
        let neighbor_count = self.assignment.book(neighbor).rows().iter().sum();
        let (mut indptr, mut edges) = (vec![0], Vec::new());
        let (mut sums, mut aliases) = (Vec::new(), Vec::new());
        for id in self.assignment.book(owner).ids(partition) {
            let mut list: Vec<ModelEdge> =
                model.edges.iter().copied().filter(|edge| edge.list_owner(direction) == id).collect();
            list.sort_by_key(|edge| (edge.timestamp, edge.neighbor(direction), edge.id));
            let weights: Vec<u32> = list.iter().filter_map(|edge| edge.weight).collect();
            sums.extend(running_sums(&weights));
            aliases.extend(alias_table(&weights));
            edges.extend(list);
            indptr.push(edges.len() as u64);
        }
        let put = |array, bytes: &[u8]| self.put(Place::Part(partition), &path::edge(&info.name, array), bytes);
        let width = info.indptr_width();
        put(EdgeArray::Indptr(direction, width), &id_bytes(width, &indptr))?;
        let neighbors: Vec<u64> = edges.iter().map(|edge| edge.neighbor(direction)).collect();
        let width = IdWidth::for_count(neighbor_count);
        put(EdgeArray::Neighbors(direction, width), &id_bytes(width, &neighbors))?;
        if model.edge_ids {
            let ids: Vec<u64> = edges.iter().filter_map(|edge| edge.id).collect();
            put(EdgeArray::EdgeIds(direction, info.id_width()), &id_bytes(info.id_width(), &ids))?;
        }
        if model.weights {
            let bytes: Vec<u8> = edges.iter().filter_map(|edge| edge.weight).flat_map(u32::to_le_bytes).collect();
            put(EdgeArray::Weights(direction), &bytes)?;
            put(EdgeArray::Cumulative(direction), &word_bytes(&sums))?;
            put(EdgeArray::Alias(direction), &word_bytes(&aliases))?;
        }
        if model.timestamps {
            let bytes: Vec<u8> = edges.iter().filter_map(|edge| edge.timestamp).flat_map(i64::to_le_bytes).collect();
            put(EdgeArray::Timestamps(direction), &bytes)?;
        }
        Ok(())
    }

    /// The features of an edge are in the lowest partition that has it in its primary layout, else in partition 0.
    fn edge_book(&self, info: &EdgeTypeInfo, model: &ModelEdges) -> BookBuilder {
        if self.assignment.parts == 1 {
            return BookBuilder::Range(vec![0, model.id_count]);
        }
        let direction = info.primary();
        let lists = self.assignment.book(info.name.list_owner(direction));
        let mut owners = vec![BTreeSet::new(); model.id_count as usize];
        for edge in &model.edges {
            if let Some(id) = edge.id {
                owners[id as usize].insert(lists.owner(edge.list_owner(direction)) as u16);
            }
        }
        let owner = owners.iter().map(|owners| owners.first().copied().unwrap_or(0)).collect();
        BookBuilder::Assigned { owner, parts: self.assignment.parts }
    }

    fn edge_features(&self, info: &EdgeTypeInfo, edges: &ModelEdges, owned: &[u64], partition: u32) -> Result<()> {
        if matches!(info.book, Some(BookInfo::Assigned { .. })) {
            let width = info.id_width();
            let path = path::edge(&info.name, EdgeArray::Ids(width));
            self.put(Place::Part(partition), &path, &id_bytes(width, owned))?;
        }
        for feature in &info.features {
            let bytes = rows(&edges.features[&feature.name].rows, owned);
            self.place(partition, &path::edge(&info.name, EdgeArray::Feature(feature)), &bytes)?;
        }
        Ok(())
    }

    fn put(&self, place: Place, path: &str, bytes: &[u8]) -> Result<()> {
        let mut array = self.writer.array(place, path)?;
        array.write(bytes)?;
        array.finish()
    }

    fn place(&self, partition: u32, path: &str, bytes: &[u8]) -> Result<()> {
        let mut array = self.writer.placed_array(Place::Part(partition), path, bytes.len() as u64)?;
        array.bytes_mut().copy_from_slice(bytes);
        array.finish()
    }
}

fn feature_infos(features: &BTreeMap<String, ModelTensor>) -> Vec<FeatureInfo> {
    let info = |(name, tensor): (&String, &ModelTensor)| FeatureInfo {
        name: name.clone(),
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
    };
    features.iter().map(info).collect()
}

fn rows(rows: &[Vec<u8>], ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| rows[id as usize].iter().copied()).collect()
}

fn int_bytes(values: &[i64], ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| values[id as usize].to_le_bytes()).collect()
}

fn word_bytes(words: &[u64]) -> Vec<u8> {
    words.iter().copied().flat_map(u64::to_le_bytes).collect()
}

fn id_bytes(width: IdWidth, ids: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &id in ids {
        width.push(&mut bytes, id);
    }
    bytes
}

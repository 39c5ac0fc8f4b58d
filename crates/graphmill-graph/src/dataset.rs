//! An opened dataset.

use std::path::{Path, PathBuf};

use bytemuck::Pod;

use crate::array::{Array, Tensor};
use crate::book::{self, Book, RowIds};
use crate::manifest::{PartitionArrays, StoredArray, listed};
use crate::original::OriginalStrings;
use crate::path::{self, BookArray, EdgeArray, NodeArray};
use crate::region::Region;
use crate::{
    Adjacency, BookInfo, Direction, EdgeTypeInfo, EdgeTypeName, Error, FeatureInfo, Fingerprint, IdArray, IdWidth,
    Location, Manifest, NodeStore, NodeTypeInfo, OriginalId, OriginalKind, Originals, Result, Split,
};

/// How the arrays are held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Storage {
    /// Mapped from their files: opens at once and reads what is touched.
    #[default]
    Mmap,
    /// Read into huge-page-advised memory, checksums checked on the way.
    Ram,
}

/// What to open, and how.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// How the arrays are held.
    pub storage: Storage,
    /// The partitions to open; all when absent.
    pub partitions: Option<Vec<u32>>,
}

/// An opened dataset: its manifest, its books and the partitions that were asked for. A clone shares their memory.
#[derive(Debug, Clone)]
pub struct Dataset {
    path: PathBuf,
    manifest: Manifest,
    node_books: Vec<Book>,
    node_cumulative: Vec<Option<Array<u64>>>,
    edge_books: Vec<Option<Book>>,
    partitions: Vec<Option<Partition>>,
}

/// One partition: a node store per node type and an edge store per edge type, in manifest order.
#[derive(Debug, Clone)]
pub struct Partition {
    nodes: Vec<NodeStore>,
    edges: Vec<EdgeStore>,
}

/// What one partition holds of one edge type.
#[derive(Debug, Clone)]
pub struct EdgeStore {
    lists_in: Option<Adjacency>,
    lists_out: Option<Adjacency>,
    /// The first edge id of a range partition.
    start: u64,
    /// Feature row to edge id, where the book is not a range.
    ids: Option<IdArray>,
    features: Vec<Tensor>,
}

impl Dataset {
    /// Opens all partitions by mapping them.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens a dataset.
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let path = path.as_ref();
        Self::from_manifest(path, Manifest::read(path)?, options)
    }

    /// The same with further partitions; what is open already is shared, not opened again.
    pub fn with_partitions(&self, partitions: &[u32], storage: Storage) -> Result<Self> {
        let mut more = self.clone();
        for partition in self.manifest.wanted(Some(partitions))? {
            let place = &mut more.partitions[partition as usize];
            if place.is_none() {
                *place = Some(Partition::open(&self.path, &self.manifest, partition, storage)?);
            }
        }
        Ok(more)
    }

    pub(crate) fn from_manifest(path: &Path, manifest: Manifest, options: &OpenOptions) -> Result<Self> {
        let parts = manifest.parts;
        let wanted = manifest.wanted(options.partitions.as_deref())?;
        let books = Folder::books(path, &manifest, options.storage);
        let node_books = manifest
            .node_types
            .iter()
            .map(|info| books.book(&info.book, info.count, parts, |array| path::node_book(&info.name, array)))
            .collect::<Result<_>>()?;
        let node_cumulative = manifest
            .node_types
            .iter()
            .map(|info| info.weights.then(|| books.array(&path::node_cumulative(&info.name))).transpose())
            .collect::<Result<_>>()?;
        let edge_books = manifest
            .edge_types
            .iter()
            .map(|info| {
                let open = |book| books.book(book, info.id_count, parts, |array| path::edge_book(&info.name, array));
                info.book.as_ref().map(open).transpose()
            })
            .collect::<Result<_>>()?;
        let mut partitions: Vec<Option<Partition>> = (0..parts).map(|_| None).collect();
        for partition in wanted {
            partitions[partition as usize] = Some(Partition::open(path, &manifest, partition, options.storage)?);
        }
        Ok(Self { path: path.to_owned(), manifest, node_books, node_cumulative, edge_books, partitions })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The logical content's name.
    pub fn fingerprint(&self) -> Fingerprint {
        self.manifest.fingerprint
    }

    /// Number of partitions, opened or not.
    pub fn parts(&self) -> u32 {
        self.manifest.parts
    }

    /// Node types in manifest order; the places used below are indices of this list.
    pub fn node_types(&self) -> &[NodeTypeInfo] {
        &self.manifest.node_types
    }

    /// Edge types in manifest order; the places used below are indices of this list.
    pub fn edge_types(&self) -> &[EdgeTypeInfo] {
        &self.manifest.edge_types
    }

    /// The place of a node type; no name means the only one of a homogeneous graph.
    ///
    /// # Errors
    /// When there is no such type, when a name is missing, or when one is given for a homogeneous graph.
    pub fn resolve_node_type(&self, name: Option<&str>) -> Result<usize> {
        self.manifest.resolve_node_type(name)
    }

    /// The place of an edge type; no name means the only one of a homogeneous graph.
    ///
    /// # Errors
    /// As for [`Self::resolve_node_type`].
    pub fn resolve_edge_type(&self, name: Option<&EdgeTypeName>) -> Result<usize> {
        self.manifest.resolve_edge_type(name)
    }

    /// The book of a node type by place.
    pub fn node_book(&self, node_type: usize) -> &Book {
        &self.node_books[node_type]
    }

    /// The running sums of a node type's integer weights in the order of ids, by place, if its nodes have weights: what to
    /// draw from, whatever partitions are opened. See [`crate::weights`].
    pub fn node_cumulative(&self, node_type: usize) -> Option<&Array<u64>> {
        self.node_cumulative[node_type].as_ref()
    }

    /// The book of an edge type's features by place, if it has any.
    pub fn edge_book(&self, edge_type: usize) -> Option<&Book> {
        self.edge_books[edge_type].as_ref()
    }

    /// An opened partition.
    pub fn partition(&self, partition: u32) -> Result<&Partition> {
        let opened = self.partitions.get(partition as usize).and_then(Option::as_ref);
        opened.ok_or_else(|| Error::PartitionAbsent { path: self.path.clone(), partition })
    }

    /// The opened partitions with their numbers.
    pub fn partitions(&self) -> impl Iterator<Item = (u32, &Partition)> {
        (0..).zip(&self.partitions).filter_map(|(number, partition)| partition.as_ref().map(|open| (number, open)))
    }

    /// Where a node lives.
    ///
    /// # Errors
    /// When the id is out of range.
    pub fn locate_node(&self, node_type: usize, id: u64) -> Result<Location> {
        self.node_books[node_type].locate(id)?.ok_or_else(|| {
            let info = &self.node_types()[node_type];
            Error::OutOfRange { kind: "node", name: info.name.clone(), id, count: info.count }
        })
    }

    /// All ids of a split in ascending order, over all partitions, which must be opened.
    ///
    /// # Errors
    /// When there is no such split.
    pub fn split_ids(&self, node_type: usize, split: Split) -> Result<Vec<u64>> {
        let info = &self.node_types()[node_type];
        if info.splits.get(split).is_none() {
            return Err(Error::Unknown {
                kind: "split",
                name: split.to_string(),
                available: listed(info.splits.iter().map(|(split, _)| split)),
            });
        }
        let mut ids = Vec::new();
        for partition in 0..self.parts() {
            if let Some(part) = self.partition(partition)?.nodes[node_type].split(split) {
                ids.extend(part.as_slice().iter());
            }
        }
        if !ids.is_sorted() {
            ids.sort_unstable();
        }
        Ok(ids)
    }

    /// What nodes were called in the input: their own numbers where the input had dense ids.
    ///
    /// # Errors
    /// When an id is out of range.
    pub fn original_ids(&self, node_type: usize, ids: &[u64]) -> Result<Vec<OriginalId<'_>>> {
        ids.iter()
            .map(|&id| {
                let location = self.locate_node(node_type, id)?;
                let nodes = &self.partition(location.partition)?.nodes[node_type];
                let Some(originals) = &nodes.originals else { return Ok(OriginalId::Int(id as i64)) };
                originals.get(location.row)?.ok_or_else(|| {
                    let reason = format!("node {id} should be in row {}, there are {}", location.row, originals.len());
                    Error::corrupt(&self.path, reason)
                })
            })
            .collect()
    }

    /// The ids of nodes by what they were called in the input; nothing for a name that is not there.
    pub fn lookup(&self, node_type: usize, keys: &[OriginalId<'_>]) -> Result<Vec<Option<u64>>> {
        keys.iter().map(|&key| self.lookup_one(node_type, key)).collect()
    }

    fn lookup_one(&self, node_type: usize, key: OriginalId<'_>) -> Result<Option<u64>> {
        let info = &self.node_types()[node_type];
        if info.original_ids.is_none() {
            let OriginalId::Int(id) = key else { return Ok(None) };
            return Ok(u64::try_from(id).ok().filter(|&id| id < info.count));
        }
        for partition in 0..self.parts() {
            let nodes = &self.partition(partition)?.nodes[node_type];
            let Some(originals) = &nodes.originals else { continue };
            if let Some(row) = originals.find(key)? {
                return Ok(nodes.id(row));
            }
        }
        Ok(None)
    }
}

impl Partition {
    fn open(dataset: &Path, manifest: &Manifest, partition: u32, storage: Storage) -> Result<Self> {
        let folder = Folder::partition(dataset, manifest, partition, storage);
        let nodes = manifest.node_types.iter().map(|info| folder.nodes(info, partition)).collect::<Result<_>>()?;
        let edges =
            manifest.edge_types.iter().map(|info| folder.edges(manifest, info, partition)).collect::<Result<_>>()?;
        Ok(Self { nodes, edges })
    }

    /// The nodes of a type by place.
    pub fn nodes(&self, node_type: usize) -> &NodeStore {
        &self.nodes[node_type]
    }

    /// The edges of a type by place.
    pub fn edges(&self, edge_type: usize) -> &EdgeStore {
        &self.edges[edge_type]
    }
}

impl EdgeStore {
    /// The neighbour lists of a direction, if stored.
    pub fn lists(&self, direction: Direction) -> Option<&Adjacency> {
        match direction {
            Direction::In => self.lists_in.as_ref(),
            Direction::Out => self.lists_out.as_ref(),
        }
    }

    /// A feature by its place in the edge type's list.
    pub fn feature(&self, place: usize) -> Option<&Tensor> {
        self.features.get(place)
    }

    /// The edge id of a feature row; nothing past the end.
    pub fn id(&self, row: usize) -> Option<u64> {
        let rows = self.features.first().map_or(0, Tensor::rows);
        if row < rows { self.row_ids().get(row) } else { None }
    }

    pub(crate) fn row_ids(&self) -> RowIds<'_> {
        match &self.ids {
            Some(ids) => RowIds::Listed(ids.as_slice()),
            None => RowIds::Stretch(self.start),
        }
    }
}

/// One folder of arrays, opened as the manifest describes them.
struct Folder<'a> {
    path: PathBuf,
    arrays: &'a std::collections::BTreeMap<String, StoredArray>,
    storage: Storage,
}

impl<'a> Folder<'a> {
    fn books(dataset: &Path, manifest: &'a Manifest, storage: Storage) -> Self {
        Self { path: dataset.join("book"), arrays: &manifest.book_arrays, storage }
    }

    fn partition(dataset: &Path, manifest: &'a Manifest, partition: u32, storage: Storage) -> Self {
        let PartitionArrays { arrays } = &manifest.partitions[partition as usize];
        Self { path: dataset.join(path::part(partition)), arrays, storage }
    }

    fn nodes(&self, info: &NodeTypeInfo, partition: u32) -> Result<NodeStore> {
        let rows = info.book.rows(partition) as usize;
        let width = info.id_width();
        let path = |array| path::node(&info.name, array);
        let mut splits = [const { None }; 3];
        for (split, _) in info.splits.iter() {
            splits[split as usize] = Some(self.ids(&path(NodeArray::Split(split, width)), width)?);
        }
        let (start, ids) = self.row_ids(&info.book, partition, &path(NodeArray::Ids(width)), width)?;
        let originals = match info.original_ids {
            None => None,
            Some(OriginalKind::Int) => Some(Originals::Ints(self.array(&path(NodeArray::OriginalInts))?)),
            Some(OriginalKind::String) => {
                let offsets = path(NodeArray::OriginalOffsets);
                Some(Originals::Strings(OriginalStrings {
                    offsets: self.array(&offsets)?,
                    text: self.array(&path(NodeArray::OriginalText))?,
                    path: self.path.join(offsets),
                }))
            }
        };
        Ok(NodeStore {
            rows,
            start,
            ids,
            features: self
                .features(&info.features, rows, |feature| path::node(&info.name, NodeArray::Feature(feature)))?,
            label: info
                .label
                .map(|label| self.tensor(&path(NodeArray::Label(label.dtype)), &label.as_feature(), rows))
                .transpose()?,
            weights: info.weights.then(|| self.array(&path(NodeArray::Weights))).transpose()?,
            timestamps: info.timestamps.then(|| self.array(&path(NodeArray::Timestamps))).transpose()?,
            splits,
            originals,
        })
    }

    fn edges(&self, manifest: &Manifest, info: &EdgeTypeInfo, partition: u32) -> Result<EdgeStore> {
        let path = |array| path::edge(&info.name, array);
        let lists = |direction| {
            let stored = info.layouts.contains(&direction);
            stored.then(|| self.lists(manifest, info, direction)).transpose()
        };
        let (mut start, mut ids, mut features) = (0, None, Vec::new());
        if let Some(book) = &info.book {
            let width = info.id_width();
            (start, ids) = self.row_ids(book, partition, &path(EdgeArray::Ids(width)), width)?;
            let rows = book.rows(partition) as usize;
            features =
                self.features(&info.features, rows, |feature| path::edge(&info.name, EdgeArray::Feature(feature)))?;
        }
        Ok(EdgeStore { lists_in: lists(Direction::In)?, lists_out: lists(Direction::Out)?, start, ids, features })
    }

    fn lists(&self, manifest: &Manifest, info: &EdgeTypeInfo, direction: Direction) -> Result<Adjacency> {
        let path = |array| path::edge(&info.name, array);
        let neighbor = manifest.node_types[manifest.node_type(info.name.neighbor(direction))?].id_width();
        let indptr = info.indptr_width();
        let edge_ids = || self.ids(&path(EdgeArray::EdgeIds(direction, info.id_width())), info.id_width());
        Ok(Adjacency {
            indptr: self.ids(&path(EdgeArray::Indptr(direction, indptr)), indptr)?,
            neighbors: self.ids(&path(EdgeArray::Neighbors(direction, neighbor)), neighbor)?,
            edge_ids: info.edge_ids.then(edge_ids).transpose()?,
            weights: info.weights.then(|| self.array(&path(EdgeArray::Weights(direction)))).transpose()?,
            cumulative: info.weights.then(|| self.array(&path(EdgeArray::Cumulative(direction)))).transpose()?,
            alias: info.weights.then(|| self.array(&path(EdgeArray::Alias(direction)))).transpose()?,
            timestamps: info.timestamps.then(|| self.array(&path(EdgeArray::Timestamps(direction)))).transpose()?,
            path: self.path.join(path(EdgeArray::Indptr(direction, indptr))),
        })
    }

    fn book(&self, info: &BookInfo, count: u64, parts: u32, path: impl Fn(BookArray) -> String) -> Result<Book> {
        if let BookInfo::Range { bounds } = info {
            return Ok(Book::range(bounds.clone()));
        }
        let shape = book::Shape::new(count, parts);
        let owner = path(BookArray::Owner(shape.wide));
        let rank = self.ids(&path(BookArray::Rank(shape.rank)), shape.rank)?;
        let mut book = if shape.wide {
            Book::wide(self.array(&owner)?, rank, shape, self.path.join(&owner))
        } else {
            Book::narrow(self.array(&owner)?, rank, shape, self.path.join(&owner))
        };
        if self.storage == Storage::Ram {
            book.spread();
        }
        Ok(book)
    }

    /// How rows map to ids: the start of a stretch, or a stored list.
    fn row_ids(&self, book: &BookInfo, partition: u32, path: &str, width: IdWidth) -> Result<(u64, Option<IdArray>)> {
        match book {
            BookInfo::Range { bounds } => Ok((bounds[partition as usize], None)),
            BookInfo::Assigned { .. } => Ok((0, Some(self.ids(path, width)?))),
        }
    }

    fn features(
        &self,
        infos: &[FeatureInfo],
        rows: usize,
        path: impl Fn(&FeatureInfo) -> String,
    ) -> Result<Vec<Tensor>> {
        infos.iter().map(|info| self.tensor(&path(info), info, rows)).collect()
    }

    fn tensor(&self, path: &str, info: &FeatureInfo, rows: usize) -> Result<Tensor> {
        Ok(Tensor::new(self.region(path)?, info, rows))
    }

    fn ids(&self, path: &str, width: IdWidth) -> Result<IdArray> {
        Ok(match width {
            IdWidth::U32 => IdArray::U32(self.array(path)?),
            IdWidth::U64 => IdArray::U64(self.array(path)?),
        })
    }

    fn array<T: Pod>(&self, path: &str) -> Result<Array<T>> {
        Ok(Array::new(self.region(path)?))
    }

    fn region(&self, path: &str) -> Result<Region> {
        let file = self.path.join(path);
        // A validated manifest lists every array that is asked for here.
        let Some(stored) = self.arrays.get(path) else {
            return Err(Error::corrupt(&file, "the manifest does not list it"));
        };
        match self.storage {
            Storage::Mmap => Region::map(&file, stored.bytes),
            Storage::Ram => Region::load(&file, stored.bytes, stored.xxh3),
        }
    }
}

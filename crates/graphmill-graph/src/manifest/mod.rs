//! The manifest: the one readable file that says what a dataset holds.

mod files;
mod validate;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::checksum::{checksum, hex};
use crate::{DType, Error, Fingerprint, IdWidth, Result};

pub use files::ArrayFile;

/// The manifest's file name.
pub const MANIFEST_FILE: &str = "manifest.json";
/// The largest number of partitions.
pub const MAX_PARTS: u32 = 4096;

const FORMAT: &str = "graphmill-dataset";
const VERSION: u64 = 1;
const CHECKSUM_HEAD: &str = "\"checksum\": \"";
const CHECKSUM_TAIL: &str = "\"\n}\n";

/// What a dataset holds; see `docs/format.md` for each key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: String,
    version: u64,
    /// Name and version of the writer.
    pub written_by: String,
    /// The logical content's name.
    pub fingerprint: Fingerprint,
    /// One unnamed node type and at most one unnamed edge type.
    pub homogeneous: bool,
    /// The direction samplers walk unless told otherwise.
    pub edge_dir: Direction,
    /// Number of partitions.
    pub parts: u32,
    /// How it was partitioned.
    pub method: String,
    /// Sorted by name.
    pub node_types: Vec<NodeTypeInfo>,
    /// Sorted by name.
    pub edge_types: Vec<EdgeTypeInfo>,
    pub(crate) book_arrays: BTreeMap<String, StoredArray>,
    pub(crate) partitions: Vec<PartitionArrays>,
    #[serde(with = "hex")]
    checksum: u64,
}

/// One array's size and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredArray {
    pub(crate) bytes: u64,
    #[serde(with = "hex")]
    pub(crate) xxh3: u64,
}

/// The arrays of one partition by path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PartitionArrays {
    pub(crate) arrays: BTreeMap<String, StoredArray>,
}

/// A direction to walk edges in, and the neighbour lists that serve it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From a target to its sources (CSC).
    In,
    /// From a source to its targets (CSR).
    Out,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::In => "in",
            Self::Out => "out",
        })
    }
}

/// A node type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTypeInfo {
    /// Its name.
    pub name: String,
    /// How many nodes it has.
    pub count: u64,
    /// Who owns which node.
    pub book: BookInfo,
    /// Named features, sorted by name.
    pub features: Vec<FeatureInfo>,
    /// The label, if nodes have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelInfo>,
    /// Whether nodes have weights.
    pub weights: bool,
    /// Whether nodes have timestamps.
    pub timestamps: bool,
    /// Sizes of the splits there are.
    pub splits: SplitSizes,
    /// What the nodes were called in the input, if not by their ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_ids: Option<OriginalKind>,
}

impl NodeTypeInfo {
    /// A node type with nothing but its nodes, all in one partition.
    pub fn new(name: impl Into<String>, count: u64) -> Self {
        Self {
            name: name.into(),
            count,
            book: BookInfo::whole(count),
            features: Vec::new(),
            label: None,
            weights: false,
            timestamps: false,
            splits: SplitSizes::default(),
            original_ids: None,
        }
    }

    /// How ids of this type are stored.
    pub fn id_width(&self) -> IdWidth {
        IdWidth::for_count(self.count)
    }
}

/// An edge type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeTypeInfo {
    /// Its name.
    #[serde(rename = "type")]
    pub name: EdgeTypeName,
    /// How many edges it has.
    pub count: u64,
    /// Whether samplers traverse it.
    pub role: EdgeRole,
    /// The stored directions, the primary one first.
    pub layouts: Vec<Direction>,
    /// Whether edge ids are stored.
    pub edge_ids: bool,
    /// Size of the edge id space.
    pub id_count: u64,
    /// Whether edges have weights.
    pub weights: bool,
    /// Whether edges have timestamps.
    pub timestamps: bool,
    /// Named edge features, sorted by name.
    pub features: Vec<FeatureInfo>,
    /// Who owns the features of which edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub book: Option<BookInfo>,
    /// How many edges join two partitions.
    pub cut: u64,
}

impl EdgeTypeInfo {
    /// An edge type of plain edges.
    pub fn new(name: EdgeTypeName, count: u64, layouts: Vec<Direction>) -> Self {
        Self {
            name,
            count,
            role: EdgeRole::Message,
            layouts,
            edge_ids: false,
            id_count: 0,
            weights: false,
            timestamps: false,
            features: Vec::new(),
            book: None,
            cut: 0,
        }
    }

    /// The direction whose lists decide where an edge's features lie.
    pub fn primary(&self) -> Direction {
        self.layouts.first().copied().unwrap_or(Direction::In)
    }

    /// How edge ids are stored.
    pub fn id_width(&self) -> IdWidth {
        IdWidth::for_count(self.id_count)
    }

    /// How list offsets are stored.
    pub fn indptr_width(&self) -> IdWidth {
        IdWidth::for_count(self.count.saturating_add(1))
    }
}

/// The name of an edge type: source type, relation, target type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "(String, String, String)", into = "(String, String, String)")]
pub struct EdgeTypeName {
    /// The source's node type.
    pub src: String,
    /// What the edge says.
    pub relation: String,
    /// The target's node type.
    pub dst: String,
}

impl EdgeTypeName {
    /// Puts a name together.
    pub fn new(src: impl Into<String>, relation: impl Into<String>, dst: impl Into<String>) -> Self {
        Self { src: src.into(), relation: relation.into(), dst: dst.into() }
    }

    /// The type at the end of the edge whose lists a direction gives: whom the lists belong to.
    pub fn list_owner(&self, direction: Direction) -> &str {
        match direction {
            Direction::In => &self.dst,
            Direction::Out => &self.src,
        }
    }

    /// The type of the neighbours in the lists of a direction.
    pub fn neighbor(&self, direction: Direction) -> &str {
        match direction {
            Direction::In => &self.src,
            Direction::Out => &self.dst,
        }
    }
}

impl From<(String, String, String)> for EdgeTypeName {
    fn from((src, relation, dst): (String, String, String)) -> Self {
        Self { src, relation, dst }
    }
}

impl From<EdgeTypeName> for (String, String, String) {
    fn from(name: EdgeTypeName) -> Self {
        (name.src, name.relation, name.dst)
    }
}

impl std::fmt::Display for EdgeTypeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.src, self.relation, self.dst)
    }
}

impl std::str::FromStr for EdgeTypeName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split(':').collect::<Vec<_>>()[..] {
            [src, relation, dst] => Ok(Self::new(src, relation, dst)),
            _ => Err(Error::invalid(format!("`{text}` is not an edge type; write source:relation:target"))),
        }
    }
}

/// What an edge type is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeRole {
    /// Samplers walk it.
    #[default]
    Message,
    /// Supervision only: its sources are anchors, and samplers never walk it.
    Label,
}

impl EdgeRole {
    /// The name used in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Label => "label",
        }
    }
}

/// A named tensor with one row per node or edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureInfo {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape of one row, `[]` for a single number.
    pub shape: Vec<u64>,
}

impl FeatureInfo {
    /// Bytes of one row, or nothing if that overflows.
    pub fn row_bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.size() as u64, |bytes, &extent| bytes.checked_mul(extent))
    }
}

/// The label of a node type.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelInfo {
    /// One class per node, or several values.
    pub kind: LabelKind,
    /// Element type.
    pub dtype: DType,
    /// Values per node; 1 for single labels.
    pub width: u64,
}

impl LabelInfo {
    /// The label as a tensor.
    pub fn as_feature(&self) -> FeatureInfo {
        let shape = match self.kind {
            LabelKind::Single => Vec::new(),
            LabelKind::Multi => vec![self.width],
        };
        FeatureInfo { name: "label".to_owned(), dtype: self.dtype, shape }
    }
}

/// One value per node, or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LabelKind {
    /// One value per node.
    Single,
    /// A row of values per node.
    Multi,
}

impl LabelKind {
    /// The name used in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Multi => "multi",
        }
    }
}

/// What nodes were called in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginalKind {
    /// By a number.
    Int,
    /// By a string.
    String,
}

impl OriginalKind {
    /// The name used in manifests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::String => "string",
        }
    }
}

/// A set of nodes to train, validate or test on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// To train on.
    Train,
    /// To choose a model by.
    Val,
    /// To report on.
    Test,
}

impl Split {
    /// All of them, in order.
    pub const ALL: [Self; 3] = [Self::Train, Self::Val, Self::Test];
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        })
    }
}

impl std::str::FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|split| split.to_string() == text).ok_or_else(|| Error::Unknown {
            kind: "split",
            name: text.to_owned(),
            available: "train, val, test".to_owned(),
        })
    }
}

/// How many nodes each split has; a split may be absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitSizes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    train: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    val: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test: Option<u64>,
}

impl SplitSizes {
    /// The size of a split, if there is one.
    pub fn get(&self, split: Split) -> Option<u64> {
        match split {
            Split::Train => self.train,
            Split::Val => self.val,
            Split::Test => self.test,
        }
    }

    /// States the size of a split.
    pub fn set(&mut self, split: Split, size: u64) {
        match split {
            Split::Train => self.train = Some(size),
            Split::Val => self.val = Some(size),
            Split::Test => self.test = Some(size),
        }
    }

    /// The splits there are, with their sizes.
    pub fn iter(&self) -> impl Iterator<Item = (Split, u64)> {
        let sizes = *self;
        Split::ALL.into_iter().filter_map(move |split| sizes.get(split).map(|size| (split, size)))
    }
}

/// How a partition book is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum BookInfo {
    /// Each partition owns a stretch of ids.
    Range {
        /// Where each stretch begins, and the end.
        bounds: Vec<u64>,
    },
    /// Each id has an owner of its own.
    Assigned {
        /// How many ids each partition owns.
        rows: Vec<u64>,
    },
}

impl BookInfo {
    /// The book of a single partition.
    pub fn whole(count: u64) -> Self {
        Self::Range { bounds: vec![0, count] }
    }

    /// How many ids a partition owns.
    pub fn rows(&self, partition: u32) -> u64 {
        let partition = partition as usize;
        match self {
            Self::Range { bounds } => match bounds.get(partition..partition + 2) {
                Some(&[start, end]) => end.saturating_sub(start),
                _ => 0,
            },
            Self::Assigned { rows } => rows.get(partition).copied().unwrap_or(0),
        }
    }
}

impl Manifest {
    /// A larger one is refused. No honest manifest comes near it: 4096 partitions of 200 arrays each take some 80 MB.
    pub const MAX_BYTES: u64 = 512 << 20;

    /// A manifest of nothing; the writer fills in what it writes.
    pub(crate) fn empty() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            written_by: concat!("graphmill ", env!("CARGO_PKG_VERSION")).to_owned(),
            fingerprint: Fingerprint::default(),
            homogeneous: false,
            edge_dir: Direction::In,
            parts: 1,
            method: "range".to_owned(),
            node_types: Vec::new(),
            edge_types: Vec::new(),
            book_arrays: BTreeMap::new(),
            partitions: Vec::new(),
            checksum: 0,
        }
    }

    /// A manifest to hand to [`crate::DatasetWriter::finish`], types in any order.
    pub fn new(
        homogeneous: bool,
        edge_dir: Direction,
        node_types: Vec<NodeTypeInfo>,
        edge_types: Vec<EdgeTypeInfo>,
    ) -> Self {
        Self { homogeneous, edge_dir, node_types, edge_types, ..Self::empty() }
    }

    /// Reads and checks the manifest of a dataset.
    pub fn read(dataset: &Path) -> Result<Self> {
        let path = dataset.join(MANIFEST_FILE);
        let mut file = File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound if dataset.is_dir() => Error::NotADataset { path: dataset.to_owned() },
            _ => Error::io("open", &path)(source),
        })?;
        let mut bytes = Vec::new();
        file.by_ref().take(Self::MAX_BYTES + 1).read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
        Self::parse(&bytes, &path)
    }

    /// Checks that a directory is a dataset of any version, sound or not, before it is replaced.
    pub(crate) fn check_format(dataset: &Path) -> Result<()> {
        let path = dataset.join(MANIFEST_FILE);
        if !path.is_file() {
            return Err(Error::NotADataset { path: dataset.to_owned() });
        }
        let mut start = Vec::new();
        let file = File::open(&path).map_err(Error::io("open", &path))?;
        file.take(256).read_to_end(&mut start).map_err(Error::io("read", &path))?;
        if String::from_utf8_lossy(&start).contains(FORMAT) {
            return Ok(());
        }
        let reason = format!("expected format `{FORMAT}`; what is not a dataset is not replaced");
        Err(Error::Manifest { path, reason })
    }

    /// Parses the bytes of a manifest; `path` is for messages.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u64,
        }
        let fail = |reason: String| Error::Manifest { path: path.to_owned(), reason };
        if bytes.len() as u64 > Self::MAX_BYTES {
            return Err(fail(format!("expected at most {} bytes", Self::MAX_BYTES)));
        }
        let head: Head = serde_json::from_slice(bytes).map_err(|error| fail(error.to_string()))?;
        if head.format != FORMAT {
            return Err(fail(format!("expected format `{FORMAT}`, found `{}`", head.format)));
        }
        if head.version > VERSION {
            return Err(Error::NewerVersion { path: path.to_owned(), found: head.version, supported: VERSION });
        }
        if head.version == 0 {
            return Err(fail("expected version 1, found 0".to_owned()));
        }
        let expected = stated_checksum(bytes).ok_or_else(|| fail("it does not end in its checksum".to_owned()))?;
        let found = own_checksum(bytes);
        if expected != found {
            return Err(Error::Checksum { path: path.to_owned(), expected, found });
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| fail(error.to_string()))?;
        manifest.validate().map_err(fail)?;
        Ok(manifest)
    }

    /// The manifest as it is written, with its checksum: what [`Self::parse`] reads.
    pub fn render(&self) -> Vec<u8> {
        let zeroed = Self { checksum: 0, ..self.clone() };
        let mut bytes = serde_json::to_vec_pretty(&zeroed).unwrap_or_default();
        bytes.push(b'\n');
        let digits = format!("{:016x}", own_checksum(&bytes));
        if let Some(range) = checksum_digits(&bytes) {
            bytes[range].copy_from_slice(digits.as_bytes());
        }
        bytes
    }

    /// The place of a node type.
    pub fn node_type(&self, name: &str) -> Result<usize> {
        self.node_types.iter().position(|info| info.name == name).ok_or_else(|| Error::Unknown {
            kind: "node type",
            name: name.to_owned(),
            available: listed(self.node_types.iter().map(|info| &info.name)),
        })
    }

    /// The place of an edge type.
    pub fn edge_type(&self, name: &EdgeTypeName) -> Result<usize> {
        self.edge_types.iter().position(|info| info.name == *name).ok_or_else(|| Error::Unknown {
            kind: "edge type",
            name: name.to_string(),
            available: listed(self.edge_types.iter().map(|info| &info.name)),
        })
    }

    /// The place of a node type; no name means the only one of a homogeneous graph.
    ///
    /// # Errors
    /// When there is no such type, when a name is missing, or when one is given for a homogeneous graph.
    pub fn resolve_node_type(&self, name: Option<&str>) -> Result<usize> {
        match (name, self.homogeneous) {
            (None, true) => Ok(0),
            (Some(name), false) => self.node_type(name),
            (Some(name), true) => Err(Error::Unknown {
                kind: "node type",
                name: name.to_owned(),
                available: "none, the graph is homogeneous; leave the type out".to_owned(),
            }),
            (None, false) => Err(Error::Unknown {
                kind: "node type",
                name: String::new(),
                available: listed(self.node_types.iter().map(|info| &info.name)),
            }),
        }
    }

    /// The place of an edge type; no name means the only one of a homogeneous graph.
    ///
    /// # Errors
    /// As for [`Self::resolve_node_type`].
    pub fn resolve_edge_type(&self, name: Option<&EdgeTypeName>) -> Result<usize> {
        match (name, self.homogeneous) {
            (None, true) if !self.edge_types.is_empty() => Ok(0),
            (Some(name), false) => self.edge_type(name),
            (Some(name), true) => Err(Error::Unknown {
                kind: "edge type",
                name: name.to_string(),
                available: "none, the graph is homogeneous; leave the type out".to_owned(),
            }),
            (None, _) => Err(Error::Unknown {
                kind: "edge type",
                name: String::new(),
                available: listed(self.edge_types.iter().map(|info| &info.name)),
            }),
        }
    }

    /// Bytes of all arrays whose path inside their partition satisfies `select`.
    pub fn bytes_of(&self, select: impl Fn(&str) -> bool) -> u64 {
        let arrays = self.partitions.iter().flat_map(|partition| &partition.arrays);
        arrays.filter(|(path, _)| select(path)).map(|(_, stored)| stored.bytes).sum()
    }

    /// How many arrays all partitions have.
    pub fn arrays(&self) -> u64 {
        self.partitions.iter().map(|partition| partition.arrays.len() as u64).sum()
    }

    /// Bytes of all arrays of a partition.
    pub fn partition_bytes(&self, partition: u32) -> u64 {
        let arrays = self.partitions.get(partition as usize).map(|partition| &partition.arrays);
        arrays.into_iter().flatten().map(|(_, stored)| stored.bytes).sum()
    }

    /// Bytes of all partition books.
    pub fn book_bytes(&self) -> u64 {
        self.book_arrays.values().map(|stored| stored.bytes).sum()
    }
}

/// Checks that a type's, relation's or feature's name can be stored.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(Error::invalid(format!(
            "the name {name:?} is not allowed: a name has 1 to 64 bytes and no control characters"
        )));
    }
    Ok(())
}

pub(crate) fn listed(names: impl IntoIterator<Item = impl ToString>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn checksum_digits(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let end = bytes.len().checked_sub(CHECKSUM_TAIL.len())?;
    let start = end.checked_sub(16)?;
    let framed = bytes[..start].ends_with(CHECKSUM_HEAD.as_bytes()) && bytes[end..] == *CHECKSUM_TAIL.as_bytes();
    framed.then_some(start..end)
}

fn stated_checksum(bytes: &[u8]) -> Option<u64> {
    hex::parse(std::str::from_utf8(&bytes[checksum_digits(bytes)?]).ok()?)
}

fn own_checksum(bytes: &[u8]) -> u64 {
    let mut zeroed = bytes.to_vec();
    if let Some(range) = checksum_digits(&zeroed) {
        zeroed[range].fill(b'0');
    }
    checksum(&zeroed)
}

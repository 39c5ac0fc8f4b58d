//! `graph.toml`: what the input is and what to make of it. `docs/ingest.md` explains every key.

use std::collections::BTreeMap;
use std::path::Path;

use graphmill_graph::{DType, EdgeRole, EdgeTypeName, LabelKind};
use serde::Deserialize;

use crate::input::ColumnRef;
use crate::{Error, Layout, Result};

/// A whole description.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphConfig {
    #[serde(default)]
    pub(super) layout: Layout,
    #[serde(default)]
    pub(super) nodes: Vec<NodeConfig>,
    #[serde(default)]
    pub(super) edges: Vec<EdgeConfig>,
    pub(super) ogb: Option<OgbConfig>,
}

/// A node type.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeConfig {
    #[serde(rename = "type")]
    pub(super) name: Option<String>,
    pub(super) count: Option<u64>,
    #[serde(default)]
    pub(super) id_type: IdType,
    pub(super) ids: Option<ColumnConfig>,
    #[serde(default)]
    pub(super) features: BTreeMap<String, TensorConfig>,
    pub(super) labels: Option<LabelConfig>,
    pub(super) weights: Option<TensorConfig>,
    pub(super) timestamps: Option<TensorConfig>,
    pub(super) splits: Option<SplitConfig>,
}

/// What ids look like in the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum IdType {
    /// Already `0..count`.
    #[default]
    Dense,
    /// Any 64-bit numbers.
    Int,
    /// Any strings.
    String,
}

/// An edge type.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EdgeConfig {
    #[serde(rename = "type")]
    pub(super) name: Option<EdgeName>,
    pub(super) files: Files,
    pub(super) src: Option<Column>,
    pub(super) dst: Option<Column>,
    pub(super) weight: Option<Column>,
    pub(super) timestamp: Option<Column>,
    #[serde(default = "yes")]
    pub(super) header: bool,
    #[serde(default)]
    pub(super) features: BTreeMap<String, TensorConfig>,
    #[serde(default)]
    pub(super) undirected: bool,
    #[serde(default)]
    pub(super) duplicates: Keep,
    #[serde(default)]
    pub(super) self_loops: Keep,
    pub(super) edge_ids: Option<bool>,
    #[serde(default)]
    pub(super) role: EdgeRole,
}

/// Whether something stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Keep {
    #[default]
    Keep,
    Drop,
}

/// An edge type's name as a list or joined with colons.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected an edge type: [source, relation, target] or \"source:relation:target\"")]
pub(super) enum EdgeName {
    Parts(String, String, String),
    Joined(String),
}

impl EdgeName {
    pub(super) fn resolve(&self) -> Result<EdgeTypeName> {
        Ok(match self {
            Self::Parts(src, relation, dst) => EdgeTypeName::new(src, relation, dst),
            Self::Joined(text) => text.parse()?,
        })
    }
}

/// One file or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a file name or a list of file names")]
pub(super) enum Files {
    One(String),
    Many(Vec<String>),
}

impl Default for Files {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Files {
    pub(super) fn list(&self) -> Vec<String> {
        match self {
            Self::One(file) => vec![file.clone()],
            Self::Many(files) => files.clone(),
        }
    }
}

/// A column by name or position.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected the name of a column or its position, from 0")]
pub(super) enum Column {
    Position(usize),
    Name(String),
}

impl Column {
    pub(super) fn reference(&self) -> ColumnRef {
        match self {
            Self::Position(position) => ColumnRef::Position(*position),
            Self::Name(name) => ColumnRef::Name(name.clone()),
        }
    }
}

/// One column of some files.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnConfig {
    pub(super) files: Files,
    pub(super) column: Option<Column>,
    #[serde(default = "yes")]
    pub(super) header: bool,
}

/// A tensor: a whole array, or some columns of a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TensorConfig {
    pub(super) files: Option<Files>,
    #[serde(default)]
    pub(super) columns: Vec<Column>,
    pub(super) dtype: Option<DType>,
    /// The column that says whose row it is.
    pub(super) key: Option<Column>,
    #[serde(default = "yes")]
    pub(super) header: bool,
}

/// A label: a tensor with a kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "LabelTable")]
pub(super) struct LabelConfig {
    pub(super) kind: LabelKind,
    pub(super) tensor: TensorConfig,
}

/// A label as it is written. Flattening the tensor into it would let unknown keys pass.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelTable {
    #[serde(default = "single")]
    kind: LabelKind,
    files: Option<Files>,
    #[serde(default)]
    columns: Vec<Column>,
    dtype: Option<DType>,
    key: Option<Column>,
    #[serde(default = "yes")]
    header: bool,
}

impl From<LabelTable> for LabelConfig {
    fn from(table: LabelTable) -> Self {
        let LabelTable { kind, files, columns, dtype, key, header } = table;
        Self { kind, tensor: TensorConfig { files, columns, dtype, key, header } }
    }
}

/// Where splits come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum SplitConfig {
    /// Files of ids.
    Files { train: Option<SplitFile>, val: Option<SplitFile>, test: Option<SplitFile> },
    /// Exact shares, chosen by a seed.
    Fraction {
        #[serde(default)]
        train: f64,
        #[serde(default)]
        val: f64,
        #[serde(default)]
        test: f64,
        #[serde(default)]
        seed: u64,
    },
    /// Shares by a hash of the original id.
    Hash {
        #[serde(default)]
        train: f64,
        #[serde(default)]
        val: f64,
        #[serde(default)]
        test: f64,
    },
    /// Shares of the anchors of a supervision edge type, by a hash of the original id.
    Anchor {
        edges: EdgeName,
        #[serde(default)]
        train: f64,
        #[serde(default)]
        val: f64,
        #[serde(default)]
        test: f64,
    },
}

/// A split's file, plain or with a column.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a file name or a table of files, column and header")]
pub(super) enum SplitFile {
    Path(String),
    Column(ColumnConfig),
}

impl SplitFile {
    pub(super) fn column(&self) -> ColumnConfig {
        match self {
            Self::Path(path) => ColumnConfig { files: Files::One(path.clone()), column: None, header: true },
            Self::Column(column) => column.clone(),
        }
    }
}

/// A directory as the Open Graph Benchmark publishes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OgbConfig {
    pub(super) path: String,
    pub(super) split: Option<String>,
}

impl GraphConfig {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
        toml::from_str(&text).map_err(|error| Error::Config { path: path.to_owned(), reason: error.to_string() })
    }
}

fn yes() -> bool {
    true
}

fn single() -> LabelKind {
    LabelKind::Single
}

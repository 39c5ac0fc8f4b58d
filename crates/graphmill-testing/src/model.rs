//! A dataset's logical content in plain collections: what must survive every layout and every partitioning.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_graph::{DType, Direction, EdgeRole, EdgeTypeName, LabelKind, OriginalKind, Split};

/// A graph with everything a dataset can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelGraph {
    /// One unnamed node type and at most one unnamed edge type.
    pub homogeneous: bool,
    /// The direction samplers walk unless told otherwise.
    pub edge_dir: Direction,
    /// Nodes by type.
    pub nodes: BTreeMap<String, ModelNodes>,
    /// Edges by type.
    pub edges: BTreeMap<EdgeTypeName, ModelEdges>,
}

/// The nodes of one type; every list is in order of id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNodes {
    /// How many there are.
    pub count: u64,
    /// Features by name.
    pub features: BTreeMap<String, ModelTensor>,
    /// The label, if nodes have one.
    pub label: Option<ModelLabel>,
    /// The weights' bits, if nodes have them.
    pub weights: Option<Vec<u32>>,
    /// Timestamps, if nodes have them.
    pub timestamps: Option<Vec<i64>>,
    /// Members of train, val and test, each where there is such a split.
    pub splits: [Option<BTreeSet<u64>>; 3],
    /// What nodes were called in the input, ascending.
    pub originals: Option<ModelOriginals>,
}

impl ModelNodes {
    /// The members of a split, if there is one.
    pub fn split(&self, split: Split) -> Option<&BTreeSet<u64>> {
        self.splits[split as usize].as_ref()
    }
}

/// Rows of equal shape as little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelTensor {
    /// Element type.
    pub dtype: DType,
    /// Shape of one row.
    pub shape: Vec<u64>,
    /// The bytes of each row.
    pub rows: Vec<Vec<u8>>,
}

/// A label: a tensor that knows whether it is one class or several values per node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelLabel {
    /// One value per node, or several.
    pub kind: LabelKind,
    /// Element type.
    pub dtype: DType,
    /// Values per node; 1 for single labels.
    pub width: u64,
    /// The bytes of each row.
    pub rows: Vec<Vec<u8>>,
}

/// Original ids in order of id, which is ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelOriginals {
    /// Numbers.
    Ints(Vec<i64>),
    /// Strings.
    Strings(Vec<String>),
}

impl ModelOriginals {
    /// Whether they are numbers or strings.
    pub fn kind(&self) -> OriginalKind {
        match self {
            Self::Ints(_) => OriginalKind::Int,
            Self::Strings(_) => OriginalKind::String,
        }
    }
}

/// The edges of one type: a multiset, kept sorted so that equal multisets are equal values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEdges {
    /// Whether samplers traverse it.
    pub role: EdgeRole,
    /// The edges, sorted.
    pub edges: Vec<ModelEdge>,
    /// Whether every edge has an id.
    pub edge_ids: bool,
    /// Size of the edge id space; 0 without ids.
    pub id_count: u64,
    /// Whether every edge has a weight.
    pub weights: bool,
    /// Whether every edge has a timestamp.
    pub timestamps: bool,
    /// Features by name, one row per edge id.
    pub features: BTreeMap<String, ModelTensor>,
}

/// One edge. What its type does not have is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelEdge {
    /// Source node.
    pub src: u64,
    /// Target node.
    pub dst: u64,
    /// Edge id.
    pub id: Option<u64>,
    /// The weight's bits.
    pub weight: Option<u32>,
    /// Timestamp.
    pub timestamp: Option<i64>,
}

impl ModelEdge {
    /// The node whose list in a direction holds this edge.
    pub fn list_owner(&self, direction: Direction) -> u64 {
        match direction {
            Direction::In => self.dst,
            Direction::Out => self.src,
        }
    }

    /// The node at the other end.
    pub fn neighbor(&self, direction: Direction) -> u64 {
        match direction {
            Direction::In => self.src,
            Direction::Out => self.dst,
        }
    }
}

//! What a user asks of a sampler: one value, the same in a file, between servers and in a loader's state
//! (`docs/sampling.md`, section 9).

use std::collections::BTreeMap;

use graphmill_graph::{DType, Direction, EdgeTypeName};
use serde::{Deserialize, Serialize};

/// A sampler's configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the seeds of a batch come from.
    pub task: Task,
    /// How further nodes and edges are found.
    pub expand: Expand,
    /// The direction to walk; the dataset's own when absent.
    pub direction: Option<Direction>,
    /// The edge types to walk; all of role message when absent.
    pub walk: Option<Vec<EdgeTypeName>>,
    /// Whether batches carry edge ids.
    pub edge_ids: bool,
    /// Node features by name.
    pub features: Vec<String>,
    /// Edge features by name.
    pub edge_features: Vec<String>,
    /// Whether batches carry labels.
    pub labels: bool,
    /// The element type in which features of single precision come: half precision, or as they are stored. Not written
    /// where it is absent: such a configuration keeps the word that it had before there was a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feature_dtype: Option<DType>,
    /// The seed of everything random.
    pub seed: u64,
    /// The most edges a batch may hold.
    pub max_edges: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            task: Task::default(),
            expand: Expand::default(),
            direction: None,
            walk: None,
            edge_ids: false,
            features: Vec::new(),
            edge_features: Vec::new(),
            labels: false,
            feature_dtype: None,
            seed: 0,
            max_edges: 100_000_000,
        }
    }
}

impl Config {
    /// Uniform neighbour sampling with one list of fanouts for all edge types.
    pub fn neighbors(fanouts: &[i64]) -> Self {
        let hops = Hops { fanouts: Fanouts::Same(fanouts.to_vec()), ..Hops::default() };
        Self { expand: Expand::Neighbors(hops), ..Self::default() }
    }
}

/// Where the seeds of a batch come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Nodes of one type.
    Nodes {
        /// The type; none for a homogeneous graph.
        #[serde(rename = "type", default)]
        node_type: Option<String>,
    },
    /// Pairs of one edge type, with or without negatives.
    Links {
        /// The type; none for a homogeneous graph.
        #[serde(rename = "type", default)]
        edge_type: Option<EdgeTypeName>,
        /// The negatives to draw.
        #[serde(default)]
        negatives: Option<Negatives>,
    },
    /// Anchor nodes and their labels, read from supervision edges.
    Anchors {
        /// Where labels come from.
        supervision: Vec<Supervision>,
        /// The most labels of one anchor and edge type.
        #[serde(default)]
        max_labels: Option<u32>,
    },
}

impl Default for Task {
    fn default() -> Self {
        Self::Nodes { node_type: None }
    }
}

/// Pairs that are drawn, not given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Negatives {
    /// Both ends drawn.
    Binary {
        /// How many per positive pair.
        #[serde(default = "one")]
        amount: f64,
        /// Whether edges of the graph are refused.
        #[serde(default)]
        strict: bool,
        /// Whether nodes are drawn by weight.
        #[serde(default)]
        weighted: bool,
    },
    /// Targets drawn for the given sources.
    Triplet {
        /// How many per positive pair.
        #[serde(default = "one_each")]
        amount: u32,
        /// Whether edges of the graph are refused.
        #[serde(default)]
        strict: bool,
        /// Whether nodes are drawn by weight.
        #[serde(default)]
        weighted: bool,
    },
}

fn one() -> f64 {
    1.0
}

fn one_each() -> u32 {
    1
}

/// The label edge types of one kind of supervision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Supervision {
    /// Its positive labels.
    pub positive: EdgeTypeName,
    /// Its negative labels.
    #[serde(default)]
    pub negative: Option<EdgeTypeName>,
}

/// How nodes and edges are found from the seeds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Expand {
    /// Neighbours, hop by hop.
    Neighbors(Hops),
    /// Nodes found hop by hop, then all edges among them.
    Induced(Hops),
    /// The nodes of highest personalised `PageRank`.
    Ppr(Ppr),
}

impl Default for Expand {
    fn default() -> Self {
        Self::Neighbors(Hops::default())
    }
}

/// Neighbour sampling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Hops {
    /// How many neighbours of a node to take in each hop.
    pub fanouts: Fanouts,
    /// Whether an edge may be drawn twice.
    pub replace: bool,
    /// Whether edges are drawn by weight.
    pub weighted: bool,
}

/// Neighbours per node and hop; -1 for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fanouts {
    /// The same for all edge types.
    Same(Vec<i64>),
    /// For these edge types; others are not walked.
    PerType(Vec<TypeFanouts>),
}

impl Default for Fanouts {
    fn default() -> Self {
        Self::Same(Vec::new())
    }
}

/// The fanouts of one edge type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TypeFanouts {
    /// The type.
    #[serde(rename = "type")]
    pub edge_type: EdgeTypeName,
    /// Per hop.
    pub fanouts: Vec<i64>,
}

/// Personalised `PageRank` by forward push.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ppr {
    /// The chance to go back to the seed.
    pub alpha: f64,
    /// The error per degree.
    pub eps: f64,
    /// The most nodes kept per seed and node type.
    pub max_nodes: Budget,
    /// The most neighbours fetched of a node and edge type.
    pub neighbors_per_hop: u32,
    /// Whether free places are filled with the nodes of largest residual.
    pub top_up: bool,
}

impl Default for Ppr {
    fn default() -> Self {
        Self { alpha: 0.5, eps: 1e-4, max_nodes: Budget::Each(50), neighbors_per_hop: 1000, top_up: false }
    }
}

/// A number per node type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Budget {
    /// The same for all.
    Each(u32),
    /// For these; 0 for others.
    PerType(BTreeMap<String, u32>),
}

//! All that is known about a dataset, in the shape of the JSON.

use std::collections::BTreeMap;
use std::path::Path;

use graphmill_graph::{
    Direction, EdgeRole, EdgeTypeInfo, EdgeTypeName, FeatureInfo, Fingerprint, LabelInfo, Manifest, NodeTypeInfo,
    OriginalKind, SplitSizes,
};
use serde::Serialize;

use super::bytes::{Purpose, bytes_for};
use super::degrees::Degrees;
use crate::commands::target::{num_edges, num_nodes};
use crate::terminal::numbers;

/// A dataset. What only its arrays can tell is absent when they were not read.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) name: String,
    pub(super) fingerprint: Fingerprint,
    pub(super) written_by: String,
    pub(super) homogeneous: bool,
    /// The direction samplers walk unless told otherwise.
    pub(super) edge_dir: Direction,
    pub(super) num_nodes: u64,
    pub(super) num_edges: u64,
    pub(super) num_partitions: u32,
    pub(super) method: String,
    /// Edges that join two partitions.
    pub(super) edge_cut: u64,
    pub(super) edge_cut_fraction: f64,
    /// Nodes without any message edge.
    pub(super) isolated_nodes: Option<u64>,
    pub(super) topology_bytes: u64,
    pub(super) edge_data_bytes: u64,
    pub(super) feature_bytes: u64,
    pub(super) label_bytes: u64,
    pub(super) book_bytes: u64,
    pub(super) other_bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) node_types: Vec<NodeTypeReport>,
    pub(super) edge_types: Vec<EdgeTypeReport>,
    pub(super) partitions: Vec<PartitionReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verified: Option<Verification>,
}

#[derive(Debug, Serialize)]
pub(super) struct NodeTypeReport {
    pub(super) name: String,
    pub(super) count: u64,
    /// Nodes without any message edge.
    pub(super) isolated: Option<u64>,
    pub(super) features: Vec<FeatureInfo>,
    pub(super) label: Option<LabelInfo>,
    pub(super) weights: bool,
    pub(super) timestamps: bool,
    pub(super) splits: SplitSizes,
    pub(super) original_ids: Option<OriginalKind>,
    /// The largest partition over the mean.
    pub(super) balance: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct EdgeTypeReport {
    #[serde(rename = "type")]
    pub(super) name: EdgeTypeName,
    pub(super) count: u64,
    pub(super) role: EdgeRole,
    pub(super) layouts: Vec<Direction>,
    pub(super) edge_ids: bool,
    pub(super) weights: bool,
    pub(super) timestamps: bool,
    pub(super) features: Vec<FeatureInfo>,
    pub(super) cut: u64,
    /// By direction: how long the lists are.
    pub(super) degrees: BTreeMap<Direction, Degrees>,
}

#[derive(Debug, Serialize)]
pub(super) struct PartitionReport {
    pub(super) partition: u32,
    pub(super) num_nodes: u64,
    /// Edges in the lists of the primary layouts.
    pub(super) num_edges: Option<u64>,
    pub(super) bytes: Option<u64>,
}

/// What reading everything found.
#[derive(Debug, Serialize)]
pub(super) struct Verification {
    pub(super) ok: bool,
    pub(super) arrays: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) problems: Vec<String>,
}

impl Report {
    /// What the manifest alone tells.
    pub(super) fn describe(path: &Path, manifest: &Manifest) -> Self {
        let edge_cut = manifest.edge_types.iter().map(|info| info.cut).sum();
        let num_edges = num_edges(manifest);
        Self {
            name: name_of(path),
            fingerprint: manifest.fingerprint,
            written_by: manifest.written_by.clone(),
            homogeneous: manifest.homogeneous,
            edge_dir: manifest.edge_dir,
            num_nodes: num_nodes(manifest),
            num_edges,
            num_partitions: manifest.parts,
            method: manifest.method.clone(),
            edge_cut,
            edge_cut_fraction: numbers::fraction(edge_cut, num_edges),
            isolated_nodes: None,
            topology_bytes: bytes_for(manifest, Purpose::Topology),
            edge_data_bytes: bytes_for(manifest, Purpose::EdgeData),
            feature_bytes: bytes_for(manifest, Purpose::Features),
            label_bytes: bytes_for(manifest, Purpose::Labels),
            book_bytes: manifest.book_bytes(),
            other_bytes: bytes_for(manifest, Purpose::Other),
            total_bytes: manifest.bytes_of(|_| true) + manifest.book_bytes(),
            node_types: manifest.node_types.iter().map(|info| NodeTypeReport::describe(info, manifest.parts)).collect(),
            edge_types: manifest.edge_types.iter().map(EdgeTypeReport::describe).collect(),
            partitions: (0..manifest.parts).map(|partition| PartitionReport::describe(partition, manifest)).collect(),
            verified: None,
        }
    }
}

impl NodeTypeReport {
    fn describe(info: &NodeTypeInfo, parts: u32) -> Self {
        Self {
            name: info.name.clone(),
            count: info.count,
            isolated: None,
            features: info.features.clone(),
            label: info.label,
            weights: info.weights,
            timestamps: info.timestamps,
            splits: info.splits,
            original_ids: info.original_ids,
            balance: info.book.balance(parts),
        }
    }
}

impl EdgeTypeReport {
    fn describe(info: &EdgeTypeInfo) -> Self {
        Self {
            name: info.name.clone(),
            count: info.count,
            role: info.role,
            layouts: info.layouts.clone(),
            edge_ids: info.edge_ids,
            weights: info.weights,
            timestamps: info.timestamps,
            features: info.features.clone(),
            cut: info.cut,
            degrees: BTreeMap::new(),
        }
    }
}

impl PartitionReport {
    fn describe(partition: u32, manifest: &Manifest) -> Self {
        let num_nodes = manifest.node_types.iter().map(|info| info.book.rows(partition)).sum();
        Self { partition, num_nodes, num_edges: None, bytes: None }
    }
}

/// The directory's own name, also for `.` and `..`.
fn name_of(path: &Path) -> String {
    let full = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    full.file_name().unwrap_or(full.as_os_str()).to_string_lossy().into_owned()
}

//! Foreign files into a dataset, as a `graph.toml` describes.
//!
//! Ids that are listed somewhere are read first, then the edges; ids that only edges name are collected on the way and
//! the edges wait on disk until they are known. Node features come last, when every row's place is known. Nothing is
//! held in memory that grows with the number of edges, beyond the bound that the caller sets.

mod config;
mod edges;
mod ids;
mod keys;
mod nodes;
mod ogb;
mod plan;
mod role;
mod rows;
pub(crate) mod splits;
mod spool;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphmill_graph::{DatasetWriter, EdgeTypeName, Manifest, NodeTypeInfo, Replace};

use crate::input::{BadRows, Fetcher};
use crate::tables::write_node_table;
use crate::{Error, Job, Result};

pub use crate::input::OnError;

use config::GraphConfig;
use ids::NodeIds;
use plan::Plan;

/// What a homogeneous graph's only node type is called in files.
pub(crate) const HOMOGENEOUS_NODE: &str = "node";

/// What a homogeneous graph's only edge type is called in files.
pub(crate) fn homogeneous_edge() -> EdgeTypeName {
    EdgeTypeName::new(HOMOGENEOUS_NODE, "to", HOMOGENEOUS_NODE)
}

/// How to ingest.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// What to do with a row that cannot be used.
    pub on_error: OnError,
    /// Bytes of memory for sorting edges and ids.
    pub memory: u64,
    /// What to do when the target exists.
    pub replace: Replace,
}

/// What an ingest made.
#[derive(Debug)]
pub struct Report {
    /// The dataset's manifest.
    pub manifest: Manifest,
    /// Rows that were skipped.
    pub skipped: u64,
    /// The first few of them, as messages.
    pub examples: Vec<String>,
}

/// Reads what a `graph.toml` describes and writes the dataset to `out`.
pub fn ingest(config: &Path, out: &Path, options: &Options, job: &Job<'_>) -> Result<Report> {
    let described = GraphConfig::read(config)?;
    let base = config.parent().unwrap_or(Path::new("."));
    let writer = DatasetWriter::create(out, options.replace)?;
    let scratch = writer.scratch()?;
    let mut fetcher = Fetcher::new(base, &scratch);
    let described = match &described.ogb {
        Some(_) => ogb::describe(config, described, &mut fetcher, job)?,
        None => described,
    };
    let plan = Arc::new(Plan::new(config, described)?);
    let keyed = plan.nodes.iter().filter(|node| node.config.id_type != config::IdType::Dense).count() as u64;
    // Ids take half of the memory where they must be looked up, edges the rest.
    let key_memory = options.memory / 2 / keyed.max(1);
    let edge_memory = if keyed == 0 { options.memory } else { options.memory / 2 };
    let ids = plan.nodes.iter().map(|node| NodeIds::new(node.config.id_type, node.config.count, key_memory, &scratch));
    let ingest = Ingest {
        ids: ids.collect(),
        orders: plan.nodes.iter().map(|_| None).collect(),
        anchors: plan.edges.iter().map(|_| Vec::new()).collect(),
        bad: BadRows::new(options.on_error),
        plan,
        key_memory,
        edge_memory,
        writer,
        scratch,
        fetcher,
        job,
    };
    ingest.run().map_err(|error| match error {
        Error::BadRow { file, row, reason } => {
            Error::BadRow { file, row, reason: format!("{reason}; fix it, or skip bad rows with --on-error skip") }
        }
        other => other,
    })
}

/// An ingest under way.
struct Ingest<'a> {
    plan: Arc<Plan>,
    /// Bytes for the ids of one node type.
    key_memory: u64,
    /// Bytes for the edges of one type; types are listed one after the other.
    edge_memory: u64,
    writer: DatasetWriter,
    scratch: PathBuf,
    fetcher: Fetcher,
    bad: BadRows,
    job: &'a Job<'a>,
    /// Per node type: what is known of its ids.
    ids: Vec<NodeIds>,
    /// Per node type: the id in each row of its `ids` files, if it has any.
    orders: Vec<Option<Vec<u64>>>,
    /// Per edge type: its sources, for label edges.
    anchors: Vec<Vec<u64>>,
}

impl Ingest<'_> {
    fn run(mut self) -> Result<Report> {
        let plan = Arc::clone(&self.plan);
        let mut node_types: Vec<_> = plan.nodes.iter().map(|node| NodeTypeInfo::new(&node.name, 0)).collect();
        for (place, node) in plan.nodes.iter().enumerate() {
            self.read_ids(place, node)?;
            self.copy_dense_tensors(place, node, &mut node_types[place])?;
        }
        let mut edge_types = Vec::new();
        let mut waiting = Vec::new();
        for (place, edge) in plan.edges.iter().enumerate() {
            let pending = self.read_edges(edge)?;
            if pending.is_waiting() {
                waiting.push((place, pending));
            } else {
                edge_types.push(self.list_edges(place, edge, pending)?);
            }
        }
        for (place, node) in plan.nodes.iter().enumerate() {
            self.ids[place].settle(&self.writer, &node.name, self.key_memory)?;
        }
        for (place, pending) in waiting {
            edge_types.push(self.list_edges(place, &plan.edges[place], pending)?);
        }
        for (place, node) in plan.nodes.iter().enumerate() {
            let info = &mut node_types[place];
            let count = self.ids[place].count();
            *info = NodeTypeInfo { book: graphmill_graph::BookInfo::whole(count), count, ..info.clone() };
            info.original_ids = self.ids[place].kind();
            self.place_tensors(place, node, info)?;
            if info.weights {
                write_node_table(&self.writer, &info.name)?;
            }
            self.write_splits(place, node, info)?;
            info.features.sort_by(|a, b| a.name.cmp(&b.name));
        }
        let manifest = Manifest::new(plan.homogeneous, plan.layout.edge_dir(), node_types, edge_types);
        let manifest = self.job.publish(self.writer, manifest)?;
        Ok(Report { manifest, skipped: self.bad.skipped(), examples: self.bad.examples() })
    }
}

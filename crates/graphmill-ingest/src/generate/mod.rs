//! Graphs from a seed: the same seed gives the same bytes on any number of threads.
//!
//! Every edge, feature and label is a pure function of (seed, its index), so chunks are made in parallel and written in
//! order.

mod edges;
mod nodes;

use std::path::Path;

use graphmill_graph::random::Stream;
use graphmill_graph::{
    DType, DatasetWriter, EdgeRole, EdgeTypeInfo, FeatureInfo, LabelInfo, LabelKind, Manifest, NodeTypeInfo, Replace,
};
use rayon::prelude::*;

use crate::ingest::{HOMOGENEOUS_NODE, homogeneous_edge};
use crate::lists::{Edge, EdgeRules, EndCounts, ListsBuilder};
use crate::{Error, Job, Layout, Result, Unit};

use edges::EdgeMaker;

/// The shape of a generated graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// R-MAT: a power law of degrees.
    Rmat,
    /// Uniformly random edges.
    Uniform,
    /// A stochastic block model with features and labels that a model can learn.
    Sbm,
    /// Zachary's karate club.
    Karate,
}

/// What to generate.
#[derive(Debug, Clone)]
pub struct Options {
    /// The shape.
    pub kind: Kind,
    /// Number of nodes; ignored for karate.
    pub nodes: u64,
    /// Number of directed edges; ignored for karate.
    pub edges: u64,
    /// Width of the feature `x` (f32); 0 for none.
    pub features: u64,
    /// Number of classes of the label; 0 for none. Ignored for karate, which has two.
    pub classes: u64,
    /// Same seed, same bytes.
    pub seed: u64,
    /// Which lists to store.
    pub layout: Layout,
    /// Whether to store edge ids.
    pub edge_ids: bool,
    /// Whether edges get random weights in (0, 1].
    pub weights: bool,
    /// Whether nodes get random weights in (0, 1].
    pub node_weights: bool,
    /// Bytes of memory for sorting edges.
    pub memory: u64,
}

/// What a stream of random words is for; a purpose is never renumbered.
#[derive(Clone, Copy)]
enum Purpose {
    Edges = 1,
    Scramble = 2,
    Labels = 3,
    Features = 4,
    Centroids = 5,
    Splits = 6,
    Weights = 7,
    NodeWeights = 8,
}

fn stream(seed: u64, purpose: Purpose) -> Stream {
    Stream::new(seed, &[purpose as u64])
}

/// A weight in (0, 1].
fn weight(stream: Stream, id: u64) -> f32 {
    (1.0 - stream.unit(id)) as f32
}

/// Makes a graph.
pub fn generate(options: &Options, out: &Path, replace: Replace, job: &Job<'_>) -> Result<Manifest> {
    let options = checked(options)?;
    let writer = DatasetWriter::create(out, replace)?;
    let edge_type = write_edges(&options, &writer, job)?;
    let node_type = write_nodes(&options, &writer, job)?;
    let manifest = Manifest::new(true, options.layout.edge_dir(), vec![node_type], vec![edge_type]);
    job.publish(writer, manifest)
}

fn checked(options: &Options) -> Result<Options> {
    let mut options = options.clone();
    if options.kind == Kind::Karate {
        options.nodes = edges::KARATE_NODES;
        options.edges = 2 * edges::KARATE.len() as u64;
        options.classes = 2;
    }
    if options.nodes == 0 && options.edges > 0 {
        return Err(Error::option("edges need nodes: ask for at least one"));
    }
    if options.kind == Kind::Sbm && (options.classes == 0 || options.classes > options.nodes) {
        return Err(Error::option(format!(
            "a block model needs 1 to {} classes, found {}",
            options.nodes, options.classes
        )));
    }
    if options.nodes > 1 << 40 || options.features > 1 << 24 {
        return Err(Error::option("at most 2^40 nodes with 2^24 features each can be generated"));
    }
    Ok(options)
}

fn write_edges(options: &Options, writer: &DatasetWriter, job: &Job<'_>) -> Result<EdgeTypeInfo> {
    const CHUNK: u64 = 1 << 18;
    let mut info = EdgeTypeInfo::new(homogeneous_edge(), 0, options.layout.directions(EdgeRole::Message));
    info.weights = options.weights;
    info.edge_ids = options.edge_ids || options.weights;
    let counts = EndCounts { src: options.nodes, dst: options.nodes };
    let mut lists = ListsBuilder::new(info, counts, EdgeRules::default(), options.memory, &writer.scratch()?);

    let maker = EdgeMaker::new(options);
    let weights = stream(options.seed, Purpose::Weights);
    let stage = job.stage("drawing edges", Unit::Edges, Some(options.edges));
    let mut chunk: Vec<Edge> = Vec::new();
    for start in (0..options.edges).step_by(CHUNK as usize) {
        let end = options.edges.min(start + CHUNK);
        (0..(end - start) as usize)
            .into_par_iter()
            .map(|index| {
                let id = start + index as u64;
                let (src, dst) = maker.edge(id);
                let weight = if options.weights { weight(weights, id) } else { 0.0 };
                Edge { src, dst, id, timestamp: 0, weight }
            })
            .collect_into_vec(&mut chunk);
        lists.push(&chunk)?;
        stage.advance(end - start)?;
    }
    drop(stage);
    lists.finish(options.edges, writer, &mut Vec::new(), job)
}

fn write_nodes(options: &Options, writer: &DatasetWriter, job: &Job<'_>) -> Result<NodeTypeInfo> {
    let mut info = NodeTypeInfo::new(HOMOGENEOUS_NODE, options.nodes);
    let classes = nodes::classes(options);
    if let Some(classes) = &classes {
        info.label = Some(LabelInfo { kind: LabelKind::Single, dtype: DType::I64, width: 1 });
        nodes::write_labels(writer, classes)?;
    }
    if options.features > 0 {
        let feature = FeatureInfo { name: "x".to_owned(), dtype: DType::F32, shape: vec![options.features] };
        nodes::write_features(options, classes.as_deref(), writer, &feature, job)?;
        info.features.push(feature);
    }
    if options.node_weights {
        nodes::write_weights(options, writer, job)?;
        info.weights = true;
    }
    nodes::write_splits(options, writer, &mut info, job)?;
    Ok(info)
}

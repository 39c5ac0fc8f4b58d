//! Labels, features, weights and splits of generated nodes.

use graphmill_graph::path::{self, NodeArray};
use graphmill_graph::random::Stream;
use graphmill_graph::{DType, DatasetWriter, FeatureInfo, NodeTypeInfo, Place};
use rayon::prelude::*;

use super::edges::scramble;
use super::{Kind, Options, Purpose, stream, weight};
use crate::ingest::splits::{Shares, write_hashed};
use crate::tables::write_node_table;
use crate::{Job, Result, Unit};

/// The karate club's members who followed the officer, node 33, when it split.
const OFFICERS: [u64; 17] = [9, 14, 15, 18, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33];

/// Features of a class lie around its centroid, whose entries are uniform in ±this, with noise of variance 1: a node
/// alone says little of its class, its neighbourhood much.
const SIGNAL: f64 = 0.5;

/// The class of each node, if nodes have one.
pub(super) fn classes(options: &Options) -> Option<Vec<u32>> {
    let nodes = options.nodes;
    match options.kind {
        Kind::Karate => Some((0..nodes).map(|node| u32::from(OFFICERS.contains(&node))).collect()),
        Kind::Sbm => {
            let scramble = scramble(options);
            let mut classes = vec![0; nodes as usize];
            for node in 0..nodes {
                classes[scramble.at(node) as usize] = (node % options.classes) as u32;
            }
            Some(classes)
        }
        Kind::Rmat | Kind::Uniform if options.classes > 0 => {
            let labels = stream(options.seed, Purpose::Labels);
            Some((0..nodes).map(|node| labels.below(node, options.classes) as u32).collect())
        }
        Kind::Rmat | Kind::Uniform => None,
    }
}

pub(super) fn write_labels(writer: &DatasetWriter, classes: &[u32]) -> Result<()> {
    let path = path::node(crate::ingest::HOMOGENEOUS_NODE, NodeArray::Label(DType::I64));
    let mut labels = writer.array(Place::Part(0), &path)?;
    for &class in classes {
        labels.write(&i64::from(class).to_le_bytes())?;
    }
    Ok(labels.finish()?)
}

pub(super) fn write_features(
    options: &Options,
    classes: Option<&[u32]>,
    writer: &DatasetWriter,
    feature: &FeatureInfo,
    job: &Job<'_>,
) -> Result<()> {
    let width = options.features as usize;
    let rows = ((8 << 20) / width).max(1);
    let noise = stream(options.seed, Purpose::Features);
    let centroids = stream(options.seed, Purpose::Centroids);
    let path = path::node(crate::ingest::HOMOGENEOUS_NODE, NodeArray::Feature(feature));
    let mut array = writer.array(Place::Part(0), &path)?;
    let stage = job.stage("drawing features", Unit::Nodes, Some(options.nodes));
    let mut chunk = vec![0f32; rows.min(options.nodes as usize) * width];
    for start in (0..options.nodes).step_by(rows) {
        let count = rows.min((options.nodes - start) as usize);
        let chunk = &mut chunk[..count * width];
        chunk.par_chunks_mut(width).enumerate().for_each(|(row, values)| {
            let node = start + row as u64;
            let first = node * width as u64;
            match (options.kind, classes) {
                (Kind::Sbm, Some(classes)) => {
                    let class = u64::from(classes[node as usize]);
                    for (index, value) in values.iter_mut().enumerate() {
                        let centre = symmetric(centroids, class * width as u64 + index as u64) * SIGNAL;
                        *value = (centre + bell(noise, first + index as u64)) as f32;
                    }
                }
                _ => {
                    for (index, value) in values.iter_mut().enumerate() {
                        *value = symmetric(noise, first + index as u64) as f32;
                    }
                }
            }
        });
        array.write(bytemuck::cast_slice(chunk))?;
        stage.advance(count as u64)?;
    }
    Ok(array.finish()?)
}

pub(super) fn write_weights(options: &Options, writer: &DatasetWriter, job: &Job<'_>) -> Result<()> {
    let weights = stream(options.seed, Purpose::NodeWeights);
    let path = path::node(crate::ingest::HOMOGENEOUS_NODE, NodeArray::Weights);
    let mut array = writer.array(Place::Part(0), &path)?;
    for node in 0..options.nodes {
        if node.is_multiple_of(1 << 16) {
            job.check()?;
        }
        array.write(&weight(weights, node).to_le_bytes())?;
    }
    array.finish()?;
    write_node_table(writer, crate::ingest::HOMOGENEOUS_NODE)
}

/// Uniform in `[-1, 1)`.
fn symmetric(stream: Stream, counter: u64) -> f64 {
    2.0 * stream.unit(counter) - 1.0
}

/// Nearly normal, mean 0 and variance 1: twelve 5-bit numbers would do, four 16-bit ones of one word are cheaper. No
/// function of libm is involved, so every machine draws the same.
fn bell(stream: Stream, counter: u64) -> f64 {
    let word = stream.at(counter);
    let sum: u64 = (0..4).map(|part| word >> (16 * part) & 0xffff).sum();
    // A sum of four uniform numbers in [0, 1) has mean 2 and variance 1/3.
    (sum as f64 / 65_536.0 - 2.0) * 1.732_050_807_568_877_2
}

pub(super) fn write_splits(
    options: &Options,
    writer: &DatasetWriter,
    info: &mut NodeTypeInfo,
    job: &Job<'_>,
) -> Result<()> {
    let shares = Shares { train: 0.6, val: 0.2, test: 0.2 };
    let splits = stream(options.seed, Purpose::Splits);
    write_hashed(writer, info, shares, job, |node| Ok(Some(splits.unit(node))))
}

//! The fingerprint: a name for the logical content, the same for every layout and partitioning of a graph.

use std::fmt::Write as _;

use rayon::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use xxhash_rust::xxh3::xxh3_128;

use crate::book::RowIds;
use crate::{Adjacency, Dataset, Direction, FeatureInfo, NodeStore, Originals, Partition, Result, Split, Tensor};

/// The name of a dataset's logical content: 32 hex digits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u128);

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = u128::from_str_radix(&text, 16).map(Self).ok().filter(|value| value.to_string() == text);
        value.ok_or_else(|| de::Error::custom("a fingerprint is 32 lower-case hex digits"))
    }
}

impl Dataset {
    /// Reads all content and computes its fingerprint; all partitions must be opened.
    pub fn compute_fingerprint(&self) -> Result<Fingerprint> {
        let parts = (0..self.parts()).map(|number| self.partition(number)).collect::<Result<Vec<_>>>()?;
        let mut text = String::from("graphmill-fingerprint 1\n");
        let _ = writeln!(text, "homogeneous {}", self.manifest().homogeneous);
        for place in 0..self.node_types().len() {
            self.describe_nodes(&mut text, place, &parts)?;
        }
        for place in 0..self.edge_types().len() {
            self.describe_edges(&mut text, place, &parts)?;
        }
        Ok(Fingerprint(xxh3_128(text.as_bytes())))
    }

    fn describe_nodes(&self, text: &mut String, place: usize, parts: &[&Partition]) -> Result<()> {
        let info = &self.node_types()[place];
        let stores = || parts.iter().map(|part| part.nodes(place));
        let _ = writeln!(text, "node {} {}", quoted(&info.name), info.count);
        for (feature, described) in info.features.iter().enumerate() {
            let sum = sum_rows(stores().filter_map(|nodes| Some((nodes.row_ids(), nodes.feature(feature)?))));
            describe_feature(text, described, sum);
        }
        if let Some(label) = info.label {
            let sum = sum_rows(stores().filter_map(|nodes| Some((nodes.row_ids(), nodes.label()?))));
            let _ = writeln!(text, " label {} {} {} {sum:032x}", label.kind.name(), label.dtype, label.width);
        }
        if info.weights {
            let sum = stores().map(|nodes| sum_values(nodes, nodes.weights(), f32::to_le_bytes));
            let sum = sum.fold(0, u128::wrapping_add);
            let _ = writeln!(text, " weights {sum:032x}");
        }
        if info.timestamps {
            let sum = stores().map(|nodes| sum_values(nodes, nodes.timestamps(), i64::to_le_bytes));
            let sum = sum.fold(0, u128::wrapping_add);
            let _ = writeln!(text, " timestamps {sum:032x}");
        }
        for (split, size) in info.splits.iter() {
            let sum = stores().map(|nodes| sum_split(nodes, split)).fold(0, u128::wrapping_add);
            let _ = writeln!(text, " split {split} {size} {sum:032x}");
        }
        if let Some(kind) = info.original_ids {
            let mut sum = 0u128;
            for nodes in stores() {
                sum = sum.wrapping_add(sum_originals(nodes)?);
            }
            let _ = writeln!(text, " original {} {sum:032x}", kind.name());
        }
        Ok(())
    }

    fn describe_edges(&self, text: &mut String, place: usize, parts: &[&Partition]) -> Result<()> {
        let info = &self.edge_types()[place];
        let direction = info.primary();
        let owner = self.manifest().node_type(info.name.list_owner(direction))?;
        let mut sum = 0u128;
        for part in parts {
            if let Some(lists) = part.edges(place).lists(direction) {
                sum = sum.wrapping_add(sum_edges(lists, part.nodes(owner).row_ids(), direction)?);
            }
        }
        let _ = writeln!(
            text,
            "edge {} {} {} {} {} {} {} {} {} {sum:032x}",
            quoted(&info.name.src),
            quoted(&info.name.relation),
            quoted(&info.name.dst),
            info.role.name(),
            info.count,
            info.edge_ids,
            info.id_count,
            info.weights,
            info.timestamps,
        );
        for (feature, described) in info.features.iter().enumerate() {
            let stores = parts.iter().map(|part| part.edges(place));
            let sum = sum_rows(stores.filter_map(|edges| Some((edges.row_ids(), edges.feature(feature)?))));
            describe_feature(text, described, sum);
        }
        Ok(())
    }
}

fn describe_feature(text: &mut String, info: &FeatureInfo, sum: u128) {
    let shape: Vec<_> = info.shape.iter().map(u64::to_string).collect();
    let _ = writeln!(text, " feature {} {} [{}] {sum:032x}", quoted(&info.name), info.dtype, shape.join(","));
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

fn row_hash(id: u64, bytes: &[u8]) -> u128 {
    let mut item = [0; 24];
    item[..8].copy_from_slice(&id.to_le_bytes());
    item[8..].copy_from_slice(&xxh3_128(bytes).to_le_bytes());
    xxh3_128(&item)
}

fn edge_hash(src: u64, dst: u64, id: u64, timestamp: i64, weight: u32) -> u128 {
    let mut item = [0; 36];
    item[..8].copy_from_slice(&src.to_le_bytes());
    item[8..16].copy_from_slice(&dst.to_le_bytes());
    item[16..24].copy_from_slice(&id.to_le_bytes());
    item[24..32].copy_from_slice(&timestamp.to_le_bytes());
    item[32..].copy_from_slice(&weight.to_le_bytes());
    xxh3_128(&item)
}

/// Adds up item hashes in parallel.
fn sum(rows: usize, hash: impl Fn(usize) -> u128 + Send + Sync) -> u128 {
    (0..rows).into_par_iter().with_min_len(4096).map(hash).reduce(|| 0, u128::wrapping_add)
}

fn sum_rows<'a>(tensors: impl Iterator<Item = (RowIds<'a>, &'a Tensor)>) -> u128 {
    tensors
        .map(|(ids, tensor)| {
            sum(tensor.rows(), |row| row_hash(ids.get(row).unwrap_or(u64::MAX), tensor.row(row).unwrap_or_default()))
        })
        .fold(0, u128::wrapping_add)
}

fn sum_values<T: Copy + Sync, const N: usize>(
    nodes: &NodeStore,
    values: Option<&[T]>,
    bytes: impl Fn(T) -> [u8; N] + Sync + Send,
) -> u128 {
    let (ids, values) = (nodes.row_ids(), values.unwrap_or_default());
    sum(values.len(), |row| row_hash(ids.get(row).unwrap_or(u64::MAX), &bytes(values[row])))
}

fn sum_split(nodes: &NodeStore, split: Split) -> u128 {
    let Some(ids) = nodes.split(split) else { return 0 };
    let ids = ids.as_slice();
    sum(ids.len(), |index| row_hash(ids.get(index).unwrap_or(u64::MAX), &[]))
}

fn sum_originals(nodes: &NodeStore) -> Result<u128> {
    let Some(originals) = nodes.originals() else { return Ok(0) };
    let ids = nodes.row_ids();
    let id = |row| ids.get(row).unwrap_or(u64::MAX);
    match originals {
        Originals::Ints(keys) => Ok(sum(keys.len(), |row| row_hash(id(row), &keys[row].to_le_bytes()))),
        Originals::Strings(_) => (0..originals.len())
            .into_par_iter()
            .with_min_len(4096)
            .map(|row| {
                let key = originals.get(row)?.map(|key| key.to_string()).unwrap_or_default();
                Ok(row_hash(id(row), key.as_bytes()))
            })
            .try_reduce(|| 0, |a, b| Ok(a.wrapping_add(b))),
    }
}

pub(crate) fn sum_edges(lists: &Adjacency, ids: RowIds<'_>, direction: Direction) -> Result<u128> {
    let neighbors = lists.neighbors().as_slice();
    let edge_ids = lists.edge_ids().map(|ids| ids.as_slice());
    (0..lists.rows())
        .into_par_iter()
        .with_min_len(1024)
        .map(|row| {
            let owner = ids.get(row).unwrap_or(u64::MAX);
            let list = lists.list(row)?;
            Ok(list.fold(0u128, |sum, place| {
                let neighbor = neighbors.get(place).unwrap_or(u64::MAX);
                let (src, dst) = match direction {
                    Direction::In => (neighbor, owner),
                    Direction::Out => (owner, neighbor),
                };
                let id = edge_ids.and_then(|ids| ids.get(place)).unwrap_or(u64::MAX);
                let timestamp = lists.timestamps().map_or(0, |timestamps| timestamps[place]);
                let weight = lists.weights().map_or(0, |weights| weights[place].to_bits());
                sum.wrapping_add(edge_hash(src, dst, id, timestamp, weight))
            }))
        })
        .try_reduce(|| 0, |a, b| Ok(a.wrapping_add(b)))
}

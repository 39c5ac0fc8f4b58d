//! The fingerprint as `docs/format.md` defines it, computed from the model with no dataset in sight.

use std::fmt::Write as _;

use graphmill_graph::{EdgeTypeName, Fingerprint, Split};
use xxhash_rust::xxh3::xxh3_128;

use crate::{ModelEdge, ModelEdges, ModelGraph, ModelNodes, ModelOriginals, ModelTensor};

/// What the fingerprint of a dataset with this content must be.
pub fn fingerprint(graph: &ModelGraph) -> Fingerprint {
    let mut text = format!("graphmill-fingerprint 1\nhomogeneous {}\n", graph.homogeneous);
    for (name, nodes) in &graph.nodes {
        describe_nodes(&mut text, name, nodes);
    }
    for (name, edges) in &graph.edges {
        describe_edges(&mut text, name, edges);
    }
    Fingerprint(xxh3_128(text.as_bytes()))
}

fn describe_nodes(text: &mut String, name: &str, nodes: &ModelNodes) {
    let _ = writeln!(text, "node {} {}", json(name), nodes.count);
    describe_features(text, &nodes.features);
    if let Some(label) = &nodes.label {
        let sum = sum_rows(&label.rows);
        let _ = writeln!(text, " label {} {} {} {sum}", label.kind.name(), label.dtype, label.width);
    }
    if let Some(weights) = &nodes.weights {
        let _ = writeln!(text, " weights {}", sum_rows(weights.iter().map(|bits| bits.to_le_bytes())));
    }
    if let Some(timestamps) = &nodes.timestamps {
        let _ = writeln!(text, " timestamps {}", sum_rows(timestamps.iter().map(|at| at.to_le_bytes())));
    }
    for split in Split::ALL {
        if let Some(members) = nodes.split(split) {
            let sum = sum(members.iter().map(|&id| row(id, b"")));
            let _ = writeln!(text, " split {split} {} {sum}", members.len());
        }
    }
    match &nodes.originals {
        None => {}
        Some(ModelOriginals::Ints(keys)) => {
            let _ = writeln!(text, " original int {}", sum_rows(keys.iter().map(|key| key.to_le_bytes())));
        }
        Some(ModelOriginals::Strings(keys)) => {
            let _ = writeln!(text, " original string {}", sum_rows(keys));
        }
    }
}

fn describe_edges(text: &mut String, name: &EdgeTypeName, edges: &ModelEdges) {
    let _ = writeln!(
        text,
        "edge {} {} {} {} {} {} {} {} {} {}",
        json(&name.src),
        json(&name.relation),
        json(&name.dst),
        edges.role.name(),
        edges.edges.len(),
        edges.edge_ids,
        edges.id_count,
        edges.weights,
        edges.timestamps,
        sum(edges.edges.iter().map(edge)),
    );
    describe_features(text, &edges.features);
}

fn describe_features<'a>(text: &mut String, features: impl IntoIterator<Item = (&'a String, &'a ModelTensor)>) {
    for (name, tensor) in features {
        let shape: Vec<String> = tensor.shape.iter().map(u64::to_string).collect();
        let sum = sum_rows(&tensor.rows);
        let _ = writeln!(text, " feature {} {} [{}] {sum}", json(name), tensor.dtype, shape.join(","));
    }
}

fn json(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

fn sum_rows(rows: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    sum((0..).zip(rows).map(|(id, bytes)| row(id, bytes.as_ref())))
}

fn sum(hashes: impl Iterator<Item = u128>) -> String {
    format!("{:032x}", hashes.fold(0, u128::wrapping_add))
}

fn row(id: u64, bytes: &[u8]) -> u128 {
    xxh3_128(&[&id.to_le_bytes()[..], &xxh3_128(bytes).to_le_bytes()].concat())
}

fn edge(edge: &ModelEdge) -> u128 {
    let item = [
        &edge.src.to_le_bytes()[..],
        &edge.dst.to_le_bytes(),
        &edge.id.unwrap_or(u64::MAX).to_le_bytes(),
        &edge.timestamp.unwrap_or(0).to_le_bytes(),
        &edge.weight.unwrap_or(0).to_le_bytes(),
    ];
    xxh3_128(&item.concat())
}

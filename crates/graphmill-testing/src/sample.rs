//! A small graph that has a little of everything, always the same.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_graph::{DType, Direction, EdgeRole, EdgeTypeName, LabelKind};

use crate::{ModelEdge, ModelEdges, ModelGraph, ModelLabel, ModelNodes, ModelOriginals, ModelTensor};

/// Papers that cite papers, authors who write and like them, and a type without nodes. Fixtures are made from it: a
/// change here is a change of format fixtures.
pub fn sample() -> ModelGraph {
    let papers = ModelNodes {
        count: 5,
        features: BTreeMap::from([
            ("bytes".to_owned(), tensor(DType::I8, &[3], 5)),
            ("halves".to_owned(), tensor(DType::F16, &[2], 5)),
            ("x".to_owned(), tensor(DType::F32, &[2, 3], 5)),
        ]),
        label: Some(label(LabelKind::Single, DType::I64, 1, 5)),
        weights: Some([0.5, 0.0, 1e-40, 3.0, 0.1].map(f32::to_bits).to_vec()),
        timestamps: Some(vec![2001, -5, 0, i64::MAX, 2001]),
        splits: [Some(BTreeSet::from([0, 3, 4])), Some(BTreeSet::from([2])), Some(BTreeSet::new())],
        originals: Some(ModelOriginals::Strings(["", "a", "ab", "b\n", "é"].map(str::to_owned).to_vec())),
    };
    let authors = ModelNodes {
        count: 3,
        features: BTreeMap::from([
            ("born".to_owned(), tensor(DType::I32, &[], 3)),
            ("mail".to_owned(), tensor(DType::U8, &[1], 3)),
            ("rank".to_owned(), tensor(DType::F64, &[], 3)),
            ("short".to_owned(), tensor(DType::BF16, &[2], 3)),
        ]),
        label: Some(label(LabelKind::Multi, DType::U8, 2, 3)),
        splits: [None, None, Some(BTreeSet::from([1]))],
        originals: Some(ModelOriginals::Ints(vec![-7, 3, 1 << 40])),
        ..ModelNodes::default()
    };
    ModelGraph {
        homogeneous: false,
        edge_dir: Direction::In,
        nodes: BTreeMap::from([
            ("author".to_owned(), authors),
            ("paper".to_owned(), papers),
            ("venue/press".to_owned(), ModelNodes::default()),
        ]),
        edges: BTreeMap::from([
            (EdgeTypeName::new("author", "likes", "paper"), likes()),
            (EdgeTypeName::new("author", "writes", "paper"), writes()),
            (EdgeTypeName::new("paper", "cites", "paper"), cites()),
            (EdgeTypeName::new("paper", "in", "venue/press"), no_edges()),
        ]),
    }
}

/// Supervision edges with ids and nothing else.
fn likes() -> ModelEdges {
    let edge = |id, src, dst| ModelEdge { id: Some(id), ..plain(src, dst) };
    ModelEdges {
        role: EdgeRole::Label,
        edges: vec![edge(1, 0, 2), edge(0, 0, 4), edge(2, 2, 1)],
        edge_ids: true,
        id_count: 3,
        ..no_edges()
    }
}

/// Everything an edge can have, with gaps in the ids.
fn writes() -> ModelEdges {
    let edge = |id, src, dst, weight: f32, timestamp| ModelEdge {
        id: Some(id),
        weight: Some(weight.to_bits()),
        timestamp: Some(timestamp),
        ..plain(src, dst)
    };
    ModelEdges {
        edges: vec![
            edge(1, 0, 0, 0.5, 9),
            edge(4, 0, 0, 0.0, -9),
            edge(0, 1, 0, 1.0, 9),
            edge(5, 1, 3, 2.5, 7),
            edge(2, 2, 4, 1e-3, 7),
        ],
        edge_ids: true,
        id_count: 7,
        weights: true,
        timestamps: true,
        features: BTreeMap::from([
            ("note".to_owned(), tensor(DType::U8, &[2], 7)),
            ("share".to_owned(), tensor(DType::F32, &[], 7)),
        ]),
        ..no_edges()
    }
}

/// Plain edges: a duplicate, a self loop, a paper that nothing touches.
fn cites() -> ModelEdges {
    let edges = vec![plain(0, 1), plain(0, 1), plain(1, 4), plain(4, 0), plain(4, 4)];
    ModelEdges { edges, ..no_edges() }
}

fn no_edges() -> ModelEdges {
    ModelEdges {
        role: EdgeRole::Message,
        edges: Vec::new(),
        edge_ids: false,
        id_count: 0,
        weights: false,
        timestamps: false,
        features: BTreeMap::new(),
    }
}

fn plain(src: u64, dst: u64) -> ModelEdge {
    ModelEdge { src, dst, id: None, weight: None, timestamp: None }
}

fn label(kind: LabelKind, dtype: DType, width: u64, rows: usize) -> ModelLabel {
    ModelLabel { kind, dtype, width, rows: counted_rows(rows, dtype.size() * width as usize) }
}

fn tensor(dtype: DType, shape: &[u64], rows: usize) -> ModelTensor {
    let row_bytes = dtype.size() * shape.iter().product::<u64>() as usize;
    ModelTensor { dtype, shape: shape.to_vec(), rows: counted_rows(rows, row_bytes) }
}

/// Bytes 1, 2, 3… so that no two places hold the same one.
fn counted_rows(rows: usize, row_bytes: usize) -> Vec<Vec<u8>> {
    (0..rows).map(|row| (0..row_bytes).map(|at| (row * row_bytes + at + 1) as u8).collect()).collect()
}

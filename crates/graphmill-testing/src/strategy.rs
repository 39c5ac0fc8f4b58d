//! Random graphs. Shapes (types, counts, edges) come from proptest and shrink; the bytes of features come from a seed.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_graph::random::Stream;
use graphmill_graph::{BookBuilder, DType, Direction, EdgeRole, EdgeTypeName, LabelKind};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::{Assignment, ModelEdge, ModelEdges, ModelGraph, ModelLabel, ModelNodes, ModelOriginals, ModelTensor};

const TYPE_NAMES: [&str; 5] = ["paper", "author", "..", "a/b %2F", "実\"体"];
const RELATIONS: [&str; 3] = ["cites", "re:lated to", "."];
const FEATURE_NAMES: [&str; 4] = ["x", "X", "embedding.1", "é"];

/// Any graph: homogeneous or heterogeneous, with zero nodes or edges, isolated nodes, self loops, duplicates, several
/// relations between the same types, label edges, and any choice of optional content.
pub fn graphs() -> impl Strategy<Value = ModelGraph> {
    prop_oneof![1 => homogeneous(), 2 => heterogeneous()]
}

/// Any choice and order of layouts.
pub fn layouts() -> impl Strategy<Value = Vec<Direction>> {
    use Direction::{In, Out};
    select(vec![vec![In], vec![Out], vec![In, Out], vec![Out, In]])
}

/// Any way to share the nodes of a graph between up to six partitions; each type has a range or an assigned book.
pub fn assignments(graph: &ModelGraph) -> impl Strategy<Value = Assignment> + use<> {
    let graph = graph.clone();
    (1u32..=6, any::<u64>()).prop_map(move |(parts, seed)| {
        Assignment::new(&graph, parts, |name, count| {
            let random = Stream::new(seed, &name.bytes().map(u64::from).collect::<Vec<_>>());
            if random.at(0).is_multiple_of(2) {
                return BookBuilder::Range(random_bounds(random, count, parts));
            }
            let owner = (0..count).map(|id| random.below(1 + id, parts.into()) as u16).collect();
            BookBuilder::Assigned { owner, parts }
        })
    })
}

/// A graph with layouts and an assignment to write it in.
pub fn placed_graphs() -> impl Strategy<Value = (ModelGraph, Vec<Direction>, Assignment)> {
    graphs().prop_flat_map(|graph| {
        let assignment = assignments(&graph);
        (Just(graph), layouts(), assignment)
    })
}

fn homogeneous() -> impl Strategy<Value = ModelGraph> {
    (nodes(), any::<bool>(), directions()).prop_flat_map(|(nodes, has_edges, edge_dir)| {
        let edges = btree_map(Just(EdgeTypeName::new("node", "to", "node")), edges(&nodes, &nodes, true), {
            usize::from(has_edges)..=usize::from(has_edges)
        });
        edges.prop_map(move |edges| ModelGraph {
            homogeneous: true,
            edge_dir,
            nodes: BTreeMap::from([("node".to_owned(), nodes.clone())]),
            edges,
        })
    })
}

fn heterogeneous() -> impl Strategy<Value = ModelGraph> {
    let types = btree_map(select(&TYPE_NAMES[..]).prop_map(str::to_owned), nodes(), 1..4);
    let names = vec((any::<Index>(), select(&RELATIONS[..]), any::<Index>()), 0..5);
    (types, names, directions()).prop_flat_map(|(nodes, names, edge_dir)| {
        let types: Vec<&String> = nodes.keys().collect();
        let names: BTreeSet<EdgeTypeName> = names
            .into_iter()
            .map(|(src, relation, dst)| EdgeTypeName::new(*src.get(&types), relation, *dst.get(&types)))
            .collect();
        let of_type = |name: EdgeTypeName| {
            let edges = edges(&nodes[&name.src], &nodes[&name.dst], name.src == name.dst);
            edges.prop_map(move |edges| (name.clone(), edges)).boxed()
        };
        let edges: Vec<_> = names.into_iter().map(of_type).collect();
        edges.prop_map(move |edges| ModelGraph {
            homogeneous: false,
            edge_dir,
            nodes: nodes.clone(),
            edges: edges.into_iter().collect(),
        })
    })
}

fn directions() -> impl Strategy<Value = Direction> {
    select(vec![Direction::In, Direction::Out])
}

fn nodes() -> impl Strategy<Value = ModelNodes> {
    // The largest counts pass the block of an assigned book.
    let counts = prop_oneof![1 => Just(0usize), 8 => 1usize..12, 2 => 12usize..60, 1 => 250usize..600];
    counts.prop_flat_map(|count| {
        let splits = [(); 3].map(|()| option::of(subset(count)));
        let numbers = (option::of(vec(weights(), count)), option::of(vec(any::<i64>(), count)));
        (features(count), option::of(label(count)), numbers, splits, option::of(originals(count))).prop_map(
            move |(features, label, (weights, timestamps), splits, originals)| ModelNodes {
                count: count as u64,
                features,
                label,
                weights,
                timestamps,
                splits,
                originals,
            },
        )
    })
}

fn features(rows: usize) -> impl Strategy<Value = BTreeMap<String, ModelTensor>> {
    btree_map(select(&FEATURE_NAMES[..]).prop_map(str::to_owned), tensor(rows), 0..3)
}

fn tensor(rows: usize) -> impl Strategy<Value = ModelTensor> {
    let shapes = select(vec![vec![], vec![1], vec![3], vec![2, 3]]);
    (dtypes(), shapes, any::<u64>()).prop_map(move |(dtype, shape, seed)| {
        let row_bytes = dtype.size() * shape.iter().product::<u64>() as usize;
        ModelTensor { dtype, shape, rows: random_rows(seed, rows, row_bytes) }
    })
}

fn label(rows: usize) -> impl Strategy<Value = ModelLabel> {
    (option::of(1u64..4), dtypes(), any::<u64>()).prop_map(move |(values, dtype, seed)| {
        let kind = if values.is_some() { LabelKind::Multi } else { LabelKind::Single };
        let width = values.unwrap_or(1);
        ModelLabel { kind, dtype, width, rows: random_rows(seed, rows, dtype.size() * width as usize) }
    })
}

fn dtypes() -> impl Strategy<Value = DType> {
    select(&DType::ALL[..])
}

/// The bits of weights: usual ones and every kind of extreme.
fn weights() -> impl Strategy<Value = u32> {
    let subnormal = 1u32..0x0080_0000;
    let usual = (0.0f32..10.0).prop_map(f32::to_bits);
    let any_magnitude = 0u32..=f32::MAX.to_bits();
    prop_oneof![
        Just(0.0f32.to_bits()),
        Just((-0.0f32).to_bits()),
        Just(f32::MAX.to_bits()),
        subnormal,
        usual,
        any_magnitude
    ]
}

/// Nodes drawn one by one: none, about half or all of them.
fn subset(count: usize) -> impl Strategy<Value = BTreeSet<u64>> {
    (0u64..=2, any::<u64>()).prop_map(move |(halves, seed)| {
        let random = Stream::new(seed, &[]);
        (0..count as u64).filter(|&id| random.below(id, 2) < halves).collect()
    })
}

fn originals(count: usize) -> impl Strategy<Value = ModelOriginals> {
    (any::<bool>(), any::<u64>()).prop_map(move |(ints, seed)| {
        let random = Stream::new(seed, &[]);
        if ints {
            // Shifted words are small and close together; the others fill the range.
            let keys = (0..).map(|counter| random.at(counter) as i64 >> (random.at(!counter) % 60));
            ModelOriginals::Ints(first_distinct(keys, count))
        } else {
            ModelOriginals::Strings(first_distinct((0..).map(|counter| random_text(random.at(counter))), count))
        }
    })
}

fn edges(src: &ModelNodes, dst: &ModelNodes, same_type: bool) -> impl Strategy<Value = ModelEdges> + use<> {
    let most = if src.count == 0 || dst.count == 0 { 0 } else { 60 };
    let ends = (0..src.count.max(1), 0..dst.count.max(1));
    let times = prop_oneof![0i64..4, any::<i64>()];
    let rows = vec((ends, times, weights(), 0u64..3), 0..=most);
    let has = [any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()];
    (rows, has, 0u64..3).prop_flat_map(move |(rows, [label, edge_ids, weights, timestamps, mirrored], tail)| {
        let mut edges = Vec::new();
        let mut next_id = 0;
        for ((src, dst), timestamp, weight, gap) in rows {
            let id = next_id + gap;
            next_id = id + 1;
            let edge = ModelEdge {
                src,
                dst,
                id: edge_ids.then_some(id),
                weight: (edge_ids && weights).then_some(weight),
                timestamp: timestamps.then_some(timestamp),
            };
            edges.push(edge);
            if mirrored && same_type {
                edges.push(ModelEdge { src: dst, dst: src, ..edge });
            }
        }
        edges.sort_unstable();
        let id_count = if edge_ids { next_id + tail } else { 0 };
        let features = if edge_ids { features(id_count as usize).boxed() } else { Just(BTreeMap::new()).boxed() };
        features.prop_map(move |features| ModelEdges {
            role: if label { EdgeRole::Label } else { EdgeRole::Message },
            edges: edges.clone(),
            edge_ids,
            id_count,
            weights: edge_ids && weights,
            timestamps,
            features,
        })
    })
}

fn random_bounds(random: Stream, count: u64, parts: u32) -> Vec<u64> {
    let mut bounds: Vec<u64> = (1..parts.into()).map(|part: u64| random.below(part, count + 1)).collect();
    bounds.extend([0, count]);
    bounds.sort_unstable();
    bounds
}

fn random_rows(seed: u64, rows: usize, row_bytes: usize) -> Vec<Vec<u8>> {
    let random = |row: usize| Stream::new(seed, &[row as u64]);
    (0..rows).map(|row| (0..row_bytes as u64).map(|at| random(row).at(at) as u8).collect()).collect()
}

fn random_text(word: u64) -> String {
    const LETTERS: [char; 10] = ['a', 'b', 'Z', '0', ' ', '"', '\\', '\n', 'é', '実'];
    (0..word % 6).map(|place| LETTERS[(word >> (8 + 8 * place)) as usize % LETTERS.len()]).collect()
}

fn first_distinct<T: Ord>(items: impl Iterator<Item = T>, count: usize) -> Vec<T> {
    let mut distinct = BTreeSet::new();
    let mut items = items;
    while distinct.len() < count {
        distinct.extend(items.next());
    }
    distinct.into_iter().collect()
}

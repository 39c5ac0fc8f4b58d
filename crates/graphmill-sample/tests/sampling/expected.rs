//! What a batch must satisfy, checked in the plainest way.

use std::collections::BTreeSet;

use graphmill_graph::{Direction, EdgeRole, EdgeTypeName};
use graphmill_sample::{Batch, Field};
use graphmill_testing::{ModelEdge, ModelGraph};

/// The list of a node: its edges sorted by (timestamp, neighbour, id).
pub(crate) fn list(graph: &ModelGraph, name: &EdgeTypeName, direction: Direction, node: u64) -> Vec<ModelEdge> {
    let edges = graph.edges[name].edges.iter().filter(|edge| edge.list_owner(direction) == node);
    let mut list: Vec<ModelEdge> = edges.copied().collect();
    list.sort_by_key(|edge| (edge.timestamp, edge.neighbor(direction), edge.id));
    list
}

/// The edges of a batch along one walked type, hop by hop: rows of expanded node and neighbour, and the edge id if carried.
pub(crate) fn edges(batch: &Batch, walk: usize) -> Vec<Vec<(usize, usize, Option<i64>)>> {
    let (rows, cols, ids) = (batch.ints(Field::Row(walk)), batch.ints(Field::Col(walk)), batch.ints(Field::Edge(walk)));
    assert_eq!(rows.len(), cols.len());
    let edge = |place: usize| (cols[place] as usize, rows[place] as usize, ids.get(place).copied());
    let mut start = 0;
    let hops = batch.ints(Field::NumSampledEdges(walk)).iter().map(|&count| {
        start += count as usize;
        (start - count as usize..start).map(edge).collect()
    });
    let hops = hops.collect();
    assert_eq!(start, rows.len(), "all edges belong to a hop");
    hops
}

/// Nodes of every type are distinct, within their type, and their features and labels are their own.
pub(crate) fn check_nodes(graph: &ModelGraph, batch: &Batch) {
    for (place, (name, nodes)) in graph.nodes.iter().enumerate() {
        let ids = batch.ints(Field::Node(place));
        let distinct: BTreeSet<i64> = ids.iter().copied().collect();
        assert_eq!(distinct.len(), ids.len(), "{name} nodes are distinct");
        assert!(ids.iter().all(|&id| (id as u64) < nodes.count));
        let counted: i64 = batch.ints(Field::NumSampledNodes(place)).iter().sum();
        assert_eq!(counted, ids.len() as i64, "all {name} nodes belong to a hop");
        for (feature, wanted) in batch.plan().features(place).enumerate() {
            let tensor = batch.tensor(Field::Feature(place, feature)).unwrap();
            let rows: Vec<u8> = ids.iter().flat_map(|&id| nodes.features[wanted].rows[id as usize].clone()).collect();
            assert_eq!(tensor.bytes, rows, "feature {wanted} of {name}");
            assert_eq!(tensor.shape[0], ids.len() as u64);
        }
        if let Some(tensor) = batch.tensor(Field::Label(place)) {
            let label = nodes.label.as_ref().unwrap();
            let rows: Vec<u8> = ids.iter().flat_map(|&id| label.rows[id as usize].clone()).collect();
            assert_eq!(tensor.bytes, rows, "labels of {name}");
        }
    }
    for entry in batch.layout().entries() {
        assert_eq!(entry.offset % 64, 0, "{:?} is aligned", entry.field);
    }
}

/// Each walked edge is an edge of the graph, expanded from a new node of the hop before, and nodes are numbered in order of
/// discovery. Returns, per walk and hop, the expanded rows.
pub(crate) fn check_hops(
    graph: &ModelGraph,
    batch: &Batch,
    direction: Direction,
    count: impl Fn(&EdgeTypeName, usize, &[ModelEdge]) -> Vec<usize>,
) {
    let types: Vec<&String> = graph.nodes.keys().collect();
    let place = |name: &str| types.iter().position(|known| *known == name).unwrap();
    let walks: Vec<EdgeTypeName> = batch.plan().walked().cloned().collect();
    let hops = batch.ints(Field::NumSampledNodes(0)).len() - 1;
    let sampled: Vec<_> = (0..walks.len()).map(|walk| edges(batch, walk)).collect();
    let seeds = |node_type: usize| batch.ints(Field::NumSampledNodes(node_type))[0] as usize;
    let mut known: Vec<usize> = (0..types.len()).map(seeds).collect();
    let mut frontier: Vec<std::ops::Range<usize>> = known.iter().map(|&seeds| 0..seeds).collect();
    #[expect(clippy::needless_range_loop, reason = "a hop is a place in several lists")]
    for hop in 0..hops {
        let before = known.clone();
        for (walk, name) in walks.iter().enumerate() {
            assert_eq!(graph.edges[name].role, EdgeRole::Message, "label edges are never walked");
            let (from, to) = (place(name.list_owner(direction)), place(name.neighbor(direction)));
            let mut left = &sampled[walk][hop][..];
            for expanded in frontier[from].clone() {
                let mine = left.iter().take_while(|edge| edge.0 == expanded).count();
                let (own, rest) = left.split_at(mine);
                left = rest;
                let list = list(graph, name, direction, batch.ints(Field::Node(from))[expanded] as u64);
                let allowed = count(name, hop, &list);
                assert!(allowed.contains(&own.len()), "{} of {} edges, allowed {allowed:?}", own.len(), list.len());
                check_own(batch, direction, to, own, &list);
            }
            assert!(left.is_empty(), "only new nodes are expanded, in order");
            for &(_, neighbor, _) in &sampled[walk][hop] {
                assert!(neighbor <= known[to], "rows follow the order of discovery");
                known[to] += usize::from(neighbor == known[to]);
            }
        }
        frontier = before.iter().zip(&known).map(|(&start, &end)| start..end).collect();
        for (node_type, range) in frontier.iter().enumerate() {
            assert_eq!(batch.ints(Field::NumSampledNodes(node_type))[hop + 1], range.len() as i64);
        }
    }
}

/// The edges of one expanded node are edges of its list.
fn check_own(batch: &Batch, direction: Direction, to: usize, own: &[(usize, usize, Option<i64>)], list: &[ModelEdge]) {
    let ids = batch.ints(Field::Node(to));
    for &(_, neighbor, id) in own {
        let found = list.iter().any(|edge| {
            edge.neighbor(direction) == ids[neighbor] as u64 && id.is_none_or(|id| edge.id == Some(id as u64))
        });
        assert!(found, "edge to {} with id {id:?} is not in the list", ids[neighbor]);
    }
}

/// No edge of a list is taken more often than it is there.
pub(crate) fn check_distinct(graph: &ModelGraph, batch: &Batch, direction: Direction) {
    let types: Vec<&String> = graph.nodes.keys().collect();
    for (walk, name) in batch.plan().walked().enumerate() {
        let place = |name: &str| types.iter().position(|known| *known == name).unwrap();
        let (from, to) = (place(name.list_owner(direction)), place(name.neighbor(direction)));
        let mut taken = std::collections::BTreeMap::new();
        for (expanded, neighbor, id) in edges(batch, walk).into_iter().flatten() {
            *taken.entry((expanded, neighbor, id)).or_insert(0usize) += 1;
        }
        for ((expanded, neighbor, id), times) in taken {
            let (owner, other) = (batch.ints(Field::Node(from))[expanded], batch.ints(Field::Node(to))[neighbor]);
            let list = list(graph, name, direction, owner as u64);
            let there = list.iter().filter(|edge| {
                edge.neighbor(direction) == other as u64 && id.is_none_or(|id| edge.id == Some(id as u64))
            });
            assert!(times <= there.count(), "an edge was taken {times} times");
        }
    }
}

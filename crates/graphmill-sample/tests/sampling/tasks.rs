//! Induced subgraphs, links, anchors and personalised `PageRank` on any graph.

use std::collections::{BTreeMap, BTreeSet};

use graphmill_graph::{Direction, EdgeRole, EdgeTypeName};
use graphmill_sample::{Budget, Config, Expand, Fanouts, Field, Hops, Negatives, Ppr, Supervision, Task};
use graphmill_testing::{ModelGraph, graphs};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::expected::{check_hops, check_nodes, edges, list};
use crate::neighbors::seeded_graphs;
use crate::support::{dataset, sample, sample_pairs};

fn neighbors(fanouts: &[i64]) -> Expand {
    Expand::Neighbors(Hops { fanouts: Fanouts::Same(fanouts.to_vec()), ..Hops::default() })
}

fn place(graph: &ModelGraph, node_type: &str) -> usize {
    graph.nodes.keys().position(|name| name == node_type).unwrap()
}

/// A graph with an edge type of any role, and pairs of its ends.
fn paired_graphs() -> impl Strategy<Value = (ModelGraph, EdgeTypeName, Vec<(u64, u64)>)> {
    (graphs(), any::<Index>(), vec((any::<Index>(), any::<Index>()), 0..6)).prop_filter_map(
        "an edge type has nodes at both ends",
        |(graph, chosen, pairs)| {
            let full = |name: &EdgeTypeName| graph.nodes[&name.src].count > 0 && graph.nodes[&name.dst].count > 0;
            let names: Vec<EdgeTypeName> = graph.edges.keys().filter(|name| full(name)).cloned().collect();
            if names.is_empty() {
                return None;
            }
            let name = chosen.get(&names).clone();
            let [sources, targets] = [&name.src, &name.dst].map(|end| graph.nodes[end].count as usize);
            let pair = |(src, dst): (Index, Index)| (src.index(sources) as u64, dst.index(targets) as u64);
            let pairs = pairs.into_iter().map(pair).collect();
            Some((graph, name, pairs))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_induced_subgraph_has_all_edges_among_its_nodes(
        (graph, node_type, seeds) in seeded_graphs(),
        fanouts in vec(-1i64..4, 0..3),
        direction in select(vec![Direction::In, Direction::Out]),
    ) {
        let hops = Hops { fanouts: Fanouts::Same(fanouts), ..Hops::default() };
        let task = Task::Nodes { node_type: Some(node_type) };
        let config = Config { task, expand: Expand::Induced(hops), direction: Some(direction), ..Config::default() };
        let batch = sample(&dataset(&graph), &config, &seeds)?;
        check_nodes(&graph, &batch);
        for (walk, name) in batch.plan().walked().enumerate() {
            let (from, to) = (place(&graph, name.list_owner(direction)), place(&graph, name.neighbor(direction)));
            let row_of: BTreeMap<i64, usize> = (0..).zip(batch.ints(Field::Node(to))).map(|(row, &id)| (id, row)).collect();
            let mut expected = Vec::new();
            for (col, &id) in batch.ints(Field::Node(from)).iter().enumerate() {
                for edge in list(&graph, name, direction, id as u64) {
                    if let Some(&row) = row_of.get(&(edge.neighbor(direction) as i64)) {
                        expected.push((col, row, None));
                    }
                }
            }
            prop_assert_eq!(edges(&batch, walk), vec![expected]);
        }
    }

    #[test]
    fn links_and_their_negatives_are_seeds(
        (graph, name, pairs) in paired_graphs(),
        amount in 1u32..4,
        (binary, strict) in (any::<bool>(), any::<bool>()),
    ) {
        let negatives = if binary {
            Negatives::Binary { amount: amount.into(), strict, weighted: false }
        } else {
            Negatives::Triplet { amount, strict, weighted: false }
        };
        let task = Task::Links { edge_type: Some(name.clone()), negatives: Some(negatives) };
        let config = Config { task, expand: neighbors(&[2]), direction: Some(Direction::In), ..Config::default() };
        let batch = sample_pairs(&dataset(&graph), &config, &pairs)?;
        check_nodes(&graph, &batch);
        check_hops(&graph, &batch, Direction::In, |_, _, list| vec![list.len().min(2)]);

        let [sources, targets] = [&name.src, &name.dst].map(|end| batch.ints(Field::Node(place(&graph, end))));
        let id = |nodes: &[i64], row: i64| if row < 0 { None } else { Some(nodes[row as usize] as u64) };
        let found: Vec<(Option<u64>, Option<u64>)> = if binary {
            let (src, dst) = batch.ints(Field::EdgeLabelIndex).split_at(pairs.len() * (1 + amount as usize));
            let labels = batch.ints(Field::EdgeLabel);
            prop_assert_eq!(labels.iter().filter(|&&label| label == 1).count(), pairs.len());
            prop_assert!(labels.is_sorted_by(|a, b| a >= b));
            src.iter().zip(dst).map(|(&src, &dst)| (id(sources, src), id(targets, dst))).collect()
        } else {
            let src = batch.ints(Field::SrcIndex);
            let positive = src.iter().zip(batch.ints(Field::DstPosIndex));
            let repeated = src.iter().flat_map(|src| std::iter::repeat_n(src, amount as usize));
            let negative = repeated.zip(batch.ints(Field::DstNegIndex));
            positive.chain(negative).map(|(&src, &dst)| (id(sources, src), id(targets, dst))).collect()
        };
        prop_assert_eq!(found.len(), pairs.len() * (1 + amount as usize));
        for ((src, dst), found) in pairs.iter().zip(&found) {
            prop_assert_eq!((Some(*src), Some(*dst)), *found);
        }
        let negatives = &found[pairs.len()..];
        let missing = negatives.iter().filter(|pair| pair.1.is_none()).count();
        prop_assert_eq!(batch.ints(Field::NegativesMissing), &[missing as i64]);
        prop_assert!(strict || missing == 0);
        let refused = |other: &EdgeTypeName| {
            *other == name || (graph.edges[other].role == EdgeRole::Label && other.src == name.src && other.dst == name.dst)
        };
        let refused = graph.edges.iter().filter(|(other, _)| refused(other)).flat_map(|(_, edges)| &edges.edges);
        let refused: BTreeSet<(u64, u64)> = refused.map(|edge| (edge.src, edge.dst)).collect();
        for pair in negatives {
            if let (true, (Some(src), Some(dst))) = (strict, pair) {
                prop_assert!(!refused.contains(&(*src, *dst)), "{src} to {dst} is an edge");
            }
        }
    }

    #[test]
    fn anchors_come_first_and_labels_are_paired_with_them(
        (graph, name, _) in paired_graphs(), seeds in vec(any::<Index>(), 1..6), most in proptest::option::of(0u32..3),
    ) {
        prop_assume!(graph.edges[&name].role == EdgeRole::Label);
        let count = graph.nodes[&name.src].count as usize;
        let seeds: Vec<u64> = seeds.into_iter().map(|seed| seed.index(count) as u64).collect();
        let task = Task::Anchors { supervision: vec![Supervision { positive: name.clone(), negative: Some(name.clone()) }], max_labels: most };
        let config = Config { task, expand: neighbors(&[-1]), direction: Some(Direction::In), ..Config::default() };
        let batch = sample(&dataset(&graph), &config, &seeds)?;
        check_nodes(&graph, &batch);
        check_hops(&graph, &batch, Direction::In, |_, _, list| vec![list.len()]);
        let (anchors, targets) = (batch.ints(Field::Node(place(&graph, &name.src))), batch.ints(Field::Node(place(&graph, &name.dst))));
        let mut expected = Vec::new();
        for &seed in &seeds {
            let labels = list(&graph, &name, Direction::Out, seed);
            expected.extend(labels.iter().take(most.unwrap_or(u32::MAX) as usize).map(|edge| (seed, edge.dst)));
        }
        for field in [Field::LabelPairs(0), Field::LabelPairs(1)] {
            let pairs = batch.ints(field);
            let (anchor, label) = pairs.split_at(pairs.len() / 2);
            let found: Vec<(u64, u64)> =
                anchor.iter().zip(label).map(|(&a, &l)| (anchors[a as usize] as u64, targets[l as usize] as u64)).collect();
            prop_assert_eq!(&found, &expected);
            prop_assert!(anchor.iter().all(|&row| (row as usize) < batch.batch_size()));
        }
    }

    #[test]
    fn pagerank_is_within_its_bound_of_power_iteration(
        count in 1u64..20, ends in vec((0u64..20, 0u64..20), 0..40), seed in 0u64..20, alpha in 0.1f64..0.9,
    ) {
        let eps = 1e-3;
        let undirected = ends.iter().map(|&(a, b)| (a % count, b % count)).flat_map(|(a, b)| [(a, b), (b, a)]);
        let pairs: BTreeSet<(u64, u64)> = undirected.collect();
        let graph = homogeneous(count, pairs.iter().copied());
        let ppr = Ppr { alpha, eps, max_nodes: Budget::Each(1000), neighbors_per_hop: 1000, top_up: false };
        let config = Config { expand: Expand::Ppr(ppr), ..Config::default() };
        let batch = sample(&dataset(&graph), &config, &[seed % count])?;
        check_nodes(&graph, &batch);

        let degree = |node: u64| pairs.iter().filter(|(from, _)| *from == node).count() as f64;
        let mut exact = vec![0.0; count as usize];
        let mut walk = vec![0.0; count as usize];
        walk[(seed % count) as usize] = alpha;
        for _ in 0..2000 {
            let mut next = vec![0.0; count as usize];
            for node in 0..count {
                exact[node as usize] += walk[node as usize];
                for (_, to) in pairs.iter().filter(|(from, _)| *from == node) {
                    next[*to as usize] += (1.0 - alpha) * walk[node as usize] / degree(node);
                }
            }
            walk = next;
        }
        let scores: Vec<f64> = bytemuck::cast_slice(batch.tensor(Field::PprScore(0, 0)).unwrap().bytes).to_vec();
        let kept = batch.ints(Field::PprIndex(0, 0));
        let nodes = &kept[kept.len() / 2..];
        let mut score = vec![0.0; count as usize];
        for (&row, found) in nodes.iter().zip(&scores) {
            score[batch.ints(Field::Node(0))[row as usize] as usize] = *found;
        }
        for node in 0..count {
            let gap = exact[node as usize] - score[node as usize];
            let bound = eps * degree(node) + 1e-12;
            prop_assert!((-1e-12..=bound).contains(&gap), "node {node}: {gap} of {bound}");
        }
        prop_assert!(scores.is_sorted_by(|a, b| a >= b));
    }
}

fn homogeneous(count: u64, pairs: impl Iterator<Item = (u64, u64)>) -> ModelGraph {
    use graphmill_testing::{ModelEdge, ModelEdges, ModelNodes};
    let edge = |(src, dst)| ModelEdge { src, dst, id: None, weight: None, timestamp: None };
    let edges = ModelEdges {
        role: EdgeRole::Message,
        edges: pairs.map(edge).collect(),
        edge_ids: false,
        id_count: 0,
        weights: false,
        timestamps: false,
        features: BTreeMap::new(),
    };
    ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: BTreeMap::from([("node".to_owned(), ModelNodes { count, ..ModelNodes::default() })]),
        edges: BTreeMap::from([(EdgeTypeName::new("node", "to", "node"), edges)]),
    }
}

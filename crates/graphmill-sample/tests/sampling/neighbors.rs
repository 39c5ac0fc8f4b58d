//! Neighbour sampling on any graph: uniform, weighted, with and without replacement, both directions.

use graphmill_graph::{Direction, EdgeRole};
use graphmill_sample::{Config, Expand, Fanouts, Field, Hops, Task, TypeFanouts};
use graphmill_testing::{ModelEdge, ModelGraph, graphs};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::expected::{check_distinct, check_hops, check_nodes};
use crate::support::{dataset, sample};

/// A graph with seeds of one of its types.
pub(crate) fn seeded_graphs() -> impl Strategy<Value = (ModelGraph, String, Vec<u64>)> {
    (graphs(), any::<Index>(), vec(any::<Index>(), 0..6)).prop_filter_map(
        "a type has nodes",
        |(graph, node_type, seeds)| {
            let types: Vec<String> =
                graph.nodes.iter().filter(|(_, nodes)| nodes.count > 0).map(|(name, _)| name.clone()).collect();
            if types.is_empty() {
                return None;
            }
            let node_type = node_type.get(&types).clone();
            let count = graph.nodes[&node_type].count as usize;
            let seeds = seeds.into_iter().map(|seed| seed.index(count) as u64).collect();
            Some((graph, node_type, seeds))
        },
    )
}

fn fanouts() -> impl Strategy<Value = Vec<i64>> {
    vec(prop_oneof![Just(-1i64), Just(0), 1i64..4, Just(60)], 0..4)
}

fn config(graph: &ModelGraph, node_type: &str, hops: Hops, direction: Direction) -> Config {
    let names = |of: &mut dyn Iterator<Item = &String>| {
        let mut names: Vec<String> = of.cloned().collect();
        names.sort();
        names.dedup();
        names
    };
    let walkable = graph.edges.values().filter(|edges| edges.role == EdgeRole::Message);
    Config {
        task: Task::Nodes { node_type: Some(node_type.to_owned()) },
        expand: Expand::Neighbors(hops),
        direction: Some(direction),
        edge_ids: walkable.clone().all(|edges| edges.edge_ids),
        features: names(&mut graph.nodes.values().flat_map(|nodes| nodes.features.keys())),
        labels: graph.nodes.values().any(|nodes| nodes.label.is_some()),
        seed: 11,
        ..Config::default()
    }
}

fn positive(edge: &ModelEdge) -> bool {
    edge.weight.is_none_or(|bits| f32::from_bits(bits) > 0.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_batch_follows_the_rules(
        (graph, node_type, seeds) in seeded_graphs(),
        fanouts in fanouts(),
        direction in select(vec![Direction::In, Direction::Out]),
        (replace, weighted) in (any::<bool>(), any::<bool>()),
    ) {
        let hops = Hops { fanouts: Fanouts::Same(fanouts.clone()), replace, weighted };
        let config = config(&graph, &node_type, hops, direction);
        let batch = sample(&dataset(&graph), &config, &seeds)?;

        let place = graph.nodes.keys().position(|name| *name == node_type).unwrap();
        let mut distinct: Vec<i64> = Vec::new();
        for &seed in &seeds {
            if !distinct.contains(&(seed as i64)) {
                distinct.push(seed as i64);
            }
        }
        prop_assert_eq!(&batch.ints(Field::Node(place))[..distinct.len()], &distinct[..]);
        prop_assert_eq!(batch.batch_size(), distinct.len());
        for (seed, row) in seeds.iter().zip(batch.ints(Field::SeedIndex)) {
            prop_assert_eq!(*seed as i64, distinct[*row as usize]);
        }

        check_nodes(&graph, &batch);
        check_hops(&graph, &batch, direction, |name, hop, list| {
            let by_weight = weighted && graph.edges[name].weights;
            let there = list.iter().filter(|edge| !by_weight || positive(edge)).count();
            vec![match fanouts[hop] {
                -1 => there,
                fanout if replace => if there == 0 { 0 } else { fanout as usize },
                fanout => there.min(fanout as usize),
            }]
        });
        if !replace {
            check_distinct(&graph, &batch, direction);
        }
    }

    #[test]
    fn fanouts_per_type_walk_those_types_only((graph, node_type, seeds) in seeded_graphs(), fanout in 1i64..4) {
        let message = graph.edges.iter().filter(|(_, edges)| edges.role == EdgeRole::Message);
        let chosen: Vec<_> = message.step_by(2).map(|(name, _)| name.clone()).collect();
        let per_type = |name: &graphmill_graph::EdgeTypeName| TypeFanouts { edge_type: name.clone(), fanouts: vec![fanout, -1] };
        let hops = Hops { fanouts: Fanouts::PerType(chosen.iter().map(per_type).collect()), ..Hops::default() };
        let config = Config { edge_ids: false, ..config(&graph, &node_type, hops, Direction::In) };
        let batch = sample(&dataset(&graph), &config, &seeds)?;
        prop_assert_eq!(batch.plan().walked().cloned().collect::<Vec<_>>(), chosen);
        check_nodes(&graph, &batch);
        check_hops(&graph, &batch, Direction::In, |_, hop, list| {
            vec![if hop == 0 { list.len().min(fanout as usize) } else { list.len() }]
        });
    }

    #[test]
    fn zero_weight_edges_are_never_taken((graph, node_type, seeds) in seeded_graphs(), fanout in 1i64..4, replace: bool) {
        let ids = graph.edges.values().all(|edges| edges.role == EdgeRole::Label || edges.weights);
        prop_assume!(ids);
        let hops = Hops { fanouts: Fanouts::Same(vec![fanout, -1]), replace, weighted: true };
        let config = config(&graph, &node_type, hops, Direction::Out);
        let batch = sample(&dataset(&graph), &config, &seeds)?;
        for (walk, name) in batch.plan().walked().enumerate() {
            for &id in batch.ints(Field::Edge(walk)) {
                let edge = graph.edges[name].edges.iter().find(|edge| edge.id == Some(id as u64)).unwrap();
                prop_assert!(positive(edge));
            }
        }
    }
}

//! Random samplers: a graph, a configuration that fits it, and seeds. Every task, every way to expand, both directions.

use std::collections::BTreeSet;

use graphmill_graph::{DType, Direction, EdgeRole, EdgeTypeName};
use graphmill_sample::{Budget, Config, Expand, Fanouts, Hops, Negatives, Ppr, SeedList, Supervision, Task};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::{ModelGraph, graphs};

/// What is sampled, of what.
#[derive(Debug, Clone)]
pub struct Sampling {
    /// The graph.
    pub graph: ModelGraph,
    /// A configuration that fits it, with every feature there is, as it is stored or in half precision.
    pub config: Config,
    /// Seeds for it, some of them twice.
    pub seeds: SeedList,
}

/// Any graph with any sampler of it.
pub fn samplings() -> impl Strategy<Value = Sampling> {
    let choices = (any::<Choices>(), expansions(), select(vec![Direction::In, Direction::Out]), any::<u64>());
    (graphs(), choices).prop_filter_map(
        "the task has nodes to begin from",
        |(graph, (choices, expand, direction, seed))| {
            let (task, seeds) = choices.task(&graph)?;
            let names = |names: &mut dyn Iterator<Item = &String>| {
                names.cloned().collect::<BTreeSet<_>>().into_iter().collect()
            };
            let config = Config {
                task,
                expand,
                direction: Some(direction),
                edge_ids: graph.edges.values().all(|edges| edges.edge_ids || edges.role == EdgeRole::Label),
                features: names(&mut graph.nodes.values().flat_map(|nodes| nodes.features.keys())),
                edge_features: names(&mut graph.edges.values().flat_map(|edges| edges.features.keys())),
                labels: graph.nodes.values().any(|nodes| nodes.label.is_some()),
                feature_dtype: choices.half.then_some(DType::F16),
                seed,
                ..Config::default()
            };
            Some(Sampling { graph, config, seeds })
        },
    )
}

/// Any way to expand: hops of every kind, induced subgraphs, personalised `PageRank`.
pub fn expansions() -> impl Strategy<Value = Expand> {
    let fanouts = vec(-1i64..4, 0..3);
    let hops = (fanouts, any::<bool>(), any::<bool>()).prop_map(|(fanouts, replace, weighted)| Hops {
        fanouts: Fanouts::Same(fanouts),
        replace,
        weighted,
    });
    let ppr = any::<bool>().prop_map(|top_up| {
        Expand::Ppr(Ppr { eps: 0.01, max_nodes: Budget::Each(5), neighbors_per_hop: 3, top_up, ..Ppr::default() })
    });
    prop_oneof![hops.clone().prop_map(Expand::Neighbors), hops.prop_map(Expand::Induced), ppr]
}

/// What a task is made of, once it is known what a graph has.
#[derive(Debug, Clone)]
struct Choices {
    kind: Kind,
    place: Index,
    seeds: Vec<(Index, Index)>,
    amount: u32,
    strict: bool,
    weighted: bool,
    max_labels: Option<u32>,
    half: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Nodes,
    Links,
    Binary,
    Triplet,
    Anchors,
}

impl Arbitrary for Choices {
    type Parameters = ();
    type Strategy = BoxedStrategy<Self>;

    fn arbitrary_with((): ()) -> Self::Strategy {
        let kind = select(vec![Kind::Nodes, Kind::Links, Kind::Binary, Kind::Triplet, Kind::Anchors]);
        let negatives = (0u32..3, any::<bool>(), any::<bool>());
        let labels = proptest::option::of(0u32..3);
        (kind, any::<Index>(), vec(any::<(Index, Index)>(), 0..12), negatives, labels, any::<bool>())
            .prop_map(|(kind, place, seeds, (amount, strict, weighted), max_labels, half)| Self {
                kind,
                place,
                seeds,
                amount,
                strict,
                weighted,
                max_labels,
                half,
            })
            .boxed()
    }
}

impl Choices {
    fn task(&self, graph: &ModelGraph) -> Option<(Task, SeedList)> {
        match self.kind {
            Kind::Nodes => {
                let node_type = self.chosen(graph.nodes.keys().filter(|name| graph.nodes[*name].count > 0))?;
                let seeds = self.nodes(graph, &node_type);
                Some((Task::Nodes { node_type: Some(node_type) }, seeds))
            }
            Kind::Links | Kind::Binary | Kind::Triplet => {
                let edge_type = self.chosen(
                    graph
                        .edges
                        .keys()
                        .filter(|name| graph.nodes[&name.src].count > 0 && graph.nodes[&name.dst].count > 0),
                )?;
                let seeds = self.pairs(graph, &edge_type);
                let negatives = self.negatives(graph, &edge_type);
                Some((Task::Links { edge_type: Some(edge_type), negatives }, seeds))
            }
            Kind::Anchors => {
                let is_label = |name: &&EdgeTypeName| graph.edges[*name].role == EdgeRole::Label;
                let has_nodes = |name: &&EdgeTypeName| graph.nodes[&name.src].count > 0;
                let positive = self.chosen(graph.edges.keys().filter(is_label).filter(has_nodes))?;
                let other = |name: &&EdgeTypeName| name.src == positive.src && **name != positive;
                let negative = graph.edges.keys().filter(is_label).find(other).cloned();
                let seeds = self.nodes(graph, &positive.src);
                let supervision = vec![Supervision { positive, negative }];
                Some((Task::Anchors { supervision, max_labels: self.max_labels }, seeds))
            }
        }
    }

    fn negatives(&self, graph: &ModelGraph, edge_type: &EdgeTypeName) -> Option<Negatives> {
        let has_weights = [&edge_type.src, &edge_type.dst].iter().all(|end| graph.nodes[*end].weights.is_some());
        let (strict, weighted) = (self.strict, self.weighted && has_weights);
        match self.kind {
            Kind::Binary => Some(Negatives::Binary { amount: f64::from(self.amount) * 0.75, strict, weighted }),
            Kind::Triplet => Some(Negatives::Triplet { amount: 1 + self.amount, strict, weighted }),
            Kind::Nodes | Kind::Links | Kind::Anchors => None,
        }
    }

    fn chosen<'a, T: Clone + 'a>(&self, all: impl Iterator<Item = &'a T>) -> Option<T> {
        let all: Vec<&T> = all.collect();
        if all.is_empty() { None } else { Some((*self.place.get(&all)).clone()) }
    }

    fn nodes(&self, graph: &ModelGraph, node_type: &str) -> SeedList {
        let count = graph.nodes[node_type].count as usize;
        SeedList::Nodes(self.seeds.iter().map(|(seed, _)| seed.index(count) as u64).collect())
    }

    /// Pairs that may be edges or not.
    fn pairs(&self, graph: &ModelGraph, edge_type: &EdgeTypeName) -> SeedList {
        let [sources, targets] = [&edge_type.src, &edge_type.dst].map(|end| graph.nodes[end].count as usize);
        let pair = |(src, dst): &(Index, Index)| (src.index(sources) as u64, dst.index(targets) as u64);
        let (src, dst) = self.seeds.iter().map(pair).unzip();
        SeedList::Pairs { src, dst, classes: None }
    }
}

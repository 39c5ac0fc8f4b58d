//! A batch is the same from any number of servers, over any transport, as from this process.

use graphmill_client::{Loader, Options, SeedList, Transport};
use graphmill_graph::{Dataset, Direction};
use graphmill_sample::{Batch, Budget, Config, Expand, Fanouts, Hops, Ppr, Task};
use graphmill_testing::{assignments, graphs, tempdir, write};
use proptest::prelude::*;

use crate::support::Cluster;

fn expansions() -> impl Strategy<Value = Expand> {
    let fanouts = proptest::collection::vec(-1i64..4, 0..3);
    let hops = (fanouts, any::<bool>(), any::<bool>()).prop_map(|(fanouts, replace, weighted)| Hops {
        fanouts: Fanouts::Same(fanouts),
        replace,
        weighted,
    });
    let ppr = Ppr { eps: 0.01, max_nodes: Budget::Each(5), neighbors_per_hop: 3, ..Ppr::default() };
    prop_oneof![hops.clone().prop_map(Expand::Neighbors), hops.prop_map(Expand::Induced), Just(Expand::Ppr(ppr))]
}

fn assert_same(found: &Batch, expected: &Batch) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.id(), expected.id());
    prop_assert_eq!(found.batch_size(), expected.batch_size());
    prop_assert_eq!(found.layout().entries(), expected.layout().entries());
    prop_assert_eq!(found.bytes(), expected.bytes());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn servers_and_transports_change_nothing(
        (graph, assignment) in graphs().prop_flat_map(|graph| {
            let assignment = assignments(&graph);
            (Just(graph), assignment)
        }),
        expand in expansions(),
        servers in 1usize..=4,
        transport in proptest::sample::select(vec![Transport::Socket, Transport::UnixSocket, Transport::SharedMemory]),
        shuffle: bool,
        place: proptest::sample::Index,
    ) {
        let types: Vec<&String> = graph.nodes.iter().filter(|(_, nodes)| nodes.count > 0).map(|(name, _)| name).collect();
        prop_assume!(!types.is_empty());
        let node_type = (*place.get(&types)).clone();
        let mut features: Vec<String> = graph.nodes.values().flat_map(|nodes| nodes.features.keys().cloned()).collect();
        features.sort();
        features.dedup();
        let mut edge_features: Vec<String> = graph.edges.values().flat_map(|edges| edges.features.keys().cloned()).collect();
        edge_features.sort();
        edge_features.dedup();
        let labels = graph.nodes.values().any(|nodes| nodes.label.is_some());
        let task = Task::Nodes { node_type: Some(node_type.clone()) };
        let direction = Some(Direction::In);
        let config = Config { task, expand, features, edge_features, labels, direction, ..Config::default() };

        let folder = tempdir();
        let path = folder.path().join("dataset");
        write(&graph, &path, &[Direction::In], &assignment)?;
        let whole = Dataset::open(&path)?;
        let options = Options { batch_size: 3, shuffle, ..Options::default() };
        let seeds = SeedList::Nodes((0..graph.nodes[&node_type].count).collect());
        let embedded = Loader::new(&whole, config.clone(), seeds.clone(), options.clone()).unwrap();

        let cluster = Cluster::start(&path, servers);
        let remote = cluster.connect(transport);
        let loader = Loader::remote(&remote, config, seeds, options).unwrap();
        prop_assert_eq!(loader.len(), embedded.len());
        for epoch in 0..2 {
            for (found, expected) in loader.epoch(epoch).zip(embedded.epoch(epoch)) {
                assert_same(&found.unwrap(), &expected.unwrap())?;
            }
        }
        drop(loader);
        drop(remote);
        prop_assert!(cluster.stop());
    }
}

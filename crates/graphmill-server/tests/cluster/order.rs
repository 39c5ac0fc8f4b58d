//! Partition order: batches of one partition each, asked for where that partition is.

use std::sync::Arc;

use graphmill_client::{ConnectOptions, Error, Loader, Options as Loading, Remote, SeedList, Seeding, Transport};
use graphmill_graph::{Direction, Split};
use graphmill_sample::{Config, Field, SeedOrder};
use graphmill_testing::{Assignment, tempdir, write};

use crate::support::{Cluster, NODES, PATIENCE, Store, bytes, config, eventually, expected, loading};

fn by_partition(batch_size: usize) -> Loading {
    Loading { seed_order: SeedOrder::Partition, ..loading(batch_size) }
}

fn all() -> SeedList {
    SeedList::All(NODES)
}

/// Channels that servers have open, by server.
fn channels(cluster: &Cluster, servers: usize) -> Vec<u64> {
    (0..servers).map(|server| cluster.status(server).registered).collect()
}

/// What servers asked each other and answered, in bytes.
fn between(cluster: &Cluster, servers: usize) -> u64 {
    let peers = (0..servers).flat_map(|server| cluster.status(server).peers);
    peers.map(|peer| peer.bytes_sent + peer.bytes_received).sum()
}

#[test]
fn any_number_of_servers_and_ranks_hands_out_the_same_epoch() {
    let store = Store::homogeneous(4);
    let train: Vec<u64> = (0..NODES).step_by(3).collect();
    for (seeding, seeds) in [
        (Seeding::All, all()),
        (Seeding::Split(Split::Train), SeedList::Nodes(train)),
        (SeedList::Nodes((0..NODES).rev().collect()).into(), SeedList::Nodes((0..NODES).rev().collect())),
    ] {
        let wanted = expected(&store, &config(), seeds, &by_partition(7), 2);
        for (servers, world_size) in [(1, 1), (2, 3), (4, 2), (3, 1)] {
            let cluster = Cluster::start(&store.path, servers);
            let mut found = Vec::new();
            for rank in 0..world_size {
                let remote = cluster.connect(Transport::Auto);
                let options = Loading { rank, world_size, even: Some(false), ..by_partition(7) };
                let loader = Loader::remote(&remote, config(), seeding.clone(), options).unwrap();
                found.extend(bytes(loader.epoch(2)));
            }
            found.sort_unstable();
            assert!(found == wanted, "{seeding:?} on {servers} servers for {world_size} ranks");
            assert!(cluster.stop());
        }
    }
}

#[test]
fn the_batches_of_an_epoch_meet_every_seed_once_and_one_partition_each() {
    let store = Store::homogeneous(3);
    let dataset = store.open();
    for drop_last in [false, true] {
        let options = Loading { drop_last, ..by_partition(8) };
        let loader = Loader::new(&dataset, config(), all(), options).unwrap();
        let mut met = vec![0; NODES as usize];
        for batch in loader.epoch(1).map(Result::unwrap) {
            let seeds = batch.ints(Field::Seed);
            let owner = |&seed: &i64| dataset.node_book(0).owner(seed as u64).unwrap();
            assert!(seeds.iter().all(|seed| owner(seed) == owner(&seeds[0])));
            assert!(!drop_last || seeds.len() == 8);
            for &seed in seeds {
                met[seed as usize] += 1;
            }
        }
        let owned = |partition: u32| (0..NODES).filter(|&id| dataset.node_book(0).owner(id) == Some(partition)).count();
        let dropped: usize = (0..3).map(|partition| if drop_last { owned(partition) % 8 } else { 0 }).sum();
        assert_eq!(met.iter().filter(|&&times| times == 0).count(), dropped);
        assert!(met.iter().all(|&times| times <= 1));
        let batches = |owned: usize| if drop_last { owned / 8 } else { owned.div_ceil(8) };
        assert_eq!(loader.len(), (0..3).map(|partition| batches(owned(partition))).sum::<usize>());
    }
}

#[test]
fn a_rank_talks_only_to_the_servers_that_have_its_partitions() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    // As many batches of each partition, so that each of two ranks has those of one.
    let options = |rank| Loading { rank, world_size: 2, ..by_partition(20) };
    for rank in 0..2 {
        let remote = cluster.connect(Transport::Auto);
        let loader = Loader::remote(&remote, config(), Seeding::All, options(rank)).unwrap();
        for epoch in 0..2 {
            assert_eq!(loader.epoch(epoch).map(Result::unwrap).count(), 6);
        }
        let mut home = [0, 0];
        home[rank as usize] = 1;
        eventually("a channel where the partition is, and none elsewhere", || channels(&cluster, 2) == home);
        drop((loader, remote));
        eventually("no channel", || channels(&cluster, 2) == [0, 0]);
    }
    assert!(cluster.stop());
}

#[test]
fn communities_that_are_partitions_ask_nothing_of_others() {
    let mut graph = Store::homogeneous(1).graph;
    for edges in graph.edges.values_mut() {
        edges.edges.retain(|edge| edge.src % 2 == edge.dst % 2);
        edges.edges.iter_mut().for_each(|edge| (edge.id, edge.weight) = (None, None));
        edges.edges.sort_unstable();
        (edges.edge_ids, edges.id_count, edges.weights) = (false, 0, false);
    }
    let store = Store::new(graph, 2);
    let config = Config { edge_ids: false, ..config() };
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Auto);
    let asked = |options: Loading| {
        let before = between(&cluster, 2);
        let wanted = expected(&store, &config, all(), &options, 0);
        let loader = Loader::remote(&remote, config.clone(), Seeding::All, options).unwrap();
        assert!(bytes(loader.epoch(0)) == wanted);
        between(&cluster, 2) - before
    };
    assert_eq!(asked(by_partition(20)), 0);
    assert!(asked(loading(20)) > 10_000);
    drop(remote);
    assert!(cluster.stop());
}

#[test]
fn a_state_loads_on_other_servers_and_ranks_of_the_same_partitioning_alone() {
    let store = Store::homogeneous(4);
    let wanted = expected(&store, &config(), all(), &by_partition(9), 0);
    let (dataset, others) = (store.open(), Store::homogeneous(3));
    let embedded = Loader::new(&dataset, config(), all(), by_partition(9)).unwrap();
    let mut batches = embedded.epoch(0);
    (0..5).for_each(|_| drop(batches.next().unwrap().unwrap()));
    let state = batches.state();
    for servers in [1, 4] {
        let cluster = Cluster::start(&store.path, servers);
        let mut found = Vec::new();
        for rank in 0..2 {
            let options = Loading { rank, world_size: 2, even: Some(false), ..by_partition(9) };
            let loader = Loader::remote(&cluster.connect(Transport::Auto), config(), Seeding::All, options).unwrap();
            found.extend(bytes(loader.resume(&state).unwrap()));
        }
        found.sort_unstable();
        assert!(found == wanted[5..], "{servers} servers");
        assert!(cluster.stop());
    }
    let refused = |loader: &Loader| match loader.resume(&state) {
        Err(Error::State { what: "partitioning", .. }) => {}
        other => panic!("{other:?}"),
    };
    refused(&Loader::new(&others.open(), config(), all(), by_partition(9)).unwrap());
    refused(&Loader::new(&dataset, config(), all(), loading(9)).unwrap());
    let cluster = Cluster::start(&others.path, 2);
    refused(&Loader::remote(&cluster.connect(Transport::Auto), config(), Seeding::All, by_partition(9)).unwrap());
    assert!(cluster.stop());
    // In global order a state does not name the partitioning, and loads on any.
    let state = Loader::new(&dataset, config(), all(), loading(9)).unwrap().state(3);
    assert!(!serde_json::to_string(&state).unwrap().contains("partitioning"));
    assert!(Loader::new(&others.open(), config(), all(), loading(9)).unwrap().resume(&state).is_ok());
}

#[test]
fn replicas_stand_in_for_each_other() {
    let store = Store::homogeneous(3);
    let wanted = expected(&store, &config(), all(), &by_partition(5), 0);
    let mut cluster = Cluster::replicas(&store.path, 2);
    let remote = cluster.connect_within(PATIENCE);
    let loader = Loader::remote(&remote, config(), Seeding::All, by_partition(5)).unwrap();
    let mut batches = loader.epoch(0);
    let mut found: Vec<_> = (0..4).map(|_| batches.next().unwrap().unwrap()).collect();
    cluster.stop_one(1);
    found.extend(batches.map(Result::unwrap));
    let found: Vec<_> = found.iter().map(|batch| (batch.id().g, batch.bytes().to_vec())).collect();
    assert!(found == wanted);
}

#[test]
fn servers_of_other_partitionings_are_told_apart() {
    let store = Store::homogeneous(2);
    let (folder, one) = (tempdir(), Cluster::start(&store.path, 1));
    let path = folder.path().join("dataset");
    let assignment = Assignment::assigned(&store.graph, 2, |_, id| (id / 2 % 2) as u16);
    write(&store.graph, &path, &[Direction::In, Direction::Out], &assignment).unwrap();
    let other = Cluster::start(&path, 1);
    let addresses = [one.addresses(), other.addresses()].concat();
    let remote = || {
        let options = ConnectOptions { deadline: PATIENCE, ..ConnectOptions::default() };
        Remote::connect(&addresses, options).unwrap()
    };
    let load = |remote: &Arc<Remote>, options| Loader::remote(remote, config(), Seeding::All, options).unwrap();
    // The graph is the same, and so are batches that do not depend on partitions.
    assert!(load(&remote(), loading(9)).epoch(0).all(|batch| batch.is_ok()));
    let failed = load(&remote(), by_partition(9)).epoch(0).find_map(Result::err).unwrap().to_string();
    assert!(failed.contains("in other partitions"), "{failed}");
    assert!(one.stop() && other.stop());
}

#[test]
fn a_seed_without_a_partition_is_refused_before_the_first_batch() {
    let store = Store::homogeneous(2);
    let seeds = SeedList::Nodes(vec![3, NODES, 4]);
    let embedded = Loader::new(&store.open(), config(), seeds.clone(), by_partition(2)).unwrap_err().to_string();
    let cluster = Cluster::start(&store.path, 2);
    let remote = Loader::remote(&cluster.connect(Transport::Auto), config(), seeds, by_partition(2)).unwrap_err();
    for refused in [embedded, remote.to_string()] {
        assert!(refused.contains("203") && refused.contains("node"), "{refused}");
    }
    assert!(cluster.stop());
}

//! Partitions that several servers have: questions are spread over them, and outlive one of them.

use std::time::Duration;

use graphmill_client::{ConnectOptions, Loader, Options as Loading, Remote, RemoteDataset, SeedList, Transport};
use graphmill_server::Options;

use crate::support::{Cluster, NODES, PATIENCE, Store, bytes, config, eventually, expected, loading};

/// A server with one partition, and two others that both have the other one, behind a proxy each.
fn cluster(store: &Store) -> (Cluster, [crate::support::Proxy; 2]) {
    // Or they would find each other past the proxies.
    let apart = |options| Options { shared_memory: false, ..options };
    let mut cluster = Cluster::prepare(&store.path, 3, apart);
    cluster.place(&[&[0], &[1], &[1]]);
    cluster.start_one(1);
    cluster.start_one(2);
    let proxies = [1, 2].map(|server| cluster.proxy(server));
    let peers = proxies.each_ref().map(|proxy| proxy.endpoint.clone());
    cluster.change(move |options| Options { peers: peers.to_vec(), ..apart(options) });
    cluster.start_one(0);
    eventually("both peers are connected", || cluster.status(0).peers.iter().all(|peer| peer.connected));
    (cluster, proxies)
}

fn connect(cluster: &Cluster) -> std::sync::Arc<Remote> {
    let options = ConnectOptions { transport: Transport::Socket, deadline: PATIENCE, ..ConnectOptions::default() };
    Remote::connect(&[cluster.socket(0)], options).unwrap()
}

#[test]
fn what_was_asked_of_a_peer_that_dies_is_asked_of_another_that_has_the_same() {
    let store = Store::homogeneous(2);
    let (cluster, [first, _second]) = cluster(&store);
    let remote = connect(&cluster);
    let options = Loading { prefetch: 4, ..loading(4) };
    let seeds = || SeedList::Nodes((0..NODES).collect());
    let loader = Loader::remote(&remote, config(), seeds(), options.clone()).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &options, 0));
    let spread: Vec<bool> = cluster.status(0).peers.iter().map(|peer| peer.bytes_received > 1000).collect();
    assert_eq!(spread, [true, true], "both are asked");

    first.freeze();
    let batches = loader.epoch(1);
    let found = std::thread::scope(|scope| {
        let reading = scope.spawn(|| bytes(batches));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!reading.is_finished(), "questions are under way that nobody answers");
        drop(first);
        reading.join().unwrap()
    });
    assert!(found == expected(&store, &config(), seeds(), &options, 1));
    let status = cluster.status(0);
    assert_eq!(status.peers.iter().filter(|peer| peer.connected).count(), 1);
    assert_eq!(status.channels.iter().map(|channel| channel.failed).sum::<u64>(), 0, "no batch failed over it");
}

#[test]
fn readers_are_answered_by_another_that_has_the_same() {
    let store = Store::homogeneous(2);
    let (cluster, [first, _second]) = cluster(&store);
    let dataset = RemoteDataset::new(connect(&cluster));
    let ids: Vec<u64> = (0..NODES).collect();
    let read = || {
        let rows = dataset.node_feature(None, "x", &ids).unwrap();
        let train =
            dataset.node_ids(None, Some(graphmill_graph::Split::Train), graphmill_client::Shard::Whole).unwrap();
        (rows.bytes, train)
    };
    let before = read();
    first.freeze();
    std::thread::scope(|scope| {
        // Enough of them that some ask the one that is frozen.
        let reading: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        std::thread::sleep(Duration::from_millis(300));
        drop(first);
        for reading in reading {
            assert!(reading.join().unwrap() == before);
        }
    });
}

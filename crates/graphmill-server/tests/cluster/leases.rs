//! Leases: a client that is gone leaves nothing behind, one that lives keeps what it has, and what was lost is made anew.

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Loader, Remote, SeedList, Transport};
use graphmill_server::Options;
use graphmill_wire::proto::{CloseChannelRequest, Hello, Role};
use graphmill_wire::{Kind, Message};

use crate::support::{Cluster, NODES, Opening, PATIENCE, Store, bytes, config, eventually, expected, hello, loading};

const LEASE: Duration = Duration::from_millis(150);

fn short(options: Options) -> Options {
    Options { lease: LEASE, ..options }
}

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

#[test]
fn a_client_that_falls_silent_loses_its_channels_and_others_do_not() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, short);
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), loading(16)).unwrap();
    let silent = cluster.open(0, Opening { client: [9; 16], ..Opening::default() });
    eventually("the silent one is gone", || {
        let status = cluster.status(0);
        status.clients == 1 && status.channels.iter().all(|channel| channel.channel != silent)
    });
    assert_eq!(loader.epoch(0).map(Result::unwrap).count(), loader.len());

    // It is told that its channel is lost, not that it never was; closing it is still fine.
    let mut wire = cluster.wire(0, [9; 16]);
    let mut control = cluster.control(0);
    cluster.run(async {
        wire.credit(silent, 0, &[0]).await;
        let frame = wire.next().await.unwrap();
        assert!(matches!(frame.message, Message::Lost(_)), "{frame:?}");
        assert_eq!((frame.header.kind, frame.header.channel), (Kind::Lost, silent));
        control.close_channel(CloseChannelRequest { channel: silent, client: vec![9; 16] }).await.unwrap();
    });
}

#[test]
fn a_connection_ends_with_the_lease_of_its_client() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, short);
    // A client says nothing more, though its connection is there; a peer has no lease.
    let mut client = cluster.wire(0, [9; 16]);
    let mut peer = cluster.wire_with(0, Hello { role: Role::Peer.into(), client: vec![8; 16], ..hello() });
    cluster.run(async {
        assert!(client.next().await.is_none(), "the connection ends");
        peer.ping().await;
        assert!(peer.until_pong().await.is_empty(), "the other does not");
    });
}

#[test]
fn a_client_that_is_only_busy_keeps_its_lease() {
    // Long enough that a thread which is late on a busy machine does not lose it.
    let lease = Duration::from_millis(800);
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, move |options| Options { lease, ..options });
    let remote = cluster.connect(Transport::Auto);
    let loader = Loader::remote(&remote, config(), seeds(), loading(16)).unwrap();
    let mut batches = loader.epoch(0);
    let first = batches.next().unwrap().unwrap();
    let before: Vec<u64> = cluster.status(0).channels.iter().map(|channel| channel.channel).collect();
    // This thread computes for several leases; only the client's own thread is awake.
    let busy = Instant::now();
    while busy.elapsed() < 2 * lease {
        std::hint::black_box(first.bytes().iter().map(|&byte| u64::from(byte)).sum::<u64>());
    }
    let after: Vec<u64> = cluster.status(0).channels.iter().map(|channel| channel.channel).collect();
    assert_eq!(before, after);
    assert_eq!(batches.map(Result::unwrap).count(), loader.len() - 1);
}

#[test]
fn a_client_that_was_cut_off_for_longer_than_its_lease_goes_on_exactly_once() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start_with(&store.path, 1, short);
    let expected = expected(&store, &config(), seeds(), &loading(8), 3);
    let proxy = cluster.proxy(0);
    let options = ConnectOptions { transport: Transport::Socket, deadline: PATIENCE, ..ConnectOptions::default() };
    let remote = Remote::connect(std::slice::from_ref(&proxy.endpoint), options).unwrap();
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let mut batches = loader.epoch(3);
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut take = |batches: &mut graphmill_client::Batches, count: usize| {
        for batch in batches.take(count) {
            let batch = batch.unwrap();
            found.push((batch.id().g, batch.bytes().to_vec()));
        }
    };
    take(&mut batches, 5);
    let before = cluster.status(0).channels[0].channel;
    proxy.freeze();
    eventually("the lease ends", || cluster.status(0).channels.is_empty());
    proxy.thaw();
    take(&mut batches, usize::MAX);
    assert!(found == expected, "{} batches, expected {}", found.len(), expected.len());
    let after = cluster.status(0).channels;
    assert!(after.iter().all(|channel| channel.channel != before) && after.len() == 1, "{after:?}");
}

#[test]
fn a_server_that_is_started_again_in_mid_epoch_goes_on_with_the_same_bytes() {
    for ordered in [true, false] {
        let store = Store::homogeneous(1);
        let mut cluster = Cluster::start(&store.path, 1);
        let expected = expected(&store, &config(), seeds(), &loading(8), 1);
        let remote = cluster.connect_within(PATIENCE);
        let options = graphmill_client::Options { ordered, ..loading(8) };
        let loader = Loader::remote(&remote, config(), seeds(), options).unwrap();
        let before = cluster.status(0).incarnation;
        let batches = loader.epoch(1);
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for batch in batches {
            let batch = batch.unwrap();
            found.push((batch.id().g, batch.bytes().to_vec()));
            if found.len() == 7 || found.len() == 15 {
                cluster.stop_one(0);
                cluster.start_one(0);
            }
        }
        assert_ne!(cluster.status(0).incarnation, before);
        found.sort_unstable();
        assert!(found == expected, "{} batches, expected {}", found.len(), expected.len());
        assert!(bytes(loader.epoch(2)).len() == expected.len(), "and the next epoch comes as well");
    }
}

#[test]
fn one_of_two_servers_that_is_started_again_changes_nothing() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::start(&store.path, 2);
    let expected = expected(&store, &config(), seeds(), &loading(8), 0);
    let remote = cluster.connect_within(PATIENCE);
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let batches = loader.epoch(0);
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    for batch in batches {
        let batch = batch.unwrap();
        found.push((batch.id().g, batch.bytes().to_vec()));
        if found.len() == 4 || found.len() == 12 {
            let server = usize::from(found.len() == 12);
            cluster.stop_one(server);
            cluster.start_one(server);
        }
    }
    assert!(found == expected);
}

#[test]
fn a_loader_that_is_dropped_leaves_no_channel_and_its_client_no_lease() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Auto);
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    // Left in the middle.
    assert_eq!(loader.epoch(0).take(3).map(Result::unwrap).count(), 3);
    drop(loader);
    eventually("channels are closed", || (0..2).all(|server| cluster.status(server).channels.is_empty()));
    eventually("backends are gone", || (0..2).all(|server| cluster.status(server).backends.is_empty()));
    drop(remote);
    assert!(cluster.stop());
}

//! The faults of the systems that came before, each of which must not be here (the design's list, by number).

use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Error, Loader, Options as Loading, Remote, SeedList, Transport};
use graphmill_graph::Split;
use graphmill_net::Endpoint;
use graphmill_sample::{Config, Field};

use crate::support::{Cluster, NODES, Opening, PATIENCE, Store, bytes, config, eventually, expected, flat, loading};

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

fn listed(options: &Loading) -> Loading {
    Loading { shuffle: false, ..options.clone() }
}

// fault 1
#[test]
fn a_fetch_that_is_never_answered_is_raised_where_the_user_iterates() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let proxy = cluster.proxy(0);
    let deadline = Duration::from_millis(600);
    let options = ConnectOptions { transport: Transport::Socket, deadline, ..ConnectOptions::default() };
    let remote = Remote::connect(std::slice::from_ref(&proxy.endpoint), options).unwrap();
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let mut batches = loader.epoch(0);
    batches.next().unwrap().unwrap();
    proxy.freeze();
    let began = Instant::now();
    let error = batches.find_map(Result::err).expect("an error");
    assert!(matches!(error, Error::Late { .. }), "{error}");
    assert!(error.to_string().contains(&proxy.endpoint.to_string()), "{error}");
    assert!(began.elapsed() < PATIENCE);
}

// fault 2
#[test]
fn every_batch_that_fails_is_an_error_with_its_cause_and_no_other_batch_is_lost() {
    for servers in [1, 2] {
        let store = Store::homogeneous(2);
        let cluster = Cluster::start(&store.path, servers);
        let bad = [3, 11, 12, 20];
        let nodes = (0..25).map(|place| if bad.contains(&place) { NODES + place } else { place }).collect();
        let options = Loading { batch_size: 1, ..listed(&loading(1)) };
        let remote = cluster.connect(Transport::Socket);
        let loader = Loader::remote(&remote, config(), SeedList::Nodes(nodes), options).unwrap();
        for epoch in 0..2 {
            let outcomes: Vec<_> = loader.epoch(epoch).collect();
            assert_eq!(outcomes.len(), 25);
            for (place, outcome) in (0..).zip(outcomes) {
                match outcome {
                    Ok(batch) => assert!(batch.id().g == place && !bad.contains(&place)),
                    Err(Error::Batch { g, reason, .. }) => {
                        assert!(g == place && bad.contains(&place));
                        assert!(reason.contains(&(NODES + place).to_string()), "{reason}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}

// fault 3
#[test]
fn consumers_that_stall_block_neither_the_scheduler_nor_the_cluster() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    // More of them than there are threads, each with everything it may ask for and reading nothing.
    let opening = Opening { batch_size: 1, max_credits: 200, max_bytes: 1, ..Opening::default() };
    let stalled: Vec<_> = (0..6)
        .map(|number: u8| {
            let (server, client) = (usize::from(number % 2), [number + 1; 16]);
            let channel = cluster.open(server, Opening { client, ..opening.clone() });
            let mut wire = cluster.wire_with(
                server,
                graphmill_wire::proto::Hello { slots: true, client: client.to_vec(), ..crate::support::hello() },
            );
            cluster.run(wire.credit(channel, 0, &(0..200).collect::<Vec<_>>()));
            (server, channel, wire)
        })
        .collect();
    let parked = |(server, channel, _): &(usize, u64, _)| cluster.describe(*server, *channel).state == "parked";
    eventually("all are parked", || stalled.iter().all(parked));
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), seeds(), &loading(8), 0));
    assert!(stalled.iter().all(parked), "nobody but their own consumers wakes them");
}

// fault 4
#[test]
fn an_abandoned_epoch_never_leaks_into_the_next() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let options = Loading { prefetch: 6, ..loading(4) };
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), options.clone()).unwrap();
    for epoch in 0..6 {
        let taken = loader.epoch(2 * epoch).take(1 + epoch as usize).map(Result::unwrap).count();
        assert_eq!(taken, 1 + epoch as usize);
        let found = bytes(loader.epoch(2 * epoch + 1));
        assert!(found == expected(&store, &config(), seeds(), &options, 2 * epoch + 1), "epoch {}", 2 * epoch + 1);
    }
}

// fault 5
#[test]
fn a_loader_of_nothing_ends_at_once_and_leaves_no_backend() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Auto);
    let loader = Loader::remote(&remote, config(), SeedList::Nodes(Vec::new()), loading(8)).unwrap();
    assert!(loader.is_empty());
    for epoch in 0..3 {
        assert_eq!(loader.epoch(epoch).count(), 0);
    }
    drop(loader);
    for server in 0..2 {
        eventually("nothing is left", || {
            let status = cluster.status(server);
            status.backends.is_empty() && status.channels.is_empty()
        });
    }
    drop(remote);
    assert!(cluster.stop());
}

// fault 6
#[test]
fn ranks_that_make_their_loaders_in_another_order_get_the_same_batches() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let configs = [config(), flat(), Config { seed: 8, ..config() }];
    let remotes = [0, 1].map(|_| cluster.connect(Transport::Socket));
    let mut loaders = Vec::new();
    // The two ranks take turns, each in its own order.
    for (rank, which) in [(0, 0), (1, 2), (0, 1), (1, 0), (0, 2), (1, 1)] {
        let loader = Loader::remote(&remotes[rank], configs[which].clone(), seeds(), loading(32)).unwrap();
        loaders.push((which, loader));
    }
    for (which, loader) in &loaders {
        assert!(bytes(loader.epoch(0)) == expected(&store, &configs[*which], seeds(), &loading(32), 0));
    }
}

// fault 7
#[test]
fn forty_epochs_under_way_at_once_pin_no_thread() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, config(), seeds(), loading(40)).unwrap();
    let mut epochs: Vec<_> = (0..40).map(|epoch| loader.epoch(epoch)).collect();
    for _ in 0..loader.len() {
        for (number, epoch) in (0..).zip(&mut epochs) {
            assert_eq!(epoch.next().unwrap().unwrap().id().epoch, number);
        }
    }
    assert!(epochs.iter_mut().all(|epoch| epoch.next().is_none()));
}

// fault 8
#[test]
fn every_batch_of_every_rank_and_epoch_draws_for_itself() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    // One node again and again: only the draws can differ.
    let edges = &store.graph.edges.values().next().unwrap().edges;
    let degree = |node: u64| edges.iter().filter(|edge| edge.dst == node).count();
    let busiest = (0..NODES).max_by_key(|&node| degree(node)).unwrap();
    let same = SeedList::Nodes(vec![busiest; 12]);
    let config = Config { edge_ids: true, ..Config::neighbors(&[3]) };
    let remote = cluster.connect(Transport::Socket);
    let mut drawn = std::collections::HashSet::new();
    for rank in 0..3 {
        let options = Loading { rank, world_size: 3, ..listed(&loading(1)) };
        let loader = Loader::remote(&remote, config.clone(), same.clone(), options).unwrap();
        for epoch in 0..3 {
            for batch in loader.epoch(epoch) {
                let mut edges = batch.unwrap().ints(Field::Edge(0)).to_vec();
                edges.sort_unstable();
                drawn.insert(edges);
            }
        }
    }
    // 36 draws of 3 of some 16: all alike, or alike for each rank, they would be at most 12.
    assert!(drawn.len() > 24, "{} different draws of 36, degree {}", drawn.len(), degree(busiest));
    // And a run without a seed is a run with seed 0.
    let unseeded = Loader::remote(&remote, config.clone(), same.clone(), listed(&loading(1))).unwrap();
    assert!(bytes(unseeded.epoch(0)) == expected(&store, &config, same, &listed(&loading(1)), 0));
}

// fault 9
#[test]
fn without_replacement_is_without() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    for weighted in [false, true] {
        let hops =
            graphmill_sample::Hops { fanouts: graphmill_sample::Fanouts::Same(vec![6]), replace: false, weighted };
        let config = Config { expand: graphmill_sample::Expand::Neighbors(hops), edge_ids: true, ..Config::default() };
        let loader = Loader::remote(&remote, config, seeds(), loading(NODES as usize)).unwrap();
        for epoch in 0..4 {
            for batch in loader.epoch(epoch) {
                let batch = batch.unwrap();
                let edges = batch.ints(Field::Edge(0));
                let distinct: std::collections::HashSet<_> = edges.iter().collect();
                assert!(edges.len() > 500 && distinct.len() == edges.len(), "weighted {weighted}");
            }
        }
    }
}

// fault 10
#[test]
fn a_first_server_that_is_dead_is_no_single_point_of_failure() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::replicas(&store.path, 3);
    cluster.stop_one(0);
    let remote = cluster.connect_within(PATIENCE);
    assert_eq!(remote.manifest().parts, 2);
    let loader = Loader::remote(&remote, config(), graphmill_client::Seeding::Split(Split::Train), loading(8)).unwrap();
    let train = SeedList::split(&store.open(), None, Split::Train).unwrap();
    assert!(bytes(loader.epoch(0)) == expected(&store, &config(), train, &loading(8), 0));
}

// fault 11
#[test]
fn waiting_for_a_peer_that_never_comes_ends() {
    let store = Store::homogeneous(2);
    let mut cluster = Cluster::prepare(&store.path, 2, |options| options);
    cluster.start_one(0);
    let options = ConnectOptions { deadline: Duration::from_millis(400), ..ConnectOptions::default() };
    let remote = Remote::connect(&[cluster.socket(0)], options).unwrap();
    let began = Instant::now();
    let error = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap_err();
    assert!(began.elapsed() < PATIENCE);
    assert!(matches!(error, Error::Unavailable { .. } | Error::Late { .. }), "{error}");
    assert!(error.to_string().contains(&cluster.socket(0).to_string()), "{error}");
}

// fault 12
#[test]
fn isolated_seeds_empty_frontiers_and_odd_fanouts_are_batches_like_any_other() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    let isolated = SeedList::Nodes((NODES - 10..NODES).collect());
    let mixed = SeedList::Nodes((NODES - 14..NODES).chain([0, 0, 5]).collect());
    for fanouts in [&[-1, 5][..], &[5, -1, 3], &[0], &[0, 4], &[], &[-1, -1]] {
        let config = Config { features: vec!["x".to_owned()], labels: true, ..Config::neighbors(fanouts) };
        for seeds in [&isolated, &mixed] {
            let loader = Loader::remote(&remote, config.clone(), seeds.clone(), loading(4)).unwrap();
            let found = bytes(loader.epoch(0));
            assert!(found == expected(&store, &config, seeds.clone(), &loading(4), 0), "{fanouts:?}");
        }
        // An id out of range, in the middle of a batch.
        let options = listed(&loading(3));
        for bad in [NODES, u64::from(u32::MAX), i64::MAX as u64] {
            let nodes = SeedList::Nodes(vec![1, 2, 3, 4, bad, 5, 6, 7, 8]);
            let loader = Loader::remote(&remote, config.clone(), nodes, options.clone()).unwrap();
            let outcomes: Vec<_> = loader.epoch(0).collect();
            let good: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
            assert_eq!(good, [true, false, true], "{fanouts:?}, id {bad}");
            let error = outcomes[1].as_ref().unwrap_err().to_string();
            assert!(error.contains(&bad.to_string()), "{error}");
        }
    }
}

// fault 13
#[test]
fn a_socket_left_by_yesterdays_run_does_not_count_as_ready() {
    let store = Store::homogeneous(1);
    let mut cluster = Cluster::prepare(&store.path, 1, |options| options);
    let Endpoint::Unix(path) = cluster.socket(0) else { panic!("a path") };
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let options = |millis| ConnectOptions { deadline: Duration::from_millis(millis), ..ConnectOptions::default() };
    assert!(Remote::connect(&[cluster.socket(0)], options(300)).is_err());
    // A client that is early waits for the server itself, which takes the place of what was left.
    let address = cluster.socket(0);
    let early = std::thread::spawn(move || Remote::connect(&[address], options(20_000)).map(drop));
    cluster.start_one(0);
    early.join().unwrap().unwrap();
}

// fault 14
#[test]
fn numbers_beyond_32_bits_stay_what_they_are() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    let epoch = (1 << 40) + 7;
    let loader = Loader::remote(&remote, config(), seeds(), loading(32)).unwrap();
    let found = bytes(loader.epoch(epoch));
    assert!(found == expected(&store, &config(), seeds(), &loading(32), epoch));
    assert!(found != bytes(loader.epoch(epoch + (1 << 32))), "an epoch that is equal in its lower half");
    // Ids that would be good ones if their upper half were lost.
    for id in [(1 << 32) + 5, (1 << 31) + 5, (7 << 32) + 5] {
        let loader = Loader::remote(&remote, config(), SeedList::Nodes(vec![id]), loading(1)).unwrap();
        let error = loader.epoch(0).next().unwrap().unwrap_err().to_string();
        assert!(error.contains(&id.to_string()), "{error}");
    }
}

//! Loaders of a cluster: each seed once per epoch, the same batches on any number of servers and ranks, wherever they stop.

use std::collections::BTreeMap;
use std::sync::Arc;

use graphmill_client::{
    ConnectOptions, Error, Loader, Options as Loading, Remote, SeedList, Seeding, State, Transport,
};
use graphmill_graph::{EdgeTypeName, Split};
use graphmill_sample::{Batch, Budget, Config, Expand, Fanouts, Field, Hops, Negatives, Ppr, Supervision, Task};

use crate::support::{Cluster, NODES, Store, bytes, config, eventually, expected, loading};

fn seeds() -> SeedList {
    SeedList::Nodes((0..NODES).collect())
}

fn users() -> Config {
    Config {
        task: Task::Nodes { node_type: Some("user".to_owned()) },
        features: vec!["x".to_owned()],
        ..Config::neighbors(&[3, 2])
    }
}

fn likes() -> EdgeTypeName {
    EdgeTypeName::new("user", "likes", "item")
}

fn hops(fanouts: &[i64]) -> Hops {
    Hops { fanouts: Fanouts::Same(fanouts.to_vec()), ..Hops::default() }
}

/// What all ranks together hand out in an epoch, each on a thread and a connection of its own.
fn ranks(
    cluster: &Cluster,
    config: &Config,
    seeds: &SeedList,
    options: &Loading,
    count: u32,
    epoch: u64,
) -> Vec<Batch> {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..count)
            .map(|rank| {
                let remote = cluster.connect(Transport::Auto);
                let options = Loading { rank, world_size: count, ..options.clone() };
                let (config, seeds) = (config.clone(), seeds.clone());
                scope.spawn(move || {
                    let loader = Loader::remote(&remote, config, seeds, options).unwrap();
                    let batches: Vec<Batch> = loader.epoch(epoch).map(Result::unwrap).collect();
                    assert_eq!(batches.len(), loader.len());
                    batches
                })
            })
            .collect();
        ranks.into_iter().flat_map(|rank| rank.join().unwrap()).collect()
    })
}

fn own(batches: &[Batch]) -> Vec<(u64, Vec<u8>)> {
    let own = batches.iter().filter(|batch| !batch.id().repeated);
    let mut own: Vec<_> = own.map(|batch| (batch.id().g, batch.bytes().to_vec())).collect();
    own.sort_unstable();
    own
}

#[test]
fn any_number_of_servers_and_ranks_hands_out_the_same_epoch() {
    let stores = [(Store::homogeneous(4), config(), seeds()), {
        (Store::heterogeneous(4), users(), SeedList::Nodes((0..90).collect()))
    }];
    for (store, config, seeds) in stores {
        let options = loading(7);
        let wanted = expected(&store, &config, seeds.clone(), &options, 2);
        for (servers, count) in [(1, 1), (1, 4), (2, 1), (2, 2), (4, 3)] {
            let cluster = Cluster::start(&store.path, servers);
            let found = ranks(&cluster, &config, &seeds, &options, count, 2);
            assert!(own(&found) == wanted, "{servers} servers, {count} ranks");
            assert_eq!(found.len() % count as usize, 0, "all ranks have equally many");
            // What fills the last round is a batch of the epoch as well.
            let bytes: BTreeMap<u64, &Vec<u8>> = wanted.iter().map(|(g, bytes)| (*g, bytes)).collect();
            assert!(found.iter().all(|batch| batch.bytes() == bytes[&batch.id().g]));
            drop(found);
            assert!(cluster.stop());
        }
    }
}

#[test]
fn each_epoch_meets_every_seed_once_whatever_is_left_over() {
    let store = Store::homogeneous(3);
    let cluster = Cluster::start(&store.path, 3);
    for (batch_size, drop_last, even) in
        [(10, false, None), (10, true, None), (10, false, Some(false)), (10, true, Some(false)), (203, false, None)]
    {
        let options = Loading { drop_last, even, ..loading(batch_size) };
        let whole = NODES / batch_size as u64;
        let total = if drop_last { whole } else { NODES.div_ceil(batch_size as u64) };
        let mut orders = Vec::new();
        for epoch in 0..2 {
            let found = ranks(&cluster, &config(), &seeds(), &options, 3, epoch);
            let mut numbers: Vec<u64> = own(&found).into_iter().map(|(g, _)| g).collect();
            numbers.sort_unstable();
            // With an even number of rounds and no short batch, the last round is left out unless it is full.
            let handed_out = if drop_last && even.is_none() { total / 3 * 3 } else { total };
            assert_eq!(numbers, (0..handed_out).collect::<Vec<_>>(), "{options:?}");
            let fresh = found.iter().filter(|batch| !batch.id().repeated);
            let order: Vec<i64> = fresh.flat_map(|batch| batch.ints(Field::Seed).to_vec()).collect();
            let mut met = order.clone();
            met.sort_unstable();
            assert!(met.windows(2).all(|pair| pair[0] < pair[1]), "a seed comes twice");
            if drop_last {
                assert_eq!(met.len() as u64, handed_out * batch_size as u64);
            } else {
                assert_eq!(met, (0..NODES as i64).collect::<Vec<_>>());
            }
            orders.push(order);
        }
        assert_ne!(orders[0], orders[1], "each epoch has an order of its own");
    }
}

#[test]
fn the_number_of_batches_is_known_before_any_comes() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let remote = cluster.connect(Transport::Socket);
    for (options, expected) in [
        (loading(10), 21),
        (Loading { drop_last: true, ..loading(10) }, 20),
        (Loading { rank: 1, world_size: 4, ..loading(10) }, 6),
        (Loading { rank: 1, world_size: 4, even: Some(false), ..loading(10) }, 5),
        (Loading { rank: 0, world_size: 4, even: Some(false), ..loading(10) }, 6),
        (Loading { rank: 1, world_size: 4, drop_last: true, ..loading(10) }, 5),
        (loading(1000), 1),
    ] {
        let loader = Loader::remote(&remote, config(), seeds(), options).unwrap();
        let mut batches = loader.epoch(0);
        assert_eq!((loader.len(), batches.len()), (expected, expected));
        batches.next().unwrap().unwrap();
        assert_eq!(batches.len(), expected - 1);
        assert_eq!(batches.count(), expected - 1);
    }
}

#[test]
fn every_kind_of_sampling_gives_the_batches_of_this_process() {
    let negatives = Negatives::Binary { amount: 1.5, strict: true, weighted: false };
    let triplets = Negatives::Triplet { amount: 2, strict: false, weighted: false };
    let ppr = Ppr { eps: 0.005, max_nodes: Budget::Each(8), neighbors_per_hop: 5, ..Ppr::default() };
    let links = |negatives| Task::Links { edge_type: None, negatives };
    let x = || vec!["x".to_owned()];
    let homogeneous = [
        Config { expand: Expand::Neighbors(Hops { weighted: true, ..hops(&[3, 2]) }), ..config() },
        Config { expand: Expand::Neighbors(Hops { weighted: true, replace: true, ..hops(&[3]) }), ..config() },
        Config { expand: Expand::Induced(hops(&[3])), ..config() },
        // So much might come for each node that peers are asked about one or two at a time.
        Config { expand: Expand::Neighbors(hops(&[8_000_000, 9_000_000])), ..config() },
        Config { expand: Expand::Ppr(ppr.clone()), features: x(), ..Config::default() },
        Config { direction: Some(graphmill_graph::Direction::Out), ..config() },
        Config { task: links(None), ..config() },
        Config { task: links(Some(negatives)), ..config() },
        Config { task: links(Some(triplets)), ..config() },
    ];
    let supervision = || vec![Supervision { positive: likes(), negative: None }];
    let anchors = |max_labels| Task::Anchors { supervision: supervision(), max_labels };
    let of_likes = |negatives| Task::Links { edge_type: Some(likes()), negatives };
    let binary = Negatives::Binary { amount: 1.0, strict: false, weighted: false };
    let heterogeneous = [
        Config { task: anchors(None), ..users() },
        Config { task: anchors(Some(2)), expand: Expand::Ppr(ppr), ..users() },
        Config { task: of_likes(Some(binary)), ..users() },
    ];
    for (store, configs) in
        [(Store::homogeneous(3), homogeneous.as_slice()), (Store::heterogeneous(3), heterogeneous.as_slice())]
    {
        let cluster = Cluster::start(&store.path, 3);
        let remote = cluster.connect(Transport::Auto);
        let whole = store.open();
        for config in configs {
            let (seeds, size) = match &config.task {
                Task::Links { edge_type, .. } => (SeedList::edges(&whole, edge_type.as_ref()).unwrap(), 100),
                Task::Anchors { .. } => (SeedList::Nodes((0..90).collect()), 16),
                Task::Nodes { .. } => (SeedList::Nodes((0..NODES).collect()), 32),
            };
            let loader = Loader::remote(&remote, config.clone(), seeds.clone(), loading(size)).unwrap();
            let found = bytes(loader.epoch(1));
            assert!(found == expected(&store, config, seeds, &loading(size), 1), "{config:?}");
        }
    }
}

#[test]
fn zero_weight_edges_are_never_traversed() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    let expand = Expand::Neighbors(Hops { weighted: true, ..hops(&[-1, 4]) });
    let loader = Loader::remote(&remote, Config { expand, ..config() }, seeds(), loading(64)).unwrap();
    let edges = &store.graph.edges.values().next().unwrap().edges;
    let zero: std::collections::HashSet<i64> =
        edges.iter().filter(|edge| edge.weight == Some(0)).map(|edge| edge.id.unwrap() as i64).collect();
    assert!(zero.len() > 100);
    for batch in loader.epoch(0) {
        let batch = batch.unwrap();
        assert!(batch.num_edges() > 0 && batch.ints(Field::Edge(0)).iter().all(|edge| !zero.contains(edge)));
    }
}

#[test]
fn seeds_that_are_named_are_those_that_are_listed() {
    let store = Store::homogeneous(3);
    let cluster = Cluster::start(&store.path, 3);
    let remote = cluster.connect(Transport::Socket);
    let whole = store.open();
    let links = Config { task: Task::Links { edge_type: None, negatives: None }, ..config() };
    let cases = [
        (config(), Seeding::All, SeedList::all(&whole, None).unwrap()),
        (config(), Seeding::Split(Split::Train), SeedList::split(&whole, None, Split::Train).unwrap()),
        (config(), Seeding::Split(Split::Val), SeedList::split(&whole, None, Split::Val).unwrap()),
        (links, Seeding::Edges, SeedList::edges(&whole, None).unwrap()),
    ];
    for (config, named, list) in cases {
        let wanted = expected(&store, &config, list.clone(), &loading(50), 0);
        for seeding in [named, Seeding::Listed(list)] {
            let loader = Loader::remote(&remote, config.clone(), seeding.clone(), loading(50)).unwrap();
            assert!(bytes(loader.epoch(0)) == wanted, "{seeding:?}");
        }
    }
    let error = Loader::remote(&remote, config(), Seeding::Split(Split::Test), loading(50)).unwrap_err();
    assert!(error.to_string().contains("test"), "{error}");
    let error = Loader::remote(&remote, config(), Seeding::Edges, loading(50)).unwrap_err();
    assert!(error.to_string().contains("pairs"), "{error}");
}

#[test]
fn several_loaders_at_once_then_two_more() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Auto);
    let with_seed = |seed| Config { seed, ..config() };
    let load = |seed| Loader::remote(&remote, with_seed(seed), seeds(), loading(20)).unwrap();
    let check = |seed: u64, loader: &Loader, epoch| {
        assert!(bytes(loader.epoch(epoch)) == expected(&store, &with_seed(seed), seeds(), &loading(20), epoch));
    };
    let four: Vec<Loader> = (0..4).map(load).collect();
    std::thread::scope(|scope| {
        for (seed, loader) in (0..).zip(&four) {
            scope.spawn(move || (0..2).for_each(|epoch| check(seed, loader, epoch)));
        }
    });
    drop(four);
    eventually("all of them are gone", || cluster.status(0).backends.is_empty());
    for seed in 4..6 {
        check(seed, &load(seed), 0);
    }
    drop(remote);
    assert!(cluster.stop());
}

#[test]
fn servers_that_have_no_batch_of_a_rank_are_not_asked() {
    let store = Store::homogeneous(3);
    let cluster = Cluster::start(&store.path, 3);
    let remote = cluster.connect(Transport::Socket);
    let channels = || -> usize { (0..3).map(|server| cluster.status(server).channels.len()).sum() };
    for (nodes, asked) in [(0, 1), (8, 1), (16, 2), (24, 3), (80, 3)] {
        let list = SeedList::Nodes((0..nodes).collect());
        let options = Loading { shuffle: false, ..loading(8) };
        let loader = Loader::remote(&remote, config(), list.clone(), options.clone()).unwrap();
        assert!(bytes(loader.epoch(0)) == expected(&store, &config(), list, &options, 0));
        // The first was asked for the number of seeds.
        assert!(channels() <= asked + 1, "{nodes} nodes: {} channels", channels());
        drop(loader);
        eventually("they are closed", || channels() == 0);
    }
}

#[test]
fn leaving_early_going_back_and_two_epochs_side_by_side_do_no_harm() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Auto);
    let loader = Loader::remote(&remote, config(), seeds(), loading(8)).unwrap();
    let wanted: Vec<_> = (0..4).map(|epoch| expected(&store, &config(), seeds(), &loading(8), epoch)).collect();
    // Left early, then the same epoch again.
    assert_eq!(loader.epoch(2).take(3).count(), 3);
    assert!(bytes(loader.epoch(2)) == wanted[2]);
    // Back to an earlier one, and to it once more.
    assert!(bytes(loader.epoch(0)) == wanted[0]);
    assert!(bytes(loader.epoch(3)) == wanted[3]);
    assert!(bytes(loader.epoch(0)) == wanted[0]);
    // Side by side: two epochs, and one epoch twice.
    for (left, right) in [(1, 2), (2, 1), (3, 3)] {
        let (mut first, mut second) = (loader.epoch(left), loader.epoch(right));
        for place in 0..loader.len() as u64 {
            for (batches, epoch) in [(&mut first, left), (&mut second, right)] {
                let batch = batches.next().unwrap().unwrap();
                assert!((batch.id().g, batch.bytes()) == (place, &wanted[epoch as usize][place as usize].1[..]));
            }
        }
        assert!(first.next().is_none() && second.next().is_none());
    }
}

#[test]
fn many_loops_that_are_left_at_once_do_not_exhaust_the_channel() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let proxy = cluster.proxy(0);
    let connecting = ConnectOptions { transport: Transport::Socket, ..ConnectOptions::default() };
    let remote = Remote::connect(std::slice::from_ref(&proxy.endpoint), connecting).unwrap();
    let options = Loading { prefetch: 20, ..loading(1) };
    let loader = Loader::remote(&remote, config(), seeds(), options.clone()).unwrap();
    let wanted = expected(&store, &config(), seeds(), &options, 0);
    // Asked for all at once, and left before anything came.
    drop(loader.epoch_from(0, 0));
    proxy.freeze();
    std::thread::scope(|scope| {
        let loader = &loader;
        let leaving = scope.spawn(move || (1..10).for_each(|start| drop(loader.epoch_from(0, 20 * start))));
        proxy.thaw();
        leaving.join().unwrap();
    });
    assert!(bytes(loader.epoch(0)) == wanted);
    eventually("channels nobody needs are closed", || cluster.status(0).registered <= 4);
}

#[test]
fn a_window_wider_than_a_server_allows_is_no_error() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let remote = cluster.connect(Transport::Socket);
    let options = Loading { prefetch: 5000, ..loading(1) };
    let nodes = SeedList::Nodes((0..3000).map(|place| place % NODES).collect());
    let flat = Config::neighbors(&[]);
    let loader = Loader::remote(&remote, flat, nodes, options).unwrap();
    assert_eq!(loader.epoch(0).map(Result::unwrap).count(), 3000);
}

#[test]
fn batches_as_they_come_are_each_batch_once() {
    let store = Store::homogeneous(3);
    let cluster = Cluster::start(&store.path, 3);
    let remote = cluster.connect(Transport::Auto);
    let options = Loading { ordered: false, prefetch: 4, ..loading(5) };
    let loader = Loader::remote(&remote, config(), seeds(), options).unwrap();
    for epoch in 0..3 {
        let mut found = bytes(loader.epoch(epoch));
        found.sort_unstable();
        assert!(found == expected(&store, &config(), seeds(), &loading(5), epoch));
    }
}

/// Stops after so many batches, and hands the state on as text.
fn stop_after(loader: &Loader, epoch: u64, count: usize, met: &mut Vec<(u64, Vec<u8>)>) -> State {
    let mut batches = loader.epoch(epoch);
    for batch in batches.by_ref().take(count) {
        let batch = batch.unwrap();
        met.push((batch.id().g, batch.bytes().to_vec()));
    }
    serde_json::from_str(&serde_json::to_string(&batches.state()).unwrap()).unwrap()
}

#[test]
fn a_state_goes_on_anywhere_between_embedded_and_remote() {
    let store = Store::homogeneous(4);
    let [small, large] = [1, 4].map(|servers| Cluster::start(&store.path, servers));
    let [few, many] = [&small, &large].map(|cluster| cluster.connect(Transport::Auto));
    let whole = store.open();
    let wanted = expected(&store, &config(), seeds(), &loading(8), 1);
    let remote = |remote: &Arc<Remote>| Loader::remote(remote, config(), seeds(), loading(8)).unwrap();
    let embedded = || Loader::new(&whole, config(), seeds(), loading(8)).unwrap();
    let pairs = [
        (remote(&few), remote(&many)),
        (remote(&many), remote(&few)),
        (embedded(), remote(&many)),
        (remote(&few), embedded()),
    ];
    for (first, second) in pairs {
        for stop in [0, 1, 11, 26] {
            let mut met = Vec::new();
            let state = stop_after(&first, 1, stop, &mut met);
            let resumed = second.resume(&state).unwrap();
            assert_eq!(resumed.len(), wanted.len() - stop);
            met.extend(bytes(resumed));
            assert!(met == wanted, "stopped after {stop}");
        }
    }
}

#[test]
fn a_state_of_two_ranks_goes_on_with_three() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    let wanted = expected(&store, &config(), seeds(), &loading(8), 0);
    let load = |rank, world_size, even| {
        let options = Loading { rank, world_size, even: Some(even), ..loading(8) };
        Loader::remote(&remote, config(), seeds(), options).unwrap()
    };
    let mut met = Vec::new();
    let states: Vec<State> = (0..2).map(|rank| stop_after(&load(rank, 2, true), 0, 5, &mut met)).collect();
    for rank in 0..3 {
        met.extend(bytes(load(rank, 3, false).resume(&states[rank as usize % 2]).unwrap()));
    }
    met.sort_unstable();
    assert!(met == wanted);
}

#[test]
fn a_state_of_batches_that_came_out_of_order_goes_on_with_the_same_rank() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    let options = Loading { ordered: false, prefetch: 5, ..loading(8) };
    let wanted = expected(&store, &config(), seeds(), &loading(8), 0);
    let load = || Loader::remote(&remote, config(), seeds(), options.clone()).unwrap();
    let mut met = Vec::new();
    let state = stop_after(&load(), 0, 9, &mut met);
    met.extend(bytes(load().resume(&state).unwrap()));
    met.sort_unstable();
    assert!(met == wanted);
}

#[test]
fn a_state_of_other_batches_is_refused() {
    let store = Store::homogeneous(1);
    let cluster = Cluster::start(&store.path, 1);
    let remote = cluster.connect(Transport::Socket);
    let load = |config, seeds| Loader::remote(&remote, config, seeds, loading(8)).unwrap();
    let state = load(config(), seeds()).epoch(0).state();
    let refused = |loader: Loader| match loader.resume(&state) {
        Err(Error::State { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(load(Config { seed: 9, ..config() }, seeds())), "sampler configuration");
    assert_eq!(refused(load(config(), SeedList::Nodes((1..NODES).collect()))), "seed list or batch size");
}

#[test]
fn a_sampler_that_fails_raises_and_does_not_hang() {
    let store = Store::homogeneous(2);
    let cluster = Cluster::start(&store.path, 2);
    let remote = cluster.connect(Transport::Socket);
    let greedy = Config { max_edges: 3, ..Config::neighbors(&[-1, -1]) };
    let loader = Loader::remote(&remote, greedy, seeds(), loading(50)).unwrap();
    let outcomes: Vec<_> = loader.epoch(0).collect();
    assert_eq!(outcomes.len(), 5);
    for outcome in outcomes {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::Batch { .. }) && error.to_string().contains("max_edges"), "{error}");
    }
}

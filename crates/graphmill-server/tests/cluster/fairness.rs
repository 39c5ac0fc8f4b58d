//! Ranks get their share of a server by work, whatever they ask for and however they read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use graphmill_client::{ConnectOptions, Loader, Options as Loading, Remote, SeedList, Transport};
use graphmill_graph::random::Stream as Random;
use graphmill_graph::{Direction, EdgeRole, EdgeTypeName};
use graphmill_sample::Config;
use graphmill_server::Options;
use graphmill_testing::{ModelEdge, ModelEdges, ModelGraph, ModelNodes};
use graphmill_wire::{Message, proto};

use crate::memory::wide;
use crate::support::{Cluster, Opening, PATIENCE, Store, bytes, eventually, expected, flat, loading};

/// What an edge counts beside the bytes of a batch.
const EDGE_WORK: u64 = 64;
/// The number of the field of a batch that has an element for every edge.
const ROW: u32 = 5;
/// The seeds of three ranks.
const RANKS: [u64; 3] = [60, 600, 6000];

/// A graph with as many nodes as the largest rank has seeds, and ten edges for each.
fn graph() -> Store {
    let random = Random::new(11, &[]);
    let count = RANKS[2];
    let edge =
        |id: u64| ModelEdge { src: random.below(id, count), dst: id % count, id: None, weight: None, timestamp: None };
    let mut edges: Vec<ModelEdge> = (0..10 * count).map(edge).collect();
    edges.sort_unstable();
    let edges = ModelEdges {
        role: EdgeRole::Message,
        edges,
        edge_ids: false,
        id_count: 0,
        weights: false,
        timestamps: false,
        features: BTreeMap::new(),
    };
    let graph = ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), ModelNodes { count, ..ModelNodes::default() })].into(),
        edges: [(EdgeTypeName::new("node", "to", "node"), edges)].into(),
    };
    Store::new(graph, 1)
}

/// A server that samples one batch at a time.
fn one_worker(store: &Store) -> Cluster {
    Cluster::start_with(&store.path, 1, |options| Options { threads: 1, ..options })
}

/// Jain's index: 1 if all have the same, `1/n` if one has everything.
fn jain(shares: &[u64]) -> f64 {
    let (sum, squares) =
        shares.iter().map(|&share| share as f64).fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// The work of a batch.
fn work(head: &proto::BatchHead) -> u64 {
    let edges: u64 = head.tensors.iter().filter(|tensor| tensor.field == ROW).map(|tensor| tensor.shape[0]).sum();
    edges * EDGE_WORK + head.bytes
}

/// One batch that was served: for which of the channels, and its work.
type Served = (usize, u64);

/// Has the first batches of an epoch of some channels sampled, all asked for at once, and says in which order they were:
/// they go over one connection, and are sampled one at a time.
fn schedule(cluster: &Cluster, client: [u8; 16], channels: &[(u64, u64)], epoch: u64) -> Vec<Served> {
    let mut wire = cluster.wire(0, client);
    cluster.run(async {
        for &(channel, batches) in channels {
            wire.credit(channel, epoch, &(0..batches).collect::<Vec<_>>()).await;
        }
        let mut served = Vec::new();
        for _ in 0..channels.iter().map(|(_, batches)| batches).sum::<u64>() {
            let frame = wire.next().await.expect("a batch, not the end");
            let Message::Batch(head) = &frame.message else { panic!("{:?}", frame.message) };
            let place = channels.iter().position(|(channel, _)| *channel == frame.header.channel).unwrap();
            served.push((place, work(head)));
        }
        served
    })
}

/// The part of a schedule in which all channels had something to do: from the first batch of the last to begin, to the last
/// batch of the first to end.
fn contended(served: &[Served], channels: usize) -> &[Served] {
    let first = |channel| served.iter().position(|(place, _)| *place == channel).unwrap();
    let last = |channel| served.iter().rposition(|(place, _)| *place == channel).unwrap();
    let (begin, end) = ((0..channels).map(first).max().unwrap(), (0..channels).map(last).min().unwrap());
    if begin < end { &served[begin..end] } else { &[] }
}

/// Schedules epochs until one has so many batches in its contended part: a test that was held up between two credits may
/// find that the first has had everything meanwhile. What each channel was served in that part: batches and work.
fn contended_shares(
    cluster: &Cluster,
    client: [u8; 16],
    channels: &[(u64, u64)],
    least: usize,
) -> (Vec<u64>, Vec<u64>) {
    let began = Instant::now();
    let mut all_work = vec![0; channels.len()];
    for epoch in 0.. {
        let served = schedule(cluster, client, channels, epoch);
        for &(place, work) in &served {
            all_work[place] += work;
        }
        for (&(channel, _), &work) in channels.iter().zip(&all_work) {
            assert_eq!(cluster.describe(0, channel).work, work, "what a server counts is what it sent");
        }
        let contended = contended(&served, channels.len());
        if contended.len() >= least {
            let mut shares = (vec![0; channels.len()], vec![0; channels.len()]);
            for &(place, work) in contended {
                shares.0[place] += 1;
                shares.1[place] += work;
            }
            return shares;
        }
        assert!(began.elapsed() < PATIENCE, "the channels never had something to do at the same time");
    }
    unreachable!("epochs have no end");
}

#[test]
fn a_rank_with_a_hundredth_of_the_seeds_has_an_equal_share() {
    let store = graph();
    let cluster = one_worker(&store);
    let client = [1; 16];
    // The largest asks first, for as much as it may.
    let channels = [RANKS[2], RANKS[1], RANKS[0]].map(|nodes| {
        let config = Config::neighbors(&[4, 3]);
        let opening = Opening { config, nodes, batch_size: 1, client, max_credits: 1000, ..Opening::default() };
        (cluster.open(0, opening), nodes.min(900))
    });
    let (batches, work) = contended_shares(&cluster, client, &channels, 100);
    assert!(jain(&work) >= 0.99, "{work:?} in {batches:?} batches");
}

#[test]
fn work_is_shared_and_not_the_number_of_batches() {
    let store = graph();
    let cluster = one_worker(&store);
    let client = [1; 16];
    let open = |fanouts: &[i64], batches: u64| {
        let config = Config::neighbors(fanouts);
        let opening =
            Opening { config, nodes: batches * 4, batch_size: 4, client, max_credits: 1000, ..Opening::default() };
        (cluster.open(0, opening), batches)
    };
    let channels = [open(&[2], 900), open(&[15, 10], 30)];
    let (batches, work) = contended_shares(&cluster, client, &channels, 200);
    assert!(jain(&work) >= 0.99, "{work:?} in {batches:?} batches");
    assert!(batches[0] > 5 * batches[1], "the batches differ in cost, so their numbers must: {batches:?}");
}

#[test]
fn endless_readers_with_very_different_seeds_share_the_work() {
    let store = graph();
    let cluster = one_worker(&store);
    let remotes = [0, 1, 2].map(|rank| {
        let options = ConnectOptions {
            transport: Transport::Socket,
            deadline: PATIENCE,
            worker: format!("rank {rank}"),
            ..ConnectOptions::default()
        };
        Remote::connect(&cluster.addresses(), options).unwrap()
    });
    // What each was served so far, and how many batches all have.
    let served = || {
        let mut work = [0; 3];
        for channel in cluster.status(0).channels {
            let rank = (0..3).find(|rank| channel.worker == format!("rank {rank}")).unwrap();
            work[rank] += channel.work;
        }
        (work, remotes.iter().map(|remote| remote.traffic().batches).sum::<u64>())
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (remote, nodes) in remotes.iter().zip(RANKS) {
            let options = Loading { prefetch: 8, ..loading(1) };
            let seeds = SeedList::Nodes((0..nodes).collect());
            let loader = Loader::remote(remote, Config::neighbors(&[4, 3]), seeds, options).unwrap();
            let stop = &stop;
            scope.spawn(move || {
                let mut epochs = 0..;
                while !stop.load(Ordering::Relaxed) {
                    let mut batches = loader.epoch(epochs.next().unwrap());
                    while !stop.load(Ordering::Relaxed)
                        && let Some(batch) = batches.next()
                    {
                        batch.unwrap();
                    }
                }
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("all are active", || served().0.iter().all(|&work| work > 0));
            let before = served();
            let mut shares = [0; 3];
            eventually("hundreds of batches are shared evenly", || {
                let now = served();
                shares = std::array::from_fn(|rank| now.0[rank] - before.0[rank]);
                now.1 >= before.1 + 500 && jain(&shares) >= 0.95
            });
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn a_rank_that_stops_reading_is_parked_and_later_gets_exactly_its_batches() {
    let store = Store::new(wide(), 1);
    let cluster = one_worker(&store);
    let seeds = || SeedList::Nodes((0..256).collect());
    let options = Loading { batch_size: 8, ..Loading::default() };
    let wanted = expected(&store, &flat(), seeds(), &options, 0);
    let all: Vec<u64> = wanted.iter().map(|(g, _)| *g).collect();

    // One asks for everything and does not read, with room for few batches.
    let budget = 2 << 20;
    let client = [1; 16];
    let opening = Opening { config: flat(), nodes: 256, batch_size: 8, client, max_credits: 64, max_bytes: budget };
    let channel = cluster.open(0, opening);
    let mut wire = cluster.wire(0, client);
    cluster.run(wire.credit(channel, 0, &all));
    // What the socket takes is not the server's any more, so it may go on for a while.
    let parks = || {
        eventually("it is parked", || {
            let seen = cluster.describe(0, channel);
            assert!(seen.buffered_bytes <= budget && seen.completed < all.len() as u64, "{seen:?}");
            seen.state == "parked" && seen.running == 0
        });
    };
    parks();

    // One holds its iterator: nothing is sampled for it beyond what it asked for ahead.
    let remote = cluster.connect(Transport::Socket);
    let loader = Loader::remote(&remote, flat(), seeds(), options.clone()).unwrap();
    let mut held = loader.epoch(0);
    let first = held.next().unwrap().unwrap();

    // One goes on, with the only worker there is.
    let other_remote = cluster.connect(Transport::Socket);
    let other = Loader::remote(&other_remote, flat(), seeds(), options).unwrap();
    for _ in 0..2 {
        assert!(bytes(other.epoch(0)) == wanted);
    }
    parks();

    let rest = std::iter::once(first).chain(held.map(Result::unwrap));
    let rest: Vec<(u64, Vec<u8>)> = rest.map(|batch| (batch.id().g, batch.bytes().to_vec())).collect();
    assert!(rest == wanted);
    let mut late = cluster.run(async {
        let mut late = Vec::new();
        for _ in &all {
            let frame = wire.next().await.expect("a batch, not the end");
            assert!(matches!(frame.message, Message::Batch(_)), "{:?}", frame.message);
            let mut body = vec![0; frame.header.body as usize];
            wire.reader.read_body(&mut body).await.unwrap();
            late.push((frame.header.g, body));
        }
        wire.ping().await;
        assert!(wire.until_pong().await.is_empty(), "nothing twice");
        late
    });
    late.sort_unstable();
    assert!(late == wanted);
}

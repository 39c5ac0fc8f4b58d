//! Loaders: the same batches on any number of threads, each once, and none lost when one stops and another goes on.

use std::time::Duration;

use graphmill_client::{Batches, Error, Loader, Options, SeedList, State};
use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Direction, EdgeRole, EdgeTypeName, OpenOptions, Storage};
use graphmill_sample::{Batch, Config, Expand, Field, Hops, Negatives, Task};
use graphmill_testing::{Assignment, ModelEdge, ModelEdges, ModelGraph, ModelNodes, ModelTensor, tempdir, write};

const NODES: u64 = 500;

fn graph() -> ModelGraph {
    let random = Stream::new(5, &[]);
    let edge = |id: u64| ModelEdge {
        src: random.below(2 * id, NODES),
        dst: random.below(2 * id + 1, random.below(id, NODES) + 1),
        id: Some(id),
        weight: Some((random.unit(id) as f32).to_bits()),
        timestamp: None,
    };
    let mut edges: Vec<ModelEdge> = (0..5000).map(edge).collect();
    edges.sort_unstable();
    let rows = (0..NODES).map(|node| (node as f32).to_le_bytes().repeat(16)).collect();
    let x = ModelTensor { dtype: graphmill_graph::DType::F32, shape: vec![16], rows };
    let nodes = ModelNodes { count: NODES, features: [("x".to_owned(), x)].into(), ..ModelNodes::default() };
    let edges = ModelEdges {
        role: EdgeRole::Message,
        edges,
        edge_ids: true,
        id_count: 5000,
        weights: true,
        timestamps: false,
        features: std::collections::BTreeMap::new(),
    };
    ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), nodes)].into(),
        edges: [(EdgeTypeName::new("node", "to", "node"), edges)].into(),
    }
}

fn dataset(parts: u32, storage: Storage) -> Dataset {
    let (graph, folder) = (graph(), tempdir());
    let path = folder.path().join("dataset");
    let assignment = Assignment::assigned(&graph, parts, |_, id| (id * 7 % u64::from(parts)) as u16);
    write(&graph, &path, &[Direction::In], &assignment).unwrap();
    Dataset::open_with(&path, &OpenOptions { storage, partitions: None }).unwrap()
}

fn config() -> Config {
    Config { features: vec!["x".to_owned()], edge_ids: true, seed: 3, ..Config::neighbors(&[5, 3]) }
}

fn options(threads: usize) -> Options {
    Options { batch_size: 16, shuffle: true, threads, ..Options::default() }
}

fn loader(options: Options) -> Loader {
    loader_of(&dataset(1, Storage::Ram), config(), options)
}

fn loader_of(dataset: &Dataset, config: Config, options: Options) -> Loader {
    let seeds = match config.task {
        Task::Links { .. } => SeedList::edges(dataset, None).unwrap(),
        _ => SeedList::all(dataset, None).unwrap(),
    };
    Loader::new(dataset, config, seeds, options).unwrap()
}

fn bytes(batches: Batches) -> Vec<(u64, Vec<u8>)> {
    batches.map(|batch| batch.unwrap()).map(|batch| (batch.id().g, batch.bytes().to_vec())).collect()
}

#[test]
fn threads_parts_and_storage_change_no_byte() {
    let weighted = Expand::Neighbors(Hops { weighted: true, ..hops(&[5, 3]) });
    let negatives = Some(Negatives::Binary { amount: 1.0, strict: true, weighted: false });
    let configs = [
        config(),
        Config { expand: weighted, ..config() },
        Config { expand: Expand::Induced(hops(&[3])), ..config() },
        Config {
            expand: Expand::Ppr(graphmill_sample::Ppr { eps: 0.01, ..Default::default() }),
            edge_ids: false,
            ..config()
        },
        Config { task: Task::Links { edge_type: None, negatives }, ..config() },
    ];
    let [whole, mapped, parts] =
        [(1, Storage::Ram), (1, Storage::Mmap), (4, Storage::Mmap)].map(|(parts, storage)| dataset(parts, storage));
    for config in configs {
        let links = matches!(config.task, Task::Links { .. });
        let options = |threads| Options { batch_size: if links { 512 } else { 16 }, ..options(threads) };
        let expected = bytes(loader_of(&whole, config.clone(), options(0)).epoch(1));
        assert_eq!(expected.len(), if links { 10 } else { 32 });
        for (dataset, threads) in [(&whole, 1), (&whole, 2), (&whole, 8), (&mapped, 2), (&parts, 2)] {
            let found = bytes(loader_of(dataset, config.clone(), options(threads)).epoch(1));
            assert!(found == expected, "{threads} threads, {} parts: {config:?}", dataset.parts());
        }
        let ready = Options { ordered: false, ..options(8) };
        let mut found = bytes(loader_of(&whole, config, ready).epoch(1));
        found.sort_unstable();
        assert!(found == expected, "as they are ready");
    }
}

fn hops(fanouts: &[i64]) -> Hops {
    Hops { fanouts: graphmill_sample::Fanouts::Same(fanouts.to_vec()), ..Hops::default() }
}

#[test]
fn every_epoch_goes_over_all_seeds_in_an_order_of_its_own() {
    let loader = loader(options(2));
    let seeds = |epoch| {
        let batches = loader.epoch(epoch).map(|batch| batch.unwrap().ints(Field::Seed).to_vec());
        batches.collect::<Vec<_>>().concat()
    };
    let (first, second) = (seeds(0), seeds(1));
    assert_ne!(first, second);
    assert_eq!(first, seeds(0));
    for mut order in [first, second] {
        order.sort_unstable();
        assert_eq!(order, (0..NODES as i64).collect::<Vec<_>>());
    }
}

#[test]
fn the_number_of_batches_is_known() {
    for (drop_last, expected) in [(false, 32), (true, 31)] {
        let loader = loader(Options { drop_last, ..options(1) });
        let mut batches = loader.epoch(0);
        assert_eq!((loader.len(), batches.len()), (expected, expected));
        batches.next();
        assert_eq!(batches.len(), expected - 1);
        assert_eq!(batches.count(), expected - 1);
    }
}

#[test]
fn ranks_share_an_epoch_and_have_equally_many_batches() {
    let whole = bytes(loader(options(0)).epoch(0));
    let mut shared = Vec::new();
    for rank in 0..3 {
        let loader = loader(Options { rank, world_size: 3, ..options(1) });
        let batches: Vec<Batch> = loader.epoch(0).map(|batch| batch.unwrap()).collect();
        assert_eq!(batches.len(), 11);
        let repeated = batches.iter().filter(|batch| batch.id().repeated).count();
        assert_eq!(repeated, usize::from(rank == 2), "32 batches are one short of 3 x 11");
        let own = batches.iter().filter(|batch| !batch.id().repeated);
        shared.extend(own.map(|batch| (batch.id().g, batch.bytes().to_vec())));
    }
    shared.sort_unstable();
    assert!(shared == whole);
}

#[test]
fn a_loader_that_stopped_goes_on_where_it_was() {
    for (threads, ordered) in [(0, true), (2, true), (4, false)] {
        let options = Options { ordered, ..options(threads) };
        let expected = bytes(loader(options.clone()).epoch(2));
        for stop in [0, 1, 13, 31, 32] {
            let first = loader(options.clone());
            let mut batches = first.epoch(2);
            let mut met: Vec<_> = batches.by_ref().take(stop).map(|batch| batch.unwrap()).collect();
            let text = serde_json::to_string(&batches.state()).unwrap();
            drop((batches, first));
            let state: State = serde_json::from_str(&text).unwrap();
            let second = loader(options.clone());
            let resumed = second.resume(&state).unwrap();
            assert_eq!(resumed.len(), 32 - stop);
            met.extend(resumed.map(|batch| batch.unwrap()));
            let mut met: Vec<_> = met.iter().map(|batch| (batch.id().g, batch.bytes().to_vec())).collect();
            met.sort_unstable_by_key(|(g, _)| *g);
            let mut expected = expected.clone();
            expected.sort_unstable_by_key(|(g, _)| *g);
            assert!(met == expected, "{threads} threads, stopped after {stop}");
        }
    }
}

#[test]
fn a_state_of_two_ranks_goes_on_with_three() {
    let state = {
        let loader = loader(Options { rank: 1, world_size: 2, ..options(1) });
        let mut batches = loader.epoch(0);
        batches.by_ref().take(5).for_each(drop);
        batches.state()
    };
    let mut met: Vec<u64> = (0..10).collect();
    for rank in 0..3 {
        let loader = loader(Options { rank, world_size: 3, even: Some(false), ..options(1) });
        met.extend(loader.resume(&state).unwrap().map(|batch| batch.unwrap().id().g));
    }
    met.sort_unstable();
    assert_eq!(met, (0..32).collect::<Vec<_>>());
}

#[test]
fn a_state_of_other_batches_is_refused() {
    let state = loader(options(0)).epoch(0).state();
    let refused = |loader: Loader| match loader.resume(&state) {
        Err(Error::State { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let of = |config| loader_of(&dataset(1, Storage::Ram), config, options(0));
    assert_eq!(refused(of(Config { seed: 4, ..config() })), "sampler configuration");
    assert_eq!(refused(loader(Options { batch_size: 8, ..options(0) })), "seed list or batch size");
    let law = State { law: 2, ..state.clone() };
    assert!(matches!(loader(options(0)).resume(&law), Err(Error::State { what: "law version", .. })));
    let dataset = State { fingerprint: "0".repeat(32), ..state.clone() };
    assert!(matches!(loader(options(0)).resume(&dataset), Err(Error::State { what: "dataset", .. })));
    let ahead = State { ahead: vec![3], world_size: 2, ..state.clone() };
    let error = loader(options(0)).resume(&ahead).unwrap_err().to_string();
    assert!(error.contains("handed out of order"), "{error}");
}

#[test]
fn a_batch_that_fails_is_an_error_in_its_place_and_the_others_follow() {
    for threads in [0, 2] {
        let dataset = dataset(1, Storage::Ram);
        let seeds = SeedList::Nodes((0..10).chain([NODES]).chain(10..20).collect());
        let options = Options { batch_size: 1, shuffle: false, ..options(threads) };
        let loader = Loader::new(&dataset, config(), seeds, options).unwrap();
        let outcomes: Vec<bool> = loader.epoch(0).map(|batch| batch.is_ok()).collect();
        assert_eq!(outcomes, (0..21).map(|place| place != 10).collect::<Vec<_>>());
    }
}

#[test]
fn leaving_early_and_two_loops_side_by_side_do_no_harm() {
    let loader = loader(options(3));
    let expected = bytes(loader.epoch(0));
    let mut first = loader.epoch(0);
    let mut second = loader.epoch(0);
    for (g, wanted) in expected.iter().take(5) {
        for batches in [&mut first, &mut second] {
            let batch = batches.next().unwrap().unwrap();
            assert!((batch.id().g, batch.bytes()) == (*g, &wanted[..]));
        }
    }
    drop(first);
    assert_eq!(second.count(), 27);
}

#[test]
fn who_asks_whether_a_batch_is_ready_gets_the_same_ones() {
    let expected: Vec<_> = loader(options(0)).epoch(2).map(|batch| batch.unwrap().bytes().to_vec()).collect();
    for (threads, ordered) in [(0, true), (1, true), (3, true), (1, false)] {
        let loader = loader(Options { ordered, ..options(threads) });
        let mut batches = loader.epoch(2);
        let mut found = Vec::new();
        loop {
            while !batches.ready(Duration::from_micros(50)) {}
            let Some(batch) = batches.next() else { break };
            found.push(batch.unwrap().bytes().to_vec());
        }
        assert!(found == expected, "{threads} threads, ordered: {ordered}");
        assert!(batches.ready(Duration::ZERO), "the end is not waited for");
        assert_eq!(loader.state(3), loader.epoch(3).state());
    }
}

#[test]
fn batches_outlive_their_loader_and_keep_their_bytes() {
    let loader = loader(Options { prefetch: 1, ..options(2) });
    let held: Vec<Batch> = loader.epoch(0).map(|batch| batch.unwrap()).collect();
    let expected = bytes(loader.epoch(0));
    drop(loader);
    for (batch, (_, bytes)) in held.iter().zip(&expected) {
        assert!(batch.bytes() == &bytes[..]);
    }
}

#[test]
fn workers_sample_no_further_ahead_than_they_may() {
    let loader = loader(Options { prefetch: 2, ..options(2) });
    let mut batches = loader.epoch(0);
    drop(batches.next());
    std::thread::sleep(Duration::from_millis(200));
    drop(batches);
    // Two being sampled, two waiting, one taken: no more buffers than that were ever needed.
    let report = loader.report();
    let one = bytes(loader.epoch(0)).iter().map(|(_, bytes)| bytes.len().next_multiple_of(4096)).max().unwrap();
    assert!(report.idle_bytes <= 6 * 2 * one, "{} bytes idle, a batch has {one}", report.idle_bytes);
    assert!(report.scratch_bytes > 0);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let dataset = dataset(1, Storage::Ram);
    let refused =
        |options: Options, seeds: SeedList| Loader::new(&dataset, config(), seeds, options).unwrap_err().to_string();
    let nodes = || SeedList::Nodes(vec![1]);
    assert!(refused(Options { batch_size: 0, ..options(0) }, nodes()).contains("batch_size is 0"));
    assert!(refused(Options { rank: 2, world_size: 2, ..options(0) }, nodes()).contains("rank is 2"));
    let pairs = SeedList::Pairs { src: vec![1], dst: vec![2], classes: None };
    assert!(refused(options(0), pairs).contains("links are sampled from pairs"));
    let uneven = SeedList::Pairs { src: vec![1], dst: vec![], classes: None };
    assert!(refused(options(0), uneven).contains("a pair has one of each"));
}

//! Where there is no memory for a batch, it is an error: whichever large allocation fails, the process goes on and so does the
//! sampler.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Direction, EdgeRole, EdgeTypeName};
use graphmill_sample::{
    BatchId, Config, Error, Expand, Fanouts, Hops, Negatives, Pairs, Plan, Pool, Ppr, Sampler, Seeds, Supervision,
    Task, View,
};
use graphmill_testing::{Assignment, ModelEdge, ModelEdges, ModelGraph, ModelNodes, tempdir, write};

/// The least that fails: what grows with a batch, and not its list of tensors.
const LARGE: usize = 16 << 10;

/// How many large allocations still succeed; below zero all do.
static LEFT: AtomicIsize = AtomicIsize::new(-1);

struct Scarce;

impl Scarce {
    fn refuses(bytes: usize) -> bool {
        bytes >= LARGE && LEFT.load(Ordering::Relaxed) >= 0 && LEFT.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

// SAFETY: everything is left to the system's allocator, or refused.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        if Self::refuses(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        if Self::refuses(size) { std::ptr::null_mut() } else { unsafe { System.realloc(pointer, layout, size) } }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

const NODES: u64 = 3_000;
const EDGES: u64 = 30_000;

/// A graph with a hub, and labels.
fn graph() -> ModelGraph {
    let edges = |role, word: u64, count: u64| {
        let random = Stream::new(word, &[]);
        let edge = |id: u64| ModelEdge {
            src: random.below(2 * id, NODES),
            dst: if id.is_multiple_of(3) { 1 } else { random.below(2 * id + 1, NODES) },
            id: (role == EdgeRole::Message).then_some(id),
            weight: (role == EdgeRole::Message).then(|| (random.unit(id) as f32).to_bits()),
            timestamp: None,
        };
        let mut edges: Vec<ModelEdge> = (0..count).map(edge).collect();
        edges.sort_unstable();
        let message = role == EdgeRole::Message;
        let id_count = if message { count } else { 0 };
        let features = BTreeMap::new();
        ModelEdges { role, edges, edge_ids: message, id_count, weights: message, timestamps: false, features }
    };
    ModelGraph {
        homogeneous: false,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), ModelNodes { count: NODES, ..ModelNodes::default() })].into(),
        edges: [
            (EdgeTypeName::new("node", "likes", "node"), edges(EdgeRole::Label, 2, EDGES / 4)),
            (EdgeTypeName::new("node", "to", "node"), edges(EdgeRole::Message, 1, EDGES)),
        ]
        .into(),
    }
}

fn configs() -> Vec<Config> {
    let to = || EdgeTypeName::new("node", "to", "node");
    let hops = |fanouts: Vec<i64>, replace, weighted| Hops { fanouts: Fanouts::Same(fanouts), replace, weighted };
    let all = || Config { edge_ids: true, ..Config::default() };
    let with = |expand| Config { expand, task: Task::Nodes { node_type: Some("node".to_owned()) }, ..all() };
    let likes = Supervision { positive: EdgeTypeName::new("node", "likes", "node"), negative: None };
    let mut configs: Vec<Config> = [(false, false), (true, false), (false, true), (true, true)]
        .into_iter()
        .map(|(replace, weighted)| with(Expand::Neighbors(hops(vec![2, 300], replace, weighted))))
        .collect();
    configs.push(with(Expand::Neighbors(hops(vec![-1, -1], false, false))));
    configs.push(with(Expand::Neighbors(hops(vec![-1], false, true))));
    configs.push(with(Expand::Induced(hops(vec![10], false, false))));
    configs.push(with(Expand::Ppr(Ppr { eps: 1e-3, ..Ppr::default() })));
    let anchors = Task::Anchors { supervision: vec![likes], max_labels: None };
    configs.push(Config { task: anchors, ..with(Expand::Neighbors(hops(vec![3], false, false))) });
    for strict in [false, true] {
        let negatives = Some(Negatives::Binary { amount: 4.0, strict, weighted: false });
        let task = Task::Links { edge_type: Some(to()), negatives };
        configs.push(Config { task, ..with(Expand::Neighbors(hops(vec![3], false, false))) });
    }
    configs
}

#[test]
fn whichever_allocation_fails_the_batch_is_an_error_and_the_next_one_is_right() {
    let graph = graph();
    let folder = tempdir();
    let seeds: Vec<u64> = (0..1_500).collect();
    let targets: Vec<u64> = seeds.iter().map(|seed| (seed * 7) % NODES).collect();
    for (name, assignment) in [("whole", Assignment::whole(&graph)), ("parts", Assignment::ranges(&graph, 2))] {
        let path = folder.path().join(name);
        write(&graph, &path, &[Direction::In, Direction::Out], &assignment).unwrap();
        let dataset = Dataset::open(&path).unwrap();
        for config in configs() {
            let plan = Arc::new(Plan::new(config.clone(), &dataset).unwrap());
            let view = Arc::new(View::new(&dataset));
            let pairs = Pairs { positions: &seeds, src: &seeds, dst: &targets, classes: None };
            let taken =
                if matches!(config.task, Task::Links { .. }) { Seeds::Pairs(pairs) } else { Seeds::Nodes(&seeds) };
            let id = BatchId { epoch: 0, g: 1, repeated: false };
            let fresh = || Sampler::new(Arc::clone(&plan), Arc::clone(&view), Pool::new(1));
            let expected = fresh().sample(taken, id).unwrap();
            let mut failed = 0;
            for refused in 0.. {
                let mut sampler = fresh();
                LEFT.store(refused, Ordering::Relaxed);
                let sampled = sampler.sample(taken, id);
                let left = LEFT.swap(-1, Ordering::Relaxed);
                match sampled {
                    Ok(batch) => {
                        assert!(batch.bytes() == expected.bytes());
                        if left >= 0 {
                            break;
                        }
                    }
                    Err(Error::Memory { .. }) => failed += 1,
                    Err(error) => panic!("{config:?}: {error}"),
                }
                let again = sampler.sample(taken, id).unwrap();
                assert!(again.bytes() == expected.bytes(), "after allocation {refused} failed: {config:?}");
            }
            assert!(failed >= 3, "only {failed} allocations can fail: {config:?}");
        }
    }
}

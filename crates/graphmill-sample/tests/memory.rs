//! Once warm, a sampler allocates a handful of times per batch, however many nodes and edges the batch has.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Direction, EdgeRole, EdgeTypeName};
use graphmill_sample::{BatchId, Config, Expand, Fanouts, Hops, Plan, Pool, Sampler, Seeds, View};
use graphmill_testing::{Assignment, ModelEdge, ModelEdges, ModelGraph, ModelNodes, tempdir, write};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: u64 = 2_000;
/// The layout's list of tensors, with a shape each.
const PER_BATCH: usize = 60;

fn graph() -> ModelGraph {
    let random = Stream::new(1, &[]);
    let edge = |id: u64| ModelEdge {
        src: random.below(2 * id, NODES),
        dst: random.below(2 * id + 1, NODES),
        id: Some(id),
        weight: Some((random.unit(id) as f32).to_bits()),
        timestamp: None,
    };
    let mut edges: Vec<ModelEdge> = (0..60_000).map(edge).collect();
    edges.sort_unstable();
    let edges = ModelEdges {
        role: EdgeRole::Message,
        edges,
        edge_ids: true,
        id_count: 60_000,
        weights: true,
        timestamps: false,
        features: std::collections::BTreeMap::new(),
    };
    ModelGraph {
        homogeneous: true,
        edge_dir: Direction::In,
        nodes: [("node".to_owned(), ModelNodes { count: NODES, ..ModelNodes::default() })].into(),
        edges: [(EdgeTypeName::new("node", "to", "node"), edges)].into(),
    }
}

#[test]
fn no_allocation_per_node_or_edge() {
    let graph = graph();
    let folder = tempdir();
    let path = folder.path().join("dataset");
    write(&graph, &path, &[Direction::In], &Assignment::whole(&graph)).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    for (replace, weighted) in [(false, false), (true, false), (false, true), (true, true)] {
        let hops = Hops { fanouts: Fanouts::Same(vec![15, 60]), replace, weighted };
        for expand in [Expand::Neighbors(hops.clone()), Expand::Induced(hops.clone())] {
            let config = Config { expand, edge_ids: true, ..Config::default() };
            let plan = Arc::new(Plan::new(config, &dataset).unwrap());
            let mut sampler = Sampler::new(plan, Arc::new(View::new(&dataset)), Pool::new(2));
            let mut batch = |g: u64| {
                let seeds: Vec<u64> = (0..200).map(|seed| (seed * 7 + g) % NODES).collect();
                let before = ALLOCATIONS.load(Ordering::Relaxed);
                let id = BatchId { epoch: 0, g, repeated: false };
                let edges = sampler.sample(Seeds::Nodes(&seeds), id).unwrap().num_edges();
                (ALLOCATIONS.load(Ordering::Relaxed) - before, edges)
            };
            for g in 0..20 {
                batch(g);
            }
            for g in 20..40 {
                let (allocations, edges) = batch(g);
                assert!(edges > 20_000, "the batch has only {edges} edges");
                assert!(allocations <= PER_BATCH, "{allocations} allocations for {edges} edges");
            }
            let scratch = sampler.scratch_bytes();
            assert!((100_000..20_000_000).contains(&scratch), "{scratch} bytes of scratch");
        }
    }
}

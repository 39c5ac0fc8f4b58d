//! The kernels of a batch, each on its own: what a question costs to answer, and what a whole batch costs.

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use graphmill_graph::random::Stream;
use graphmill_graph::{Dataset, Direction, OpenOptions, Replace, Storage};
use graphmill_ingest::{Job, Layout, Silent, generate};
use graphmill_sample::{
    Answer, AnswerScratch, Ask, BatchId, Config, Expand, Fanouts, Gather, Hops, Need, Plan, Pool, Sampler, Seeds,
    Source, Take, View,
};

const NODES: u64 = 200_000;
const SEEDS: u64 = 1024;

fn dataset() -> Dataset {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("graph");
    let options = generate::Options {
        kind: generate::Kind::Rmat,
        nodes: NODES,
        edges: 4_000_000,
        features: 128,
        classes: 0,
        seed: 1,
        layout: Layout::In,
        edge_ids: true,
        weights: true,
        node_weights: false,
        memory: 1 << 30,
    };
    let job = Job::new(&Silent, Arc::default());
    generate::generate(&options, &path, Replace::No, &job).expect("a graph");
    Dataset::open_with(&path, &OpenOptions { storage: Storage::Ram, partitions: None }).expect("a dataset")
}

fn ids(count: u64, salt: u64) -> Vec<u64> {
    let random = Stream::new(9, &[salt]);
    (0..count).map(|index| random.below(index, NODES)).collect()
}

fn answers(criterion: &mut Criterion) {
    let view = View::new(&dataset());
    let ids = ids(16 * 1024, 1);
    let mut group = criterion.benchmark_group("answer");
    let takes = [
        ("uniform", Take::Uniform(10)),
        ("uniform replaced", Take::UniformReplace(10)),
        ("weighted", Take::Weighted(10)),
        ("weighted replaced", Take::WeightedReplace(10)),
        ("all", Take::All),
    ];
    for (name, take) in takes {
        let need = Need {
            batch: BatchId::default(),
            edge_type: 0,
            direction: Direction::In,
            ask: Ask::Neighbors { take, stream: Stream::new(1, &[]), edge_ids: false },
            ids: &ids,
            others: &[],
            limit: u64::MAX,
        };
        let (mut answer, mut scratch) = (Answer::default(), AnswerScratch::default());
        view.answer(&need, &mut answer, &mut scratch).expect("an answer");
        group.throughput(Throughput::Elements(answer.neighbors.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| view.answer(&need, &mut answer, &mut scratch)));
    }
    group.finish();
}

fn gather(criterion: &mut Criterion) {
    let view = View::new(&dataset());
    let ids = ids(24 * 1024, 2);
    let mut rows = vec![0u8; ids.len() * 512];
    let mut group = criterion.benchmark_group("gather");
    group.throughput(Throughput::Bytes(rows.len() as u64));
    let source = Source::Node { node_type: 0, feature: 0 };
    group.bench_function("128 f32", |bencher| {
        bencher.iter(|| view.gather(Gather { source, half: false, ids: &ids }, &mut rows));
    });
    group.finish();
}

fn batches(criterion: &mut Criterion) {
    let dataset = dataset();
    let view = Arc::new(View::new(&dataset));
    let mut group = criterion.benchmark_group("batch");
    for fanouts in [vec![15, 10], vec![10, 10, 5]] {
        for (name, weighted) in [("uniform", false), ("weighted", true)] {
            let hops = Hops { fanouts: Fanouts::Same(fanouts.clone()), weighted, ..Hops::default() };
            let config = Config { expand: Expand::Neighbors(hops), ..Config::default() };
            let plan = Arc::new(Plan::new(config, &dataset).expect("a plan"));
            let mut sampler = Sampler::new(plan, Arc::clone(&view), Pool::new(2));
            let mut g = 0;
            let mut batch = || {
                g += 1;
                sampler.sample(Seeds::Nodes(&ids(SEEDS, g)), BatchId { g, ..BatchId::default() }).expect("a batch")
            };
            group.throughput(Throughput::Elements(batch().num_edges() as u64));
            group.bench_function(BenchmarkId::new(name, format!("{fanouts:?}")), |bencher| bencher.iter(&mut batch));
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1));
    targets = answers, gather, batches
}
criterion_main!(benches);

//! `graphmill bench sample`: batches as fast as they come.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use graphmill_client::{Batches, Loader, Options, SeedList};
use graphmill_graph::Dataset;
use graphmill_sample::{Batch, Config};

use super::ceiling::{Ceiling, Rows};
use crate::commands::sampler::{Opened, SamplerArgs, StorageArg};
use crate::context::Context;
use crate::terminal::numbers::parse_count;
use crate::terminal::{numbers, output, table};

const EXAMPLES: &str = "\
Examples:
  graphmill bench sample g --fanouts 15,10
  graphmill bench sample g --fanouts 15,10 --features --storage ram --threads 2
  graphmill bench sample g --fanouts 15,10 --sampler weighted --json";

/// Measure how many batches are sampled per second
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    opened: Opened,

    #[command(flatten)]
    sampler: SamplerArgs,

    /// Seeds per batch
    #[arg(long, value_name = "B", default_value = "1024", value_parser = parse_count)]
    batch_size: u64,

    /// Threads that sample; with one, no other thread is involved
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,

    /// Gather all features and labels of the nodes into the batches
    #[arg(long)]
    features: bool,

    /// Carry edge ids
    #[arg(long)]
    edge_ids: bool,

    /// Batches to measure, after a tenth as many to warm up
    #[arg(long, value_name = "N", default_value = "400", value_parser = parse_count)]
    batches: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, serde::Serialize)]
struct Measured {
    seeds_per_s: f64,
    edges_per_s: f64,
    bytes_per_s: f64,
    nodes_per_batch: f64,
    edges_per_batch: f64,
    bytes_per_batch: f64,
    batches: u64,
    batch_size: u64,
    threads: usize,
    storage: StorageArg,
    /// Milliseconds of one thread per batch.
    phase_ms: Phases,
    scratch_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    gather_bytes_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<Ceiling>,
    config: Config,
}

#[derive(Debug, serde::Serialize)]
struct Phases {
    draw: f64,
    renumber: f64,
    assemble: f64,
    gather: f64,
}

/// Batches are counted in so many blocks; the median block is reported, so that a disturbance of the machine does not count.
const BLOCKS: u64 = 20;

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let dataset = args.opened.open()?;
    let config = config(args, &dataset)?;
    let options = Options {
        batch_size: args.batch_size as usize,
        shuffle: true,
        // One thread means one: the caller's.
        threads: if args.threads <= 1 { 0 } else { args.threads },
        ordered: false,
        prefetch: args.threads,
        ..Options::default()
    };
    let seeds = seeds(&config, &dataset)?;
    anyhow::ensure!(!seeds.is_empty(), "there are no seeds to sample from");
    let loader = Loader::new(&dataset, config.clone(), seeds, options)?;
    context.note("warming up");
    let mut stream = Endless::new(&loader);
    for _ in 0..=args.batches / 10 {
        stream.next()?;
    }
    drop(stream);
    let before = loader.report().times;

    context.note("measuring");
    let mut stream = Endless::new(&loader);
    let block = args.batches.div_ceil(BLOCKS).max(1);
    let mut blocks = Vec::new();
    let mut total = Count::default();
    let mut rows = Rows::default();
    for _ in 0..BLOCKS.min(args.batches.max(1)) {
        let (began, mut count) = (Instant::now(), Count::default());
        for _ in 0..block {
            count.add(&stream.next()?);
        }
        total.merge(&count);
        blocks.push((began.elapsed(), count));
        rows.add(&stream.next()?);
    }
    drop(stream);
    let report = loader.report();
    // One batch more per block was remembered and not counted.
    let sampled = total.batches + blocks.len() as u64;
    let phase = |after: Duration, before: Duration| 1e3 * after.saturating_sub(before).as_secs_f64() / sampled as f64;
    let phase_ms = Phases {
        draw: phase(report.times.draw, before.draw),
        renumber: phase(report.times.renumber, before.renumber),
        assemble: phase(report.times.assemble, before.assemble),
        gather: phase(report.times.gather, before.gather),
    };
    if args.features {
        context.note("measuring the memory");
    }
    let measured = Measured {
        seeds_per_s: median(&blocks, |count| count.seeds),
        edges_per_s: median(&blocks, |count| count.edges),
        bytes_per_s: median(&blocks, |count| count.bytes),
        nodes_per_batch: total.nodes / total.batches as f64,
        edges_per_batch: total.edges / total.batches as f64,
        bytes_per_batch: total.bytes / total.batches as f64,
        batches: total.batches,
        batch_size: args.batch_size,
        threads: args.threads.max(1),
        storage: args.opened.storage,
        gather_bytes_per_s: args.features.then(|| 1e3 * total.gathered / total.batches as f64 / phase_ms.gather),
        phase_ms,
        scratch_bytes: report.scratch_bytes,
        ceiling: args.features.then(|| rows.measure(&dataset)).transpose()?,
        config,
    };
    if args.json {
        output::print_json(&measured)?;
    } else {
        output::print(&render(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn config(args: &Args, dataset: &Dataset) -> anyhow::Result<Config> {
    let mut config = args.sampler.config(dataset.manifest())?;
    config.edge_ids = args.edge_ids;
    if args.features {
        all_features(&mut config, dataset)?;
    }
    Ok(config)
}

/// Asks for all features and labels of nodes.
pub(super) fn all_features(config: &mut Config, dataset: &Dataset) -> anyhow::Result<()> {
    for info in dataset.node_types() {
        for feature in &info.features {
            if !config.features.contains(&feature.name) {
                config.features.push(feature.name.clone());
            }
        }
        config.labels |= info.label.is_some();
    }
    anyhow::ensure!(!config.features.is_empty(), "no node type has features to gather");
    Ok(())
}

/// Everything there is to sample from.
fn seeds(config: &Config, dataset: &Dataset) -> anyhow::Result<SeedList> {
    use graphmill_sample::Task;
    Ok(match &config.task {
        Task::Nodes { node_type } => SeedList::all(dataset, node_type.as_deref())?,
        Task::Links { edge_type, .. } => SeedList::edges(dataset, edge_type.as_ref())?,
        Task::Anchors { supervision, .. } => {
            let first = supervision.first().context("anchors need a supervision edge type")?;
            SeedList::all(dataset, Some(&first.positive.src))?
        }
    })
}

/// Epoch after epoch.
struct Endless<'a> {
    loader: &'a Loader,
    epoch: u64,
    batches: Batches,
}

impl<'a> Endless<'a> {
    fn new(loader: &'a Loader) -> Self {
        Self { loader, epoch: 0, batches: loader.epoch(0) }
    }

    fn next(&mut self) -> anyhow::Result<Batch> {
        loop {
            if let Some(batch) = self.batches.next() {
                return Ok(batch?);
            }
            self.epoch += 1;
            self.batches = self.loader.epoch(self.epoch);
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    batches: u64,
    seeds: f64,
    nodes: f64,
    edges: f64,
    bytes: f64,
    gathered: f64,
}

impl Count {
    fn add(&mut self, batch: &Batch) {
        use graphmill_sample::Field;
        let gathers = |field| matches!(field, Field::Feature(..) | Field::Label(_) | Field::EdgeFeature(..));
        let entries = batch.layout().entries().iter();
        self.merge(&Self {
            batches: 1,
            seeds: batch.batch_size() as f64,
            nodes: batch.num_nodes() as f64,
            edges: batch.num_edges() as f64,
            bytes: batch.bytes().len() as f64,
            gathered: entries.filter(|entry| gathers(entry.field)).map(|entry| entry.bytes as f64).sum(),
        });
    }

    fn merge(&mut self, other: &Self) {
        self.batches += other.batches;
        self.seeds += other.seeds;
        self.nodes += other.nodes;
        self.edges += other.edges;
        self.bytes += other.bytes;
        self.gathered += other.gathered;
    }
}

fn median(blocks: &[(Duration, Count)], of: impl Fn(&Count) -> f64) -> f64 {
    let mut rates: Vec<f64> = blocks.iter().map(|(time, count)| of(count) / time.as_secs_f64()).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn render(measured: &Measured) -> String {
    let Phases { draw, renumber, assemble, gather } = measured.phase_ms;
    let mut facts = vec![
        ("seeds/s", numbers::approximate(measured.seeds_per_s)),
        ("edges/s", numbers::approximate(measured.edges_per_s)),
        ("bytes/s", numbers::bytes(measured.bytes_per_s as u64)),
        ("batch", super::batch(measured.nodes_per_batch, measured.edges_per_batch, measured.bytes_per_batch)),
        (
            "time per batch",
            format!("draw {draw:.2} ms, renumber {renumber:.2} ms, assemble {assemble:.2} ms, gather {gather:.2} ms"),
        ),
        ("scratch", numbers::bytes(measured.scratch_bytes as u64)),
    ];
    if let (Some(ceiling), Some(gather)) = (measured.ceiling, measured.gather_bytes_per_s) {
        facts.push((
            "gather",
            format!(
                "{}/s, {:.0}% of {}/s for copying one large block; fetching the same rows with plain loads {}/s",
                numbers::bytes(gather as u64),
                100.0 * gather / ceiling.copy_bytes_per_s,
                numbers::bytes(ceiling.copy_bytes_per_s as u64),
                numbers::bytes(ceiling.random_read_bytes_per_s as u64),
            ),
        ));
    }
    table::of_facts(facts)
}

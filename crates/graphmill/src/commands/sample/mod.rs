//! `graphmill sample`: one batch, shown to a person or as JSON.

mod drawing;
mod json;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use graphmill_client::{Loader, Options, SeedList};
use graphmill_graph::{Dataset, Manifest, Split};
use graphmill_sample::{Batch, BatchId, Config, Cut, Plan, Pool, Sampler, SeedOrder, Task, Times, View};

use super::sampler::{Opened, SamplerArgs};
use crate::context::Context;
use crate::terminal::numbers::parse_count;
use crate::terminal::output;

const EXAMPLES: &str = "\
Examples:
  graphmill sample karate --seeds 0,33 --fanouts 3,2
  graphmill sample cora --split train --batch-size 32 --shuffle --fanouts 15,10 --features x --labels
  graphmill sample karate --pairs 0:1,2:3 --links --negatives binary:1 --strict --fanouts -1
  graphmill sample shop --type user --seeds 1,2 --positive user:buys:item --fanouts 10,5
  graphmill sample karate --seeds 0 --sampler ppr --max-nodes 5
  graphmill sample cora --config sampler.json --seeds 1,2 --json";

/// Sample a batch and show it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Args {
    #[command(flatten)]
    opened: Opened,

    /// The seeds, by id
    #[arg(long, value_name = "ID,...", value_delimiter = ',', conflicts_with_all = ["pairs", "split"])]
    seeds: Vec<u64>,

    /// Seed pairs as SOURCE:TARGET, or SOURCE:TARGET:CLASS
    #[arg(long, value_name = "S:T,...", value_delimiter = ',', value_parser = parse_pair, conflicts_with = "split")]
    pairs: Vec<Pair>,

    /// Take the seeds from a split
    #[arg(long, value_name = "SPLIT")]
    split: Option<Split>,

    /// Cut the seeds into batches of this size [default: all in one]
    #[arg(long, value_name = "B", value_parser = parse_count)]
    batch_size: Option<u64>,

    /// Shuffle the seeds by epoch
    #[arg(long, requires = "batch_size")]
    shuffle: bool,

    /// Leave out a last batch that is not full
    #[arg(long, requires = "batch_size")]
    drop_last: bool,

    /// What batches are cut from: all seeds (global), or the seeds of each partition (partition)
    #[arg(long, value_name = "ORDER", default_value_t, requires = "batch_size")]
    seed_order: SeedOrder,

    /// The epoch
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,

    /// The number of the batch [default: all of the epoch]
    #[arg(long, value_name = "G")]
    batch: Option<u64>,

    /// Take the sampler from a JSON file (docs/sampling.md) instead of from flags
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "sampler", "fanouts", "replace", "direction", "walk", "node_type", "links", "positive", "alpha", "eps",
        "max_nodes", "top_up", "seed", "edge_ids", "features", "edge_features", "labels", "feature_dtype",
    ])]
    config: Option<PathBuf>,

    #[command(flatten)]
    sampler: SamplerArgs,

    /// Carry edge ids
    #[arg(long)]
    edge_ids: bool,

    /// Gather these node features
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    features: Vec<String>,

    /// Gather these edge features
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    edge_features: Vec<String>,

    /// Gather labels
    #[arg(long)]
    labels: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    src: u64,
    dst: u64,
    class: Option<i64>,
}

fn parse_pair(text: &str) -> Result<Pair, String> {
    let wrong = || format!("`{text}` is not a pair; write 3:7, or 3:7:1 with a class");
    let words: Vec<&str> = text.split(':').collect();
    let id = |word: &str| word.parse().map_err(|_| wrong());
    match words[..] {
        [src, dst] => Ok(Pair { src: id(src)?, dst: id(dst)?, class: None }),
        [src, dst, class] => {
            Ok(Pair { src: id(src)?, dst: id(dst)?, class: Some(class.parse().map_err(|_| wrong())?) })
        }
        _ => Err(wrong()),
    }
}

pub(crate) fn run(args: &Args, _context: &Context) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let dataset = args.opened.open()?;
    let opened = began.elapsed();
    let config = config(args, dataset.manifest())?;
    let seeds = seeds(args, &config, &dataset)?;
    let Some(batch_size) = args.batch_size else {
        let began = Instant::now();
        let (batch, times) = sample_all(args, &dataset, config, &seeds)?;
        return print(args, &batch, &show::Clock { opened, sampled: began.elapsed(), times });
    };
    let options = Options {
        batch_size: usize::try_from(batch_size)?,
        shuffle: args.shuffle,
        drop_last: args.drop_last,
        seed_order: args.seed_order,
        threads: 0,
        ..Options::default()
    };
    let loader = Loader::new(&dataset, config, seeds, options)?;
    let count = loader.len() as u64;
    if let Some(number) = args.batch {
        anyhow::ensure!(number < count, "there is no batch {number}; the epoch has {count}");
    }
    let wanted = args.batch.map_or(0..count, |number| number..number + 1);
    let mut batches = loader.epoch_from(args.epoch, wanted.start);
    for _ in wanted {
        let began = Instant::now();
        let Some(batch) = batches.next() else { break };
        let clock = show::Clock { opened, sampled: began.elapsed(), times: batches.times() };
        print(args, &batch?, &clock)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Args, batch: &Batch, clock: &show::Clock) -> anyhow::Result<ExitCode> {
    if args.json {
        output::print(&serde_json::to_string(&json::of(batch))?)?;
    } else {
        output::print(&show::render(batch, clock))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn config(args: &Args, manifest: &Manifest) -> anyhow::Result<Config> {
    let Some(path) = &args.config else {
        let config = args.sampler.config(manifest)?;
        return Ok(Config {
            edge_ids: args.edge_ids,
            features: args.features.clone(),
            edge_features: args.edge_features.clone(),
            labels: args.labels,
            ..config
        });
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a sampler's configuration", path.display()))
}

fn seeds(args: &Args, config: &Config, dataset: &Dataset) -> anyhow::Result<SeedList> {
    if !args.pairs.is_empty() {
        let classes: Vec<i64> = args.pairs.iter().filter_map(|pair| pair.class).collect();
        anyhow::ensure!(
            classes.is_empty() || classes.len() == args.pairs.len(),
            "{} of {} pairs have a class; give one to all or to none",
            classes.len(),
            args.pairs.len(),
        );
        return Ok(SeedList::Pairs {
            src: args.pairs.iter().map(|pair| pair.src).collect(),
            dst: args.pairs.iter().map(|pair| pair.dst).collect(),
            classes: (!classes.is_empty()).then_some(classes),
        });
    }
    if let Some(split) = args.split {
        let node_type = match &config.task {
            Task::Nodes { node_type } => node_type.as_deref(),
            Task::Anchors { supervision, .. } => supervision.first().map(|one| one.positive.src.as_str()),
            Task::Links { .. } => anyhow::bail!("links are sampled from --pairs, not from a split"),
        };
        return Ok(SeedList::split(dataset, node_type, split)?);
    }
    anyhow::ensure!(!args.seeds.is_empty(), "there is nothing to sample from; give --seeds, --pairs or --split");
    Ok(SeedList::Nodes(args.seeds.clone()))
}

/// Samples all seeds as one batch.
fn sample_all(args: &Args, dataset: &Dataset, config: Config, seeds: &SeedList) -> anyhow::Result<(Batch, Times)> {
    let plan = Arc::new(Plan::new(config, dataset)?);
    let mut sampler = Sampler::new(plan, Arc::new(View::new(dataset)), Pool::new(1));
    let id = BatchId { epoch: args.epoch, g: args.batch.unwrap_or(0), repeated: false };
    let mut cut = Cut::default();
    cut.fill(seeds, 0..seeds.len() as u64)?;
    let batch = sampler.sample(cut.seeds(seeds), id)?;
    Ok((batch, sampler.times()))
}

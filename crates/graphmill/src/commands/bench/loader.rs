//! `graphmill bench loader`: servers and ranks as real processes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use graphmill_client::{ConnectOptions, Remote};
use graphmill_sample::{Config, SeedOrder};

use super::serving::Serving;
use crate::commands::rank::{Order, Pulled, SeedsName, TransportName};
use crate::context::Context;
use crate::local::{Ranks, Servers};
use crate::terminal::numbers::parse_count;
use crate::terminal::{numbers, output, table};

const EXAMPLES: &str = "\
Examples:
  graphmill bench loader g --fanouts 15,10 --features
  graphmill bench loader g --at 127.0.0.1:4100 --fanouts 15,10 --unread           of a server that runs
  graphmill bench loader g --at graphmill://127.0.0.1:4300/train --fanouts 15,10  of those that serve a run
  graphmill bench loader g2 --servers 2 --fanouts 15,10 --transport tcp --json
  graphmill bench loader g2 --servers 2 --fanouts 15,10 --seed-order partition    less between servers
  graphmill bench loader g --ranks 3 --seed-counts 1M,100k,10k --fanouts 15,10    ranks that are strangers";

/// Measure how fast ranks get batches from servers, each a process of its own
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    serving: Serving,

    /// Ranks
    #[arg(long, value_name = "R", default_value_t = 1)]
    ranks: u32,

    /// Seconds to measure, after one to warm up
    #[arg(long, value_name = "T", default_value_t = 10.0)]
    seconds: f64,

    /// Give each rank seeds of its own, so many: ranks are then compared as strangers to each other
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_count)]
    seed_counts: Vec<u64>,

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
    batches_per_s: f64,
    nodes_per_batch: f64,
    edges_per_batch: f64,
    bytes_per_batch: f64,
    /// From the start of the servers to the first batch of a rank.
    start_to_first_batch_s: f64,
    /// Jain's index of the work that ranks were served.
    fairness: f64,
    /// The part of its time that a rank waited for batches.
    waited: f64,
    socket_bytes: u64,
    shared_bytes: u64,
    copied_bytes: u64,
    /// What servers sent each other, per batch.
    peer_bytes_per_batch: f64,
    servers: usize,
    ranks: u32,
    transport: TransportName,
    batch_size: u64,
    seed_order: SeedOrder,
    seconds: f64,
    per_rank_seeds_per_s: Vec<f64>,
    config: Config,
}

/// The first second is not counted.
const WARM: f64 = 1.0;

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.ranks >= 1, "there must be a rank");
    anyhow::ensure!(
        args.seed_counts.is_empty() || args.seed_counts.len() == args.ranks as usize,
        "there are {} ranks and {} seed counts; give one for each rank",
        args.ranks,
        args.seed_counts.len()
    );
    let config = args.serving.config()?;
    let began = Instant::now();
    context.note("starting servers");
    let servers = args.serving.start()?;
    context.note("measuring");
    let (first, ranks) = pull(args, &servers, &config, began)?;
    let peer_bytes = peer_bytes(&servers.addresses);
    servers.end()?;
    let measured = summarise(args, config, first, &ranks, peer_bytes)?;
    if args.json {
        output::print_json(&measured)?;
    } else {
        output::print(&render(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the ranks and listens to them; when the first batch came, and what each rank told.
fn pull(
    args: &Args,
    servers: &Servers,
    config: &Config,
    began: Instant,
) -> anyhow::Result<(Duration, Vec<Vec<Pulled>>)> {
    let links = matches!(config.task, graphmill_sample::Task::Links { .. });
    let order = |rank: u32| {
        let (seeds, place) = match args.seed_counts.get(rank as usize) {
            Some(&count) => (SeedsName::First(count), (0, 1)),
            None if links => (SeedsName::Edges, (rank, args.ranks)),
            None => (SeedsName::All, (rank, args.ranks)),
        };
        args.serving.order(servers, config, seeds, place, args.seconds + WARM)
    };
    let orders: Vec<Order> = (0..args.ranks).map(order).collect();
    let mut first = None;
    let mut ranks: Vec<Vec<Pulled>> = vec![Vec::new(); orders.len()];
    Ranks::start(&orders)?.listen(|told| {
        if let Some((rank, told)) = told {
            first.get_or_insert_with(|| began.elapsed());
            ranks[rank].push(told);
        }
        Ok(())
    })?;
    Ok((first.unwrap_or_default(), ranks))
}

/// What servers sent each other so far.
fn peer_bytes(servers: &[String]) -> u64 {
    let connect = |servers| Remote::connect_to(&servers, ConnectOptions::default());
    let Ok(remote) = graphmill_client::Servers::parse(servers).and_then(connect) else { return 0 };
    let statuses = remote.status().into_iter().filter_map(|(_, status)| status.ok());
    statuses.flat_map(|status| status.peers).map(|peer| peer.bytes_sent + peer.bytes_received).sum()
}

/// What a rank did after the warm-up.
fn counted(told: &[Pulled]) -> Option<(Pulled, Pulled)> {
    let from = told.iter().find(|told| told.seconds >= WARM)?;
    let to = told.last()?;
    (to.seconds > from.seconds).then_some((*from, *to))
}

fn summarise(
    args: &Args,
    config: Config,
    first: Duration,
    ranks: &[Vec<Pulled>],
    peer_bytes: u64,
) -> anyhow::Result<Measured> {
    let spans: Vec<(Pulled, Pulled)> = ranks.iter().filter_map(|told| counted(told)).collect();
    anyhow::ensure!(spans.len() == ranks.len(), "a rank had too few batches to measure; give more --seconds");
    let rate = |of: fn(&Pulled) -> u64| {
        spans.iter().map(|(from, to)| (of(to) - of(from)) as f64 / (to.seconds - from.seconds)).sum::<f64>()
    };
    let total = |of: fn(&Pulled) -> u64| ranks.iter().filter_map(|told| told.last()).map(of).sum::<u64>() as f64;
    let batches = total(|told| told.batches).max(1.0);
    let work: Vec<f64> =
        spans.iter().map(|(from, to)| (to.work() - from.work()) as f64 / (to.seconds - from.seconds)).collect();
    let waited: f64 = spans.iter().map(|(from, to)| (to.waited - from.waited) / (to.seconds - from.seconds)).sum();
    Ok(Measured {
        seeds_per_s: rate(|told| told.seeds),
        edges_per_s: rate(|told| told.edges),
        bytes_per_s: rate(|told| told.bytes),
        batches_per_s: rate(|told| told.batches),
        nodes_per_batch: total(|told| told.nodes) / batches,
        edges_per_batch: total(|told| told.edges) / batches,
        bytes_per_batch: total(|told| told.bytes) / batches,
        start_to_first_batch_s: first.as_secs_f64(),
        fairness: jain(&work),
        waited: waited / ranks.len() as f64,
        socket_bytes: total(|told| told.socket_bytes) as u64,
        shared_bytes: total(|told| told.shared_bytes) as u64,
        copied_bytes: total(|told| told.copied_bytes) as u64,
        peer_bytes_per_batch: peer_bytes as f64 / batches,
        servers: args.serving.count(),
        ranks: args.ranks,
        transport: args.serving.transport,
        batch_size: args.serving.batch_size,
        seed_order: args.serving.seed_order,
        seconds: args.seconds,
        per_rank_seeds_per_s: spans
            .iter()
            .map(|(from, to)| (to.seeds - from.seeds) as f64 / (to.seconds - from.seconds))
            .collect(),
        config,
    })
}

/// Jain's index: 1 when all have the same, 1/n when one has everything.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
    if squares > 0.0 { sum * sum / (shares.len() as f64 * squares) } else { 1.0 }
}

fn render(measured: &Measured) -> String {
    let mut facts = vec![
        ("seeds/s", numbers::approximate(measured.seeds_per_s)),
        ("edges/s", numbers::approximate(measured.edges_per_s)),
        ("bytes/s", numbers::bytes(measured.bytes_per_s as u64)),
        ("batch", super::batch(measured.nodes_per_batch, measured.edges_per_batch, measured.bytes_per_batch)),
        ("first batch after", format!("{:.2} s", measured.start_to_first_batch_s)),
        ("ranks waited", format!("{:.0}% of their time", 100.0 * measured.waited)),
    ];
    if measured.ranks > 1 {
        facts.push(("fairness", format!("{:.3} (Jain's index of work)", measured.fairness)));
    }
    if measured.servers > 1 {
        facts.push(("between servers", format!("{} per batch", numbers::bytes(measured.peer_bytes_per_batch as u64))));
    }
    table::of_facts(facts)
}

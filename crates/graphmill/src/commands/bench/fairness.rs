//! `graphmill bench fairness`: whether ranks of very different sizes share servers, and whether one that stops harms the
//! others. Each run measures all ranks, the others while the first is stopped, and the others without the first, one after the
//! other, so that what else the machine does falls on all alike.

use std::process::ExitCode;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::jain;
use super::serving::Serving;
use crate::commands::rank::{Order, Pulled, SeedsName};
use crate::context::Context;
use crate::local::Ranks;
use crate::terminal::numbers::parse_count;
use crate::terminal::{numbers, output, table};

const EXAMPLES: &str = "\
Examples:
  graphmill bench fairness g --fanouts 15,10
  graphmill bench fairness g --fanouts 15,10 --features --runs 5 --seconds 10 --stop 30 --json    the numbers of record";

/// Measure how ranks share servers, and what one that stops costs the others
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    serving: Serving,

    /// Seeds of each rank, which repeats them [default: all nodes, a tenth, a hundredth]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_count)]
    seed_counts: Vec<u64>,

    /// Seconds in which all ranks are active
    #[arg(long, value_name = "T", default_value_t = 3.0)]
    seconds: f64,

    /// Seconds in which the first rank is stopped
    #[arg(long, value_name = "T", default_value_t = 3.0)]
    stop: f64,

    /// Runs; the result is their median
    #[arg(long, value_name = "N", default_value_t = 1)]
    runs: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, serde::Serialize)]
struct Measured {
    /// Jain's index of the work that ranks were served while all were active; the median of the runs.
    fairness: f64,
    fairness_by_run: Vec<f64>,
    /// What the other ranks were served while the first was stopped, as a part of what they are served without it; the median.
    others_while_stopped: f64,
    others_while_stopped_by_run: Vec<f64>,
    /// Per run and rank, bytes and 64 for each edge, while all were active.
    work_per_s_by_run: Vec<Vec<f64>>,
    /// Per run and rank but the first, while it was stopped.
    work_per_s_while_stopped_by_run: Vec<Vec<f64>>,
    /// Per run and rank but the first, without it.
    work_per_s_without_by_run: Vec<Vec<f64>>,
    seed_counts: Vec<u64>,
    seconds: f64,
    stopped_seconds: f64,
    runs: usize,
    servers: usize,
}

/// Not counted: the first second of all, and as much after a rank was stopped, when what it had asked for is still made.
const WARM: f64 = 1.0;

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let seed_counts = seed_counts(args)?;
    anyhow::ensure!(args.runs >= 1, "there must be a run");
    anyhow::ensure!(args.seconds >= 1.0 && args.stop >= 1.0, "less than a second tells nothing");
    let config = args.serving.config()?;
    context.note("starting servers");
    let servers = args.serving.start()?;
    let orders = |counts: &[u64], seconds: f64| -> Vec<Order> {
        let order = |&count: &u64| args.serving.order(&servers, &config, SeedsName::First(count), (0, 1), seconds);
        counts.iter().map(order).collect()
    };
    let all = orders(&seed_counts, 3.0 * WARM + args.seconds + args.stop);
    let others = orders(&seed_counts[1..], 2.0 * WARM + args.stop);
    let stopping = [(WARM + args.seconds, Signal::STOP), (2.0 * WARM + args.seconds + args.stop, Signal::CONT)];
    let mut runs = Vec::new();
    for number in 1..=args.runs {
        context.note(&format!("run {number} of {}", args.runs));
        runs.push((measure(&all, &stopping, context)?, measure(&others, &[], context)?));
    }
    servers.end()?;
    let measured = summarise(args, seed_counts, &runs);
    if args.json {
        output::print_json(&measured)?;
    } else {
        output::print(&render(&measured))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn seed_counts(args: &Args) -> anyhow::Result<Vec<u64>> {
    let counts = if args.seed_counts.is_empty() {
        let manifest = args.serving.manifest()?;
        let nodes = manifest.node_types.iter().map(|info| info.count).max().unwrap_or(0);
        [1, 10, 100].map(|part| (nodes / part).max(1)).to_vec()
    } else {
        args.seed_counts.clone()
    };
    anyhow::ensure!(counts.len() >= 2, "there must be two ranks to share something");
    Ok(counts)
}

/// What ranks told in one run, each with the seconds since all were active.
struct Run {
    told: Vec<Vec<(f64, Pulled)>>,
}

impl Run {
    /// The work of a rank per second, over what it told of a stretch of time.
    fn rate(&self, rank: usize, from: f64, to: f64) -> f64 {
        let mut inside = self.told[rank].iter().filter(|(at, _)| (from..=to).contains(at));
        let Some((began, first)) = inside.next() else { return 0.0 };
        let Some((ended, last)) = inside.next_back() else { return 0.0 };
        (last.work() - first.work()) as f64 / (ended - began)
    }
}

/// Has ranks pull; the first of them is sent signals, so many seconds after all were active.
fn measure(orders: &[Order], mut signals: &[(f64, Signal)], context: &Context) -> anyhow::Result<Run> {
    let ranks = Ranks::start(orders)?;
    let first = ranks.pids()[0];
    let mut told: Vec<Vec<(Instant, Pulled)>> = vec![Vec::new(); orders.len()];
    let mut active = None;
    ranks.listen(|heard| {
        let now = Instant::now();
        if let Some((rank, pulled)) = heard {
            told[rank].push((now, pulled));
            if active.is_none() && told.iter().all(|told| !told.is_empty()) {
                active = Some(now);
            }
        }
        let Some(active) = active else { return Ok(context.job().check()?) };
        if let [(at, signal), later @ ..] = signals
            && now.duration_since(active).as_secs_f64() >= *at
        {
            send(first, *signal)?;
            signals = later;
        }
        Ok(context.job().check()?)
    })?;
    let active = active.ok_or_else(|| anyhow::anyhow!("not all ranks had a batch; give more --seconds"))?;
    let since = |(at, pulled): (Instant, Pulled)| (at.saturating_duration_since(active).as_secs_f64(), pulled);
    Ok(Run { told: told.into_iter().map(|told| told.into_iter().map(since).collect()).collect() })
}

fn send(process: Pid, signal: Signal) -> anyhow::Result<()> {
    // A rank that has just ended needs no signal.
    match kill_process(process, signal) {
        Err(error) if error != rustix::io::Errno::SRCH => Err(error.into()),
        _ => Ok(()),
    }
}

/// Of each run: all ranks, the first of them stopped after a while, and the others without it.
fn summarise(args: &Args, seed_counts: Vec<u64>, runs: &[(Run, Run)]) -> Measured {
    let stop = WARM + args.seconds;
    let rates = |run: &Run, from: f64, seconds: f64| -> Vec<f64> {
        (0..run.told.len()).map(|rank| run.rate(rank, from, from + seconds)).collect()
    };
    let together = |(all, _): &(Run, Run)| rates(all, WARM, args.seconds);
    let stopped = |(all, _): &(Run, Run)| rates(all, stop + WARM, args.stop).split_off(1);
    let without = |(_, others): &(Run, Run)| rates(others, WARM, args.stop);
    let work_per_s_by_run: Vec<Vec<f64>> = runs.iter().map(together).collect();
    let work_per_s_while_stopped_by_run: Vec<Vec<f64>> = runs.iter().map(stopped).collect();
    let work_per_s_without_by_run: Vec<Vec<f64>> = runs.iter().map(without).collect();
    let fairness_by_run: Vec<f64> = work_per_s_by_run.iter().map(|work| jain(work)).collect();
    let others_while_stopped_by_run: Vec<f64> = work_per_s_while_stopped_by_run
        .iter()
        .zip(&work_per_s_without_by_run)
        .map(|(during, without)| during.iter().sum::<f64>() / without.iter().sum::<f64>())
        .collect();
    Measured {
        fairness: median(&fairness_by_run),
        fairness_by_run,
        others_while_stopped: median(&others_while_stopped_by_run),
        others_while_stopped_by_run,
        work_per_s_by_run,
        work_per_s_while_stopped_by_run,
        work_per_s_without_by_run,
        seed_counts,
        seconds: args.seconds,
        stopped_seconds: args.stop,
        runs: args.runs,
        servers: args.serving.count(),
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

fn render(measured: &Measured) -> String {
    let spread = |runs: &[f64]| {
        let (least, most) =
            runs.iter().fold((f64::MAX, f64::MIN), |(least, most), &one| (least.min(one), most.max(one)));
        if runs.len() > 1 { format!(" ({least:.3} to {most:.3} in {} runs)", runs.len()) } else { String::new() }
    };
    let counts: Vec<String> = measured.seed_counts.iter().map(|&count| numbers::count(count)).collect();
    table::of_facts([
        ("seeds of the ranks", counts.join(" | ")),
        ("fairness", format!("{:.3}{}, Jain's index of work", measured.fairness, spread(&measured.fairness_by_run))),
        (
            "while the first is stopped",
            format!(
                "the others have {:.3} of what they have without it{}",
                measured.others_while_stopped,
                spread(&measured.others_while_stopped_by_run)
            ),
        ),
    ])
}

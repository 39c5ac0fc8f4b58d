//! `graphmill inspect`: what a dataset holds, whether it is sound, and what its nodes were called.
//!
//! Everything shown is collected into one [`report::Report`], from which both the tables and the JSON are made.

mod bytes;
mod degrees;
mod lookup;
mod measure;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use graphmill_graph::{Dataset, Manifest};
use graphmill_ingest::{Observer, Unit};

use crate::context::Context;
use crate::terminal::output;
use report::{Report, Verification};

const EXAMPLES: &str = "\
Examples:
  graphmill inspect papers
  graphmill inspect papers --verify
  graphmill inspect papers --json | jq .edge_cut
  graphmill inspect shop --type user --lookup alice,bob
  graphmill inspect shop --type user --original-ids 0,17";

/// Show what a dataset holds
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The dataset
    #[arg(value_name = "DIR")]
    dataset: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Read all of it: check every checksum, the structure and the fingerprint
    #[arg(long, conflicts_with_all = ["lookup", "original_ids"])]
    verify: bool,

    /// Print the ids of nodes by what they were called in the input
    #[arg(long, value_name = "KEY,...", value_delimiter = ',', allow_hyphen_values = true)]
    lookup: Vec<String>,

    /// Print what nodes were called in the input by their ids
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    original_ids: Vec<u64>,

    /// The node type that --lookup and --original-ids ask about
    #[arg(long = "type", value_name = "NODE_TYPE")]
    node_type: Option<String>,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    if !args.lookup.is_empty() || !args.original_ids.is_empty() {
        return lookup::run(args);
    }
    anyhow::ensure!(args.node_type.is_none(), "--type goes with --lookup or --original-ids");
    let report = collect(args, context)?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&table::render(&report))?;
    }
    let sound = report.verified.as_ref().is_none_or(|verified| verified.ok);
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Verifies first: a damaged dataset is described as far as its manifest goes.
fn collect(args: &Args, context: &Context) -> anyhow::Result<Report> {
    let mut report = Report::describe(&args.dataset, &Manifest::read(&args.dataset)?);
    if args.verify {
        let verification = verify(args, context, report.total_bytes)?;
        let sound = verification.ok;
        report.verified = Some(verification);
        if !sound {
            return Ok(report);
        }
    }
    measure::measure(&Dataset::open(&args.dataset)?, &mut report)?;
    Ok(report)
}

fn verify(args: &Args, context: &Context, total: u64) -> anyhow::Result<Verification> {
    let began = Instant::now();
    let stage = context.progress.begin("verifying", Unit::Bytes, Some(total));
    let verified = Dataset::verify(&args.dataset, |bytes| stage.advance(bytes))?;
    Ok(Verification {
        ok: verified.problems.is_empty(),
        arrays: verified.arrays as u64,
        bytes: verified.bytes,
        seconds: began.elapsed().as_secs_f64(),
        problems: verified.problems.iter().map(ToString::to_string).collect(),
    })
}

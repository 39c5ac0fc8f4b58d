//! `graphmill ingest`: a dataset from foreign files.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use graphmill_ingest::ingest::{self, OnError};

use super::target::Target;
use crate::context::Context;
use crate::terminal::numbers::{self, parse_size};
use crate::terminal::output;

const EXAMPLES: &str = "\
Examples:
  graphmill ingest graph.toml --out papers
  graphmill ingest graph.toml --out papers --on-error skip --memory 8GiB --force";

/// Read CSV, Parquet, npy or OGB files into a dataset, as a graph.toml describes them
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The description of the input; paths in it are relative to it
    #[arg(value_name = "GRAPH.TOML")]
    config: PathBuf,

    /// What to do with a row that cannot be used
    #[arg(long, value_enum, default_value_t = OnErrorArg::Stop)]
    on_error: OnErrorArg,

    /// Memory to sort edges and ids in
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    memory: u64,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnErrorArg {
    /// Stop with file, row number and reason
    Stop,
    /// Count it and go on
    Skip,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let options = ingest::Options {
        on_error: match args.on_error {
            OnErrorArg::Stop => OnError::Stop,
            OnErrorArg::Skip => OnError::Skip,
        },
        memory: args.memory,
        replace: args.target.replace(),
    };
    let began = Instant::now();
    let report = ingest::ingest(&args.config, &args.target.out, &options, &context.job())?;
    let mut summary = args.target.written(&report.manifest, began.elapsed());
    if report.skipped > 0 {
        tell_skipped(&report, context);
        summary = format!("{summary}; {} skipped", rows(report.skipped));
    }
    output::print(&summary)?;
    Ok(ExitCode::SUCCESS)
}

fn tell_skipped(report: &ingest::Report, context: &Context) {
    context.note(&format!("skipped {} that cannot be used:", rows(report.skipped)));
    for example in &report.examples {
        context.note(&format!("  {example}"));
    }
    let untold = report.skipped.saturating_sub(report.examples.len() as u64);
    if untold > 0 {
        context.note(&format!("  and {} more", numbers::count(untold)));
    }
}

fn rows(number: u64) -> String {
    format!("{} {}", numbers::count(number), if number == 1 { "row" } else { "rows" })
}

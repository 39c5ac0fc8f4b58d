//! `graphmill demo`: the commands one after the other on a small graph, in a directory that goes away; then a small cluster.

mod cluster;
mod training;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use graphmill_graph::Manifest;

use super::target::{num_edges, num_nodes};
use crate::cli::Cli;
use crate::context::Context;
use crate::terminal::numbers::parse_count;
use crate::terminal::table::{Column, NOTHING, Sheet};
use crate::terminal::{numbers, output};

/// See it all work: generate a graph, partition it, verify it, sample from it, serve it to two ranks
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value = "20k", value_parser = parse_count)]
    nodes: u64,

    /// Number of directed edges
    #[arg(long, value_name = "E", default_value = "200k", value_parser = parse_count)]
    edges: u64,

    /// A training command to run at the end; it is given `--servers HOST:PORT,HOST:PORT` as well
    #[arg(last = true, value_name = "COMMAND")]
    train: Vec<OsString>,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("graphmill-demo-").tempdir();
    let folder = folder.context("cannot make a temporary directory for the demo")?;
    let (whole, parts) = (folder.path().join("blocks"), folder.path().join("blocks-4"));
    let (nodes, edges) = (args.nodes.to_string(), args.edges.to_string());
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();

    let mut generate = words(&["generate", "sbm", "--nodes", &nodes, "--edges", &edges]);
    generate.extend(words(&["--features", "32", "--classes", "8", "--out"]));
    generate.push(whole.clone().into());
    let mut partition = words(&["partition"]);
    partition.push(whole.clone().into());
    partition.extend(words(&["--parts", "4", "--method", "ldg", "--out"]));
    partition.push(parts.clone().into());
    let mut inspect = words(&["inspect"]);
    inspect.push(parts.clone().into());
    inspect.extend(words(&["--verify"]));

    let mut sample = words(&["sample"]);
    sample.push(parts.clone().into());
    sample.extend(words(&["--split", "train", "--batch-size", "4", "--shuffle", "--batch", "0", "--fanouts", "3,2"]));
    sample.extend(words(&["--features", "x", "--labels"]));
    let mut bench = words(&["bench", "sample"]);
    bench.push(parts.clone().into());
    bench.extend(words(&["--fanouts", "15,10", "--features", "--storage", "ram", "--batches", "100"]));

    let mut steps = Vec::new();
    for line in [generate, partition, inspect, sample, bench] {
        steps.push(step(line, context)?);
    }
    if steps.iter().any(|step| !step.succeeded) {
        return Ok(ExitCode::FAILURE);
    }
    cluster::run(&parts, &args.train, context)?;
    let summary = summary(&steps, &Manifest::read(&whole)?, &Manifest::read(&parts)?);
    folder.close().context("cannot remove the demo's temporary directory")?;
    output::print(&summary)?;
    Ok(ExitCode::SUCCESS)
}

/// A command of the demo that was run.
struct Step {
    name: String,
    time: Duration,
    succeeded: bool,
}

/// Shows a command line and runs it as if it had been typed.
fn step(line: Vec<OsString>, context: &Context) -> anyhow::Result<Step> {
    let shown: Vec<_> = line.iter().map(|word| word.to_string_lossy()).collect();
    output::print(&format!("$ graphmill {}", shown.join(" ")))?;
    let name = shown[0].to_string();
    let cli = Cli::try_parse_from(std::iter::once(OsString::from("graphmill")).chain(line))?;
    let began = Instant::now();
    let code = super::run(&cli.command, context)?;
    // A command that only reads does not look at the flag itself.
    context.job().check()?;
    output::print("")?;
    Ok(Step { name, time: began.elapsed(), succeeded: code == ExitCode::SUCCESS })
}

fn summary(steps: &[Step], whole: &Manifest, parts: &Manifest) -> String {
    let edges = num_edges(whole);
    let cut: u64 = parts.edge_types.iter().map(|info| info.cut).sum();
    let mut sheet = Sheet::new([Column::Text("step"), Column::Number("time"), Column::Number("edges/s")]);
    for step in steps {
        // The others do not go over all edges.
        let all_edges = ["generate", "partition", "inspect"].contains(&step.name.as_str());
        let rate = numbers::approximate(numbers::rate(edges, step.time));
        let rate = if all_edges { rate } else { NOTHING.to_owned() };
        sheet.add([step.name.clone(), numbers::duration(step.time), rate]);
    }
    let same = if whole.fingerprint == parts.fingerprint { "same fingerprint" } else { "different fingerprints" };
    format!(
        "{}\n\n{} nodes and {} edges in {} partitions, {} of the edges cut, {same} before and after.\n\
         The demo's files are gone; make your own with `graphmill generate` or `graphmill ingest`.",
        sheet.render(),
        numbers::count(num_nodes(whole)),
        numbers::count(edges),
        parts.parts,
        numbers::percent(cut, edges),
    )
}

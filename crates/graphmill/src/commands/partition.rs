//! `graphmill partition`: a dataset cut into parts, and how good the cut is.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::ValueEnum;
use graphmill_graph::{Dataset, EdgeTypeInfo, EdgeTypeName, Fingerprint, MAX_PARTS, NodeTypeInfo};
use graphmill_ingest::partition;
use serde::Serialize;

use super::target::{self, Target};
use crate::context::Context;
use crate::terminal::table::{Column, Sheet};
use crate::terminal::{numbers, output};

const EXAMPLES: &str = "\
Examples:
  graphmill partition papers --parts 4 --out papers-4
  graphmill partition papers --parts 4 --method hash --out papers-4 --json
  graphmill partition papers --parts 2 --method file --assignment parts.npy --out papers-2
  graphmill partition shop --parts 2 --method file --assignment user=u.csv --assignment item=i.csv --out shop-2

Ids, neighbour lists and the fingerprint stay as they are; only where things lie changes.";

/// Cut a dataset into partitions
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The dataset to cut, of any number of partitions
    #[arg(value_name = "DIR")]
    dataset: PathBuf,

    /// Number of partitions
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PARTS)))]
    parts: u32,

    /// How nodes are assigned to partitions
    #[arg(long, value_enum, default_value_t = MethodArg::Ldg)]
    method: MethodArg,

    /// With `--method file`: the partition of each node, a number per line or an .npy of integers; one per node type,
    /// named unless the graph is homogeneous
    #[arg(long, value_name = "[TYPE=]FILE", required_if_eq("method", "file"))]
    assignment: Vec<String>,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MethodArg {
    /// Equal stretches of ids
    Range,
    /// By a hash of the id: balanced, whatever the ids mean
    Hash,
    /// Linear deterministic greedy: next to most neighbours, within a balance
    Ldg,
    /// As files say: the result of any partitioner
    File,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let source = Dataset::open(&args.dataset)?;
    let method = args.method(source.manifest().homogeneous)?;
    let began = Instant::now();
    let manifest =
        partition::partition(&source, args.parts, &method, &args.target.out, args.target.replace(), &context.job())?;
    let time = began.elapsed();
    let report = Report::of(&Dataset::open(&args.target.out)?, time);
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(&format!("{}\n\n{}", args.target.written(&manifest, time), report.table()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn method(&self, homogeneous: bool) -> anyhow::Result<partition::Method> {
        if self.method != MethodArg::File && !self.assignment.is_empty() {
            bail!("--assignment is for --method file");
        }
        Ok(match self.method {
            MethodArg::Range => partition::Method::Range,
            MethodArg::Hash => partition::Method::Hash,
            MethodArg::Ldg => partition::Method::Ldg,
            MethodArg::File => {
                let files = self.assignment.iter().map(|text| assignment(text, homogeneous));
                partition::Method::File(files.collect::<anyhow::Result<_>>()?)
            }
        })
    }
}

/// A homogeneous graph has nothing to name, so there all of the text is the path.
fn assignment(text: &str, homogeneous: bool) -> anyhow::Result<(Option<String>, PathBuf)> {
    if homogeneous {
        return Ok((None, PathBuf::from(text)));
    }
    match text.split_once('=') {
        Some((node_type, path)) => Ok((Some(node_type.to_owned()), PathBuf::from(path))),
        None => bail!("--assignment {text} does not name a node type; write TYPE={text}"),
    }
}

/// How good a partitioning is.
#[derive(Debug, Serialize)]
struct Report {
    fingerprint: Fingerprint,
    method: String,
    num_partitions: u32,
    num_nodes: u64,
    num_edges: u64,
    /// Edges that join two partitions.
    edge_cut: u64,
    edge_cut_fraction: f64,
    seconds: f64,
    node_types: Vec<NodeTypeReport>,
    edge_types: Vec<EdgeTypeReport>,
}

#[derive(Debug, Serialize)]
struct NodeTypeReport {
    name: String,
    count: u64,
    /// The largest partition over the mean.
    balance: f64,
}

#[derive(Debug, Serialize)]
struct EdgeTypeReport {
    #[serde(rename = "type")]
    name: EdgeTypeName,
    count: u64,
    cut: u64,
    cut_fraction: f64,
    /// The largest partition over the mean.
    balance: f64,
}

impl Report {
    fn of(dataset: &Dataset, time: Duration) -> Self {
        let manifest = dataset.manifest();
        let (num_nodes, num_edges) = (target::num_nodes(manifest), target::num_edges(manifest));
        let edge_cut = manifest.edge_types.iter().map(|info| info.cut).sum();
        let node_type = |info: &NodeTypeInfo| NodeTypeReport {
            name: info.name.clone(),
            count: info.count,
            balance: info.book.balance(manifest.parts),
        };
        let edge_type = |(place, info): (usize, &EdgeTypeInfo)| EdgeTypeReport {
            name: info.name.clone(),
            count: info.count,
            cut: info.cut,
            cut_fraction: numbers::fraction(info.cut, info.count),
            balance: edge_balance(dataset, place),
        };
        Self {
            fingerprint: manifest.fingerprint,
            method: manifest.method.clone(),
            num_partitions: manifest.parts,
            num_nodes,
            num_edges,
            edge_cut,
            edge_cut_fraction: numbers::fraction(edge_cut, num_edges),
            seconds: time.as_secs_f64(),
            node_types: manifest.node_types.iter().map(node_type).collect(),
            edge_types: manifest.edge_types.iter().enumerate().map(edge_type).collect(),
        }
    }

    fn table(&self) -> String {
        let mut sheet = Sheet::new([
            Column::Text("type"),
            Column::Number("count"),
            Column::Number("cut"),
            Column::Number("cut %"),
            Column::Number("balance"),
        ]);
        for info in &self.node_types {
            let balance = format!("{:.3}", info.balance);
            sheet.add([info.name.clone(), numbers::count(info.count), String::new(), String::new(), balance]);
        }
        for info in &self.edge_types {
            sheet.add([
                info.name.to_string(),
                numbers::count(info.count),
                numbers::count(info.cut),
                numbers::percent(info.cut, info.count),
                format!("{:.3}", info.balance),
            ]);
        }
        format!(
            "{}\n\n{} partitions by {}: {} of {} edges are cut ({}); balance is the largest partition over the mean",
            sheet.render(),
            self.num_partitions,
            self.method,
            numbers::count(self.edge_cut),
            numbers::count(self.num_edges),
            numbers::percent(self.edge_cut, self.num_edges),
        )
    }
}

/// Edges in the largest partition over the mean.
fn edge_balance(dataset: &Dataset, edge_type: usize) -> f64 {
    let primary = dataset.edge_types()[edge_type].primary();
    let edges = dataset
        .partitions()
        .map(|(_, partition)| partition.edges(edge_type).lists(primary).map_or(0, |lists| lists.edges() as u64));
    let edges: Vec<u64> = edges.collect();
    let mean = numbers::fraction(edges.iter().sum(), edges.len() as u64);
    if mean == 0.0 { 1.0 } else { edges.into_iter().max().unwrap_or(0) as f64 / mean }
}

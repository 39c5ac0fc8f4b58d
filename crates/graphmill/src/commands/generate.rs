//! `graphmill generate`: a dataset from a seed.

use std::process::ExitCode;
use std::time::Instant;

use clap::ValueEnum;
use graphmill_ingest::{Layout, generate};

use super::target::Target;
use crate::context::Context;
use crate::terminal::numbers::{parse_count, parse_size};
use crate::terminal::output;

const EXAMPLES: &str = "\
Examples:
  graphmill generate karate --out karate
  graphmill generate sbm --nodes 20k --edges 200k --features 32 --classes 8 --out blocks
  graphmill generate rmat --nodes 1M --edges 20M --features 128 --memory 4GiB --out big

Same seed, same bytes. Numbers may be written as 1M, 20k, 1_000_000; sizes as 2GiB, 500MB.";

/// Make a graph from a seed
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The shape of the graph
    kind: Kind,

    /// Number of nodes (karate has 34)
    #[arg(long, value_name = "N", default_value = "10k", value_parser = parse_count)]
    nodes: u64,

    /// Number of directed edges (karate has 156)
    #[arg(long, value_name = "E", default_value = "100k", value_parser = parse_count)]
    edges: u64,

    /// Width of the f32 feature `x`; 0 for none
    #[arg(long, value_name = "F", default_value = "16", value_parser = parse_count)]
    features: u64,

    /// Number of classes of the label; 0 for none [default: 8 for sbm, otherwise 0]
    #[arg(long, value_name = "C", value_parser = parse_count)]
    classes: Option<u64>,

    /// The seed of everything random
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Which neighbour lists to store
    #[arg(long, value_enum, default_value_t = LayoutArg::In)]
    layout: LayoutArg,

    /// Store edge ids
    #[arg(long)]
    edge_ids: bool,

    /// Give edges random weights; stores edge ids too
    #[arg(long)]
    weights: bool,

    /// Give nodes random weights, to draw them by
    #[arg(long)]
    node_weights: bool,

    /// Memory to sort edges in
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    memory: u64,

    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A power law of degrees, as in social networks and the web
    Rmat,
    /// Uniformly random edges
    Uniform,
    /// Communities, with features and labels that a model can learn
    Sbm,
    /// Zachary's karate club
    Karate,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LayoutArg {
    /// Lists of sources per target (CSC), what message passing walks
    In,
    /// Lists of targets per source (CSR)
    Out,
    /// Both, at twice the size
    Both,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    let manifest = generate::generate(&args.options(), &args.target.out, args.target.replace(), &context.job())?;
    output::print(&args.target.written(&manifest, began.elapsed()))?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn options(&self) -> generate::Options {
        generate::Options {
            kind: match self.kind {
                Kind::Rmat => generate::Kind::Rmat,
                Kind::Uniform => generate::Kind::Uniform,
                Kind::Sbm => generate::Kind::Sbm,
                Kind::Karate => generate::Kind::Karate,
            },
            nodes: self.nodes,
            edges: self.edges,
            features: self.features,
            classes: self.classes.unwrap_or(if self.kind == Kind::Sbm { 8 } else { 0 }),
            seed: self.seed,
            layout: match self.layout {
                LayoutArg::In => Layout::In,
                LayoutArg::Out => Layout::Out,
                LayoutArg::Both => Layout::Both,
            },
            edge_ids: self.edge_ids || self.weights,
            weights: self.weights,
            node_weights: self.node_weights,
            memory: self.memory,
        }
    }
}

//! `graphmill bench`: how fast things are on this machine.

mod ceiling;
mod fairness;
mod loader;
mod objects;
mod rendezvous;
mod sample;
mod serving;
mod transport;

use std::process::ExitCode;

use crate::context::Context;
use crate::terminal::numbers;

pub(crate) use loader::jain;

/// Measure how fast things are on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Sample(Box<sample::Args>),
    Loader(Box<loader::Args>),
    Fairness(Box<fairness::Args>),
    Transport(transport::Args),
    Rendezvous(rendezvous::Args),
    Objects(objects::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Sample(args) => sample::run(args, context),
        What::Loader(args) => loader::run(args, context),
        What::Fairness(args) => fairness::run(args, context),
        What::Transport(args) => transport::run(args, context),
        What::Rendezvous(args) => rendezvous::run(args, context),
        What::Objects(args) => objects::run(args, context),
    }
}

/// What a batch holds on average, in words.
fn batch(nodes: f64, edges: f64, bytes: f64) -> String {
    let count = |number: f64| numbers::count(number as u64);
    format!("{} nodes, {} edges, {}", count(nodes), count(edges), numbers::bytes(bytes as u64))
}

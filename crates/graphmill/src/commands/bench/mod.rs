//! `graphmill bench`: how fast things are on this machine.

mod ceiling;
mod sample;

use std::process::ExitCode;

use crate::context::Context;

/// Measure how fast things are on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Sample(Box<sample::Args>),
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Sample(args) => sample::run(args, context),
    }
}

//! `graphmill rendezvous`: where the members of a run find each other.

mod serve;
mod servers;
mod status;

use std::process::ExitCode;

use crate::context::Context;

/// Let the members of a run find each other
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Serve(serve::Args),
    Status(status::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Serve(args) => serve::run(args, context),
        What::Status(args) => status::run(args, context),
    }
}

//! `graphmill objects`: blobs in memory that processes share.

mod connect;
mod list;
mod serve;
mod stat;
mod transfer;

use std::process::ExitCode;

use crate::context::Context;

/// Share blobs in memory between processes and hosts
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Serve(Box<serve::Args>),
    Put(transfer::PutArgs),
    Get(transfer::GetArgs),
    Ls(list::Args),
    Rm(transfer::RmArgs),
    Stat(stat::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Serve(args) => serve::run(args, context),
        What::Put(args) => transfer::put(args, context),
        What::Get(args) => transfer::get(args, context),
        What::Ls(args) => list::run(args),
        What::Rm(args) => transfer::rm(args),
        What::Stat(args) => stat::run(args),
    }
}

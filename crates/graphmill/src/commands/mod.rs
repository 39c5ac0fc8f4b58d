//! The commands, one module each.

pub(crate) mod bench;
mod connect;
pub(crate) mod demo;
pub(crate) mod generate;
pub(crate) mod ingest;
pub(crate) mod inspect;
pub(crate) mod objects;
pub(crate) mod partition;
pub(crate) mod rank;
pub(crate) mod rendezvous;
pub(crate) mod sample;
mod sampler;
pub(crate) mod serve;
pub(crate) mod status;
mod target;

use std::process::ExitCode;

use crate::cli::Command;
use crate::context::Context;

/// Runs a command. An exit code other than success without an error means that the result itself says what is wrong.
pub(crate) fn run(command: &Command, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args, context),
        Command::Generate(args) => generate::run(args, context),
        Command::Ingest(args) => ingest::run(args, context),
        Command::Partition(args) => partition::run(args, context),
        Command::Inspect(args) => inspect::run(args, context),
        Command::Sample(args) => sample::run(args, context),
        Command::Status(args) => status::run(args, context),
        Command::Rank(args) => rank::run(args, context),
        Command::Rendezvous(args) => rendezvous::run(args, context),
        Command::Objects(args) => objects::run(args, context),
        Command::Serve(args) => serve::run(args, context),
        Command::Bench(args) => bench::run(args, context),
    }
}

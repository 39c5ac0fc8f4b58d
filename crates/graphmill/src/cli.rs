//! The grammar of the command line. Each command's own arguments stand in its module.

use clap::{Parser, Subcommand};

use crate::commands::{
    bench, demo, generate, ingest, inspect, objects, partition, rank, rendezvous, sample, serve, status,
};

const EXAMPLES: &str = "\
Examples:
  graphmill demo                                            see it all work, in a few seconds
  graphmill generate rmat --nodes 1M --edges 20M --out g    make a graph from a seed
  graphmill ingest graph.toml --out g                       read your own files
  graphmill partition g --parts 4 --out g4                  cut a dataset for four servers
  graphmill inspect g4                                      see what a dataset holds
  graphmill sample g4 --seeds 1,2,3 --fanouts 15,10         see a batch
  graphmill serve g4                                        sample for other processes and hosts
  graphmill bench sample g4 --fanouts 15,10                 see how fast this machine samples

`graphmill help COMMAND` tells all about a command.";

/// Graph store and sampling service for graph neural networks.
#[derive(Debug, Parser)]
#[command(name = "graphmill", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Show no progress; results and errors only
    #[arg(long, short, global = true, display_order = 900)]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Generate(generate::Args),
    Ingest(ingest::Args),
    Partition(partition::Args),
    Inspect(inspect::Args),
    Sample(Box<sample::Args>),
    Serve(Box<serve::Args>),
    Status(status::Args),
    Rendezvous(rendezvous::Args),
    Objects(objects::Args),
    #[command(hide = true)]
    Rank(rank::Args),
    Bench(bench::Args),
}

impl Command {
    /// Whether it makes files that must not be left half done.
    pub(crate) fn writes(&self) -> bool {
        !matches!(
            self,
            Self::Inspect(_)
                | Self::Sample(_)
                | Self::Serve(_)
                | Self::Rank(_)
                | Self::Status(_)
                | Self::Rendezvous(_)
                | Self::Objects(_)
                | Self::Bench(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }
}

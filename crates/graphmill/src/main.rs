//! The command line: one binary that makes, partitions and inspects graph datasets.
//!
//! Each command is a module of [`commands`]; it reads its arguments, calls the library and prints a result. Results go
//! to stdout, everything else (progress, notes, errors) to stderr, so that a pipe sees results only.

mod cli;
mod commands;
mod context;
mod failure;
mod interrupt;
mod local;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use context::Context;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::new(cli.quiet);
    // Advice to the system that it may refuse: then a lost page ends the process without a word.
    let _ = graphmill_graph::guard::install();
    let outcome = watch_signals(&cli, &context).and_then(|()| commands::run(&cli.command, &context));
    outcome.unwrap_or_else(|error| failure::report(&error, &context.interrupt))
}

/// A command that writes stops in an orderly way; one that only reads may die at once.
fn watch_signals(cli: &Cli, context: &Context) -> anyhow::Result<()> {
    if cli.command.writes() { context.interrupt.watch() } else { Ok(()) }
}

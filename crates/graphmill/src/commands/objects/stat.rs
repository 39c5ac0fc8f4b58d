//! `graphmill objects stat`: what a server holds and has done.

use std::process::ExitCode;
use std::time::Duration;

use graphmill_objects::Stat;

use super::connect::ConnectArgs;
use crate::terminal::{numbers, output, table};

/// Show what a server holds and has done
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let connector = args.connect.connect()?;
    let stat = connector.stat()?;
    if args.json {
        output::print_json(&stat)?;
    } else {
        output::print(&render(&connector.config().address, &stat))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(address: &str, stat: &Stat) -> String {
    let up = numbers::duration(Duration::from_millis(stat.uptime_ms));
    let kind = if stat.spawned { ", started by a connector" } else { "" };
    let of = if stat.budget == 0 { String::new() } else { format!(" of {}", numbers::bytes(stat.budget)) };
    table::of_facts([
        ("server", format!("{}, version {}, up {up}{kind}", without_password(address), stat.version)),
        ("objects", numbers::count(stat.objects)),
        ("memory", format!("{}{of}, at most {} for one", numbers::bytes(stat.used), numbers::bytes(stat.object_limit))),
        ("connections", numbers::count(stat.connections)),
        ("waiting", format!("{} gets, {} puts", numbers::count(stat.waiting_gets), numbers::count(stat.waiting_puts))),
        (
            "so far",
            format!(
                "{} puts ({} refused), {} gets ({} found), {} evicted, {} expired",
                numbers::count(stat.puts),
                numbers::count(stat.refused),
                numbers::count(stat.gets),
                numbers::count(stat.hits),
                numbers::count(stat.evicted),
                numbers::count(stat.expired)
            ),
        ),
    ])
}

/// An address as it may be shown: Redis' may have a password in it.
fn without_password(address: &str) -> String {
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => address.to_owned(),
    }
}

//! `graphmill status`: what servers are doing.

use std::process::ExitCode;
use std::time::Duration;

use graphmill_wire::proto::{ChannelStatus, StatusResponse};

use super::connect::ConnectArgs;
use crate::context::Context;
use crate::terminal::table::{self, Column, Sheet};
use crate::terminal::{numbers, output};

const EXAMPLES: &str = "\
Examples:
  graphmill status 127.0.0.1:4100
  graphmill status 10.0.0.1:4100 10.0.0.2:4100 --token-file token --json";

/// Show what servers are doing
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, _: &Context) -> anyhow::Result<ExitCode> {
    let statuses = args.connect.connect()?.status();
    let well = statuses.iter().all(|(_, status)| status.is_ok());
    if args.json {
        let servers: Vec<_> = statuses.iter().map(|(address, status)| json(&address.to_string(), status)).collect();
        output::print_json(&servers)?;
    } else {
        for (address, status) in &statuses {
            match status {
                Ok(status) => output::print(&render(&address.to_string(), status))?,
                Err(error) => output::error(&error.to_string()),
            }
        }
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn render(address: &str, status: &StatusResponse) -> String {
    let partitions: Vec<String> = status.partitions.iter().map(ToString::to_string).collect();
    let mut facts = vec![
        ("server", format!("{address}, version {}, up {}", status.version, duration(status.uptime_ms))),
        ("graph", status.fingerprint.clone()),
        ("partitions", format!("{} of {}", partitions.join(", "), status.parts)),
        ("threads", status.threads.to_string()),
        (
            "channels",
            format!(
                "{} ({} runnable, {} starved, {} parked) of {} clients, {} backends; at most {}",
                status.registered,
                status.runnable,
                status.starved,
                status.parked,
                status.clients,
                status.backends.len(),
                status.max_channels
            ),
        ),
        ("connections", format!("{}; at most {}", status.connections, status.max_connections)),
        ("memory", format!("{} of {}", numbers::bytes(status.memory_bytes), numbers::bytes(status.memory_budget))),
    ];
    for peer in &status.peers {
        let state = if peer.connected { "connected" } else { "not connected" };
        let traffic =
            format!("sent {}, received {}", numbers::bytes(peer.bytes_sent), numbers::bytes(peer.bytes_received));
        facts.push(("peer", format!("{}, {state}, {traffic}", peer.address)));
    }
    let mut text = table::of_facts(facts);
    if !status.channels.is_empty() {
        text = format!("{text}\n\n{}", channels(&status.channels));
    }
    text + "\n"
}

fn channels(channels: &[ChannelStatus]) -> String {
    let mut sheet = Sheet::new([
        Column::Text("channel"),
        Column::Text("worker"),
        Column::Text("state"),
        Column::Number("epoch"),
        Column::Number("done"),
        Column::Number("failed"),
        Column::Number("of"),
        Column::Number("waiting"),
        Column::Number("running"),
        Column::Number("buffered"),
        Column::Number("last asked"),
    ]);
    for channel in channels {
        sheet.add([
            format!("{:x}", channel.channel),
            channel.worker.clone(),
            channel.state.clone(),
            channel.epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
            numbers::count(channel.completed),
            if channel.failed == 0 { String::new() } else { numbers::count(channel.failed) },
            numbers::count(channel.total),
            channel.waiting_credits.to_string(),
            channel.running.to_string(),
            numbers::bytes(channel.buffered_bytes),
            format!("{} ago", duration(channel.last_credit_age_ms)),
        ]);
    }
    sheet.render()
}

fn duration(milliseconds: u64) -> String {
    numbers::duration(Duration::from_millis(milliseconds))
}

/// A server's status as an object, or why there is none.
fn json(address: &str, status: &graphmill_client::Result<StatusResponse>) -> serde_json::Value {
    use serde_json::json;
    let status = match status {
        Ok(status) => status,
        Err(error) => return json!({"address": address, "error": error.to_string()}),
    };
    let channel = |channel: &ChannelStatus| {
        json!({
            "channel": channel.channel, "backend": channel.backend, "worker": channel.worker, "state": channel.state,
            "epoch": channel.epoch, "seeds": channel.seeds, "total": channel.total, "submitted": channel.submitted,
            "completed": channel.completed, "failed": channel.failed, "waiting_credits": channel.waiting_credits,
            "running": channel.running, "buffered_batches": channel.buffered_batches,
            "buffered_bytes": channel.buffered_bytes, "work": channel.work,
            "last_credit_age_ms": channel.last_credit_age_ms,
        })
    };
    json!({
        "address": address, "version": status.version, "incarnation": status.incarnation,
        "uptime_ms": status.uptime_ms, "fingerprint": status.fingerprint, "parts": status.parts,
        "partitions": status.partitions, "threads": status.threads, "clients": status.clients,
        "registered": status.registered, "active": status.active, "runnable": status.runnable,
        "parked": status.parked, "removing": status.removing, "starved": status.starved,
        "connections": status.connections, "max_connections": status.max_connections,
        "max_channels": status.max_channels, "memory_bytes": status.memory_bytes,
        "memory_budget": status.memory_budget,
        "backends": status.backends.iter().map(|one| json!({
            "backend": one.backend, "run": one.run, "key": one.key, "channels": one.channels,
            "config": serde_json::from_str::<serde_json::Value>(&one.config).unwrap_or_default(),
        })).collect::<Vec<_>>(),
        "channels": status.channels.iter().map(channel).collect::<Vec<_>>(),
        "peers": status.peers.iter().map(|peer| json!({
            "address": peer.address, "connected": peer.connected, "partitions": peer.partitions,
            "bytes_sent": peer.bytes_sent, "bytes_received": peer.bytes_received,
        })).collect::<Vec<_>>(),
    })
}

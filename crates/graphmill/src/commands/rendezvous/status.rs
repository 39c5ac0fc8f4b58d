//! `graphmill rendezvous status`: who is where in a run.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use graphmill_net::{ClientTls, Token};
use graphmill_rendezvous::client::{ConnectOptions, Connection, Error};
use graphmill_rendezvous::{Target, storage};
use graphmill_wire::proto::{MemberList, RunStatus, StorageStatus};
use tonic::Streaming;

use super::servers;
use crate::context::Context;
use crate::terminal::table::{self, Column, NOTHING, Sheet};
use crate::terminal::{numbers, output};

const EXAMPLES: &str = "\
Examples:
  graphmill rendezvous status 127.0.0.1:4300             which runs there are
  graphmill rendezvous status 127.0.0.1:4300/train       who takes part
  graphmill rendezvous status etcd://127.0.0.1/train     the same, from the coordinator that leads
  graphmill rendezvous status unix:/run/gm.sock//train   the same, over a socket
  graphmill rendezvous status 127.0.0.1:4300/train --watch --json";

/// How often a terminal is drawn anew, and what begins it: an empty screen.
const REFRESH: Duration = Duration::from_secs(1);
const CLEAR: &str = "\x1b[2J\x1b[H";
/// The pause before a coordinator is looked for again.
const PAUSE: Duration = Duration::from_millis(200);

/// Show who is where in a run
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Coordinators and a run: `HOST:PORT,HOST:PORT/RUN`, `unix:/PATH//RUN` or `etcd://HOST:PORT/RUN`
    #[arg(value_name = "URL", env = "GRAPHMILL_RENDEZVOUS")]
    target: Target,

    /// Show every change until the run is closed
    #[arg(long)]
    watch: bool,

    /// Print JSON; with --watch, a line for each status
    #[arg(long)]
    json: bool,

    /// A file with the coordinator's token
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Who signs the coordinator's certificate; it is then reached over TLS
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_TLS_CA")]
    tls_ca: Option<PathBuf>,

    /// A certificate to show, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"], env = "GRAPHMILL_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "GRAPHMILL_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    deadline: f64,
}

pub(crate) fn run(args: &Args, _: &Context) -> anyhow::Result<ExitCode> {
    let identity = args.tls_cert.as_deref().zip(args.tls_key.as_deref());
    let options = ConnectOptions {
        token: args.token_file.as_ref().map(|path| Token::from_file(path)).transpose()?,
        tls: args.tls_ca.as_ref().map(|ca| ClientTls::load(ca, identity)).transpose()?,
    };
    let within = Duration::try_from_secs_f64(args.deadline).unwrap_or(Duration::from_secs(10));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start to talk to the coordinator")?.block_on(async {
        let connection = Connection::open(&args.target.place, &options)?;
        let Some(run) = &args.target.run else {
            let runs = connection.runs(within).await?;
            return if args.json { output::print_json(&runs) } else { output::print(&list(&runs)) };
        };
        if !args.watch {
            let storage = connection.storage(run, within).await?;
            let served = storage.settings.is_some();
            // A run may have servers and no members.
            let status = match connection.status(run, within).await {
                Err(Error::NoRun { .. }) if served => None,
                status => Some(status?),
            };
            return show(status.as_ref(), served.then_some(&storage), args.json);
        }
        follow(&connection, run, within, args.json).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Shows every change of a run's members and servers until the run is closed, from whichever coordinator serves it.
async fn follow(connection: &Connection, run: &str, within: Duration, json: bool) -> anyhow::Result<()> {
    // A terminal shows one status, and how long ago members were heard of goes on.
    let live = !json && std::io::stdout().is_terminal();
    let following = storage::follow(connection.clone(), run);
    let mut servers = following.status();
    let mut storage = Some(connection.storage(run, within).await?).filter(|storage| storage.settings.is_some());
    let (mut changes, mut status) = (members(connection, run, within, storage.is_some()).await?, None);
    loop {
        tokio::select! {
            changed = next(&mut changes) => {
                let Some(changed) = changed else {
                    // It has gone, or leads no more.
                    tokio::time::sleep(PAUSE).await;
                    changes = members(connection, run, within, storage.is_some()).await?;
                    continue;
                };
                status = Some(changed);
            }
            Ok(()) = servers.changed() => {
                let told = servers.borrow_and_update().clone();
                let Some(told) = told.filter(|told| told.settings.is_some()) else { continue };
                storage = Some(StorageStatus::clone(&told));
                // Where there are members, they come first.
                if changes.is_some() && status.is_none() {
                    continue;
                }
            },
            () = tokio::time::sleep(REFRESH), if live || changes.is_none() => {
                if changes.is_none() {
                    changes = members(connection, run, within, true).await?;
                } else {
                    status = Some(connection.status(run, within).await?);
                }
                if storage.is_some() {
                    storage = Some(connection.storage(run, within).await?);
                }
                if !live {
                    continue;
                }
            }
        }
        let (status, storage) = (status.as_ref(), storage.as_ref());
        output::print(&match (json, live) {
            (true, _) => to_json(status, storage).to_string(),
            (false, true) => format!("{CLEAR}{}", to_text(status, storage)),
            (false, false) => to_text(status, storage),
        })?;
        if status.is_some_and(|status| status.closed) {
            return Ok(());
        }
    }
}

/// The changes of a run's members; nothing yet, if the run has servers and nobody has joined it.
async fn members(
    connection: &Connection,
    run: &str,
    within: Duration,
    served: bool,
) -> Result<Option<Streaming<RunStatus>>, Error> {
    match connection.watch(run, within).await {
        Err(Error::NoRun { .. }) if served => Ok(None),
        changes => changes.map(Some),
    }
}

/// The next change, or nothing if whoever tells them is gone.
async fn next(changes: &mut Option<Streaming<RunStatus>>) -> Option<RunStatus> {
    match changes {
        Some(changes) => changes.message().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

fn list(runs: &[String]) -> String {
    if runs.is_empty() { "no run is under way".to_owned() } else { runs.join("\n") }
}

fn show(status: Option<&RunStatus>, storage: Option<&StorageStatus>, json: bool) -> anyhow::Result<()> {
    if json { output::print_json(&to_json(status, storage)) } else { output::print(&to_text(status, storage)) }
}

fn to_text(status: Option<&RunStatus>, storage: Option<&StorageStatus>) -> String {
    let parts = [status.map(render), storage.map(servers::render)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

fn to_json(status: Option<&RunStatus>, storage: Option<&StorageStatus>) -> serde_json::Value {
    let mut shown = status.map_or_else(|| serde_json::json!({}), as_json);
    if let Some(storage) = storage {
        shown["run"] = storage.run.clone().into();
        shown["storage"] = servers::as_json(storage);
    }
    shown
}

fn render(status: &RunStatus) -> String {
    let settings = status.settings.unwrap_or_default();
    let state = match (status.closed, status.complete) {
        (true, _) => "closed".to_owned(),
        (false, true) => "complete".to_owned(),
        (false, false) => match status.last_call_ms {
            Some(left) => format!("open, last call for {}", numbers::duration(Duration::from_millis(left))),
            None => "open".to_owned(),
        },
    };
    let count = |list: MemberList| status.members.iter().filter(|member| member.list() == list).count();
    let (taking_part, waiting, spares) =
        (count(MemberList::Participant), count(MemberList::Waiting), count(MemberList::Spare));
    let facts = [
        ("run", status.run.clone()),
        ("round", format!("{}, {state}", status.round)),
        (
            "members",
            format!(
                "{taking_part} take part ({} to {} can), {waiting} wait, {spares} spare",
                settings.min, settings.max
            ),
        ),
        ("store", format!("{} values, {}", status.values, numbers::bytes(status.value_bytes))),
    ];
    let mut sheet =
        Sheet::new([Column::Text("member"), Column::Text("list"), Column::Number("rank"), Column::Number("heard")]);
    for member in &status.members {
        let id = member.member.clone().unwrap_or_default();
        sheet.add([
            format!("{}_{}_{}", id.address, id.process, id.counter),
            list_name(member.list()).to_owned(),
            member.rank.map_or_else(|| NOTHING.to_owned(), |rank| rank.to_string()),
            format!("{} ago", numbers::duration(Duration::from_millis(member.age_ms))),
        ]);
    }
    let members = if status.members.is_empty() { String::new() } else { format!("\n\n{}", sheet.render()) };
    table::of_facts(facts) + &members + "\n"
}

fn list_name(list: MemberList) -> &'static str {
    match list {
        MemberList::Participant => "takes part",
        MemberList::Waiting => "waits",
        MemberList::Spare => "spare",
        MemberList::Unspecified => NOTHING,
    }
}

fn as_json(status: &RunStatus) -> serde_json::Value {
    let settings = status.settings.unwrap_or_default();
    let member = |member: &graphmill_wire::proto::RunMember| {
        let id = member.member.clone().unwrap_or_default();
        let list = match member.list() {
            MemberList::Participant => "participant",
            MemberList::Waiting => "waiting",
            MemberList::Spare => "spare",
            MemberList::Unspecified => "",
        };
        serde_json::json!({
            "address": id.address, "process": id.process, "counter": id.counter,
            "list": list, "rank": member.rank, "age_ms": member.age_ms,
        })
    };
    serde_json::json!({
        "run": status.run, "round": status.round, "complete": status.complete, "closed": status.closed,
        "last_call_ms": status.last_call_ms, "min": settings.min, "max": settings.max,
        "members": status.members.iter().map(member).collect::<Vec<_>>(),
        "values": status.values, "value_bytes": status.value_bytes,
    })
}

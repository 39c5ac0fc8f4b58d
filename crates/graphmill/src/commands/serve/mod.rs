//! `graphmill serve`: a storage server.

mod settings;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use graphmill_graph::{Dataset, OpenOptions, Storage, guard};
use graphmill_ingest::Job;
use graphmill_ingest::download::download;
use graphmill_net::Stopping;
use graphmill_rendezvous::service;
use graphmill_server::{Leftovers, OpenPartitions, Server};

use crate::context::Context;
use crate::terminal::{logs, numbers, output};

use settings::Settings;
pub(crate) use settings::endpoints;

/// How long batches have to be finished when one of them cannot be read from disk, and what may take its time after that.
const LAST_BATCHES: Duration = Duration::from_secs(2);
const ENDING: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  graphmill serve g                                              all of a dataset, for this host
  graphmill serve g4 --partition 0,1 --listen 127.0.0.1:4100 --peers 127.0.0.1:4101
  graphmill serve g4 --rendezvous 127.0.0.1:4300 --run train --servers 2   partitions as the coordinator gives them
  graphmill serve g4 --coordinator --rendezvous 127.0.0.1:4100 --run train --servers 2   the first of them, which coordinates too
  graphmill serve s3://graphs/g --partition 0 --cache-dir /data  fetched first, and checked
  graphmill serve g4 --listen 0.0.0.0:4100 --token-file token    for other hosts, which must know the token
  graphmill serve g4 --config serve.toml                         flags, then GRAPHMILL_... variables, then the file

Health: gRPC's own service, and http://ADDRESS/healthz. Metrics: http://ADDRESS/metrics.
SIGTERM stops it: what is under way is finished within --drain.
How servers meet, take over and come back: docs/operations.md.";

/// Serve partitions of a dataset
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The dataset: a directory, or a URL (s3, gs, az, http, https, file) to fetch it from
    #[arg(value_name = "DIR|URL")]
    dataset: PathBuf,

    #[command(flatten)]
    settings: Settings,

    /// Settings as a TOML file: the flags' names with _ for -
    #[arg(long, value_name = "FILE", env = "GRAPHMILL_CONFIG")]
    config: Option<PathBuf>,

    /// Stop when standard input ends, as it does when the parent is gone
    #[arg(long)]
    until_stdin_closes: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> anyhow::Result<ExitCode> {
    let settings = match &args.config {
        Some(path) => args.settings.clone().or_file(path)?,
        None => args.settings.clone(),
    };
    let logs = logs::start(settings.log.unwrap_or_default());
    let storage = if settings.mmap { Storage::Mmap } else { Storage::Ram };
    // Servers that meet open what they are assigned.
    let partitions = if settings.meets() {
        Some(Vec::new())
    } else {
        (!settings.partition.is_empty()).then(|| settings.partition.clone())
    };
    let url = args.dataset.to_str().filter(|text| text.contains("://")).map(str::to_owned);
    let cache = url.as_ref().map(|_| settings.cache_dir()).transpose()?;
    let fetched = url.zip(cache);
    let mut options = settings.options(opening(fetched.clone(), storage))?;
    let idle = settings.exit_when_idle()?;
    let directory = match &fetched {
        Some((url, cache)) => {
            context.interrupt.watch()?;
            download(url, cache, partitions.as_deref(), &context.job())?
        }
        None => args.dataset.clone(),
    };
    let dataset = Dataset::open_with(&directory, &OpenOptions { storage, partitions })?;
    let what = match dataset.partitions().count() {
        0 => format!("what is assigned of {} partitions of {}", dataset.parts(), directory.display()),
        served => format!("{served} of {} partitions of {}", dataset.parts(), directory.display()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the threads for connections")?;
    let drain = settings.drain()?;
    let leftovers = runtime.block_on(async {
        let mut stopping = Stopping::listen()?;
        // A signal that came since a download began was only noted.
        context.job().check().map_err(|_| graphmill_ingest::Error::DownloadInterrupted)?;
        // One that leads must be reached soon, so it begins when everything else is ready.
        let coordinator = settings.coordinator()?;
        if let Some(coordinator) = &coordinator {
            let service = service::service(Arc::clone(coordinator), options.token.clone());
            options.services = options.services.add_service(service);
        }
        let server = Server::start(dataset, options).await?;
        for endpoint in server.endpoints() {
            output::print(&format!("listening on {endpoint}"))?;
        }
        if let Some(endpoint) = server.watch_endpoint() {
            output::print(&format!("watched on {endpoint}"))?;
        }
        context.note(&format!("serving {what}"));
        guard::set_patience(drain.min(LAST_BATCHES) + ENDING);
        let failed = tokio::select! {
            () = stopping.asked() => None,
            () = stdin_end(args.until_stdin_closes) => None,
            () = idleness(&server, idle) => None,
            reason = server.failed() => Some(reason),
        };
        // A batch that stands still over a lost page never ends.
        let drain = if guard::lost_page().is_some() { drain.min(LAST_BATCHES) } else { drain };
        context.note_in(&logs, &format!("stopping, within {}", numbers::duration(drain)));
        let leftovers = server.stop(drain).await;
        if let Some(coordinator) = coordinator {
            coordinator.resign().await;
        }
        failed.map_or(Ok(leftovers), |reason| Err(anyhow::Error::msg(reason)))
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    let Leftovers { channels, batches } = leftovers;
    if channels > 0 || batches > 0 {
        output::error(&format!("stopped with {channels} open channels and {batches} unfinished batches"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// How further partitions are opened: from the directory, or from where it was fetched.
fn opening(fetched: Option<(String, PathBuf)>, storage: Storage) -> OpenPartitions {
    Arc::new(move |dataset, partitions| {
        if let Some((url, cache)) = &fetched {
            download(url, cache, Some(partitions), &Job::silent()).map_err(|error| error.to_string())?;
        }
        dataset.with_partitions(partitions, storage).map_err(|error| error.to_string())
    })
}

/// Ends when there were clients and none was left for a time; never, if no time is given.
async fn idleness(server: &Server, idle: Option<Duration>) {
    const LOOK: Duration = Duration::from_millis(100);
    let Some(idle) = idle else { return std::future::pending().await };
    while server.deserted().is_none_or(|since| since < idle) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends when standard input does; never, if it is not watched.
pub(crate) async fn stdin_end(watched: bool) {
    if !watched {
        return std::future::pending().await;
    }
    let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    // However it ends, nobody is there any more.
    let _ = ended.await;
}

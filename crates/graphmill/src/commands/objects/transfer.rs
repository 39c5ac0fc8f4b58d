//! `graphmill objects put`, `get` and `rm`: objects in and out, and away.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use graphmill_ingest::{Observer as _, Unit};
use graphmill_objects::{Key, Object, PutOptions};

use super::connect::ConnectArgs;
use crate::context::Context;
use crate::terminal::output;

/// Objects from this size on are worth a line about how far they are.
const LARGE: u64 = 16 << 20;
/// What is read or written at a time.
const PIECE: usize = 1 << 20;

/// Store files, and print a key for each
#[derive(Debug, clap::Args)]
pub(crate) struct PutArgs {
    /// The files; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Seconds after which they are gone [default: as the server says]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    ttl: Option<Duration>,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// Write an object to a file or to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    /// The object's key
    #[arg(value_name = "KEY", value_parser = key)]
    key: Key,

    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Seconds to wait for it if it is not there
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    wait: Duration,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// Evict objects; those that are not there are fine
#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// The objects' keys
    #[arg(value_name = "KEY", required = true, value_parser = key)]
    keys: Vec<Key>,

    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn put(args: &PutArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let connector = args.connect.connect()?;
    let limit = connector.stat()?.object_limit;
    for path in &args.files {
        let content = read(path, limit, context).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::ensure!(
            content.len() as u64 <= limit,
            "{} is too large: the server takes at most {limit} bytes for an object; raise its object limit, or cut the \
             file",
            path.display()
        );
        let stage = stage("storing", content.len() as u64, context);
        let watch = |bytes| stage.iter().for_each(|stage| stage.advance(bytes));
        let key = connector.put_watched(&[&content], PutOptions { ttl: args.ttl }, &watch)?;
        drop(stage);
        output::print(&key.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn get(args: &GetArgs, context: &Context) -> anyhow::Result<ExitCode> {
    let connector = args.connect.connect()?;
    let stage = args.key.size.and_then(|size| stage("fetching", size, context));
    let watch = |bytes| stage.iter().for_each(|stage| stage.advance(bytes));
    let object = connector.get_watched(&args.key, args.wait, &watch)?;
    drop(stage);
    let Some(object) = object else {
        output::error(&format!("there is no object {}", args.key));
        return Ok(ExitCode::FAILURE);
    };
    match &args.out {
        Some(path) => write(path, &object, context).with_context(|| format!("cannot write {}", path.display()))?,
        None => match std::io::stdout().lock().write_all(&object) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.context("cannot write to stdout")?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn rm(args: &RmArgs) -> anyhow::Result<ExitCode> {
    let connector = args.connect.connect()?;
    for key in &args.keys {
        connector.evict(key)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows how far a large transfer is.
fn stage(name: &str, bytes: u64, context: &Context) -> Option<Box<dyn graphmill_ingest::StageObserver>> {
    (bytes >= LARGE).then(|| context.progress.begin(name, Unit::Bytes, Some(bytes)))
}

/// What is in a file; no more than shows that it is over the limit.
fn read(path: &Path, limit: u64, context: &Context) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let enough = limit.saturating_add(1);
    if path == Path::new("-") {
        std::io::stdin().take(enough).read_to_end(&mut content)?;
        return Ok(content);
    }
    let file = File::open(path)?;
    let bytes = file.metadata()?.len().min(enough);
    let mut file = file.take(enough);
    let stage = stage("reading", bytes, context);
    content.reserve_exact(usize::try_from(bytes).unwrap_or(0));
    loop {
        let read = (&mut file).take(PIECE as u64).read_to_end(&mut content)?;
        if read == 0 {
            return Ok(content);
        }
        if let Some(stage) = &stage {
            stage.advance(read as u64);
        }
    }
}

/// Writes a file that appears whole or not at all.
fn write(path: &Path, object: &Object, context: &Context) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".graphmill-").tempfile_in(folder)?;
    let stage = stage("writing", object.len() as u64, context);
    for piece in object.chunks(PIECE) {
        file.write_all(piece)?;
        if let Some(stage) = &stage {
            stage.advance(piece.len() as u64);
        }
    }
    file.persist(path)?;
    Ok(())
}

fn key(text: &str) -> Result<Key, String> {
    text.parse().map_err(|error: graphmill_objects::Error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "write a number of seconds that is not negative".to_owned())
}

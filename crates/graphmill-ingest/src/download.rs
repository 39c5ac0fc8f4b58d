//! A dataset that lies in an object store, brought to a directory of this machine where it can be opened.
//!
//! The manifest comes first: it says which files the wanted partitions need, and how large each must be, with what
//! checksum. What makes the directory safe to share, to stop half-way and to come back to:
//! - A file gets its name only when its size and checksum are the manifest's.
//! - The manifest gets its name last: where there is one, what was first asked for is complete.
//! - Nothing is believed because it is there. Every download checks what it finds and fetches again what is damaged, so
//!   nothing needs to be synced to disk.
//! - Each process writes to files of its own, locked while it lives, and renames them; whoever comes next removes those
//!   that nobody holds any more.
//! - A directory is named after the dataset's content and its manifest, because the same content can be cut in many
//!   ways: another cut is another directory.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use graphmill_graph::{ArrayFile, Checksummer, MANIFEST_FILE, Manifest};
use object_store::{GetResult, ObjectStore, ObjectStoreExt};
use rayon::prelude::*;
use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;
use url::Url;

use crate::store::{self, failed, fetch_error, patiently, without_credentials};
use crate::{Error, Job, Result, Stage, Unit};

/// How many files are fetched at the same time.
const AT_ONCE: usize = 8;
/// How the names of files begin that are not complete yet.
const PARTIAL: &str = ".fetching-";
const BUFFER: usize = 1 << 20;

/// Fetches what opening some partitions of a dataset takes, or all of it when none are named, into a directory below
/// `cache`; says which. What is there already is checked and kept.
///
/// # Errors
/// When there is no dataset at the URL or no such partition, when a file is not what the manifest says, when the disk is
/// full, or when the job was cancelled. What was complete by then stays for the next time, and nothing else does.
pub fn download(url: &str, cache: &Path, partitions: Option<&[u32]>, job: &Job<'_>) -> Result<PathBuf> {
    fetch_dataset(url, cache, partitions, job).map_err(|error| match error {
        Error::Interrupted => Error::DownloadInterrupted,
        error => error,
    })
}

fn fetch_dataset(url: &str, cache: &Path, partitions: Option<&[u32]>, job: &Job<'_>) -> Result<PathBuf> {
    let origin = Origin::open(store::parse(url)?)?;
    let runtime = store::runtime(&origin.url)?;
    let bytes = runtime.block_on(origin.manifest(job))?;
    let manifest = Manifest::parse(&bytes, Path::new(&without_credentials(&origin.file(MANIFEST_FILE))))?;
    let wanted = manifest.files(partitions)?;

    let folder = cache.join(folder_name(&manifest, &bytes));
    fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
    remove_abandoned(&folder)?;
    let mut missing = missing(&folder, wanted, job)?;
    if !missing.is_empty() {
        // The largest first, so that none of them is begun when all others are done.
        missing.sort_by_key(|file| std::cmp::Reverse(file.bytes));
        let name = format!("fetching {} arrays", missing.len());
        let stage = job.stage(&name, Unit::Bytes, Some(missing.iter().map(|file| file.bytes).sum()));
        let fetches = stream::iter(&missing).map(|file| origin.fetch(file, &folder, &stage, job));
        // The first error drops all that are under way, and with them their partial files.
        runtime.block_on(fetches.buffer_unordered(AT_ONCE).try_collect::<()>())?;
    }
    publish_manifest(&folder, &bytes)?;
    Ok(folder)
}

/// Where a dataset comes from.
struct Origin {
    url: Url,
    store: Box<dyn ObjectStore>,
    base: object_store::path::Path,
}

impl Origin {
    fn open(url: Url) -> Result<Self> {
        let (store, base) = store::open(&url)?;
        Ok(Self { url, store, base })
    }

    /// The URL of a file, for messages.
    fn file(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path.split('/'));
        }
        url
    }

    async fn get(&self, path: &str, url: &Url, job: &Job<'_>) -> Result<GetResult> {
        // Parsed, not joined: joining would escape the `%` of escaped names once more.
        let location = object_store::path::Path::parse(format!("{}/{path}", self.base));
        let location = location.map_err(|error| fetch_error(url, &error.into()))?;
        patiently(job, url, self.store.get(&location)).await?.map_err(|error| fetch_error(url, &error))
    }

    /// The bytes of what should be the manifest.
    async fn manifest(&self, job: &Job<'_>) -> Result<Vec<u8>> {
        let url = self.file(MANIFEST_FILE);
        let mut stream = self.get(MANIFEST_FILE, &url, job).await?.into_stream();
        let mut manifest = Vec::new();
        while let Some(bytes) = patiently(job, &url, stream.next()).await? {
            manifest.extend_from_slice(&bytes.map_err(|error| fetch_error(&url, &error))?);
            if manifest.len() as u64 > Manifest::MAX_BYTES {
                return Err(failed(&url, format!("a manifest has at most {} bytes", Manifest::MAX_BYTES)));
            }
        }
        Ok(manifest)
    }

    /// Fetches one file, checks it on the way, and gives it its name.
    async fn fetch(&self, file: &ArrayFile, folder: &Path, stage: &Stage, job: &Job<'_>) -> Result<()> {
        let url = self.file(&file.path);
        let differs = |found: String| {
            failed(&url, format!("{found}; it is damaged, or the dataset was replaced while it was fetched"))
        };
        let object = self.get(&file.path, &url, job).await?;
        if object.meta.size != file.bytes {
            return Err(differs(format!("expected {} bytes, found {}", file.bytes, object.meta.size)));
        }
        let target = folder.join(&file.path);
        let mut partial = create_partial(folder)?;
        let mut checksum = Checksummer::default();
        let mut received = 0;
        let mut stream = object.into_stream();
        while let Some(bytes) = patiently(job, &url, stream.next()).await? {
            let bytes = bytes.map_err(|error| fetch_error(&url, &error))?;
            received += bytes.len() as u64;
            if received > file.bytes {
                break;
            }
            checksum.update(&bytes);
            partial.write_all(&bytes).map_err(Error::io("write", &target))?;
            stage.advance(bytes.len() as u64)?;
        }
        if received != file.bytes {
            return Err(differs(format!("expected {} bytes, got {received}", file.bytes)));
        }
        if checksum.value() != file.checksum {
            return Err(differs(format!("expected checksum {:016x}, found {:016x}", file.checksum, checksum.value())));
        }
        publish(partial, &target)
    }
}

fn folder_name(manifest: &Manifest, bytes: &[u8]) -> String {
    let mut checksum = Checksummer::default();
    checksum.update(bytes);
    format!("{}-{:016x}", manifest.fingerprint, checksum.value())
}

/// The files that are not there, or not as they should be.
fn missing(folder: &Path, files: Vec<ArrayFile>, job: &Job<'_>) -> Result<Vec<ArrayFile>> {
    let has_size = |file: &ArrayFile| {
        fs::metadata(folder.join(&file.path)).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    };
    let (there, mut missing): (Vec<_>, Vec<_>) = files.into_iter().partition(has_size);
    if there.is_empty() {
        return Ok(missing);
    }
    let stage = job.stage("checking cached arrays", Unit::Bytes, Some(there.iter().map(|file| file.bytes).sum()));
    let checked = there.into_par_iter().map(|file| Ok((checksum_of(&folder.join(&file.path), &stage)?, file)));
    for (found, file) in checked.collect::<Result<Vec<_>>>()? {
        if found != file.checksum {
            missing.push(file);
        }
    }
    Ok(missing)
}

fn checksum_of(path: &Path, stage: &Stage) -> Result<u64> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut checksum = Checksummer::default();
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer).map_err(Error::io("read", path))? {
            0 => return Ok(checksum.value()),
            count => {
                checksum.update(&buffer[..count]);
                stage.advance(count as u64)?;
            }
        }
    }
}

fn publish_manifest(folder: &Path, bytes: &[u8]) -> Result<()> {
    let target = folder.join(MANIFEST_FILE);
    if fs::read(&target).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    let mut partial = create_partial(folder)?;
    partial.write_all(bytes).map_err(Error::io("write", &target))?;
    publish(partial, &target)
}

fn publish(partial: NamedTempFile, target: &Path) -> Result<()> {
    if let Some(parent) = target.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    let renamed = partial.persist(target).map_err(|failed| failed.error);
    renamed.map(drop).map_err(Error::io("rename the fetched file to", target))
}

/// A file for what is not complete yet; it goes away unless it is published.
fn create_partial(folder: &Path) -> Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // As any new file: what the user's mask leaves of it.
    builder.prefix(PARTIAL).permissions(Permissions::from_mode(0o666));
    loop {
        let partial = builder.tempfile_in(folder).map_err(Error::io("create a file in", folder))?;
        // Where the file system knows no locks, nobody gets one, and what was abandoned stays.
        let _ = flock(partial.as_file(), FlockOperation::LockExclusive);
        let metadata = partial.as_file().metadata().map_err(Error::io("read the size of", partial.path()))?;
        // Before it was locked, another process may have removed it as abandoned.
        if metadata.nlink() > 0 {
            return Ok(partial);
        }
    }
}

/// Removes what processes left behind that were killed.
fn remove_abandoned(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        if !entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            continue;
        }
        // What cannot be opened, locked or removed is in use, has its name by now, or is somebody else's.
        let Ok(file) = File::options().write(true).open(entry.path()) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

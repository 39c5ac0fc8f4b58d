//! Records in a file: a log of changes.
//!
//! ```text
//! "GMRDZV" 1 0                              8 bytes
//! length (u32)  checksum (u64)  payload     one write each
//! ```
//! A payload is a Protobuf message, `KeptChanges`; the checksum is its XXH3. Everything is little-endian. A write is synced before
//! it counts. When most of the file is history it is written anew beside the old one and renamed over it. A last write that was cut
//! off by a crash was never acknowledged and is left out; any other damage is an error.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use graphmill_wire::proto::{KeptChange, KeptChanges};
use prost::Message as _;
use xxhash_rust::xxh3::xxh3_64;

use super::{KeepError, Token, Written, apply};
use crate::records::{Changes, Records};

const MAGIC: [u8; 8] = *b"GMRDZV\x01\0";
/// Length and checksum.
const HEAD: usize = 12;
/// A file is written anew when it has so many bytes, and four times what it holds.
const COMPACT: u64 = 1 << 20;
/// The longest write that is believed.
const LONGEST: usize = 64 << 20;

/// Keeps records in a file.
#[derive(Debug)]
pub struct FileKeeper(Option<Log>);

impl FileKeeper {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// When it cannot be opened, another process has it, or it is damaged.
    pub async fn open(path: PathBuf) -> Result<Self, KeepError> {
        aside(move || Log::open(&path).map(|log| Self(Some(log)))).await
    }

    pub(super) fn read(&self) -> Option<(Records, Token)> {
        self.0.as_ref().and_then(Log::read)
    }

    pub(super) async fn write(&mut self, changes: Changes, token: Option<Token>) -> Result<Written, KeepError> {
        // Gone if a write was given up half-way: what it did to the file is not known.
        let mut log = self.0.take().ok_or(KeepError::Stale)?;
        let (log, written) = aside(move || {
            let written = log.write(&changes, token);
            Ok((log, written))
        })
        .await?;
        self.0 = Some(log);
        written
    }
}

/// Does what waits for a disk where it holds nobody up.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeepError> + Send + 'static,
) -> Result<T, KeepError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(KeepError::Stale))
}

/// The file, which is held locked.
#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    records: Records,
    token: Token,
    bytes: u64,
}

impl Log {
    fn open(path: &Path) -> Result<Self, KeepError> {
        let failed = |doing| move |source| KeepError::Io { doing, path: path.to_owned(), source };
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = open.map_err(failed("open"))?;
        lock(&file).map_err(failed("lock"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let mut keeper = Self { path: path.to_owned(), file, records: Records::new(), token: 0, bytes: 0 };
        if bytes.is_empty() {
            keeper.append(&MAGIC)?;
            return Ok(keeper);
        }
        keeper.replay(&bytes)?;
        Ok(keeper)
    }

    fn read(&self) -> Option<(Records, Token)> {
        (self.token > 0).then(|| (self.records.clone(), self.token))
    }

    fn write(&mut self, changes: &Changes, token: Option<Token>) -> Result<Written, KeepError> {
        if token.unwrap_or_default() != self.token {
            return Ok(Written::Stale(self.read()));
        }
        let before = self.bytes;
        if let Err(error) = self.append(&frame(changes)) {
            // Half a write must not stay in the way of the next.
            let _ = self.file.set_len(before);
            let _ = self.file.seek(SeekFrom::Start(before));
            self.bytes = before;
            return Err(error);
        }
        apply(&mut self.records, changes);
        self.token += 1;
        let held: usize = self.records.iter().map(|(key, value)| key.len() + value.len() + HEAD).sum();
        if self.bytes > COMPACT && self.bytes > 4 * held as u64 {
            self.compact()?;
        }
        Ok(Written::Set(self.token))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), KeepError> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        written.map_err(|source| self.failed("write", source))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes what is held to a new file, which takes the place of the old one.
    fn compact(&mut self) -> Result<(), KeepError> {
        let all: Changes = self.records.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        let bytes = [&MAGIC[..], &frame(&all)].concat();
        let beside = self.path.with_extension("new");
        let replace = || -> io::Result<File> {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&beside)?;
            lock(&file)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        };
        self.file = replace().map_err(|source| self.failed("write anew", source))?;
        self.bytes = bytes.len() as u64;
        Ok(())
    }

    fn replay(&mut self, bytes: &[u8]) -> Result<(), KeepError> {
        let damaged = |at: usize, reason: &str| KeepError::Damaged {
            path: self.path.clone(),
            at: at as u64,
            reason: reason.to_owned(),
        };
        if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
            return Err(damaged(0, "it does not begin like the state of a rendezvous"));
        }
        let mut at = MAGIC.len();
        while at < bytes.len() {
            let Some((payload, checksum)) = next(&bytes[at..]) else {
                // Cut off: the crash came before it was acknowledged.
                break;
            };
            let end = at + HEAD + payload.len();
            let changes = (xxh3_64(payload) == checksum).then(|| KeptChanges::decode(payload).ok()).flatten();
            let Some(changes) = changes else {
                if end == bytes.len() {
                    break;
                }
                return Err(damaged(at, "a write does not have its checksum"));
            };
            let changes = changes.changes.into_iter().map(|change| (change.key, change.value)).collect();
            apply(&mut self.records, &changes);
            self.token += 1;
            at = end;
        }
        self.bytes = at as u64;
        let cut = self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
        cut.map_err(|source| self.failed("cut", source))?;
        Ok(())
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> KeepError {
        KeepError::Io { doing, path: self.path.clone(), source }
    }
}

/// Locks a file against other processes.
fn lock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?)
}

/// A write as it stands in the file.
fn frame(changes: &Changes) -> Vec<u8> {
    let change = |(key, value): &(String, Option<Vec<u8>>)| KeptChange { key: key.clone(), value: value.clone() };
    let payload = KeptChanges { changes: changes.iter().map(change).collect() }.encode_to_vec();
    let mut bytes = Vec::with_capacity(HEAD + payload.len());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&xxh3_64(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

/// The payload and checksum of the next write, if all of it is there.
fn next(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    let checksum = u64::from_le_bytes(*bytes.get(4..)?.first_chunk()?);
    let payload = bytes.get(HEAD..HEAD.checked_add(length)?)?;
    (length <= LONGEST).then_some((payload, checksum))
}

//! Records in a file: a log of changes.
//!
//! ```text
//! "GMRDZV" 2 0                                             8 bytes
//! length (u32)  its check (u32)  checksum (u64)  payload   one write each
//! ```
//! A payload is a Protobuf message, `KeptChanges`; the checksum is its XXH3, and the check of the length the lower half of the
//! XXH3 of its four bytes. Everything is little-endian. A write is synced before it counts. When most of the file is history it
//! is written anew beside the old one and renamed over it.
//!
//! What a crash leaves of a last write was never acknowledged, and is left out: a write that goes on past the end of the file,
//! one at the end of it whose payload is not as it was, or zeros. Any other damage is an error. A length is believed only with
//! its check, so a wrong one never passes for a write that was cut off.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use graphmill_wire::proto::{KeptChange, KeptChanges};
use prost::Message as _;
use xxhash_rust::xxh3::xxh3_64;

use super::{KeepError, Token, Written, apply};
use crate::records::{Changes, Records};

const MAGIC: [u8; 8] = *b"GMRDZV\x02\0";
/// Length, its check, and the checksum.
const HEAD: usize = 16;
/// A file is written anew when it has so many bytes, and four times what it holds.
const COMPACT: u64 = 1 << 20;

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

    /// Removes the file, which is locked until it is gone.
    pub(super) async fn forget(self) -> Result<(), KeepError> {
        let Some(log) = self.0 else { return Ok(()) };
        aside(move || std::fs::remove_file(&log.path).map_err(|source| log.failed("remove", source))).await
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
    /// How many bytes it has when it is written anew, at the earliest.
    compact_at: u64,
}

impl Log {
    fn open(path: &Path) -> Result<Self, KeepError> {
        let failed = |doing| move |source| KeepError::Io { doing, path: path.to_owned(), source };
        let mut file = open(path).map_err(failed("open"))?;
        lock(&file).map_err(failed("lock"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read"))?;
        let replayed = match replay(&bytes) {
            Ok(replayed) => replayed,
            Err(damage) => {
                let Damage { at, reason } = damage;
                return Err(KeepError::Damaged { path: path.to_owned(), at, reason });
            }
        };
        let cut_off = bytes.len() as u64 - replayed.bytes;
        if cut_off > 0 {
            let (path, at) = (path.display(), replayed.bytes);
            tracing::warn!(%path, at, bytes = cut_off, "the last write to a run's file was cut off; it is left out");
        }
        let Replayed { records, token, bytes } = replayed;
        let mut log = Self { path: path.to_owned(), file, records, token, bytes, compact_at: COMPACT };
        let cut = log.file.set_len(bytes).and_then(|()| log.file.seek(SeekFrom::Start(bytes)));
        cut.map_err(|source| log.failed("cut", source))?;
        if bytes == 0 {
            log.append(&MAGIC)?;
            sync_folder(path).map_err(failed("sync the folder of"))?;
        }
        Ok(log)
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
        if self.bytes > self.compact_at && self.bytes > 4 * held as u64 {
            self.compact_at = match self.compact() {
                Ok(()) => COMPACT,
                // What was written is kept all the same; there may be more room later.
                Err(error) => {
                    tracing::warn!(%error, "a run's file keeps its history");
                    2 * self.bytes
                }
            };
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
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let make = || -> io::Result<File> {
            let mut file = open(Path::new(&beside))?;
            lock(&file)?;
            file.set_len(0)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&beside, &self.path)?;
            Ok(file)
        };
        self.file = make().map_err(|source| {
            let _ = std::fs::remove_file(&beside);
            self.failed("write anew", source)
        })?;
        self.bytes = bytes.len() as u64;
        // Either file has everything, whichever is there after a crash.
        sync_folder(&self.path).map_err(|source| self.failed("sync the folder of", source))
    }

    fn failed(&self, doing: &'static str, source: io::Error) -> KeepError {
        KeepError::Io { doing, path: self.path.clone(), source }
    }
}

/// What a file holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The records.
    pub records: Records,
    /// How many writes there are.
    pub token: Token,
    /// Where the last of them ends; what follows was cut off by a crash.
    pub bytes: u64,
}

/// Where and how bytes are not those of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Damage {
    /// The first byte that makes no sense.
    pub at: u64,
    /// Why.
    pub reason: String,
}

/// Reads the bytes of a file: every write in turn.
///
/// # Errors
/// When they are damaged in a way that no crash explains.
pub fn replay(bytes: &[u8]) -> Result<Replayed, Damage> {
    let damaged = |at: usize, reason: &str| Damage { at: at as u64, reason: reason.to_owned() };
    let mut replayed = Replayed::default();
    if MAGIC.starts_with(bytes) && bytes.len() < MAGIC.len() {
        // Made, and then nothing: the crash, or the end of the disk, came before the first write.
        return Ok(replayed);
    }
    if !bytes.starts_with(&MAGIC) {
        return Err(damaged(0, "it does not begin like the state of a rendezvous"));
    }
    let mut at = MAGIC.len();
    while let Some(Head { length, checksum }) = Head::read(&bytes[at..]).map_err(|reason| damaged(at, reason))? {
        // What goes on past the end was not acknowledged before the crash.
        let Some(payload) = bytes[at + HEAD..].get(..length) else { break };
        let end = at + HEAD + length;
        let changes = (xxh3_64(payload) == checksum).then(|| KeptChanges::decode(payload).ok()).flatten();
        let Some(changes) = changes else {
            if end == bytes.len() {
                break;
            }
            return Err(damaged(at, "a write does not have its checksum"));
        };
        let changes = changes.changes.into_iter().map(|change| (change.key, change.value)).collect();
        apply(&mut replayed.records, &changes);
        replayed.token += 1;
        at = end;
    }
    replayed.bytes = at as u64;
    Ok(replayed)
}

/// What stands before the payload of a write.
struct Head {
    length: usize,
    checksum: u64,
}

impl Head {
    /// The next head, if all of it is there.
    fn read(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let Some((check, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let Some(checksum) = rest.first_chunk::<8>() else { return Ok(None) };
        let (length, check, checksum) = (*length, u32::from_le_bytes(*check), u64::from_le_bytes(*checksum));
        if check == check_of(length) {
            return Ok(Some(Self { length: u32::from_le_bytes(length) as usize, checksum }));
        }
        // A file can have grown when its bytes had not come yet.
        if bytes.iter().all(|byte| *byte == 0) {
            Ok(None)
        } else {
            Err("the length of a write does not have its check")
        }
    }
}

fn check_of(length: [u8; 4]) -> u32 {
    xxh3_64(&length) as u32
}

/// Opens a file as it is, or makes it. Values may be secrets, so nobody else reads it.
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Makes the name of a file last.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
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
    let length = (payload.len() as u32).to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&check_of(length).to_le_bytes());
    bytes.extend_from_slice(&xxh3_64(&payload).to_le_bytes());
    bytes.extend_from_slice(&payload);
    bytes
}

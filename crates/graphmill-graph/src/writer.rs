//! The one door to make a dataset: write arrays into a temporary directory, then publish it with a rename.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytemuck::Pod;
use rustix::fs::{FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::array::Array;
use crate::checksum::{Checksummer, checksum};
use crate::manifest::{MANIFEST_FILE, Manifest, PartitionArrays, StoredArray};
use crate::path;
use crate::region::{Region, RegionMut};
use crate::{Dataset, Error, IdWidth, OpenOptions, Result};

const LOCK_FILE: &str = "lock";
const BUFFER: usize = 1 << 20;

/// What to do when the target exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replace {
    /// Refuse.
    No,
    /// Put the new dataset in its place, if what stands there is a dataset.
    Yes,
}

/// The folder an array belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The partition books.
    Book,
    /// A partition.
    Part(u32),
}

/// Writes one dataset. Dropping it before [`Self::finish`] leaves nothing behind; so does the next writer of the same
/// target after a kill.
#[derive(Debug)]
pub struct DatasetWriter {
    target: PathBuf,
    /// The directory of both.
    parent: PathBuf,
    temporary: PathBuf,
    replace: Replace,
    written: Written,
    /// Held while writing, so that others can tell a living writer's directory from a dead one's.
    lock: Option<File>,
}

type Written = Arc<Mutex<Vec<(Place, String, StoredArray)>>>;

impl DatasetWriter {
    /// Begins a dataset at `target`, which appears there only when it is complete.
    pub fn create(target: &Path, replace: Replace) -> Result<Self> {
        check_target(target, replace)?;
        let name = target
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| Error::invalid(format!("{} does not end in a name of UTF-8 text", target.display())))?;
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        let prefix = format!(".{name}.writing-");
        remove_dead_writers(parent, &prefix);

        let (temporary, lock) = claim(parent, &prefix)?;
        let (target, parent) = (target.to_owned(), parent.to_owned());
        Ok(Self { target, parent, temporary, replace, written: Arc::default(), lock: Some(lock) })
    }

    /// A directory for whatever the maker of the dataset must keep on disk meanwhile; it goes away with the writer.
    pub fn scratch(&self) -> Result<PathBuf> {
        let path = self.temporary.join("scratch");
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(path)
    }

    /// Begins an array that is written from front to back.
    pub fn array(&self, place: Place, path: &str) -> Result<ArrayWriter> {
        let (file, full) = self.create_file(place, path)?;
        Ok(ArrayWriter {
            file,
            full,
            buffer: Vec::with_capacity(BUFFER),
            checksum: Checksummer::default(),
            bytes: 0,
            entry: (place, path.to_owned(), Arc::clone(&self.written)),
        })
    }

    /// Begins an array of known size whose rows arrive in any order; unwritten bytes are zero.
    pub fn placed_array(&self, place: Place, path: &str, bytes: u64) -> Result<PlacedWriter> {
        let (file, full) = self.create_file(place, path)?;
        let region = RegionMut::create(&file, &full, bytes)?;
        Ok(PlacedWriter { file, full, region, entry: (place, path.to_owned(), Arc::clone(&self.written)) })
    }

    /// Maps an array that was finished, for makers that go through what they wrote.
    ///
    /// # Errors
    /// When no such array was finished.
    pub fn finished<T: Pod>(&self, place: Place, path: &str) -> Result<Array<T>> {
        let written = self.written.lock().map_err(|_| poisoned())?;
        let stored = written.iter().find(|(at, name, _)| *at == place && name == path).map(|(_, _, stored)| *stored);
        let stored = stored.ok_or_else(|| Error::invalid(format!("{path} is not written yet")))?;
        map_elements(&self.full_path(place, path), stored.bytes)
    }

    /// Checks what was written against the manifest, computes the fingerprint and publishes the dataset.
    pub fn finish(self, manifest: Manifest) -> Result<Manifest> {
        self.finish_if(manifest, |_| Ok(()))
    }

    /// Like [`Self::finish`], but asks once more before the dataset is published, when all that takes time is done.
    pub fn finish_if<E: From<Error>>(
        mut self,
        mut manifest: Manifest,
        accept: impl FnOnce(crate::Fingerprint) -> std::result::Result<(), E>,
    ) -> std::result::Result<Manifest, E> {
        manifest.fingerprint = self.complete(&mut manifest)?;
        accept(manifest.fingerprint)?;
        self.write_manifest(&manifest)?;
        self.publish()?;
        Ok(manifest)
    }

    /// Enters all arrays into the manifest and computes the fingerprint.
    fn complete(&self, manifest: &mut Manifest) -> Result<crate::Fingerprint> {
        let scratch = self.temporary.join("scratch");
        if scratch.exists() {
            fs::remove_dir_all(&scratch).map_err(Error::io("remove", &scratch))?;
        }
        manifest.node_types.sort_by(|a, b| a.name.cmp(&b.name));
        manifest.edge_types.sort_by(|a, b| a.name.cmp(&b.name));
        manifest.partitions = vec![PartitionArrays::default(); manifest.parts as usize];
        for (place, path, stored) in self.written.lock().map_err(|_| poisoned())?.drain(..) {
            let arrays = match place {
                Place::Book => &mut manifest.book_arrays,
                Place::Part(part) => match manifest.partitions.get_mut(part as usize) {
                    Some(partition) => &mut partition.arrays,
                    None => {
                        return Err(Error::invalid(format!("{path} is in partition {part}, which is not declared")));
                    }
                },
            };
            if arrays.insert(path.clone(), stored).is_some() {
                return Err(Error::invalid(format!("{path} was written twice")));
            }
        }
        self.check(manifest)
    }

    fn check(&self, manifest: &Manifest) -> Result<crate::Fingerprint> {
        let manifest = Manifest::parse(&manifest.render(), &self.target.join(MANIFEST_FILE))
            .map_err(|error| Error::invalid(error.to_string()))?;
        Dataset::from_manifest(&self.temporary, manifest, &OpenOptions::default())?.compute_fingerprint()
    }

    fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        let path = self.temporary.join(MANIFEST_FILE);
        let mut file = File::create_new(&path).map_err(Error::io("create", &path))?;
        file.write_all(&manifest.render()).map_err(Error::io("write", &path))?;
        file.sync_all().map_err(Error::io("sync", &path))
    }

    fn publish(&mut self) -> Result<()> {
        sync_folders(&self.temporary)?;
        check_target(&self.target, self.replace)?;
        // In exchange, the old dataset takes the temporary name and goes with this writer.
        let flags = if self.target.exists() { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
        let cwd = rustix::fs::CWD;
        let renamed = match renameat_with(cwd, &self.temporary, cwd, &self.target, flags) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.rename_plainly(),
            renamed => renamed.map_err(Into::into),
        };
        renamed.map_err(Error::io("rename the finished dataset to", &self.target))?;
        // Only now: a writer's directory has its lock for as long as it has anything. An empty file left in a published
        // dataset harms nobody.
        let _ = fs::remove_file(self.target.join(LOCK_FILE));
        sync_folder(&self.target)?;
        sync_folder(&self.parent)
    }

    /// For file systems that know no exchange, some network ones: an old dataset is moved away first, so for a moment
    /// there is none.
    fn rename_plainly(&self) -> std::io::Result<()> {
        let mut parked = self.temporary.clone().into_os_string();
        parked.push("-replaced");
        if self.target.exists() {
            fs::rename(&self.target, &parked)?;
        }
        fs::rename(&self.temporary, &self.target)?;
        if Path::new(&parked).exists() {
            // The new dataset is in place; what is left of the old one harms nobody.
            let _ = fs::remove_dir_all(&parked);
        }
        Ok(())
    }

    fn create_file(&self, place: Place, path: &str) -> Result<(File, PathBuf)> {
        let full = self.full_path(place, path);
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&full).map_err(Error::io("create", &full))?;
        Ok((file, full))
    }

    fn full_path(&self, place: Place, path: &str) -> PathBuf {
        let folder = match place {
            Place::Book => "book".to_owned(),
            Place::Part(partition) => path::part(partition),
        };
        self.temporary.join(folder).join(path)
    }
}

impl Drop for DatasetWriter {
    fn drop(&mut self) {
        // Nobody can act on a failure here; the next writer of the same target tries again.
        let _ = fs::remove_dir_all(&self.temporary);
        drop(self.lock.take());
    }
}

/// An array being written from front to back.
pub struct ArrayWriter {
    file: File,
    full: PathBuf,
    buffer: Vec<u8>,
    checksum: Checksummer,
    bytes: u64,
    entry: (Place, String, Written),
}

impl ArrayWriter {
    /// Appends little-endian bytes; single elements are cheap.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER {
            self.flush()?;
        }
        if bytes.len() >= BUFFER {
            return self.write_through(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends one id in its stored width.
    #[inline]
    pub fn write_id(&mut self, width: IdWidth, id: u64) -> Result<()> {
        match width {
            IdWidth::U32 => self.write(&(id as u32).to_le_bytes()),
            IdWidth::U64 => self.write(&id.to_le_bytes()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let written = self.write_through(&buffer);
        buffer.clear();
        self.buffer = buffer;
        written
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(Error::io("write", &self.full))
    }

    /// Ends the array and maps it for reading, for makers that look things up in what they wrote.
    pub fn finish_mapped<T: Pod>(self) -> Result<Array<T>> {
        let (full, bytes) = (self.full.clone(), self.bytes + self.buffer.len() as u64);
        self.finish()?;
        map_elements(&full, bytes)
    }

    /// Ends the array; it is on disk when this returns.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.file.sync_all().map_err(Error::io("sync", &self.full))?;
        record(self.entry, StoredArray { bytes: self.bytes, xxh3: self.checksum.value() })
    }
}

/// An array whose rows are put in their places in any order.
pub struct PlacedWriter {
    file: File,
    full: PathBuf,
    region: RegionMut,
    entry: (Place, String, Written),
}

impl PlacedWriter {
    /// The array's bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.region.bytes_mut()
    }

    /// Ends the array; it is on disk when this returns.
    pub fn finish(self) -> Result<()> {
        let bytes = self.region.bytes();
        let stored = StoredArray { bytes: bytes.len() as u64, xxh3: checksum(bytes) };
        drop(self.region);
        self.file.sync_all().map_err(Error::io("sync", &self.full))?;
        record(self.entry, stored)
    }
}

fn map_elements<T: Pod>(full: &Path, bytes: u64) -> Result<Array<T>> {
    if !bytes.is_multiple_of(size_of::<T>() as u64) {
        return Err(Error::invalid(format!("{} has no whole number of elements", full.display())));
    }
    Ok(Array::new(Region::map(full, bytes)?))
}

fn record((place, path, written): (Place, String, Written), stored: StoredArray) -> Result<()> {
    written.lock().map_err(|_| poisoned())?.push((place, path, stored));
    Ok(())
}

fn poisoned() -> Error {
    Error::invalid("another thread of this writer panicked")
}

/// A target may be absent, or a dataset that is to be replaced; anything else is never touched.
fn check_target(target: &Path, replace: Replace) -> Result<()> {
    if target.symlink_metadata().is_err() {
        return Ok(());
    }
    match replace {
        Replace::No => Err(Error::Exists { path: target.to_owned() }),
        Replace::Yes => Manifest::check_format(target),
    }
}

/// Makes a directory that is ours alone and locks it.
fn claim(parent: &Path, prefix: &str) -> Result<(PathBuf, File)> {
    // Never the same name twice in a process: a writer that is done removes what stands under its name.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let attempt = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = parent.join(format!("{prefix}{}-{attempt}", std::process::id()));
        match fs::create_dir(&temporary) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(Error::io("create", &temporary)(error)),
        }
        let path = temporary.join(LOCK_FILE);
        let lock = File::create_new(&path).map_err(Error::io("create", &path))?;
        // Where another writer was faster to lock it, it takes this directory for a dead one's and removes it.
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if path.exists() => return Ok((temporary, lock)),
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
        }
    }
}

/// Removes what killed writers of the same target left behind. A directory whose lock is held belongs to a living
/// writer. One without a lock is a replaced dataset, unless it is empty: then it may be about to get one, and is left
/// until it is an hour old.
fn remove_dead_writers(parent: &Path, prefix: &str) {
    const GRACE: std::time::Duration = std::time::Duration::from_secs(3600);
    let Ok(entries) = fs::read_dir(parent) else { return };
    // Only names that a writer gives: the process and a number.
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(prefix)).unwrap_or_default();
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        rest.split_once('-').is_some_and(|(process, number)| digits(process) && digits(number))
    };
    for entry in entries.flatten().filter(is_ours) {
        let Ok(mut content) = fs::read_dir(entry.path()) else { continue };
        // Looked at before the lock: what is not empty has had its lock.
        let empty = content.next().is_none();
        // Held until the directory is gone, so that its maker cannot lock it in between.
        let lock = File::open(entry.path().join(LOCK_FILE));
        let dead = match &lock {
            Ok(lock) => flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            Err(error) if error.kind() != ErrorKind::NotFound => false,
            Err(_) if empty => {
                let modified = entry.metadata().and_then(|metadata| metadata.modified());
                modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > GRACE))
            }
            Err(_) => true,
        };
        if dead {
            // Best effort: a directory that cannot be removed does not stop this writer.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn sync_folders(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            sync_folders(&entry.path())?;
        }
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|file| file.sync_all()).map_err(Error::io("sync", folder))
}

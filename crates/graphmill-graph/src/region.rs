//! The bytes of one array, mapped from its file or loaded into RAM.
//!
//! Mapping a file is unsafe because someone else could change it while we hold a `&[u8]`. Datasets are immutable once renamed
//! into place and a writer never touches a published file, so the bytes behind a mapping do not change. Truncating one by hand
//! ends the process with SIGBUS, as for every mapped file, unless it is guarded (`guard.rs`).
#![allow(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rayon::prelude::*;

use crate::checksum::checksum;
use crate::guard::{self, Watched};
use crate::{Error, Result};

/// Immutable bytes, page-aligned.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// First, so that a file is watched for no longer than it is mapped.
    _watched: Option<Watched>,
    memory: Option<Mmap>,
}

impl Region {
    /// Maps a file of exactly `len` bytes; reads nothing.
    pub(crate) fn map(path: &Path, len: u64) -> Result<Self> {
        let file = open_exact(path, len)?;
        if len == 0 {
            return Ok(Self::default());
        }
        // SAFETY: published dataset files are never written again (see the module's note).
        let map = unsafe { MmapOptions::new().len(len as usize).map(&file) }.map_err(Error::io("map", path))?;
        Ok(Self { _watched: guard::watch(path, &map), memory: Some(map) })
    }

    /// Reads a file of exactly `len` bytes into huge-page-advised memory and checks its checksum.
    pub(crate) fn load(path: &Path, len: u64, expected: u64) -> Result<Self> {
        const CHUNK: usize = 16 << 20;
        let file = open_exact(path, len)?;
        if len == 0 {
            return check(path, expected, checksum(&[])).map(|()| Self::default());
        }
        let mut memory = MmapMut::map_anon(len as usize).map_err(Error::io("find memory for", path))?;
        // Advice only: without huge pages everything works, some 1.5 times slower.
        let _ = memory.advise(Advice::HugePage);
        memory.par_chunks_mut(CHUNK).enumerate().try_for_each(|(index, chunk)| {
            file.read_exact_at(chunk, (index * CHUNK) as u64).map_err(Error::io("read", path))
        })?;
        check(path, expected, checksum(&memory))?;
        let memory = memory.make_read_only().map_err(Error::io("protect the memory of", path))?;
        Ok(Self { _watched: None, memory: Some(memory) })
    }

    /// Huge-page-advised memory of `len` bytes that a function fills; none if there is no memory for it.
    pub(crate) fn fill(len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Self> {
        if len == 0 {
            return Some(Self::default());
        }
        let mut memory = MmapMut::map_anon(len).ok()?;
        let _ = memory.advise(Advice::HugePage);
        fill(&mut memory);
        Some(Self { _watched: None, memory: Some(memory.make_read_only().ok()?) })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_else(|| bytemuck::cast_slice(EMPTY))
    }
}

/// Nothing, aligned for every element type: an empty array is cast like any other.
const EMPTY: &[u128] = &[];

/// Compares a checksum with what the manifest states.
pub(crate) fn check(path: &Path, expected: u64, found: u64) -> Result<()> {
    if expected == found { Ok(()) } else { Err(Error::Checksum { path: path.to_owned(), expected, found }) }
}

/// Opens a file that has exactly `len` bytes.
pub(crate) fn open_exact(path: &Path, len: u64) -> Result<File> {
    let file = File::open(path).map_err(Error::io("open", path))?;
    let found = file.metadata().map_err(Error::io("read the size of", path))?.len();
    if found == len { Ok(file) } else { Err(Error::Length { path: path.to_owned(), expected: len, found }) }
}

/// Writable bytes of a file that is being made, for rows that arrive in any order.
pub(crate) struct RegionMut(Option<MmapMut>);

impl RegionMut {
    /// Maps a new file of `len` zero bytes.
    pub(crate) fn create(file: &File, path: &Path, len: u64) -> Result<Self> {
        // Reserves the blocks: on a full disk this is an error here, not a SIGBUS at some later store. File systems that
        // cannot reserve (some network ones) go without.
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, len.max(1)) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(Error::io("reserve space for", path)(errno.into())),
        }
        file.set_len(len).map_err(Error::io("reserve space for", path))?;
        if len == 0 {
            return Ok(Self(None));
        }
        // SAFETY: the file is in the writer's own temporary directory, which no one else opens before it is published.
        let map = unsafe { MmapOptions::new().len(len as usize).map_mut(file) }.map_err(Error::io("map", path))?;
        Ok(Self(Some(map)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_else(|| bytemuck::cast_slice_mut::<u128, u8>(&mut []))
    }
}

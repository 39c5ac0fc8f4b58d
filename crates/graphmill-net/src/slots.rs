//! Memory that a server writes and a client on the same host reads, without a copy through a socket.
//!
//! A slot is a memfd. The server maps it writable and then seals it, so that nobody else can write to it and nobody at all
//! can cut it short. The client maps it privately and writable: what its user edits becomes a page of its own.
//!
//! Mapping a file is unsafe because its bytes may change, or vanish, under a reference. Vanish they cannot: both sides map
//! only what is sealed against shrinking. Change they do only by the protocol (`docs/wire.md`): the server writes a slot that
//! the client does not hold. A server that breaks that rule shows its own client garbage, which is bytes all the same; the
//! client talks over shared memory only to a server of the same user.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create};
use rustix::io::{Errno, pread};

use crate::mapping::{HUGE_PAGE, Mapping, use_huge_pages};
use crate::pagemap::{self, PageMap};

/// A slot as its server has it.
#[derive(Debug)]
pub struct SharedSlot {
    memory: Mapping,
    file: OwnedFd,
}

impl SharedSlot {
    /// A new slot of zeros.
    ///
    /// # Errors
    /// When the system has no memory or descriptor left.
    pub fn create(bytes: usize) -> io::Result<Self> {
        Self::seal(memory("graphmill-slot", bytes)?.into(), bytes)
    }

    /// A new slot that begins with all parts, one after the other.
    ///
    /// # Errors
    /// When the system has no memory or descriptor left, or the parts are larger than the slot.
    pub fn filled(bytes: usize, parts: &[&[u8]]) -> io::Result<Self> {
        // Written before it is mapped: a lack of memory is an error then, and not a signal.
        let mut file = memory("graphmill-slot", bytes)?;
        for part in parts {
            file.write_all(part)?;
        }
        if file.stream_position()? > bytes as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::seal(file.into(), bytes)
    }

    /// A file that nobody else has yet, as a slot of a size.
    fn seal(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: nobody else has the file yet, which was made as large, and after the seals below nobody can write to it but
        // through this mapping, or cut it short.
        let memory = unsafe { Mapping::shared(&file, bytes) }?;
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { memory, file })
    }

    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// What it holds, to be written. Only while no client has it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// What a client needs to map it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The seals of memory that nobody can change any more.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW);

/// Memory that does not change while somebody has it: sealed for ever, or a slot that its server writes again when it has it
/// back.
#[derive(Debug)]
pub struct SealedMemory {
    file: OwnedFd,
    bytes: u64,
}

impl SealedMemory {
    /// Memory that holds all parts one after the other.
    ///
    /// # Errors
    /// When the system has no memory or descriptor left.
    pub fn write(parts: &[&[u8]]) -> io::Result<Self> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        // Written and not mapped, as above.
        let mut file = memory("graphmill-object", bytes)?;
        for part in parts {
            file.write_all(part)?;
        }
        fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
        Ok(Self { file: file.into(), bytes: bytes as u64 })
    }

    /// Memory that was received, of exactly so many bytes.
    ///
    /// # Errors
    /// When it could still change, or has another size.
    pub fn check(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        match fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SEALS) => {}
            Ok(seals) => return Err(refused(format!("memory has the seals {seals:?}, expected at least {SEALS:?}"))),
            Err(error) => return Err(refused(format!("memory is not a file that can be sealed: {error}"))),
        }
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if size != bytes {
            return Err(refused(format!("memory has {size} bytes, expected {bytes}")));
        }
        check_pages(&file)?;
        Ok(Self { file, bytes })
    }

    /// Memory that a server lent, with so many bytes: sealed for ever and of that size, or a slot of at least that size.
    ///
    /// # Errors
    /// When it is neither.
    pub fn lent(file: OwnedFd, bytes: u64) -> io::Result<Self> {
        check_slot(&file, bytes)?;
        Ok(Self { file, bytes })
    }

    /// All of the memory that another process writes again and again, which can neither shrink nor grow.
    ///
    /// # Errors
    /// When it is something else.
    pub fn lent_whole(file: OwnedFd) -> io::Result<Self> {
        let bytes = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        check_slot(&file, bytes)?;
        if !fcntl_get_seals(&file)?.contains(SealFlags::GROW) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "memory can grow"));
        }
        Ok(Self { file, bytes })
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// What somebody else needs to map it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Maps it here.
    ///
    /// # Errors
    /// When the system has no address space left, or the process has as many mappings as it may.
    pub fn map(&self) -> io::Result<MappedSlot> {
        // SAFETY: the file was found, or made, as large as the mapping, and sealed so that it stays as it is, or so that its
        // server alone can write it, which does so only while nobody holds it (see the module's note).
        let memory = unsafe { Mapping::private(&self.file, self.bytes as usize) }?;
        Ok(MappedSlot { memory })
    }

    /// A copy of its bytes, for which nothing is mapped.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(self.bytes as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
        while (copy.len() as u64) < self.bytes {
            let offset = copy.len() as u64;
            match pread(&self.file, spare_capacity(&mut copy), offset) {
                // Sealed against shrinking, it has as many as it had.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        copy.truncate(self.bytes as usize);
        Ok(copy)
    }
}

/// A slot as its client has it.
#[derive(Debug)]
pub struct MappedSlot {
    memory: Mapping,
}

impl MappedSlot {
    /// Maps the first `bytes` of a slot that was received.
    ///
    /// # Errors
    /// When the file is smaller, or not sealed: it could change or be cut short while it is mapped, which would end the
    /// process.
    pub fn map(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        check_slot(&file, bytes as u64)?;
        // SAFETY: the file is as large as the mapping and can neither shrink nor be written by whom the server gave it to;
        // the server writes it only while the client does not hold it (see the module's note).
        let memory = unsafe { Mapping::private(&file, bytes) }?;
        // The mapping keeps what it needs of the file.
        drop(file);
        Ok(Self { memory })
    }

    /// What it holds.
    pub fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// What it holds, to be edited: nobody else sees that.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Whether any page of the first `len` bytes was edited, and so does not show what the server writes, by the page map of
    /// this process. Says yes when the system does not tell.
    pub fn has_private_pages(&self, map: &PageMap, len: usize) -> bool {
        let page = rustix::param::page_size();
        map.any_private(&self.memory.pages(len, page), page)
    }

    /// Gives up all edits in the first `len` bytes, rounded up to pages: the next look shows what the server has there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn drop_private_pages(&mut self, len: usize) -> io::Result<()> {
        self.memory.forget(len)
    }
}

/// A new file of so many zeros that can be sealed, in huge pages as far as it is whole ones and the system can tell quickly
/// which of them were edited.
fn memory(name: &str, bytes: usize) -> io::Result<File> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    // A single one may be for something far smaller, most of which is never touched.
    if bytes > HUGE_PAGE && pagemap::scans() {
        use_huge_pages(&file, bytes)?;
    }
    Ok(file.into())
}

/// Fails unless a file that was received can be mapped up to so many bytes: no one else can write it, and nobody cut it short.
fn check_slot(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let needed = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
    match fcntl_get_seals(file) {
        Ok(seals) if seals.contains(needed) || seals.contains(SEALS) => {}
        Ok(seals) => return Err(refused(format!("a slot has the seals {seals:?}, expected at least {needed:?}"))),
        Err(error) => return Err(refused(format!("a slot is not a file that can be sealed: {error}"))),
    }
    // Sealed against shrinking, it stays at least as large as it is now.
    let size = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
    if size < bytes {
        return Err(refused(format!("a slot has {size} bytes, expected {bytes}")));
    }
    check_pages(file)
}

/// Fails unless a file lies in shared memory of the system's own pages. One of huge pages alone is mapped in multiples of them,
/// so that a part of it could not be unmapped, and ends a process that touches it where there are none left.
fn check_pages(file: &OwnedFd) -> io::Result<()> {
    const TMPFS: u64 = 0x0102_1994;
    match fstatfs(file)?.f_type as u64 {
        TMPFS => Ok(()),
        other => {
            let reason = format!("memory is of a file system {other:#x}, expected {TMPFS:#x}");
            Err(io::Error::new(io::ErrorKind::InvalidData, reason))
        }
    }
}

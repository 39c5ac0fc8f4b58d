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
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

/// A slot as its server has it.
#[derive(Debug)]
pub struct SharedSlot {
    memory: MmapMut,
    file: OwnedFd,
}

impl SharedSlot {
    /// A new slot of zeros.
    ///
    /// # Errors
    /// When the system has no memory or descriptor left.
    pub fn create(bytes: usize) -> io::Result<Self> {
        let file = memfd_create("graphmill-slot", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        // SAFETY: nobody else has the file yet, and after the seals below nobody can write to it but through this mapping,
        // or cut it short.
        let memory = unsafe { MmapOptions::new().len(bytes).map_mut(&file) }?;
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

/// A slot as its client has it.
#[derive(Debug)]
pub struct MappedSlot {
    memory: MmapMut,
}

impl MappedSlot {
    /// Maps the first `bytes` of a slot that was received.
    ///
    /// # Errors
    /// When the file is smaller, or not sealed: it could change or be cut short while it is mapped, which would end the
    /// process.
    pub fn map(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        let needed = SealFlags::SHRINK | SealFlags::FUTURE_WRITE;
        match fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(needed) => {}
            Ok(seals) => return Err(refused(format!("a slot has the seals {seals:?}, expected at least {needed:?}"))),
            Err(error) => return Err(refused(format!("a slot is not a file that can be sealed: {error}"))),
        }
        // Sealed against shrinking, it stays at least as large as it is now.
        let size = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if size < bytes as u64 {
            return Err(refused(format!("a slot has {size} bytes, expected {bytes}")));
        }
        // SAFETY: the file is as large as the mapping and can neither shrink nor be written by whom the server gave it to;
        // the server writes it only while the client does not hold it (see the module's note).
        let memory = unsafe { MmapOptions::new().len(bytes).no_reserve_swap().map_copy(&file) }?;
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

    /// Whether any page of the first `len` bytes was edited, and so does not show what the server writes. Says yes when the
    /// system does not tell.
    pub fn has_private_pages(&self, len: usize) -> bool {
        self.find_private_page(len).unwrap_or(true)
    }

    /// Gives up all edits in the first `len` bytes, rounded up to pages: the next look shows what the server has there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn drop_private_pages(&mut self, len: usize) -> io::Result<()> {
        let len = len.min(self.memory.len());
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in the mapping, and no reference into it lives, for this one is exclusive. The pages come
        // back with the bytes of the file, which are valid as any bytes are.
        unsafe { self.memory.unchecked_advise_range(UncheckedAdvice::DontNeed, 0, len) }
    }

    /// Asks the page map, which has a word for every page of the process.
    #[allow(clippy::host_endian_bytes, reason = "the kernel writes words of this host")]
    fn find_private_page(&self, len: usize) -> io::Result<bool> {
        const WORD: usize = size_of::<u64>();
        const WORDS_AT_ONCE: usize = 1024;
        let page = rustix::param::page_size();
        let mut pages = len.min(self.memory.len()).div_ceil(page);
        let mut offset = (self.memory.as_ptr() as usize / page * WORD) as u64;
        let map = File::open("/proc/self/pagemap")?;
        let mut words = [0; WORDS_AT_ONCE * WORD];
        while pages > 0 {
            let now = pages.min(WORDS_AT_ONCE);
            let words = &mut words[..now * WORD];
            map.read_exact_at(words, offset)?;
            let (words, _) = words.as_chunks::<WORD>();
            if words.iter().any(|word| is_private(u64::from_ne_bytes(*word))) {
                return Ok(true);
            }
            pages -= now;
            offset += (now * WORD) as u64;
        }
        Ok(false)
    }
}

/// Whether a word of the page map is of a page that belongs to this process alone: it is there, or was swapped out, and is
/// not a page of a file or of shared memory.
fn is_private(word: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    word & (PRESENT | SWAPPED) != 0 && word & OF_FILE == 0
}

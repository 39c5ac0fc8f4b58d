//! The memory of an object.

use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use graphmill_net::{MappedSlot, SealedMemory};

use super::budget::Charge;
use super::tray::Filled;

/// What an object is charged beside its bytes: its place in the tables, and what the allocator adds.
pub(super) const OVERHEAD: u64 = 256;
/// What a page of shared memory has.
const PAGE: u64 = 4096;

/// An object's bytes, and what is charged for them. They do not change.
#[derive(Debug)]
pub(super) struct Blob {
    memory: Memory,
    charge: Charge,
    /// The descriptor that sealed memory takes.
    _descriptor: Option<Charge>,
    /// How many were lent it and have not said that they do not have it any more.
    lent: AtomicUsize,
}

/// Where they lie.
#[derive(Debug)]
enum Memory {
    Heap(Box<[u8]>),
    Sealed(SealedMemory),
    Tray(Filled),
}

impl Blob {
    pub(super) fn heap(bytes: Box<[u8]>, charge: Charge) -> Self {
        debug_assert!(charge.bytes() >= heap_charge(bytes.len() as u64));
        Self::new(Memory::Heap(bytes), None, charge)
    }

    pub(super) fn tray(filled: Filled, charge: Charge) -> Self {
        debug_assert!(charge.bytes() >= shared_charge(filled.capacity()));
        Self::new(Memory::Tray(filled), None, charge)
    }

    pub(super) fn sealed(memory: SealedMemory, descriptor: Charge, charge: Charge) -> Self {
        debug_assert!(charge.bytes() >= shared_charge(memory.len()));
        Self::new(Memory::Sealed(memory), Some(descriptor), charge)
    }

    fn new(memory: Memory, descriptor: Option<Charge>, charge: Charge) -> Self {
        Self { memory, charge, _descriptor: descriptor, lent: AtomicUsize::new(0) }
    }

    pub(super) fn is_shared(&self) -> bool {
        !matches!(self.memory, Memory::Heap(_))
    }

    /// Its bytes, mapped for the purpose if they are shared.
    pub(super) fn read(&self) -> io::Result<Bytes<'_>> {
        Ok(match &self.memory {
            Memory::Heap(bytes) => Bytes::Here(bytes),
            Memory::Sealed(memory) => Bytes::Mapped(memory.map()?, memory.len()),
            Memory::Tray(filled) => Bytes::Mapped(filled.map()?, filled.len()),
        })
    }

    /// The same bytes in memory that can be lent.
    pub(super) fn copy(&self) -> io::Result<SealedMemory> {
        SealedMemory::write(&[&self.read()?])
    }

    /// Its memory for somebody to map, which counts as lent from now on; nothing if it is not shared.
    pub(super) fn lend(&self) -> Option<BorrowedFd<'_>> {
        let fd = match &self.memory {
            Memory::Heap(_) => return None,
            Memory::Sealed(memory) => memory.fd(),
            Memory::Tray(filled) => filled.fd(),
        };
        self.lent.fetch_add(1, Ordering::Relaxed);
        Some(fd)
    }

    /// Somebody who was lent it does not have it any more. Who does not say so may have it for ever, in a forked child.
    pub(super) fn take_back(&self) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
    }

    /// What is charged for it.
    pub(super) fn charged(&self) -> u64 {
        self.charge.bytes()
    }

    pub(super) fn len(&self) -> u64 {
        match &self.memory {
            Memory::Heap(bytes) => bytes.len() as u64,
            Memory::Sealed(memory) => memory.len(),
            Memory::Tray(filled) => filled.len(),
        }
    }
}

/// The bytes of an object, to be read.
pub(super) enum Bytes<'a> {
    Here(&'a [u8]),
    /// The first bytes of a mapping.
    Mapped(MappedSlot, u64),
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Here(bytes) => bytes,
            Self::Mapped(memory, bytes) => &memory.bytes()[..*bytes as usize],
        }
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        if let Memory::Tray(filled) = &self.memory {
            filled.empty(*self.lent.get_mut() == 0);
        }
    }
}

/// What an object of so many bytes is charged.
pub(super) fn heap_charge(bytes: u64) -> u64 {
    bytes.saturating_add(OVERHEAD)
}

/// The same in shared memory.
pub(super) fn shared_charge(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE).saturating_add(OVERHEAD)
}

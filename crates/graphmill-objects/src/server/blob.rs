//! The memory of an object.

use graphmill_net::SealedMemory;

use super::budget::Charge;

/// What an object is charged beside its bytes: its place in the tables, and what the allocator adds.
pub(super) const OVERHEAD: u64 = 256;
/// What a page of shared memory has.
const PAGE: u64 = 4096;

/// An object's bytes, and what is charged for them. They never change.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) memory: Memory,
    charge: Charge,
    /// The descriptor that shared memory takes.
    _descriptor: Option<Charge>,
}

/// Where they lie.
#[derive(Debug)]
pub(super) enum Memory {
    Heap(Box<[u8]>),
    Shared(SealedMemory),
}

impl Blob {
    pub(super) fn heap(bytes: Box<[u8]>, charge: Charge) -> Self {
        debug_assert!(charge.bytes() >= heap_charge(bytes.len() as u64));
        Self { memory: Memory::Heap(bytes), charge, _descriptor: None }
    }

    pub(super) fn shared(memory: SealedMemory, descriptor: Charge, charge: Charge) -> Self {
        debug_assert!(charge.bytes() >= shared_charge(memory.len()));
        Self { memory: Memory::Shared(memory), charge, _descriptor: Some(descriptor) }
    }

    /// What is charged for it.
    pub(super) fn charged(&self) -> u64 {
        self.charge.bytes()
    }

    pub(super) fn len(&self) -> u64 {
        match &self.memory {
            Memory::Heap(bytes) => bytes.len() as u64,
            Memory::Shared(memory) => memory.len(),
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

//! What comes out of the store.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use graphmill_net::MappedSlot;

use crate::ObjectId;
use crate::wire::Lent;

/// The most objects that a process has mapped at a time; what comes beyond is copied. The system allows some 65,000 mappings of
/// all kinds, and whoever is refused one, be it the allocator or a thread that starts, ends the process.
const MAPPED: usize = 16_384;

/// The bytes of an object: a buffer of its own, or memory that is shared with the server. They stay as they are whatever
/// happens to the object.
#[derive(Debug)]
pub struct Object(Memory);

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Mapped {
        /// First, so that it is unmapped before the server is told.
        memory: MappedSlot,
        _mapping: Mapping,
        _lent: Lent,
    },
}

/// One of the objects that this process has mapped.
#[derive(Debug)]
pub(crate) struct Mapping(());

/// A forked child has the mappings of its parent, and their number.
static MAPPINGS: AtomicUsize = AtomicUsize::new(0);

impl Mapping {
    /// One more, if that is not too many.
    pub(crate) fn new() -> Option<Self> {
        let one_more = |mappings: usize| (mappings < MAPPED).then_some(mappings + 1);
        MAPPINGS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(()))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPINGS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Object {
    pub(crate) fn heap(bytes: Vec<u8>) -> Self {
        Self(Memory::Heap(bytes))
    }

    pub(crate) fn mapped(memory: MappedSlot, mapping: Mapping, lent: Lent) -> Self {
        Self(Memory::Mapped { memory, _mapping: mapping, _lent: lent })
    }

    /// Its bytes, to be edited: nobody else sees that.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Mapped { memory, .. } => memory.bytes_mut(),
        }
    }

    /// Whether it lies in memory that is shared with the server.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Memory::Mapped { .. })
    }

    /// Its bytes as a vector; copied if they are shared.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Mapped { memory, .. } => memory.bytes().to_vec(),
        }
    }
}

impl Deref for Object {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Mapped { memory, .. } => memory.bytes(),
        }
    }
}

impl AsRef<[u8]> for Object {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// An object, as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: ObjectId,
    /// Its bytes.
    pub bytes: u64,
    /// How long it has been there; not told by Redis.
    pub age: Option<Duration>,
    /// When it will be gone, if it has a time to live.
    pub expires: Option<Duration>,
    /// Who has it mapped, or is being sent it; not told by Redis.
    pub readers: Option<u32>,
}

/// What a server holds and has done. Redis tells some of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Stat {
    /// Its version.
    pub version: String,
    /// The start of the server that answered.
    pub generation: u64,
    /// Milliseconds since then.
    pub uptime_ms: u64,
    /// Objects that are there.
    pub objects: u64,
    /// Bytes that are charged against the budget: objects, and what is evicted and still read.
    pub used: u64,
    /// The budget; 0 if there is none.
    pub budget: u64,
    /// The most bytes of an object.
    pub object_limit: u64,
    /// Connections that are open.
    pub connections: u64,
    /// Gets that wait for their object.
    pub waiting_gets: u64,
    /// Puts that wait for room.
    pub waiting_puts: u64,
    /// Objects that were put.
    pub puts: u64,
    /// Objects that were asked for.
    pub gets: u64,
    /// Of those, the ones that were there.
    pub hits: u64,
    /// Puts that were refused for want of room.
    pub refused: u64,
    /// Objects that gave their room to others.
    pub evicted: u64,
    /// Objects whose time was over.
    pub expired: u64,
    /// Whether a connector started it.
    pub spawned: bool,
}

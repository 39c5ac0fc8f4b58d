//! Buffers that batches live in and that return when the last user of a batch lets go. A fresh buffer of some megabytes
//! costs more in page faults than the copy into it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;
use crate::memory::Memory;

/// A store of idle buffers. Clones share it.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Idle>);

#[derive(Debug)]
struct Idle {
    buffers: Mutex<Vec<Memory>>,
    /// The most buffers kept, and the most bytes of all of them.
    keep: usize,
    bytes: usize,
}

impl Pool {
    /// A pool that keeps up to so many idle buffers.
    pub fn new(keep: usize) -> Self {
        Self::bounded(keep, usize::MAX)
    }

    /// The same, with a bound for the bytes of all idle buffers.
    pub fn bounded(keep: usize, bytes: usize) -> Self {
        Self(Arc::new(Idle { buffers: Mutex::default(), keep, bytes }))
    }

    /// The memory that a new buffer of so many bytes takes.
    pub fn room_for(bytes: usize) -> usize {
        // Some spare room, so that the next batch, a little larger, fits too.
        Memory::rounded(bytes.saturating_add(bytes / 8))
    }

    /// A buffer of so many bytes, whatever they hold.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn take(&self, bytes: usize) -> Result<Buffer> {
        let mut idle = self.0.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = idle.iter().position(|memory| memory.len() >= bytes);
        let memory = fitting.map(|place| idle.swap_remove(place));
        if memory.is_none() && !self.0.has_room(&idle, bytes) {
            // Too small for what batches have become: it makes room for one that fits.
            idle.pop();
        }
        drop(idle);
        let memory = memory.map_or_else(|| Memory::new("bytes of a batch", Self::room_for(bytes)), Ok)?;
        Ok(Buffer(Loan::Pooled { memory, bytes, home: Arc::clone(&self.0) }))
    }

    /// Bytes of idle buffers.
    pub fn idle_bytes(&self) -> usize {
        bytes_of(&self.0.buffers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Idle {
    /// Whether one more buffer may be kept.
    fn has_room(&self, idle: &[Memory], bytes: usize) -> bool {
        idle.len() < self.keep && bytes_of(idle).saturating_add(bytes) <= self.bytes
    }
}

fn bytes_of(idle: &[Memory]) -> usize {
    idle.iter().map(Memory::len).sum()
}

/// A buffer on loan: from a pool, or memory of somebody else's that is given back when it is dropped.
#[derive(Debug)]
pub struct Buffer(Loan);

#[derive(Debug)]
enum Loan {
    Pooled { memory: Memory, bytes: usize, home: Arc<Idle> },
    Slot(Box<dyn Slot>),
}

/// Memory that is not a pool's, such as what another process shares with this one.
pub trait Slot: std::fmt::Debug + Send + Sync {
    /// Its bytes, at a multiple of 64.
    fn bytes(&self) -> &[u8];

    /// Its bytes, to be written.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl Buffer {
    /// A buffer in somebody else's memory.
    pub fn in_slot(slot: Box<dyn Slot>) -> Self {
        Self(Loan::Slot(slot))
    }

    /// The memory that it takes, which may be more than its bytes.
    pub fn room(&self) -> usize {
        match &self.0 {
            Loan::Pooled { memory, .. } => memory.len(),
            Loan::Slot(slot) => slot.bytes().len(),
        }
    }

    /// Its bytes, at a multiple of 64.
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Loan::Pooled { memory, bytes, .. } => &memory.bytes()[..*bytes],
            Loan::Slot(slot) => slot.bytes(),
        }
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Loan::Pooled { memory, bytes, .. } => &mut memory.bytes_mut()[..*bytes],
            Loan::Slot(slot) => slot.bytes_mut(),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Loan::Pooled { memory, home, .. } = &mut self.0 else { return };
        let mut idle = home.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() > 0 && home.has_room(&idle, memory.len()) {
            idle.push(std::mem::take(memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_returns_and_is_lent_again() {
        let pool = Pool::new(1);
        let first = pool.take(100).unwrap();
        let address = first.bytes().as_ptr();
        drop(first);
        let second = pool.take(60).unwrap();
        assert_eq!((second.bytes().as_ptr(), second.bytes().len()), (address, 60));
        let other = pool.take(60).unwrap();
        assert_ne!(other.bytes().as_ptr(), address);
        drop((second, other));
        assert_eq!(pool.idle_bytes(), 4096);
    }

    #[test]
    fn a_buffer_that_there_is_no_memory_for_is_an_error() {
        for bytes in [1 << 60, usize::MAX] {
            let error = Pool::new(1).take(bytes).unwrap_err().to_string();
            assert!(error.contains("no memory for") && error.contains("bytes of a batch"), "{error}");
        }
    }

    #[test]
    fn idle_buffers_are_bounded_in_bytes_and_give_way_to_larger_ones() {
        let pool = Pool::bounded(8, 16 << 10);
        let both = [pool.take(8 << 10), pool.take(8 << 10)].map(Result::unwrap);
        drop(both);
        assert_eq!(pool.idle_bytes(), 12 << 10, "with its spare room each takes three pages");
        drop(pool.take(14 << 10).unwrap());
        assert_eq!(pool.idle_bytes(), 16 << 10);
    }
}

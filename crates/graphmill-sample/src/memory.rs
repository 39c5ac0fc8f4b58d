//! Large memory that is used again and again: page-aligned and advised to lie in huge pages.

use memmap2::{Advice, MmapMut};

use crate::{Error, Result};

/// Zeroed memory of a fixed size.
#[derive(Debug, Default)]
pub(crate) struct Memory(Option<MmapMut>);

/// A huge page, below which the advice is worth nothing.
pub(crate) const HUGE: usize = 2 << 20;

impl Memory {
    /// Finds memory for at least so many bytes. It costs nothing before it is touched.
    ///
    /// # Errors
    /// When the system has none to give.
    pub(crate) fn new(what: &'static str, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Ok(Self(None));
        }
        let memory = MmapMut::map_anon(Self::rounded(bytes)).ok();
        let memory = memory.ok_or(Error::Memory { what, count: bytes as u64 })?;
        if bytes > HUGE / 2 {
            // Advice only: without huge pages everything works, slower.
            let _ = memory.advise(Advice::HugePage);
        }
        Ok(Self(Some(memory)))
    }

    /// What memory for so many bytes takes: whole pages, huge ones if they are worth it.
    pub(crate) fn rounded(bytes: usize) -> usize {
        bytes.checked_next_multiple_of(if bytes > HUGE / 2 { HUGE } else { 4096 }).unwrap_or(usize::MAX)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }

    /// The memory as words.
    pub(crate) fn words_mut(&mut self) -> &mut [u32] {
        // Page-aligned and a multiple of a page long; nothing is aligned like a word too.
        bytemuck::cast_slice_mut(self.0.as_deref_mut().unwrap_or_else(|| bytemuck::cast_slice_mut::<u32, u8>(&mut [])))
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }
}

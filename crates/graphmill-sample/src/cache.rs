//! What the processor's caches are told: load this soon.
//!
//! All loads go to the second cache: more of them can be on their way there than to the first, and what waits for its turn
//! does not push out what is in use.
//!
//! Unsafe only because an instruction takes an address.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T1, _mm_prefetch};

/// How many look-ups ahead an entry of a partition book begins to load.
pub(crate) const ENTRIES_AHEAD: usize = 64;

/// The bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Begins to load the cache line of an element; an index past the end is harmless.
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    let address = slice.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it never faults and changes nothing that a program could observe.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// How many bytes of a row are asked for before its turn. The processor loads what follows by itself, once it sees the sequence.
const ASKED: usize = 8 * LINE;

/// Begins to load the first bytes of a row.
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) fn prefetch_row(row: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: as in `prefetch`.
        let load = |line: &u8| unsafe { _mm_prefetch::<_MM_HINT_T1>((&raw const *line).cast()) };
        // Without a question between them, unless the row is short.
        match row.first_chunk::<ASKED>() {
            Some(first) => first.iter().step_by(LINE).for_each(load),
            None => row.iter().step_by(LINE).for_each(load),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = row;
}

/// Claims a row's cache lines, which will be written whole; a row past the end is harmless.
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) fn prefetch_write(slice: &[u8], start: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (start..start + bytes).step_by(LINE) {
        // SAFETY: as in `prefetch`.
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(slice.as_ptr().wrapping_add(line).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, start, bytes);
}

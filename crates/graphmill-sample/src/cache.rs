//! What the processor's caches are told: load this soon.
//!
//! The only unsafe code of this crate: an instruction that takes an address.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

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
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

//! Asking the processor to load memory before it is needed.
//!
//! The only unsafe code of this crate: the instruction takes an address. It never faults and never changes what a
//! program computes, so any address is sound.
#![allow(unsafe_code)]

/// Begins to load the cache line of an element; an index past the end is harmless.
#[inline(always)]
#[allow(clippy::inline_always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    let address = slice.as_ptr().wrapping_add(index);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it accesses nothing that the program could observe.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

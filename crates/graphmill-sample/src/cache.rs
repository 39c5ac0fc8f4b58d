//! What the processor's caches are told: load this soon, or do not keep that.
//!
//! The only unsafe code of this crate: instructions that take an address.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128};

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

/// Copies to memory without keeping the copy in the caches, where it would displace what is read again and again. Whoever
/// uses it calls [`streamed`] before the copy is shown to anyone.
#[inline]
pub(crate) fn stream(from: &[[u8; LINE]], to: &mut [[u8; LINE]]) {
    #[cfg(target_arch = "x86_64")]
    if to.as_ptr().cast::<u8>().align_offset(16) == 0 {
        for (to, from) in to.iter_mut().zip(from) {
            for place in (0..LINE).step_by(16) {
                // SAFETY: both lines have 64 bytes and `place` is 0, 16, 32 or 48, so all 16 bytes from there lie inside; the
                // target's address is a multiple of 16, as the line's is.
                unsafe {
                    let part = _mm_loadu_si128(from.as_ptr().add(place).cast());
                    _mm_stream_si128(to.as_mut_ptr().add(place).cast(), part);
                }
            }
        }
        return;
    }
    to.copy_from_slice(from);
}

/// Makes what was streamed visible to other threads before anything that is written later.
pub(crate) fn streamed() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a fence has no operands.
    unsafe {
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_streamed_copy_is_a_copy_wherever_it_goes() {
        let from: Vec<[u8; LINE]> = (0..9u8).map(|line| std::array::from_fn(|place| line ^ place as u8)).collect();
        for shift in [0, 1, 16] {
            let mut memory = vec![0u8; 10 * LINE];
            let (to, _) = memory[shift..].as_chunks_mut::<LINE>();
            stream(&from, &mut to[..9]);
            streamed();
            assert_eq!(&memory[shift..shift + 9 * LINE], from.as_flattened());
        }
    }
}

//! Rows written to their places in a batch.
//!
//! Rows lie anywhere in memory, so each is asked for some rows before its turn, and a core can wait for only as many at once
//! as it finds among the instructions ahead of it. Hence the loops below: straight lines of code, whole rows at a time.
//!
//! A large batch is not read before it has left the caches. So its rows are streamed past them: the processor need not load
//! what it is about to write whole, which is a third of the memory's work, and what samplers need stays where it is.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256i, __m512i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256, _mm512_cvtepu32_epi64, _mm512_loadu_si512,
    _mm512_stream_si512,
};

use crate::cache::{LINE, prefetch, prefetch_row, prefetch_write};
use crate::{Error, Result};

/// The least that is streamed: about what a core's own cache keeps.
const STREAMED: usize = 1 << 20;
/// How many rows ahead a row begins to load.
const ROWS_AHEAD: usize = 64;
/// How many bytes of rows may be on their way, that the second cache keeps them.
const BYTES_AHEAD: usize = 64 << 10;
/// How many rows before it is written a place is claimed, when it is not streamed to.
const WRITES_AHEAD: usize = 8;
/// The smallest page, whose address the processor translates anew when it is first written. Memory that is shared with another
/// process is in such pages where the system gives it no huge ones.
const PAGE: usize = 4096;
/// What is copied without a look at how much is left.
const BLOCK: usize = 8 * LINE;

/// A batch of so many bytes has left a core's own cache when it is read, all of it.
pub(crate) const LARGE: usize = 4 << 20;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Through the caches.
    Cached,
    /// Past them, half a line at a time.
    #[cfg(target_arch = "x86_64")]
    HalfLines,
    /// Past them, a line at a time.
    #[cfg(target_arch = "x86_64")]
    Lines,
}

impl Way {
    /// The best way for rows of `size` bytes. What is streamed is whole lines.
    fn find(into: &[u8], size: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        if into.len() >= STREAMED && size.is_multiple_of(LINE) && into.as_ptr().addr().is_multiple_of(LINE) {
            if is_x86_feature_detected!("avx512f") {
                return Self::Lines;
            }
            if is_x86_feature_detected!("avx") {
                return Self::HalfLines;
            }
        }
        let _ = (into, size);
        Self::Cached
    }
}

/// Copies `count` rows of `size` bytes to their places in `into`.
///
/// # Errors
/// What `row` says of one that is not there, or when one has another size.
///
/// # Panics
/// When a place is past the end.
#[inline]
pub(crate) fn copy_rows<'a>(
    into: &mut [u8],
    size: usize,
    count: usize,
    row: impl Fn(usize) -> Result<&'a [u8]>,
    place: impl Fn(usize) -> usize,
) -> Result<()> {
    copy_rows_by(Way::find(into, size), into, size, count, row, place)
}

#[inline(always)]
#[allow(clippy::inline_always)]
fn copy_rows_by<'a>(
    way: Way,
    into: &mut [u8],
    size: usize,
    count: usize,
    row: impl Fn(usize) -> Result<&'a [u8]>,
    place: impl Fn(usize) -> usize,
) -> Result<()> {
    match way {
        Way::Cached => {
            let claim = |into: &[u8], index: usize| {
                if index + WRITES_AHEAD < count {
                    prefetch_write(into, place(index + WRITES_AHEAD) * size, size);
                }
            };
            copy_ahead(into, size, count, row, &place, claim, <[u8]>::copy_from_slice)
        }
        // SAFETY: `Way::find` has seen that the processor can, and that all rows of `into` begin at lines.
        #[cfg(target_arch = "x86_64")]
        Way::HalfLines => unsafe { stream_half_lines(into, size, count, row, place) },
        // SAFETY: the same.
        #[cfg(target_arch = "x86_64")]
        Way::Lines => unsafe { stream_lines(into, size, count, row, place) },
    }
}

/// # Safety
/// The processor has AVX, rows are whole lines, and `into` begins at one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn stream_half_lines<'a>(
    into: &mut [u8],
    size: usize,
    count: usize,
    row: impl Fn(usize) -> Result<&'a [u8]>,
    place: impl Fn(usize) -> usize,
) -> Result<()> {
    const HALF: usize = size_of::<__m256i>();
    // SAFETY: `copy_ahead` gives two of the same size, and the places are aligned, as the caller says.
    let half = |into: &mut [u8], row: &[u8]| unsafe {
        _mm256_stream_si256(into.as_mut_ptr().cast(), _mm256_loadu_si256(row.as_ptr().cast()));
    };
    let open = |into: &[u8], index| open_page(into, place(index) * size, size);
    let copy = |into: &mut [u8], row: &[u8]| by_blocks::<HALF>(into, row, half);
    let copied = copy_ahead(into, size, count, row, &place, open, copy);
    fence();
    copied
}

/// # Safety
/// As of [`stream_half_lines`], with AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_lines<'a>(
    into: &mut [u8],
    size: usize,
    count: usize,
    row: impl Fn(usize) -> Result<&'a [u8]>,
    place: impl Fn(usize) -> usize,
) -> Result<()> {
    const WHOLE: usize = size_of::<__m512i>();
    // SAFETY: as in `stream_half_lines`.
    let line = |into: &mut [u8], row: &[u8]| unsafe {
        _mm512_stream_si512(into.as_mut_ptr().cast(), _mm512_loadu_si512(row.as_ptr().cast()));
    };
    let open = |into: &[u8], index| open_page(into, place(index) * size, size);
    let copy = |into: &mut [u8], row: &[u8]| by_blocks::<WHOLE>(into, row, line);
    let copied = copy_ahead(into, size, count, row, &place, open, copy);
    fence();
    copied
}

/// Writes numbers as 64-bit ones, into a [`LARGE`] batch.
pub(crate) fn widen_past_caches(into: &mut [i64], numbers: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && into.as_ptr().addr().is_multiple_of(LINE) {
        // SAFETY: the processor can, and `into` begins at a line.
        unsafe { stream_widened(into, numbers) };
        return fence();
    }
    widen(into, numbers);
}

/// Writes numbers as 64-bit ones.
pub(crate) fn widen(into: &mut [i64], numbers: &[u32]) {
    for (into, &number) in into.iter_mut().zip(numbers) {
        *into = number.into();
    }
}

/// # Safety
/// The processor has AVX-512, and `into` begins at a line.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_widened(into: &mut [i64], numbers: &[u32]) {
    let (lines, rest) = into.as_chunks_mut::<{ LINE / size_of::<i64>() }>();
    let (whole, last) = numbers.as_chunks::<{ LINE / size_of::<i64>() }>();
    for (line, eight) in lines.iter_mut().zip(whole) {
        // SAFETY: both are whole, and lines follow each other.
        unsafe {
            let eight = _mm512_cvtepu32_epi64(_mm256_loadu_si256(eight.as_ptr().cast()));
            _mm512_stream_si512(line.as_mut_ptr().cast(), eight);
        }
    }
    widen(rest, last);
}

/// Has the address of the page after the next one translated before it is written, if this is the first row that begins in its
/// page.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(clippy::inline_always)]
fn open_page(into: &[u8], start: usize, size: usize) {
    if start % PAGE < size {
        prefetch(into, start + 2 * PAGE);
    }
}

/// Whoever gets the batch next, on whatever core, sees all rows.
#[cfg(target_arch = "x86_64")]
fn fence() {
    // SAFETY: it only orders what was written before it and what comes after.
    unsafe { _mm_sfence() };
}

/// Copies a row of whole lines in pieces of `PIECE` bytes, without a question between those of a block.
#[inline(always)]
#[allow(clippy::inline_always)]
fn by_blocks<const PIECE: usize>(into: &mut [u8], row: &[u8], mut piece: impl FnMut(&mut [u8], &[u8])) {
    let (blocks, rest) = into.as_chunks_mut::<BLOCK>();
    let (from, last) = row.as_chunks::<BLOCK>();
    for (into, from) in blocks.iter_mut().zip(from) {
        for (into, from) in into.as_chunks_mut::<PIECE>().0.iter_mut().zip(from.as_chunks::<PIECE>().0) {
            piece(into, from);
        }
    }
    for (into, from) in rest.as_chunks_mut::<PIECE>().0.iter_mut().zip(last.as_chunks::<PIECE>().0) {
        piece(into, from);
    }
}

/// Copies rows. They are found a stretch at a time, so that what finds them stays in the nearest cache meanwhile; each
/// begins to load up to `ROWS_AHEAD` rows before its turn.
#[inline(always)]
#[allow(clippy::inline_always)]
fn copy_ahead<'a>(
    into: &mut [u8],
    size: usize,
    count: usize,
    row: impl Fn(usize) -> Result<&'a [u8]>,
    place: impl Fn(usize) -> usize,
    claim: impl Fn(&[u8], usize),
    copy: impl Fn(&mut [u8], &[u8]),
) -> Result<()> {
    let ahead = (BYTES_AHEAD / size.max(1)).clamp(4, ROWS_AHEAD);
    let find = |start: usize, rows: &mut [&'a [u8]; ROWS_AHEAD]| {
        let stretch = start.min(count)..(start + ahead).min(count);
        for (found, index) in rows.iter_mut().zip(stretch.clone()) {
            *found = row(index)?;
            if found.len() != size {
                return Err(Error::answer(format!("a row has {} bytes, expected {size}", found.len())));
            }
        }
        Ok(stretch.len())
    };
    let [now, next] = &mut [[&[][..]; ROWS_AHEAD]; 2];
    let (mut now, mut next) = (now, next);
    let mut found = find(0, now)?;
    now[..found].iter().for_each(|row| prefetch_row(row));
    let mut start = 0;
    while found > 0 {
        let later = find(start + found, next)?;
        for (offset, from) in now[..found].iter().enumerate() {
            if offset < later {
                prefetch_row(next[offset]);
            }
            let index = start + offset;
            claim(into, index);
            copy(&mut into[place(index) * size..][..size], from);
        }
        start += found;
        found = later;
        std::mem::swap(&mut now, &mut next);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory whose first byte is `shift` bytes past a line.
    fn shifted(memory: &mut Vec<u8>, bytes: usize, shift: usize) -> &mut [u8] {
        memory.resize(bytes + 2 * LINE, 0);
        let start = memory.as_ptr().align_offset(LINE) + shift;
        &mut memory[start..][..bytes]
    }

    #[test]
    fn rows_of_every_size_and_place_arrive_whole() {
        for size in [1, 4, 60, 64, 68, 128, 192, 512, 516, 576, 4096] {
            for (bytes, shift) in [(STREAMED, 0), (STREAMED, 4), (STREAMED / 4, 0)] {
                let count = bytes / size;
                let rows: Vec<u8> = (0..count * size).map(|byte| (byte * 7 + byte / size * 31) as u8).collect();
                let mut memory = Vec::new();
                let into = shifted(&mut memory, count * size, shift);
                let row = |index: usize| Ok(&rows[index * size..][..size]);
                copy_rows(into, size, count, row, |index| count - 1 - index).unwrap();
                for (place, row) in rows.rchunks_exact(size).enumerate() {
                    assert_eq!(into[place * size..][..size], *row, "row {place} of {size} bytes, shift {shift}");
                }
            }
        }
    }

    #[test]
    fn all_ways_that_the_processor_knows_write_the_same_and_nothing_beside_it() {
        let mut memory = Vec::new();
        let rows: Vec<_> = (0..2 * 576).map(|byte| (byte * 3) as u8).collect();
        let mut ways = vec![Way::Cached];
        #[cfg(target_arch = "x86_64")]
        {
            ways.extend(is_x86_feature_detected!("avx").then_some(Way::HalfLines));
            ways.extend(is_x86_feature_detected!("avx512f").then_some(Way::Lines));
        }
        for way in ways {
            let into = shifted(&mut memory, 4 * 576, 0);
            into.fill(0xee);
            copy_rows_by(way, into, 576, 2, |index| Ok(&rows[index * 576..][..576]), |index| index + 1).unwrap();
            assert!(into[..576].iter().chain(&into[3 * 576..]).all(|byte| *byte == 0xee), "{way:?}");
            assert_eq!(into[576..3 * 576], rows, "{way:?}");
        }
    }

    #[test]
    fn a_row_of_another_size_or_that_is_not_there_is_an_error() {
        let mut memory = Vec::new();
        let into = shifted(&mut memory, STREAMED, 0);
        let short = |index: usize| Ok(if index == 70 { &[0; 63][..] } else { &[0; 64][..] });
        let error = copy_rows(into, 64, 100, short, |index| index).unwrap_err();
        assert!(error.to_string().contains("63 bytes, expected 64"), "{error}");
        let absent = |index: usize| if index == 99 { Err(Error::answer("none")) } else { Ok(&[0; 64][..]) };
        assert!(copy_rows(into, 64, 100, absent, |index| index).is_err());
    }

    #[test]
    fn numbers_are_widened_past_the_caches_as_through_them() {
        let mut memory = Vec::new();
        let numbers: Vec<u32> = (0..100).map(|number: u32| number.wrapping_mul(0x9e37_79b9)).collect();
        for shift in [0, 8] {
            for count in 0..numbers.len() {
                let into = shifted(&mut memory, 8 * (numbers.len() + 1), shift);
                into.fill(0xee);
                let into: &mut [i64] = bytemuck::cast_slice_mut(into);
                widen_past_caches(&mut into[..count], &numbers[..count]);
                assert!(into[..count].iter().zip(&numbers).all(|(&wide, &number)| wide == i64::from(number)));
                assert!(into[count..].iter().all(|&wide| wide.to_le_bytes() == [0xee; 8]), "{count} numbers");
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_place_past_the_end_is_not_written() {
        let mut memory = Vec::new();
        let into = shifted(&mut memory, STREAMED, 0);
        let _ = copy_rows(into, 64, 1, |_| Ok(&[0; 64][..]), |_| STREAMED / 64);
    }
}

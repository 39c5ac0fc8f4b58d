//! Distinct positions of eight lists at once, by Floyd's method: each list has a lane of the processor's vectors.
//!
//! Word by word it draws what [`super::floyd`] draws. A list's positions are compared with those that were taken before, which costs
//! eight lists together what it would cost one, so that lists of all lengths go the same way and nothing depends on a coin.
//!
//! Unsafe only because a processor may not have the instructions.
#![allow(unsafe_code)]

use graphmill_graph::random::Stream;

/// How many lists are drawn from at once.
pub(super) const LANES: usize = 8;
/// The most positions of a list that are taken this way.
pub(super) const MOST: usize = 32;
/// The longest list that is drawn from this way.
pub(super) const LONGEST: usize = u32::MAX as usize;

/// One number of each list.
pub(super) type Lane = [u64; LANES];

/// Eight lists, each longer than what is taken of it and none longer than [`LONGEST`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lists {
    /// Whose they are.
    pub(super) nodes: Lane,
    /// Where they begin.
    pub(super) starts: Lane,
    /// How long they are.
    pub(super) lengths: Lane,
}

/// Draws from eight lists at once, if the processor can.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lanes(());

impl Lanes {
    /// Nothing if the processor cannot.
    pub(super) fn find() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            return Some(Self(()));
        }
        None
    }

    /// Fills a row for each of so many positions: where they stand among all neighbours, list by list.
    #[inline]
    #[allow(clippy::unused_self)] // Whoever has it knows that the processor can.
    pub(super) fn distinct(self, stream: Stream, lists: &Lists, positions: &mut [Lane]) {
        debug_assert!(positions.len() <= MOST, "{} positions of each list", positions.len());
        debug_assert!(lists.lengths.iter().all(|&length| (positions.len() + 1..=LONGEST).contains(&(length as usize))));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is a `Lanes` only where `find` has seen that the processor can.
        unsafe {
            wide::distinct(stream, lists, positions);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (stream, lists, positions);
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_cmpeq_epi64_mask, _mm512_mask_mov_epi64, _mm512_mul_epu32,
        _mm512_mullo_epi64, _mm512_set1_epi64, _mm512_srli_epi64, _mm512_sub_epi64, _mm512_xor_si512,
    };

    use bytemuck::cast;
    use graphmill_graph::random::Stream;

    use super::{Lane, Lists, MOST};
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) fn distinct(stream: Stream, lists: &Lists, positions: &mut [Lane]) {
        let step = all(Stream::STEP);
        // As `Stream::at` has it.
        let mut word = mix(_mm512_xor_si512(all(stream.word()), mix(_mm512_mullo_epi64(cast(lists.nodes), step))));
        let mut last = _mm512_sub_epi64(cast(lists.lengths), all(positions.len() as u64));
        let mut taken = [all(0); MOST];
        for (index, row) in positions.iter_mut().enumerate().take(MOST) {
            word = _mm512_add_epi64(word, step);
            let bound = _mm512_add_epi64(last, all(1));
            let drawn = below(mix(word), bound);
            let again = taken[..index].iter().fold(0, |again, taken| again | _mm512_cmpeq_epi64_mask(drawn, *taken));
            taken[index] = _mm512_mask_mov_epi64(drawn, again, last);
            *row = cast(_mm512_add_epi64(cast(lists.starts), taken[index]));
            last = bound;
        }
    }

    /// As [`graphmill_graph::random::mix`].
    #[target_feature(enable = "avx512f,avx512dq")]
    fn mix(word: __m512i) -> __m512i {
        let word = _mm512_xor_si512(word, _mm512_srli_epi64::<30>(word));
        let word = _mm512_mullo_epi64(word, all(0xbf58_476d_1ce4_e5b9));
        let word = _mm512_xor_si512(word, _mm512_srli_epi64::<27>(word));
        let word = _mm512_mullo_epi64(word, all(0x94d0_49bb_1331_11eb));
        _mm512_xor_si512(word, _mm512_srli_epi64::<31>(word))
    }

    /// The upper half of a product, whose second factor has 32 bits: from those of its halves.
    #[target_feature(enable = "avx512f")]
    fn below(word: __m512i, bound: __m512i) -> __m512i {
        let lower = _mm512_mul_epu32(word, bound);
        let upper = _mm512_mul_epu32(_mm512_srli_epi64::<32>(word), bound);
        _mm512_srli_epi64::<32>(_mm512_add_epi64(upper, _mm512_srli_epi64::<32>(lower)))
    }

    #[target_feature(enable = "avx512f")]
    fn all(number: u64) -> __m512i {
        _mm512_set1_epi64(number.cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::law::Draws;
    use crate::view::floyd;

    proptest! {
        #[test]
        fn lanes_draw_what_one_list_after_the_other_does(
            nodes: Lane,
            lengths in prop::array::uniform8(prop_oneof![1u64..40, 1u64..4000, 1..=LONGEST as u64]),
            starts in prop::array::uniform8(0u64..1 << 40),
            count in 1..=MOST,
            seed: u64,
        ) {
            let Some(lanes) = Lanes::find() else {
                eprintln!("skipped: this processor has no AVX-512");
                return Ok(());
            };
            let lengths = lengths.map(|length| length.max(count as u64 + 1));
            let stream = Stream::new(seed, &[]);
            let mut positions = [Lane::default(); MOST];
            lanes.distinct(stream, &Lists { nodes, starts, lengths }, &mut positions[..count]);
            for lane in 0..LANES {
                let mut expected = vec![0; count];
                let draws = Draws::new(stream, nodes[lane]);
                floyd::long(draws, starts[lane] as usize, lengths[lane] as usize, &mut expected);
                let found: Vec<_> = positions[..count].iter().map(|row| row[lane] as usize).collect();
                prop_assert_eq!(found, expected, "lane {}", lane);
            }
        }
    }
}

//! Randomness that depends on what is drawn and never on who draws it or when: a keyed stream and a keyed permutation.
//!
//! Everything here is integer arithmetic, the same on every machine.

/// `SplitMix64`'s finaliser (Stafford's variant 13): a bijection of 64-bit words that scatters every bit.
#[inline]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A random word for each counter under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(u64);

impl Stream {
    /// What keeps the words of neighbouring counters apart: 2^64 by the golden ratio.
    pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// A stream named by a seed and words that keep its purpose apart from others.
    pub fn new(seed: u64, words: &[u64]) -> Self {
        Self(words.iter().fold(mix(seed ^ Self::STEP), |key, &word| mix(key ^ mix(word.wrapping_add(Self::STEP)))))
    }

    /// The word that the stream is made of, to be sent to someone who draws from it too.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The stream that is made of a word.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word at a counter.
    #[inline]
    pub const fn at(self, counter: u64) -> u64 {
        mix(self.0 ^ mix(counter.wrapping_mul(Self::STEP)))
    }

    /// A number below `bound`, which is not zero. The bias is below `bound / 2^64`.
    #[inline]
    pub const fn below(self, counter: u64, bound: u64) -> u64 {
        ((self.at(counter) as u128 * bound as u128) >> 64) as u64
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[inline]
    pub fn unit(self, counter: u64) -> f64 {
        unit(self.at(counter))
    }
}

/// A random word as a number in `[0, 1)` with 53 random bits.
#[inline]
pub fn unit(word: u64) -> f64 {
    (word >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A permutation of `0..count` computed index by index; nobody materialises it.
#[derive(Debug, Clone, Copy)]
pub struct Permutation {
    count: u64,
    stream: Stream,
    half_bits: u32,
    keys: [u64; Self::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 6;
    /// Up to so many elements a Feistel network of a few rounds favours some permutations.
    const SMALL: u64 = 256;
    const SMALL_ROUNDS: u64 = 64;

    /// The permutation named by a stream.
    pub fn new(count: u64, stream: Stream) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let half_bits = bits.div_ceil(2).max(1);
        Self { count, stream, half_bits, keys: std::array::from_fn(|round| stream.at(round as u64)) }
    }

    /// Where an index below `count` goes.
    ///
    /// # Panics
    /// When the index is not below `count`: it would go nowhere.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.count, "index {index} of a permutation of {}", self.count);
        if self.count <= Self::SMALL { self.swap_or_not(index) } else { self.feistel(index) }
    }

    /// A Feistel network over an even number of bits, walked until it lands inside.
    #[inline]
    fn feistel(&self, index: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut value = index;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            value = (left << self.half_bits) | right;
            if value < self.count {
                return value;
            }
        }
    }

    /// Hoang, Morris and Rogaway's shuffle: each round pairs the elements and swaps every pair by the toss of a coin.
    fn swap_or_not(&self, index: u64) -> u64 {
        (0..Self::SMALL_ROUNDS).fold(index, |value, round| {
            let other = (self.stream.below(2 * round, self.count) + self.count - value) % self.count;
            let coin = Stream(self.stream.at(2 * round + 1)).at(value.max(other));
            if coin & 1 == 1 { other } else { value }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_pinned() {
        let stream = Stream::new(42, &[1, 2]);
        assert_eq!([stream.at(0), stream.at(1), stream.below(2, 1000)], WORDS);
        let permutation = Permutation::new(10, stream);
        assert_eq!((0..10).map(|index| permutation.at(index)).collect::<Vec<_>>(), ORDER);
        let permutation = Permutation::new(1000, stream);
        assert_eq!((0..5).map(|index| permutation.at(index)).collect::<Vec<_>>(), LARGE);
    }

    /// All 120 orders of five elements, each as likely: chi-square with 119 degrees of freedom, 99.99 % below 182.
    #[test]
    fn permutations_of_a_few_elements_are_fair() {
        let mut met = std::collections::HashMap::new();
        for seed in 0..24_000 {
            let permutation = Permutation::new(5, Stream::new(seed, &[]));
            let order: Vec<u64> = (0..5).map(|index| permutation.at(index)).collect();
            *met.entry(order).or_insert(0.0) += 1.0;
        }
        let square: f64 = met.values().map(|count: &f64| (count - 200.0).powi(2) / 200.0).sum();
        assert_eq!(met.len(), 120);
        assert!(square < 182.0, "chi-square is {square}");
    }

    const WORDS: [u64; 3] = [0x0259_7439_7e76_4157, 0xb9b9_c8b9_5337_99cf, 867];
    const ORDER: [u64; 10] = [2, 5, 3, 8, 0, 7, 4, 6, 1, 9];
    const LARGE: [u64; 5] = [772, 597, 557, 964, 169];

    proptest! {
        #[test]
        fn a_permutation_meets_every_index_once(count in 1u64..3000, seed: u64) {
            let permutation = Permutation::new(count, Stream::new(seed, &[]));
            let mut met = vec![false; count as usize];
            for index in 0..count {
                let place = permutation.at(index) as usize;
                prop_assert!(!std::mem::replace(&mut met[place], true));
            }
        }
    }
}

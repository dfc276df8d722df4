//! The one seeded random source of all tests.

use core::ops::Range;

/// A SplitMix64 generator (Steele, Lea and Flood, 2014): the same numbers for
/// the same seed on every machine, so that a printed seed repeats a run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws any 64-bit number.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// Draws an index below `bound`, which is not 0.
    pub const fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Draws a number of `range`, which is not empty.
    pub const fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Returns true once in `of` draws on average.
    pub const fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Puts the items into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

#[cfg(test)]
mod unit {
    use super::Random;

    #[test]
    fn the_sequence_is_that_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.word(), 6_457_827_717_110_365_317);
        assert_eq!(random.word(), 3_203_168_211_198_807_973);
        assert_eq!(random.word(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: [u32; 100] = core::array::from_fn(|i| i as u32);
        Random::new(7).shuffle(&mut items);
        assert!(items.iter().enumerate().any(|(i, item)| i as u32 != *item));
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(i, item)| i as u32 == *item));
    }
}

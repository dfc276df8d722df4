//! The one source of random numbers of all tests.

use alloc::vec::{IntoIter, Vec};
use core::ops::Range;

/// A source of numbers for tests: the same ones for the same seed on every machine, so that a
/// printed seed repeats a run; or those that given bytes spell, so that a fuzzer, which changes
/// bytes, drives a test that knows only of random numbers.
#[derive(Clone, Debug)]
pub struct Random(Draws);

#[derive(Clone, Debug)]
enum Draws {
    /// The state of a SplitMix64 generator (Steele, Lea and Flood, 2014).
    Seeded(u64),
    /// What is left. After the last byte come zeroes.
    Given(IntoIter<u8>),
}

impl From<u64> for Random {
    fn from(seed: u64) -> Self {
        Self::new(seed)
    }
}

impl Random {
    /// Starts the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(Draws::Seeded(seed))
    }

    /// Starts a sequence that `bytes` spell. A draw takes as many of them as its bound needs, so
    /// that most operations of a test are a byte or two.
    pub fn given(bytes: &[u8]) -> Self {
        Self(Draws::Given(Vec::from(bytes).into_iter()))
    }

    /// Returns true if given bytes are used up: a test that takes as many steps as there are
    /// choices ends here.
    pub fn is_spent(&self) -> bool {
        match &self.0 {
            Draws::Seeded(_) => false,
            Draws::Given(rest) => rest.as_slice().is_empty(),
        }
    }

    /// Returns the seed, before the first draw; 0 of given bytes.
    pub const fn seed(&self) -> u64 {
        match self.0 {
            Draws::Seeded(state) => state,
            Draws::Given(_) => 0,
        }
    }

    /// Draws any 64-bit number.
    pub fn word(&mut self) -> u64 {
        match &mut self.0 {
            Draws::Seeded(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ (z >> 31)
            }
            Draws::Given(rest) => spell(rest, 8),
        }
    }

    /// Draws a number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        match &mut self.0 {
            Draws::Seeded(_) => self.word() % bound,
            Draws::Given(rest) => {
                spell(rest, (bound - 1).checked_ilog2().map_or(0, |log| log / 8 + 1)) % bound
            }
        }
    }

    /// Draws an index below `bound`, which is not 0.
    pub fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// Draws a number of `range`, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Returns true once in `of` draws on average.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// Puts the items into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.index(i + 1));
        }
    }
}

/// Takes so many bytes as one number, the least significant first.
fn spell(rest: &mut IntoIter<u8>, bytes: u32) -> u64 {
    (0..bytes).fold(0, |number, at| number | u64::from(rest.next().unwrap_or(0)) << (8 * at))
}

#[cfg(test)]
mod unit {
    use super::Random;

    #[test]
    fn given_bytes_are_spelt_as_bounds_need_them() {
        let mut random = Random::given(&[5, 1, 2, 3, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!([random.below(1), random.below(4), random.below(257)], [0, 1, 0x201 % 257]);
        assert!(!random.is_spent());
        assert_eq!([random.below(256), random.word()], [3, 0x0203_0405_0607_0809]);
        assert_eq!((random.below(9), random.is_spent()), (1, true));
        assert_eq!([random.word(), random.below(u64::MAX)], [0, 0]);
        assert_eq!((random.seed(), Random::new(7).seed()), (0, 7));
        assert!(!Random::new(7).is_spent());
    }

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

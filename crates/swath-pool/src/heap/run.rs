//! A run of units, and the word in which a heap keeps it.

/// A run of units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) units: u32,
}

/// Bits of a run's length in its word: a heap keeps no longer one.
const LENGTH_BITS: u32 = 8;
/// Bits of the seal, above length and first unit.
const SEAL_BITS: u32 = 24;

/// The seal of length and first unit, which any flipped bit of the three breaks. That of 0 is not 0.
fn seal(run: u64) -> u64 {
    !(run ^ run >> SEAL_BITS) & ((1 << SEAL_BITS) - 1)
}

impl Run {
    pub(crate) fn word(self) -> u64 {
        let run = u64::from(self.first) << LENGTH_BITS | u64::from(self.units);
        seal(run) << (64 - SEAL_BITS) | run
    }

    /// The run in a word; none in an empty one, nor in one that was overwritten.
    pub(crate) fn of(word: u64) -> Option<Self> {
        let run = word & ((1 << (64 - SEAL_BITS)) - 1);
        let (first, units) = ((run >> LENGTH_BITS) as u32, run as u32 & ((1 << LENGTH_BITS) - 1));
        (word >> (64 - SEAL_BITS) == seal(run)).then_some(Self { first, units })
    }

    pub(crate) fn end(self) -> u32 {
        self.first + self.units
    }

    /// Returns the place in the run at which a segment of `units` may begin so that it lies in as
    /// few pages of `page` units, a power of two, as its length allows.
    pub(crate) fn place(self, units: u32, page: u32) -> Option<u32> {
        let fits = self.first % page + units <= units.next_multiple_of(page);
        let first = if fits { self.first } else { self.first.next_multiple_of(page) };
        (first + units <= self.end()).then_some(first)
    }
}

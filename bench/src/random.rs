//! Random numbers that are the same on every run.

/// An xorshift* generator (Marsaglia, "Xorshift RNGs", 2003).
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of `seed`, which is not 0.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any 64-bit number.
    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is below 2^32.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((self.word() >> 32) * end) >> 32
    }

    /// Shuffles as Fisher and Yates do.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

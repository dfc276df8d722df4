//! The simplest source of units.

use crate::source::masks::word_masks;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::UNIT_SHIFT;

/// A [`SegmentSource`] by first fit, over memory that is all there.
///
/// One bit for each unit in words that the caller gives. `acquire` takes O(n / 64 + r) for n
/// units of the arena and r runs passed, the others O(m / 64) for m units in
/// question. For arenas of many gigabytes, or of several areas, put an allocator of segments
/// behind [`SegmentSource`] instead.
pub struct FirstFit<W> {
    /// Ones are units in use.
    used: W,
    units: u32,
    /// Units from the arena's start to the next multiple of the largest alignment.
    base_units: u64,
    /// No unit below is free.
    lowest: u32,
    zero: bool,
}

impl<W: AsRef<[u64]> + AsMut<[u64]>> FirstFit<W> {
    /// Returns the words of storage that `units` units need.
    #[must_use]
    pub const fn words(units: u32) -> usize {
        units.div_ceil(64) as usize
    }

    /// Makes a source of `units` free units, as many as `used` has bits at most. The
    /// arena starts at address `base_address`; `zero` says whether its memory reads as zeroes.
    pub fn new(base_address: usize, units: u32, mut used: W, zero: bool) -> Self {
        used.as_mut().fill(0);
        let units = units.min((used.as_ref().len() * 64).min(u32::MAX as usize) as u32);
        let base_units = (base_address >> UNIT_SHIFT) as u64;
        Self { used, units, base_units, lowest: 0, zero }
    }

    /// Counts the free units.
    pub fn free_units(&self) -> u32 {
        let used: u32 = self.used.as_ref().iter().map(|word| word.count_ones()).sum();
        self.units - used
    }

    /// Finds the first unit from `from` on that is used, or free; the arena's end if there is none.
    fn next(&self, from: u32, used: bool) -> u32 {
        let words = self.used.as_ref();
        let flip = if used { 0 } else { u64::MAX };
        let mut at = from;
        while at < self.units {
            let word = (words[at as usize / 64] ^ flip) >> (at % 64);
            if word != 0 {
                return (at + word.trailing_zeros()).min(self.units);
            }
            at = (at / 64 + 1) * 64;
        }
        self.units
    }

    fn set(&mut self, first: u32, units: u32, used: bool) {
        for (index, mask) in word_masks(first, units) {
            let word = &mut self.used.as_mut()[index];
            *word = if used { *word | mask } else { *word & !mask };
        }
    }
}

// SAFETY: a unit is acquired where its bit was clear, which is set until the
// unit is released; the arena's memory is all there by the pool's contract.
unsafe impl<W: AsRef<[u64]> + AsMut<[u64]>> SegmentSource for FirstFit<W> {
    fn reads_zero(&self) -> bool {
        self.zero
    }

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        let align = u64::from(align_units.max(1));
        self.lowest = self.next(self.lowest, false);
        let mut at = self.lowest;
        loop {
            let aligned = (self.base_units + u64::from(at)).next_multiple_of(align);
            let first = u32::try_from(aligned - self.base_units).ok()?;
            if units > self.units.checked_sub(first)? {
                return None;
            }
            let end = self.next(first, true);
            if end - first >= units {
                self.set(first, units, true);
                return Some(first);
            }
            at = self.next(end, false);
        }
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let end = first + units;
        if more > self.units - end || self.next(end, true) - end < more {
            return false;
        }
        self.set(end, more, true);
        true
    }

    fn release(&mut self, first: u32, units: u32) {
        self.set(first, units, false);
        self.lowest = self.lowest.min(first);
    }

    /// Memory of this source never goes back.
    fn purge(&mut self, _: u32, _: u32) -> bool {
        false
    }
}

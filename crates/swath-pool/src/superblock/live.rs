//! The live bits: where a block in use begins.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use crate::superblock::class::UNIT_GRANULES_SHIFT;

/// The live bits of one unit, one for each granule: storage that the caller supplies, one for each unit. All
/// zeroes is a valid and the initial value.
#[repr(transparent)]
pub struct Live {
    words: [AtomicU64; LIVE_WORDS],
}

/// Words of a unit's live bits.
const LIVE_WORDS: usize = 1 << (UNIT_GRANULES_SHIFT - 6);

impl Live {
    /// Makes the bits of a unit without a block.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; LIVE_WORDS] }
    }
}

/// The live bits of all units: of each granule, whether a block in use begins there.
#[derive(Clone, Copy)]
pub(crate) struct LiveBits<'m>(&'m [Live]);

impl<'m> LiveBits<'m> {
    pub(crate) fn new(units: &'m [Live]) -> Self {
        Self(units)
    }

    #[inline(always)]
    fn word(self, granule: usize) -> Option<&'m AtomicU64> {
        let unit = self.0.get(granule >> UNIT_GRANULES_SHIFT)?;
        Some(&unit.words[(granule / 64) % LIVE_WORDS])
    }

    /// The word of a granule.
    ///
    /// # Safety
    /// The granule lies in the arena.
    #[inline(always)]
    pub(crate) unsafe fn word_unchecked(self, granule: usize) -> &'m AtomicU64 {
        // SAFETY: the records are arrays of words, one after the other, and the granule's is among them.
        unsafe { &*self.0.as_ptr().cast::<AtomicU64>().add(granule / 64) }
    }

    #[inline(always)]
    pub(crate) fn has(self, granule: usize) -> bool {
        let word = self.word(granule).map_or(0, |word| word.load(Relaxed));
        word >> (granule % 64) & 1 != 0
    }

    /// As [`has`](Self::has).
    ///
    /// # Safety
    /// The granule lies in the arena.
    #[inline(always)]
    pub(crate) unsafe fn has_unchecked(self, granule: usize) -> bool {
        // SAFETY: as the caller says.
        unsafe { self.word_unchecked(granule) }.load(Relaxed) >> (granule % 64) & 1 != 0
    }

    /// Sets a granule's bit, as the owner.
    #[cfg(test)]
    pub(crate) fn set(self, granule: usize) {
        self.word(granule).unwrap().fetch_or(1 << (granule % 64), Relaxed);
    }

    /// Clears a granule's bit, as the owner, and returns true if it was set.
    pub(crate) fn clear(self, granule: usize) -> bool {
        let Some(word) = self.word(granule) else { return false };
        let (bits, bit) = (word.load(Relaxed), 1 << (granule % 64));
        word.store(bits & !bit, Relaxed);
        bits & bit != 0
    }

    /// The granules of `units` units from `first` on where a block in use begins.
    pub(crate) fn granules(self, first: u32, units: u32) -> impl Iterator<Item = usize> {
        let words = first as usize * LIVE_WORDS..(first + units) as usize * LIVE_WORDS;
        words.flat_map(move |word| {
            let live = self.word(64 * word).map_or(0, |word| word.load(Relaxed));
            (0..64).filter(move |bit| live >> bit & 1 != 0).map(move |bit| 64 * word + bit)
        })
    }

    /// Blocks that begin in `units` units from `first` on.
    pub(crate) fn count(self, first: u32, units: u32) -> u32 {
        let units = self.0.iter().skip(first as usize).take(units as usize);
        units.flat_map(|unit| &unit.words).map(|word| word.load(Relaxed).count_ones()).sum()
    }
}

//! The live bits: where a block in use begins.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use crate::superblock::class::UNIT_GRANULES_SHIFT;

/// The live bits of one unit, one for each granule: storage that the caller supplies, one for each unit. All
/// zeroes is a valid and the initial value.
///
/// Words of 32 bits: who allocates and frees slots side by side changes one word again and again, and each change waits
/// for the one before.
#[repr(C, align(8))]
pub struct Live {
    words: [AtomicU32; LIVE_WORDS],
}

/// Bits of a word.
pub(crate) const LIVE_BITS: usize = u32::BITS as usize;

/// Words of a unit's live bits.
const LIVE_WORDS: usize = (1 << UNIT_GRANULES_SHIFT) / LIVE_BITS;

impl Live {
    /// Makes the bits of a unit without a block.
    #[allow(clippy::new_without_default, reason = "storage, not a value")]
    pub fn new() -> Self {
        Self { words: [const { AtomicU32::new(0) }; LIVE_WORDS] }
    }

    /// The two words of 64 granules, which are so many times 64 granules behind a unit's first.
    #[inline(always)]
    fn pair(&self, index: usize) -> [&AtomicU32; 2] {
        let low = 2 * index % LIVE_WORDS;
        [&self.words[low], &self.words[low + 1]]
    }

    /// The bits of 64 granules, which are so many times 64 granules behind a unit's first.
    #[inline(always)]
    pub(crate) fn bits(&self, index: usize) -> u64 {
        let [low, high] = self.pair(index);
        u64::from(high.load(Relaxed)) << LIVE_BITS | u64::from(low.load(Relaxed))
    }

    /// As [`bits`](Self::bits), at once.
    ///
    /// # Safety
    /// The caller is the owner of what the unit is part of: nobody else writes to it.
    #[inline(always)]
    pub(crate) unsafe fn own_bits(&self, index: usize) -> u64 {
        let low = self.words.as_ptr().wrapping_add(2 * index % LIVE_WORDS);
        // SAFETY: two words of the array, the first at a multiple of 8, which all read and only this thread writes.
        let bits = unsafe { low.cast::<u64>().read() };
        if cfg!(target_endian = "big") { bits.rotate_left(u32::BITS) } else { bits }
    }
}

/// The live bits of all units: of each granule, whether a block in use begins there.
#[derive(Clone, Copy)]
pub(crate) struct LiveBits<'m>(&'m [Live]);

impl<'m> LiveBits<'m> {
    pub(crate) const fn new(units: &'m [Live]) -> Self {
        Self(units)
    }

    #[inline(always)]
    fn word(self, granule: usize) -> Option<&'m AtomicU32> {
        let unit = self.0.get(granule >> UNIT_GRANULES_SHIFT)?;
        Some(&unit.words[(granule / LIVE_BITS) % LIVE_WORDS])
    }

    /// The bits of the first unit, with all behind it.
    #[inline(always)]
    pub(crate) const fn first(self) -> *const Live {
        self.0.as_ptr()
    }

    /// The bits of a unit.
    #[inline(always)]
    pub(crate) fn unit(self, index: usize) -> Option<&'m Live> {
        self.0.get(index)
    }

    /// The word of a granule.
    ///
    /// # Safety
    /// The granule lies in the arena.
    #[inline(always)]
    pub(crate) unsafe fn word_unchecked(self, granule: usize) -> &'m AtomicU32 {
        // SAFETY: as the caller says.
        unsafe { word_of(self.first(), granule) }
    }

    #[inline(always)]
    pub(crate) fn has(self, granule: usize) -> bool {
        let bit = (granule % LIVE_BITS) as u32;
        self.word(granule).is_some_and(|word| word.load(Relaxed) >> bit & 1 != 0)
    }

    /// Sets a granule's bit, as the owner.
    #[cfg(test)]
    pub(crate) fn set(self, granule: usize) {
        self.word(granule).unwrap().fetch_or(1 << (granule % LIVE_BITS), Relaxed);
    }

    /// Those of `bits` that are live: the positions in word `index` of a superblock that begins at granule
    /// `first`, and whose positions lie `step` granules apart.
    #[inline]
    pub(crate) fn among(self, first: usize, index: usize, step: u32, bits: u64) -> u64 {
        let step = step as usize;
        let first = first + 64 * index * step;
        if step == 1 {
            let unit = self.unit(first >> UNIT_GRANULES_SHIFT);
            return unit.map_or(0, |unit| unit.bits(first / 64)) & bits;
        }
        let (mut rest, mut live) = (bits, 0);
        while rest != 0 {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            live |= u64::from(self.has(first + bit * step)) << bit;
        }
        live
    }

    /// Clears those of `bits` that are live, as the owner, and returns them; the rest as for
    /// [`among`](Self::among).
    pub(crate) fn clear_among(self, first: usize, index: usize, step: u32, bits: u64) -> u64 {
        if step == 1 {
            let first = first + 64 * index;
            let Some(unit) = self.unit(first >> UNIT_GRANULES_SHIFT) else { return 0 };
            let clear = |word: &AtomicU32, bits: u64| {
                let (live, bits) = (word.load(Relaxed), bits as u32);
                word.store(live & !bits, Relaxed);
                u64::from(live & bits)
            };
            let [low, high] = unit.pair(first / 64);
            return clear(high, bits >> LIVE_BITS) << LIVE_BITS | clear(low, bits);
        }
        let step = step as usize;
        let first = first + 64 * index * step;
        let (mut rest, mut cleared) = (bits, 0);
        while rest != 0 {
            let bit = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let granule = first + bit * step;
            let Some(word) = self.word(granule) else { continue };
            cleared |= u64::from(clear_in(word, granule)) << bit;
        }
        cleared
    }

    /// Returns true if any block begins in `units` units from `first` on.
    pub(crate) fn any(self, first: u32, units: u32) -> bool {
        let units = self.0.iter().skip(first as usize).take(units as usize);
        let bits = units.flat_map(|unit| &unit.words).fold(0, |all, word| all | word.load(Relaxed));
        bits != 0
    }

    /// Blocks that begin in `units` units from `first` on.
    pub(crate) fn count(self, first: u32, units: u32) -> u32 {
        let units = self.0.iter().skip(first as usize).take(units as usize);
        units.flat_map(|unit| &unit.words).map(|word| word.load(Relaxed).count_ones()).sum()
    }
}

/// The word of a granule, of which the bits of the arena's first unit lie at `first`.
///
/// # Safety
/// The granule lies in the arena.
#[inline(always)]
pub(crate) unsafe fn word_of<'m>(first: *const Live, granule: usize) -> &'m AtomicU32 {
    // SAFETY: the records are arrays of words, one after the other, and the granule's is among them.
    unsafe { &*first.cast::<AtomicU32>().add(granule / LIVE_BITS) }
}

/// Clears a granule's bit, as the owner, and returns true, if it is set: one instruction of the processor does both.
///
/// # Safety
/// As for [`word_of`].
#[inline(always)]
pub(crate) unsafe fn clear(first: *const Live, granule: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a word of the records, as the caller says, that this thread alone writes; the bit's number is taken
    // modulo 32.
    unsafe {
        core::arch::asm!(
            "mov {word:e}, dword ptr [{words} + 4 * {index}]",
            "btr {word:e}, {granule:e}",
            "jnc {unset}",
            "mov dword ptr [{words} + 4 * {index}], {word:e}",
            word = out(reg) _,
            words = in(reg) first,
            index = in(reg) granule / LIVE_BITS,
            granule = in(reg) granule,
            unset = label { return false },
            options(nostack),
        );
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        // SAFETY: as the caller says.
        clear_in(unsafe { word_of(first, granule) }, granule)
    }
}

/// Clears a granule's bit in its word, as the owner, and returns true if it was set.
#[inline(always)]
fn clear_in(word: &AtomicU32, granule: usize) -> bool {
    let (live, mask) = (word.load(Relaxed), 1 << (granule % LIVE_BITS));
    word.store(live & !mask, Relaxed);
    live & mask != 0
}

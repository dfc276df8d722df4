//! The areas that one CPU holds ready: runs of any place and length.

use swath_arch::{Extent, Pfn};

use crate::front::bits::UNIT_FRAMES;

/// Doublings of an area.
const CLAIMS_MOST: u64 = 6;

/// Areas of a slot; few for the model checker, which must see them overflow.
pub(super) const AREAS: usize = if cfg!(loom) { 2 } else { 8 };

/// Areas that are spare: as shorter ones come, too, those of several slots.
pub(super) const SPARE_AREAS: usize = if cfg!(loom) { 2 } else { 64 };

/// Runs of frames, from which what no block that came back serves is cut.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame.
pub(super) struct Areas<const N: usize = AREAS> {
    len: usize,
    /// Claims since something was returned.
    claims: u64,
    /// Frames at which claims stop growing, and beyond which areas go back.
    pub(super) frames_max: u64,
    places: [Extent; N],
}

/// Frames in the areas of each of so many CPUs, where the memory has so many: together an eighth of it, but
/// each at least 16,384, so that the allocator's lock is worth taking, and at most 65,536, so that it is not
/// held for long.
pub(super) fn frames_max(memory: u64, cpus: usize) -> u64 {
    if cfg!(loom) { UNIT_FRAMES } else { (memory / 8 / cpus as u64).clamp(1 << 14, 1 << 16) }
}

/// Frames that may be spare where each of so many CPUs has such a share: as many as all shares, but beyond one
/// no more than an eighth of the memory.
pub(super) fn spare_max(memory: u64, cpus: usize, share: u64) -> u64 {
    share.saturating_mul(cpus as u64).min(share.max(memory / 8))
}

/// A slot's words were not what they can be, or the allocator did not take its frames back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong;

/// Frames of huge pages that may be pooled: half of the memory, or one share.
pub(super) fn pooled_max(memory: u64, share: u64) -> u64 {
    share.max(memory / 2)
}

/// The runs of blocks of `count` frames that ascend.
pub(super) fn runs(ascending: &[u64], count: u64) -> impl Iterator<Item = Extent> + '_ {
    let chunks = ascending.chunk_by(move |below, above| above.wrapping_sub(*below) == count);
    chunks.filter_map(move |chunk| {
        Some(Extent::new(Pfn::new(*chunk.first()?), chunk.len() as u64 * count))
    })
}

impl<const N: usize> Areas<N> {
    /// Holds nothing, and frames up to so many.
    pub(super) const fn new(frames_max: u64) -> Self {
        const NOTHING: Extent = Extent { start: Pfn::new(0), count: 0 };
        Self { len: 0, claims: 0, frames_max, places: [NOTHING; N] }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.len, self.claims) = (0, 0);
    }

    /// Forgets the areas.
    pub(super) fn clear_areas(&mut self) {
        self.len = 0;
    }

    /// Words of the areas.
    #[cfg(feature = "testing")]
    pub(super) const WORDS: usize = 3 + 2 * N;

    /// Flips a bit of one of the words; returns what it was.
    #[cfg(feature = "testing")]
    pub(super) fn flip(&mut self, word: usize, bit: u32) -> u64 {
        match word {
            0 => flip_len(&mut self.len, bit),
            1 => flip(&mut self.claims, bit),
            2 => flip(&mut self.frames_max, bit),
            at => {
                let Extent { start, count } = &mut self.places[(at - 3) / 2];
                if at % 2 == 0 {
                    return flip(count, bit);
                }
                let mut frame = start.raw();
                let was = flip(&mut frame, bit);
                *start = Pfn::new(frame);
                was
            }
        }
    }

    /// Returns false if there cannot be so many areas.
    pub(super) fn fits(&self) -> bool {
        self.len <= N
    }

    /// All areas.
    pub(super) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.places.iter().take(self.len).copied()
    }

    /// Counts the areas.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Counts the frames.
    pub(super) fn count(&self) -> u64 {
        self.iter().fold(0, |sum: u64, area| sum.saturating_add(area.count))
    }

    /// Cuts so many frames out of an area. O(areas).
    #[inline(never)]
    pub(super) fn cut_run(&mut self, count: u64) -> Option<u64> {
        self.cut(count, 1)
    }

    /// Cuts an aligned block out of an area. O(areas).
    #[inline(never)]
    pub(super) fn cut_block(&mut self, frames: u64) -> Option<u64> {
        self.cut(frames, frames)
    }

    /// Cuts so many frames, the first a multiple of `align`, out of the area that came last of those
    /// that have them.
    #[inline(always)]
    fn cut(&mut self, count: u64, align: u64) -> Option<u64> {
        let len = self.len;
        for at in (0..len.min(N)).rev() {
            let area = self.places[at];
            let from = area.start.raw();
            let start = from.wrapping_add(align - 1) & !(align - 1);
            let before = start.wrapping_sub(from);
            let Some(after) = area.count.checked_sub(before.saturating_add(count)) else {
                continue;
            };
            if before > 0 && after > 0 {
                // Two are left.
                let Some(free) = self.places.get_mut(len) else { continue };
                *free = Extent::new(Pfn::new(start.wrapping_add(count)), after);
                self.len = len + 1;
                self.places[at].count = before;
            } else if after > 0 {
                self.places[at] = Extent::new(Pfn::new(start.wrapping_add(count)), after);
            } else if before > 0 {
                self.places[at].count = before;
            } else {
                self.places[at] = self.places[len.min(N) - 1];
                self.len = len.min(N) - 1;
            }
            return Some(start);
        }
        None
    }

    /// Takes in an area, or says that there is no room for it.
    #[inline(always)]
    pub(super) fn push(&mut self, area: Extent) -> bool {
        let Some(place) = self.places.get_mut(self.len) else { return false };
        *place = area;
        self.len += 1;
        true
    }

    /// Joins a run to the area that ends or begins at it, or takes it in as one.
    pub(super) fn join(&mut self, run: Extent) -> bool {
        let end = |extent: Extent| extent.start.raw().wrapping_add(extent.count);
        for area in self.places.iter_mut().take(self.len) {
            let below = end(*area) == run.start.raw();
            if below || end(run) == area.start.raw() {
                let start = if below { area.start } else { run.start };
                *area = Extent::new(start, area.count.wrapping_add(run.count));
                return true;
            }
        }
        self.push(run)
    }

    /// Frames of the next area, of which `least` are wanted: twice as many for each claim after which
    /// nothing was returned, as long as the areas are short together.
    pub(super) fn next_frames(&mut self, least: u64) -> u64 {
        let doubled = least << self.claims.min(CLAIMS_MOST);
        self.claims = self.claims.saturating_add(1);
        doubled.min(self.frames_max.saturating_sub(self.count())).max(least)
    }

    /// Something was returned: the next area is a short one.
    pub(super) fn forget_claims(&mut self) {
        self.claims = 0;
    }

    /// Takes in an area in place of the older half, which goes to `gone`; false if there were more areas than
    /// can be.
    pub(super) fn push_over(&mut self, area: Extent, gone: impl FnMut(Extent)) -> bool {
        let fits = self.fits();
        let areas = self.places.get_mut(..self.len).unwrap_or_default();
        let older = areas.len().div_ceil(2);
        areas.iter().take(older).copied().for_each(gone);
        areas.rotate_left(older);
        self.len = areas.len() - older;
        let room = self.push(area);
        debug_assert!(room, "half of the areas are gone");
        fits
    }

    /// Takes out the area that came last.
    fn pop(&mut self) -> Option<Extent> {
        let last = self.len.checked_sub(1)?;
        let area = *self.places.get(last)?;
        self.len = last;
        Some(area)
    }

    /// Takes areas of another's, the last first, until it holds the most frames or half of its places are taken.
    pub(super) fn take_from<const M: usize>(&mut self, other: &mut Areas<M>) {
        while !self.is_half_full()
            && self.count() < self.frames_max
            && let Some(area) = other.pop()
        {
            let room = self.push(area);
            debug_assert!(room, "half of the places are free");
        }
    }

    /// Takes all areas of another's if there is room for them.
    pub(super) fn take_all_from<const M: usize>(&mut self, other: &mut Areas<M>) -> bool {
        let fits = other.fits()
            && self.len.saturating_add(other.len) <= N
            && self.count().saturating_add(other.count()) <= self.frames_max;
        if fits {
            other.iter().for_each(|area| _ = self.push(area));
            other.clear();
        }
        fits
    }

    /// Takes all areas of another's, for which there is room.
    pub(super) fn take_rest_from<const M: usize>(&mut self, other: &mut Areas<M>) {
        for area in other.iter() {
            let room = self.push(area);
            debug_assert!(room, "there is room for all");
        }
        other.clear();
    }

    /// Returns true if there are no more areas than half of a slot's.
    pub(super) fn are_few(&self) -> bool {
        self.len <= AREAS / 2
    }

    /// The places that are free until half of them are taken.
    pub(super) fn half_free(&self) -> core::ops::Range<usize> {
        self.len..N / 2
    }

    /// Returns true if half of the places are taken.
    pub(super) fn is_half_full(&self) -> bool {
        self.len >= N / 2
    }
}

/// Flips a bit of a word; returns what it was.
#[cfg(feature = "testing")]
pub(super) fn flip(word: &mut u64, bit: u32) -> u64 {
    let was = *word;
    *word ^= 1 << bit;
    was
}

/// As [`flip`] for a length.
#[cfg(feature = "testing")]
pub(super) fn flip_len(len: &mut usize, bit: u32) -> u64 {
    let was = *len;
    *len ^= 1 << (bit % usize::BITS);
    was as u64
}

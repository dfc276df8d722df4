//! The areas that one CPU holds ready: runs of any place and length.

use lock_api::{Mutex, RawMutex};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::front::bits::{BITS, UNIT_FRAMES, UNIT_ORDER};

/// Frames of an area that short blocks are cut from: as many as have their bits on one cache
/// line.
const AREA_FRAMES: u64 = if cfg!(loom) { BITS } else { 256 };

/// Doublings of an area.
const CLAIMS_MOST: u64 = 6;

/// The order of what short blocks are cut from where the allocator gives no area for them.
const HUGE_ORDER: u32 = if UNIT_ORDER < 9 { UNIT_ORDER } else { 9 };

/// Frames of a block from which on each is an area, though it is not beside others.
const HUGE_FRAMES: u64 = 1 << HUGE_ORDER;

/// Areas of a slot; few for the model checker, which must see them overflow.
const AREAS: usize = if cfg!(loom) { 2 } else { 8 };

/// A slot's words were not what they can be, or the allocator did not take its frames back.
#[derive(Debug)]
pub(super) struct Wrong;

/// Runs of frames, from which what no block that came back serves is cut.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame.
pub(super) struct Areas {
    len: usize,
    /// Claims since something was returned.
    claims: u64,
    /// Frames at which claims stop growing, and beyond which areas go back.
    frames_max: u64,
    places: [Extent; AREAS],
}

/// Frames in the areas of each of so many CPUs, where the memory has so many: together an eighth of it, but
/// each at least 16,384, so that the allocator's lock is worth taking, and at most 65,536, so that it is not
/// held for long.
pub(super) fn frames_max(memory: u64, cpus: usize) -> u64 {
    if cfg!(loom) { UNIT_FRAMES } else { (memory / 8 / cpus as u64).clamp(1 << 14, 1 << 16) }
}

/// Frees blocks; each is tried.
pub(super) fn free_all(
    blocks: impl Iterator<Item = Extent>,
    shared: &mut impl FrameAllocator,
) -> Result<(), Wrong> {
    let tried = blocks.map(|block| shared.free(block).map_err(|_| Wrong));
    tried.fold(Ok(()), Result::and)
}

/// The runs of blocks of `count` frames that ascend.
pub(super) fn runs(ascending: &[u64], count: u64) -> impl Iterator<Item = Extent> + '_ {
    let chunks = ascending.chunk_by(move |below, above| above.wrapping_sub(*below) == count);
    chunks.filter_map(move |chunk| {
        Some(Extent::new(Pfn::new(*chunk.first()?), chunk.len() as u64 * count))
    })
}

/// The run that the last blocks of `count` frames are, up or down, and how many are before them.
fn last_run(blocks: &[u64], count: u64) -> (usize, Extent) {
    let Some(&last) = blocks.last() else { return (0, Extent::default()) };
    // Whether each block but the first begins so many frames above the one before it.
    let steps = |step: u64| {
        let pairs = blocks.iter().zip(blocks.iter().skip(1)).rev();
        pairs.take_while(|&(before, block)| block.wrapping_sub(*before) == step).count()
    };
    let up = steps(count);
    let more = if up > 0 { up } else { steps(count.wrapping_neg()) };
    let start = last.wrapping_sub(count.wrapping_mul(up as u64));
    (blocks.len() - 1 - more, Extent::new(Pfn::new(start), count.wrapping_mul(more as u64 + 1)))
}

impl Areas {
    /// Holds nothing, and frames up to so many.
    pub(super) const fn new(frames_max: u64) -> Self {
        const NOTHING: Extent = Extent { start: Pfn::new(0), count: 0 };
        Self { len: 0, claims: 0, frames_max, places: [NOTHING; AREAS] }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.len, self.claims) = (0, 0);
    }

    /// Words of the areas.
    #[cfg(feature = "testing")]
    pub(super) const WORDS: usize = 3 + 2 * AREAS;

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
        self.len <= AREAS
    }

    /// All areas.
    pub(super) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.places.iter().take(self.len).copied()
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
        for at in (0..len.min(AREAS)).rev() {
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
                self.places[at] = self.places[len.min(AREAS) - 1];
                self.len = len.min(AREAS) - 1;
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

    /// Makes room where there is none for more of these blocks of `count` frames, which are in the order
    /// in which they came. If the last half of them or more are one run, that becomes an area. Otherwise the
    /// upper half goes, huge pages to the areas, too, and what else goes, to the allocator. How many stay.
    #[inline(always)]
    pub(super) fn make_room<R: RawMutex>(
        &mut self,
        blocks: &mut [u64],
        count: u64,
        shared: &Mutex<R, impl FrameAllocator>,
    ) -> (usize, Result<(), Wrong>) {
        let (before, run) = last_run(blocks, count);
        if before <= blocks.len() / 2 {
            return (before, self.collect(run, shared));
        }
        blocks.sort_unstable();
        let (kept, gone) = blocks.split_at(blocks.len() / 2);
        let gone_runs = runs(gone, count);
        let result = if count >= HUGE_FRAMES {
            gone_runs.map(|run| self.collect(run, shared)).fold(Ok(()), Result::and)
        } else {
            free_all(gone_runs, &mut *shared.lock())
        };
        (kept.len(), result)
    }

    /// Makes a run that came back an area, or joins it to one. Only if there is no room for it, or the
    /// areas would be too long together, they go to the allocator: all of them at once, so that who
    /// gives back much in a row rarely asks for the lock. Where another has it, they may grow to twice
    /// as many frames before that is waited for.
    fn collect<R: RawMutex>(
        &mut self,
        run: Extent,
        shared: &Mutex<R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        let (frames, most) = (self.count().saturating_add(run.count), self.frames_max);
        if frames <= most && self.join(run) {
            return Ok(());
        }
        let mut shared = match shared.try_lock() {
            Some(shared) => shared,
            None if frames <= most.saturating_mul(2) && self.join(run) => return Ok(()),
            None => shared.lock(),
        };
        let fits = self.fits();
        let result = free_all(self.iter(), &mut *shared);
        drop(shared);
        self.clear();
        let room = self.push(run);
        debug_assert!(room, "no area is left");
        if fits { result } else { Err(Wrong) }
    }

    /// Joins a run to the area that ends or begins at it, or takes it in as one.
    fn join(&mut self, run: Extent) -> bool {
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

    /// Takes in an area that came back and for which there is no room: the older half goes.
    pub(super) fn spill(
        &mut self,
        area: Extent,
        shared: &mut impl FrameAllocator,
    ) -> Result<(), Wrong> {
        self.claims = 0;
        self.push_over(area, shared)
    }

    /// Takes in an area in place of the older half.
    fn push_over(&mut self, area: Extent, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let result = match self.places.get_mut(..self.len) {
            None => {
                self.len = 0;
                Err(Wrong)
            }
            Some(areas) => {
                let gone = areas.len().div_ceil(2);
                let result = free_all(areas.iter().take(gone).copied(), shared);
                areas.rotate_left(gone);
                self.len -= gone;
                result
            }
        };
        let room = self.push(area);
        debug_assert!(room, "half of the areas are gone");
        result
    }

    /// Takes in an area that was claimed, for which there may have to be made room.
    fn keep(&mut self, area: Extent, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        if self.push(area) { Ok(()) } else { self.push_over(area, shared) }
    }

    /// Frames of the next area, of which `least` are wanted: twice as many for each claim after which
    /// nothing was returned, as long as the areas are short together.
    fn next_frames(&mut self, least: u64) -> u64 {
        let doubled = least << self.claims.min(CLAIMS_MOST);
        self.claims = self.claims.saturating_add(1);
        doubled.min(self.frames_max.saturating_sub(self.count())).max(least)
    }

    /// Claims an area that has an aligned block of `order`, and takes that out: what the allocator
    /// gives first, which it prefers to use, if it has one, otherwise a whole huge page.
    pub(super) fn claim_block(
        &mut self,
        order: u32,
        shared: &mut impl FrameAllocator,
    ) -> Result<Option<u64>, Wrong> {
        let frames = 1_u64 << order;
        // Blocks whose bits are those of parts come from units of their own.
        let wanted =
            self.next_frames(if frames < AREA_FRAMES / 2 { AREA_FRAMES } else { UNIT_FRAMES });
        if frames < wanted && self.claim(frames, wanted, shared)? {
            return Ok(self.cut_block(frames));
        }
        let Ok(block) = shared.allocate_aligned(Order::known(order.max(HUGE_ORDER) as u8)) else {
            return Ok(None);
        };
        if block.count == frames {
            return Ok(Some(block.start.raw()));
        }
        self.keep(block, shared)?;
        Ok(self.cut_block(frames))
    }

    /// Claims areas that have an aligned block of `frames` each, `wanted` frames together: what the
    /// allocator gives first. Where that is in pieces, several, as the lock is held. True if there is one.
    fn claim(
        &mut self,
        frames: u64,
        mut wanted: u64,
        shared: &mut impl FrameAllocator,
    ) -> Result<bool, Wrong> {
        let mut claimed = false;
        while wanted >= frames && (!claimed || self.len < AREAS / 2) {
            let Some(area) = shared.allocate_block(wanted) else { break };
            let before = area.start.raw().next_multiple_of(frames) - area.start.raw();
            if before + frames > area.count {
                shared.free(area).map_err(|_| Wrong)?;
                break;
            }
            wanted -= area.count;
            self.keep(area, shared)?;
            claimed = true;
        }
        Ok(claimed)
    }

    /// Claims an area for several runs of so many frames, and takes one out, or all if there are fewer.
    pub(super) fn claim_run(
        &mut self,
        count: u64,
        shared: &mut impl FrameAllocator,
    ) -> Result<Option<Extent>, Wrong> {
        // A rest that is too short for another would be served first when it has gone back.
        let frames = self.next_frames(AREA_FRAMES).max(count) / count * count;
        let Some(area) = shared.allocate_block(frames) else { return Ok(None) };
        if area.count <= count {
            return Ok(Some(area));
        }
        self.keep(area, shared)?;
        Ok(self.cut_run(count).map(|start| Extent::new(Pfn::new(start), count)))
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

//! The blocks of more than one frame that one CPU holds ready.

use lock_api::{Mutex, RawMutex};
use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::front::bits::{BITS, UNIT_FRAMES, UNIT_ORDER};

/// Frames of an area that short blocks are cut from: as many as have their bits on one cache
/// line.
const AREA_FRAMES: u64 = if cfg!(loom) { BITS } else { 256 };

/// Frames in areas at which claims stop growing, and beyond which areas go back.
const AREAS_FRAMES: u64 = if cfg!(loom) { UNIT_FRAMES } else { 1 << 14 };

/// Doublings of an area.
const CLAIMS_MOST: u64 = 6;

/// The order of what short blocks are cut from where the allocator gives no area for them.
const HUGE_ORDER: u32 = if UNIT_ORDER < 9 { UNIT_ORDER } else { 9 };

/// Areas of a slot, and blocks of each order; few for the model checker, which must see them
/// overflow.
const AREAS: usize = if cfg!(loom) { 2 } else { 8 };
const BLOCKS: usize = if cfg!(loom) { 2 } else { 14 };

/// Frames in the blocks of one order.
const STACK_FRAMES: usize = 1 << 12;

/// The most blocks of an order.
const fn depth(order: usize) -> usize {
    let most = STACK_FRAMES >> order;
    if most < BLOCKS { most } else { BLOCKS }
}

/// Aligned blocks of one order: the place of the highest, [`NONE`] at the [`bottom`], and the blocks'
/// starts from there up. So many words that a stack is found by a shift.
type Stack = [u64; BLOCKS + 2];

/// The place of the highest block of a full stack.
const FULL: u64 = BLOCKS as u64 + 1;

/// What is below the lowest block of a stack: no block's start.
const NONE: u64 = u64::MAX;

/// The place below the lowest block of an order, so that all stacks are full at the same height.
const fn bottom(order: usize) -> usize {
    1 + BLOCKS - depth(order)
}

/// Stacks, found by their order: that of single frames stays empty.
const STACKS: usize = UNIT_ORDER as usize + 1;

/// Stacks without a block.
const EMPTY: [Stack; STACKS] = {
    let mut stacks = [[NONE; BLOCKS + 2]; STACKS];
    let mut at = 0;
    while at < stacks.len() {
        stacks[at][0] = bottom(at) as u64;
        at += 1;
    }
    stacks
};

/// Aligned blocks by order, as they came back, and **areas** of any place and length, from which
/// what no such block serves is cut.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame.
pub(super) struct Blocks {
    /// Those of order 1 come first.
    stacks: [Stack; STACKS],
    areas_len: usize,
    areas: [Extent; AREAS],
    /// Claims since something was returned.
    claims: u64,
}

/// A slot's words were not what they can be, or the allocator did not take its frames back.
#[derive(Debug)]
pub(super) struct Wrong;

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

/// What leaves a slot that has no room for more of these ascending blocks of `count` frames: all, if they
/// are one run, otherwise the upper half. How many stay, and what leaves if it is one run.
pub(super) fn leaving(ascending: &[u64], count: u64) -> (usize, Option<Extent>) {
    let one_run = |blocks: &[u64]| {
        runs(blocks, count).next().filter(|run| run.count == blocks.len() as u64 * count)
    };
    let all = one_run(ascending);
    if all.is_some() {
        return (0, all);
    }
    let (kept, gone) = ascending.split_at(ascending.len() / 2);
    (kept.len(), one_run(gone))
}

/// Returns true if the frames, at least one, are an aligned block of an order.
#[inline(always)]
pub(super) fn is_block(extent: Extent) -> bool {
    (extent.start.raw() | extent.count) & extent.count.wrapping_sub(1) == 0
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

impl Blocks {
    /// Holds nothing.
    pub(super) const fn new() -> Self {
        const NOTHING: Extent = Extent { start: Pfn::new(0), count: 0 };
        Self { stacks: EMPTY, areas_len: 0, areas: [NOTHING; AREAS], claims: 0 }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.stacks = EMPTY;
        (self.areas_len, self.claims) = (0, 0);
    }

    /// Words of the blocks.
    #[cfg(feature = "testing")]
    pub(super) const WORDS: usize = STACKS * (2 + BLOCKS) + 2 + 2 * AREAS;

    /// Flips a bit of one of the words; returns what it was.
    #[cfg(feature = "testing")]
    pub(super) fn flip(&mut self, word: usize, bit: u32) -> u64 {
        if let Some(word) = self.stacks.as_flattened_mut().get_mut(word) {
            return flip(word, bit);
        }
        match word - self.stacks.as_flattened().len() {
            0 => flip_len(&mut self.areas_len, bit),
            1 => flip(&mut self.claims, bit),
            at => {
                let Extent { start, count } = &mut self.areas[(at - 2) % AREAS];
                if at - 2 >= AREAS {
                    return flip(count, bit);
                }
                let mut frame = start.raw();
                let was = flip(&mut frame, bit);
                *start = Pfn::new(frame);
                was
            }
        }
    }

    /// Takes out a block of an order from 1 to [`UNIT_ORDER`] that came back as one.
    #[inline(always)]
    pub(super) fn pop_block(&mut self, order: u32) -> Option<u64> {
        let stack = self.stacks.get_mut(order as usize)?;
        // The place is one of the array's, whatever the word says: `BLOCKS + 2` is a power of two.
        let start = stack[stack[0] as usize % stack.len()];
        if start == NONE {
            return None;
        }
        stack[0] = stack[0].wrapping_sub(1);
        Some(start)
    }

    /// Takes out so many frames in a row. O(areas).
    #[inline(always)]
    pub(super) fn pop_run(&mut self, count: u64) -> Option<u64> {
        if !count.is_power_of_two() {
            return self.cut_run(count);
        }
        self.pop_block(count.trailing_zeros()).or_else(|| self.cut_block(count))
    }

    /// Cuts so many frames out of an area. O(areas).
    #[inline(never)]
    fn cut_run(&mut self, count: u64) -> Option<u64> {
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
        let len = self.areas_len;
        for at in (0..len.min(AREAS)).rev() {
            let area = self.areas[at];
            let from = area.start.raw();
            let start = from.wrapping_add(align - 1) & !(align - 1);
            let before = start.wrapping_sub(from);
            let Some(after) = area.count.checked_sub(before.saturating_add(count)) else {
                continue;
            };
            if before > 0 && after > 0 {
                // Two are left.
                let Some(free) = self.areas.get_mut(len) else { continue };
                *free = Extent::new(Pfn::new(start.wrapping_add(count)), after);
                self.areas_len = len + 1;
                self.areas[at].count = before;
            } else if after > 0 {
                self.areas[at] = Extent::new(Pfn::new(start.wrapping_add(count)), after);
            } else if before > 0 {
                self.areas[at].count = before;
            } else {
                self.areas[at] = self.areas[len.min(AREAS) - 1];
                self.areas_len = len.min(AREAS) - 1;
            }
            return Some(start);
        }
        None
    }

    /// Takes in an aligned block of an order from 1 to [`UNIT_ORDER`], or says that there is no
    /// room for it.
    #[inline(always)]
    pub(super) fn push_block(&mut self, order: u32, start: u64) -> bool {
        let Some(stack) = self.stacks.get_mut(order as usize) else { return false };
        let next = stack[0].wrapping_add(1);
        if next > FULL {
            return false;
        }
        (stack[next as usize], stack[0]) = (start, next);
        true
    }

    /// Takes in frames, at least two and not more than a unit's, or says that there is no room for
    /// them.
    #[inline(always)]
    pub(super) fn push(&mut self, block: Extent) -> bool {
        if is_block(block) {
            return self.push_block(block.count.trailing_zeros(), block.start.raw());
        }
        self.push_area(block)
    }

    #[inline(always)]
    pub(super) fn push_area(&mut self, area: Extent) -> bool {
        let Some(place) = self.areas.get_mut(self.areas_len) else { return false };
        *place = area;
        self.areas_len += 1;
        true
    }

    /// Makes room for `block`, and takes that in: of aligned blocks the upper half goes, or all that are
    /// one run, of areas the older half.
    #[cold]
    #[inline(never)]
    pub(super) fn spill<R: RawMutex>(
        &mut self,
        block: Extent,
        shared: &Mutex<R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        if !is_block(block) {
            self.claims = 0;
            return self.spill_areas(block, &mut *shared.lock());
        }
        let order = block.count.trailing_zeros();
        let Some(stack) = self.stacks.get_mut(order as usize) else { return Err(Wrong) };
        let bottom = bottom(order as usize);
        let result = match stack.split_at_mut_checked(bottom + 1) {
            Some(([top, ..], starts)) if *top == FULL => {
                starts.sort_unstable();
                let (kept, run) = leaving(starts, block.count);
                *top = (bottom + kept) as u64;
                match run {
                    Some(run) => self.collect(run, shared),
                    None => {
                        let gone = starts.get(kept..).unwrap_or_default();
                        free_all(runs(gone, block.count), &mut *shared.lock())
                    }
                }
            }
            _ => {
                stack[0] = bottom as u64;
                Err(Wrong)
            }
        };
        let room = self.push_block(order, block.start.raw());
        debug_assert!(room, "half of the blocks are gone");
        result
    }

    /// Makes a run that came back an area, or joins it to one. Only if there is no room for it, or the
    /// areas would be too long together, they go to the allocator: all of them at once, so that who
    /// gives back much in a row rarely waits for the lock.
    pub(super) fn collect<R: RawMutex>(
        &mut self,
        run: Extent,
        shared: &Mutex<R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        if self.areas_frames().saturating_add(run.count) <= AREAS_FRAMES && self.join(run) {
            return Ok(());
        }
        let fits = self.areas_len <= AREAS;
        let result = free_all(self.areas(), &mut *shared.lock());
        (self.areas_len, self.claims) = (0, 0);
        let room = self.push_area(run);
        debug_assert!(room, "no area is left");
        if fits { result } else { Err(Wrong) }
    }

    /// Joins a run to the area that ends or begins at it, or takes it in as one.
    fn join(&mut self, run: Extent) -> bool {
        let end = |extent: Extent| extent.start.raw().wrapping_add(extent.count);
        for area in self.areas.iter_mut().take(self.areas_len) {
            let below = end(*area) == run.start.raw();
            if below || end(run) == area.start.raw() {
                let start = if below { area.start } else { run.start };
                *area = Extent::new(start, area.count.wrapping_add(run.count));
                return true;
            }
        }
        self.push_area(run)
    }

    fn spill_areas(&mut self, area: Extent, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let result = match self.areas.get_mut(..self.areas_len) {
            None => {
                self.areas_len = 0;
                Err(Wrong)
            }
            Some(areas) => {
                let gone = areas.len().div_ceil(2);
                let result = free_all(areas.iter().take(gone).copied(), shared);
                areas.rotate_left(gone);
                self.areas_len -= gone;
                result
            }
        };
        let room = self.push_area(area);
        debug_assert!(room, "half of the areas are gone");
        result
    }

    /// Takes in an area, for which there may have to be made room.
    fn keep(&mut self, area: Extent, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        if self.push_area(area) { Ok(()) } else { self.spill_areas(area, shared) }
    }

    /// Frames of the next area, of which `least` are wanted: twice as many for each claim after which
    /// nothing was returned, as long as the areas are short together.
    fn area_frames(&mut self, least: u64) -> u64 {
        let held = self.areas_frames();
        let doubled = least << self.claims.min(CLAIMS_MOST);
        self.claims = self.claims.saturating_add(1);
        doubled.min(AREAS_FRAMES.saturating_sub(held)).max(least)
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
            self.area_frames(if frames < AREA_FRAMES / 2 { AREA_FRAMES } else { UNIT_FRAMES });
        if frames < wanted
            && let Some(area) = shared.allocate_block(wanted)
        {
            let before = area.start.raw().next_multiple_of(frames) - area.start.raw();
            if before + frames <= area.count {
                self.keep(area, shared)?;
                return Ok(self.cut_block(frames));
            }
            shared.free(area).map_err(|_| Wrong)?;
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

    /// Claims an area for several runs of so many frames, and takes one out, or all if there are fewer.
    pub(super) fn claim_run(
        &mut self,
        count: u64,
        shared: &mut impl FrameAllocator,
    ) -> Result<Option<Extent>, Wrong> {
        // A rest that is too short for another would be served first when it has gone back.
        let frames = self.area_frames(AREA_FRAMES).max(count) / count * count;
        let Some(area) = shared.allocate_block(frames) else { return Ok(None) };
        if area.count <= count {
            return Ok(Some(area));
        }
        self.keep(area, shared)?;
        Ok(self.cut_run(count).map(|start| Extent::new(Pfn::new(start), count)))
    }

    /// The blocks of each order.
    fn starts(&self) -> impl Iterator<Item = (u32, &[u64])> {
        self.stacks.iter().zip(0_u32..).map(|(stack, order)| {
            let starts = stack.get(bottom(order as usize) + 1..=stack[0].min(FULL) as usize);
            (order, starts.unwrap_or_default())
        })
    }

    /// Counts the frames.
    pub(super) fn count(&self) -> u64 {
        let aligned = self.starts().map(|(order, starts)| (starts.len() as u64) << order).sum();
        self.areas().fold(aligned, |sum: u64, area| sum.wrapping_add(area.count))
    }

    /// Counts the frames of the areas.
    fn areas_frames(&self) -> u64 {
        self.areas().fold(0, |sum: u64, area| sum.saturating_add(area.count))
    }

    /// All areas.
    fn areas(&self) -> impl Iterator<Item = Extent> + '_ {
        self.areas.iter().take(self.areas_len).copied()
    }

    /// All blocks and areas.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let aligned = self.starts().flat_map(|(order, starts)| {
            starts.iter().map(move |&start| Extent::new(Pfn::new(start), 1 << order))
        });
        aligned.chain(self.areas())
    }

    /// Returns everything.
    pub(super) fn flush(&mut self, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let mut tops = self.stacks.iter().zip(EMPTY);
        let fits = tops.all(|([top, ..], [bottom, ..])| (bottom..=FULL).contains(top));
        let fits = fits && self.areas_len <= AREAS;
        let result = free_all(self.extents(), shared);
        self.clear();
        if fits { result } else { Err(Wrong) }
    }
}

//! The blocks of more than one frame that one CPU holds ready.

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::front::bits::{BITS, UNIT_FRAMES, UNIT_ORDER};

/// Frames of an area that short blocks are cut from: as many as have their bits on one cache
/// line.
const AREA_FRAMES: u64 = if cfg!(loom) { BITS } else { 256 };

/// Areas of a slot, and blocks of each order; few for the model checker, which must see them
/// overflow.
const AREAS: usize = if cfg!(loom) { 2 } else { 8 };
const BLOCKS: usize = if cfg!(loom) { 2 } else { 4 };

/// Aligned blocks of one order.
struct Stack {
    len: usize,
    starts: [u64; BLOCKS],
}

/// Aligned blocks by order, as they came back, and **areas** of any place and length, from which
/// what no such block serves is cut.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame.
pub(super) struct Blocks {
    /// Those of order 1 come first.
    stacks: [Stack; UNIT_ORDER as usize],
    areas_len: usize,
    areas: [Extent; AREAS],
}

/// A slot's words were not what they can be, or the allocator did not take its frames back.
#[derive(Debug)]
pub(super) struct Wrong;

/// Frees blocks; each is tried.
fn free_all(
    blocks: impl Iterator<Item = Extent>,
    shared: &mut impl FrameAllocator,
) -> Result<(), Wrong> {
    let tried = blocks.map(|block| shared.free(block).map_err(|_| Wrong));
    tried.fold(Ok(()), Result::and)
}

/// Returns true if the frames, at least one, are an aligned block of an order.
#[inline(always)]
pub(super) fn is_block(extent: Extent) -> bool {
    (extent.start.raw() | extent.count) & extent.count.wrapping_sub(1) == 0
}

impl Blocks {
    /// Holds nothing.
    pub(super) const fn new() -> Self {
        const EMPTY: Stack = Stack { len: 0, starts: [0; BLOCKS] };
        const NONE: Extent = Extent { start: Pfn::new(0), count: 0 };
        Self { stacks: [EMPTY; UNIT_ORDER as usize], areas_len: 0, areas: [NONE; AREAS] }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.stacks.iter_mut().for_each(|stack| stack.len = 0);
        self.areas_len = 0;
    }

    /// Words of the blocks.
    #[cfg(feature = "testing")]
    pub(super) const WORDS: usize = UNIT_ORDER as usize * (1 + BLOCKS) + 1 + 2 * AREAS;

    /// Flips a bit of one of the words.
    #[cfg(feature = "testing")]
    pub(super) fn flip(&mut self, word: usize, bit: u32) {
        let (stack, at) = (word / (1 + BLOCKS), word % (1 + BLOCKS));
        if let Some(stack) = self.stacks.get_mut(stack) {
            match at.checked_sub(1) {
                None => stack.len ^= 1 << (bit % usize::BITS),
                Some(at) => stack.starts[at] ^= 1 << bit,
            }
            return;
        }
        match at.checked_sub(1) {
            None => self.areas_len ^= 1 << (bit % usize::BITS),
            Some(at) => {
                let area = &mut self.areas[at % AREAS];
                if at < AREAS {
                    area.start = Pfn::new(area.start.raw() ^ 1 << bit);
                } else {
                    area.count ^= 1 << bit;
                }
            }
        }
    }

    /// Takes out a block of an order from 1 to [`UNIT_ORDER`]. O(areas) if none came back.
    #[inline(always)]
    pub(super) fn pop_block(&mut self, order: u32) -> Option<u64> {
        if let Some(stack) = self.stacks.get_mut(order as usize - 1)
            && let Some(left) = stack.len.checked_sub(1)
            && let Some(&start) = stack.starts.get(left)
        {
            stack.len = left;
            return Some(start);
        }
        self.cut(1 << order, 1 << order)
    }

    /// Takes out so many frames in a row. O(areas).
    #[inline(always)]
    pub(super) fn pop_run(&mut self, count: u64) -> Option<u64> {
        if count.is_power_of_two() {
            self.pop_block(count.trailing_zeros())
        } else {
            self.cut(count, 1)
        }
    }

    /// Cuts so many frames, the first a multiple of `align`, out of the area that came last of those
    /// that have them.
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
    fn push_block(&mut self, order: u32, start: u64) -> bool {
        let Some(stack) = self.stacks.get_mut(order as usize - 1) else { return false };
        let Some(place) = stack.starts.get_mut(stack.len) else { return false };
        *place = start;
        stack.len += 1;
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

    #[inline]
    fn push_area(&mut self, area: Extent) -> bool {
        let Some(place) = self.areas.get_mut(self.areas_len) else { return false };
        *place = area;
        self.areas_len += 1;
        true
    }

    /// Returns half of what has no room for `block`, and takes that in: of aligned blocks the upper
    /// half goes, of areas the older.
    #[cold]
    #[inline(never)]
    pub(super) fn spill(
        &mut self,
        block: Extent,
        shared: &mut impl FrameAllocator,
    ) -> Result<(), Wrong> {
        if !is_block(block) {
            return self.spill_areas(block, shared);
        }
        let order = block.count.trailing_zeros();
        let Some(stack) = self.stacks.get_mut(order as usize - 1) else { return Err(Wrong) };
        let result = match stack.starts.get_mut(..stack.len) {
            None => {
                stack.len = 0;
                Err(Wrong)
            }
            Some(starts) => {
                starts.sort_unstable_by(|a, b| b.cmp(a));
                let gone = stack.len.div_ceil(2);
                let blocks = starts.iter().take(gone);
                let blocks = blocks.map(|&start| Extent::new(Pfn::new(start), block.count));
                let result = free_all(blocks, shared);
                starts.rotate_left(gone);
                stack.len -= gone;
                result
            }
        };
        let room = self.push_block(order, block.start.raw());
        debug_assert!(room, "half of the blocks are gone");
        result
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

    /// Claims an area that has an aligned block of `order`, and takes that out: what the allocator
    /// gives first, which it prefers to use, if it has one, otherwise a whole unit.
    pub(super) fn claim_block(
        &mut self,
        order: u32,
        shared: &mut impl FrameAllocator,
    ) -> Result<Option<u64>, Wrong> {
        let frames = 1_u64 << order;
        if frames <= AREA_FRAMES / 2
            && let Some(area) = shared.allocate_block(AREA_FRAMES)
        {
            let before = area.start.raw().next_multiple_of(frames) - area.start.raw();
            if before + frames <= area.count {
                self.keep(area, shared)?;
                return Ok(self.cut(frames, frames));
            }
            shared.free(area).map_err(|_| Wrong)?;
        }
        let Ok(unit) = shared.allocate_aligned(Order::known(UNIT_ORDER as u8)) else {
            return Ok(None);
        };
        if frames == UNIT_FRAMES {
            return Ok(Some(unit.start.raw()));
        }
        self.keep(unit, shared)?;
        Ok(self.cut(frames, frames))
    }

    /// Claims an area for several runs of so many frames, and takes one out, or all if there are fewer.
    pub(super) fn claim_run(
        &mut self,
        count: u64,
        shared: &mut impl FrameAllocator,
    ) -> Result<Option<Extent>, Wrong> {
        // A rest that is too short for another would be served first when it has gone back.
        let frames = AREA_FRAMES.max(count) / count * count;
        let Some(area) = shared.allocate_block(frames) else { return Ok(None) };
        if area.count <= count {
            return Ok(Some(area));
        }
        self.keep(area, shared)?;
        Ok(self.cut(count, 1).map(|start| Extent::new(Pfn::new(start), count)))
    }

    /// Counts the frames.
    pub(super) fn count(&self) -> u64 {
        let stacks = self.stacks.iter().zip(1_u32..);
        let aligned: u64 = stacks.map(|(stack, order)| (stack.len as u64) << order).sum();
        let areas = self.areas.iter().take(self.areas_len);
        areas.fold(aligned, |sum, area| sum.wrapping_add(area.count))
    }

    /// All blocks and areas.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let aligned = self.stacks.iter().zip(1_u32..).flat_map(|(stack, order)| {
            let starts = stack.starts.iter().take(stack.len);
            starts.map(move |&start| Extent::new(Pfn::new(start), 1 << order))
        });
        aligned.chain(self.areas.iter().take(self.areas_len).copied())
    }

    /// Returns everything.
    pub(super) fn flush(&mut self, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let fits = self.areas_len <= AREAS && self.stacks.iter().all(|stack| stack.len <= BLOCKS);
        let result = free_all(self.extents(), shared);
        self.clear();
        if fits { result } else { Err(Wrong) }
    }
}

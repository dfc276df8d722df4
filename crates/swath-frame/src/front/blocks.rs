//! The blocks of more than one frame that one CPU holds ready.

use lock_api::RawMutex;
use swath_arch::{Extent, Pfn};

use crate::allocator::FrameAllocator;
#[cfg(feature = "testing")]
use crate::front::areas::flip;
use crate::front::areas::{Areas, Wrong};
use crate::front::bits::UNIT_ORDER;
use crate::front::exchange::{Shared, free_all};

/// Blocks of each order in a slot; few for the model checker, which must see them overflow.
const BLOCKS: usize = if cfg!(loom) { 2 } else { 14 };

/// The most blocks of an order.
const fn depth(order: usize) -> usize {
    // 32 MiB of order 10, and half of that of order 9.
    if BLOCKS > 8 && order >= 9 { 8 } else { BLOCKS }
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

/// Aligned blocks by order, as they came back, and **areas** of any place and length, from which what no
/// such block serves is cut.
///
/// Invariants: those of [`Held`](crate::front::held::Held) for every frame.
pub(super) struct Blocks {
    /// Those of order 1 come first.
    stacks: [Stack; STACKS],
    pub(super) areas: Areas,
}

/// Returns true if the frames, at least one, are an aligned block of an order.
#[inline(always)]
pub(super) fn is_block(extent: Extent) -> bool {
    (extent.start.raw() | extent.count) & extent.count.wrapping_sub(1) == 0
}

impl Blocks {
    /// Holds nothing, and areas of up to so many frames.
    pub(super) const fn new(areas_frames_max: u64) -> Self {
        Self { stacks: EMPTY, areas: Areas::new(areas_frames_max) }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.stacks = EMPTY;
        self.areas.clear();
    }

    /// Words of the blocks.
    #[cfg(feature = "testing")]
    pub(super) const WORDS: usize = STACKS * (2 + BLOCKS) + <Areas>::WORDS;

    /// Flips a bit of one of the words; returns what it was.
    #[cfg(feature = "testing")]
    pub(super) fn flip(&mut self, word: usize, bit: u32) -> u64 {
        if let Some(word) = self.stacks.as_flattened_mut().get_mut(word) {
            return flip(word, bit);
        }
        self.areas.flip(word - self.stacks.as_flattened().len(), bit)
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
            return self.areas.cut_run(count);
        }
        self.pop_block(count.trailing_zeros()).or_else(|| self.areas.cut_block(count))
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
        self.areas.push(block)
    }

    /// Makes room for `block`, and takes that in: of aligned blocks the upper half goes, or all that are
    /// one run, of areas the older half.
    #[cold]
    #[inline(never)]
    pub(super) fn spill<R: RawMutex>(
        &mut self,
        block: Extent,
        shared: &Shared<'_, R, impl FrameAllocator>,
    ) -> Result<(), Wrong> {
        if !is_block(block) {
            return self.areas.spill(block, &mut *shared.lock());
        }
        let order = block.count.trailing_zeros();
        let Some(stack) = self.stacks.get_mut(order as usize) else { return Err(Wrong) };
        let bottom = bottom(order as usize);
        let result = match stack.split_at_mut_checked(bottom + 1) {
            Some(([top, ..], starts)) if *top == FULL => {
                let (kept, result) = self.areas.make_room(starts, block.count, shared);
                *top = (bottom + kept) as u64;
                result
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
        self.areas.count().wrapping_add(aligned)
    }

    /// All blocks and areas.
    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        let aligned = self.starts().flat_map(|(order, starts)| {
            starts.iter().map(move |&start| Extent::new(Pfn::new(start), 1 << order))
        });
        aligned.chain(self.areas.iter())
    }

    /// Returns everything.
    pub(super) fn flush(&mut self, shared: &mut impl FrameAllocator) -> Result<(), Wrong> {
        let mut tops = self.stacks.iter().zip(EMPTY);
        let fits = tops.all(|([top, ..], [bottom, ..])| (bottom..=FULL).contains(top));
        let fits = fits && self.areas.fits();
        let result = free_all(self.extents(), shared);
        self.clear();
        if fits { result } else { Err(Wrong) }
    }
}

//! Short blocks that came back, kept by length for the next request of it.
//!
//! Quick Fit (Weinstock and Wulf, 1988) rests on what programs do: the lengths
//! that they free are the lengths that they ask for next. In front of a general
//! allocator stands one list for each length up to 64 frames. A block of such
//! a length that is freed goes onto its list as it is, and a request of that
//! length takes it from there again: neither splits, merges or searches. The
//! allocator behind it sees only requests whose list is empty and the older half
//! of a list that is full.
//!
//! What it costs is that blocks on the lists are not merged with their
//! neighbours for a while: at most 16 blocks of each length. When the allocator
//! cannot serve a request with one block, all lists go back to it first, so no
//! request is split or fails for want of merging. A request that fails even so
//! leaves the same frames free, on no list.
//!
//! It pays in front of an allocator for which a block is much work, as
//! [`BestFit`](crate::BestFit); an allocator that often answers with less than
//! it was asked for, as [`HeadOfList`](crate::HeadOfList) does on scattered
//! memory, has the lists emptied each time.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::BuildError;
use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::bits::words::{all_set, clear, first_clear, ones_across, set};
use crate::map::MemoryMap;

/// The longest block that has a list, in frames.
const LENGTH_MAX: usize = 64;
/// Blocks that a list keeps.
const DEPTH: usize = 16;

/// Lists of short blocks in front of the allocator `A`.
///
/// `W` is where the bits and the lists live: any owner of a slice of words. It
/// takes a bit for each frame of the map's span, and 8 KiB.
///
/// Invariants, all walked by [`check`](Self::check): a frame of the map is
/// exactly one of used (its bit is set), on a list, or free in the allocator;
/// `kept_frames` is how many are on lists.
///
/// # Examples
/// ```
/// use swath_arch::{Extent, Pfn};
/// use swath_frame::buddy::QuickFit;
/// use swath_frame::{BestFit, ByteRange, BuddyConfig, FrameAllocator, MemoryMap, PageBuddy};
///
/// let mut areas = [Extent::default(); 1];
/// let frames = Extent::new(Pfn::new(0), 4096);
/// let map = MemoryMap::new(&[ByteRange::of_frames(frames)], &mut areas).unwrap();
/// let words = PageBuddy::<Vec<u64>, BestFit>::storage_words(&map, BuddyConfig::PBS_ARMV8);
/// let buddy = PageBuddy::<_, BestFit>::new(&map, BuddyConfig::PBS_ARMV8, vec![0; words]).unwrap();
///
/// let words = QuickFit::<&mut [u64], ()>::storage_words(&map);
/// let mut quick = QuickFit::new(map, buddy, vec![0; words]).unwrap();
/// let first = quick.allocate_block(24).unwrap();
/// let second = quick.allocate_block(24).unwrap();
/// quick.free(first).unwrap();
/// quick.free(second).unwrap();
/// // The block that came back last, though the other lies lower.
/// assert_eq!(quick.allocate_block(24), Some(second));
/// quick.free(second).unwrap();
/// // A request that needs both finds them merged again.
/// assert_eq!(quick.allocate_block(4096), Some(frames));
/// ```
#[derive(Clone, Debug)]
pub struct QuickFit<'m, W, A> {
    inner: A,
    map: MemoryMap<'m>,
    storage: W,
    /// The frame of the first bit.
    base: u64,
    /// Words of bits, which come first in the storage: the last is spare, so
    /// that each word in use has one after it.
    words: usize,
    /// Number of blocks in the list of each length, from length 1 on.
    kept: [u8; LENGTH_MAX],
    kept_frames: u64,
}

fn bit_words(map: &MemoryMap<'_>) -> usize {
    let span = map.span();
    let words = (span.end().raw() - (span.start.raw() & !63)).div_ceil(64) + 1;
    usize::try_from(words).unwrap_or(usize::MAX)
}

impl<W, A> QuickFit<'_, W, A> {
    /// Counts the words of storage that the frames of `map` need. O(1).
    pub fn storage_words(map: &MemoryMap<'_>) -> usize {
        bit_words(map).saturating_add(LENGTH_MAX * DEPTH)
    }
}

impl<'m, W: DerefMut<Target = [u64]>, A: FrameAllocator> QuickFit<'m, W, A> {
    /// Empty lists in front of `inner`, an allocator of the frames of `map`.
    /// Its frames that are not free count as used. O(words + free blocks).
    ///
    /// # Errors
    /// [`BuildError::Storage`] if `storage` is too small, and
    /// [`BuildError::OtherMap`] if `inner` has other frames than `map`.
    pub fn new(map: MemoryMap<'m>, inner: A, mut storage: W) -> Result<Self, BuildError> {
        let (needed_words, given_words) = (Self::storage_words(&map), storage.len());
        if needed_words > given_words {
            return Err(BuildError::Storage { needed_words, given_words });
        }
        let words = bit_words(&map);
        let (span, base) = (map.span(), map.span().start.raw() & !63);
        let bits = &mut storage[..words];
        bits.fill(0);
        for area in map.areas() {
            set(bits, (area.start.raw() - base) as usize, area.count as usize);
        }
        let mut same = inner.total_frames() == map.total_frames();
        inner.for_each_free(&mut |free| {
            same &= span.contains(free.start) && free.end() <= span.end();
            if same {
                let at = (free.start.raw() - base) as usize;
                same = all_set(bits, at, free.count as usize);
                clear(bits, at, free.count as usize);
            }
        });
        if !same {
            return Err(BuildError::OtherMap);
        }
        Ok(Self { inner, map, storage, base, words, kept: [0; LENGTH_MAX], kept_frames: 0 })
    }

    /// The allocator behind the lists: what is on them is not free there.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Frees all blocks on the lists to the allocator. O(blocks) frees.
    pub fn flush(&mut self) {
        for len in 1..=LENGTH_MAX {
            self.give_back(len, self.kept[len - 1] as usize);
        }
    }

    /// Frees the oldest `count` blocks of the list of `len` frames.
    #[inline(never)]
    fn give_back(&mut self, len: usize, count: usize) {
        let list = self.list(len);
        for at in list..list + count {
            let block = Extent::new(Pfn::new(self.storage[at]), len as u64);
            let freed = self.inner.free(block);
            debug_assert_eq!(freed, Ok(()), "a block on a list is the allocator's");
        }
        self.storage.copy_within(list + count..list + DEPTH, list);
        self.kept[len - 1] -= count as u8;
        self.kept_frames -= (count * len) as u64;
    }

    /// Returns the place in the storage of the list of blocks of `len` frames.
    #[inline(always)]
    fn list(&self, len: usize) -> usize {
        self.words + (len - 1) * DEPTH
    }

    /// The block that came onto the list of `len` frames last.
    #[inline(always)]
    fn allocate_kept(&mut self, len: u64) -> Option<Extent> {
        let kept = self.kept.get_mut(len.wrapping_sub(1) as usize)?;
        *kept = kept.checked_sub(1)?;
        let top = usize::from(*kept);
        let start = self.storage[self.list(len as usize) + top];
        let at = start - self.base;
        let index = (at >> 6) as usize;
        let bits = ones_across::<u64>(len as usize, (at & 63) as usize);
        self.storage[index] |= bits[0];
        self.storage[index + 1] |= bits[1];
        self.kept_frames -= len;
        Some(Extent::new(Pfn::new(start), len))
    }

    /// Notes that users hold a block which the allocator has allocated.
    fn used(&mut self, block: Extent) -> Extent {
        let at = (block.start.raw() - self.base) as usize;
        set(&mut self.storage[..self.words], at, block.count as usize);
        block
    }

    #[inline(never)]
    fn allocate_inner(&mut self, frames_max: u64) -> Option<Extent> {
        let mut block = self.inner.allocate_block(frames_max);
        let short = block.is_none_or(|block| block.count < frames_max);
        if short && self.kept_frames > 0 && frames_max > 0 {
            if let Some(block) = block {
                let freed = self.inner.free(block);
                debug_assert_eq!(freed, Ok(()), "a block is taken back at once");
            }
            self.flush();
            block = self.inner.allocate_block(frames_max);
        }
        block.map(|block| self.used(block))
    }

    /// Frees what is not for a list, or says why it cannot be freed.
    #[inline(never)]
    fn free_inner(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        let Some(end) = extent.checked_end() else {
            return Err(FrameFreeError::Overflow { extent });
        };
        let span = self.map.span();
        if !span.contains(extent.start) {
            return Err(FrameFreeError::Foreign { frame: extent.start });
        }
        let at = (extent.start.raw() - self.base) as usize;
        let inside = (end.min(span.end()).raw() - extent.start.raw()) as usize;
        let bits = &mut self.storage[..self.words];
        if let Some(bad) = first_clear(bits, at, inside) {
            let frame = Pfn::new(self.base + bad as u64);
            return Err(match self.map.contains(frame) {
                true => FrameFreeError::NotAllocated { frame },
                false => FrameFreeError::Foreign { frame },
            });
        }
        if end > span.end() {
            return Err(FrameFreeError::Foreign { frame: span.end() });
        }
        self.inner.free(extent)?;
        clear(&mut self.storage[..self.words], at, inside);
        Ok(())
    }

    fn for_each_kept(&self, visit: &mut dyn FnMut(Extent)) {
        for len in 1..=LENGTH_MAX {
            let list = self.list(len);
            let kept = &self.storage[list..list + usize::from(self.kept[len - 1])];
            kept.iter().for_each(|&start| visit(Extent::new(Pfn::new(start), len as u64)));
        }
    }

    /// Walks all invariants in O(words + blocks on lists + free blocks of the
    /// allocator); the first that does not hold is named. Uses `scratch`, as
    /// long as the storage, to mark what it has seen.
    pub fn check(&self, scratch: &mut [u64]) -> Result<(), &'static str> {
        let seen = scratch.get_mut(..self.words).ok_or("the scratch words are too few")?;
        seen.copy_from_slice(&self.storage[..self.words]);
        let (mut twice, mut kept, mut free) = (false, 0, 0);
        let mut mark = |block: Extent| {
            let at = (block.start.raw() - self.base) as usize;
            let count = block.count as usize;
            twice |= (at..at + count).any(|at| seen[at / 64] >> (at % 64) & 1 == 1);
            set(seen, at, count);
            block.count
        };
        self.for_each_kept(&mut |block| kept += mark(block));
        self.inner.for_each_free(&mut |block| free += mark(block));
        if twice {
            return Err("a frame is two of used, on a list and free");
        }
        if kept != self.kept_frames {
            return Err("the number of frames on lists differs from the lists");
        }
        let ones: u64 = seen.iter().map(|word| u64::from(word.count_ones())).sum();
        if ones != self.map.total_frames() || free != self.inner.free_frames() {
            return Err("a frame is neither used, on a list nor free");
        }
        Ok(())
    }
}

impl<W: DerefMut<Target = [u64]>, A: FrameAllocator> FrameAllocator for QuickFit<'_, W, A> {
    /// O(1) if the list of `frames_max` has a block. Otherwise a call of the
    /// allocator, and the lists' blocks freed if it cannot serve in one block.
    #[inline]
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        match self.allocate_kept(frames_max) {
            None => self.allocate_inner(frames_max),
            block => block,
        }
    }

    /// The allocator's, with the lists' blocks back in it if it has none.
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let mut block = self.inner.allocate_aligned(order);
        if block.is_err() && self.kept_frames > 0 {
            self.flush();
            block = self.inner.allocate_aligned(order);
        }
        block.map(|block| self.used(block))
    }

    /// O(1) for up to 64 frames while their list has room, and eight calls of
    /// the allocator when it has not.
    #[inline]
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        let at = extent.start.raw().wrapping_sub(self.base);
        let (index, len) = (at >> 6, extent.count as usize);
        if index >= self.words as u64 - 1 || extent.count.wrapping_sub(1) >= LENGTH_MAX as u64 {
            return self.free_inner(extent);
        }
        let (index, bits) = (index as usize, ones_across::<u64>(len, (at & 63) as usize));
        let [low, high] = [self.storage[index], self.storage[index + 1]];
        if low & bits[0] != bits[0] || high & bits[1] != bits[1] {
            return self.free_inner(extent);
        }
        if usize::from(self.kept[len - 1]) == DEPTH {
            self.give_back(len, DEPTH / 2);
        }
        self.storage[index] = low ^ bits[0];
        self.storage[index + 1] = high ^ bits[1];
        let top = self.list(len) + usize::from(self.kept[len - 1]);
        self.storage[top] = extent.start.raw();
        self.kept[len - 1] += 1;
        self.kept_frames += extent.count;
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.inner.free_frames() + self.kept_frames
    }

    fn total_frames(&self) -> u64 {
        self.inner.total_frames()
    }

    /// The allocator's blocks, then those on the lists, which may touch them.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.inner.for_each_free(visit);
        self.for_each_kept(visit);
    }
}

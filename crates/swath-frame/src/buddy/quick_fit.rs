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
//!
//! In the [checked tier](crate::hardening) the bits of used frames decide: a block goes out only if
//! none of its frames is used, so that what a list and the allocator behind it both have goes out
//! once. A block on a list is sealed. A word that contradicts the others stops the lists.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::BuildError;
use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::bits::words::{all_set, clear, first_clear, ones, ones_across, set, set_clear};
use crate::hardening::{Checked, Hardening, Latch, Table, Trusting, WordFault};
use crate::map::MemoryMap;

/// The longest block that has a list, in frames.
const LENGTH_MAX: usize = 64;
/// Blocks that a list keeps.
const DEPTH: usize = 16;

/// What a block's first frame is multiplied with on a list of the checked tier: an odd number, so
/// that the product tells the frame, and one of 31 bits, which stands in the multiplication itself.
const SEAL: u64 = 0x61c8_8647;
/// The inverse of [`SEAL`], whose multiples by powers of two are all far from 0: a product of which a
/// bit has flipped is that of no frame below 2^52.
const UNSEAL: u64 = {
    let mut inverse = SEAL;
    let mut step = 0;
    // Newton's iteration doubles the right bits, of which the odd number itself has three.
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(SEAL.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

/// Words that are compared at once.
const CHUNK: usize = 64;

/// Lists of short blocks in front of the allocator `A`.
///
/// `W` is where the bits and the lists live: any owner of a slice of words. It
/// takes a bit for each frame of the map's span, and 8 KiB. `H` is the tier of
/// [checks](crate::hardening) of these words; the default makes none.
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
/// let mut quick = QuickFit::<_, _>::new(map, buddy, vec![0; words]).unwrap();
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
pub struct QuickFit<'m, W, A, H: Hardening = Trusting> {
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
    /// One past the words in which a block that is freed may begin; 0 once the lists have stopped.
    reach: u64,
    /// [`UNSEAL`], which takes an instruction less from here.
    unseal: u64,
    /// The contradiction at which the checked tier stopped.
    latch: H::Latch,
}

fn bit_words(map: &MemoryMap<'_>) -> usize {
    let span = map.span();
    let words = (span.end().raw() - (span.start.raw() & !63)).div_ceil(64) + 1;
    usize::try_from(words).unwrap_or(usize::MAX)
}

/// Sets the bits of a block of up to 64 frames that came from a list, where `at` is the first. Returns
/// false, and sets none, if they are not in the storage, where a word of a list that was changed leads, or
/// in the checked tier if one is set.
#[inline(always)]
fn use_unused<H: Hardening>(storage: &mut [u64], len: usize, at: u64) -> bool {
    let (index, from) = ((at >> 6) as usize, (at & 63) as usize);
    // Most blocks lie in one word, and the other need not be tested.
    if H::CHECKED && from + len <= 64 {
        let Some(word) = storage.get_mut(index) else { return false };
        let bits = ones::<u64>(len) << from;
        let is_unused = *word & bits == 0;
        if is_unused {
            *word |= bits;
        }
        return is_unused;
    }
    let bits = ones_across::<u64>(len, from);
    let words = storage.get_mut(index..).and_then(|words| words.first_chunk_mut::<2>());
    let Some([low, high]) = words else { return false };
    if H::CHECKED && (*low & bits[0]) | (*high & bits[1]) != 0 {
        return false;
    }
    *low |= bits[0];
    *high |= bits[1];
    true
}

impl<W, A, H: Hardening> QuickFit<'_, W, A, H> {
    /// Counts the words of storage that the frames of `map` need. O(1).
    pub fn storage_words(map: &MemoryMap<'_>) -> usize {
        bit_words(map).saturating_add(LENGTH_MAX * DEPTH)
    }
}

impl<'m, W: DerefMut<Target = [u64]>, A: FrameAllocator, H: Hardening> QuickFit<'m, W, A, H> {
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
        let (kept, kept_frames, reach) = ([0; LENGTH_MAX], 0, words as u64 - 1);
        let latch = H::Latch::default();
        let unseal = UNSEAL;
        Ok(Self { inner, map, storage, base, words, kept, kept_frames, reach, unseal, latch })
    }

    /// The allocator behind the lists: what is on them is not free there.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Frees all blocks on the lists to the allocator. O(blocks) frees.
    pub fn flush(&mut self) {
        for len in 1..=LENGTH_MAX {
            if self.give_back(len, self.kept[len - 1] as usize).is_err() {
                return;
            }
        }
    }

    /// Frees the oldest `count` blocks of the list of `len` frames. In the checked tier the lists stop
    /// at one that the allocator does not take back: what its bits say is not asked, for they are asked
    /// when the allocator hands it out.
    #[inline(never)]
    fn give_back(&mut self, len: usize, count: usize) -> Result<(), WordFault> {
        let list = self.list(len);
        let mut at = list;
        let mut refused = false;
        while at < list + count && !refused {
            let start = self.base.wrapping_add(self.unsealed(self.storage[at]));
            let freed = self.inner.free(Extent::new(Pfn::new(start), len as u64));
            debug_assert!(H::CHECKED || freed == Ok(()), "a block on a list is the allocator's");
            refused = H::CHECKED && freed.is_err();
            at += usize::from(!refused);
        }
        self.storage.copy_within(at..list + DEPTH, list);
        self.kept[len - 1] -= (at - list) as u8;
        self.kept_frames -= ((at - list) * len) as u64;
        if refused {
            // Where the others of the list have moved to.
            return Err(self.stop(Table::Kept { frames: len as u64 }, list));
        }
        Ok(())
    }

    /// What stands on a list for a block that begins so many frames after the first bit's.
    #[inline(always)]
    fn sealed(&self, at: u64) -> u64 {
        if H::CHECKED { at.wrapping_mul(SEAL) } else { at }
    }

    /// The way back.
    #[inline(always)]
    fn unsealed(&self, word: u64) -> u64 {
        if H::CHECKED { word.wrapping_mul(self.unseal) } else { word }
    }

    /// Stops the lists at a contradiction that shows in the word `word` of `table`, and looks for the
    /// word that is at fault. Nothing is handed out or taken back from here on.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, table: Table, word: usize) -> WordFault {
        let seen = WordFault { table, word, value: self.storage.get(word).copied().unwrap_or(0) };
        let fault = self.fault().or_else(|| self.compare().err()).unwrap_or(seen);
        self.kept = [0; LENGTH_MAX];
        self.reach = 0;
        self.latch.close(fault)
    }

    /// Stops the lists, since the allocator does not take back what by the bits is used.
    #[cold]
    fn stop_at_inner(&mut self, block: Extent) -> WordFault {
        self.stop(Table::Allocated, ((block.start.raw() - self.base) / 64) as usize)
    }

    /// Compares the bits with the lists and with what the allocator has free: the word at fault, if
    /// one is. O(b) for b blocks, and as much again for each 4,096 frames.
    fn compare(&self) -> Result<(), WordFault> {
        let fault = |table, word| Err(WordFault { table, word, value: self.storage[word] });
        for len in 1..=LENGTH_MAX {
            let list = self.list(len);
            for word in list..list + usize::from(self.kept[len - 1]) {
                let at = self.unsealed(self.storage[word]);
                let block = Extent::new(Pfn::new(self.base.wrapping_add(at)), len as u64);
                if block.checked_end().is_none_or(|end| end > self.map.span().end()) {
                    return fault(Table::Kept { frames: len as u64 }, word);
                }
            }
        }
        for first in (0..self.words).step_by(CHUNK) {
            let (mut used, mut free, mut twice) = ([0; CHUNK], [0; CHUNK], None);
            let start = self.base + first as u64 * 64;
            let chunk = Extent::new(Pfn::new(start), CHUNK as u64 * 64);
            let place = |block: Extent| {
                let part = block.intersect(chunk);
                ((part.start.raw().wrapping_sub(start)) as usize, part.count as usize)
            };
            for &area in self.map.areas() {
                let (at, count) = place(area);
                if count > 0 {
                    set(&mut used, at, count);
                }
            }
            let mut mark = |block: Extent| {
                let (at, count) = place(block);
                if count > 0 && !set_clear(&mut free, at, count) {
                    let is_free = |at: &usize| free[at / 64] >> (at % 64) & 1 == 1;
                    twice = twice.or((at..at + count).find(is_free));
                }
            };
            self.for_each_kept(&mut mark);
            self.inner.for_each_free(&mut mark);
            // What is free twice was taken back by a bit that was wrong.
            let wrong = (0..CHUNK).find(|&index| {
                let word = self.storage[..self.words].get(first + index);
                word.is_some_and(|&word| word != used[index] & !free[index])
            });
            if let Some(index) = twice.map(|at| at / 64).or(wrong) {
                return fault(Table::Allocated, first + index);
            }
        }
        Ok(())
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
        let word = self.list(len as usize) + top;
        let at = self.unsealed(self.storage[word]);
        if !use_unused::<H>(&mut self.storage, len as usize, at) {
            self.stop_at_kept(len, word);
            return None;
        }
        self.kept_frames -= len;
        Some(Extent::new(Pfn::new(self.base + at), len))
    }

    /// Stops the lists at the block that has just been taken from the list of `len` frames.
    #[cold]
    #[inline(never)]
    fn stop_at_kept(&mut self, len: u64, word: usize) {
        debug_assert!(H::CHECKED, "a block on a list is in the bits");
        // It is on its list again, for who looks for the word.
        self.kept[len as usize - 1] += 1;
        self.stop(Table::Kept { frames: len }, word);
    }

    /// Notes that users hold a block which the allocator has allocated. In the checked tier it
    /// goes to nobody, and the lists stop, if one of its frames is used already.
    fn used(&mut self, block: Extent) -> Result<Extent, WordFault> {
        let at = (block.start.raw() - self.base) as usize;
        let bits = &mut self.storage[..self.words];
        if !H::CHECKED {
            set(bits, at, block.count as usize);
        } else if !set_clear(bits, at, block.count as usize) {
            return Err(self.stop(Table::Allocated, at / 64));
        }
        Ok(block)
    }

    #[inline(never)]
    fn allocate_inner(&mut self, frames_max: u64) -> Option<Extent> {
        if self.latch.fault().is_some() {
            return None;
        }
        let mut block = self.inner.allocate_block(frames_max);
        let short = block.is_none_or(|block| block.count < frames_max);
        if short && self.kept_frames > 0 && frames_max > 0 {
            if let Some(block) = block {
                let freed = self.inner.free(block);
                debug_assert!(H::CHECKED || freed == Ok(()), "a block is taken back at once");
            }
            self.flush();
            if self.latch.fault().is_some() {
                return None;
            }
            block = self.inner.allocate_block(frames_max);
        }
        block.and_then(|block| self.used(block).ok())
    }

    /// Frees what is not for a list, or says why it cannot be freed.
    #[inline(never)]
    fn free_inner(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if let Some(fault) = self.latch.fault() {
            return Err(FrameFreeError::Corrupt(fault));
        }
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
            if H::CHECKED && self.map.contains(frame) && !self.is_free(frame) {
                return Err(FrameFreeError::Corrupt(self.stop(Table::Allocated, bad / 64)));
            }
            return Err(match self.map.contains(frame) {
                true => FrameFreeError::NotAllocated { frame },
                false => FrameFreeError::Foreign { frame },
            });
        }
        if end > span.end() {
            return Err(FrameFreeError::Foreign { frame: span.end() });
        }
        if let Err(error) = self.inner.free(extent) {
            // By the bits it is used.
            let corrupt = H::CHECKED.then(|| FrameFreeError::Corrupt(self.stop_at_inner(extent)));
            return Err(corrupt.unwrap_or(error));
        }
        clear(&mut self.storage[..self.words], at, inside);
        Ok(())
    }

    /// Returns true if a frame is on a list or free in the allocator. O(free blocks).
    fn is_free(&self, frame: Pfn) -> bool {
        let mut found = false;
        let mut look = |block: Extent| found |= block.contains(frame);
        self.for_each_kept(&mut look);
        self.inner.for_each_free(&mut look);
        found
    }

    fn for_each_kept(&self, visit: &mut dyn FnMut(Extent)) {
        for len in 1..=LENGTH_MAX {
            let list = self.list(len);
            let kept = &self.storage[list..list + usize::from(self.kept[len - 1])];
            for &word in kept {
                let start = self.base.wrapping_add(self.unsealed(word));
                visit(Extent::new(Pfn::new(start), len as u64));
            }
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

impl<W: DerefMut<Target = [u64]>, A: FrameAllocator> QuickFit<'_, W, A, Checked> {
    /// Compares the bits with the lists and with what the allocator has free: finds what
    /// [`fault`](FrameAllocator::fault) will be, before a call meets it. O(b) for b free blocks, and
    /// as much again for each 4,096 frames.
    ///
    /// # Errors
    /// The word that is at fault; after a stop, the word that it stopped at.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        self.latch.fault().map_or_else(|| self.compare(), Err)
    }
}

impl<W: DerefMut<Target = [u64]>, A: FrameAllocator, H: Hardening> FrameAllocator
    for QuickFit<'_, W, A, H>
{
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
        if let Some(fault) = self.latch.fault() {
            return Err(FrameAllocateError::Corrupt(fault));
        }
        let mut block = self.inner.allocate_aligned(order);
        if block.is_err() && self.kept_frames > 0 {
            self.flush();
            block = self.inner.allocate_aligned(order);
        }
        self.used(block?).map_err(FrameAllocateError::Corrupt)
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        let (wanted, free) = (count_frames, self.free_frames());
        if wanted == 0 {
            return Err(FrameAllocateError::Empty);
        }
        if wanted > free {
            return Err(FrameAllocateError::OutOfFrames { wanted, free });
        }
        let mut rest = wanted;
        while rest > 0 {
            let Some(block) = self.allocate_block(rest) else {
                let none = FrameAllocateError::OutOfFrames { wanted, free };
                return Err(self.fault().map_or(none, FrameAllocateError::Corrupt));
            };
            rest -= block.count;
            sink(block);
        }
        Ok(())
    }

    /// O(1) for up to 64 frames while their list has room, and eight calls of
    /// the allocator when it has not.
    #[inline]
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        let at = extent.start.raw().wrapping_sub(self.base);
        let (index, len) = (at >> 6, extent.count as usize);
        if index >= self.reach || extent.count.wrapping_sub(1) >= LENGTH_MAX as u64 {
            return self.free_inner(extent);
        }
        let (index, bits) = (index as usize, ones_across::<u64>(len, (at & 63) as usize));
        let [low, high] = [self.storage[index], self.storage[index + 1]];
        if low & bits[0] != bits[0] || high & bits[1] != bits[1] {
            return self.free_inner(extent);
        }
        if usize::from(self.kept[len - 1]) == DEPTH {
            self.give_back(len, DEPTH / 2).map_err(FrameFreeError::Corrupt)?;
        }
        self.storage[index] = low ^ bits[0];
        self.storage[index + 1] = high ^ bits[1];
        let top = self.list(len) + usize::from(self.kept[len - 1]);
        self.storage[top] = self.sealed(at);
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

    /// Its own, or that of the allocator behind.
    fn fault(&self) -> Option<WordFault> {
        self.latch.fault().or_else(|| self.inner.fault())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_of_a_seal_is_of_no_frame() {
        assert_eq!(SEAL.wrapping_mul(UNSEAL), 1);
        for bit in 0..64 {
            let change = UNSEAL << bit;
            assert!((1 << 52..=u64::MAX << 52).contains(&change), "bit {bit}: {change:#x}");
        }
    }
}

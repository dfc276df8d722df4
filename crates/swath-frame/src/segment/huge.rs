//! Huge pages as a segment allocator: each request gets one page, and no
//! request more than a page.
//!
//! The units of the [`AreaSpace`] are the huge pages, aligned in physical memory
//! as page tables need them. Neighbouring pages are not promised to a program
//! that asks for several, so a request beyond one page fails whatever is free
//! (the first column of the CLMalloc paper's Table 2).
//!
//! In the [checked tier](crate::hardening) a page goes out, and is taken back, only if a second bit says
//! that it is not in use, or is. A word that contradicts the others stops the allocator.

use core::ops::DerefMut;

use crate::allocator::BuildError;
use crate::bits::bitmap::Bitmap;
use crate::bits::words::clear;
use crate::hardening::{Checked, Hardening, Latch, Table, Trusting, WordFault};
use crate::segment::allocator::{SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest};
use crate::segment::global_bitmap::{check_size, of_units};
use crate::segment::place::Place;
use crate::segment::space::{AreaSpace, Segment};

/// Hands out huge pages, the lowest that meets the request.
///
/// L is the number of levels of a bitmap, ceil(log64 of the pages). To
/// allocate costs O(L), and as much for each free page that the constraints
/// pass by; to free costs O(L). State: 0.13 bytes for each page, in the checked
/// tier 0.25. `H` is the tier of [checks](crate::hardening); the default makes none.
///
/// Invariant: the set holds the free pages, `free` of them; in the checked tier the bits
/// of pages in use are set for all others.
#[derive(Clone, Debug)]
pub struct HugePages<'m, W, H: Hardening = Trusting> {
    storage: W,
    space: AreaSpace<'m>,
    pages: Bitmap,
    free: u64,
    /// In the checked tier, the first word of the bits of pages in use; [`NOWHERE`] once it has stopped, so that
    /// each call finds no bit there and needs no test of its own.
    used_at: usize,
    /// The contradiction at which the checked tier stopped.
    latch: H::Latch,
}

/// No word of any storage, nor is one of those that follow.
const NOWHERE: usize = usize::MAX >> 1;

impl<'m, W: DerefMut<Target = [u64]>, H: Hardening> HugePages<'m, W, H> {
    /// Counts the words of storage that the pages need; `usize::MAX` if they
    /// cannot be addressed.
    pub fn storage_words(space: &AreaSpace<'_>) -> usize {
        let used = if H::CHECKED { space.units().div_ceil(64) } else { 0 };
        usize::try_from(Bitmap::storage_words(space.units()) + used).unwrap_or(usize::MAX)
    }

    /// An allocator for the pages of `space`, which are its units, all of them
    /// free. Overwrites what `storage` holds. O(words).
    ///
    /// # Errors
    /// [`BuildError`] if `storage` is too small, or there are 2^32 pages or more.
    pub fn new(space: AreaSpace<'m>, mut storage: W) -> Result<Self, BuildError> {
        let free = space.units();
        check_size(&space, Self::storage_words(&space), storage.len())?;
        let mut pages = Bitmap::new(&mut storage, 0, free);
        pages.insert(&mut storage, 0, free as usize);
        let used_at = Bitmap::storage_words(free) as usize;
        if H::CHECKED {
            // What lies beyond the last page is in use for ever.
            let used = &mut storage[used_at..used_at + free.div_ceil(64) as usize];
            used.fill(u64::MAX);
            clear(used, 0, free as usize);
        }
        Ok(Self { storage, space, pages, free, used_at, latch: H::Latch::default() })
    }

    /// Walks all invariants in O(words); the first that does not hold is named.
    pub fn check(&self) -> Result<(), &'static str> {
        self.pages.check(&self.storage)?;
        if self.pages.len(&self.storage) as u64 != self.free {
            return Err("the count of free pages is wrong");
        }
        match self.pages.last(&self.storage) {
            Some(last) if last as u64 >= self.space.units() => {
                Err("a page beyond the last is free")
            }
            _ if H::CHECKED => {
                self.compare().map_err(|_| "the bits of a page contradict each other")
            }
            _ => Ok(()),
        }
    }

    /// The word and the mask of a page among those in use.
    fn used(&self, page: u64) -> (usize, u64) {
        (self.used_at + (page / 64) as usize, 1 << (page % 64))
    }

    /// Returns true if both bits of a page of the space say that it is free, or neither.
    fn agrees(&self, page: u64, is_free: bool) -> bool {
        let (word, mask) = self.used(page);
        !H::CHECKED || (self.storage[word] & mask == 0) == is_free
    }

    /// Returns the reason why a request was not met.
    #[cold]
    #[inline(never)]
    fn not_found(&mut self, error: SegmentError) -> SegmentError {
        if let Some(fault) = self.latch.fault() {
            return SegmentError::Corrupt(fault);
        }
        // Free pages that no word leads to are lost, unless the request passes them by.
        let is_lost = H::CHECKED && matches!(error, SegmentError::NoSegment { .. });
        if is_lost && self.compare().is_err() {
            return SegmentError::Corrupt(self.stop(0));
        }
        error
    }

    /// Returns the reason why pages, not one in use, are not freed.
    #[cold]
    #[inline(never)]
    fn refused(&mut self, segment: Segment, page: u64, past: u64) -> SegmentFreeError {
        if let Some(fault) = self.latch.fault() {
            return SegmentFreeError::Corrupt(fault);
        }
        let is_free = |&page: &u64| self.pages.contains(&self.storage, page as usize);
        if let Some(page) = (page..past).find(|page| !self.agrees(*page, is_free(page))) {
            return SegmentFreeError::Corrupt(self.stop(page));
        }
        match (page..past).find(is_free) {
            Some(page) => SegmentFreeError::NotAllocated { frame: page << self.space.unit().k() },
            None => SegmentFreeError::NotSegment { segment },
        }
    }

    /// Stops the allocator at a contradiction that shows at a page, or in no word, and looks for the
    /// word that is at fault. Nothing is handed out or taken back from here on.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, page: u64) -> WordFault {
        if let Some(fault) = self.latch.fault() {
            return fault;
        }
        let seen = self.fault_at(Table::Pages, self.used(page.min(self.space.units() - 1)).0);
        let fault = self.latch.close(self.compare().err().unwrap_or(seen));
        self.used_at = NOWHERE;
        fault
    }

    fn fault_at(&self, table: Table, word: usize) -> WordFault {
        WordFault { table, word, value: self.storage.get(word).copied().unwrap_or(0) }
    }

    /// Compares all words with each other and with the count: the word at fault, if one is. O(words).
    fn compare(&self) -> Result<(), WordFault> {
        if let Some(fault) = self.latch.fault() {
            return Err(fault);
        }
        let order = self.space.unit().k();
        let words = self.space.units().div_ceil(64) as usize;
        let (free, used) = (&self.storage[..words], &self.storage[self.used_at..][..words]);
        let counted = self.pages.len(&self.storage) as u64 == self.free;
        let differ = free.iter().zip(used).position(|(free, used)| free ^ used != u64::MAX);
        match differ {
            // One of two words is wrong. If as many bits are set as pages are free, it is not theirs.
            Some(word) if counted => return Err(self.fault_at(Table::Pages, self.used_at + word)),
            Some(word) => return Err(self.fault_at(Table::Free { order }, word)),
            // Both were written over since; the table's first stands for the one that was changed.
            None if !counted => return Err(self.fault_at(Table::Free { order }, 0)),
            None => {}
        }
        let summary = |word| Err(self.fault_at(Table::Summary { order }, word));
        self.pages.wrong_mark(&self.storage).map_or(Ok(()), summary)
    }

    fn find_page(&self, request: &SegmentRequest) -> Result<u64, SegmentError> {
        let place = Place::new(&self.space, request, false, self.free_frames())?;
        // Whatever words say, none that is found lies below where its search began, so that the search
        // comes to an end; and the place admits none beyond the last.
        let next =
            |_, from: u64| self.pages.next(&self.storage, from as usize).map(|page| page as u64);
        let page = if place.count == 1 { place.search(next, || None) } else { None };
        page.ok_or(SegmentError::NoSegment { wanted: request.count })
    }
}

impl<W: DerefMut<Target = [u64]>> HugePages<'_, W, Checked> {
    /// Returns the contradiction at which the allocator has stopped. O(1).
    pub fn fault(&self) -> Option<WordFault> {
        self.latch.fault()
    }

    /// Compares all words with each other: finds what [`fault`](Self::fault) will be, before a call
    /// meets it. O(words).
    ///
    /// # Errors
    /// The word that is at fault; after a stop, the word that it stopped at.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        self.latch.fault().map_or_else(|| self.compare(), Err)
    }
}

impl<W: DerefMut<Target = [u64]>, H: Hardening> SegmentAllocator for HugePages<'_, W, H> {
    fn space(&self) -> AreaSpace<'_> {
        self.space
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let page = self.find_page(request)?;
        Ok(of_units(&self.space, page, page + 1))
    }

    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let page = match self.find_page(request) {
            Ok(page) => page,
            Err(error) => return Err(self.not_found(error)),
        };
        let (index, bit) = ((page / 64) as usize, page % 64);
        let storage = &mut *self.storage;
        if H::CHECKED {
            match storage.get_mut(self.used_at + index) {
                Some(used) if *used >> bit & 1 == 0 => *used |= 1 << bit,
                _ => return Err(SegmentError::Corrupt(self.stop(page))),
            }
        }
        let was = self.pages.word(storage, index);
        self.pages.lower(storage, index, was & !(1 << bit));
        // Words that more than one flipped bit made may say that there are more.
        self.free = self.free.wrapping_sub(1);
        Ok(of_units(&self.space, page, page + 1))
    }

    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError> {
        let (page, past) = match segment.units(&self.space) {
            Ok(pages) => pages,
            Err(error) => return Err(self.latch.fault().map_or(error, SegmentFreeError::Corrupt)),
        };
        let (index, bit) = ((page / 64) as usize, page % 64);
        let storage = &mut *self.storage;
        let was = self.pages.word(storage, index);
        if past - page > 1 || was >> bit & 1 == 1 {
            return Err(self.refused(segment, page, past));
        }
        if H::CHECKED {
            match storage.get_mut(self.used_at + index) {
                Some(used) if *used >> bit & 1 == 1 => *used &= !(1 << bit),
                _ => return Err(SegmentFreeError::Corrupt(self.stop(page))),
            }
        }
        self.pages.raise(storage, index, was, was | 1 << bit);
        self.free += 1;
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.free << self.space.unit().k()
    }

    fn largest_frames(&self) -> u64 {
        if self.free == 0 { 0 } else { self.space.unit().frames() }
    }

    /// Neighbouring free pages are joined, though no request gets two. O(words).
    fn for_each_free(&self, visit: &mut dyn FnMut(Segment)) {
        let units = self.space.units() as usize;
        let mut from = 0;
        while let Some(start) = self.pages.next(&self.storage, from) {
            let past = start + self.pages.run(&self.storage, start, units - start);
            visit(of_units(&self.space, start as u64, past as u64));
            from = past;
        }
    }
}

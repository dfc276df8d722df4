//! Huge pages as a segment allocator: each request gets one page, and no
//! request more than a page.
//!
//! The units of the [`AreaSpace`] are the huge pages, aligned in physical memory
//! as page tables need them. Neighbouring pages are not promised to a program
//! that asks for several, so a request beyond one page fails whatever is free
//! (the first column of the CLMalloc paper's Table 2).

use core::ops::DerefMut;

use crate::allocator::BuildError;
use crate::bits::bitmap::Bitmap;
use crate::segment::allocator::{SegmentAllocator, SegmentError, SegmentFreeError, SegmentRequest};
use crate::segment::global_bitmap::{check_size, of_units};
use crate::segment::place::Place;
use crate::segment::space::{AreaSpace, Segment};

/// Hands out huge pages, the lowest that meets the request.
///
/// L is the number of levels of a bitmap, ceil(log64 of the pages). To
/// allocate costs O(L), and as much for each free page that the constraints
/// pass by; to free costs O(L). State: 0.13 bytes for each page.
///
/// Invariant: the set holds the free pages, `free` of them.
#[derive(Clone, Debug)]
pub struct HugePages<'m, W> {
    storage: W,
    space: AreaSpace<'m>,
    pages: Bitmap,
    free: u64,
}

impl<'m, W: DerefMut<Target = [u64]>> HugePages<'m, W> {
    /// Counts the words of storage that the pages need; `usize::MAX` if they
    /// cannot be addressed.
    pub fn storage_words(space: &AreaSpace<'_>) -> usize {
        usize::try_from(Bitmap::storage_words(space.units())).unwrap_or(usize::MAX)
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
        Ok(Self { storage, space, pages, free })
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
            _ => Ok(()),
        }
    }

    fn find_page(&self, request: &SegmentRequest) -> Result<u64, SegmentError> {
        let place = Place::new(&self.space, request, false, self.free_frames())?;
        let next = |_, from: u64| self.pages.next(&self.storage, from as usize).map(|p| p as u64);
        let page = if place.count == 1 { place.search(next, || None) } else { None };
        page.ok_or(SegmentError::NoSegment { wanted: request.count })
    }
}

impl<W: DerefMut<Target = [u64]>> SegmentAllocator for HugePages<'_, W> {
    fn space(&self) -> AreaSpace<'_> {
        self.space
    }

    fn find(&self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let page = self.find_page(request)?;
        Ok(of_units(&self.space, page, page + 1))
    }

    fn allocate(&mut self, request: &SegmentRequest) -> Result<Segment, SegmentError> {
        let page = self.find_page(request)?;
        self.pages.remove(&mut self.storage, page as usize, 1);
        self.free -= 1;
        Ok(of_units(&self.space, page, page + 1))
    }

    fn free(&mut self, segment: Segment) -> Result<(), SegmentFreeError> {
        let (page, past) = segment.units(&self.space)?;
        let free = (page..past).find(|&page| self.pages.contains(&self.storage, page as usize));
        if let Some(page) = free {
            let frame = page << self.space.unit().k();
            return Err(SegmentFreeError::NotAllocated { frame });
        }
        if past - page > 1 {
            return Err(SegmentFreeError::NotSegment { segment });
        }
        self.pages.insert(&mut self.storage, page as usize, 1);
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

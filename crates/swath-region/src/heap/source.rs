//! The source of a heap's pages that makes regions of them.

use core::ops::DerefMut;
use core::ptr::NonNull;

use swath_arch::{BASE_PAGE_BYTES, PageRange, PhysMemory, Vpn};
use swath_heap::{PageSource, SourceError};

use crate::error::RegionError;
use crate::frames::FramePool;
use crate::header::Rights;
use crate::space::dense::RegionSpace;
use crate::tree::partition::RegionTree;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = BASE_PAGE_BYTES as usize;

/// Pages that an allocation may write tags and links to for the first time, at most:
/// those at the block's end, and with an alignment those at its start.
pub const TAG_PAGES_MAX: u64 = 4;

/// Counts of a heap's operations on regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionHeapStatistics {
    /// Regions mapped (mapVRH).
    pub mapped: u64,
    /// Pages cut off for tags.
    pub cuts: u64,
    /// Pages that got a frame (mapPage).
    pub faults: u64,
    /// Regions ended (unmapRegion).
    pub ended: u64,
}

impl RegionHeapStatistics {
    /// Returns the counts since `before`.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            mapped: self.mapped - before.mapped,
            cuts: self.cuts - before.cuts,
            faults: self.faults - before.faults,
            ended: self.ended - before.ended,
        }
    }
}

/// Returns the pages that bytes `from` to `to` of the pool lie in.
fn pages_of(from: u64, to: u64) -> PageRange {
    let first = from / BASE_PAGE_BYTES;
    PageRange::new(Vpn::new(first), to.div_ceil(BASE_PAGE_BYTES) - first)
}

/// The pages of a heap's pool as regions: page 0 of the pool is page 0 of the space.
///
/// Invariants: a page of the pool is in a region exactly if it is committed, or was and its
/// region has others that still are; `left[a]` counts the committed pages of the region
/// that starts at a, and elsewhere means nothing. A page under a tag or a free block's
/// links, if it was fresh when they were written there, is a region of its own.
///
/// A heap that allocates and frees releases whole regions, each wholly. One that resizes
/// in place may release a part of a region: its frames stay until the rest is released too,
/// since a region ends as a whole.
pub(crate) struct RegionSource<'p, M, T, H> {
    pub(crate) space: RegionSpace<'p, M, T, H>,
    pub(crate) pool: &'p FramePool<'p>,
    /// Address of the pool's first byte, a multiple of a page.
    pub(crate) base: usize,
    /// Pages of the heap's pool.
    pub(crate) pages: u64,
    pub(crate) left: &'p mut [u32],
    /// The region that the last commit made, untouched.
    pub(crate) fresh: PageRange,
    /// The pages of the last release.
    pub(crate) released: PageRange,
    pub(crate) statistics: RegionHeapStatistics,
}

impl<M, T, H> RegionSource<'_, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    fn range(&self, start: NonNull<u8>, len_bytes: usize) -> PageRange {
        let first = (start.addr().get() - self.base) / PAGE_BYTES;
        PageRange::new(Vpn::new(first as u64), (len_bytes / PAGE_BYTES) as u64)
    }

    /// Counts the frames that the space may still allocate, up to its limit and its guarantee.
    fn available_frames(&self) -> u64 {
        let (used, quota) = (self.space.frames_used(), self.space.quota());
        let kept = u64::from(quota.guaranteed.saturating_sub(used));
        let open = self.pool.free_frames().saturating_sub(self.pool.promised_frames());
        (kept + u64::from(open)).min(u64::from(quota.limit - used))
    }

    /// Makes regions of `pages`: one, except where a part of a region is left over
    /// from a resize. O(1) for the one.
    fn claim(&mut self, pages: PageRange) -> Result<(), RegionError> {
        let rights = Rights::READ | Rights::WRITE;
        let (start, end) = (pages.start.raw(), pages.start.raw() + pages.count);
        match self.space.map_region(pages, rights) {
            Ok(()) => {
                self.left[start as usize] = pages.count as u32;
                self.statistics.mapped += 1;
                return Ok(());
            }
            Err(RegionError::Overlap { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut at = start;
        while at < end {
            let next = if let Some((first, next)) = self.overlap(at, end) {
                self.left[first as usize] += (next - at) as u32;
                next
            } else {
                let above = self.space.region_from(Vpn::new(at));
                let next = above.map_or(end, |region| region.pages.start.raw().min(end));
                let gap = PageRange::new(Vpn::new(at), next - at);
                if let Err(error) = self.space.map_region(gap, rights) {
                    self.end_regions(start, at)?;
                    return Err(error);
                }
                self.left[at as usize] = gap.count as u32;
                self.statistics.mapped += 1;
                next
            };
            at = next;
        }
        Ok(())
    }

    /// Returns the start of the region that holds page `at`, and its end, or `end` if
    /// that is before.
    fn overlap(&self, at: u64, end: u64) -> Option<(u64, u64)> {
        let region = self.space.region_of(Vpn::new(at))?;
        let first = region.pages.start.raw();
        Some((first, (first + region.pages.count).min(end)))
    }

    /// Ends the regions in `at` to `end` of which no page is left. O(r) for r
    /// regions: at most 5 if nothing was resized.
    fn end_regions(&mut self, mut at: u64, end: u64) -> Result<(), RegionError> {
        while at < end {
            let Some((first, next)) = self.overlap(at, end) else { break };
            let left = &mut self.left[first as usize];
            *left = left.saturating_sub((next - at) as u32);
            if *left == 0 {
                self.space.unmap_region(Vpn::new(first))?;
                self.statistics.ended += 1;
            }
            at = next;
        }
        Ok(())
    }

    /// Makes a fresh page, to which a tag is written, a region of its own and gives it a
    /// frame. O(1).
    pub(crate) fn tag(&mut self, page: Vpn) -> Result<(), RegionError> {
        let Some(region) = self.space.region_of(page) else {
            return Err(RegionError::NoRegion { page });
        };
        let start = region.pages.start.raw();
        let mut end = start + region.pages.count;
        // From above, as nothing above a cut may be mapped.
        for cut in [page.raw() + 1, page.raw()] {
            // In one that is left over from a resize the page stays where it is.
            let whole = self.left[start as usize] == (end - start) as u32;
            if !whole || cut <= start || cut >= end {
                continue;
            }
            match self.space.split_region(Vpn::new(cut)) {
                Ok(()) => {
                    self.statistics.cuts += 1;
                    self.left[cut as usize] = (end - cut) as u32;
                    self.left[start as usize] = (cut - start) as u32;
                    end = cut;
                }
                Err(RegionError::Mapped { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.statistics.faults += 1;
        match self.space.map_page(page, Rights::WRITE) {
            Ok(_) | Err(RegionError::AlreadyMapped { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Does the same for the fresh pages of tags and links in bytes `from` to `to` of the
    /// pool.
    pub(crate) fn tags(&mut self, from: u64, to: u64) -> Result<(), RegionError> {
        let (fresh, pages) = (self.fresh, pages_of(from, to));
        let end = (pages.start.raw() + pages.count).min(fresh.start.raw() + fresh.count);
        let start = pages.start.raw().max(fresh.start.raw());
        (start..end).rev().try_for_each(|page| self.tag(Vpn::new(page)))
    }
}

// SAFETY: the pool's memory is borrowed for the heap's whole life, and the heap is the only
// one that it is handed to (`RegionHeap::new`), so that a page can be read and written at any
// time, committed or not.
unsafe impl<M, T, H> PageSource for RegionSource<'_, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    /// Makes one region, without a frame; but it fails where the tags that the heap will
    /// write might find none.
    #[inline]
    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        let pages = self.range(start, len_bytes);
        let error = SourceError { address: start.addr().get(), len_bytes };
        if self.available_frames() < pages.count.min(TAG_PAGES_MAX) {
            return Err(error);
        }
        self.claim(pages).map_err(|_| error)?;
        self.fresh = pages;
        Ok(())
    }

    #[inline]
    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        let pages = self.range(start, len_bytes);
        self.released = pages;
        // A region's start is one, and memory that does not answer leaves the region as it
        // is: its pages are lost to the heap until another release ends it.
        let ended = self.end_regions(pages.start.raw(), pages.start.raw() + pages.count);
        debug_assert!(matches!(ended, Ok(()) | Err(RegionError::Bus(_))));
    }

    fn is_committed(&self, address: usize) -> bool {
        let page = (address - self.base) / PAGE_BYTES;
        self.space.region_of(Vpn::new(page as u64)).is_some()
    }
}

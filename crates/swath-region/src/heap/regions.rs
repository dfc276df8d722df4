//! The pages of a heap as regions, by their numbers.

use core::ops::DerefMut;

use swath_arch::{BASE_PAGE_BYTES, PageRange, Pfn, PhysMemory, Vpn};

use crate::error::RegionError;
use crate::frames::FramePool;
use crate::header::Rights;
use crate::heap::error::NewRegionHeapError;
use crate::space::dense::RegionSpace;
use crate::tree::partition::RegionTree;

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
pub struct HeapRegions<'p, M, T, H> {
    pub(crate) space: RegionSpace<'p, M, T, H>,
    pool: &'p FramePool<'p>,
    /// Pages of the heap's pool.
    pages: u64,
    pub(crate) left: &'p mut [u32],
    /// The region that the last commit made, untouched.
    fresh: PageRange,
    /// The pages of the last release.
    released: PageRange,
    pub(crate) statistics: RegionHeapStatistics,
}

impl<'p, M, T, H> HeapRegions<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    /// Makes regions of the first `pages` pages of a space without regions, whose frames come from `pool`.
    /// O(1). `words` has one word for each of these pages and may hold anything.
    ///
    /// # Errors
    /// [`NewRegionHeapError`] if there are no pages, more than the space has, or fewer words.
    pub fn new(
        space: RegionSpace<'p, M, T, H>,
        pool: &'p FramePool<'p>,
        pages: u64,
        words: &'p mut [u32],
    ) -> Result<Self, NewRegionHeapError> {
        let space_pages = space.pages();
        if pages == 0 || pages > space_pages {
            return Err(NewRegionHeapError::Pages { pages, space_pages });
        }
        if (words.len() as u64) < pages {
            return Err(NewRegionHeapError::Words { needed: pages, given: words.len() });
        }
        let nothing = PageRange::new(Vpn::new(0), 0);
        Ok(Self {
            space,
            pool,
            pages,
            left: words,
            fresh: nothing,
            released: nothing,
            statistics: RegionHeapStatistics::default(),
        })
    }

    /// Counts the pages of the heap's pool.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the space, with its pages and frames.
    pub fn space(&self) -> &RegionSpace<'p, M, T, H> {
        &self.space
    }

    /// Returns the pages that the last [`release`](Self::release) took back, which a TLB must invalidate
    /// before the next allocation.
    pub fn released(&self) -> PageRange {
        self.released
    }

    /// Returns the counts of operations so far.
    pub fn statistics(&self) -> RegionHeapStatistics {
        self.statistics
    }

    /// Returns true if the last [`commit`](Self::commit) is younger than the last call of
    /// [`forget_fresh`](Self::forget_fresh).
    pub(crate) fn has_fresh(&self) -> bool {
        self.fresh.count > 0
    }

    pub(crate) fn forget_fresh(&mut self) {
        self.fresh.count = 0;
    }

    pub(crate) fn forget_released(&mut self) {
        self.released.count = 0;
    }

    /// Commits pages of the pool: makes them one region, without a frame. O(1) if nothing is left there of a region
    /// that was released in parts.
    ///
    /// # Errors
    /// [`RegionError::OutOfRange`] beyond the pool; [`RegionError::OutOfFrames`] where the tags that a heap will
    /// write might find none; what the space refuses. Nothing has changed.
    #[inline]
    pub fn commit(&mut self, pages: PageRange) -> Result<(), RegionError> {
        if pages.checked_end().is_none_or(|end| end.raw() > self.pages) {
            return Err(RegionError::OutOfRange { page: pages.start.max(Vpn::new(self.pages)) });
        }
        if self.available_frames() < pages.count.min(TAG_PAGES_MAX) {
            return Err(RegionError::OutOfFrames);
        }
        self.claim(pages)?;
        self.fresh = pages;
        Ok(())
    }

    /// Releases pages of the pool: ends the regions in them of which no page is left. O(r) for r regions: at most 5
    /// if nothing was resized.
    ///
    /// # Errors
    /// [`RegionError`] where memory does not answer: the region that it was about stays as it is, and its pages
    /// are lost to the heap until another release ends it.
    #[inline]
    pub fn release(&mut self, pages: PageRange) -> Result<(), RegionError> {
        self.released = pages;
        let start = pages.start.raw();
        self.end_regions(start, start.saturating_add(pages.count))
    }

    /// Gives a page a frame (mapPage), as the handler of a page fault does at a user's access. O(1).
    ///
    /// # Errors
    /// [`RegionError`]; nothing has changed.
    #[inline]
    pub fn fault(&mut self, page: Vpn, access: Rights) -> Result<Pfn, RegionError> {
        self.statistics.faults += 1;
        self.space.map_page(page, access)
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

    /// Makes a page of which nothing is mapped above, to which a tag is written, a region of its own and gives it a
    /// frame: what the handler does where a heap's own access faults. O(1).
    ///
    /// # Errors
    /// [`RegionError`]; the page may have become a region of its own.
    pub fn tag(&mut self, page: Vpn) -> Result<(), RegionError> {
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

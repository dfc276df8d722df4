//! The heap: TLSF over a source of pages that makes regions of them.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ops::DerefMut;
use core::ptr::NonNull;

use swath_arch::{PageRange, Pfn, PhysMemory, Vpn};
use swath_heap::{
    AllocateBytesError, BlockInfo, ByteAllocator, FreeBytesError, GRANULE_BYTES, HEADER_BYTES,
    SourceError, Tlsf, Trusting,
};

use crate::error::RegionError;
use crate::frames::FramePool;
use crate::header::Rights;
use crate::heap::error::{NewRegionHeapError, RegionHeapFault};
use crate::heap::regions::{HeapRegions, RegionHeapStatistics};
use crate::heap::source::{PAGE_BYTES, RegionSource};
use crate::space::dense::RegionSpace;
use crate::tree::partition::RegionTree;

/// Bytes of a tag and the links behind it.
const TAG_BYTES: u64 = 2 * GRANULE_BYTES as u64;

/// A heap of bytes whose pages are real-time regions (Böhnert and Scholl, section V).
///
/// Page n of the pool is page n of the space. `M`, `T` and `H` are the space's.
///
/// Invariants, which [`check`](Self::check) walks: those of the [heap](swath_heap::Heap)
/// and of the [space](RegionSpace); a page of the pool lies in a region exactly if the heap
/// has committed it; each region counts its committed pages.
pub struct RegionHeap<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    heap: Tlsf<'p, RegionSource<'p, M, T, H>, Trusting>,
}

impl<'p, M, T, H> RegionHeap<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    /// Makes a heap over the first pages of a space without regions, whose frames come from
    /// `pool`. O(1).
    ///
    /// `memory` is the pool of the heap: whole pages, which the heap reaches for its tags
    /// without the space. `words` has one word for each of these pages and may hold
    /// anything.
    ///
    /// # Errors
    /// [`NewRegionHeapError`] if the parts do not fit together or the space has no frames
    /// for the first tags.
    pub fn new(
        space: RegionSpace<'p, M, T, H>,
        pool: &'p FramePool<'p>,
        memory: &'p mut [MaybeUninit<u8>],
        words: &'p mut [u32],
    ) -> Result<Self, NewRegionHeapError> {
        let pages = (memory.len() / PAGE_BYTES) as u64;
        let regions = HeapRegions::new(space, pool, pages, words)?;
        let len_bytes = memory.len();
        let start = NonNull::from(memory).cast::<u8>();
        let source = RegionSource { regions, base: start.addr().get() };
        let mut heap = Tlsf::over(source, 0);
        // SAFETY: the slice is borrowed exclusively for `'p`, which the heap does not
        // outlive, and is not used here any more.
        unsafe { heap.add_pool_at(start, len_bytes)? };
        // The heap has written to the first page and to the last.
        // SAFETY: as for `source_mut` below.
        let regions = unsafe { &mut heap.source_mut().regions };
        regions.tag(Vpn::new(0))?;
        if pages > 1 {
            regions.tag(Vpn::new(pages - 1))?;
        }
        Ok(Self { heap })
    }

    /// The source, of which this type changes only what it notes and which regions the pages lie in.
    #[inline]
    fn source_mut(&mut self) -> &mut RegionSource<'p, M, T, H> {
        // SAFETY: no caller puts another in its place, and none commits or releases a page; the
        // pool's memory is there in any case.
        unsafe { self.heap.source_mut() }
    }

    /// Allocates bytes for `layout`. O(1) in the size: one region is mapped, and each page
    /// that tags are written to for the first time (one, or two where the links lie in the
    /// next page) is cut off and gets a frame.
    ///
    /// # Errors
    /// [`AllocateBytesError`]; no bytes are allocated.
    #[inline]
    pub fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError> {
        self.source_mut().regions.forget_fresh();
        let at = self.heap.allocate(layout)?;
        // Of a used block at its end nothing is fresh. The commit saw to the frames.
        if self.heap.source().regions.has_fresh()
            && let Err(error) = self.tags(at)
        {
            // Memory did not answer.
            // SAFETY: `at` was allocated by this heap just now, and nobody else knows it.
            let freed = unsafe { self.heap.free(at) };
            debug_assert_eq!(freed, Ok(()));
            return Err(error);
        }
        Ok(at)
    }

    /// Gives the fresh pages of the tags at both ends of a block their regions and frames.
    #[inline]
    fn tags(&mut self, at: NonNull<u8>) -> Result<(), AllocateBytesError> {
        let address = at.addr().get();
        // SAFETY: the caller has just allocated `at`.
        let usable = unsafe { self.heap.usable_bytes(at) };
        let len_bytes = usable.unwrap_or(0) + HEADER_BYTES;
        let source = self.source_mut();
        let from = (address - source.base - GRANULE_BYTES) as u64;
        let to = from + len_bytes as u64;
        source
            .regions
            .tags(to, to + TAG_BYTES)
            .and_then(|()| source.regions.tags(from, from + TAG_BYTES))
            .map_err(|_| AllocateBytesError::Source(SourceError { address, len_bytes }))
    }

    /// Frees an allocation. O(1) in its size: at most five regions end.
    ///
    /// Its pages are still in TLBs: see [`released`](Self::released).
    ///
    /// # Errors
    /// [`FreeBytesError`] for a pointer that is recognised as wrong; nothing has changed.
    ///
    /// # Safety
    /// `at` came from this heap, was not freed since, and nobody uses it after.
    #[inline]
    pub unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), FreeBytesError> {
        self.source_mut().regions.forget_released();
        // All that the heap writes to now has been written to before.
        // SAFETY: the contract of this function.
        unsafe { self.heap.free(at) }
    }

    /// Counts the bytes that may be used at `at`: as many as were asked for or more.
    ///
    /// # Errors
    /// [`FreeBytesError`] for a pointer that is recognised as wrong.
    ///
    /// # Safety
    /// `at` came from this heap and was not freed since.
    #[inline]
    pub unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, FreeBytesError> {
        // SAFETY: the contract of this function.
        unsafe { self.heap.usable_bytes(at) }
    }

    /// Counts the bytes of the largest request, with the usual alignment, for which there
    /// is a block; `None` if there is none. O(1).
    pub fn largest_bytes(&self) -> Option<usize> {
        self.heap.largest_bytes()
    }

    /// Returns the page of the space that an address of the pool lies in. O(1).
    #[inline]
    pub fn page_of(&self, address: usize) -> Option<Vpn> {
        let source = self.heap.source();
        let page = (address.checked_sub(source.base)? / PAGE_BYTES) as u64;
        (page < source.regions.pages()).then(|| Vpn::new(page))
    }

    /// Gives a page a frame (mapPage), as the handler of a page fault does at a user's
    /// access. O(1).
    ///
    /// # Errors
    /// [`RegionError`]; nothing has changed.
    #[inline]
    pub fn fault(&mut self, page: Vpn, access: Rights) -> Result<Pfn, RegionError> {
        self.source_mut().regions.fault(page, access)
    }

    /// Returns the pages that the last [`free`](Self::free) released, which a TLB must
    /// invalidate before the next allocation.
    pub fn released(&self) -> PageRange {
        self.heap.source().regions.released()
    }

    /// Returns the counts of operations on regions so far.
    pub fn statistics(&self) -> RegionHeapStatistics {
        self.heap.source().regions.statistics()
    }

    /// Returns the space, with its pages and frames.
    pub fn space(&self) -> &RegionSpace<'p, M, T, H> {
        self.heap.source().regions.space()
    }

    /// Visits every block of the pool in rising order. O(blocks).
    ///
    /// # Errors
    /// [`Fault`](swath_heap::HeapFault) at the first header that does not lead to another.
    pub fn walk(&self, visit: &mut dyn FnMut(BlockInfo)) -> Result<(), swath_heap::HeapFault> {
        self.heap.walk(visit)
    }

    /// Walks all invariants of heap, regions and the pages between. O(pages + blocks).
    ///
    /// # Errors
    /// The first [`RegionHeapFault`] found.
    pub fn check(&self) -> Result<(), RegionHeapFault> {
        self.heap.check()?;
        let regions = &self.heap.source().regions;
        regions.space.check()?;
        let mut at = regions.space.region_from(Vpn::new(0));
        while let Some(region) = at {
            let PageRange { start, count } = region.pages;
            let left = regions.left.get(start.raw() as usize).copied().unwrap_or(0);
            if !(1..=count).contains(&left.into()) {
                return Err(RegionHeapFault::Left { start, left, count });
            }
            at = regions.space.region_from(start + count);
        }
        Ok(())
    }

    /// Ends the heap with all its allocations and regions, and gives up the space's quota:
    /// its tree and headers come back. O(R·k/6) for R regions.
    ///
    /// # Errors
    /// The space, and [`RegionError`] if memory does not answer: some regions may be gone
    /// then.
    #[allow(clippy::type_complexity, reason = "the result of the space's own `close`")]
    pub fn close(self) -> Result<(T, H), (RegionSpace<'p, M, T, H>, RegionError)> {
        self.heap.into_source().regions.space.close()
    }
}

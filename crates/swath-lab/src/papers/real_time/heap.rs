//! A heap whose pages are real-time regions, and the same heap over a
//! conventional page table: the two systems of section V of
//! 004_0cb2f33903da1556.txt.
//!
//! Both hand out bytes by the same TLSF over one pool, so that they place every
//! block alike. In both a page gets its frame at its first access. They differ in
//! how frames come back:
//!
//! * [`RegionHeap`]: the pages inside a free block go back at once. What an allocation
//!   commits is one region (mapVRH). A page with a boundary tag outlives the block
//!   before it, so it is cut off as a region of its own when the tag is written,
//!   before anything else in the region is touched: a released range is then whole
//!   regions, at most five, whatever its length (two pages of the tag and links at
//!   either end, and the inside).
//! * [`TableHeap`](crate::papers::real_time::table_heap::TableHeap): pages stay with the heap, until the last block before the end of
//!   the footprint is freed. Then all pages from the last block left up to the end go back, one
//!   after the other, as by `sbrk`.
//!
//! The bytes of tags lie in memory of the lab; user data do not exist here. Which
//! pages are touched is known exactly: those that the heap writes tags to follow from
//! the block's borders, those that users access from the workload.
//!
//! This is the one module of the lab with unsafe code: a source of pages is an
//! unsafe trait, and a free of a pointer an unsafe call. What is allocated is held here
//! under a number of the caller's, so that nothing wrong can be freed.
#![allow(unsafe_code, reason = "the heap's interface")]

use std::alloc::Layout;
use std::ptr::NonNull;

use swath_arch::{BASE_PAGE_BYTES, PageRange, PhysMemory, VirtAddr, Vpn};
use swath_heap::{
    AllocateBytesError, BlockInfo, ByteAllocator, FreeBytesError, GRANULE_BYTES, HEADER_BYTES,
    HeapPoolError, PageSource, SourceError, Tlsf, Trusting,
};
use swath_region::{FramePool, RegionError, RegionSpace, RegionTree, Rights};

use crate::papers::real_time::table::TableError;

/// Bytes of a page.
const PAGE_BYTES: usize = BASE_PAGE_BYTES as usize;
/// Bytes of a tag and the links behind it.
pub(crate) const TAG_BYTES: usize = 2 * GRANULE_BYTES;
/// Pages that an allocation may write tags and links to for the first time: those at
/// the block's end, and with an alignment those at its start.
pub(crate) const TAG_PAGES_MAX: u64 = 4;

/// Why a call of a heap did nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeapError {
    /// Another allocation has this number.
    #[error("allocation {id} is in use")]
    InUse {
        /// The number.
        id: u32,
    },
    /// No allocation has this number.
    #[error("there is no allocation {id}")]
    NotInUse {
        /// The number.
        id: u32,
    },
    /// An access beyond an allocation.
    #[error("byte {offset} of allocation {id}, which has {len_bytes}")]
    Beyond {
        /// The number.
        id: u32,
        /// The byte.
        offset: u64,
        /// Its length.
        len_bytes: u64,
    },
    /// The pool does not fit into the space.
    #[error("a pool of {pages} pages in a space of {space_pages}")]
    Pool {
        /// Pages of the pool.
        pages: u64,
        /// Pages of the space.
        space_pages: u64,
    },
    /// The heap refuses the pool.
    #[error(transparent)]
    Lent(#[from] HeapPoolError),
    /// The heap has no block, or no pages for one.
    #[error(transparent)]
    Allocation(#[from] AllocateBytesError),
    /// The heap does not know the block.
    #[error(transparent)]
    Free(#[from] FreeBytesError),
    /// The regions refuse.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The page table refuses.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// A block from its header to the next one, in bytes from the start of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Where its tag begins.
    pub from: u64,
    /// Where the next tag begins.
    pub to: u64,
}

impl Placed {
    /// Where the user's bytes begin.
    pub fn payload(self) -> u64 {
        self.from + GRANULE_BYTES as u64
    }

    /// How many bytes the user may use.
    pub fn usable_bytes(self) -> u64 {
        self.to - self.from - HEADER_BYTES as u64
    }
}

/// The pages that bytes `from` to `to` of the pool lie in.
pub(crate) fn pages_of(from: u64, to: u64) -> PageRange {
    let first = from / BASE_PAGE_BYTES;
    PageRange::new(Vpn::new(first), to.div_ceil(BASE_PAGE_BYTES) - first)
}

/// TLSF over a pool of memory that the operating system backs as it is touched, with
/// what is allocated.
pub(crate) struct Bytes<S: PageSource> {
    heap: Tlsf<'static, S, Trusting>,
    /// Address of the pool's first byte, a multiple of a page.
    base: usize,
    live: Vec<Option<NonNull<u8>>>,
    /// The memory that the heap was lent. Never touched but through the heap.
    _memory: Vec<u64>,
}

impl<S: PageSource> Bytes<S> {
    /// A pool of so many pages; `source` is made from its address.
    pub(crate) fn new(pages: usize, source: impl FnOnce(usize) -> S) -> Result<Self, HeapError> {
        let mut memory = vec![0_u64; (pages + 1) * (PAGE_BYTES / 8)];
        let start = NonNull::from(&mut memory[..]).cast::<u8>();
        let gap = start.addr().get().next_multiple_of(PAGE_BYTES) - start.addr().get();
        // SAFETY: the memory has a page more than the pool, and the gap is less.
        let start = unsafe { start.byte_add(gap) };
        let mut heap = Tlsf::over(source(start.addr().get()), 0);
        // SAFETY: the bytes from `start` on are the memory's, which lives as long as the
        // heap, is not moved by moving the vector and is used by nobody else.
        unsafe { heap.add_pool_at(start, pages * PAGE_BYTES)? };
        Ok(Self { heap, base: start.addr().get(), live: Vec::new(), _memory: memory })
    }

    /// Makes room for allocations with numbers below `ids`, outside of what is measured.
    pub(crate) fn reserve(&mut self, ids: u32) {
        let ids = ids as usize;
        self.live.resize(self.live.len().max(ids), None);
    }

    pub(crate) fn placed(&self, at: NonNull<u8>) -> Result<Placed, HeapError> {
        // SAFETY: `at` is allocated: callers take it from `live` or just got it.
        let usable = unsafe { self.heap.usable_bytes(at)? };
        let payload = (at.addr().get() - self.base) as u64;
        let from = payload - GRANULE_BYTES as u64;
        Ok(Placed { from, to: from + (usable + HEADER_BYTES) as u64 })
    }

    pub(crate) fn find(&self, id: u32) -> Result<NonNull<u8>, HeapError> {
        self.live.get(id as usize).copied().flatten().ok_or(HeapError::NotInUse { id })
    }

    #[inline]
    pub(crate) fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, HeapError> {
        if self.live.len() <= id as usize {
            self.reserve(id.saturating_add(1));
        }
        let slot = id as usize;
        if self.live[slot].is_some() {
            return Err(HeapError::InUse { id });
        }
        let at = self.heap.allocate(layout)?;
        self.live[slot] = Some(at);
        self.placed(at)
    }

    #[inline]
    pub(crate) fn free(&mut self, id: u32) -> Result<(), HeapError> {
        let at = self.find(id)?;
        // SAFETY: it was allocated here, and with its number it is forgotten.
        unsafe { self.heap.free(at)? };
        self.live[id as usize] = None;
        Ok(())
    }

    /// Where a byte of an allocation lies, which the user is about to access.
    pub(crate) fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError> {
        let placed = self.placed(self.find(id)?)?;
        let len_bytes = placed.usable_bytes();
        if offset >= len_bytes {
            return Err(HeapError::Beyond { id, offset, len_bytes });
        }
        Ok(VirtAddr::new(placed.payload() + offset))
    }

    /// Shows every block: where it lies and whether it is free. O(blocks).
    pub(crate) fn walk(&self, visit: &mut dyn FnMut(Placed, bool)) -> Result<(), String> {
        let mut show = |block: BlockInfo| {
            let from = (block.address - self.base) as u64;
            visit(Placed { from, to: from + block.len_bytes as u64 }, block.free);
        };
        self.heap.walk(&mut show).map_err(|fault| fault.to_string())
    }

    /// Whether the heap is as it should be. O(blocks).
    pub(crate) fn check(&self) -> Result<(), String> {
        self.heap.check().map_err(|fault| fault.to_string())
    }
}

/// The pages of a heap's pool as regions: page 0 of the pool is page 0 of the space.
///
/// Invariants: a page of the pool is in a region exactly if it is committed, or was and its
/// region has others that still are; `left[a]` counts the committed pages of the region
/// that starts at a. A page under a tag or a free block's links, if it was fresh when they
/// were written there, is a region of its own.
///
/// A heap that allocates and frees releases whole regions, each wholly, as the module
/// says. One that resizes in place may release a part of a region: its frames stay until the rest
/// goes too, since a region ends as a whole.
struct RegionSource<'p, M, T, H> {
    space: RegionSpace<'p, M, T, H>,
    pool: &'p FramePool<'p>,
    base: usize,
    left: Vec<u32>,
    /// What the last commit made a region of, untouched.
    fresh: PageRange,
    /// What the last release took back.
    released: PageRange,
    operations: Operations,
}

/// How often each operation on regions was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operations {
    /// Regions mapped (mapVRH).
    pub mapped: u64,
    /// Pages cut off for tags.
    pub cuts: u64,
    /// Pages that got a frame (mapPage).
    pub faults: u64,
    /// Regions ended (unmapRegion).
    pub ended: u64,
}

impl Operations {
    /// Those since there were so many.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            mapped: self.mapped - before.mapped,
            cuts: self.cuts - before.cuts,
            faults: self.faults - before.faults,
            ended: self.ended - before.ended,
        }
    }
}

impl<'p, M, T, H> RegionSource<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: std::ops::DerefMut<Target = [u64]>,
{
    fn range(&self, start: NonNull<u8>, len_bytes: usize) -> PageRange {
        let first = (start.addr().get() - self.base) / PAGE_BYTES;
        PageRange::new(Vpn::new(first as u64), (len_bytes / PAGE_BYTES) as u64)
    }

    /// Frames that the space may still take, up to its limit and its guarantee.
    fn available_frames(&self) -> u64 {
        let (used, quota) = (self.space.frames_used(), self.space.quota());
        let kept = u64::from(quota.guaranteed.saturating_sub(used));
        let open = self.pool.free_frames().saturating_sub(self.pool.promised_frames());
        (kept + u64::from(open)).min(u64::from(quota.limit - used))
    }

    /// Takes `pages` into regions: one, but where a part of a region is left over
    /// from a resize. O(1) for the one.
    fn claim(&mut self, pages: PageRange) -> Result<(), RegionError> {
        let rights = Rights::READ | Rights::WRITE;
        let (start, end) = (pages.start.raw(), pages.start.raw() + pages.count);
        match self.space.map_region(pages, rights) {
            Ok(()) => {
                self.left[start as usize] = pages.count as u32;
                self.operations.mapped += 1;
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
                    self.give_back(start, at)?;
                    return Err(error);
                }
                self.left[at as usize] = gap.count as u32;
                self.operations.mapped += 1;
                next
            };
            at = next;
        }
        Ok(())
    }

    /// The start of the region that holds page `at`, and where it ends, or `end` if
    /// that is before.
    fn overlap(&self, at: u64, end: u64) -> Option<(u64, u64)> {
        let region = self.space.region_of(Vpn::new(at))?;
        let first = region.pages.start.raw();
        Some((first, (first + region.pages.count).min(end)))
    }

    /// Ends the regions in `at` to `end`, as far as no page of them is left. O(r) for r
    /// regions: at most 5 if nothing was resized.
    fn give_back(&mut self, mut at: u64, end: u64) -> Result<(), RegionError> {
        while at < end {
            let Some((first, next)) = self.overlap(at, end) else { break };
            let left = &mut self.left[first as usize];
            *left = left.saturating_sub((next - at) as u32);
            if *left == 0 {
                self.space.unmap_region(Vpn::new(first))?;
                self.operations.ended += 1;
            }
            at = next;
        }
        Ok(())
    }

    /// A tag is written to a fresh page: makes it a region of its own and gives it a
    /// frame. O(1).
    fn tag(&mut self, page: Vpn) -> Result<(), RegionError> {
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
                    self.operations.cuts += 1;
                    self.left[cut as usize] = (end - cut) as u32;
                    self.left[start as usize] = (cut - start) as u32;
                    end = cut;
                }
                Err(RegionError::Mapped { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.operations.faults += 1;
        match self.space.map_page(page, Rights::WRITE) {
            Ok(_) | Err(RegionError::AlreadyMapped { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Tags and links are written to these bytes of the pool.
    fn tags(&mut self, from: u64, to: u64) -> Result<(), RegionError> {
        let (fresh, pages) = (self.fresh, pages_of(from, to));
        let end = (pages.start.raw() + pages.count).min(fresh.start.raw() + fresh.count);
        let start = pages.start.raw().max(fresh.start.raw());
        (start..end).rev().try_for_each(|page| self.tag(Vpn::new(page)))
    }
}

// SAFETY: the pool's memory is there all the time; the frames are accounted for.
unsafe impl<M, T, H> PageSource for RegionSource<'_, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: std::ops::DerefMut<Target = [u64]>,
{
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    /// One region, and no frame; but it fails where the tags that the heap will write might
    /// find none.
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
        // A simulated memory always answers, and a region's start is one.
        let given = self.give_back(pages.start.raw(), pages.start.raw() + pages.count);
        debug_assert_eq!(given, Ok(()));
    }

    fn is_committed(&self, address: usize) -> bool {
        let page = (address - self.base) / PAGE_BYTES;
        self.space.region_of(Vpn::new(page as u64)).is_some()
    }
}

/// A heap over regions: what the paper proposes.
pub struct RegionHeap<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: std::ops::DerefMut<Target = [u64]>,
{
    bytes: Bytes<RegionSource<'p, M, T, H>>,
}

impl<'p, M, T, H> RegionHeap<'p, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: std::ops::DerefMut<Target = [u64]>,
{
    /// A heap over the first `pages` of a space without regions, whose frames come from
    /// `pool`.
    ///
    /// # Errors
    /// [`HeapError`] if the space is smaller or has no frames for the first tags.
    pub fn new(
        space: RegionSpace<'p, M, T, H>,
        pool: &'p FramePool<'p>,
        pages: u64,
    ) -> Result<Self, HeapError> {
        let space_pages = space.pages();
        if pages == 0 || pages > space_pages {
            return Err(HeapError::Pool { pages, space_pages });
        }
        let left = vec![0; pages as usize];
        let nothing = PageRange::new(Vpn::new(0), 0);
        let mut bytes = Bytes::new(pages as usize, |base| RegionSource {
            space,
            pool,
            base,
            left,
            fresh: nothing,
            released: nothing,
            operations: Operations::default(),
        })?;
        // The heap has written to the first page and to the last.
        let source = bytes.heap.source_mut();
        source.tag(Vpn::new(0))?;
        if pages > 1 {
            source.tag(Vpn::new(pages - 1))?;
        }
        Ok(Self { bytes })
    }

    /// Makes room for allocations with numbers below `ids`.
    pub fn reserve(&mut self, ids: u32) {
        self.bytes.reserve(ids);
    }

    /// Allocates so many bytes under a number that is not in use. O(1) in the size: one
    /// region is mapped, and each page that tags are written to for the first time (one, or
    /// two where the links lie in the next page) is cut off and gets a frame.
    ///
    /// # Errors
    /// [`HeapError`]; nothing has changed.
    #[inline]
    pub fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, HeapError> {
        self.bytes.heap.source_mut().fresh.count = 0;
        let placed = self.bytes.allocate(id, layout)?;
        let source = self.bytes.heap.source_mut();
        if source.fresh.count > 0 {
            // Of a used block at its end nothing is fresh. The commit saw to the frames.
            source.tags(placed.to, placed.to + TAG_BYTES as u64)?;
            source.tags(placed.from, placed.from + TAG_BYTES as u64)?;
        }
        Ok(placed)
    }

    /// Frees an allocation. O(1) in its size: at most five regions end.
    ///
    /// # Errors
    /// [`HeapError`]; nothing has changed.
    #[inline]
    pub fn free(&mut self, id: u32) -> Result<(), HeapError> {
        self.bytes.heap.source_mut().released.count = 0;
        // All that the heap writes to now has been written to before.
        self.bytes.free(id)
    }

    /// Where byte `offset` of an allocation lies.
    ///
    /// # Errors
    /// [`HeapError`] for a byte that is not the user's.
    pub fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError> {
        self.bytes.address(id, offset)
    }

    /// A user's access to a page faulted: gives it a frame (mapPage).
    ///
    /// # Errors
    /// [`RegionError`]; nothing has changed.
    #[inline]
    pub fn fault(&mut self, page: Vpn, access: Rights) -> Result<(), RegionError> {
        let source = self.bytes.heap.source_mut();
        source.operations.faults += 1;
        source.space.map_page(page, access).map(|_| ())
    }

    /// The pages that the last call of [`free`](Self::free) gave back: those that a TLB must
    /// forget.
    pub fn released(&self) -> PageRange {
        self.bytes.heap.source().released
    }

    /// How often each operation on regions was called.
    pub fn operations(&self) -> Operations {
        self.bytes.heap.source().operations
    }

    /// The space: its pages and frames.
    pub fn space(&self) -> &RegionSpace<'p, M, T, H> {
        &self.bytes.heap.source().space
    }

    /// Shows every block of the pool: where it lies and whether it is free. O(blocks).
    ///
    /// # Errors
    /// A fault of the heap, in words.
    pub fn walk(&self, visit: &mut dyn FnMut(Placed, bool)) -> Result<(), String> {
        self.bytes.walk(visit)
    }

    /// Walks all invariants of heap, regions and the pages between. O(pages + blocks).
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        self.bytes.check()?;
        let source = self.bytes.heap.source();
        source.space.check().map_err(|fault| fault.to_string())?;
        let mut at = source.space.region_from(Vpn::new(0));
        while let Some(region) = at {
            let (start, count) = (region.pages.start.raw(), region.pages.count);
            let left = u64::from(source.left[start as usize]);
            if !(1..=count).contains(&left) {
                return Err(format!("{left} of {count} pages of the region at {start} are left"));
            }
            at = source.space.region_from(Vpn::new(start + count));
        }
        Ok(())
    }
}

//! Heaps whose allocations have numbers, as the workloads of the real-time studies name them.
//!
//! Both systems of section V of Böhnert and Scholl hand out bytes by the same TLSF over one
//! pool, so that they place every block alike. In both a page gets its frame at its first
//! access. They differ in how frames come back:
//!
//! * [`RegionHeap`]: the pages inside a free block go back at once, as whole regions.
//! * [`TableHeap`](crate::papers::real_time::table_heap::TableHeap): pages stay with the heap,
//!   until the last block before the end of the footprint is freed. Then all pages from the
//!   last block left up to the end go back, one after the other, as by `sbrk`.
//!
//! The bytes of tags lie in memory of the lab; user data do not exist here. Which
//! pages are touched is known exactly: those that the heap writes tags to follow from
//! the block's borders, those that users access from the workload.
//!
//! This is the one module of the lab with unsafe code: a free of a pointer is an unsafe
//! call. What is allocated is held here under a number of the caller's, so that nothing
//! wrong can be freed.
#![allow(unsafe_code, reason = "the heap's interface")]

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ops::DerefMut;
use std::ptr::NonNull;

use swath_arch::{BASE_PAGE_BYTES, PageRange, PhysMemory, VirtAddr, Vpn};
use swath_heap::{
    AllocateBytesError, ByteAllocator, FreeBytesError, GRANULE_BYTES, HEADER_BYTES, HeapPoolError,
    Tlsf, Trusting,
};
use swath_region::{NewRegionHeapError, RegionError, RegionHeap, RegionTree};

use crate::papers::real_time::table::TableError;

/// Bytes of a page.
const PAGE_BYTES: usize = BASE_PAGE_BYTES as usize;
/// Bytes of a tag and the links behind it.
pub(crate) const TAG_BYTES: usize = 2 * GRANULE_BYTES;

/// Reasons why a call of a heap does nothing.
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
    /// This process has no addresses left for the pool.
    #[error("no addresses for a pool of {pages} pages")]
    NoAddresses {
        /// Pages of the pool.
        pages: u64,
    },
    /// The heap refuses the pool.
    #[error(transparent)]
    AddPool(#[from] HeapPoolError),
    /// The heap over regions is not made.
    #[error(transparent)]
    NewRegionHeap(#[from] NewRegionHeapError),
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
    /// First byte of its tag.
    pub from: u64,
    /// First byte of the next tag.
    pub to: u64,
}

impl Placed {
    /// Returns the first of the user's bytes.
    pub fn payload(self) -> u64 {
        self.from + GRANULE_BYTES as u64
    }

    /// Counts the bytes that the user may use.
    pub fn usable_bytes(self) -> u64 {
        self.to - self.from - HEADER_BYTES as u64
    }
}

/// Returns the pages that bytes `from` to `to` of the pool lie in.
pub(crate) fn pages_of(from: u64, to: u64) -> PageRange {
    let first = from / BASE_PAGE_BYTES;
    PageRange::new(Vpn::new(first), to.div_ceil(BASE_PAGE_BYTES) - first)
}

/// Memory for the pool of a heap: whole pages.
pub struct PoolMemory {
    /// Always empty: its capacity is what counts.
    bytes: Vec<u8>,
    pages: u64,
}

impl PoolMemory {
    /// Reserves memory for a pool of so many pages, in a space of `space_pages`.
    ///
    /// # Errors
    /// [`HeapError::Pool`] if the space is smaller, or there is no page;
    /// [`HeapError::NoAddresses`] if this process may have no more.
    pub fn new(pages: u64, space_pages: u64) -> Result<Self, HeapError> {
        if pages == 0 || pages > space_pages {
            return Err(HeapError::Pool { pages, space_pages });
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact((pages as usize + 1) * PAGE_BYTES)
            .map_err(|_| HeapError::NoAddresses { pages })?;
        Ok(Self { bytes, pages })
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the pages.
    pub fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        let spare = self.bytes.spare_capacity_mut();
        let gap = spare.as_ptr().addr().next_multiple_of(PAGE_BYTES) - spare.as_ptr().addr();
        &mut spare[gap..gap + self.pages as usize * PAGE_BYTES]
    }
}

/// A heap that hands out pointers.
pub(crate) trait Pointers {
    fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError>;

    /// # Safety
    /// `at` came from this heap, was not freed since, and nobody uses it after.
    unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), FreeBytesError>;

    /// # Safety
    /// `at` came from this heap and was not freed since.
    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, FreeBytesError>;
}

impl<M, T, H> Pointers for RegionHeap<'_, M, T, H>
where
    M: PhysMemory,
    T: RegionTree,
    H: DerefMut<Target = [u64]>,
{
    #[inline]
    fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError> {
        self.allocate(layout)
    }

    #[inline]
    unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), FreeBytesError> {
        // SAFETY: the contract of this function.
        unsafe { self.free(at) }
    }

    #[inline]
    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, FreeBytesError> {
        // SAFETY: the contract of this function.
        unsafe { self.usable_bytes(at) }
    }
}

/// TLSF over memory that is simply there.
pub(crate) type Resident<'p> = Tlsf<'p, swath_heap::Resident, Trusting>;

impl Pointers for Resident<'_> {
    #[inline]
    fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError> {
        ByteAllocator::allocate(self, layout)
    }

    #[inline]
    unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), FreeBytesError> {
        // SAFETY: the contract of this function.
        unsafe { ByteAllocator::free(self, at) }
    }

    #[inline]
    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, FreeBytesError> {
        // SAFETY: the contract of this function.
        unsafe { ByteAllocator::usable_bytes(self, at) }
    }
}

/// A heap with its allocations by number.
pub(crate) struct Numbered<P> {
    heap: P,
    /// Address of the pool's first byte, a multiple of a page.
    base: usize,
    live: Vec<Option<NonNull<u8>>>,
}

impl<P: Pointers> Numbered<P> {
    /// Numbers the allocations of a heap of which nothing is allocated, over the pool at
    /// address `base`.
    pub(crate) fn new(heap: P, base: usize) -> Self {
        Self { heap, base, live: Vec::new() }
    }

    /// Returns the heap.
    pub(crate) fn heap(&self) -> &P {
        &self.heap
    }

    /// Calls the heap, of which no pointer is to be freed.
    pub(crate) fn heap_mut(&mut self) -> &mut P {
        &mut self.heap
    }

    /// Makes room for allocations with numbers below `ids`, outside of what is measured.
    pub(crate) fn reserve(&mut self, ids: u32) {
        let ids = ids as usize;
        self.live.resize(self.live.len().max(ids), None);
    }

    fn placed(&self, at: NonNull<u8>) -> Result<Placed, HeapError> {
        // SAFETY: `at` is allocated: callers take it from `live` or just got it.
        let usable = unsafe { self.heap.usable_bytes(at)? };
        let payload = (at.addr().get() - self.base) as u64;
        let from = payload - GRANULE_BYTES as u64;
        Ok(Placed { from, to: from + (usable + HEADER_BYTES) as u64 })
    }

    fn find(&self, id: u32) -> Result<NonNull<u8>, HeapError> {
        self.live.get(id as usize).copied().flatten().ok_or(HeapError::NotInUse { id })
    }

    /// Allocates bytes under a number that is not in use.
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

    /// Frees the allocation of a number.
    #[inline]
    pub(crate) fn free(&mut self, id: u32) -> Result<(), HeapError> {
        let at = self.find(id)?;
        // SAFETY: it was allocated here, and with its number it is forgotten.
        unsafe { self.heap.free(at)? };
        self.live[id as usize] = None;
        Ok(())
    }

    /// Returns the place of a byte of an allocation, which the user is about to access.
    pub(crate) fn address(&self, id: u32, offset: u64) -> Result<VirtAddr, HeapError> {
        let placed = self.placed(self.find(id)?)?;
        let len_bytes = placed.usable_bytes();
        if offset >= len_bytes {
            return Err(HeapError::Beyond { id, offset, len_bytes });
        }
        Ok(VirtAddr::new(placed.payload() + offset))
    }
}

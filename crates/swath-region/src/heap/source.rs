//! The source of a heap's pages that makes regions of them.

use core::ops::DerefMut;
use core::ptr::NonNull;

use swath_arch::{BASE_PAGE_BYTES, PageRange, PhysMemory, Vpn};
use swath_heap::{PageSource, SourceError};

use crate::error::RegionError;
use crate::heap::regions::HeapRegions;
use crate::tree::partition::RegionTree;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = BASE_PAGE_BYTES as usize;

/// The regions of a pool that lies at an address.
pub(crate) struct RegionSource<'p, M, T, H> {
    pub(crate) regions: HeapRegions<'p, M, T, H>,
    /// Address of the pool's first byte, a multiple of a page.
    pub(crate) base: usize,
}

impl<M, T, H> RegionSource<'_, M, T, H> {
    fn range(&self, start: NonNull<u8>, len_bytes: usize) -> PageRange {
        let first = (start.addr().get() - self.base) / PAGE_BYTES;
        PageRange::new(Vpn::new(first as u64), (len_bytes / PAGE_BYTES) as u64)
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

    #[inline]
    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        let pages = self.range(start, len_bytes);
        let error = SourceError { address: start.addr().get(), len_bytes };
        self.regions.commit(pages).map_err(|_| error)
    }

    #[inline]
    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        let released = self.regions.release(self.range(start, len_bytes));
        // A region's start is one.
        debug_assert!(matches!(released, Ok(()) | Err(RegionError::Bus(_))));
    }

    fn is_committed(&self, address: usize) -> bool {
        let page = (address - self.base) / PAGE_BYTES;
        self.regions.space.region_of(Vpn::new(page as u64)).is_some()
    }
}

//! The interface of Hermit: ranges of the published crate `free-list`.

use free_list::{PageLayout, PageRange};
use lock_api::RawMutex;
use swath_arch::Pfn;
use swath_frame::ContiguousRequest;

use crate::{FRAME_BYTES, KernelFrames, address, extent, order};

/// Hermit's physical memory over [`KernelFrames`].
#[derive(Clone, Copy, Debug)]
pub struct PhysicalRanges<'f, 'm, R>(pub &'f KernelFrames<'m, R>);

/// There are no such pages, or they are not held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no such pages")]
pub struct RangeError;

impl<R: RawMutex> PhysicalRanges<'_, '_, R> {
    /// Allocates pages in a row.
    ///
    /// # Errors
    /// [`RangeError`] if no such run is free.
    pub fn allocate(&self, layout: PageLayout) -> Result<PageRange, RangeError> {
        let align = order(layout.align()).ok_or(RangeError)?;
        let taken = self.0.take((layout.size() / FRAME_BYTES) as u64, align).ok_or(RangeError)?;
        PageRange::from_start_len(address(taken), layout.size()).map_err(|_| RangeError)
    }

    /// Allocates these pages.
    ///
    /// # Errors
    /// [`RangeError`] if one of them is not free.
    pub fn allocate_at(&self, range: PageRange) -> Result<(), RangeError> {
        let pages = extent(range.start(), range.len().get());
        let (lower, upper) = (pages.start, Pfn::new(pages.end().raw()));
        let request = ContiguousRequest { lower, upper, ..ContiguousRequest::new(pages.count) };
        self.0.place(&request).map(|_| ()).ok_or(RangeError)
    }

    /// Frees pages, any part of what was allocated, or adds them as memory if they are none yet, as Hermit does at boot.
    ///
    /// # Errors
    /// [`RangeError`] if one of them is free; nothing changes.
    pub fn deallocate(&self, range: PageRange) -> Result<(), RangeError> {
        let given = self.0.give(extent(range.start(), range.len().get()));
        if given || self.0.add_memory(range.start(), range.len().get()).is_ok() {
            return Ok(());
        }
        Err(RangeError)
    }
}

//! The interface of Nanvix: frames that several processes share.
//!
//! Its crate builds as a part of that kernel only, so that the methods are those of its frame allocator and the types
//! are addresses: a frame has a count of owners, as copy on write needs it, and is free when the last one gives it back.

use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use lock_api::RawMutex;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::ContiguousRequest;

use crate::{FRAME_BYTES, KernelFrames, address, extent};

/// Reasons why a call was refused; nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SharedError {
    /// No such frames are free.
    #[error("no such frames are free")]
    OutOfMemory,
    /// Nobody owns the frame.
    #[error("nobody owns the frame at {addr:#x}")]
    NotOwned {
        /// Address of the frame.
        addr: usize,
    },
    /// The frame has 255 owners.
    #[error("the frame at {addr:#x} has 255 owners")]
    TooManyOwners {
        /// Address of the frame.
        addr: usize,
    },
}

/// Frames with owners over [`KernelFrames`].
#[derive(Debug)]
pub struct SharedFrames<'f, 'm, R> {
    frames: &'f KernelFrames<'m, R>,
    /// The frame of the first count.
    first: Pfn,
    /// Owners of each frame: none of what is free.
    owners: &'f [AtomicU8],
}

impl<'f, 'm, R: RawMutex> SharedFrames<'f, 'm, R> {
    /// Frames of `frames` whose counts, from `first` on, are all zero. What lies beyond them is not handed out.
    pub fn new(frames: &'f KernelFrames<'m, R>, first: Pfn, owners: &'f [AtomicU8]) -> Self {
        Self { frames, first, owners }
    }

    /// Allocates a frame for one owner.
    ///
    /// # Errors
    /// [`SharedError::OutOfMemory`].
    pub fn alloc(&self) -> Result<usize, SharedError> {
        self.own(self.frames.take(1, Order::known(0)))
    }

    /// Allocates frames in a row, each for one owner.
    ///
    /// # Errors
    /// [`SharedError::OutOfMemory`].
    pub fn alloc_contiguous(&self, count: usize) -> Result<usize, SharedError> {
        self.own(self.frames.take(count as u64, Order::known(0)))
    }

    /// Allocates the frames of a region, as those of the kernel's image.
    ///
    /// # Errors
    /// [`SharedError::OutOfMemory`] if one of them is not free.
    pub fn alloc_range(&self, start: usize, len_bytes: usize) -> Result<(), SharedError> {
        let region = extent(start, len_bytes);
        let end = region.checked_end().ok_or(SharedError::OutOfMemory)?;
        let request = ContiguousRequest {
            lower: region.start,
            upper: end,
            ..ContiguousRequest::new(region.count)
        };
        self.own(self.frames.place(&request)).map(|_| ())
    }

    /// Adds an owner to a frame.
    ///
    /// # Errors
    /// [`SharedError::NotOwned`] or [`SharedError::TooManyOwners`].
    pub fn share(&self, addr: usize) -> Result<(), SharedError> {
        let owners = self.owners(addr)?;
        let more = |count: u8| if count == 0 { None } else { count.checked_add(1) };
        match owners.fetch_update(AcqRel, Acquire, more) {
            Ok(_) => Ok(()),
            Err(0) => Err(SharedError::NotOwned { addr }),
            Err(_) => Err(SharedError::TooManyOwners { addr }),
        }
    }

    /// Returns the number of a frame's owners.
    ///
    /// # Errors
    /// [`SharedError::NotOwned`].
    pub fn refcount(&self, addr: usize) -> Result<u8, SharedError> {
        match self.owners(addr)?.load(Acquire) {
            0 => Err(SharedError::NotOwned { addr }),
            count => Ok(count),
        }
    }

    /// Gives a frame back for one owner; that of the last makes it free.
    ///
    /// # Errors
    /// [`SharedError::NotOwned`].
    pub fn free(&self, addr: usize) -> Result<(), SharedError> {
        let less = |count: u8| count.checked_sub(1);
        let before = self.owners(addr)?.fetch_update(AcqRel, Acquire, less);
        match before {
            Ok(1) if self.frames.give(extent(addr, FRAME_BYTES)) => Ok(()),
            Ok(1) | Err(_) => Err(SharedError::NotOwned { addr }),
            Ok(_) => Ok(()),
        }
    }

    /// Notes one owner of each frame, and returns the address of the first.
    fn own(&self, taken: Option<Extent>) -> Result<usize, SharedError> {
        let taken = taken.ok_or(SharedError::OutOfMemory)?;
        let counts = taken.start.raw().checked_sub(self.first.raw()).and_then(|first| {
            let first = usize::try_from(first).ok()?;
            self.owners.get(first..first.checked_add(usize::try_from(taken.count).ok()?)?)
        });
        let Some(counts) = counts else {
            self.frames.give(taken);
            return Err(SharedError::OutOfMemory);
        };
        counts.iter().for_each(|count| count.store(1, Release));
        Ok(address(taken))
    }

    /// The count of the frame at an address.
    fn owners(&self, addr: usize) -> Result<&AtomicU8, SharedError> {
        let first = address(Extent::new(self.first, 1));
        let from = addr.checked_sub(first).filter(|from| from.is_multiple_of(FRAME_BYTES));
        let owners = from.and_then(|from| self.owners.get(from / FRAME_BYTES));
        owners.ok_or(SharedError::NotOwned { addr })
    }
}

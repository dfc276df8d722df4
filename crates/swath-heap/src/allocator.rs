//! The one interface of every byte allocator.

use core::alloc::Layout;
use core::ptr::NonNull;

use crate::error::{AllocateBytesError, FreeBytesError, ResizeBytesError};

/// An allocator of bytes.
///
/// # Safety
/// What [`allocate`](Self::allocate) and [`resize`](Self::resize) return is
/// aligned and as long as asked for, can be read and written, and is used by
/// nothing else until it is passed to [`free`](Self::free) or to a `resize` that
/// succeeds. Calls that fail leave everything as it was.
pub unsafe trait ByteAllocator {
    /// Allocates bytes for `layout`, not initialised. A size of 0 is served as any other.
    ///
    /// # Errors
    /// [`AllocateBytesError`]; nothing has changed.
    fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>, AllocateBytesError>;

    /// Frees a block.
    ///
    /// # Errors
    /// [`FreeBytesError`] for a pointer that is recognised as wrong; nothing has
    /// changed.
    ///
    /// # Safety
    /// `at` came from this allocator, was not freed since, and is not used
    /// after. An allocator that checks finds some breaches of this (and what
    /// it finds does no harm), but not all.
    unsafe fn free(&mut self, at: NonNull<u8>) -> Result<(), FreeBytesError>;

    /// Makes a block serve `layout`; it keeps its place if it can. The bytes up
    /// to the lesser of the two sizes are kept.
    ///
    /// # Errors
    /// [`ResizeBytesError`]; the block is as before.
    ///
    /// # Safety
    /// As for [`free`](Self::free), unless an error is returned.
    unsafe fn resize(
        &mut self,
        at: NonNull<u8>,
        layout: Layout,
    ) -> Result<NonNull<u8>, ResizeBytesError>;

    /// Returns the bytes that may be used at `at`: as many as were asked for or more.
    ///
    /// # Errors
    /// [`FreeBytesError`] for a pointer that is recognised as wrong.
    ///
    /// # Safety
    /// `at` came from this allocator and was not freed since.
    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> Result<usize, FreeBytesError>;

    /// Returns the bytes of the largest request, with the usual alignment, that would be
    /// served now; `None` if none would be.
    fn largest_bytes(&self) -> Option<usize>;
}

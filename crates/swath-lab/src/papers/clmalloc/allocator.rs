//! The C library's `malloc` and `cmt_malloc` as allocators of Rust's collections, so that
//! the same code runs on both.

#![allow(unsafe_code, reason = "calls two C allocators: each with its proof")]

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use nix::libc;

/// The alignment of both allocators.
const ALIGN_BYTES: usize = 16;

/// A pair of C functions.
pub(crate) trait Heap: Allocator + Copy + Default + Send {
    /// Allocates at least `size` bytes, aligned to 16.
    fn allocate_bytes(size: usize) -> Option<NonNull<u8>>;
    /// Frees a block.
    ///
    /// # Safety
    /// It came from [`allocate_bytes`](Self::allocate_bytes) and is not used after.
    unsafe fn free_bytes(block: NonNull<u8>);
}

/// `malloc` and `free`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Libc;

/// `cmt_malloc` and `cmt_free`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Cmt;

impl Heap for Libc {
    #[inline]
    fn allocate_bytes(size: usize) -> Option<NonNull<u8>> {
        // SAFETY: any size may be requested.
        NonNull::new(unsafe { libc::malloc(size) }.cast())
    }

    #[inline]
    unsafe fn free_bytes(block: NonNull<u8>) {
        // SAFETY: as the caller says.
        unsafe { libc::free(block.as_ptr().cast()) };
    }
}

impl Heap for Cmt {
    #[inline]
    fn allocate_bytes(size: usize) -> Option<NonNull<u8>> {
        swath_cmt::allocate(size).ok()
    }

    #[inline]
    unsafe fn free_bytes(block: NonNull<u8>) {
        // SAFETY: as the caller says.
        unsafe { swath_cmt::free(block) };
    }
}

#[inline]
fn allocate<H: Heap>(layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
    // Nothing here is aligned to more.
    if layout.align() > ALIGN_BYTES {
        return Err(AllocError);
    }
    let block = H::allocate_bytes(layout.size().max(1)).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(block, layout.size()))
}

// SAFETY: blocks are those of malloc, which stay until they are freed; all copies are one.
unsafe impl Allocator for Libc {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        allocate::<Self>(layout)
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: as the caller says.
        unsafe { Self::free_bytes(block) };
    }
}

// SAFETY: as for `Libc`.
unsafe impl Allocator for Cmt {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        allocate::<Self>(layout)
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: as the caller says.
        unsafe { Self::free_bytes(block) };
    }
}

/// Requests to [`Counted`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Blocks allocated.
    pub(crate) allocations: u64,
    /// Blocks freed.
    pub(crate) frees: u64,
    /// Bytes in use, and the most of them.
    pub(crate) live_bytes: u64,
    pub(crate) live_bytes_max: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts {
        allocations: 0,
        frees: 0,
        live_bytes: 0,
        live_bytes_max: 0,
    }) };
}

/// `malloc` and `free`, with counts of this thread's requests.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted;

impl Counted {
    /// Counts since the last call.
    pub(crate) fn take() -> Counts {
        COUNTS.take()
    }
}

// SAFETY: as for `Libc`.
unsafe impl Allocator for Counted {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let mut counts = COUNTS.get();
        counts.allocations += 1;
        counts.live_bytes += layout.size() as u64;
        counts.live_bytes_max = counts.live_bytes_max.max(counts.live_bytes);
        COUNTS.set(counts);
        allocate::<Libc>(layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        let mut counts = COUNTS.get();
        counts.frees += 1;
        counts.live_bytes -= layout.size() as u64;
        COUNTS.set(counts);
        // SAFETY: as the caller says.
        unsafe { Libc::free_bytes(block) };
    }
}

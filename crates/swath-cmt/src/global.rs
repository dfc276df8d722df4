//! The pool as a Rust program's allocator.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use crate::allocate::{
    ALIGN_BYTES, allocate_aligned, allocate_or_null, allocate_zeroed, free_or_null, resize,
};

/// The process's pool as a global allocator.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: swath_cmt::Cmt = swath_cmt::Cmt;
///
/// let text = "all of this program's memory ".repeat(100_000);
/// assert!(swath_cmt::stats().segment_bytes >= text.len() as u64);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Cmt;

// SAFETY: blocks are aligned, as long as asked for and used by nothing else; nothing unwinds.
unsafe impl GlobalAlloc for Cmt {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_BYTES {
            allocate_or_null(layout.size())
        } else {
            allocate_aligned(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
        }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        // SAFETY: the caller allocated it here and frees it.
        unsafe { free_or_null(at) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_BYTES {
            return allocate_zeroed(layout.size()).map_or(ptr::null_mut(), NonNull::as_ptr);
        }
        // SAFETY: the layout is the caller's.
        let at = unsafe { self.alloc(layout) };
        if !at.is_null() {
            // SAFETY: a new block of so many bytes.
            unsafe { at.write_bytes(0, layout.size()) };
        }
        at
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= ALIGN_BYTES {
            let Some(at) = NonNull::new(at) else { return ptr::null_mut() };
            // SAFETY: the caller allocated it here, and uses only what is returned.
            let resized = unsafe { resize(at, new_size) };
            return resized.map_or(ptr::null_mut(), NonNull::as_ptr);
        }
        // SAFETY: the new size does not overflow with the alignment, as the caller says.
        let new =
            unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new.is_null() {
            // SAFETY: two blocks in use, both as long; the caller frees the old one.
            unsafe {
                at.copy_to_nonoverlapping(new, layout.size().min(new_size));
                self.dealloc(at, layout);
            }
        }
        new
    }
}

//! `cmt_malloc` as a Rust program's allocator.

use core::alloc::{GlobalAlloc, Layout};

use crate::calls::{cmt_aligned_alloc, cmt_calloc, cmt_free, cmt_malloc, cmt_realloc};

/// The process's buffer pool.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: swath_cmt::Cmt = swath_cmt::Cmt;
///
/// let text = "all of this program's memory ".repeat(100_000);
/// let mut stats = swath_cmt::cmt_stats::default();
/// // SAFETY: a place to write to.
/// unsafe { swath_cmt::cmt_stats_get(&mut stats) };
/// assert!(stats.segment_bytes >= text.len() as u64);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Cmt;

/// What every block is aligned to.
const ALIGN_BYTES: usize = 16;

// SAFETY: blocks are aligned, as long as asked for and nobody else's; nothing unwinds.
unsafe impl GlobalAlloc for Cmt {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_BYTES {
            cmt_malloc(layout.size()).cast()
        } else {
            cmt_aligned_alloc(layout.align(), layout.size()).cast()
        }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, _: Layout) {
        // SAFETY: the caller got it here and gives it up.
        unsafe { cmt_free(at.cast()) };
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_BYTES {
            return cmt_calloc(1, layout.size()).cast();
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
            // SAFETY: the caller got it here; its size is not 0.
            return unsafe { cmt_realloc(at.cast(), new_size) }.cast();
        }
        // SAFETY: the new size does not overflow with the alignment, as the caller says.
        let new =
            unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new.is_null() {
            // SAFETY: two blocks in use, both as long; the old one is given up.
            unsafe {
                at.copy_to_nonoverlapping(new, layout.size().min(new_size));
                self.dealloc(at, layout);
            }
        }
        new
    }
}

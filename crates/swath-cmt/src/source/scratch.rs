//! Chunks outside the arena, whose pages move into it.

use crate::source::chunk::CHUNK_BYTES;
use crate::source::mapping::{map, move_pages, touch, unmap};

/// Chunks outside the arena, aligned as they are to be there; unmapped in the end, if they are not moved.
pub(crate) struct Scratch {
    start: *mut u8,
    len_bytes: usize,
}

impl Scratch {
    /// Maps chunks for ordinary pages, huge ones if they are wanted and there; none is there yet.
    /// `align_bytes` is a multiple of a chunk.
    pub(crate) fn new(chunks: usize, align_bytes: usize, thp: bool) -> Option<Self> {
        let len_bytes = chunks * CHUNK_BYTES;
        let mapped = map(len_bytes + align_bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: mapped just now, and used by nothing else.
        let mut scratch = unsafe { Self::of(mapped, len_bytes + align_bytes) };
        scratch.trim(mapped.align_offset(align_bytes), len_bytes);
        if thp {
            // SAFETY: this value's memory; advice changes no contents.
            unsafe { libc::madvise(scratch.start.cast(), len_bytes, libc::MADV_HUGEPAGE) };
        }
        Some(scratch)
    }

    /// Takes over a mapping.
    ///
    /// # Safety
    /// It is mapped, and nothing else uses or unmaps it.
    pub(crate) unsafe fn of(start: *mut u8, len_bytes: usize) -> Self {
        Self { start, len_bytes }
    }

    /// Returns its first address.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Leaves `len_bytes` bytes from `skip` on, as it has them; the others are unmapped.
    pub(crate) fn trim(&mut self, skip: usize, len_bytes: usize) {
        let (before, end) = (self.start, self.start.wrapping_add(self.len_bytes));
        self.start = before.wrapping_add(skip);
        self.len_bytes = len_bytes;
        for (from, to) in [(before, self.start), (self.start.wrapping_add(len_bytes), end)] {
            if from < to {
                // SAFETY: this value's mapping, beside what stays of it.
                unsafe { unmap(from, to.addr() - from.addr()) };
            }
        }
    }

    /// Copies a chunk to the one of this number, and returns true if there is memory for it.
    ///
    /// # Safety
    /// A chunk can be read from there.
    pub(crate) unsafe fn copy(&self, index: usize, from: *const u8) -> bool {
        let to = self.start.wrapping_add(index * CHUNK_BYTES);
        // SAFETY: this value's memory; contents of the other as the caller says. What other threads write
        // there meanwhile is foreign code's to read, as the kernel's would be.
        unsafe {
            let there = touch(to, CHUNK_BYTES, false);
            if there {
                libc::memcpy(to.cast(), from.cast(), CHUNK_BYTES);
            }
            there
        }
    }

    /// Moves some of the chunks to an address, as [`move_to`](Self::move_to) does all.
    ///
    /// # Safety
    /// As for all, and no other thread maps memory until this value is dropped: holes in it would be
    /// unmapped as it is.
    pub(crate) unsafe fn move_some(&self, index: usize, chunks: usize, to: *mut u8) -> bool {
        let from = self.start.wrapping_add(index * CHUNK_BYTES);
        // SAFETY: as the caller says.
        unsafe { move_pages(from, to, chunks * CHUNK_BYTES) }
    }

    /// Moves the chunks to an address, in place of what is mapped there, and returns true if they are
    /// there.
    ///
    /// # Safety
    /// What is mapped there is the caller's to replace.
    pub(crate) unsafe fn move_to(self, to: *mut u8) -> bool {
        // SAFETY: as the caller says, and the chunks are this value's.
        let moved = unsafe { move_pages(self.start, to, self.len_bytes) };
        if moved {
            core::mem::forget(self);
        }
        moved
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: this value's mapping, of which nothing was moved away.
        unsafe { unmap(self.start, self.len_bytes) };
    }
}

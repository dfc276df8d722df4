//! Chunks outside the arena, for the copies of a fork.

use crate::source::chunk::CHUNK_BYTES;
use crate::source::mapping::{map, unmap};

/// Chunks outside the arena; those that are not moved away, by a process's only thread, are unmapped in
/// the end.
pub(crate) struct Scratch {
    mapped: *mut u8,
    mapped_len: usize,
    /// The first chunk.
    pub(crate) start: *mut u8,
}

impl Scratch {
    /// Reserves chunks that are not touched yet.
    pub(crate) fn reserve(chunks: usize) -> Option<Self> {
        let mapped_len = (chunks + 1) * CHUNK_BYTES;
        let mapped = map(mapped_len, libc::PROT_READ | libc::PROT_WRITE)?;
        let start = mapped.wrapping_add(mapped.align_offset(CHUNK_BYTES));
        Some(Self { mapped, mapped_len, start })
    }

    pub(crate) fn at(&self, chunk: usize) -> *mut u8 {
        self.start.wrapping_add(chunk * CHUNK_BYTES)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: mapped by `reserve`; chunks that moved away are holes in it, which no other
        // thread has filled.
        unsafe { unmap(self.mapped, self.mapped_len) };
    }
}

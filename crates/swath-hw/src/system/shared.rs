//! Buffers that masters hand to each other.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use swath_arch::VirtAddr;

use crate::system::transaction::TRANSACTION_BYTES;

/// A buffer that masters hand to each other: a read of one of its lines
/// of [`TRANSACTION_BYTES`] may be issued from the cycle in which a write of that line, by any
/// master, has first completed. So the buffer must begin empty and be written by the
/// workload; what masters find there at the start is no shared buffer. Masters that
/// share a buffer see it at the same virtual address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SharedBuffer {
    /// Its first byte, a multiple of [`TRANSACTION_BYTES`].
    pub start: VirtAddr,
    /// Its length; a last line that is begun counts as a whole.
    pub len_bytes: u64,
}

/// Bytes of all shared buffers together, at most: 64 GiB.
pub(crate) const SHARED_BYTES_MAX: u64 = 1 << 36;

/// A line of a shared buffer: the number of its bit.
pub(crate) type Line = u32;

/// The lines of the shared buffers, with a bit for each that has been written.
///
/// Invariant: the buffers are in ascending order and do not overlap; each
/// line has a bit of its own.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// First line number of a buffer, the one after its last, its first bit.
    buffers: Box<[(u64, u64, Line)]>,
    written: Box<[u64]>,
}

impl Lines {
    /// Creates the lines of all buffers, none of them written.
    ///
    /// # Errors
    /// The buffer that is misaligned, too long, or overlaps another.
    pub(crate) fn new(shared: &[SharedBuffer]) -> Result<Self, SharedBuffer> {
        let mut sorted = Vec::from(shared);
        sorted.sort_by_key(|buffer| (buffer.start, buffer.len_bytes));
        let (mut end, mut lines) = (0, 0);
        let mut buffers = Vec::with_capacity(sorted.len());
        for buffer in sorted {
            let first = buffer.start.raw() / TRANSACTION_BYTES;
            let count = buffer.len_bytes.div_ceil(TRANSACTION_BYTES);
            let room = SHARED_BYTES_MAX / TRANSACTION_BYTES - lines;
            if buffer.start.raw() % TRANSACTION_BYTES != 0 || first < end || count > room {
                return Err(buffer);
            }
            buffers.push((first, first + count, lines as Line));
            end = first + count;
            lines += count;
        }
        Ok(Self { buffers: buffers.into(), written: vec![0; lines.div_ceil(64) as usize].into() })
    }

    /// Returns the line of an address in a shared buffer. O(log buffers).
    #[inline]
    pub(crate) fn line(&self, addr: VirtAddr) -> Option<Line> {
        let line = addr.raw() / TRANSACTION_BYTES;
        let after = self.buffers.partition_point(|&(first, ..)| first <= line);
        let (first, end, bit) = *self.buffers.get(after.checked_sub(1)?)?;
        (line < end).then(|| bit + (line - first) as Line)
    }

    #[inline]
    pub(crate) fn is_written(&self, line: Line) -> bool {
        self.written[line as usize / 64] >> (line % 64) & 1 == 1
    }

    #[inline]
    pub(crate) fn set_written(&mut self, line: Line) {
        self.written[line as usize / 64] |= 1 << (line % 64);
    }
}

//! The pools of a heap, as a list through their own memory.
//!
//! ```text
//!   start     start+16                                     end−16      end
//!   ├─────────┼────────────────────────────────────────────┼─────────┤
//!   │ record  │ tag, block … tag, block …                  │ sentinel│
//!   ├─────────┼────────────────────────────────────────────┼─────────┤
//! ```
//!
//! The sentinel is a tag that ends the last block; its header says used, size
//! 0, so nothing coalesces past it.

use core::ptr::NonNull;

use crate::block::{Block, GRANULE_BYTES, MIN_BLOCK_BYTES};

/// Bytes that a pool takes for itself: its record and its sentinel.
pub const POOL_OVERHEAD_BYTES: usize = 2 * GRANULE_BYTES;

/// Bytes of the shortest pool.
pub(crate) const POOL_BYTES_MIN: usize = POOL_OVERHEAD_BYTES + MIN_BLOCK_BYTES;

/// The name of a pool that was added to a heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolId(pub(crate) NonNull<u8>);

impl PoolId {
    /// Returns the address of the pool's first byte, once aligned.
    #[must_use]
    pub fn address(self) -> usize {
        self.0.addr().get()
    }
}

/// The first granule of a pool.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    next: Option<Pool>,
    sentinel: Block,
}

const _: () = assert!(size_of::<Record>() == GRANULE_BYTES);

/// A pool of the list.
///
/// Invariant: it points to a record that was written by [`Pool::lay`], in
/// memory that stays the heap's and committed until the pool leaves the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub(crate) struct Pool(NonNull<Record>);

impl Pool {
    /// Writes the record of the pool of `len_bytes` at `start`.
    ///
    /// # Safety
    /// `start` is a multiple of a granule and `len_bytes` too, at least
    /// [`POOL_BYTES_MIN`] and at most `isize::MAX`; the memory is the
    /// heap's until the pool is removed; its first and its last granule are
    /// committed, and the first block's tag and links as well.
    pub(crate) unsafe fn lay(start: NonNull<u8>, len_bytes: usize, next: Option<Pool>) -> Self {
        let pool = Self(start.cast());
        // SAFETY: the last granule lies in the pool, is aligned as `len_bytes`
        // is, committed, and used by nothing else.
        let sentinel = unsafe { Block::at(start.byte_add(len_bytes - GRANULE_BYTES)) };
        // SAFETY: the first granule is aligned, committed and used by nothing else.
        unsafe { pool.0.write(Record { next, sentinel }) };
        pool
    }

    fn record(self) -> Record {
        // SAFETY: the invariant of the type.
        unsafe { self.0.read() }
    }

    pub(crate) fn start(self) -> NonNull<u8> {
        self.0.cast()
    }

    pub(crate) fn next(self) -> Option<Pool> {
        self.record().next
    }

    pub(crate) fn set_next(self, next: Option<Pool>) {
        // SAFETY: the invariant of the type; no reference to the record exists.
        unsafe { self.0.write(Record { next, ..self.record() }) }
    }

    /// The border of the first block.
    pub(crate) fn first(self) -> Block {
        // SAFETY: the granule after the record is the first block's tag, which
        // is committed for as long as the pool is in the list.
        unsafe { Block::at(self.start().byte_add(GRANULE_BYTES)) }
    }

    pub(crate) fn sentinel(self) -> Block {
        self.record().sentinel
    }

    pub(crate) fn len_bytes(self) -> usize {
        self.sentinel().address() + GRANULE_BYTES - self.start().addr().get()
    }

    /// Returns true if a block of the smallest size could start at `address`.
    #[inline(always)]
    pub(crate) fn holds_border(self, address: usize) -> bool {
        address > self.start().addr().get()
            && address <= self.sentinel().address() - MIN_BLOCK_BYTES
    }
}

/// The pools of `first` and those after it.
pub(crate) fn each(first: Option<Pool>) -> impl Iterator<Item = Pool> {
    core::iter::successors(first, |pool| pool.next())
}

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
//! 0, so nothing coalesces past it. The record's third word, its seal, is the first word of the
//! first block's tag, which no other block ends at.
//!
//! Records lie where an overrun of the pool before may reach them, and whoever believes a wrong one
//! writes anywhere. So all of it is sealed in every tier, and read only through
//! [`Pools::first`] and [`Pool::read`], which look at the seal first.

use core::ptr::NonNull;

use crate::block::{Block, GRANULE_BYTES, MIN_BLOCK_BYTES, WORD_BYTES};
use crate::error::{HeapFault, HeapFaultKind};

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

/// The first granule of a pool and the word behind it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Record {
    next: Option<Pool>,
    sentinel: Block,
    seal: usize,
}

const _: () = assert!(size_of::<Record>() == GRANULE_BYTES + WORD_BYTES);

/// The first pool of a heap, with its seal.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Pools {
    first: Option<Pool>,
    seal: usize,
}

impl Pools {
    /// No pool.
    pub(crate) const fn none(key: usize) -> Self {
        Self { first: None, seal: key }
    }

    #[inline(always)]
    fn seal(first: Option<Pool>, key: usize) -> usize {
        Pool::address(first) ^ key
    }

    fn of(first: Option<Pool>, key: usize) -> Self {
        Self { first, seal: Self::seal(first, key) }
    }

    /// The first pool, if there is one.
    #[inline(always)]
    pub(crate) fn first(&self, key: usize) -> Result<Option<Pool>, HeapFault> {
        if self.seal != Self::seal(self.first, key) {
            return Err(self.fault());
        }
        Ok(self.first)
    }

    #[cold]
    fn fault(&self) -> HeapFault {
        HeapFault { address: core::ptr::from_ref(self).addr(), kind: HeapFaultKind::Pool }
    }

    /// The pools from the first on, up to a record that is not intact.
    pub(crate) fn each(&self, key: usize) -> impl Iterator<Item = Result<Lent, HeapFault>> + use<> {
        let mut at = self.first(key).transpose();
        core::iter::from_fn(move || {
            let lent = at.take()?.and_then(|pool| pool.read(key));
            at = lent.ok().and_then(|lent| lent.next.map(Ok));
            Some(lent)
        })
    }

    /// Puts a pool that `lay` made at the front.
    pub(crate) fn push(&mut self, pool: Pool, key: usize) {
        *self = Self::of(Some(pool), key);
    }

    /// Takes a pool out that stands behind `before`, or first.
    pub(crate) fn remove(&mut self, pool: Lent, before: Option<Lent>, key: usize) {
        match before {
            Some(before) => before.pool.write(pool.next, before.end, key),
            None => *self = Self::of(pool.next, key),
        }
    }
}

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
    pub(crate) unsafe fn lay(
        start: NonNull<u8>,
        len_bytes: usize,
        next: Option<Pool>,
        key: usize,
    ) -> Lent {
        let pool = Self(start.cast());
        // SAFETY: the last granule lies in the pool, is aligned as `len_bytes`
        // is, committed, and used by nothing else.
        let end = unsafe { Block::at(start.byte_add(len_bytes - GRANULE_BYTES)) };
        pool.write(next, end, key);
        Lent { pool, next, end }
    }

    /// Writes the record of this pool with its seal.
    fn write(self, next: Option<Pool>, sentinel: Block, key: usize) {
        let seal = self.seal(Self::address(next), sentinel.address(), key);
        // SAFETY: the first granule and the word behind it are aligned, committed and the record's
        // alone; no reference to them exists.
        unsafe { self.0.write(Record { next, sentinel, seal }) };
    }

    /// Whatever one of the words is changed to, the seal is another; the two are not exchanged
    /// unseen.
    #[inline(always)]
    fn seal(self, next: usize, sentinel: usize, key: usize) -> usize {
        next.rotate_left(usize::BITS / 4) ^ sentinel ^ self.0.addr().get() ^ key
    }

    /// The address of a pool; 0 for none.
    #[inline(always)]
    fn address(pool: Option<Pool>) -> usize {
        pool.map_or(0, |pool| pool.0.addr().get())
    }

    /// Reads the record, if its seal is whole.
    #[inline(always)]
    pub(crate) fn read(self, key: usize) -> Result<Lent, HeapFault> {
        // SAFETY: the invariant of the type; three words, which are looked at as numbers.
        let [next, sentinel, seal] = unsafe { self.0.cast::<[usize; 3]>().read() };
        if seal != self.seal(next, sentinel, key) {
            return Err(self.fault());
        }
        // SAFETY: the record is as `write` left it.
        let Record { next, sentinel, .. } = unsafe { self.0.read() };
        Ok(Lent { pool: self, next, end: sentinel })
    }

    #[cold]
    fn fault(self) -> HeapFault {
        HeapFault { address: self.0.addr().get(), kind: HeapFaultKind::Pool }
    }
}

/// What an intact record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lent {
    pool: Pool,
    pub(crate) next: Option<Pool>,
    /// The sentinel.
    pub(crate) end: Block,
}

impl Lent {
    #[inline(always)]
    pub(crate) fn pool(self) -> Pool {
        self.pool
    }

    #[inline(always)]
    pub(crate) fn start(self) -> NonNull<u8> {
        self.pool.0.cast()
    }

    /// The border of the first block.
    pub(crate) fn first(self) -> Block {
        // SAFETY: the granule after the record is the first block's tag, which
        // is committed for as long as the pool is in the list.
        unsafe { Block::at(self.start().byte_add(GRANULE_BYTES)) }
    }

    pub(crate) fn len_bytes(self) -> usize {
        self.end.address() + GRANULE_BYTES - self.start().addr().get()
    }

    /// Returns true if a block of the smallest size could start at `address`.
    #[inline(always)]
    pub(crate) fn holds_border(self, address: usize) -> bool {
        let first = self.start().addr().get() + GRANULE_BYTES;
        // One comparison: below the first it wraps.
        address & (GRANULE_BYTES - 1) == 0
            && address.wrapping_sub(first) <= self.end.address() - MIN_BLOCK_BYTES - first
    }
}

/// A used block, as the search for a pointer finds it.
#[derive(Clone, Copy)]
pub(crate) struct Located {
    pub(crate) block: Block,
    pub(crate) header: usize,
    /// Its pool; `None` in a tier that does not look.
    pub(crate) pool: Option<Lent>,
}

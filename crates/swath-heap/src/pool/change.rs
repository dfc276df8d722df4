//! Pools are added and removed.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::block::{FREE, GRANULE_BYTES, GRANULE_SHIFT, SIZE_MASK};
use crate::error::HeapPoolError;
use crate::fit::Fit;
use crate::hardening::Hardening;
use crate::heap::Heap;
use crate::pages::{PageSource, Resident};
use crate::pool::record::{Lent, POOL_BYTES_MIN, POOL_OVERHEAD_BYTES, Pool, PoolId};

impl<'p, F: Fit, H: Hardening> Heap<'p, F, Resident, H> {
    /// Adds memory to the heap: all of it but what lies outside of whole
    /// granules.
    ///
    /// Takes O(p) for p pools: it is compared with each of them.
    ///
    /// # Errors
    /// A [`HeapPoolError`]; nothing changes.
    pub fn add_pool(&mut self, pool: &'p mut [MaybeUninit<u8>]) -> Result<PoolId, HeapPoolError> {
        let len_bytes = pool.len();
        // SAFETY: the slice is borrowed exclusively for `'p`, which the heap
        // does not outlive.
        unsafe { self.add_pool_at(NonNull::from(pool).cast(), len_bytes) }
    }
}

impl<F: Fit, S: PageSource, H: Hardening> Heap<'_, F, S, H> {
    /// Adds memory by its address. Over a [`PageSource`] it consists of whole
    /// pages, none of them committed; the heap commits the first and the last.
    ///
    /// Takes O(p) for p pools: it is compared with each of them.
    ///
    /// # Errors
    /// A [`HeapPoolError`]; nothing changes.
    ///
    /// # Safety
    /// `start` is valid for reads and writes of `len_bytes`, over a source as
    /// far as they are committed. The memory is the heap's alone until the pool
    /// is removed or the heap and all that it allocated are not used any more.
    pub unsafe fn add_pool_at(
        &mut self,
        start: NonNull<u8>,
        len_bytes: usize,
    ) -> Result<PoolId, HeapPoolError> {
        let address = start.addr().get();
        let aligned = address.next_multiple_of(GRANULE_BYTES);
        let len = len_bytes.saturating_sub(aligned - address) & !(GRANULE_BYTES - 1);
        if len < POOL_BYTES_MIN {
            return Err(HeapPoolError::TooShort { len_bytes: len, min_bytes: POOL_BYTES_MIN });
        }
        let max_bytes = (F::GRANULES_MAX << GRANULE_SHIFT) + POOL_OVERHEAD_BYTES;
        if len > max_bytes {
            return Err(HeapPoolError::TooLong { len_bytes: len, max_bytes });
        }
        for pool in self.pools.each(self.key) {
            let pool = pool.map_err(HeapPoolError::Corrupt)?;
            let other = pool.start().addr().get();
            if aligned < other + pool.len_bytes() && other < aligned + len {
                return Err(HeapPoolError::Overlaps { address: other });
            }
        }
        if H::LINKS {
            self.list_intact(len - POOL_OVERHEAD_BYTES, None).map_err(HeapPoolError::Corrupt)?;
        }
        // SAFETY: no further than the end, since `len` is at least a pool's.
        let start = unsafe { start.byte_add(aligned - address) };
        if S::RELEASES {
            let page_bytes = self.source.page_bytes();
            if aligned != address || len != len_bytes || (aligned | len) & (page_bytes - 1) != 0 {
                return Err(HeapPoolError::NotPages { address, len_bytes, page_bytes });
            }
            self.source.commit(start, page_bytes).map_err(HeapPoolError::Source)?;
            if len > page_bytes {
                // SAFETY: the last page, within the pool.
                let last = unsafe { start.byte_add(len - page_bytes) };
                if let Err(error) = self.source.commit(last, page_bytes) {
                    self.source.release(start, page_bytes);
                    return Err(HeapPoolError::Source(error));
                }
            }
        }
        // With a source the first and the last page are committed, and a page has 64
        // bytes or more, as many as the record and the first block's tag and links take.
        let next = self.pools.first(self.key).map_err(HeapPoolError::Corrupt)?;
        // SAFETY: aligned, long enough and not too long as was just checked, the heap's by the
        // caller's contract, and what `lay` writes may be accessed.
        let pool = unsafe { Pool::lay(start, len, next, self.key) };
        self.pools.push(pool.pool(), self.key);
        self.set_header(pool.end, 0);
        self.insert_free(pool.first(), len - POOL_OVERHEAD_BYTES, pool.end);
        Ok(PoolId(start))
    }

    /// Removes a pool from which nothing is allocated, and returns its
    /// memory; its pages are released to the source.
    ///
    /// Takes O(p) for p pools.
    ///
    /// # Errors
    /// A [`HeapPoolError`]; nothing changes.
    pub fn remove_pool(&mut self, id: PoolId) -> Result<NonNull<[u8]>, HeapPoolError> {
        let mut before: Option<Lent> = None;
        let mut pools = self.pools.each(self.key);
        let pool = loop {
            let pool = pools.next().ok_or(HeapPoolError::Unknown { address: id.address() })?;
            let pool = pool.map_err(HeapPoolError::Corrupt)?;
            if pool.start() == id.0 {
                break pool;
            }
            before = Some(pool);
        };
        let (first, sentinel) = (pool.first(), pool.end);
        let header = first.header();
        if H::HEADERS {
            self.intact(first, sentinel).map_err(HeapPoolError::Corrupt)?;
        }
        if header & FREE == 0 {
            return Err(HeapPoolError::InUse { address: first.address() });
        }
        let size = header & SIZE_MASK;
        if first.address() + size != sentinel.address() {
            return Err(HeapPoolError::InUse { address: first.address() + size });
        }
        if H::LINKS {
            self.links_intact(first, size, pool).map_err(HeapPoolError::Corrupt)?;
        }
        self.bins.unlink(first, size);
        self.pools.remove(pool, before, self.key);
        let len = pool.len_bytes();
        if S::RELEASES {
            let page_bytes = self.source.page_bytes();
            self.source.release(pool.start(), page_bytes);
            if len > page_bytes {
                // SAFETY: the last page, within the pool.
                self.source.release(unsafe { pool.start().byte_add(len - page_bytes) }, page_bytes);
            }
        }
        Ok(NonNull::slice_from_raw_parts(pool.start(), len))
    }
}

//! The way from a front to what it reads of its pool.

use lock_api::RawMutex;

use crate::pool::buffer_pool::BufferPool;
use crate::source::segment_source::SegmentSource;
use crate::superblock::claim::Claim;
use crate::superblock::live::Live;

/// The way from a [`Front`](crate::Front) to its pool: a pointer to it; or copies of what nearly every call reads of its tables
/// ([`BufferPool::table_words`]), where these are nearer, as in a thread's own words.
///
/// # Safety
/// All functions say what the tables of one pool say, the one that [`pool`](Self::pool) returns, or all what those of
/// [`BufferPool::NOTHING`] say.
pub unsafe trait Reach<'m, L, S>: Copy {
    /// Returns the pool.
    fn pool(self) -> *const BufferPool<'m, L, S>;

    /// Returns an address less that of the arena's first byte.
    ///
    /// # Safety
    /// The pool's memory is there, if only as zeroes.
    unsafe fn offset_of(self, address: usize) -> usize;

    /// Returns true if a granule of this number is one of the arena's.
    ///
    /// # Safety
    /// As for [`offset_of`](Self::offset_of).
    unsafe fn has_granule(self, granule: usize) -> bool;

    /// Returns where the claim to the unit of address 0 would lie.
    ///
    /// # Safety
    /// As for [`offset_of`](Self::offset_of).
    unsafe fn claim_zero(self) -> *const Claim;

    /// Returns the live bits of the first unit, behind which those of the others lie.
    ///
    /// # Safety
    /// The pool is there.
    unsafe fn live(self) -> *const Live;

    /// Returns what lies at an address of the arena.
    ///
    /// # Safety
    /// As for [`offset_of`](Self::offset_of).
    unsafe fn place_at(self, address: usize) -> *mut u8;
}

// SAFETY: it is the pool that is asked.
unsafe impl<'m, L: RawMutex, S: SegmentSource> Reach<'m, L, S> for *const BufferPool<'m, L, S> {
    #[inline(always)]
    fn pool(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn offset_of(self, address: usize) -> usize {
        // SAFETY: as the caller says.
        address.wrapping_sub(unsafe { BufferPool::base_of(self) }.addr())
    }

    #[inline(always)]
    unsafe fn has_granule(self, granule: usize) -> bool {
        // SAFETY: as the caller says.
        granule < unsafe { BufferPool::granules_of(self) }
    }

    #[inline(always)]
    unsafe fn claim_zero(self) -> *const Claim {
        // SAFETY: as the caller says.
        unsafe { BufferPool::claim_zero_of(self) }
    }

    #[inline(always)]
    unsafe fn live(self) -> *const Live {
        // SAFETY: as the caller says.
        unsafe { BufferPool::first_live_of(self) }
    }

    #[inline(always)]
    unsafe fn place_at(self, address: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { BufferPool::base_of(self) }.with_addr(address)
    }
}

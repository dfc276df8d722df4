//! Sources of the pages under a heap.
//!
//! The modification of TLSF by *Böhnert and Scholl*: a free block
//! keeps only the pages that hold its tag and links and the next block's tag.
//!
//! ```text
//!   page     │         │░░░░░░░░░│░░░░░░░░░│░░░░░░░░░│         │
//!   ─────────┼──┬──────┼─────────┼─────────┼─────────┼───┬─────┼──
//!     used   │  │tag,  │        pages with the source   │tag  │ used
//!            │  │links │                             │   │     │
//!   ─────────┼──┴──────┼─────────┼─────────┼─────────┼───┴─────┼──
//! ```
//!
//! Those in between are **released** when the block becomes free and
//! **committed** when they become part of a used block or of a tag. Two free
//! blocks that coalesce had each released its own pages before, so what a free
//! adds is one range, and so is what an allocation takes away: one call of the
//! source for either, however many pages it is.

use core::ptr::NonNull;

use swath_arch::BASE_PAGE_BYTES;

/// An error of a source: it has no pages for a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no pages for {len_bytes} bytes at {address:#x}")]
pub struct SourceError {
    /// Address at which the range begins.
    pub address: usize,
    /// Number of the range's bytes.
    pub len_bytes: usize,
}

/// A source of pages for a heap, which commits and releases them.
///
/// All ranges are whole pages of one pool. A heap commits only pages that it
/// has released or never committed, and releases only committed ones. It makes
/// at most one call for each allocation and each free, up to three for a
/// resize that moves (and one more to take back a commit when a second fails),
/// two to add a pool and two to remove one.
///
/// # Safety
/// From `commit` until `release`, a page can be read and written, and nothing
/// but the heap and its users touches it. The contents of a released page may be lost.
pub unsafe trait PageSource {
    /// True if pages ever go back. With `false` the heap does without all of
    /// it: no call is made and pools need not consist of whole pages.
    const RELEASES: bool = true;

    /// Returns the bytes of a page, a power of two of at least 64 that never changes.
    fn page_bytes(&self) -> usize;

    /// Commits a range of pages: makes them usable. On an error none of them is.
    ///
    /// # Errors
    /// [`SourceError`] if there is not enough memory.
    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError>;

    /// Releases a range of pages; unmapRegion of the paper, whose time does
    /// not depend on the length.
    fn release(&mut self, start: NonNull<u8>, len_bytes: usize);

    /// Returns true if the page of `address`, which lies in a pool, is committed. Asked
    /// only in a checking tier, before a pointer that may be wrong is followed.
    fn is_committed(&self, address: usize) -> bool;
}

/// A source whose memory is always there: no page ever goes back.
#[derive(Clone, Copy, Default, Debug)]
pub struct Resident;

// SAFETY: pools without a source are memory that the heap may use all the time.
unsafe impl PageSource for Resident {
    const RELEASES: bool = false;

    fn page_bytes(&self) -> usize {
        BASE_PAGE_BYTES as usize
    }

    fn commit(&mut self, _: NonNull<u8>, _: usize) -> Result<(), SourceError> {
        Ok(())
    }

    fn release(&mut self, _: NonNull<u8>, _: usize) {}

    fn is_committed(&self, _: usize) -> bool {
        true
    }
}

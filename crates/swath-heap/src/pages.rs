//! Where the pages under a heap come from.
//!
//! The paper's modification of TLSF (004_0cb2f33903da1556.txt): a free block
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

use core::fmt;
use core::ptr::NonNull;

use swath_arch::BASE_PAGE_BYTES;

/// The source had no pages to give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceError {
    /// Where the range begins that it could not commit.
    pub address: usize,
    /// Bytes of the range.
    pub len_bytes: usize,
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no pages for {} bytes at {:#x}", self.len_bytes, self.address)
    }
}

impl core::error::Error for SourceError {}

/// Gives pages to a heap and takes them back.
///
/// All ranges are whole pages of one pool. A heap commits only pages that it
/// has released or never committed, and releases only committed ones. It makes
/// at most one call for each allocation and each free, up to three for a
/// resize that moves (and one more to take back a commit when a second fails),
/// two to add a pool and two to remove one.
///
/// # Safety
/// From `commit` until `release`, a page can be read and written, and nobody
/// but the heap and its users touches it. What a released page held may be lost.
pub unsafe trait PageSource {
    /// Whether pages ever go back. With `false` the heap does without all of
    /// it: no call is made and pools need not consist of whole pages.
    const RELEASES: bool = true;

    /// Bytes of a page, a power of two of at least 64 that never changes.
    fn page_bytes(&self) -> usize;

    /// Makes a range of pages usable. On an error none of them is.
    ///
    /// # Errors
    /// [`SourceError`] if there is not enough memory.
    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError>;

    /// Takes a range of pages back; unmapRegion of the paper, whose time does
    /// not depend on the length.
    fn release(&mut self, start: NonNull<u8>, len_bytes: usize);

    /// Whether the page of `address`, which lies in a pool, is committed. Asked
    /// only in a checking tier, before a doubtful pointer is followed.
    fn is_committed(&self, address: usize) -> bool;
}

/// Memory that is simply there: no page ever goes back.
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

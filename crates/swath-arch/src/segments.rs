//! The list of extents that the segment registers of an accelerator are loaded from.
//!
//! *Zhang, Lu and Zhang* let an accelerator reach memory "through the segment map" and do not
//! describe it. Here it is a list in physical memory: pages of the accelerator's space,
//! each run of them with the frame of its first page. All words are of eight bytes.
//!
//! | at | word | says |
//! |---|---|---|
//! | 0 | [`COUNT_BYTES`] | number of entries, at most [`ENTRIES_MAX`] |
//! | [`entry(i)`](SegmentList::entry) + [`BASE_BYTES`] | base | the first page |
//! | … + [`BOUND_BYTES`] | bound | the page past the last |
//! | … + [`TARGET_BYTES`] | target | the frame of the first page |
//! | … + [`RIGHTS_BYTES`] | rights | [`WRITE`]: the pages may be written; all may be read |
//!
//! Entries ascend, and no two have a page in common, so that a unit finds one by halves.

use crate::addr::number::{BASE_PAGE_SHIFT, PhysAddr};
use crate::formats::field::Field;

/// The place of the number of entries in the list.
pub const COUNT_BYTES: u64 = 0;
/// Bytes of an entry: half a line of memory, so that no entry lies in two.
pub const ENTRY_BYTES: u64 = 32;
/// The place of the first page in an entry.
pub const BASE_BYTES: u64 = 0;
/// The place of the page past the last in an entry.
pub const BOUND_BYTES: u64 = 8;
/// The place of the first page's frame in an entry.
pub const TARGET_BYTES: u64 = 16;
/// The place of the rights in an entry.
pub const RIGHTS_BYTES: u64 = 24;
/// Rights: the pages may be written.
pub const WRITE: Field = Field::bit(0);
/// The most entries of a list.
pub const ENTRIES_MAX: u64 = 1 << 20;

/// The place of a list in physical memory, as a unit has it in a register: the start of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentList {
    /// The address of the number of entries.
    pub root: PhysAddr,
}

impl SegmentList {
    /// Returns true if the list begins with a frame.
    pub fn is_aligned(self) -> bool {
        self.root.is_aligned(BASE_PAGE_SHIFT)
    }

    /// Returns the address of the number of entries.
    #[inline]
    pub const fn count(self) -> PhysAddr {
        PhysAddr::new(self.root.raw() + COUNT_BYTES)
    }

    /// Returns the address of entry `index`, below [`ENTRIES_MAX`].
    #[inline]
    pub const fn entry(self, index: u64) -> PhysAddr {
        PhysAddr::new(self.root.raw().wrapping_add(ENTRY_BYTES * (index + 1)))
    }

    /// Returns the bytes of a list of `entries`.
    pub const fn len_bytes(entries: u64) -> u64 {
        ENTRY_BYTES * (entries + 1)
    }
}

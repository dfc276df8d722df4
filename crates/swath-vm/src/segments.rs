//! Segment lists: an accelerator's space as a few extents, written as bytes of physical memory.
//!
//! Where a page table has a descriptor for each page, a list has one entry for each extent,
//! however long. What the bytes mean stands in [`swath_arch::segments`].

use swath_arch::segments::{
    BASE_BYTES, BOUND_BYTES, ENTRIES_MAX, RIGHTS_BYTES, SegmentList, TARGET_BYTES, WRITE,
};
use swath_arch::{BusError, PageRange, Pfn, PhysAddr, PhysMemory};

/// Pages of the accelerator's space with the frames behind them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SegmentEntry {
    /// The pages.
    pub pages: PageRange,
    /// The frame of the first; the others follow.
    pub first: Pfn,
    /// True if they may be written.
    pub writable: bool,
}

/// Reasons why a list is not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentListError {
    /// The list does not begin with a frame.
    #[error("a list at {root} begins in a frame")]
    Misaligned {
        /// Its address.
        root: PhysAddr,
    },
    /// More entries than a list has: [`ENTRIES_MAX`].
    #[error("entry {index} is one too many")]
    TooMany {
        /// The first beyond.
        index: u64,
    },
    /// The entry has no page, or its pages or frames have no numbers.
    #[error("entry {index} is empty or overflows")]
    Range {
        /// The entry's place in the list.
        index: u64,
    },
    /// The entry does not begin behind the one before.
    #[error("entry {index} does not follow the one before it")]
    Order {
        /// The entry's place in the list.
        index: u64,
    },
    /// No memory answered.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Writes `entries`, ascending and apart, as the list at `root`, and its length in bytes. The number
/// of entries is written last: a list that fails half-way has none. Units that read another list
/// here before have to be told. O(entries).
///
/// # Errors
/// [`SegmentListError`].
///
/// # Examples
/// ```
/// use swath_arch::{PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, Vpn};
/// use swath_vm::{SegmentEntry, write_segment_list};
///
/// let mut words = [0; 512];
/// let memory = SliceMemory::new(Pfn::new(8), &mut words);
/// let pages = PageRange::new(Vpn::new(0), 5120);
/// let entry = SegmentEntry { pages, first: Pfn::new(0x1800), writable: true };
/// assert_eq!(write_segment_list(&memory, PhysAddr::new(0x8000), &[entry]), Ok(64));
/// assert_eq!(memory.read_u64(PhysAddr::new(0x8028)), Ok(5120));
/// ```
pub fn write_segment_list<M: PhysMemory + ?Sized>(
    memory: &M,
    root: PhysAddr,
    entries: &[SegmentEntry],
) -> Result<u64, SegmentListError> {
    let list = SegmentList { root };
    if !list.is_aligned() {
        return Err(SegmentListError::Misaligned { root });
    }
    memory.write_u64(list.count(), 0)?;
    let mut before = 0;
    for (index, entry) in (0..).zip(entries) {
        if index == ENTRIES_MAX {
            return Err(SegmentListError::TooMany { index });
        }
        let bound = entry.pages.checked_end().filter(|end| end.raw() <= 1 << 52);
        let frames = entry.first.checked_add(entry.pages.count).filter(|end| end.raw() <= 1 << 52);
        let (Some(bound), Some(_), 1..) = (bound, frames, entry.pages.count) else {
            return Err(SegmentListError::Range { index });
        };
        if entry.pages.start.raw() < before {
            return Err(SegmentListError::Order { index });
        }
        before = bound.raw();
        let rights = WRITE.set(0_u64, entry.writable.into());
        for (at, word) in [
            (BASE_BYTES, entry.pages.start.raw()),
            (BOUND_BYTES, bound.raw()),
            (TARGET_BYTES, entry.first.raw()),
            (RIGHTS_BYTES, rights),
        ] {
            memory.write_u64(PhysAddr::new(list.entry(index).raw() + at), word)?;
        }
    }
    memory.write_u64(list.count(), entries.len() as u64)?;
    Ok(SegmentList::len_bytes(entries.len() as u64))
}

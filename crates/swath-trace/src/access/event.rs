//! A program's accesses, and its changes of the address space between them.
//!
//! A trace that holds only accesses does not say which memory the program had
//! asked for, in what pieces, and when it gave it back. [`TraceEvent`] says so: the
//! system calls that change the address space, in their exact place among the
//! accesses. [`TraceItems`](crate::access::TraceItems) hands out both; a reader that wants accesses alone
//! reads [`TraceReader`](crate::access::TraceReader), which leaves events out.

use serde::Serialize;
use swath_arch::{PageRange, VirtAddr, Vpn};

/// Pages that 64 bits can address.
const PAGES: u64 = 1 << 52;

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Loads data.
    Read,
    /// Stores data.
    Write,
    /// Fetches an instruction.
    Fetch,
}

/// One access of a program to its memory.
///
/// Every reader hands out accesses of at least one byte that end within the
/// address space. An access that lies across a page boundary is **one**
/// access; [`MemoryAccess::pages`] gives each page that it needs translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryAccess {
    /// Address of the first byte.
    pub addr: VirtAddr,
    /// Length in bytes, 1 or more.
    pub len_bytes: u16,
    /// Kind of the access.
    pub kind: AccessKind,
}

impl MemoryAccess {
    /// An access of `len_bytes` at `addr`, or `None` if it is empty or ends
    /// beyond the last address.
    #[inline]
    pub const fn new(addr: VirtAddr, len_bytes: u16, kind: AccessKind) -> Option<Self> {
        if len_bytes == 0 || addr.raw().checked_add(len_bytes as u64 - 1).is_none() {
            return None;
        }
        Some(Self { addr, len_bytes, kind })
    }

    /// The pages that the access touches, ascending: one, or two where it
    /// lies across a boundary (more only beyond 4097 bytes). A TLB is asked
    /// once for each.
    #[inline]
    pub fn pages(self) -> PageRange {
        let first = self.addr.page();
        let last =
            VirtAddr::new(self.addr.raw().wrapping_add(u64::from(self.len_bytes) - 1)).page();
        PageRange::new(first, last.raw().wrapping_sub(first.raw()).wrapping_add(1))
    }
}

/// Kinds of access that a page permits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MapProtection {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetches.
    pub execute: bool,
}

impl MapProtection {
    /// Loads and stores: the heap, the stack.
    pub const READ_WRITE: Self = Self { read: true, write: true, execute: false };
    /// Loads alone.
    pub const READ: Self = Self { read: true, write: false, execute: false };

    /// As `mmap` and `mprotect` number it: 1 read, 2 write, 4 execute.
    pub const fn bits(self) -> u8 {
        self.read as u8 | (self.write as u8) << 1 | (self.execute as u8) << 2
    }

    /// The inverse of [`bits`](Self::bits); further bits say nothing of it.
    pub const fn of_bits(bits: u64) -> Self {
        Self { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 }
    }
}

/// Source of the contents of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapBacking {
    /// Memory that starts as zeros.
    Anonymous,
    /// A file's pages, in order.
    File {
        /// Number of the file: two mappings with one number show one file. Numbers
        /// count from 0 and stand for no name.
        file: u64,
        /// The page of the file that the mapping's first page shows.
        first_page: u64,
    },
}

/// A change of the address space.
///
/// Every reader hands out ranges of at least one page that end within the
/// address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TraceEvent {
    /// `pages` are mapped anew; what was mapped there before is gone.
    Map {
        /// Pages concerned.
        pages: PageRange,
        /// Accesses that they permit.
        protection: MapProtection,
        /// Source of their contents.
        backing: MapBacking,
        /// Writes are seen by all that map the same; otherwise they are the
        /// mapping's own.
        shared: bool,
    },
    /// Nothing is mapped at `pages` any more. There may have been nothing.
    Unmap {
        /// Pages concerned.
        pages: PageRange,
    },
    /// `pages`, as far as they are mapped, may be used differently.
    Protect {
        /// Pages concerned.
        pages: PageRange,
        /// Accesses that they permit from now on.
        protection: MapProtection,
    },
    /// The contents of `pages` are given up, the mapping stays: the next
    /// access to each faults again.
    Discard {
        /// Pages concerned.
        pages: PageRange,
    },
    /// The frames that `from` showed are shown by `to`; nothing is mapped
    /// at what lies in `from` alone any more. The lengths differ when a
    /// mapping grows or shrinks.
    Move {
        /// Pages before.
        from: PageRange,
        /// Pages after.
        to: PageRange,
    },
    /// A child starts with a copy of the address space. What the child does is
    /// not in the trace.
    Fork,
    /// So many accesses, 1 or more, were left out here by sampling.
    Skip {
        /// Number of them.
        accesses: u64,
    },
}

/// `count` pages from page `start` on, or `None` if that is no page or goes
/// beyond the address space.
pub(crate) fn page_range(start: u64, count: u64) -> Option<PageRange> {
    let there = count > 0 && start.checked_add(count).is_some_and(|end| end <= PAGES);
    there.then(|| PageRange::new(Vpn::new(start), count))
}

/// The pages that the bytes from `addr` on touch, or `None` if there are none
/// or they go beyond the address space.
pub fn pages_of(addr: u64, len_bytes: u64) -> Option<PageRange> {
    let last = addr.checked_add(len_bytes.checked_sub(1)?)?;
    let (first, last) = (VirtAddr::new(addr).page(), VirtAddr::new(last).page());
    page_range(first.raw(), last - first + 1)
}

impl TraceEvent {
    /// Returns true if the ranges are what every reader promises.
    pub(crate) fn is_sound(&self) -> bool {
        let sound = |pages: &PageRange| page_range(pages.start.raw(), pages.count).is_some();
        match self {
            Self::Map { pages, backing, .. } => {
                let file = match backing {
                    MapBacking::Anonymous => true,
                    MapBacking::File { first_page, .. } => *first_page < PAGES,
                };
                sound(pages) && file
            }
            Self::Unmap { pages } | Self::Protect { pages, .. } | Self::Discard { pages } => {
                sound(pages)
            }
            Self::Move { from, to } => sound(from) && sound(to),
            Self::Fork => true,
            Self::Skip { accesses } => *accesses > 0,
        }
    }
}

/// An access or an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceItem {
    /// An access.
    Access(MemoryAccess),
    /// An event.
    Event(TraceEvent),
}

/// Rule by which a recording was thinned out: of each `period_accesses` accesses of the
/// run the first `burst_accesses` are in the trace. Outside the bursts the
/// trace holds what can fault: all events, and each page's first access and
/// first write after it was mapped (after a [`TraceEvent::Discard`]; the first write
/// also after an [`TraceEvent::Fork`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct Sampling {
    /// Accesses recorded at a stretch, 1 or more.
    pub burst_accesses: u64,
    /// Accesses from the start of one burst to the next, more than a burst.
    pub period_accesses: u64,
}

impl Sampling {
    /// A sampling, or `None` if the burst is empty or not shorter than the
    /// period.
    pub const fn new(burst_accesses: u64, period_accesses: u64) -> Option<Self> {
        if burst_accesses == 0 || burst_accesses >= period_accesses {
            return None;
        }
        Some(Self { burst_accesses, period_accesses })
    }

    /// Returns how many times as much a burst stands for: the bursts that a period has room for, 1 or more.
    #[must_use]
    pub const fn weight(self) -> u64 {
        self.period_accesses / self.burst_accesses
    }
}

/// Facts that a trace states before its first access.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TraceHeader {
    /// The program's name, without the path to it: printable ASCII, at most
    /// 255 bytes; empty if nobody said.
    pub program: String,
    /// `None` if every access is in the trace.
    pub sampling: Option<Sampling>,
}

/// Accesses decoded at a time. A line or record adds at most seven more.
pub(crate) const BATCH: usize = 4096;

/// Decoded accesses, and the events among them.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) accesses: Vec<MemoryAccess>,
    /// Each with the number of accesses before it; ascending.
    pub(crate) events: Vec<(usize, TraceEvent)>,
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        self.accesses.len() + self.events.len()
    }

    pub(crate) fn clear(&mut self) {
        self.accesses.clear();
        self.events.clear();
    }

    pub(crate) fn push_event(&mut self, event: TraceEvent) {
        self.events.push((self.accesses.len(), event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_an_access() {
        let pages = |addr, len| {
            let pages =
                MemoryAccess::new(VirtAddr::new(addr), len, AccessKind::Read).unwrap().pages();
            (pages.start.raw(), pages.count)
        };
        assert_eq!(pages(0x1fff, 1), (1, 1));
        assert_eq!(pages(0x1fff, 2), (1, 2));
        assert_eq!(pages(0x1000, 4096), (1, 1));
        assert_eq!(pages(0x1fff, 4098), (1, 3));
        assert_eq!(pages(u64::MAX, 1), (u64::MAX >> 12, 1));
        assert_eq!(MemoryAccess::new(VirtAddr::new(u64::MAX), 2, AccessKind::Read), None);
        assert_eq!(MemoryAccess::new(VirtAddr::new(0), 0, AccessKind::Read), None);
    }
}

//! The entry that is filled into a TLB, and the hit that a lookup returns.

use swath_arch::{Attributes, PageRange, Pfn, Vpn};

/// Bits of a page number.
pub(crate) const PAGE_BITS: u32 = 52;

/// The two kinds of entries. They are looked up separately, so one page may
/// have one of each; the regular one wins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// A base page, a coalesced block or a superpage.
    Regular,
    /// AT's anchor with the pages behind it.
    Anchor,
}

/// A TLB's answer for a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbHit {
    /// The page's frame.
    pub frame: Pfn,
    /// The entry's attributes.
    pub attributes: Attributes,
    /// The kind of the entry.
    pub kind: EntryKind,
}

/// An entry to be filled, with the page that demanded it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbFill {
    pub(crate) kind: EntryKind,
    pub(crate) page: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) frame: u64,
    pub(crate) attributes: Attributes,
}

impl TlbFill {
    /// Creates an entry that maps `pages` to the frames from `first` on, demanded by
    /// `page`. `None` if `page` is not among `pages`, or a page or a frame
    /// number has more than 52 bits. O(1).
    #[inline]
    pub fn new(
        kind: EntryKind,
        page: Vpn,
        pages: PageRange,
        first: Pfn,
        attributes: Attributes,
    ) -> Option<Self> {
        let end = pages.checked_end()?.raw();
        let frame_end = first.checked_add(pages.count)?.raw();
        if !pages.contains(page) || end > 1 << PAGE_BITS || frame_end > 1 << PAGE_BITS {
            return None;
        }
        let (page, start, frame) = (page.raw(), pages.start.raw(), first.raw());
        Some(Self { kind, page, start, end, frame, attributes })
    }

    /// Creates an entry from ranges that are known to be right: `page` in `pages`, and
    /// no number beyond 52 bits.
    #[inline]
    pub(crate) fn within(
        kind: EntryKind,
        page: Vpn,
        pages: PageRange,
        first: Pfn,
        attributes: Attributes,
    ) -> Self {
        debug_assert!(Self::new(kind, page, pages, first, attributes).is_some());
        let (page, start, frame) = (page.raw(), pages.start.raw(), first.raw());
        Self { kind, page, start, end: start + pages.count, frame, attributes }
    }

    /// Returns the page that demanded the entry.
    pub const fn page(&self) -> Vpn {
        Vpn::new(self.page)
    }

    /// Returns the pages that the entry would serve.
    pub const fn pages(&self) -> PageRange {
        PageRange::new(Vpn::new(self.start), self.end - self.start)
    }

    /// Returns the kind of the entry.
    pub const fn kind(&self) -> EntryKind {
        self.kind
    }
}

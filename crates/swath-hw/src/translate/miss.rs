//! A TLB miss: one walk, or two for AT, and the entry that follows from them.
//!
//! **Choices that AT's papers leave open.** A miss makes two
//! walks, for the page and for its anchor (the page number rounded down to the
//! anchor distance), in the order that [`WalkOrder`] says; a page that is its
//! own anchor needs one. A superpage leaf ends the miss in the regular walk:
//! anchors say nothing about superpages. An anchor walk that faults, ends at a
//! superpage or finds too small a contiguity means "not covered", and the
//! regular entry is filled; if the anchor covers the page, the anchor entry is
//! filled alone. A page that is not mapped faults in the regular walk, before
//! its anchor is looked at. Hardware trusts the table: if anchor and page
//! disagree about the frame, each is used as found. A lookup tries the regular
//! entry first, then the anchor entry.

use swath_arch::{
    Attributes, Coalescing, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Regime, VirtAddr,
    Vpn,
};

use crate::tlb::fill::{EntryKind, TlbFill};
use crate::translate::walker::{
    LeafContiguity, Translation, TranslationFault, Walk, WalkStep, pages_after,
};

/// The order of AT's two walks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum WalkOrder {
    /// The page's walk, which lets the access go on, then the anchor's: always
    /// both, unless the page is its own anchor.
    #[default]
    RegularFirst,
    /// The anchor's walk; the page's only if the anchor does not cover it.
    AnchorFirst,
}

/// The counters of walks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkStats {
    /// Walks for a demanded page.
    pub regular_walks: u64,
    /// Walks for an anchor that is not the demanded page.
    pub anchor_walks: u64,
    /// Memory reads of regular walks.
    pub regular_reads: u64,
    /// Memory reads of anchor walks.
    pub anchor_reads: u64,
    /// Misses that ended in a fault.
    pub faults: u64,
}

impl WalkStats {
    /// Returns the number of walks of both kinds.
    pub const fn walks(&self) -> u64 {
        self.regular_walks + self.anchor_walks
    }

    /// Returns the number of memory reads of both kinds of walks.
    pub const fn reads(&self) -> u64 {
        self.regular_reads + self.anchor_reads
    }

    /// Counts what one miss has cost.
    #[inline]
    pub(crate) const fn add(&mut self, miss: Self) {
        self.regular_walks += miss.regular_walks;
        self.anchor_walks += miss.anchor_walks;
        self.regular_reads += miss.regular_reads;
        self.anchor_reads += miss.anchor_reads;
        self.faults += miss.faults;
    }
}

/// The part that served an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlbOutcome {
    /// By an entry of this kind.
    Hit(EntryKind),
    /// By walking; an entry of this kind was filled.
    Miss(EntryKind),
}

/// A translated access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TranslatedAccess {
    /// The physical address.
    pub addr: PhysAddr,
    /// The attributes of the mapping; [`permit`](crate::permit) decides what they allow.
    pub attributes: Attributes,
    /// The part that served it.
    pub outcome: TlbOutcome,
}

/// The result of a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The frame of the demanded page.
    pub frame: Pfn,
    /// The attributes of the mapping.
    pub attributes: Attributes,
    /// The entry to fill.
    pub fill: TlbFill,
}

/// A miss under way: one walk, or two for AT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    regime: Regime,
    page: Vpn,
    walk: Walk,
    /// True if `walk` is for the anchor, which is another page.
    at_anchor: bool,
    /// The result of the regular walk, while the anchor's is under way.
    demanded: Option<Translation>,
    stats: WalkStats,
}

impl Miss {
    /// Creates a miss of `page`, before its first read.
    #[inline]
    pub(crate) fn begin(
        regime: Regime,
        order: WalkOrder,
        page: Vpn,
    ) -> Result<Self, TranslationFault> {
        let mut miss = Self {
            regime,
            page,
            walk: Walk::new(&regime, page)?,
            at_anchor: false,
            demanded: None,
            stats: WalkStats::default(),
        };
        match anchor_of(&regime, page) {
            Some(anchor) if anchor != page && order == WalkOrder::AnchorFirst => {
                miss.begin_anchor(anchor)?;
            }
            _ => miss.stats.regular_walks = 1,
        }
        Ok(miss)
    }

    /// Returns the demanded page.
    pub const fn page(&self) -> Vpn {
        self.page
    }

    /// Returns the address of the next descriptor. O(1).
    #[inline]
    pub fn next_read(&self) -> PhysAddr {
        self.walk.next_read()
    }

    /// Returns the bytes of the next read, as [`Walk::next_read_bytes`] does. O(1).
    #[inline]
    pub fn next_read_bytes(&self) -> u64 {
        self.walk.next_read_bytes()
    }

    /// Returns the walk under way.
    pub(crate) const fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Continues with a walk for the same page that has come further.
    pub(crate) const fn resume(&mut self, walk: Walk) {
        self.walk = walk;
    }

    /// Returns true if the next read belongs to an anchor walk.
    pub const fn at_anchor(&self) -> bool {
        self.at_anchor
    }

    /// Returns the result of the regular walk, while the anchor's is under way.
    pub const fn demanded(&self) -> Option<&Translation> {
        self.demanded.as_ref()
    }

    /// Returns the counters of this miss so far.
    pub const fn stats(&self) -> WalkStats {
        self.stats
    }

    /// Makes the next read; returns `None` if another is needed. O(1).
    ///
    /// # Errors
    /// The [`TranslationFault`] of the demanded page. The anchor's are none.
    #[inline]
    pub fn step<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        if self.at_anchor {
            self.stats.anchor_reads += 1;
        } else {
            self.stats.regular_reads += 1;
        }
        match self.walk.step(memory) {
            Ok(WalkStep::Read) => Ok(None),
            Ok(WalkStep::Done(found)) => self.walked(Ok(found)),
            Err(fault) => self.walked(Err(fault)),
        }
    }

    /// Decides between another walk and the end, after a walk has ended.
    fn walked(
        &mut self,
        found: Result<Translation, TranslationFault>,
    ) -> Result<Option<Resolved>, TranslationFault> {
        let (page, format) = (self.page, self.regime.format);
        if self.at_anchor {
            let anchor = found.ok().and_then(|found| covered(&self.regime, page, &found));
            return match (anchor, self.demanded) {
                (Some(anchor), Some(Translation { frame, attributes, .. })) => {
                    Ok(Some(Resolved { frame, attributes, ..anchor }))
                }
                (Some(anchor), None) => Ok(Some(anchor)),
                (None, Some(found)) => Ok(Some(regular(format, page, &found))),
                (None, None) => {
                    self.walk = Walk::new(&self.regime, page)?;
                    self.at_anchor = false;
                    self.stats.regular_walks += 1;
                    Ok(None)
                }
            };
        }
        self.stats.faults += u64::from(found.is_err());
        let found = found?;
        let other_anchor = anchor_of(&self.regime, page).filter(|&anchor| anchor != page);
        if let Some(anchor) = other_anchor
            && found.order == Order::BASE
            && self.stats.anchor_walks == 0
        {
            self.demanded = Some(found);
            self.begin_anchor(anchor)?;
            return Ok(None);
        }
        Ok(Some(own(&self.regime, page, &found)))
    }

    fn begin_anchor(&mut self, anchor: Vpn) -> Result<(), TranslationFault> {
        self.walk = Walk::new(&self.regime, anchor)?;
        self.at_anchor = true;
        self.stats.anchor_walks += 1;
        Ok(())
    }
}

/// Returns the anchor that may cover `page`, which may be the page itself.
#[inline]
pub(crate) fn anchor_of(regime: &Regime, page: Vpn) -> Option<Vpn> {
    match regime.coalescing {
        Coalescing::Anchor { distance, .. } => Some(page.align_down(distance.k())),
        _ => None,
    }
}

/// Returns the regular entry for what the page's own walk found.
#[inline]
pub(crate) fn regular(format: Format, page: Vpn, found: &Translation) -> Resolved {
    let Translation { frame, attributes, .. } = *found;
    let (pages, frames) = found.block(format, page);
    let fill = TlbFill::within(EntryKind::Regular, page, pages, frames.start, attributes);
    Resolved { frame, attributes, fill }
}

/// Returns the anchor entry, if what the anchor's walk found covers `page`.
#[inline]
pub(crate) fn covered(regime: &Regime, page: Vpn, found: &Translation) -> Option<Resolved> {
    let (LeafContiguity::Anchor { count }, Coalescing::Anchor { distance, .. }) =
        (found.contiguity, regime.coalescing)
    else {
        return None;
    };
    let Translation { frame: first, attributes, .. } = *found;
    let offset = page.offset_in(distance.k());
    let start = Vpn::new(page.raw() - offset);
    let room = pages_after(regime.format, start, first) + 1;
    let pages = PageRange::new(start, count.min(distance.frames()).min(room));
    if offset >= pages.count {
        return None;
    }
    let frame = first + offset;
    let fill = TlbFill::within(EntryKind::Anchor, page, pages, first, attributes);
    Some(Resolved { frame, attributes, fill })
}

/// Returns the entry for what the page's own walk found where no other anchor covers
/// it: the anchor entry if the page is an anchor, else the regular one.
#[inline]
pub(crate) fn own(regime: &Regime, page: Vpn, found: &Translation) -> Resolved {
    covered(regime, page, found).unwrap_or_else(|| regular(regime.format, page, found))
}

#[inline]
pub(crate) fn byte(frame: Pfn, addr: VirtAddr) -> PhysAddr {
    PhysAddr::new(frame.address().raw() | addr.page_offset())
}

//! The MMU: a TLB, and the walks that a miss costs.
//!
//! [`Mmu::access`] does it all at once. A timed model takes the same steps one
//! by one: [`Mmu::lookup`], on a miss [`Mmu::begin`], then [`Miss::step`] for
//! each read, and [`Mmu::complete`].
//!
//! **What AT's papers leave open**, and what is done here. A miss makes two
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

use core::fmt;

use swath_arch::{
    Attributes, BASE_PAGE_SHIFT, Coalescing, ContiguityField, Format, Order, PageRange, Pfn,
    PhysAddr, PhysMemory, Regime, VirtAddr, Vpn,
};

use crate::tlb::fill::{EntryKind, Fill, Hit};
use crate::tlb::geometry::{Geometry, GeometryError};
use crate::tlb::ranges::Tlb;
use crate::tlb::stats::TlbStats;
use crate::translate::walker::{Contiguity, Fault, Step, Translation, Walk, pages_after, walk};

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

/// A machine that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The TLB's form.
    Geometry(GeometryError),
    /// The root is not aligned to [`Format::root_order`].
    Root {
        /// The root.
        root: PhysAddr,
    },
    /// A width of [`ContiguityField::Beside`] that does not fit the format.
    Bits {
        /// The width.
        bits: u8,
    },
    /// An anchor distance that is not 2^1 to 2^16.
    Distance {
        /// The distance.
        distance: Order,
    },
    /// A page-walk cache of more than
    /// [`Hierarchy::WALK_CACHE_ENTRIES_MAX`](crate::translate::hierarchy::Hierarchy::WALK_CACHE_ENTRIES_MAX).
    WalkCache {
        /// Its entries.
        entries: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Geometry(error) => error.fmt(f),
            Self::Root { root } => write!(f, "root table at {root} is misaligned"),
            Self::Bits { bits } => write!(f, "{bits} bits of contiguity do not fit the format"),
            Self::Distance { distance } => write!(f, "anchor distance 2^{distance}: 2^1 to 2^16"),
            Self::WalkCache { entries } => {
                write!(f, "{entries} entries of a page-walk cache: at most 1024")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// What walking has cost.
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
    /// Walks of both kinds.
    pub const fn walks(&self) -> u64 {
        self.regular_walks + self.anchor_walks
    }

    /// Memory reads of both kinds of walks.
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

/// Everything that an MMU counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// The TLB's counters.
    pub tlb: TlbStats,
    /// The walks' counters.
    pub walk: WalkStats,
}

/// How an access was served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// By an entry of this kind.
    Hit(EntryKind),
    /// By walking; an entry of this kind was filled.
    Miss(EntryKind),
}

/// A translated access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The physical address.
    pub addr: PhysAddr,
    /// What the mapping permits; [`permit`](crate::permit) decides.
    pub attributes: Attributes,
    /// How it was served.
    pub outcome: Outcome,
}

/// What a miss has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The frame of the demanded page.
    pub frame: Pfn,
    /// What the mapping permits.
    pub attributes: Attributes,
    /// The entry to fill.
    pub fill: Fill,
}

/// A miss under way: one walk, or two for AT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Miss {
    regime: Regime,
    page: Vpn,
    walk: Walk,
    /// Whether `walk` is for the anchor, which is another page.
    at_anchor: bool,
    /// What the regular walk found, while the anchor's is under way.
    demanded: Option<Translation>,
    stats: WalkStats,
}

impl Miss {
    /// A miss of `page`, before its first read.
    #[inline]
    pub(crate) fn begin(regime: Regime, order: WalkOrder, page: Vpn) -> Result<Self, Fault> {
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

    /// The demanded page.
    pub const fn page(&self) -> Vpn {
        self.page
    }

    /// The address of the next read, [`Format::entry_bytes`] long. O(1).
    #[inline]
    pub fn next_read(&self) -> PhysAddr {
        self.walk.next_read()
    }

    /// The walk under way.
    pub(crate) const fn walk(&self) -> &Walk {
        &self.walk
    }

    /// Goes on with a walk for the same page that has come further.
    pub(crate) const fn resume(&mut self, walk: Walk) {
        self.walk = walk;
    }

    /// Whether the next read belongs to an anchor walk.
    pub const fn at_anchor(&self) -> bool {
        self.at_anchor
    }

    /// What the regular walk found, while the anchor's is under way.
    pub const fn demanded(&self) -> Option<&Translation> {
        self.demanded.as_ref()
    }

    /// What this miss has cost so far.
    pub const fn stats(&self) -> WalkStats {
        self.stats
    }

    /// Does the next read; `None` says that another is needed. O(1).
    ///
    /// # Errors
    /// The [`Fault`] of the demanded page. The anchor's are none.
    #[inline]
    pub fn step<M: PhysMemory + ?Sized>(&mut self, memory: &M) -> Result<Option<Resolved>, Fault> {
        if self.at_anchor {
            self.stats.anchor_reads += 1;
        } else {
            self.stats.regular_reads += 1;
        }
        match self.walk.step(memory) {
            Ok(Step::Read) => Ok(None),
            Ok(Step::Done(found)) => self.walked(Ok(found)),
            Err(fault) => self.walked(Err(fault)),
        }
    }

    /// A walk has ended: decides what follows from it, another walk or the
    /// end.
    fn walked(&mut self, found: Result<Translation, Fault>) -> Result<Option<Resolved>, Fault> {
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

    fn begin_anchor(&mut self, anchor: Vpn) -> Result<(), Fault> {
        self.walk = Walk::new(&self.regime, anchor)?;
        self.at_anchor = true;
        self.stats.anchor_walks += 1;
        Ok(())
    }
}

/// The anchor that may cover `page`, which may be the page itself.
#[inline]
const fn anchor_of(regime: &Regime, page: Vpn) -> Option<Vpn> {
    match regime.coalescing {
        Coalescing::Anchor { distance, .. } => {
            Some(Vpn::new(page.raw() & !(distance.frames() - 1)))
        }
        _ => None,
    }
}

/// The regular entry for what the page's own walk found.
#[inline]
fn regular(format: Format, page: Vpn, found: &Translation) -> Resolved {
    let Translation { frame, attributes, .. } = *found;
    let (pages, frames) = found.block(format, page);
    let fill = Fill::within(EntryKind::Regular, page, pages, frames.start, attributes);
    Resolved { frame, attributes, fill }
}

/// The anchor entry, if what the anchor's walk found covers `page`.
#[inline]
fn covered(regime: &Regime, page: Vpn, found: &Translation) -> Option<Resolved> {
    let (Contiguity::Anchor { count }, Coalescing::Anchor { distance, .. }) =
        (found.contiguity, regime.coalescing)
    else {
        return None;
    };
    let Translation { frame: first, attributes, .. } = *found;
    let offset = page.raw() & (distance.frames() - 1);
    let start = Vpn::new(page.raw() - offset);
    let room = pages_after(regime.format, start, first) + 1;
    let pages = PageRange::new(start, count.min(distance.frames()).min(room));
    if offset >= pages.count {
        return None;
    }
    let frame = Pfn::new(first.raw() + offset);
    let fill = Fill::within(EntryKind::Anchor, page, pages, first, attributes);
    Some(Resolved { frame, attributes, fill })
}

/// The entry for what the page's own walk found where no other anchor covers
/// it: the anchor entry if the page is an anchor, else the regular one.
#[inline]
fn own(regime: &Regime, page: Vpn, found: &Translation) -> Resolved {
    covered(regime, page, found).unwrap_or_else(|| regular(regime.format, page, found))
}

/// A TLB with its walker, told about one address space by a [`Regime`]. The
/// design follows from the regime: TRAD, PCAD or AT.
#[derive(Clone, Debug)]
pub struct Mmu {
    tlb: Tlb,
    regime: Regime,
    order: WalkOrder,
    walk_stats: WalkStats,
}

impl Mmu {
    /// An MMU with an empty TLB. `order` matters to AT alone. O(entries).
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(regime: Regime, geometry: Geometry, order: WalkOrder) -> Result<Self, ConfigError> {
        let distance = check_regime(&regime)?;
        let tlb = Tlb::new(geometry, distance).map_err(ConfigError::Geometry)?;
        Ok(Self { tlb, regime, order, walk_stats: WalkStats::default() })
    }

    /// What the hardware has been told about the table.
    pub const fn regime(&self) -> &Regime {
        &self.regime
    }

    /// The TLB.
    pub const fn tlb(&self) -> &Tlb {
        &self.tlb
    }

    /// Everything counted since the start or the last
    /// [`reset_stats`](Self::reset_stats).
    pub const fn stats(&self) -> Stats {
        Stats { tlb: self.tlb.stats(), walk: self.walk_stats }
    }

    /// Sets every counter to 0; the TLB's entries stay.
    pub fn reset_stats(&mut self) {
        self.tlb.reset_stats();
        self.walk_stats = WalkStats::default();
    }

    /// Translates `addr`, walking and filling if the TLB has no entry.
    ///
    /// O(1) for the page of the access before; else O(c) for a hit, where c is
    /// the number of entry size classes present, and O(c + ways + levels) for a
    /// miss. Permissions are not looked at: see [`permit`](crate::permit).
    ///
    /// # Errors
    /// The [`Fault`] of the page; nothing is filled then.
    #[inline]
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<Access, Fault> {
        match self.lookup(addr) {
            Some(access) => Ok(access),
            None => self.miss(addr, memory),
        }
    }

    #[inline(never)]
    fn miss<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<Access, Fault> {
        let result = self.resolve(addr.page(), memory);
        self.walk_stats.faults += u64::from(result.is_err());
        let Resolved { frame, attributes, fill } = result?;
        self.tlb.fill_missed(&fill);
        let outcome = Outcome::Miss(fill.kind());
        Ok(Access { addr: byte(frame, addr), attributes, outcome })
    }

    /// A whole miss in one go: the same as a [`Miss`] stepped to its end, with
    /// nothing to remember between the steps.
    #[inline(always)]
    fn resolve<M: PhysMemory + ?Sized>(
        &mut self,
        page: Vpn,
        memory: &M,
    ) -> Result<Resolved, Fault> {
        let other_anchor = anchor_of(&self.regime, page).filter(|&anchor| anchor != page);
        let Some(anchor) = other_anchor else {
            let found = self.walk_regular(page, memory)?;
            return Ok(own(&self.regime, page, &found));
        };
        if self.order == WalkOrder::AnchorFirst {
            if let Some(resolved) = self.walk_anchor(page, anchor, memory) {
                return Ok(resolved);
            }
            let found = self.walk_regular(page, memory)?;
            return Ok(regular(self.regime.format, page, &found));
        }
        let found = self.walk_regular(page, memory)?;
        if found.order == Order::BASE
            && let Some(resolved) = self.walk_anchor(page, anchor, memory)
        {
            let Translation { frame, attributes, .. } = found;
            return Ok(Resolved { frame, attributes, ..resolved });
        }
        Ok(regular(self.regime.format, page, &found))
    }

    #[inline]
    fn walk_regular<M: PhysMemory + ?Sized>(
        &mut self,
        page: Vpn,
        memory: &M,
    ) -> Result<Translation, Fault> {
        // An address that is not canonical is refused before the first read.
        let stats = &mut self.walk_stats;
        let before = stats.regular_reads;
        let found = walk(&self.regime, page, memory, &mut stats.regular_reads);
        stats.regular_walks += u64::from(stats.regular_reads != before);
        found
    }

    #[inline]
    fn walk_anchor<M: PhysMemory + ?Sized>(
        &mut self,
        page: Vpn,
        anchor: Vpn,
        memory: &M,
    ) -> Option<Resolved> {
        let stats = &mut self.walk_stats;
        let before = stats.anchor_reads;
        let found = walk(&self.regime, anchor, memory, &mut stats.anchor_reads);
        stats.anchor_walks += u64::from(stats.anchor_reads != before);
        covered(&self.regime, page, &found.ok()?)
    }

    /// The first part of an access: the TLB alone. O(1) or O(c) as in
    /// [`access`](Self::access).
    #[inline]
    pub fn lookup(&mut self, addr: VirtAddr) -> Option<Access> {
        let Hit { frame, attributes, kind } = self.tlb.lookup(addr.page())?;
        Some(Access { addr: byte(frame, addr), attributes, outcome: Outcome::Hit(kind) })
    }

    /// The second part, after a lookup that missed. O(1).
    ///
    /// # Errors
    /// [`Fault::NotCanonical`], which is counted as a fault.
    #[inline]
    pub fn begin(&mut self, addr: VirtAddr) -> Result<Miss, Fault> {
        let begun = Miss::begin(self.regime, self.order, addr.page());
        self.walk_stats.faults += u64::from(begun.is_err());
        begun
    }

    /// The last part: counts what the miss has cost and fills the TLB. If
    /// another miss has filled the page meanwhile, its entry is replaced.
    /// O(c + ways).
    ///
    /// # Errors
    /// The fault that the miss ended in.
    #[inline]
    pub fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Miss,
        result: Result<Resolved, Fault>,
    ) -> Result<Access, Fault> {
        self.walk_stats.add(miss.stats);
        let Resolved { frame, attributes, fill } = result?;
        self.tlb.fill(&fill);
        let outcome = Outcome::Miss(fill.kind());
        Ok(Access { addr: byte(frame, addr), attributes, outcome })
    }

    /// Forgets `page`; a coalesced entry goes as a whole. O(c). Until then
    /// a changed table goes unnoticed, as in hardware.
    pub fn invalidate_page(&mut self, page: Vpn) {
        self.tlb.invalidate_page(page);
    }

    /// Forgets every page of `pages`. O(entries).
    pub fn invalidate_range(&mut self, pages: PageRange) {
        self.tlb.invalidate_range(pages);
    }

    /// Forgets everything. O(entries).
    pub fn invalidate_all(&mut self) {
        self.tlb.invalidate_all();
    }

    /// Goes to another address space of the same format, and forgets everything. O(entries).
    ///
    /// # Errors
    /// [`ConfigError::Root`]; nothing has changed then.
    pub fn set_root(&mut self, root: PhysAddr) -> Result<(), ConfigError> {
        let regime = Regime { root, ..self.regime };
        check_regime(&regime)?;
        self.regime = regime;
        self.invalidate_all();
        Ok(())
    }
}

#[inline]
pub(crate) const fn byte(frame: Pfn, addr: VirtAddr) -> PhysAddr {
    PhysAddr::new(frame.address().raw() | addr.page_offset())
}

/// Checks a regime against the ranges that `swath-arch` documents, and gives
/// the anchor distance, [`Order::BASE`] without one.
pub(crate) fn check_regime(regime: &Regime) -> Result<Order, ConfigError> {
    let format = regime.format;
    if !regime.root.is_aligned(BASE_PAGE_SHIFT + format.root_order().k()) {
        return Err(ConfigError::Root { root: regime.root });
    }
    let (field, distance) = match regime.coalescing {
        Coalescing::None => return Ok(Order::BASE),
        Coalescing::Pcad(field) => (field, Order::BASE),
        Coalescing::Anchor { field, distance } => {
            if !(1..=16).contains(&distance.k()) {
                return Err(ConfigError::Distance { distance });
            }
            (field, distance)
        }
    };
    match field {
        ContiguityField::Beside { bits }
            if bits == 0 || u32::from(bits) > format.beside_half_bits() =>
        {
            Err(ConfigError::Bits { bits })
        }
        _ => Ok(distance),
    }
}

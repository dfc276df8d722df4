//! The MMU: a TLB, and the walks that a miss costs.
//!
//! [`Mmu::access`] does it all at once. A timed model takes the same steps one
//! by one: [`Mmu::lookup`], on a miss [`Mmu::begin`], then [`Miss::step`] for
//! each read, and [`Mmu::complete`]. So a whole miss exists twice, as straight code
//! and as steps: one state machine for both made functional runs take half as long
//! again. A test holds the two equal (`tests/mmu.rs`).

use swath_arch::{Format, Order, PageRange, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn};

use crate::tlb::array::Tlb;
use crate::tlb::fill::TlbHit;
use crate::tlb::geometry::{Geometry, Replacement};
use crate::tlb::stats::TlbStats;
use crate::translate::miss::{
    Miss, Resolved, TlbOutcome, TranslatedAccess, WalkOrder, WalkStats, anchor_of, byte, covered,
    own, regular,
};
use crate::translate::regime::{MmuConfigError, check_regime};
use crate::translate::translator::{Translate, TranslationStats};
use crate::translate::walker::{Translation, TranslationFault, Walk, walk, walk_anchor};

/// Everything that an MMU counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MmuStats {
    /// The TLB's counters.
    pub tlb: TlbStats,
    /// The walks' counters.
    pub walk: WalkStats,
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
    /// Creates an MMU with an empty TLB. `order` matters to AT alone. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError`].
    pub fn new(
        regime: Regime,
        geometry: Geometry,
        order: WalkOrder,
    ) -> Result<Self, MmuConfigError> {
        let distance = check_regime(&regime)?;
        let tlb = Tlb::new(geometry, distance)?;
        Ok(Self { tlb, regime, order, walk_stats: WalkStats::default() })
    }

    /// Replaces the TLB's entries so from now on.
    #[must_use]
    pub fn replacing(mut self, replacement: Replacement) -> Self {
        self.tlb = self.tlb.replacing(replacement);
        self
    }

    /// Returns the description of the table that the hardware works with.
    pub const fn regime(&self) -> &Regime {
        &self.regime
    }

    /// Returns the TLB.
    pub const fn tlb(&self) -> &Tlb {
        &self.tlb
    }

    /// Returns the counters since the start or the last
    /// [`reset_stats`](Self::reset_stats).
    pub const fn stats(&self) -> MmuStats {
        MmuStats { tlb: self.tlb.stats(), walk: self.walk_stats }
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
    /// The [`TranslationFault`] of the page; nothing is filled then.
    #[inline]
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<TranslatedAccess, TranslationFault> {
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
    ) -> Result<TranslatedAccess, TranslationFault> {
        let result = self.resolve(addr.page(), memory);
        self.walk_stats.faults += u64::from(result.is_err());
        let Resolved { frame, attributes, fill } = result?;
        self.tlb.fill_missed(&fill);
        let outcome = TlbOutcome::Miss(fill.kind());
        Ok(TranslatedAccess { addr: byte(frame, addr), attributes, outcome })
    }

    /// Resolves a whole miss in one go: the same as a [`Miss`] stepped to its end, with
    /// nothing to remember between the steps.
    #[inline(always)]
    fn resolve<M: PhysMemory + ?Sized>(
        &mut self,
        page: Vpn,
        memory: &M,
    ) -> Result<Resolved, TranslationFault> {
        let other_anchor = anchor_of(&self.regime, page).filter(|&anchor| anchor != page);
        let Some(anchor) = other_anchor else {
            let found = self.walk_regular(page, memory)?;
            return Ok(own(&self.regime, page, &found));
        };
        if self.order == WalkOrder::AnchorFirst {
            // Of a page that is not canonical its anchor is not either.
            Walk::new(&self.regime, page)?;
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
    ) -> Result<Translation, TranslationFault> {
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
        let found = walk_anchor(&self.regime, anchor, memory, &mut stats.anchor_reads);
        stats.anchor_walks += u64::from(stats.anchor_reads != before);
        covered(&self.regime, page, &found.ok()?)
    }

    /// Looks `addr` up in the TLB, the first part of an access. O(1) or O(c) as in
    /// [`access`](Self::access).
    #[inline]
    pub fn lookup(&mut self, addr: VirtAddr) -> Option<TranslatedAccess> {
        let TlbHit { frame, attributes, kind } = self.tlb.lookup(addr.page())?;
        Some(TranslatedAccess {
            addr: byte(frame, addr),
            attributes,
            outcome: TlbOutcome::Hit(kind),
        })
    }

    /// Begins a miss, the second part, after a lookup that missed. O(1).
    ///
    /// # Errors
    /// [`TranslationFault::NotCanonical`], which is counted as a fault.
    #[inline]
    pub fn begin(&mut self, addr: VirtAddr) -> Result<Miss, TranslationFault> {
        let begun = Miss::begin(self.regime, self.order, addr.page());
        self.walk_stats.faults += u64::from(begun.is_err());
        begun
    }

    /// Ends a miss, the last part: counts its cost and fills the TLB. If
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
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        self.walk_stats.add(miss.stats());
        let Resolved { frame, attributes, fill } = result?;
        self.tlb.fill(&fill);
        let outcome = TlbOutcome::Miss(fill.kind());
        Ok(TranslatedAccess { addr: byte(frame, addr), attributes, outcome })
    }

    /// Invalidates `page`; a coalesced entry goes as a whole. O(c). Until then
    /// a changed table goes unnoticed, as in hardware.
    pub fn invalidate_page(&mut self, page: Vpn) {
        self.tlb.invalidate_page(page);
    }

    /// Invalidates every page of `pages`. O(entries).
    pub fn invalidate_range(&mut self, pages: PageRange) {
        self.tlb.invalidate_range(pages);
    }

    /// Invalidates everything. O(entries).
    pub fn invalidate_all(&mut self) {
        self.tlb.invalidate_all();
    }

    /// Changes to another address space of the same format, and invalidates everything. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError::Root`]; nothing has changed then.
    pub fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        let regime = Regime { root, ..self.regime };
        check_regime(&regime)?;
        self.regime = regime;
        self.invalidate_all();
        Ok(())
    }
}

impl Translate for Mmu {
    type Miss = Miss;

    fn format(&self) -> Format {
        self.regime.format
    }

    #[inline]
    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32) {
        (Self::lookup(self, addr), 0)
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<Miss, TranslationFault> {
        Self::begin(self, addr)
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Miss,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        miss.step(memory)
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Miss,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        Self::complete(self, addr, miss, result)
    }

    fn invalidate_page(&mut self, page: Vpn) {
        Self::invalidate_page(self, page);
    }

    fn invalidate_range(&mut self, pages: PageRange) {
        Self::invalidate_range(self, pages);
    }

    fn invalidate_all(&mut self) {
        Self::invalidate_all(self);
    }

    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        Self::set_root(self, root)
    }

    fn stats(&self) -> TranslationStats {
        let stats = Self::stats(self);
        TranslationStats { l1: stats.tlb, walk: stats.walk, ..TranslationStats::default() }
    }

    fn reset_stats(&mut self) {
        Self::reset_stats(self);
    }
}

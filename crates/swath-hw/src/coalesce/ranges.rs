//! Redundant memory mappings: a list of ranges beside the page table, and a TLB for each.
//!
//! Karakostas et al., *Redundant Memory Mappings for Fast Access to Large Memories* (ISCA 2015): the
//! system maps each run of pages by its page table and, redundantly, by one entry of a range table. A
//! lookup asks both TLBs. After a miss of both the page table's walk lets the access go on, and the range
//! is searched in the background. Theirs is a B-tree; here it is the list of [`swath_arch::segments`],
//! searched by halves. A page that no range has is a page like any other.

use swath_arch::segments::SegmentList;
use swath_arch::{Attributes, Format, PageRange, Pfn, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn};

use crate::tlb::geometry::Geometry;
use crate::translate::miss::{Miss, Resolved, TranslatedAccess, WalkOrder};
use crate::translate::mmu::Mmu;
use crate::translate::regime::MmuConfigError;
use crate::translate::segments::{SegmentMiss, SegmentRegisters};
use crate::translate::translator::{PendingMiss, Translate, TranslationStats, access_by_steps};
use crate::translate::walker::TranslationFault;

/// A walk for the page, then a search for its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RangesMiss {
    page: Miss,
    range: SegmentMiss,
    /// The page's frame and entry, while the range is searched.
    resolved: Option<Resolved>,
}

impl PendingMiss for RangesMiss {
    fn next_read(&self) -> PhysAddr {
        if self.resolved.is_some() { self.range.next_read() } else { self.page.next_read() }
    }

    fn next_read_bytes(&self) -> u64 {
        match self.resolved {
            Some(_) => self.range.next_read_bytes(),
            None => self.page.next_read_bytes(),
        }
    }

    fn known(&self) -> Option<(Pfn, Attributes)> {
        self.resolved.map(|found| (found.frame, found.attributes))
    }
}

/// A TLB of pages and one of ranges, with their walkers.
///
/// Its counters have the hits of ranges as those of anchors, and the reads of the list as an anchor's.
#[derive(Clone, Debug)]
pub struct RedundantRanges {
    pages: Mmu,
    ranges: SegmentRegisters,
}

impl RedundantRanges {
    /// Creates one of `ranges` entries for ranges, to be loaded from `list`, beside a TLB of pages. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError`].
    pub fn new(
        regime: Regime,
        geometry: Geometry,
        list: SegmentList,
        ranges: u32,
    ) -> Result<Self, MmuConfigError> {
        let pages = Mmu::new(regime, geometry, WalkOrder::default())?;
        Ok(Self { pages, ranges: SegmentRegisters::new(list, ranges)? })
    }

    /// Translates `addr`, walking and searching if neither TLB has it.
    ///
    /// # Errors
    /// The [`TranslationFault`] of the page; nothing is filled then.
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<TranslatedAccess, TranslationFault> {
        access_by_steps(self, addr, memory)
    }
}

impl Translate for RedundantRanges {
    type Miss = RangesMiss;

    fn format(&self) -> Format {
        self.pages.regime().format
    }

    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32) {
        match self.pages.lookup(addr) {
            None => self.ranges.lookup(addr),
            page => (page, 0),
        }
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<RangesMiss, TranslationFault> {
        let page = self.pages.begin(addr)?;
        Ok(RangesMiss { page, range: self.ranges.begin(addr)?, resolved: None })
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut RangesMiss,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        let Some(found) = miss.resolved else {
            miss.resolved = miss.page.step(memory)?;
            return Ok(None);
        };
        match self.ranges.step(&mut miss.range, memory) {
            Ok(None) => Ok(None),
            Ok(Some(range)) => {
                self.ranges.fill(&range);
                Ok(Some(found))
            }
            // No range has the page: no fault.
            Err(_) => Ok(Some(found)),
        }
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &RangesMiss,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        self.ranges.count(&miss.range);
        self.pages.complete(addr, &miss.page, result)
    }

    fn invalidate_page(&mut self, page: Vpn) {
        self.pages.invalidate_page(page);
        self.ranges.invalidate_page(page);
    }

    fn invalidate_range(&mut self, pages: PageRange) {
        self.pages.invalidate_range(pages);
        self.ranges.invalidate_range(pages);
    }

    fn invalidate_all(&mut self) {
        self.pages.invalidate_all();
        self.ranges.invalidate_all();
    }

    /// The list of ranges stays where it is.
    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        self.pages.set_root(root)?;
        self.ranges.invalidate_all();
        Ok(())
    }

    fn stats(&self) -> TranslationStats {
        let (mut stats, ranges) = (Translate::stats(&self.pages), self.ranges.stats());
        stats.l1.anchor_hits += ranges.l1.hits();
        stats.l1.misses -= ranges.l1.hits();
        stats.l1.fills += ranges.l1.fills;
        stats.l1.evictions += ranges.l1.evictions;
        stats.walk.anchor_walks += ranges.walk.regular_walks;
        stats.walk.anchor_reads += ranges.walk.regular_reads;
        stats
    }

    fn reset_stats(&mut self) {
        self.pages.reset_stats();
        self.ranges.reset_stats();
    }
}

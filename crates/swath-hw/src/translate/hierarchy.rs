//! The translation of a processor: two TLBs and a page-walk cache in front of
//! the walker.
//!
//! A [`Hierarchy`] is what an [`Mmu`](crate::Mmu) is, with a [`SplitTlb`] of any form for each
//! of the two, and a cache behind them. Every design of coalescing works on it: both TLBs hold
//! coalesced entries, each by its own form. What a walk or the second TLB finds is filled
//! into the first; what the first evicts is lost there (the second still may have it).
//!
//! The **page-walk cache** keeps what descriptors of tables said: for a level and the bits
//! of the address above it, the table to read next and the rights so far. A
//! walk begins at the lowest level that it knows, so a hit saves all reads above
//! (as Intel's paging-structure caches do; SDM volume 3, section 5.10.3). It answers in the time
//! of the lookup. AT's anchor walk asks it, too.

use alloc::vec::Vec;

use swath_arch::{Format, PageRange, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn};

use crate::tlb::fill::TlbHit;
use crate::tlb::geometry::{Geometry, Replacement};
use crate::tlb::split::{SplitTlb, TlbForm};
use crate::translate::miss::{
    Miss, Resolved, TlbOutcome, TranslatedAccess, WalkOrder, WalkStats, byte,
};
use crate::translate::regime::{MmuConfigError, check_regime};
use crate::translate::translator::{Translate, TranslationStats, access_by_steps};
use crate::translate::walker::{TranslationFault, Walk};

/// The configuration of a hierarchy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HierarchyConfig {
    /// The first TLB. It takes the
    /// [`lookup_cycles`](crate::system::iommu::IommuConfig::lookup_cycles).
    pub l1: TlbForm,
    /// The second TLB.
    pub l2: TlbForm,
    /// Cycles that a lookup takes longer if the first TLB has no entry.
    pub l2_cycles: u32,
    /// Entries of the page-walk cache, 0 for none, fully associative.
    pub walk_cache_entries: u32,
    /// The order of AT's two walks.
    pub order: WalkOrder,
}

impl Default for HierarchyConfig {
    /// 64 entries, fully associative; 1536 in 128 sets, 8 pages to a set as
    /// CoLT has it; 7 cycles more for the second; 32 walk-cache entries: what processors of
    /// the last years have, in round numbers.
    fn default() -> Self {
        Self {
            l1: Geometry::fully_associative(64).into(),
            l2: Geometry { sets: 128, ways: 12, index_shift: 3 }.into(),
            l2_cycles: 7,
            walk_cache_entries: 32,
            order: WalkOrder::default(),
        }
    }
}

/// A walk on its way, found by the level to read next and the address bits above that.
type Known = (u8, u64, Walk);

/// Two TLBs and a page-walk cache.
///
/// Invariants: those of the TLBs; the walk cache has no more entries
/// than it may, no two for one level and prefix, and the most recently used one last.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    l1: SplitTlb,
    l2: SplitTlb,
    regime: Regime,
    order: WalkOrder,
    walk_stats: WalkStats,
    l2_cycles: u32,
    cache: Vec<Known>,
    cache_entries: usize,
    cache_hits: u64,
    saved_reads: u64,
}

impl Hierarchy {
    /// The most entries of a page-walk cache.
    pub const WALK_CACHE_ENTRIES_MAX: u32 = 1024;

    /// Creates an empty hierarchy for one address space. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError`], for either TLB.
    pub fn new(regime: Regime, config: &HierarchyConfig) -> Result<Self, MmuConfigError> {
        let distance = check_regime(&regime)?;
        let l1 = SplitTlb::new(&config.l1, distance)?;
        let l2 = SplitTlb::new(&config.l2, distance)?;
        let entries = config.walk_cache_entries;
        if entries > Self::WALK_CACHE_ENTRIES_MAX {
            return Err(MmuConfigError::WalkCache { entries });
        }
        let cache_entries = entries as usize;
        Ok(Self {
            l1,
            l2,
            regime,
            order: config.order,
            walk_stats: WalkStats::default(),
            l2_cycles: config.l2_cycles,
            cache: Vec::with_capacity(cache_entries),
            cache_entries,
            cache_hits: 0,
            saved_reads: 0,
        })
    }

    /// Replaces the entries of both TLBs so from now on; the page-walk cache stays as it is.
    #[must_use]
    pub fn replacing(mut self, replacement: Replacement) -> Self {
        self.l1 = self.l1.replacing(replacement);
        self.l2 = self.l2.replacing(replacement);
        self
    }

    /// Translates `addr` at once, as [`Mmu::access`](crate::Mmu::access) does.
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

    /// Returns the first TLB.
    pub const fn l1(&self) -> &SplitTlb {
        &self.l1
    }

    /// Returns the second TLB.
    pub const fn l2(&self) -> &SplitTlb {
        &self.l2
    }

    /// Lets a walk that is about to read the root begin as low as the cache knows.
    /// O(levels entries).
    fn skip(&mut self, miss: &mut Miss) {
        let page = miss.walk().page();
        let format = self.regime.format;
        for level in (1..format.levels().len() as u8).rev() {
            let prefix = prefix(format, level, page);
            let is_it = |&(l, p, _): &Known| (l, p) == (level, prefix);
            if let Some(at) = self.cache.iter().rposition(is_it) {
                self.cache[at..].rotate_left(1);
                if let Some((.., walk)) = self.cache.last() {
                    miss.resume(walk.for_page(page));
                }
                self.cache_hits += 1;
                self.saved_reads += u64::from(level);
                return;
            }
        }
    }

    /// Keeps how far a walk has come. O(entries).
    fn keep(&mut self, walk: &Walk) {
        if self.cache_entries == 0 {
            return;
        }
        let level = walk.level();
        let prefix = prefix(self.regime.format, level, walk.page());
        // Another walk may have come here meanwhile.
        self.cache.retain(|&(l, p, _)| (l, p) != (level, prefix));
        if self.cache.len() == self.cache_entries {
            self.cache.remove(0);
        }
        self.cache.push((level, prefix, *walk));
    }

    /// Walks every invariant. O(entries²).
    ///
    /// # Errors
    /// The invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        self.l1.check()?;
        self.l2.check()?;
        if self.cache.len() > self.cache_entries {
            return Err("the walk cache has too many entries");
        }
        for (i, (level, prefix, _)) in self.cache.iter().enumerate() {
            if self.cache[..i].iter().any(|(l, p, _)| (l, p) == (level, prefix)) {
                return Err("the walk cache has an entry twice");
            }
        }
        Ok(())
    }
}

/// Returns the address bits that lead a walk to a table of `level`, which is not the root's.
fn prefix(format: Format, level: u8, page: Vpn) -> u64 {
    page.address().raw() >> format.levels()[usize::from(level) - 1].index.low
}

impl Translate for Hierarchy {
    type Miss = Miss;

    fn format(&self) -> Format {
        self.regime.format
    }

    #[inline]
    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32) {
        let page = addr.page();
        let access = |hit: TlbHit| TranslatedAccess {
            addr: byte(hit.frame, addr),
            attributes: hit.attributes,
            outcome: TlbOutcome::Hit(hit.kind),
        };
        if let Some(hit) = self.l1.lookup(page) {
            return (Some(access(hit)), 0);
        }
        let hit = self.l2.lookup(page);
        if hit.is_some()
            && let Some(fill) = self.l2.entry(page)
        {
            self.l1.fill(&fill);
        }
        (hit.map(access), self.l2_cycles)
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<Miss, TranslationFault> {
        let begun = Miss::begin(self.regime, self.order, addr.page());
        self.walk_stats.faults += u64::from(begun.is_err());
        let mut miss = begun?;
        self.skip(&mut miss);
        Ok(miss)
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Miss,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        let found = miss.step(memory)?;
        if found.is_none() {
            // At the root again: AT's other walk.
            if miss.walk().level() == 0 {
                self.skip(miss);
            } else {
                self.keep(miss.walk());
            }
        }
        Ok(found)
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Miss,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        self.walk_stats.add(miss.stats());
        let Resolved { frame, attributes, fill } = result?;
        self.l2.fill(&fill);
        self.l1.fill(&fill);
        Ok(TranslatedAccess {
            addr: byte(frame, addr),
            attributes,
            outcome: TlbOutcome::Miss(fill.kind()),
        })
    }

    /// Invalidates `page` in both TLBs, and all of the walk cache, as hardware may. O(c +
    /// walk-cache entries).
    fn invalidate_page(&mut self, page: Vpn) {
        self.l1.invalidate_page(page);
        self.l2.invalidate_page(page);
        self.cache.clear();
    }

    /// Invalidates `pages` in both TLBs, and all of the walk cache. O(entries).
    fn invalidate_range(&mut self, pages: PageRange) {
        self.l1.invalidate_range(pages);
        self.l2.invalidate_range(pages);
        self.cache.clear();
    }

    fn invalidate_all(&mut self) {
        self.l1.invalidate_all();
        self.l2.invalidate_all();
        self.cache.clear();
    }

    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        let regime = Regime { root, ..self.regime };
        check_regime(&regime)?;
        self.regime = regime;
        self.invalidate_all();
        Ok(())
    }

    fn reset_stats(&mut self) {
        self.l1.reset_stats();
        self.l2.reset_stats();
        self.walk_stats = WalkStats::default();
        (self.cache_hits, self.saved_reads) = (0, 0);
    }

    fn stats(&self) -> TranslationStats {
        TranslationStats {
            l1: self.l1.stats(),
            l2: self.l2.stats(),
            walk: self.walk_stats,
            walk_cache_hits: self.cache_hits,
            walk_cache_saved_reads: self.saved_reads,
        }
    }
}

//! Segment registers: an accelerator's space through a few extents, each a base, a bound and a
//! target.
//!
//! An access is compared with all registers at once, as with the entries of a fully
//! associative TLB. If none has its page, the unit looks the extent up in the list in memory
//! ([`SegmentList`]) by halves, one entry a read, and loads it into the register that was used
//! least recently. The number of entries is read with the first miss and kept until
//! everything is invalidated. So a list of n extents takes at most 2 + log2 n reads, whatever the
//! length of the extents, and with as many registers as extents each is looked up once, or never where the
//! driver that starts the accelerator has loaded them ([`SegmentRegisters::load`]).
//!
//! ```text
//!  page ──► base <= page < bound?  ×N ──► frame = target + page - base
//!              | none
//!              '──► list in memory, by halves ──► the register used least recently
//! ```
//!
//! The hardware trusts the list: if entries do not ascend, it finds what halving leads to.

use swath_arch::segments::{
    BASE_BYTES, BOUND_BYTES, ENTRIES_MAX, ENTRY_BYTES, RIGHTS_BYTES, SegmentList, TARGET_BYTES,
    WRITE,
};
use swath_arch::{Attributes, Format, PageRange, Pfn, PhysAddr, PhysMemory, VirtAddr, Vpn};

use crate::tlb::array::Tlb;
use crate::tlb::fill::{EntryKind, TlbFill};
use crate::tlb::geometry::Geometry;
use crate::translate::miss::{Resolved, TlbOutcome, TranslatedAccess, WalkStats, byte};
use crate::translate::regime::MmuConfigError;
use crate::translate::translator::{PendingMiss, Translate, TranslationStats, access_by_steps};
use crate::translate::walker::TranslationFault;

/// Bytes of the number of entries.
const COUNT_LEN_BYTES: u64 = 8;

/// The words of an entry, whatever they say, and where they stand.
struct ListEntry {
    base: u64,
    bound: u64,
    target: u64,
    rights: u64,
    at: PhysAddr,
}

impl ListEntry {
    fn read<M: PhysMemory + ?Sized>(memory: &M, at: PhysAddr) -> Result<Self, TranslationFault> {
        let word = |offset: u64| {
            let read = memory.read_u64(PhysAddr::new(at.raw().wrapping_add(offset)));
            read.map_err(|error| TranslationFault::Bus { level: 1, error })
        };
        let (base, bound) = (word(BASE_BYTES)?, word(BOUND_BYTES)?);
        Ok(Self { base, bound, target: word(TARGET_BYTES)?, rights: word(RIGHTS_BYTES)?, at })
    }

    fn attributes(&self) -> Attributes {
        Attributes { writable: WRITE.is(self.rights, 1), ..Attributes::USER_DATA }
    }

    /// Returns what a register holds of it, if `page` is one of its pages.
    fn fill(&self, page: Vpn) -> Result<TlbFill, TranslationFault> {
        // Of one that ends before it begins, the end has no number.
        let count = self.bound.wrapping_sub(self.base);
        let (pages, first) = (PageRange::new(Vpn::new(self.base), count), Pfn::new(self.target));
        let fill = TlbFill::new(EntryKind::Regular, page, pages, first, self.attributes());
        fill.ok_or(TranslationFault::Reserved { level: 1, at: self.at, descriptor: self.target })
    }
}

/// A search of the list under way.
///
/// Invariant: the extent, if there is one, is entry `low` or later, and before `high` if that
/// is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentMiss {
    list: SegmentList,
    page: Vpn,
    low: u64,
    /// The entries from here on are beyond the page; not known before their number is read.
    high: Option<u64>,
    reads: u64,
}

impl SegmentMiss {
    fn middle(&self, high: u64) -> u64 {
        self.low + (high - self.low) / 2
    }

    /// Makes the next read; returns `None` if another is needed.
    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        self.reads += 1;
        let at = self.next_read();
        let Some(high) = self.high else {
            let count = read_count(memory, self.list)?;
            self.high = Some(count);
            return self.narrowed(count);
        };
        let entry = ListEntry::read(memory, at)?;
        if self.page.raw() < entry.base {
            let middle = self.middle(high);
            self.high = Some(middle);
            return self.narrowed(middle);
        }
        if self.page.raw() >= entry.bound {
            self.low = self.middle(high) + 1;
            return self.narrowed(high);
        }
        let fill = entry.fill(self.page)?;
        let frame = Pfn::new(entry.target) + (self.page.raw() - entry.base);
        Ok(Some(Resolved { frame, attributes: entry.attributes(), fill }))
    }

    /// Goes on, unless nothing is left before `high`.
    fn narrowed(&self, high: u64) -> Result<Option<Resolved>, TranslationFault> {
        let fault = TranslationFault::Translation { page: self.page, level: 1 };
        if self.low < high { Ok(None) } else { Err(fault) }
    }
}

impl PendingMiss for SegmentMiss {
    fn next_read(&self) -> PhysAddr {
        match self.high {
            None => self.list.count(),
            Some(high) => self.list.entry(self.middle(high)),
        }
    }

    fn next_read_bytes(&self) -> u64 {
        if self.high.is_none() { COUNT_LEN_BYTES } else { ENTRY_BYTES }
    }

    fn known(&self) -> Option<(Pfn, Attributes)> {
        None
    }
}

/// Reads the number of a list's entries.
fn read_count<M: PhysMemory + ?Sized>(
    memory: &M,
    list: SegmentList,
) -> Result<u64, TranslationFault> {
    let at = list.count();
    let count = memory.read_u64(at).map_err(|error| TranslationFault::Bus { level: 0, error })?;
    if count > ENTRIES_MAX {
        return Err(TranslationFault::Reserved { level: 0, at, descriptor: count });
    }
    Ok(count)
}

/// The segment registers of one accelerator.
///
/// Invariants: each register holds an extent that the list has had since the last invalidation;
/// `entries`, if known, is not 0.
#[derive(Clone, Debug)]
pub struct SegmentRegisters {
    list: SegmentList,
    registers: Tlb,
    /// The number of entries in the list, once it has been read.
    entries: Option<u64>,
    walk_stats: WalkStats,
}

impl SegmentRegisters {
    /// Creates so many registers, all empty, to be loaded from `list`. O(registers).
    ///
    /// # Errors
    /// [`MmuConfigError`]: no registers or too many, or a list that does not begin with a frame.
    pub fn new(list: SegmentList, registers: u32) -> Result<Self, MmuConfigError> {
        if !list.is_aligned() {
            return Err(MmuConfigError::Root { root: list.root });
        }
        let registers = Tlb::new(Geometry::fully_associative(registers), swath_arch::Order::BASE)?;
        Ok(Self { list, registers, entries: None, walk_stats: WalkStats::default() })
    }

    /// Loads the list's first entries, up to as many as there are registers, in place of what these hold, as
    /// a driver does that starts the accelerator; returns their number. O(registers).
    ///
    /// # Errors
    /// The [`TranslationFault`] of the first entry that cannot be read or has no pages; all registers are
    /// empty then.
    pub fn load<M: PhysMemory + ?Sized>(&mut self, memory: &M) -> Result<u64, TranslationFault> {
        self.invalidate_all();
        let loaded = self.load_into_empty(memory);
        if loaded.is_err() {
            self.invalidate_all();
        }
        loaded
    }

    fn load_into_empty<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
    ) -> Result<u64, TranslationFault> {
        let count = read_count(memory, self.list)?;
        self.entries = (count > 0).then_some(count);
        let loaded = count.min(self.registers.geometry().ways.into());
        for index in 0..loaded {
            let entry = ListEntry::read(memory, self.list.entry(index))?;
            self.registers.fill(&entry.fill(Vpn::new(entry.base))?);
        }
        Ok(loaded)
    }

    /// Translates `addr`, reading the list if no register has it.
    ///
    /// # Errors
    /// The [`TranslationFault`] of the page; nothing is loaded then.
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<TranslatedAccess, TranslationFault> {
        access_by_steps(self, addr, memory)
    }

    /// Loads what a search found.
    pub(crate) fn fill(&mut self, found: &Resolved) {
        self.registers.fill(&found.fill);
    }

    /// Counts the reads of a search.
    pub(crate) const fn count(&mut self, miss: &SegmentMiss) {
        self.walk_stats.regular_reads += miss.reads;
    }
}

impl Translate for SegmentRegisters {
    type Miss = SegmentMiss;

    /// Rights are those of x86-64: a list has no access flag.
    fn format(&self) -> Format {
        Format::X86_64
    }

    #[inline]
    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32) {
        let hit = self.registers.lookup(addr.page());
        let access = hit.map(|hit| TranslatedAccess {
            addr: byte(hit.frame, addr),
            attributes: hit.attributes,
            outcome: TlbOutcome::Hit(hit.kind),
        });
        (access, 0)
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<SegmentMiss, TranslationFault> {
        self.walk_stats.regular_walks += 1;
        let (list, page) = (self.list, addr.page());
        Ok(SegmentMiss { list, page, low: 0, high: self.entries, reads: 0 })
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut SegmentMiss,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        let counts = miss.high.is_none();
        let found = miss.step(memory);
        if counts {
            self.entries = miss.high.filter(|&entries| entries > 0);
        }
        found
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &SegmentMiss,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        self.count(miss);
        self.walk_stats.faults += u64::from(result.is_err());
        let found = result?;
        self.fill(&found);
        let Resolved { frame, attributes, fill } = found;
        let outcome = TlbOutcome::Miss(fill.kind());
        Ok(TranslatedAccess { addr: byte(frame, addr), attributes, outcome })
    }

    fn invalidate_page(&mut self, page: Vpn) {
        self.registers.invalidate_page(page);
        self.entries = None;
    }

    fn invalidate_range(&mut self, pages: PageRange) {
        self.registers.invalidate_range(pages);
        self.entries = None;
    }

    fn invalidate_all(&mut self) {
        self.registers.invalidate_all();
        self.entries = None;
    }

    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        let list = SegmentList { root };
        if !list.is_aligned() {
            return Err(MmuConfigError::Root { root });
        }
        self.list = list;
        self.invalidate_all();
        Ok(())
    }

    fn stats(&self) -> TranslationStats {
        let (l1, walk) = (self.registers.stats(), self.walk_stats);
        TranslationStats { l1, walk, ..TranslationStats::default() }
    }

    fn reset_stats(&mut self) {
        self.registers.reset_stats();
        self.walk_stats = WalkStats::default();
    }
}

//! The IOMMU of a master: any [`Translate`] in simulated time.
//!
//! The parts are those of the functional mode ([`Mmu`](crate::Mmu), a
//! [`Hierarchy`](crate::translate::hierarchy::Hierarchy), or
//! [`SegmentRegisters`](crate::SegmentRegisters)); what is added is when.
//!
//! * A **lookup** takes [`lookup_cycles`](IommuConfig::lookup_cycles) and is
//!   pipelined: one may begin each cycle, and they end in their order. What it
//!   finds is decided in its first cycle.
//! * A **miss** begins a walk, whose reads go over the interconnect
//!   one after the other, each when the one before has arrived. The
//!   transaction goes on in the cycle in which the last one
//!   arrives and the entry is filled.
//! * Without **hit-under-miss** nothing more is looked up until then, as the
//!   order of AXI transactions of one master suggests. With it, later
//!   transactions that hit go on. One that misses a page whose walk is under way
//!   waits for that walk; one that finds all walkers busy
//!   waits, and all behind it, until a walk ends, and is then looked up
//!   again (the TLB counts both lookups).
//! * A **descriptor cache** of [`descriptor_lines`](IommuConfig::descriptor_lines) lines of tables,
//!   fully associative, the least recently used line evicted, answers a walk's read after
//!   [`descriptor_cycles`](IommuConfig::descriptor_cycles) if it has the line. Otherwise the whole
//!   line comes over the interconnect and is filled when it arrives.
//! * A **page that is not there** ends the run with its fault, or, where
//!   [`Paging`](crate::system::Paging) brings pages, its walk stands still until it has come and is
//!   then made anew, as under the stall model of Arm's SMMU.
//! * **AT's two walks** make one miss: its entry is known only when both are
//!   done, so by default the transaction waits for both.
//!   [`early_regular`](IommuConfig::early_regular) lets it go on when its own page is known,
//!   while the anchor's walk is under way; what comes after it waits as before.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use swath_arch::{Attributes, Pfn, PhysAddr, PhysMemory, VirtAddr};

use crate::clock::Cycle;
use crate::histogram::Histogram;
use crate::system::transaction::TRANSACTION_BYTES;
use crate::translate::miss::TranslatedAccess;
use crate::translate::translator::{PendingMiss, Translate};
use crate::translate::walker::TranslationFault;

/// The configuration of an IOMMU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IommuConfig {
    /// Cycles of a lookup; of the first TLB, if there are several.
    pub lookup_cycles: u32,
    /// Walks in flight at once: 1 to [`WALKS_MAX`]. More than one need
    /// `hit_under_miss`.
    pub walks_max: u32,
    /// True if transactions behind a miss go on when they hit.
    pub hit_under_miss: bool,
    /// True if a transaction goes on after AT's regular walk (of
    /// [`WalkOrder::RegularFirst`](crate::WalkOrder::RegularFirst)), before the anchor's.
    pub early_regular: bool,
    /// Lines of 64 bytes in the cache of descriptors: 0 for none, up to
    /// [`DESCRIPTOR_LINES_MAX`].
    pub descriptor_lines: u32,
    /// Cycles in which it answers, 1 to 4096.
    pub descriptor_cycles: u32,
}

/// The most lines in a cache of descriptors.
pub const DESCRIPTOR_LINES_MAX: u32 = 1024;

/// The most cycles in which it may answer.
pub(crate) const DESCRIPTOR_CYCLES_MAX: u32 = 4096;

/// The most walks in flight at once in one IOMMU.
pub const WALKS_MAX: u32 = 64;

impl Default for IommuConfig {
    /// Returns one cycle, one walk, nothing that passes a miss, and misses that end when both
    /// of AT's walks have; no cache of descriptors. *Duong and Hur* say nothing of these.
    fn default() -> Self {
        Self {
            lookup_cycles: 1,
            walks_max: 1,
            hit_under_miss: false,
            early_regular: false,
            descriptor_lines: 0,
            descriptor_cycles: 1,
        }
    }
}

/// A walk under way.
#[derive(Clone, Debug)]
struct UnderWay<M> {
    miss: M,
    addr: VirtAddr,
    /// The number of the transaction that missed.
    number: u64,
    began: Cycle,
    page: Page,
}

/// What a walk knows of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Sought,
    /// The walk found none, and stands still until it comes.
    Awaited(TranslationFault),
    /// It came, and the walk was made anew.
    Came,
}

/// A machine that translates for one master, with its walks.
///
/// Invariants: `active` counts the walks under way; a walk that is not under way
/// has no waiters; `lines` has no more lines than it may, none twice, and the most recently used
/// one last.
#[derive(Clone, Debug)]
pub(crate) struct Iommu<T: Translate> {
    pub(crate) mmu: T,
    config: IommuConfig,
    walks: Box<[Option<UnderWay<T::Miss>>]>,
    /// The slots of the transactions that wait for each walk.
    waiters: Box<[Vec<u16>]>,
    active: u32,
    /// The lines in the cache of descriptors, by their number in memory.
    lines: Vec<u64>,
    pub(crate) descriptor_hits: u64,
    /// The cycle in which the last lookup ends.
    looked_up: Cycle,
    busy_since: Cycle,
    pub(crate) walk_cycles: Cycle,
    pub(crate) miss_latency: Histogram,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup {
    /// The access goes on in this cycle.
    Hit(TranslatedAccess, Cycle),
    /// The walk of this number reads here in this cycle; the transaction waits for it.
    Walk(u16, PhysAddr, Cycle),
    /// The transaction waits for a walk that is under way.
    Join,
    /// All walkers are busy.
    Stall,
}

/// The result of a descriptor's arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepped {
    /// The frame and the rights for those who wait, if known.
    pub(crate) known: Option<(Pfn, Attributes)>,
    /// The next read; the walk is over without one.
    pub(crate) next_read: Option<PhysAddr>,
}

impl<T: Translate> Iommu<T> {
    pub(crate) fn new(config: &IommuConfig, mmu: T) -> Self {
        let walks = config.walks_max as usize;
        Self {
            mmu,
            config: *config,
            walks: vec![None; walks].into(),
            waiters: vec![Vec::new(); walks].into(),
            active: 0,
            lines: Vec::with_capacity(config.descriptor_lines as usize),
            descriptor_hits: 0,
            looked_up: 0,
            busy_since: 0,
            walk_cycles: 0,
            miss_latency: Histogram::default(),
        }
    }

    /// Returns true if a miss keeps the master from looking anything up.
    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.active > 0 && !self.config.hit_under_miss
    }

    /// Looks up in the cycle `now`; transaction `number` is in `slot` if it comes to that.
    ///
    /// # Errors
    /// An address that is not canonical.
    #[inline]
    pub(crate) fn lookup(
        &mut self,
        now: Cycle,
        addr: VirtAddr,
        number: u64,
        slot: u16,
    ) -> Result<Lookup, TranslationFault> {
        let (access, more_cycles) = self.mmu.lookup(addr);
        let took = Cycle::from(self.config.lookup_cycles) + Cycle::from(more_cycles);
        let end = self.looked_up.max(now + took);
        self.looked_up = end;
        match access {
            Some(access) => Ok(Lookup::Hit(access, end)),
            None => self.miss(now, end, addr, number, slot),
        }
    }

    fn miss(
        &mut self,
        now: Cycle,
        end: Cycle,
        addr: VirtAddr,
        number: u64,
        slot: u16,
    ) -> Result<Lookup, TranslationFault> {
        let same = |walk: &Option<UnderWay<T::Miss>>| {
            walk.as_ref().is_some_and(|walk| walk.addr.page() == addr.page())
        };
        if let Some(walk) = self.walks.iter().position(same) {
            self.waiters[walk].push(slot);
            return Ok(Lookup::Join);
        }
        let Some(walk) = self.walks.iter().position(Option::is_none) else {
            return Ok(Lookup::Stall);
        };
        let miss = self.mmu.begin(addr)?;
        let read = miss.next_read();
        self.walks[walk] = Some(UnderWay { miss, addr, number, began: now, page: Page::Sought });
        self.waiters[walk].push(slot);
        if self.active == 0 {
            self.busy_since = now;
        }
        self.active += 1;
        Ok(Lookup::Walk(walk as u16, read, end))
    }

    /// Returns the cycle in which the cache of descriptors answers a read of `now`, if it has the
    /// line. O(lines).
    #[inline]
    pub(crate) fn cached(&mut self, now: Cycle, read: PhysAddr) -> Option<Cycle> {
        let line = read.raw() / TRANSACTION_BYTES;
        let at = self.lines.iter().rposition(|&other| other == line)?;
        self.lines[at..].rotate_left(1);
        self.descriptor_hits += 1;
        Some(now + Cycle::from(self.config.descriptor_cycles))
    }

    /// Fills the line of a read that has arrived; it is the most recently used one. O(lines).
    fn keep_line(&mut self, read: PhysAddr) {
        if self.config.descriptor_lines == 0 {
            return;
        }
        let line = read.raw() / TRANSACTION_BYTES;
        if let Some(at) = self.lines.iter().rposition(|&other| other == line) {
            self.lines[at..].rotate_left(1);
            return;
        }
        if self.lines.len() == self.config.descriptor_lines as usize {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }

    /// Steps the walk whose descriptor has arrived in the cycle `now`.
    ///
    /// # Errors
    /// The fault of the page, with the address and the number of the transaction that
    /// missed.
    pub(crate) fn arrive<M: PhysMemory + ?Sized>(
        &mut self,
        now: Cycle,
        walk: u16,
        memory: &M,
    ) -> Result<Stepped, (VirtAddr, u64, TranslationFault)> {
        if let Some(read) = self.walks[usize::from(walk)].as_ref().map(|walk| walk.miss.next_read())
        {
            self.keep_line(read);
        }
        let place = &mut self.walks[usize::from(walk)];
        let Some(UnderWay { miss, addr, number, began, .. }) = place else {
            return Ok(Stepped { known: None, next_read: None });
        };
        let (addr, number, began) = (*addr, *number, *began);
        let result = match self.mmu.step(miss, memory) {
            Ok(None) => {
                let known = miss.known().filter(|_| self.config.early_regular);
                return Ok(Stepped { known, next_read: Some(miss.next_read()) });
            }
            Ok(Some(resolved)) => Ok(resolved),
            Err(fault) => Err(fault),
        };
        let access =
            self.mmu.complete(addr, miss, result).map_err(|fault| (addr, number, fault))?;
        *place = None;
        self.active -= 1;
        if self.active == 0 {
            self.walk_cycles += now - self.busy_since;
        }
        self.miss_latency.record(now - began);
        Ok(Stepped { known: Some((access.addr.frame(), access.attributes)), next_read: None })
    }

    /// Lets a walk that ended in a fault stand still until its page comes. Returns false if that is
    /// vain: the fault is another one, or the page has been said to have come.
    pub(crate) fn await_page(&mut self, walk: u16, fault: TranslationFault) -> bool {
        let absent = matches!(fault, TranslationFault::Translation { .. });
        match &mut self.walks[usize::from(walk)] {
            Some(UnderWay { page: page @ Page::Sought, .. }) if absent => {
                *page = Page::Awaited(fault);
                true
            }
            _ => false,
        }
    }

    /// Returns the fault of a walk that stands still until its page comes.
    #[inline]
    pub(crate) fn awaits(&self, walk: u16) -> Option<TranslationFault> {
        match self.walks[usize::from(walk)] {
            Some(UnderWay { page: Page::Awaited(fault), .. }) => Some(fault),
            _ => None,
        }
    }

    /// Begins a walk anew whose page has come: its first read.
    ///
    /// # Errors
    /// None where the walk could begin before.
    pub(crate) fn begin_anew(&mut self, walk: u16) -> Result<Option<PhysAddr>, TranslationFault> {
        let Some(walk) = &mut self.walks[usize::from(walk)] else { return Ok(None) };
        walk.miss = self.mmu.begin(walk.addr)?;
        walk.page = Page::Came;
        Ok(Some(walk.miss.next_read()))
    }

    /// Returns the bytes that a walk reads next over the interconnect.
    #[inline]
    pub(crate) fn read_bytes(&self, walk: u16) -> u64 {
        if self.config.descriptor_lines > 0 {
            return TRANSACTION_BYTES;
        }
        self.walks[usize::from(walk)].as_ref().map_or(0, |walk| walk.miss.next_read_bytes())
    }

    /// Returns the number and the address of the transaction that a walk is for.
    pub(crate) fn walking(&self, walk: u16) -> (u64, VirtAddr) {
        let walk = self.walks[usize::from(walk)].as_ref();
        walk.map_or((0, VirtAddr::new(0)), |walk| (walk.number, walk.addr))
    }

    /// Returns the transactions that wait for a walk, in their order.
    pub(crate) fn take_waiters(&mut self, walk: u16) -> Vec<u16> {
        core::mem::take(&mut self.waiters[usize::from(walk)])
    }

    /// Takes the storage of [`take_waiters`](Self::take_waiters) back.
    pub(crate) fn recycle(&mut self, walk: u16, mut waiters: Vec<u16>) {
        waiters.clear();
        self.waiters[usize::from(walk)] = waiters;
    }
}

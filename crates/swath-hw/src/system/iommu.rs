//! The IOMMU of a master: any [`Translate`] in simulated time.
//!
//! The parts are those of the functional mode ([`Mmu`](crate::Mmu), or a
//! [`Hierarchy`](crate::translate::hierarchy::Hierarchy)); what is added is when.
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
use crate::translate::miss::{Miss, TranslatedAccess};
use crate::translate::translator::Translate;
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
}

/// The most walks in flight at once in one IOMMU.
pub const WALKS_MAX: u32 = 64;

impl Default for IommuConfig {
    /// Returns one cycle, one walk, nothing that passes a miss, and misses that end when both
    /// of AT's walks have. *Duong and Hur* say nothing of these.
    fn default() -> Self {
        Self { lookup_cycles: 1, walks_max: 1, hit_under_miss: false, early_regular: false }
    }
}

/// A walk under way.
#[derive(Clone, Debug)]
struct UnderWay {
    miss: Miss,
    addr: VirtAddr,
    /// The number of the transaction that missed.
    number: u64,
    began: Cycle,
}

/// A machine that translates for one master, with its walks.
///
/// Invariants: `active` counts the walks under way; a walk that is not under way
/// has no waiters.
#[derive(Clone, Debug)]
pub(crate) struct Iommu<T> {
    pub(crate) mmu: T,
    config: IommuConfig,
    walks: Box<[Option<UnderWay>]>,
    /// The slots of the transactions that wait for each walk.
    waiters: Box<[Vec<u16>]>,
    active: u32,
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
        let same = |walk: &Option<UnderWay>| {
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
        self.walks[walk] = Some(UnderWay { miss, addr, number, began: now });
        self.waiters[walk].push(slot);
        if self.active == 0 {
            self.busy_since = now;
        }
        self.active += 1;
        Ok(Lookup::Walk(walk as u16, read, end))
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
        let place = &mut self.walks[usize::from(walk)];
        let Some(UnderWay { miss, addr, number, began }) = place else {
            return Ok(Stepped { known: None, next_read: None });
        };
        let (addr, number, began) = (*addr, *number, *began);
        let result = match self.mmu.step(miss, memory) {
            Ok(None) => {
                let demanded = miss.demanded().filter(|_| self.config.early_regular);
                let known = demanded.map(|found| (found.frame, found.attributes));
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

    /// Returns the bytes that a walk reads next.
    #[inline]
    pub(crate) fn read_bytes(&self, walk: u16) -> u64 {
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

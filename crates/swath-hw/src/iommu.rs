//! The IOMMU of a master: any [`Translate`] in simulated time.
//!
//! The parts are those of the functional mode ([`Mmu`], or a
//! [`Hierarchy`](crate::hierarchy::Hierarchy)); what is added is when.
//!
//! * A **lookup** takes [`lookup_cycles`](Config::lookup_cycles) and is
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
//!   [`early_regular`](Config::early_regular) lets it go on when its own page is known,
//!   while the anchor's walk is under way; what comes after it waits as before.

use alloc::boxed::Box;
use alloc::vec::Vec;

use swath_arch::{PhysMemory, Regime, VirtAddr};

use crate::mmu::{Access, Miss, Mmu, Resolved, WalkStats};
use crate::timing::Cycle;
use crate::tlb::TlbStats;
use crate::walker::Fault;

/// An IOMMU to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Cycles of a lookup; of the first TLB, if there are several.
    pub lookup_cycles: u32,
    /// Walks in flight at once: 1 to [`WALKS_MAX`]. More than one need
    /// `hit_under_miss`.
    pub walks_max: u32,
    /// Whether transactions behind a miss go on if they hit.
    pub hit_under_miss: bool,
    /// Whether a transaction goes on after AT's regular walk (of
    /// [`WalkOrder::RegularFirst`](crate::WalkOrder::RegularFirst)), before the anchor's.
    pub early_regular: bool,
}

/// The most walks in flight at once in one IOMMU.
pub const WALKS_MAX: u32 = 64;

impl Default for Config {
    /// One cycle, one walk, nothing passes a miss, a miss ends when both
    /// of AT's walks have. The PBS paper says nothing of these.
    fn default() -> Self {
        Self { lookup_cycles: 1, walks_max: 1, hit_under_miss: false, early_regular: false }
    }
}

/// What a translating machine has counted. A machine without one of the parts
/// has zeros there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TranslationStats {
    /// The TLB that is asked first.
    pub l1: TlbStats,
    /// The TLB behind it.
    pub l2: TlbStats,
    /// The walks; reads that a walk cache saved are not among theirs.
    pub walk: WalkStats,
    /// Walks that a walk cache let begin below the root.
    pub walk_cache_hits: u64,
    /// Reads that it saved.
    pub walk_cache_saved_reads: u64,
}

/// A machine that translates, one step at a time: the interface of [`Mmu`].
pub trait Translate {
    /// What the hardware has been told about the table.
    fn regime(&self) -> &Regime;

    /// Asks the TLBs; beside the answer, the cycles that it took beyond those
    /// of the first TLB.
    fn lookup(&mut self, addr: VirtAddr) -> (Option<Access>, u32);

    /// Begins a miss, after a lookup that found nothing. It needs at least one read.
    ///
    /// # Errors
    /// [`Fault::NotCanonical`].
    fn begin(&mut self, addr: VirtAddr) -> Result<Miss, Fault>;

    /// Does the read at [`Miss::next_read`]; `None` says that another is needed.
    ///
    /// # Errors
    /// The [`Fault`] of the demanded page, for [`complete`](Self::complete).
    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Miss,
        memory: &M,
    ) -> Result<Option<Resolved>, Fault>;

    /// Ends a miss: counts it and fills the TLBs.
    ///
    /// # Errors
    /// The fault that the miss ended in.
    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Miss,
        result: Result<Resolved, Fault>,
    ) -> Result<Access, Fault>;

    /// Everything counted.
    fn stats(&self) -> TranslationStats;
}

impl Translate for Mmu {
    fn regime(&self) -> &Regime {
        Self::regime(self)
    }

    #[inline]
    fn lookup(&mut self, addr: VirtAddr) -> (Option<Access>, u32) {
        (Self::lookup(self, addr), 0)
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<Miss, Fault> {
        Self::begin(self, addr)
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Miss,
        memory: &M,
    ) -> Result<Option<Resolved>, Fault> {
        miss.step(memory)
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Miss,
        result: Result<Resolved, Fault>,
    ) -> Result<Access, Fault> {
        Self::complete(self, addr, miss, result)
    }

    fn stats(&self) -> TranslationStats {
        let stats = Self::stats(self);
        TranslationStats { l1: stats.tlb, walk: stats.walk, ..TranslationStats::default() }
    }
}

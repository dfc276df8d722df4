//! The interface of every machine that translates, one step at a time.

use swath_arch::{Attributes, Format, PageRange, Pfn, PhysAddr, PhysMemory, VirtAddr, Vpn};

use crate::tlb::stats::TlbStats;
use crate::translate::miss::{Miss, Resolved, TranslatedAccess, WalkStats};
use crate::translate::regime::MmuConfigError;
use crate::translate::walker::TranslationFault;

/// The counters of a translating machine. A machine without one of the parts
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

/// A miss under way, between two of its reads.
pub trait PendingMiss: Clone + core::fmt::Debug {
    /// Returns the address of the next read.
    fn next_read(&self) -> PhysAddr;

    /// Returns the bytes of the next read.
    fn next_read_bytes(&self) -> u64;

    /// Returns the demanded page's frame and attributes, if they are known before the miss ends.
    fn known(&self) -> Option<(Pfn, Attributes)>;
}

impl PendingMiss for Miss {
    #[inline]
    fn next_read(&self) -> PhysAddr {
        Self::next_read(self)
    }

    #[inline]
    fn next_read_bytes(&self) -> u64 {
        Self::next_read_bytes(self)
    }

    fn known(&self) -> Option<(Pfn, Attributes)> {
        self.demanded().map(|found| (found.frame, found.attributes))
    }
}

/// A machine that translates, one step at a time: the interface of [`Mmu`](crate::Mmu).
pub trait Translate {
    /// A miss of this machine.
    type Miss: PendingMiss;

    /// Returns the format by whose rules [`permit`](crate::permit) decides.
    fn format(&self) -> Format;

    /// Looks `addr` up in the TLBs; returns the hit and the cycles beyond those of the first TLB.
    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32);

    /// Begins a miss, after a lookup that found nothing. It needs at least one read.
    ///
    /// # Errors
    /// [`TranslationFault::NotCanonical`].
    fn begin(&mut self, addr: VirtAddr) -> Result<Self::Miss, TranslationFault>;

    /// Makes the read at [`PendingMiss::next_read`]; returns `None` if another is needed.
    ///
    /// # Errors
    /// The [`TranslationFault`] of the demanded page, for [`complete`](Self::complete).
    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Self::Miss,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault>;

    /// Ends a miss: counts it and fills the TLBs.
    ///
    /// # Errors
    /// The fault that the miss ended in.
    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Self::Miss,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault>;

    /// Invalidates `page`, in all TLBs and walk caches; an entry of many pages goes as a whole.
    /// Until then a changed table goes unnoticed, as in hardware.
    fn invalidate_page(&mut self, page: Vpn);

    /// Invalidates every page of `pages`.
    fn invalidate_range(&mut self, pages: PageRange);

    /// Invalidates everything.
    fn invalidate_all(&mut self);

    /// Changes to another address space of the same format, and invalidates everything: there are
    /// no address-space numbers, and nothing is global.
    ///
    /// # Errors
    /// A misaligned root; nothing has changed then.
    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError>;

    /// Returns the counters since the start or the last [`reset_stats`](Self::reset_stats).
    fn stats(&self) -> TranslationStats;

    /// Sets every counter to 0; the entries stay.
    fn reset_stats(&mut self);
}

/// Translates `addr` by the steps of `translator`, one after the other.
///
/// # Errors
/// The [`TranslationFault`] of the page.
pub fn access_by_steps<T: Translate, M: PhysMemory + ?Sized>(
    translator: &mut T,
    addr: VirtAddr,
    memory: &M,
) -> Result<TranslatedAccess, TranslationFault> {
    if let (Some(access), _) = translator.lookup(addr) {
        return Ok(access);
    }
    let mut miss = translator.begin(addr)?;
    let result = loop {
        match translator.step(&mut miss, memory) {
            Ok(None) => {}
            Ok(Some(resolved)) => break Ok(resolved),
            Err(fault) => break Err(fault),
        }
    };
    translator.complete(addr, &miss, result)
}

//! Nested translation: a guest's page table, every word of which lies in memory that its host's table maps.
//!
//! ```text
//!  guest's page ──► guest's walk: each read at a guest's address ──► host's walk ──► bytes
//!               └─► guest's frame ────────────────────────────────► host's walk ──► frame
//! ```
//!
//! With g levels of the guest's and h of the host's a walk takes g × h + g + h reads: 24 with four and four. The
//! TLB's entry is what both tables say is contiguous: the guest's block and the host's, as far as they
//! lie on one another. So contiguity helps only where both have it. A second TLB may hold the host's part (the
//! nested TLB of AMD's processors). Upper levels are not cached apart from that.

use core::cell::{Cell, RefCell};

use swath_arch::{
    Attributes, BusError, Order, PageRange, Pfn, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn,
};

use crate::tlb::array::Tlb;
use crate::tlb::fill::{EntryKind, TlbFill};
use crate::tlb::geometry::{Geometry, Replacement};
use crate::tlb::stats::TlbStats;
use crate::translate::miss::{TlbOutcome, TranslatedAccess, byte};
use crate::translate::regime::{MmuConfigError, check_regime};
use crate::translate::walker::{TranslationFault, Walk, WalkStep, walk};

/// Reasons why a guest's page has no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NestedFault {
    /// The guest's table maps nothing there: the guest's to answer.
    #[error("guest: {0}")]
    Guest(TranslationFault),
    /// The host's table does not map the guest's memory there: the host's to answer.
    #[error("host, at the guest's {at}: {fault}")]
    Host {
        /// The guest's physical address.
        at: PhysAddr,
        /// The host's fault.
        fault: TranslationFault,
    },
}

/// The counters of nested translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NestedStats {
    /// The TLB of whole translations.
    pub tlb: TlbStats,
    /// The TLB of the host's part; all zero without one.
    pub host_tlb: TlbStats,
    /// Reads of the guest's table.
    pub guest_reads: u64,
    /// Reads of the host's table.
    pub host_reads: u64,
    /// Misses that ended in a fault.
    pub faults: u64,
}

/// The host's part of a translation.
#[derive(Clone, Debug)]
struct Host {
    regime: Regime,
    tlb: Option<Tlb>,
    reads: u64,
}

impl Host {
    /// Returns the entry that has the guest's frame `page`, by the TLB or a walk.
    fn entry<M: PhysMemory + ?Sized>(
        &mut self,
        page: Vpn,
        memory: &M,
    ) -> Result<TlbFill, TranslationFault> {
        if let Some(tlb) = &mut self.tlb
            && tlb.lookup(page).is_some()
            && let Some(entry) = tlb.entry(page)
        {
            return Ok(entry);
        }
        let found = walk(&self.regime, page, memory, &mut self.reads)?;
        let (pages, frames) = found.block(self.regime.format, page);
        let fill = TlbFill::within(EntryKind::Regular, page, pages, frames.start, found.attributes);
        if let Some(tlb) = &mut self.tlb {
            tlb.fill(&fill);
        }
        Ok(fill)
    }
}

/// The guest's physical memory, as its walker sees it.
struct GuestMemory<'a, M: ?Sized> {
    host: RefCell<&'a mut Host>,
    memory: &'a M,
    /// The address of the descriptor that is read; what else comes with it, as the word beside it does, is
    /// no walk of its own.
    descriptor: Cell<PhysAddr>,
    /// The host's fault, if a read met one.
    fault: Cell<Option<(PhysAddr, TranslationFault)>>,
}

impl<M: PhysMemory + ?Sized> GuestMemory<'_, M> {
    fn at(&self, addr: PhysAddr, len_bytes: u32) -> Result<PhysAddr, BusError> {
        let refused = BusError { addr, len_bytes };
        let mut host = self.host.try_borrow_mut().map_err(|_| refused)?;
        let page = Vpn::new(addr.frame().raw());
        let found = match addr == self.descriptor.get() {
            true => host
                .entry(page, self.memory)
                .map(|entry| Pfn::new(entry.frame + (page.raw() - entry.start))),
            false => walk(&host.regime, page, self.memory, &mut 0).map(|found| found.frame),
        };
        match found {
            Ok(frame) => Ok(byte(frame, VirtAddr::new(addr.raw()))),
            Err(fault) => {
                self.fault.set(Some((addr, fault)));
                Err(refused)
            }
        }
    }
}

impl<M: PhysMemory + ?Sized> PhysMemory for GuestMemory<'_, M> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        self.memory.read_u32(self.at(addr, 4)?)
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.memory.read_u64(self.at(addr, 8)?)
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.memory.write_u32(self.at(addr, 4)?, value)
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.memory.write_u64(self.at(addr, 8)?, value)
    }
}

/// A TLB before a guest's table and its host's, of which each may tell of contiguity by PCAD. Anchors count as
/// pages alone.
#[derive(Clone, Debug)]
pub struct Nested {
    tlb: Tlb,
    guest: Regime,
    host: Host,
    guest_reads: u64,
    faults: u64,
}

impl Nested {
    /// Creates one that is empty. The guest's root is an address in the guest's memory. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError`].
    pub fn new(
        guest: Regime,
        host: Regime,
        tlb: Geometry,
        host_tlb: Option<Geometry>,
    ) -> Result<Self, MmuConfigError> {
        check_regime(&guest)?;
        check_regime(&host)?;
        let host_tlb = host_tlb.map(|geometry| Tlb::new(geometry, Order::BASE)).transpose()?;
        Ok(Self {
            tlb: Tlb::new(tlb, Order::BASE)?,
            guest,
            host: Host { regime: host, tlb: host_tlb, reads: 0 },
            guest_reads: 0,
            faults: 0,
        })
    }

    /// Replaces the TLB's entries so from now on.
    #[must_use]
    pub fn replacing(mut self, replacement: Replacement) -> Self {
        self.tlb = self.tlb.replacing(replacement);
        self
    }

    /// Translates the guest's `addr` to the host's physical memory. O(1) for a hit, else O(g × h) reads for
    /// g levels of the guest's and h of the host's.
    ///
    /// # Errors
    /// [`NestedFault`]; the TLB has nothing of it then.
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        addr: VirtAddr,
        memory: &M,
    ) -> Result<TranslatedAccess, NestedFault> {
        if let Some(hit) = self.tlb.lookup(addr.page()) {
            return Ok(TranslatedAccess {
                addr: byte(hit.frame, addr),
                attributes: hit.attributes,
                outcome: TlbOutcome::Hit(hit.kind),
            });
        }
        let fill = match self.resolve(addr.page(), memory) {
            Ok(fill) => fill,
            Err(fault) => {
                self.faults += 1;
                return Err(fault);
            }
        };
        self.tlb.fill(&fill);
        let frame = Pfn::new(fill.frame + (fill.page - fill.start));
        let outcome = TlbOutcome::Miss(fill.kind);
        Ok(TranslatedAccess { addr: byte(frame, addr), attributes: fill.attributes, outcome })
    }

    /// The entry that both tables allow around `page`.
    fn resolve<M: PhysMemory + ?Sized>(
        &mut self,
        page: Vpn,
        memory: &M,
    ) -> Result<TlbFill, NestedFault> {
        let mut walk = Walk::new(&self.guest, page).map_err(NestedFault::Guest)?;
        let guest_memory = GuestMemory {
            host: RefCell::new(&mut self.host),
            memory,
            descriptor: Cell::new(walk.next_read()),
            fault: Cell::new(None),
        };
        let found = loop {
            guest_memory.descriptor.set(walk.next_read());
            self.guest_reads += 1;
            match walk.step(&guest_memory) {
                Ok(WalkStep::Read) => {}
                Ok(WalkStep::Done(found)) => break found,
                Err(guest) => {
                    return Err(match guest_memory.fault.get() {
                        Some((at, fault)) => NestedFault::Host { at, fault },
                        None => NestedFault::Guest(guest),
                    });
                }
            }
        };
        let (pages, _) = found.block(self.guest.format, page);
        let frame = Vpn::new(found.frame.raw());
        let host = self.host.entry(frame, memory);
        let host = host.map_err(|fault| NestedFault::Host { at: found.frame.address(), fault })?;
        let before = (page.raw() - pages.start.raw()).min(frame.raw() - host.start);
        let after = (pages.end().raw() - page.raw()).min(host.end - frame.raw());
        let both = PageRange::new(Vpn::new(page.raw() - before), before + after);
        let first = Pfn::new(host.frame + (frame.raw() - host.start) - before);
        let attributes = Attributes {
            writable: found.attributes.writable && host.attributes.writable,
            executable: found.attributes.executable && host.attributes.executable,
            ..found.attributes
        };
        Ok(TlbFill::within(EntryKind::Regular, page, both, first, attributes))
    }

    /// Returns the counters.
    pub fn stats(&self) -> NestedStats {
        NestedStats {
            tlb: self.tlb.stats(),
            host_tlb: self.host.tlb.as_ref().map(Tlb::stats).unwrap_or_default(),
            guest_reads: self.guest_reads,
            host_reads: self.host.reads,
            faults: self.faults,
        }
    }

    /// Invalidates everything, the host's part too. O(entries).
    pub fn invalidate_all(&mut self) {
        self.tlb.invalidate_all();
        if let Some(tlb) = &mut self.host.tlb {
            tlb.invalidate_all();
        }
    }
}

//! A TLB whose walker makes one entry of neighbours: by the line of descriptors that the last read
//! brings anyway, or by what the descriptor says of its block.

use swath_arch::formats::line;
use swath_arch::{Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn};

use crate::tlb::fill::{EntryKind, TlbFill};
use crate::tlb::geometry::{Geometry, Replacement};
use crate::translate::decode::{Descriptor, Leaf, decode};
use crate::translate::miss::{Miss, Resolved, TranslatedAccess, WalkOrder};
use crate::translate::mmu::Mmu;
use crate::translate::regime::MmuConfigError;
use crate::translate::translator::{Translate, TranslationStats, access_by_steps};
use crate::translate::walker::TranslationFault;

/// The pages that become one entry. A group that is longer than the line of descriptors counts as one
/// that is as long (8 descriptors, 16 in ARMv7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Join {
    /// All pages of an aligned group, if they lie on frames that go on from an aligned one, with the same
    /// attributes; else the page alone. AMD's Zen joins four pages so (*Software Optimization Guide for
    /// AMD Family 17h Processors*, on the TLBs).
    Whole {
        /// log2 of the pages of a group.
        log2: u32,
    },
    /// The pages of an aligned group around the demanded one whose frames go on, wherever they lie (Pham
    /// et al., *CoLT: Coalesced Large-Reach TLBs*, MICRO 2012).
    Part {
        /// log2 of the pages of a group.
        log2: u32,
    },
    /// The largest aligned power of two of pages that lies in the demanded page's block on an aligned frame:
    /// what the fragment field of AMD's GPUs can say (Linux, `amdgpu_vm.c`), which the driver writes by
    /// the same rule. The regime's PCAD tells of the block.
    Fragment {
        /// log2 of the most pages.
        log2_max: u32,
    },
    /// The demanded page's block, as far as it lies in the aligned group of pages around it: in one leaf table, where
    /// hardware is simpler (`rtl/tlb`). The regime's PCAD tells of the block.
    Table {
        /// log2 of the pages of a table.
        log2: u32,
    },
}

/// A TLB with its walker, told about one address space by a [`Regime`].
#[derive(Clone, Debug)]
pub struct Joined {
    mmu: Mmu,
    join: Join,
}

impl Joined {
    /// Creates one that is empty. Joined entries of sets lie in windows of so many pages as
    /// `geometry` says. O(entries).
    ///
    /// # Errors
    /// [`MmuConfigError`].
    pub fn new(regime: Regime, geometry: Geometry, join: Join) -> Result<Self, MmuConfigError> {
        Ok(Self { mmu: Mmu::new(regime, geometry, WalkOrder::default())?, join })
    }

    /// Replaces the TLB's entries so from now on.
    #[must_use]
    pub fn replacing(mut self, replacement: Replacement) -> Self {
        self.mmu = self.mmu.replacing(replacement);
        self
    }

    /// Translates `addr`, walking and filling if the TLB has no entry.
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

    /// The entry in place of the one that a walk found, whose last descriptor is at `at`.
    fn joined<M: PhysMemory + ?Sized>(
        &self,
        at: PhysAddr,
        page: Vpn,
        resolved: &Resolved,
        memory: &M,
    ) -> Option<TlbFill> {
        let format = self.mmu.regime().format;
        let group = |log2: u32| log2.min(line::entries(format).ilog2());
        let (pages, first) = match self.join {
            Join::Fragment { log2_max } => fragment(page, resolved, log2_max)?,
            Join::Table { log2 } => in_table(page, resolved, log2),
            // A page of another size is one already.
            _ if resolved.fill.pages().count != 1 => return None,
            Join::Whole { log2 } => {
                let found = run_in_group(format, at, page, resolved.frame, group(log2), memory)?;
                let count = 1 << group(log2);
                let is_whole = found.0.count == count && found.1.raw().is_multiple_of(count);
                is_whole.then_some(found)?
            }
            Join::Part { log2 } => {
                run_in_group(format, at, page, resolved.frame, group(log2), memory)?
            }
        };
        TlbFill::new(EntryKind::Regular, page, pages, first, resolved.attributes)
    }
}

/// The base page that the descriptor at `at` maps.
fn leaf<M: PhysMemory + ?Sized>(format: Format, at: PhysAddr, memory: &M) -> Option<Leaf> {
    let word = match format.entry_bytes() {
        4 => memory.read_u32(at).map(u64::from),
        _ => memory.read_u64(at),
    };
    match decode(format, format.levels().len() - 1, word.ok()?) {
        Descriptor::Leaf(leaf) if leaf.order == Order::BASE => Some(leaf),
        _ => None,
    }
}

/// The run of pages around `page` in its group whose frames go on, with the first one's frame. O(pages
/// of a group).
fn run_in_group<M: PhysMemory + ?Sized>(
    format: Format,
    at: PhysAddr,
    page: Vpn,
    frame: Pfn,
    log2: u32,
    memory: &M,
) -> Option<(PageRange, Pfn)> {
    let own = leaf(format, at, memory).filter(|own| own.frame == frame)?;
    let place = page.offset_in(log2);
    let first = at.raw() - place * format.entry_bytes();
    let goes_on = |other: &u64| {
        let at = PhysAddr::new(first + other * format.entry_bytes());
        leaf(format, at, memory).is_some_and(|leaf| {
            leaf.frame.raw() + place == frame.raw() + other && leaf.attributes == own.attributes
        })
    };
    let before = (0..place).rev().take_while(goes_on).count() as u64;
    let after = (place + 1..1 << log2).take_while(goes_on).count() as u64;
    let pages = PageRange::new(Vpn::new(page.raw() - before), before + 1 + after);
    Some((pages, Pfn::new(frame.raw() - before)))
}

/// The largest aligned power of two around `page` within the entry that a walk found. O(log2).
fn fragment(page: Vpn, resolved: &Resolved, log2_max: u32) -> Option<(PageRange, Pfn)> {
    let pages = resolved.fill.pages();
    let lies = |log2: u32| {
        let start = page.align_down(log2);
        let before = page.raw() - start.raw();
        let fits = start >= pages.start && start.raw() + (1 << log2) <= pages.end().raw();
        let first = resolved.frame.raw().checked_sub(before).filter(|_| fits)?;
        first.is_multiple_of(1 << log2).then(|| (PageRange::new(start, 1 << log2), Pfn::new(first)))
    };
    (0..=log2_max.min(pages.count.ilog2())).rev().find_map(lies)
}

/// The part of the entry that a walk found that lies in the aligned group around `page`. O(1).
fn in_table(page: Vpn, resolved: &Resolved, log2: u32) -> (PageRange, Pfn) {
    let (pages, group) = (resolved.fill.pages(), page.align_down(log2));
    let start = pages.start.max(group);
    let end = pages.end().raw().min(group.raw() + (1 << log2));
    let first = resolved.frame.raw() - (page.raw() - start.raw());
    (PageRange::new(start, end - start.raw()), Pfn::new(first))
}

impl Translate for Joined {
    type Miss = Miss;

    fn format(&self) -> Format {
        self.mmu.regime().format
    }

    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32) {
        (self.mmu.lookup(addr), 0)
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<Miss, TranslationFault> {
        self.mmu.begin(addr)
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Miss,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        let at = miss.next_read();
        let Some(mut resolved) = miss.step(memory)? else { return Ok(None) };
        if let Some(fill) = self.joined(at, miss.page(), &resolved, memory) {
            resolved.fill = fill;
        }
        Ok(Some(resolved))
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Miss,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        self.mmu.complete(addr, miss, result)
    }

    fn invalidate_page(&mut self, page: Vpn) {
        self.mmu.invalidate_page(page);
    }

    fn invalidate_range(&mut self, pages: PageRange) {
        self.mmu.invalidate_range(pages);
    }

    fn invalidate_all(&mut self) {
        self.mmu.invalidate_all();
    }

    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        self.mmu.set_root(root)
    }

    fn stats(&self) -> TranslationStats {
        Translate::stats(&self.mmu)
    }

    fn reset_stats(&mut self) {
        self.mmu.reset_stats();
    }
}

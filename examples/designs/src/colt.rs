//! CoLT's set-associative TLB (CoLT-SA): a walk brings a cache line of descriptors, and the pages of an
//! aligned group of four whose frames go on become one entry. Nothing is written into the table, so
//! that it works on the memory of any allocator.

use swath_arch::{
    Coalescing, Format, Order, PageRange, PhysAddr, PhysMemory, Regime, VirtAddr, Vpn,
};
use swath_hw::{
    Descriptor, EntryKind, Geometry, Leaf, Miss, Mmu, MmuConfigError, Resolved, TlbFill, Translate,
    TranslatedAccess, TranslationFault, TranslationStats, WalkOrder, decode,
};
use swath_lab::papers::page_buddy::design::{
    self, AddError, Added, AddedFrames, NewTlb, Scheme, TlbKind,
};

/// log2 of the pages of a group, which share a set.
const GROUP_LOG2: u32 = 2;

/// Ways of a set.
const WAYS: u32 = 4;

/// The TLB with its walker.
pub struct Colt {
    mmu: Mmu,
}

/// Adds it, on the memory of the plan's binary buddy system.
///
/// # Errors
/// [`AddError`].
pub fn add() -> Result<(), AddError> {
    let tlb = Some(TlbKind::of::<Colt>());
    design::add(Added {
        name: "CoLT",
        frames: AddedFrames::Bbs,
        scheme: Scheme::Trad,
        tlb,
        tables: None,
    })
}

impl NewTlb for Colt {
    fn new(regime: Regime, geometry: Geometry) -> Result<Self, MmuConfigError> {
        let regime = Regime { coalescing: Coalescing::None, ..regime };
        let entries = geometry.sets * geometry.ways;
        let ways = WAYS.min(entries);
        let geometry = Geometry { sets: entries / ways, ways, index_shift: GROUP_LOG2 };
        Ok(Self { mmu: Mmu::new(regime, geometry, WalkOrder::default())? })
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

/// The entry of a page whose descriptor is at `at`, with what goes on in its group.
fn joined<M: PhysMemory + ?Sized>(
    format: Format,
    at: PhysAddr,
    (page, resolved): (Vpn, &Resolved),
    memory: &M,
) -> Option<TlbFill> {
    let own = leaf(format, at, memory).filter(|own| own.frame == resolved.frame)?;
    let place = page.raw() % (1 << GROUP_LOG2);
    let first = at.raw() - place * format.entry_bytes();
    let goes_on = |other: &u64| {
        let at = PhysAddr::new(first + other * format.entry_bytes());
        leaf(format, at, memory).is_some_and(|leaf| {
            leaf.frame.raw() + place == own.frame.raw() + other && leaf.attributes == own.attributes
        })
    };
    let before = (0..place).rev().take_while(goes_on).count() as u64;
    let after = (place + 1..1 << GROUP_LOG2).take_while(goes_on).count() as u64;
    let start = Vpn::new(page.raw() - before);
    let frame = swath_arch::Pfn::new(own.frame.raw() - before);
    let pages = PageRange::new(start, before + 1 + after);
    TlbFill::new(EntryKind::Regular, page, pages, frame, resolved.attributes)
}

impl Translate for Colt {
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
        if resolved.fill.pages().count == 1
            && let Some(fill) = joined(self.format(), at, (miss.page(), &resolved), memory)
        {
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

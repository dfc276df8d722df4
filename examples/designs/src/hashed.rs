//! A hashed page table: a format of its own, with the TLB that reads it. A page's place follows from its number; where
//! another page has it, the next place is tried. So a walk is mostly one read, however large the space is.
//!
//! An entry is two words: the page's number plus one (0: nobody's), and the frame's. The word at the root is log2 of the
//! places, which follow from the root's second entry on.

use swath_arch::{
    Attributes, BusError, Extent, Format, PageRange, Pfn, PhysAddr, PhysMemory, Regime, VirtAddr,
    Vpn,
};
use swath_frame::FrameAllocator;
use swath_hw::{
    EntryKind, Geometry, MmuConfigError, PendingMiss, Resolved, Tlb, TlbFill, TlbOutcome,
    Translate, TranslatedAccess, TranslationFault, TranslationStats, WalkStats,
};
use swath_lab::papers::page_buddy::design::{
    self, AddError, Added, AddedFrames, NewTlb, Scheme, TlbKind,
};

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;

/// Adds it, on the memory of the plan's binary buddy system.
///
/// # Errors
/// [`AddError`].
pub fn add() -> Result<(), AddError> {
    let (frames, tlb) = (AddedFrames::Bbs, Some(TlbKind::of::<Hashed>()));
    design::add(Added { name: "Hashed", frames, scheme: Scheme::Trad, tlb, tables: Some(write) })
}

/// The address of the `nth` place that is tried for a page, of `2^log2`.
const fn place(root: PhysAddr, log2: u32, page: u64, nth: u64) -> PhysAddr {
    let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - log2);
    PhysAddr::new(root.raw() + ENTRY_BYTES * (1 + (hash.wrapping_add(nth) & ((1 << log2) - 1))))
}

/// Writes a table of twice as many places as there are pages, or more.
///
/// # Errors
/// No run of frames is long enough, or no memory answers.
pub fn write(
    blocks: &[(Vpn, Extent)],
    memory: &dyn PhysMemory,
    frames: &mut dyn FrameAllocator,
) -> Result<PhysAddr, String> {
    let pages: u64 = blocks.iter().map(|(_, block)| block.count).sum();
    let places = (2 * pages.max(1)).next_power_of_two();
    let wanted = (ENTRY_BYTES * (places + 1)).div_ceil(4096).next_power_of_two();
    let mut found = None;
    let served = frames.allocate(wanted, &mut |block| found = found.or(Some(block)));
    served.map_err(|error| error.to_string())?;
    let found = found.filter(|block| block.count == wanted).ok_or("no run of frames")?;
    let fill = || -> Result<PhysAddr, BusError> {
        found.iter().try_for_each(|frame| memory.zero_frame(frame))?;
        let (root, log2) = (found.start.address(), places.ilog2());
        memory.write_u64(root, log2.into())?;
        for (page, frame) in
            blocks.iter().flat_map(|(page, block)| (page.raw()..).zip(block.iter()))
        {
            let mut nth = 0;
            while memory.read_u64(place(root, log2, page, nth))? != 0 {
                nth += 1;
            }
            let at = place(root, log2, page, nth);
            memory.write_u64(at, page + 1)?;
            memory.write_u64(PhysAddr::new(at.raw() + 8), frame.raw())?;
        }
        Ok(root)
    };
    fill().map_err(|error| error.to_string())
}

/// A walk: the number of places first, then one place after the other.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    root: PhysAddr,
    page: Vpn,
    log2: Option<u32>,
    nth: u64,
    reads: u64,
}

impl PendingMiss for Probe {
    fn next_read(&self) -> PhysAddr {
        self.log2.map_or(self.root, |log2| place(self.root, log2, self.page.raw(), self.nth))
    }

    fn next_read_bytes(&self) -> u64 {
        ENTRY_BYTES
    }

    fn known(&self) -> Option<(Pfn, Attributes)> {
        None
    }
}

/// A TLB of single pages with its walker, which reads the number of places once.
pub struct Hashed {
    tlb: Tlb,
    regime: Regime,
    log2: Option<u32>,
    walks: WalkStats,
}

impl NewTlb for Hashed {
    fn new(regime: Regime, geometry: Geometry) -> Result<Self, MmuConfigError> {
        let tlb = Tlb::new(geometry, swath_arch::Order::BASE)?;
        Ok(Self { tlb, regime, log2: None, walks: WalkStats::default() })
    }
}

impl Translate for Hashed {
    type Miss = Probe;

    fn format(&self) -> Format {
        self.regime.format
    }

    fn lookup(&mut self, addr: VirtAddr) -> (Option<TranslatedAccess>, u32) {
        let access = self.tlb.lookup(addr.page()).map(|hit| TranslatedAccess {
            addr: hit.frame.address() + addr.page_offset(),
            attributes: hit.attributes,
            outcome: TlbOutcome::Hit(hit.kind),
        });
        (access, 0)
    }

    fn begin(&mut self, addr: VirtAddr) -> Result<Probe, TranslationFault> {
        self.walks.regular_walks += 1;
        let (root, page) = (self.regime.root, addr.page());
        Ok(Probe { root, page, log2: self.log2, nth: 0, reads: 0 })
    }

    fn step<M: PhysMemory + ?Sized>(
        &mut self,
        miss: &mut Probe,
        memory: &M,
    ) -> Result<Option<Resolved>, TranslationFault> {
        miss.reads += 1;
        let bus = |error| TranslationFault::Bus { level: 0, error };
        let at = miss.next_read();
        let word = memory.read_u64(at).map_err(bus)?;
        let Some(log2) = miss.log2 else {
            let log2 = u32::try_from(word).ok().filter(|log2| (1..48).contains(log2));
            let descriptor = TranslationFault::Reserved { level: 0, at, descriptor: word };
            miss.log2 = Some(log2.ok_or(descriptor)?);
            self.log2 = miss.log2;
            return Ok(None);
        };
        miss.nth += 1;
        if word == 0 || miss.nth > 1 << log2 {
            return Err(TranslationFault::Translation { page: miss.page, level: 0 });
        }
        if word != miss.page.raw() + 1 {
            return Ok(None);
        }
        let frame = Pfn::new(memory.read_u64(PhysAddr::new(at.raw() + 8)).map_err(bus)?);
        let (pages, attributes) = (PageRange::new(miss.page, 1), Attributes::USER_DATA);
        let fill = TlbFill::new(EntryKind::Regular, miss.page, pages, frame, attributes);
        let fault = TranslationFault::Reserved { level: 0, at, descriptor: frame.raw() };
        Ok(Some(Resolved { frame, attributes, fill: fill.ok_or(fault)? }))
    }

    fn complete(
        &mut self,
        addr: VirtAddr,
        miss: &Probe,
        result: Result<Resolved, TranslationFault>,
    ) -> Result<TranslatedAccess, TranslationFault> {
        self.walks.regular_reads += miss.reads;
        self.walks.faults += u64::from(result.is_err());
        let Resolved { frame, attributes, fill } = result?;
        self.tlb.fill(&fill);
        let (addr, outcome) = (frame.address() + addr.page_offset(), TlbOutcome::Miss(fill.kind()));
        Ok(TranslatedAccess { addr, attributes, outcome })
    }

    fn invalidate_page(&mut self, page: Vpn) {
        self.tlb.invalidate_page(page);
    }

    fn invalidate_range(&mut self, pages: PageRange) {
        self.tlb.invalidate_range(pages);
    }

    fn invalidate_all(&mut self) {
        self.tlb.invalidate_all();
        self.log2 = None;
    }

    fn set_root(&mut self, root: PhysAddr) -> Result<(), MmuConfigError> {
        self.regime.root = root;
        self.invalidate_all();
        Ok(())
    }

    fn stats(&self) -> TranslationStats {
        TranslationStats { l1: self.tlb.stats(), walk: self.walks, ..TranslationStats::default() }
    }

    fn reset_stats(&mut self) {
        self.tlb.reset_stats();
        self.walks = WalkStats::default();
    }
}

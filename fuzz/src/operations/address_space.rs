//! An address space in every format and with every kind of coalescing; the hardware's walker and
//! its TLBs are the judges.

use std::collections::BTreeMap;
use std::ops::Range;

use swath_arch::testing::Random;
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, MemoryKind, Order, PageRange, Pfn, Vpn,
};
use swath_frame::FrameAllocator;
use swath_hw::{Geometry, Mmu, TranslationFault, WalkOrder, walk};
use swath_vm::{
    AddressSpace, DemandPagingError, EagerPagingError, MapPagesError, PageSizeError, UnmapError,
};

use super::bus::{Bus, Frames, with_bus};
use super::memory::{STEPS, STEPS_MAX, extent};

/// Frames of the tables: all memory that answers.
const TABLES: Extent = Extent::new(Pfn::new(0x8000), 128);
/// Frames that the space's own allocator gives to pages.
const DATA: Extent = Extent::new(Pfn::new(0x1003), 0x155);
/// Pages of the window in which everything happens.
const WINDOW: u64 = 0x240;

/// Page by page: frame, order and attributes of its mapping.
type Model = BTreeMap<u64, (u64, Order, Attributes)>;

type Space<'m> = AddressSpace<&'m Bus<'m>, &'m Frames, &'m Frames>;

struct Bench<'m> {
    bus: &'m Bus<'m>,
    data: &'m Frames,
    tables: &'m Frames,
    space: Space<'m>,
    mmus: [Mmu; 2],
    model: Model,
    /// First page of the window.
    first: u64,
    random: Random,
}

/// Draws a format, a coalescing and a window, and maps and unmaps in it. After each operation its own
/// pages are walked, those at its ends and beside it with all that they claim of others, some pages
/// are looked for in the TLBs, and the tables' frames are counted; all pages of the window with all
/// that they claim, and the invariants of the space, the tables and the TLBs are looked at after 1, 2,
/// 4... operations and at the end.
pub fn run(bytes: &[u8]) {
    with_bus(TABLES, |bus| drive(bus, bytes));
}

fn drive(bus: &Bus<'_>, bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let format = Format::ALL[random.index(Format::ALL.len())];
    let coalescing = coalescing(format, &mut random);
    let end = match format {
        Format::ArmV7 => 1 << 20,
        Format::ArmV8 => 1 << 36,
        Format::X86_64 | Format::Sv48 => 1 << 35,
        Format::Sv39 => 1 << 26,
    };
    let first = [0, 0x5_5500, end - WINDOW][random.index(3)];
    let (data, tables) = (Frames::new(DATA), Frames::new(TABLES));
    let space = AddressSpace::new(format, coalescing, bus, &data, &tables).expect("room for it");
    let mmu = |geometry, order| Mmu::new(space.regime(), geometry, order).expect("a good regime");
    let mmus = [
        mmu(Geometry::default(), WalkOrder::RegularFirst),
        mmu(Geometry { sets: 4, ways: 2, index_shift: 0 }, WalkOrder::AnchorFirst),
    ];
    let (model, data, tables) = (Model::new(), &data, &tables);
    let mut bench = Bench { bus, data, tables, space, mmus, model, first, random };
    for step in 1..=STEPS_MAX {
        if bench.random.is_spent() {
            break;
        }
        let touched = bench.step();
        bench.check_touched(touched);
        if STEPS.compares_all(step) {
            bench.check();
        }
    }
    bench.check();
    drop(bench);
    tables.check(0);
    data.check(0);
}

fn coalescing(format: Format, random: &mut Random) -> Coalescing {
    let bits = [3, 8, format.beside_half_bits() as u8][random.index(3)];
    let beside = ContiguityField::Beside { bits };
    let distance = Order::known([1, 3, 6][random.index(3)]);
    match random.below(7) {
        0 => Coalescing::None,
        1 => Coalescing::Pcad(ContiguityField::Descriptor),
        2 => Coalescing::Pcad(beside),
        3 => Coalescing::Anchor { field: ContiguityField::Descriptor, distance },
        4 => Coalescing::Pcad(ContiguityField::Line),
        5 => Coalescing::Anchor { field: ContiguityField::Line, distance },
        _ => Coalescing::Anchor { field: beside, distance },
    }
}

impl Bench<'_> {
    fn range(&mut self) -> PageRange {
        let start = self.random.below(WINDOW);
        let count = 1 + self.random.below([4, 40, 200][self.random.clone().index(3)]);
        PageRange::new(Vpn::new(self.first + start), count.min(WINDOW - start))
    }

    /// All of them, or but for one that is drawn.
    fn attributes(&mut self) -> Attributes {
        let bits = self.random.below(64);
        Attributes {
            writable: bits & 1 == 0,
            user: bits & 2 == 0,
            executable: bits & 4 == 0,
            global: bits & 8 != 0,
            accessed: bits & 16 == 0,
            memory: if bits & 32 == 0 { MemoryKind::Normal } else { MemoryKind::Device },
        }
    }

    fn is_free(&self, range: PageRange) -> bool {
        self.model.range(range.start.raw()..range.end().raw()).next().is_none()
    }

    fn insert(&mut self, page: u64, frames: Extent, order: Order, attributes: Attributes) {
        for (page, frame) in (page..).zip(frames.iter()) {
            let before = self.model.insert(page, (frame.raw(), order, attributes));
            assert_eq!(before, None, "page {page:#x} is mapped twice");
        }
    }

    /// What a refusal for this reason says of the range.
    fn refused(&self, range: PageRange, error: MapPagesError, faulty: bool) {
        match error {
            MapPagesError::AlreadyMapped { page } => {
                let lowest = self.model.range(range.start.raw()..range.end().raw()).next();
                assert_eq!(lowest.map(|(&page, _)| page), Some(page.raw()), "{range}");
            }
            MapPagesError::NoTable(_) => {
                assert!(faulty || self.tables.buddy.borrow().free_frames() < 8, "{range}");
            }
            error => panic!("{range}: {error}"),
        }
    }

    /// One operation; the pages that it is about.
    fn step(&mut self) -> PageRange {
        let op = self.random.below(16);
        let faulty = self.random.one_in(4);
        self.tables.fault.set(if faulty { 1 + self.random.below(4) } else { 0 });
        let touched = match op {
            0..=3 => self.map(faulty),
            4..=5 => self.map_larger(faulty),
            6..=8 => self.eager(faulty),
            9..=10 => self.demand(faulty),
            _ => self.unmap(),
        };
        self.tables.fault.set(0);
        touched
    }

    fn map(&mut self, faulty: bool) -> PageRange {
        let (range, attributes) = (self.range(), self.attributes());
        let last = 1 << (self.space.regime().format.pa_bits() - 12);
        let before = self.model.get(&range.start.raw().wrapping_sub(1)).map(|known| known.0 + 1);
        // At the end of what the format reaches, or where the page before goes on.
        let start = match (self.random.below(4), before) {
            (0, _) => last - range.count,
            (1, Some(next)) if next + range.count <= last => next,
            _ => 0x2000 + self.random.below(0x100),
        };
        let block = extent(start, range.count);
        let free = self.is_free(range);
        match self.space.map(range.start, block, attributes) {
            Ok(()) => self.insert(range.start.raw(), block, Order::BASE, attributes),
            Err(error) => {
                assert!(!free || faulty || matches!(error, MapPagesError::NoTable(_)), "{error}");
                self.refused(range, error, faulty);
            }
        }
        range
    }

    fn map_larger(&mut self, faulty: bool) -> PageRange {
        let format = self.space.regime().format;
        let orders: Vec<Order> =
            format.levels().iter().flat_map(|level| level.leaves).copied().collect();
        let order = orders[self.random.index(orders.len())];
        let (range, attributes) = (self.range(), self.attributes());
        let page = range.start.raw() & !(order.frames() - 1);
        let range = PageRange::new(Vpn::new(page), order.frames());
        // Others would take the model long.
        if order.k() > 9 {
            return PageRange::new(range.start, 1);
        }
        let frame = (0x100 + self.random.below(0x100)) << order.k();
        match self.space.map_page_size(range.start, Pfn::new(frame), order, attributes) {
            Ok(()) => self.insert(page, extent(frame, order.frames()), order, attributes),
            // Any page of the range may be named.
            Err(PageSizeError::Map(MapPagesError::AlreadyMapped { page })) => {
                assert!(range.contains(page) && !self.is_free(range), "{range}, {page}");
            }
            Err(PageSizeError::Map(error)) => self.refused(range, error, faulty),
            Err(error) => panic!("{range}: {error}"),
        }
        range
    }

    fn eager(&mut self, faulty: bool) -> PageRange {
        let (range, attributes) = (self.range(), self.attributes());
        let mut blocks = Vec::new();
        match self.space.allocate_eager(range, attributes, &mut |block| blocks.push(block)) {
            Ok(()) => {
                let mut page = range.start.raw();
                for block in blocks {
                    self.insert(page, block, Order::BASE, attributes);
                    page += block.count;
                }
                assert_eq!(page, range.end().raw());
            }
            Err(EagerPagingError::OutOfFrames { wanted, free }) => assert!(wanted > free),
            Err(EagerPagingError::Map(error)) => self.refused(range, error, faulty),
        }
        range
    }

    fn demand(&mut self, faulty: bool) -> PageRange {
        let range = PageRange::new(self.range().start, 1);
        let attributes = self.attributes();
        match self.space.fault(range.start, attributes) {
            Ok(frame) => {
                self.insert(range.start.raw(), Extent::new(frame, 1), Order::BASE, attributes);
            }
            Err(DemandPagingError::OutOfFrames) => {
                assert_eq!(self.data.buddy.borrow().free_frames(), 0);
            }
            Err(DemandPagingError::Map(error)) => self.refused(range, error, faulty),
        }
        range
    }

    /// Fills the TLBs, unmaps, and carries out the invalidation that is owed.
    fn unmap(&mut self) -> PageRange {
        let range = self.range();
        for page in range.iter().take(16) {
            self.access(page.raw());
        }
        let unmapped = self.space.unmap(range);
        let whole = range.iter().all(|page| self.model.contains_key(&page.raw()));
        match unmapped {
            Ok(flush) => {
                assert!(whole, "{range} was not mapped");
                self.mmus.iter_mut().for_each(|mmu| mmu.invalidate_range(flush.range));
                for page in range.iter() {
                    self.model.remove(&page.raw());
                }
                // Whatever the TLBs still hold of them shows now.
                for page in range.iter().take(16) {
                    self.access(page.raw());
                }
            }
            Err(UnmapError::NotMapped { page }) => {
                assert!(!self.model.contains_key(&page.raw()), "{page} is mapped");
            }
            Err(UnmapError::Partial { page, order }) => {
                assert_eq!(self.model[&page.raw()].1, order, "page {page}");
                assert_ne!(order, Order::BASE);
            }
            Err(error) => panic!("{range}: {error}"),
        }
        range
    }

    fn access(&mut self, page: u64) {
        let known = self.model.get(&page);
        for mmu in &mut self.mmus {
            match (mmu.access(Vpn::new(page).address(), self.bus), known) {
                (Ok(access), Some(&(frame, _, attributes))) => {
                    assert_eq!(access.addr.frame().raw(), frame, "page {page:#x}");
                    assert_eq!(access.attributes, attributes, "page {page:#x}");
                }
                (Err(TranslationFault::Translation { .. }), None) => {}
                (other, known) => panic!("page {page:#x}: {other:?}, expected {known:?}"),
            }
        }
    }

    /// The page as the walker sees it, and what it claims of others; `run` are the pages around it
    /// that it may know of.
    fn walk(&self, page: u64, run: impl FnOnce() -> Range<u64>) {
        let regime = self.space.regime();
        let known = self.model.get(&page).copied();
        let number = Vpn::new(page);
        match (walk(&regime, number, self.bus, &mut 0), known) {
            (Ok(found), Some(known)) => {
                let seen = (found.frame.raw(), found.order, found.attributes);
                assert_eq!(seen, known, "page {page:#x}");
                let (pages, frames) = found.block(regime.format, number);
                assert_eq!(
                    (pages.count, frames.start + (number - pages.start)),
                    (frames.count, found.frame)
                );
                let (run, pages) = (run(), pages.start.raw()..pages.end().raw());
                let within = run.start <= pages.start && pages.end <= run.end;
                assert!(within, "{page:#x} claims {pages:#x?} of {run:#x?}");
            }
            (Err(TranslationFault::Translation { page: at, .. }), None) => {
                assert_eq!(at, number);
            }
            (other, known) => panic!("page {page:#x}: {other:?}, expected {known:?}"),
        }
    }

    /// The mapped pages, as runs of which each page leads to the frame after the one before, with the
    /// same order and attributes.
    fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut next = None;
        for (&page, &(frame, order, attributes)) in &self.model {
            match runs.last_mut() {
                Some(run) if next == Some((page, frame, order, attributes)) => run.end += 1,
                _ => runs.push(page..page + 1),
            }
            next = Some((page + 1, frame + 1, order, attributes));
        }
        runs
    }

    /// The run around a mapped page.
    fn run(&self, page: u64) -> Range<u64> {
        let follows = |page: u64| {
            let next = self.model.get(&(page + 1));
            let own = self.model.get(&page);
            own.is_some_and(|&(frame, order, attributes)| {
                next == Some(&(frame + 1, order, attributes))
            })
        };
        let (mut start, mut end) = (page, page + 1);
        while start > 0 && follows(start - 1) {
            start -= 1;
        }
        while follows(end - 1) {
            end += 1;
        }
        start..end
    }

    /// Looks at what the operation was about.
    fn check_touched(&mut self, touched: PageRange) {
        let (first, end) = (touched.start.raw(), touched.end().raw());
        for page in first..end {
            // What those between claim waits for the look at everything.
            let all =
                || if page == first || page == end - 1 { self.run(page) } else { 0..u64::MAX };
            self.walk(page, all);
        }
        let window = self.first..self.first + WINDOW;
        for beside in [first.wrapping_sub(1), end].into_iter().filter(|page| window.contains(page))
        {
            self.walk(beside, || self.run(beside));
        }
        for _ in 0..4 {
            let page = self.first + self.random.below(WINDOW);
            self.access(page);
        }
        self.tables.count(self.space.table_frames());
    }

    /// Looks at everything: every page of the window, and what it claims of others.
    fn check(&mut self) {
        let runs = self.runs();
        for page in self.first..self.first + WINDOW {
            let after = runs.partition_point(|run| run.end <= page);
            self.walk(page, || runs[after].clone());
        }
        for mmu in &self.mmus {
            assert_eq!(mmu.tlb().check(), Ok(()));
        }
        self.tables.check(self.space.table_frames());
        if let Err(fault) = self.space.check() {
            panic!("{fault}");
        }
    }
}

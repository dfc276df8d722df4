//! Software against hardware, through bytes alone.
//!
//! `swath-vm` writes page tables over the page buddy allocators, `swath-hw`
//! reads them with its own walker and its TLBs, and neither knows the other. A
//! flat model of page -> frame stands between the two: after every random
//! operation each page is what the model says, for the walker and for every
//! TLB. What tables and TLB entries claim of a page's neighbours is held
//! against the model too.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rand::RngExt;
use swath_arch::formats::line;
use swath_arch::formats::{armv7, armv8, riscv, x86_64};
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Field, Format, MemoryKind, Order, PageRange,
    Pfn, PhysMemory, Scattered, SliceMemory, VirtAddr, Vpn,
};
use swath_frame::{BuddyConfig, FrameAllocator};
use swath_hw::{
    Geometry, LeafContiguity, Mmu, TlbOutcome, TranslationFault, Walk, WalkOrder, WalkStep, walk,
};
use swath_lab::source::memory::{Allocator, Random, new_allocator, random};
use swath_vm::{
    AddressSpace, DemandPagingError, EagerPagingError, MapPagesError, PageSizeError, UnmapError,
};

type Space<'m> = AddressSpace<&'m SliceMemory<'m>, &'m RefCell<Allocator>, &'m RefCell<Allocator>>;

const DATA: Attributes = Attributes::USER_DATA;

/// Frames that the allocators give to pages; nobody reads or writes them.
const POOL: Extent = Extent::new(Pfn::new(0x1000), 0x1000);

/// Frames of the tables: all memory that answers.
const TABLES: Extent = Extent::new(Pfn::new(0x8000), 0x200);

const WINDOW_PAGES: u64 = 0x400;

/// BBS, and PBS for the page sizes of ARMv7 and of the others.
const ALLOCATORS: [(&str, BuddyConfig); 3] = [
    ("BBS", BuddyConfig::BBS),
    ("PBS, G=4", BuddyConfig::PBS_ARMV7),
    ("PBS, G=9", BuddyConfig::PBS_ARMV8),
];

/// Every kind of coalescing, in the bits that are free and in ideal ones.
fn coalescings(format: Format, random: &mut Random) -> [Coalescing; 7] {
    let bits = [3, 8, format.beside_half_bits() as u8][random.random_range(0..3)];
    let distance = Order::known([1, 3, 6][random.random_range(0..3)]);
    let beside = ContiguityField::Beside { bits };
    let anchor = |field| Coalescing::Anchor { field, distance };
    [
        Coalescing::None,
        Coalescing::Pcad(ContiguityField::Descriptor),
        Coalescing::Pcad(ContiguityField::Line),
        Coalescing::Pcad(beside),
        anchor(ContiguityField::Descriptor),
        anchor(ContiguityField::Line),
        anchor(beside),
    ]
}

/// The largest Ascend, Descend and anchor's contiguity that can be written.
fn widest(format: Format, coalescing: Coalescing) -> (u64, u64) {
    let most = |field, places: [Scattered; 2]| match field {
        ContiguityField::Descriptor => (places[0].max(), places[1].max()),
        ContiguityField::Line => (line::max(format), line::max(format)),
        ContiguityField::Beside { bits } => ((1 << bits) - 1, (1 << bits) - 1),
    };
    match coalescing {
        Coalescing::None => (0, 0),
        Coalescing::Pcad(field) => most(field, [format.ascend(), format.descend()]),
        Coalescing::Anchor { field, .. } => most(field, [format.anchor(); 2]),
    }
}

/// Where everything happens: at the first pages, across the middle of the first
/// 32 bits or at the last pages of the lower half, and at the last of all.
fn windows(format: Format) -> [PageRange; 3] {
    let [middle, end] = match format {
        Format::ArmV7 => [0x5_5500, 1 << 20],
        Format::ArmV8 => [0x5_5500, 1 << 36],
        Format::X86_64 | Format::Sv48 => [(1 << 35) - WINDOW_PAGES, 1 << 52],
        Format::Sv39 => [(1 << 26) - WINDOW_PAGES, 1 << 52],
    };
    [0, middle, end - WINDOW_PAGES].map(|start| PageRange::new(Vpn::new(start), WINDOW_PAGES))
}

/// The TLBs that are held against the model, with the order of AT's walks.
fn mmus(space: &Space<'_>) -> Vec<Mmu> {
    [
        (Geometry::default(), WalkOrder::RegularFirst),
        (Geometry { sets: 4, ways: 2, index_shift: 0 }, WalkOrder::AnchorFirst),
        (Geometry { sets: 3, ways: 2, index_shift: 3 }, WalkOrder::RegularFirst),
    ]
    .map(|(geometry, order)| Mmu::new(space.regime(), geometry, order).unwrap())
    .into()
}

/// An allocator over [`POOL`], of which random extents are in use.
fn fragmented(config: BuddyConfig, random: &mut Random) -> RefCell<Allocator> {
    let mut allocator: Allocator = new_allocator(POOL, config, false).unwrap();
    let mut at = POOL.start.raw();
    while at < POOL.end().raw() {
        let count = random.random_range(1..=200).min(POOL.end().raw() - at);
        allocator.free(Extent::new(Pfn::new(at), count)).unwrap();
        at += count + random.random_range(1..=20);
    }
    RefCell::new(allocator)
}

fn tables() -> RefCell<Allocator> {
    RefCell::new(new_allocator(TABLES, BuddyConfig::BBS, true).unwrap())
}

fn words() -> Vec<u64> {
    // Full of ones: nobody may rely on zero.
    vec![u64::MAX; TABLES.count as usize * 512]
}

/// What the model knows of a page.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Known {
    frame: u64,
    order: Order,
    attributes: Attributes,
}

/// Page by page; a larger page at its head alone.
#[derive(Clone, Default)]
struct Model(BTreeMap<u64, Known>);

impl Model {
    fn get(&self, page: u64) -> Option<Known> {
        let (&head, known) = self.0.range(..=page).next_back()?;
        let frame = known.frame + (page - head);
        (page - head < known.order.frames()).then_some(Known { frame, ..*known })
    }

    fn is_free(&self, range: PageRange) -> bool {
        self.get(range.start.raw()).is_none()
            && self.0.range(range.start.raw()..range.end().raw()).next().is_none()
    }

    fn insert(&mut self, page: u64, block: Extent, attributes: Attributes) {
        for (page, frame) in (page..).zip(block.iter()) {
            let known = Known { frame: frame.raw(), order: Order::BASE, attributes };
            assert_eq!(self.0.insert(page, known), None);
        }
    }

    fn remove(&mut self, range: PageRange) {
        let mut rest = self.0.split_off(&range.start.raw());
        self.0.append(&mut rest.split_off(&range.end().raw()));
    }

    /// A random mapped page, the head of a larger one.
    fn pick(&self, random: &mut Random) -> Option<(u64, Known)> {
        let n = random.random_range(0..self.0.len().max(1));
        self.0.iter().nth(n).map(|(&page, &known)| (page, known))
    }

    /// Pages to look at: the windows whole, larger pages at their edges and at
    /// random places.
    fn pages(&self, format: Format, random: &mut Random) -> Vec<u64> {
        let mut pages: Vec<u64> =
            windows(format).iter().flat_map(|w| w.iter()).map(Vpn::raw).collect();
        for (&head, known) in self.0.iter().filter(|(_, known)| known.order != Order::BASE) {
            let last = head + known.order.frames() - 1;
            pages.extend([head - 1, head, last, last + 1]);
            pages.extend((0..4).map(|_| random.random_range(head..=last)));
        }
        pages
    }
}

/// What the random operations came to, so that no check passes for want of
/// cases.
#[derive(Default, Debug)]
struct Tally {
    mapped: u64,
    larger: u64,
    eager: u64,
    demand: u64,
    unmapped: u64,
    refused: u64,
    /// Pages that a TLB entry still translated before the owed invalidation.
    stale: u64,
    /// Pages that tables claimed besides the one walked for.
    claimed: u64,
    hits: u64,
}

struct Bench<'m> {
    memory: &'m SliceMemory<'m>,
    space: Space<'m>,
    mmus: Vec<Mmu>,
    model: Model,
    random: Random,
    tally: Tally,
}

impl Bench<'_> {
    fn format(&self) -> Format {
        self.space.regime().format
    }

    fn attributes(&mut self) -> Attributes {
        let mut bit = || self.random.random::<bool>();
        Attributes {
            writable: bit(),
            user: bit(),
            executable: bit(),
            global: bit(),
            accessed: bit(),
            memory: if bit() { MemoryKind::Normal } else { MemoryKind::Device },
        }
    }

    fn range(&mut self) -> PageRange {
        let window = windows(self.format())[self.random.random_range(0..3)];
        let count_max = [4, 40, 200][self.random.random_range(0..3)];
        let count = self.random.random_range(1..=count_max);
        let start = self.random.random_range(0..=WINDOW_PAGES - count);
        PageRange::new(Vpn::new(window.start.raw() + start), count)
    }

    /// Frames that somebody else gives: among the allocator's, at the end of
    /// what the format reaches, or where the page before goes on.
    fn foreign(&mut self, range: PageRange) -> Extent {
        let end = 1 << (self.format().pa_bits() - 12);
        let before = range.start.raw().checked_sub(1).and_then(|page| self.model.get(page));
        let start = match (self.random.random_range(0..3), before) {
            (0, _) => end - range.count - self.random.random_range(0..3),
            (1, Some(before)) if before.frame + 1 + range.count <= end => before.frame + 1,
            _ => POOL.start.raw() + self.random.random_range(0..0x100),
        };
        Extent::new(Pfn::new(start), range.count)
    }

    fn map(&mut self) {
        let range = self.range();
        let (block, attributes) = (self.foreign(range), self.attributes());
        match self.space.map(range.start, block, attributes) {
            Ok(()) => {
                self.model.insert(range.start.raw(), block, attributes);
                self.tally.mapped += 1;
                self.fresh(range.start.raw(), block.count);
            }
            Err(error) => {
                assert!(matches!(error, MapPagesError::AlreadyMapped { .. }), "{error}");
                self.refuse(range);
            }
        }
    }

    /// The model does not allow it either.
    fn refuse(&mut self, range: PageRange) {
        assert!(!self.model.is_free(range));
        self.tally.refused += 1;
    }

    fn map_larger(&mut self) {
        let orders: Vec<Order> =
            self.format().levels().iter().flat_map(|level| level.leaves).copied().collect();
        let order = orders[self.random.random_range(0..orders.len())];
        let range = self.range();
        // Pages of an upper level stand apart, or nothing else would fit.
        let page = if order.k() > 9 {
            (1 + self.random.random_range(0..3)) << order.k()
        } else {
            range.start.raw() & !(order.frames() - 1)
        };
        let supersection = self.format() == Format::ArmV7 && order.k() == 12;
        let pa_bits = if supersection { 40 } else { self.format().pa_bits() };
        let places = 1_u64 << (pa_bits - 12 - order.k());
        let place =
            [places - 1, self.random.random_range(0..places)][self.random.random_range(0..2)];
        let frame = place << order.k();
        let attributes = self.attributes();
        let range = PageRange::new(Vpn::new(page), order.frames());
        match self.space.map_page_size(range.start, Pfn::new(frame), order, attributes) {
            Ok(()) => {
                self.model.0.insert(page, Known { frame, order, attributes });
                self.tally.larger += u64::from(order != Order::BASE);
            }
            Err(PageSizeError::Map(MapPagesError::AlreadyMapped { .. })) => {
                assert!(!self.model.is_free(range), "{range}, order {order}");
                self.tally.refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn eager(&mut self) {
        let (range, attributes) = (self.range(), self.attributes());
        let mut blocks = vec![];
        match self.space.allocate_eager(range, attributes, &mut |block| blocks.push(block)) {
            Ok(()) => {
                let mut page = range.start.raw();
                for block in blocks {
                    self.model.insert(page, block, attributes);
                    self.fresh(page, block.count);
                    page += block.count;
                }
                assert_eq!(page, range.end().raw());
                self.tally.eager += 1;
            }
            Err(EagerPagingError::OutOfFrames { wanted, free }) => assert!(wanted > free),
            Err(EagerPagingError::Map(MapPagesError::AlreadyMapped { .. })) => self.refuse(range),
            Err(error) => panic!("{error}"),
        }
    }

    fn demand(&mut self) {
        let range = PageRange::new(self.range().start, 1);
        let attributes = self.attributes();
        match self.space.fault(range.start, attributes) {
            Ok(frame) => {
                self.model.insert(range.start.raw(), Extent::new(frame, 1), attributes);
                self.tally.demand += 1;
            }
            Err(DemandPagingError::Map(MapPagesError::AlreadyMapped { .. })) => self.refuse(range),
            Err(DemandPagingError::OutOfFrames) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Unmaps pages that follow one another, from a random one on, and carries
    /// out the invalidation that is owed.
    fn unmap(&mut self) {
        let Some((start, known)) = self.model.pick(&mut self.random) else { return };
        let want_max = [3, 60, 300][self.random.random_range(0..3)];
        let want = self.random.random_range(1..=want_max);
        let mut end = start + known.order.frames();
        while let Some(next) = self.model.0.get(&end)
            && end - start < want
        {
            end += next.order.frames();
        }
        let range = PageRange::new(Vpn::new(start), end - start);
        self.warm(range);
        if known.order != Order::BASE {
            let inside = PageRange::new(Vpn::new(start + 1), end - start - 1);
            let partial = UnmapError::Partial { page: range.start, order: known.order };
            assert_eq!(self.space.unmap(inside), Err(partial));
        }
        if self.model.get(end).is_none()
            && !windows(self.format()).iter().any(|w| w.end().raw() == end)
        {
            let beyond = PageRange::new(range.start, range.count + 1);
            let page = Vpn::new(end);
            assert_eq!(self.space.unmap(beyond), Err(UnmapError::NotMapped { page }));
        }
        let flush = self.space.unmap(range).unwrap();
        self.model.remove(range);
        self.tally.unmapped += 1;
        for mmu in &mut self.mmus {
            let ends = [range.start, Vpn::new(end - 1)];
            let stale =
                range.iter().take(300).chain(ends).filter(|&page| mmu.tlb().peek(page).is_some());
            self.tally.stale += stale.count() as u64;
            mmu.invalidate_range(flush.range);
        }
    }

    /// Fills the TLBs with what is about to change, some entries from pages
    /// beside it.
    fn warm(&mut self, range: PageRange) {
        let low = range.start.raw().saturating_sub(4);
        let near = (low..range.end().raw() + 4).take(300);
        let pages: Vec<u64> = near.filter(|&page| self.model.get(page).is_some()).collect();
        for _ in 0..24 {
            let page = pages[self.random.random_range(0..pages.len())];
            self.access(page);
        }
    }

    /// A block just mapped says all that its fields can hold; what goes on from it in a line
    /// is claimed besides, if rightly ([`claims`](Self::claims) sees to that).
    fn fresh(&self, start: u64, count: u64) {
        let regime = self.space.regime();
        let (ascend_max, descend_max) = widest(regime.format, regime.coalescing);
        let (Coalescing::Pcad(field) | Coalescing::Anchor { field, .. }) = regime.coalescing else {
            return;
        };
        let says = |said: u64, block: u64| match field {
            ContiguityField::Line => assert!(said >= block, "{said} of {block}"),
            _ => assert_eq!(said, block),
        };
        for page in start..start + count {
            let found = walk(&regime, Vpn::new(page), self.memory, &mut 0).unwrap();
            let after = start + count - page;
            match found.contiguity {
                LeafContiguity::None => assert!(match regime.coalescing {
                    Coalescing::Anchor { distance, .. } => page & (distance.frames() - 1) != 0,
                    _ => false,
                }),
                LeafContiguity::Pcad { ascend, descend } => {
                    says(ascend, (after - 1).min(ascend_max));
                    says(descend, (page - start).min(descend_max));
                }
                LeafContiguity::Anchor { count } => says(count, after.min(ascend_max)),
            }
        }
    }

    /// One access through every TLB.
    fn access(&mut self, page: u64) {
        let known = self.model.get(page);
        for mmu in &mut self.mmus {
            let offset = (page * 0x51) & 0xfff;
            let at = VirtAddr::new(Vpn::new(page).address().raw() | offset);
            match (mmu.access(at, self.memory), known) {
                (Ok(access), Some(known)) => {
                    assert_eq!(access.addr.raw(), known.frame << 12 | offset, "page {page:#x}");
                    assert_eq!(access.attributes, known.attributes, "page {page:#x}");
                    self.tally.hits += u64::from(matches!(access.outcome, TlbOutcome::Hit(_)));
                }
                (Err(TranslationFault::Translation { .. }), None) => {}
                (other, known) => panic!("page {page:#x}: {other:?}, expected {known:?}"),
            }
        }
    }

    /// What the table claims beside the page: each of them is mapped by a base
    /// page, alike, and as far away in frames as in pages.
    fn claims(&mut self, page: u64, known: Known, contiguity: LeafContiguity) {
        let claimed = match contiguity {
            LeafContiguity::None => return,
            LeafContiguity::Pcad { ascend, descend } => {
                page.checked_sub(descend).expect("Descend below page 0")..page + ascend + 1
            }
            LeafContiguity::Anchor { count } => page..page + count,
        };
        for other in claimed.clone() {
            let Known { frame, order, attributes } =
                self.model.get(other).unwrap_or_else(|| panic!("{page:#x} claims {other:#x}"));
            assert_eq!(frame.wrapping_sub(known.frame), other.wrapping_sub(page), "{other:#x}");
            assert_eq!((order, attributes), (Order::BASE, known.attributes), "{other:#x}");
        }
        self.tally.claimed += (claimed.end - claimed.start).saturating_sub(1);
    }

    /// Every page, for the walker, for software, and for what the TLBs hold.
    fn check(&mut self) {
        let regime = self.space.regime();
        let pages = self.model.pages(regime.format, &mut self.random);
        for &page in &pages {
            let known = self.model.get(page);
            let number = Vpn::new(page);
            for mmu in &self.mmus {
                if let Some(hit) = mmu.tlb().peek(number) {
                    let held = Some((hit.frame.raw(), hit.attributes));
                    assert_eq!(held, known.map(|k| (k.frame, k.attributes)), "page {page:#x}");
                }
            }
            let mut reads = 0;
            match (walk(&regime, number, self.memory, &mut reads), known) {
                (Ok(found), Some(known)) => {
                    let seen = Known {
                        frame: found.frame.raw(),
                        order: found.order,
                        attributes: found.attributes,
                    };
                    assert_eq!(seen, known, "page {page:#x}");
                    self.claims(page, known, found.contiguity);
                }
                (Err(TranslationFault::Translation { page: at, .. }), None) => {
                    assert_eq!(at, number);
                }
                (Err(TranslationFault::NotCanonical { .. }), None) => {
                    assert!(!regime.format.is_canonical(number.address()) || page >> 52 != 0);
                }
                (other, known) => panic!("page {page:#x}: {other:?}, expected {known:?}"),
            }
            assert!(reads <= regime.format.levels().len() as u64);
        }
        for _ in 0..40 {
            let window = windows(regime.format)[self.random.random_range(0..3)];
            let inside = self.random.random_range(0..WINDOW_PAGES);
            self.access(window.start.raw() + inside);
            if let Some((head, known)) = self.model.pick(&mut self.random) {
                let inside = self.random.random_range(0..known.order.frames());
                self.access(head + inside);
            }
        }
        for mmu in &self.mmus {
            mmu.tlb().check().unwrap();
        }
        // Last, so that the hardware finds what is wrong by itself.
        self.space.check().unwrap();
    }

    fn sweep(&mut self) {
        for page in self.model.pages(self.format(), &mut self.random) {
            if page >> 52 == 0 && self.format().is_canonical(Vpn::new(page).address()) {
                self.access(page);
            }
        }
    }
}

/// Random operations on one space; all frames are back in the end.
fn run(format: Format, coalescing: Coalescing, config: BuddyConfig, mut random: Random) -> Tally {
    let (data, tables) = (fragmented(config, &mut random), tables());
    let free = data.borrow().free_frames();
    let mut words = words();
    let memory = SliceMemory::new(TABLES.start, &mut words);
    let space = AddressSpace::new(format, coalescing, &memory, &data, &tables).unwrap();
    let mmus = mmus(&space);
    let (model, tally) = Default::default();
    let mut bench = Bench { memory: &memory, space, mmus, model, random, tally };
    for step in 0..60 {
        match bench.random.random_range(0..16) {
            0..=3 => bench.map(),
            4..=5 => bench.map_larger(),
            6..=9 => bench.eager(),
            10..=11 => bench.demand(),
            _ => bench.unmap(),
        }
        bench.check();
        if step % 20 == 19 {
            bench.sweep();
        }
    }
    let tally = bench.tally;
    drop(bench.space);
    data.borrow().check().unwrap();
    assert_eq!(data.borrow().free_frames(), free);
    assert_eq!(tables.borrow().free_frames(), TABLES.count);
    tally
}

fn software_against_hardware(format: Format) {
    for seed in 1..=2 {
        let mut random = random(seed, 0);
        for coalescing in coalescings(format, &mut random) {
            for (name, config) in ALLOCATORS {
                println!("seed {seed}: {format:?}, {coalescing:?}, {name}");
                let tally = run(format, coalescing, config, random.clone());
                println!("  {tally:?}");
                let Tally {
                    mapped,
                    larger,
                    eager,
                    demand,
                    unmapped,
                    refused,
                    stale,
                    hits,
                    claimed,
                } = tally;
                for count in [mapped, larger, eager, demand, unmapped, refused, stale, hits] {
                    assert!(count > 0);
                }
                assert_eq!(claimed > 0, coalescing != Coalescing::None);
            }
        }
    }
}

#[test]
fn software_against_hardware_armv7() {
    software_against_hardware(Format::ArmV7);
}

#[test]
fn software_against_hardware_armv8() {
    software_against_hardware(Format::ArmV8);
}

#[test]
fn software_against_hardware_x86_64() {
    software_against_hardware(Format::X86_64);
}

#[test]
fn software_against_hardware_sv39() {
    software_against_hardware(Format::Sv39);
}

#[test]
fn software_against_hardware_sv48() {
    software_against_hardware(Format::Sv48);
}

/// A small space with the memory that it lives in, for the named cases.
fn with_space(
    format: Format,
    coalescing: Coalescing,
    body: impl FnOnce(&SliceMemory<'_>, Space<'_>),
) {
    let (data, tables) =
        (RefCell::new(new_allocator(POOL, BuddyConfig::BBS, true).unwrap()), tables());
    let mut words = words();
    let memory = SliceMemory::new(TABLES.start, &mut words);
    let space = AddressSpace::new(format, coalescing, &memory, &data, &tables).unwrap();
    body(&memory, space);
}

/// A block of sixteen pages is in the TLB, demanded by its first page; its
/// second page is unmapped and mapped elsewhere. The TLB goes on with the old
/// frame until what `unmap` says is done, and then the table counts.
#[test]
fn without_the_owed_invalidation_a_stale_translation_is_seen() {
    for format in Format::ALL {
        for coalescing in coalescings(format, &mut random(5, 0)) {
            with_space(format, coalescing, |memory, mut space| {
                let frames = Extent::new(Pfn::new(0x4000), 16);
                space.map(Vpn::new(0x40), frames, DATA).unwrap();
                let mut mmu =
                    Mmu::new(space.regime(), Geometry::default(), WalkOrder::default()).unwrap();
                let first = VirtAddr::new(0x40_123);
                let second = VirtAddr::new(0x41_123);
                assert_eq!(mmu.access(first, memory).unwrap().addr.raw(), 0x400_0123);
                if coalescing == Coalescing::None {
                    mmu.access(second, memory).unwrap();
                }
                assert!(mmu.tlb().peek(second.page()).is_some(), "{coalescing:?}");

                let flush = space.unmap(PageRange::new(second.page(), 1)).unwrap();
                space.map(second.page(), Extent::new(Pfn::new(0x7777), 1), DATA).unwrap();
                let stale = mmu.access(second, memory).unwrap();
                assert!(matches!(stale.outcome, TlbOutcome::Hit(_)), "{coalescing:?}");
                assert_eq!(stale.addr.raw(), 0x400_1123, "{coalescing:?}");

                assert_eq!(flush.range, PageRange::new(second.page(), 1));
                mmu.invalidate_range(flush.range);
                let right = mmu.access(second, memory).unwrap();
                assert!(matches!(right.outcome, TlbOutcome::Miss(_)), "{coalescing:?}");
                assert_eq!(right.addr.raw(), 0x777_7123, "{coalescing:?}");
                assert_eq!(mmu.access(first, memory).unwrap().addr.raw(), 0x400_0123);
                let third = VirtAddr::new(0x42_123);
                assert_eq!(mmu.access(third, memory).unwrap().addr.raw(), 0x400_2123);
            });
        }
    }
}

/// The same without a new mapping: the hardware should fault, and does not
/// before the invalidation.
#[test]
fn without_the_owed_invalidation_an_unmapped_page_does_not_fault() {
    for format in Format::ALL {
        for coalescing in coalescings(format, &mut random(6, 0)) {
            with_space(format, coalescing, |memory, mut space| {
                let range = PageRange::new(Vpn::new(0x40), 16);
                space.allocate_eager(range, DATA, &mut |_| ()).unwrap();
                let mut mmu =
                    Mmu::new(space.regime(), Geometry::default(), WalkOrder::default()).unwrap();
                let at = VirtAddr::new(0x40_000);
                let before = mmu.access(at, memory).unwrap().addr;
                let flush = space.unmap(range).unwrap();
                assert!(flush.links_changed);
                assert_eq!(mmu.access(at, memory).map(|access| access.addr), Ok(before));
                mmu.invalidate_range(flush.range);
                let fault = mmu.access(at, memory);
                assert!(matches!(fault, Err(TranslationFault::Translation { .. })), "{fault:?}");
            });
        }
    }
}

/// The last descriptor of the walk to `page`.
fn descriptor(memory: &SliceMemory<'_>, space: &Space<'_>, page: Vpn) -> u64 {
    let mut walk = Walk::new(&space.regime(), page).unwrap();
    loop {
        let at = walk.next_read();
        if let WalkStep::Done(_) = walk.step(memory).unwrap() {
            return match space.regime().format.entry_bytes() {
                4 => memory.read_u32(at).unwrap().into(),
                _ => memory.read_u64(at).unwrap(),
            };
        }
    }
}

/// Software marks whose frames they are: S in ARMv7, the kind of shareability
/// in ARMv8, PAT in x86-64, a bit of software in RISC-V. The marked descriptors differ in that bit alone,
/// and the hardware makes nothing of it, whatever else the mapping says; in
/// particular PAT does not make another kind of memory.
#[test]
fn the_owners_mark_means_nothing_to_the_hardware() {
    let mark: fn(Format) -> Field = |format| match format {
        Format::ArmV7 => armv7::PAGE_S,
        Format::ArmV8 => armv8::SH,
        Format::X86_64 => x86_64::PAT,
        Format::Sv39 | Format::Sv48 => riscv::FOREIGN,
    };
    for format in Format::ALL {
        for bits in 0..64_u32 {
            let bit = |n: u32| bits >> n & 1 == 1;
            let attributes = Attributes {
                writable: bit(0),
                user: bit(1),
                executable: bit(2),
                global: bit(3),
                accessed: bit(4),
                memory: if bit(5) { MemoryKind::Device } else { MemoryKind::Normal },
            };
            with_space(format, Coalescing::None, |memory, mut space| {
                let (own, other) = (Vpn::new(0x40), Vpn::new(0x48));
                let frame = space.fault(own, attributes).unwrap();
                space.map(other, Extent::new(frame, 1), attributes).unwrap();
                assert!(space.translate(own).unwrap().owned);
                assert!(!space.translate(other).unwrap().owned);
                let differ = descriptor(memory, &space, own) ^ descriptor(memory, &space, other);
                assert_ne!(differ, 0);
                assert_eq!(differ & !mark(format).mask(), 0, "{format:?} {differ:#x}");
                for page in [own, other] {
                    let found = walk(&space.regime(), page, memory, &mut 0).unwrap();
                    assert_eq!((found.frame, found.attributes), (frame, attributes));
                }
                // Larger pages are always somebody else's.
                let orders = format.levels().iter().flat_map(|level| level.leaves);
                for &order in orders.filter(|&&order| order != Order::BASE) {
                    let page = Vpn::new(1 << order.k());
                    let frame = Pfn::new(3 << order.k());
                    space.map_page_size(page, frame, order, attributes).unwrap();
                    assert!(!space.translate(page).unwrap().owned);
                    let found = walk(&space.regime(), page, memory, &mut 0).unwrap();
                    let seen = (found.frame, found.order, found.attributes);
                    assert_eq!(seen, (frame, order, attributes), "{format:?}");
                    let _ = space.unmap(PageRange::new(page, order.frames())).unwrap();
                }
            });
        }
    }
}

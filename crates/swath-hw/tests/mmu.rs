//! Whole MMUs over tables written word by word: the three designs, stale
//! entries, and a miss taken in steps against a miss taken at once.

use swath_arch::testing::Random;
use swath_arch::{
    Coalescing, ContiguityField, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Regime,
    SliceMemory, VirtAddr, Vpn,
};
use swath_hw::{
    EntryKind, Geometry, GeometryError, Mmu, MmuConfigError, TlbOutcome, TranslatedAccess,
    TranslationFault, WalkOrder,
};

/// Tables in the simplest form that shows what is wanted: one table above the
/// other, each at a fixed place, the leaf tables two frames apart.
struct Tables<'m> {
    format: Format,
    memory: SliceMemory<'m>,
}

const FRAMES: usize = 64;
const LEAVES: u64 = 0x8000;

impl<'m> Tables<'m> {
    fn new(format: Format, words: &'m mut Vec<u64>) -> Self {
        words.clear();
        words.resize(FRAMES * 512, 0);
        let memory = SliceMemory::new(Pfn::new(0), words);
        let tables = Self { format, memory };
        match format {
            Format::ArmV7 => {}
            Format::ArmV8 | Format::X86_64 => {
                tables.put(0, 0x4000 | 0x27);
                tables.put(0x4000, 0x5000 | 0x27);
            }
            Format::Sv39 => tables.put(0, 0x1400 | 1),
            Format::Sv48 => {
                tables.put(0, 0x1000 | 1);
                tables.put(0x4000, 0x1400 | 1);
            }
        }
        tables
    }

    fn put(&self, at: u64, word: u64) {
        if self.format == Format::ArmV7 {
            self.memory.write_u32(PhysAddr::new(at), word as u32).unwrap();
        } else {
            self.memory.write_u64(PhysAddr::new(at), word).unwrap();
        }
    }

    /// The address of a page's leaf descriptor; makes the entry above it.
    fn leaf(&self, page: u64) -> u64 {
        let (index, within, upper, flags) = match self.format {
            Format::ArmV7 => (page >> 8, page & 255, (page >> 8) * 4, 0x1),
            _ => (page >> 9, page & 511, 0x5000 + (page >> 9) * 8, 0x27),
        };
        let leaf_table = LEAVES + index * 0x2000;
        let link = match self.format {
            Format::Sv39 | Format::Sv48 => leaf_table >> 2 | 1,
            _ => leaf_table | flags,
        };
        self.put(upper, link);
        leaf_table + within * self.format.entry_bytes()
    }

    /// Maps a page to a frame, with nothing said about its neighbours.
    fn map(&self, page: u64, frame: u64) {
        let flags = match self.format {
            Format::ArmV7 => 0x83f & !0x1,
            Format::ArmV8 => 0x0060_0000_0000_0f43,
            Format::X86_64 => 0x67,
            Format::Sv39 | Format::Sv48 => 0xd7,
        };
        self.put(self.leaf(page), frame << self.format.frame_bit() | flags);
    }

    fn unmap(&self, page: u64) {
        self.put(self.leaf(page), 0);
    }

    fn beside(&self, page: u64, ascend: u64, descend: u64) {
        let half = self.format.beside_half_bits();
        self.put(self.leaf(page) + 4096, ascend | descend << half);
    }

    /// Maps a block, with PCAD's numbers beside.
    fn map_block(&self, page: u64, frame: u64, count: u64) {
        for i in 0..count {
            self.map(page + i, frame + i);
            self.beside(page + i, count - 1 - i, i);
        }
    }

    fn mmu(&self, coalescing: Coalescing, order: WalkOrder) -> Mmu {
        let regime = Regime { format: self.format, root: PhysAddr::new(0), coalescing };
        Mmu::new(regime, Geometry::default(), order).unwrap()
    }

    /// The frame that an access to the page reaches, and how.
    fn access(&self, mmu: &mut Mmu, page: u64) -> Result<(u64, TlbOutcome), TranslationFault> {
        let access = mmu.access(VirtAddr::new(page << 12 | 0xabc), &self.memory)?;
        mmu.tlb().check().unwrap();
        assert_eq!(access.addr.raw() & 0xfff, 0xabc);
        Ok((access.addr.frame().raw(), access.outcome))
    }
}

const IDEAL: ContiguityField = ContiguityField::Beside { bits: 16 };
const PCAD: Coalescing = Coalescing::Pcad(IDEAL);
const AT: Coalescing = Coalescing::Anchor { field: IDEAL, distance: Order::known(2) };
const HIT: TlbOutcome = TlbOutcome::Hit(EntryKind::Regular);
const MISS: TlbOutcome = TlbOutcome::Miss(EntryKind::Regular);
const ANCHOR_HIT: TlbOutcome = TlbOutcome::Hit(EntryKind::Anchor);
const ANCHOR_MISS: TlbOutcome = TlbOutcome::Miss(EntryKind::Anchor);

/// Fig. 2 (the buddy system's blocks of 4 and 1) and Fig. 7 (PBS's one block
/// of 5): pages 4 to 8 on frames 16 to 20, first demanded through page 5.
#[test]
fn pcad_needs_one_entry_to_a_block() {
    for (blocks, walks) in [(&[(4, 16, 5)][..], 1), (&[(4, 16, 4), (8, 20, 1)], 2)] {
        for format in Format::ALL {
            let mut words = Vec::new();
            let tables = Tables::new(format, &mut words);
            for &(page, frame, count) in blocks {
                tables.map_block(page, frame, count);
            }
            let mut mmu = tables.mmu(PCAD, WalkOrder::default());
            assert_eq!(tables.access(&mut mmu, 5), Ok((17, MISS)));
            for page in [4, 6, 7] {
                assert_eq!(tables.access(&mut mmu, page), Ok((page + 12, HIT)));
            }
            assert_eq!(tables.access(&mut mmu, 8).unwrap().0, 20);
            assert_eq!(mmu.stats().walk.regular_walks, walks);
            for page in [3, 9] {
                let fault = tables.access(&mut mmu, page);
                assert!(matches!(fault, Err(TranslationFault::Translation { .. })));
            }
            let stats = mmu.stats();
            assert_eq!((stats.tlb.fills, stats.walk.faults), (walks, 2));
            let levels = format.levels().len() as u64;
            assert_eq!(stats.walk.regular_reads, (walks + 2) * levels);

            // TRAD over the same table needs an entry for each page.
            let mut mmu = tables.mmu(Coalescing::None, WalkOrder::default());
            for page in 4..9 {
                assert_eq!(tables.access(&mut mmu, page), Ok((page + 12, MISS)));
                assert_eq!(tables.access(&mut mmu, page), Ok((page + 12, HIT)));
            }
            assert_eq!(mmu.stats().walk.walks(), 5);
        }
    }
}

/// Pages 8 to 10 behind an anchor that covers three; 11 alone; 12 an anchor of
/// one page; 16 an anchor that covers nothing; 21 behind an unmapped anchor.
fn anchors(tables: &Tables<'_>) {
    for (page, frame) in [(8, 40), (9, 41), (10, 42), (11, 70), (12, 80), (16, 90), (21, 95)] {
        tables.map(page, frame);
    }
    tables.beside(8, 3, 0);
    tables.beside(12, 1, 0);
    tables.beside(16, 0, 0);
}

/// Regular and anchor walks, and the reads of each, since the last call.
fn costs(mmu: &mut Mmu) -> [u64; 4] {
    let walk = mmu.stats().walk;
    mmu.reset_stats();
    [walk.regular_walks, walk.anchor_walks, walk.regular_reads, walk.anchor_reads]
}

#[test]
fn at_hits_misses_and_walks() {
    let mut words = Vec::new();
    let tables = Tables::new(Format::ArmV7, &mut words);
    anchors(&tables);
    let mut mmu = tables.mmu(AT, WalkOrder::RegularFirst);
    assert_eq!(tables.access(&mut mmu, 9), Ok((41, ANCHOR_MISS)));
    assert_eq!(costs(&mut mmu), [1, 1, 2, 2], "always both walks");
    for page in [8, 9, 10] {
        assert_eq!(tables.access(&mut mmu, page), Ok((page + 32, ANCHOR_HIT)));
    }
    assert_eq!(costs(&mut mmu), [0; 4]);
    assert_eq!(tables.access(&mut mmu, 11), Ok((70, MISS)), "not covered");
    assert_eq!(costs(&mut mmu), [1, 1, 2, 2]);
    assert_eq!(tables.access(&mut mmu, 11), Ok((70, HIT)));
    assert_eq!(tables.access(&mut mmu, 12), Ok((80, ANCHOR_MISS)));
    assert_eq!(costs(&mut mmu), [1, 0, 2, 0], "its own anchor");
    assert_eq!(tables.access(&mut mmu, 16), Ok((90, MISS)), "covers not even itself");
    assert_eq!(costs(&mut mmu), [1, 0, 2, 0]);
    assert_eq!(tables.access(&mut mmu, 21), Ok((95, MISS)));
    assert_eq!(costs(&mut mmu), [1, 1, 2, 2], "the anchor's fault is none");
    assert!(tables.access(&mut mmu, 22).is_err());
    assert_eq!(costs(&mut mmu), [1, 0, 2, 0], "a page's fault ends the miss");
    // An anchor's reach ends at the distance, whatever it says.
    tables.beside(8, 100, 0);
    mmu.invalidate_all();
    assert_eq!(tables.access(&mut mmu, 8), Ok((40, ANCHOR_MISS)));
    assert_eq!(tables.access(&mut mmu, 12), Ok((80, ANCHOR_MISS)));
}

#[test]
fn at_with_the_anchor_first() {
    let mut words = Vec::new();
    let tables = Tables::new(Format::ArmV7, &mut words);
    anchors(&tables);
    let mut mmu = tables.mmu(AT, WalkOrder::AnchorFirst);
    assert_eq!(tables.access(&mut mmu, 9), Ok((41, ANCHOR_MISS)));
    assert_eq!(costs(&mut mmu), [0, 1, 0, 2], "the anchor answers alone");
    assert_eq!(tables.access(&mut mmu, 11), Ok((70, MISS)));
    assert_eq!(costs(&mut mmu), [1, 1, 2, 2]);
    assert_eq!(tables.access(&mut mmu, 12), Ok((80, ANCHOR_MISS)));
    assert_eq!(costs(&mut mmu), [1, 0, 2, 0]);
    assert_eq!(tables.access(&mut mmu, 21), Ok((95, MISS)));
    assert_eq!(costs(&mut mmu), [1, 1, 2, 2]);
    assert!(tables.access(&mut mmu, 22).is_err());
    assert_eq!(mmu.stats().walk.faults, 1);
}

/// A regular entry is looked up before the anchor's.
#[test]
fn at_prefers_the_regular_entry() {
    let mut words = Vec::new();
    let tables = Tables::new(Format::ArmV7, &mut words);
    anchors(&tables);
    let mut mmu = tables.mmu(AT, WalkOrder::default());
    assert_eq!(tables.access(&mut mmu, 11), Ok((70, MISS)));
    tables.map(11, 43);
    tables.beside(8, 4, 0);
    assert_eq!(tables.access(&mut mmu, 9), Ok((41, ANCHOR_MISS)));
    assert_eq!(tables.access(&mut mmu, 11), Ok((70, HIT)), "stale, but first");
    mmu.invalidate_page(Vpn::new(11));
    assert_eq!(mmu.stats().tlb.invalidated, 2, "both entries that serve the page");
    assert_eq!(tables.access(&mut mmu, 11), Ok((43, ANCHOR_MISS)));
}

/// A superpage leaf ends an AT miss in the regular walk, and fills one entry
/// of its size in every design.
#[test]
fn superpages_fill_one_entry() {
    let mut words = Vec::new();
    let tables = Tables::new(Format::ArmV8, &mut words);
    tables.put(0x5008, 0x4060_0000 | 0x0060_0000_0000_0f41);
    for coalescing in [Coalescing::None, PCAD, AT] {
        for order in [WalkOrder::RegularFirst, WalkOrder::AnchorFirst] {
            let mut mmu = tables.mmu(coalescing, order);
            assert_eq!(tables.access(&mut mmu, 0x3ff), Ok((0x407ff, MISS)));
            for page in 0x200..0x400 {
                assert_eq!(tables.access(&mut mmu, page), Ok((0x40400 + page, HIT)));
            }
            let anchor_walks =
                matches!(coalescing, Coalescing::Anchor { .. }) && order == WalkOrder::AnchorFirst;
            let walk = mmu.stats().walk;
            assert_eq!(walk.regular_reads, 3);
            assert_eq!(walk.anchor_walks, u64::from(anchor_walks));
            assert_eq!(mmu.stats().tlb.fills, 1);
        }
    }
}

/// Hardware goes on using what it holds until it is told.
#[test]
fn stale_entries_are_used_until_invalidated() {
    for (coalescing, order) in [
        (Coalescing::None, WalkOrder::default()),
        (PCAD, WalkOrder::default()),
        (AT, WalkOrder::RegularFirst),
        (AT, WalkOrder::AnchorFirst),
    ] {
        let mut words = Vec::new();
        let tables = Tables::new(Format::X86_64, &mut words);
        for page in 8..12 {
            tables.map(page, page + 100);
            match coalescing {
                Coalescing::Pcad(_) => tables.beside(page, 11 - page, page - 8),
                _ => tables.beside(page, 12 - page, 0),
            }
        }
        for step in 0..4 {
            let mut mmu = tables.mmu(coalescing, order);
            tables.map(9, 109);
            assert_eq!(tables.access(&mut mmu, 9).unwrap().0, 109);
            tables.unmap(9);
            let Ok((109, TlbOutcome::Hit(_))) = tables.access(&mut mmu, 9) else {
                panic!("an unmapped page must still be served");
            };
            match step {
                0 => mmu.invalidate_page(Vpn::new(9)),
                1 => mmu.invalidate_range(PageRange::new(Vpn::new(9), 1)),
                2 => mmu.invalidate_range(PageRange::new(Vpn::new(0), 1000)),
                _ => mmu.invalidate_all(),
            }
            mmu.tlb().check().unwrap();
            assert_eq!(mmu.stats().tlb.invalidated, 1);
            tables.map(9, 555);
            // The anchor's word still says that page 9 follows frame 108; the
            // page's own walk is right, an anchor that answers alone is not.
            let trusting = order == WalkOrder::AnchorFirst;
            let expected = if trusting { 109 } else { 555 };
            assert_eq!(tables.access(&mut mmu, 9).unwrap().0, expected, "{coalescing:?}");
        }
        tables.unmap(9);
        tables.beside(8, 1, 0);
        let mut mmu = tables.mmu(coalescing, order);
        let fault = TranslationFault::Translation { page: Vpn::new(9), level: 3 };
        assert_eq!(tables.access(&mut mmu, 9), Err(fault));
    }
}

/// A fault fills nothing and costs its reads; nothing remembers it.
#[test]
fn a_fault_fills_nothing() {
    let mut words = Vec::new();
    let tables = Tables::new(Format::ArmV8, &mut words);
    let mut mmu = tables.mmu(PCAD, WalkOrder::default());
    let fault = TranslationFault::Translation { page: Vpn::new(7), level: 2 };
    assert_eq!(tables.access(&mut mmu, 7), Err(fault));
    let far = VirtAddr::new(1 << 50);
    assert_eq!(mmu.access(far, &tables.memory), Err(TranslationFault::NotCanonical { addr: far }));
    let stats = mmu.stats();
    assert_eq!((stats.tlb.misses, stats.tlb.fills, stats.walk.faults), (2, 0, 2));
    assert_eq!((stats.walk.regular_walks, stats.walk.regular_reads), (1, 3));
    tables.map(7, 77);
    assert_eq!(tables.access(&mut mmu, 7), Ok((77, MISS)));
}

#[test]
fn impossible_machines_are_refused() {
    let new = |format, root, coalescing, geometry| {
        let regime = Regime { format, root: PhysAddr::new(root), coalescing };
        Mmu::new(regime, geometry, WalkOrder::default()).map(|_| ())
    };
    let v7 = |root, coalescing| new(Format::ArmV7, root, coalescing, Geometry::default());
    let root = PhysAddr::new(0x1000);
    assert_eq!(v7(0x1000, Coalescing::None), Err(MmuConfigError::Root { root }));
    let beside = |bits| Coalescing::Pcad(ContiguityField::Beside { bits });
    assert_eq!(v7(0x4000, beside(0)), Err(MmuConfigError::Bits { bits: 0 }));
    assert_eq!(v7(0x4000, beside(17)), Err(MmuConfigError::Bits { bits: 17 }));
    assert_eq!(v7(0x4000, beside(16)), Ok(()));
    let (v8, geometry) = (Format::ArmV8, Geometry::default());
    assert_eq!(new(v8, 0x1000, beside(32), geometry), Ok(()));
    assert_eq!(new(v8, 0x1000, beside(33), geometry), Err(MmuConfigError::Bits { bits: 33 }));
    for k in [0, 17] {
        let distance = Order::known(k);
        let anchor = Coalescing::Anchor { field: IDEAL, distance };
        assert_eq!(v7(0, anchor), Err(MmuConfigError::Distance { distance }));
    }
    let none = GeometryError::Entries { sets: 1, ways: 0 };
    let geometry = Geometry::fully_associative(0);
    assert_eq!(new(v8, 0, Coalescing::None, geometry), Err(MmuConfigError::Geometry(none)));
}

/// The MMU one read at a time, as a timed model drives it.
fn stepped(
    mmu: &mut Mmu,
    addr: VirtAddr,
    memory: &SliceMemory<'_>,
) -> Result<TranslatedAccess, TranslationFault> {
    if let Some(access) = mmu.lookup(addr) {
        return Ok(access);
    }
    let mut miss = mmu.begin(addr)?;
    assert_eq!(miss.page(), addr.page());
    loop {
        let before = miss.stats().reads();
        // What a timed model would put on the bus is a descriptor's address.
        let at = miss.next_read();
        assert!(at.raw() < (FRAMES as u64) << 12, "{at}");
        match miss.step(memory) {
            Ok(None) => assert_eq!(miss.stats().reads(), before + 1),
            Ok(Some(resolved)) => return mmu.complete(addr, &miss, Ok(resolved)),
            Err(fault) => return mmu.complete(addr, &miss, Err(fault)),
        }
    }
}

/// Random blocks in every format, design, walk order and form: each access
/// reaches the frame that was mapped, and steps do what one call does.
#[test]
fn random_blocks_translate_right_in_every_design() {
    for format in Format::ALL {
        for seed in 1..=6 {
            println!("{format:?} seed {seed}");
            let mut random = Random::new(seed);
            let three = ContiguityField::Beside { bits: 3 };
            for field in [ContiguityField::Descriptor, ContiguityField::Line, IDEAL, three] {
                let distance = Order::known(1 + random.below(6) as u8);
                let anchor = Coalescing::Anchor { field, distance };
                for coalescing in [Coalescing::None, Coalescing::Pcad(field), anchor] {
                    random_blocks(format, coalescing, field, &mut random);
                }
            }
        }
    }
}

/// Says of the blocks what lies beyond the ends of each line, bit by bit.
fn tell_lines(tables: &Tables<'_>, blocks: &[(u64, u64)]) {
    let (pages, before, after): (u64, &[u32], &[u32]) = match tables.format {
        Format::ArmV7 => (16, &[8], &[7]),
        Format::ArmV8 => (8, &[59, 60, 61, 62], &[55, 56, 57, 58]),
        Format::X86_64 => (8, &[9, 10, 11, 59, 60, 61, 62], &[52, 53, 54, 55, 56, 57, 58]),
        Format::Sv39 | Format::Sv48 => (8, &[59], &[60]),
    };
    let put = |line: u64, places: &[u32], number: u64| {
        for n in (0..64 - u64::from(number.leading_zeros())).filter(|n| number >> n & 1 == 1) {
            let at = tables.leaf(line + n / places.len() as u64);
            let word = match tables.format {
                Format::ArmV7 => tables.memory.read_u32(PhysAddr::new(at)).unwrap().into(),
                _ => tables.memory.read_u64(PhysAddr::new(at)).unwrap(),
            };
            tables.put(at, word | 1 << places[n as usize % places.len()]);
        }
    };
    for &(first, end) in blocks {
        for line in (first / pages * pages..end).step_by(pages as usize) {
            if line >= first {
                put(line, before, line - first);
            }
            if line + pages <= end {
                put(line, after, end - line - pages);
            }
        }
    }
}

fn random_blocks(
    format: Format,
    coalescing: Coalescing,
    field: ContiguityField,
    random: &mut Random,
) {
    const PAGES: u64 = 1200;
    let mut words = Vec::new();
    let tables = Tables::new(format, &mut words);
    let mut frames = vec![None; PAGES as usize];
    let say = |page: u64, ascend: u64, descend: u64| {
        let at = tables.leaf(page);
        let (a, d) = match coalescing {
            Coalescing::Pcad(_) => (format.ascend(), format.descend()),
            _ => (format.anchor(), format.anchor()),
        };
        let is_anchor = matches!(coalescing, Coalescing::Anchor { .. });
        match field {
            ContiguityField::Descriptor => {
                let word = match format {
                    Format::ArmV7 => tables.memory.read_u32(PhysAddr::new(at)).unwrap().into(),
                    _ => tables.memory.read_u64(PhysAddr::new(at)).unwrap(),
                };
                let word = a.set_saturating(word, ascend);
                tables.put(at, if is_anchor { word } else { d.set_saturating(word, descend) });
            }
            // Told when all is mapped.
            ContiguityField::Line => {}
            ContiguityField::Beside { bits } => {
                let max = (1 << bits) - 1;
                let descend = if is_anchor { 0 } else { descend };
                tables.beside(page, ascend.min(max), descend.min(max));
            }
        }
    };
    let (mut page, mut blocks) = (0, Vec::new());
    while page < PAGES {
        let count = (1 + random.below(40)).min(PAGES - page);
        let frame = random.below(1 << 19);
        if random.below(5) > 0 {
            for i in 0..count {
                tables.map(page + i, frame + i);
                frames[(page + i) as usize] = Some(frame + i);
                match coalescing {
                    Coalescing::None => {}
                    Coalescing::Pcad(_) => say(page + i, count - 1 - i, i),
                    Coalescing::Anchor { .. } => say(page + i, count - i, 0),
                }
            }
        }
        if frames[page as usize].is_some() {
            blocks.push((page, page + count));
        }
        page += count;
    }
    if field == ContiguityField::Line {
        tell_lines(&tables, &blocks);
    }
    let regime = Regime { format, root: PhysAddr::new(0), coalescing };
    for (sets, ways, index_shift) in [(1, 32, 0), (4, 4, 3), (3, 2, 0)] {
        for order in [WalkOrder::RegularFirst, WalkOrder::AnchorFirst] {
            let geometry = Geometry { sets, ways, index_shift };
            let mut mmu = Mmu::new(regime, geometry, order).unwrap();
            let mut by_steps = mmu.clone();
            let mut page = 0;
            for _ in 0..600 {
                page = match random.below(4) {
                    0 => random.below(PAGES),
                    _ => (page + random.below(5)) % PAGES,
                };
                let addr = VirtAddr::new(page << 12 | random.below(4096));
                let access = mmu.access(addr, &tables.memory);
                assert_eq!(stepped(&mut by_steps, addr, &tables.memory), access);
                let frame = access.ok().map(|access| access.addr.frame().raw());
                assert_eq!(frame, frames[page as usize], "page {page}");
            }
            mmu.tlb().check().unwrap();
            by_steps.tlb().check().unwrap();
            assert_eq!(mmu.stats(), by_steps.stats());
            let stats = mmu.stats();
            assert!(stats.tlb.hits() > 0 && stats.tlb.misses > 0 && stats.walk.faults > 0);
        }
    }
}

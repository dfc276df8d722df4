//! Real-time regions, software against hardware: what `swath-vm` writes into the arrays and the
//! nodes, `swath-hw`'s RTMMU reads from bytes alone. A flat model of page -> frame and rights
//! stands between the two, and the unit grants exactly what it says, in the same number of
//! cycles whatever went before.

use std::collections::BTreeMap;

use rand::RngExt;
use swath_arch::{
    Extent, NodeTables, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables,
    VirtAddr, Vpn,
};
use swath_hw::{
    Cycle, Geometry, Operation, PageRights, PortReads, RtFault, RtLatency, RtTables, Rtmmu,
};
use swath_lab::source::memory::{Random, random};
use swath_region::{
    DenseTree, FramePool, Quota, RegionError, RegionSpace, RegionTree, Rights, SparseRegionSpace,
    dense_tree_words,
};

const OPERATIONS: [(Operation, Rights); 3] = [
    (Operation::Read, Rights::READ),
    (Operation::Write, Rights::WRITE),
    (Operation::Fetch, Rights::EXECUTE),
];

/// Regions by their start: pages, rights, and the frames of mapped pages.
#[derive(Default)]
struct Model(BTreeMap<u64, (u64, Rights, BTreeMap<u64, u64>)>);

impl Model {
    fn region(&self, page: u64) -> Option<(u64, u64, Rights)> {
        let (&start, &(count, rights, _)) = self.0.range(..=page).next_back()?;
        (page < start + count).then_some((start, count, rights))
    }

    fn mapped(&self, page: u64) -> Option<(u64, Rights)> {
        let (start, _, rights) = self.region(page)?;
        Some((*self.0[&start].2.get(&page)?, rights))
    }
}

/// A unit, and how it forgets a region.
type Unit = (Rtmmu, fn(&mut Rtmmu, PageRange) -> Cycle);

/// The units that look at one space.
fn units(tables: RtTables) -> Vec<Unit> {
    let by_range: fn(&mut Rtmmu, PageRange) -> Cycle = Rtmmu::invalidate_pages;
    let all: fn(&mut Rtmmu, PageRange) -> Cycle = |unit, _| unit.invalidate_all();
    let sets = Geometry { sets: 4, ways: 2, index_shift: 0 };
    [
        (None, by_range),
        (Some(Geometry::fully_associative(8)), by_range),
        (Some(Geometry::fully_associative(8)), all),
        (Some(sets), by_range),
    ]
    .map(|(tlb, forget)| (Rtmmu::new(tables, RtLatency::PAPER, tlb).unwrap(), forget))
    .into()
}

/// Accesses a page in one way, or looks at it, through each unit.
fn meet(
    units: &mut [Unit],
    model: &Model,
    page: u64,
    (operation, right): (Operation, Rights),
    memory: &impl PhysMemory,
) {
    let expected = model.mapped(page);
    for (unit, _) in units {
        let levels = u64::from(unit.tables().levels());
        let pure = unit.tables().translate(Vpn::new(page), memory);
        let granted = pure.ok().map(|mapped| {
            let PageRights { read, write, execute } = mapped.rights;
            (mapped.frame.raw(), [read, write, execute])
        });
        let rights = |rights: Rights| OPERATIONS.map(|(_, right)| rights.contain(right));
        assert_eq!(granted, expected.map(|(frame, has)| (frame, rights(has))), "page {page:#x}");

        let now = unit.stats().cycles;
        let access = unit.access(now, VirtAddr::new(page << 12 | 8), operation, memory);
        let lookup = Cycle::from(unit.tlb().is_some());
        let walk = if access.from_tlb { 0 } else { 2 * levels };
        match (access.result, expected) {
            (Ok(addr), Some((frame, rights))) if rights.contain(right) => {
                assert_eq!(addr, PhysAddr::new(frame << 12 | 8), "page {page:#x}");
                assert_eq!(access.cycles(), lookup + walk + 2);
            }
            (Err(RtFault::Denied { .. }), Some((_, rights))) if !rights.contain(right) => {
                assert_eq!(access.cycles(), lookup + walk);
            }
            (Err(RtFault::Unmapped { level, .. }), None) => {
                assert_eq!(access.cycles(), lookup + 2 * (levels - u64::from(level)));
            }
            (result, expected) => panic!("page {page:#x}: {result:?}, not {expected:?}"),
        }
        // One port reads two words a level at most, and the third one.
        let [two, one] = [if access.from_tlb { 0 } else { 2 * levels }, walk / 2];
        let PortReads { regions, stack, data } = access.reads;
        assert!(regions <= two && stack <= two && data <= one);
    }
}

fn some_rights(random: &mut Random) -> Rights {
    OPERATIONS
        .iter()
        .filter(|_| random.random_range(0..8) != 0)
        .fold(Rights::NONE, |all, &(_, right)| all | right)
}

/// What the two kinds of spaces have in common.
trait Space {
    fn map_region(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError>;
    fn map_page(&mut self, page: Vpn) -> Result<Pfn, RegionError>;
    fn unmap_region(&mut self, start: Vpn) -> Result<PageRange, RegionError>;
    /// `true` if there is such an operation and it was done.
    fn split_region(&mut self, at: Vpn) -> bool;
    fn merge_region(&mut self, start: Vpn) -> bool;
}

impl<M: PhysMemory, T: RegionTree> Space for RegionSpace<'_, M, T, Vec<u64>> {
    fn map_region(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError> {
        Self::map_region(self, range, rights)
    }
    fn map_page(&mut self, page: Vpn) -> Result<Pfn, RegionError> {
        Self::map_page(self, page, Rights::NONE)
    }
    fn unmap_region(&mut self, start: Vpn) -> Result<PageRange, RegionError> {
        Ok(Self::unmap_region(self, start)?.pages)
    }
    fn split_region(&mut self, at: Vpn) -> bool {
        Self::split_region(self, at).is_ok()
    }
    fn merge_region(&mut self, start: Vpn) -> bool {
        Self::merge_region(self, start).is_ok()
    }
}

impl<M: PhysMemory> Space for SparseRegionSpace<'_, M, Vec<u64>> {
    fn map_region(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError> {
        Self::map_region(self, range, rights)
    }
    fn map_page(&mut self, page: Vpn) -> Result<Pfn, RegionError> {
        Self::map_page(self, page, Rights::NONE)
    }
    fn unmap_region(&mut self, start: Vpn) -> Result<PageRange, RegionError> {
        Ok(Self::unmap_region(self, start)?.pages)
    }
    fn split_region(&mut self, _: Vpn) -> bool {
        false
    }
    fn merge_region(&mut self, _: Vpn) -> bool {
        false
    }
}

/// One random operation, in the space and in the model.
fn step(
    space: &mut impl Space,
    model: &mut Model,
    units: &mut [Unit],
    page: u64,
    random: &mut Random,
) {
    match random.random_range(0..16) {
        0..3 => {
            let most = 1_u64 << random.random_range(0..7);
            let count = 1 + random.random_range(0..most);
            let rights = some_rights(random);
            let range = PageRange::new(Vpn::new(page), count);
            if space.map_region(range, rights).is_ok() {
                model.0.insert(page, (count, rights, BTreeMap::new()));
            }
        }
        3..12 => match space.map_page(Vpn::new(page)) {
            Ok(frame) => {
                let (start, ..) = model.region(page).expect("a page of no region is mapped");
                let pages = &mut model.0.get_mut(&start).unwrap().2;
                assert_eq!(pages.insert(page, frame.raw()), None);
            }
            Err(RegionError::AlreadyMapped { .. }) => assert!(model.mapped(page).is_some()),
            Err(RegionError::NoRegion { .. }) => assert_eq!(model.region(page), None),
            Err(error) => assert_eq!(error, RegionError::OutOfFrames),
        },
        12..14 => {
            let start = model.region(page).map_or(page, |(start, ..)| start);
            if let Ok(pages) = space.unmap_region(Vpn::new(start)) {
                let (count, ..) = model.0.remove(&start).unwrap();
                assert_eq!(pages, PageRange::new(Vpn::new(start), count));
                for (unit, forget) in units {
                    let sets = unit.tlb().map_or(0, |tlb| tlb.geometry().sets);
                    assert!(forget(unit, pages) <= sets.into());
                }
            }
        }
        14 => {
            let found = model.region(page);
            if space.split_region(Vpn::new(page)) {
                let (start, count, rights) = found.unwrap();
                model.0.get_mut(&start).unwrap().0 = page - start;
                model.0.insert(page, (start + count - page, rights, BTreeMap::new()));
            }
        }
        _ => {
            if space.merge_region(Vpn::new(page)) {
                let (count, ..) = model.0.remove(&page).unwrap();
                model.0.range_mut(..page).next_back().unwrap().1.0 += count;
            }
        }
    }
}

/// Arrays of 2^8 pages that start full of garbage, and more pages than frames.
#[test]
fn arrays() {
    const K: u32 = 8;
    const TABLES: ValidityTables = ValidityTables::consecutive(K, PhysAddr::new(0x1_0000));
    for seed in 0..8 {
        let mut random = random(seed, 0);
        let small = seed % 2 == 0;
        let mut word = || if small { random.random_range(0..256) } else { random.random::<u32>() };
        let mut words: Vec<u64> = (0..ValidityTables::len_bytes(K) / 8)
            .map(|_| u64::from(word()) << 32 | u64::from(word()))
            .collect();
        let memory = SliceMemory::new(TABLES.data.frame(), &mut words);
        let mut links = [0; 90];
        let pool = FramePool::new(Extent::new(Pfn::new(0x1000), 90), &mut links).unwrap();
        let tree = DenseTree::<K, _, _>::new([0; dense_tree_words(K)]);
        let headers = vec![0; 2 << K];
        let mut space =
            RegionSpace::new(&memory, TABLES, tree, headers, &pool, Quota::OPEN).unwrap();
        let mut units = units(RtTables::regions(space.tables()).unwrap());
        let (mut model, mut page) = (Model::default(), 0_u64);
        for _ in 0..1500 {
            // Most often around the page before, to find the pages in the TLBs.
            page = match random.random_range(0..8) {
                0 => random.random_range(0..1 << K),
                _ => (page + random.random_range(0..9)).saturating_sub(4).min((1 << K) - 1),
            };
            step(&mut space, &mut model, &mut units, page, &mut random);
            // Most often the pages around; at times all.
            let near = page.saturating_sub(2)..(page + 3).min(1 << K);
            let pages = if random.random_range(0..16) == 0 { 0..1 << K } else { near };
            for page in pages {
                let way = OPERATIONS[random.random_range(0..3)];
                meet(&mut units, &model, page, way, &memory);
                let own = space.translate(Vpn::new(page)).unwrap();
                assert_eq!(own.map(|(frame, rights)| (frame.raw(), rights)), model.mapped(page));
            }
        }
        space.check().unwrap();
        let hits: Vec<u64> = units.iter().map(|(unit, _)| unit.stats().tlb_hits).collect();
        assert!(hits[0] == 0 && hits[1..].iter().all(|&hits| hits > 500), "{hits:?}");
    }
}

/// Nodes of one to five levels in frames full of garbage.
#[test]
fn nodes() {
    const FRAMES: u64 = 64;
    for pages_log2 in [5, 8, 9, 16, 24, 36, 40] {
        let mut random = random(pages_log2.into(), 1);
        let mut words: Vec<u64> = (0..512 * (FRAMES + 1)).map(|_| random.random()).collect();
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        let mut links = vec![0; FRAMES as usize];
        let pool = FramePool::new(Extent::new(Pfn::new(1), FRAMES), &mut links).unwrap();
        let tables = NodeTables { pages_log2, root: Pfn::new(0) };
        let starts = SparseRegionSpace::<&SliceMemory<'_>, Vec<u64>>::words_needed(pages_log2, 200);
        let starts = vec![0; starts];
        let mut space =
            SparseRegionSpace::new(&memory, tables, starts, &pool, Quota::OPEN).unwrap();
        let mut units = units(RtTables::nodes(space.tables()).unwrap());
        let (mut model, mut page) = (Model::default(), 0_u64);
        for _ in 0..2000 {
            // Pages that meet in nodes of all levels, and at their borders.
            let near = 1 << (8 * random.random_range(0..pages_log2.div_ceil(8)));
            page = match random.random_range(0..4) {
                0 => near * random.random_range(0..3),
                _ => (page + random.random_range(0..5)).wrapping_sub(2),
            } & ((1 << pages_log2) - 1);
            step(&mut space, &mut model, &mut units, page, &mut random);
            for page in page.saturating_sub(2)..(page + 3).min(1 << pages_log2) {
                let way = OPERATIONS[random.random_range(0..3)];
                meet(&mut units, &model, page, way, &memory);
            }
        }
        space.check().unwrap();
        let hits = units[1].0.stats().tlb_hits;
        assert!(hits > 500, "{hits}");
    }
}

/// What a TLB owes to an unmapping, and why it cannot ask the stack instead: the page comes back
/// in the same place of the same region, with another frame.
#[test]
fn a_tlb_that_was_not_told() {
    const TABLES: ValidityTables = ValidityTables::consecutive(8, PhysAddr::new(0));
    let mut words = vec![0; ValidityTables::len_bytes(8) as usize / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let mut links = [0; 8];
    let pool = FramePool::new(Extent::new(Pfn::new(0x1000), 8), &mut links).unwrap();
    let tree = DenseTree::<8, _, _>::new([0; dense_tree_words(8)]);
    let mut space =
        RegionSpace::new(&memory, TABLES, tree, vec![0; 512], &pool, Quota::OPEN).unwrap();
    let tables = RtTables::regions(TABLES).unwrap();
    let tlb = Some(Geometry::fully_associative(8));
    let mut unit = Rtmmu::new(tables, RtLatency::PAPER, tlb).unwrap();
    let word = |base: PhysAddr| memory.read_u32(PhysAddr::new(base.raw() + 4 * 13)).unwrap();
    let place = || (word(TABLES.regions), word(TABLES.helper));
    let (range, page) = (PageRange::new(Vpn::new(10), 6), Vpn::new(13));
    let read = |unit: &mut Rtmmu| {
        let access = unit.access(0, page.address(), Operation::Read, &memory);
        access.result.map(|addr| addr.frame())
    };

    space.map_region(range, Rights::READ).unwrap();
    let frame = space.map_page(page, Rights::READ).unwrap();
    assert_eq!(read(&mut unit), Ok(frame));
    let before = place();
    space.unmap_region(range.start).unwrap();
    assert_eq!(read(&mut unit), Ok(frame), "as hardware that was not told");

    // The frame goes to another region first.
    space.map_region(PageRange::new(Vpn::new(100), 1), Rights::READ).unwrap();
    assert_eq!(space.map_page(Vpn::new(100), Rights::READ), Ok(frame));
    space.map_region(range, Rights::READ).unwrap();
    let other = space.map_page(page, Rights::READ).unwrap();
    assert_ne!(other, frame);
    assert_eq!(place(), before, "the stack says nothing of the change");
    assert_eq!(read(&mut unit), Ok(frame), "somebody else's frame");
    unit.invalidate_pages(range);
    assert_eq!(read(&mut unit), Ok(other));
}

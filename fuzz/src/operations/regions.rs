//! Real-time regions: what `swath-region` writes into the arrays and the nodes, `swath-hw`'s RTMMU
//! reads from bytes alone. A flat model of page -> frame and rights stands between the two, and the
//! unit grants exactly what it says, in the same number of cycles whatever went before.

use std::collections::BTreeMap;

use swath_arch::testing::Random;
use swath_arch::{
    Extent, NodeTables, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables,
    VirtAddr, Vpn,
};
use swath_hw::{
    Cycle, Geometry, Operation, PageRights, PortReads, RtFault, RtLatency, RtTables, Rtmmu,
};
use swath_region::{
    DenseTree, FramePool, Quota, RegionError, RegionSpace, RegionTree, Rights, SparseRegionSpace,
    dense_tree_words,
};

use super::memory::STEPS_MAX;

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
        .filter(|_| !random.one_in(8))
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
    match random.below(16) {
        0..3 => {
            let most = 1_u64 << random.below(7);
            let count = 1 + random.below(most);
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
            let below = page.checked_sub(1).and_then(|below| model.region(below));
            if space.merge_region(Vpn::new(page)) {
                let (count, rights, pages) = model.0.remove(&page).unwrap();
                assert!(pages.is_empty(), "pages of {page:#x} are mapped");
                assert_eq!(below.map(|(.., rights)| rights), Some(rights), "rights of {page:#x}");
                model.0.range_mut(..page).next_back().unwrap().1.0 += count;
            }
        }
    }
}

/// Draws arrays or nodes, and does regions' operations.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    if random.one_in(2) {
        let garbage = random.word();
        arrays(random, garbage, STEPS_MAX);
    } else {
        let pages_log2 = [5, 8, 9, 16, 24, 36, 40][random.index(7)];
        nodes(random, pages_log2, STEPS_MAX);
    }
}

/// Arrays of 2^8 pages that start full of garbage, and more pages than frames. Returns the hits of
/// each unit's TLB.
fn arrays(mut random: Random, garbage: u64, steps: usize) -> Vec<u64> {
    const K: u32 = 8;
    const TABLES: ValidityTables = ValidityTables::consecutive(K, PhysAddr::new(0x1_0000));
    let mut noise = Random::new(garbage);
    // Half of the time garbage that could be an index.
    let mask = if garbage.is_multiple_of(2) { 0xff_0000_00ff } else { u64::MAX };
    let mut words: Vec<u64> =
        (0..ValidityTables::len_bytes(K) / 8).map(|_| noise.word() & mask).collect();
    let memory = SliceMemory::new(TABLES.data.frame(), &mut words);
    let mut links = [0; 90];
    let pool =
        FramePool::new(Extent::new(Pfn::new(0x1000), 90), &mut links).expect("links for all");
    let tree = DenseTree::<K, _, _>::new([0; dense_tree_words(K)]);
    let headers = vec![0; 2 << K];
    let mut space = RegionSpace::new(&memory, TABLES, tree, headers, &pool, Quota::OPEN)
        .expect("parts that fit");
    let mut units = units(RtTables::regions(space.tables()).expect("tables of a space"));
    let (mut model, mut page) = (Model::default(), 0_u64);
    for _ in 0..steps {
        if random.is_spent() {
            break;
        }
        // Most often around the page before, to find the pages in the TLBs.
        page = match random.below(8) {
            0 => random.below(1 << K),
            _ => (page + random.below(9)).saturating_sub(4).min((1 << K) - 1),
        };
        step(&mut space, &mut model, &mut units, page, &mut random);
        // Most often the pages around; at times all.
        let near = page.saturating_sub(2)..(page + 3).min(1 << K);
        let pages = if random.one_in(16) { 0..1 << K } else { near };
        for page in pages {
            let way = OPERATIONS[random.index(3)];
            meet(&mut units, &model, page, way, &memory);
            let own = space.translate(Vpn::new(page)).expect("memory answers");
            assert_eq!(own.map(|(frame, rights)| (frame.raw(), rights)), model.mapped(page));
        }
    }
    assert_eq!(space.check(), Ok(()));
    units.iter().map(|(unit, _)| unit.stats().tlb_hits).collect()
}

/// Nodes of one to five levels in frames full of garbage. Returns the hits of each unit's TLB.
fn nodes(mut random: Random, pages_log2: u32, steps: usize) -> Vec<u64> {
    const FRAMES: u64 = 64;
    let mut noise = Random::new(pages_log2.into());
    let mut words: Vec<u64> = (0..512 * (FRAMES + 1)).map(|_| noise.word()).collect();
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let mut links = vec![0; FRAMES as usize];
    let frames = Extent::new(Pfn::new(1), FRAMES);
    let pool = FramePool::new(frames, &mut links).expect("links for all");
    let tables = NodeTables { pages_log2, root: Pfn::new(0) };
    let starts = SparseRegionSpace::<&SliceMemory<'_>, Vec<u64>>::words_needed(pages_log2, 200);
    let mut space = SparseRegionSpace::new(&memory, tables, vec![0; starts], &pool, Quota::OPEN)
        .expect("parts that fit");
    let mut units = units(RtTables::nodes(space.tables()).expect("tables of a space"));
    let (mut model, mut page) = (Model::default(), 0_u64);
    for _ in 0..steps {
        if random.is_spent() {
            break;
        }
        // Pages that meet in nodes of all levels, and at their borders.
        page = match random.below(4) {
            0 => random.below(3) << (8 * random.below(u64::from(pages_log2.div_ceil(8)))),
            _ => (page + random.below(5)).wrapping_sub(2),
        } & ((1 << pages_log2) - 1);
        step(&mut space, &mut model, &mut units, page, &mut random);
        for page in page.saturating_sub(2)..(page + 3).min(1 << pages_log2) {
            let way = OPERATIONS[random.index(3)];
            meet(&mut units, &model, page, way, &memory);
        }
    }
    assert_eq!(space.check(), Ok(()));
    units.iter().map(|(unit, _)| unit.stats().tlb_hits).collect()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn long_runs_on_arrays_hit() {
        for seed in 0..8 {
            let hits = arrays(Random::new(seed), seed, 1500);
            assert!(hits[0] == 0 && hits[1..].iter().all(|&hits| hits > 500), "{hits:?}");
        }
    }

    #[test]
    fn long_runs_on_nodes_hit() {
        for pages_log2 in [5, 8, 9, 16, 24, 36, 40] {
            let hits = nodes(Random::new(pages_log2.into()), pages_log2, 2000);
            assert!(hits[1] > 500, "{hits:?}");
        }
    }
}

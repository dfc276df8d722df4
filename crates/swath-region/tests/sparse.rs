//! Regions in sparse spaces: random steps against a model and against a walk that
//! is written from `swath_arch::validity`; failures of memory and of the pool; words
//! touched.

use std::cell::Cell;
use std::collections::BTreeMap;

use swath_arch::testing::Random;
use swath_arch::{
    BusError, Extent, NodeTables, PageRange, Pfn, PhysAddr, PhysMemory, SliceMemory, Vpn,
};
use swath_region::{FramePool, NewRegionsError, Quota, RegionError, Rights, SparseRegionSpace};

/// Frames of nodes and pages, from number 1 on; the root is frame 0.
const FRAMES: u64 = 40;

/// Memory of frames 0 to [`FRAMES`], that counts and can fail.
struct Memory<'m> {
    inner: SliceMemory<'m>,
    fail_in: Cell<u64>,
    reads: Cell<u64>,
    writes: Cell<u64>,
}

impl<'m> Memory<'m> {
    fn new(words: &'m mut Vec<u64>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        *words = (0..512 * (FRAMES + 1)).map(|_| random.below(u64::MAX)).collect();
        let (fail_in, reads, writes) = Default::default();
        Self { inner: SliceMemory::new(Pfn::new(0), words), fail_in, reads, writes }
    }

    fn access(&self, addr: PhysAddr) -> Result<(), BusError> {
        let fail_in = self.fail_in.get();
        self.fail_in.set(fail_in.saturating_sub(1));
        if fail_in == 1 { Err(BusError { addr, len_bytes: 8 }) } else { Ok(()) }
    }

    fn take_counts(&self) -> (u64, u64) {
        (self.reads.take(), self.writes.take())
    }
}

impl PhysMemory for Memory<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        Err(BusError { addr, len_bytes: 4 })
    }
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        self.access(addr)?;
        self.reads.set(self.reads.get() + 1);
        self.inner.read_u64(addr)
    }
    fn write_u32(&self, addr: PhysAddr, _: u32) -> Result<(), BusError> {
        Err(BusError { addr, len_bytes: 4 })
    }
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.access(addr)?;
        self.writes.set(self.writes.get() + 1);
        self.inner.write_u64(addr, value)
    }
}

/// What an RTMMU finds for a page.
fn hardware(memory: &Memory<'_>, tables: NodeTables, page: u64) -> Option<u64> {
    let mut node = tables.root.raw();
    for level in (0..tables.pages_log2.div_ceil(8)).rev() {
        let read = |byte: u64| memory.inner.read_u64(PhysAddr::new((node << 12) + byte)).unwrap();
        let control = |place: u64| read(2048 + 8 * place);
        let place = page >> (8 * level) & 0xff;
        let (at, start) = (control(place) >> 8 & 0xff, control(place) >> 16 & 0xff);
        let end = control(start) >> 32 & 0x1ff;
        if start > place || at < start || at >= end || control(at) & 0xff != place {
            return None;
        }
        node = read(8 * place) >> 12 & 0xff_ffff_ffff;
    }
    Some(node)
}

/// A region of the model: one past its end, and its mapped pages.
type Model = BTreeMap<u64, (u64, BTreeMap<u64, u64>)>;

fn at(model: &Model, page: u64) -> Option<u64> {
    let (&start, &(end, _)) = model.range(..=page).next_back()?;
    (page < end).then_some(start)
}

/// Page numbers that meet in nodes of all levels, and at their borders.
fn some_page(random: &mut Random, pages_log2: u32) -> u64 {
    let pages = 1_u64 << pages_log2;
    let near = 1 << (8 * random.below(u64::from(pages_log2).div_ceil(8)));
    let page = match random.below(4) {
        0 => random.below(pages),
        1 => near * random.below(6),
        2 => (near * random.below(6)).wrapping_sub(1),
        _ => near * random.below(6) + random.below(5),
    };
    page % pages
}

fn with_space(
    pages_log2: u32,
    seed: u64,
    quota: Quota,
    body: impl FnOnce(&Memory<'_>, &FramePool<'_>, &mut SparseRegionSpace<'_, &Memory<'_>, Vec<u64>>),
) {
    let mut words = Vec::new();
    let memory = Memory::new(&mut words, seed);
    let mut links = vec![0xffff; FRAMES as usize];
    let pool = FramePool::new(Extent::new(Pfn::new(1), FRAMES), &mut links).unwrap();
    let needed = SparseRegionSpace::<&Memory<'_>, Vec<u64>>::words_needed(pages_log2, 60);
    let tables = NodeTables { pages_log2, root: Pfn::new(0) };
    let words = vec![u64::MAX; needed];
    let mut space = SparseRegionSpace::new(&memory, tables, words, &pool, quota).unwrap();
    body(&memory, &pool, &mut space);
    space.check().unwrap();
    assert!(pool.check());
    memory.fail_in.set(0);
    assert!(space.close().is_ok());
    assert_eq!((u64::from(pool.free_frames()), pool.promised_frames()), (FRAMES, 0));
}

#[test]
fn random_steps_against_the_model_at_every_depth() {
    let mut refused = 0;
    for pages_log2 in [5, 8, 9, 16, 18, 25, 36, 40] {
        for seed in 1..=4_u64 {
            with_space(pages_log2, seed, Quota::OPEN, |memory, pool, space| {
                let pages = 1_u64 << pages_log2;
                let mut model = Model::new();
                let mut random = Random::new(seed * 77 + u64::from(pages_log2));
                for step in 0..3000 {
                    let what = format!("k {pages_log2}, seed {seed}, step {step}");
                    let page = some_page(&mut random, pages_log2);
                    let vpn = Vpn::new(page);
                    match random.below(8) {
                        0 | 1 if model.len() < 50 => {
                            let end = some_page(&mut random, pages_log2).max(page) + 1;
                            let range = PageRange::new(vpn, end - page);
                            let next = model.range(page..).next().map_or(pages, |next| *next.0);
                            let free = at(&model, page).is_none() && end <= next;
                            let result = space.map_region(range, Rights::READ);
                            assert_eq!(result.is_ok(), free, "{what}");
                            if free {
                                model.insert(page, (end, BTreeMap::new()));
                            }
                        }
                        2 if random.below(3) == 0 => {
                            let Some(start) = at(&model, page) else {
                                let error = RegionError::NoRegion { page: vpn };
                                assert_eq!(space.unmap_region(vpn), Err(error), "{what}");
                                continue;
                            };
                            if start != page {
                                let start = Vpn::new(start);
                                let error = RegionError::NotStart { page: vpn, start };
                                assert_eq!(space.unmap_region(vpn), Err(error), "{what}");
                            }
                            let unmapped = space.unmap_region(Vpn::new(start)).unwrap();
                            let (end, mapped) = model.remove(&start).unwrap();
                            assert_eq!(
                                unmapped.pages,
                                PageRange::new(Vpn::new(start), end - start)
                            );
                            assert!(unmapped.frames as usize >= mapped.len(), "{what}");
                        }
                        _ => {
                            let used = space.frames_used();
                            let result = space.map_page(vpn, Rights::READ);
                            let start = at(&model, page);
                            let mapped =
                                start.is_some_and(|start| model[&start].1.contains_key(&page));
                            match result {
                                Ok(frame) => {
                                    assert!(start.is_some() && !mapped, "{what}");
                                    let region = model.get_mut(&start.unwrap()).unwrap();
                                    region.1.insert(page, frame.raw());
                                }
                                Err(error) => {
                                    let expected = match start {
                                        None => RegionError::NoRegion { page: vpn },
                                        Some(_) if mapped => {
                                            RegionError::AlreadyMapped { page: vpn }
                                        }
                                        Some(_) => RegionError::OutOfFrames,
                                    };
                                    assert_eq!(error, expected, "{what}");
                                    assert_eq!(space.frames_used(), used, "{what}");
                                    if error == RegionError::OutOfFrames {
                                        refused += 1;
                                        assert!(u64::from(used) + 5 > FRAMES, "{what}");
                                        // Room again, so that the run goes on.
                                        let start = *model.keys().next().unwrap();
                                        space.unmap_region(Vpn::new(start)).unwrap();
                                        model.remove(&start);
                                    }
                                }
                            }
                        }
                    }
                    let near = some_page(&mut random, pages_log2);
                    let all = model.values().flat_map(|region| region.1.keys().copied());
                    let beside = all.clone().flat_map(|page| [page ^ 1, page + 1]);
                    for page in all.clone().chain(beside).chain([page, near]) {
                        if page >= pages {
                            continue;
                        }
                        let start = at(&model, page);
                        let frame = start.and_then(|start| model[&start].1.get(&page).copied());
                        assert_eq!(
                            hardware(memory, space.tables(), page),
                            frame,
                            "{page:#x}, {what}"
                        );
                        let region = space.region_of(Vpn::new(page));
                        assert_eq!(region.map(|region| region.pages.start.raw()), start, "{what}");
                    }
                    if step % 16 == 0 {
                        space.check().unwrap_or_else(|fault| panic!("{fault}, {what}"));
                        assert!(pool.check(), "{what}");
                    }
                    let free = u64::from(pool.free_frames() + space.frames_used());
                    assert_eq!(free, FRAMES, "{what}");
                }
                for &start in model.keys() {
                    space.unmap_region(Vpn::new(start)).unwrap();
                }
                // Not a node is left.
                assert_eq!(space.frames_used(), 0);
            });
        }
    }
    assert!(refused > 0, "the pool never ran out");
}

#[test]
fn a_fault_whose_memory_fails_changes_nothing_and_an_end_can_be_repeated() {
    with_space(36, 3, Quota::OPEN, |memory, pool, space| {
        let range = PageRange::new(Vpn::new(0x1_2345), 0x8_0000_0000);
        space.map_region(range, Rights::READ).unwrap();
        for page in [0x1_2345, 0x1_2346, 0x1_2400, 0x7_0000_0000, 0x8_0001_2344] {
            let used = space.frames_used();
            for fail_in in 1.. {
                memory.fail_in.set(fail_in);
                let result = space.map_page(Vpn::new(page), Rights::READ);
                memory.fail_in.set(0);
                space.check().unwrap();
                assert!(pool.check());
                if result.is_ok() {
                    break;
                }
                assert!(matches!(result, Err(RegionError::Bus(_))));
                assert_eq!(space.frames_used(), used);
                assert_eq!(hardware(memory, space.tables(), page), None);
            }
            assert!(hardware(memory, space.tables(), page).is_some());
        }
        for fail_in in 1.. {
            memory.fail_in.set(fail_in);
            let result = space.unmap_region(range.start);
            memory.fail_in.set(0);
            if result.is_ok() {
                assert!(fail_in > 10);
                break;
            }
            assert!(space.region_of(range.start).is_some());
        }
        assert_eq!((space.frames_used(), u64::from(pool.free_frames())), (0, FRAMES));
    });
}

#[test]
fn nodes_count_against_the_quota() {
    with_space(36, 4, Quota { guaranteed: 2, limit: 5 }, |_, pool, space| {
        let whole = PageRange::new(Vpn::new(1), (1 << 36) - 1);
        space.map_region(whole, Rights::READ).unwrap();
        // Four nodes and the page: exactly the limit. One more level would be too many.
        space.map_page(Vpn::new(1), Rights::READ).unwrap();
        let error = RegionError::LimitReached { limit: 5 };
        assert_eq!(space.map_page(Vpn::new(2), Rights::READ), Err(error));
        assert_eq!(space.map_page(Vpn::new(1 << 35), Rights::READ), Err(error));
        assert_eq!((space.frames_used(), u64::from(pool.free_frames())), (5, FRAMES - 5));
        let unmapped = space.unmap_region(Vpn::new(1)).unwrap();
        assert_eq!((unmapped.frames, space.frames_used()), (5, 0));
        // What is open is closed at the end, and the guarantee with it.
        space.map_region(whole, Rights::READ).unwrap();
        space.map_page(Vpn::new(1 << 20), Rights::READ).unwrap();
        assert_eq!(pool.promised_frames(), 0);
    });
}

/// The bounds that the module states, for regions of one page and of 2^36.
#[test]
fn words_touched_stay_below_the_stated_bounds() {
    for pages_log2 in [8_u32, 16, 24, 36, 40] {
        let levels = u64::from(pages_log2.div_ceil(8));
        with_space(pages_log2, 5, Quota::OPEN, |memory, _, space| {
            let mut random = Random::new(9);
            for _ in 0..400 {
                let start = some_page(&mut random, pages_log2);
                let end = some_page(&mut random, pages_log2).max(start) + 1;
                memory.take_counts();
                let range = PageRange::new(Vpn::new(start), end - start);
                space.map_region(range, Rights::READ).unwrap();
                assert_eq!(memory.take_counts(), (0, 0));
                for _ in 0..6 {
                    let page = start + random.below(end - start);
                    let used = space.frames_used();
                    let mapped = space.map_page(Vpn::new(page), Rights::READ).is_ok();
                    let (read, written) = memory.take_counts();
                    let nodes = u64::from(space.frames_used() - used).saturating_sub(1);
                    assert!(read <= 4 * levels + 3 && nodes < levels, "{read}");
                    assert!(!mapped || written == 4 + 260 * nodes, "{written}");
                }
                space.unmap_region(Vpn::new(start)).unwrap();
                let (read, written) = memory.take_counts();
                assert!(read <= 12 * levels && written <= 4 * levels, "{read} {written}");
            }
        });
    }
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let mut words = Vec::new();
    let memory = Memory::new(&mut words, 1);
    let mut links = [0; 8];
    let pool = FramePool::new(Extent::new(Pfn::new(1), 8), &mut links).unwrap();
    let new = |pages_log2, root, words: usize| {
        let tables = NodeTables { pages_log2, root: Pfn::new(root) };
        SparseRegionSpace::new(&memory, tables, vec![0; words], &pool, Quota::fixed(8)).err()
    };
    for k in [0, 4, 41, u32::MAX] {
        let error = NewRegionsError::Pages { tables_log2: k, tree_pages: 0 };
        assert_eq!(new(k, 0, 10_000), Some(error));
    }
    assert!(matches!(new(36, 3, 10_000), Some(NewRegionsError::Overlap { .. })));
    assert!(matches!(new(36, 0, 64), Some(NewRegionsError::Headers { given: 64, .. })));
    assert!(matches!(new(36, 1 << 30, 10_000), Some(NewRegionsError::Bus(_))));
    assert_eq!(pool.promised_frames(), 0);
    assert_eq!(new(36, 0, 10_000), None);
}

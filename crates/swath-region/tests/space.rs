//! Spaces of regions: three of them over one pool, each with another tree, against a
//! naive model and against the hardware's rule; each error; each failure of memory; words
//! touched.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::machine::{Memory, hardware};
use swath_arch::testing::Random;
use swath_arch::{BusError, Extent, PageRange, Pfn, PhysAddr, ValidityTables, Vpn};
use swath_region::{
    DenseTree, FramePool, FramePoolError, LayeredTree, NewRegionsError, Quota, QuotaError,
    RegionError, RegionSpace, RegionTree, Rights, SparseTree, TreeError, UnmappedRegion,
    dense_tree_words,
};

const K: u32 = 6;
const PAGES: u64 = 1 << K;
const TABLES: ValidityTables = ValidityTables::consecutive(K, PhysAddr::new(0));
const FIRST: u64 = 0x1000;

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(Vpn::new(start), count)
}

fn dense() -> DenseTree<K, { dense_tree_words(K) }, [u64; dense_tree_words(K)]> {
    DenseTree::new([0; dense_tree_words(K)])
}

fn read_write() -> Rights {
    Rights::READ | Rights::WRITE
}

/// Garbage that looks like pages, positions and stacks of a small space.
fn garbage(seed: u64) -> impl Fn(usize) -> u32 {
    let random = RefCell::new(Random::new(seed));
    move |_| random.borrow_mut().below(PAGES + 3) as u32
}

/// A space as the tests see it, whatever its tree.
trait Machine {
    fn map(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError>;
    fn fault(&mut self, page: Vpn, access: Rights) -> Result<Pfn, RegionError>;
    fn unmap(&mut self, start: Vpn) -> Result<UnmappedRegion, RegionError>;
    fn split(&mut self, at: Vpn) -> Result<(), RegionError>;
    fn merge(&mut self, start: Vpn) -> Result<(), RegionError>;
    fn quota(&mut self, quota: Quota) -> Result<(), QuotaError>;
    fn region_of(&self, page: u64) -> Option<(u64, u64, Rights)>;
    fn translate(&self, page: u64) -> Option<u64>;
    fn check(&self);
}

impl<M, T, H> Machine for RegionSpace<'_, M, T, H>
where
    M: swath_arch::PhysMemory,
    T: RegionTree,
    H: std::ops::DerefMut<Target = [u64]>,
{
    fn map(&mut self, range: PageRange, rights: Rights) -> Result<(), RegionError> {
        self.map_region(range, rights)
    }
    fn fault(&mut self, page: Vpn, access: Rights) -> Result<Pfn, RegionError> {
        self.map_page(page, access)
    }
    fn unmap(&mut self, start: Vpn) -> Result<UnmappedRegion, RegionError> {
        self.unmap_region(start)
    }
    fn split(&mut self, at: Vpn) -> Result<(), RegionError> {
        self.split_region(at)
    }
    fn merge(&mut self, start: Vpn) -> Result<(), RegionError> {
        self.merge_region(start)
    }
    fn quota(&mut self, quota: Quota) -> Result<(), QuotaError> {
        self.set_quota(quota)
    }
    fn region_of(&self, page: u64) -> Option<(u64, u64, Rights)> {
        let region = self.region_of(Vpn::new(page))?;
        Some((region.pages.start.raw(), region.pages.count, region.rights))
    }
    fn translate(&self, page: u64) -> Option<u64> {
        self.translate(Vpn::new(page)).unwrap().map(|(frame, _)| frame.raw())
    }
    fn check(&self) {
        self.check().unwrap();
    }
}

/// A region of the model.
#[derive(Clone)]
struct Plain {
    end: u64,
    rights: Rights,
    mapped: BTreeMap<u64, u64>,
    /// One past the highest page that was ever mapped.
    high: u64,
}

/// A space of the model: regions by start.
#[derive(Clone, Default)]
struct Model {
    regions: BTreeMap<u64, Plain>,
    guaranteed: u64,
    limit: u64,
}

impl Model {
    fn used(&self) -> u64 {
        self.regions.values().map(|region| region.mapped.len() as u64).sum()
    }

    fn at(&self, page: u64) -> Option<(u64, &Plain)> {
        let (&start, region) = self.regions.range(..=page).next_back()?;
        (page < region.end).then_some((start, region))
    }

    fn map(&mut self, start: u64, count: u64, rights: Rights) -> Result<(), RegionError> {
        let end = start.saturating_add(count);
        let hit = (start..end.min(PAGES)).find_map(|page| self.at(page));
        match () {
            () if count == 0 => Err(RegionError::Empty { start: Vpn::new(start) }),
            () if start >= PAGES => Err(RegionError::OutOfRange { page: Vpn::new(start) }),
            () if end > PAGES => Err(RegionError::OutOfRange { page: Vpn::new(PAGES) }),
            () if hit.is_some() => Err(RegionError::Overlap {
                range: range(start, count),
                start: Vpn::new(hit.unwrap().0),
            }),
            () => {
                let region = Plain { end, rights, mapped: BTreeMap::new(), high: start };
                self.regions.insert(start, region);
                Ok(())
            }
        }
    }

    /// The error, or `None` if the page can be mapped. `others` are promised frames.
    fn fault(&self, page: u64, access: Rights, free: u64, others: u64) -> Option<RegionError> {
        let vpn = Vpn::new(page);
        if page >= PAGES {
            return Some(RegionError::OutOfRange { page: vpn });
        }
        let Some((_, region)) = self.at(page) else {
            return Some(RegionError::NoRegion { page: vpn });
        };
        let rights = region.rights;
        if !rights.contain(access) {
            return Some(RegionError::Denied { page: vpn, access, rights });
        }
        if region.mapped.contains_key(&page) {
            return Some(RegionError::AlreadyMapped { page: vpn });
        }
        if self.used() >= self.limit {
            return Some(RegionError::LimitReached { limit: self.limit as u32 });
        }
        (self.used() >= self.guaranteed && free <= others).then_some(RegionError::OutOfFrames)
    }

    fn start(&self, page: u64) -> Result<u64, RegionError> {
        let vpn = Vpn::new(page);
        match self.at(page) {
            _ if page >= PAGES => Err(RegionError::OutOfRange { page: vpn }),
            None => Err(RegionError::NoRegion { page: vpn }),
            Some((start, _)) if start == page => Ok(start),
            Some((start, _)) => Err(RegionError::NotStart { page: vpn, start: Vpn::new(start) }),
        }
    }

    fn unmap(&mut self, page: u64) -> Result<UnmappedRegion, RegionError> {
        let start = self.start(page)?;
        let region = self.regions.remove(&start).unwrap();
        let pages = range(start, region.end - start);
        Ok(UnmappedRegion { pages, frames: region.mapped.len() as u32 })
    }

    fn split(&mut self, at: u64) -> Result<(), RegionError> {
        let vpn = Vpn::new(at);
        let start = match self.start(at) {
            Ok(_) => return Err(RegionError::IsStart { page: vpn }),
            Err(RegionError::NotStart { start, .. }) => start.raw(),
            Err(error) => return Err(error),
        };
        let region = self.regions.get_mut(&start).unwrap();
        if region.high > at {
            return Err(RegionError::Mapped { page: Vpn::new(region.high - 1) });
        }
        let upper = Plain { mapped: BTreeMap::new(), high: at, ..region.clone() };
        region.end = at;
        self.regions.insert(at, upper);
        Ok(())
    }

    fn merge(&mut self, page: u64) -> Result<(), RegionError> {
        let start = self.start(page)?;
        let region = &self.regions[&start];
        if !region.mapped.is_empty() {
            return Err(RegionError::Mapped { page: Vpn::new(region.high - 1) });
        }
        let (end, rights) = (region.end, region.rights);
        let below = self.regions.range_mut(..start).next_back();
        match below {
            Some((_, below)) if below.end == start && below.rights == rights => below.end = end,
            _ => return Err(RegionError::NoNeighbour { start: Vpn::new(start) }),
        }
        self.regions.remove(&start);
        Ok(())
    }
}

/// Random steps on three spaces, all of what they answer and what hardware sees.
#[test]
fn three_spaces_over_one_pool_against_the_model() {
    for seed in 1..=12_u64 {
        let frames = 24;
        let memories = [1, 2, 3].map(|i| {
            let len_bytes = ValidityTables::len_bytes(K);
            Memory::new(len_bytes, garbage(seed * 1000 + i))
        });
        let mut links = vec![0xdead_beef; frames as usize];
        let pool = FramePool::new(Extent::new(Pfn::new(FIRST), frames), &mut links).unwrap();
        let headers = || vec![0x0123_4567_89ab_cdef_u64; 2 * PAGES as usize];
        let words = vec![0; LayeredTree::words(K).unwrap()];
        let layered = LayeredTree::new(K, words).unwrap();
        let words = vec![u64::MAX; SparseTree::words_needed(K, 64)];
        let sparse = SparseTree::new(K, words).unwrap();
        let [a, b, c] = &memories;
        let open = Quota::OPEN;
        let mut first = RegionSpace::new(a, TABLES, dense(), headers(), &pool, open).unwrap();
        let mut second = RegionSpace::new(b, TABLES, layered, headers(), &pool, open).unwrap();
        let mut third = RegionSpace::new(c, TABLES, sparse, headers(), &pool, open).unwrap();
        let mut spaces: [&mut dyn Machine; 3] = [&mut first, &mut second, &mut third];
        let mut models = vec![Model { limit: u32::MAX.into(), ..Model::default() }; 3];
        let mut random = Random::new(seed);
        for step in 0..4000 {
            let what = format!("seed {seed}, step {step}");
            let at = random.below(3) as usize;
            let (space, page) = (&mut spaces[at], random.below(PAGES + 2));
            let free = frames - models.iter().map(Model::used).sum::<u64>();
            let promised = |m: &[Model]| -> u64 {
                m.iter().map(|m| m.guaranteed.saturating_sub(m.used())).sum()
            };
            let kept = promised(&models);
            let model = &mut models[at];
            let rights = [Rights::READ, read_write(), Rights::EXECUTE, Rights::NONE];
            let right = rights[random.below(4) as usize % 3];
            match random.below(16) {
                0..=2 => {
                    let count = random.below(20);
                    let result = space.map(range(page, count), right);
                    assert_eq!(result, model.map(page, count, right), "{what}");
                }
                3 => {
                    let result = space.unmap(Vpn::new(page));
                    assert_eq!(result, model.unmap(page), "{what}");
                }
                4 => {
                    if let Some((start, _)) = model.at(page) {
                        let result = space.unmap(Vpn::new(start));
                        assert_eq!(result, model.unmap(start), "{what}");
                    }
                }
                5 => assert_eq!(space.split(Vpn::new(page)), model.split(page), "{what}"),
                6 => assert_eq!(space.merge(Vpn::new(page)), model.merge(page), "{what}"),
                7 => {
                    let (guaranteed, limit) = (random.below(12), random.below(30));
                    let quota = Quota { guaranteed: guaranteed as u32, limit: limit as u32 };
                    let others = kept - model.guaranteed.saturating_sub(model.used());
                    let wanted = guaranteed.saturating_sub(model.used());
                    let good =
                        guaranteed <= limit && model.used() <= limit && wanted <= free - others;
                    assert_eq!(space.quota(quota).is_ok(), good, "{what}");
                    if good {
                        (model.guaranteed, model.limit) = (guaranteed, limit);
                    }
                }
                _ => {
                    let access = rights[random.below(4) as usize];
                    match (
                        space.fault(Vpn::new(page), access),
                        model.fault(page, access, free, kept),
                    ) {
                        (Ok(frame), None) => {
                            let frame = frame.raw();
                            assert!((FIRST..FIRST + frames).contains(&frame), "{what}");
                            let region = model.regions.range_mut(..=page).next_back().unwrap().1;
                            region.mapped.insert(page, frame);
                            region.high = region.high.max(page + 1);
                        }
                        (Err(error), Some(expected)) => assert_eq!(error, expected, "{what}"),
                        (got, expected) => panic!("{got:?}, {expected:?}, {what}"),
                    }
                }
            }
            // The hardware sees what is mapped, and nothing else.
            let model = &models[at];
            for page in 0..PAGES {
                let region = model.at(page);
                let frame = region.and_then(|(_, region)| region.mapped.get(&page).copied());
                let seen = hardware(&memories[at], &TABLES, page);
                assert_eq!(seen.map(|(frame, _)| frame), frame, "page {page}, {what}");
                assert_eq!(spaces[at].translate(page), frame, "{what}");
                let plain =
                    region.map(|(start, region)| (start, region.end - start, region.rights));
                assert_eq!(spaces[at].region_of(page), plain, "{what}");
                if let Some((_, bits)) = seen {
                    let right = |rights: Rights| plain.unwrap().2.contain(rights);
                    let bits = [1, 2, 4].map(|bit| bits & bit != 0);
                    assert_eq!(bits, [Rights::READ, Rights::WRITE, Rights::EXECUTE].map(right));
                }
            }
            // No frame is in two places, and the pool counts right.
            let used: Vec<u64> = (models.iter().flat_map(|model| model.regions.values()))
                .flat_map(|region| region.mapped.values().copied())
                .collect();
            assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), used.len(), "{what}");
            assert_eq!(u64::from(pool.free_frames()), frames - used.len() as u64, "{what}");
            assert_eq!(u64::from(pool.promised_frames()), promised(&models), "{what}");
            if step % 50 == 0 {
                spaces.iter().for_each(|space| space.check());
                assert!(pool.check(), "{what}");
            }
        }
        assert!(first.close().is_ok() && second.close().is_ok() && third.close().is_ok());
        assert_eq!((u64::from(pool.free_frames()), pool.promised_frames()), (frames, 0));
        assert!(pool.check());
    }
}

/// A space of 64 pages over eight frames.
fn with_space(
    quota: Quota,
    body: impl FnOnce(
        &Memory<fn(usize) -> u32>,
        &FramePool<'_>,
        &mut RegionSpace<
            '_,
            &Memory<fn(usize) -> u32>,
            DenseTree<K, { dense_tree_words(K) }, [u64; dense_tree_words(K)]>,
            Vec<u64>,
        >,
    ),
) {
    let memory = Memory::new(ValidityTables::len_bytes(K), (|_| 7) as fn(usize) -> u32);
    let mut links = [0; 8];
    let pool = FramePool::new(Extent::new(Pfn::new(FIRST), 8), &mut links).unwrap();
    let headers = vec![0; 2 * PAGES as usize];
    let mut space = RegionSpace::new(&memory, TABLES, dense(), headers, &pool, quota).unwrap();
    body(&memory, &pool, &mut space);
    space.check().unwrap();
    assert!(pool.check());
}

#[test]
fn every_access_can_fail_and_then_nothing_has_changed() {
    with_space(Quota::OPEN, |memory, pool, space| {
        let bus = |result: Result<(), RegionError>| matches!(result, Err(RegionError::Bus(_)));
        let failing =
            |space: &mut dyn Machine,
             what: &mut dyn FnMut(&mut dyn Machine) -> Result<(), RegionError>| {
                let mut failures = 0;
                loop {
                    memory.fail_in.set(failures + 1);
                    let free = pool.free_frames();
                    let result = what(space);
                    memory.fail_in.set(0);
                    space.check();
                    if result.is_ok() {
                        return failures;
                    }
                    assert!(bus(result));
                    assert_eq!(pool.free_frames(), free);
                    failures += 1;
                }
            };
        assert_eq!(failing(space, &mut |s| s.map(range(4, 8), Rights::READ)), 1);
        for page in [4, 5, 6, 7, 8] {
            let fault = &mut |s: &mut dyn Machine| s.fault(Vpn::new(page), Rights::READ).map(drop);
            assert_eq!(failing(space, fault), 7);
        }
        assert_eq!(failing(space, &mut |s| s.split(Vpn::new(10))), 1);
        assert_eq!(failing(space, &mut |s| s.merge(Vpn::new(10))), 1);
        assert_eq!(failing(space, &mut |s| s.unmap(Vpn::new(4)).map(drop)), 2);
        assert_eq!(pool.free_frames(), 8);
    });
}

#[test]
fn a_guarantee_holds_whatever_others_take_and_a_limit_is_never_passed() {
    let memories = [1, 2].map(|i| Memory::new(ValidityTables::len_bytes(K), garbage(i)));
    let mut links = [0; 8];
    let pool = FramePool::new(Extent::new(Pfn::new(FIRST), 8), &mut links).unwrap();
    let [a, b] = &memories;
    let headers = || vec![0; 2 * PAGES as usize];
    let quota = Quota { guaranteed: 3, limit: 4 };
    let mut task = RegionSpace::new(a, TABLES, dense(), headers(), &pool, quota).unwrap();
    let refused = RegionSpace::new(b, TABLES, dense(), headers(), &pool, Quota::fixed(6));
    let error = QuotaError::TooFew { wanted: 6, available: 5 };
    assert_eq!(refused.err(), Some(NewRegionsError::Quota(error)));
    let mut greedy = RegionSpace::new(b, TABLES, dense(), headers(), &pool, Quota::OPEN).unwrap();
    let all = range(0, PAGES);
    task.map_region(all, Rights::READ).unwrap();
    greedy.map_region(all, Rights::READ).unwrap();
    let take = |space: &mut dyn Machine, from: u64| {
        (from..PAGES).find_map(|page| space.fault(Vpn::new(page), Rights::READ).err()).unwrap()
    };
    assert_eq!(take(&mut greedy, 0), RegionError::OutOfFrames);
    assert_eq!((greedy.frames_used(), pool.free_frames()), (5, 3));
    // The task gets its three, and not a fourth.
    assert_eq!(take(&mut task, 0), RegionError::OutOfFrames);
    assert_eq!(task.frames_used(), 3);
    greedy.unmap_region(Vpn::new(0)).unwrap();
    assert_eq!(take(&mut task, 3), RegionError::LimitReached { limit: 4 });
    assert_eq!(task.frames_used(), 4);
    let error = QuotaError::InUse { used: 4, limit: 3 };
    assert_eq!(task.set_quota(Quota { guaranteed: 0, limit: 3 }), Err(error));
    // What it gives back is kept for it again.
    task.unmap_region(Vpn::new(0)).unwrap();
    assert_eq!((pool.free_frames(), pool.promised_frames()), (8, 3));
    assert!(matches!(
        task.set_quota(Quota { guaranteed: 2, limit: 1 }),
        Err(QuotaError::AboveLimit { .. })
    ));
}

/// Words of the tables that each operation touches: the bounds that the module states, for
/// one page and for all.
#[test]
fn words_touched_do_not_depend_on_size_or_history() {
    with_space(Quota::OPEN, |memory, _, space| {
        let mut random = Random::new(5);
        let mut worst = [(0, 0); 3];
        for _ in 0..2000 {
            let (start, count) = (random.below(40), random.below(24) + 1);
            let mut note = |at: usize, counts: (u64, u64)| {
                worst[at] = (worst[at].0.max(counts.0), worst[at].1.max(counts.1));
            };
            memory.take_counts();
            space.map_region(range(start, count), Rights::READ).unwrap();
            note(0, memory.take_counts());
            for _ in 0..random.below(8) {
                let page = Vpn::new(start + random.below(count));
                let mapped = space.map_page(page, Rights::READ).is_ok();
                let counts = memory.take_counts();
                if mapped {
                    note(1, counts);
                }
            }
            space.unmap_region(Vpn::new(start)).unwrap();
            note(2, memory.take_counts());
        }
        assert_eq!(worst, [(0, 1), (3, 5), (1, 1)]);
    });
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let memory = Memory::new(ValidityTables::len_bytes(K), garbage(1));
    let mut links = [0; 8];
    let frames = Extent::new(Pfn::new(FIRST), 8);
    let error = FramePool::new(frames, &mut links[..7]).unwrap_err();
    assert_eq!(error, FramePoolError::Short { needed: 8, given: 7 });
    for frames in [Extent::new(Pfn::new((1 << 29) - 7), 8), Extent::new(Pfn::new(u64::MAX), 8)] {
        let error = FramePool::new(frames, &mut links).unwrap_err();
        assert!(matches!(error, FramePoolError::FrameOutOfReach { .. }));
    }
    let pool = FramePool::new(frames, &mut links).unwrap();
    let new = |tables, words: usize| {
        RegionSpace::new(&memory, tables, dense(), vec![0; words], &pool, Quota::OPEN).err()
    };
    let words = 2 * PAGES as usize;
    assert_eq!(new(TABLES, words), None);
    let error = NewRegionsError::Headers { needed: words as u64, given: words - 1 };
    assert_eq!(new(TABLES, words - 1), Some(error));
    for pages_log2 in [0, 5, 7, 32, 64, u32::MAX] {
        let error = NewRegionsError::Pages { tables_log2: pages_log2, tree_pages: PAGES };
        assert_eq!(new(ValidityTables { pages_log2, ..TABLES }, words), Some(error));
    }
    for base in [PhysAddr::new(2), PhysAddr::new(u64::MAX - 3)] {
        let error = NewRegionsError::Base { base };
        assert_eq!(new(ValidityTables { stack: base, ..TABLES }, words), Some(error));
    }
    let helper = PhysAddr::new(252);
    let error = NewRegionsError::Overlap { base: helper, with: TABLES.data };
    assert_eq!(new(ValidityTables { helper, ..TABLES }, words), Some(error));
    let regions = PhysAddr::new((FIRST << 12) - 4);
    let error = NewRegionsError::Overlap { base: regions, with: PhysAddr::new(FIRST << 12) };
    assert_eq!(new(ValidityTables { regions, ..TABLES }, words), Some(error));
    let stack_end = PhysAddr::new(0x8_0000);
    let error = BusError { addr: stack_end, len_bytes: 4 };
    let tables = ValidityTables { stack_end, ..TABLES };
    assert_eq!(new(tables, words), Some(NewRegionsError::Bus(error)));
    let mut used = dense();
    used.split(Vpn::new(9)).unwrap();
    let error = RegionSpace::new(&memory, TABLES, used, vec![0; words], &pool, Quota::OPEN).err();
    assert_eq!(error, Some(NewRegionsError::TreeInUse { start: Vpn::new(9) }));
    assert_eq!((pool.free_frames(), pool.promised_frames()), (8, 0));
}

/// A tree that is full refuses the second of two starts: the first goes again.
#[test]
fn a_full_tree_leaves_no_half_of_a_region() {
    const K: u32 = 14;
    let tables = ValidityTables::consecutive(K, PhysAddr::new(0));
    let memory = Memory::new(ValidityTables::len_bytes(K), garbage(1));
    let mut links = [0; 8];
    let pool = FramePool::new(Extent::new(Pfn::new(FIRST), 8), &mut links).unwrap();
    let words = vec![0; SparseTree::words_needed(K, 2)];
    let tree = SparseTree::new(K, words).unwrap();
    let mut space =
        RegionSpace::new(&memory, tables, tree, vec![0; 2 << K], &pool, Quota::OPEN).unwrap();
    // One node is free: room for the end or for the start.
    let error = space.map_region(range(0x1000, 0x2000), Rights::READ);
    assert_eq!(error, Err(RegionError::Tree(TreeError::OutOfNodes)));
    assert_eq!(space.region_from(Vpn::new(0)), None);
    space.check().unwrap();
    space.map_region(range(0x1000, 0x10), Rights::READ).unwrap();
    let error = space.split_region(Vpn::new(0x1004));
    assert_eq!(error, Ok(()));
    space.check().unwrap();
}

//! The heap over regions beside a naive model: which pages are mapped follows from the
//! blocks and from what was touched; each page's frame is its own and keeps what was written.

use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use swath_arch::testing::Random;
use swath_arch::{Extent, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
use swath_heap::{AllocateBytesError, HeapPoolError};
use swath_region::{
    DenseTree, FramePool, HeapRegions, NewRegionHeapError, Quota, RegionError, RegionHeap,
    RegionHeapFault, RegionHeapStatistics, RegionSpace, Rights, dense_tree_words,
};

const K: u32 = 10;
const WORDS: usize = dense_tree_words(K);
const PAGES: u64 = 1 << K;
const TAG: u64 = 32;

const PAGE_BYTES: usize = 4096;

type Space<'p> = RegionSpace<'p, &'p SliceMemory<'p>, DenseTree<K, WORDS, [u64; WORDS]>, Vec<u64>>;
type OverRegions<'p> =
    RegionHeap<'p, &'p SliceMemory<'p>, DenseTree<K, WORDS, [u64; WORDS]>, Vec<u64>>;

/// A block from its header to the next one, in bytes from the start of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Placed {
    from: u64,
    to: u64,
}

impl Placed {
    fn payload(self) -> u64 {
        self.from + 16
    }

    fn usable_bytes(self) -> u64 {
        self.to - self.from - 8
    }
}

/// A heap whose allocations have numbers, so that only what is allocated is freed.
struct Heap<'p> {
    heap: OverRegions<'p>,
    base: usize,
    live: BTreeMap<u32, NonNull<u8>>,
}

impl<'p> Heap<'p> {
    fn allocate(&mut self, id: u32, layout: Layout) -> Result<Placed, AllocateBytesError> {
        let at = self.heap.allocate(layout)?;
        self.live.insert(id, at);
        Ok(self.placed(id))
    }

    fn placed(&self, id: u32) -> Placed {
        let at = self.live[&id];
        // SAFETY: what is in the map is allocated.
        let usable = unsafe { self.heap.usable_bytes(at) }.unwrap() as u64;
        let payload = (at.addr().get() - self.base) as u64;
        Placed { from: payload - 16, to: payload + usable - 8 }
    }

    fn free(&mut self, id: u32) {
        let at = self.live.remove(&id).unwrap();
        // SAFETY: it was allocated, and is no more in the map.
        unsafe { self.heap.free(at) }.unwrap();
    }

    fn space(&self) -> &Space<'p> {
        self.heap.space()
    }

    fn statistics(&self) -> RegionHeapStatistics {
        self.heap.statistics()
    }

    fn walk(&self, visit: &mut dyn FnMut(Placed, bool)) {
        let mut show = |block: swath_heap::BlockInfo| {
            let from = (block.address - self.base) as u64;
            visit(Placed { from, to: from + block.len_bytes as u64 }, block.free);
        };
        self.heap.walk(&mut show).unwrap();
    }

    fn check(&self) -> Result<(), RegionHeapFault> {
        self.heap.check()
    }
}

/// Parts of a space, which outlive it.
struct Parts {
    words: Vec<u64>,
    links: Vec<u32>,
    left: Vec<u32>,
    bytes: Vec<MaybeUninit<u8>>,
}

impl Parts {
    /// Never written by anyone before: all of it is garbage.
    fn new(pages: u64, frames: u64) -> Self {
        Self {
            words: vec![0x5a5a_5a5a_0000_0001; (ValidityTables::len_bytes(K) / 8) as usize],
            links: vec![u32::MAX; frames as usize],
            left: vec![0x5a5a_5a5a; pages as usize],
            bytes: vec![MaybeUninit::uninit(); (pages as usize + 1) * PAGE_BYTES],
        }
    }
}

fn space<'p>(memory: &'p SliceMemory<'p>, pool: &'p FramePool<'p>, quota: Quota) -> Space<'p> {
    let tables = ValidityTables::consecutive(K, PhysAddr::new(0));
    let tree = DenseTree::new([0; WORDS]);
    RegionSpace::new(memory, tables, tree, vec![u64::MAX; 2 << K], pool, quota).unwrap()
}

/// The whole pages of a slice that is one page longer.
fn bytes(slice: &mut [MaybeUninit<u8>]) -> &mut [MaybeUninit<u8>] {
    let gap = slice.as_ptr().addr().next_multiple_of(PAGE_BYTES) - slice.as_ptr().addr();
    let len_bytes = slice.len() - PAGE_BYTES;
    &mut slice[gap..gap + len_bytes]
}

/// Runs `body` with a heap over `pages` and a pool of so many frames; at the end all of them
/// must be free but those of the heap's last state, and after its end all.
fn with_heap(pages: u64, frames: u64, body: impl FnOnce(&mut Heap<'_>, &FramePool<'_>)) {
    let mut parts = Parts::new(pages, frames);
    let memory = SliceMemory::new(Pfn::new(0), &mut parts.words);
    let pool = FramePool::new(Extent::new(Pfn::new(64), frames), &mut parts.links).unwrap();
    let bytes = bytes(&mut parts.bytes);
    let base = bytes.as_ptr().addr();
    let space = space(&memory, &pool, Quota::OPEN);
    let heap = RegionHeap::new(space, &pool, bytes, &mut parts.left).unwrap();
    let mut heap = Heap { heap, base, live: BTreeMap::new() };
    body(&mut heap, &pool);
    heap.check().unwrap();
    assert_eq!(u64::from(pool.free_frames()) + u64::from(heap.space().frames_used()), frames);
    assert!(pool.check());
    assert!(heap.heap.close().is_ok());
    assert_eq!(u64::from(pool.free_frames()), frames);
    assert!(pool.check());
}

fn layout(size: u64, align: u64) -> Layout {
    Layout::from_size_align(size as usize, align as usize).unwrap()
}

/// What is allocated, what was written, and which pages have been touched.
#[derive(Default)]
struct Model {
    live: BTreeMap<u32, Placed>,
    /// What the user wrote last: to an allocation's byte.
    written: BTreeMap<(u32, u64), u64>,
    /// Pages with a frame.
    mapped: BTreeSet<u64>,
    /// What simulated frames hold at an offset.
    frames: BTreeMap<(u64, u64), u64>,
}

fn pages(from: u64, to: u64) -> impl Iterator<Item = u64> {
    from / 4096..to.div_ceil(4096)
}

impl Model {
    /// The pages that may have a frame: all but those wholly inside a free block, behind its tag
    /// and links and before the next tag.
    fn committed(heap: &Heap<'_>, pages_of_pool: u64) -> BTreeSet<u64> {
        let mut committed: BTreeSet<u64> = (0..pages_of_pool).collect();
        heap.walk(&mut |block, free| {
            if free {
                for page in (block.from + TAG).div_ceil(4096)..block.to / 4096 {
                    committed.remove(&page);
                }
            }
        });
        committed
    }

    /// After an allocation the tags at both ends have been written, and the links of a free
    /// block behind it.
    fn allocated(&mut self, heap: &Heap<'_>, id: u32, placed: Placed) {
        let mut behind_is_free = false;
        heap.walk(&mut |block, free| behind_is_free |= free && block.from == placed.to);
        let tag = if behind_is_free { TAG } else { 16 };
        self.mapped.extend(pages(placed.to, placed.to + tag));
        self.mapped.extend(pages(placed.from, placed.from + TAG));
        self.live.insert(id, placed);
    }

    fn compare(&self, heap: &Heap<'_>) {
        let mapped: BTreeSet<u64> = (0..PAGES)
            .filter(|&page| heap.space().translate(Vpn::new(page)).unwrap().is_some())
            .collect();
        assert_eq!(mapped, self.mapped);
        assert_eq!(u64::from(heap.space().frames_used()), mapped.len() as u64);
        let frames: BTreeSet<Pfn> = mapped
            .iter()
            .filter_map(|&page| heap.space().translate(Vpn::new(page)).unwrap())
            .map(|(frame, _)| frame)
            .collect();
        assert_eq!(frames.len(), mapped.len(), "two pages have one frame");
    }

    /// A user's write or read of a byte, by way of the page's frame.
    fn access(&mut self, heap: &mut Heap<'_>, id: u32, offset: u64, write: Option<u64>) {
        let addr = heap.placed(id).payload() + offset;
        let page = Vpn::new(addr / 4096);
        assert_eq!(heap.heap.page_of(heap.base + addr as usize), Some(page));
        if heap.space().translate(page).unwrap().is_none() {
            match heap.heap.fault(page, Rights::WRITE) {
                Ok(_) => {
                    self.mapped.insert(page.raw());
                }
                Err(RegionError::OutOfFrames) => return,
                Err(error) => panic!("{error}"),
            }
        }
        let (frame, _) = heap.space().translate(page).unwrap().unwrap();
        let cell = (frame.raw(), addr % 4096);
        if let Some(value) = write {
            self.frames.insert(cell, value);
            self.written.insert((id, offset), value);
        } else if let Some(value) = self.written.get(&(id, offset)) {
            assert_eq!(self.frames.get(&cell), Some(value), "byte {offset} of {id} is lost");
        }
    }
}

/// Random allocations, releases, writes and reads; alignments too.
fn random_run(seed: u64, pool_pages: u64, frames: u64, size_max: u64, steps: u32) -> (u64, u64) {
    let (mut refused, mut ended_max) = (0, 0);
    with_heap(pool_pages, frames, |heap, _| {
        let mut random = Random::new(seed);
        let mut model = Model::default();
        model.mapped.extend([0, pool_pages - 1]);
        for step in 0..steps {
            let id = random.below(40) as u32;
            let kind = random.below(10);
            match model.live.get(&id).copied() {
                None => {
                    let size = random.below(size_max + 1);
                    let align = 1 << random.below(13);
                    let align = if kind < 7 { 16 } else { align };
                    match heap.allocate(id, layout(size, align)) {
                        Ok(placed) => {
                            assert!(placed.usable_bytes() >= size);
                            assert_eq!(placed.payload() % align, 0);
                            model.allocated(heap, id, placed);
                        }
                        // Nothing has changed: the comparison below sees to it.
                        Err(_) => refused += 1,
                    }
                }
                Some(_) if kind < 3 => {
                    let before = heap.statistics().ended;
                    heap.free(id);
                    ended_max = ended_max.max(heap.statistics().ended - before);
                    model.live.remove(&id);
                    model.written.retain(|&(of, _), _| of != id);
                    let committed = Model::committed(heap, pool_pages);
                    model.mapped.retain(|page| committed.contains(page));
                }
                Some(placed) => {
                    let offset = random.below(placed.usable_bytes());
                    let write = (kind < 7).then(|| random.word());
                    model.access(heap, id, offset, write);
                }
            }
            model.compare(heap);
            if step % 16 == 0 {
                heap.check().unwrap_or_else(|why| panic!("seed {seed}, step {step}: {why}"));
            }
        }
        let ids: Vec<u32> = model.live.keys().copied().collect();
        ids.into_iter().for_each(|id| heap.free(id));
        // The first page and the last keep their tags.
        assert_eq!(heap.space().frames_used(), 2);
    });
    (refused, ended_max)
}

#[test]
fn mapped_pages_are_the_models() {
    for seed in 0..6 {
        let (_, ended) = random_run(seed, 300, 1000, 60_000, 1500);
        assert!(ended <= 5, "{ended} regions ended at once");
    }
}

#[test]
fn small_blocks_share_pages() {
    for seed in 10..13 {
        random_run(seed, 12, 1000, 700, 1500);
    }
}

#[test]
fn frames_run_out_and_nothing_changes() {
    let refused: u64 = (20..24).map(|seed| random_run(seed, 300, 40, 60_000, 1500).0).sum();
    assert!(refused > 0, "frames never ran out");
}

#[test]
fn links_in_the_next_page_have_a_region_of_their_own() {
    with_heap(64, 1000, |heap, _| {
        // Blocks that small are not rounded up to a class.
        let mut end = heap.allocate(10, layout(8, 16)).unwrap().to;
        for id in 11.. {
            let gap = 4096 - 16 - end;
            if gap == 0 {
                break;
            }
            let bytes = if gap > 256 { 128 } else { gap };
            end = heap.allocate(id, layout(bytes - 8, 16)).unwrap().to;
        }
        // The next tag stands in the last granule of a page, its links in the next.
        let a = heap.allocate(1, layout(3 * 4096 - 8, 16)).unwrap();
        assert_eq!(a.to % 4096, 4096 - 16);
        heap.allocate(2, layout(5 * 4096 - 8, 16)).unwrap();
        heap.allocate(3, layout(16, 16)).unwrap();
        let used = heap.space().frames_used();
        heap.free(1);
        heap.free(2);
        assert!(heap.space().frames_used() < used);
        heap.check().unwrap();
    });
}

#[test]
fn what_cannot_be_is_refused() {
    with_heap(64, 1000, |heap, _| {
        heap.allocate(7, layout(100, 16)).unwrap();
        let largest = heap.heap.largest_bytes().unwrap();
        let large = heap.allocate(9, layout(1 << 20, 16));
        assert!(matches!(large, Err(AllocateBytesError::OutOfMemory { .. })), "{large:?}");
        assert!(heap.allocate(9, layout(largest as u64, 16)).is_ok());
        let end = heap.base + 64 * PAGE_BYTES;
        assert_eq!(heap.heap.page_of(heap.base - 1), None);
        assert_eq!(heap.heap.page_of(end - 1), Some(Vpn::new(63)));
        assert_eq!(heap.heap.page_of(end), None);
    });
}

#[test]
fn a_heap_is_not_made_of_parts_that_do_not_fit() {
    /// The error of a pool of so many bytes, `skip` bytes into 8 pages.
    fn error(skip: usize, len_bytes: usize, words: usize, quota: Quota) -> NewRegionHeapError {
        let mut parts = Parts::new(PAGES + 2, 16);
        let memory = SliceMemory::new(Pfn::new(0), &mut parts.words);
        let pool = FramePool::new(Extent::new(Pfn::new(64), 16), &mut parts.links).unwrap();
        let bytes = &mut bytes(&mut parts.bytes)[skip..skip + len_bytes];
        let space = space(&memory, &pool, quota);
        match RegionHeap::new(space, &pool, bytes, &mut parts.left[..words]) {
            Ok(_) => panic!("a heap was made"),
            Err(error) => error,
        }
    }
    let pages = |pages| NewRegionHeapError::Pages { pages, space_pages: PAGES };
    assert_eq!(error(0, PAGE_BYTES - 1, 8, Quota::OPEN), pages(0));
    assert_eq!(error(0, (PAGES as usize + 1) * PAGE_BYTES, 1026, Quota::OPEN), pages(PAGES + 1));
    let words = NewRegionHeapError::Words { needed: 8, given: 7 };
    assert_eq!(error(0, 8 * PAGE_BYTES, 7, Quota::OPEN), words);
    for (skip, len_bytes) in [(16, 4 * PAGE_BYTES), (0, 4 * PAGE_BYTES + 16)] {
        let error = error(skip, len_bytes, 8, Quota::OPEN);
        let expected = matches!(error, NewRegionHeapError::Pool(HeapPoolError::NotPages { .. }));
        assert!(expected, "{error}");
    }
    let no_frames = Quota { guaranteed: 0, limit: 0 };
    let refused = error(0, 4 * PAGE_BYTES, 8, no_frames);
    assert!(matches!(refused, NewRegionHeapError::Pool(HeapPoolError::Source(_))), "{refused}");
}

/// Memory that does not answer: an allocation or a free that fails leaves a heap that can
/// be used on, and no frame is lost.
#[test]
fn frames_are_not_lost_when_memory_fails() {
    use std::cell::Cell;
    use swath_arch::{BusError, PhysMemory};

    struct Failing<'a> {
        memory: &'a SliceMemory<'a>,
        /// Accesses until the one that fails; 0 for none.
        fail_in: &'a Cell<u64>,
    }

    impl Failing<'_> {
        fn next(&self, addr: PhysAddr) -> Result<(), BusError> {
            let left = self.fail_in.replace(self.fail_in.get().saturating_sub(1));
            if left == 1 { Err(BusError { addr, len_bytes: 4 }) } else { Ok(()) }
        }
    }

    impl PhysMemory for Failing<'_> {
        fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
            self.next(addr).and_then(|()| self.memory.read_u32(addr))
        }
        fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
            self.next(addr).and_then(|()| self.memory.read_u64(addr))
        }
        fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
            self.next(addr).and_then(|()| self.memory.write_u32(addr, value))
        }
        fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
            self.next(addr).and_then(|()| self.memory.write_u64(addr, value))
        }
    }

    let mut refused = 0;
    for fail_in in 1..60 {
        let mut parts = Parts::new(64, 200);
        let memory = SliceMemory::new(Pfn::new(0), &mut parts.words);
        let pool = FramePool::new(Extent::new(Pfn::new(64), 200), &mut parts.links).unwrap();
        let bytes = bytes(&mut parts.bytes);
        let count = Cell::new(0);
        let failing = Failing { memory: &memory, fail_in: &count };
        let tables = ValidityTables::consecutive(K, PhysAddr::new(0));
        let tree = DenseTree::<K, WORDS, _>::new([0; WORDS]);
        let headers = vec![u64::MAX; 2 << K];
        let space = RegionSpace::new(failing, tables, tree, headers, &pool, Quota::OPEN).unwrap();
        let mut heap = RegionHeap::new(space, &pool, bytes, &mut parts.left).unwrap();
        heap.allocate(layout(5000, 16)).unwrap();
        count.set(fail_in);
        let large = heap.allocate(layout(50_000, 64));
        count.set(0);
        refused += u32::from(large.is_err());
        // SAFETY: it was allocated just now.
        large.iter().for_each(|&at| unsafe { heap.free(at) }.unwrap());
        let again = heap.allocate(layout(60_000, 16)).unwrap();
        // SAFETY: it was allocated just now.
        unsafe { heap.free(again) }.unwrap();
        heap.check().unwrap_or_else(|fault| panic!("access {fail_in}: {fault}"));
        assert!(heap.close().is_ok());
        assert_eq!(pool.free_frames(), 200);
    }
    assert!(refused > 5, "memory failed in {refused} allocations");
}

/// The public safe functions that reach the pool's memory, `allocate`, `fault`, `page_of`, `walk`,
/// `check`, `space`, `released` and `close`, called with anything while blocks are in use.
#[test]
fn safe_calls_with_anything_break_nothing() {
    with_heap(64, 40, |heap, _| {
        let placed = heap.allocate(1, layout(10_000, 16)).unwrap();
        let base = heap.base;
        for address in [0, 1, base - 1, base + 64 * PAGE_BYTES, usize::MAX, isize::MAX as usize] {
            assert_eq!(heap.heap.page_of(address), None, "{address:#x}");
        }
        for page in [64, PAGES - 1, PAGES, PAGES + 1, u64::from(u32::MAX), 1 << 40, 1 << 51] {
            for rights in [Rights::READ, Rights::WRITE, Rights::READ | Rights::WRITE] {
                assert!(heap.heap.fault(Vpn::new(page), rights).is_err(), "page {page}");
            }
        }
        for page in 0..64 {
            let _ = heap.heap.fault(Vpn::new(page), Rights::READ);
        }
        for shift in 0..62 {
            for size in [(1 << shift) - 1, 1 << shift] {
                for align in [1, 16, 4096, 1 << shift] {
                    let Ok(layout) = Layout::from_size_align(size, align) else { continue };
                    if let Ok(block) = heap.heap.allocate(layout) {
                        // SAFETY: in use, and not after.
                        unsafe { heap.heap.free(block) }.unwrap();
                    }
                }
            }
        }
        assert!(heap.heap.released().count <= 64);
        heap.check().unwrap();
        assert_eq!(heap.placed(1), placed);
        heap.free(1);
    });
}

/// The pages of a heap by their numbers: tags that fault are cut off wherever they lie in a fresh region and in whatever
/// order, and what is wrong is refused and changes nothing.
#[test]
fn pages_are_committed_tagged_and_released_by_number() {
    let mut parts = Parts::new(100, 60);
    let memory = SliceMemory::new(Pfn::new(0), &mut parts.words);
    let pool = FramePool::new(Extent::new(Pfn::new(64), 60), &mut parts.links).unwrap();
    let space = space(&memory, &pool, Quota::OPEN);
    let page = Vpn::new;
    let range = |start, count| PageRange::new(page(start), count);
    let mut regions = HeapRegions::new(space, &pool, 100, &mut parts.left).unwrap();
    for (wrong, at) in [(range(100, 1), 100), (range(90, 11), 100), (range(99, u64::MAX), 100)] {
        let error = Err(RegionError::OutOfRange { page: page(at) });
        assert_eq!(regions.commit(wrong), error, "{wrong:?}");
    }
    assert!(matches!(regions.commit(range(5, 0)), Err(RegionError::Empty { .. })));
    assert_eq!(regions.tag(page(5)), Err(RegionError::NoRegion { page: page(5) }));
    assert!(regions.fault(page(5), Rights::READ).is_err());
    assert_eq!(regions.release(range(0, u64::MAX)), Ok(()), "nothing is there to release");
    for order in [[10, 29, 11, 28], [29, 28, 11, 10], [11, 10, 28, 29]] {
        assert_eq!(regions.commit(range(10, 20)), Ok(()));
        for tagged in order {
            assert_eq!(regions.tag(page(tagged)), Ok(()));
            let region = regions.space().region_of(page(tagged)).unwrap();
            assert_eq!(region.pages, range(tagged, 1), "a tag's page is a region of its own");
            assert_eq!(regions.tag(page(tagged)), Ok(()), "and stays so");
        }
        assert!(regions.fault(page(20), Rights::WRITE).is_ok());
        assert_eq!(regions.space().frames_used(), 5);
        let ended = regions.statistics().ended;
        assert_eq!(regions.release(range(10, 20)), Ok(()));
        assert_eq!(regions.released(), range(10, 20));
        assert_eq!((regions.statistics().ended - ended, regions.space().frames_used()), (5, 0));
        regions.space().check().unwrap();
    }
    // Fewer frames are left than tags might need.
    assert_eq!(regions.commit(range(0, 60)), Ok(()));
    for at in 0..57 {
        assert!(regions.fault(page(at), Rights::READ).is_ok());
    }
    assert_eq!(regions.commit(range(70, 20)), Err(RegionError::OutOfFrames));
    assert_eq!(regions.pages(), 100);
}

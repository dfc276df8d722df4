//! The heap over regions beside a naive model: which pages are mapped follows from the
//! blocks and from what was touched; each page's frame is its own and keeps what was written.

use std::alloc::Layout;
use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use swath_arch::{Extent, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
use swath_lab::papers::real_time::heap::{HeapError, Placed, RegionHeap};
use swath_lab::papers::real_time::table::{DirectTable, TableError};
use swath_lab::papers::real_time::table_heap::TableHeap;
use swath_lab::source::memory::random;
use swath_region::{
    DenseTree, FramePool, Quota, RegionError, RegionSpace, Rights, dense_tree_words,
};

const K: u32 = 10;
const WORDS: usize = dense_tree_words(K);
const PAGES: u64 = 1 << K;
const TAG: u64 = 32;

type Heap<'p> = RegionHeap<'p, &'p SliceMemory<'p>, DenseTree<K, WORDS, [u64; WORDS]>, Vec<u64>>;

/// Runs `body` with a heap over `pages` and a pool of so many frames; at the end all of them
/// must be free but those of the heap's last state.
fn with_heap(pages: u64, frames: u64, body: impl FnOnce(&mut Heap<'_>, &FramePool<'_>)) {
    let tables = ValidityTables::consecutive(K, PhysAddr::new(0));
    // Never written by anyone before: it holds garbage.
    let mut words = vec![0x5a5a_5a5a_0000_0001; (ValidityTables::len_bytes(K) / 8) as usize];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let mut links = vec![u32::MAX; frames as usize];
    let pool = FramePool::new(Extent::new(Pfn::new(64), frames), &mut links).unwrap();
    let tree = DenseTree::new([0; WORDS]);
    let headers = vec![u64::MAX; 2 << K];
    let space = RegionSpace::new(&memory, tables, tree, headers, &pool, Quota::OPEN).unwrap();
    let mut heap = RegionHeap::new(space, &pool, pages).unwrap();
    body(&mut heap, &pool);
    heap.check().unwrap();
    assert_eq!(u64::from(pool.free_frames()) + u64::from(heap.space().frames_used()), frames);
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
        })
        .unwrap();
        committed
    }

    /// After an allocation the tags at both ends have been written, and the links of a free
    /// block behind it.
    fn allocated(&mut self, heap: &Heap<'_>, id: u32, placed: Placed) {
        let mut behind_is_free = false;
        heap.walk(&mut |block, free| behind_is_free |= free && block.from == placed.to).unwrap();
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
        let addr = heap.address(id, offset).unwrap().raw();
        let page = Vpn::new(addr / 4096);
        if heap.space().translate(page).unwrap().is_none() {
            match heap.fault(page, Rights::WRITE) {
                Ok(()) => {
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
        let mut random = random(seed, 0);
        let mut model = Model::default();
        model.mapped.extend([0, pool_pages - 1]);
        for step in 0..steps {
            let id = random.random_range(0..40_u32);
            let kind = random.random_range(0..10_u32);
            match model.live.get(&id).copied() {
                None => {
                    let size = random.random_range(0..=size_max);
                    let align = 1 << random.random_range(0..13_u32);
                    let align = if kind < 7 { 16 } else { align };
                    match heap.allocate(id, layout(size, align)) {
                        Ok(placed) => {
                            assert!(placed.usable_bytes() >= size);
                            assert_eq!(placed.payload() % align, 0);
                            model.allocated(heap, id, placed);
                        }
                        // Nothing has changed: the comparison below sees to it.
                        Err(HeapError::Allocation(_)) => refused += 1,
                        Err(error) => panic!("seed {seed}, step {step}: {error}"),
                    }
                }
                Some(_) if kind < 3 => {
                    let before = heap.operations().ended;
                    heap.free(id).unwrap();
                    ended_max = ended_max.max(heap.operations().ended - before);
                    model.live.remove(&id);
                    model.written.retain(|&(of, _), _| of != id);
                    let committed = Model::committed(heap, pool_pages);
                    model.mapped.retain(|page| committed.contains(page));
                    assert!(matches!(heap.free(id), Err(HeapError::NotInUse { .. })));
                }
                Some(placed) => {
                    let offset = random.random_range(0..placed.usable_bytes());
                    let write = (kind < 7).then(|| random.random());
                    model.access(heap, id, offset, write);
                    let beyond = placed.usable_bytes();
                    assert!(matches!(heap.address(id, beyond), Err(HeapError::Beyond { .. })));
                }
            }
            model.compare(heap);
            if step % 16 == 0 {
                heap.check().unwrap_or_else(|why| panic!("seed {seed}, step {step}: {why}"));
            }
        }
        let ids: Vec<u32> = model.live.keys().copied().collect();
        ids.into_iter().for_each(|id| heap.free(id).unwrap());
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
        heap.free(1).unwrap();
        heap.free(2).unwrap();
        assert!(heap.space().frames_used() < used);
        heap.check().unwrap();
    });
}

#[test]
fn what_cannot_be_is_refused() {
    with_heap(64, 1000, |heap, _| {
        heap.allocate(7, layout(100, 16)).unwrap();
        let again = heap.allocate(7, layout(100, 16));
        assert_eq!(again, Err(HeapError::InUse { id: 7 }));
        assert_eq!(heap.free(8), Err(HeapError::NotInUse { id: 8 }));
        assert_eq!(heap.address(8, 0), Err(HeapError::NotInUse { id: 8 }));
        let large = heap.allocate(9, layout(1 << 20, 16));
        assert!(matches!(large, Err(HeapError::Allocation(_))), "{large:?}");
    });
}

/// The conventional heap keeps pages until its end is freed, and then takes all of them back.
#[test]
fn the_table_shrinks_at_its_end_only() {
    let mut words = vec![u64::MAX; 4 * PAGES as usize / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let frames = Extent::new(Pfn::new(64), 400);
    let table = DirectTable::new(&memory, PhysAddr::new(0), K, frames).unwrap();
    let mut heap = TableHeap::new(table, 512).unwrap();
    let allocate = |heap: &mut TableHeap<_>, id, bytes| {
        let placed = heap.allocate(id, layout(bytes, 16)).unwrap();
        heap.note(id, placed);
        for offset in (0..bytes).step_by(4096) {
            let page = heap.address(id, offset).unwrap().page();
            match heap.fault(page) {
                Ok(()) | Err(TableError::AlreadyMapped { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    for id in 0..4 {
        allocate(&mut heap, id, 40 * 4096);
    }
    let all = heap.table().mapped_pages();
    assert!((160..=163).contains(&all), "{all}");
    for id in [1, 2] {
        let end = heap.forget(id);
        heap.free(id, end).unwrap();
        assert_eq!(heap.table().mapped_pages(), all);
        heap.check().unwrap();
    }
    // The last goes, and with it the two before it that were free.
    let end = heap.forget(3);
    heap.free(3, end).unwrap();
    assert!(heap.table().mapped_pages() <= 43);
    assert_eq!(heap.released().count, heap.released().count.max(119));
    heap.check().unwrap();
    let end = heap.forget(0);
    heap.free(0, end).unwrap();
    assert_eq!(heap.table().mapped_pages(), 2);
    assert_eq!(heap.footprint_pages(), 1);
    heap.check().unwrap();
}

//! The C interface wrapped back into the traits, through the same suites as the
//! structures themselves, and beside them call by call.

#[path = "conformance/heaps.rs"]
mod heaps;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::ptr;

use swath::swath_status::*;
use swath::*;
use swath_arch::testing::{Random, few};
use swath_arch::{Extent, Order, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
use swath_frame::testing::frames::conform;
use swath_frame::testing::ranges;
use swath_frame::zone::bank::{AdaptiveBuddy, BankLayout, PoolPlacement, PoolPolicy};
use swath_frame::{
    BuddyConfig, ByteRange, ContiguousAllocator, ContiguousError, ContiguousRequest,
    FrameAllocateError, FrameAllocator, FrameFreeError, FrameHotplug, FrameHotplugError, MemoryMap,
    Mobility, PageBuddy, ReservationLevels, Reservations, ZoneAllocator,
};
use swath_region::{DenseTree, FramePool, Quota, RegionSpace, Rights, dense_tree_words};

/// Storage for one object; it may begin anywhere.
fn storage(len_bytes: usize, off: usize) -> (*mut c_void, usize) {
    assert_ne!(len_bytes, 0, "a wrong configuration");
    let words = Box::leak(vec![0xAAAA_AAAA_AAAA_AAAA_u64; len_bytes / 8 + 2].into_boxed_slice());
    (words.as_mut_ptr().cast::<u8>().wrapping_add(off).cast(), len_bytes)
}

fn map_of(areas: &[Extent]) -> *mut swath_map {
    let ranges: Vec<swath_range> = areas
        .iter()
        .map(|area| swath_range { start: area.start.address().raw(), len_bytes: area.count << 12 })
        .collect();
    let (at, len) = storage(swath_map_storage_bytes(ranges.len()), 3);
    let mut map = ptr::null_mut();
    // SAFETY: storage as long as was asked for, never used again.
    let made = unsafe { swath_map_create(ranges.as_ptr(), ranges.len(), at, len, &mut map) };
    assert_eq!(made.status, SWATH_OK);
    map
}

struct CFrames(*mut swath_frames);

impl CFrames {
    fn new(map: *mut swath_map, config: swath_frames_config) -> Self {
        // SAFETY: a map.
        let (at, len) = storage(unsafe { swath_frames_storage_bytes(map, config) }, 5);
        let mut frames = ptr::null_mut();
        // SAFETY: storage as long as was asked for, never used again.
        let short = unsafe { swath_frames_create(map, config, 1, at, len / 2, &mut frames) };
        assert_eq!(short, swath_result { status: SWATH_STORAGE, at: len as u64 });
        // SAFETY: as above.
        let made = unsafe { swath_frames_create(map, config, 1, at, len, &mut frames) };
        assert_eq!(made.status, SWATH_OK);
        Self(frames)
    }
}

fn free_error(result: swath_result, extent: Extent) -> FrameFreeError {
    match result.status {
        SWATH_EMPTY => FrameFreeError::Empty,
        SWATH_OVERFLOW => FrameFreeError::Overflow { extent },
        SWATH_FOREIGN => FrameFreeError::Foreign { frame: Pfn::new(result.at) },
        SWATH_NOT_ALLOCATED => FrameFreeError::NotAllocated { frame: Pfn::new(result.at) },
        other => panic!("{other:?}"),
    }
}

impl FrameAllocator for CFrames {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        let mut block = swath_extent::default();
        // SAFETY: an object of the library.
        let result = unsafe { swath_frames_allocate_block(self.0, frames_max, &mut block) };
        (result.status == SWATH_OK).then(|| block.into())
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let mut block = swath_extent::default();
        // SAFETY: an object of the library.
        let result = unsafe { swath_frames_allocate_aligned(self.0, order.k(), &mut block) };
        match result.status {
            SWATH_OK => Ok(block.into()),
            SWATH_OUT_OF_FRAMES => {
                Err(FrameAllocateError::OutOfFrames { wanted: order.frames(), free: result.at })
            }
            SWATH_NO_BLOCK => Err(FrameAllocateError::NoBlock { order }),
            other => panic!("{other:?}"),
        }
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        // SAFETY: an object of the library.
        let result = unsafe { swath_frames_free(self.0, extent.into()) };
        if result.status == SWATH_OK { Ok(()) } else { Err(free_error(result, extent)) }
    }

    fn free_frames(&self) -> u64 {
        // SAFETY: an object of the library.
        unsafe { swath_frames_free_count(self.0) }
    }

    fn total_frames(&self) -> u64 {
        // SAFETY: an object of the library.
        unsafe { swath_frames_total_count(self.0) }
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        unsafe extern "C" fn each(block: swath_extent, context: *mut c_void) {
            // SAFETY: the pointer to the reference below.
            unsafe { (*context.cast::<&mut dyn FnMut(Extent)>())(block.into()) };
        }
        let mut visit = visit;
        // SAFETY: an object of the library; `each` takes the context for what it is.
        let result = unsafe { swath_frames_each_free(self.0, Some(each), (&raw mut visit).cast()) };
        assert_eq!(result.status, SWATH_OK);
    }

    fn allocate(
        &mut self,
        count: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        let mut blocks = vec![swath_extent::default(); 64];
        loop {
            let mut taken = 0;
            // SAFETY: an object of the library; room for as many blocks.
            let result = unsafe {
                swath_frames_allocate(self.0, count, blocks.as_mut_ptr(), blocks.len(), &mut taken)
            };
            match result.status {
                SWATH_OK => {
                    blocks[..taken].iter().for_each(|&block| sink(block.into()));
                    return Ok(());
                }
                SWATH_TOO_MANY_BLOCKS => blocks.resize(blocks.len() * 2, swath_extent::default()),
                SWATH_EMPTY => return Err(FrameAllocateError::Empty),
                SWATH_OUT_OF_FRAMES => {
                    return Err(FrameAllocateError::OutOfFrames { wanted: count, free: result.at });
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

impl ContiguousAllocator for CFrames {
    fn allocate_contiguous(
        &mut self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        let mut wanted = swath_contiguous_request_of(request.count);
        (wanted.lower, wanted.upper) = (request.lower.raw(), request.upper.raw());
        wanted.align = request.align.frames();
        wanted.boundary = request.boundary.map_or(0, Order::frames);
        let mut run = swath_extent::default();
        // SAFETY: an object of the library.
        let result = unsafe { swath_frames_allocate_contiguous(self.0, &wanted, &mut run) };
        match result.status {
            SWATH_OK => Ok(run.into()),
            SWATH_EMPTY => Err(ContiguousError::Empty),
            SWATH_ARGUMENT => Err(ContiguousError::Unsatisfiable { request: *request }),
            SWATH_OUT_OF_FRAMES => {
                Err(ContiguousError::OutOfFrames { wanted: request.count, free: result.at })
            }
            SWATH_NO_BLOCK => Err(ContiguousError::NoRun { request: *request }),
            other => panic!("{other:?}"),
        }
    }
}

impl FrameHotplug for CFrames {
    fn span(&self) -> Extent {
        SPAN
    }

    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        // SAFETY: an object of the library.
        hotplug(unsafe { swath_frames_add(self.0, extent.into()) }, extent)
    }

    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        // SAFETY: an object of the library.
        hotplug(unsafe { swath_frames_remove(self.0, extent.into()) }, extent)
    }
}

fn hotplug(result: swath_result, extent: Extent) -> Result<(), FrameHotplugError> {
    let frame = Pfn::new(result.at);
    Err(match result.status {
        SWATH_OK => return Ok(()),
        SWATH_EMPTY => FrameHotplugError::Empty,
        SWATH_OVERFLOW => FrameHotplugError::Overflow { extent },
        SWATH_ARGUMENT => FrameHotplugError::OutOfSpan { frame, span: SPAN },
        SWATH_OVERLAP => FrameHotplugError::Present { frame },
        SWATH_FOREIGN => FrameHotplugError::Absent { frame },
        SWATH_STATE => FrameHotplugError::InUse { frame },
        other => panic!("{other:?}"),
    })
}

/// A span around the areas, for memory that comes late.
const SPAN: Extent = Extent::new(Pfn::new(1), 2500);

#[test]
fn ranges_conform() {
    let c_map = map_of(&areas());
    // SAFETY: a map.
    let reached = |span: Extent| unsafe { swath_map_reach(c_map, span.into()) };
    let narrow = reached(Extent::new(Pfn::new(4), 2500));
    assert_eq!(narrow, swath_result { status: SWATH_ARGUMENT, at: 3 });
    assert_eq!(reached(SPAN).status, SWATH_OK);
    with_map(|map| {
        let map = map.reaching(SPAN).expect("a longer span");
        for (granularity, top_order, best_fit) in [(1, 10, 0), (4, 8, 1), (9, 18, 0), (9, 18, 1)] {
            let config = swath_frames_config { granularity, top_order, best_fit };
            for seed in 0..few(4) {
                let mut frames = CFrames::new(c_map, config);
                ranges::conform(&map, &mut frames, seed, few(150) as usize, &mut |_, _| {});
            }
        }
    });
    let mut frames =
        CFrames::new(c_map, swath_frames_config { granularity: 4, top_order: 8, best_fit: 0 });
    for (align, boundary) in [(0, 0), (3, 0), (1, 6), (1 << 60, 0)] {
        let request =
            swath_contiguous_request { align, boundary, ..swath_contiguous_request_of(4) };
        let mut run = swath_extent::default();
        // SAFETY: an object of the library.
        let result = unsafe { swath_frames_allocate_contiguous(frames.0, &request, &mut run) };
        assert_eq!(result.status, SWATH_ARGUMENT, "{align}, {boundary}");
        // SAFETY: an object of the library.
        let null = unsafe { swath_frames_allocate_contiguous(frames.0, ptr::null(), &mut run) };
        assert_eq!(null.status, SWATH_NULL);
    }
    assert_eq!(frames.allocate_block(1).map(|block| block.count), Some(1));
}

const AREAS: [(u64, u64); 3] = [(3, 600), (700, 64), (1024, 900)];

fn areas() -> Vec<Extent> {
    AREAS.iter().map(|&(start, count)| Extent::new(Pfn::new(start), count)).collect()
}

fn with_map<T>(does: impl FnOnce(&MemoryMap<'_>) -> T) -> T {
    let ranges: Vec<ByteRange> = areas().into_iter().map(ByteRange::of_frames).collect();
    let mut storage = [Extent::default(); 3];
    does(&MemoryMap::new(&ranges, &mut storage).expect("three areas"))
}

#[test]
fn frames_conform() {
    let c_map = map_of(&areas());
    // SAFETY: a map.
    assert_eq!(unsafe { swath_map_frames(c_map) }, 1564);
    with_map(|map| {
        for (granularity, top_order) in [(1, 10), (4, 8), (9, 18)] {
            for best_fit in 0..few(2) as u32 {
                let config = swath_frames_config { granularity, top_order, best_fit };
                for seed in 0..few(4) {
                    let mut frames = CFrames::new(c_map, config);
                    conform(map, &mut frames, seed, few(150) as usize, &mut |_, _| {});
                }
            }
        }
    });
}

#[test]
fn reservations_do_what_they_do_in_rust() {
    let c_map = map_of(&areas());
    let config = swath_frames_config { granularity: 4, top_order: 8, best_fit: 0 };
    with_map(|map| {
        for seed in 0..few(6) {
            let under = CFrames::new(c_map, config);
            // SAFETY: a map.
            let len = unsafe { swath_reservations_storage_bytes(c_map, 0) };
            let (at, len) = storage(len, 1);
            let mut c = ptr::null_mut();
            // SAFETY: storage as was asked for; the frames are only used through `c`.
            let made = unsafe { swath_reservations_create(c_map, 0, under.0, at, len, &mut c) };
            assert_eq!(made.status, SWATH_OK);

            let words = PageBuddy::<Vec<u64>>::storage_words(map, BuddyConfig::PBS_ARMV7);
            let buddy =
                PageBuddy::<_>::new(map, BuddyConfig::PBS_ARMV7, vec![0; words]).expect("fits");
            let shared = RefCell::new(buddy);
            let words = Reservations::<&RefCell<PageBuddy<Vec<u64>>>, Vec<u64>>::storage_words(
                map,
                ReservationLevels::ARMV7,
            );
            let mut rust =
                Reservations::<_, _>::new(map, ReservationLevels::ARMV7, &shared, vec![0; words])
                    .expect("fits");

            let mut random = Random::new(seed);
            let mut held = Vec::new();
            for now in 0..few(1500) {
                let place = format!("seed {seed}, step {now}");
                match random.below(5) {
                    0..=2 => {
                        let (object, index) = (random.below(3), random.below(700));
                        let mut page =
                            swath_populated { frame: 0, full_order: 0, reserved_order: 0 };
                        // SAFETY: an object of the library.
                        let result = unsafe {
                            swath_reservations_populate(c, object, index, 0, 640, now, &mut page)
                        };
                        match rust.populate(object, index, 0..640, now) {
                            Ok(known) => {
                                assert_eq!(result.status, SWATH_OK, "{place}");
                                assert_eq!(page.frame, known.frame.raw(), "{place}");
                                let full = known.full.map_or(0, |order| order.k());
                                assert_eq!(page.full_order, full, "{place}");
                                held.push(page.frame);
                            }
                            Err(error) => assert_eq!(result, error.into(), "{place}"),
                        }
                    }
                    3 if !held.is_empty() => {
                        let frame = held.swap_remove(random.below(held.len() as u64) as usize);
                        let extent = swath_extent { start: frame, count: 1 };
                        // SAFETY: an object of the library.
                        let results = unsafe {
                            (swath_reservations_free(c, extent), swath_reservations_free(c, extent))
                        };
                        assert_eq!(results.0.status, SWATH_OK, "{place}");
                        assert_ne!(results.1.status, SWATH_OK, "{place}");
                        assert_eq!(rust.free(extent.into()), Ok(()), "{place}");
                    }
                    _ => {
                        let (object, first) = (random.below(3), random.below(700));
                        // SAFETY: an object of the library.
                        let result =
                            unsafe { swath_reservations_release(c, object, first, first + 9) };
                        assert_eq!(result.status, SWATH_OK, "{place}");
                        rust.release(object, first..first + 9);
                    }
                }
                // SAFETY: an object of the library.
                let free = unsafe { swath_reservations_free_count(c) };
                assert_eq!(free, rust.free_frames(), "{place}");
            }
        }
    });
}

#[test]
fn banks_do_what_they_do_in_rust() {
    let c_map = map_of(&areas());
    let zone = Extent::new(Pfn::new(0), 2048);
    let shape = BankLayout::new(Pfn::new(0), 256, Order::known(6)).expect("banks");
    with_map(|map| {
        for (packed, policy) in [(0, PoolPolicy::PAPER), (1, PoolPolicy::PACKED)] {
            let config = swath_banks_config {
                zone: zone.into(),
                first_frame: 0,
                bank_frames: 256,
                top_order: 6,
                packed,
            };
            // SAFETY: a map.
            let (at, len) = storage(unsafe { swath_banks_storage_bytes(c_map, config) }, 0);
            let mut c = ptr::null_mut();
            // SAFETY: storage as was asked for.
            let made = unsafe { swath_banks_create(c_map, config, at, len, &mut c) };
            assert_eq!(made.status, SWATH_OK);
            let rule = PoolPlacement::new(policy);
            let words = AdaptiveBuddy::<Vec<u64>>::storage_words(map, zone, shape, &rule);
            let words = words.expect("banks");
            let mut rust =
                AdaptiveBuddy::new(map, zone, shape, rule, vec![0; words]).expect("fits");
            // SAFETY: an object of the library.
            assert_eq!(unsafe { swath_banks_count(c) }, rust.banks());

            let mut random = Random::new(packed.into());
            let mut held = Vec::new();
            for step in 0..few(4000) {
                match random.below(9) {
                    0..=4 => {
                        let (k, owner) = (random.below(8) as u32, random.below(3) as u32);
                        let mut frame = 0;
                        // SAFETY: an object of the library.
                        let result = unsafe { swath_banks_allocate(c, k, owner, &mut frame) };
                        let order = Order::new(k as u8).expect("small");
                        match rust.allocate(order, Mobility::ALL[owner as usize]) {
                            Some(known) => {
                                assert_eq!(
                                    (result.status, frame),
                                    (SWATH_OK, known.raw()),
                                    "{step}"
                                );
                                held.push((frame, order));
                            }
                            None => assert_eq!(result.status, SWATH_NO_BLOCK, "{step}"),
                        }
                    }
                    5..=7 if !held.is_empty() => {
                        let (frame, order) =
                            held.swap_remove(random.below(held.len() as u64) as usize);
                        // SAFETY: an object of the library.
                        let result = unsafe { swath_banks_free(c, frame, order.k()) };
                        assert_eq!(result.status, SWATH_OK, "{step}");
                        assert_eq!(rust.free(Pfn::new(frame), order), Ok(()), "{step}");
                        // SAFETY: an object of the library.
                        let again = unsafe { swath_banks_free(c, frame, order.k()) };
                        assert_eq!(again.status, SWATH_NOT_ALLOCATED, "{step}");
                        let at = frame | 1;
                        // SAFETY: an object of the library.
                        let odd = unsafe { swath_banks_free(c, at, 1) };
                        assert_eq!(odd, swath_result { status: SWATH_MISALIGNED, at }, "{step}");
                    }
                    _ => {
                        let (bank, on) = (random.below(9) as usize, random.below(2) as u32);
                        // SAFETY: an object of the library.
                        let result = unsafe { swath_banks_isolate(c, bank, on) };
                        let known =
                            if on == 1 { rust.isolate_bank(bank) } else { rust.rejoin_bank(bank) };
                        let known = known.map_or_else(swath_result::from, |()| swath_result {
                            status: SWATH_OK,
                            at: 0,
                        });
                        assert_eq!(result, known, "{step}");
                    }
                }
                // SAFETY: an object of the library.
                assert_eq!(unsafe { swath_banks_free_count(c) }, rust.free_frames(), "{step}");
            }
            assert_eq!(rust.check(), Ok(()));
        }
    });
}

const K: u32 = 8;
const TREE_WORDS: usize = dense_tree_words(K);

#[test]
fn regions_do_what_they_do_in_rust() {
    let bytes = ValidityTables::len_bytes(K);
    let array = bytes / 5;
    let frames = Extent::new(Pfn::new(100), 150);
    for seed in 0..few(4) {
        let (at, len) = storage(swath_frame_pool_storage_bytes(frames.count), 4);
        let mut pool = ptr::null_mut();
        // SAFETY: storage as was asked for.
        let made = unsafe { swath_frame_pool_create(frames.into(), at, len, &mut pool) };
        assert_eq!(made.status, SWATH_OK);
        let tables = swath_validity_tables {
            pages_log2: K,
            data: 0,
            helper: array,
            stack: 2 * array,
            stack_end: 3 * array,
            regions: 4 * array,
        };
        // The arrays hold garbage.
        let memory = vec![u64::MAX / 3 * seed; bytes as usize / 8].leak();
        let memory = swath_memory {
            first_frame: 0,
            bytes: memory.as_mut_ptr().cast(),
            len_bytes: bytes as usize,
        };
        let quota = swath_quota { guaranteed: 20, limit: 120 };
        let (at, len) = storage(swath_regions_storage_bytes(K), 7);
        let mut c = ptr::null_mut();
        // SAFETY: storage as was asked for, memory of its own.
        let made = unsafe { swath_regions_create(memory, tables, pool, quota, at, len, &mut c) };
        assert_eq!(made.status, SWATH_OK, "{made:?}");

        let mut links = vec![0; frames.count as usize];
        let rust_pool = FramePool::new(frames, &mut links).expect("links");
        let mut words = vec![0; bytes as usize / 8];
        let base = PhysAddr::new;
        let mut rust = RegionSpace::new(
            SliceMemory::new(Pfn::new(0), &mut words),
            ValidityTables {
                pages_log2: K,
                data: base(0),
                helper: base(array),
                stack: base(2 * array),
                stack_end: base(3 * array),
                regions: base(4 * array),
            },
            DenseTree::<K, TREE_WORDS, _>::new([0; TREE_WORDS]),
            vec![0; 2 << K],
            &rust_pool,
            Quota { guaranteed: 20, limit: 120 },
        )
        .expect("a space");

        let mut random = Random::new(seed);
        for step in 0..few(6000) {
            let place = format!("seed {seed}, step {step}");
            let page = random.below(260);
            match random.below(8) {
                0 => {
                    let (count, access) = (random.below(40), random.below(9) as u32);
                    // SAFETY: an object of the library.
                    let result = unsafe { swath_regions_map(c, page, count, access) };
                    let all = [Rights::READ, Rights::WRITE, Rights::EXECUTE];
                    let rights = (0..3)
                        .filter(|bit| access >> bit & 1 == 1)
                        .fold(Rights::NONE, |sum, bit| sum | all[bit]);
                    let range = PageRange::new(Vpn::new(page), count);
                    if access > 7 {
                        assert_eq!(result.status, SWATH_ARGUMENT, "{place}");
                    } else {
                        let known = rust.map_region(range, rights);
                        assert_eq!(result, result_of(known), "{place}");
                    }
                }
                1..=5 => {
                    let mut frame = 0;
                    // SAFETY: an object of the library.
                    let result = unsafe { swath_regions_fault(c, page, SWATH_READ, &mut frame) };
                    let known = rust.map_page(Vpn::new(page), Rights::READ);
                    if let Ok(known) = known {
                        assert_eq!(frame, known.raw(), "{place}");
                    }
                    assert_eq!(result, result_of(known.map(drop)), "{place}");
                    let (mut at, mut access) = (0, 0);
                    // SAFETY: an object of the library.
                    let found = unsafe { swath_regions_translate(c, page, &mut at, &mut access) };
                    match rust.translate(Vpn::new(page)) {
                        Ok(Some((frame, rights))) => {
                            assert_eq!((found.status, at), (SWATH_OK, frame.raw()), "{place}");
                            assert_eq!(
                                access & SWATH_WRITE != 0,
                                rights.contain(Rights::WRITE),
                                "{place}"
                            );
                        }
                        Ok(None) => assert_eq!(found.status, SWATH_NO_REGION, "{place}"),
                        Err(error) => assert_eq!(found, error.into(), "{place}"),
                    }
                }
                _ => {
                    let mut unmapped = swath_unmapped { first_page: 0, pages: 0, frames: 0 };
                    // SAFETY: an object of the library.
                    let result = unsafe { swath_regions_unmap(c, page, &mut unmapped) };
                    let known = rust.unmap_region(Vpn::new(page));
                    if let Ok(known) = known {
                        assert_eq!(
                            (unmapped.first_page, unmapped.pages, unmapped.frames),
                            (known.pages.start.raw(), known.pages.count, known.frames),
                            "{place}"
                        );
                    }
                    assert_eq!(result, result_of(known.map(drop)), "{place}");
                }
            }
            // SAFETY: an object of the library.
            let free = unsafe { swath_frame_pool_free_count(pool) };
            assert_eq!(free, rust_pool.free_frames(), "{place}");
        }
        assert_eq!(rust.check(), Ok(()), "seed {seed}");
    }
}

fn result_of(known: Result<(), swath_region::RegionError>) -> swath_result {
    known.map_or_else(swath_result::from, |()| swath_result { status: SWATH_OK, at: 0 })
}

#[test]
fn wrong_objects_and_null_are_named() {
    let map = map_of(&areas());
    let null = swath_result { status: SWATH_NULL, at: 0 };
    let extent = swath_extent { start: 3, count: 1 };
    // SAFETY: null and an object of another kind are what the functions look for.
    unsafe {
        assert_eq!(swath_frames_free(ptr::null_mut(), extent), null);
        let wrong = swath_frames_free(map.cast(), extent);
        assert_eq!(wrong, swath_result { status: SWATH_WRONG_OBJECT, at: map.addr() as u64 });
        assert_eq!(swath_map_frames(ptr::null()), 0);
        assert_eq!(swath_regions_unmap(map.cast(), 0, ptr::null_mut()), null);
        let config = swath_frames_config { granularity: 0, top_order: 8, best_fit: 0 };
        assert_eq!(swath_frames_storage_bytes(map, config), 0);
        let mut frames = ptr::null_mut();
        let made = swath_frames_create(map, config, 1, map.cast(), 0, &mut frames);
        assert_eq!(made, swath_result { status: SWATH_ARGUMENT, at: 0 });
        let one = swath_range { start: u64::MAX, len_bytes: 2 };
        let (at, len) = storage(swath_map_storage_bytes(1), 0);
        let mut other = ptr::null_mut();
        let made = swath_map_create(&one, 1, at, len, &mut other);
        assert_eq!(made, swath_result { status: SWATH_OVERFLOW, at: u64::MAX });
        assert_eq!(swath_map_storage_bytes(usize::MAX), usize::MAX);
        assert_eq!(swath_frame_pool_storage_bytes(u64::MAX), usize::MAX);
        let made = swath_frame_pool_create(
            swath_extent { start: 0, count: u64::MAX },
            at,
            len,
            &mut ptr::null_mut(),
        );
        assert_eq!(made, swath_result { status: SWATH_STORAGE, at: u64::MAX });
    }
}

#[test]
fn every_status_has_its_own_text() {
    let mut seen = BTreeSet::new();
    for (number, &status) in swath_status::ALL.iter().enumerate() {
        assert_eq!(status as usize, number);
        // SAFETY: a string that is always there.
        let text = unsafe { std::ffi::CStr::from_ptr(swath_status_text(number as u32)) };
        assert!(seen.insert(text), "{text:?} twice");
    }
    // SAFETY: as above.
    let none = unsafe { std::ffi::CStr::from_ptr(swath_status_text(u32::MAX)) };
    assert_eq!(none, c"no such status");
}

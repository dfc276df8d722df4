//! The pmap of C beside Rust's, call by call: the same results, the same TLB maintenance in the same order,
//! and at the end the same bytes in the tables. A test drives it by seeds, a fuzz target by bytes.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr;

use swath::swath_status::*;
use swath::*;
use swath_arch::testing::Random;
use swath_arch::{Attributes, Extent, Format, Order, PageRange, Pfn, SliceMemory, Vpn};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, PageAccess, Pmap, PmapStatistics, ReverseMap,
    Site, Sizes, SpaceId, Status,
};

/// Frames whose pages are mapped, and behind them those of tables.
pub(crate) const MAPPED: u64 = 2048;
pub(crate) const TABLES: Extent = Extent { start: Pfn::new(MAPPED), count: 64 };
pub(crate) const FRAMES: Extent = Extent { start: Pfn::new(0), count: MAPPED };

const ENTRIES: u32 = 700;

/// What C's functions reach: the bytes of the tables, the spaces, the maintenance that was asked for.
pub(crate) struct World {
    memory: Vec<Cell<u64>>,
    pub(crate) spaces: [Cell<*mut swath_space>; 2],
    flushed: RefCell<Vec<(u32, swath_flush)>>,
    /// Storage of the objects, kept as long as they are.
    storages: RefCell<Vec<Vec<u64>>>,
}

impl World {
    /// No object yet, and memory for tables.
    pub(crate) fn new() -> Self {
        Self {
            memory: vec![Cell::new(0); TABLES.count as usize * 512],
            spaces: [const { Cell::new(ptr::null_mut()) }; 2],
            flushed: RefCell::new(Vec::new()),
            storages: RefCell::new(Vec::new()),
        }
    }

    /// Storage for one object.
    fn storage(&self, len_bytes: usize) -> (*mut c_void, usize) {
        assert_ne!(len_bytes, 0, "a wrong configuration");
        let mut words = vec![0xAAAA_AAAA_AAAA_AAAA_u64; len_bytes / 8 + 2];
        let start = words.as_mut_ptr().cast::<u8>().wrapping_add(3).cast();
        self.storages.borrow_mut().push(words);
        (start, len_bytes)
    }

    fn word(&self, addr: u64) -> Option<&Cell<u64>> {
        self.memory.get(usize::try_from(addr.checked_sub(TABLES.start.address().raw())? / 8).ok()?)
    }
}

/// # Safety
/// `context` is a `World`.
unsafe extern "C" fn read(context: *mut c_void, addr: u64, len: u32, value: *mut u64) -> i32 {
    // SAFETY: as the test gave it.
    let world = unsafe { &*context.cast::<World>() };
    let Some(word) = world.word(addr) else { return 1 };
    let told = if len == 8 { word.get() } else { word.get() >> (8 * (addr & 4)) & 0xffff_ffff };
    // SAFETY: the library's own.
    unsafe { value.write(told) };
    0
}

/// # Safety
/// `context` is a `World`.
unsafe extern "C" fn write(context: *mut c_void, addr: u64, len: u32, value: u64) -> i32 {
    // SAFETY: as the test gave it.
    let world = unsafe { &*context.cast::<World>() };
    let Some(word) = world.word(addr) else { return 1 };
    let shift = 8 * (addr & 4);
    word.set(match len {
        8 => value,
        _ => word.get() & !(0xffff_ffff << shift) | (value & 0xffff_ffff) << shift,
    });
    0
}

/// # Safety
/// `context` is a `World`.
unsafe extern "C" fn reach(context: *mut c_void, space: u32) -> *mut swath_space {
    // SAFETY: as the test gave it.
    let world = unsafe { &*context.cast::<World>() };
    world.spaces.get(space as usize).map_or(ptr::null_mut(), Cell::get)
}

/// # Safety
/// `context` is a `World`.
unsafe extern "C" fn flush(context: *mut c_void, space: u32, flush: swath_flush) {
    // SAFETY: as the test gave it.
    unsafe { &*context.cast::<World>() }.flushed.borrow_mut().push((space, flush));
}

/// # Safety
/// `context` is a vector of these.
unsafe extern "C" fn note(context: *mut c_void, space: u32, page: u64, order: u32) {
    // SAFETY: as the test gave it.
    unsafe { (*context.cast::<Vec<(u32, u64, u32)>>()).push((space, page, order)) };
}

pub(crate) fn made(
    world: &World,
    format: Format,
    flags: u32,
) -> (*mut swath_frames, *mut swath_pmap) {
    let number = Format::ALL.iter().position(|&one| one == format).unwrap() as u32;
    let range = swath_range { start: TABLES.start.address().raw(), len_bytes: TABLES.count << 12 };
    let (mut map, mut tables, mut pmap) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let config = swath_frames_config { granularity: 9, top_order: 18, best_fit: 0 };
    let context = ptr::from_ref(world).cast_mut().cast::<c_void>();
    let bus = swath_bus { read: Some(read), write: Some(write), context };
    let spaces = swath_spaces { reach: Some(reach), flush: Some(flush), context };
    // SAFETY: storage as was asked for, functions and context that stay.
    unsafe {
        let (at, len) = world.storage(swath_map_storage_bytes(1));
        assert_eq!(swath_map_create(&range, 1, at, len, &mut map).status, SWATH_OK);
        let (at, len) = world.storage(swath_frames_storage_bytes(map, config));
        assert_eq!(swath_frames_create(map, config, 1, at, len, &mut tables).status, SWATH_OK);
        for space in &world.spaces {
            let (at, len) = world.storage(swath_space_storage_bytes());
            let mut made = ptr::null_mut();
            let result =
                swath_space_create_for_superpages(number, bus, tables, tables, at, len, &mut made);
            assert_eq!(result.status, SWATH_OK);
            space.set(made);
        }
        let (at, len) =
            world.storage(swath_pmap_storage_bytes(FRAMES.into(), number, flags, ENTRIES));
        let create = |spaces, len, pmap| {
            swath_pmap_create(FRAMES.into(), number, flags, ENTRIES, spaces, at, len, pmap)
        };
        // The maintenance cannot be forgotten.
        let deaf = swath_spaces { flush: None, ..spaces };
        assert_eq!(create(deaf, len, &mut pmap).status, SWATH_NULL);
        let short = create(spaces, len / 2, &mut pmap);
        assert_eq!(short, swath_result { status: SWATH_STORAGE, at: len as u64 });
        assert_eq!(create(spaces, len, &mut pmap).status, SWATH_OK);
    }
    (tables, pmap)
}

pub(crate) const NO_FAULT: swath_faulted =
    swath_faulted { order: 9, removed: 9, first_page: 9, count: 9 };

fn told(outcome: Faulted) -> swath_faulted {
    match outcome {
        Faulted::Mapped { order } => {
            swath_faulted { order: order.k(), removed: 0, first_page: 0, count: 0 }
        }
        Faulted::Removed { range: PageRange { start, count } } => {
            swath_faulted { order: 0, removed: 1, first_page: start.raw(), count }
        }
    }
}

/// The position of a run, for the messages.
#[derive(Clone, Copy)]
struct Place {
    format: Format,
    seed: u64,
    step: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, seed {}, step {}", self.format, self.seed, self.step)
    }
}

/// Walks the invariants of C's pmap, whose numbers of spaces end at 2.
fn check(world: &World, pmap: *mut swath_pmap, place: Place) {
    // SAFETY: objects of the library.
    unsafe {
        assert_eq!(swath_pmap_check(pmap, 0).status, SWATH_OK, "{place}");
        assert_eq!(swath_pmap_check(pmap, 2).status, SWATH_OK, "{place}");
        assert_eq!(swath_space_check(world.spaces[0].get()).status, SWATH_OK, "{place}");
        let beyond = swath_result { status: SWATH_ARGUMENT, at: 2 };
        assert_eq!(swath_pmap_check(pmap, 3), beyond, "{place}");
    }
}

/// Drives both through at most `steps` operations; returns what Rust's has counted.
///
/// # Panics
/// On the first difference; the message names format, seed and step.
pub(crate) fn drive(
    format: Format,
    status: Status,
    mut random: Random,
    steps: usize,
) -> PmapStatistics {
    let seed = random.seed();
    let flags = u32::from(status == Status::InReverseMap);
    let world = World::new();
    let (tables, c) = made(&world, format, flags);

    let ranges = [ByteRange::of_frames(TABLES)];
    let mut room = [Extent::default()];
    let map = MemoryMap::new(&ranges, &mut room).expect("an area");
    let words = PageBuddy::<Vec<u64>>::storage_words(&map, BuddyConfig::PBS_ARMV8);
    let buddy = PageBuddy::<_>::new(&map, BuddyConfig::PBS_ARMV8, vec![0; words]).expect("frames");
    let buddy = RefCell::new(buddy);
    let mut bytes = vec![0; TABLES.count as usize * 512];
    let memory = SliceMemory::new(TABLES.start, &mut bytes);
    let sizes = Sizes::all(format);
    let space = || AddressSpace::with_superpages(format, sizes, &memory, &buddy, &buddy);
    let mut spaces = [space().expect("a root"), space().expect("a root")];
    let words = ReverseMap::words_needed(FRAMES, sizes, status, ENTRIES).expect("few");
    let reverse = ReverseMap::new(FRAMES, sizes, status, vec![0; words]).expect("enough");
    let mut rust = Pmap::new(reverse);
    let flushed = RefCell::new(Vec::new());
    let large = sizes.iter().find(|order| order.k() > 4).expect("a superpage");

    for step in 0..steps {
        if random.is_spent() {
            break;
        }
        let place = Place { format, seed, step };
        // Space 2 is none; pages beyond the frames and a write that is forbidden are refused.
        let id = random.below(21).min(20) as u32 / 10;
        let (page, frame) = (random.below(MAPPED + 4), random.below(MAPPED + 4));
        let number = random.below(3) as u32;
        let access = [PageAccess::None, PageAccess::Read, PageAccess::Write][number as usize];
        let k = if random.one_in(2) { large.k() } else { 0 };
        let full = Order::new(k as u8).filter(|&order| order > Order::BASE);
        let mut invalidate = |space: SpaceId, flush: Flush| {
            flushed.borrow_mut().push((space.0, swath_flush::from(flush)));
        };
        let s = &mut (&mut spaces[..], &mut invalidate);
        let site = Site { space: SpaceId(id), page: Vpn::new(page) };
        let range = PageRange::new(Vpn::new(page), random.below(300));
        let status = |result: Result<(), swath_vm::PmapError>| match result {
            Ok(()) => swath_result { status: SWATH_OK, at: 0 },
            Err(error) => error.into(),
        };
        // SAFETY: objects of the library, places to write to.
        unsafe {
            match random.below(16) {
                // Most of them one after the other, so that superpages arise.
                0..=3 => {
                    let start = page & !(large.frames() - 1);
                    let group = PageRange::new(Vpn::new(start), large.frames());
                    let known = rust.remove(s, SpaceId(id), group);
                    let result = swath_pmap_remove(c, id, start, group.count, ptr::null_mut());
                    assert_eq!(result, status(known.map(drop)), "{place}");
                    for page in start..start + large.frames() {
                        let site = Site { page: Vpn::new(page), ..site };
                        let most = Attributes { executable: true, ..Attributes::USER_DATA };
                        let full = Some(large);
                        let known = rust.enter(s, site, Pfn::new(page), most, access, full);
                        let mut order = 99;
                        let result = swath_pmap_enter(
                            c,
                            id,
                            page,
                            page,
                            0b01_0111,
                            number,
                            large.k(),
                            &mut order,
                        );
                        assert_eq!(result, status(known.map(drop)), "{place}");
                        assert_eq!(order, known.map_or(99, Order::k), "{place}");
                    }
                }
                4 => {
                    let read_only = Attributes { writable: false, ..Attributes::USER_DATA };
                    let known = rust.enter(s, site, Pfn::new(frame), read_only, access, full);
                    let mut order = 99;
                    let result =
                        swath_pmap_enter(c, id, page, frame, 0b01_0010, number, k, &mut order);
                    assert_eq!(result, status(known.map(drop)), "{place}");
                    assert_eq!(order, known.map_or(99, Order::k), "{place}");
                }
                5 => {
                    let (page, frame) = match random.one_in(4) {
                        true => (page, frame),
                        false => (page & !(large.frames() - 1), frame & !(large.frames() - 1)),
                    };
                    let site = Site { page: Vpn::new(page), ..site };
                    let order = if random.one_in(8) { Order::new(3).unwrap() } else { large };
                    let known = rust.enter_superpage(
                        s,
                        site,
                        (Pfn::new(frame), order),
                        Attributes::USER_DATA,
                        access,
                    );
                    let result = swath_pmap_enter_superpage(
                        c,
                        id,
                        page,
                        frame,
                        order.k(),
                        0b01_0011,
                        number,
                    );
                    assert_eq!(result, status(known), "{place}");
                }
                6..=8 => {
                    let known = rust.fault(s, site, access, full);
                    let mut faulted = NO_FAULT;
                    let result = swath_pmap_fault(c, id, page, number, k, &mut faulted);
                    assert_eq!(faulted, known.map_or(NO_FAULT, told), "{place}");
                    assert_eq!(result, status(known.map(drop)), "{place}");
                }
                9 => {
                    let kept = KeptPermissions { writable: k > 0, executable: number > 0 };
                    let known = rust.protect(s, SpaceId(id), range, kept);
                    let result = swath_pmap_protect(c, id, page, range.count, k, number);
                    assert_eq!(result, status(known), "{place}");
                }
                10 => {
                    let known = rust.remove(s, SpaceId(id), range);
                    let mut removed = 99;
                    let result = swath_pmap_remove(c, id, page, range.count, &mut removed);
                    assert_eq!((removed, result), (known.unwrap_or(99), status(known.map(drop))));
                }
                11..=12 => {
                    let known = rust.page_out(s, Pfn::new(frame));
                    let mut removed = 99;
                    let result = swath_pmap_page_out(c, frame, &mut removed);
                    assert_eq!((removed, result), (known.unwrap_or(99), status(known.map(drop))));
                }
                13 => {
                    let known = rust.clean(s, Pfn::new(frame));
                    let mut modified = 99;
                    let result = swath_pmap_clean(c, frame, &mut modified);
                    let expected = known.map_or(99, u64::from);
                    assert_eq!((modified, result), (expected, status(known.map(drop))), "{place}");
                }
                14 => {
                    let all =
                        [rust.modified(s, Pfn::new(frame)), rust.referenced(s, Pfn::new(frame))];
                    for (known, ask) in all.into_iter().zip([
                        swath_pmap_modified as unsafe extern "C" fn(_, _, _) -> _,
                        swath_pmap_referenced,
                    ]) {
                        let mut said = 99;
                        let result = ask(c, frame, &mut said);
                        let expected = known.map_or(99, u64::from);
                        assert_eq!((said, result), (expected, status(known.map(drop))), "{place}");
                    }
                }
                _ => {
                    let (mut known, mut found) = (Vec::new(), Vec::<(u32, u64, u32)>::new());
                    rust.reverse().for_each(Pfn::new(frame), &mut |order, site| {
                        known.push((site.space.0, site.page.raw(), order.k()));
                    });
                    let context = (&raw mut found).cast();
                    let result = swath_pmap_each_mapping(c, frame, Some(note), context);
                    assert_eq!((result.status, &found), (SWATH_OK, &known), "{place}");
                    let mut mapping = swath_mapping { frame: 0, order: 0, attributes: 0 };
                    let result = swath_space_translate(world.spaces[0].get(), page, &mut mapping);
                    match spaces[0].translate(Vpn::new(page)) {
                        Ok(found) => {
                            let bits = u32::from(found.attributes.writable)
                                | u32::from(found.attributes.user) << 1
                                | u32::from(found.attributes.executable) << 2
                                | u32::from(found.attributes.accessed) << 4;
                            let expected = (found.frame.raw(), found.order.k(), bits);
                            let said = (mapping.frame, mapping.order, mapping.attributes);
                            assert_eq!((result.status, said), (SWATH_OK, expected), "{place}");
                        }
                        Err(error) => assert_eq!(result, error.into(), "{place}"),
                    }
                }
            }
            assert_eq!(swath_pmap_free_entries(c), rust.reverse().free_entries(), "{place}");
        }
        assert_eq!(*world.flushed.borrow(), *flushed.borrow(), "{place}");
        flushed.borrow_mut().clear();
        world.flushed.borrow_mut().clear();
        if step % 300 == 299 {
            check(&world, c, place);
        }
    }
    check(&world, c, Place { format, seed, step: steps });
    let statistics = rust.statistics();
    drop(spaces);
    assert_eq!(buddy.borrow().free_frames(), TABLES.count);
    // SAFETY: objects of the library, each dropped once; afterwards they are none.
    unsafe {
        for space in &world.spaces {
            assert_eq!(swath_space_drop(space.get()).status, SWATH_OK);
            assert_eq!(swath_space_check(space.get()).status, SWATH_WRONG_OBJECT);
        }
        assert_eq!(swath_frames_free_count(tables), TABLES.count);
    }
    let told: Vec<u64> = world.memory.iter().map(Cell::get).collect();
    assert!(told == bytes, "{format:?}, seed {seed}: the tables");
    statistics
}

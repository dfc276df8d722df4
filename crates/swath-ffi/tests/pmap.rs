//! The pmap of C beside Rust's, call by call: the same results, the same TLB maintenance in the same order,
//! and at the end the same bytes in the tables.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr;

use swath::swath_status::*;
use swath::*;
use swath_arch::testing::Random;
use swath_arch::{Attributes, Extent, Format, Order, PageRange, Pfn, SliceMemory, Vpn};
use swath_frame::{BuddyConfig, ByteRange, FrameAllocator, MemoryMap, PageBuddy};
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, PageAccess, Pmap, ReverseMap, Site, Sizes,
    SpaceId, Status,
};

/// Frames whose pages are mapped, and behind them those of tables.
const MAPPED: u64 = 2048;
const TABLES: Extent = Extent { start: Pfn::new(MAPPED), count: 300 };
const FRAMES: Extent = Extent { start: Pfn::new(0), count: MAPPED };

const ENTRIES: u32 = 700;

fn storage(len_bytes: usize) -> (*mut c_void, usize) {
    assert_ne!(len_bytes, 0, "a wrong configuration");
    let words = Box::leak(vec![0xAAAA_AAAA_AAAA_AAAA_u64; len_bytes / 8 + 2].into_boxed_slice());
    (words.as_mut_ptr().cast::<u8>().wrapping_add(3).cast(), len_bytes)
}

/// What C's functions reach: the bytes of the tables, the spaces, the maintenance that was asked for.
struct World {
    memory: Vec<Cell<u64>>,
    spaces: [Cell<*mut swath_space>; 2],
    flushed: RefCell<Vec<(u32, swath_flush)>>,
}

impl World {
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

fn made(world: &World, format: Format, flags: u32) -> (*mut swath_frames, *mut swath_pmap) {
    let number = Format::ALL.iter().position(|&one| one == format).unwrap() as u32;
    let range = swath_range { start: TABLES.start.address().raw(), len_bytes: TABLES.count << 12 };
    let (mut map, mut tables, mut pmap) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let config = swath_frames_config { granularity: 9, top_order: 18, best_fit: 0 };
    let context = ptr::from_ref(world).cast_mut().cast::<c_void>();
    let bus = swath_bus { read: Some(read), write: Some(write), context };
    let spaces = swath_spaces { reach: Some(reach), flush: Some(flush), context };
    // SAFETY: storage as was asked for, functions and context that stay.
    unsafe {
        let (at, len) = storage(swath_map_storage_bytes(1));
        assert_eq!(swath_map_create(&range, 1, at, len, &mut map).status, SWATH_OK);
        let (at, len) = storage(swath_frames_storage_bytes(map, config));
        assert_eq!(swath_frames_create(map, config, 1, at, len, &mut tables).status, SWATH_OK);
        for space in &world.spaces {
            let (at, len) = storage(swath_space_storage_bytes());
            let mut made = ptr::null_mut();
            let result =
                swath_space_create_for_superpages(number, bus, tables, tables, at, len, &mut made);
            assert_eq!(result.status, SWATH_OK);
            space.set(made);
        }
        let (at, len) = storage(swath_pmap_storage_bytes(FRAMES.into(), number, flags, ENTRIES));
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

const NO_FAULT: swath_faulted = swath_faulted { order: 9, removed: 9, first_page: 9, count: 9 };

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

fn beside(format: Format, status: Status, seed: u64) {
    let flags = u32::from(status == Status::InReverseMap);
    let world = World {
        memory: vec![Cell::new(0); TABLES.count as usize * 512],
        spaces: [const { Cell::new(ptr::null_mut()) }; 2],
        flushed: RefCell::new(Vec::new()),
    };
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

    let mut random = Random::new(seed);
    for step in 0..1500 {
        let place = format!("{format:?}, seed {seed}, step {step}");
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
            // SAFETY: objects of the library.
            unsafe {
                assert_eq!(swath_pmap_check(c, 0).status, SWATH_OK, "{place}");
                assert_eq!(swath_pmap_check(c, 2).status, SWATH_OK, "{place}");
                assert_eq!(swath_space_check(world.spaces[0].get()).status, SWATH_OK, "{place}");
                let beyond = swath_result { status: SWATH_ARGUMENT, at: 2 };
                assert_eq!(swath_pmap_check(c, 3), beyond, "{place}");
            }
        }
    }
    let statistics = rust.statistics();
    assert!(statistics.promotions > 5 && statistics.demotions_write > 0, "{statistics:?}");
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
    assert!(world.memory.iter().map(Cell::get).eq(bytes), "{format:?}, seed {seed}: the tables");
}

#[test]
fn the_pmap_does_what_it_does_in_rust() {
    for format in Format::ALL {
        for status in [Status::InTable, Status::InReverseMap] {
            for seed in 0..2 {
                beside(format, status, seed);
            }
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let world = World {
        memory: vec![Cell::new(0); TABLES.count as usize * 512],
        spaces: [const { Cell::new(ptr::null_mut()) }; 2],
        flushed: RefCell::new(Vec::new()),
    };
    let (tables, pmap) = made(&world, Format::ArmV8, 0);
    let argument = |at| swath_result { status: SWATH_ARGUMENT, at };
    let null = swath_result { status: SWATH_NULL, at: 0 };
    assert_eq!(swath_pmap_storage_bytes(FRAMES.into(), 9, 0, 1), 0);
    assert_eq!(swath_pmap_storage_bytes(FRAMES.into(), 1, 2, 1), 0);
    let endless = swath_extent { start: u64::MAX, count: 2 };
    assert_eq!(swath_pmap_storage_bytes(endless, 1, 0, 1), 0);
    let (mut order, mut faulted) = (0, NO_FAULT);
    let space = world.spaces[0].get();
    // SAFETY: objects of the library, and what it looks for.
    unsafe {
        let enter = |attributes, access, k, order| {
            swath_pmap_enter(pmap, 0, 5, 5, attributes, access, k, order)
        };
        assert_eq!(enter(64, 1, 0, &mut order), argument(64));
        assert_eq!(enter(1, 3, 0, &mut order), argument(3));
        assert_eq!(enter(1, 1, 64, &mut order), argument(64));
        assert_eq!(enter(1, 1, 0, ptr::null_mut()), null);
        assert_eq!(enter(1, 1, 0, &mut order).status, SWATH_OK);
        assert_eq!(enter(1, 1, 0, &mut order), swath_result { status: SWATH_MAPPED, at: 5 });
        let faults = [5, 6].map(|page| swath_pmap_fault(pmap, 0, page, 1, 0, &mut faulted).status);
        assert_eq!(faults, [SWATH_OK, SWATH_FAULT]);
        let overflow = swath_pmap_remove(pmap, 0, u64::MAX, 2, ptr::null_mut());
        assert_eq!(overflow.status, SWATH_OVERFLOW);
        assert_eq!(swath_pmap_page_out(pmap, MAPPED, ptr::null_mut()).status, SWATH_FOREIGN);
        assert_eq!(
            swath_pmap_page_out(tables.cast(), 0, ptr::null_mut()).status,
            SWATH_WRONG_OBJECT
        );
        assert_eq!(swath_pmap_each_mapping(pmap, 0, None, ptr::null_mut()), null);
        assert_eq!(swath_space_map_page_size(space, 512, 512, 9, 0b11).status, SWATH_OK);
        let askew = swath_space_map_page_size(space, 1024, 3, 9, 0b11);
        assert_eq!(askew, swath_result { status: SWATH_MISALIGNED, at: 3 });
        assert_eq!(swath_space_map_page_size(space, 1024, 0, 5, 0b11), argument(5));
        assert_eq!(swath_space_map_largest(space, 4096, 512, 600, 0b1).status, SWATH_OK);
        let mut mapping = swath_mapping { frame: 0, order: 0, attributes: 0 };
        assert_eq!(swath_space_translate(space, 4100, &mut mapping).status, SWATH_OK);
        assert_eq!((mapping.frame, mapping.order), (516, 9));
        assert_eq!(swath_space_translate(space, 4100, ptr::null_mut()), null);
        assert_eq!(swath_space_drop(ptr::null_mut()), null);
    }
}

#[test]
fn memory_is_reached_directly() {
    let mut words = vec![0_u64; 4 * 512];
    let start = words.as_mut_ptr();
    let memory = swath_memory { first_frame: 100, bytes: start.cast(), len_bytes: 4 * 4096 };
    // SAFETY: the memory stays to the end of the test.
    let bus = unsafe { swath_bus_direct(&memory) };
    let (read, write) = (bus.read.unwrap(), bus.write.unwrap());
    let mut value = 0;
    // SAFETY: the functions of the bus, with its context.
    unsafe {
        assert_eq!(write(bus.context, 100 << 12, 8, 0x1122_3344_5566_7788), 0);
        assert_eq!(write(bus.context, (100 << 12) + 4, 4, 0xffff_ffff_9999_9999), 0);
        assert_eq!(
            (read(bus.context, 100 << 12, 8, &mut value), value),
            (0, 0x9999_9999_5566_7788)
        );
        assert_eq!((read(bus.context, 100 << 12, 4, &mut value), value), (0, 0x5566_7788));
        assert_eq!(write(bus.context, (104 << 12) - 8, 8, 5), 0);
        for (addr, len) in [
            (104 << 12, 4),
            ((104 << 12) - 4, 8),
            (99 << 12, 8),
            ((100 << 12) + 2, 4),
            (100 << 12, 2),
        ] {
            assert_eq!(read(bus.context, addr, len, &mut value), 1, "{addr:#x}, {len} bytes");
            assert_eq!(write(bus.context, addr, len, 1), 1, "{addr:#x}, {len} bytes");
        }
        assert_eq!(read(bus.context, u64::MAX - 7, 8, &mut value), 1);
        // A frame beyond all addresses has none.
        let far = swath_memory { first_frame: u64::MAX, ..memory };
        assert_eq!(
            swath_bus_direct(&far).read.unwrap()(
                (&raw const far).cast_mut().cast(),
                0,
                8,
                &mut value
            ),
            1
        );
        let none = swath_bus_direct(ptr::null());
        assert!(none.read.is_none() && none.write.is_none());
    }
    assert_eq!(words[0], 0x9999_9999_5566_7788);
    assert_eq!(words[4 * 512 - 1], 5);
}

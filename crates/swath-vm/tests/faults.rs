//! Every write to memory and every request for frames is made to fail in turn:
//! each operation then has changed nothing, nothing is lost, and the same
//! operation succeeds when it is tried again.

use std::cell::RefCell;

use crate::machine::{Memory, Pool, Space, coalescings, spec};
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, Order, PageRange, Pfn, Vpn,
};
use swath_frame::{FrameAllocator, FrameFreeError};
use swath_vm::{
    AddressSpace, DemandPagingError, EagerPagingError, MapPagesError, NewSpaceError, PageSizeError,
    Sizes, TranslateError, UnmapError,
};

const POOL: u64 = 0x100;
const FRAMES: u64 = 4000;
const DATA: Attributes = Attributes::USER_DATA;

/// The pages where everything here happens: across leaf tables, and across
/// four of them in ARMv7.
const WINDOW: PageRange = PageRange::new(Vpn::new(0x380), 0x5c0);

type Operation = (&'static str, fn(&mut Space<'_>) -> Result<(), String>);

fn say<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn range(start: u64, count: u64) -> PageRange {
    PageRange::new(Vpn::new(start), count)
}

/// What is there before each operation: blocks to be cut on both sides, a page
/// of 16 base pages or of an upper level, and single pages.
fn prepare(space: &mut Space<'_>) {
    let large = space.regime().format.levels().iter().rev().nth(1).unwrap().leaves[0];
    let any = space.regime().format.levels().last().unwrap().leaves.last().unwrap();
    space.map(Vpn::new(0x3a0), Extent::new(Pfn::new(0x5000), 0x30), DATA).unwrap();
    space.map_page_size(Vpn::new(0x3d0), Pfn::new(0x6000), *any, DATA).unwrap();
    let free = 0x3d0 + any.frames();
    space.allocate_eager(range(free, 0x400 - free), DATA, &mut |_| ()).unwrap();
    space.map_page_size(Vpn::new(0x400), Pfn::new(0x8000), large, DATA).unwrap();
    let next = 0x400 + large.frames();
    space.map(Vpn::new(next), Extent::new(Pfn::new(0x9003), 0x90), DATA).unwrap();
}

const OPERATIONS: [Operation; 9] = [
    ("map over new tables", |space| {
        space.map(Vpn::new(0x7f0), Extent::new(Pfn::new(0x7777), 0x120), DATA).map_err(say)
    }),
    ("map in an old table", |space| {
        space.map(Vpn::new(0x390), Extent::new(Pfn::new(0x7777), 0x10), DATA).map_err(say)
    }),
    ("map a larger page", |space| {
        let order = *space.regime().format.levels().last().unwrap().leaves.last().unwrap();
        space.map_page_size(Vpn::new(0x800), Pfn::new(0xa000), order, DATA).map_err(say)
    }),
    ("map in pages as large as they may be", |space| {
        let sizes = Sizes::all(space.regime().format);
        let extent = Extent::new(Pfn::new(0xa7f1), 0x14f);
        space.map_largest(Vpn::new(0x7f1), extent, sizes, DATA).map_err(say)
    }),
    ("map a joined page above the leaves", |space| {
        let leaves = space.regime().format.levels().iter().rev().nth(1).unwrap().leaves;
        let order = *leaves.last().unwrap();
        // Beyond the window, at a multiple of every order.
        space.map_page_size(Vpn::new(0x4000), Pfn::new(0x4000), order, DATA).map_err(say)
    }),
    ("eager paging", |space| {
        space.allocate_eager(range(0x7f0, 0x50), DATA, &mut |_| ()).map_err(say)
    }),
    ("demand paging", |space| space.fault(Vpn::new(0x8ff), DATA).map(drop).map_err(say)),
    ("unmap between what remains", |space| {
        let large = space.regime().format.levels().iter().rev().nth(1).unwrap().leaves[0];
        let count = 0x400 + large.frames() + 0x21 - 0x3ac;
        space.unmap(range(0x3ac, count)).map(drop).map_err(say)
    }),
    ("unmap a few", |space| space.unmap(range(0x3b3, 5)).map(drop).map_err(say)),
];

/// What the tables say of every page that an operation may touch: of the
/// window, but for the inside of the larger page, and of the joined page.
fn snapshot(memory: &Memory, space: &Space<'_>) -> Vec<Option<spec::Seen>> {
    let large = space.regime().format.levels().iter().rev().nth(1).unwrap().leaves[0];
    let next = 0x400 + large.frames();
    let pages = [
        range(WINDOW.start.raw(), 0x404 - WINDOW.start.raw()),
        range(next - 4, 0x98),
        range(0x7ec, WINDOW.end().raw() - 0x7ec),
        range(0x4000, 0x40),
    ];
    let look = |page: Vpn| spec::look(memory, space.regime(), page.raw());
    pages.into_iter().flat_map(PageRange::iter).map(look).collect()
}

/// Fails the n-th write (or request) for each n until none is left to fail.
///
/// A failure leaves the space as it was, so that the next one meets the same
/// space; what the failures might have left behind adds up until the operation
/// succeeds.
fn fail_each(format: Format, coalescing: Coalescing, operation: Operation, writes: bool) -> u64 {
    let mut n = 1;
    loop {
        let memory = Memory::new(0, POOL + FRAMES);
        let pool = RefCell::new(Pool::new(POOL, FRAMES, 24, 11));
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
        prepare(&mut space);
        let before = snapshot(&memory, &space);
        let (taken, tables) = (pool.borrow().taken_frames(), space.table_frames());
        let random = pool.borrow().random.clone();
        let done = loop {
            // The same blocks, and so the same writes, in every try.
            pool.borrow_mut().random = random.clone();
            if writes {
                memory.fail_in.set(n);
            } else {
                pool.borrow_mut().fail_in = n;
            }
            let result = operation.1(&mut space);
            let failed = if writes { memory.fail_in.get() } else { pool.borrow().fail_in } == 0;
            memory.fail_in.set(0);
            pool.borrow_mut().fail_in = 0;
            let context = format!("{} on {format:?} {coalescing:?}, failure {n}", operation.0);
            space.check().unwrap_or_else(|error| panic!("{context}: {error}"));
            if result.is_err() {
                assert!(failed, "{context}");
                assert!(snapshot(&memory, &space) == before, "{context}: a trace is left");
                assert_eq!(pool.borrow().taken_frames(), taken, "{context}");
                assert_eq!(space.table_frames(), tables, "{context}");
                n += 1;
                continue;
            }
            assert!(snapshot(&memory, &space) != before, "{context}: nothing is done");
            if failed {
                // Only an empty table could not be unlinked; it is not lost.
                assert!(writes && operation.0.starts_with("unmap"), "{context}");
                n += 1;
            }
            break !failed;
        };
        drop(space);
        assert_eq!(pool.borrow().taken_frames(), 0, "{} on {format:?}", operation.0);
        if done {
            return n - 1;
        }
    }
}

fn fail_all(format: Format, writes: bool) {
    let mut failures = 0;
    for coalescing in coalescings(format) {
        for operation in OPERATIONS {
            failures += fail_each(format, coalescing, operation, writes);
        }
    }
    println!("{format:?}: {failures} failures injected");
    assert!(failures > if writes { 3_000 } else { 100 });
}

#[test]
fn every_write_fails_armv7() {
    fail_all(Format::ArmV7, true);
}

#[test]
fn every_write_fails_armv8() {
    fail_all(Format::ArmV8, true);
}

#[test]
fn every_write_fails_x86_64() {
    fail_all(Format::X86_64, true);
}

#[test]
fn every_write_fails_riscv() {
    fail_all(Format::Sv39, true);
}

/// Blocks become one, and each write of that fails in turn: what pages claim is true all the
/// while, and stays so when one of them goes.
#[test]
fn every_write_of_joining_fails() {
    let mut failures = 0;
    for format in Format::ALL {
        for coalescing in coalescings(format) {
            for gone in [0x3f5, 0x400, 0x40b] {
                for n in 1.. {
                    let memory = Memory::new(0, POOL + FRAMES);
                    let pool = RefCell::new(Pool::new(POOL, FRAMES, 24, 11));
                    let mut space: Space<'_> =
                        AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
                    // Pages of demand paging, not in their order, and two longer blocks.
                    let blocks = [(0x3f8, 7), (0x3f0, 1), (0x3f7, 1), (0x3ff, 1), (0x3f1, 6)];
                    for (page, count) in blocks.into_iter().chain([(0x400, 0x20)]) {
                        let extent = Extent::new(Pfn::new(0x5000 + page), count);
                        space.map(Vpn::new(page), extent, DATA).unwrap();
                    }
                    memory.fail_in.set(n);
                    let result = space.join_blocks(Vpn::new(0x3f9));
                    let failed = memory.fail_in.replace(0) == 0;
                    let context = format!("{format:?} {coalescing:?}, failure {n}");
                    space.check().unwrap_or_else(|error| panic!("{context}: {error}"));
                    space.unmap(range(gone, 3)).map(drop).unwrap();
                    space.check().unwrap_or_else(|error| panic!("{context}, {gone:#x}: {error}"));
                    if result.is_ok() {
                        assert!(!failed, "{context}");
                        assert_eq!(result, Ok(range(0x3f0, 0x30)), "{context}");
                        break;
                    }
                    failures += 1;
                }
            }
        }
    }
    assert!(failures > 300, "{failures}");
}

#[test]
fn every_request_fails() {
    for format in Format::ALL {
        fail_all(format, false);
    }
}

#[test]
fn a_space_that_is_not_made_takes_nothing() {
    let memory = Memory::new(0, POOL + 8);
    for format in Format::ALL {
        let pool = RefCell::new(Pool::new(POOL, FRAMES, 24, 1));
        for n in 1..=format.root_order().frames() {
            memory.fail_in.set(n);
            let refused = AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool);
            assert!(matches!(refused.map(drop), Err(NewSpaceError::Bus(_))));
            assert_eq!(pool.borrow().taken_frames(), 0);
        }
        for (coalescing, error) in [
            (
                Coalescing::Pcad(ContiguityField::Beside { bits: 33 }),
                NewSpaceError::Width { bits: 33, bits_max: format.beside_half_bits() },
            ),
            (
                Coalescing::Pcad(ContiguityField::Beside { bits: 0 }),
                NewSpaceError::Width { bits: 0, bits_max: format.beside_half_bits() },
            ),
            (
                Coalescing::Anchor {
                    field: ContiguityField::Descriptor,
                    distance: Order::known(17),
                },
                NewSpaceError::Distance { distance: Order::known(17) },
            ),
        ] {
            let refused = AddressSpace::new(format, coalescing, &memory, &pool, &pool);
            assert_eq!(refused.map(drop), Err(error));
        }
        assert_eq!(pool.borrow().taken_frames(), 0);
    }
}

/// Tables taken where no memory answers, or where the format cannot reach.
#[test]
fn tables_without_memory() {
    for format in Format::ALL {
        let root = format.root_order().frames();
        let memory = Memory::new(POOL, root);
        let pool = RefCell::new(Pool::new(POOL, FRAMES, 24, 1));
        let mut space: Space<'_> =
            AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool).unwrap();
        let refused = space.map(Vpn::new(5), Extent::new(Pfn::new(5), 5), DATA);
        assert!(matches!(refused, Err(MapPagesError::Bus(_))), "{refused:?}");
        assert_eq!(pool.borrow().taken_frames(), root);
        space.check().unwrap();
        drop(space);

        let beyond = 1 << (format.pa_bits() - 12);
        let memory = Memory::new(beyond, 64);
        let pool = RefCell::new(Pool::new(beyond, 64, 24, 1));
        let refused = AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool);
        let frame = Pfn::new(beyond);
        assert_eq!(refused.map(drop), Err(NewSpaceError::TableOutOfReach { frame }));
        assert_eq!(pool.borrow().taken_frames(), 0);
    }
}

/// Bad input, each with the error that names it, and nothing changed.
#[test]
fn hostile_input() {
    for format in Format::ALL {
        let memory = Memory::new(0, POOL + FRAMES);
        let pool = RefCell::new(Pool::new(POOL, FRAMES, 24, 1));
        let mut space: Space<'_> =
            AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool).unwrap();
        let taken = pool.borrow().taken_frames();
        let writes = memory.writes.get();
        let at = |start, count| Extent::new(Pfn::new(start), count);
        let end = match format {
            Format::ArmV7 => 1 << 20,
            Format::ArmV8 => 1 << 36,
            Format::X86_64 | Format::Sv48 => 1 << 35,
            Format::Sv39 => 1 << 26,
        };
        assert_eq!(space.map(Vpn::new(1), at(1, 0), DATA), Err(MapPagesError::Empty));
        for (start, count, page) in [
            (end, 1, end),
            (end - 1, 2, end),
            (0, u64::MAX, end),
            (u64::MAX, 1, u64::MAX),
            (u64::MAX, u64::MAX, u64::MAX),
            (1 << 52, 1, 1 << 52),
        ] {
            let page = Vpn::new(page);
            let pages = range(start, count);
            let not_canonical = MapPagesError::NotCanonical { page };
            assert_eq!(space.map(Vpn::new(start), at(0, count), DATA), Err(not_canonical));
            let eager = space.allocate_eager(pages, DATA, &mut |_| ());
            assert_eq!(eager, Err(EagerPagingError::Map(not_canonical)));
            let unmapped = space.unmap(pages).map(drop);
            assert_eq!(unmapped, Err(UnmapError::NotCanonical { page }));
            if count == 1 {
                let refused = Err(DemandPagingError::Map(not_canonical));
                assert_eq!(space.fault(page, DATA), refused);
                assert_eq!(space.translate(page), Err(TranslateError::NotCanonical { page }));
            }
        }
        let last = 1 << (format.pa_bits() - 12);
        for (start, count, frame) in [(last, 1, last), (last - 3, 4, last), (u64::MAX, 2, u64::MAX)]
        {
            let refused = space.map(Vpn::new(7), at(start, count), DATA);
            let frame = Pfn::new(frame);
            assert_eq!(refused, Err(MapPagesError::FrameOutOfReach { frame }));
        }
        let size = |space: &mut Space<'_>, page, frame, order| {
            space.map_page_size(Vpn::new(page), Pfn::new(frame), Order::known(order), DATA)
        };
        let order = Order::known(3);
        assert_eq!(size(&mut space, 0, 0, 3), Err(PageSizeError::NoSuchSize { order }));
        let order = format.levels().iter().rev().nth(1).unwrap().leaves[0];
        let (k, frames) = (order.k() as u8, order.frames());
        let page = Vpn::new(frames + 1);
        let refused = size(&mut space, frames + 1, 0, k);
        assert_eq!(refused, Err(PageSizeError::PageMisaligned { page, order }));
        let frame = Pfn::new(frames / 2);
        let refused = size(&mut space, frames, frames / 2, k);
        assert_eq!(refused, Err(PageSizeError::FrameMisaligned { frame, order }));
        let beyond = if format == Format::ArmV7 { 1 << 28 } else { last };
        let top = if format == Format::ArmV7 { 12 } else { k };
        let frame = Pfn::new(beyond);
        let refused = size(&mut space, 0, beyond, top);
        assert_eq!(refused, Err(PageSizeError::Map(MapPagesError::FrameOutOfReach { frame })));
        assert_eq!(space.unmap(range(3, 0)).map(drop), Err(UnmapError::Empty));
        let page = Vpn::new(3);
        assert_eq!(space.unmap(range(3, 1)).map(drop), Err(UnmapError::NotMapped { page }));
        let eager = space.allocate_eager(range(0, FRAMES + 1), DATA, &mut |_| ());
        let free = FRAMES - taken;
        assert_eq!(eager, Err(EagerPagingError::OutOfFrames { wanted: FRAMES + 1, free }));
        // The frames suffice for the pages, but not for the tables too.
        let eager = space.allocate_eager(range(0, free), DATA, &mut |_| ());
        assert!(eager.is_err());
        assert!(memory.writes.get() > writes);
        assert_eq!(pool.borrow().taken_frames(), taken);
        space.check().unwrap();
    }
}

/// Frames that somebody else has freed: the rest goes back, and the error says
/// which did not.
#[test]
fn frames_freed_behind_the_space() {
    let memory = Memory::new(0, POOL + FRAMES);
    let pool = RefCell::new(Pool::new(POOL, FRAMES, 24, 1));
    let mut space: Space<'_> =
        AddressSpace::new(Format::ArmV8, Coalescing::None, &memory, &pool, &pool).unwrap();
    let frame = space.fault(Vpn::new(9), DATA).unwrap();
    pool.borrow_mut().free(Extent::new(frame, 1)).unwrap();
    match space.unmap(range(9, 1)) {
        Err(UnmapError::Refused { extent, error, flush }) => {
            assert_eq!(extent, Extent::new(frame, 1));
            assert_eq!(error, FrameFreeError::NotAllocated { frame });
            assert_eq!(flush.range, range(9, 1));
        }
        other => panic!("{other:?}"),
    }
    assert!(space.translate(Vpn::new(9)).is_err());
    space.check().unwrap();
}

//! Promotion and demotion one by one: the bytes of the tables in all formats,
//! what is kept and recalled, when the TLBs are asked to forget, and all orders
//! of small cases.

use std::cell::{Cell, RefCell};

use crate::machine::{Memory, Pool, Space, spec};
use swath_arch::{
    Attributes, Coalescing, Extent, Format, MemoryKind, Order, PageRange, Pfn, PhysAddr,
    PhysMemory, Vpn,
};
use swath_vm::{
    AddressSpace, DemoteError, DemotedTable, Faulted, Flush, KeptPermissions, NewSpaceError,
    PageAccess, Pmap, PromoteError, Refusal, ReverseError, ReverseMap, Site, Sizes, SpaceId,
    Status,
};

const POOL: u64 = 0x100;
const FRAMES: u64 = 2000;

/// Readable user data that has been accessed.
pub(crate) const READ: Attributes = Attributes {
    writable: false,
    user: true,
    executable: false,
    global: false,
    accessed: true,
    memory: MemoryKind::Normal,
};
pub(crate) const WRITE: Attributes = Attributes { writable: true, ..READ };

pub(crate) fn machine() -> (Memory, RefCell<Pool>) {
    (Memory::new(0, POOL + FRAMES), RefCell::new(Pool::new(POOL, FRAMES, 24, 5)))
}

pub(crate) fn space<'m>(
    format: Format,
    sizes: Sizes,
    memory: &'m Memory,
    pool: &'m RefCell<Pool>,
) -> Space<'m> {
    AddressSpace::with_superpages(format, sizes, memory, pool, pool).unwrap()
}

/// The superpage made of a whole leaf table.
pub(crate) fn fold_order(format: Format) -> Order {
    Order::known(if format == Format::ArmV7 { 8 } else { 9 })
}

fn read(memory: &Memory, format: Format, at: u64) -> u64 {
    match format {
        Format::ArmV7 => memory.read_u32(PhysAddr::new(at)).unwrap().into(),
        _ => memory.read_u64(PhysAddr::new(at)).unwrap(),
    }
}

/// The address of the entry that can map `fold_order` around the page, its
/// word, and the word beside it.
pub(crate) fn upper(memory: &Memory, space: &Space<'_>, page: u64) -> (u64, u64, u64) {
    let regime = space.regime();
    let va = page << 12;
    let mut table = regime.root.raw();
    let (at, half) = match regime.format {
        Format::ArmV7 => (table + (va >> 20) * 4, 16384),
        _ => {
            let lows: &[u32] = if regime.format == Format::Sv39 { &[30] } else { &[39, 30] };
            for low in lows {
                let word = read(memory, regime.format, table + (va >> low & 511) * 8);
                table = match regime.format {
                    Format::Sv39 | Format::Sv48 => word >> 10 << 12,
                    _ => word & 0x000f_ffff_ffff_f000,
                };
            }
            (table + (va >> 21 & 511) * 8, 4096)
        }
    };
    (at, read(memory, regime.format, at), read(memory, regime.format, at + half))
}

pub(crate) fn promote(space: &mut Space<'_>, page: u64, order: u8) -> Result<(), PromoteError> {
    space.promote(Vpn::new(page), Order::known(order), &mut |_| ()).map(drop)
}

pub(crate) fn refusal(result: Result<(), PromoteError>) -> Refusal {
    match result {
        Err(PromoteError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// Joins all 16s of the leaf table, where the format can.
pub(crate) fn join_all(space: &mut Space<'_>, page: u64, order: Order) {
    if space.sizes().unwrap().contains(Order::known(4)) {
        for at in (page..page + order.frames()).step_by(16) {
            promote(space, at, 4).unwrap();
        }
    }
}

/// Words computed by hand from the figures in the modules of swath-arch.
#[test]
fn golden() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let (page, frame) = (order.frames() * 3, order.frames() * 5);
        space.map(Vpn::new(page), Extent::new(Pfn::new(frame), order.frames()), READ).unwrap();
        let (at, link, occupancy) = upper(&memory, &space, page);
        assert_eq!(occupancy, order.frames());
        let is_riscv = matches!(format, Format::Sv39 | Format::Sv48);
        let leaf_table = if is_riscv { link >> 10 << 12 } else { link & !0x3ff };
        let entry = |i: u64| read(&memory, format, leaf_table + i * format.entry_bytes());
        let shift = if is_riscv { 10 } else { 12 };
        let pa = frame << shift;
        // Frames that are somebody else's: S = 0, outer shareable, PAT = 1.
        let (small, joined, section) = match format {
            // nG, AP[2] read-only, AP[1], AF, C, B, type 11 (XN).
            Format::ArmV7 => (0xa3f, Some(0x8a3d), 0x2_8c1e),
            // UXN, PXN, nG, AF, SH = 10, AP = 11, type 11.
            Format::ArmV8 => {
                (0x0060_0000_0000_0ec3, Some(0x0070_0000_0000_0ec3), 0x0060_0000_0000_0ec1)
            }
            // XD, PAT, A, US, P; PS and PAT at bit 12.
            Format::X86_64 => (0x8000_0000_0000_00a5, None, 0x8000_0000_0000_10a5),
            // RSW 01, A, U, R, V; N and PPN[3:0] = 1000.
            Format::Sv39 | Format::Sv48 => (0x153, Some(0x8000_0000_0000_2153), 0x153),
        };
        assert_eq!(entry(0), small | pa, "{format:?}: {:#x}", entry(0));
        if let Some(joined) = joined {
            promote(&mut space, page + 37, 4).unwrap();
            let step = if format == Format::ArmV8 { 1 << 12 } else { 0 };
            for i in 0..16 {
                assert_eq!(entry(32 + i), joined | (pa + (32 << shift) + i * step), "{format:?}");
            }
            assert_eq!(entry(31), small | (pa + (31 << shift)));
            let kept = space.demote(Vpn::new(page + 40), &mut |_| ()).unwrap();
            assert_eq!((kept.table, kept.page), (DemotedTable::Parted, Vpn::new(page + 32)));
            assert!((0..256).all(|i| entry(i) == small | (pa + (i << shift))));
            assert_eq!(
                refusal(promote(&mut space, page, order.k() as u8)),
                Refusal::Smaller { page: Vpn::new(page) }
            );
            join_all(&mut space, page, order);
        }
        promote(&mut space, page + 1, order.k() as u8).unwrap();
        let (_, word, kept) = upper(&memory, &space, page);
        assert_eq!(word, section | pa, "{format:?}");
        assert_eq!(kept, leaf_table);
        space.check().unwrap();
        let demoted = space.demote(Vpn::new(page + 255), &mut |_| ()).unwrap();
        assert_eq!(demoted.table, DemotedTable::Recalled);
        assert_eq!(demoted.to, Order::known(if joined.is_some() { 4 } else { 0 }));
        assert_eq!(upper(&memory, &space, page), (at, link, order.frames()));
        assert_eq!(entry(0), joined.unwrap_or(small) | pa);
        space.check().unwrap();
    }
}

/// A machine sets the dirty flag of x86-64 in whatever page is written, superpages included, which no
/// invariant forbids and no promotion minds.
#[test]
fn a_machine_may_set_the_dirty_flag() {
    let format = Format::X86_64;
    let (memory, pool) = machine();
    let mut space = space(format, Sizes::all(format), &memory, &pool);
    let order = fold_order(format);
    let (page, frame) = (order.frames() * 3, order.frames() * 5);
    space.map(Vpn::new(page), Extent::new(Pfn::new(frame), order.frames()), WRITE).unwrap();
    let dirty = |at: u64| {
        let at = PhysAddr::new(at);
        memory.write_u64(at, memory.read_u64(at).unwrap() | 1 << 6).unwrap();
    };
    let (at, link, _) = upper(&memory, &space, page);
    dirty((link & !0xfff) + 8 * 7);
    promote(&mut space, page, order.k() as u8).unwrap();
    dirty(at);
    space.check().unwrap();
    let demoted = space.demote(Vpn::new(page), &mut |_| ()).unwrap();
    assert_eq!(demoted.table, DemotedTable::Recalled);
    space.check().unwrap();
}

/// Kept, stale and missing tables, and a frame that cannot be had.
#[test]
fn tables_are_recalled_fixed_up_and_recreated() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let (page, k) = (order.frames(), order.k() as u8);
        let extent = Extent::new(Pfn::new(page * 2), order.frames());
        space.map(Vpn::new(page), extent, READ).unwrap();
        join_all(&mut space, page, order);
        promote(&mut space, page, k).unwrap();
        let tables = space.table_frames();
        // Changed as a whole: what is kept is stale.
        let whole = PageRange::new(Vpn::new(page), order.frames());
        assert_eq!(space.protect(whole, |_| WRITE, &mut |_| ()), Ok(1));
        space.check().unwrap();
        let demoted = space.demote(Vpn::new(page), &mut |_| ()).unwrap();
        assert_eq!(demoted.table, DemotedTable::FixedUp);
        assert_eq!(space.translate(Vpn::new(page + 77)).unwrap().attributes, WRITE);
        promote(&mut space, page, k).unwrap();
        let demoted = space.demote(Vpn::new(page), &mut |_| ()).unwrap();
        assert_eq!((demoted.table, space.table_frames()), (DemotedTable::Recalled, tables));
        promote(&mut space, page, k).unwrap();
        // Removed as a whole: what was kept is given back.
        let _ = space.unmap(whole).unwrap();
        space.check().unwrap();
        // With a half of their own, where the root has superpages.
        let root = match format {
            Format::ArmV7 => 8,
            Format::Sv39 => 2,
            Format::ArmV8 | Format::X86_64 | Format::Sv48 => 1,
        };
        assert_eq!(space.table_frames(), root);
        // Created directly: nothing is kept.
        space.map_page_size(Vpn::new(page), Pfn::new(page * 2), order, READ).unwrap();
        pool.borrow_mut().fail_in = 1;
        let refused = space.demote(Vpn::new(page), &mut |_| ());
        assert!(matches!(refused, Err(DemoteError::NoTable(_))), "{refused:?}");
        assert_eq!(space.translate(Vpn::new(page)).unwrap().order, order);
        space.check().unwrap();
        let demoted = space.demote(Vpn::new(page), &mut |_| ()).unwrap();
        assert_eq!(demoted.table, DemotedTable::Recreated);
        space.check().unwrap();
        // A part of it goes.
        let _ = space.unmap(PageRange::new(Vpn::new(page + 16), 16)).unwrap();
        assert_eq!(upper(&memory, &space, page).2, order.frames() - 16);
        assert_eq!(
            refusal(promote(&mut space, page, k)),
            Refusal::NotFull { entries: order.frames() - 16 }
        );
        drop(space);
        assert_eq!(pool.borrow().taken_frames(), 0);
    }
}

/// ARMv7's four tables in a frame: kept ones hold it, and a slot that was kept
/// once is empty when it is used again.
#[test]
fn kept_tables_share_frames() {
    let (memory, pool) = machine();
    let mut space = space(Format::ArmV7, Sizes::all(Format::ArmV7), &memory, &pool);
    let data = |page: u64, count| (Vpn::new(page), Extent::new(Pfn::new(page), count));
    for section in 0..3 {
        let (page, extent) = data(section * 256, 256);
        space.map(page, extent, READ).unwrap();
        join_all(&mut space, section * 256, Order::known(8));
        promote(&mut space, section * 256, 8).unwrap();
    }
    assert_eq!(space.table_frames(), 9);
    // A new table of a fellow finds the frame of the kept ones.
    let (page, extent) = data(0x300, 1);
    space.map(page, extent, READ).unwrap();
    assert_eq!(space.table_frames(), 9);
    let _ = space.unmap(PageRange::new(Vpn::new(0x100), 256)).unwrap();
    space.check().unwrap();
    let (page, extent) = data(0x180, 1);
    space.map(page, extent, READ).unwrap();
    assert_eq!(space.table_frames(), 9);
    assert!(spec::look(&memory, space.regime(), 0x181).is_none(), "an old entry is back");
    space.check().unwrap();
    for (page, count) in [(0x180, 1), (0x300, 1), (0, 256), (0x200, 256)] {
        let _ = space.unmap(PageRange::new(Vpn::new(page), count)).unwrap();
        space.check().unwrap();
    }
    assert_eq!(space.table_frames(), 8);
}

/// 16 MiB, 32 MiB and 1 GiB, made of 2 MiB or 1 MiB, back to base pages one size
/// at a time.
/// Superpages that are removed together empty the table above them, which goes with the first: what is
/// kept beside the others goes too.
#[test]
fn what_is_kept_goes_before_the_table_above() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let order = fold_order(format);
        let sizes = Sizes::NONE.with(order);
        let mut space = space(format, sizes, &memory, &pool);
        let tables = space.table_frames();
        let pages = PageRange::new(Vpn::new(0x4_0000), 3 * order.frames());
        space.map(pages.start, Extent::new(Pfn::new(0x8_0000), pages.count), WRITE).unwrap();
        for page in pages.iter().step_by(order.frames() as usize) {
            promote(&mut space, page.raw(), order.k() as u8).unwrap();
        }
        assert!(space.unmap(pages).unwrap().links_changed || format == Format::ArmV7);
        space.check().unwrap();
        assert_eq!(space.table_frames(), tables, "{format:?}");
        drop(space);
        assert_eq!(pool.borrow().taken_frames(), 0, "{format:?}");
    }
}

#[test]
fn the_largest_sizes() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let top = space.sizes().unwrap().iter().last().unwrap();
        let first = 1 << 18;
        // The first from base pages, the others created.
        space.map(Vpn::new(first), Extent::new(Pfn::new(first), order.frames()), READ).unwrap();
        join_all(&mut space, first, order);
        promote(&mut space, first, order.k() as u8).unwrap();
        for page in (first..first + top.frames()).step_by(order.frames() as usize).skip(1) {
            space.map_page_size(Vpn::new(page), Pfn::new(page), order, READ).unwrap();
        }
        if format == Format::ArmV8 {
            assert!(matches!(refusal(promote(&mut space, first, 18)), Refusal::Smaller { .. }));
            for page in (first..first + top.frames()).step_by(1 << 13) {
                promote(&mut space, page, 13).unwrap();
            }
        }
        promote(&mut space, first + 999, top.k() as u8).unwrap();
        space.check().unwrap();
        let tables = space.table_frames();
        let seen = spec::look(&memory, space.regime(), first + 0xabc).unwrap();
        assert_eq!((seen.frame, seen.order), (first + 0xabc, top.k()));
        let mut orders = vec![];
        while let Ok(demoted) = space.demote(Vpn::new(first + 3), &mut |_| ()) {
            orders.push(demoted.to.k());
            space.check().unwrap();
        }
        let expected: &[u32] = match format {
            Format::ArmV7 => &[8, 4, 0],
            Format::ArmV8 => &[13, 9, 4, 0],
            Format::X86_64 => &[9, 0],
            Format::Sv39 | Format::Sv48 => &[9, 4, 0],
        };
        assert_eq!((&orders[..], space.table_frames()), (expected, tables));
        for page in [first, first + 16, first + 0xabc % top.frames()] {
            let seen = spec::look(&memory, space.regime(), page).unwrap();
            assert_eq!((seen.frame, seen.attributes), (page, READ));
        }
        // Promoted again, all that is kept hangs on it, and goes with it.
        for order in space.sizes().unwrap().iter() {
            promote(&mut space, first, order.k() as u8).unwrap();
        }
        space.check().unwrap();
        let _ = space.unmap(PageRange::new(Vpn::new(first), top.frames())).unwrap();
        space.check().unwrap();
        // With a half of their own, where the root has superpages.
        let root = match format {
            Format::ArmV7 => 8,
            Format::Sv39 => 2,
            Format::ArmV8 | Format::X86_64 | Format::Sv48 => 1,
        };
        assert_eq!(pool.borrow().taken_frames(), root, "{format:?}");
    }
}

/// On ARM and RISC-V nothing of the range is valid when the TLBs are asked to forget it; on
/// x86-64 the new size stands there.
#[test]
fn break_before_make() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let regime = space.regime();
        let order = fold_order(format);
        let page = order.frames();
        space.map(Vpn::new(page), Extent::new(Pfn::new(page), page), READ).unwrap();
        join_all(&mut space, page, order);
        let flushes = Cell::new(0);
        let arm = format != Format::X86_64;
        let mut invalidate = |flush: Flush| {
            flushes.set(flushes.get() + 1);
            for page in flush.range.iter() {
                let seen = spec::look(&memory, regime, page.raw());
                assert_eq!(seen.is_none(), arm, "{format:?}");
            }
        };
        let folded = space.promote(Vpn::new(page), order, &mut invalidate).unwrap();
        assert_eq!((folded.page, folded.frame), (Vpn::new(page), Pfn::new(page)));
        space.demote(Vpn::new(page), &mut invalidate).unwrap();
        if arm {
            space.demote(Vpn::new(page + 16), &mut invalidate).unwrap();
            space.promote(Vpn::new(page + 16), Order::known(4), &mut invalidate).unwrap();
            assert_eq!(flushes.get(), 4);
        }
    }
}

/// A filling mapping fails after the occupancy, or after two entries.
#[test]
fn failure_is_quick() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let sizes = Sizes::all(format).without(Order::known(4));
        let mut space = space(format, sizes, &memory, &pool);
        let order = fold_order(format);
        let page = order.frames();
        let ways = format.levels().len() as u64 - 1;
        for i in 0..page {
            let at = Vpn::new(page + i);
            space.map(at, Extent::new(Pfn::new(page + i), 1), READ).unwrap();
            let result = space.promote(at, order, &mut |_| ());
            if i + 1 < page {
                let why = Refusal::NotFull { entries: i + 1 };
                assert_eq!(result, Err(PromoteError::Refused { why, words_read: ways + 1 }));
            } else {
                assert_eq!(result.unwrap().words_read, ways + 1 + page);
            }
        }
        // The first write demotes; until the last page is dirty, two entries are
        // enough to see that one is clean.
        space.demote(Vpn::new(page), &mut |_| ()).unwrap();
        for i in 0..page {
            let one = PageRange::new(Vpn::new(page + i), 1);
            space.protect(one, |_| WRITE, &mut |_| ()).unwrap();
            let result = space.promote(one.start, order, &mut |_| ());
            if i + 1 < page {
                let why = Refusal::Different { page: Vpn::new(2 * page - 1) };
                assert_eq!(result, Err(PromoteError::Refused { why, words_read: ways + 3 }));
            } else {
                assert_eq!(result.unwrap().attributes, WRITE);
            }
        }
    }
}

/// Every one of the 8 pages that complete a 64 KiB page, in every order, and
/// every one of the last 8 of a section that has no other size in between: the
/// last makes the superpage, whichever it is. Then every subset of 8 pages
/// differs in turn, in each attribute.
#[test]
fn small_cases_whole() {
    fn orders(rest: &mut Vec<u64>, done: &mut Vec<u64>, visit: &mut dyn FnMut(&[u64])) {
        if rest.is_empty() {
            return visit(done);
        }
        for i in 0..rest.len() {
            done.push(rest.remove(i));
            orders(rest, done, visit);
            rest.insert(i, done.pop().unwrap());
        }
    }
    for (format, joined) in [
        (Format::ArmV7, true),
        (Format::ArmV7, false),
        (Format::ArmV8, true),
        (Format::ArmV8, false),
        (Format::X86_64, false),
        (Format::Sv39, true),
    ] {
        let (memory, pool) = machine();
        let all = Sizes::all(format);
        let sizes = if joined { all } else { all.without(Order::known(4)) };
        let mut space = space(format, sizes, &memory, &pool);
        let order = if joined { Order::known(4) } else { fold_order(format) };
        let page = 2 * order.frames();
        let base = PageRange::new(Vpn::new(page), order.frames());
        // The 8 are spread over the page, the first and the last among them.
        let eight: Vec<u64> = (0..8).map(|i| i * (order.frames() - 1) / 7).collect();
        for offset in (0..order.frames()).filter(|offset| !eight.contains(offset)) {
            let at = page + offset;
            space.map(Vpn::new(at), Extent::new(Pfn::new(at), 1), READ).unwrap();
        }
        let mut count = 0;
        orders(&mut eight.clone(), &mut vec![], &mut |order_of| {
            count += 1;
            for (i, offset) in order_of.iter().enumerate() {
                let at = page + offset;
                space.map(Vpn::new(at), Extent::new(Pfn::new(at), 1), READ).unwrap();
                let made = promote(&mut space, at, order.k() as u8);
                assert_eq!(made.is_ok(), i == 7, "{format:?} {order_of:?}: {made:?}");
            }
            let seen = spec::look(&memory, space.regime(), page + 5).unwrap();
            assert_eq!((seen.order, seen.frame), (order.k(), page + 5));
            space.demote(base.start, &mut |_| ()).unwrap();
            for offset in order_of {
                let _ = space.unmap(PageRange::new(Vpn::new(page + offset), 1)).unwrap();
            }
        });
        assert_eq!(count, 40_320);
        space.check().unwrap();
        for offset in &eight {
            let at = page + offset;
            space.map(Vpn::new(at), Extent::new(Pfn::new(at), 1), READ).unwrap();
        }
        let changes: [fn(Attributes) -> Attributes; 6] = [
            |a| Attributes { writable: !a.writable, ..a },
            |a| Attributes { user: !a.user, ..a },
            |a| Attributes { executable: !a.executable, ..a },
            |a| Attributes { global: !a.global, ..a },
            |a| Attributes { accessed: !a.accessed, ..a },
            |a| Attributes { memory: MemoryKind::Device, ..a },
        ];
        for change in changes {
            for subset in 0..256_u32 {
                let pages = |i: &usize| subset >> i & 1 == 1;
                for i in (0..8).filter(pages) {
                    let one = PageRange::new(Vpn::new(page + eight[i]), 1);
                    space.protect(one, change, &mut |_| ()).unwrap();
                }
                let made = promote(&mut space, page, order.k() as u8);
                assert_eq!(made.is_ok(), subset == 0, "{format:?} {subset:#x}");
                if made.is_ok() {
                    space.demote(base.start, &mut |_| ()).unwrap();
                }
                space.protect(base, |_| READ, &mut |_| ()).unwrap();
            }
        }
        space.check().unwrap();
    }
}

/// What a write costs and brings, with the sizes of each format.
#[test]
fn writes_make_clean_superpages_dirty_ones() {
    for (format, status) in
        Format::ALL.into_iter().flat_map(|f| [(f, Status::InTable), (f, Status::InReverseMap)])
    {
        let (memory, pool) = machine();
        let sizes = Sizes::all(format);
        let order = fold_order(format);
        let count = order.frames();
        let frames = Extent::new(Pfn::new(count), 2 * count);
        let needed = ReverseMap::words_needed(frames, sizes, status, 2000).unwrap();
        let reverse = ReverseMap::new(frames, sizes, status, vec![0; needed]).unwrap();
        let mut pmap = Pmap::new(reverse);
        let mut all = [space(format, sizes, &memory, &pool), space(format, sizes, &memory, &pool)];
        let spaces = &mut (&mut all[..], |_, _| ());
        let site = |space, page| Site { space: SpaceId(space), page: Vpn::new(page) };
        let full = Some(order);
        for id in 0..2 {
            for i in 0..count {
                let entered = pmap.enter(
                    spaces,
                    site(id, i),
                    Pfn::new(count + i),
                    WRITE,
                    PageAccess::Read,
                    full,
                );
                assert_eq!(entered.unwrap() == order, i + 1 == count);
            }
        }
        assert_eq!(pmap.reverse().used_entries(), 2);
        let mut mappings = vec![];
        pmap.reverse()
            .for_each(Pfn::new(count + 7), &mut |order, site| mappings.push((order, site)));
        mappings.sort_by_key(|mapping| mapping.1.space);
        assert_eq!(mappings, [(order, site(0, 0)), (order, site(1, 0))]);
        // One page is written: it alone is dirty, in one space alone.
        let faulted = pmap.write_fault(spaces, site(0, 33), full).unwrap();
        assert_eq!(faulted, Faulted::Mapped { order: Order::BASE });
        assert_eq!(pmap.modified(spaces, Pfn::new(count + 33)), Ok(true));
        assert_eq!(pmap.modified(spaces, Pfn::new(count + 34)), Ok(false));
        assert_eq!(spaces.0[1].translate(Vpn::new(33)).unwrap().order, order);
        for i in 0..count {
            pmap.write_fault(spaces, site(0, i), full).unwrap();
        }
        let mapping = spaces.0[0].translate(Vpn::new(0)).unwrap();
        assert_eq!((mapping.order, mapping.attributes), (order, WRITE));
        assert_eq!(spaces.0[1].translate(Vpn::new(0)).unwrap().attributes, READ);
        assert_eq!(
            pmap.statistics().demotions_write,
            if sizes.contains(Order::known(4)) { 1 + count / 16 } else { 1 }
        );
        // One page goes to disc from both.
        assert_eq!(pmap.page_out(spaces, Pfn::new(count + 3)), Ok(2));
        assert_eq!(pmap.modified(spaces, Pfn::new(count + 3)), Ok(true));
        assert_eq!(pmap.clean(spaces, Pfn::new(count + 3)), Ok(true));
        assert_eq!(pmap.modified(spaces, Pfn::new(count + 3)), Ok(false));
        pmap.check(spaces, (0..2).map(SpaceId)).unwrap();
        let none = KeptPermissions { writable: false, executable: false };
        let range = PageRange::new(Vpn::new(0), count);
        pmap.protect(spaces, SpaceId(0), range, none).unwrap();
        assert_eq!(pmap.modified(spaces, Pfn::new(count + 9)), Ok(true));
        assert_eq!(pmap.clean(spaces, Pfn::new(count + 9)), Ok(true));
        pmap.check(spaces, (0..2).map(SpaceId)).unwrap();
        let words = pmap.statistics().failed_reverse_words;
        assert_eq!(words > 0, status == Status::InReverseMap, "{words}");
    }
}

/// Bytes of a reverse map for each frame that is mapped once, times 16, as its documentation says:
/// pages that follow their frames, though not aligned as they are, and pages that follow nothing.
#[test]
fn reverse_map_memory() {
    for (status, dense, scattered) in [(Status::InTable, 24, 264), (Status::InReverseMap, 32, 392)]
    {
        for (step, bytes) in [(1, dense), (2, scattered)] {
            let (memory, pool) = machine();
            let frames = Extent::new(Pfn::new(0x400), 512);
            let words = ReverseMap::words_needed(frames, Sizes::NONE, status, 512).unwrap();
            let reverse = ReverseMap::new(frames, Sizes::NONE, status, vec![0; words]).unwrap();
            let mut pmap = Pmap::new(reverse);
            let mut all = [space(Format::ArmV7, Sizes::NONE, &memory, &pool)];
            let spaces = &mut (&mut all[..], |_, _| ());
            for (i, frame) in (0..).zip(frames.iter()) {
                let site = Site { space: SpaceId(0), page: Vpn::new(0x803 + step * i) };
                pmap.enter(spaces, site, frame, WRITE, PageAccess::Read, None).unwrap();
            }
            pmap.check(spaces, [SpaceId(0)].into_iter()).unwrap();
            let used = pmap.reverse().used_entries();
            let words = ReverseMap::words_needed(frames, Sizes::NONE, status, used).unwrap();
            assert_eq!(16 * 8 * words, bytes * 512, "{status:?}, pages {step} apart");
        }
    }
}

/// What is asked wrongly, each with the error that names it.
#[test]
fn hostile_input() {
    let (memory, pool) = machine();
    for format in Format::ALL {
        let odd = Order::known(7);
        let refused = AddressSpace::with_superpages(
            format,
            Sizes::all(format).with(odd),
            &memory,
            &pool,
            &pool,
        );
        assert_eq!(refused.map(drop), Err(NewSpaceError::NoSuchSize { order: odd }));
        assert_eq!(pool.borrow().taken_frames(), 0);
        let mut plain: Space<'_> =
            AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool).unwrap();
        assert_eq!(promote(&mut plain, 0, 9), Err(PromoteError::NotForSuperpages));
        let refused = plain.demote(Vpn::new(0), &mut |_| ());
        assert_eq!(refused, Err(DemoteError::NotForSuperpages));
        drop(plain);
        let mut space = space(format, Sizes::NONE, &memory, &pool);
        let order = fold_order(format);
        let refused = promote(&mut space, 0, order.k() as u8);
        assert_eq!(refused, Err(PromoteError::NoSuchSize { order }));
        let page = Vpn::new(1 << 52);
        let refused = space.demote(page, &mut |_| ());
        assert_eq!(refused, Err(DemoteError::NotCanonical { page }));
        let refused = space.protect(PageRange::new(page, 1), |a| a, &mut |_| ());
        assert_eq!(refused, Err(DemoteError::NotCanonical { page }));
        let page = Vpn::new(5);
        assert_eq!(space.demote(page, &mut |_| ()), Err(DemoteError::NotMapped { page }));
        space.map(page, Extent::new(Pfn::new(5), 1), READ).unwrap();
        assert_eq!(space.demote(page, &mut |_| ()), Err(DemoteError::BasePage { page }));
        let refused = space.split(PageRange::new(Vpn::new(3), u64::MAX), &mut |_| ());
        assert!(matches!(refused, Err(DemoteError::NotCanonical { .. })), "{refused:?}");
    }
    let frames = Extent::new(Pfn::new(3), 5);
    let sizes = Sizes::NONE.with(Order::known(4));
    let status = Status::InTable;
    assert_eq!(ReverseMap::words_needed(frames, sizes, status, 2), Some(5));
    assert_eq!(ReverseMap::words_needed(frames, sizes, Status::InReverseMap, 2), Some(7));
    let refused = ReverseMap::new(frames, sizes, status, vec![0; 0]);
    assert_eq!(refused.map(drop), Err(ReverseError::Short { needed: 1, given: 0 }));
    let frames = Extent::new(Pfn::new(u64::MAX), 5);
    let refused = ReverseMap::new(frames, sizes, status, vec![0; 5]);
    assert_eq!(refused.map(drop), Err(ReverseError::TooMany { frames }));
}

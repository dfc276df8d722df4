//! Superpages whose parts differ, whose kept tables are wrong, or whose frames no smaller page reaches; and how often
//! memory is read.

use swath_arch::{Extent, Format, Order, PageRange, Pfn, PhysAddr, PhysMemory, Vpn};
use swath_vm::{
    DemoteError, PageAccess, Pmap, PmapError, PromoteError, Refusal, ReverseMap, Site, Sizes,
    SpaceId, Status,
};

use crate::machine::{Memory, Pool};
use crate::superpages::{
    READ, WRITE, fold_order, join_all, machine, promote, refusal, space, upper,
};

/// Of pages that were joined but for some, those are smaller; and different, if they say anything else.
#[test]
fn a_part_that_is_smaller_is_told_from_another() {
    for format in [Format::ArmV7, Format::ArmV8, Format::Sv39] {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let (page, k) = (3 * order.frames(), order.k() as u8);
        let extent = Extent::new(Pfn::new(5 * order.frames()), order.frames());
        space.map(Vpn::new(page), extent, READ).unwrap();
        join_all(&mut space, page, order);
        for group in [16, 48, order.frames() - 32, order.frames() - 16] {
            space.demote(Vpn::new(page + group), &mut |_| ()).unwrap();
            // The last of them is looked at first.
            let last = Vpn::new(page + group + 15);
            assert_eq!(refusal(promote(&mut space, page, k)), Refusal::Smaller { page: last });
            let one = PageRange::new(last, 1);
            space.protect(one, |_| WRITE, &mut |_| ()).unwrap();
            assert_eq!(refusal(promote(&mut space, page, k)), Refusal::Different { page: last });
            space.protect(one, |_| READ, &mut |_| ()).unwrap();
            promote(&mut space, page + group, 4).unwrap();
        }
        promote(&mut space, page, k).unwrap();
    }
}

/// Changes the i-th entry of a table to what it was with another frame.
fn overwrite(memory: &Memory, format: Format, table: u64, i: u64) {
    let at = PhysAddr::new(table + i * format.entry_bytes());
    let bit = 1 << 16;
    match format {
        Format::ArmV7 => memory.write_u32(at, memory.read_u32(at).unwrap() ^ bit as u32).unwrap(),
        _ => memory.write_u64(at, memory.read_u64(at).unwrap() ^ bit).unwrap(),
    }
}

/// A kept table says what the superpage says, or is stale by its first entry.
#[test]
fn an_entry_that_is_wrong_in_a_kept_table_is_found() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let (page, k) = (3 * order.frames(), order.k() as u8);
        let extent = Extent::new(Pfn::new(5 * order.frames()), order.frames());
        space.map(Vpn::new(page), extent, READ).unwrap();
        join_all(&mut space, page, order);
        promote(&mut space, page, k).unwrap();
        let (_, _, kept) = upper(&memory, &space, page);
        for i in [1, 2, 77, order.frames() - 1] {
            overwrite(&memory, format, kept, i);
            assert!(space.check().is_err(), "{format:?}, entry {i}");
            // Stale, it says nothing.
            overwrite(&memory, format, kept, 0);
            space.check().unwrap();
            overwrite(&memory, format, kept, 0);
            overwrite(&memory, format, kept, i);
            space.check().unwrap();
        }
        // Without a table there is nothing to be wrong.
        let direct = page + 2 * order.frames();
        space.map_page_size(Vpn::new(direct), Pfn::new(0), order, READ).unwrap();
        space.check().unwrap();
    }
}

/// Each of the sections that a supersection is made of keeps its own table.
#[test]
fn a_wrong_entry_is_found_in_the_table_of_each_piece() {
    let format = Format::ArmV7;
    let (memory, pool) = machine();
    let mut space = space(format, Sizes::all(format), &memory, &pool);
    let pages = PageRange::new(Vpn::new(0x4000), 0x1000);
    space.map(pages.start, Extent::new(Pfn::new(0x8000), pages.count), READ).unwrap();
    let mut kept = Vec::new();
    for section in pages.iter().step_by(256) {
        join_all(&mut space, section.raw(), Order::known(8));
        promote(&mut space, section.raw(), 8).unwrap();
        kept.push(upper(&memory, &space, section.raw()).2);
    }
    promote(&mut space, pages.start.raw(), 12).unwrap();
    space.check().unwrap();
    for table in kept {
        overwrite(&memory, format, table, 255);
        assert!(space.check().is_err(), "{table:#x}");
        overwrite(&memory, format, table, 255);
        space.check().unwrap();
    }
}

/// A supersection's frames may lie where no section's can.
#[test]
fn a_supersection_beyond_32_bits_is_not_demoted() {
    for (frame, reaches) in [((1 << 20) - 4096, true), (1 << 20, false), (1 << 27, false)] {
        let (memory, pool) = machine();
        let mut space = space(Format::ArmV7, Sizes::all(Format::ArmV7), &memory, &pool);
        let (page, frame, order) = (Vpn::new(0x4000), Pfn::new(frame), Order::known(12));
        space.map_page_size(page, frame, order, READ).unwrap();
        let demoted = space.demote(page + 300, &mut |_| ());
        if reaches {
            assert_eq!(demoted.unwrap().to, Order::known(8));
        } else {
            assert_eq!(demoted, Err(DemoteError::FrameOutOfReach { frame }));
            assert_eq!(space.translate(page).unwrap().order, order);
        }
        space.check().unwrap();
    }
}

/// Of ARMv7's short entries two at a time.
#[test]
fn entries_are_read_eight_bytes_at_a_time() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let sizes = Sizes::all(format).without(Order::known(4));
        let mut space = space(format, sizes, &memory, &pool);
        let order = fold_order(format);
        let page = order.frames();
        space.map(Vpn::new(page), Extent::new(Pfn::new(page), page), READ).unwrap();
        let reads = memory.reads.get();
        promote(&mut space, page, order.k() as u8).unwrap();
        let reads = memory.reads.get() - reads;
        let ways = format.levels().len() as u64 - 1;
        // The first alone and, where two are read at a time, the second.
        let entries = if format == Format::ArmV7 { 2 + (page - 2) / 2 } else { page };
        assert_eq!(reads, ways + 1 + entries, "{format:?}");
    }
}

/// A superpage that was demoted without its reverse map is none: what is asked of its frames is refused.
#[test]
fn a_demotion_without_the_reverse_map_is_noticed() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let sizes = Sizes::all(format).without(Order::known(4));
        let order = fold_order(format);
        let count = order.frames();
        let frames = Extent::new(Pfn::new(count), count);
        let status = Status::InTable;
        let words = ReverseMap::words_needed(frames, sizes, status, 1000).unwrap();
        let mut pmap = Pmap::new(ReverseMap::new(frames, sizes, status, vec![0; words]).unwrap());
        let mut all = [space(format, sizes, &memory, &pool)];
        let spaces = &mut (&mut all[..], |_, _| ());
        let site = |page| Site { space: SpaceId(0), page: Vpn::new(page) };
        for i in 0..count {
            let frame = Pfn::new(count + i);
            pmap.enter(spaces, site(i), frame, READ, PageAccess::Read, Some(order)).unwrap();
        }
        spaces.0[0].demote(Vpn::new(0), &mut |_| ()).unwrap();
        let page = Vpn::new(7);
        let refused = Err(PmapError::NotMapped { page });
        assert_eq!(pmap.page_out(spaces, Pfn::new(count + 7)), refused, "{format:?}");
        assert_eq!(spaces.0[0].translate(page).unwrap().order, Order::BASE);
    }
}

/// Every write of a demotion without a kept table and of the promotion after it fails in turn, and a table out of
/// reach is given instead of a good one: the superpage, or its parts, stay as they are.
#[test]
fn what_a_demotion_lacks_is_said_and_nothing_changes() {
    for format in Format::ALL {
        let (memory, pool) = machine();
        let mut space = space(format, Sizes::all(format), &memory, &pool);
        let order = fold_order(format);
        let (page, frame) = (Vpn::new(3 * order.frames()), Pfn::new(5 * order.frames()));
        space.map_page_size(page, frame, order, READ).unwrap();
        let beyond = 1 << (format.pa_bits() - 12);
        let good = pool.replace(Pool::new(beyond, 64, 24, 1));
        let refused = space.demote(page, &mut |_| ());
        let is_beyond = |error| matches!(error, DemoteError::TableOutOfReach { frame } if frame.raw() >= beyond);
        assert!(refused.is_err_and(is_beyond), "{format:?}: {refused:?}");
        assert_eq!(pool.replace(good).taken_frames(), 0);
        let taken = pool.borrow().taken_frames();
        let mut fails = [0; 2];
        loop {
            memory.fail_in.set(fails[0] + 1);
            let Err(error) = space.demote(page, &mut |_| ()) else { break };
            assert!(matches!(error, DemoteError::Bus(_)), "{format:?}: {error:?}");
            fails[0] += 1;
            let found = space.translate(page + 7).unwrap();
            assert_eq!((found.order, found.attributes), (order, READ));
            assert_eq!(pool.borrow().taken_frames(), taken);
            space.check().unwrap();
        }
        memory.fail_in.set(0);
        let part = space.translate(page).unwrap().order;
        loop {
            memory.fail_in.set(fails[1] + 1);
            let Err(error) = space.promote(page, order, &mut |_| ()) else { break };
            assert!(matches!(error, PromoteError::Bus(_)), "{format:?}: {error:?}");
            fails[1] += 1;
            let found = space.translate(page + 7).unwrap();
            assert_eq!((found.order, found.frame), (part, frame + 7));
            space.check().unwrap();
        }
        memory.fail_in.set(0);
        space.check().unwrap();
        assert!(fails[0] > order.frames() && fails[1] > 1, "{format:?}: {fails:?}");
    }
}

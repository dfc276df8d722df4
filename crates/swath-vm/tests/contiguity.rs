//! Contiguity against its definition, at the real widths of each format and
//! for blocks far longer than they can say; what a reader may do with it; and
//! what the operations cost in reads and writes.

use std::cell::RefCell;

use crate::machine::{Memory, Pool, Space, coalescings, spec};
use proptest::prelude::*;
use swath_arch::testing::Random;
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, Order, PageRange, Pfn, PhysAddr,
    PhysMemory, Vpn,
};
use swath_frame::FrameAllocator;
use swath_vm::{AddressSpace, SpaceFault};

const DATA: Attributes = Attributes::USER_DATA;
const POOL: u64 = 0x100;
const FRAMES: u64 = 512;

fn machine() -> (Memory, RefCell<Pool>) {
    (Memory::new(0, POOL + FRAMES), RefCell::new(Pool::new(POOL, FRAMES, 40, 5)))
}

/// Whatever a page claims is true: every page of its window is mapped, to the
/// frame that follows from the page's own.
fn claims_hold(memory: &Memory, space: &Space<'_>, pages: PageRange) {
    let regime = space.regime();
    let anchors = matches!(regime.coalescing, Coalescing::Anchor { .. });
    for page in pages.iter().map(Vpn::raw) {
        let Some(seen) = spec::look(memory, regime, page) else { continue };
        let last = (page + seen.ascend).saturating_sub(u64::from(anchors && seen.ascend > 0));
        // Both ends and the neighbours: the pages between claim for themselves.
        for other in [page - seen.descend, page.saturating_sub(1).max(page - seen.descend), last] {
            let there = spec::look(memory, regime, other)
                .unwrap_or_else(|| panic!("{page:#x} claims {other:#x}: {seen:?}"));
            assert_eq!(there.frame.wrapping_sub(other), seen.frame.wrapping_sub(page));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Blocks of any length and alignment side by side, with any part cut out:
    /// what remains says exactly what Table 1 says of the blocks it makes.
    #[test]
    fn random_blocks(
        format in prop::sample::select(Format::ALL.to_vec()),
        kind in 0..13_usize,
        start in 0..2000_u64,
        frame in 0..10_000_u64,
        lengths in prop::collection::vec(1..700_u64, 1..5),
        cut in (0.0..1.0_f64, 0.0..1.0_f64),
    ) {
        let coalescing = coalescings(format)[kind];
        let (memory, pool) = machine();
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
        // Blocks that are contiguous in frames too: their border must hold.
        let mut blocks = vec![];
        let mut page = start;
        for &count in &lengths {
            let extent = Extent::new(Pfn::new(frame + page), count);
            space.map(Vpn::new(page), extent, DATA).unwrap();
            blocks.push((page, page + count));
            page += count;
        }
        let total = (page - start) as f64;
        let from = start + (cut.0 * total) as u64;
        let count = 1 + (cut.1 * (page - from - 1) as f64) as u64;
        let flush = space.unmap(PageRange::new(Vpn::new(from), count)).unwrap();
        prop_assert_eq!(flush.range.count, count);
        space.check().unwrap();
        let to = from + count;
        let left = blocks.iter().map(|&(first, end)| (first, end.min(from)));
        let right = blocks.iter().map(|&(first, end)| (first.max(to), end));
        for (first, end) in left.chain(right) {
            for page in first..end {
                let seen = spec::look(&memory, space.regime(), page).unwrap();
                // The pages of a line go on from one another whatever their blocks are.
                let block = |page: u64| {
                    let inside = |block: &&(u64, u64)| (block.0..block.1).contains(&page);
                    let &(first, end) = blocks.iter().find(inside).unwrap();
                    if page < from { (first, end.min(from)) } else { (first.max(to), end) }
                };
                let entries = if format == Format::ArmV7 { 16 } else { 8 };
                let line = page / entries * entries;
                let side = if page < from { (start, from) } else { (to, start + total as u64) };
                let last = (line + entries).min(side.1) - 1;
                // A number of RISC-V's has a bit in each of the eight descriptors.
                let most = match format {
                    Format::Sv39 | Format::Sv48 => 255,
                    _ => u64::MAX,
                };
                let after = |last| (block(last).1 - 1 - last).min(most);
                let before = |line| (line - block(line).0).min(most);
                let in_line = (
                    last - page + if last == line + entries - 1 { after(last) } else { 0 },
                    if line >= side.0 { page - line + before(line) } else { page - side.0 },
                );
                let expected = match coalescing {
                    Coalescing::Pcad(ContiguityField::Line) => in_line,
                    Coalescing::Anchor { field: ContiguityField::Line, distance } => {
                        let anchor = page.is_multiple_of(distance.frames());
                        (if anchor { in_line.0 + 1 } else { 0 }, 0)
                    }
                    Coalescing::None => (0, 0),
                    Coalescing::Pcad(field) => {
                        let max = widest(field, format.ascend().width());
                        ((end - 1 - page).min(max), (page - first).min(max))
                    }
                    Coalescing::Anchor { field, distance } => {
                        let max = widest(field, format.anchor().width());
                        let anchor = page.is_multiple_of(distance.frames());
                        (if anchor { (end - page).min(max) } else { 0 }, 0)
                    }
                };
                prop_assert_eq!((seen.ascend, seen.descend), expected, "page {:#x}", page);
            }
        }
        claims_hold(&memory, &space, PageRange::new(Vpn::new(start), page - start));
    }
}

fn widest(field: ContiguityField, real_bits: u32) -> u64 {
    match field {
        ContiguityField::Descriptor | ContiguityField::Line => (1 << real_bits) - 1,
        ContiguityField::Beside { bits } => (1 << bits) - 1,
    }
}

/// A block of 40000 pages saturates every real field, and a cut within it
/// touches no more descriptors than the field can count.
#[test]
fn saturation_at_real_widths() {
    for (format, pcad, anchor) in [
        (Format::ArmV7, 1, 3),
        (Format::ArmV8, 15, 511),
        (Format::X86_64, 127, 16383),
        (Format::Sv39, 1, 7),
        (Format::Sv48, 1, 7),
    ] {
        let block = Extent::new(Pfn::new(77), 40_000);
        let (start, end) = (1000, 41_000);
        let cut = PageRange::new(Vpn::new(20_011), 10);
        let at = |memory: &Memory, space: &Space<'_>, page| {
            let seen = spec::look(memory, space.regime(), page).unwrap();
            (seen.ascend, seen.descend)
        };
        let (memory, pool) = machine();
        let field = ContiguityField::Descriptor;
        let mut space: Space<'_> =
            AddressSpace::new(format, Coalescing::Pcad(field), &memory, &pool, &pool).unwrap();
        space.map(Vpn::new(start), block, DATA).unwrap();
        assert_eq!(at(&memory, &space, start), (pcad, 0));
        assert_eq!(at(&memory, &space, end - 1), (0, pcad));
        assert_eq!(at(&memory, &space, 20_000), (pcad, pcad));
        let writes = space.statistics().descriptor_writes;
        let _ = space.unmap(cut).unwrap();
        let corrected = space.statistics().descriptor_writes - writes - cut.count;
        assert_eq!(corrected, 2 * pcad);
        assert_eq!(at(&memory, &space, 20_010), (0, pcad));
        assert_eq!(at(&memory, &space, 20_021), (pcad, 0));
        claims_hold(&memory, &space, PageRange::new(Vpn::new(19_500), 1000));
        space.check().unwrap();

        let distance = Order::known(6);
        let coalescing = Coalescing::Anchor { field, distance };
        let (memory, pool) = machine();
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
        space.map(Vpn::new(start), block, DATA).unwrap();
        assert_eq!(at(&memory, &space, 1024), (anchor.min(end - 1024), 0));
        assert_eq!(at(&memory, &space, 1025), (0, 0));
        assert_eq!(at(&memory, &space, 40_960), (anchor.min(40), 0));
        let writes = space.statistics().descriptor_writes;
        let _ = space.unmap(cut).unwrap();
        let corrected = space.statistics().descriptor_writes - writes - cut.count;
        // Anchors at 19968 (43 pages before the cut), 19904 (107) and so on.
        let reaching = (0..).take_while(|i| 43 + 64 * i < anchor).count() as u64;
        assert_eq!(corrected, reaching, "{format:?}");
        space.check().unwrap();
    }
}

/// One write per page, one walk per leaf table whatever the number of blocks,
/// no read of an entry in a table that was just made. Where contiguity is spread over
/// lines, each block's first and last line is read, and in part written, besides.
#[test]
fn mapping_costs() {
    for format in Format::ALL {
        for coalescing in coalescings(format) {
            for block_max in [1, 7, 512] {
                let pages = 2000;
                let memory = Memory::new(0, POOL + 4096);
                let data = RefCell::new(Pool::new(POOL + 64, 4000, block_max, 5));
                let tables = RefCell::new(Pool::new(POOL, 64, 1, 5));
                let mut space: Space<'_> =
                    AddressSpace::new(format, coalescing, &memory, &data, &tables).unwrap();
                let entries = format.levels().last().unwrap().index.max() + 1;
                let leaf_tables = (pages + 100_u64).div_ceil(entries);
                memory.reads.set(0);
                let range = PageRange::new(Vpn::new(100), pages);
                let mut blocks = 0;
                space.allocate_eager(range, DATA, &mut |_| blocks += 1).unwrap();
                let statistics = space.statistics();
                assert_eq!(statistics.blocks_mapped, blocks);
                assert!(blocks >= pages / block_max);
                assert_eq!(statistics.walks, leaf_tables);
                // Links: to the leaf tables, and to one table of each level
                // between.
                let links = leaf_tables + format.levels().len() as u64 - 2;
                let entries_beside = match coalescing {
                    Coalescing::Pcad(ContiguityField::Line)
                    | Coalescing::Anchor { field: ContiguityField::Line, .. } => {
                        64 / format.entry_bytes()
                    }
                    _ => 0,
                };
                let beside = 2 * blocks * entries_beside;
                let writes = statistics.descriptor_writes - pages - links;
                assert!(writes <= beside);
                // A walk reads an entry per level; ARMv7 looks at the three
                // fellows too.
                let per_walk = if format == Format::ArmV7 { 4 } else { 3 };
                assert!(memory.reads.get() <= per_walk * leaf_tables + beside);
                assert_eq!(data.borrow().taken_frames(), pages);
                assert_eq!(tables.borrow().taken_frames(), space.table_frames());

                // In tables that are there: a read and a write per page.
                let _ = space.unmap(PageRange::new(Vpn::new(200), 1000)).unwrap();
                let (before, walks) = (space.statistics().descriptor_writes, statistics.walks);
                memory.reads.set(0);
                let block = Extent::new(Pfn::new(9), 1000);
                space.map(Vpn::new(200), block, DATA).unwrap();
                let walks = space.statistics().walks - walks;
                assert_eq!(walks, 1199 / entries - 200 / entries + 1);
                let links = space.statistics().descriptor_writes - before - 1000;
                assert!(links <= 1000 / entries + 2 * entries_beside);
                assert!(memory.reads.get() <= 1000 + per_walk * walks + 2 * entries_beside);
            }
        }
    }
}

/// A number of a line costs a write for each descriptor of another block whose bits change.
#[test]
fn numbers_of_lines_are_counted() {
    for (format, others) in
        [(Format::ArmV7, 1), (Format::ArmV8, 1), (Format::X86_64, 1), (Format::Sv39, 1)]
    {
        let pages = 64 / format.entry_bytes();
        let (memory, pool) = machine();
        let coalescing = Coalescing::Pcad(ContiguityField::Line);
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &pool, &pool).unwrap();
        let map = |space: &mut Space<'_>, page, frame, count| {
            let before = space.statistics().descriptor_writes;
            space.map(Vpn::new(page), Extent::new(Pfn::new(frame), count), DATA).unwrap();
            space.statistics().descriptor_writes - before
        };
        let links = format.levels().len() as u64 - 1;
        assert_eq!(map(&mut space, 0, 9, pages - 2), links + pages - 2);
        // Four pages follow the line: of its first block's descriptors one has the bits.
        assert_eq!(map(&mut space, pages - 2, 100, 6), 6 + others, "{format:?}");
        let seen = spec::look(&memory, space.regime(), pages - 2).unwrap();
        assert_eq!((seen.ascend, seen.descend), (5, 0));
    }
}

/// A table is given up with its last page, whatever the order, and looking for
/// it costs little: a table's pages unmapped one by one, ascending, descending
/// and shuffled.
#[test]
fn unmapping_costs() {
    for format in Format::ALL {
        let entries = format.levels().last().unwrap().index.max() + 1;
        for way in 0..3 {
            let (memory, pool) = machine();
            let mut space: Space<'_> =
                AddressSpace::new(format, Coalescing::None, &memory, &pool, &pool).unwrap();
            let root_only = space.table_frames();
            space.map(Vpn::new(0), Extent::new(Pfn::new(5), entries), DATA).unwrap();
            let mut pages: Vec<u64> = (0..entries).collect();
            let mut random = Random::new(7);
            match way {
                0 => {}
                1 => pages.reverse(),
                _ => (1..pages.len())
                    .rev()
                    .for_each(|i| pages.swap(i, random.below(i as u64 + 1) as usize)),
            }
            memory.reads.set(0);
            let (last, rest) = pages.split_last().unwrap();
            for &page in rest {
                let flush = space.unmap(PageRange::new(Vpn::new(page), 1)).unwrap();
                assert!(!flush.links_changed);
            }
            let per_page = memory.reads.get() / entries;
            // Four walks, three looks at the entry, and the neighbours.
            let limit = 4 * format.levels().len() as u64 + 2 + if way == 2 { 16 } else { 3 };
            assert!(per_page <= limit, "{format:?} way {way}: {per_page} reads per page");
            let flush = space.unmap(PageRange::new(Vpn::new(*last), 1)).unwrap();
            assert!(flush.links_changed);
            assert_eq!(space.table_frames(), root_only);
        }
    }
}

/// The second-level tables of four neighbouring MiB share a frame in ARMv7.
#[test]
fn armv7_tables_share_frames() {
    let (memory, pool) = machine();
    let mut space: Space<'_> =
        AddressSpace::new(Format::ArmV7, Coalescing::None, &memory, &pool, &pool).unwrap();
    let one = |n| Extent::new(Pfn::new(n), 1);
    for (mib, frames) in [(0, 5), (3, 5), (1, 5), (4, 6), (2, 6), (7, 6), (4095, 7)] {
        space.map(Vpn::new(mib << 8), one(mib), DATA).unwrap();
        assert_eq!(space.table_frames(), frames, "after MiB {mib}");
    }
    // A section among them keeps its entry.
    space.map_page_size(Vpn::new(5 << 8), Pfn::new(0x100), Order::known(8), DATA).unwrap();
    for (mib, frames) in [(3, 7), (0, 7), (1, 7), (2, 6), (4, 6), (7, 5), (4095, 4)] {
        let _ = space.unmap(PageRange::new(Vpn::new(mib << 8), 1)).unwrap();
        assert_eq!(space.table_frames(), frames, "after MiB {mib}");
        space.check().unwrap();
    }
    drop(space);
    assert_eq!(pool.borrow().free_frames(), FRAMES);
}

/// `check` finds what is wrong: a byte of a table changed behind the space.
#[test]
fn check_can_fail() {
    let find = |coalescing, page: u64, change: fn(u64) -> u64| {
        let (memory, pool) = machine();
        let mut space: Space<'_> =
            AddressSpace::new(Format::ArmV8, coalescing, &memory, &pool, &pool).unwrap();
        space.map(Vpn::new(16), Extent::new(Pfn::new(30), 8), DATA).unwrap();
        space.map_page_size(Vpn::new(32), Pfn::new(48), Order::known(4), DATA).unwrap();
        space.map(Vpn::new(1 << 27), Extent::new(Pfn::new(30), 1), DATA).unwrap();
        space.check().unwrap();
        // The way down, by hand; the root's second entry is of the far page.
        let read = |at| memory.read_u64(PhysAddr::new(at)).unwrap();
        let root = space.regime().root.raw();
        let mut at = root;
        for _ in 0..3 {
            at = read(at) & 0xffff_ffff_f000;
        }
        let at = if page == 1 << 27 { root + 8 } else { at + 8 * page };
        memory.write_u64(PhysAddr::new(at), change(read(at))).unwrap();
        space.check().unwrap_err()
    };
    let pcad = Coalescing::Pcad(ContiguityField::Descriptor);
    let distance = Order::known(2);
    let anchor = Coalescing::Anchor { field: ContiguityField::Descriptor, distance };
    let contiguity = |page| SpaceFault::Contiguity { page: Vpn::new(page) };
    // Ascend (58:55) and Descend (62:59) say one more than they may.
    assert_eq!(find(pcad, 20, |word| word + (1 << 55)), contiguity(20));
    assert_eq!(find(pcad, 20, |word| word + (1 << 59)), contiguity(20));
    assert_eq!(find(anchor, 20, |word| word + (1 << 55)), contiguity(20));
    // A page in the middle is gone, or elsewhere.
    assert_eq!(find(pcad, 20, |_| 0), contiguity(16));
    assert_eq!(find(anchor, 21, |word| word + 4096), contiguity(16));
    // One of 16 permits more than the others.
    let copies = SpaceFault::Copies { page: Vpn::new(35) };
    assert_eq!(find(pcad, 35, |word| word ^ 1 << 7), copies);
    // A link is lost, and with it three tables.
    let tables = SpaceFault::TableFrames { reached: 4, taken: 7 };
    assert_eq!(find(Coalescing::None, 1 << 27, |_| 0), tables);
}

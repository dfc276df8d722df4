//! Larger pages are reached by shorter walks, and one entry serves them whole: every size of
//! all formats, without and with a walk cache.

use swath_arch::{
    Coalescing, Format, Order, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr, Vpn,
};
use swath_hw::{Geometry, Mmu, TlbForm, Translate, WalkOrder, walk};
use swath_hw::{Hierarchy, HierarchyConfig};

/// Where the tables of each level stand; the root's at 0.
fn table(level: usize) -> u64 {
    0x8000 * level as u64
}

fn table_descriptor(format: Format, level: usize) -> u64 {
    let base = table(level + 1);
    match format {
        Format::ArmV7 => base | 1,
        Format::ArmV8 => base | 3,
        Format::X86_64 => base | 7,
        Format::Sv39 | Format::Sv48 => base >> 2 | 1,
    }
}

/// A leaf of `order` that unprivileged code may write; `joined` if 16 of them make the page.
fn leaf_descriptor(format: Format, order: Order, joined: bool, frame: u64) -> u64 {
    let base = frame << 12;
    match (format, order.k()) {
        (Format::ArmV7, 0) => base | 0x03e,
        (Format::ArmV7, 4) => base | 0x03d,
        (Format::ArmV7, 8) => base | 0xc0e,
        (Format::ArmV7, _) => base | 0x4_0c0e,
        // AF, AP[1], block or page.
        (Format::ArmV8, 0 | 4) => base | 0x443 | u64::from(joined) << 52,
        (Format::ArmV8, _) => base | 0x441 | u64::from(joined) << 52,
        (Format::X86_64, 0) => base | 0x27,
        (Format::X86_64, _) => base | 0xa7,
        // N, PPN[3:0] = 1000.
        (Format::Sv39 | Format::Sv48, 4) => base >> 2 | 0x8000_0000_0000_20d7,
        (Format::Sv39 | Format::Sv48, _) => base >> 2 | 0xd7,
    }
}

fn write(format: Format, memory: &SliceMemory<'_>, at: u64, word: u64) {
    if format.entry_bytes() == 4 {
        memory.write_u32(PhysAddr::new(at), word as u32).unwrap();
    } else {
        memory.write_u64(PhysAddr::new(at), word).unwrap();
    }
}

/// Maps two neighbouring pages of `order`, the first at `page`, on frames `frame` on.
fn map(
    format: Format,
    memory: &SliceMemory<'_>,
    level: usize,
    order: Order,
    page: u64,
    frame: u64,
) {
    let levels = format.levels();
    let index = |level: usize, page: u64| levels[level].index.get(page << 12);
    for above in 0..level {
        let at = table(above) + index(above, page) * format.entry_bytes();
        write(format, memory, at, table_descriptor(format, above));
    }
    let entry = Order::new(levels[level].index.low as u8 - 12).unwrap();
    let joined = order != entry;
    for which in 0..2 * order.frames() / entry.frames() {
        let here = page + which * entry.frames();
        // ARMv7's and RISC-V's descriptors of one page are replicas, ARMv8's go on.
        let offset = which * entry.frames();
        let whole = offset & !(order.frames() - 1);
        let frame = frame + if format == Format::ArmV8 { offset } else { whole };
        let at = table(level) + index(level, here) * format.entry_bytes();
        write(format, memory, at, leaf_descriptor(format, order, joined, frame));
    }
}

#[test]
fn every_size_has_its_walk() {
    let mut sizes = Vec::new();
    for format in Format::ALL {
        for (level, of_level) in format.levels().iter().enumerate() {
            for &order in of_level.leaves {
                sizes.push((format, level, order));
            }
        }
    }
    let bytes = |of: Format| {
        let of_format = sizes.iter().filter(|size| size.0 == of);
        of_format.map(|size| size.2.len_bytes() >> 10).collect::<Vec<u64>>()
    };
    // In KiB, by level from the root.
    assert_eq!(bytes(Format::ArmV7), [1 << 10, 16 << 10, 4, 64]);
    assert_eq!(bytes(Format::ArmV8), [1 << 20, 2 << 10, 32 << 10, 4, 64]);
    assert_eq!(bytes(Format::X86_64), [1 << 20, 2 << 10, 4]);
    assert_eq!(bytes(Format::Sv39), [1 << 20, 2 << 10, 4, 64]);
    assert_eq!(bytes(Format::Sv48), [1 << 20, 2 << 10, 4, 64]);

    for (format, level, order) in sizes {
        println!("{format:?}, level {level}, order {order}");
        let mut words = vec![0; 0x2_0000 / 8];
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        let (page, frame) = (4 * order.frames(), 2 * order.frames());
        map(format, &memory, level, order, page, frame);
        let regime = Regime { format, root: PhysAddr::new(0), coalescing: Coalescing::None };
        let reads = level as u64 + 1;
        let last = order.frames() - 1;

        // The walk: so many reads, and what it finds has the whole size.
        for inside in [0, last / 2, last] {
            let mut count = 0;
            let found = walk(&regime, Vpn::new(page + inside), &memory, &mut count).unwrap();
            assert_eq!((count, found.order), (reads, order));
            assert_eq!(found.frame.raw(), frame + inside);
        }

        // One miss serves the page; its neighbour needs a walk of its own.
        let geometry = Geometry::fully_associative(4);
        let mut mmu = Mmu::new(regime, geometry, WalkOrder::default()).unwrap();
        let addr = |page: u64| VirtAddr::new(page << 12 | 0x123);
        for inside in [last / 2, 0, last, last / 3] {
            let access = mmu.access(addr(page + inside), &memory).unwrap();
            assert_eq!(access.addr.raw(), (frame + inside) << 12 | 0x123);
        }
        assert_eq!((mmu.stats().walk.walks(), mmu.stats().walk.reads()), (1, reads));
        let neighbour = addr(page + order.frames() + last / 2);
        mmu.access(neighbour, &memory).unwrap();
        assert_eq!((mmu.stats().walk.walks(), mmu.stats().walk.reads()), (2, 2 * reads));

        // With a walk cache the neighbour's walk begins at the table of the leaf.
        for walk_cache_entries in [0, 8] {
            let config = HierarchyConfig {
                l1: TlbForm::from(Geometry::fully_associative(2)),
                l2: TlbForm::from(geometry),
                walk_cache_entries,
                ..HierarchyConfig::default()
            };
            let mut both = Hierarchy::new(regime, &config).unwrap();
            for inside in [last, 0, last / 2] {
                let access = both.access(addr(page + inside), &memory).unwrap();
                assert_eq!(access.addr.raw(), (frame + inside) << 12 | 0x123);
            }
            let stats = both.stats();
            assert_eq!((stats.walk.walks(), stats.walk.reads()), (1, reads));
            both.access(neighbour, &memory).unwrap();
            let saved = if walk_cache_entries == 0 { 0 } else { level as u64 };
            let stats = both.stats();
            assert_eq!(stats.walk.reads(), 2 * reads - saved);
            assert_eq!(stats.walk_cache_saved_reads, saved);
            assert_eq!(both.l1().size_stats(order).fills, 2);
            assert_eq!(both.l2().size_stats(order).fills, 2);
            both.check().unwrap();
            // Invalidated, nothing is known of it, nor of the tables on the way.
            both.invalidate_page(neighbour.page());
            both.access(neighbour, &memory).unwrap();
            assert_eq!(both.stats().walk.reads(), 3 * reads - saved);
        }
    }
}

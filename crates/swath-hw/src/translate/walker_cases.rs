//! Descriptors computed by hand from the specifications, reads counted for
//! each page size, faults, permissions, and random bytes as tables.

extern crate std;

use std::prelude::v1::*;
use std::vec;

use crate::{
    AccessKind, Denied, Descriptor, Geometry, Leaf, LeafContiguity, Mmu, Operation, TableRights,
    Translation, TranslationFault, Walk, WalkOrder, WalkStep, decode, permit, walk,
};
use proptest::prelude::*;
use swath_arch::testing::Random;
use swath_arch::{
    Attributes, BusError, Coalescing, ContiguityField, Extent, Format, MemoryKind, Order,
    PageRange, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr, Vpn,
};

fn leaf(frame: u64, entry_order: u8, order: u8, attributes: Attributes) -> Descriptor {
    let (entry_order, order) = (Order::known(entry_order), Order::known(order));
    Descriptor::Leaf(Leaf { frame: Pfn::new(frame), entry_order, order, attributes })
}

fn table(base: u64) -> Descriptor {
    Descriptor::Table { base: PhysAddr::new(base), rights: TableRights::ALL }
}

const USER_DATA: Attributes = Attributes::USER_DATA;

/// DDI 0406C, B3.5.1, figures B3-4 and B3-5.
#[test]
fn armv7_descriptors() {
    let first = |word| decode(Format::ArmV7, 0, word);
    let second = |word| decode(Format::ArmV7, 1, word);
    assert_eq!(first(0x8000_4000), Descriptor::Invalid);
    assert_eq!(first(0x8000_4001), table(0x8000_4000));
    // The base has 1 KiB granularity; domain and SBZ bits are no address.
    assert_eq!(first(0x8000_45fd), table(0x8000_4400));
    assert_eq!(first(0x8000_4003), Descriptor::Reserved);
    // Section 0x123: AP[2:0] = 011, XN, TEX[0]CB = 011, global.
    let section = Attributes { global: true, ..USER_DATA };
    assert_eq!(first(0x1230_0c1e), leaf(0x12300, 8, 8, section));
    // Supersection at 0xab_7f00_0000: PA[39:36] = 1010, PA[35:32] = 1011;
    // nG, AP[2:0] = 101, TEX[0]CB = 100.
    let device = Attributes {
        writable: false,
        user: false,
        executable: true,
        global: false,
        accessed: true,
        memory: MemoryKind::Device,
    };
    assert_eq!(first(0x7fb6_9542), leaf(0xab7_f000, 12, 12, device));
    assert_eq!(second(0x4567_0000), Descriptor::Invalid);
    // Large page 0x4567: nG, AP[2:0] = 011, XN at bit 15 clear, then set.
    let code = Attributes { executable: true, ..USER_DATA };
    assert_eq!(second(0x4567_083d), leaf(0x45670, 4, 4, code));
    assert_eq!(second(0x4567_883d), leaf(0x45670, 4, 4, USER_DATA));
    // Small page 0x12345: nG, AP[2:0] = 111, XN at bit 0; TEX[1] is Ascend.
    let read_only = Attributes { writable: false, ..USER_DATA };
    assert_eq!(second(0x1234_5abf), leaf(0x12345, 0, 0, read_only));
    assert_eq!(second(0x1234_583e), leaf(0x12345, 0, 0, code));
    // TEX[0] = 1 (bit 6), C = B = 0.
    let device = Attributes { memory: MemoryKind::Device, ..code };
    assert_eq!(second(0x1234_5872), leaf(0x12345, 0, 0, device));
    assert_eq!(decode(Format::ArmV7, 2, 0x1234_583e), Descriptor::Reserved);
}

/// DDI 0487, D8.3.1.
#[test]
fn armv8_descriptors() {
    let at = |level, word| decode(Format::ArmV8, level, word);
    for level in 0..4 {
        assert_eq!(at(level, 0x0060_0009_8765_4f42), Descriptor::Invalid);
    }
    for level in 0..3 {
        assert_eq!(at(level, 0x8000_0001_2345_6003), table(0x1_2345_6000));
    }
    assert_eq!(at(0, 0x4060_0485), Descriptor::Reserved);
    assert_eq!(at(3, 0x4060_0485), Descriptor::Reserved);
    // Page: UXN, PXN, nG, AF, SH = 11, AP[2:1] = 01, AttrIndx = 0; with
    // Ascend = 5 in bits 58:55 and Descend = 3 in bits 62:59 beside.
    assert_eq!(at(3, 0x0060_0009_8765_4f43), leaf(0x98_7654, 0, 0, USER_DATA));
    assert_eq!(at(3, 0x1ae0_0009_8765_4f43), leaf(0x98_7654, 0, 0, USER_DATA));
    // 2 MiB block: AF, AP[2:1] = 10, AttrIndx = 1; executable by the kernel.
    let device = Attributes {
        writable: false,
        user: false,
        executable: true,
        global: true,
        accessed: true,
        memory: MemoryKind::Device,
    };
    assert_eq!(at(2, 0x4060_0485), leaf(0x40600, 9, 9, device));
    // 1 GiB block: UXN, AF, SH = 11, AP[2:1] = 01, global.
    let global = Attributes { global: true, ..USER_DATA };
    assert_eq!(at(1, 0x0040_0008_c000_0741), leaf(0x8c_0000, 18, 18, global));
    // Contiguous (bit 52): 16 pages of 4 KiB, 16 blocks of 2 MiB; at level 1 the
    // format names no such size.
    assert_eq!(at(3, 0x0070_0009_8765_4f43), leaf(0x98_7654, 0, 4, USER_DATA));
    assert_eq!(at(2, 0x0010_0000_4060_0485), leaf(0x40600, 9, 13, device));
    assert_eq!(at(1, 0x0050_0008_c000_0741), leaf(0x8c_0000, 18, 18, global));
}

/// SDM volume 3A, 5.5.4, tables 5-15 to 5-20.
#[test]
fn x86_64_descriptors() {
    let at = |level, word| decode(Format::X86_64, level, word);
    for level in 0..4 {
        assert_eq!(at(level, 0x800f_edcb_a987_6166), Descriptor::Invalid);
    }
    for level in 0..3 {
        assert_eq!(at(level, 0x0123_4027), table(0x0123_4000));
        let rights = TableRights { writable: false, user: false, executable: false };
        let base = PhysAddr::new(0xf_edcb_a987_6000);
        assert_eq!(at(level, 0x800f_edcb_a987_6021), Descriptor::Table { base, rights });
    }
    assert_eq!(at(0, 0x0123_40a7), Descriptor::Reserved, "PS in a PML4 entry");
    // 4 KiB: XD, G, D, A, US, RW, P.
    let data = Attributes { global: true, ..USER_DATA };
    assert_eq!(at(3, 0x800f_edcb_a987_6167), leaf(0xfe_dcba_9876, 0, 0, data));
    // Bit 7 is PAT here, not PS.
    assert_eq!(at(3, 0x800f_edcb_a987_61e7), leaf(0xfe_dcba_9876, 0, 0, data));
    // 2 MiB: PAT at bit 12, PS, A, PCD, US, P.
    let device = Attributes {
        writable: false,
        user: true,
        executable: true,
        global: false,
        accessed: true,
        memory: MemoryKind::Device,
    };
    assert_eq!(at(2, 0x8020_10b5), leaf(0x80200, 9, 9, device));
    // 1 GiB: PS, D, A, RW, P.
    let kernel = Attributes { user: false, executable: true, ..USER_DATA };
    assert_eq!(at(1, 0x10_4000_00e3), leaf(0x104_0000, 18, 18, kernel));
    for bit in 13..21 {
        assert_eq!(at(2, 0x8020_10b5 | 1 << bit), Descriptor::Reserved);
    }
    for bit in 13..30 {
        assert_eq!(at(1, 0x10_4000_00e3 | 1 << bit), Descriptor::Reserved);
    }
}

/// Memory from address 0 on, with these words at these addresses.
fn with_memory<R>(
    format: Format,
    words: &[(u64, u64)],
    then: impl FnOnce(&SliceMemory<'_>) -> R,
) -> R {
    let mut cells = vec![0; 0x10000 / 8];
    let memory = SliceMemory::new(Pfn::new(0), &mut cells);
    for &(at, word) in words {
        put(&memory, format, at, word);
    }
    then(&memory)
}

fn put(memory: &SliceMemory<'_>, format: Format, at: u64, word: u64) {
    if format == Format::ArmV7 {
        memory.write_u32(PhysAddr::new(at), word as u32).unwrap();
    } else {
        memory.write_u64(PhysAddr::new(at), word).unwrap();
    }
}

fn regime(format: Format, coalescing: Coalescing) -> Regime {
    Regime { format, root: PhysAddr::new(0), coalescing }
}

/// Walks, and checks that stepping reads the same, from where it says.
fn walked<M: PhysMemory>(
    regime: &Regime,
    addr: u64,
    memory: &M,
) -> (Result<Translation, TranslationFault>, u64) {
    let page = VirtAddr::new(addr).page();
    let mut reads = 0;
    let result = walk(regime, page, memory, &mut reads);
    let mut steps = 0;
    let stepped = Walk::new(regime, page).and_then(|mut walk| {
        assert_eq!(walk.page(), page);
        loop {
            assert_eq!(u64::from(walk.level()), steps);
            steps += 1;
            let at = walk.next_read();
            let step = walk.step(memory);
            if let Err(TranslationFault::Bus { error, .. }) = step {
                assert!(error.addr == at || error.addr.raw() == at.raw().wrapping_add(4096));
            }
            if let WalkStep::Done(translation) = step? {
                return Ok(translation);
            }
        }
    });
    assert_eq!((result, reads), (stepped, steps));
    (result, reads)
}

/// The privileged architecture, "Sv39" and "Virtual Address Translation Process", "Svnapot", "Svpbmt".
#[test]
fn riscv_descriptors() {
    let at = |level, word| decode(Format::Sv48, level, word);
    for level in 0..4 {
        assert_eq!(at(level, 0x8000_0000_048d_14d6), Descriptor::Invalid);
        // W without R, and each bit that is reserved.
        assert_eq!(at(level, 0x2000_00d5), Descriptor::Reserved);
        for bit in 54..59 {
            assert_eq!(at(level, 0x2000_00d7 | 1 << bit), Descriptor::Reserved);
        }
    }
    for level in 0..3 {
        assert_eq!(at(level, 0x048d_1401), table(0x1234_5000));
        // Bits 60, 59, 9 and 8 are software's.
        assert_eq!(at(level, 0x1800_0000_048d_1701), table(0x1234_5000));
        for bit in [4, 6, 7, 61, 62, 63] {
            assert_eq!(at(level, 0x048d_1401 | 1 << bit), Descriptor::Reserved, "bit {bit}");
        }
    }
    assert_eq!(at(3, 0x048d_1401), Descriptor::Reserved, "a link at the last level");
    // D, A, U, W, R, V; with Ascend and Descend.
    assert_eq!(at(3, 0x048d_14d7), leaf(0x12345, 0, 0, USER_DATA));
    assert_eq!(at(3, 0x1800_0000_048d_17d7), leaf(0x12345, 0, 0, USER_DATA));
    // Not dirty: a write faults.
    let read_only = Attributes { writable: false, ..USER_DATA };
    assert_eq!(at(3, 0x048d_1457), leaf(0x12345, 0, 0, read_only));
    let device = Attributes { memory: MemoryKind::Device, ..USER_DATA };
    assert_eq!(at(3, 0x4000_0000_048d_14d7), leaf(0x12345, 0, 0, device));
    assert_eq!(at(3, 0x2000_0000_048d_14d7), leaf(0x12345, 0, 0, device));
    assert_eq!(at(3, 0x6000_0000_048d_14d7), Descriptor::Reserved);
    // G, A, X, R, V: the kernel's code.
    let code = Attributes { executable: true, global: true, user: false, ..read_only };
    assert_eq!(at(2, 0x0488_006b), leaf(0x12200, 9, 9, code));
    assert_eq!(at(2, 0x0488_046b), Descriptor::Reserved, "not aligned");
    assert_eq!(at(1, 0x2000_006b), leaf(0x80000, 18, 18, code));
    assert_eq!(at(0, 0x20_0000_006b), leaf(0x800_0000, 27, 27, code));
    assert_eq!(at(3, 0x8000_0000_048d_20d7), leaf(0x12340, 4, 4, USER_DATA));
    assert_eq!(at(3, 0x8000_0000_048d_14d7), Descriptor::Reserved, "64 KiB is 1000 alone");
    assert_eq!(at(2, 0x8000_0000_0488_20d7), Descriptor::Reserved, "N above the last level");
    let sv39 = |level, word| decode(Format::Sv39, level, word);
    assert_eq!(sv39(2, 0x048d_14d7), leaf(0x12345, 0, 0, USER_DATA));
    assert_eq!(sv39(0, 0x2000_006b), leaf(0x80000, 18, 18, code));
    assert_eq!(sv39(3, 0x048d_14d7), Descriptor::Reserved);
}

/// For each page size: an address in the middle of the page, the table, the
/// frame expected, the order and the reads.
#[test]
fn each_page_size_takes_its_reads() {
    let check = |format, addr: u64, words: &[(u64, u64)], frame: u64, order: u8, reads: u64| {
        with_memory(format, words, |memory| {
            let (found, counted) = walked(&regime(format, Coalescing::None), addr, memory);
            let found = found.unwrap();
            assert_eq!((found.frame, counted), (Pfn::new(frame), reads), "{format:?} {addr:#x}");
            assert_eq!(found.order, Order::known(order));
            assert_eq!(found.contiguity, LeafContiguity::None);
            let page = VirtAddr::new(addr).page();
            let (pages, frames) = found.block(format, page);
            assert_eq!(pages.count, 1 << order);
            assert_eq!(pages.start.raw(), page.raw() >> order << order);
            assert_eq!(frames.start.raw(), frame >> order << order);
            assert_eq!(frames.count, 1 << order);
        });
    };
    // VA 0x0014_5678: first-level index 1, second-level index 0x45.
    let v7 = Format::ArmV7;
    check(v7, 0x0014_5678, &[(4, 0x8001), (0x8114, 0x1234_583e)], 0x12345, 0, 2);
    check(v7, 0x0014_5678, &[(4, 0x8001), (0x8114, 0x4567_083d)], 0x45675, 4, 2);
    check(v7, 0x0014_5678, &[(4, 0x1230_0c1e)], 0x12345, 8, 1);
    check(v7, 0x0014_5678, &[(4, 0x7fb6_9542)], 0xab7_f145, 12, 1);
    // VA 0x0080_4060_5678: indices 1, 1, 3, 5.
    let v8 = Format::ArmV8;
    let upper = [(8, 0x1003), (0x1008, 0x2003), (0x2018, 0x3003)];
    let with = |n: usize, at: u64, word: u64| [&upper[..n], &[(at, word)]].concat();
    let addr = 0x0080_4060_5678;
    check(v8, addr, &with(3, 0x3028, 0x0060_0009_8765_4f43), 0x98_7654, 0, 4);
    check(v8, addr, &with(3, 0x3028, 0x0070_0009_8765_5f43), 0x98_7655, 4, 4);
    check(v8, addr, &with(2, 0x2018, 0x4060_0485), 0x40605, 9, 3);
    check(v8, addr, &with(2, 0x2018, 0x0010_0000_4060_0485), 0x40605, 13, 3);
    check(v8, addr, &with(1, 0x1008, 0x0040_0008_c000_0741), 0x8c_0605, 18, 2);
    // The same indices in the upper half: PML4 index 0x101.
    let x86 = Format::X86_64;
    let addr = 0xffff_8080_4060_5678;
    let upper = [(0x808, 0x1027), (0x1008, 0x2027), (0x2018, 0x3027)];
    let with = |n: usize, at: u64, word: u64| [&upper[..n], &[(at, word)]].concat();
    check(x86, addr, &with(3, 0x3028, 0x800f_edcb_a987_6167), 0xfe_dcba_9876, 0, 4);
    check(x86, addr, &with(2, 0x2018, 0x8020_10b5), 0x80205, 9, 3);
    check(x86, addr, &with(1, 0x1008, 0x10_4000_00e3), 0x104_0605, 18, 2);
    // Sv39 at 0xffff_ffc0_4060_5678: indices 0x101, 3, 5.
    let (sv39, addr) = (Format::Sv39, 0xffff_ffc0_4060_5678);
    let upper = [(0x808, 0x401), (0x1018, 0x801)];
    let with = |n: usize, at: u64, word: u64| [&upper[..n], &[(at, word)]].concat();
    check(sv39, addr, &with(2, 0x2028, 0x048d_14d7), 0x12345, 0, 3);
    check(sv39, addr, &with(2, 0x2028, 0x8000_0000_048d_20d7), 0x12345, 4, 3);
    check(sv39, addr, &with(1, 0x1018, 0x0488_00d7), 0x12205, 9, 2);
    check(sv39, addr, &with(0, 0x808, 0x2000_00d7), 0x8_0605, 18, 1);
    // Sv48 at 0xffff_8080_4060_5678: indices 0x101, 1, 3, 5.
    let (sv48, addr) = (Format::Sv48, 0xffff_8080_4060_5678);
    let upper = [(0x808, 0x401), (0x1008, 0x801), (0x2018, 0xc01)];
    let with = |n: usize, at: u64, word: u64| [&upper[..n], &[(at, word)]].concat();
    check(sv48, addr, &with(3, 0x3028, 0x048d_14d7), 0x12345, 0, 4);
    check(sv48, addr, &with(1, 0x1008, 0x2000_00d7), 0x8_0605, 18, 2);
    check(sv48, addr, &with(0, 0x808, 0x20_0000_00d7), 0x804_0605, 27, 1);
}

/// SDM volume 3A, 5.6.1: every level must permit.
#[test]
fn x86_64_rights_are_those_of_all_levels() {
    const XD: u64 = 1 << 63;
    for (bits, writable, user, executable) in [
        (0x27, true, true, true),
        (0x25, false, true, true),
        (0x23, true, false, true),
        (0x27 | XD, true, true, false),
    ] {
        for restricting in 0..4 {
            let flags = |level| if level == restricting { bits } else { 0x27 };
            let words: Vec<_> = (0..4)
                .map(|level| (level * 0x1000, ((level + 1) * 0x1000) | flags(level)))
                .collect();
            with_memory(Format::X86_64, &words, |memory| {
                let regime = regime(Format::X86_64, Coalescing::None);
                let a = walked(&regime, 0, memory).0.unwrap().attributes;
                assert_eq!((a.writable, a.user, a.executable), (writable, user, executable));
            });
        }
    }
}

/// LeafContiguity in the descriptors and beside them, for each format.
#[test]
fn contiguity_comes_with_the_leaf() {
    let v7 = [(0, 0x8001), (0x8014, 0x1234_5abf), (0x9014, 0x0003_0105)];
    let v8_leaf = 0x1ae0_0009_8765_4f43;
    let v8 = [(0, 0x1003), (0x1000, 0x2003), (0x2000, 0x8003), (0x8028, v8_leaf)];
    // Ascend 3 in 58:52, Descend 1 in 11:9 and 6 in 62:59: 6 << 3 | 1.
    let x86_leaf = 0x3030_0000_0987_6327;
    let x86 = [(0, 0x1027), (0x1000, 0x2027), (0x2000, 0x8027), (0x8028, x86_leaf)];
    let read = |format, words: &[(u64, u64)], addr: u64, coalescing| {
        with_memory(format, words, |memory| {
            if format != Format::ArmV7 {
                put(memory, format, 0x9028, 0x0000_0003_0000_0105);
            }
            let (found, reads) = walked(&regime(format, coalescing), addr, memory);
            assert_eq!(reads, if format == Format::ArmV7 { 2 } else { 4 }, "arrives with the leaf");
            found.unwrap().contiguity
        })
    };
    let inside = Coalescing::Pcad(ContiguityField::Descriptor);
    let pcad = |ascend, descend| LeafContiguity::Pcad { ascend, descend };
    assert_eq!(read(Format::ArmV7, &v7, 0x5000, inside), pcad(1, 0));
    assert_eq!(read(Format::ArmV8, &v8, 0x5000, inside), pcad(5, 3));
    assert_eq!(read(Format::X86_64, &x86, 0x5000, inside), pcad(3, 0x31));
    let beside = |bits| Coalescing::Pcad(ContiguityField::Beside { bits });
    for (format, words) in
        [(Format::ArmV7, &v7[..]), (Format::ArmV8, &v8[..]), (Format::X86_64, &x86[..])]
    {
        assert_eq!(read(format, words, 0x5000, beside(16)), pcad(0x105, 3));
        assert_eq!(read(format, words, 0x5000, beside(8)), pcad(5, 3));
        assert_eq!(read(format, words, 0x5000, beside(1)), pcad(1, 1));
    }
    // Page 4 is an anchor for a distance of 4 pages, page 5 is none.
    let anchor = |field| Coalescing::Anchor { field, distance: Order::known(2) };
    let count = |count| LeafContiguity::Anchor { count };
    let (field, beside) = (ContiguityField::Descriptor, ContiguityField::Beside { bits: 12 });
    let moved = |words: &[(u64, u64)], down: u64| {
        words
            .iter()
            .map(|&(at, w)| (if at > 0x8000 { at - down } else { at }, w))
            .collect::<Vec<_>>()
    };
    assert_eq!(read(Format::ArmV7, &v7, 0x5000, anchor(field)), LeafContiguity::None);
    assert_eq!(read(Format::ArmV7, &moved(&v7, 4), 0x4000, anchor(field)), count(1));
    assert_eq!(read(Format::ArmV7, &moved(&v7, 4), 0x4000, anchor(beside)), count(0x105));
    // Bits 63:55 of the page.
    assert_eq!(read(Format::ArmV8, &moved(&v8, 8), 0x4000, anchor(field)), count(0x35));
    // Bits 58:52, 62:59, 11:9, lowest first: 3, 6, 1.
    assert_eq!(
        read(Format::X86_64, &moved(&x86, 8), 0x4000, anchor(field)),
        count(1 << 11 | 6 << 7 | 3)
    );
}

/// *Duong and Hur*, Table 1, with the numbers of Fig. 2 and Fig. 7.
#[test]
fn pcad_examples_of_the_paper() {
    for (ascend, size) in [(2, 4), (3, 5)] {
        let found = Translation {
            frame: Pfn::new(17),
            order: Order::BASE,
            attributes: USER_DATA,
            contiguity: LeafContiguity::Pcad { ascend, descend: 1 },
        };
        let block = found.block(Format::ArmV7, Vpn::new(5));
        let (base_vpn, base_ppn) = (Vpn::new(4), Pfn::new(16));
        assert_eq!(block, (PageRange::new(base_vpn, size), Extent::new(base_ppn, size)));
    }
}

/// Fields that reach beyond an address space are cut at its end.
#[test]
fn hostile_contiguity_is_cut() {
    let block = |format, page, frame, ascend, descend| {
        let contiguity = LeafContiguity::Pcad { ascend, descend };
        let (order, attributes) = (Order::BASE, USER_DATA);
        let found = Translation { frame: Pfn::new(frame), order, attributes, contiguity };
        let (pages, frames) = found.block(format, Vpn::new(page));
        assert_eq!(pages.count, frames.count);
        (pages.start.raw(), frames.start.raw(), pages.count)
    };
    let many = u64::from(u32::MAX);
    assert_eq!(block(Format::ArmV7, 3, 9, 0, many), (0, 6, 4));
    assert_eq!(block(Format::ArmV7, 9, 3, 0, many), (6, 0, 4));
    assert_eq!(block(Format::ArmV7, 0xffffe, 9, many, 0), (0xffffe, 9, 2));
    assert_eq!(block(Format::ArmV8, 9, 0xf_ffff_fffd, many, 0), (9, 0xf_ffff_fffd, 3));
    let upper = 0xf_fff8_0000_0000;
    assert_eq!(block(Format::X86_64, upper, 9, 0, many), (upper, 9, 1));
    assert_eq!(block(Format::X86_64, 0xf_ffff_ffff_ffff, 9, many, 0).2, 1);
    assert_eq!(block(Format::X86_64, 0x7_ffff_ffff, 9, many, 2), (0x7_ffff_fffd, 7, 3));
}

/// The ends of halves and of all addresses, and every power of two.
#[test]
fn pages_are_canonical_that_a_format_translates() {
    for format in Format::ALL {
        let bits = format.va_bits() - 12;
        let translates = |page: u64| match format.has_halves() {
            // All bits from the highest that is translated are alike.
            true => [0, (1 << (53 - bits)) - 1].contains(&(page >> (bits - 1))),
            false => page >> bits == 0,
        };
        let regime = regime(format, Coalescing::None);
        for k in 0..=52 {
            let powers = [1_u64 << k, (1 << 52) - (1 << k)];
            for page in powers.into_iter().flat_map(|page| [page.wrapping_sub(1), page, page + 1]) {
                let walk = Walk::new(&regime, Vpn::new(page));
                assert_eq!(walk.is_ok(), translates(page), "{format:?}: {page:#x}");
            }
        }
    }
}

/// The last read is the whole line where the page's contiguity is spread over it. Pages 4 and 5 go on.
#[test]
fn the_line_is_read_where_it_says_something() {
    use Coalescing::{Anchor, Pcad};
    let (line, distance) = (ContiguityField::Line, Order::known(2));
    let beside = ContiguityField::Beside { bits: 32 };
    let words = [
        (0, 0x1003),
        (0x1000, 0x2003),
        (0x2000, 0x3003),
        (0x3020, 0x0060_0009_8765_4f43),
        (0x3028, 0x0060_0009_8765_5f43),
    ];
    let pair = |ascend, descend| LeafContiguity::Pcad { ascend, descend };
    let of = |count| LeafContiguity::Anchor { count };
    for (coalescing, page, bytes, contiguity) in [
        (Coalescing::None, 4, 8, LeafContiguity::None),
        (Pcad(line), 5, 64, pair(0, 1)),
        (Pcad(beside), 5, 8, pair(0, 0)),
        (Anchor { field: line, distance }, 4, 64, of(2)),
        (Anchor { field: line, distance }, 5, 8, LeafContiguity::None),
        (Anchor { field: beside, distance }, 4, 8, of(0)),
    ] {
        let mut walk = Walk::new(&regime(Format::ArmV8, coalescing), Vpn::new(page)).unwrap();
        with_memory(Format::ArmV8, &words, |memory| {
            for _ in 0..3 {
                assert_eq!(walk.next_read_bytes(), 8, "{coalescing:?}, level {}", walk.level());
                assert_eq!(walk.step(memory), Ok(WalkStep::Read));
            }
            assert_eq!(walk.next_read_bytes(), bytes, "{coalescing:?}, page {page}");
            let found = walk.step(memory).map(|step| match step {
                WalkStep::Done(found) => Some(found.contiguity),
                WalkStep::Read => None,
            });
            assert_eq!(found, Ok(Some(contiguity)), "{coalescing:?}, page {page}");
        });
    }
}

#[test]
fn faults_name_what_was_wrong_and_where() {
    let v8 = regime(Format::ArmV8, Coalescing::None);
    let page = Vpn::new(5);
    let words = [(0, 0x1003), (0x1000, 0x2003), (0x2000, 0x3003)];
    with_memory(Format::ArmV8, &words, |memory| {
        let fault = |addr| walked(&v8, addr, memory);
        assert_eq!(fault(0x5000), (Err(TranslationFault::Translation { page, level: 3 }), 4));
        let page = Vpn::new(1 << 27);
        assert_eq!(fault(1 << 39), (Err(TranslationFault::Translation { page, level: 0 }), 1));
        let addr = VirtAddr::new(1 << 48);
        assert_eq!(fault(1 << 48), (Err(TranslationFault::NotCanonical { addr }), 0));
        // A block at level 3.
        put(memory, Format::ArmV8, 0x3028, 0x4060_0485);
        let (at, descriptor) = (PhysAddr::new(0x3028), 0x4060_0485);
        assert_eq!(
            fault(0x5000),
            (Err(TranslationFault::Reserved { level: 3, at, descriptor }), 4)
        );
        // The contiguous bit on an address that is not where it should be.
        let descriptor = 0x0070_0009_8765_4f43;
        put(memory, Format::ArmV8, 0x3028, descriptor);
        assert_eq!(
            fault(0x5000),
            (Err(TranslationFault::Reserved { level: 3, at, descriptor }), 4)
        );
        put(memory, Format::ArmV8, 0x2000, 0x7777_0003);
        let error = BusError { addr: PhysAddr::new(0x7777_0028), len_bytes: 8 };
        assert_eq!(fault(0x5000), (Err(TranslationFault::Bus { level: 3, error }), 4));
    });
    let unreachable = Regime { root: PhysAddr::new(u64::MAX - 0xfff), ..v8 };
    with_memory(Format::ArmV8, &[], |memory| {
        let (result, reads) = walked(&unreachable, 0xff << 39, memory);
        assert!(matches!(result, Err(TranslationFault::Bus { level: 0, .. })));
        assert_eq!(reads, 1);
        let x86 = regime(Format::X86_64, Coalescing::None);
        for addr in [1 << 47, (1 << 63) | 1 << 46, 0xffff_7fff_ffff_ffff] {
            assert!(matches!(
                walked(&x86, addr, memory).0,
                Err(TranslationFault::NotCanonical { .. })
            ));
        }
        assert!(Walk::new(&x86, Vpn::new(1 << 52)).is_err());
        assert!(Walk::new(&x86, Vpn::new(u64::MAX)).is_err());
        let v7 = regime(Format::ArmV7, Coalescing::None);
        assert!(matches!(
            walked(&v7, 1 << 32, memory).0,
            Err(TranslationFault::NotCanonical { .. })
        ));
    });
    assert_eq!(
        TranslationFault::Translation { page, level: 3 }.to_string(),
        "page 0x5 is not mapped (level 3)"
    );
}

#[test]
fn permissions() {
    let asks = |operation, privileged| AccessKind { operation, privileged };
    let read = asks(Operation::Read, false);
    let write = asks(Operation::Write, false);
    let fetch = asks(Operation::Fetch, false);
    let of = |attributes, access| permit(Format::ArmV8, &attributes, access);
    assert_eq!(of(USER_DATA, read), Ok(()));
    assert_eq!(of(USER_DATA, write), Ok(()));
    assert_eq!(of(USER_DATA, fetch), Err(Denied::Fetch));
    assert_eq!(of(Attributes { executable: true, ..USER_DATA }, fetch), Ok(()));
    let read_only = Attributes { writable: false, ..USER_DATA };
    assert_eq!(of(read_only, write), Err(Denied::Write));
    assert_eq!(of(read_only, asks(Operation::Write, true)), Err(Denied::Write));
    let kernel = Attributes { user: false, ..USER_DATA };
    assert_eq!(of(kernel, read), Err(Denied::Privilege));
    assert_eq!(of(kernel, asks(Operation::Read, true)), Ok(()));
    let fresh = Attributes { accessed: false, ..read_only };
    assert_eq!(of(fresh, write), Err(Denied::AccessFlag));
    assert_eq!(permit(Format::ArmV7, &fresh, read), Err(Denied::AccessFlag));
    assert_eq!(permit(Format::X86_64, &fresh, read), Ok(()));
    assert_eq!(permit(Format::Sv39, &fresh, read), Err(Denied::AccessFlag));
    // Whatever the kernel may read, it fetches from its own pages alone.
    let code = Attributes { executable: true, ..USER_DATA };
    let kernels = asks(Operation::Fetch, true);
    assert_eq!(permit(Format::X86_64, &code, kernels), Ok(()));
    for format in [Format::Sv39, Format::Sv48] {
        assert_eq!(permit(format, &code, kernels), Err(Denied::Fetch));
        assert_eq!(permit(format, &code, fetch), Ok(()));
        assert_eq!(permit(format, &code, asks(Operation::Read, true)), Ok(()));
    }
}

fn any_coalescing() -> impl Strategy<Value = Coalescing> {
    let field = prop_oneof![
        Just(ContiguityField::Descriptor),
        Just(ContiguityField::Line),
        (1u8..=16).prop_map(|bits| ContiguityField::Beside { bits }),
    ];
    (field, 0u8..=16).prop_map(|(field, k)| match k {
        0 => Coalescing::Pcad(field),
        _ => Coalescing::Anchor { field, distance: Order::known(k) },
    })
}

proptest! {
    /// Random bytes as tables: any result, no panic, no endless walk, and a
    /// TLB whose invariants hold. Half of the words point into the memory.
    #[test]
    fn random_bytes_never_panic(
        seed in any::<u64>(),
        format in prop::sample::select(&Format::ALL[..]),
        coalescing in prop_oneof![Just(Coalescing::None), any_coalescing()],
        order in prop_oneof![Just(WalkOrder::RegularFirst), Just(WalkOrder::AnchorFirst)],
        addrs in prop::collection::vec(
            prop_oneof![0u64..0x40_0000, 0u64..1 << 32, 0u64..1 << 47, any::<u64>()], 1..60),
    ) {
        let mut random = Random::new(seed);
        let mut words: Vec<u64> = (0..512 * 8)
            .map(|_| match random.below(4) {
                0 => random.word(),
                1 => random.word() & 0xfff0_0000_0000_7fff | 3,
                2 => random.word() & 0x0000_7fff_0000_7fff | 0x1_0000_0001,
                _ => random.word() & 0xfff0_0000_7fff_7fff | 7,
            })
            .collect();
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        let regime = regime(format, coalescing);
        let mut mmu =
            Mmu::new(regime, Geometry { sets: 2, ways: 4, index_shift: 3 }, order).unwrap();
        for addr in addrs {
            let (found, reads) = walked(&regime, addr, &memory);
            prop_assert!(reads <= format.levels().len() as u64);
            let cached = mmu.tlb().peek(VirtAddr::new(addr).page());
            let access = mmu.access(VirtAddr::new(addr), &memory);
            prop_assert_eq!(mmu.tlb().check(), Ok(()));
            if let (Ok(found), None) = (found, cached)
                && order == WalkOrder::RegularFirst
            {
                let frame = access.unwrap().addr.frame();
                prop_assert_eq!(frame, found.frame);
            }
        }
    }
}

//! Descriptors computed by hand from the specifications' figures.

use std::cell::RefCell;

use crate::machine::{Memory, Pool, Space};
use swath_arch::{
    Attributes, Coalescing, ContiguityField, Extent, Format, MemoryKind, Order, Pfn, PhysAddr,
    PhysMemory, Vpn,
};
use swath_vm::AddressSpace;

const DEVICE: Attributes = Attributes {
    writable: true,
    user: false,
    executable: false,
    global: true,
    accessed: true,
    memory: MemoryKind::Device,
};

const CODE: Attributes = Attributes {
    writable: false,
    user: true,
    executable: true,
    global: false,
    accessed: true,
    memory: MemoryKind::Normal,
};

/// The words from the root to the page.
fn way(memory: &Memory, space: &Space<'_>, page: u64) -> Vec<u64> {
    let regime = space.regime();
    let va = page << 12;
    let read = |at: u64| match regime.format {
        Format::ArmV7 => u64::from(memory.read_u32(PhysAddr::new(at)).unwrap()),
        _ => memory.read_u64(PhysAddr::new(at)).unwrap(),
    };
    let root = regime.root.raw();
    if regime.format == Format::ArmV7 {
        let first = read(root + (va >> 20) * 4);
        return match first & 3 {
            1 => vec![first, read((first & !0x3ff) + (va >> 12 & 0xff) * 4)],
            _ => vec![first],
        };
    }
    let mut words = vec![];
    let mut table = root;
    if matches!(regime.format, Format::Sv39 | Format::Sv48) {
        let lows = [39, 30, 21, 12];
        for low in &lows[usize::from(regime.format == Format::Sv39)..] {
            let word = read(table + (va >> low & 0x1ff) * 8);
            words.push(word);
            if word & 0xe != 0 {
                break;
            }
            table = (word >> 10 & 0xfff_ffff_ffff) << 12;
        }
        return words;
    }
    for low in [39, 30, 21, 12] {
        let word = read(table + (va >> low & 0x1ff) * 8);
        words.push(word);
        let large = match regime.format {
            Format::ArmV8 => word & 3 != 3,
            _ => word & 0x81 != 1,
        };
        if large {
            break;
        }
        table = word & 0x000f_ffff_ffff_f000;
    }
    words
}

/// Words without the address of the table, which the allocator chooses.
fn flags(format: Format, word: u64) -> u64 {
    match format {
        Format::ArmV7 => word & 0x3ff,
        Format::Sv39 | Format::Sv48 => word & !0x003f_ffff_ffff_fc00,
        _ => word & !0x0000_ffff_ffff_f000,
    }
}

/// Maps a page of each size and compares the leaf, and the links to it.
fn check(
    format: Format,
    coalescing: Coalescing,
    cases: &[(u64, u64, u8, Attributes, u64)],
    link: u64,
) {
    let memory = Memory::new(0, 512);
    let frames = RefCell::new(Pool::new(64, 448, 64, 1));
    let mut space: Space<'_> =
        AddressSpace::new(format, coalescing, &memory, &frames, &frames).unwrap();
    for &(page, frame, order, attributes, golden) in cases {
        let order = Order::known(order);
        space.map_page_size(Vpn::new(page), Pfn::new(frame), order, attributes).unwrap();
        let words = way(&memory, &space, page);
        let (&leaf, links) = words.split_last().unwrap();
        assert_eq!(leaf, golden, "{format:?} order {order}: {leaf:#x}, not {golden:#x}");
        for &word in links {
            assert_eq!(flags(format, word), link);
        }
        space.check().unwrap();
    }
}

/// DDI 0406C, figure B3-4 (first level) and figure B3-5 (second level), with
/// TEX remap: {TEX\[0\], C, B} is 011 for normal and 100 for device memory.
#[test]
fn armv7() {
    let cases = [
        // Small page, base 0x12345: nG (11) | AP1 (5) | AF (4) | C B (3:2) |
        // 1 (1) | XN (0) = 0x800 + 0x20 + 0x10 + 0xc + 2 + 1.
        (0x00400, 0x12345, 0, Attributes::USER_DATA, 0x1234_583f),
        // Read-only, executable: AP2 (9) = 0x200, XN clear.
        (0x00401, 0x12346, 0, CODE, 0x1234_6a3e),
        // Device: global, TEX0 (6) = 0x40, AF, XN, no C and B, no AP1.
        (0x00402, 0xfffff, 0, DEVICE, 0xffff_f053),
        // Large page: XN (15), base [31:16], type 01: 0x8000 + 0x83d.
        (0x00410, 0x12340, 4, Attributes::USER_DATA, 0x1234_883d),
        // Large page, device: XN (15), TEX0 (12), AF (4), type 01.
        (0x00420, 0xffff0, 4, DEVICE, 0xffff_9011),
        // Section: nG (17), AP1 (11), AF (10), XN (4), C B, type 10:
        // 0x20000 + 0x800 + 0x400 + 0x10 + 0xc + 2.
        (0x00800, 0x12300, 8, Attributes::USER_DATA, 0x1232_0c1e),
        // Section, code: AP2 (15) = 0x8000, XN clear.
        (0x00900, 0xabc00, 8, CODE, 0xabc2_8c0e),
        // Supersection at 0xa9_1200_0000: bit 18, PA[35:32] = 9 at 23:20,
        // PA[39:36] = 0xa at 8:5, which is 0x140.
        (0x03000, 0xa91_2000, 12, Attributes::USER_DATA, 0x1296_0d5e),
        // Device section: AF (10), TEX0 (12), XN (4).
        (0x00a00, 0x00100, 8, DEVICE, 0x0010_1412),
    ];
    check(Format::ArmV7, Coalescing::None, &cases, 1);
}

/// DDI 0487, section D8.3.1: table, block and page descriptors.
#[test]
fn armv8() {
    let cases = [
        // Page: UXN PXN (54:53), nG (11), AF (10), SH = 10 (9:8), AP1 (6),
        // AttrIdx 0, 11 (1:0): 0x60... + 0x800 + 0x400 + 0x200 + 0x40 + 3.
        (0x00400, 0x12345, 0, Attributes::USER_DATA, 0x0060_0000_1234_5e43),
        // Read-only (7), executable.
        (0x00401, 0xf_ffff_ffff, 0, CODE, 0x0000_ffff_ffff_fec3),
        // Device: AttrIdx 1 (4:2) = 4; global, so nG is clear.
        (0x00402, 0x12345, 0, DEVICE, 0x0060_0000_1234_5607),
        // Contiguous pages: bit 52.
        (0x00410, 0x12340, 4, Attributes::USER_DATA, 0x0070_0000_1234_0e43),
        // 2 MiB block: type 01.
        (0x00800, 0x12200, 9, Attributes::USER_DATA, 0x0060_0000_1220_0e41),
        // Contiguous blocks.
        (0x02000, 0x12000, 13, CODE, 0x0010_0000_1200_0ec1),
        // 1 GiB block.
        (0x40000, 0x80000, 18, DEVICE, 0x0060_0000_8000_0605),
    ];
    check(Format::ArmV8, Coalescing::None, &cases, 3);
}

/// SDM volume 3A, tables 5-15 to 5-20. Bit 7 (12 in larger pages), PAT, marks
/// frames that the space was given.
#[test]
fn x86_64() {
    let cases = [
        // XD (63), PAT (7), A (5), US (2), RW (1), P (0).
        (0x00400, 0x12345, 0, Attributes::USER_DATA, 0x8000_0000_1234_50a7),
        (0x00401, 0xff_ffff_ffff, 0, CODE, 0x000f_ffff_ffff_f0a5),
        // Device: G (8), PCD (4), PWT (3), supervisor.
        (0x00402, 0x12345, 0, DEVICE, 0x8000_0000_1234_51bb),
        // 2 MiB: PS (7), PAT (12).
        (0x00800, 0x12200, 9, Attributes::USER_DATA, 0x8000_0000_1220_10a7),
        // 1 GiB, in the upper half of the addresses.
        (0xf_ffff_fffc_0000, 0x80000, 18, CODE, 0x0000_0000_8000_10a5),
    ];
    check(Format::X86_64, Coalescing::None, &cases, 7);
}

/// The privileged architecture, "Sv39", "Svnapot" and "Svpbmt". RSW 01 marks frames that the space was
/// given; the address stands two bits lower than in a physical address.
#[test]
fn riscv() {
    let cases = [
        // RSW0 (8), D A (7:6), U (4), W R V (2:0): 0x1d7; 0x12345 << 10.
        (0x00400, 0x12345, 0, Attributes::USER_DATA, 0x048d_15d7),
        // The last frame: RSW0, A, U, X, R, V.
        (0x00401, 0xfff_ffff_ffff, 0, CODE, 0x003f_ffff_ffff_fd5b),
        // Device: PBMT 10 (62:61), RSW0, D, A, G, W, R, V.
        (0x00402, 0x12345, 0, DEVICE, 0x4000_0000_048d_15e7),
        // 64 KiB: N (63), PPN[3:0] = 1000.
        (0x00410, 0x12340, 4, Attributes::USER_DATA, 0x8000_0000_048d_21d7),
        // 2 MiB and 1 GiB.
        (0x00800, 0x12200, 9, Attributes::USER_DATA, 0x0488_01d7),
        (0x40000, 0x80000, 18, CODE, 0x2000_015b),
        // 1 GiB, in the upper half of the addresses.
        (0xf_ffff_fffc_0000, 0x80000, 18, CODE, 0x2000_015b),
    ];
    check(Format::Sv39, Coalescing::None, &cases, 1);
    check(Format::Sv48, Coalescing::None, &cases, 1);
}

/// Fig. 2 of the PBS paper: pages 4 to 7 on frames 16 to 19; page 5 says Ascend
/// 2 and Descend 1, in the bits that swath-arch documents.
#[test]
fn contiguity_of_figure_2() {
    let pcad = |format, page: u64| {
        let memory = Memory::new(0, 512);
        let frames = RefCell::new(Pool::new(64, 448, 64, 1));
        let coalescing = Coalescing::Pcad(ContiguityField::Descriptor);
        let mut space: Space<'_> =
            AddressSpace::new(format, coalescing, &memory, &frames, &frames).unwrap();
        let block = Extent::new(Pfn::new(16), 4);
        space.map(Vpn::new(4), block, Attributes::USER_DATA).unwrap();
        *way(&memory, &space, page).last().unwrap()
    };
    // Ascend at 58:55, Descend at 62:59.
    assert_eq!(pcad(Format::ArmV8, 5), 0x0060_0000_0001_1e43 | 2 << 55 | 1 << 59);
    // Ascend at 58:52, Descend at 11:9 and 62:59.
    assert_eq!(pcad(Format::X86_64, 5), 0x8000_0000_0001_10a7 | 2 << 52 | 1 << 9);
    // One bit each, saturated: 60 and 59.
    assert_eq!(pcad(Format::Sv39, 5), 17 << 10 | 0x1d7 | 1 << 60 | 1 << 59);
    // One bit each, saturated: TEX[1] (7) and TEX[2] (8).
    assert_eq!(pcad(Format::ArmV7, 5), 0x0001_183f | 1 << 7 | 1 << 8);
    assert_eq!(pcad(Format::ArmV7, 4), 0x0001_083f | 1 << 7);
    assert_eq!(pcad(Format::ArmV7, 7), 0x0001_383f | 1 << 8);
}

/// The space's own frames: S set, inner shareable, PAT clear, RSW 00.
#[test]
fn owned_frames() {
    for (format, golden) in [
        (Format::ArmV7, 0xc3f),
        (Format::ArmV8, 0x0060_0000_0000_0f43),
        (Format::X86_64, 0x8000_0000_0000_0027),
        (Format::Sv39, 0xd7),
        (Format::Sv48, 0xd7),
    ] {
        let memory = Memory::new(0, 512);
        let frames = RefCell::new(Pool::new(64, 448, 64, 1));
        let mut space: Space<'_> =
            AddressSpace::new(format, Coalescing::None, &memory, &frames, &frames).unwrap();
        let frame = space.fault(Vpn::new(5), Attributes::USER_DATA).unwrap();
        let word = *way(&memory, &space, 5).last().unwrap();
        let at = if matches!(format, Format::Sv39 | Format::Sv48) { 10 } else { 12 };
        assert_eq!(word, golden | frame.raw() << at);
    }
}

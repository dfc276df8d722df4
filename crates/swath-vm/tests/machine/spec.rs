//! A decoder of tables, bit by bit from the specifications named, which shares
//! nothing with the crate under test but the addresses.

use swath_arch::{
    Attributes, Coalescing, ContiguityField, Format, MemoryKind, PhysAddr, PhysMemory, Regime,
};

/// What the tables say of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) frame: u64,
    /// log2 of base pages that the entry, or the 16 alike, map.
    pub(crate) order: u32,
    pub(crate) attributes: Attributes,
    pub(crate) ascend: u64,
    pub(crate) descend: u64,
}

fn bits(word: u64, high: u32, low: u32) -> u64 {
    word >> low & ((1 << (high - low + 1)) - 1)
}

/// Walks to the page; `None` is a translation fault.
pub(crate) fn look<M: PhysMemory>(memory: &M, regime: Regime, page: u64) -> Option<Seen> {
    let va = page << 12;
    let (mut seen, at, word) = match regime.format {
        Format::ArmV7 => armv7(memory, regime.root.raw(), va)?,
        Format::ArmV8 => armv8(memory, regime.root.raw(), va)?,
        Format::X86_64 => x86_64(memory, regime.root.raw(), va)?,
        Format::Sv39 => riscv(memory, regime.root.raw(), va, &[30, 21, 12])?,
        Format::Sv48 => riscv(memory, regime.root.raw(), va, &[39, 30, 21, 12])?,
    };
    if seen.order == 0 {
        (seen.ascend, seen.descend) = contiguity(memory, regime, page, at, word);
    }
    Some(seen)
}

/// Where the documentation of the formats in swath-arch puts the numbers.
fn contiguity<M: PhysMemory>(
    memory: &M,
    regime: Regime,
    page: u64,
    at: u64,
    word: u64,
) -> (u64, u64) {
    let (field, anchor) = match regime.coalescing {
        Coalescing::None => return (0, 0),
        Coalescing::Pcad(field) => (field, false),
        Coalescing::Anchor { field, .. } => (field, true),
    };
    match (field, regime.format) {
        (ContiguityField::Line, format) => {
            let (ascend, descend) = line(memory, format, at);
            match regime.coalescing {
                Coalescing::Anchor { distance, .. } => {
                    (if page.is_multiple_of(distance.frames()) { ascend + 1 } else { 0 }, 0)
                }
                _ => (ascend, descend),
            }
        }
        (ContiguityField::Beside { .. }, Format::ArmV7) => {
            let word = memory.read_u32(PhysAddr::new(at + 4096)).unwrap();
            (u64::from(word & 0xffff), u64::from(word >> 16))
        }
        (ContiguityField::Beside { .. }, _) => {
            let word = memory.read_u64(PhysAddr::new(at + 4096)).unwrap();
            (word & 0xffff_ffff, word >> 32)
        }
        (ContiguityField::Descriptor, Format::ArmV7) if anchor => (bits(word, 8, 7), 0),
        (ContiguityField::Descriptor, Format::ArmV7) => (bits(word, 7, 7), bits(word, 8, 8)),
        (ContiguityField::Descriptor, Format::ArmV8) if anchor => (bits(word, 63, 55), 0),
        (ContiguityField::Descriptor, Format::ArmV8) => (bits(word, 58, 55), bits(word, 62, 59)),
        (ContiguityField::Descriptor, Format::X86_64) if anchor => {
            (bits(word, 58, 52) | bits(word, 62, 59) << 7 | bits(word, 11, 9) << 11, 0)
        }
        (ContiguityField::Descriptor, Format::X86_64) => {
            (bits(word, 58, 52), bits(word, 11, 9) | bits(word, 62, 59) << 3)
        }
        (ContiguityField::Descriptor, Format::Sv39 | Format::Sv48) if anchor => {
            (bits(word, 60, 59) | bits(word, 9, 9) << 2, 0)
        }
        (ContiguityField::Descriptor, Format::Sv39 | Format::Sv48) => {
            (bits(word, 60, 60), bits(word, 59, 59))
        }
    }
}

/// Ascend and Descend as the 64 bytes around a descriptor say them.
fn line<M: PhysMemory>(memory: &M, format: Format, at: u64) -> (u64, u64) {
    let first = at & !63;
    let at_index = |i: u64| match format {
        Format::ArmV7 => u64::from(memory.read_u32(PhysAddr::new(first + 4 * i)).unwrap()),
        _ => memory.read_u64(PhysAddr::new(first + 8 * i)).unwrap(),
    };
    let (count, page) = match format {
        Format::ArmV7 => (16, (at - first) / 4),
        _ => (8, (at - first) / 8),
    };
    let words: Vec<u64> = (0..count).map(at_index).collect();
    let small = |word: u64| match format {
        Format::ArmV7 => word & 2 == 2,
        Format::ArmV8 => word & 3 == 3 && bits(word, 52, 52) == 0,
        Format::X86_64 => word & 1 == 1,
        Format::Sv39 | Format::Sv48 => word & 1 == 1 && bits(word, 63, 63) == 0,
    };
    let (address, free, next) = match format {
        Format::ArmV7 => (0xffff_f000, 0x180, 0x1000),
        Format::ArmV8 => (0x0000_ffff_ffff_f000, 0x7f80_0000_0000_0000, 0x1000),
        Format::X86_64 => (0x000f_ffff_ffff_f000, 0x7ff0_0000_0000_0e00, 0x1000),
        Format::Sv39 | Format::Sv48 => (0x003f_ffff_ffff_fc00, 0x1800_0000_0000_0000, 0x400),
    };
    let joined = |i: u64| {
        let (one, two) = (words[i as usize], words[i as usize + 1]);
        small(one)
            && small(two)
            && (one & address) + next == two & address
            && one & !address & !free == two & !address & !free
    };
    let begin = (0..=page).rev().find(|&i| i == 0 || !joined(i - 1)).unwrap();
    let end = (page..count).find(|&i| i + 1 == count || !joined(i)).unwrap();
    let (mut before, mut after) = (0, 0);
    for (i, &word) in words.iter().enumerate() {
        let (preceding, following, width) = match format {
            Format::ArmV7 => (bits(word, 8, 8), bits(word, 7, 7), 1),
            Format::ArmV8 => (bits(word, 62, 59), bits(word, 58, 55), 4),
            Format::X86_64 => (bits(word, 11, 9) | bits(word, 62, 59) << 3, bits(word, 58, 52), 7),
            Format::Sv39 | Format::Sv48 => (bits(word, 59, 59), bits(word, 60, 60), 1),
        };
        before += preceding << (width * i);
        after += following << (width * i);
    }
    (
        end - page + if end + 1 == count { after } else { 0 },
        page - begin + if begin == 0 { before } else { 0 },
    )
}

/// DDI 0406C, figures B3-4 and B3-5; {TEX[0], C, B} through the remap
/// registers, AP[2:1] of table B3-8 (AFE = 1).
fn armv7<M: PhysMemory>(memory: &M, root: u64, va: u64) -> Option<(Seen, u64, u64)> {
    let read = |at| u64::from(memory.read_u32(PhysAddr::new(at)).unwrap());
    let memory_of = |tex0: u64, c: u64, b: u64| match (tex0, c, b) {
        (0, 1, 1) => MemoryKind::Normal,
        (1, 0, 0) => MemoryKind::Device,
        other => panic!("TEX[0], C, B = {other:?} is not assumed"),
    };
    let at = root + 4 * bits(va, 31, 20);
    let word = read(at);
    match word & 3 {
        0 => None,
        1 => {
            assert_eq!(bits(word, 9, 2), 0, "domain 0, secure, SBZ");
            let at = (word & !0x3ff) + 4 * bits(va, 19, 12);
            let word = read(at);
            let (order, frame, xn, tex0) = match word & 3 {
                0 => return None,
                1 => {
                    assert_eq!(bits(word, 8, 6), 0, "SBZ");
                    let frame = bits(word, 31, 16) << 4 | bits(va, 15, 12);
                    (4, frame, bits(word, 15, 15), bits(word, 12, 12))
                }
                _ => (0, bits(word, 31, 12), word & 1, bits(word, 6, 6)),
            };
            let attributes = Attributes {
                writable: bits(word, 9, 9) == 0,
                user: bits(word, 5, 5) == 1,
                executable: xn == 0,
                global: bits(word, 11, 11) == 0,
                accessed: bits(word, 4, 4) == 1,
                memory: memory_of(tex0, bits(word, 3, 3), bits(word, 2, 2)),
            };
            Some((Seen { frame, order, attributes, ascend: 0, descend: 0 }, at, word))
        }
        2 => {
            let (order, pa) = if bits(word, 18, 18) == 1 {
                let pa = bits(word, 31, 24) << 24
                    | bits(word, 23, 20) << 32
                    | bits(word, 8, 5) << 36
                    | bits(va, 23, 12) << 12;
                (12, pa)
            } else {
                assert_eq!(bits(word, 8, 5), 0, "domain 0");
                (8, bits(word, 31, 20) << 20 | bits(va, 19, 12) << 12)
            };
            let attributes = Attributes {
                writable: bits(word, 15, 15) == 0,
                user: bits(word, 11, 11) == 1,
                executable: bits(word, 4, 4) == 0,
                global: bits(word, 17, 17) == 0,
                accessed: bits(word, 10, 10) == 1,
                memory: memory_of(bits(word, 12, 12), bits(word, 3, 3), bits(word, 2, 2)),
            };
            let seen = Seen { frame: pa >> 12, order, attributes, ascend: 0, descend: 0 };
            Some((seen, at, word))
        }
        _ => panic!("PXN sections are not used"),
    }
}

/// DDI 0487, section D8.3.
fn armv8<M: PhysMemory>(memory: &M, root: u64, va: u64) -> Option<(Seen, u64, u64)> {
    let mut table = root;
    for (level, low) in [39, 30, 21, 12].into_iter().enumerate() {
        let at = table + 8 * bits(va, low + 8, low);
        let word = memory.read_u64(PhysAddr::new(at)).unwrap();
        if word & 1 == 0 {
            return None;
        }
        if level < 3 && word & 2 != 0 {
            table = bits(word, 47, 12) << 12;
            continue;
        }
        assert!(level > 0 && (level < 3 || word & 2 != 0), "reserved descriptor {word:#x}");
        assert!(level == 3 || bits(word, low - 1, 12) == 0, "RES0 below the block's address");
        assert_eq!(bits(word, 51, 48), 0, "RES0, GP and DBM");
        assert_eq!(bits(word, 53, 53), bits(word, 54, 54), "PXN and UXN");
        let attributes = Attributes {
            writable: bits(word, 7, 7) == 0,
            user: bits(word, 6, 6) == 1,
            executable: bits(word, 54, 54) == 0,
            global: bits(word, 11, 11) == 0,
            accessed: bits(word, 10, 10) == 1,
            memory: match bits(word, 4, 2) {
                0 => MemoryKind::Normal,
                1 => MemoryKind::Device,
                other => panic!("AttrIdx {other}"),
            },
        };
        let frame = bits(word, 47, 12) | bits(va, low - 1, 0) >> 12;
        let order = low - 12 + 4 * bits(word, 52, 52) as u32;
        return Some((Seen { frame, order, attributes, ascend: 0, descend: 0 }, at, word));
    }
    None
}

/// SDM volume 3A, tables 5-15 to 5-20.
fn x86_64<M: PhysMemory>(memory: &M, root: u64, va: u64) -> Option<(Seen, u64, u64)> {
    let mut table = root;
    for low in [39, 30, 21, 12] {
        let at = table + 8 * bits(va, low + 8, low);
        let word = memory.read_u64(PhysAddr::new(at)).unwrap();
        if word & 1 == 0 {
            return None;
        }
        if low > 12 && bits(word, 7, 7) == 0 {
            assert_eq!(bits(word, 2, 1), 3, "tables must not restrict");
            table = bits(word, 51, 12) << 12;
            continue;
        }
        assert!(low < 39, "PS is reserved in the PML4");
        // Bit 12 of a larger page is PAT; below the address the rest is zero.
        assert!(low == 12 || bits(word, low - 1, 13) == 0);
        let attributes = Attributes {
            writable: bits(word, 1, 1) == 1,
            user: bits(word, 2, 2) == 1,
            executable: bits(word, 63, 63) == 0,
            global: bits(word, 8, 8) == 1,
            accessed: bits(word, 5, 5) == 1,
            memory: match bits(word, 4, 3) {
                0 => MemoryKind::Normal,
                3 => MemoryKind::Device,
                other => panic!("PCD, PWT = {other}"),
            },
        };
        let frame = bits(word, 51, low) << (low - 12) | bits(va, low - 1, 0) >> 12;
        return Some((
            Seen { frame, order: low - 12, attributes, ascend: 0, descend: 0 },
            at,
            word,
        ));
    }
    None
}

/// The privileged architecture, "Sv39" and "Sv48", with "Svnapot", "Svpbmt" and "Svade".
fn riscv<M: PhysMemory>(memory: &M, root: u64, va: u64, lows: &[u32]) -> Option<(Seen, u64, u64)> {
    let mut table = root;
    for &low in lows {
        let at = table + 8 * bits(va, low + 8, low);
        let word = memory.read_u64(PhysAddr::new(at)).unwrap();
        if word & 1 == 0 {
            return None;
        }
        assert_eq!(bits(word, 58, 54), 0, "reserved");
        if bits(word, 3, 1) == 0 {
            assert!(low > 12, "a link at the last level");
            assert_eq!((bits(word, 63, 61), bits(word, 7, 4)), (0, 0), "reserved in a link");
            table = bits(word, 53, 10) << 12;
            continue;
        }
        assert_eq!(bits(word, 1, 1), 1, "all pages can be read");
        assert_eq!(bits(word, 7, 7), bits(word, 2, 2), "D as W");
        let joined = bits(word, 63, 63) == 1;
        let within = bits(va, low - 1, 0) >> 12;
        let (order, frame) = if joined {
            assert_eq!((low, bits(word, 13, 10)), (12, 8), "64 KiB");
            (4, bits(word, 53, 14) << 4 | bits(va, 15, 12))
        } else {
            let frame = bits(word, 53, 10);
            assert_eq!(frame & ((1 << (low - 12)) - 1), 0, "a superpage is aligned");
            (low - 12, frame | within)
        };
        let attributes = Attributes {
            writable: bits(word, 2, 2) == 1,
            user: bits(word, 4, 4) == 1,
            executable: bits(word, 3, 3) == 1,
            global: bits(word, 5, 5) == 1,
            accessed: bits(word, 6, 6) == 1,
            memory: match bits(word, 62, 61) {
                0 => MemoryKind::Normal,
                2 => MemoryKind::Device,
                other => panic!("PBMT {other}"),
            },
        };
        return Some((Seen { frame, order, attributes, ascend: 0, descend: 0 }, at, word));
    }
    None
}

//! Contiguity spread over a line of descriptors: words computed by hand, random lines
//! against the definition, and what the wider read costs.

use crate::system_tables::{DATA, LEAVES, Tables, mmu, read, regime, run};
use proptest::prelude::*;
use swath_arch::{
    Coalescing, ContiguityField, Format, Order, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, Vpn,
};
use swath_hw::{LeafContiguity, SystemConfig, Walk, WalkStep, walk};

const PCAD: Coalescing = Coalescing::Pcad(ContiguityField::Line);

/// The page's contiguity where its table, which `leaves` gives, is the only one.
fn told(format: Format, coalescing: Coalescing, leaves: &[u64], page: u64) -> LeafContiguity {
    let mut words = vec![0; 512 * 16];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let put = |at: u64, word: u64| match format {
        Format::ArmV7 => memory.write_u32(PhysAddr::new(at), word as u32).unwrap(),
        _ => memory.write_u64(PhysAddr::new(at), word).unwrap(),
    };
    let links: &[(u64, u64)] = match format {
        Format::ArmV7 => &[(0, 0x8001)],
        Format::Sv39 => &[(0, 0x1401), (0x5000, 0x2001)],
        Format::Sv48 => &[(0, 0x1001), (0x4000, 0x1401), (0x5000, 0x2001)],
        _ => &[(0, 0x4027), (0x4000, 0x5027), (0x5000, 0x8027)],
    };
    links.iter().for_each(|&(at, word)| put(at, word));
    for (i, &word) in leaves.iter().enumerate() {
        put(0x8000 + i as u64 * format.entry_bytes(), word);
    }
    let regime = Regime { format, root: PhysAddr::new(0), coalescing };
    let mut reads = 0;
    let found = walk(&regime, Vpn::new(page), &memory, &mut reads).unwrap();
    assert_eq!(reads, links.len() as u64 + 1, "the line is one read");
    found.contiguity
}

const fn pcad(ascend: u64, descend: u64) -> LeafContiguity {
    LeafContiguity::Pcad { ascend, descend }
}

/// ARMv7: pages 0 to 4 on frames 16 to 20, pages 5 to 15 from frame 0x900 on. 300 pages
/// precede (0b1_0010_1100, so bit 8 of descriptors 2, 3, 5 and 8), 5 follow (bit 7 of
/// descriptors 0 and 2).
#[test]
fn armv7_by_hand() {
    let mut leaves: Vec<u64> = (0..16)
        .map(|i: u64| (if i < 5 { 0x10 + i } else { 0x900 + i - 5 }) << 12 | 0x83e)
        .collect();
    for i in [2, 3, 5, 8] {
        leaves[i] |= 1 << 8;
    }
    for i in [0, 2] {
        leaves[i] |= 1 << 7;
    }
    let at = |leaves: &[u64], page| told(Format::ArmV7, PCAD, leaves, page);
    assert_eq!(at(&leaves, 0), pcad(4, 300));
    assert_eq!(at(&leaves, 4), pcad(0, 304));
    assert_eq!(at(&leaves, 5), pcad(10 + 5, 0));
    assert_eq!(at(&leaves, 15), pcad(5, 10));
    let anchor = Coalescing::Anchor { field: ContiguityField::Line, distance: Order::known(3) };
    let count = |count| LeafContiguity::Anchor { count };
    assert_eq!(told(Format::ArmV7, anchor, &leaves, 0), count(5));
    assert_eq!(told(Format::ArmV7, anchor, &leaves, 8), count(8 + 5));
    assert_eq!(told(Format::ArmV7, anchor, &leaves, 9), LeafContiguity::None);
    // A page that is not mapped ends the run; its bits count, being the line's.
    leaves[9] &= !3;
    assert_eq!(at(&leaves, 6), pcad(2, 1));
    assert_eq!(at(&leaves, 10), pcad(5 + 5, 0));
    leaves[2] &= !3;
    assert_eq!(at(&leaves, 1), pcad(0, 301));
    // So does one that permits less (AP[2], bit 9).
    leaves[12] |= 1 << 9;
    assert_eq!(at(&leaves, 10), pcad(1, 0));
    assert_eq!(at(&leaves, 12), pcad(0, 0));
}

/// The other formats: eight pages in one run, 0x321 before (four bits a descriptor: 1, 2, 3;
/// seven: 0x21, 6) and 0x85 after (5, 8; 5, 1).
#[test]
fn armv8_and_x86_64_by_hand() {
    let run = |flags: u64| (0..8).map(|i: u64| (0x70 + i) << 12 | flags).collect::<Vec<u64>>();
    let mut v8 = run(0x0060_0000_0000_0f43);
    for (i, (before, after)) in [(1, 5), (2, 8), (3, 0)].into_iter().enumerate() {
        v8[i] |= before << 59 | after << 55;
    }
    let mut x86 = run(0x67);
    // Before: the lowest three bits in 11:9, four in 62:59.
    x86[0] |= (0x21 & 7) << 9 | (0x21 >> 3) << 59 | 5 << 52;
    x86[1] |= 6 << 9 | 1 << 52;
    for (format, leaves) in [(Format::ArmV8, v8), (Format::X86_64, x86)] {
        for page in 0..8 {
            let expected = pcad(7 - page + 0x85, page + 0x321);
            assert_eq!(told(format, PCAD, &leaves, page), expected, "{format:?}");
        }
    }
}

/// A line of pages that mostly go on from one another, with a number in its free bits.
fn line(format: Format) -> impl Strategy<Value = Vec<u64>> {
    let (flags, frames, shift): (u64, u64, u32) = match format {
        Format::ArmV7 => (0x83e, 1 << 20, 12),
        Format::ArmV8 => (0x0060_0000_0000_0f43, 1 << 36, 12),
        Format::X86_64 => (0x67, 1 << 40, 12),
        Format::Sv39 | Format::Sv48 => (0xd7, 1 << 44, 10),
    };
    let free = match format {
        Format::ArmV7 => 0x180,
        Format::ArmV8 => 0x7f80_0000_0000_0000,
        Format::X86_64 => 0x7ff0_0000_0000_0e00,
        Format::Sv39 | Format::Sv48 => 0x1800_0000_0000_0000,
    };
    let first = prop_oneof![0..64_u64, frames - 20..frames];
    let each = (0..12_u32, any::<u64>());
    (first, prop::collection::vec(each, (64 / format.entry_bytes()) as usize)).prop_map(
        move |(first, each)| {
            let mut frame = first;
            let mut words = Vec::new();
            for (what, bits) in each {
                let mut word = (frame % frames) << shift | flags | bits & free;
                match what {
                    // Not mapped, elsewhere, or other rights.
                    0 => word &= !3,
                    1 => frame = bits % frames,
                    2 => word ^= 1 << if format == Format::ArmV7 { 9 } else { 6 },
                    _ => {}
                }
                words.push(word);
                frame += 1;
            }
            words
        },
    )
}

proptest! {
    /// What is told of every page of a random line is what the definition says.
    #[test]
    fn random_lines(
        (format, words) in prop::sample::select(&Format::ALL[..])
            .prop_flat_map(|format| (Just(format), line(format))),
    ) {
        let count = words.len();
        let (address, free, valid, next) = match format {
            Format::ArmV7 => (0xffff_f000_u64, 0x180_u64, 2, 0x1000),
            Format::ArmV8 => (0xffff_ffff_f000, 0x7f80_0000_0000_0000, 1, 0x1000),
            Format::X86_64 => (0xf_ffff_ffff_f000, 0x7ff0_0000_0000_0e00, 1, 0x1000),
            Format::Sv39 | Format::Sv48 => (0x3f_ffff_ffff_fc00, 0x1800_0000_0000_0000, 1, 0x400),
        };
        let joined = |i: usize| {
            let (one, two) = (words[i], words[i + 1]);
            one & two & valid != 0
                && (one & address) + next == two & address
                && one & !address & !free == two & !address & !free
        };
        // A number bit by bit: its n-th bit is bit n % width of descriptor n / width.
        let number = |places: &[u32]| {
            let bit = |n: usize| words[n / places.len()] >> places[n % places.len()] & 1;
            (0..count * places.len()).map(|n| bit(n) << n).sum::<u64>()
        };
        let (before, after) = match format {
            Format::ArmV7 => (number(&[8]), number(&[7])),
            Format::ArmV8 => (number(&[59, 60, 61, 62]), number(&[55, 56, 57, 58])),
            Format::X86_64 => (
                number(&[9, 10, 11, 59, 60, 61, 62]),
                number(&[52, 53, 54, 55, 56, 57, 58]),
            ),
            Format::Sv39 | Format::Sv48 => (number(&[59]), number(&[60])),
        };
        for page in (0..count).filter(|&page| words[page] & valid != 0) {
            let (mut ascend, mut descend) = (0, 0);
            let mut at = page;
            while at + 1 < count && joined(at) {
                at += 1;
                ascend += 1;
            }
            ascend += if at + 1 == count { after } else { 0 };
            at = page;
            while at > 0 && joined(at - 1) {
                at -= 1;
                descend += 1;
            }
            descend += if at == 0 { before } else { 0 };
            prop_assert_eq!(told(format, PCAD, &words, page as u64), pcad(ascend, descend));
        }
    }
}

/// The last read alone takes the line, and only where a line tells something.
#[test]
fn the_line_is_read_last() {
    let mut words = Vec::new();
    let tables = Tables::new(&mut words);
    tables.map(0x10, 0x100, 1, DATA);
    let anchor = Coalescing::Anchor { field: ContiguityField::Line, distance: Order::known(3) };
    let own = Coalescing::Pcad(ContiguityField::Descriptor);
    for (coalescing, page, bytes) in [
        (PCAD, 0x11, [4, 64]),
        (anchor, 0x10, [4, 64]),
        (anchor, 0x11, [4, 4]),
        (own, 0x11, [4, 4]),
    ] {
        tables.map(page, 0x100, 1, DATA);
        let mut walk = Walk::new(&regime(coalescing), Vpn::new(page)).unwrap();
        assert_eq!(walk.next_read_bytes(), bytes[0]);
        assert_eq!(walk.step(&tables.memory), Ok(WalkStep::Read));
        assert_eq!((walk.next_read_bytes(), walk.next_read().raw()), (bytes[1], LEAVES + 4 * page));
    }
    // In time: four beats in place of one.
    let config = SystemConfig::paper();
    let of = |coalescing| run(&config, &tables, [(mmu(coalescing), vec![read(0x10_040)])]);
    let (one, line) = (of(own), of(PCAD));
    assert_eq!(line.total_cycles, one.total_cycles + 3);
    assert_eq!(line.interconnect.read_beats, one.interconnect.read_beats + 3);
}

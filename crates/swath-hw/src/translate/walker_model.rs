//! Walks of random tables, and the blocks that a walk ends with, beside naive ones: every level by the
//! numbers of its format's manual, every block page by page.

extern crate std;

use std::vec::Vec;

use swath_arch::testing::Random;
use swath_arch::{
    Attributes, BusError, Coalescing, ContiguityField, Format, Order, Pfn, PhysAddr, PhysMemory,
    Regime, SliceMemory, Vpn,
};

use crate::translate::line;
use crate::{
    Descriptor, LeafContiguity, TableRights, Translation, TranslationFault, Walk, WalkStep, decode,
    walk,
};

/// Frames of memory, tables all of them.
const FRAMES: u64 = 8;

/// The bits of an address that choose the entry of each level: from which, and how many.
const fn levels(format: Format) -> &'static [(u32, u32)] {
    match format {
        Format::ArmV7 => &[(20, 12), (12, 8)],
        Format::ArmV8 | Format::X86_64 | Format::Sv48 => &[(39, 9), (30, 9), (21, 9), (12, 9)],
        Format::Sv39 => &[(30, 9), (21, 9), (12, 9)],
    }
}

/// Whether a format translates a page: where it has halves, all bits from the highest that it looks at
/// are alike.
fn is_translated(format: Format, page: u64) -> bool {
    let (bits, has_halves) = match format {
        Format::ArmV7 => (20, false),
        Format::ArmV8 => (36, false),
        Format::X86_64 | Format::Sv48 => (36, true),
        Format::Sv39 => (27, true),
    };
    if has_halves {
        [0, (1 << (53 - bits)) - 1].contains(&(page >> (bits - 1)))
    } else {
        page >> bits == 0
    }
}

/// The last frame that a format's descriptors reach.
const fn last_frame(format: Format) -> u64 {
    let bits = match format {
        Format::ArmV7 => 40,
        Format::ArmV8 => 48,
        Format::X86_64 => 52,
        Format::Sv39 | Format::Sv48 => 56,
    };
    (1 << (bits - 12)) - 1
}

const fn entry_bytes(format: Format) -> u64 {
    if matches!(format, Format::ArmV7) { 4 } else { 8 }
}

fn read<M: PhysMemory>(format: Format, at: u64, memory: &M) -> Result<u64, BusError> {
    let at = PhysAddr::new(at);
    if entry_bytes(format) == 4 { memory.read_u32(at).map(u64::from) } else { memory.read_u64(at) }
}

/// The contiguity field of a page that has one.
fn field_of(coalescing: Coalescing, page: Vpn) -> Option<ContiguityField> {
    match coalescing {
        Coalescing::Pcad(field) => Some(field),
        Coalescing::Anchor { field, distance } => {
            (page.raw() % distance.frames() == 0).then_some(field)
        }
        Coalescing::None => None,
    }
}

fn contiguity<M: PhysMemory>(
    regime: &Regime,
    page: Vpn,
    (at, word): (u64, u64),
    memory: &M,
) -> Result<LeafContiguity, BusError> {
    let Regime { format, coalescing, .. } = *regime;
    let Some(field) = field_of(coalescing, page) else { return Ok(LeafContiguity::None) };
    let is_anchor = matches!(coalescing, Coalescing::Anchor { .. });
    let (ascend, descend) = match field {
        ContiguityField::Descriptor if is_anchor => (format.anchor().get(word), 0),
        ContiguityField::Descriptor => (format.ascend().get(word), format.descend().get(word)),
        ContiguityField::Line => {
            let (ascend, descend) = line::contiguity(format, PhysAddr::new(at), memory)?;
            (ascend + u64::from(is_anchor), descend)
        }
        // The lower half of the word counts what follows, the upper what precedes.
        ContiguityField::Beside { bits } => {
            let half = 4 * entry_bytes(format) as u32;
            let word = read(format, at.wrapping_add(4096), memory)?;
            let first = |word: u64| word % (1 << u32::from(bits).min(half));
            (first(word), first(word >> half))
        }
    };
    Ok(match is_anchor {
        true => LeafContiguity::Anchor { count: ascend },
        false => LeafContiguity::Pcad { ascend, descend },
    })
}

/// A walk, and for each of its reads where it reads and how many bytes.
fn naive<M: PhysMemory>(
    regime: &Regime,
    page: Vpn,
    memory: &M,
) -> (Result<Translation, TranslationFault>, Vec<(u64, u64)>) {
    let Regime { format, root, coalescing } = *regime;
    let mut reads = Vec::new();
    if !is_translated(format, page.raw()) {
        return (Err(TranslationFault::NotCanonical { addr: page.address() }), reads);
    }
    let mut table = root.raw();
    let mut all = TableRights::ALL;
    for (level, &(shift, bits)) in (0_u8..).zip(levels(format)) {
        let index = page.address().raw() >> shift & ((1 << bits) - 1);
        let at = table.wrapping_add(index * entry_bytes(format));
        let in_line = field_of(coalescing, page) == Some(ContiguityField::Line);
        let bytes = if in_line && shift == 12 { 64 } else { entry_bytes(format) };
        reads.push((at, bytes));
        let bus = |error| TranslationFault::Bus { level, error };
        let word = match read(format, at, memory) {
            Ok(word) => word,
            Err(error) => return (Err(bus(error)), reads),
        };
        let leaf = match decode(format, level.into(), word) {
            Descriptor::Table { base, rights } => {
                table = base.raw();
                all.writable &= rights.writable;
                all.user &= rights.user;
                all.executable &= rights.executable;
                continue;
            }
            Descriptor::Leaf(leaf) => leaf,
            Descriptor::Invalid => {
                return (Err(TranslationFault::Translation { page, level }), reads);
            }
            Descriptor::Reserved => {
                let at = PhysAddr::new(at);
                return (Err(TranslationFault::Reserved { level, at, descriptor: word }), reads);
            }
        };
        let frame = leaf.frame.raw() + page.raw() % leaf.entry_order.frames();
        let inside = leaf.order.frames();
        if leaf.order > leaf.entry_order && frame % inside != page.raw() % inside {
            let at = PhysAddr::new(at);
            return (Err(TranslationFault::Reserved { level, at, descriptor: word }), reads);
        }
        let contiguity = match leaf.order {
            Order::BASE => contiguity(regime, page, (at, word), memory).map_err(bus),
            _ => Ok(LeafContiguity::None),
        };
        let attributes = Attributes {
            writable: leaf.attributes.writable && all.writable,
            user: leaf.attributes.user && all.user,
            executable: leaf.attributes.executable && all.executable,
            ..leaf.attributes
        };
        let (frame, order) = (Pfn::new(frame), leaf.order);
        let found =
            contiguity.map(|contiguity| Translation { frame, order, attributes, contiguity });
        return (found, reads);
    }
    unreachable!("the last level has no tables")
}

/// A descriptor: mostly one that leads to another table or maps a page, as the format says it.
fn descriptor(random: &mut Random, format: Format) -> u64 {
    let (any, next) = (random.word(), random.below(FRAMES));
    // Few frames, so that groups of pages find their places.
    let frame = random.below(64) << 12;
    let flags = any & 0xfff;
    match (format, random.below(8)) {
        (_, 0) => any,
        (Format::ArmV7, 1..5) => next << 12 | any & 0xc00 | 1,
        (Format::ArmV7, _) => any & 0xffff_f000 | flags,
        (Format::ArmV8, 1..5) => next << 12 | 3 | any & 0xf000_0000_0000_0000,
        (Format::ArmV8, 5) => random.below(64) << 21 | 0x401 | any & 0x00f0_0000_0000_00c0,
        (Format::ArmV8, _) => frame | 0x403 | any & 0x7ff0_0000_0000_0ac0,
        (Format::X86_64, 1..5) => next << 12 | 1 | any & 0x8000_0000_0000_0006,
        (Format::X86_64, 5) => random.below(64) << 21 | 0x81 | any & 0x8000_0000_0000_0006,
        (Format::X86_64, _) => frame | 1 | any & 0xfff0_0000_0000_0e7e,
        (Format::Sv39 | Format::Sv48, 1..5) => next << 10 | 1,
        (Format::Sv39 | Format::Sv48, 5) => random.below(64) << 19 | 0x43 | any & 0xbc,
        (Format::Sv39 | Format::Sv48, _) => {
            let flags = 0x43 | any & 0x1800_0000_0000_03bc;
            match random.below(4) {
                // 64 KiB.
                0 => 1 << 63 | frame >> 2 & !0x3c00 | 1 << 13 | flags,
                _ => frame >> 2 | flags,
            }
        }
    }
}

fn coalescing(random: &mut Random) -> Coalescing {
    let field = match random.below(4) {
        0 => ContiguityField::Descriptor,
        1 => ContiguityField::Line,
        _ => ContiguityField::Beside { bits: random.within(1..33) as u8 },
    };
    match random.below(3) {
        0 => Coalescing::None,
        1 => Coalescing::Pcad(field),
        _ => Coalescing::Anchor { field, distance: Order::known(random.within(1..5) as u8) },
    }
}

#[test]
fn walks_of_random_tables_agree_with_a_naive_walk() {
    let mut counts = [[0; 2]; Format::ALL.len()];
    for seed in 0..300 {
        let format = Format::ALL[seed as usize % Format::ALL.len()];
        let mut random = Random::new(seed);
        let mut words: Vec<u64> = (0..512 * FRAMES)
            .map(|_| match format {
                Format::ArmV7 => {
                    let pair = [0, 1].map(|_| descriptor(&mut random, format) & 0xffff_ffff);
                    pair[1] << 32 | pair[0]
                }
                _ => descriptor(&mut random, format),
            })
            .collect();
        let memory = SliceMemory::new(Pfn::new(0), &mut words);
        for _ in 0..400 {
            let root = if random.one_in(50) { u64::MAX - 4095 } else { 0 };
            let regime =
                Regime { format, root: PhysAddr::new(root), coalescing: coalescing(&mut random) };
            let page = match random.below(4) {
                0 => random.word() >> 12,
                1 => (1 << 52) - 1 - random.below(1 << 20),
                _ => random.word() & ((1 << random.below(38)) - 1),
            };
            let page = Vpn::new(page);
            let (expected, reads) = naive(&regime, page, &memory);
            let what = std::format!("seed {seed}, {regime:?}, {page}");
            let mut counted = 0;
            assert_eq!(walk(&regime, page, &memory, &mut counted), expected, "{what}");
            assert_eq!(counted, reads.len() as u64, "{what}");
            if let Ok(found) = expected {
                counts[format as usize][usize::from(found.order > Order::BASE)] += 1;
            }
            let mut walk = match Walk::new(&regime, page) {
                Ok(walk) => walk,
                Err(fault) => {
                    assert_eq!(Err(fault), expected, "{what}");
                    continue;
                }
            };
            assert_eq!(walk.page(), page);
            for (nth, &(at, bytes)) in reads.iter().enumerate() {
                assert_eq!(usize::from(walk.level()), nth, "{what}");
                assert_eq!((walk.next_read().raw(), walk.next_read_bytes()), (at, bytes), "{what}");
                let step = walk.step(&memory);
                if nth + 1 < reads.len() {
                    assert_eq!(step, Ok(WalkStep::Read), "{what}");
                    let other = Vpn::new(page.raw() ^ 1);
                    assert_eq!((walk.for_page(other).page(), walk.for_page(page)), (other, walk));
                } else {
                    assert_eq!(step, expected.map(WalkStep::Done), "{what}");
                }
            }
            // What more steps do means nothing, and does no harm.
            let _ = walk.step(&memory);
        }
    }
    let few = |counts: &[u32; 2]| counts.iter().any(|&count| count < 500);
    assert!(!counts.iter().any(few), "{counts:?}");
}

/// Near every end of what a format translates and of the frames that it reaches.
#[test]
fn blocks_agree_with_those_of_single_pages() {
    let mut random = Random::new(1);
    for format in Format::ALL {
        let last = (1 << 52) - 1;
        let ends: Vec<u64> = (0..=52)
            .flat_map(|k| [(1_u64 << k) - 1, (1 << 52) - (1 << k)])
            .filter(|&page| page <= last && is_translated(format, page))
            .collect();
        for _ in 0..20_000 {
            let end = ends[random.index(ends.len())];
            let page = (end + random.below(40)).saturating_sub(20).min(last);
            let ends = [0, last_frame(format), 1 << random.below(28)];
            let frame = (ends[random.index(3)] + random.below(40)).saturating_sub(20);
            let frame = frame.min(last_frame(format));
            if !is_translated(format, page) {
                continue;
            }
            let (ascend, descend) = (random.below(24), random.below(24));
            let k = [0, 0, 0, 1, 4][random.index(5)];
            // A superpage lies within what is translated, and its frame as its page.
            let frame = if k > 0 { (frame >> k << k) + page % (1 << k) } else { frame };
            let contiguity = match random.below(3) {
                0 => LeafContiguity::None,
                1 => LeafContiguity::Anchor { count: ascend },
                _ if k > 0 => LeafContiguity::None,
                _ => LeafContiguity::Pcad { ascend, descend },
            };
            let (before, after) = match contiguity {
                LeafContiguity::Pcad { ascend, descend } => (descend, ascend),
                _ => (page % (1 << k), (1 << k) - 1 - page % (1 << k)),
            };
            let is_there = |distance: i64| {
                let page = page.checked_add_signed(distance);
                let frame = frame.checked_add_signed(distance);
                page.is_some_and(|page| page <= last && is_translated(format, page))
                    && frame.is_some_and(|frame| frame <= last_frame(format))
            };
            let after = (1..=after as i64).take_while(|&n| is_there(n)).count() as u64;
            let before = (1..=before as i64).take_while(|&n| is_there(-n)).count() as u64;
            let order = Order::known(k);
            let (attributes, at) = (Attributes::USER_DATA, Pfn::new(frame));
            let found = Translation { frame: at, order, attributes, contiguity };
            let (pages, frames) = found.block(format, Vpn::new(page));
            let what = std::format!("{format:?}, page {page:#x}: {found:?}");
            assert_eq!(
                (pages.start.raw(), pages.count),
                (page - before, before + after + 1),
                "{what}"
            );
            assert_eq!((frames.start.raw(), frames.count), (frame - before, pages.count), "{what}");
        }
    }
}

//! Tables as systems leave them, spoiled in places: most pages mapped, old words anywhere.

use swath_arch::testing::Random;
use swath_arch::{
    BusError, NodeTables, Pfn, PhysAddr, PhysMemory, SliceMemory, ValidityTables, validity,
};
use swath_hw::{PageTable, RtTables};

use crate::unit::{Registers, Scheme};

/// The frame at which memory begins.
pub const FIRST: Pfn = Pfn::new(0x100);
/// Frames of memory.
pub const FRAMES: u64 = 16;

/// Memory that does not answer at some addresses, always the same for a salt.
pub struct Faulty<'m> {
    pub inner: SliceMemory<'m>,
    /// 0: every address answers.
    pub salt: u64,
}

impl Faulty<'_> {
    fn fails(&self, addr: PhysAddr) -> bool {
        let mixed = (addr.raw() ^ self.salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.salt != 0 && mixed >> 59 == 0
    }
}

impl PhysMemory for Faulty<'_> {
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        if self.fails(addr) {
            Err(BusError { addr, len_bytes: 4 })
        } else {
            self.inner.read_u32(addr)
        }
    }

    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        if self.fails(addr) {
            Err(BusError { addr, len_bytes: 8 })
        } else {
            self.inner.read_u64(addr)
        }
    }

    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        self.inner.write_u32(addr, value)
    }

    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        self.inner.write_u64(addr, value)
    }
}

/// The tables of a space: for the model, and as registers of the unit.
pub struct Tables {
    pub model: RtTables,
    pub registers: Registers,
    scheme: Scheme,
    pages_log2: u32,
}

impl Tables {
    /// Writes tables of a random size and place.
    pub fn random(scheme: Scheme, memory: &dyn PhysMemory, random: &mut Random) -> Self {
        let base = FIRST.address().raw();
        let mut registers = Registers::default();
        let (pages_log2, model) = match scheme {
            Scheme::Arrays => {
                let pages_log2 = random.within(5..11) as u32;
                let len_bytes = validity::ENTRY_BYTES << pages_log2;
                // Now and then an array that overlaps another, or for which there is no memory.
                let mut at = |i: u64| {
                    let shift = if random.one_in(8) { 4 * random.below(64) } else { 0 };
                    let beyond = if random.one_in(32) { FRAMES << 12 } else { 0 };
                    PhysAddr::new(base + i * len_bytes + shift + beyond)
                };
                let tables = ValidityTables {
                    pages_log2,
                    regions: at(0),
                    stack_end: at(1),
                    helper: at(2),
                    stack: at(3),
                    data: at(4),
                };
                let ValidityTables { regions, stack_end, helper, stack, data, .. } = tables;
                registers.base = [regions, stack_end, helper, stack, data].map(PhysAddr::raw);
                fill_arrays(&tables, memory, random);
                (pages_log2, RtTables::regions(tables))
            }
            Scheme::Nodes => {
                let pages_log2 = random.within(1..41) as u32;
                let tables = NodeTables { pages_log2, root: FIRST };
                registers.base[0] = base;
                registers.root_level = tables.levels() as u8 - 1;
                for frame in 0..FRAMES {
                    fill_node(FIRST.checked_add(frame).expect("few frames"), memory, random);
                }
                (pages_log2, RtTables::nodes(tables))
            }
            Scheme::PageTable => {
                let pages_log2 = random.within(5..14) as u32;
                let shift = if random.one_in(8) { 4 * random.below(64) } else { 0 };
                let table = PageTable { pages_log2, base: PhysAddr::new(base + shift) };
                registers.base[4] = table.base.raw();
                for page in 0..1 << pages_log2 {
                    let _ = memory.write_u32(table.base + 4 * page, frame_word(random) as u32);
                }
                (pages_log2, RtTables::page_table(table))
            }
        };
        registers.pages_mask = (1 << pages_log2) - 1;
        Self { model: model.expect("tables that can be read"), registers, scheme, pages_log2 }
    }

    /// Spoils one word of memory.
    pub fn spoil(&self, memory: &dyn PhysMemory, random: &mut Random) {
        let addr = FIRST.address() + 8 * random.below(FRAMES * 512);
        let _ = match self.scheme {
            Scheme::Nodes => {
                let node = FIRST.checked_add(random.below(FRAMES)).expect("few frames");
                let place = random.below(256);
                write_entry(node, place, memory, random)
            }
            _ => memory.write_u32(addr, garbage(1 << self.pages_log2, random) as u32),
        };
    }

    /// Draws a page: one of the space or, seldom, beyond.
    pub fn page(&self, random: &mut Random) -> u64 {
        if random.one_in(64) { random.word() >> 12 } else { random.below(1 << self.pages_log2) }
    }
}

/// Draws a number that is dangerous among `count`.
fn garbage(count: u64, random: &mut Random) -> u64 {
    match random.below(8) {
        0 => u64::from(u32::MAX),
        1 => random.word() & 0xffff_ffff,
        2 => count,
        _ => random.below(count),
    }
}

/// Draws a frame and rights: most often all of them.
fn frame_word(random: &mut Random) -> u64 {
    let rights = if random.one_in(4) { random.below(8) } else { 7 };
    random.word() & 0xffff_fff8 | rights
}

fn fill_arrays(tables: &ValidityTables, memory: &dyn PhysMemory, random: &mut Random) {
    let count = 1_u64 << tables.pages_log2;
    let write = |base: PhysAddr, index: u64, word: u64| {
        // There is not everywhere memory.
        let _ = memory.write_u32(base + validity::ENTRY_BYTES * index, word as u32);
    };
    let mut start = 0;
    while start < count {
        let len = random.within(1..65).min(count - start);
        let mut end = start;
        for page in start..start + len {
            if random.one_in(8) {
                for base in [tables.regions, tables.helper, tables.stack_end] {
                    write(base, page, garbage(count, random));
                }
                continue;
            }
            write(tables.regions, page, start);
            write(tables.helper, page, end);
            write(tables.stack, end, page);
            write(tables.data, page, frame_word(random));
            end += 1;
        }
        write(tables.stack_end, start, if random.one_in(16) { start } else { end });
        start += len;
    }
}

fn fill_node(node: Pfn, memory: &dyn PhysMemory, random: &mut Random) {
    for place in 0..256 {
        write_entry(node, place, memory, random).expect("nodes lie in memory");
    }
}

/// Writes an entry of a node: most often one that is its own region, above any node.
fn write_entry(
    node: Pfn,
    place: u64,
    memory: &dyn PhysMemory,
    random: &mut Random,
) -> Result<(), BusError> {
    let own = random.below(12) < 11;
    let control = if own { place * 0x01_0101 | (place + 1) << 32 } else { random.word() };
    let beyond = u64::from(random.one_in(16));
    let frame = FIRST.raw() + random.below(FRAMES + beyond);
    let data = validity::NODE_FRAME.set(frame_word(random) & 7, frame) | random.word() & 0xff8;
    memory.write_u64(node.address() + 8 * place, data)?;
    memory.write_u64(node.address() + validity::NODE_CONTROL_BYTES + 8 * place, control)
}

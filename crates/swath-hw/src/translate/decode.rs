//! The meaning of one descriptor.
//!
//! A descriptor is invalid, reserved, a pointer to the next table, or a leaf.
//! The functions here look at one word and nothing else; what depends on the
//! address or on earlier levels is the [walker](crate::translate::walker)'s.
//!
//! Control registers are assumed as the modules of `swath-arch` name them, and
//! where those are silent, as follows. ARMv7: no PXN extension (a first-level
//! type of 0b11 is reserved), every domain a client, remap fields that Swath
//! does not use are zero (strongly ordered). ARMv8: `TCR.HPD0 = 1` (table
//! descriptors restrict nothing), `TCR.HD = 0` (DBM means nothing), unused
//! MAIR fields are zero (device). x86-64: `EFER.NXE = 1`, `CR4.PGE = 1`, 52-bit
//! physical addresses, the PAT register as after reset. RISC-V: Svnapot, Svpbmt (`menvcfg.PBMTE = 1`),
//! Svade and Svrsw60t59b; a global link (G in a table's entry) is not looked at, and Swath writes none.

use swath_arch::formats::{armv7, armv8, riscv, x86_64};
use swath_arch::{Attributes, Field, Format, MemoryKind, Order, Pfn, PhysAddr};

/// The rights that the tables above a leaf leave: x86-64 takes the AND over all
/// levels (SDM volume 3A, section 5.6.1); the ARM formats as assumed here
/// restrict nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableRights {
    /// Writes are allowed below.
    pub writable: bool,
    /// Unprivileged accesses are allowed below.
    pub user: bool,
    /// Fetches are allowed below.
    pub executable: bool,
}

impl TableRights {
    /// Everything is allowed.
    pub const ALL: Self = Self { writable: true, user: true, executable: true };

    /// Returns the rights that both leave. O(1).
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            writable: self.writable && other.writable,
            user: self.user && other.user,
            executable: self.executable && other.executable,
        }
    }
}

/// A descriptor that maps a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// The first frame that this descriptor names, aligned to `entry_order`.
    pub frame: Pfn,
    /// The order that the descriptor's own address bits resolve: pages below
    /// it come from the virtual address.
    pub entry_order: Order,
    /// The order of the page: larger than `entry_order` where ARMv8's
    /// contiguous bit joins 16 descriptors.
    pub order: Order,
    /// The attributes of the leaf itself; tables above may permit less.
    pub attributes: Attributes,
}

/// The meaning of one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Descriptor {
    /// Nothing is mapped: hardware reports a translation fault.
    Invalid,
    /// An encoding or a bit that the specification reserves at this level.
    Reserved,
    /// The next table, and what it permits.
    Table {
        /// The table's first byte.
        base: PhysAddr,
        /// The rights that it leaves.
        rights: TableRights,
    },
    /// A page.
    Leaf(Leaf),
}

const fn table(base: u64) -> Descriptor {
    Descriptor::Table { base: PhysAddr::new(base), rights: TableRights::ALL }
}

#[inline(always)]
const fn is(word: u64, field: Field) -> bool {
    word & field.mask() != 0
}

#[inline(always)]
fn leaf(base: u64, entry_order: u8, order: u8, attributes: Attributes) -> Descriptor {
    Descriptor::Leaf(Leaf {
        frame: PhysAddr::new(base).frame(),
        entry_order: Order::known(entry_order),
        order: Order::known(order),
        attributes,
    })
}

/// Decodes the descriptor `word` found at `level`, the root's being 0 as in
/// [`Format::levels`]. A level that the format lacks makes every word
/// [`Descriptor::Reserved`]. In ARMv7 the upper half of `word` is ignored.
/// O(1).
#[inline(always)]
pub fn decode(format: Format, level: usize, word: u64) -> Descriptor {
    match (format, level) {
        (Format::ArmV7, 0) => armv7_first(word),
        (Format::ArmV7, 1) => armv7_second(word),
        (Format::ArmV8, 0..=3) => armv8(level, word),
        (Format::X86_64, 0..=3) => x86_64(level, word),
        (Format::Sv39, 0..=2) => riscv(level + 1, word),
        (Format::Sv48, 0..=3) => riscv(level, word),
        _ => Descriptor::Reserved,
    }
}

#[inline(always)]
const fn remapped(index: u64) -> MemoryKind {
    if index == armv7::REMAP_NORMAL { MemoryKind::Normal } else { MemoryKind::Device }
}

/// {TEX\[0\], C, B}; C and B stand at the same place in all mappings.
#[inline(always)]
fn remap_index(word: u64, tex0: Field) -> u64 {
    tex0.get(word) << 2 | armv7::C.get(word) << 1 | armv7::B.get(word)
}

/// DDI 0406C, section B3.5.1, "Short-descriptor translation table first-level
/// descriptor formats".
#[inline(always)]
fn armv7_first(word: u64) -> Descriptor {
    match armv7::TYPE.get(word) {
        armv7::TYPE_INVALID => Descriptor::Invalid,
        armv7::TYPE_TABLE => table(word & armv7::TABLE_BASE.mask()),
        armv7::TYPE_SECTION => {
            let attributes = Attributes {
                writable: !is(word, armv7::SECTION_AP2),
                user: is(word, armv7::SECTION_AP1),
                executable: !is(word, armv7::SECTION_XN),
                global: !is(word, armv7::SECTION_NG),
                accessed: is(word, armv7::SECTION_AF),
                memory: remapped(remap_index(word, armv7::SECTION_TEX0)),
            };
            if is(word, armv7::SUPERSECTION) {
                let base = word & armv7::SUPERSECTION_BASE.mask()
                    | armv7::SUPERSECTION_BASE_35_32.get(word) << 32
                    | armv7::SUPERSECTION_BASE_39_36.get(word) << 36;
                leaf(base, 12, 12, attributes)
            } else {
                leaf(word & armv7::SECTION_BASE.mask(), 8, 8, attributes)
            }
        }
        _ => Descriptor::Reserved,
    }
}

/// DDI 0406C, section B3.5.1, "Short-descriptor translation table second-level
/// descriptor formats".
#[inline(always)]
fn armv7_second(word: u64) -> Descriptor {
    if is(word, armv7::SMALL) {
        let base = word & armv7::SMALL_BASE.mask();
        leaf(base, 0, 0, armv7_page(word, armv7::SMALL_XN, armv7::SMALL_TEX0))
    } else if armv7::TYPE.get(word) == armv7::TYPE_LARGE {
        let base = word & armv7::LARGE_BASE.mask();
        leaf(base, 4, 4, armv7_page(word, armv7::LARGE_XN, armv7::LARGE_TEX0))
    } else {
        Descriptor::Invalid
    }
}

#[inline(always)]
fn armv7_page(word: u64, xn: Field, tex0: Field) -> Attributes {
    Attributes {
        writable: !is(word, armv7::PAGE_AP2),
        user: is(word, armv7::PAGE_AP1),
        executable: !is(word, xn),
        global: !is(word, armv7::PAGE_NG),
        accessed: is(word, armv7::PAGE_AF),
        memory: remapped(remap_index(word, tex0)),
    }
}

/// DDI 0487, section D8.3.1. Where a block is not allowed (levels 0 and 3) the
/// encoding is reserved.
#[inline(always)]
fn armv8(level: usize, word: u64) -> Descriptor {
    if !is(word, armv8::VALID) {
        return Descriptor::Invalid;
    }
    let base = word & armv8::BASE.mask();
    let order = match (level, is(word, armv8::TABLE_OR_PAGE)) {
        (0..=2, true) => return table(base),
        (1, false) => 18,
        (2, false) => 9,
        (3, true) => 0,
        _ => return Descriptor::Reserved,
    };
    let user = is(word, armv8::AP1);
    let attributes = Attributes {
        writable: !is(word, armv8::AP2),
        user,
        executable: !is(word, if user { armv8::UXN } else { armv8::PXN }),
        global: !is(word, armv8::NG),
        accessed: is(word, armv8::AF),
        memory: if armv8::ATTR_INDEX.get(word) == armv8::ATTR_NORMAL {
            MemoryKind::Normal
        } else {
            MemoryKind::Device
        },
    };
    // At level 1 with the 4 KiB granule the bit joins 16 GiB; the format's
    // table of page sizes leaves that size out, so the bit is not looked at.
    let joined = if level > 1 && is(word, armv8::CONTIGUOUS) { 4 } else { 0 };
    let base = base & !((0x1000 << order) - 1);
    leaf(base, order, order + joined, attributes)
}

/// SDM volume 3A, section 5.5.4, tables 5-15 to 5-20; reserved bits as listed
/// there for a physical address width of 52.
#[inline(always)]
fn x86_64(level: usize, word: u64) -> Descriptor {
    if !is(word, x86_64::P) {
        return Descriptor::Invalid;
    }
    let rights = TableRights {
        writable: is(word, x86_64::RW),
        user: is(word, x86_64::US),
        executable: !is(word, x86_64::XD),
    };
    let base = word & x86_64::BASE.mask();
    let (order, base_field) = match (level, is(word, x86_64::PS)) {
        (0, true) => return Descriptor::Reserved,
        (0..=2, false) => return Descriptor::Table { base: PhysAddr::new(base), rights },
        (1, true) => (18, x86_64::BASE_1G),
        (2, true) => (9, x86_64::BASE_2M),
        _ => (0, x86_64::BASE),
    };
    let page_attribute = if order == 0 { 0 } else { x86_64::LARGE_PAT.mask() };
    if base & !base_field.mask() & !page_attribute != 0 {
        return Descriptor::Reserved;
    }
    let attributes = Attributes {
        writable: rights.writable,
        user: rights.user,
        executable: rights.executable,
        global: is(word, x86_64::G),
        accessed: is(word, x86_64::A),
        // After reset PAT entries 2, 3, 6 and 7 are uncached, the others
        // cacheable (SDM volume 3A, table 13-12): PCD alone decides.
        memory: if is(word, x86_64::PCD) { MemoryKind::Device } else { MemoryKind::Normal },
    };
    leaf(base & base_field.mask(), order, order, attributes)
}

/// The privileged architecture, "Sv39", "Virtual Address Translation Process", steps 3 to 5, with Svnapot
/// and Svpbmt: what is reserved is a page fault. The last level is 3.
#[inline(always)]
fn riscv(level: usize, word: u64) -> Descriptor {
    if !is(word, riscv::V) {
        return Descriptor::Invalid;
    }
    let [readable, writable, executable] = [riscv::R, riscv::W, riscv::X].map(|bit| is(word, bit));
    let frame = riscv::PPN.get(word);
    if is(word, riscv::RESERVED) || writable && !readable {
        return Descriptor::Reserved;
    }
    if !readable && !executable {
        let not_in_a_link =
            [riscv::D, riscv::A, riscv::U, riscv::PBMT, riscv::N].iter().any(|&bit| is(word, bit));
        if level == 3 || not_in_a_link {
            return Descriptor::Reserved;
        }
        return table(frame << swath_arch::BASE_PAGE_SHIFT);
    }
    let mut order = [27, 18, 9, 0][level];
    let mut below = frame & ((1 << order) - 1);
    if is(word, riscv::N) {
        if level != 3 || riscv::PPN_LOW.get(word) != riscv::NAPOT_64K {
            return Descriptor::Reserved;
        }
        (order, below) = (4, 0);
    }
    if below != 0 || riscv::PBMT.get(word) > riscv::PBMT_IO {
        return Descriptor::Reserved;
    }
    // A write to a page that is not dirty faults, as one to a page that cannot be written. Of a page
    // that can be fetched from but not read nothing is known here: Swath makes none.
    let attributes = Attributes {
        writable: writable && is(word, riscv::D),
        user: is(word, riscv::U),
        executable,
        global: is(word, riscv::G),
        accessed: is(word, riscv::A),
        memory: if riscv::PBMT.get(word) == riscv::PBMT_PMA {
            MemoryKind::Normal
        } else {
            MemoryKind::Device
        },
    };
    let base = frame >> order << order << swath_arch::BASE_PAGE_SHIFT;
    leaf(base, order, order, attributes)
}

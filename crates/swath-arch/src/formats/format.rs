//! The translation formats, and what a translation control register
//! would say to the hardware about a table.

use crate::addr::number::{BASE_PAGE_SHIFT, PhysAddr, VirtAddr};
use crate::addr::order::Order;
use crate::formats::field::{Field, Scattered};
use crate::formats::{armv7, armv8, riscv, x86_64};
use crate::word::Word;

/// A page-table format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// ARMv7-A short descriptors: 4 KiB, 64 KiB, 1 MiB and 16 MiB.
    ArmV7,
    /// ARMv8-A with the 4 KiB granule: 4 KiB, 2 MiB and 1 GiB, and 16 of the
    /// first two joined by the contiguous bit.
    ArmV8,
    /// x86-64 with 4 levels: 4 KiB, 2 MiB and 1 GiB.
    X86_64,
    /// RISC-V Sv39: 4 KiB, 2 MiB and 1 GiB, and 64 KiB by 16 entries that are the same.
    Sv39,
    /// RISC-V Sv48: the same sizes; pages of 512 GiB are left out.
    Sv48,
}

/// One level of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// The bits of the virtual address that index the level's tables.
    pub index: Field,
    /// The orders of the pages that an entry (or 16 alike) can map, ascending.
    pub leaves: &'static [Order],
}

const fn level(index: Field, leaves: &'static [Order]) -> Level {
    Level { index, leaves }
}

const ARMV7_LEVELS: [Level; 2] = [
    level(armv7::L1_INDEX, &[Order::known(8), Order::known(12)]),
    level(armv7::L2_INDEX, &[Order::BASE, Order::known(4)]),
];
const ARMV8_LEVELS: [Level; 4] = [
    level(armv8::L0_INDEX, &[]),
    level(armv8::L1_INDEX, &[Order::known(18)]),
    level(armv8::L2_INDEX, &[Order::known(9), Order::known(13)]),
    level(armv8::L3_INDEX, &[Order::BASE, Order::known(4)]),
];
const X86_64_LEVELS: [Level; 4] = [
    level(x86_64::PML4_INDEX, &[]),
    level(x86_64::PDPT_INDEX, &[Order::known(18)]),
    level(x86_64::PD_INDEX, &[Order::known(9)]),
    level(x86_64::PT_INDEX, &[Order::BASE]),
];
const SV48_LEVELS: [Level; 4] = [
    level(riscv::VPN3_INDEX, &[]),
    level(riscv::VPN2_INDEX, &[Order::known(18)]),
    level(riscv::VPN1_INDEX, &[Order::known(9)]),
    level(riscv::VPN0_INDEX, &[Order::BASE, Order::known(4)]),
];

impl Format {
    /// Every format.
    pub const ALL: [Self; 5] = [Self::ArmV7, Self::ArmV8, Self::X86_64, Self::Sv39, Self::Sv48];

    /// The levels of tables, the root's first.
    pub const fn levels(self) -> &'static [Level] {
        match self {
            Self::ArmV7 => &ARMV7_LEVELS,
            Self::ArmV8 => &ARMV8_LEVELS,
            Self::X86_64 => &X86_64_LEVELS,
            Self::Sv39 => SV48_LEVELS.split_at(1).1,
            Self::Sv48 => &SV48_LEVELS,
        }
    }

    /// Bytes in a descriptor: 4 or 8.
    pub const fn entry_bytes(self) -> u64 {
        match self {
            Self::ArmV7 => 4,
            Self::ArmV8 | Self::X86_64 | Self::Sv39 | Self::Sv48 => 8,
        }
    }

    /// The order of the root table, to which it is also aligned: four frames
    /// in ARMv7, one elsewhere.
    pub const fn root_order(self) -> Order {
        match self {
            Self::ArmV7 => Order::known(2),
            Self::ArmV8 | Self::X86_64 | Self::Sv39 | Self::Sv48 => Order::BASE,
        }
    }

    /// Bits in a physical address: 32 (40 for a supersection), 48, 52 or 56.
    pub const fn pa_bits(self) -> u32 {
        match self {
            Self::ArmV7 => 32,
            Self::ArmV8 => 48,
            Self::X86_64 => 52,
            Self::Sv39 | Self::Sv48 => 56,
        }
    }

    /// Returns the bit of a base page's descriptor at which the frame number begins: that of the
    /// address, but in RISC-V two below.
    pub const fn frame_bit(self) -> u32 {
        match self {
            Self::ArmV7 | Self::ArmV8 | Self::X86_64 => BASE_PAGE_SHIFT,
            Self::Sv39 | Self::Sv48 => riscv::PPN.low,
        }
    }

    /// Returns the bits of an address that are translated. In x86-64 and RISC-V the upper ones repeat
    /// the last of them, which tells two halves of the addresses apart; elsewhere they are zero.
    pub const fn va_bits(self) -> u32 {
        match self {
            Self::ArmV7 => 32,
            Self::ArmV8 | Self::X86_64 | Self::Sv48 => 48,
            Self::Sv39 => 39,
        }
    }

    /// Returns true if the addresses have an upper half, in which all upper bits are one.
    pub const fn has_halves(self) -> bool {
        matches!(self, Self::X86_64 | Self::Sv39 | Self::Sv48)
    }

    /// Returns true if the format can translate `addr`: below 2^32 in ARMv7,
    /// below 2^48 in ARMv8 (the range of `TTBR0`), canonical in x86-64 and RISC-V.
    #[inline]
    pub fn is_canonical<W: Word>(self, addr: VirtAddr<W>) -> bool {
        let bits = self.va_bits();
        if !self.has_halves() {
            return addr.raw() >> bits as usize == W::ZERO;
        }
        let high = addr.raw() >> (bits - 1) as usize;
        high == W::ZERO || high == W::from((1 << (65 - bits)) - 1)
    }

    /// The distance between the format's page sizes that PBS calls
    /// Granularity: 4 in ARMv7, 9 in ARMv8 and x86-64 (section IV-B), and so in RISC-V.
    pub const fn granularity(self) -> Order {
        match self {
            Self::ArmV7 => Order::known(4),
            Self::ArmV8 | Self::X86_64 | Self::Sv39 | Self::Sv48 => Order::known(9),
        }
    }

    /// Returns the bits of a base page's descriptor that hold PCAD's Ascend.
    pub const fn ascend(self) -> Scattered {
        match self {
            Self::ArmV7 => armv7::ASCEND,
            Self::ArmV8 => armv8::ASCEND,
            Self::X86_64 => x86_64::ASCEND,
            Self::Sv39 | Self::Sv48 => riscv::ASCEND,
        }
    }

    /// Returns the bits of a base page's descriptor that hold PCAD's Descend.
    pub const fn descend(self) -> Scattered {
        match self {
            Self::ArmV7 => armv7::DESCEND,
            Self::ArmV8 => armv8::DESCEND,
            Self::X86_64 => x86_64::DESCEND,
            Self::Sv39 | Self::Sv48 => riscv::DESCEND,
        }
    }

    /// Returns the bits of a base page's descriptor that hold an anchor's
    /// contiguity.
    pub const fn anchor(self) -> Scattered {
        match self {
            Self::ArmV7 => armv7::ANCHOR,
            Self::ArmV8 => armv8::ANCHOR,
            Self::X86_64 => x86_64::ANCHOR,
            Self::Sv39 | Self::Sv48 => riscv::ANCHOR,
        }
    }

    /// The half of a [`ContiguityField::Beside`] entry that holds Descend:
    /// the upper one; Ascend and an anchor's contiguity stand in the lower.
    pub const fn beside_half_bits(self) -> u32 {
        self.entry_bytes() as u32 * 4
    }
}

/// The place in which the contiguity of a base page is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ContiguityField {
    /// In the bits that the format leaves free: what a real table can do.
    Descriptor,
    /// In the same bits of all the descriptors of a line, taken together: also what a
    /// real table can do, for hardware that takes in the 64 bytes that a walk's last read
    /// can bring. Layout and rules stand in [`line`](crate::formats::line).
    Line,
    /// The ideal: every leaf table takes two frames, aligned to two, and the
    /// word for the entry at address `a` stands at `a + 4096`. It arrives with
    /// the descriptor, at no cost. Ascend (or an anchor's contiguity) is its
    /// lower half, Descend its upper. It is for the papers' block sizes, which do not
    /// fit into a descriptor: blocks of 256 pages need sixteen bits, ARMv7 leaves two.
    Beside {
        /// The width of each number in bits: 1 to 16 in ARMv7, 1 to 32
        /// elsewhere. A longer run saturates.
        bits: u8,
    },
}

/// The way in which a table says what is contiguous.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Coalescing {
    /// It does not: one base page to a TLB entry (the papers' TRAD).
    None,
    /// PCAD: each base page's descriptor says how many pages of the same block
    /// follow (Ascend) and precede it (Descend).
    Pcad(ContiguityField),
    /// AT: every page whose number is a multiple of the distance is an
    /// anchor; its descriptor says how many contiguous pages begin there.
    Anchor {
        /// The place in which the contiguity is written.
        field: ContiguityField,
        /// log2 of the distance in pages: 1 to 16.
        distance: Order,
    },
}

/// All that the hardware is told about a table: format, root and coalescing, as
/// translation control registers would hold them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Regime {
    /// The format of every table.
    pub format: Format,
    /// The root table.
    pub root: PhysAddr,
    /// The contiguity that the base pages' descriptors state besides.
    pub coalescing: Coalescing,
}

/// The kind of memory that a mapping reaches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MemoryKind {
    /// Normal, cacheable, write-back.
    #[default]
    Normal,
    /// Device: no caching, no speculation.
    Device,
}

/// The permissions and flags of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes {
    /// Writes are allowed.
    pub writable: bool,
    /// Unprivileged code may access it.
    pub user: bool,
    /// Instructions may be fetched from it.
    pub executable: bool,
    /// The same in every address space.
    pub global: bool,
    /// It has been accessed.
    pub accessed: bool,
    /// The kind of memory.
    pub memory: MemoryKind,
}

impl Attributes {
    /// User data: readable, writable, not executable, already marked accessed.
    pub const USER_DATA: Self = Self {
        writable: true,
        user: true,
        executable: false,
        global: false,
        accessed: true,
        memory: MemoryKind::Normal,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The indices of the levels tile the address from the top down to the
    /// page offset, and what a leaf maps is what lies below its index.
    #[test]
    fn levels_tile_the_address() {
        for format in Format::ALL {
            let levels = format.levels();
            for pair in levels.windows(2) {
                assert_eq!(pair[0].index.low, pair[1].index.low + pair[1].index.width);
            }
            assert_eq!(levels[levels.len() - 1].index.low, BASE_PAGE_SHIFT);
            for level in levels {
                for (i, leaf) in level.leaves.iter().enumerate() {
                    let joined = [0, 4][i];
                    assert_eq!(leaf.k() + BASE_PAGE_SHIFT, level.index.low + joined);
                }
            }
        }
    }

    /// The widths documented in each format's module.
    #[test]
    fn free_widths() {
        let widths = |f: Format| (f.ascend().width(), f.descend().width(), f.anchor().width());
        assert_eq!(widths(Format::ArmV7), (1, 1, 2));
        assert_eq!(widths(Format::ArmV8), (4, 4, 9));
        assert_eq!(widths(Format::X86_64), (7, 7, 14));
        assert_eq!(widths(Format::Sv39), (1, 1, 3));
        assert_eq!(widths(Format::Sv48), (1, 1, 3));
    }

    /// Contiguity never lies on a bit that means something to the hardware.
    #[test]
    fn contiguity_is_disjoint_from_all_other_fields() {
        let mask = |s: Scattered| s.0.iter().fold(0, |m, f| m | f.mask());
        let armv7 = [
            armv7::SMALL_BASE,
            armv7::SMALL_XN,
            armv7::SMALL_TEX0,
            armv7::PAGE_NG,
            armv7::PAGE_S,
            armv7::PAGE_AP2,
            armv7::PAGE_AP1,
            armv7::PAGE_AF,
            armv7::C,
            armv7::B,
            armv7::SMALL,
        ];
        let armv8 = [
            armv8::VALID,
            armv8::TABLE_OR_PAGE,
            armv8::BASE,
            armv8::ATTR_INDEX,
            armv8::AP1,
            armv8::AP2,
            armv8::SH,
            armv8::AF,
            armv8::NG,
            armv8::DBM,
            armv8::CONTIGUOUS,
            armv8::PXN,
            armv8::UXN,
        ];
        let x86_64 = [
            x86_64::P,
            x86_64::RW,
            x86_64::US,
            x86_64::PWT,
            x86_64::PCD,
            x86_64::A,
            x86_64::D,
            x86_64::PAT,
            x86_64::G,
            x86_64::BASE,
            x86_64::XD,
        ];
        let riscv = [
            riscv::V,
            riscv::R,
            riscv::W,
            riscv::X,
            riscv::U,
            riscv::G,
            riscv::A,
            riscv::D,
            riscv::FOREIGN,
            riscv::PPN,
            riscv::RESERVED,
            riscv::PBMT,
            riscv::N,
        ];
        let meant: [(Format, &[Field]); 5] = [
            (Format::ArmV7, &armv7),
            (Format::ArmV8, &armv8),
            (Format::X86_64, &x86_64),
            (Format::Sv39, &riscv),
            (Format::Sv48, &riscv),
        ];
        for (format, fields) in meant {
            let taken = fields.iter().fold(0, |m, f| m | f.mask());
            assert_eq!(taken & mask(format.anchor()), 0);
            assert_eq!(taken & (mask(format.ascend()) | mask(format.descend())), 0);
            assert_eq!(mask(format.ascend()) & mask(format.descend()), 0);
        }
        // Small pages use every one of the 32 bits, the contiguity included.
        let all = armv7.iter().fold(mask(Format::ArmV7.anchor()), |m, f| m | f.mask());
        assert_eq!(all, 0xffff_ffff);
    }

    #[test]
    fn canonical_addresses() {
        let at = VirtAddr::new;
        assert!(Format::X86_64.is_canonical(at(0xffff_8000_0000_0000)));
        assert!(!Format::X86_64.is_canonical(at(0x0000_8000_0000_0000)));
        assert!(!Format::ArmV8.is_canonical(at(1 << 48)));
        assert!(!Format::ArmV7.is_canonical(at(1 << 32)));
        assert!(Format::Sv39.is_canonical(at(0x0000_003f_ffff_ffff)));
        assert!(!Format::Sv39.is_canonical(at(0x0000_0040_0000_0000)));
        assert!(Format::Sv39.is_canonical(at(0xffff_ffc0_0000_0000)));
        assert!(!Format::Sv39.is_canonical(at(0xffff_ffbf_ffff_ffff)));
        assert!(Format::Sv48.is_canonical(at(0xffff_8000_0000_0000)));
        assert!(!Format::Sv48.is_canonical(at(0x0000_8000_0000_0000)));
    }
}

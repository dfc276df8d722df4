//! Descriptors as words: what an entry maps, or which table it points to.
//!
//! Two things stand in a descriptor that the hardware does not look at.
//!
//! **Who owns the frames.** A space gives back the frames that it took itself
//! and leaves alone what it was told to map. Contiguity may fill every bit that
//! a format leaves to software, so the mark of a *foreign* frame is a bit that
//! the assumed control registers make meaningless: ARMv7 clears S (PRRR.NS0 =
//! NS1 and DS0 = DS1, so that both values of S mean shareable, DDI 0406C
//! section B3.8.3); ARMv8 says outer in place of inner shareable (which
//! includes it); x86-64 sets PAT (entries 4 to 7 of `IA32_PAT` repeat 0 to 3,
//! as they do after reset, SDM volume 3A, section 11.12.4). RISC-V has a bit left for it among
//! those of software.
//!
//! **What an entry was.** [`suspend`] makes a leaf invalid without losing what
//! it said, and [`resume`] makes it valid again, so that an unmapping that
//! fails half way can be taken back without a copy of the descriptors. An entry
//! is empty when it is invalid, whatever else it says.

use swath_arch::formats::{armv7, armv8, riscv, x86_64};
use swath_arch::{
    Attributes, BASE_PAGE_SHIFT, Field, Format, MemoryKind, Order, Pfn, PhysAddr, Word,
};

/// The most levels that a format has.
pub(crate) const LEVELS_MAX: usize = 4;

/// A shareability of ARMv8 that marks a foreign frame: outer shareable.
const SH_OUTER: u64 = 0b10;

/// The meaning of one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry<W = u64> {
    /// Nothing.
    Empty,
    /// The next table is here.
    Table(PhysAddr<W>),
    /// It maps a page, alone or as one of 16 alike.
    Leaf(Leaf<W>),
}

/// The kind of one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind<W = u64> {
    /// Nothing.
    Empty,
    /// A link to the table here.
    Table(PhysAddr<W>),
    /// A page of this order, alone or as one of 16 alike.
    Leaf(Order),
}

/// The meaning of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Leaf<W = u64> {
    /// The size of the page.
    pub(crate) order: Order,
    /// The first frame of the page.
    pub(crate) frame: Pfn<W>,
    /// Its permissions and kind of memory.
    pub(crate) attributes: Attributes,
    /// True if the space allocated the frames itself.
    pub(crate) owned: bool,
}

/// Bits of a word that have a value if something is so.
#[derive(Clone, Copy)]
struct Rule {
    mask: u64,
    value: u64,
}

impl Rule {
    const NEVER: Self = Self { mask: 0, value: 1 };

    const fn of(field: Field, value: u64) -> Self {
        Self { mask: field.mask(), value: value << field.low }
    }

    #[inline(always)]
    fn holds<W: Word>(self, word: W) -> bool {
        word & W::from(self.mask) == W::from(self.value)
    }
}

/// What tells the words in use at one level of a format apart.
#[derive(Clone, Copy)]
struct LevelRules {
    /// It links a table.
    link: Rule,
    /// Where the table's address, shifted to the right, stands.
    table: u64,
    table_shift: usize,
    /// It is one of 16 alike.
    joined: Rule,
    joined_order: Order,
    entry_order: Order,
}

/// The bit that makes a word valid in all formats but ARMv7.
const VALID: u64 = 1;

/// The rules of each format, in the order of [`Format::ALL`].
static LEVEL_RULES: [[LevelRules; LEVELS_MAX]; Format::ALL.len()] = [
    [armv7_rules(0), armv7_rules(1), armv7_rules(1), armv7_rules(1)],
    [armv8_rules(0), armv8_rules(1), armv8_rules(2), armv8_rules(3)],
    [x86_64_rules(0), x86_64_rules(1), x86_64_rules(2), x86_64_rules(3)],
    [riscv_rules(1), riscv_rules(2), riscv_rules(3), riscv_rules(3)],
    [riscv_rules(0), riscv_rules(1), riscv_rules(2), riscv_rules(3)],
];

const fn armv7_rules(level: usize) -> LevelRules {
    if level == 0 {
        return LevelRules {
            link: Rule::of(armv7::TYPE, armv7::TYPE_TABLE),
            table: armv7::TABLE_BASE.mask(),
            table_shift: 0,
            joined: Rule::of(armv7::SUPERSECTION, 1),
            joined_order: Order::known(12),
            entry_order: Order::known(8),
        };
    }
    LevelRules {
        link: Rule::NEVER,
        table: 0,
        table_shift: 0,
        joined: Rule::of(armv7::SMALL, 0),
        joined_order: Order::known(4),
        entry_order: Order::BASE,
    }
}

const fn armv8_rules(level: usize) -> LevelRules {
    let joined_order = match level {
        3 => Order::known(4),
        2 => Order::known(13),
        _ => entry_order_of_nine_bits(level),
    };
    LevelRules {
        link: if level < 3 { Rule::of(armv8::TABLE_OR_PAGE, 1) } else { Rule::NEVER },
        table: armv8::BASE.mask(),
        table_shift: 0,
        joined: Rule::of(armv8::CONTIGUOUS, 1),
        joined_order,
        entry_order: entry_order_of_nine_bits(level),
    }
}

const fn x86_64_rules(level: usize) -> LevelRules {
    LevelRules {
        link: if level < 3 { Rule::of(x86_64::PS, 0) } else { Rule::NEVER },
        table: x86_64::BASE.mask(),
        table_shift: 0,
        joined: Rule::NEVER,
        joined_order: Order::BASE,
        entry_order: entry_order_of_nine_bits(level),
    }
}

/// Counts levels as Sv48 does: the last is 3.
const fn riscv_rules(depth: usize) -> LevelRules {
    let permissions = riscv::R.mask() | riscv::W.mask() | riscv::X.mask();
    LevelRules {
        link: if depth < 3 { Rule { mask: permissions, value: 0 } } else { Rule::NEVER },
        table: riscv::PPN.mask(),
        table_shift: (BASE_PAGE_SHIFT - riscv::PPN.low) as usize,
        joined: if depth == 3 { Rule::of(riscv::N, 1) } else { Rule::NEVER },
        joined_order: Order::known(4),
        entry_order: entry_order_of_nine_bits(depth),
    }
}

/// Returns true if the hardware would look at the entry at all.
#[inline(always)]
pub(crate) fn in_use<W: Word>(format: Format, word: W) -> bool {
    let bits = if format == Format::ArmV7 { armv7::TYPE.mask() } else { VALID };
    word & W::from(bits) != W::ZERO
}

/// Returns the descriptor of a table. In x86-64 the leaves alone restrict access.
pub(crate) fn table<W: Word>(format: Format, at: PhysAddr<W>) -> W {
    match format {
        Format::ArmV7 => armv7::TYPE.set(at.raw(), armv7::TYPE_TABLE),
        Format::ArmV8 => armv8::TABLE_OR_PAGE.set(armv8::VALID.set(at.raw(), 1), 1),
        Format::X86_64 => x86_64::US.set(x86_64::RW.set(x86_64::P.set(at.raw(), 1), 1), 1),
        Format::Sv39 | Format::Sv48 => riscv::PPN.put(riscv::V.set(W::ZERO, 1), at.frame().raw()),
    }
}

/// Returns the descriptor at `level` of a page of 2^`order` frames whose first is
/// `frame`. For a base page it is the descriptor of frame 0 plus [`word_step`] for each frame before.
pub(crate) fn leaf<W: Word>(format: Format, level: usize, leaf: Leaf<W>) -> W {
    match format {
        Format::ArmV7 => armv7_leaf(level, leaf),
        Format::ArmV8 => armv8_leaf(level, leaf),
        Format::X86_64 => x86_64_leaf(level, leaf),
        Format::Sv39 | Format::Sv48 => riscv_leaf(depth(format, level), leaf),
    }
}

/// Returns the distance of one of 16 alike from the next, as a word: ARMv7 and RISC-V repeat the same
/// word, ARMv8 maps the next piece.
pub(crate) const fn copy_step(format: Format, order_of_entry: Order) -> u64 {
    match format {
        Format::ArmV7 | Format::Sv39 | Format::Sv48 => 0,
        Format::ArmV8 | Format::X86_64 => word_step(format, order_of_entry.frames()),
    }
}

/// Returns the distance of a leaf's word from that of a page so many frames further.
#[inline(always)]
pub(crate) const fn word_step(format: Format, frames: u64) -> u64 {
    frames << format.frame_bit()
}

/// Returns the level as Sv48 would count it: the last is 3.
const fn depth(format: Format, level: usize) -> usize {
    level + 4 - format.levels().len()
}

/// Decodes the word at `level`.
pub(crate) fn decode<W: Word>(format: Format, level: usize, word: W) -> Entry<W> {
    match kind(format, level, word) {
        Kind::Empty => Entry::Empty,
        Kind::Table(table) => Entry::Table(table),
        Kind::Leaf(order) => Entry::Leaf(Leaf {
            order,
            frame: frame(format, order, word),
            attributes: match format {
                Format::ArmV7 => armv7_attributes(level, order, word),
                Format::ArmV8 => armv8_attributes(word),
                Format::X86_64 => x86_64_attributes(word),
                Format::Sv39 | Format::Sv48 => riscv_attributes(word),
            },
            owned: owned(format, level, word),
        }),
    }
}

/// Returns the kind of the word at `level`, which is all that a walk needs. One code for all formats,
/// whose differences are constants: another format costs the others nothing.
#[inline]
pub(crate) fn kind<W: Word>(format: Format, level: usize, word: W) -> Kind<W> {
    if !in_use(format, word) {
        return Kind::Empty;
    }
    let rules = &LEVEL_RULES[format as usize][level % LEVELS_MAX];
    if rules.link.holds(word) {
        let table = (word & W::from(rules.table)) << rules.table_shift;
        return Kind::Table(PhysAddr::of(table));
    }
    Kind::Leaf(if rules.joined.holds(word) { rules.joined_order } else { rules.entry_order })
}

/// Returns the first frame of the page of 2^`order` frames that the leaf maps.
#[inline]
pub(crate) fn frame<W: Word>(format: Format, order: Order, word: W) -> Pfn<W> {
    let address = match format {
        Format::ArmV7 if order.k() == 12 => {
            armv7::SUPERSECTION_BASE_35_32.get(word) << 32
                | armv7::SUPERSECTION_BASE_39_36.get(word) << 36
                | word & W::from(armv7::SUPERSECTION_BASE.mask())
        }
        Format::ArmV7 => word & W::from(armv7::SMALL_BASE.mask()),
        Format::ArmV8 => word & W::from(armv8::BASE.mask()),
        Format::X86_64 => word & W::from(x86_64::BASE.mask()),
        Format::Sv39 | Format::Sv48 => riscv::PPN.get(word) << 12,
    };
    PhysAddr::of(address).frame().align_down(order.k())
}

/// Returns true if the space allocated the leaf's frames itself.
#[inline]
pub(crate) fn owned<W: Word>(format: Format, level: usize, word: W) -> bool {
    match (format, level) {
        (Format::ArmV7, 0) => armv7::SECTION_S.is(word, 1),
        (Format::ArmV7, _) => armv7::PAGE_S.is(word, 1),
        (Format::ArmV8, _) => armv8::SH.is(word, armv8::SH_INNER),
        (Format::X86_64, 3) => x86_64::PAT.is(word, 0),
        (Format::X86_64, _) => x86_64::LARGE_PAT.is(word, 0),
        (Format::Sv39 | Format::Sv48, _) => riscv::FOREIGN.is(word, 0),
    }
}

/// Makes a leaf invalid, keeping all that [`resume`] needs.
pub(crate) fn suspend<W: Word>(format: Format, level: usize, word: W) -> W {
    match format {
        // TEX[0], C and B say one of two things, so C and B are spare: C tells
        // a large page from a small one and B keeps the small page's XN.
        Format::ArmV7 if level == 1 => {
            let small = armv7::SMALL.get(word);
            let xn = small & armv7::SMALL_XN.get(word);
            armv7::B.put(armv7::C.put(armv7::TYPE.set(word, 0), small ^ W::from(1)), xn)
        }
        Format::ArmV7 => armv7::TYPE.set(word, armv7::TYPE_INVALID),
        Format::ArmV8 => armv8::VALID.set(word, 0),
        // The address is inverted: a processor with the L1 terminal fault
        // would go on speculating with it otherwise.
        Format::X86_64 => x86_64::P.set(word, 0) ^ W::from(x86_64::BASE.mask()),
        Format::Sv39 | Format::Sv48 => riscv::V.set(word, 0),
    }
}

/// Makes a leaf valid again that was suspended.
pub(crate) fn resume<W: Word>(format: Format, level: usize, word: W) -> W {
    match format {
        Format::ArmV7 if level == 1 => {
            let large = armv7::C.is(word, 1);
            let (tex0, kind) = if large {
                (armv7::LARGE_TEX0.get(word), W::from(armv7::TYPE_LARGE))
            } else {
                (armv7::SMALL_TEX0.get(word), W::from(0b10) | armv7::B.get(word))
            };
            let cacheable = tex0 ^ W::from(1);
            armv7::TYPE.put(armv7::C.put(armv7::B.put(word, cacheable), cacheable), kind)
        }
        Format::ArmV7 => armv7::TYPE.set(word, armv7::TYPE_SECTION),
        Format::ArmV8 => armv8::VALID.set(word, 1),
        Format::X86_64 => x86_64::P.set(word, 1) ^ W::from(x86_64::BASE.mask()),
        Format::Sv39 | Format::Sv48 => riscv::V.set(word, 1),
    }
}

/// Returns {TEX\[0\], C, B} of a kind of memory.
const fn remap(memory: MemoryKind) -> u64 {
    match memory {
        MemoryKind::Normal => armv7::REMAP_NORMAL,
        MemoryKind::Device => armv7::REMAP_DEVICE,
    }
}

fn armv7_leaf<W: Word>(level: usize, leaf: Leaf<W>) -> W {
    let Leaf { order, frame, attributes: a, owned } = leaf;
    let pa = frame.address().raw();
    let tex_c_b = remap(a.memory);
    let mut word = armv7::C.set(armv7::B.set(W::ZERO, tex_c_b), tex_c_b >> 1);
    let tex0 = tex_c_b >> 2;
    if level == 0 {
        word = armv7::TYPE.set(word, armv7::TYPE_SECTION);
        if order == Order::known(12) {
            word = armv7::SUPERSECTION.set(word, 1);
            word = armv7::SUPERSECTION_BASE.put(word, pa >> 24);
            word = armv7::SUPERSECTION_BASE_35_32.put(word, pa >> 32);
            word = armv7::SUPERSECTION_BASE_39_36.put(word, pa >> 36);
        } else {
            word = armv7::SECTION_BASE.put(word, pa >> 20);
        }
        word = armv7::SECTION_NG.set(word, u64::from(!a.global));
        word = armv7::SECTION_S.set(word, u64::from(owned));
        word = armv7::SECTION_AP2.set(word, u64::from(!a.writable));
        word = armv7::SECTION_AP1.set(word, u64::from(a.user));
        word = armv7::SECTION_AF.set(word, u64::from(a.accessed));
        word = armv7::SECTION_TEX0.set(word, tex0);
        return armv7::SECTION_XN.set(word, u64::from(!a.executable));
    }
    word = armv7::PAGE_NG.set(word, u64::from(!a.global));
    word = armv7::PAGE_S.set(word, u64::from(owned));
    word = armv7::PAGE_AP2.set(word, u64::from(!a.writable));
    word = armv7::PAGE_AP1.set(word, u64::from(a.user));
    word = armv7::PAGE_AF.set(word, u64::from(a.accessed));
    if order == Order::BASE {
        word = armv7::SMALL.set(word, 1);
        word = armv7::SMALL_XN.set(word, u64::from(!a.executable));
        word = armv7::SMALL_TEX0.set(word, tex0);
        armv7::SMALL_BASE.put(word, pa >> 12)
    } else {
        word = armv7::TYPE.set(word, armv7::TYPE_LARGE);
        word = armv7::LARGE_XN.set(word, u64::from(!a.executable));
        word = armv7::LARGE_TEX0.set(word, tex0);
        armv7::LARGE_BASE.put(word, pa >> 16)
    }
}

fn armv7_attributes<W: Word>(level: usize, order: Order, word: W) -> Attributes {
    // B and C say the same in both kinds of memory.
    let memory = if armv7::C.is(word, 1) { MemoryKind::Normal } else { MemoryKind::Device };
    if level == 0 {
        return Attributes {
            writable: armv7::SECTION_AP2.is(word, 0),
            user: armv7::SECTION_AP1.is(word, 1),
            executable: armv7::SECTION_XN.is(word, 0),
            global: armv7::SECTION_NG.is(word, 0),
            accessed: armv7::SECTION_AF.is(word, 1),
            memory,
        };
    }
    let xn = if order == Order::BASE { armv7::SMALL_XN } else { armv7::LARGE_XN };
    Attributes {
        writable: armv7::PAGE_AP2.is(word, 0),
        user: armv7::PAGE_AP1.is(word, 1),
        executable: xn.is(word, 0),
        global: armv7::PAGE_NG.is(word, 0),
        accessed: armv7::PAGE_AF.is(word, 1),
        memory,
    }
}

/// Returns log2 of the base pages that one entry at `level` of a format with four
/// levels of nine bits maps.
const fn entry_order_of_nine_bits(level: usize) -> Order {
    match level {
        0 => Order::known(27),
        1 => Order::known(18),
        2 => Order::known(9),
        _ => Order::BASE,
    }
}

fn armv8_leaf<W: Word>(level: usize, leaf: Leaf<W>) -> W {
    let Leaf { order, frame, attributes: a, owned } = leaf;
    let mut word = armv8::VALID.set(W::ZERO, 1);
    word = armv8::TABLE_OR_PAGE.set(word, u64::from(level == 3));
    word = armv8::BASE.put(word, frame.raw());
    let attr = match a.memory {
        MemoryKind::Normal => armv8::ATTR_NORMAL,
        MemoryKind::Device => armv8::ATTR_DEVICE,
    };
    word = armv8::ATTR_INDEX.set(word, attr);
    word = armv8::AP1.set(word, u64::from(a.user));
    word = armv8::AP2.set(word, u64::from(!a.writable));
    word = armv8::SH.set(word, if owned { armv8::SH_INNER } else { SH_OUTER });
    word = armv8::AF.set(word, u64::from(a.accessed));
    word = armv8::NG.set(word, u64::from(!a.global));
    word = armv8::PXN.set(word, u64::from(!a.executable));
    word = armv8::UXN.set(word, u64::from(!a.executable));
    armv8::CONTIGUOUS.set(word, u64::from(order != entry_order_of_nine_bits(level)))
}

fn armv8_attributes<W: Word>(word: W) -> Attributes {
    Attributes {
        writable: armv8::AP2.is(word, 0),
        user: armv8::AP1.is(word, 1),
        executable: armv8::UXN.is(word, 0),
        global: armv8::NG.is(word, 0),
        accessed: armv8::AF.is(word, 1),
        memory: if armv8::ATTR_INDEX.is(word, armv8::ATTR_NORMAL) {
            MemoryKind::Normal
        } else {
            MemoryKind::Device
        },
    }
}

fn x86_64_leaf<W: Word>(level: usize, leaf: Leaf<W>) -> W {
    let Leaf { frame, attributes: a, owned, .. } = leaf;
    let mut word = x86_64::P.set(W::ZERO, 1);
    word = x86_64::BASE.put(word, frame.raw());
    word = x86_64::RW.set(word, u64::from(a.writable));
    word = x86_64::US.set(word, u64::from(a.user));
    word = x86_64::XD.set(word, u64::from(!a.executable));
    word = x86_64::G.set(word, u64::from(a.global));
    word = x86_64::A.set(word, u64::from(a.accessed));
    // PAT index 0 is write-back, 3 is uncacheable.
    let device = u64::from(a.memory == MemoryKind::Device);
    word = x86_64::PCD.set(x86_64::PWT.set(word, device), device);
    if level == 3 {
        x86_64::PAT.set(word, u64::from(!owned))
    } else {
        x86_64::PS.set(x86_64::LARGE_PAT.set(word, u64::from(!owned)), 1)
    }
}

fn x86_64_attributes<W: Word>(word: W) -> Attributes {
    let device = x86_64::PCD.is(word, 1);
    Attributes {
        writable: x86_64::RW.is(word, 1),
        user: x86_64::US.is(word, 1),
        executable: x86_64::XD.is(word, 0),
        global: x86_64::G.is(word, 1),
        accessed: x86_64::A.is(word, 1),
        memory: if device { MemoryKind::Device } else { MemoryKind::Normal },
    }
}

/// What hardware would record is set at once, as it faults where it is not (Svade).
fn riscv_leaf<W: Word>(depth: usize, leaf: Leaf<W>) -> W {
    let Leaf { order, frame, attributes: a, owned } = leaf;
    let mut word = riscv::R.set(riscv::V.set(W::ZERO, 1), 1);
    word = riscv::PPN.put(word, frame.raw());
    word = riscv::W.set(word, u64::from(a.writable));
    word = riscv::X.set(word, u64::from(a.executable));
    word = riscv::U.set(word, u64::from(a.user));
    word = riscv::G.set(word, u64::from(a.global));
    word = riscv::A.set(word, u64::from(a.accessed));
    word = riscv::D.set(word, u64::from(a.writable));
    word = riscv::FOREIGN.set(word, u64::from(!owned));
    let kind = match a.memory {
        MemoryKind::Normal => riscv::PBMT_PMA,
        MemoryKind::Device => riscv::PBMT_IO,
    };
    word = riscv::PBMT.set(word, kind);
    if order == entry_order_of_nine_bits(depth) {
        return word;
    }
    riscv::N.set(riscv::PPN_LOW.set(word, riscv::NAPOT_64K), 1)
}

fn riscv_attributes<W: Word>(word: W) -> Attributes {
    Attributes {
        writable: riscv::W.is(word, 1),
        user: riscv::U.is(word, 1),
        executable: riscv::X.is(word, 1),
        global: riscv::G.is(word, 1),
        accessed: riscv::A.is(word, 1),
        memory: if riscv::PBMT.is(word, riscv::PBMT_PMA) {
            MemoryKind::Normal
        } else {
            MemoryKind::Device
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns every combination of attributes.
    fn all_attributes() -> impl Iterator<Item = Attributes> {
        (0..64_u32).map(|bits| Attributes {
            writable: bits & 1 != 0,
            user: bits & 2 != 0,
            executable: bits & 4 != 0,
            global: bits & 8 != 0,
            accessed: bits & 16 != 0,
            memory: if bits & 32 != 0 { MemoryKind::Device } else { MemoryKind::Normal },
        })
    }

    /// Each leaf of each level survives encoding, and suspension with any
    /// contiguity in it: exhaustive over attributes, owner and page size.
    #[test]
    fn leaves_round_trip_and_resume() {
        for format in Format::ALL {
            for (level, of_level) in format.levels().iter().enumerate() {
                for &order in of_level.leaves {
                    let bits = if order == Order::known(12) { 40 } else { format.pa_bits() };
                    let last = (1 << (bits - 12 - order.k())) - 1;
                    for index in [0, 1, 0x155 & last, last] {
                        for attributes in all_attributes() {
                            for owned in [false, true] {
                                let frame = Pfn::new(index << order.k());
                                let said = Leaf { order, frame, attributes, owned };
                                let mut word = leaf(format, level, said);
                                assert_eq!(decode(format, level, word), Entry::Leaf(said));
                                if order == Order::BASE {
                                    word = format.anchor().set_saturating(word, index);
                                    assert_eq!(decode(format, level, word), Entry::Leaf(said));
                                }
                                let asleep = suspend(format, level, word);
                                assert_eq!(decode(format, level, asleep), Entry::Empty);
                                assert_eq!(resume(format, level, asleep), word);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn tables_round_trip() {
        for format in Format::ALL {
            let at = PhysAddr::new(0x7fff_f000);
            let levels = format.levels().len();
            for level in 0..levels - 1 {
                assert_eq!(decode(format, level, table(format, at)), Entry::Table(at));
            }
        }
    }
}

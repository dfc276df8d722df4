//! ARMv7-A short-descriptor translation tables.
//!
//! Specification: ARM Architecture Reference Manual ARMv7-A and ARMv7-R
//! (DDI 0406C), section B3.5, figures B3-4 and B3-5. Swath assumes
//! `SCTLR.TRE = 1` (TEX remap), `SCTLR.AFE = 1` (AP\[0\] is the access flag)
//! and `TTBCR.N = 0` (one 16 KiB first-level table for all of the 32 bits).
//!
//! ```text
//! First level (4096 entries of 4 bytes, indexed by VA[31:20])
//!  31        24 23     20 19 18 17 16 15 14  12 11 10  9  8    5  4  3  2  1 0
//! | page table base [31:10]                            | 0| domain |   0    |01| table
//! | base [31:20]         |NS| 0|nG| S|A2|TEX   |AP1:0 | 0| domain |XN| C| B|10| section
//! | base [31:24]| PA35:32|NS| 1|nG| S|A2|TEX   |AP1:0 | 0| PA39:36|XN| C| B|10| supersection, 16 copies
//!
//! Second level (256 entries of 4 bytes, indexed by VA[19:12])
//!  31                   16 15 14  12 11 10  9  8     6  5  4  3  2  1 0
//! | base [31:16]          |XN|TEX   |nG| S|A2|  SBZ   |AP1:0| C| B|01| large page, 16 copies
//! | base [31:12]                    |nG| S|A2|TEX2:0  |AP1:0| C| B|1X| small page (X = XN)
//! ```
//!
//! **What is free for contiguity.** Every bit of a small page descriptor is
//! taken; TEX remap alone gives two back, TEX\[2:1\], which the manual leaves
//! to the operating system (section B3.8.3). So PCAD's Ascend and Descend
//! have **one bit each** here ([`ASCEND`], [`DESCEND`]), and an anchor's
//! contiguity has **two** ([`ANCHOR`]). The papers' block sizes of up to 256
//! need eight: they fit only beside the table
//! ([`crate::ContiguityField::Beside`]), or spread over the 16 descriptors of a
//! [`line`](crate::formats::line).

use crate::formats::field::{Field, Scattered};

/// First and second level: the descriptor's type.
pub const TYPE: Field = Field::bits(1, 0);
/// Type of an entry that faults.
pub const TYPE_INVALID: u64 = 0b00;
/// First level: type of an entry that points to a second-level table.
pub const TYPE_TABLE: u64 = 0b01;
/// First level: type of a section or a supersection.
pub const TYPE_SECTION: u64 = 0b10;
/// Second level: type of a large page.
pub const TYPE_LARGE: u64 = 0b01;
/// Second level: bit 1 marks a small page, whose bit 0 is XN.
pub const SMALL: Field = Field::bit(1);

/// First level: VA bits that index it.
pub const L1_INDEX: Field = Field::bits(31, 20);
/// Second level: VA bits that index it.
pub const L2_INDEX: Field = Field::bits(19, 12);

/// Table descriptor: PA\[31:10\] of the second-level table.
pub const TABLE_BASE: Field = Field::bits(31, 10);
/// Table descriptor and section: domain. Swath uses domain 0.
pub const DOMAIN: Field = Field::bits(8, 5);

/// Section: PA\[31:20\].
pub const SECTION_BASE: Field = Field::bits(31, 20);
/// Marks a supersection among the sections.
pub const SUPERSECTION: Field = Field::bit(18);
/// Supersection: PA\[31:24\].
pub const SUPERSECTION_BASE: Field = Field::bits(31, 24);
/// Supersection: PA\[35:32\].
pub const SUPERSECTION_BASE_35_32: Field = Field::bits(23, 20);
/// Supersection: PA\[39:36\].
pub const SUPERSECTION_BASE_39_36: Field = Field::bits(8, 5);
/// Section: not global.
pub const SECTION_NG: Field = Field::bit(17);
/// Section: shareable; as [`PAGE_S`].
pub const SECTION_S: Field = Field::bit(16);
/// Section: AP\[2\], read-only.
pub const SECTION_AP2: Field = Field::bit(15);
/// Section: TEX\[2:1\], left to software under TEX remap.
pub const SECTION_TEX21: Field = Field::bits(14, 13);
/// Section: TEX\[0\].
pub const SECTION_TEX0: Field = Field::bit(12);
/// Section: AP\[1\], accessible to unprivileged code.
pub const SECTION_AP1: Field = Field::bit(11);
/// Section: AP\[0\], the access flag.
pub const SECTION_AF: Field = Field::bit(10);
/// Section: execute never.
pub const SECTION_XN: Field = Field::bit(4);

/// Large page: PA\[31:16\].
pub const LARGE_BASE: Field = Field::bits(31, 16);
/// Large page: execute never.
pub const LARGE_XN: Field = Field::bit(15);
/// Large page: TEX\[2:1\], left to software under TEX remap.
pub const LARGE_TEX21: Field = Field::bits(14, 13);
/// Large page: TEX\[0\].
pub const LARGE_TEX0: Field = Field::bit(12);

/// Small page: PA\[31:12\].
pub const SMALL_BASE: Field = Field::bits(31, 12);
/// Small page: execute never.
pub const SMALL_XN: Field = Field::bit(0);
/// Small page: TEX\[2:1\], left to software under TEX remap.
pub const SMALL_TEX21: Field = Field::bits(8, 7);
/// Small page: TEX\[0\].
pub const SMALL_TEX0: Field = Field::bit(6);

/// Small and large page: not global.
pub const PAGE_NG: Field = Field::bit(11);
/// Small and large page: shareable. Swath assumes PRRR.NS0 = NS1 and DS0 =
/// DS1, so that both values mean the same and software may keep a mark here.
pub const PAGE_S: Field = Field::bit(10);
/// Small and large page: AP\[2\], read-only.
pub const PAGE_AP2: Field = Field::bit(9);
/// Small and large page: AP\[1\], accessible to unprivileged code.
pub const PAGE_AP1: Field = Field::bit(5);
/// Small and large page: AP\[0\], the access flag.
pub const PAGE_AF: Field = Field::bit(4);

/// All mappings: cacheable.
pub const C: Field = Field::bit(3);
/// All mappings: bufferable.
pub const B: Field = Field::bit(2);

/// {TEX\[0\], C, B} of normal write-back memory in the remap registers that
/// Swath assumes.
pub const REMAP_NORMAL: u64 = 0b011;
/// {TEX\[0\], C, B} of device memory in the same registers.
pub const REMAP_DEVICE: u64 = 0b100;

/// Large pages and supersections stand 16 times, in consecutive entries.
pub const COPIES: u64 = 16;

/// Small page: PCAD's Ascend, one bit: TEX\[1\].
pub const ASCEND: Scattered = Scattered(&[Field::bit(7)]);
/// Small page: PCAD's Descend, one bit: TEX\[2\].
pub const DESCEND: Scattered = Scattered(&[Field::bit(8)]);
/// Small page: an anchor's contiguity, two bits: TEX\[2:1\].
pub const ANCHOR: Scattered = Scattered(&[SMALL_TEX21]);

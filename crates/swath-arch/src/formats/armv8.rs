//! ARMv8-A translation tables, 4 KiB granule, stage 1, 48-bit addresses.
//!
//! Specification: Arm Architecture Reference Manual for A-profile (DDI 0487),
//! section D8.3, "Translation table descriptor formats". Four levels of 512
//! entries of 8 bytes; blocks of 1 GiB (level 1) and 2 MiB (level 2), pages of
//! 4 KiB (level 3).
//!
//! ```text
//!  63  62 59 58 55  54  53  52  51 50 49 48 47              12 11 10  9 8  7  6  5  4   2  1 0
//! |ign|ign  |ign  |UXN|PXN|Con|DBM|GP| RES0|output address    |nG|AF| SH |AP2:1|NS|AttrIdx|11| page
//! |ign|ign  |ign  |UXN|PXN|Con|DBM|GP| RES0|output address..0 |nG|AF| SH |AP2:1|NS|AttrIdx|01| block
//! |        ignored or RES0                 |next-level table  |         ignored           |11| table
//! ```
//!
//! **What is free for contiguity.** Bits 58 to 55 are reserved for software,
//! bits 62 to 59 are ignored as long as page-based hardware attributes (PBHA)
//! and permission indirection are off, bit 63 is ignored: **nine bits**. PCAD
//! gets four for Ascend and four for Descend ([`ASCEND`], [`DESCEND`]), an
//! anchor's contiguity gets all nine ([`ANCHOR`]). Output address bits that a
//! smaller physical address space does not need are RES0, not free.

use crate::formats::field::{Field, Scattered};

/// Bit 0 of every valid descriptor.
pub const VALID: Field = Field::bit(0);
/// Bit 1: a table (levels 0 to 2) or a page (level 3); clear in a block.
pub const TABLE_OR_PAGE: Field = Field::bit(1);
/// PA\[47:12\] of the next table or of the mapping.
pub const BASE: Field = Field::bits(47, 12);
/// Index into the memory attributes (MAIR).
pub const ATTR_INDEX: Field = Field::bits(4, 2);
/// AP\[1\]: accessible to unprivileged code.
pub const AP1: Field = Field::bit(6);
/// AP\[2\]: read-only.
pub const AP2: Field = Field::bit(7);
/// Shareability: inner or outer; it is no part of the permissions, and software
/// may keep a mark in the choice.
pub const SH: Field = Field::bits(9, 8);
/// The access flag.
pub const AF: Field = Field::bit(10);
/// Not global.
pub const NG: Field = Field::bit(11);
/// Dirty bit modifier: with hardware dirty management, a write clears AP\[2\].
pub const DBM: Field = Field::bit(51);
/// One of 16 entries that map one contiguous, aligned range alike.
pub const CONTIGUOUS: Field = Field::bit(52);
/// Privileged execute never.
pub const PXN: Field = Field::bit(53);
/// Unprivileged execute never.
pub const UXN: Field = Field::bit(54);

/// MAIR index of normal write-back memory that Swath assumes.
pub const ATTR_NORMAL: u64 = 0;
/// MAIR index of device memory that Swath assumes.
pub const ATTR_DEVICE: u64 = 1;
/// Inner shareable.
pub const SH_INNER: u64 = 0b11;

/// The number of entries that a set contiguous bit joins.
pub const CONTIGUOUS_ENTRIES: u64 = 16;

/// VA bits that index level 0.
pub const L0_INDEX: Field = Field::bits(47, 39);
/// VA bits that index level 1.
pub const L1_INDEX: Field = Field::bits(38, 30);
/// VA bits that index level 2.
pub const L2_INDEX: Field = Field::bits(29, 21);
/// VA bits that index level 3.
pub const L3_INDEX: Field = Field::bits(20, 12);

/// Page: PCAD's Ascend, four bits.
pub const ASCEND: Scattered = Scattered(&[Field::bits(58, 55)]);
/// Page: PCAD's Descend, four bits.
pub const DESCEND: Scattered = Scattered(&[Field::bits(62, 59)]);
/// Page: an anchor's contiguity, nine bits.
pub const ANCHOR: Scattered = Scattered(&[Field::bits(63, 55)]);

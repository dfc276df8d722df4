//! x86-64 4-level paging.
//!
//! Specification: Intel 64 and IA-32 Architectures Software Developer's
//! Manual, volume 3A, section 5.5 (4-level paging), tables 5-15 to 5-20. Four
//! levels of 512 entries of 8 bytes; pages of 1 GiB (PDPT), 2 MiB (PD) and
//! 4 KiB (PT).
//!
//! ```text
//!  63 62  59 58  52 51                    12 11  9  8  7   6 5  4   3   2  1  0
//! |XD|PKEY  |ign   |address                 |ign  | G|PAT| D| A|PCD|PWT|US|RW| P| 4 KiB page
//! |XD|PKEY  |ign   |address     0  ... |PAT |ign  | G| 1 | D| A|PCD|PWT|US|RW| P| 2 MiB, 1 GiB
//! |XD|ign          |next table              |ign  |ig| 0 |ig| A|PCD|PWT|US|RW| P| table
//! ```
//!
//! **What is free for contiguity.** Bits 11 to 9 and 58 to 52 are ignored;
//! bits 62 to 59 too as long as protection keys are off (`CR4.PKE = 0`,
//! `CR4.PKS = 0`): **fourteen bits**, ten where keys are in use. PCAD gets
//! seven for Ascend and seven for Descend ([`ASCEND`], [`DESCEND`]), an
//! anchor's contiguity gets all fourteen ([`ANCHOR`]).

use crate::formats::field::{Field, Scattered};

/// Present.
pub const P: Field = Field::bit(0);
/// Writable.
pub const RW: Field = Field::bit(1);
/// Accessible to user code.
pub const US: Field = Field::bit(2);
/// Write-through: PAT index bit 0.
pub const PWT: Field = Field::bit(3);
/// Cache disable: PAT index bit 1.
pub const PCD: Field = Field::bit(4);
/// Accessed.
pub const A: Field = Field::bit(5);
/// Dirty.
pub const D: Field = Field::bit(6);
/// PDPT and PD entries: maps a page, not a table.
pub const PS: Field = Field::bit(7);
/// 4 KiB page: PAT index bit 2. Swath assumes that entries 4 to 7 of `IA32_PAT`
/// repeat 0 to 3, as after reset, so that software may keep a mark here.
pub const PAT: Field = Field::bit(7);
/// 2 MiB and 1 GiB page: PAT index bit 2; as [`PAT`].
pub const LARGE_PAT: Field = Field::bit(12);
/// Global.
pub const G: Field = Field::bit(8);
/// PA\[51:12\] of the next table or of a 4 KiB page.
pub const BASE: Field = Field::bits(51, 12);
/// PA\[51:21\] of a 2 MiB page.
pub const BASE_2M: Field = Field::bits(51, 21);
/// PA\[51:30\] of a 1 GiB page.
pub const BASE_1G: Field = Field::bits(51, 30);
/// Protection key.
pub const PKEY: Field = Field::bits(62, 59);
/// Execute disable.
pub const XD: Field = Field::bit(63);

/// VA bits that index the PML4.
pub const PML4_INDEX: Field = Field::bits(47, 39);
/// VA bits that index a PDPT.
pub const PDPT_INDEX: Field = Field::bits(38, 30);
/// VA bits that index a PD.
pub const PD_INDEX: Field = Field::bits(29, 21);
/// VA bits that index a PT.
pub const PT_INDEX: Field = Field::bits(20, 12);

/// 4 KiB page: PCAD's Ascend, seven bits.
pub const ASCEND: Scattered = Scattered(&[Field::bits(58, 52)]);
/// 4 KiB page: PCAD's Descend, seven bits in two pieces.
pub const DESCEND: Scattered = Scattered(&[Field::bits(11, 9), PKEY]);
/// 4 KiB page: an anchor's contiguity, fourteen bits in three pieces.
pub const ANCHOR: Scattered = Scattered(&[Field::bits(58, 52), PKEY, Field::bits(11, 9)]);

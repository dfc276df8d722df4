//! RISC-V Sv39 and Sv48.
//!
//! Specification: The RISC-V Instruction Set Manual, Volume II: Privileged Architecture, "Sv39:
//! Page-Based 39-bit Virtual-Memory System" and "Sv48: Page-Based 48-bit Virtual-Memory System", with the
//! extensions Svnapot (pages of 64 KiB), Svpbmt (kinds of memory), Svade (no bit is set by hardware) and
//! Svrsw60t59b (two more bits for software). Three or four levels of 512 entries of 8 bytes; a leaf may
//! stand at each: pages of 4 KiB, 2 MiB, 1 GiB and, in Sv48, 512 GiB (which [`Format`](crate::Format) leaves out), and 64 KiB by 16
//! entries that are the same.
//!
//! ```text
//!  63 62 61 60 59 58  54 53                          10 9   8 7 6 5 4 3 2 1 0
//! | N|PBMT |RSW' |0     |PPN                           |RSW  |D|A|G|U|X|W|R|V| leaf
//! | 1|PBMT |RSW' |0     |PPN 17..4             | 1 0 0 0 |RSW |D|A|G|U|X|W|R|V| 64 KiB
//! | 0|0    |RSW' |0     |PPN of the next table         |RSW  |0|0|G|0|0|0|0|V| table
//! ```
//!
//! **What is free for contiguity.** Bits 9 and 8, and with Svrsw60t59b bits 60 and 59: **four bits**. One of
//! them ([`FOREIGN`]) says whose the frame is, for no other bit of a leaf could be without a meaning to the
//! hardware. PCAD gets one for Ascend and one for Descend ([`ASCEND`], [`DESCEND`]), an anchor's
//! contiguity gets three ([`ANCHOR`]). A processor without Svrsw60t59b has a page fault for the first two,
//! so that its tables state no contiguity.

use crate::formats::field::{Field, Scattered};

/// Valid.
pub const V: Field = Field::bit(0);
/// Readable. An entry with R, W and X clear leads to a table.
pub const R: Field = Field::bit(1);
/// Writable; only where [`R`] is set.
pub const W: Field = Field::bit(2);
/// Executable.
pub const X: Field = Field::bit(3);
/// Accessible to user code, and to it alone for fetches.
pub const U: Field = Field::bit(4);
/// Global.
pub const G: Field = Field::bit(5);
/// Accessed: if clear, an access faults (Svade).
pub const A: Field = Field::bit(6);
/// Dirty: if clear, a write faults (Svade). Swath sets it where [`W`] is set.
pub const D: Field = Field::bit(7);
/// The lower bit for software: Swath's mark of a frame that the space was given.
pub const FOREIGN: Field = Field::bit(8);
/// The frame number, 44 bits.
pub const PPN: Field = Field::bits(53, 10);
/// The lowest four bits of the frame number, [`NAPOT_64K`] in a page of 64 KiB.
pub const PPN_LOW: Field = Field::bits(13, 10);
/// [`PPN_LOW`] of a page of 64 KiB.
pub const NAPOT_64K: u64 = 0b1000;
/// Reserved.
pub const RESERVED: Field = Field::bits(58, 54);
/// Kind of memory, Svpbmt.
pub const PBMT: Field = Field::bits(62, 61);
/// [`PBMT`]: as the place in physical memory has it, normal.
pub const PBMT_PMA: u64 = 0;
/// [`PBMT`]: not cached, idempotent.
pub const PBMT_NC: u64 = 1;
/// [`PBMT`]: not cached, strongly ordered: a device.
pub const PBMT_IO: u64 = 2;
/// Naturally aligned power of two, Svnapot.
pub const N: Field = Field::bit(63);

/// VA bits that index the root of Sv48.
pub const VPN3_INDEX: Field = Field::bits(47, 39);
/// VA bits that index the root of Sv39.
pub const VPN2_INDEX: Field = Field::bits(38, 30);
/// VA bits that index the tables above the last.
pub const VPN1_INDEX: Field = Field::bits(29, 21);
/// VA bits that index the last tables.
pub const VPN0_INDEX: Field = Field::bits(20, 12);

/// 4 KiB page: PCAD's Ascend, one bit.
pub const ASCEND: Scattered = Scattered(&[Field::bit(60)]);
/// 4 KiB page: PCAD's Descend, one bit.
pub const DESCEND: Scattered = Scattered(&[Field::bit(59)]);
/// 4 KiB page: an anchor's contiguity, three bits in two pieces.
pub const ANCHOR: Scattered = Scattered(&[Field::bits(60, 59), Field::bit(9)]);

//! The tables that a real-time memory management unit (RTMMU) reads: the pages
//! validity array (PVA) and the virtual regions cache (VRC).
//!
//! After *Böhnert and Scholl*, sections IV-A1, IV-A2 and IV-B. In place of a
//! page table, a space of N = 2^k pages has five arrays of N entries. An entry is
//! a word of four bytes; entry i of an array stands at the array's base + 4·i. The
//! bases are registers of the unit ([`ValidityTables`]), so that each array can lie in
//! a memory of its own.
//!
//! | array | paper | entry i says |
//! |---|---|---|
//! | data | d | the frame of page i and the rights to it: [`FRAME`], [`READ`], [`WRITE`], [`EXECUTE`] |
//! | helper | h | where in the stack array page i stands |
//! | stack | s | the page that was mapped as the (i − a + 1)th of the region that starts at a ≤ i |
//! | stack end | sp | one past the last entry of the stack of the region that starts at i |
//! | regions | c, the VRC | the start of the region that page i lies in |
//!
//! # When page b is mapped
//! With a = regions\[b\] and j = helper\[b\], exactly if all of these hold:
//!
//! 1. a ≤ b,
//! 2. a ≤ j < stack_end\[a\],
//! 3. stack\[j\] = b.
//!
//! Then data\[b\] holds its frame. Otherwise, or if data\[b\] lacks the right for the access, the
//! access faults. Numbers are unsigned. A unit that reads helper\[b\] and
//! stack\[j\] before it knows 1 and 2 may find j ≥ N, and then does not read but faults.
//!
//! Only *stack end* is ever initialised, with zeros. Every other word may hold
//! anything until it is first written: it is believed only if the three conditions
//! hold, and then it was written.
//!
//! **One past.** The paper's stack pointer is the last entry in use, so that "empty" is
//! a − 1 and zero means empty for every page but 0; its footnote excludes page 0. That does
//! not suffice: with c\[b\] = h\[b\] = 0 by chance and s\[0\] = b, page b would seem
//! mapped while sp\[0\] is 0. Here the end is one past the last, zero means empty
//! for all pages, and page 0 is a page like others.

//!
//! # Hierarchical tables
//! A sparse space of 2^k pages, k up to 40, has a tree of **nodes**, each a frame. A
//! node has 256 entries; an entry of level l stands for 2^(8·l) pages, and the root
//! has level ⌈k/8⌉ − 1. Entry i is two words of eight bytes: **data** at 8·i, with the
//! frame of the page (level 0) or of the node below, and **control** at 2048 + 8·i, with the four
//! numbers of the arrays for place i, here places of this node.
//!
//! | word | field | says |
//! |---|---|---|
//! | data | [`NODE_FRAME`] | the frame; at level 0 [`READ`], [`WRITE`], [`EXECUTE`] too |
//! | control | [`NODE_STACK`] | s\[i\] |
//! | control | [`NODE_HELPER`] | h\[i\] |
//! | control | [`NODE_REGION`] | c\[i\] |
//! | control | [`NODE_STACK_END`] | sp\[i\], 0 to 256 |
//!
//! Entry i of a node is valid by the same three conditions, within the node. A page is
//! mapped if the entries on its way from the root down are all valid; a
//! node is not read before the entry that leads to it is known to be valid.

use crate::addr::number::{Pfn, PhysAddr};
use crate::formats::field::Field;

/// Bytes of an entry of each array.
pub const ENTRY_BYTES: u64 = 4;

/// Data: the page may be read.
pub const READ: Field = Field::bit(0);
/// Data: the page may be written.
pub const WRITE: Field = Field::bit(1);
/// Data: the page may be executed.
pub const EXECUTE: Field = Field::bit(2);
/// Data: the number of the frame, below 2^29.
pub const FRAME: Field = Field::bits(31, 3);

/// The smallest and the largest k of 2^k pages: a position one past the last page
/// still fits into an entry.
pub const PAGES_LOG2: core::ops::RangeInclusive<u32> = 5..=31;

/// The places of a space's arrays, as an RTMMU has them in its registers. All
/// bases are multiples of [`ENTRY_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValidityTables {
    /// k: the space has pages 0 to 2^k − 1.
    pub pages_log2: u32,
    /// The data array, d.
    pub data: PhysAddr,
    /// The helper array, h.
    pub helper: PhysAddr,
    /// The stack array, s.
    pub stack: PhysAddr,
    /// The array of stack ends, sp.
    pub stack_end: PhysAddr,
    /// The virtual regions cache, c.
    pub regions: PhysAddr,
}

impl ValidityTables {
    /// Bytes of all five arrays: 20 for each of 2^`pages_log2` pages. `pages_log2` is
    /// one of [`PAGES_LOG2`].
    pub const fn len_bytes(pages_log2: u32) -> u64 {
        (5 * ENTRY_BYTES) << pages_log2
    }

    /// The arrays one after another from `base` on, in the order of the fields.
    pub const fn consecutive(pages_log2: u32, base: PhysAddr) -> Self {
        let len_bytes = ENTRY_BYTES << pages_log2;
        Self {
            pages_log2,
            data: base,
            helper: PhysAddr::new(base.raw().saturating_add(len_bytes)),
            stack: PhysAddr::new(base.raw().saturating_add(2 * len_bytes)),
            stack_end: PhysAddr::new(base.raw().saturating_add(3 * len_bytes)),
            regions: PhysAddr::new(base.raw().saturating_add(4 * len_bytes)),
        }
    }
}

/// log2 of the entries of a node.
pub const NODE_ENTRIES_LOG2: u32 = 8;
/// The offset of a node's control words in bytes.
pub const NODE_CONTROL_BYTES: u64 = 2048;
/// Data of a node: the number of the frame.
pub const NODE_FRAME: Field = Field::bits(51, 12);
/// Control of a node: the entry that stands here on a stack.
pub const NODE_STACK: Field = Field::bits(7, 0);
/// Control of a node: where the entry stands on its stack.
pub const NODE_HELPER: Field = Field::bits(15, 8);
/// Control of a node: where the entry's part of a region starts in this node.
pub const NODE_REGION: Field = Field::bits(23, 16);
/// Control of a node: one past the stack that starts here.
pub const NODE_STACK_END: Field = Field::bits(40, 32);

/// The beginning of a tree of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeTables {
    /// k: the space has pages 0 to 2^k − 1.
    pub pages_log2: u32,
    /// The frame of the root.
    pub root: Pfn,
}

impl NodeTables {
    /// Returns the number of levels of nodes: 1 to 5.
    pub const fn levels(self) -> u32 {
        self.pages_log2.div_ceil(NODE_ENTRIES_LOG2)
    }
}

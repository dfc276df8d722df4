//! Open words: where single frames come from.
//!
//! Most requests are for single frames. Were each to look for the smallest
//! block, and to note in the trees what it has left, it would cost more than a
//! free list. So a word of frames is taken out of its tree whole and kept in the struct, and single
//! frames are allocated from it until it is used up: the lowest bit is found,
//! cleared and counted. In the storage its frames are in use meanwhile.
//!
//! ```text
//!  trees of bank 5      0: {3 9}  1: {}  2: {4 7}  ...      open, for users
//!                           |                                bank 5, word 3
//!                           `-- the first word is opened -->  [..1..1.11.....]
//! ```
//!
//! Until then the blocks in it serve no larger request. Whoever needs them, or
//! the exact number of a bank's frames in its record, closes it: that takes as
//! long as freeing a block.

use crate::bits::store::set_bit;

/// In the half of a bank's record that the placement's note shares: the bank is isolated.
pub(crate) const ISOLATED: u32 = 1 << 31;
/// There: see [`BankBlocks::crosses`](crate::zone::bank::blocks::BankBlocks).
pub(crate) const CROSSES: u32 = 1 << 30;
/// There: the bits that are not the placement's.
pub(crate) const FLAGS: u32 = ISOLATED | CROSSES;

/// The word from which single frames of one mobility are allocated, if there is
/// one.
///
/// Invariants of an open word: it has a free frame, and is not wholly free if
/// blocks can be larger than a word; it is in no tree; its bank serves order 0,
/// does not count the word's free frames in its record, and is not isolated.
/// Two open words are two words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// The word's [cell](crate::zone::bank::frames); `usize::MAX` if none is open.
    pub(crate) cell: usize,
    /// Its free frames; 0 if none is open.
    pub(crate) bits: u64,
    /// The number of its first frame.
    pub(crate) first: u64,
    pub(crate) bank: usize,
}

impl Open {
    pub(crate) const NONE: Self = Self { cell: usize::MAX, bits: 0, first: 0, bank: usize::MAX };
}

/// The changes to a bank of which a block was allocated.
pub struct Taken {
    pub(crate) bank: usize,
    /// Frames that the trees have lost.
    pub(crate) filed: u32,
    /// True if the orders that the bank serves have changed.
    pub(crate) reordered: bool,
    /// The bank's record as it is now.
    pub(crate) record: Record,
}

/// The first two words of a bank's record, read once and written once in a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The free frames but for those of open words, and the frames of the zone.
    pub(crate) counts: u64,
    /// The orders that the bank serves, and the placement's note with its flags.
    pub(crate) state: u64,
}

impl Record {
    /// The free frames but for those of open words.
    #[inline(always)]
    pub(crate) const fn filed(self) -> u32 {
        self.counts as u32
    }

    /// The orders that the bank serves.
    #[inline(always)]
    pub(crate) const fn classes(self) -> u32 {
        self.state as u32
    }

    /// Returns true if the bank is isolated.
    #[inline(always)]
    pub(crate) const fn is_isolated(self) -> bool {
        (self.state >> 32) as u32 & ISOLATED != 0
    }

    /// Returns true if the bank's trees have all of it but for `open` frames, and it may rest.
    #[inline(always)]
    pub(crate) const fn is_whole(self, open: u32) -> bool {
        // A record that is none to believe may have more than all.
        let whole = self.filed().wrapping_add(open) == (self.counts >> 32) as u32;
        whole && (self.state >> 32) as u32 & CROSSES == 0
    }

    /// Returns the placement's note, without flags.
    #[inline(always)]
    pub(crate) const fn note(self) -> u32 {
        (self.state >> 32) as u32 & !FLAGS
    }

    /// Notes whether the bank serves an order.
    #[inline(always)]
    pub(crate) fn set_class(&mut self, order: u32, serves: bool) {
        set_bit(&mut self.state, order, serves);
    }

    /// The bit of the state that changes when the bank comes to serve an order: none if it does already.
    #[inline(always)]
    pub(crate) const fn gain(self, order: u32) -> u64 {
        !self.state & 1 << order
    }
}

/// The changes to a bank to which a block was freed.
pub(crate) struct Released {
    /// Frames that the trees have got.
    pub(crate) filed: u32,
    /// True if the orders that the bank serves may have changed.
    pub(crate) reordered: bool,
}

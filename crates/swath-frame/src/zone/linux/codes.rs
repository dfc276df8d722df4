//! The codes of frames and pageblocks in a zone's words.
//!
//! Every code has an even number of ones, so that a single flipped bit makes no
//! other code of it. Which bits count frames of a kind, eight frames at a time,
//! stands beside them.
//!
//! ```text
//!  bit         7 6 5 4   3    2      1       0
//!  hole        0 0 0 0   0    0      0       0
//!  in use      0 0 0 1   0    0   movable    1      movable: bit 4 is 0
//!  tail        0 0 0 1   0    1      0       0      of a free block
//!  head k      ---k---   1  parity   0       0      its first frame
//! ```

use crate::zone::allocator::Mobility;
use crate::zone::linux::build::ORDER_MAX;

/// State of a frame that the zone has not.
pub(crate) const HOLE: u8 = 0;
/// State of a frame in use.
pub(crate) const USED: u8 = 0x11;
/// State of a frame in use by an owner that can be moved.
pub(crate) const USED_MOVABLE: u8 = 0x03;
/// State of a frame of a free block, but for the first.
pub(crate) const TAIL: u8 = 0x14;

/// The bit of frames in use.
pub(crate) const USED_BIT: u32 = 0;
/// The bit of frames in use by owners that can be moved.
pub(crate) const MOVABLE_BIT: u32 = 1;
/// A frame of a free block has this bit or the one of its first frame.
pub(crate) const TAIL_BIT: u32 = 2;
/// The bit of the first frames of free blocks.
pub(crate) const HEAD_BIT: u32 = 3;

const HEADS: [u8; 16] = {
    let mut heads = [0; 16];
    let mut k = 0_u8;
    while k < 16 {
        heads[k as usize] =
            k << 4 | 1 << HEAD_BIT | ((1 + k.count_ones() % 2) as u8 & 1) << TAIL_BIT;
        k += 1;
    }
    heads
};

/// State of the first frame of a free block of order `k`.
#[inline(always)]
pub(crate) const fn head(k: u32) -> u8 {
    HEADS[k as usize & 15]
}

/// The order of a free block whose first frame has this state.
#[inline(always)]
pub(crate) const fn head_order(state: u8) -> u32 {
    state as u32 >> 4
}

/// Returns true if a frame can have this state.
pub(crate) const fn is_state(state: u8) -> bool {
    let k = head_order(state);
    matches!(state, HOLE | USED | USED_MOVABLE | TAIL) || k <= ORDER_MAX.k() && state == head(k)
}

/// The byte in each place of a word.
#[inline(always)]
pub(crate) const fn spread(state: u8) -> u64 {
    u64::from_ne_bytes([state; 8])
}

/// Bits of those states of a word that are not of frames in use: some in each.
#[inline(always)]
pub(crate) const fn not_used(states: u64) -> u64 {
    // In use is a code with one of two differences to the other: none or both bits.
    const DIFFERENCE: u64 = spread(USED ^ USED_MOVABLE);
    let difference = states ^ spread(USED_MOVABLE);
    let halves = (difference >> 3 ^ difference) & spread(1 << MOVABLE_BIT);
    difference & !DIFFERENCE | halves
}

/// Code of a pageblock of this mobility: the mobility in bits 0 and 1, the isolation
/// in bit 2, and an even number of ones.
pub(crate) const fn pageblock_code(mobility: u64, isolated: bool) -> u64 {
    let value = mobility & 3 | (isolated as u64) << 2;
    value | (value.count_ones() as u64 & 1) << 3
}

/// Bit v: a pageblock can have the code v.
const PAGEBLOCKS: u16 = {
    let mut codes = 0;
    let mut mobility = 0;
    while mobility < Mobility::ALL.len() as u64 {
        codes |= 1 << pageblock_code(mobility, false) | 1 << pageblock_code(mobility, true);
        mobility += 1;
    }
    codes
};

/// Returns true if a pageblock can have this code, which is below 16.
#[inline(always)]
pub(crate) const fn is_pageblock(code: u64) -> bool {
    PAGEBLOCKS >> code & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(|&state| is_state(state))
    }

    #[test]
    fn a_flipped_bit_makes_no_other_code() {
        assert_eq!(states().count(), 4 + ORDER_MAX.k() as usize + 1);
        for state in states() {
            assert!((0..8).all(|bit| !is_state(state ^ 1 << bit)), "{state:#x}");
        }
        let codes = (0..16).filter(|&code| is_pageblock(code));
        assert_eq!(codes.clone().count(), 6);
        for code in codes {
            assert!((0..4).all(|bit| !is_pageblock(code ^ 1 << bit)), "{code:#x}");
        }
    }

    #[test]
    fn the_bits_tell_the_kinds() {
        let has = |state: u8, bit: u32| state >> bit & 1 == 1;
        for state in states() {
            let in_use = matches!(state, USED | USED_MOVABLE);
            let is_head = !in_use && !matches!(state, HOLE | TAIL);
            assert_eq!(has(state, USED_BIT), in_use, "{state:#x}");
            assert_eq!(has(state, MOVABLE_BIT), state == USED_MOVABLE, "{state:#x}");
            assert_eq!(has(state, HEAD_BIT), is_head, "{state:#x}");
            let is_free = has(state, HEAD_BIT) || has(state, TAIL_BIT);
            assert_eq!(is_free, is_head || state == TAIL, "{state:#x}");
            assert!(!is_head || head(head_order(state)) == state);
        }
    }

    #[test]
    fn only_frames_in_use_are_used() {
        for place in 0..8 {
            for state in 0..=u8::MAX {
                let mut bytes = [USED, USED_MOVABLE, USED, USED, USED_MOVABLE, USED, USED, USED];
                bytes[place] = state;
                let bad = not_used(u64::from_le_bytes(bytes));
                let in_use = matches!(state, USED | USED_MOVABLE);
                assert_eq!(bad == 0, in_use, "{state:#x}");
                assert!(in_use || bad.trailing_zeros() as usize / 8 == place, "{state:#x}");
            }
        }
    }
}

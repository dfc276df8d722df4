//! Bits in words: the functions that all bitmaps stand on, over any word, so that they
//! are proved for all inputs (`bits/proofs.rs`).

use swath_arch::Word;

/// `count` ones, from 1 to 64, in the low bits.
#[inline(always)]
pub(crate) fn ones<W: Word>(count: usize) -> W {
    W::MAX >> (64 - count)
}

/// `count` ones, from 1 to 64, from bit `from` of a word on, as far as they
/// lie in it and in the next.
#[inline(always)]
pub(crate) fn ones_across<W: Word>(count: usize, from: usize) -> [W; 2] {
    let ones = ones::<W>(count);
    [ones << from, (ones >> 1) >> (63 - from)]
}

/// The bits from which on `count` ones stand in the word, 1 to 64.
#[inline(always)]
pub(crate) fn starts_of_run<W: Word>(mut word: W, count: u64) -> W {
    let mut have = 1;
    while have < count {
        let more = if count - have < have { count - have } else { have };
        word &= word >> more as usize;
        have += more;
    }
    word
}

/// In the word of a unit, its parent at granularity 1.
#[inline(always)]
pub(crate) fn pair<W: Word>(unit: W) -> W {
    W::from(3).shifted_left(unit & W::from(62))
}

/// Returns true if a parent seems to be full in a word, of whose parents the first and the
/// last units are marked.
#[inline(always)]
pub(crate) fn has_full<W: Word>(word: W, firsts: W, lasts: W) -> bool {
    // In the complement a full parent is zeros: less one, they borrow, and
    // its last bit is set, which is a one of `word` too. If no parent is
    // full, none borrows from the next, and no last bit is set in both.
    (!word).wrapping_sub(firsts) & word & lasts != W::ZERO
}

/// Sets `count` bits, at least one, from bit `first` on.
#[inline]
pub(crate) fn set<W: Word>(words: &mut [W], first: usize, count: usize) {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    if low == high {
        words[low] |= ones::<W>(count) << (first % 64);
    } else {
        words[low] |= W::MAX << (first % 64);
        words[low + 1..high].fill(W::MAX);
        words[high] |= W::MAX >> (63 - (first + count - 1) % 64);
    }
}

/// Sets `count` bits, at least one, from bit `first` on, which have all to be clear:
/// if not, nothing changes.
#[inline(always)]
pub(crate) fn set_clear<W: Word>(words: &mut [W], first: usize, count: usize) -> bool {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    if low != high {
        return set_clear_words(words, first, count);
    }
    let (word, bits) = (&mut words[low], ones::<W>(count) << (first % 64));
    let free = *word & bits == W::ZERO;
    if free {
        *word |= bits;
    }
    free
}

/// As [`set_clear`], of bits in several words: in whole ones, as those of an aligned block are, with
/// neither masks nor ends.
#[inline(never)]
fn set_clear_words<W: Word>(words: &mut [W], first: usize, count: usize) -> bool {
    if !(first | count).is_multiple_of(64) {
        return set_clear_ends(words, first, count);
    }
    let words = words.get_mut(first / 64..).and_then(|words| words.get_mut(..count / 64));
    let Some(words) = words else { return false };
    // One test for all words, which costs less than one for each.
    if let Ok(chunk) = <&mut [W; 8]>::try_from(&mut *words) {
        let free = chunk.iter().fold(W::ZERO, |any, &word| any | word) == W::ZERO;
        if free {
            chunk.fill(W::MAX);
        }
        return free;
    }
    let free = words.iter().fold(W::ZERO, |any, &word| any | word) == W::ZERO;
    if free {
        words.fill(W::MAX);
    }
    free
}

/// As [`set_clear`], of bits in several words that are not all whole.
#[inline(never)]
fn set_clear_ends<W: Word>(words: &mut [W], first: usize, count: usize) -> bool {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    let above = W::MAX << (first % 64);
    let below = W::MAX >> (63 - (first + count - 1) % 64);
    let [start, inside @ .., end] = &mut words[low..=high] else { return false };
    let any = inside.iter().fold(*start & above | *end & below, |any, &word| any | word);
    if any != W::ZERO {
        return false;
    }
    inside.fill(W::MAX);
    *start |= above;
    *end |= below;
    true
}

/// Returns true if one of the `count` bits, at least one, from bit `first` on is set.
#[inline]
pub(crate) fn any_set<W: Word>(words: &[W], first: usize, count: usize) -> bool {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    let above = W::MAX << (first % 64);
    let below = W::MAX >> (63 - (first + count - 1) % 64);
    if low == high {
        return words[low] & above & below != W::ZERO;
    }
    let [start, inside @ .., end] = &words[low..=high] else { return false };
    inside.iter().fold(*start & above | *end & below, |any, &word| any | word) != W::ZERO
}

/// Clears `count` bits, at least one, from bit `first` on.
#[inline]
pub(crate) fn clear<W: Word>(words: &mut [W], first: usize, count: usize) {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    if low == high {
        words[low] &= !(ones::<W>(count) << (first % 64));
    } else {
        words[low] &= !(W::MAX << (first % 64));
        words[low + 1..high].fill(W::ZERO);
        words[high] &= !(W::MAX >> (63 - (first + count - 1) % 64));
    }
}

/// Returns true if the `count` bits, at least one, from bit `first` on are set.
#[inline]
pub(crate) fn all_set<W: Word>(words: &[W], first: usize, count: usize) -> bool {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    let above = W::MAX << (first % 64);
    let below = W::MAX >> (63 - (first + count - 1) % 64);
    if low == high {
        return !words[low] & above & below == W::ZERO;
    }
    let inside = &words[low + 1..high];
    !words[low] & above | !words[high] & below == W::ZERO
        && if inside.len() > 64 {
            all_ones(inside)
        } else {
            // Some words at once, as that costs no more than one.
            inside.chunks(16).all(|some| and_of(some) == W::MAX)
        }
}

/// What all words have.
#[inline(always)]
fn and_of<W: Word>(words: &[W]) -> W {
    words.iter().fold(W::MAX, |all, &word| all & word)
}

/// Returns true if many words are all ones: in chunks of a known length, which cost less a word and
/// more to begin with.
#[inline(never)]
fn all_ones<W: Word>(words: &[W]) -> bool {
    let (chunks, rest) = words.as_chunks::<16>();
    chunks.iter().all(|chunk| and_of(chunk) == W::MAX) && and_of(rest) == W::MAX
}

/// The first of the `count` bits from bit `first` on that is clear.
#[inline]
pub(crate) fn first_clear<W: Word>(words: &[W], first: usize, count: usize) -> Option<usize> {
    let mut at = first;
    let past = first + count;
    while at < past {
        let ones = (!(words[at / 64] >> (at % 64))).trailing_zeros() as usize;
        let in_word = 64 - at % 64;
        if ones < in_word {
            at += ones;
            return (at < past).then_some(at);
        }
        at += in_word;
    }
    None
}

#[cfg(test)]
mod unit {
    extern crate std;

    use std::vec;

    use super::*;

    /// More words than the proofs have.
    #[test]
    fn a_long_stretch_of_ones_has_no_zero() {
        for count in [64_usize * 65, 64 * 66 + 1, 64 * 67 - 1, 64 * 84, 64 * 200 + 17] {
            for first in [0_usize, 1, 63, 64, 100] {
                let mut words = vec![0_u64; (first + count).div_ceil(64) + 1];
                set(&mut words, first, count);
                assert!(all_set(&words, first, count));
                for zero in (first..first + count).step_by(61).chain([first + count - 1]) {
                    words[zero / 64] ^= 1 << (zero % 64);
                    assert!(!all_set(&words, first, count), "{count} from {first}: {zero}");
                    words[zero / 64] ^= 1 << (zero % 64);
                }
            }
        }
    }
}

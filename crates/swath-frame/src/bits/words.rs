//! Bits of words side by side: set, cleared, tested and found by place and count.

/// `count` ones, from 1 to 64, in the low bits.
#[inline]
pub(crate) const fn ones(count: usize) -> u64 {
    u64::MAX >> (64 - count)
}

/// `count` ones, from 1 to 64, from bit `from` of a word on, as far as they
/// lie in it and in the next.
#[inline(always)]
pub(crate) const fn ones_across(count: usize, from: usize) -> [u64; 2] {
    let ones = ones(count);
    [ones << from, (ones >> 1) >> (63 - from)]
}

/// Sets `count` bits, at least one, from bit `first` on.
#[inline]
pub(crate) fn set(words: &mut [u64], first: usize, count: usize) {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    if low == high {
        words[low] |= ones(count) << (first % 64);
    } else {
        words[low] |= u64::MAX << (first % 64);
        words[low + 1..high].fill(u64::MAX);
        words[high] |= u64::MAX >> (63 - (first + count - 1) % 64);
    }
}

/// Sets `count` bits, at least one, from bit `first` on, which have all to be clear:
/// if not, nothing changes.
#[inline]
pub(crate) fn set_clear(words: &mut [u64], first: usize, count: usize) -> bool {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    let above = u64::MAX << (first % 64);
    let below = u64::MAX >> (63 - (first + count - 1) % 64);
    if low == high {
        let (word, bits) = (&mut words[low], above & below);
        let free = *word & bits == 0;
        *word |= if free { bits } else { 0 };
        return free;
    }
    let words = &mut words[low..=high];
    let (chunks, rest) = words.as_chunks_mut::<8>();
    if above & below == u64::MAX && rest.is_empty() {
        let is_free = |chunk: &[u64; 8]| chunk.iter().fold(0, |any, word| any | word) == 0;
        let free = chunks.iter_mut().position(|chunk| {
            let free = is_free(chunk);
            if free {
                chunk.fill(u64::MAX);
            }
            !free
        });
        chunks[..free.unwrap_or(0)].as_flattened_mut().fill(0);
        return free.is_none();
    }
    let ends = words[0] & above | words[high - low] & below;
    if ends != 0 || words[1..high - low].iter().any(|&word| word != 0) {
        return false;
    }
    set(words, first % 64, count);
    true
}

/// Clears `count` bits, at least one, from bit `first` on.
#[inline]
pub(crate) fn clear(words: &mut [u64], first: usize, count: usize) {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    if low == high {
        words[low] &= !(ones(count) << (first % 64));
    } else {
        words[low] &= !(u64::MAX << (first % 64));
        words[low + 1..high].fill(0);
        words[high] &= !(u64::MAX >> (63 - (first + count - 1) % 64));
    }
}

/// Returns true if the `count` bits, at least one, from bit `first` on are set.
#[inline]
pub(crate) fn all_set(words: &[u64], first: usize, count: usize) -> bool {
    let (low, high) = (first / 64, (first + count - 1) / 64);
    let above = u64::MAX << (first % 64);
    let below = u64::MAX >> (63 - (first + count - 1) % 64);
    if low == high {
        return !words[low] & above & below == 0;
    }
    !words[low] & above | !words[high] & below == 0
        // Some words at once, as that costs no more than one.
        && words[low + 1..high].chunks(16).all(|some| some.iter().fold(u64::MAX, |all, word| all & word) == u64::MAX)
}

/// The first of the `count` bits from bit `first` on that is clear.
#[inline]
pub(crate) fn first_clear(words: &[u64], first: usize, count: usize) -> Option<usize> {
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

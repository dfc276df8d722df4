//! Runs of bits in words.

/// Returns the words in which `count` bits from `first` on lie, each with its bits.
pub(crate) fn word_masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let (first, end) = (u64::from(first), u64::from(first) + u64::from(count));
    (first / 64..end.div_ceil(64)).map(move |index| {
        let low = first.saturating_sub(index * 64);
        let high = (end - index * 64).min(64);
        (index as usize, (u64::MAX >> (64 - high)) & (u64::MAX << low))
    })
}

//! A set of small numbers as a 64-ary tree of bitmaps.
//!
//! Level 0 holds one bit per number. Each bit of a higher level says whether
//! the 64-bit word below it holds a one, up to a level of a single word, so
//! the lowest member is found by one count of trailing zeros per level.
//!
//! ```text
//!  level 2   [ 1 0 1 ]                     one word
//!              |    \
//!  level 1   [0 1 1] [0 0 0] [1 0 0]       bit w: level-0 word w is not zero
//!               | |           |
//!  level 0   ..[0110][1000] ..[0001]       the numbers themselves
//! ```
//!
//! **The head word.** A set of free frames is emptied and filled at its low
//! end over and over. The word there, the *head*, is left marked in the
//! levels above even while it is zero, and is unmarked only when the head
//! moves. So taking the lowest member and putting it back touches one word
//! and no upper level, however empty the set is.
//!
//! [`Bitmap`] is the shape; the words stand in a slice that every call is
//! given, so that several bitmaps can share one storage.

use swath_arch::Word;

use crate::bits::words::{all_set, clear, ones, set};

/// The most levels above level 0: enough for 2^48 numbers.
const UPPER_MAX: usize = 7;

/// A set of numbers below a bound, in words of a slice that each method is
/// given. L is the number of levels, ceil(log64 of the bound).
///
/// A method panics if the slice is shorter than the one the bitmap was built
/// in, or if a number is not below the bound rounded up to a multiple of 64.
///
/// Invariants: no bit of level 0 is set in a word below `head`. A bit of level
/// l+1 is set exactly if its word of level l is not zero, except that the bits
/// above the head word are always set. `marked` words are marked.
#[derive(Clone, Copy, Debug)]
pub struct Bitmap {
    /// The place in the slice at which level 0 starts; the other levels follow
    /// it.
    at: usize,
    /// Words of level 0.
    words: usize,
    /// The head word.
    head: usize,
    /// Words of level 0 that hold a one, and the head.
    marked: usize,
    /// Number of levels above level 0, and the start of each.
    depth: usize,
    upper: [usize; UPPER_MAX],
}

impl Bitmap {
    /// Words of storage for numbers below `bits`: one 64th more than the bits
    /// themselves.
    pub const fn storage_words(bits: u64) -> u64 {
        let mut level = words_of(bits);
        let mut total = level;
        while level > 1 {
            level = level.div_ceil(64);
            total += level;
        }
        total
    }

    /// The empty set of numbers below `bits`, in
    /// [`storage_words`](Self::storage_words) words from `storage[at]` on,
    /// which are overwritten. O(words). `bits` is at most 2^48.
    pub fn new<W: Word>(storage: &mut [W], at: usize, bits: u64) -> Self {
        let words = words_of(bits) as usize;
        storage[at..at + Self::storage_words(bits) as usize].fill(W::ZERO);
        let mut empty = Self { at, words, ..Self::none() };
        let (mut start, mut level) = (at, words);
        while level > 1 {
            start += level;
            level = level.div_ceil(64);
            empty.upper[empty.depth] = start;
            empty.depth += 1;
        }
        empty.mark_one(storage, 0);
        empty.marked = 1;
        empty
    }

    /// No bitmap: holds nothing and has room for nothing.
    pub(crate) const fn none() -> Self {
        Self { at: 0, words: 0, head: 0, marked: 1, depth: 0, upper: [0; UPPER_MAX] }
    }

    /// Counts the numbers of the set. O(words).
    pub fn len(&self, storage: &[u64]) -> usize {
        let level = &storage[self.at..self.at + self.words];
        level.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns true if the set holds nothing. O(1).
    #[inline(always)]
    pub fn is_empty<W: Word>(&self, storage: &[W]) -> bool {
        self.marked == 1 && storage[self.at + self.head] == W::ZERO
    }

    /// Returns true if the set holds `number`; false beyond the bound. O(1).
    #[inline]
    pub fn contains<W: Word>(&self, storage: &[W], number: usize) -> bool {
        number / 64 < self.words
            && storage[self.at + number / 64] >> (number % 64) & W::from(1) != W::ZERO
    }

    /// The word `index` of level 0.
    #[inline(always)]
    pub(crate) fn word<W: Word>(&self, storage: &[W], index: usize) -> W {
        storage[self.at + index]
    }

    /// The words `index` and `index + 1` of level 0, which both exist.
    #[inline(always)]
    pub(crate) fn two<W: Word>(&self, storage: &[W], index: usize) -> [W; 2] {
        [storage[self.at + index], storage[self.at + index + 1]]
    }

    /// Counts those of the `count` words of level 0 from `low` on that are all
    /// ones; 0 if one of them does not exist.
    #[inline(always)]
    pub(crate) fn full_words<W: Word>(&self, storage: &[W], low: usize, count: usize) -> usize {
        let level = &storage[self.at..self.at + self.words];
        let Some(words) = level.get(low..low + count) else { return 0 };
        words.iter().filter(|&&word| word == W::MAX).count()
    }

    /// Makes the word `index` of level 0, which was `was`, `now`: more ones.
    #[inline(always)]
    pub(crate) fn raise<W: Word>(&mut self, storage: &mut [W], index: usize, was: W, now: W) {
        storage[self.at + index] = now;
        if was == W::ZERO && index != self.head {
            self.filled_one(storage, index);
        }
    }

    /// Makes the word `index` of level 0 `now`: fewer ones.
    #[inline(always)]
    pub(crate) fn lower<W: Word>(&mut self, storage: &mut [W], index: usize, now: W) {
        storage[self.at + index] = now;
        if now == W::ZERO && index != self.head {
            self.emptied_one(storage, index);
        }
    }

    /// Adds the numbers that `more` marks in the word `index` of level 0. For
    /// words that are often empty: no branch depends on whether this one is.
    /// There must be more than one word.
    #[inline(always)]
    pub(crate) fn raise_any<W: Word>(&mut self, storage: &mut [W], index: usize, more: W) {
        let was = storage[self.at + index];
        storage[self.at + index] = was | more;
        let new = was == W::ZERO && more != W::ZERO && index != self.head;
        if new && index < self.head {
            return self.filled_one(storage, index);
        }
        self.marked = self.marked.wrapping_add(usize::from(new));
        let marks = &mut storage[self.upper[0] + (index >> 6)];
        let marks_were = *marks;
        *marks = marks_were | W::from(u64::from(new)) << (index & 63);
        if new && marks_were == W::ZERO {
            self.mark_above(storage, index >> 6);
        }
    }

    /// Removes the numbers that `less` marks in the word `index` of level 0;
    /// otherwise as [`raise_any`](Self::raise_any).
    #[inline(always)]
    pub(crate) fn lower_any<W: Word>(&mut self, storage: &mut [W], index: usize, less: W) {
        let was = storage[self.at + index];
        let now = was & !less;
        storage[self.at + index] = now;
        let gone = was != W::ZERO && now == W::ZERO && index != self.head;
        self.marked = self.marked.wrapping_sub(usize::from(gone));
        let marks = &mut storage[self.upper[0] + (index >> 6)];
        *marks &= !(W::from(u64::from(gone)) << (index & 63));
        if gone && *marks == W::ZERO {
            self.unmark_above(storage, index >> 6);
        }
    }

    /// The word `index` of level 1 is not zero any more.
    #[cold]
    #[inline(never)]
    fn mark_above<W: Word>(&mut self, storage: &mut [W], mut index: usize) {
        for start in self.upper().skip(1) {
            let word = &mut storage[start + (index >> 6)];
            let was = *word;
            *word = was | W::from(1) << (index & 63);
            if was != W::ZERO {
                return;
            }
            index >>= 6;
        }
    }

    /// The word `index` of level 1 has become zero.
    #[cold]
    #[inline(never)]
    fn unmark_above<W: Word>(&mut self, storage: &mut [W], mut index: usize) {
        for start in self.upper().skip(1) {
            let word = &mut storage[start + (index >> 6)];
            *word &= !(W::from(1) << (index & 63));
            if *word != W::ZERO {
                return;
            }
            index >>= 6;
        }
    }

    /// Makes the word `index` of level 0, which was not zero, `now`, not zero.
    #[inline(always)]
    pub(crate) fn set_word<W: Word>(&self, storage: &mut [W], index: usize, now: W) {
        storage[self.at + index] = now;
    }

    /// Returns true if the set holds every number from `first` on and below
    /// `past`. O((past - first)/64), less if one is missing early.
    pub(crate) fn all<W: Word>(&self, storage: &[W], first: usize, past: usize) -> bool {
        let words = &storage[self.at..self.at + self.words];
        past <= 64 * self.words && (first == past || all_set(words, first, past - first))
    }

    /// Adds `count` numbers from `first` on, at least one and none of them in
    /// the set yet. O(L) for numbers that share a word, O(L + count/64) else.
    #[inline]
    pub fn insert<W: Word>(&mut self, storage: &mut [W], first: usize, count: usize) {
        let (low, high) = (first / 64, (first + count - 1) / 64);
        if low == high {
            let was = storage[self.at + low];
            self.raise(storage, low, was, was | ones::<W>(count) << (first % 64));
        } else {
            self.insert_words(storage, first, count);
        }
    }

    #[inline(never)]
    fn insert_words<W: Word>(&mut self, storage: &mut [W], first: usize, count: usize) {
        let (low, high) = (first / 64, (first + count - 1) / 64);
        self.filled(storage, low, high);
        set(&mut storage[self.at..self.at + self.words], first, count);
    }

    /// Iterates over the starts of the levels above level 0, from the lowest
    /// on.
    #[inline(always)]
    fn upper(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.upper[..self.depth.min(UPPER_MAX)].iter().copied()
    }

    /// The word `index`, not the head, holds ones now.
    #[inline(never)]
    fn filled_one<W: Word>(&mut self, storage: &mut [W], index: usize) {
        if index < self.head {
            if storage[self.at + self.head] == W::ZERO {
                self.unmark_one(storage, self.head);
            }
            self.head = index;
        }
        self.mark_one(storage, index);
    }

    #[inline]
    fn mark_one<W: Word>(&mut self, storage: &mut [W], mut index: usize) {
        self.marked = self.marked.wrapping_add(1);
        for start in self.upper() {
            let word = &mut storage[start + (index >> 6)];
            let was = *word;
            *word = was | W::from(1) << (index & 63);
            if was != W::ZERO {
                return;
            }
            index >>= 6;
        }
    }

    /// The word `index` holds no ones any more and is not the head, or ceases
    /// to be.
    #[inline]
    fn unmark_one<W: Word>(&mut self, storage: &mut [W], mut index: usize) {
        self.marked = self.marked.wrapping_sub(1);
        for start in self.upper() {
            let word = &mut storage[start + (index >> 6)];
            *word &= !(W::from(1) << (index & 63));
            if *word != W::ZERO {
                return;
            }
            index >>= 6;
        }
    }

    /// As [`unmark_one`](Self::unmark_one), out of the way of the fast path.
    #[inline(never)]
    fn emptied_one<W: Word>(&mut self, storage: &mut [W], index: usize) {
        self.unmark_one(storage, index);
    }

    /// The words `low..=high`, more than one, get ones: those between the ends
    /// have none.
    #[inline(never)]
    fn filled<W: Word>(&mut self, storage: &mut [W], low: usize, high: usize) {
        let mut new = high - low + 1;
        if low < self.head {
            if storage[self.at + self.head] == W::ZERO {
                self.unmark_one(storage, self.head);
            }
            self.head = low;
        } else {
            new -= usize::from(low == self.head || storage[self.at + low] != W::ZERO);
        }
        new -= usize::from(storage[self.at + high] != W::ZERO);
        self.marked = self.marked.wrapping_add(new);
        self.mark(storage, low, high);
    }

    /// Removes `count` numbers from `first` on, at least one and all of them
    /// in the set. O(L) for numbers that share a word, O(L + count/64) else.
    #[inline]
    pub fn remove<W: Word>(&mut self, storage: &mut [W], first: usize, count: usize) {
        let (low, high) = (first / 64, (first + count - 1) / 64);
        if low == high {
            let was = storage[self.at + low];
            self.lower(storage, low, was & !(ones::<W>(count) << (first % 64)));
        } else {
            self.remove_words(storage, first, count);
        }
    }

    #[inline(never)]
    fn remove_words<W: Word>(&mut self, storage: &mut [W], first: usize, count: usize) {
        let (low, high) = (first / 64, (first + count - 1) / 64);
        let words = &mut storage[self.at..self.at + self.words];
        clear(words, first, count);
        let low_empty = words[low] == W::ZERO;
        // The words between are zero now, so an empty head can move past them.
        let moves = low_empty && low == self.head;
        let past = high + usize::from(words[high] == W::ZERO && !moves);
        if moves {
            self.head = high;
        }
        let low = low + usize::from(!low_empty);
        if low < past {
            self.unmark(storage, low, past - 1);
        }
    }

    /// Marks the words `low..=high` of level 0 as not zero.
    fn mark<W: Word>(&self, storage: &mut [W], mut low: usize, mut high: usize) {
        for start in self.upper() {
            let level = &mut storage[start..];
            let marked = low / 64 == high / 64 && level[low / 64] != W::ZERO;
            set(level, low, high - low + 1);
            if marked {
                return;
            }
            (low, high) = (low / 64, high / 64);
        }
    }

    /// Marks the words `low..=high` of level 0 as zero.
    #[inline(never)]
    fn unmark<W: Word>(&mut self, storage: &mut [W], mut low: usize, mut high: usize) {
        self.marked = self.marked.wrapping_sub(high - low + 1);
        for start in self.upper() {
            let level = &mut storage[start..];
            clear(level, low, high - low + 1);
            (low, high) = (low / 64, high / 64);
            // The words between the ends are zero now; the ends may be.
            let past = high + usize::from(level[high] == W::ZERO);
            low += usize::from(level[low] != W::ZERO);
            if low >= past {
                return;
            }
            high = past - 1;
        }
    }

    /// The lowest number of the set. O(1) while the head word holds one, else
    /// O(L) to move the head.
    #[inline]
    pub fn first<W: Word>(&mut self, storage: &mut [W]) -> Option<usize> {
        let word = self.head_word(storage)?;
        Some(self.head << 6 | word.trailing_zeros() as usize)
    }

    /// Removes the lowest number of the set and returns it. O(1) while the
    /// head word holds one, else O(L) to move the head.
    #[inline(always)]
    pub fn pop<W: Word>(&mut self, storage: &mut [W]) -> Option<usize> {
        let word = self.head_word(storage)?;
        storage[self.at + self.head] = word & word.wrapping_sub(W::from(1));
        Some(self.head << 6 | word.trailing_zeros() as usize)
    }

    /// Removes the lowest number of the head word, if that holds one: the word's
    /// index, the number's bit in it, and whether the set is empty now.
    #[inline(always)]
    pub(crate) fn pop_head<W: Word>(&mut self, storage: &mut [W]) -> Option<(usize, u32, bool)> {
        let word = &mut storage[self.at + self.head];
        let was = *word;
        if was == W::ZERO {
            return None;
        }
        let rest = was & was.wrapping_sub(W::from(1));
        *word = rest;
        Some((self.head, was.trailing_zeros(), rest == W::ZERO && self.marked == 1))
    }

    /// The lowest word that is not zero: it is the head from then on.
    #[inline(always)]
    pub(crate) fn head_word<W: Word>(&mut self, storage: &mut [W]) -> Option<W> {
        let word = storage[self.at + self.head];
        if word != W::ZERO {
            return Some(word);
        }
        self.advance(storage)
    }

    /// Removes all numbers of the head word and `bits` of the word after it,
    /// which is the head from then on, if it holds them: at least one.
    #[inline(always)]
    pub(crate) fn leave_head<W: Word>(&mut self, storage: &mut [W], bits: W) -> bool {
        let next = self.head + 1;
        if next == self.words || storage[self.at + next] & bits != bits {
            return false;
        }
        storage[self.at + self.head] = W::ZERO;
        storage[self.at + next] &= !bits;
        self.unmark_one(storage, self.head);
        self.head = next;
        true
    }

    /// Returns the number of the head word.
    #[inline(always)]
    pub(crate) fn head(&self) -> usize {
        self.head
    }

    /// Moves the head from a word of zeros to the lowest word that is not, if
    /// there is one and the marks lead to it. On the way up from the old head its
    /// marks go, and the first word in which another mark is left shows the way down.
    #[inline(never)]
    fn advance<W: Word>(&mut self, storage: &mut [W]) -> Option<W> {
        if self.marked == 1 {
            return None;
        }
        let head = self.after_head(storage);
        let word = self.level(storage).get(head).copied().unwrap_or(W::ZERO);
        if word == W::ZERO {
            return None;
        }
        self.marked = self.marked.wrapping_sub(1);
        self.head = head;
        Some(word)
    }

    #[inline(always)]
    fn after_head<W: Word>(&self, storage: &mut [W]) -> usize {
        let mut index = self.head;
        for (level, start) in self.upper().enumerate() {
            let word = &mut storage[start + (index >> 6)];
            *word &= !(W::from(1) << (index & 63));
            index >>= 6;
            if *word != W::ZERO {
                index = index << 6 | word.trailing_zeros() as usize;
                return self.descend(storage, level, index);
            }
        }
        self.head
    }

    /// The first marked word of level 0 below word `index` of `level`; no word's
    /// index if a mark on the way leads to nothing.
    #[inline(always)]
    fn descend<W: Word>(&self, storage: &[W], level: usize, mut index: usize) -> usize {
        for &start in self.upper[..level.min(UPPER_MAX)].iter().rev() {
            let word = storage.get(start + index).copied().unwrap_or(W::ZERO);
            if word == W::ZERO {
                return usize::MAX;
            }
            index = index << 6 | word.trailing_zeros() as usize;
        }
        index
    }

    #[inline(always)]
    fn level<'s, W: Word>(&self, storage: &'s [W]) -> &'s [W] {
        &storage[self.at..self.at + self.words]
    }

    /// The lowest number of the set that is `from` or more. O(L).
    pub fn next<W: Word>(&self, storage: &[W], from: usize) -> Option<usize> {
        // Below the head is nothing, and the head itself may be marked in
        // vain: so level 0 is read where the search starts, marks only after.
        let from = from.max(self.head * 64);
        let mut index = from / 64;
        if index >= self.words {
            return None;
        }
        let word = storage[self.at + index] & (W::MAX << (from % 64));
        if word != W::ZERO {
            return Some(index * 64 + word.trailing_zeros() as usize);
        }
        for (level, start) in self.upper().enumerate() {
            // The marks after `index`; two shifts since one by 64 is none.
            let word = storage[start + index / 64] & ((W::MAX << (index % 64)) << 1);
            index /= 64;
            if word != W::ZERO {
                index = index * 64 + word.trailing_zeros() as usize;
                index = self.descend(storage, level, index);
                let word =
                    self.level(storage).get(index).copied().filter(|&word| word != W::ZERO)?;
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
        }
        None
    }

    /// The highest number of the set. O(L).
    pub fn last<W: Word>(&self, storage: &[W]) -> Option<usize> {
        if self.is_empty(storage) {
            return None;
        }
        // A head marked in vain is below every word that holds a one.
        let mut index = 0;
        for start in self.upper().rev().chain([self.at]) {
            let word = *storage.get(start + index)?;
            if word == W::ZERO {
                return None;
            }
            index = index * 64 + word.ilog2() as usize;
        }
        Some(index)
    }

    /// The word `index`, if there is one, between the one before it and the one
    /// after it, which are 0 beyond the ends.
    #[inline(always)]
    pub(crate) fn around<W: Word>(&self, storage: &[W], index: usize) -> Option<[W; 3]> {
        let level = &storage[self.at..self.at + self.words];
        let or_zero = |index: usize| level.get(index).copied().unwrap_or(W::ZERO);
        let word = *level.get(index)?;
        Some([or_zero(index.wrapping_sub(1)), word, or_zero(index + 1)])
    }

    /// Makes the head word zero, though marks say that there is more: for a set
    /// that is not to be used any more.
    pub(crate) fn clear_head(&self, storage: &mut [u64]) {
        storage[self.at + self.head] = 0;
    }

    /// Returns the number of words of level 0.
    pub(crate) fn len_words(&self) -> usize {
        self.words
    }

    /// Returns the place in the storage of the word that holds a number.
    pub(crate) fn place(&self, number: usize) -> usize {
        self.at + number / 64
    }

    /// Counts the numbers from `first` on that the set holds without a gap, up
    /// to 64. O(1).
    #[inline(always)]
    pub(crate) fn ones_from<W: Word>(&self, storage: &[W], first: usize) -> usize {
        let level = &storage[self.at..self.at + self.words];
        let or_zero = |index: usize| level.get(index).copied().unwrap_or(W::ZERO);
        let (index, at) = (first / 64, first % 64);
        let ones = or_zero(index) >> at | (or_zero(index + 1) << 1) << (63 - at);
        ones.trailing_ones() as usize
    }

    /// Counts the numbers below `past` that the set holds without a gap, up to
    /// 64. O(1).
    #[inline(always)]
    pub(crate) fn ones_before<W: Word>(&self, storage: &[W], past: usize) -> usize {
        let level = &storage[self.at..self.at + self.words];
        let or_zero = |index: usize| level.get(index).copied().unwrap_or(W::ZERO);
        // The number below `past` is to be bit 63. Below 0 is a word of zeros.
        let last = past.wrapping_sub(1);
        let (index, at) = (last / 64, last % 64);
        let ones = or_zero(index) << (63 - at) | (or_zero(index.wrapping_sub(1)) >> 1) >> at;
        ones.leading_ones() as usize
    }

    /// Counts the numbers from `first` on that the set holds without a gap, up
    /// to `limit`. O(limit/64).
    #[inline]
    pub fn run<W: Word>(&self, storage: &[W], first: usize, limit: usize) -> usize {
        let words = &storage[self.at..self.at + self.words];
        let offset = first % 64;
        let Some(&word) = words.get(first / 64) else {
            return 0;
        };
        let mut run = (!(word >> offset)).trailing_zeros() as usize;
        if run == 64 - offset && run < limit {
            for word in &words[first / 64 + 1..] {
                let more = word.trailing_ones() as usize;
                run += more;
                if more < 64 || run >= limit {
                    break;
                }
            }
        }
        run.min(limit)
    }

    /// Returns the start of the run of members that ends below `past`.
    /// O(run/64).
    pub fn run_start<W: Word>(&self, storage: &[W], past: usize) -> usize {
        let mut start = past;
        while start > 0 {
            // Bit 63 is the number below `start`.
            let word = storage[self.at + (start - 1) / 64] << (63 - (start - 1) % 64);
            let run = word.leading_ones() as usize;
            let in_word = (start - 1) % 64 + 1;
            start -= run.min(in_word);
            if run < in_word {
                break;
            }
        }
        start
    }

    /// Finds the first mark that differs from the word below it: the place of the
    /// marks' word in the storage. O(words).
    pub(crate) fn wrong_mark(&self, storage: &[u64]) -> Option<usize> {
        let (mut at, mut words, mut head) = (self.at, self.words, self.head);
        for above in self.upper() {
            let marks = |index: usize| storage[above + index / 64] >> (index % 64) & 1 == 1;
            // The last word of marks has some that stand for no word.
            let wrong = (0..words.next_multiple_of(64)).find(|&index| {
                let ones = index < words && (storage[at + index] != 0 || index == head);
                marks(index) != ones
            });
            if let Some(index) = wrong {
                return Some(above + index / 64);
            }
            (at, words, head) = (above, words.div_ceil(64), head / 64);
        }
        // The marks are as they should be, the count of them is not: a word that
        // was changed has been written over since.
        let level = self.level(storage);
        let ones = level.iter().filter(|&&word| word != 0).count();
        let marked = ones + usize::from(level[self.head] == 0);
        (self.marked != marked).then_some(self.at + self.head)
    }

    /// Walks the invariants in O(words); the first that does not hold is named.
    pub fn check(&self, storage: &[u64]) -> Result<(), &'static str> {
        let level = &storage[self.at..self.at + self.words];
        if level[..self.head].iter().any(|&word| word != 0) {
            return Err("a word below the head of a bitmap is not zero");
        }
        let ones = level.iter().filter(|&&word| word != 0).count();
        if self.marked != ones + usize::from(level[self.head] == 0) {
            return Err("the count of marked words of a bitmap is wrong");
        }
        match self.wrong_mark(storage) {
            Some(_) => Err("a mark of a bitmap differs from the word below it"),
            None => Ok(()),
        }
    }
}

/// Words of level 0 for `bits` bits.
const fn words_of(bits: u64) -> u64 {
    if bits == 0 { 1 } else { bits.div_ceil(64) }
}

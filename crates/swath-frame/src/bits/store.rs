//! Words by their number, which stand in a storage once or three times.
//!
//! A structure that reads and writes its words through [`Words`] and [`Store`] works
//! over a plain slice, and over one in which each word has two copies beside it. There
//! a word that was changed is outvoted when it is read: the work goes on with
//! the right value, and [`Copies`] notes which word it was.

use core::cell::Cell;
use core::ops::{Deref, DerefMut, Range};

use swath_arch::Word;

/// Words that can be read.
pub trait Words<W = u64> {
    /// Returns a word.
    fn word(&self, index: usize) -> W;

    /// Returns a word, if there is one of this number.
    fn find(&self, index: usize) -> Option<W>;

    /// Returns a word and the next.
    fn two(&self, index: usize) -> [W; 2];

    /// Returns true if all words of a range have this value.
    fn are(&self, range: Range<usize>, value: W) -> bool;
}

/// Words that can be written, too.
pub trait Store<W = u64>: Words<W> {
    /// Changes a word.
    fn put(&mut self, index: usize, value: W);

    /// Gives all words of a range this value.
    fn put_all(&mut self, range: Range<usize>, value: W);
}

impl<W: Word> Words<W> for [W] {
    #[inline(always)]
    fn word(&self, index: usize) -> W {
        self[index]
    }

    #[inline(always)]
    fn find(&self, index: usize) -> Option<W> {
        self.get(index).copied()
    }

    #[inline(always)]
    fn two(&self, index: usize) -> [W; 2] {
        match self[index..].first_chunk() {
            Some(&two) => two,
            None => [self[index], W::ZERO],
        }
    }

    #[inline(always)]
    fn are(&self, range: Range<usize>, value: W) -> bool {
        self[range].iter().all(|&word| word == value)
    }
}

impl<W: Word> Store<W> for [W] {
    #[inline(always)]
    fn put(&mut self, index: usize, value: W) {
        self[index] = value;
    }

    #[inline(always)]
    fn put_all(&mut self, range: Range<usize>, value: W) {
        self[range].fill(value);
    }
}

/// A word of a storage that was outvoted: its place and the value that it had.
pub(crate) type Outvoted = Option<(usize, u64)>;

/// How often a word stands in a storage with copies.
pub(crate) const COPIES: usize = 3;

/// The header's first word as long as no word has been outvoted.
const NONE: u64 = u64::MAX;

/// Counts the words of storage in which `words` words stand three times, after a header
/// that says which was outvoted.
pub(crate) const fn copied_words(words: usize) -> usize {
    words.saturating_add(1).saturating_mul(COPIES)
}

/// Makes three of each of the first `words` words, in place: `storage` has
/// [`copied_words`].
pub(crate) fn copy(storage: &mut [u64], words: usize) {
    for index in (0..words).rev() {
        let word = storage[index];
        storage[(index + 1) * COPIES..(index + 2) * COPIES].fill(word);
    }
    storage[..COPIES].fill(NONE);
}

/// The copies of a word, if there is one of this number and the first two, which are
/// looked at, agree.
#[inline(always)]
pub(crate) fn agreeing(storage: &mut [u64], index: usize) -> Option<&mut [u64; COPIES]> {
    let at = index.wrapping_mul(COPIES);
    let [_, _, _, copies @ ..] = storage.get_mut(at..)?.first_chunk_mut::<{ 2 * COPIES }>()?;
    (copies[0] == copies[1]).then_some(copies)
}

/// Returns the word that was outvoted since [`copy`], if one was.
#[inline(always)]
pub(crate) fn outvoted(storage: &[u64]) -> Outvoted {
    match storage {
        [NONE, ..] | [] => None,
        [word, value, ..] => Some(named(storage, *word, *value)),
        [word] => Some((0, *word)),
    }
}

#[cold]
fn named(storage: &[u64], word: u64, value: u64) -> (usize, u64) {
    match usize::try_from(word) {
        Ok(word) if (COPIES..storage.len()).contains(&word) => (word, value),
        // What was changed is the header.
        _ => (0, word),
    }
}

/// Returns the first word that differs from its copies.
pub(crate) fn find_outvoted(storage: &[u64], words: usize) -> Outvoted {
    let (all, _) = storage.as_chunks();
    let (header, copies) = all.split_first()?;
    if let Some(at) = header.iter().position(|&word| word != NONE) {
        return outvoted(storage).or(Some((at, header[at])));
    }
    copies.iter().take(words).zip(1..).find_map(|(copies, index)| {
        let [first, second, third] = *copies;
        if first == second && second == third {
            return None;
        }
        let (_, nth) = vote(first, second, third);
        Some((index * COPIES + nth, copies[nth]))
    })
}

/// The value of the most, and which of the three has another.
fn vote(first: u64, second: u64, third: u64) -> (u64, usize) {
    if first == third {
        (first, 1)
    } else if second == third {
        (second, 0)
    } else {
        (first, 2)
    }
}

/// Words that stand three times and are only read.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s>(&'s [[u64; COPIES]]);

impl<'s> Seen<'s> {
    pub(crate) fn new(storage: &'s [u64]) -> Self {
        Self(storage.as_chunks().0)
    }
}

impl Words for Seen<'_> {
    fn word(&self, index: usize) -> u64 {
        self.find(index).unwrap_or(0)
    }

    fn find(&self, index: usize) -> Option<u64> {
        let &[first, second, third] = self.0.get(index.checked_add(1)?)?;
        Some(if first == second { first } else { vote(first, second, third).0 })
    }

    fn two(&self, index: usize) -> [u64; 2] {
        [self.word(index), self.word(index + 1)]
    }

    fn are(&self, mut range: Range<usize>, value: u64) -> bool {
        range.all(|index| self.word(index) == value)
    }
}

/// Words that stand three times, after a header for the first that is outvoted.
#[derive(Clone, Copy, Debug)]
pub struct Copies<'s> {
    /// No chunk is a storage without words.
    header: Option<&'s [Cell<u64>; COPIES]>,
    words: &'s [[Cell<u64>; COPIES]],
}

impl<'s> Copies<'s> {
    pub(crate) fn new(storage: &'s mut [u64]) -> Self {
        match Cell::from_mut(storage).as_slice_of_cells().as_chunks().0 {
            [header, words @ ..] => Self { header: Some(header), words },
            [] => Self { header: None, words: &[] },
        }
    }

    /// The right value of three that are not the same.
    #[cold]
    #[inline(never)]
    fn outvote(&self, index: usize) -> u64 {
        let (Some(copies), Some([place, had, _])) = (self.words.get(index), self.header) else {
            return 0;
        };
        let [first, second, third] = copies.each_ref().map(Cell::get);
        let (value, nth) = vote(first, second, third);
        if place.get() == NONE {
            place.set(((index + 1) * COPIES + nth) as u64);
            had.set(copies[nth].get());
        }
        value
    }
}

impl Words for Copies<'_> {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        match self.words.get(index) {
            Some([first, second, _]) if first.get() == second.get() => first.get(),
            _ => self.outvote(index),
        }
    }

    #[inline(always)]
    fn find(&self, index: usize) -> Option<u64> {
        (index < self.words.len()).then(|| self.word(index))
    }

    #[inline(always)]
    fn two(&self, index: usize) -> [u64; 2] {
        [self.word(index), self.word(index + 1)]
    }

    #[inline(always)]
    fn are(&self, mut range: Range<usize>, value: u64) -> bool {
        range.all(|index| self.word(index) == value)
    }
}

impl Store for Copies<'_> {
    #[inline(always)]
    fn put(&mut self, index: usize, value: u64) {
        if let Some(copies) = self.words.get(index) {
            copies.iter().for_each(|copy| copy.set(value));
        }
    }

    #[inline(always)]
    fn put_all(&mut self, range: Range<usize>, value: u64) {
        let copies = self.words.get(range).unwrap_or_default();
        copies.as_flattened().iter().for_each(|copy| copy.set(value));
    }
}

/// Lends what it holds, as a reference to a slice lends the slice.
#[derive(Clone, Copy, Debug)]
pub struct Own<T>(pub(crate) T);

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Own<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = copied_words(4);

    #[test]
    fn one_changed_word_of_three_is_outvoted_and_named() {
        for changed in 0..LEN {
            let mut storage = [7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            copy(&mut storage, 4);
            assert_eq!(find_outvoted(&storage, 4), None);
            storage[changed] ^= 1 << 5;
            let was = storage[changed];
            assert_eq!(find_outvoted(&storage, 4), Some((changed, was)), "{changed}");
            assert_eq!(Seen::new(&storage).word(3), 10);
            let mut words = Copies::new(&mut storage);
            for index in 0..4 {
                assert_eq!(words.word(index), 7 + index as u64, "{changed}");
                assert_eq!(words.find(index), Some(7 + index as u64), "{changed}");
            }
            words.put_all(0..4, 3);
            assert!(words.are(0..4, 3) && words.two(1) == [3, 3]);
            assert_eq!((words.find(4), words.find(usize::MAX)), (None, None));
            let agrees = !(COPIES..LEN).contains(&changed) || changed % COPIES == 2;
            let index = (changed / COPIES).saturating_sub(1);
            let mut copied = [7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            copy(&mut copied, 4);
            copied[changed] ^= 1;
            assert_eq!(agreeing(&mut copied, index).is_some(), agrees, "{changed}");
            assert_eq!(agreeing(&mut copied, 4), None);
            assert_eq!(agreeing(&mut copied, usize::MAX), None);
            // The third copy is not looked at as long as the others agree.
            let noticed = changed == 0 || changed >= COPIES && changed % COPIES != 2;
            let expected = noticed.then_some((changed, was));
            assert_eq!(outvoted(&storage), expected, "{changed}");
        }
    }
}

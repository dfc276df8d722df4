//! Words by their number, and words of which each is kept three times.
//!
//! A structure that reads and writes through [`Kept`] and [`Keep`] works over a plain slice,
//! and over one in which the words that it keeps, by their number, stand in **groups**: four words,
//! the same four again, and again, and four that are spare. There a word that was changed is
//! outvoted when it is read: the work goes on with the right value, and [`Copies`] notes which word
//! it was. The other words of the slice stand once in both.

use core::cell::Cell;
use core::ops::{Deref, DerefMut};

use swath_arch::Word;

/// Words that can be read.
pub(crate) trait Words<W = u64> {
    /// Returns a word.
    fn word(&self, index: usize) -> W;

    /// Returns a word, if there is one of this number.
    fn find(&self, index: usize) -> Option<W>;
}

/// Words that can be written, too.
pub(crate) trait Store<W = u64>: Words<W> {
    /// Changes a word.
    fn put(&mut self, index: usize, value: W);
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
}

impl<W: Word> Store<W> for [W] {
    #[inline(always)]
    fn put(&mut self, index: usize, value: W) {
        self[index] = value;
    }
}

/// A storage of which some words are kept, in the checked tier three times.
pub trait Kept {
    /// True if they are, and what stands once is looked at before it is believed.
    const CHECKED: bool;

    /// The number of words that are kept from the first of a record to that of the next; the records
    /// begin with the first word, and have three or more words.
    const STRIDE: usize;

    /// Returns the storage as it is.
    fn words(&self) -> &[u64];

    /// Returns a word that is kept.
    fn kept(&self, index: usize) -> u64;

    /// Returns the first copy of a record's second word, for who can do with a wrong one.
    fn second(&self, number: usize) -> u64;

    /// Returns the first word of a record, its first copy, and the second word, looked at.
    fn record(&self, number: usize) -> [u64; 2];
}

/// Such a storage that can be changed.
pub trait Keep: Kept {
    /// Returns the storage as it is.
    fn words_mut(&mut self) -> &mut [u64];

    /// Changes a word that is kept.
    fn keep(&mut self, index: usize, value: u64);

    /// Adds to each copy of a record's first word, so that one that was changed stays another; returns
    /// the first copy, and that of the second word.
    fn add(&mut self, number: usize, more: u64) -> [u64; 2];
}

impl Kept for [u64] {
    const CHECKED: bool = false;
    const STRIDE: usize = 3;

    #[inline(always)]
    fn words(&self) -> &[u64] {
        self
    }

    #[inline(always)]
    fn kept(&self, index: usize) -> u64 {
        self[index]
    }

    #[inline(always)]
    fn second(&self, number: usize) -> u64 {
        self[number * Self::STRIDE + 1]
    }

    #[inline(always)]
    fn record(&self, number: usize) -> [u64; 2] {
        self[number * Self::STRIDE..].first_chunk().copied().unwrap_or_default()
    }
}

impl Keep for [u64] {
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        self
    }

    #[inline(always)]
    fn keep(&mut self, index: usize, value: u64) {
        self[index] = value;
    }

    #[inline(always)]
    fn add(&mut self, number: usize, more: u64) -> [u64; 2] {
        let record = self[number * Self::STRIDE..].first_chunk_mut();
        let Some([word, next]) = record else { return [0; 2] };
        *word = word.wrapping_add(more);
        [*word, *next]
    }
}

/// Words that are kept in a group, and the words that it has: a power of two, so that there is one
/// bound to look at. Copies do not touch each other, or the compiler would change two at once, which
/// takes longer than one by one.
const PARTS: usize = 4;
pub(crate) const GROUP: usize = 4 * PARTS;

/// Words in which so many words are kept three times.
pub(crate) const fn kept_words(count: usize) -> usize {
    count.div_ceil(PARTS).saturating_mul(GROUP)
}

/// The number of the first word that is kept in the groups from the word `at` on.
pub(crate) const fn first_kept(at: usize) -> usize {
    at / GROUP * PARTS
}

/// Makes three of a word that is kept.
pub(crate) fn spread(storage: &mut [u64], index: usize, value: u64) {
    let at = index / PARTS * GROUP + index % PARTS;
    (0..3).for_each(|copy| storage[at + copy * PARTS] = value);
}

/// The copies of a word that is kept.
#[inline(always)]
fn copies(storage: &[u64], index: usize) -> Option<[u64; 3]> {
    let group = storage.as_chunks::<GROUP>().0.get(index / PARTS)?;
    let part = index % PARTS;
    Some([group[part], group[part + PARTS], group[part + 2 * PARTS]])
}

/// A word of a storage that was outvoted: its place and the value that it had.
pub(crate) type Outvoted = Option<(usize, u64)>;

/// Returns the copy of a word that is kept which differs from the others.
pub(crate) fn differing(storage: &[u64], index: usize) -> Outvoted {
    let copies = copies(storage, index)?;
    let [first, second, third] = copies;
    if first == second && second == third {
        return None;
    }
    let (_, nth) = vote(first, second, third);
    Some((index / PARTS * GROUP + index % PARTS + nth * PARTS, copies[nth]))
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

/// A storage with copies that is only read.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'s>(pub(crate) &'s [u64]);

impl Kept for Seen<'_> {
    const CHECKED: bool = true;
    const STRIDE: usize = PARTS;

    #[inline]
    fn words(&self) -> &[u64] {
        self.0
    }

    fn kept(&self, index: usize) -> u64 {
        match copies(self.0, index) {
            Some([first, second, _]) if first == second => first,
            Some([first, second, third]) => vote(first, second, third).0,
            None => 0,
        }
    }

    fn second(&self, number: usize) -> u64 {
        self.kept(number * Self::STRIDE + 1)
    }

    fn record(&self, number: usize) -> [u64; 2] {
        let first = number * Self::STRIDE;
        [self.kept(first), self.kept(first + 1)]
    }
}

/// A storage with copies, and a place for the first word that is outvoted.
#[derive(Debug)]
pub struct Copies<'s> {
    words: &'s mut [u64],
    note: &'s Cell<Outvoted>,
}

impl<'s> Copies<'s> {
    #[inline(always)]
    pub(crate) fn new(words: &'s mut [u64], note: &'s mut Outvoted) -> Self {
        Self { words, note: Cell::from_mut(note) }
    }

    /// The right value of three that are not the same.
    #[cold]
    #[inline(never)]
    fn outvote(&self, index: usize) -> u64 {
        if self.note.get().is_none() {
            self.note.set(differing(self.words, index));
        }
        Seen(self.words).kept(index)
    }
}

impl Kept for Copies<'_> {
    const CHECKED: bool = true;
    const STRIDE: usize = PARTS;

    #[inline(always)]
    fn words(&self) -> &[u64] {
        self.words
    }

    #[inline(always)]
    fn kept(&self, index: usize) -> u64 {
        match copies(self.words, index) {
            Some([first, second, _]) if first == second => first,
            _ => self.outvote(index),
        }
    }

    #[inline(always)]
    fn second(&self, number: usize) -> u64 {
        self.words.as_chunks::<GROUP>().0.get(number).map_or(0, |group| group[1])
    }

    #[inline(always)]
    fn record(&self, number: usize) -> [u64; 2] {
        let outvoted = || self.outvote(number * Self::STRIDE + 1);
        match self.words.as_chunks::<GROUP>().0.get(number) {
            Some(group) if group[1] == group[1 + PARTS] => [group[0], group[1]],
            Some(group) => [group[0], outvoted()],
            None => [0; 2],
        }
    }
}

impl Keep for Copies<'_> {
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        self.words
    }

    #[inline(always)]
    fn keep(&mut self, index: usize, value: u64) {
        let groups = self.words.as_chunks_mut::<GROUP>().0;
        if let Some(group) = groups.get_mut(index / PARTS) {
            let part = index % PARTS;
            group[part] = value;
            group[part + PARTS] = value;
            group[part + 2 * PARTS] = value;
        }
    }

    #[inline(always)]
    fn add(&mut self, number: usize, more: u64) -> [u64; 2] {
        let records = self.words.as_chunks_mut::<GROUP>().0;
        let Some(group) = records.get_mut(number) else { return [0; 2] };
        group[0] = group[0].wrapping_add(more);
        group[PARTS] = group[PARTS].wrapping_add(more);
        group[2 * PARTS] = group[2 * PARTS].wrapping_add(more);
        [group[0], group[1]]
    }
}

/// The words that a storage keeps, by their number.
#[derive(Debug)]
pub(crate) struct AsKept<R>(pub(crate) R);

impl<S: Kept + ?Sized> Words for AsKept<&S> {
    fn word(&self, index: usize) -> u64 {
        self.0.kept(index)
    }

    fn find(&self, index: usize) -> Option<u64> {
        Some(self.0.kept(index))
    }
}

impl<S: Keep + ?Sized> Words for AsKept<&mut S> {
    #[inline(always)]
    fn word(&self, index: usize) -> u64 {
        self.0.kept(index)
    }

    #[inline(always)]
    fn find(&self, index: usize) -> Option<u64> {
        Some(self.0.kept(index))
    }
}

impl<S: Keep + ?Sized> Store for AsKept<&mut S> {
    #[inline(always)]
    fn put(&mut self, index: usize, value: u64) {
        self.0.keep(index, value);
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

    const LEN: usize = 2 * GROUP + 3;

    /// Seven words that are kept, which are 7 to 13.
    fn plain() -> [u64; LEN] {
        let mut storage = [0; LEN];
        (0..7).for_each(|index| spread(&mut storage, index, 7 + index as u64));
        storage
    }

    #[test]
    fn one_changed_word_of_three_is_outvoted_and_named() {
        assert_eq!((kept_words(7), first_kept(GROUP)), (2 * GROUP, 4));
        for changed in 0..LEN {
            let mut storage = plain();
            storage[changed] ^= 1 << 5;
            let (was, part) = (storage[changed], changed % GROUP);
            let is_kept = changed < 2 * GROUP && part < 3 * PARTS;
            let found = (0..8).find_map(|index| differing(&storage, index));
            assert_eq!(found, is_kept.then_some((changed, was)), "{changed}");
            let mut note = None;
            {
                let words = Copies::new(&mut storage, &mut note);
                for index in 0..7 {
                    assert_eq!(words.kept(index), 7 + index as u64, "{changed}");
                    assert_eq!(Seen(words.words()).kept(index), 7 + index as u64, "{changed}");
                }
                assert_eq!((words.kept(8), words.kept(usize::MAX)), (0, 0));
            }
            // The third copy is not looked at as long as the others agree, nor what nothing is kept in.
            let is_read = is_kept && part < 2 * PARTS && (changed < GROUP || part % PARTS != 3);
            assert_eq!(note, is_read.then_some((changed, was)), "{changed}");
        }
    }

    #[test]
    fn an_addition_leaves_a_changed_word_another() {
        for changed in (GROUP..GROUP + 3 * PARTS).filter(|changed| changed % PARTS < 2) {
            let (mut storage, mut note) = (plain(), None);
            storage[changed] ^= 1 << 40;
            let mut words = Copies::new(&mut storage, &mut note);
            let [first, next] = words.add(1, 2);
            assert_eq!([first, next].map(|word| word & 0xff), [13, 12]);
            assert_eq!((words.add(2, 1), words.record(2)), ([0; 2], [0; 2]));
            assert_eq!(words.record(1), [first, 12]);
            let found = (0..8).find_map(|index| differing(&storage, index));
            assert_eq!(found, Some((changed, storage[changed])));
            assert_eq!(Seen(&storage).record(1), [13, 12]);
            assert_eq!(note.is_some(), [GROUP + 1, GROUP + PARTS + 1].contains(&changed));
        }
    }
}

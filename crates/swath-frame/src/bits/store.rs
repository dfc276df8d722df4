//! Words by their number, and words of which each is kept three times.
//!
//! A structure that reads and writes through [`Kept`] and [`Keep`] works over a plain slice,
//! and over one in which the words that it keeps, by their number, have two copies beside them: a
//! **cell** of four words, the last of which is spare. There a word that was changed is
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

    /// How many words are kept from the first of a record to that of the next; the records
    /// begin with the first word, and have three or more words.
    const STRIDE: usize;

    /// Returns the storage as it is.
    fn words(&self) -> &[u64];

    /// Returns a word that is kept.
    fn kept(&self, index: usize) -> u64;

    /// Returns the first copy of a word that is kept, for who can do with a wrong one.
    fn kept_first(&self, index: usize) -> u64;

    /// Returns the first word of a record, as [`kept_first`](Self::kept_first) does, and the second.
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
    fn kept_first(&self, index: usize) -> u64 {
        self[index]
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

/// Words of a cell.
pub(crate) const CELL: usize = 4;

/// Words of a record of which each word is kept three times: a power of two, so that there is one
/// bound to look at.
const RECORD: usize = 4 * CELL;

/// A word of a storage that was outvoted: its place and the value that it had.
pub(crate) type Outvoted = Option<(usize, u64)>;

/// Returns the word of a cell of copies that differs from the others.
pub(crate) fn differing(storage: &[u64], cell: usize) -> Outvoted {
    let copies = *storage.as_chunks::<CELL>().0.get(cell)?;
    let [first, second, third, _] = copies;
    if first == second && second == third {
        return None;
    }
    let (_, nth) = vote(first, second, third);
    Some((cell * CELL + nth, copies[nth]))
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
    const STRIDE: usize = RECORD / CELL;

    #[inline]
    fn words(&self) -> &[u64] {
        self.0
    }

    fn kept(&self, index: usize) -> u64 {
        match self.0.as_chunks::<CELL>().0.get(index) {
            Some(&[first, second, ..]) if first == second => first,
            Some(&[first, second, third, _]) => vote(first, second, third).0,
            None => 0,
        }
    }

    fn kept_first(&self, index: usize) -> u64 {
        self.kept(index)
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
    const STRIDE: usize = RECORD / CELL;

    #[inline(always)]
    fn words(&self) -> &[u64] {
        self.words
    }

    #[inline(always)]
    fn kept(&self, index: usize) -> u64 {
        match self.words.as_chunks::<CELL>().0.get(index) {
            Some(&[first, second, ..]) if first == second => first,
            _ => self.outvote(index),
        }
    }

    #[inline(always)]
    fn kept_first(&self, index: usize) -> u64 {
        self.words.as_chunks::<CELL>().0.get(index).map_or(0, |copies| copies[0])
    }

    #[inline(always)]
    fn record(&self, number: usize) -> [u64; 2] {
        let outvoted = || self.outvote(number * Self::STRIDE + 1);
        match self.words.as_chunks::<RECORD>().0.get(number) {
            Some(&[first, _, _, _, next, copy, ..]) if next == copy => [first, next],
            Some(&[first, ..]) => [first, outvoted()],
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
        if let Some([first, second, third, _]) = self.words.as_chunks_mut::<CELL>().0.get_mut(index)
        {
            (*first, *second, *third) = (value, value, value);
        }
    }

    #[inline(always)]
    fn add(&mut self, number: usize, more: u64) -> [u64; 2] {
        let records = self.words.as_chunks_mut::<RECORD>().0;
        let Some([first, second, third, _, next, ..]) = records.get_mut(number) else {
            return [0; 2];
        };
        *first = first.wrapping_add(more);
        *second = second.wrapping_add(more);
        *third = third.wrapping_add(more);
        [*first, *next]
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

    const PLAIN: [u64; 12] = [7, 7, 7, 0, 8, 8, 8, 0, 9, 9, 9, 0];

    #[test]
    fn one_changed_word_of_three_is_outvoted_and_named() {
        for changed in 0..PLAIN.len() {
            let mut storage = PLAIN;
            storage[changed] ^= 1 << 5;
            let (was, is_spare) = (storage[changed], changed % CELL == 3);
            let found = (0..3).find_map(|cell| differing(&storage, cell));
            assert_eq!(found, (!is_spare).then_some((changed, was)), "{changed}");
            let mut note = None;
            {
                let words = Copies::new(&mut storage, &mut note);
                for index in 0..3 {
                    assert_eq!(words.kept(index), 7 + index as u64, "{changed}");
                    assert_eq!(Seen(words.words()).kept(index), 7 + index as u64, "{changed}");
                }
                assert_eq!((words.kept(3), words.kept(usize::MAX)), (0, 0));
            }
            // The third copy is not looked at as long as the others agree.
            let noticed = (changed % CELL < 2).then_some((changed, was));
            assert_eq!(note, noticed, "{changed}");
        }
    }

    #[test]
    fn an_addition_leaves_a_changed_word_another() {
        for changed in (0..3).chain(4..7) {
            let (mut storage, mut note) = ([0; 2 * RECORD + 3], None);
            storage[RECORD..RECORD + 12].copy_from_slice(&PLAIN);
            storage[RECORD + changed] ^= 1 << 40;
            let mut words = Copies::new(&mut storage, &mut note);
            let [first, next] = words.add(1, 2);
            assert_eq!([first, next].map(|word| word & 0xff), [9, 8]);
            assert_eq!((words.add(2, 1), words.record(2)), ([0; 2], [0; 2]));
            let read = words.record(1);
            assert_eq!((read[0], read[1]), (first, 8));
            let found = (0..RECORD / CELL * 2).find_map(|cell| differing(&storage, cell));
            assert_eq!(found, Some((RECORD + changed, storage[RECORD + changed])));
            assert_eq!(Seen(&storage).record(1), [9, 8]);
            assert_eq!(note.is_some(), changed == 4 || changed == 5);
        }
    }
}

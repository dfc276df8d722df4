//! Words by their number, and words of which each is kept three times.
//!
//! A structure that reads and writes through [`Kept`] and [`Keep`] works over a plain slice,
//! and over one in which the words that it keeps, by their number, stand in **groups**: four words,
//! the same four again, and again, and four that are spare. There a word that was changed is
//! outvoted when it is read: the work goes on with the right value, and [`Guarded`] notes that there
//! was one. What changes a word changes the same bits of each copy, so that the wrong one goes on
//! to differ. Two calls do neither: [`record`](Kept::record) gives none where copies differ, and
//! [`mark`](Keep::mark) rights the bit that it writes. The other words of the slice stand once in both.

use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

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

    /// Returns the word `nth` of a record.
    fn field(&self, number: usize, nth: usize) -> u64;

    /// Returns the first copy of a record's second word, for who can do with a wrong one.
    fn second(&self, number: usize) -> u64;

    /// Returns the number of the last record, of so many, whose second word has a bit of `any` and
    /// none of `none`, by its first copy.
    fn last(&self, count: usize, any: u64, none: u64) -> Option<usize>;

    /// Returns the first copies of a record's first two words; `None` if the second was changed, or
    /// if there is no such record.
    fn record(&self, number: usize) -> Option<[u64; 2]>;

    /// Returns a record's first three words, looked at together.
    fn fields(&self, number: usize) -> [u64; 3];
}

/// Such a storage that can be changed.
pub trait Keep: Kept {
    /// Returns the storage as it is.
    fn words_mut(&mut self) -> &mut [u64];

    /// Changes a word that is kept, which is `was`.
    fn keep(&mut self, index: usize, was: u64, value: u64);

    /// Changes the half `index` of the words that are kept, which is `was`, and does not read it.
    fn keep_half(&mut self, index: usize, was: u32, value: u32);

    /// Changes the word `nth` of a record; returns what it was.
    fn update(&mut self, number: usize, nth: usize, value: impl FnOnce(u64) -> u64) -> u64;

    /// Changes the word `nth` of a record, which is `was`.
    fn set_field(&mut self, number: usize, nth: usize, was: u64, value: u64);

    /// Changes the half `nth` of a record's words, which is `was`, and does not read it.
    fn set_half(&mut self, number: usize, nth: usize, was: u32, value: u32);

    /// Sets a bit of each copy of a record's second word, or clears it. A copy in which it is wrong
    /// is right from here on.
    fn mark(&mut self, number: usize, bit: u32, is_set: bool);

    /// Adds to each copy of a record's first word, so that one that was changed stays another; returns
    /// the first copy, and that of the second word.
    fn add(&mut self, number: usize, more: u64) -> [u64; 2];

    /// As [`add`](Self::add) in the words of such a storage, and makes the second word, which is `was`,
    /// another; returns the first copy of the first.
    fn put(words: &mut [u64], number: usize, more: u64, was: u64, value: u64) -> u64;

    /// As [`put`](Self::put), by the bits of the second word that change; returns the first copies of
    /// both.
    fn flip(words: &mut [u64], number: usize, more: u64, bits: u64) -> [u64; 2];
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
    fn field(&self, number: usize, nth: usize) -> u64 {
        self[number * Self::STRIDE + nth]
    }

    #[inline(always)]
    fn second(&self, number: usize) -> u64 {
        self[number * Self::STRIDE + 1]
    }

    #[inline(always)]
    fn last(&self, count: usize, any: u64, none: u64) -> Option<usize> {
        let is_wanted = |word| word & any != 0 && word & none == 0;
        (0..count).rev().find(|&number| is_wanted(self.second(number)))
    }

    #[inline(always)]
    fn record(&self, number: usize) -> Option<[u64; 2]> {
        self[number * Self::STRIDE..].first_chunk().copied()
    }

    #[inline(always)]
    fn fields(&self, number: usize) -> [u64; 3] {
        self[number * Self::STRIDE..].first_chunk().copied().unwrap_or_default()
    }
}

impl Keep for [u64] {
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        self
    }

    #[inline(always)]
    fn keep(&mut self, index: usize, _was: u64, value: u64) {
        self[index] = value;
    }

    #[inline(always)]
    fn keep_half(&mut self, index: usize, _was: u32, value: u32) {
        let word = &mut self[index / 2];
        *word = with_half(*word, index % 2, value);
    }

    #[inline(always)]
    fn update(&mut self, number: usize, nth: usize, value: impl FnOnce(u64) -> u64) -> u64 {
        let word = &mut self[number * Self::STRIDE + nth];
        core::mem::replace(word, value(*word))
    }

    #[inline(always)]
    fn set_field(&mut self, number: usize, nth: usize, _was: u64, value: u64) {
        self[number * Self::STRIDE + nth] = value;
    }

    #[inline(always)]
    fn set_half(&mut self, number: usize, nth: usize, _was: u32, value: u32) {
        let word = &mut self[number * Self::STRIDE + nth / 2];
        *word = with_half(*word, nth % 2, value);
    }

    #[inline(always)]
    fn mark(&mut self, number: usize, bit: u32, is_set: bool) {
        set_bit(&mut self[number * Self::STRIDE + 1], bit, is_set);
    }

    #[inline(always)]
    fn add(&mut self, number: usize, more: u64) -> [u64; 2] {
        let record = self[number * Self::STRIDE..].first_chunk_mut();
        let Some([word, next]) = record else { return [0; 2] };
        *word = word.wrapping_add(more);
        [*word, *next]
    }

    #[inline(always)]
    fn put(words: &mut [u64], number: usize, more: u64, was: u64, value: u64) -> u64 {
        let record = words[number * Self::STRIDE..].first_chunk_mut();
        let Some([word, next]) = record else { return 0 };
        *word = word.wrapping_add(more);
        if was != value {
            *next = value;
        }
        *word
    }

    #[inline(always)]
    fn flip(words: &mut [u64], number: usize, more: u64, bits: u64) -> [u64; 2] {
        let record = words[number * Self::STRIDE..].first_chunk_mut();
        let Some([word, next]) = record else { return [0; 2] };
        *word = word.wrapping_add(more);
        if bits != 0 {
            *next ^= bits;
        }
        [*word, *next]
    }
}

/// Words that are kept in a group, and the words that it has: a power of two, so that there is one
/// bound to look at. Copies do not touch each other, or the compiler would change two at once, which
/// takes longer than one by one.
pub(crate) const PARTS: usize = 4;
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

/// Returns the copy of a word that is kept which differs from the others, with its place.
pub(crate) fn differing(storage: &[u64], index: usize) -> Option<usize> {
    let [first, second, third] = copies(storage, index)?;
    if first == second && second == third {
        return None;
    }
    let (_, nth) = vote(first, second, third);
    Some(index / PARTS * GROUP + index % PARTS + nth * PARTS)
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

/// A note that a word was outvoted, which who only reads can make.
#[derive(Default, Debug)]
pub struct Outvoted(AtomicBool);

impl Outvoted {
    /// Returns true if the note was made.
    #[inline(always)]
    pub(crate) fn is_noted(&mut self) -> bool {
        *self.0.get_mut()
    }
}

impl Clone for Outvoted {
    fn clone(&self) -> Self {
        Self(AtomicBool::new(self.0.load(Ordering::Relaxed)))
    }
}

/// A storage, and a place for a note that one of its words was outvoted: `()` where none can be.
///
/// It is what a call hands on, one pointer, where the slice and the note would be three words.
#[derive(Clone, Debug)]
pub struct Guarded<W, N> {
    pub(crate) words: W,
    pub(crate) note: N,
}

impl<W: Deref<Target = [u64]>> Guarded<W, Outvoted> {
    #[inline(always)]
    fn groups(&self) -> &[[u64; GROUP]] {
        self.words.as_chunks::<GROUP>().0
    }

    /// As [`last`](Kept::last), with both tests a group.
    #[cold]
    #[inline(never)]
    fn last_below(&self, count: usize, any: u64, none: u64) -> Option<usize> {
        let is_wanted = |group: &[u64; GROUP]| group[1] & any != 0 && group[1] & none == 0;
        self.groups().get(..count)?.iter().rposition(is_wanted)
    }

    /// The right value of three that are not the same; 0 if there is no such word.
    #[cold]
    #[inline(never)]
    fn outvote(&self, number: usize, nth: usize) -> u64 {
        let index = number * PARTS + nth;
        self.note.0.store(true, Ordering::Relaxed);
        copies(&self.words, index).map_or(0, |[first, second, third]| vote(first, second, third).0)
    }

    /// The right values of a record's first three words.
    #[cold]
    #[inline(never)]
    fn outvote_fields(&self, number: usize) -> [u64; 3] {
        [0, 1, 2].map(|nth| self.outvote(number, nth))
    }
}

/// A word with another half.
#[inline(always)]
pub(crate) const fn with_half(word: u64, nth: usize, value: u32) -> u64 {
    let shift = nth * 32;
    word & !((u32::MAX as u64) << shift) | (value as u64) << shift
}

/// Changes the same bits of each copy of a word.
#[inline(always)]
fn change(group: &mut [u64; GROUP], part: usize, bits: u64) {
    group[part] ^= bits;
    group[part + PARTS] ^= bits;
    group[part + 2 * PARTS] ^= bits;
}

/// Sets a bit of a word, or clears it.
#[inline(always)]
pub(crate) fn set_bit(word: &mut u64, bit: u32, is_set: bool) {
    *word = *word & !(1 << bit) | u64::from(is_set) << bit;
}

/// Adds to each copy of a group's first word.
#[inline(always)]
fn add(group: &mut [u64; GROUP], more: u64) {
    group[0] = group[0].wrapping_add(more);
    group[PARTS] = group[PARTS].wrapping_add(more);
    group[2 * PARTS] = group[2 * PARTS].wrapping_add(more);
}

impl<W: DerefMut<Target = [u64]>> Kept for Guarded<W, Outvoted> {
    const CHECKED: bool = true;
    const STRIDE: usize = PARTS;

    #[inline(always)]
    fn words(&self) -> &[u64] {
        &self.words
    }

    #[inline(always)]
    fn kept(&self, index: usize) -> u64 {
        let (number, part) = (index / PARTS, index % PARTS);
        match self.groups().get(number) {
            Some(group) if group[part] == group[part + PARTS] => group[part],
            _ => self.outvote(number, part),
        }
    }

    #[inline(always)]
    fn field(&self, number: usize, nth: usize) -> u64 {
        match self.groups().get(number) {
            Some(group) if group[nth] == group[nth + PARTS] => group[nth],
            _ => self.outvote(number, nth),
        }
    }

    #[inline(always)]
    fn second(&self, number: usize) -> u64 {
        self.groups().get(number).map_or(0, |group| group[1])
    }

    #[inline(always)]
    fn last(&self, count: usize, any: u64, none: u64) -> Option<usize> {
        let groups = self.groups().get(..count)?;
        // Most that have a bit of `any` have none of `none`: one test a group.
        let at = groups.iter().rposition(|group| group[1] & any != 0)?;
        if groups.get(at)?[1] & none == 0 { Some(at) } else { self.last_below(at, any, none) }
    }

    #[inline(always)]
    fn record(&self, number: usize) -> Option<[u64; 2]> {
        let group = self.groups().get(number)?;
        (group[1] == group[1 + PARTS]).then_some([group[0], group[1]])
    }

    #[inline(always)]
    fn fields(&self, number: usize) -> [u64; 3] {
        let differs = |group: &[u64; GROUP], nth: usize| group[nth] ^ group[nth + PARTS];
        match self.groups().get(number) {
            Some(group) if differs(group, 0) | differs(group, 1) | differs(group, 2) == 0 => {
                [group[0], group[1], group[2]]
            }
            _ => self.outvote_fields(number),
        }
    }
}

impl<W: DerefMut<Target = [u64]>> Keep for Guarded<W, Outvoted> {
    #[inline(always)]
    fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    #[inline(always)]
    fn keep(&mut self, index: usize, was: u64, value: u64) {
        let groups = self.words.as_chunks_mut::<GROUP>().0;
        if let Some(group) = groups.get_mut(index / PARTS) {
            change(group, index % PARTS, was ^ value);
        }
    }

    #[inline(always)]
    fn keep_half(&mut self, index: usize, was: u32, value: u32) {
        let (index, shift) = (index / 2, index % 2 * 32);
        let groups = self.words.as_chunks_mut::<GROUP>().0;
        if let Some(group) = groups.get_mut(index / PARTS) {
            change(group, index % PARTS, u64::from(was ^ value) << shift);
        }
    }

    #[inline(always)]
    fn update(&mut self, number: usize, nth: usize, value: impl FnOnce(u64) -> u64) -> u64 {
        match self.words.as_chunks_mut::<GROUP>().0.get_mut(number) {
            Some(group) if group[nth] == group[nth + PARTS] => {
                let was = group[nth];
                change(group, nth, was ^ value(was));
                was
            }
            _ => {
                let was = self.outvote(number, nth);
                self.keep(number * PARTS + nth, was, value(was));
                was
            }
        }
    }

    #[inline(always)]
    fn set_field(&mut self, number: usize, nth: usize, was: u64, value: u64) {
        if let Some(group) = self.words.as_chunks_mut::<GROUP>().0.get_mut(number) {
            change(group, nth, was ^ value);
        }
    }

    #[inline(always)]
    fn set_half(&mut self, number: usize, nth: usize, was: u32, value: u32) {
        if let Some(group) = self.words.as_chunks_mut::<GROUP>().0.get_mut(number) {
            change(group, nth / 2, u64::from(was ^ value) << (nth % 2 * 32));
        }
    }

    #[inline(always)]
    fn mark(&mut self, number: usize, bit: u32, is_set: bool) {
        if let Some(group) = self.words.as_chunks_mut::<GROUP>().0.get_mut(number) {
            set_bit(&mut group[1], bit, is_set);
            set_bit(&mut group[1 + PARTS], bit, is_set);
            set_bit(&mut group[1 + 2 * PARTS], bit, is_set);
        }
    }

    #[inline(always)]
    fn add(&mut self, number: usize, more: u64) -> [u64; 2] {
        let groups = self.words.as_chunks_mut::<GROUP>().0;
        let Some(group) = groups.get_mut(number) else { return [0; 2] };
        add(group, more);
        [group[0], group[1]]
    }

    #[inline(always)]
    fn put(words: &mut [u64], number: usize, more: u64, was: u64, value: u64) -> u64 {
        let groups = words.as_chunks_mut::<GROUP>().0;
        let Some(group) = groups.get_mut(number) else { return 0 };
        add(group, more);
        if was != value {
            change(group, 1, was ^ value);
        }
        group[0]
    }

    #[inline(always)]
    fn flip(words: &mut [u64], number: usize, more: u64, bits: u64) -> [u64; 2] {
        let groups = words.as_chunks_mut::<GROUP>().0;
        let Some(group) = groups.get_mut(number) else { return [0; 2] };
        add(group, more);
        if bits != 0 {
            change(group, 1, bits);
        }
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
        self.0.keep(index, self.0.kept(index), value);
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

    fn guarded(storage: &mut [u64]) -> Guarded<&mut [u64], Outvoted> {
        Guarded { words: storage, note: Outvoted::default() }
    }

    #[test]
    fn one_changed_word_of_three_is_outvoted_and_named() {
        assert_eq!((kept_words(7), first_kept(GROUP)), (2 * GROUP, 4));
        for changed in 0..LEN {
            let mut storage = plain();
            storage[changed] ^= 1 << 5;
            let part = changed % GROUP;
            let is_kept = changed < 2 * GROUP && part < 3 * PARTS;
            let found = (0..8).find_map(|index| differing(&storage, index));
            assert_eq!(found, is_kept.then_some(changed), "{changed}");
            let words = guarded(&mut storage);
            for index in 0..7 {
                assert_eq!(words.kept(index), 7 + index as u64, "{changed}");
                assert_eq!(words.field(index / 4, index % 4), 7 + index as u64, "{changed}");
            }
            // The third copy is not looked at as long as the others agree, nor what nothing is kept in.
            let is_read = is_kept && part < 2 * PARTS && (changed < GROUP || part % PARTS != 3);
            assert_eq!(words.note.clone().is_noted(), is_read, "{changed}");
            assert_eq!((words.kept(8), words.kept(usize::MAX)), (0, 0));
        }
    }

    #[test]
    fn a_change_leaves_a_changed_word_another() {
        for changed in (GROUP..GROUP + 3 * PARTS).filter(|changed| changed % PARTS < 2) {
            let mut storage = plain();
            storage[changed] ^= 1 << 40;
            let mut words = guarded(&mut storage);
            let [first, next] = words.add(1, 2);
            assert_eq!([first, next].map(|word| word & 0xff), [13, 12]);
            assert_eq!((words.add(2, 1), words.record(2)), ([0; 2], None));
            let is_read = [GROUP + 1, GROUP + PARTS + 1].contains(&changed);
            assert_eq!(words.record(1), (!is_read).then_some([first, 12]));
            let last = (changed != GROUP + 1).then_some(1);
            assert_eq!((words.last(2, 4, 1 << 40), words.last(2, 4, 4)), (last, None));
            assert_eq!((words.last(1, 8, 0), words.last(3, 8, 0)), (Some(0), None));
            assert_eq!((words.field(1, 1), words.note.is_noted()), (12, is_read));
            words.keep(5, 12, 90);
            assert_eq!(words.update(1, 0, |was| was + 57), 13);
            assert_eq!([words.field(1, 0), words.kept(5), words.kept(6)], [70, 90, 13]);
            let flip = Guarded::<&mut [u64], Outvoted>::flip;
            let firsts = flip(words.words_mut(), 1, 5, 1 << 9);
            assert_eq!(firsts.map(|word| word & 0xffff), [75, 90 | 1 << 9]);
            assert_eq!(flip(words.words_mut(), 1, 0, 0), firsts);
            assert_eq!(flip(words.words_mut(), 2, 5, 1), [0; 2]);
            assert_eq!([words.field(1, 0), words.kept(5), words.kept(6)], [75, 90 | 1 << 9, 13]);
            let found = (0..8).find_map(|index| differing(&storage, index));
            assert_eq!(found, Some(changed));
        }
    }

    #[test]
    fn three_words_are_outvoted_together_and_halves_are_changed_unread() {
        for changed in GROUP..2 * GROUP {
            let mut storage = plain();
            storage[changed] ^= 1 << 20;
            let part = changed % GROUP;
            let mut words = guarded(&mut storage);
            assert_eq!(words.fields(0), [7, 8, 9]);
            assert!(!words.note.is_noted());
            assert_eq!(words.fields(1), [11, 12, 13], "{changed}");
            let is_read = part < 2 * PARTS && part % PARTS != 3;
            assert_eq!(words.note.is_noted(), is_read, "{changed}");
            words.set_field(1, 0, 11, 30);
            words.set_half(1, 2, 12, 31);
            words.set_half(1, 3, 0, 32);
            words.keep_half(2 * 6, 13, 33);
            words.keep_half(2 * 6 + 1, 0, 34);
            assert_eq!(words.fields(1), [30, 32 << 32 | 31, 34 << 32 | 33], "{changed}");
            assert_eq!((words.fields(0), words.fields(2)), ([7, 8, 9], [0; 3]));
            words.set_field(2, 0, 1, 2);
            words.set_half(2, 0, 1, 2);
            words.keep_half(2 * 8, 1, 2);
            let is_kept = part < 3 * PARTS && part % PARTS != 3;
            let found = (0..8).find_map(|index| differing(&storage, index));
            assert_eq!(found.filter(|_| is_kept), is_kept.then_some(changed), "{changed}");
        }
        let mut plain = [1, 2, 3, 4, 5, 6];
        let words = &mut plain[..];
        assert_eq!(words.fields(1), [4, 5, 6]);
        words.set_field(1, 0, 4, 7);
        words.set_half(1, 3, 0, 8);
        words.keep_half(2 * 5, 6, 9);
        assert_eq!(plain, [1, 2, 3, 7, 8 << 32 | 5, 9]);
    }
}

//! Bitmaps beside plain flags, by every method that allocators call; and marks that are wrong.

extern crate std;

use std::vec;
use std::vec::Vec;

use swath_arch::testing::Random;

use crate::bits::Bitmap;

/// Words before and after the bitmap's, which are nobody's.
const AROUND: usize = 3;

/// A bitmap, and a flag for each of its numbers.
struct Pair {
    bitmap: Bitmap,
    storage: Vec<u64>,
    flags: Vec<bool>,
}

impl Pair {
    fn new(bits: u64) -> Self {
        let words = Bitmap::storage_words(bits) as usize;
        let mut storage = vec![u64::MAX; AROUND + words + AROUND];
        let bitmap = Bitmap::new(&mut storage, AROUND, bits);
        let flags = vec![false; 64 * (bits as usize).div_ceil(64).max(1)];
        Self { bitmap, storage, flags }
    }

    fn words(&self) -> usize {
        self.flags.len() / 64
    }

    /// The word `index` by its flags; zero beyond the last.
    fn word(&self, index: usize) -> u64 {
        let flags = self.flags.iter().skip(64 * index).take(64).enumerate();
        flags.fold(0, |word, (bit, &flag)| word | u64::from(flag) << bit)
    }

    fn set_word(&mut self, index: usize, word: u64) {
        for bit in 0..64 {
            self.flags[64 * index + bit] = word >> bit & 1 != 0;
        }
    }

    /// Numbers from `first` on, at most `limit`, whose flags are `flag`.
    fn run(&self, first: usize, limit: usize, flag: bool) -> usize {
        self.flags.iter().skip(first).take(limit).take_while(|&&is| is == flag).count()
    }

    /// Some operation, with what it returns compared.
    fn change(&mut self, random: &mut Random) {
        // Near the low end half of the time, as the head moves there.
        let near = if random.below(2) == 0 { self.words().min(3) } else { self.words() };
        let index = random.index(near);
        let first = 64 * index + random.index(64);
        let (was, head) = (self.word(index), self.bitmap.head());
        let bits = random.word() & random.word();
        let Self { bitmap, storage, .. } = self;
        match random.below(13) {
            0 | 1 => {
                let limit = [1, 5, 64, 300, 9000][random.index(5)];
                let count = self.run(first, limit, false);
                if count > 0 {
                    self.bitmap.insert(&mut self.storage, first, count);
                    self.flags[first..first + count].fill(true);
                }
            }
            2 | 3 => {
                let limit = [1, 5, 64, 300, 9000][random.index(5)];
                let count = self.run(first, limit, true);
                if count > 0 {
                    self.bitmap.remove(&mut self.storage, first, count);
                    self.flags[first..first + count].fill(false);
                }
            }
            4 if bits != 0 => {
                bitmap.raise(storage, index, was, was | bits);
                self.set_word(index, was | bits);
            }
            5 if was != 0 => {
                let now = if random.below(2) == 0 { 0 } else { was & bits };
                bitmap.lower(storage, index, now);
                self.set_word(index, now);
            }
            6 if self.flags.len() > 64 => {
                let more = if random.below(4) == 0 { 0 } else { bits };
                bitmap.raise_any(storage, index, more);
                // Nothing was added: the head stays.
                assert!(more != 0 || bitmap.head() == head);
                self.set_word(index, was | more);
            }
            7 if self.flags.len() > 64 => {
                let less = if random.below(2) == 0 { u64::MAX } else { bits };
                bitmap.lower_any(storage, index, less);
                self.set_word(index, was & !less);
            }
            8 => {
                let popped = self.bitmap.pop_head(&mut self.storage);
                let word = self.word(head);
                self.set_word(head, word & word.wrapping_sub(1));
                let is_empty = !self.flags.contains(&true);
                let expected = (word != 0).then_some((head, word.trailing_zeros(), is_empty));
                assert_eq!(popped, expected);
            }
            9 => {
                let next = self.word(head + 1);
                let bits = [next, next & bits, bits, next & next.wrapping_neg()][random.index(4)];
                if bits != 0 {
                    let leaves = self.bitmap.leave_head(&mut self.storage, bits);
                    let holds = head + 1 < self.words() && next & bits == bits;
                    assert_eq!(leaves, holds, "{bits:#x} of {next:#x}");
                    if holds {
                        self.set_word(head, 0);
                        self.set_word(head + 1, next & !bits);
                        assert_eq!(self.bitmap.head(), head + 1);
                    }
                }
            }
            10 if was != 0 && bits != 0 => {
                bitmap.set_word(storage, index, bits);
                self.set_word(index, bits);
            }
            11 => {
                let popped = self.bitmap.pop(&mut self.storage);
                let lowest = self.flags.iter().position(|&flag| flag);
                assert_eq!(popped, lowest);
                lowest.into_iter().for_each(|lowest| self.flags[lowest] = false);
            }
            _ => {
                let first = self.bitmap.first(&mut self.storage);
                assert_eq!(first, self.flags.iter().position(|&flag| flag));
                first.into_iter().for_each(|first| assert_eq!(self.bitmap.head(), first / 64));
            }
        }
    }

    /// The invariants, the words, and how many numbers there are up to which.
    fn holds(&self) {
        let Self { bitmap, storage, flags } = self;
        assert_eq!(bitmap.check(storage), Ok(()));
        assert_eq!((bitmap.len_words(), bitmap.wrong_mark(storage)), (self.words(), None));
        let held = (0..self.words()).all(|index| storage[AROUND + index] == self.word(index));
        assert!(held, "the words");
        let count = flags.iter().filter(|&&flag| flag).count();
        assert_eq!((bitmap.len(storage), bitmap.is_empty(storage)), (count, count == 0));
        assert_eq!(bitmap.last(storage), flags.iter().rposition(|&flag| flag));
    }

    /// Every question, about some number.
    fn agree(&self, random: &mut Random) {
        self.holds();
        let Self { bitmap, storage, flags } = self;
        let inside = random.index(flags.len());
        // Half of the time at an end of a run, where there is one after it.
        let edge = inside + self.run(inside, flags.len(), flags[inside]);
        for number in [inside, edge, flags.len() + 64] {
            let flag = flags.get(number).copied().unwrap_or_default();
            assert_eq!(bitmap.contains(storage, number), flag, "{number}");
            let next = (number..flags.len()).find(|&number| flags[number]);
            assert_eq!(bitmap.next(storage, number), next, "after {number}");
            for limit in [1, 63, 64, 65, 200] {
                assert_eq!(bitmap.run(storage, number, limit), self.run(number, limit, true));
            }
            assert_eq!(bitmap.ones_from(storage, number), self.run(number, 64, true));
            let past = number.min(flags.len());
            let before = flags[..past].iter().rev().take_while(|&&flag| flag).count();
            assert_eq!(bitmap.ones_before(storage, past), before.min(64), "before {past}");
            assert_eq!(bitmap.run_start(storage, past), past - before, "before {past}");
            for past in [number, number + 1, number + 64, number + 200] {
                let all =
                    past <= flags.len() && self.run(number, past - number, true) == past - number;
                if number <= flags.len() {
                    assert_eq!(bitmap.all(storage, number, past), all, "{number}..{past}");
                }
            }
            let index = number / 64;
            let word = |index: usize| self.word(index);
            let around = [index.checked_sub(1).map_or(0, word), word(index), word(index + 1)];
            let around = (index < self.words()).then_some(around);
            assert_eq!(bitmap.around(storage, index), around, "around {index}");
            assert_eq!(bitmap.place(number), AROUND + index);
            if index + 1 < self.words() {
                assert_eq!(bitmap.two(storage, index), [word(index), word(index + 1)]);
                assert_eq!(bitmap.word(storage, index), word(index));
            }
            for count in [1, 2, 5] {
                let full = (index..index + count).filter(|&index| word(index) == u64::MAX).count();
                let full = if index + count <= self.words() { full } else { 0 };
                assert_eq!(bitmap.full_words(storage, index, count), full, "{index}, {count}");
            }
        }
        let used = storage.len() - AROUND;
        let around = storage[..AROUND].iter().chain(&storage[used..]);
        assert!(around.into_iter().all(|&word| word == u64::MAX), "another's word was written");
    }
}

#[test]
fn every_method_agrees_with_plain_flags() {
    let sizes = [(0, 100), (64, 300), (65, 900), (700, 900), (4096, 300), (4097, 300)];
    let sizes = sizes.into_iter().chain([(20_000, 150), (270_000, 30)]);
    for (seed, (bits, steps)) in (0..).zip(sizes) {
        std::println!("{bits} bits, seed {seed}");
        let (mut pair, mut random) = (Pair::new(bits), Random::new(seed));
        pair.agree(&mut random);
        for _ in 0..steps {
            // Several on the way: what a step did wrong is seen later, too.
            (0..4).for_each(|_| pair.change(&mut random));
            pair.agree(&mut random);
        }
        // Empty, filled from the top down, and emptied by the head.
        while pair.bitmap.pop(&mut pair.storage).is_some() {}
        pair.flags.fill(false);
        pair.agree(&mut random);
        let step = (pair.words() / 40).max(1);
        // A word by itself comes and goes: all levels above it do.
        for index in (1..pair.words()).step_by(step) {
            for (word, was) in [(1 << 9, 0), (0, 1 << 9)] {
                let Pair { bitmap, storage, .. } = &mut pair;
                match word {
                    0 => bitmap.lower_any(storage, index, was),
                    _ => bitmap.raise_any(storage, index, word),
                }
                pair.set_word(index, word);
                pair.agree(&mut random);
            }
        }
        for index in (0..pair.words()).rev().step_by(step) {
            pair.bitmap.insert(&mut pair.storage, 64 * index + 7, 1);
            pair.flags[64 * index + 7] = true;
            pair.agree(&mut random);
        }
        while let Some(lowest) = pair.bitmap.pop(&mut pair.storage) {
            pair.flags[lowest] = false;
            pair.agree(&mut random);
        }
    }
}

/// Ranges that begin and end around the borders of words and of the words of marks, beside a number
/// that is there, before them and behind.
#[test]
fn wide_ranges_come_and_go() {
    for (low, high) in [0, 1, 63, 64, 65]
        .into_iter()
        .flat_map(|low| [1, 64, 128, 4095, 4096, 4097, 4160].map(move |words| (low, low + words)))
    {
        for (other, bit) in [(None, 0), (Some(low), 3), (Some(high), 60), (Some(low ^ 1), 9)] {
            let mut pair = Pair::new(64 * 4300);
            if let Some(word) = other {
                pair.bitmap.insert(&mut pair.storage, 64 * word + bit, 1);
                pair.flags[64 * word + bit] = true;
            }
            // Some of the first word's numbers and of the last one's, or all.
            for (first, past) in [(64 * low + 5, 64 * high + 50), (64 * low, 64 * high + 64)] {
                let range = match other {
                    Some(word) if word == low && first <= 64 * word + bit => {
                        64 * word + bit + 1..past
                    }
                    Some(word) if word == high && 64 * word + bit < past => first..64 * word + bit,
                    Some(word) if low < word && word < high => 64 * word + 64..past,
                    _ => first..past,
                };
                for flag in [true, false] {
                    let count = range.len();
                    match flag {
                        true => pair.bitmap.insert(&mut pair.storage, range.start, count),
                        false => pair.bitmap.remove(&mut pair.storage, range.start, count),
                    }
                    pair.flags[range.clone()].fill(flag);
                    pair.holds();
                }
            }
        }
    }
}

/// A wrong mark, in each bit of each level, is found and named.
#[test]
fn every_wrong_mark_is_found() {
    for bits in [1, 64, 65, 4097, 270_000] {
        let mut pair = Pair::new(bits);
        let top = pair.flags.len() - 1;
        for number in [pair.flags.len() / 3, top / 2 + 1, top] {
            pair.bitmap.insert(&mut pair.storage, number, 1);
            pair.flags[number] = true;
        }
        let (bitmap, words) = (pair.bitmap, pair.words());
        let marks = AROUND + words..pair.storage.len() - AROUND;
        for (place, bit) in marks.flat_map(|place| (0..64).map(move |bit| (place, bit))) {
            pair.storage[place] ^= 1 << bit;
            assert_eq!(bitmap.wrong_mark(&pair.storage), Some(place), "{bits} bits, bit {bit}");
            let error = Err("a mark of a bitmap differs from the word below it");
            assert_eq!(bitmap.check(&pair.storage), error);
            pair.storage[place] ^= 1 << bit;
        }
        assert_eq!(bitmap.check(&pair.storage), Ok(()));
    }
}

/// A word that came or went behind the bitmap's back: the marks differ, and if they were changed
/// too, the count of them.
#[test]
fn a_word_that_came_or_went_is_found() {
    let mut pair = Pair::new(64 * 70);
    pair.bitmap.insert(&mut pair.storage, 64 * 5, 1);
    pair.bitmap.insert(&mut pair.storage, 64 * 66, 1);
    assert_eq!(pair.bitmap.first(&mut pair.storage), Some(64 * 5));
    let Pair { bitmap, mut storage, .. } = pair;
    let marks = AROUND + 70;
    let counted = Err("the count of marked words of a bitmap is wrong");
    for index in [6, 63, 64, 69] {
        storage[AROUND + index] = 1;
        assert_eq!(bitmap.wrong_mark(&storage), Some(marks + index / 64));
        assert_eq!(bitmap.check(&storage), counted);
        storage[marks + index / 64] ^= 1 << (index % 64);
        assert_eq!(bitmap.wrong_mark(&storage), Some(AROUND + 5), "the marks are right");
        assert_eq!(bitmap.check(&storage), counted);
        storage[marks + index / 64] ^= 1 << (index % 64);
        storage[AROUND + index] = 0;
    }
    storage[AROUND + 66] = 0;
    assert_eq!(bitmap.wrong_mark(&storage), Some(marks + 1));
    assert_eq!(bitmap.check(&storage), counted);
    storage[AROUND + 66] = 1;
    storage[AROUND + 4] = 1;
    assert_eq!(bitmap.check(&storage), Err("a word below the head of a bitmap is not zero"));
    storage[AROUND + 4] = 0;
    assert_eq!(bitmap.check(&storage), Ok(()));
    // An empty head stays marked.
    bitmap.clear_head(&mut storage);
    assert_eq!((storage[AROUND + 5], bitmap.check(&storage)), (0, Ok(())));
}

/// Adding nothing makes a word below the head no head, and marks no word of marks that are zero.
#[test]
fn where_nothing_is_added_nothing_changes() {
    let mut pair = Pair::new(20_000);
    pair.bitmap.insert(&mut pair.storage, 64 * 5, 1);
    assert_eq!(pair.bitmap.first(&mut pair.storage), Some(64 * 5));
    for index in [2, 6, 200] {
        pair.bitmap.raise_any(&mut pair.storage, index, 0);
        assert_eq!((pair.bitmap.head(), pair.bitmap.check(&pair.storage)), (5, Ok(())), "{index}");
    }
}

/// Marks that lead to a word of zeros: nothing is found there, and nothing panics.
#[test]
fn marks_that_lead_nowhere_are_no_members() {
    for (bits, number) in [(64 * 70, 64 * 66), (270_000, 250_000)] {
        let mut pair = Pair::new(bits);
        pair.bitmap.insert(&mut pair.storage, number, 1);
        pair.storage[AROUND + number / 64] = 0;
        let Pair { mut bitmap, mut storage, .. } = pair;
        assert_eq!((bitmap.next(&storage, 3), bitmap.last(&storage)), (None, None));
        assert_eq!((bitmap.first(&mut storage), bitmap.head()), (None, 0));
    }
}

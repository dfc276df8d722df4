//! A set of small numbers as a 64-ary tree, of which only the shape is kept:
//! many sets of one shape share a storage, each at a place of its own.
//!
//! [`Bitmap`](crate::bits::bitmap::Bitmap) is the same tree for one large set, and
//! remembers its head. The sets here are small and many (one for each bank
//! and order), and what is asked most is whether one is empty: the root says
//! so, without a count beside it.

use core::num::NonZero;

use swath_arch::Word;

use crate::bits::store::{Store, Words};

/// The shape of sets of numbers below a bound, at most 2^18. L, from 1 to 3,
/// is the number of levels.
///
/// Invariant of a set: a bit of a higher level is set exactly if the word
/// below it is not zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    /// The start of each level, from the numbers themselves upwards.
    levels: [u16; 3],
    depth: u16,
}

impl Tree {
    pub(crate) const NONE: Self = Self { levels: [0; 3], depth: 1 };

    /// The shape for numbers below `bound`.
    pub(crate) const fn new(bound: usize) -> Self {
        let mut tree = Self::NONE;
        let mut words = level_words(bound);
        while words > 1 {
            tree.levels[tree.depth as usize] = tree.levels[tree.depth as usize - 1] + words as u16;
            tree.depth += 1;
            words = words.div_ceil(64);
        }
        tree
    }

    /// Words of a set of numbers below `bound`.
    pub(crate) const fn words(bound: usize) -> usize {
        let mut level = level_words(bound);
        let mut words = level;
        while level > 1 {
            level = level.div_ceil(64);
            words += level;
        }
        words
    }

    #[inline(always)]
    fn levels(&self) -> &[u16] {
        &self.levels[..(self.depth as usize).min(3)]
    }

    /// The word that is zero exactly if the set at `at` is empty.
    #[inline(always)]
    fn root(&self, at: usize) -> usize {
        at + self.levels[(self.depth as usize - 1).min(2)] as usize
    }

    /// Adds a number to the set at `at`; whether the set was empty. O(L).
    #[inline(always)]
    pub(crate) fn insert<W: Word, S: Store<W> + ?Sized>(
        &self,
        s: &mut S,
        at: usize,
        number: usize,
    ) -> bool {
        let mut index = number;
        for &level in self.levels() {
            let place = at + level as usize + (index >> 6);
            let was = s.word(place);
            s.put(place, was | W::from(1) << (index & 63));
            if was != W::ZERO {
                return false;
            }
            index >>= 6;
        }
        true
    }

    /// Removes a number from the set at `at`; whether the set is empty now. O(L).
    #[inline]
    pub(crate) fn remove<W: Word, S: Store<W> + ?Sized>(
        &self,
        s: &mut S,
        at: usize,
        number: usize,
    ) -> bool {
        let mut index = number;
        for &level in self.levels() {
            let place = at + level as usize + (index >> 6);
            let rest = s.word(place) & !(W::from(1) << (index & 63));
            s.put(place, rest);
            if rest != W::ZERO {
                return false;
            }
            index >>= 6;
        }
        true
    }

    /// Removes the lowest number of the set at `at`, which is not empty: the number,
    /// and whether the set is empty now. O(L).
    #[inline(always)]
    pub(crate) fn pop_first<W: Word, S: Store<W> + ?Sized>(
        &self,
        s: &mut S,
        at: usize,
    ) -> (usize, bool) {
        if self.depth != 2 {
            let first = self.first(s, at).unwrap_or_default();
            return (first, self.remove(s, at, first));
        }
        // Most sets: one pass instead of two.
        let root = at + self.levels[1] as usize;
        let above = s.word(root);
        let index = above.trailing_zeros() as usize;
        let word = s.word(at + index);
        let first = index << 6 | word.trailing_zeros() as usize;
        let rest = word & word.wrapping_sub(W::from(1));
        s.put(at + index, rest);
        if rest != W::ZERO {
            return (first, false);
        }
        let above = above & above.wrapping_sub(W::from(1));
        s.put(root, above);
        (first, above == W::ZERO)
    }

    /// As [`pop_first`](Self::pop_first) of a set that may be anything; `None` if no words lead to a
    /// number below `bound`. O(L).
    #[inline(always)]
    pub(crate) fn pop_below<S: Store + ?Sized>(
        &self,
        s: &mut S,
        at: usize,
        bound: &u32,
    ) -> Option<(usize, bool)> {
        if self.depth != 2 {
            let popped = self.pop_below_of_any(s, at, *bound as usize);
            return (popped.0 != usize::MAX).then_some(popped);
        }
        let root = at + self.levels[1] as usize;
        let above = s.find(root)?;
        let index = above.trailing_zeros() as usize;
        let word = NonZero::new(s.find(at + index)?)?;
        let first = index << 6 | word.trailing_zeros() as usize;
        // Read where it is compared: one instruction. No number of two levels has more bits.
        if first as u32 >= *bound {
            return None;
        }
        let word = word.get();
        let rest = word & (word - 1);
        s.put(at + index, rest);
        if rest != 0 {
            return Some((first, false));
        }
        let above = above & above.wrapping_sub(1);
        s.put(root, above);
        Some((first, above == 0))
    }

    /// As [`pop_below`](Self::pop_below); the greatest number for none.
    #[inline(never)]
    fn pop_below_of_any<S: Store + ?Sized>(
        &self,
        s: &mut S,
        at: usize,
        bound: usize,
    ) -> (usize, bool) {
        let mut index = 0;
        for &level in self.levels().iter().rev() {
            let word = s.find(at + level as usize + index).unwrap_or(0);
            if word == 0 {
                return (usize::MAX, false);
            }
            index = index << 6 | word.trailing_zeros() as usize;
        }
        if index < bound { (index, self.remove(s, at, index)) } else { (usize::MAX, false) }
    }

    /// Returns true if the set at `at` is empty. O(1).
    #[inline(always)]
    pub(crate) fn is_empty<W: Word, S: Words<W> + ?Sized>(&self, s: &S, at: usize) -> bool {
        s.word(self.root(at)) == W::ZERO
    }

    /// Returns true if the set at `at` holds a number below the bound. O(1).
    #[inline]
    pub(crate) fn contains<W: Word, S: Words<W> + ?Sized>(
        &self,
        s: &S,
        at: usize,
        number: usize,
    ) -> bool {
        s.word(at + (number >> 6)) >> (number & 63) & W::from(1) != W::ZERO
    }

    /// The lowest number of the set at `at`. O(L).
    #[inline]
    pub(crate) fn first<W: Word, S: Words<W> + ?Sized>(&self, s: &S, at: usize) -> Option<usize> {
        if self.is_empty(s, at) {
            return None;
        }
        let mut index = 0;
        if self.depth == 2 {
            // Most sets: without a loop.
            let above = s.word(at + self.levels[1] as usize).trailing_zeros() as usize;
            return Some(above << 6 | s.word(at + above).trailing_zeros() as usize);
        }
        for &level in self.levels().iter().rev() {
            index = index << 6 | s.word(at + level as usize + index).trailing_zeros() as usize;
        }
        Some(index)
    }

    /// The highest number of the set at `at`. O(L).
    pub(crate) fn last<W: Word, S: Words<W> + ?Sized>(&self, s: &S, at: usize) -> Option<usize> {
        if self.is_empty(s, at) {
            return None;
        }
        let mut index = 0;
        for &level in self.levels().iter().rev() {
            index = index << 6 | s.word(at + level as usize + index).ilog2() as usize;
        }
        Some(index)
    }

    /// Counts the numbers below `bound` in the set at `at`. O(bound/64).
    pub(crate) fn len<S: Words + ?Sized>(s: &S, at: usize, bound: usize) -> usize {
        (at..at + level_words(bound)).map(|index| s.word(index).count_ones() as usize).sum()
    }

    /// The place of the first word that is another if the set at `at` has exactly the numbers below
    /// `bound` of which `holds` is true. O(bound).
    pub(crate) fn wrong_word<S: Words + ?Sized>(
        &self,
        s: &S,
        at: usize,
        bound: usize,
        holds: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut below = bound;
        for (level, &start) in self.levels().iter().enumerate() {
            let is_set = |number: usize| match level {
                0 => holds(number),
                _ => s.word(at + self.levels[level - 1] as usize + number) != 0,
            };
            let right = |word: usize| {
                let numbers = word * 64..below.min((word + 1) * 64);
                numbers.fold(0, |bits, number| bits | u64::from(is_set(number)) << (number % 64))
            };
            let place = |word: usize| at + start as usize + word;
            let wrong = (0..level_words(below)).find(|&word| s.word(place(word)) != right(word));
            if wrong.is_some() {
                return wrong.map(place);
            }
            below = level_words(below);
        }
        None
    }

    /// Returns true if the invariant holds for the set at `at`. O(bound/64).
    pub(crate) fn check<S: Words + ?Sized>(&self, s: &S, at: usize, bound: usize) -> bool {
        let mut words = level_words(bound);
        self.levels().windows(2).all(|pair| {
            let (below, above) = (at + pair[0] as usize, at + pair[1] as usize);
            let is_marked = |i: usize| s.word(above + i / 64) >> (i % 64) & 1 == 1;
            // The last word above may have bits that stand for no word.
            let all = 64 * words.div_ceil(64);
            let is_used = |i: usize| i < words && s.word(below + i) != 0;
            let agree = (0..all).all(|i| is_marked(i) == is_used(i));
            words = words.div_ceil(64);
            agree
        })
    }
}

/// Words of the lowest level.
const fn level_words(bound: usize) -> usize {
    if bound == 0 { 1 } else { bound.div_ceil(64) }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;
    use std::{format, vec};

    use swath_arch::testing::Random;

    use super::*;

    const BOUND_MAX: usize = 1 << 18;

    #[test]
    fn levels_agree_with_a_plain_set() {
        for bound in [1, 63, 64, 65, 4096, 4097, BOUND_MAX] {
            let (tree, at) = (Tree::new(bound), 3);
            let mut s = [0; 3 + Tree::words(BOUND_MAX)];
            assert!(Tree::words(bound) <= s.len() - at);
            let numbers = [bound - 1, 0, bound / 2, bound / 3];
            for (i, &number) in numbers.iter().enumerate() {
                if !numbers[..i].contains(&number) {
                    assert_eq!(tree.insert(&mut s[..], at, number), i == 0, "{bound}");
                }
                assert!(tree.contains(&s[..], at, number) && tree.check(&s[..], at, bound));
                assert_eq!(tree.first(&s[..], at), numbers[..=i].iter().min().copied());
                assert_eq!(tree.last(&s[..], at), Some(bound - 1));
            }
            for number in 0..bound {
                if tree.contains(&s[..], at, number) {
                    assert_eq!(tree.pop_first(&mut { s }[..], at), (number, number == bound - 1));
                    assert_eq!(tree.remove(&mut s[..], at, number), number == bound - 1);
                    assert!(tree.check(&s[..], at, bound));
                }
            }
            assert_eq!((tree.first(&s[..], at), tree.last(&s[..], at)), (None, None));
            assert_eq!(Tree::len(&s[..], at, bound), 0);
        }
    }

    /// Two sets that share a storage, beside plain sets.
    #[test]
    fn sets_agree_with_plain_ones_operation_by_operation() {
        for (seed, bound) in (0..).zip([1, 40, 64, 130, 4096, 4200, 20_000, BOUND_MAX]) {
            let (tree, words) = (Tree::new(bound), Tree::words(bound));
            assert_eq!(tree.root(0) + 1, words, "{bound}");
            let mut s = vec![0; 3 + 2 * words + 1];
            (s[0], s[3 + 2 * words]) = (u64::MAX, u64::MAX);
            let mut random = Random::new(seed);
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            for step in 0..600 {
                let place = format!("bound {bound}, step {step}");
                let which = random.index(2);
                let (at, set) = (3 + which * words, &mut sets[which]);
                let near = [bound, bound.min(70)][random.index(2)];
                let number = random.index(near);
                // Growing and shrinking in turns, so that words and levels come and go.
                match random.below(3) + step / 100 % 2 {
                    // One that is there, too.
                    0 | 1 => {
                        assert_eq!(tree.insert(&mut s[..], at, number), set.is_empty(), "{place}");
                        set.insert(number);
                    }
                    2 if !set.is_empty() => {
                        let number = *set.iter().nth(random.index(set.len())).unwrap();
                        set.remove(&number);
                        assert_eq!(tree.remove(&mut s[..], at, number), set.is_empty(), "{place}");
                    }
                    3 if !set.is_empty() => {
                        let first = set.pop_first().unwrap();
                        let popped = if random.one_in(2) {
                            tree.pop_first(&mut s[..], at)
                        } else {
                            // Not without the bound's last number.
                            assert_eq!(
                                tree.pop_below(&mut s.clone()[..], at, &(first as u32)),
                                None
                            );
                            tree.pop_below(&mut s[..], at, &(first as u32 + 1)).unwrap()
                        };
                        assert_eq!(popped, (first, set.is_empty()), "{place}");
                    }
                    _ => {}
                }
                for (which, set) in sets.iter().enumerate() {
                    let at = 3 + which * words;
                    if bound <= 4200 || step % 60 == 0 {
                        let holds = |number| set.contains(&number);
                        assert_eq!(tree.wrong_word(&s[..], at, bound, holds), None, "{place}");
                    }
                    if set.is_empty() {
                        assert_eq!(
                            tree.pop_below(&mut s[..], at, &(bound as u32)),
                            None,
                            "{place}"
                        );
                    }
                    assert!(tree.check(&s[..], at, bound), "{place}");
                    assert_eq!(Tree::len(&s[..], at, bound), set.len(), "{place}");
                    assert_eq!(tree.is_empty(&s[..], at), set.is_empty(), "{place}");
                    let ends = (tree.first(&s[..], at), tree.last(&s[..], at));
                    assert_eq!(ends, (set.first().copied(), set.last().copied()), "{place}");
                    for number in [number, random.index(bound)] {
                        let held = tree.contains(&s[..], at, number);
                        assert_eq!(held, set.contains(&number), "{place}: {number}");
                    }
                }
            }
            assert_eq!((s[0], s[3 + 2 * words]), (u64::MAX, u64::MAX), "another's word");
        }
        assert_eq!((Tree::words(0), Tree::new(0).depth), (1, 1));
    }

    /// Words that lead to no number, or out of the storage, give none and stay as they are.
    #[test]
    fn a_path_that_ends_gives_no_number() {
        for bound in [64, 4096, 4097, BOUND_MAX] {
            let (tree, words) = (Tree::new(bound), Tree::words(bound));
            for number in [0, bound - 1] {
                let mut good = vec![0_u64; 3 + words];
                tree.insert(&mut good[..], 3, number);
                let mut index = number;
                for (nth, &level) in tree.levels().iter().enumerate() {
                    // Here the path breaks off, above it goes on.
                    let mut s = good.clone();
                    s[3 + usize::from(level) + (index >> 6)] = 0;
                    let before = s.clone();
                    let popped = tree.pop_below(&mut s[..], 3, &(bound as u32));
                    assert_eq!((popped, &s), (None, &before), "{bound}: level {nth}");
                    index >>= 6;
                }
                assert_eq!(tree.pop_below(&mut good[..], 3, &(number as u32)), None);
                assert_eq!(tree.pop_below(&mut good[..3], 3, &(bound as u32)), None);
                assert_eq!(tree.pop_below(&mut good[..], 3, &(bound as u32)), Some((number, true)));
                assert!(good.iter().all(|&word| word == 0));
            }
            let mut s = vec![0_u64; 3 + words];
            s[3 + words - 1] = 1 << 63;
            for len in 3..s.len() {
                assert_eq!(
                    tree.pop_below(&mut s[..len], 3, &(bound as u32)),
                    None,
                    "{bound}: {len} words"
                );
            }
        }
    }

    /// Each bit of the lowest level that is another than the set's is found, by its word.
    #[test]
    fn a_wrong_bit_is_found_by_its_word() {
        for bound in [1, 64, 65, 200, 4097] {
            let (tree, words) = (Tree::new(bound), Tree::words(bound));
            let mut s = vec![0; 2 + words];
            let holds = |number: usize| number % 7 == 3 && number / 64 != 1;
            for number in (0..bound).filter(|&number| holds(number)) {
                tree.insert(&mut s[..], 2, number);
            }
            assert_eq!(tree.wrong_word(&s[..], 2, bound, holds), None);
            for bit in 0..64 * words {
                let word = 2 + bit / 64;
                s[word] ^= 1 << (bit % 64);
                assert_eq!(tree.wrong_word(&s[..], 2, bound, holds), Some(word), "{bound}: {bit}");
                s[word] ^= 1 << (bit % 64);
            }
        }
    }

    /// Each bit of the levels above that does not say what is below is found.
    #[test]
    fn a_wrong_bit_above_is_found() {
        for bound in [65, 4096, 4097, BOUND_MAX] {
            let tree = Tree::new(bound);
            let mut s = vec![0; 2 + Tree::words(bound)];
            for number in [0, bound / 2, bound - 1] {
                tree.insert(&mut s[..], 2, number);
            }
            let mut below = level_words(bound);
            for &level in &tree.levels()[1..] {
                below = below.div_ceil(64);
                for index in 0..64 * below {
                    let word = 2 + usize::from(level) + index / 64;
                    s[word] ^= 1 << (index % 64);
                    assert!(!tree.check(&s[..], 2, bound), "{bound}: bit {index} from {level} on");
                    s[word] ^= 1 << (index % 64);
                }
            }
            assert!(tree.check(&s[..], 2, bound));
        }
    }
}

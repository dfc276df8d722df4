//! Size classes, and the lists of free blocks with their bit map.
//!
//! Sizes are in granules here. A class is a size written as a floating-point
//! number with L bits after the leading one: the sizes of a power of two fall
//! into 2^L classes, those below 2^L granules each have their own.
//!
//! ```text
//!   size g        1 … 2^L−1 │ 2^L … 2^(L+1)−1 │ 2^(L+1) … 2^(L+2)−1 │ …
//!   shift             0     │        0        │          1          │
//!   class             g     │        g        │    2^L + (g >> 1)   │ (shift << L) + (g >> shift)
//! ```
//!
//! The numbers go on without a gap from one power of two to the next, so
//! rounding a size up is one addition before the shift. [`TwoLevel`] is L = 5,
//! [`PowersOfTwo`] is L = 0.
//!
//! **Good fit.** A request is rounded up to the least size of a class, r. Any
//! block in that class or a higher one then serves it, whichever comes first in
//! its list. The block is cut to r, not to the size of the class it was found
//! in, and so lies in r's own class when it comes back: the same request finds
//! it again.

use core::fmt;
use core::ptr;

use crate::block::{BLOCK_BYTES_END, Block, GRANULE_SHIFT};

/// L = 5: at most 1/32 is lost by rounding. Blocks up to 1 TiB (with words of
/// 64 bits); takes 8.3 KiB there.
pub type TwoLevel = Bins<5, 1024, { 1024 / usize::BITS as usize }>;

/// L = 0: sizes are powers of two. Takes one word and a list head for each.
/// Counted without checks: 45 instructions to allocate and 30 to free on average, 62 and 61 at worst.
pub type PowersOfTwo = Bins<0, { usize::BITS as usize }, 1>;

mod sealed {
    pub trait Sealed {}
    impl<const L: u32, const CLASSES: usize, const WORDS: usize> Sealed
        for super::Bins<L, CLASSES, WORDS>
    {
    }
}

/// A policy: the classes that sizes fall into, and the lists of the classes' free blocks.
///
/// Implemented by [`Bins`] and by nothing else: the heap trusts it with
/// pointers.
pub trait Fit: sealed::Sealed + fmt::Debug {
    /// No free blocks.
    const EMPTY: Self;
    /// Granules of the largest block that there may be.
    const GRANULES_MAX: usize;
    /// Number of classes.
    const CLASSES: usize;

    /// Returns the class of a block of `len_bytes`: 1 to [`GRANULES_MAX`](Self::GRANULES_MAX) granules.
    fn floor(len_bytes: usize) -> usize;
    /// Returns the first class whose every block has `len_bytes` (1 byte to
    /// [`GRANULES_MAX`](Self::GRANULES_MAX) granules) or more, and the least size in it in bytes.
    fn ceil(len_bytes: usize) -> (usize, usize);
    /// Returns the least size of `class` in granules.
    fn granules(class: usize) -> usize;

    /// Returns the first class from `class` on that has a free block by the bit maps, and the
    /// head of its list.
    #[doc(hidden)]
    fn find(&self, class: usize) -> Option<(usize, Option<Block>)>;
    /// Returns the head of the list of `class`.
    #[doc(hidden)]
    fn head(&self, class: usize) -> Option<Block>;
    /// Returns the highest class that has a free block.
    #[doc(hidden)]
    fn highest(&self) -> Option<usize>;
    /// Takes the head of a list out.
    #[doc(hidden)]
    fn pop(&mut self, class: usize, head: Block);
    /// Takes a free block of `len_bytes` out of its list, wherever it stands.
    #[doc(hidden)]
    fn unlink(&mut self, block: Block, len_bytes: usize);
    /// Puts a free block of `len_bytes` at the head of its list.
    #[doc(hidden)]
    fn insert(&mut self, block: Block, len_bytes: usize);
    /// Returns true if the bit map says that the list of `class` has blocks.
    #[doc(hidden)]
    fn has(&self, class: usize) -> bool;
    /// Returns the address of the head of the list of `class`.
    #[doc(hidden)]
    fn head_address(&self, class: usize) -> usize;
    /// Returns the address of the word of the bit map in which `class` has its bit.
    #[doc(hidden)]
    fn bits_address(&self, class: usize) -> usize;
    /// Returns the address of the summary, if it does not say which words are 0.
    #[doc(hidden)]
    fn wrong_summary(&self) -> Option<usize>;
}

/// The lists of free blocks by class, with their bit map.
///
/// `CLASSES` heads, `WORDS` words of one bit each, and a word that says which
/// of them are not 0. Invariants:
/// * a bit is set exactly when its list has a head, and a bit of `summary`
///   exactly when its word is not 0;
/// * the list of class c holds every free block b with floor(size of b) = c and
///   no other; `prev` of its head is `None`, otherwise b.next.prev = b.
#[repr(C)]
pub struct Bins<const L: u32, const CLASSES: usize, const WORDS: usize> {
    summary: usize,
    words: [usize; WORDS],
    heads: [Option<Block>; CLASSES],
}

impl<const L: u32, const CLASSES: usize, const WORDS: usize> fmt::Debug
    for Bins<L, CLASSES, WORDS>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        write!(f, "{CLASSES} classes, {lists} with free blocks")
    }
}

const BITS: usize = usize::BITS as usize;

impl<const L: u32, const CLASSES: usize, const WORDS: usize> Bins<L, CLASSES, WORDS> {
    /// Powers of two, so that an index is masked and never checked.
    const VALID: () = {
        assert!(CLASSES == WORDS * BITS, "one bit for each class");
        assert!(WORDS.is_power_of_two() && WORDS <= BITS, "one bit of the summary for each word");
        assert!(1 << (L + 1) < CLASSES || L == 0, "more than one power of two");
    };

    /// The least size of a class, or more than there can be.
    const fn least(class: usize) -> usize {
        if class < 1 << L {
            return class;
        }
        let shift = (class >> L) - 1;
        let mantissa = class & ((1 << L) - 1) | 1 << L;
        if shift + L as usize + 1 >= BITS - GRANULE_SHIFT as usize {
            return BLOCK_BYTES_END >> GRANULE_SHIFT;
        }
        mantissa << shift
    }

    /// log2 of the bytes that the class of this size spans: a granule, or more.
    #[inline(always)]
    const fn shift(len_bytes: usize) -> u32 {
        (len_bytes | 1 << (L + GRANULE_SHIFT)).ilog2() - L
    }

    /// The class of sizes that [`shift`](Self::shift) says, and that many of its spans. In bytes throughout, a size is
    /// shifted once, not to granules first.
    #[inline(always)]
    const fn class(shift: u32, spans: usize) -> usize {
        ((shift as usize) << L) + spans - ((GRANULE_SHIFT as usize) << L)
    }

    /// The list of `class`, below `CLASSES`, has become empty.
    #[inline(always)]
    fn clear(&mut self, class: usize) {
        let index = class / BITS;
        let word = &mut self.words[index];
        *word &= !(1 << (class % BITS));
        if WORDS > 1 && *word == 0 {
            self.summary &= !(1 << index);
        }
    }
}

impl<const L: u32, const CLASSES: usize, const WORDS: usize> Fit for Bins<L, CLASSES, WORDS> {
    const EMPTY: Self = {
        let () = Self::VALID;
        Self { summary: 0, words: [0; WORDS], heads: [None; CLASSES] }
    };

    const GRANULES_MAX: usize = {
        let top = Self::least(CLASSES - 1);
        let end = BLOCK_BYTES_END >> GRANULE_SHIFT;
        if top < end {
            top
        } else {
            // The least size of the last class below.
            let last = BLOCK_BYTES_END - 1;
            let shift = Self::shift(last);
            last >> shift << shift >> GRANULE_SHIFT
        }
    };

    const CLASSES: usize = CLASSES;

    #[inline(always)]
    fn floor(len_bytes: usize) -> usize {
        let shift = Self::shift(len_bytes);
        // Of powers of two a class has one span.
        Self::class(shift, if L == 0 { 1 } else { len_bytes >> shift })
    }

    /// The last byte says the class below; where that is the last of a power of two, what follows it has the
    /// number and the size of the next one's first.
    #[inline(always)]
    fn ceil(len_bytes: usize) -> (usize, usize) {
        let last = len_bytes.wrapping_sub(1);
        let shift = Self::shift(last);
        let spans = (last >> shift) + 1;
        (Self::class(shift, spans), spans << shift)
    }

    fn granules(class: usize) -> usize {
        Self::least(class)
    }

    #[inline(always)]
    fn find(&self, class: usize) -> Option<(usize, Option<Block>)> {
        let mut index = (class / BITS) & (WORDS - 1);
        let mut word = self.words[index] & usize::MAX << (class % BITS);
        if word == 0 {
            if WORDS == 1 {
                return None;
            }
            // Two shifts: the words after the last are none.
            let later = self.summary & (usize::MAX << index) << 1;
            if later == 0 {
                return None;
            }
            index = later.trailing_zeros() as usize & (WORDS - 1);
            word = self.words[index];
        }
        let class = (index * BITS + word.trailing_zeros() as usize) & (CLASSES - 1);
        Some((class, self.heads[class]))
    }

    #[inline(always)]
    fn head(&self, class: usize) -> Option<Block> {
        self.heads[class & (CLASSES - 1)]
    }

    fn highest(&self) -> Option<usize> {
        let index = self.words.iter().rposition(|&word| word != 0)?;
        Some(index * BITS + self.words[index].checked_ilog2()? as usize)
    }

    #[inline(always)]
    fn pop(&mut self, class: usize, head: Block) {
        let class = class & (CLASSES - 1);
        let next = head.next();
        self.heads[class] = next;
        match next {
            Some(next) => next.set_prev(None),
            None => self.clear(class),
        }
    }

    #[inline(always)]
    fn unlink(&mut self, block: Block, len_bytes: usize) {
        let (next, prev) = (block.next(), block.prev());
        let Some(prev) = prev else {
            let class = Self::floor(len_bytes) & (CLASSES - 1);
            self.heads[class] = next;
            match next {
                Some(next) => next.set_prev(None),
                None => self.clear(class),
            }
            return;
        };
        prev.set_next(next);
        if let Some(next) = next {
            next.set_prev(Some(prev));
        }
    }

    #[inline(always)]
    fn insert(&mut self, block: Block, len_bytes: usize) {
        let class = Self::floor(len_bytes) & (CLASSES - 1);
        let next = self.heads[class].replace(block);
        block.set_next(next);
        block.set_prev(None);
        match next {
            Some(next) => next.set_prev(Some(block)),
            None => {
                let index = class / BITS;
                self.words[index] |= 1 << (class % BITS);
                if WORDS > 1 {
                    self.summary |= 1 << index;
                }
            }
        }
    }

    #[inline(always)]
    fn has(&self, class: usize) -> bool {
        self.words[(class / BITS) & (WORDS - 1)] >> (class % BITS) & 1 != 0
    }

    fn head_address(&self, class: usize) -> usize {
        ptr::from_ref(&self.heads[class & (CLASSES - 1)]).addr()
    }

    fn bits_address(&self, class: usize) -> usize {
        ptr::from_ref(&self.words[(class / BITS) & (WORDS - 1)]).addr()
    }

    fn wrong_summary(&self) -> Option<usize> {
        // Only as many bits as there are words, and none where one word is all.
        let words = self.words.iter().enumerate().filter(|_| WORDS > 1);
        let right = words.fold(0, |bits, (index, &word)| bits | usize::from(word != 0) << index);
        (self.summary != right).then_some(ptr::from_ref(&self.summary).addr())
    }
}

#[cfg(test)]
mod unit {
    extern crate std;

    use std::collections::BTreeMap;
    use std::format;
    use std::vec::Vec;

    use swath_arch::testing::Random;

    use super::*;
    use crate::block::GRANULE_BYTES;
    use crate::block::testing::blocks;

    fn classes<F: Fit>() {
        // Every class's least size is in it, and one granule less is not.
        for class in 1..F::CLASSES {
            if F::granules(class) > F::GRANULES_MAX {
                break;
            }
            let least = F::granules(class) << GRANULE_SHIFT;
            let below = least - GRANULE_BYTES;
            assert_eq!(F::floor(least), class);
            assert_eq!(F::ceil(least), (class, least));
            // A byte more is the next one's, wherever that begins.
            let next = F::ceil(least + 1);
            assert_eq!(next, (class + 1, F::granules(class + 1) << GRANULE_SHIFT));
            if below > 0 {
                assert_eq!(F::floor(below), class - 1);
                assert_eq!(
                    F::ceil(below).0,
                    if F::granules(class - 1) << GRANULE_SHIFT == below {
                        class - 1
                    } else {
                        class
                    }
                );
            }
        }
        assert!(F::ceil(F::GRANULES_MAX << GRANULE_SHIFT).0 < F::CLASSES);
        assert!(F::GRANULES_MAX << GRANULE_SHIFT < BLOCK_BYTES_END, "no block is longer");
        // Beyond the largest, too, a class begins at a number of bytes.
        assert!((0..F::CLASSES).all(|class| F::granules(class) <= usize::MAX >> GRANULE_SHIFT));
    }

    #[test]
    fn a_class_begins_where_the_one_before_ends() {
        classes::<TwoLevel>();
        classes::<PowersOfTwo>();
        classes::<Bins<3, 256, { 256 / usize::BITS as usize }>>();
    }

    #[test]
    fn rounding_loses_no_more_than_the_class_is_wide() {
        for granules in 1..100_000 {
            let len_bytes = granules << GRANULE_SHIFT;
            let (_, rounded) = TwoLevel::ceil(len_bytes);
            assert!(rounded >= len_bytes && (rounded - len_bytes) * 32 <= len_bytes);
            let (_, rounded) = PowersOfTwo::ceil(len_bytes);
            assert_eq!(rounded, len_bytes.next_power_of_two());
            // Bytes that are no granules count as the next one.
            assert_eq!(TwoLevel::ceil(len_bytes - 1), TwoLevel::ceil(len_bytes));
        }
    }

    /// Blocks that come and go, beside lists of them by class.
    fn lists<const L: u32, const CLASSES: usize, const WORDS: usize>(seed: u64) {
        type Lists = BTreeMap<usize, Vec<(Block, usize)>>;
        let mut random = Random::new(seed);
        let mut bins = Bins::<L, CLASSES, WORDS>::EMPTY;
        let (mut free, mut lists) = (blocks(150), Lists::new());
        let max = Bins::<L, CLASSES, WORDS>::GRANULES_MAX;
        for step in 0..3000 {
            let place = format!("L {L}, step {step}");
            // A list from somewhere on; none if there is no more.
            let from = random.index(CLASSES);
            let class = lists.range(from..).next().map(|(&class, _)| class);
            match (random.below(2) + step / 300 % 2, class) {
                (0 | 1, _) if !free.is_empty() => {
                    let block = free.swap_remove(random.index(free.len()));
                    // Few sizes half of the time, so that lists are long.
                    let bits = random.below(u64::from(max.ilog2()) + 1) as u32;
                    let size = (1 << bits | random.index(1 << bits)).min(max);
                    let granules = if random.below(2) == 0 { size } else { 1 + size % 3 };
                    let len_bytes = granules << GRANULE_SHIFT;
                    bins.insert(block, len_bytes);
                    let class = Bins::<L, CLASSES, WORDS>::floor(len_bytes);
                    lists.entry(class).or_default().push((block, len_bytes));
                }
                (1, Some(class)) => {
                    let (head, _) = lists.get_mut(&class).unwrap().pop().unwrap();
                    bins.pop(class, head);
                    free.push(head);
                }
                (_, Some(class)) => {
                    let list = lists.get_mut(&class).unwrap();
                    let (block, len_bytes) = list.remove(random.index(list.len()));
                    bins.unlink(block, len_bytes);
                    free.push(block);
                }
                _ => {}
            }
            lists.retain(|_, list| !list.is_empty());
            let head_of = |class: usize| Some(lists.get(&class)?.last()?.0);
            assert_eq!(bins.highest(), lists.keys().next_back().copied(), "{place}");
            assert_eq!(bins.wrong_summary(), None, "{place}");
            for class in [from, (from + 1) % CLASSES, class.unwrap_or(0)] {
                let found = lists.range(class..).next().map(|(&class, _)| (class, head_of(class)));
                assert_eq!(bins.find(class), found, "{place}, from class {class} on");
                assert_eq!(bins.head(class), head_of(class), "{place}, class {class}");
                assert_eq!(bins.has(class), lists.contains_key(&class), "{place}, class {class}");
                let list = lists.get(&class).into_iter().flatten();
                let (mut next, mut before) = (bins.head(class), None);
                for &(block, _) in list.rev() {
                    assert_eq!((next, block.prev()), (Some(block), before), "{place}");
                    (next, before) = (block.next(), next);
                }
                assert_eq!(next, None, "{place}: the end of class {class}");
            }
        }
    }

    #[test]
    fn lists_agree_with_a_model() {
        lists::<5, 1024, { 1024 / BITS }>(1);
        lists::<3, 256, { 256 / BITS }>(2);
        lists::<0, BITS, 1>(3);
    }

    #[test]
    fn a_wrong_summary_is_found_and_the_words_are_named() {
        let mut bins = TwoLevel::EMPTY;
        for (index, granules) in [1, 70, 4000, TwoLevel::GRANULES_MAX].into_iter().enumerate() {
            bins.insert(blocks(4)[index], granules << GRANULE_SHIFT);
        }
        let summary = ptr::from_ref(&bins.summary).addr();
        for bit in 0..BITS {
            bins.summary ^= 1 << bit;
            assert_eq!(bins.wrong_summary(), Some(summary), "bit {bit}");
            bins.summary ^= 1 << bit;
        }
        assert_eq!(bins.wrong_summary(), None);
        for class in 0..TwoLevel::CLASSES {
            assert_eq!(bins.head_address(class), ptr::from_ref(&bins.heads[class]).addr());
            assert_eq!(bins.bits_address(class), ptr::from_ref(&bins.words[class / BITS]).addr());
        }
        // With one word there is nothing to sum up.
        let mut bins = PowersOfTwo::EMPTY;
        bins.insert(blocks(1)[0], 5 << GRANULE_SHIFT);
        assert_eq!((bins.summary, bins.wrong_summary()), (0, None));
    }
}

//! A 64-ary tree of bitmaps over all pages of a space.
//!
//! Level 0 has one bit per page, set for starts; a bit of a higher level says
//! whether the word below it has any.
//!
//! ```text
//!  level 2   [ 4 words of 64 bits ]     for 2^20 pages
//!  level 1   [ 256 words ]
//!  level 0   [ 16,384 words: the pages ]
//! ```
//!
//! There are no pointers and no lists, and nothing depends on how many starts
//! there are. [`LayeredTree`](crate::LayeredTree) is the paper's own structure,
//! [`SparseTree`](crate::SparseTree) one for page counts whose bits would not
//! fit into memory.
//!
//! **Bits run backwards.** Page p has bit 2^K − 1 − p, so that the last start at or
//! below a page is the first bit at or above one: x86-64 and ARM count trailing
//! zeros in fewer instructions than leading ones.
//!
//! **The top has up to four words**, where a further level would have one word of
//! as many bits: to keep that word up costs each split and union more than a find
//! saves by it. The last word of the top is never zero, for it leads to page 0.
//!
//! # What it costs
//! With L levels (3 for 2^20 pages, 7 for 2^40), a split writes L words, a
//! union at most L; a find reads at most 2L + 2 words and so does
//! [`next`](RegionTree::next), plus one. No loop runs longer than L, or than
//! the top's words. In instructions on x86-64 for 2^20 pages, whatever the starts: 21 for a
//! split, 20 for a union, 46 for a find, 64 for a step to the next start, against 220
//! for split and union together and 85 for a find in the layered tree (gates `vrt-*` in
//! `bench`). L grows as K/6 and not, as the layered tree's
//! depth, as log K; for the fixed K of a machine both are constants, and the
//! wide word has the smaller one.

use core::borrow::BorrowMut;

use swath_arch::Vpn;

use crate::tree::partition::{RegionTree, TreeError};

/// The most levels: 2^40 pages.
const LEVELS_MAX: usize = 7;

/// The most words of the top level.
const TOP_WORDS_MAX: u64 = 4;

/// Start of each level, from the pages upwards, and its number of words, a power
/// of two.
#[derive(Clone, Copy)]
struct Shape {
    depth: usize,
    at: [usize; LEVELS_MAX],
    len: [usize; LEVELS_MAX],
    words: usize,
}

impl Shape {
    const fn new(k: u32) -> Self {
        assert!(k >= 5 && k <= 40, "a tree has 2^5 to 2^40 pages");
        let mut shape = Self { depth: 0, at: [0; LEVELS_MAX], len: [0; LEVELS_MAX], words: 0 };
        let mut words = 1_u64 << k;
        loop {
            words = words.div_ceil(64);
            shape.at[shape.depth] = shape.words;
            shape.len[shape.depth] = words as usize;
            shape.words += words as usize;
            shape.depth += 1;
            if words <= TOP_WORDS_MAX {
                // `find` looks past the top before it knows that it need not.
                shape.words += words as usize - 1;
                return shape;
            }
        }
    }
}

/// Counts the words of a [`DenseTree`] over 2^`pages_log2` pages, which is 2^5 to 2^40: a bit
/// and 1/63 more per page.
///
/// # Panics
/// For another `pages_log2`; in a constant, at compile time.
pub const fn dense_tree_words(pages_log2: u32) -> usize {
    Shape::new(pages_log2).words
}

/// A 64-ary tree of bitmaps over 2^K pages, K from 5 to 40; the default.
///
/// Its words are an array, or a reference or a box to one, of
/// N = [`dense_tree_words(K)`](dense_tree_words) words: 133,176 bytes for 2^20 pages.
/// With the length in the type, no access has to be checked.
///
/// ```
/// use swath_arch::Vpn;
/// use swath_region::{DenseTree, RegionTree, dense_tree_words};
///
/// let mut tree = DenseTree::<12, _, _>::new([0; dense_tree_words(12)]);
/// tree.split(Vpn::new(100))?;
/// assert_eq!(tree.find(Vpn::new(4095)), Some(Vpn::new(100)));
/// assert_eq!(tree.find(Vpn::new(99)), Some(Vpn::new(0)));
/// # Ok::<(), swath_region::TreeError>(())
/// ```
///
/// Invariants: page 0 is a start. A bit of a higher level is set exactly if its
/// word below is not zero. The words past the top are zero.
#[derive(Clone, Debug)]
pub struct DenseTree<const K: u32, const N: usize, W> {
    words: W,
}

impl<const K: u32, const N: usize, W> DenseTree<K, N, W> {
    const SHAPE: Shape = {
        let shape = Shape::new(K);
        assert!(N == shape.words, "a tree has dense_tree_words(K) words");
        shape
    };
    const TOP: usize = Self::SHAPE.depth - 1;
    const LAST: u64 = (1 << K) - 1;
}

/// Runs a block for each level with the level as a constant, so that each level
/// is straight code of its own.
macro_rules! levels {
    ($level:ident => $body:block) => {
        levels!(@ $level, $body, 0 1 2 3 4 5 6);
    };
    (@ $level:ident, $body:block, $($n:literal)*) => {
        $(if $n < Self::SHAPE.depth {
            #[allow(non_upper_case_globals, reason = "a loop variable that is constant")]
            const $level: usize = $n;
            $body
        })*
    };
}

impl<const K: u32, const N: usize, W: BorrowMut<[u64; N]>> DenseTree<K, N, W> {
    /// Makes one interval of all pages, in words that are overwritten: O(2^K/64), the only
    /// loop over them.
    #[allow(unused_assignments, reason = "the last level is the same code as the others")]
    pub fn new(mut words: W) -> Self {
        let used = words.borrow_mut();
        used.fill(0);
        let mut index = Self::LAST as usize;
        levels!(level => {
            used[Self::SHAPE.at[level] + (index >> 6)] = 1 << (index & 63);
            index >>= 6;
        });
        Self { words }
    }

    /// Returns the first bit of level 0 that the word `index` of `level` leads to. The
    /// mask is for the compiler, which then sees that no index is too large.
    #[inline(always)]
    fn first_below(words: &[u64; N], level: usize, index: usize) -> Vpn {
        let mut index = index & (Self::SHAPE.len[level] - 1);
        for below in (0..=level).rev() {
            let word = words[Self::SHAPE.at[below] + index];
            index = (index << 6) + word.trailing_zeros() as usize;
        }
        Vpn::new(index as u64 ^ Self::LAST)
    }

    /// Returns the last such bit.
    #[inline(always)]
    fn last_below(words: &[u64; N], level: usize, index: usize) -> Vpn {
        let mut index = index & (Self::SHAPE.len[level] - 1);
        for below in (0..=level).rev() {
            let word = words[Self::SHAPE.at[below] + index];
            index = index << 6 | (word | 1).ilog2() as usize;
        }
        Vpn::new(index as u64 ^ Self::LAST)
    }
}

impl<const K: u32, const N: usize, W: BorrowMut<[u64; N]>> RegionTree for DenseTree<K, N, W> {
    #[inline]
    fn pages(&self) -> u64 {
        1 << K
    }

    /// Writes every level, needed or not: without a test at each level the
    /// longest way is shorter, and there is no other.
    #[inline]
    #[allow(unused_assignments, reason = "the last level is the same code as the others")]
    fn split(&mut self, at: Vpn) -> Result<(), TreeError> {
        let words = self.words.borrow_mut();
        if at.raw() > Self::LAST {
            return Err(TreeError::OutOfRange);
        }
        let mut index = (at.raw() ^ Self::LAST) as usize;
        levels!(level => {
            let word = &mut words[Self::SHAPE.at[level] + (index >> 6)];
            let now = *word | 1 << (index & 63);
            if level == 0 && *word == now {
                return Err(TreeError::IsStart);
            }
            *word = now;
            index >>= 6;
        });
        Ok(())
    }

    #[inline]
    #[allow(unused_assignments, reason = "the last level is the same code as the others")]
    fn union(&mut self, at: Vpn) -> Result<(), TreeError> {
        let words = self.words.borrow_mut();
        if at.raw().wrapping_sub(1) >= Self::LAST {
            return Err(if at.raw() == 0 { TreeError::First } else { TreeError::OutOfRange });
        }
        let mut index = ((at.raw() & Self::LAST) ^ Self::LAST) as usize;
        levels!(level => {
            let word = &mut words[Self::SHAPE.at[level] + (index >> 6)];
            let now = *word & !(1 << (index & 63));
            if level == 0 && *word == now {
                return Err(TreeError::NotStart);
            }
            *word = now;
            if now != 0 {
                return Ok(());
            }
            index >>= 6;
        });
        Ok(())
    }

    #[inline]
    fn find(&self, page: Vpn) -> Option<Vpn> {
        let words = self.words.borrow();
        if page.raw() > Self::LAST {
            return None;
        }
        let mut index = (page.raw() ^ Self::LAST) as usize;
        levels!(level => {
            let mut rest = words[Self::SHAPE.at[level] + (index >> 6)] >> (index & 63);
            if level != 0 {
                // The word just seen had nothing.
                rest >>= 1;
            }
            if rest != 0 {
                index += rest.trailing_zeros() as usize;
                if level == 0 {
                    return Some(Vpn::new(index as u64 ^ Self::LAST));
                }
                return Some(Self::first_below(words, level - 1, index + 1));
            }
            index >>= 6;
        });
        let at = Self::SHAPE.at[Self::TOP] + index;
        let top_len = Self::SHAPE.len[Self::TOP];
        for step in 1..top_len.saturating_sub(1) {
            if words[at + step] != 0 {
                return Some(Self::first_below(words, Self::TOP, index + step));
            }
        }
        Some(Self::first_below(words, Self::TOP, top_len - 1))
    }

    #[inline]
    fn next(&self, page: Vpn) -> Option<Vpn> {
        let words = self.words.borrow();
        if page.raw() > Self::LAST {
            return None;
        }
        let mut index = (page.raw() ^ Self::LAST) as usize;
        levels!(level => {
            let below = words[Self::SHAPE.at[level] + (index >> 6)] & !(u64::MAX << (index & 63));
            if below != 0 {
                let found = index & !63 | below.ilog2() as usize;
                if level == 0 {
                    return Some(Vpn::new(found as u64 ^ Self::LAST));
                }
                return Some(Self::last_below(words, level - 1, found));
            }
            index >>= 6;
        });
        for before in (0..Self::SHAPE.len[Self::TOP] - 1).rev() {
            if before < index && words[Self::SHAPE.at[Self::TOP] + before] != 0 {
                return Some(Self::last_below(words, Self::TOP, before));
            }
        }
        None
    }

    fn check(&self) -> bool {
        let Shape { at, len, .. } = Self::SHAPE;
        let last = Self::LAST as usize;
        let words = self.words.borrow();
        let levels = (1..=Self::TOP).all(|level| {
            // The last word may have bits that stand for no word.
            (0..64 * len[level]).all(|i| {
                let bit = words[at[level] + i / 64] >> (i % 64) & 1 == 1;
                bit == (i < len[level - 1] && words[at[level - 1] + i] != 0)
            })
        });
        let room = words[at[Self::TOP] + len[Self::TOP]..].iter().all(|&word| word == 0);
        levels && room && words[last / 64] >> (last % 64) == 1
    }
}

#[cfg(test)]
mod unit {
    extern crate std;

    use std::panic::catch_unwind;

    use super::*;

    /// Of all flipped bits only those are not found that make another partition: a start more or
    /// less in a word that has others.
    fn flips<const K: u32, const N: usize>() {
        let mut tree = DenseTree::<K, N, _>::new([0; N]);
        for page in [1, 9, 1 << (K - 1), (1 << K) - 1] {
            tree.split(Vpn::new(page)).unwrap();
        }
        assert!(tree.check(), "2^{K} pages");
        let pages = (1_usize << K).div_ceil(64);
        for (word, bit) in (0..N).flat_map(|word| (0..64).map(move |bit| (word, bit))) {
            let others = tree.words[word] & !(1 << bit);
            let is_first = 64 * word + bit == (1 << K) - 1;
            // One level has nothing above that says which words are zero.
            let is_told = others != 0 || K <= 8;
            let is_partition = word < pages && is_told && !is_first;
            tree.words[word] ^= 1 << bit;
            // Where the pages end within a word, no page has the bits behind.
            if 64 * word + bit < 1 << K || word >= pages {
                assert_eq!(tree.check(), is_partition, "2^{K} pages: bit {bit} of word {word}");
            } else {
                assert!(!tree.check(), "2^{K} pages: bit {bit} has no page");
            }
            tree.words[word] ^= 1 << bit;
        }
    }

    #[test]
    fn every_flip_that_makes_no_partition_is_found() {
        flips::<5, { dense_tree_words(5) }>();
        flips::<6, { dense_tree_words(6) }>();
        flips::<8, { dense_tree_words(8) }>();
        flips::<13, { dense_tree_words(13) }>();
        flips::<15, { dense_tree_words(15) }>();
    }

    #[test]
    fn a_tree_has_2_to_the_5_to_40_pages() {
        assert_eq!((dense_tree_words(5), dense_tree_words(6)), (1, 1));
        // Four words at the top, and room for three behind.
        assert_eq!((dense_tree_words(8), dense_tree_words(14)), (4 + 3, 256 + 4 + 3));
        assert_eq!(dense_tree_words(9), 8 + 1);
        assert!(dense_tree_words(40) > 1 << 34);
        for k in [0, 4, 41, 64] {
            assert!(catch_unwind(|| dense_tree_words(k)).is_err(), "2^{k} pages");
        }
    }
}

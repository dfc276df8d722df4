//! The layered tree of the paper (Böhnert and Scholl, section IV-A5), kept
//! as the reference beside [`DenseTree`](crate::DenseTree).
//!
//! Layers halve the bits of a page number, as in a tree of van Emde Boas: 2^20
//! pages are 2^10 clusters of 2^10 pages, a cluster is 32 words of 32 pages,
//! and over the clusters stands the same structure once more, 32 groups of 32. A
//! node has three words: which of its 32 parts have a start, the lowest start
//! and the highest. With them one question at a node says in which half
//! of the layers to go on.
//!
//! ```text
//!                    root  {groups, lowest, highest}          3 words
//!               32 groups  {clusters, lowest, highest}    2^5·3 words
//!          2^10 clusters   {words, lowest, highest}      2^10·3 words
//!    2^15 words of 32 pages                              2^15   words
//! ```
//!
//! Words have 32 bits; with 2^20 pages that is the paper's 143,756 bytes. It is
//! static and has no pointers: a part's number is its node's and five more bits.

use core::ops::DerefMut;

use swath_arch::Vpn;

use crate::tree::partition::{RegionTree, TreeError, TreeTooShort};

/// The paper's layered tree over 2^k pages, k from 5 to 20.
///
/// Each operation is O(log k): with the layers fixed, at most 4 words and 3
/// nodes are looked at.
///
/// Invariants: bit 0 of the first word is set. A node's bits say which of its
/// parts have a start; if any has, its other words are the lowest and the highest
/// number in it: pages in a cluster, clusters in a group, groups in the root.
#[derive(Clone, Debug)]
pub struct LayeredTree<W> {
    pages_log2: u32,
    /// Starts of the clusters, the groups and the root.
    at: [usize; 3],
    words: W,
}

/// Bits 0 to `at`.
const fn up_to(at: u32) -> u32 {
    u32::MAX >> (31 - (at & 31))
}

/// Bits below `at`.
const fn below(at: u32) -> u32 {
    !(u32::MAX << (at & 31))
}

fn lowest(word: u32) -> u32 {
    word.trailing_zeros() & 31
}

fn highest(word: u32) -> u32 {
    (word | 1).ilog2()
}

impl LayeredTree<&mut [u32]> {
    /// Counts the words of 32 bits for 2^`pages_log2` pages, or `None` if that is not 2^5 to
    /// 2^20.
    pub const fn words(pages_log2: u32) -> Option<usize> {
        match starts(pages_log2) {
            Some([_, _, root]) => Some(root + 3),
            None => None,
        }
    }
}

/// Starts of the clusters, the groups and the root.
const fn starts(k: u32) -> Option<[usize; 3]> {
    if k < 5 || k > 20 {
        return None;
    }
    let clusters = 1 << (k - 5);
    let groups = clusters + 3 * (1 << k.saturating_sub(10));
    Some([clusters, groups, groups + 3 * (1 << k.saturating_sub(15))])
}

impl<W: DerefMut<Target = [u32]>> LayeredTree<W> {
    /// Makes one interval of all of 2^`pages_log2` pages, in words that are
    /// overwritten: O(words).
    ///
    /// # Errors
    /// [`TreeTooShort`] if there are fewer than [`words`](LayeredTree::words), or
    /// `pages_log2` is out of range, which needs `usize::MAX`.
    pub fn new(pages_log2: u32, mut words: W) -> Result<Self, TreeTooShort> {
        let (at, needed) = match (starts(pages_log2), LayeredTree::words(pages_log2)) {
            (Some(at), Some(needed)) => (at, needed),
            _ => ([0; 3], usize::MAX),
        };
        let given = words.len();
        let Some(used) = words.get_mut(..needed) else {
            return Err(TreeTooShort { needed, given });
        };
        used.fill(0);
        // Page 0: lowest and highest are zero already.
        used[0] = 1;
        at.iter().for_each(|&node| used[node] = 1);
        Ok(Self { pages_log2, at, words })
    }

    /// Returns a node's bits, lowest and highest.
    fn node(&self, layer: usize, index: u32) -> [u32; 3] {
        let at = self.at[layer] + 3 * index as usize;
        [self.words[at], self.words[at + 1], self.words[at + 2]]
    }

    fn set_node(&mut self, layer: usize, index: u32, node: [u32; 3]) {
        let at = self.at[layer] + 3 * index as usize;
        self.words[at..at + 3].copy_from_slice(&node);
    }

    /// Adds `number`, part of `node` by the bit `part`; returns true if it was empty.
    fn add(&mut self, layer: usize, index: u32, part: u32, number: u32) -> bool {
        let [bits, low, high] = self.node(layer, index);
        let now = bits | 1 << part;
        if bits == 0 {
            self.set_node(layer, index, [now, number, number]);
        } else {
            self.set_node(layer, index, [now, low.min(number), high.max(number)]);
        }
        bits == 0
    }

    fn holds(&self, page: Vpn) -> Result<u32, TreeError> {
        if page.raw() >> self.pages_log2 == 0 {
            Ok(page.raw() as u32)
        } else {
            Err(TreeError::OutOfRange)
        }
    }

    /// Returns the last cluster below `cluster` that has a start, which is one.
    fn cluster_below(&self, cluster: u32) -> Option<u32> {
        let group = cluster >> 5;
        let [bits, low, _] = self.node(1, group);
        if bits != 0 && low < cluster {
            return Some(group << 5 | highest(bits & below(cluster)));
        }
        let groups = self.node(2, 0)[0] & below(group);
        (groups != 0).then(|| self.node(1, highest(groups))[2])
    }

    fn cluster_above(&self, cluster: u32) -> Option<u32> {
        let group = cluster >> 5;
        let [bits, _, high] = self.node(1, group);
        if bits != 0 && high > cluster {
            return Some(group << 5 | lowest(bits & !up_to(cluster)));
        }
        let groups = self.node(2, 0)[0] & !up_to(group);
        (groups != 0).then(|| self.node(1, lowest(groups))[1])
    }
}

impl<W: DerefMut<Target = [u32]>> RegionTree for LayeredTree<W> {
    fn pages(&self) -> u64 {
        1 << self.pages_log2
    }

    fn split(&mut self, at: Vpn) -> Result<(), TreeError> {
        let page = self.holds(at)?;
        let word = &mut self.words[page as usize >> 5];
        if *word >> (page & 31) & 1 == 1 {
            return Err(TreeError::IsStart);
        }
        *word |= 1 << (page & 31);
        let (cluster, group) = (page >> 10, page >> 15);
        if self.add(0, cluster, page >> 5 & 31, page) && self.add(1, group, cluster & 31, cluster) {
            self.add(2, 0, group, group);
        }
        Ok(())
    }

    fn union(&mut self, at: Vpn) -> Result<(), TreeError> {
        let page = self.holds(at)?;
        let word = &mut self.words[page as usize >> 5];
        if *word >> (page & 31) & 1 == 0 {
            return Err(TreeError::NotStart);
        }
        if page == 0 {
            return Err(TreeError::First);
        }
        *word &= !(1 << (page & 31));
        let word = *word;
        let (cluster, group) = (page >> 10, page >> 15);
        let [mut bits, mut low, mut high] = self.node(0, cluster);
        if word == 0 {
            bits &= !(1 << (page >> 5 & 31));
        }
        let first = cluster << 5;
        if low == page && bits != 0 {
            let part = first | lowest(bits);
            low = part << 5 | lowest(self.words[part as usize]);
        }
        if high == page && bits != 0 {
            let part = first | highest(bits);
            high = part << 5 | highest(self.words[part as usize]);
        }
        self.set_node(0, cluster, [bits, low, high]);
        if bits != 0 {
            return Ok(());
        }
        // The parts of a group and of the root are bits: what is lowest and
        // highest shows at once.
        for (layer, index, number) in [(1, group, cluster), (2, 0, group)] {
            let bits = self.node(layer, index)[0] & !(1 << (number & 31));
            let first = number & !31;
            self.set_node(layer, index, [bits, first | lowest(bits), first | highest(bits)]);
            if bits != 0 {
                break;
            }
        }
        Ok(())
    }

    fn find(&self, page: Vpn) -> Option<Vpn> {
        let page = self.holds(page).ok()?;
        let cluster = page >> 10;
        let [bits, low, _] = self.node(0, cluster);
        let start = if bits != 0 && low <= page {
            let rest = self.words[page as usize >> 5] & up_to(page);
            if rest != 0 {
                page & !31 | highest(rest)
            } else {
                let part = cluster << 5 | highest(bits & below(page >> 5));
                part << 5 | highest(self.words[part as usize])
            }
        } else {
            self.node(0, self.cluster_below(cluster)?)[2]
        };
        Some(Vpn::new(start.into()))
    }

    fn next(&self, page: Vpn) -> Option<Vpn> {
        let page = self.holds(page).ok()?;
        let cluster = page >> 10;
        let [bits, _, high] = self.node(0, cluster);
        let start = if bits != 0 && high > page {
            let rest = self.words[page as usize >> 5] & !up_to(page);
            if rest != 0 {
                page & !31 | lowest(rest)
            } else {
                let part = cluster << 5 | lowest(bits & !up_to(page >> 5));
                part << 5 | lowest(self.words[part as usize])
            }
        } else {
            self.node(0, self.cluster_above(cluster)?)[1]
        };
        Some(Vpn::new(start.into()))
    }

    fn check(&self) -> bool {
        let part = |layer: usize, number: u32| {
            // Whether part `number` of the layer has a start; its lowest and highest.
            if layer == 0 {
                let word = self.words[number as usize];
                (word != 0, number << 5 | lowest(word), number << 5 | highest(word))
            } else {
                (self.node(layer - 1, number)[0] != 0, number, number)
            }
        };
        let parts = [self.at[0], (self.at[1] - self.at[0]) / 3, (self.at[2] - self.at[1]) / 3];
        self.words[0] & 1 == 1
            && parts.iter().enumerate().all(|(layer, &count)| {
                (0..count.div_ceil(32) as u32).all(|index| {
                    let [bits, low, high] = self.node(layer, index);
                    let mut inside = (32 * index..(32 * (index + 1)).min(count as u32))
                        .map(|number| (number, part(layer, number)))
                        .filter(|(_, part)| part.0);
                    let set = inside.clone().fold(0, |set, (number, _)| set | 1 << (number & 31));
                    let first = inside.clone().next().is_none_or(|(_, part)| part.1 == low);
                    let last = inside.next_back().is_none_or(|(_, part)| part.2 == high);
                    set == bits && first && last
                })
            })
    }
}

#[cfg(test)]
mod unit {
    extern crate std;

    use std::collections::BTreeMap;
    use std::vec;

    use super::*;

    /// Whatever bit of a node is another one, the invariants do not hold; nor without the first start.
    #[test]
    fn every_flipped_bit_of_a_node_is_found() {
        let words = LayeredTree::words(11).unwrap();
        let mut tree = LayeredTree::new(11, vec![0; words]).unwrap();
        for page in [1, 31, 32, 700, 1023, 1024, 2047] {
            tree.split(Vpn::new(page)).unwrap();
        }
        assert!(tree.check());
        for bit in [0].into_iter().chain(32 * tree.at[0]..32 * words) {
            tree.words[bit / 32] ^= 1 << (bit % 32);
            assert!(!tree.check(), "bit {bit}");
            tree.words[bit / 32] ^= 1 << (bit % 32);
        }
        assert!(tree.check());
    }

    /// Words of pages, and three for each cluster, each group and the root.
    #[test]
    fn every_size_takes_the_words_of_its_parts() {
        for k in 5..=20 {
            let pages = 1_usize << k;
            let parts = [10, 15, 20].map(|bits| pages.div_ceil(1 << bits));
            assert_eq!(LayeredTree::words(k), Some(pages / 32 + 3 * parts.iter().sum::<usize>()));
        }
    }

    /// Whether page 0 is a start, and each node of parts that have a start says which and between what
    /// numbers.
    fn is_well(tree: &LayeredTree<std::vec::Vec<u32>>) -> bool {
        let starts = (0..1_u32 << tree.pages_log2)
            .filter(|page| tree.words[*page as usize / 32] >> (page % 32) & 1 == 1);
        // By node: which of its parts have a start, and the lowest and the highest of its numbers.
        let mut nodes = BTreeMap::new();
        for page in starts.clone() {
            let (cluster, group) = (page / 1024, page / 32 / 1024);
            for (at, part, number) in [
                (tree.at[0] + 3 * cluster as usize, page / 32 % 32, page),
                (tree.at[1] + 3 * group as usize, cluster % 32, cluster),
                (tree.at[2], group, group),
            ] {
                let node = nodes.entry(at).or_insert((0, number, number));
                *node = (node.0 | 1 << part, node.1.min(number), node.2.max(number));
            }
        }
        let all = (tree.at[0]..tree.words.len()).step_by(3);
        starts.clone().next() == Some(0)
            && all.into_iter().all(|at| match nodes.get(&at) {
                None => tree.words[at] == 0,
                Some(&(bits, low, high)) => tree.words[at..at + 3] == [bits, low, high],
            })
    }

    /// Every flip of every word, of pages too: the check finds what breaks an invariant, and nothing else.
    #[test]
    fn the_check_is_that_of_a_walk_over_all_pages() {
        let words = LayeredTree::words(16).unwrap();
        let mut tree = LayeredTree::new(16, vec![0; words]).unwrap();
        let pages = [1, 31, 32, 700, 1023, 1024, 2047, 32_767, 32_768, 40_000, 40_001, 65_535];
        for page in pages {
            tree.split(Vpn::new(page)).unwrap();
        }
        tree.union(Vpn::new(40_000)).unwrap();
        assert!(tree.check() && is_well(&tree));
        let some = pages.map(|page| page as usize / 32);
        let mut well = 0;
        for word in some.into_iter().chain([3, 1025]).chain(tree.at[0]..words) {
            for bit in 0..32 {
                tree.words[word] ^= 1 << bit;
                let is_well = is_well(&tree);
                assert_eq!(tree.check(), is_well, "word {word}, bit {bit}");
                well += u32::from(is_well);
                tree.words[word] ^= 1 << bit;
            }
        }
        // Pages between others, and what empty nodes say of their numbers.
        assert!(well > 100, "{well}");
    }
}

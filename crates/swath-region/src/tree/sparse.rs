//! Starts of regions in a space too large for a bit per page.
//!
//! The tree of [`DenseTree`](crate::DenseTree) with only those parts that hold a
//! start: nodes come from a pool that the caller gives and go back when they are
//! empty. A node has 64 slots and a word that says which of them are used. That
//! word is what keeps a node free of initialisation: a slot is not read unless
//! its bit is set, so a node from the pool costs one write, not 65.
//!
//! ```text
//!  node   [used: 0100…1]  [slot 0] [slot 1] … [slot 63]
//!  upper levels: a slot is the number of a node; lowest: 64 bits, one per page
//! ```

use core::ops::DerefMut;

use swath_arch::Vpn;

use crate::tree::partition::{RegionTree, TreeError, TreeTooShort};

/// Words of a node: which slots are used, and the slots.
const NODE_WORDS: usize = 65;

/// The most levels of nodes, 6 bits each, over the 6 of a lowest slot: with 2^46
/// places, of which [`SparseRegionSpace`](crate::SparseRegionSpace) gives 64 to each page.
const DEPTH_MAX: usize = 7;
const PLACES_LOG2_MAX: u32 = 46;

/// A 64-ary tree over 2^k pages, k from 5 to 40, with nodes where starts are.
///
/// With D = ⌈(k − 6)/6⌉ levels of nodes (at least 1, for 2^40 pages 6), an
/// operation looks at no more than 2D nodes, and a split takes at most D − 1 new
/// ones; nothing depends on how many starts there are. s starts take at most
/// 1 + s·(D − 1) nodes ([`words_needed`](SparseTree::words_needed)).
///
/// Invariants: node 0 is the root; page 0 is a start. A used slot leads to a node
/// with a used slot, or is not zero. Each node of the pool is in the tree
/// once, or on the free list, or at or above `fresh`.
#[derive(Clone, Debug)]
pub struct SparseTree<W> {
    pages_log2: u32,
    /// Levels of nodes.
    depth: usize,
    words: W,
    nodes: usize,
    /// Nodes from here on were never used.
    fresh: usize,
    /// The first node of the free list, linked by slot 0; 0 for none.
    free: usize,
    /// Number of nodes that are not in the tree.
    free_nodes: usize,
}

/// Nodes that a check has met: how many, and the sum of their numbers, by which one that is met twice does
/// not pass for another.
#[derive(Default)]
struct Seen {
    nodes: usize,
    sum: usize,
}

impl Seen {
    fn note(&mut self, node: usize) {
        self.nodes += 1;
        self.sum = self.sum.wrapping_add(node);
    }
}

const fn depth_of(k: u32) -> usize {
    let depth = k.saturating_sub(6).div_ceil(6) as usize;
    if depth == 0 { 1 } else { depth }
}

impl SparseTree<&mut [u64]> {
    /// Counts the words with which any `starts` starts among 2^`pages_log2` pages fit.
    pub const fn words_needed(pages_log2: u32, starts: usize) -> usize {
        let mut nodes = 1_usize;
        let mut level = 0;
        while level + 1 < depth_of(pages_log2) as u32 {
            // A level has no more nodes than there are places for them.
            let places = 1_u64 << pages_log2.saturating_sub(12 + 6 * level);
            let used = if places < starts as u64 { places as usize } else { starts };
            nodes = nodes.saturating_add(used);
            level += 1;
        }
        nodes.saturating_mul(NODE_WORDS)
    }
}

impl<W: DerefMut<Target = [u64]>> SparseTree<W> {
    /// Makes one interval of all pages. O(k): of `words` only what is used is
    /// written.
    ///
    /// # Errors
    /// [`TreeTooShort`] if the words do not suffice for the start at page 0;
    /// `pages_log2` out of 5 to 40 needs `usize::MAX` words.
    pub fn new(pages_log2: u32, words: W) -> Result<Self, TreeTooShort> {
        if pages_log2 > 40 {
            return Err(TreeTooShort { needed: usize::MAX, given: words.len() });
        }
        Self::of_places(pages_log2, words)
    }

    /// Does the same for up to 2^46 places.
    pub(crate) fn of_places(pages_log2: u32, words: W) -> Result<Self, TreeTooShort> {
        let needed = match pages_log2 {
            5..=PLACES_LOG2_MAX => SparseTree::words_needed(pages_log2, 1),
            _ => usize::MAX,
        };
        let given = words.len();
        if given < needed {
            return Err(TreeTooShort { needed, given });
        }
        let nodes = given / NODE_WORDS;
        let depth = depth_of(pages_log2);
        let mut tree =
            Self { pages_log2, depth, words, nodes, fresh: 1, free: 0, free_nodes: nodes - 1 };
        tree.words[0] = 0;
        tree.insert(0);
        Ok(tree)
    }

    /// Counts the nodes that the tree can still take.
    pub fn free_nodes(&self) -> usize {
        self.free_nodes
    }

    /// Returns the 64 places of a lowest slot as a word, zero if none is a start.
    pub(crate) fn word(&self, place: u64) -> u64 {
        match self.path(place) {
            (path, 0) => self.bits(path[0], Self::slot(place, 0)),
            _ => 0,
        }
    }

    /// Changes such a word, where neither the old nor the new one is zero.
    pub(crate) fn set_word(&mut self, place: u64, word: u64) {
        let (path, level) = self.path(place);
        let slot = Self::slot(place, 0);
        if level == 0 && word != 0 && self.bits(path[0], slot) != 0 {
            self.words[Self::at(path[0], slot)] = word;
        }
    }

    /// Returns the slot of `page` in its node of `level`, 0 being the lowest.
    fn slot(page: u64, level: usize) -> usize {
        (page >> (6 * (level + 1)) & 63) as usize
    }

    fn used(&self, node: usize) -> u64 {
        self.words[node * NODE_WORDS]
    }

    fn at(node: usize, slot: usize) -> usize {
        node * NODE_WORDS + 1 + slot
    }

    /// Returns the nodes on the way to a page from the root down, and the level of the
    /// last that exists.
    fn path(&self, page: u64) -> ([usize; DEPTH_MAX], usize) {
        let mut path = [0; DEPTH_MAX];
        for level in (1..self.depth).rev() {
            let slot = Self::slot(page, level);
            if self.used(path[level]) >> slot & 1 == 0 {
                return (path, level);
            }
            path[level - 1] = self.words[Self::at(path[level], slot)] as usize;
        }
        (path, 0)
    }

    /// Takes a node, which the caller knows to be free, with no slot used.
    fn take_node(&mut self) -> usize {
        let node = if self.free != 0 {
            let node = self.free;
            self.free = self.words[Self::at(node, 0)] as usize;
            node
        } else {
            self.fresh += 1;
            self.fresh - 1
        };
        self.free_nodes -= 1;
        self.words[node * NODE_WORDS] = 0;
        node
    }

    /// Adds a start that is none yet, for which there are nodes.
    fn insert(&mut self, page: u64) {
        let (path, level) = self.path(page);
        let mut node = path[level];
        for level in (1..=level).rev() {
            let (slot, child) = (Self::slot(page, level), self.take_node());
            self.words[node * NODE_WORDS] |= 1 << slot;
            self.words[Self::at(node, slot)] = child as u64;
            node = child;
        }
        let slot = Self::slot(page, 0);
        let used = self.used(node) >> slot & 1 == 1;
        let at = Self::at(node, slot);
        let rest = if used { self.words[at] } else { 0 };
        self.words[at] = rest | 1 << (page & 63);
        self.words[node * NODE_WORDS] |= 1 << slot;
    }

    /// Returns the pages of a lowest slot, zero if it is not used.
    fn bits(&self, node: usize, slot: usize) -> u64 {
        if self.used(node) >> slot & 1 == 1 { self.words[Self::at(node, slot)] } else { 0 }
    }

    /// Returns the highest or lowest start under a slot that is used.
    fn outermost(&self, node: usize, level: usize, slot: usize, prefix: u64, highest: bool) -> u64 {
        let pick = |word: u64| match highest {
            true => u64::from((word | 1).ilog2()),
            false => u64::from(word.trailing_zeros() & 63),
        };
        let (mut node, mut slot, mut prefix) = (node, slot as u64, prefix);
        for _ in 0..level {
            node = self.words[Self::at(node, slot as usize)] as usize;
            prefix = prefix << 6 | slot;
            slot = pick(self.used(node));
        }
        (prefix << 6 | slot) << 6 | pick(self.words[Self::at(node, slot as usize)])
    }

    fn holds(&self, page: Vpn) -> Result<u64, TreeError> {
        if page.raw() >> self.pages_log2 == 0 { Ok(page.raw()) } else { Err(TreeError::OutOfRange) }
    }

    /// Returns the nearest start strictly beyond `page`'s lowest slot, below or above.
    fn beyond(&self, page: u64, below: bool) -> Option<u64> {
        let (path, last) = self.path(page);
        (last..self.depth).find_map(|level| {
            let slot = Self::slot(page, level);
            let low = !(u64::MAX << slot);
            let side = if below { low } else { !low & !(1 << slot) };
            let used = self.used(path[level]) & side;
            (used != 0).then(|| {
                let slot = if below { used.ilog2() } else { used.trailing_zeros() };
                let prefix = page >> (6 * (level + 2));
                self.outermost(path[level], level, slot as usize, prefix, below)
            })
        })
    }

    fn check_node(&self, node: usize, level: usize, seen: &mut Seen) -> bool {
        seen.note(node);
        node < self.fresh
            && seen.nodes <= self.nodes
            && self.used(node) != 0
            && (0..64).filter(|slot| self.used(node) >> slot & 1 == 1).all(|slot| {
                let word = self.words[Self::at(node, slot)];
                if level == 0 { word != 0 } else { self.check_node(word as usize, level - 1, seen) }
            })
    }
}

impl<W: DerefMut<Target = [u64]>> RegionTree for SparseTree<W> {
    fn pages(&self) -> u64 {
        1 << self.pages_log2
    }

    fn split(&mut self, at: Vpn) -> Result<(), TreeError> {
        let page = self.holds(at)?;
        let (path, level) = self.path(page);
        if level == 0 && self.bits(path[0], Self::slot(page, 0)) >> (page & 63) & 1 == 1 {
            return Err(TreeError::IsStart);
        }
        if level > self.free_nodes {
            return Err(TreeError::OutOfNodes);
        }
        self.insert(page);
        Ok(())
    }

    fn union(&mut self, at: Vpn) -> Result<(), TreeError> {
        let page = self.holds(at)?;
        let (path, level) = self.path(page);
        let slot = Self::slot(page, 0);
        if level > 0 || self.bits(path[0], slot) >> (page & 63) & 1 == 0 {
            return Err(TreeError::NotStart);
        }
        if page == 0 {
            return Err(TreeError::First);
        }
        let word = &mut self.words[Self::at(path[0], slot)];
        *word &= !(1 << (page & 63));
        if *word != 0 {
            return Ok(());
        }
        // The root never empties: it leads to page 0.
        for (level, &node) in path[..self.depth].iter().enumerate() {
            self.words[node * NODE_WORDS] &= !(1 << Self::slot(page, level));
            if self.used(node) != 0 {
                break;
            }
            self.words[Self::at(node, 0)] = self.free as u64;
            self.free = node;
            self.free_nodes += 1;
        }
        Ok(())
    }

    fn find(&self, page: Vpn) -> Option<Vpn> {
        let page = self.holds(page).ok()?;
        let (path, level) = self.path(page);
        if level == 0 {
            let bits = self.bits(path[0], Self::slot(page, 0)) << (!page & 63);
            if bits != 0 {
                return Some(Vpn::new(page - u64::from(bits.leading_zeros())));
            }
        }
        self.beyond(page, true).map(Vpn::new)
    }

    fn next(&self, page: Vpn) -> Option<Vpn> {
        let page = self.holds(page).ok()?;
        let (path, level) = self.path(page);
        if level == 0 {
            let bits = self.bits(path[0], Self::slot(page, 0)) >> (page & 63) >> 1;
            if bits != 0 {
                return Some(Vpn::new(page + 1 + u64::from(bits.trailing_zeros())));
            }
        }
        self.beyond(page, false).map(Vpn::new)
    }

    fn check(&self) -> bool {
        let mut seen = Seen::default();
        let in_tree = self.check_node(0, self.depth - 1, &mut seen);
        let used = seen.nodes;
        let mut free = self.free;
        while free != 0 && free < self.fresh && seen.nodes <= self.fresh {
            seen.note(free);
            free = self.words[Self::at(free, 0)] as usize;
        }
        let all = (0..self.fresh).fold(0_usize, usize::wrapping_add);
        in_tree
            && self.find(Vpn::new(0)) == Some(Vpn::new(0))
            && free == 0
            && (seen.nodes, seen.sum) == (self.fresh, all)
            && used + self.free_nodes == self.nodes
    }
}

#[cfg(test)]
mod unit {
    extern crate std;

    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    use swath_arch::testing::Random;

    use super::*;

    /// Three levels of nodes, with some in the tree, some on the free list, and some never used.
    fn tree() -> SparseTree<Vec<u64>> {
        let mut tree = SparseTree::new(24, vec![u64::MAX; NODE_WORDS * 20]).unwrap();
        let pages = [1, 63, 64, 4096, 5000, 1 << 18, (1 << 18) + 4096, 1 << 20, (1 << 24) - 1];
        pages.into_iter().for_each(|page| tree.split(Vpn::new(page)).unwrap());
        [5000, 4096, 1 << 20].into_iter().for_each(|page| tree.union(Vpn::new(page)).unwrap());
        assert!(tree.check() && tree.free != 0 && tree.fresh < tree.nodes);
        tree
    }

    /// The nodes of each level, the lowest first.
    fn levels(tree: &SparseTree<Vec<u64>>) -> Vec<Vec<usize>> {
        let mut levels = vec![vec![0]];
        while levels.len() < tree.depth {
            let of = |&node: &usize| -> Vec<usize> {
                let used = (0..64).filter(move |slot| tree.used(node) >> slot & 1 == 1);
                used.map(|slot| tree.words[SparseTree::<Vec<u64>>::at(node, slot)] as usize)
                    .collect()
            };
            let below = levels[0].iter().flat_map(of).collect();
            levels.insert(0, below);
        }
        levels
    }

    /// What is changed in a node above the lowest, or which of the lowest's slots are used.
    #[test]
    fn every_flipped_bit_of_an_upper_node_is_found() {
        let sound = tree();
        let levels = levels(&sound);
        assert!(levels[0].len() > 3 && levels[1].len() > 2);
        let mut flips = 0;
        for (level, node) in
            (0..).zip(&levels).flat_map(|(l, nodes)| nodes.iter().map(move |&n| (l, n)))
        {
            let first = node * NODE_WORDS;
            let slots = (0..64).filter(|slot| sound.used(node) >> slot & 1 == 1);
            // A slot of the lowest level that is not used may come to be, and one that is may have other starts.
            let mut words: Vec<usize> = if level == 0 { Vec::new() } else { vec![first] };
            if level > 0 {
                words.extend(slots.map(|slot| first + 1 + slot));
            }
            for bit in words.into_iter().flat_map(|word| (0..64).map(move |bit| (word, bit))) {
                let mut tree = sound.clone();
                tree.words[bit.0] ^= 1 << bit.1;
                assert!(!tree.check(), "level {level}, node {node}, {bit:?}");
                flips += 1;
            }
        }
        assert!(flips > 600);
    }

    #[test]
    fn each_invariant_is_looked_at() {
        let sound = tree();
        let lowest = levels(&sound)[0].clone();
        let at = SparseTree::<Vec<u64>>::at;
        let broken = |change: &dyn Fn(&mut SparseTree<Vec<u64>>)| {
            let mut tree = sound.clone();
            change(&mut tree);
            !tree.check()
        };
        // A node without a slot, a slot without a start, no start at page 0.
        for &node in &lowest {
            assert!(broken(&|tree| tree.words[node * NODE_WORDS] = 0), "{node}");
            let slot = sound.used(node).trailing_zeros() as usize;
            assert!(broken(&|tree| tree.words[at(node, slot)] = 0), "{node}");
        }
        assert!(broken(&|tree| tree.words[at(lowest[0], 0)] &= !1));
        // Of the free list every link, and where it begins.
        for other in (0..sound.nodes + 2).filter(|&other| other != sound.free) {
            assert!(broken(&|tree| tree.free = other), "{other}");
        }
        let next = sound.words[at(sound.free, 0)];
        for other in (0..sound.nodes as u64 + 2).filter(|&other| other != next) {
            assert!(broken(&|tree| tree.words[at(sound.free, 0)] = other), "{other}");
        }
        // Counts that are one off.
        assert!(broken(&|tree| tree.fresh += 1) && broken(&|tree| tree.fresh -= 1));
        assert!(broken(&|tree| tree.free_nodes += 1) && broken(&|tree| tree.free_nodes -= 1));
        assert!(broken(&|tree| tree.nodes += 1) && broken(&|tree| tree.nodes -= 1));
        // A full pool is no fault.
        let words = SparseTree::words_needed(24, 2);
        let mut full = SparseTree::new(24, vec![0; words]).unwrap();
        full.split(Vpn::new(1 << 20)).unwrap();
        assert!(full.check() && full.free_nodes() == 0);
    }

    /// Starts as far apart as they can be take every node that is counted for them.
    #[test]
    fn words_suffice_and_none_is_left_over() {
        for (k, starts_log2) in (5..=PLACES_LOG2_MAX).flat_map(|k| (0..=12).map(move |s| (k, s))) {
            let words = SparseTree::words_needed(k, 1 << starts_log2);
            let mut tree = SparseTree::of_places(k, vec![u64::MAX; words]).unwrap();
            for start in 1..1 << starts_log2.min(k) {
                let page = start << (k - starts_log2.min(k));
                tree.split(Vpn::new(page)).unwrap();
            }
            assert!(tree.check() && tree.free_nodes() == 0, "2^{k} places, 2^{starts_log2} starts");
        }
        // No more than there are places for.
        let nodes: usize = [28, 22, 16, 10, 4].into_iter().map(|bits| 1 << bits).sum();
        assert_eq!(SparseTree::words_needed(40, usize::MAX), NODE_WORDS * (1 + nodes));
        for k in [4, PLACES_LOG2_MAX + 1] {
            assert!(SparseTree::of_places(k, vec![0; 6500]).is_err());
        }
    }

    /// A pool that is too small for the starts: what is refused is what its nodes do not suffice for,
    /// by a set of the places at which each level has one. Words of 64 places are those of the starts.
    #[test]
    fn nodes_and_words_are_those_of_the_starts() {
        let (k, nodes) = (24, 20);
        let mut tree = SparseTree::new(k, vec![u64::MAX; nodes * NODE_WORDS]).unwrap();
        let mut starts = BTreeSet::from([0]);
        let needed = |starts: &BTreeSet<u64>| {
            let levels = (0..tree_levels(k)).map(|level| 6 * (level + 2));
            let of = |shift: u32| starts.iter().map(move |page| page >> shift);
            levels.map(|shift| of(shift).collect::<BTreeSet<_>>().len()).sum::<usize>()
        };
        let mut random = Random::new(5);
        let mut refused = 0;
        for step in 0..3000 {
            let known = starts.iter().nth(random.index(starts.len())).copied().unwrap();
            let near = [1, 70, 5000, 1 << k][random.index(4)];
            let page = (known + random.below(near)) & ((1 << k) - 1);
            let at = Vpn::new(page);
            match random.below(8) {
                0..4 => {
                    let mut more = starts.clone();
                    let expected = if !more.insert(page) {
                        Err(TreeError::IsStart)
                    } else if needed(&more) > nodes {
                        Err(TreeError::OutOfNodes)
                    } else {
                        starts = more;
                        Ok(())
                    };
                    refused += u32::from(expected == Err(TreeError::OutOfNodes));
                    assert_eq!(tree.split(at), expected, "step {step}: {page}");
                }
                4..7 if page > 0 => {
                    let expected =
                        if starts.remove(&page) { Ok(()) } else { Err(TreeError::NotStart) };
                    assert_eq!(tree.union(at), expected, "step {step}: {page}");
                }
                _ => {
                    let first = page & !63;
                    // Page 0 stays a start. A word that would become or was zero stays.
                    let word =
                        (random.word() & random.word() & random.word()) | u64::from(first == 0);
                    let word = if random.one_in(8) && first > 0 { 0 } else { word };
                    tree.set_word(page, word);
                    if word != 0 && starts.range(first..first + 64).next().is_some() {
                        starts.retain(|start| start & !63 != first);
                        starts.extend(
                            (0..64).filter(|bit| word >> bit & 1 == 1).map(|bit| first + bit),
                        );
                    }
                }
            }
            for place in [page, random.below(1 << k)] {
                let of_word = starts.range(place & !63..=place | 63);
                let word = of_word.fold(0, |word, start| word | 1 << (start & 63));
                assert_eq!(tree.word(place), word, "step {step}: {place}");
            }
            assert_eq!(tree.free_nodes(), nodes - needed(&starts), "step {step}");
            assert!(tree.check(), "step {step}");
        }
        assert!(refused > 50, "{refused} refused");
    }

    /// Levels of nodes over the 64 pages of a lowest slot, of 2^k pages.
    fn tree_levels(k: u32) -> u32 {
        (k - 6).div_ceil(6)
    }
}

//! Runs of free units, found by length: a bitmap under a tree of summaries.
//!
//! A node of the tree says of its stretch of the bitmap how many ones stand
//! at its start, how many at its end, and how many the longest run has. Two
//! neighbours make the summary of both, since a run across their border is the
//! end of the one and the start of the other. So the first run of any length
//! is found by going down from the root, towards the first child in which, or
//! on the border before which, a run is long enough.
//!
//! ```text
//!  level 1   [0, 5, 2]                                start 0, longest 5, end 2
//!             |         |         |         |
//!  level 0   [0, 2, 2] [3, 3, 1] [1, 1, 0] [0, 2, 2]  5 = 2 + 3, across a border
//!  bits      .##..##   ###.#.#   #.#.#..   .#...##
//! ```
//!
//! # What it costs
//! A level-0 node stands for [`LEAF_WORDS`] words of the bitmap, a higher node
//! for [`CHILDREN`] nodes; the children of one node share one line of 64 bytes.
//! L is the number of levels, which is 1 + ceil(log₄(n/256)) for n units: 7
//! for 2^20 units. A search reads at most 2·L such lines and one of the bitmap.
//! A change of c units that share a node of level 0 writes one word and at most
//! L nodes, and stops at the first that stays as it was; a node reads its
//! children where the longest run below it is broken, or where the run reaches
//! an end of its child. A larger change writes c/64 words, c/256 nodes of level
//! 0 and a quarter of that in each level above, and computes two nodes of each
//! level anew. The state is one bit and 2/3 of a bit per unit.
//!
//! Instructions, counted on x86-64 with 2^20 units: with a random half in use, the
//! one run of 19 units, the longest, is found in 800 (1,235,000 by a scan of the
//! words) and one of 15 in 600 (36,000); among 1,909 runs of mixed lengths, one
//! of 3,000 in 440 (97,000). To find, allocate and free one unit is 1,100 on average
//! and 3,100 if all units are free, where every level's longest run is broken;
//! for the run of 19 it is 3,100, and for one of 900 units 2,900.
//!
//! Nodes are u32, hence at most [`UNITS_MAX`] units.

use crate::bits::words::{all_set, clear, first_clear, set, starts_of_run};
use crate::hardening::Hardening;

/// Words of the bitmap under a node of level 0, and its log2.
const LEAF_SHIFT: u32 = 2;
const LEAF_WORDS: usize = 1 << LEAF_SHIFT;
/// Children of a node of a higher level, and its log2.
const CHILD_SHIFT: u32 = 2;
const CHILDREN: usize = 1 << CHILD_SHIFT;
/// Words of a node.
const NODE_WORDS: usize = 2;
/// log2 of the units under a node of level 0.
const LEAF_BITS: u32 = 6 + LEAF_SHIFT;
/// The most units that a tree can hold.
pub(crate) const UNITS_MAX: u64 = u32::MAX as u64;
/// Levels for [`UNITS_MAX`] units.
const LEVELS_MAX: usize = (32 - LEAF_BITS).div_ceil(CHILD_SHIFT) as usize + 1;

/// The summary of a stretch: ones at its start, in its longest run, at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Runs {
    prefix: u64,
    longest: u64,
    suffix: u64,
}

impl Runs {
    /// No ones, or `span` ones and nothing else.
    const fn uniform(span: u64) -> Self {
        Self { prefix: span, longest: span, suffix: span }
    }

    #[inline(always)]
    const fn of(node: &[u64]) -> Self {
        let ends = node[0];
        Self { prefix: ends & UNITS_MAX, longest: node[1], suffix: ends >> 32 }
    }

    #[inline(always)]
    const fn words(self) -> [u64; NODE_WORDS] {
        [self.prefix | self.suffix << 32, self.longest]
    }

    /// The runs of the words under a node of level 0. A word is asked only for
    /// a run longer than the longest so far: for all words together, that is at
    /// most 63 steps more.
    #[inline(always)]
    fn of_leaf(words: &[u64]) -> Self {
        let (mut prefix, mut longest, mut suffix, mut before) = (0, 0, 0, 0);
        for &word in words {
            let head = u64::from(word.trailing_ones());
            if prefix == before {
                prefix += head;
            }
            before += 64;
            let tail = if word == u64::MAX { suffix + 64 } else { word.leading_ones().into() };
            longest = tail.max(longest).max(suffix + head);
            suffix = tail;
            if longest < 63 {
                let mut longer = starts_of_run(word, longest + 1);
                while longer != 0 {
                    longest += 1;
                    longer &= word >> longest;
                }
            }
        }
        Self { prefix, longest, suffix }
    }

    /// The runs of sibling nodes of `span` units each.
    #[inline(always)]
    fn of_group(nodes: &[u64], span: u64) -> Self {
        Self::join(nodes.chunks_exact(NODE_WORDS).map(Self::of), span)
    }

    /// The summary of neighbours of `span` units each.
    #[inline(always)]
    fn join(parts: impl Iterator<Item = Self>, span: u64) -> Self {
        let (mut prefix, mut longest, mut suffix, mut before) = (0, 0, 0, 0);
        for part in parts {
            // Up to here all ones: the prefix goes on.
            if prefix == before {
                prefix += part.prefix;
            }
            before += span;
            longest = part.longest.max(longest).max(suffix + part.prefix);
            suffix = if part.prefix == span { suffix + span } else { part.suffix };
        }
        Self { prefix, longest, suffix }
    }
}

/// A set of free units with its runs by length, in words of a slice that each
/// method is given.
///
/// Invariants: bits beyond the last unit are 0, and each node is the summary
/// of what is below it; `free` bits are set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTree {
    units: u64,
    /// Words of the bitmap, which stands at the start of the slice.
    words: usize,
    depth: usize,
    levels: [usize; LEVELS_MAX],
    free: u64,
}

impl RunTree {
    /// The shape for so many units, and its words of storage.
    const fn shape(units: u64) -> (Self, u64) {
        // Whole lines, so that siblings share one.
        let words = units.div_ceil(64).next_multiple_of(8);
        let mut tree =
            Self { units, words: words as usize, depth: 0, levels: [0; LEVELS_MAX], free: 0 };
        let (mut at, mut nodes) = (words, words.div_ceil(LEAF_WORDS as u64));
        while tree.depth < LEVELS_MAX {
            tree.levels[tree.depth] = at as usize;
            tree.depth += 1;
            at += NODE_WORDS as u64 * nodes.next_multiple_of(CHILDREN as u64);
            if nodes == 1 {
                break;
            }
            nodes = nodes.div_ceil(CHILDREN as u64);
        }
        (tree, at)
    }

    /// Words of storage for so many units.
    pub(crate) const fn storage_words(units: u64) -> u64 {
        Self::shape(units).1
    }

    /// A set of units, 1 to [`UNITS_MAX`], all of them free. O(words).
    pub(crate) fn new(storage: &mut [u64], units: u64) -> Self {
        let (mut tree, words) = Self::shape(units);
        storage[..words as usize].fill(0);
        tree.give(storage, 0, units);
        tree
    }

    /// Returns the number of free units.
    #[inline]
    pub(crate) const fn free(&self) -> u64 {
        self.free
    }

    /// The length of the longest run of free units. O(1).
    pub(crate) fn longest(&self, storage: &[u64]) -> u64 {
        self.node(storage, self.depth - 1, 0).longest
    }

    /// The first unit, of the `count` from `first` on, that is not free.
    pub(crate) fn first_taken(&self, storage: &[u64], first: u64, count: u64) -> Option<u64> {
        first_clear(&storage[..self.words], first as usize, count as usize).map(|unit| unit as u64)
    }

    #[inline(always)]
    fn node(&self, storage: &[u64], level: usize, index: usize) -> Runs {
        let at = self.levels[level] + NODE_WORDS * index;
        Runs::of(&storage[at..at + NODE_WORDS])
    }

    /// The lowest unit from `from` on at which a run of `count` free units
    /// starts; units below `from` do not count. O(L).
    #[inline]
    pub(crate) fn first_run<H: Hardening>(
        &self,
        storage: &[u64],
        count: u64,
        from: u64,
    ) -> Option<u64> {
        if from == 0 {
            let root = self.depth - 1;
            let fits = self.node(storage, root, 0).longest >= count;
            return if fits { self.descend::<H>(storage, root, 0, count) } else { None };
        }
        self.first_run_from::<H>(storage, count, from)
    }

    /// Up from the stretch of `from` as long as nothing fits, then down.
    fn first_run_from<H: Hardening>(&self, storage: &[u64], count: u64, from: u64) -> Option<u64> {
        if from >= self.units {
            return None;
        }
        let mut index = (from >> LEAF_BITS) as usize;
        let mut carry = match self.scan_leaf(storage, index, count, from) {
            Ok(start) => return Some(start),
            Err(carry) => carry,
        };
        let mut span = 1u64 << LEAF_BITS;
        for level in 0..self.depth - 1 {
            let siblings = (index & !(CHILDREN - 1)) + CHILDREN;
            for sibling in index + 1..siblings {
                let runs = self.node(storage, level, sibling);
                if carry + runs.prefix >= count {
                    return Some((sibling as u64 * span).wrapping_sub(carry));
                }
                if runs.longest >= count {
                    return self.descend::<H>(storage, level, sibling, count);
                }
                carry = if runs.prefix == span { carry + span } else { runs.suffix };
            }
            index >>= CHILD_SHIFT;
            span <<= CHILD_SHIFT;
        }
        None
    }

    /// The first run of `count` in a stretch whose longest is no shorter. If that was overwritten, it
    /// is nothing, or anything.
    #[inline]
    fn descend<H: Hardening>(
        &self,
        storage: &[u64],
        mut level: usize,
        mut index: usize,
        count: u64,
    ) -> Option<u64> {
        while level > 0 {
            level -= 1;
            index <<= CHILD_SHIFT;
            let span = 1u64 << (LEAF_BITS + CHILD_SHIFT * level as u32);
            let at = self.levels[level] + NODE_WORDS * index;
            let past = index + CHILDREN;
            if H::CHECKED && at + NODE_WORDS * CHILDREN > storage.len() {
                return None;
            }
            let group = &storage[at..at + NODE_WORDS * CHILDREN];
            let mut carry = 0;
            for child in group.chunks_exact(NODE_WORDS) {
                let runs = Runs::of(child);
                if carry + runs.prefix >= count {
                    return Some((index as u64 * span).wrapping_sub(carry));
                }
                if runs.longest >= count {
                    break;
                }
                carry = if runs.prefix == span { carry + span } else { runs.suffix };
                index += 1;
            }
            if H::CHECKED && index == past {
                return None;
            }
        }
        if H::CHECKED && index >= self.words / LEAF_WORDS {
            return None;
        }
        self.scan_leaf(storage, index, count, 0).ok()
    }

    /// The first run of `count` in a stretch of level 0, from `from` on; else
    /// how many ones stand at its end.
    #[inline(always)]
    fn scan_leaf(&self, storage: &[u64], leaf: usize, count: u64, from: u64) -> Result<u64, u64> {
        let mut carry = 0;
        let mut base = (leaf as u64) << LEAF_BITS;
        for &word in &storage[leaf << LEAF_SHIFT..(leaf + 1) << LEAF_SHIFT] {
            let word = match from.saturating_sub(base) {
                below @ 0..64 => word & u64::MAX << below,
                _ => 0,
            };
            if carry + u64::from(word.trailing_ones()) >= count {
                return Ok(base - carry);
            }
            if count <= 64 {
                let starts = starts_of_run(word, count);
                if starts != 0 {
                    return Ok(base + u64::from(starts.trailing_zeros()));
                }
            }
            carry = if word == u64::MAX { carry + 64 } else { u64::from(word.leading_ones()) };
            base += 64;
        }
        Err(carry)
    }

    /// Allocates `count` units, at least one, all of them free, from `first` on.
    #[inline]
    pub(crate) fn take(&mut self, storage: &mut [u64], first: u64, count: u64) {
        clear(&mut storage[..self.words], first as usize, count as usize);
        self.free = self.free.wrapping_sub(count);
        self.update(storage, first, count, false);
    }

    /// Frees `count` units, at least one, none of them free, from `first` on.
    #[inline]
    pub(crate) fn give(&mut self, storage: &mut [u64], first: u64, count: u64) {
        set(&mut storage[..self.words], first as usize, count as usize);
        self.free += count;
        self.update(storage, first, count, true);
    }

    /// Brings the nodes above changed units up to date: those units have all
    /// become ones, or zeros.
    #[inline]
    fn update(&self, storage: &mut [u64], first: u64, count: u64, ones: bool) {
        if first >> LEAF_BITS == (first + count - 1) >> LEAF_BITS {
            self.update_one(storage, first, first + count, ones);
        } else {
            self.update_range(storage, first, count, ones);
        }
    }

    /// As [`update`](Self::update) for units under one node of level 0. Only
    /// the run around them has changed: of the nodes above, those that it
    /// reaches the ends of, and those of which it is, or was, the longest.
    fn update_one(&self, storage: &mut [u64], first: u64, end: u64, ones: bool) {
        let (bits, nodes) = storage.split_at_mut(self.words);
        let mut index = (first >> LEAF_BITS) as usize;
        let leaf = &bits[index << LEAF_SHIFT..(index + 1) << LEAF_SHIFT];
        let mut span = 1u64 << LEAF_BITS;
        // The run around the units as it is, or was, as far as it lies under
        // the node.
        let base = index as u64 * span;
        let mut low = base + run_start(leaf, (first - base) as usize) as u64;
        let past = (end - base) as usize;
        let after = first_clear(leaf, past, span as usize - past);
        let mut high = after.map_or(base + span, |clear| base + clear as u64);
        for level in 0..self.depth {
            let below = if level > 0 { self.levels[level - 1] - self.words } else { 0 };
            let group = index & !(CHILDREN - 1);
            if level > 0 {
                let child = |child: usize| Runs::of(&nodes[below + NODE_WORDS * child..]);
                let mut left = index;
                while low == left as u64 * span && left > group {
                    left -= 1;
                    low = low.wrapping_sub(child(left).suffix);
                }
                let mut right = index + 1;
                while high == right as u64 * span && right < group + CHILDREN {
                    high += child(right).prefix;
                    right += 1;
                }
                index >>= CHILD_SHIFT;
                span <<= CHILD_SHIFT;
            }
            let at = self.levels[level] - self.words;
            let start = index as u64 * span;
            let mut runs = Runs::of(&nodes[at + NODE_WORDS * index..]);
            let length = high.wrapping_sub(low);
            if ones {
                runs.longest = runs.longest.max(length);
            } else if length == runs.longest {
                let all = if level == 0 {
                    Runs::of_leaf(leaf)
                } else {
                    let group = below + NODE_WORDS * group;
                    let children = &nodes[group..group + NODE_WORDS * CHILDREN];
                    Runs::of_group(children, span >> CHILD_SHIFT)
                };
                runs.longest = all.longest;
            }
            if low == start {
                runs.prefix = if ones { length } else { first - start };
            }
            if high == start + span {
                runs.suffix = if ones { length } else { high - end };
            }
            if !replace(nodes, at, index, runs) {
                return;
            }
        }
    }

    /// As [`update`](Self::update) for units under several nodes of level 0:
    /// those at the ends are computed anew, those between are uniform.
    fn update_range(&self, storage: &mut [u64], first: u64, count: u64, ones: bool) {
        let mut low = (first >> LEAF_BITS) as usize;
        let mut high = ((first + count - 1) >> LEAF_BITS) as usize;
        let (bits, nodes) = storage.split_at_mut(self.words);
        let leaf =
            |index: usize| Runs::of_leaf(&bits[index << LEAF_SHIFT..(index + 1) << LEAF_SHIFT]);
        let mut span = 1u64 << LEAF_BITS;
        let mut at = 0;
        let mut changed = replace(nodes, at, low, leaf(low));
        changed |= replace(nodes, at, high, leaf(high));
        fill(nodes, at, low + 1, high, if ones { span } else { 0 });
        for level in 1..self.depth {
            if low == high && !changed {
                return;
            }
            let below = at;
            at = self.levels[level] - self.words;
            (low, high) = (low >> CHILD_SHIFT, high >> CHILD_SHIFT);
            let summary = |nodes: &[u64], index: usize| {
                let first = below + NODE_WORDS * (index << CHILD_SHIFT);
                Runs::of_group(&nodes[first..first + NODE_WORDS * CHILDREN], span)
            };
            let runs = summary(nodes, low);
            changed = replace(nodes, at, low, runs);
            if low != high {
                let runs = summary(nodes, high);
                changed |= replace(nodes, at, high, runs);
                fill(nodes, at, low + 1, high, if ones { span << CHILD_SHIFT } else { 0 });
            }
            span <<= CHILD_SHIFT;
        }
    }

    /// Visits the runs of free units, ascending: first unit and length.
    /// O(r·L) for r runs.
    pub(crate) fn for_each_run<H: Hardening>(
        &self,
        storage: &[u64],
        visit: &mut dyn FnMut(u64, u64),
    ) {
        let mut from = 0;
        while let Some(start) = self.first_run::<H>(storage, 1, from) {
            if H::CHECKED && !(from..self.units).contains(&start) {
                return;
            }
            let end = self.first_taken(storage, start, self.units - start).unwrap_or(self.units);
            visit(start, end - start);
            from = end;
        }
    }

    /// Returns true if the `count` units, at least one, from `first` on are all
    /// free.
    pub(crate) fn all_free(&self, storage: &[u64], first: u64, count: u64) -> bool {
        all_set(&storage[..self.words], first as usize, count as usize)
    }

    /// Counts the units that are free by their bits.
    pub(crate) fn count(&self, storage: &[u64]) -> u64 {
        storage[..self.words].iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Returns true if a unit is free by its bit.
    pub(crate) fn is_free(&self, storage: &[u64], unit: u64) -> bool {
        storage[(unit / 64) as usize] >> (unit % 64) & 1 == 1
    }

    /// The first word that is not the summary of what is below it. O(words).
    pub(crate) fn wrong_summary(&self, storage: &[u64]) -> Option<usize> {
        let mut nodes = self.words / LEAF_WORDS;
        for level in 0..self.depth {
            let span = 1 << (LEAF_BITS + CHILD_SHIFT * (level as u32).saturating_sub(1));
            for index in 0..nodes.next_multiple_of(CHILDREN) {
                let runs = if index >= nodes {
                    Runs::uniform(0)
                } else if level == 0 {
                    Runs::of_leaf(&storage[index << LEAF_SHIFT..(index + 1) << LEAF_SHIFT])
                } else {
                    let at = self.levels[level - 1] + NODE_WORDS * (index << CHILD_SHIFT);
                    Runs::of_group(&storage[at..at + NODE_WORDS * CHILDREN], span)
                };
                let at = self.levels[level] + NODE_WORDS * index;
                let mut words = (at..at + NODE_WORDS).zip(runs.words());
                if let Some((word, _)) = words.find(|&(word, right)| storage[word] != right) {
                    return Some(word);
                }
            }
            nodes = nodes.div_ceil(CHILDREN);
        }
        None
    }

    /// The first word with a bit beyond the last unit.
    pub(crate) fn word_beyond(&self, storage: &[u64]) -> Option<usize> {
        let last = (self.units / 64) as usize;
        (last..self.words).find(|&word| {
            let mine = if word == last { self.units % 64 } else { 0 };
            storage[word] >> mine != 0
        })
    }

    /// Walks the invariants in O(words); the first that does not hold is named.
    pub(crate) fn check(&self, storage: &[u64]) -> Result<(), &'static str> {
        let bits = &storage[..self.words];
        if self.count(storage) != self.free {
            return Err("the count of free units is wrong");
        }
        if self.word_beyond(storage).is_some() {
            return Err("a unit beyond the last is free");
        }
        for (index, words) in bits.chunks_exact(LEAF_WORDS).enumerate() {
            if self.node(storage, 0, index) != Runs::of_leaf(words) {
                return Err("a summary of words is wrong");
            }
        }
        let mut nodes = self.words / LEAF_WORDS;
        for level in 1..self.depth {
            let span = 1 << (LEAF_BITS + CHILD_SHIFT * (level as u32 - 1));
            nodes = nodes.div_ceil(CHILDREN);
            for index in 0..nodes {
                let below = (index << CHILD_SHIFT)..((index + 1) << CHILD_SHIFT);
                let below = below.map(|child| self.node(storage, level - 1, child));
                if self.node(storage, level, index) != Runs::join(below, span) {
                    return Err("a summary of nodes is wrong");
                }
            }
        }
        Ok(())
    }
}

/// Returns the start of the run of ones that ends below bit `past`.
#[inline(always)]
fn run_start(words: &[u64], past: usize) -> usize {
    let mut start = past;
    while start > 0 {
        // Bit 63 is the one below `start`.
        let in_word = (start - 1) % 64 + 1;
        let ones = (words[(start - 1) / 64] << (64 - in_word)).leading_ones() as usize;
        start -= ones.min(in_word);
        if ones < in_word {
            break;
        }
    }
    start
}

/// Writes a node of the level at `at`; whether it differs from before.
#[inline(always)]
fn replace(nodes: &mut [u64], at: usize, index: usize, runs: Runs) -> bool {
    let node = &mut nodes[at + NODE_WORDS * index..][..NODE_WORDS];
    let words = runs.words();
    let changed = node != words;
    node.copy_from_slice(&words);
    changed
}

/// Writes the nodes from `low` to below `high` as uniform.
fn fill(nodes: &mut [u64], at: usize, low: usize, high: usize, span: u64) {
    let words = Runs::uniform(span).words();
    for node in nodes[at + NODE_WORDS * low..at + NODE_WORDS * high].chunks_exact_mut(NODE_WORDS) {
        node.copy_from_slice(&words);
    }
}

//! Which node of a free list a page buddy allocator takes.
//!
//! Fig. 4 of the PBS paper takes the head of the list, the node of the lowest
//! frame: [`HeadOfList`], which keeps no state. [`BestFit`] takes the
//! smallest node that serves the rest of the request alone, and so leaves
//! large nodes whole; it indexes the nodes by their length.
//!
//! A **node** of a class is a run of the class's free units, as long as can
//! be, with one exception: below the top class it holds fewer than
//! 2^granularity units, so a run that is longer (it then crosses the border
//! between two units of the class above) is two nodes, cut at the border. In
//! the top class the length has no limit, but with granularity 1 each unit is
//! a node in every class, which makes it the binary buddy system.

use crate::bitmap::Bitmap;
use crate::class::Class;
use crate::config::CLASSES_MAX;

/// A rule of choice among the nodes of a class: [`HeadOfList`] or [`BestFit`].
///
/// The methods are the allocator's business; no other type can be a rule.
pub trait Rule: Clone + core::fmt::Debug + sealed::Sealed {
    /// Whether the rule has to hear of every change.
    #[doc(hidden)]
    const INDEXED: bool;
    /// Whether `units` units can be told apart.
    #[doc(hidden)]
    fn can_index(units: u64) -> bool;
    /// Words of storage for a class of `units` units with nodes of up to
    /// `node_max`.
    #[doc(hidden)]
    fn storage_words(units: u64, node_max: u64) -> u64;
    /// A rule that has no classes yet.
    #[doc(hidden)]
    fn new() -> Self;
    /// Sets up class `i`, which is empty, in the storage from `at` on.
    #[doc(hidden)]
    fn add_class(&mut self, storage: &mut [u64], i: usize, at: usize, units: u64, node_max: u64);
    /// The units `low..high` of class `i` are about to become free.
    #[doc(hidden)]
    fn inserting(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize);
    /// The units `low..high` of class `i`, free so far, are about to be taken.
    #[doc(hidden)]
    fn removing(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize);
    /// The first unit of the node to take for `wanted` units and how many it
    /// holds, which may be cut to `wanted`.
    #[doc(hidden)]
    fn pick(
        &self,
        storage: &mut [u64],
        i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)>;
    /// The first broken invariant of class `i`.
    #[doc(hidden)]
    fn check(&self, storage: &[u64], i: usize, class: &Class) -> Result<(), &'static str>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::HeadOfList {}
    impl Sealed for super::BestFit {}
}

/// The paper's rule: the node of the lowest frame. Costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct HeadOfList(());

impl Rule for HeadOfList {
    const INDEXED: bool = false;

    fn can_index(_units: u64) -> bool {
        true
    }

    fn storage_words(_units: u64, _node_max: u64) -> u64 {
        0
    }

    fn new() -> Self {
        Self(())
    }

    fn add_class(&mut self, _: &mut [u64], _: usize, _: usize, _: u64, _: u64) {}

    #[inline(always)]
    fn inserting(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize) {}

    #[inline(always)]
    fn removing(&mut self, _: &mut [u64], _: usize, _: &Class, _: usize, _: usize) {}

    #[inline]
    fn pick(
        &self,
        storage: &mut [u64],
        _i: usize,
        class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)> {
        let first = class.free.first(storage)?;
        Some((first, class.node_len(storage, first, wanted)))
    }

    fn check(&self, _: &[u64], _: usize, _: &Class) -> Result<(), &'static str> {
        Ok(())
    }
}

/// The smallest node that is large enough, else the largest; among nodes of
/// one length the one that became free last.
///
/// Each length has a list of its nodes, so the fit is exact; the lengths that
/// have a node form a [`Bitmap`], so the search costs O(levels). The length
/// of a node stands at both of its ends (boundary tags), so a neighbour is
/// found and unlinked in O(1). Both stand in the caller's storage: 12 bytes
/// per unit of each class and 8 bytes per length.
#[derive(Clone, Debug)]
pub struct BestFit {
    lists: [Lists; CLASSES_MAX],
}

/// The nodes of one class, by length.
///
/// Invariants, for each node of the class (and no other run): its length
/// stands in the tags of its first and its last unit; it is in the list of
/// its length, once; `lengths` holds `n - 1` exactly if the list of length n
/// has a node.
#[derive(Clone, Copy, Debug)]
struct Lists {
    lengths: Bitmap,
    /// The first node of each length, from length 1 on: a unit.
    heads: usize,
    /// For each unit that starts a node: the node before it (upper half) and
    /// after it (lower half) in the list, or [`NIL`].
    links: usize,
    /// Half a word per unit: the length of the node that starts or ends here.
    tags: usize,
}

const NIL: u64 = u32::MAX as u64;

impl Lists {
    const NONE: Self = Self { lengths: Bitmap::none(), heads: 0, links: 0, tags: 0 };

    #[inline]
    fn tag(&self, storage: &[u64], unit: usize) -> usize {
        (storage[self.tags + unit / 2] >> (unit % 2 * 32)) as u32 as usize
    }

    #[inline]
    fn set_tag(&self, storage: &mut [u64], unit: usize, len: usize) {
        let word = &mut storage[self.tags + unit / 2];
        let shift = unit % 2 * 32;
        *word = *word & !(NIL << shift) | (len as u64) << shift;
    }

    fn link(&mut self, storage: &mut [u64], unit: usize, len: usize) {
        self.set_tag(storage, unit, len);
        self.set_tag(storage, unit + len - 1, len);
        let head = &mut storage[self.heads + len - 1];
        let next = core::mem::replace(head, unit as u64);
        storage[self.links + unit] = NIL << 32 | next;
        if next == NIL {
            self.lengths.insert(storage, len - 1, 1);
        } else {
            let link = &mut storage[self.links + next as usize];
            *link = *link & NIL | (unit as u64) << 32;
        }
    }

    fn unlink(&mut self, storage: &mut [u64], unit: usize, len: usize) {
        let link = storage[self.links + unit];
        let (before, after) = (link >> 32, link & NIL);
        if after != NIL {
            let link = &mut storage[self.links + after as usize];
            *link = *link & NIL | before << 32;
        }
        if before != NIL {
            let link = &mut storage[self.links + before as usize];
            *link = *link & (NIL << 32) | after;
        } else {
            storage[self.heads + len - 1] = after;
            if after == NIL {
                self.lengths.remove(storage, len - 1, 1);
            }
        }
    }

    /// Links the run `low..high`, which nothing free touches, as nodes.
    fn link_run(&mut self, storage: &mut [u64], class: &Class, mut low: usize, high: usize) {
        while low < high {
            let len = class.cut(low, high - low);
            self.link(storage, low, len);
            low += len;
        }
    }

    /// Unlinks the nodes that make up `low..high`.
    fn unlink_run(&mut self, storage: &mut [u64], mut low: usize, high: usize) {
        while low < high {
            let len = self.tag(storage, low);
            self.unlink(storage, low, len);
            low += len;
        }
    }

    /// Where the run that ends below `past` starts, by the tags: it is at
    /// most two nodes unless every unit is a node.
    fn run_start(&self, storage: &[u64], class: &Class, past: usize) -> usize {
        let mut start = past;
        while start > 0 && class.free.contains(storage, start - 1) {
            start -= self.tag(storage, start - 1);
        }
        start
    }

    /// Where the run from `start` on ends, likewise.
    fn run_end(&self, storage: &[u64], class: &Class, start: usize) -> usize {
        let mut end = start;
        while class.free.contains(storage, end) {
            end += self.tag(storage, end);
        }
        end
    }
}

impl Rule for BestFit {
    const INDEXED: bool = true;

    fn can_index(units: u64) -> bool {
        units < NIL
    }

    fn storage_words(units: u64, node_max: u64) -> u64 {
        let lengths = units.min(node_max);
        Bitmap::storage_words(lengths) + lengths + units + units.div_ceil(2)
    }

    fn new() -> Self {
        Self { lists: [Lists::NONE; CLASSES_MAX] }
    }

    fn add_class(&mut self, storage: &mut [u64], i: usize, at: usize, units: u64, node_max: u64) {
        let lengths = units.min(node_max);
        let heads = at + Bitmap::storage_words(lengths) as usize;
        let links = heads + lengths as usize;
        let tags = links + units as usize;
        storage[heads..links].fill(NIL);
        storage[links..tags + units.div_ceil(2) as usize].fill(0);
        self.lists[i] = Lists { lengths: Bitmap::new(storage, at, lengths), heads, links, tags };
    }

    fn inserting(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize) {
        let lists = &mut self.lists[i];
        if class.node_max == 1 {
            return lists.link_run(storage, class, low, high);
        }
        let start = lists.run_start(storage, class, low);
        let end = lists.run_end(storage, class, high);
        lists.unlink_run(storage, start, low);
        lists.unlink_run(storage, high, end);
        lists.link_run(storage, class, start, end);
    }

    fn removing(&mut self, storage: &mut [u64], i: usize, class: &Class, low: usize, high: usize) {
        let lists = &mut self.lists[i];
        if class.node_max == 1 {
            return lists.unlink_run(storage, low, high);
        }
        // Only an aligned request can lie inside a run, away from both ends.
        let start = if low == 0 || !class.free.contains(storage, low - 1) {
            low
        } else if !class.free.contains(storage, high) {
            lists.run_start(storage, class, high)
        } else {
            class.free.run_start(storage, low)
        };
        let end = lists.run_end(storage, class, start);
        lists.unlink_run(storage, start, end);
        lists.link_run(storage, class, start, low);
        lists.link_run(storage, class, high, end);
    }

    fn pick(
        &self,
        storage: &mut [u64],
        i: usize,
        _class: &mut Class,
        wanted: usize,
    ) -> Option<(usize, usize)> {
        let lists = &self.lists[i];
        let length = match lists.lengths.next(storage, wanted - 1) {
            Some(length) => length,
            None => lists.lengths.last(storage)?,
        };
        Some((storage[lists.heads + length] as usize, length + 1))
    }

    fn check(&self, storage: &[u64], i: usize, class: &Class) -> Result<(), &'static str> {
        let lists = &self.lists[i];
        lists.lengths.check(storage)?;
        let mut nodes = 0usize;
        let mut from = 0;
        while let Some(unit) = class.free.next(storage, from) {
            let len = class.node_len(storage, unit, usize::MAX);
            if lists.tag(storage, unit) != len || lists.tag(storage, unit + len - 1) != len {
                return Err("a boundary tag differs from the length of its node");
            }
            nodes += 1;
            from = unit + len;
        }
        let mut linked = 0usize;
        let mut lengths = 0;
        for length in 0..lists.links - lists.heads {
            let (mut before, mut unit) = (NIL, storage[lists.heads + length]);
            if (unit != NIL) != lists.lengths.contains(storage, length) {
                return Err("the set of lengths differs from the lists of nodes");
            }
            lengths += usize::from(unit != NIL);
            while unit != NIL {
                let at = unit as usize;
                if !class.free.contains(storage, at)
                    || class.node_len(storage, at, usize::MAX) != length + 1
                    || at > 0
                        && class.node_max > 1
                        && class.free.contains(storage, at - 1)
                        && !class.is_border(at)
                {
                    return Err("a list holds what is no node of its length");
                }
                if storage[lists.links + at] >> 32 != before {
                    return Err("a backward link differs from the forward one");
                }
                linked += 1;
                if linked > nodes {
                    return Err("the lists hold more nodes than there are");
                }
                (before, unit) = (unit, storage[lists.links + at] & NIL);
            }
        }
        if linked != nodes || lengths != lists.lengths.len(storage) {
            return Err("a node is in no list");
        }
        Ok(())
    }
}

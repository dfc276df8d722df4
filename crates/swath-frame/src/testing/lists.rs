//! The paper's free lists as they are written: an array of linked lists of
//! nodes (base, size), each ordered by frame number.
//!
//! To allocate, the orders are scanned from the highest downwards (Fig. 4);
//! to free, a list is walked for the place of a node and for its buddies. With
//! granularity 1 these are the binary buddies, found by XOR. This is the model
//! that [`PageBuddy`](crate::PageBuddy) is compared with operation by
//! operation, and the "paper's lists" of the studies on allocation cost; it is
//! a plain implementation, neither clever nor slowed down. What it looks at and
//! writes can be counted ([`Watch`]).

use alloc::vec;
use alloc::vec::Vec;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::buddy::config::BuddyConfig;
use crate::map::MemoryMap;

/// A node of a free list: `size` frames from frame `base` on.
#[derive(Clone, Copy, Debug)]
struct Node {
    base: u64,
    size: u64,
    next: Option<usize>,
}

/// Somebody who is told each step of the lists. `()` is told nothing, at no
/// cost.
pub trait Watch {
    /// A list is looked at for a block: in the scan of Fig. 4, or upwards for
    /// one to split.
    fn list(&mut self) {}
    /// A node is looked at.
    fn node(&mut self) {}
    /// A node is put into a list, taken out of one, or changed.
    fn change(&mut self) {}
}

impl Watch for () {}

/// Steps of the lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Steps {
    /// Lists that were looked at for a block: in the scan of Fig. 4, and
    /// upwards for one to split.
    pub lists: u64,
    /// Nodes that were looked at.
    pub nodes: u64,
    /// Nodes that were put into a list, taken out of one, or changed.
    pub changes: u64,
}

impl Watch for Steps {
    fn list(&mut self) {
        self.lists += 1;
    }

    fn node(&mut self) {
        self.nodes += 1;
    }

    fn change(&mut self) {
        self.changes += 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Hole,
    Free,
    Allocated,
}

/// BBS or PBS on ordered linked lists. n is the number of nodes in a list.
///
/// Invariants: list i holds the nodes of order i·granularity as
/// [`rule`](crate::buddy::rule) defines them, ascending; `spare` chains the entries
/// of `nodes` that no list uses; `uses` says what each frame of the span is.
#[derive(Clone, Debug)]
pub struct PaperLists<W = ()> {
    /// Told each step.
    pub watch: W,
    granularity: u32,
    heads: Vec<Option<usize>>,
    nodes: Vec<Node>,
    spare: Option<usize>,
    span: Extent,
    uses: Vec<Use>,
    free: u64,
    total: u64,
}

impl PaperLists {
    /// An allocator for the frames of `map`, all of them free.
    pub fn new(map: &MemoryMap<'_>, config: BuddyConfig) -> Self {
        Self::watched(map, config, ())
    }
}

impl<W: Watch> PaperLists<W> {
    /// The same, each step of which is told to `watch`, those that put the
    /// free frames into the lists among them.
    pub fn watched(map: &MemoryMap<'_>, config: BuddyConfig, watch: W) -> Self {
        let span = map.span();
        let mut lists = Self {
            watch,
            granularity: config.granularity(),
            heads: vec![None; config.classes()],
            nodes: Vec::new(),
            spare: None,
            span,
            uses: vec![Use::Hole; span.count as usize],
            free: map.total_frames(),
            total: map.total_frames(),
        };
        for area in map.areas() {
            lists.mark(*area, Use::Free);
            lists.free_span(area.start.raw(), area.end().raw());
        }
        lists
    }

    fn mark(&mut self, extent: Extent, used: Use) {
        let at = (extent.start - self.span.start) as usize;
        self.uses[at..at + extent.count as usize].fill(used);
    }

    fn last(&self) -> usize {
        self.heads.len() - 1
    }

    fn order(&self, i: usize) -> u32 {
        i as u32 * self.granularity
    }

    /// Walks list `i` to the place of `base`. O(n).
    fn insert(&mut self, i: usize, base: u64, size: u64) {
        let (mut before, mut next) = (None, self.heads[i]);
        while let Some(at) = next {
            self.watch.node();
            if self.nodes[at].base >= base {
                break;
            }
            (before, next) = (Some(at), self.nodes[at].next);
        }
        self.watch.change();
        let node = Node { base, size, next };
        let at = match self.spare {
            Some(at) => {
                self.spare = self.nodes[at].next;
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.relink(i, before, Some(at));
    }

    fn relink(&mut self, i: usize, before: Option<usize>, next: Option<usize>) {
        match before {
            Some(before) => self.nodes[before].next = next,
            None => self.heads[i] = next,
        }
    }

    /// Removes the first node of list `i` that `wanted` accepts; none with a
    /// base above `last` is looked at. O(n).
    fn remove(&mut self, i: usize, last: u64, wanted: impl Fn(&Node) -> bool) -> Option<Node> {
        let (mut before, mut next) = (None, self.heads[i]);
        while let Some(at) = next {
            self.watch.node();
            let node = self.nodes[at];
            if node.base > last {
                return None;
            }
            if wanted(&node) {
                self.watch.change();
                self.relink(i, before, node.next);
                self.nodes[at].next = self.spare;
                self.spare = Some(at);
                return Some(node);
            }
            (before, next) = (Some(at), node.next);
        }
        None
    }

    /// Takes the first `count` frames from a node of list 0, where what remains
    /// keeps its place. It may now be short enough to be one node with the
    /// next, from which only the border of the next list's block parted it.
    fn shorten(&mut self, at: usize, count: u64) {
        self.watch.change();
        let node = &mut self.nodes[at];
        node.base += count;
        node.size -= count;
        let Node { base, size, next } = *node;
        if let Some(after) = next {
            self.watch.node();
            let neighbour = self.nodes[after];
            if neighbour.base == base + size && size + neighbour.size < 1 << self.granularity {
                self.watch.change();
                self.nodes[at].size += neighbour.size;
                self.nodes[at].next = neighbour.next;
                self.nodes[after].next = self.spare;
                self.spare = Some(after);
            }
        }
    }

    /// Puts the frames `low..high` into the lists.
    fn free_span(&mut self, low: u64, high: u64) {
        if self.granularity == 1 {
            self.free_binary(low, high);
        } else {
            self.free_range(low, high);
        }
    }

    /// BBS: in blocks of powers of two, each merged with its buddy as long as
    /// that is free too.
    fn free_binary(&mut self, mut low: u64, high: u64) {
        while low < high {
            let fits = (high - low).ilog2().min(low.trailing_zeros());
            let mut order = fits.min(self.last() as u32);
            let mut base = low;
            low += 1 << order;
            while (order as usize) < self.last() {
                let buddy = base ^ 1 << order;
                if self.remove(order as usize, buddy, |node| node.base == buddy).is_none() {
                    break;
                }
                base = base.min(buddy);
                order += 1;
            }
            self.insert(order as usize, base, 1 << order);
        }
    }

    /// PBS: merged with the ascending and descending buddies of each list;
    /// what makes up whole blocks of the next list goes there.
    fn free_range(&mut self, mut low: u64, mut high: u64) {
        for i in 0..self.last() {
            while let Some(buddy) =
                self.remove(i, high, |node| node.base + node.size == low || node.base == high)
            {
                low = low.min(buddy.base);
                high = high.max(buddy.base + buddy.size);
            }
            let block = 1 << self.order(i + 1);
            let (first, past) = (low.next_multiple_of(block), high / block * block);
            if first < past {
                if low < first {
                    self.insert(i, low, first - low);
                }
                if past < high {
                    self.insert(i, past, high - past);
                }
                (low, high) = (first, past);
            } else {
                // Less than two blocks; a node is less than one.
                if high - low >= block {
                    self.insert(i, low, first - low);
                    low = first;
                }
                if low < high {
                    self.insert(i, low, high - low);
                }
                return;
            }
        }
        let top = self.last();
        while let Some(buddy) =
            self.remove(top, high, |node| node.base + node.size == low || node.base == high)
        {
            low = low.min(buddy.base);
            high = high.max(buddy.base + buddy.size);
        }
        self.insert(top, low, high - low);
    }

    /// Takes `extent`, of which each frame is in list `i`.
    fn carve(&mut self, i: usize, extent: Extent) {
        let (start, end) = (extent.start.raw(), extent.end().raw());
        let mut low = start;
        let mut high = end;
        while let Some(node) =
            self.remove(i, end, |node| node.base < end && start < node.base + node.size)
        {
            low = low.min(node.base);
            high = high.max(node.base + node.size);
        }
        if low < start {
            self.free_span(low, start);
        }
        if end < high {
            self.free_span(end, high);
        }
        self.taken(extent);
    }

    fn taken(&mut self, extent: Extent) {
        self.mark(extent, Use::Allocated);
        self.free -= extent.count;
    }

    /// The lowest aligned extent within list `i`, whose nodes may touch.
    fn find_aligned(&self, i: usize, order: Order) -> Option<Extent> {
        let mut next = self.heads[i];
        let (mut low, mut high) = (0, 0);
        while let Some(at) = next {
            let node = self.nodes[at];
            if node.base != high {
                low = node.base;
            }
            high = node.base + node.size;
            let start = low.next_multiple_of(order.frames());
            if start + order.frames() <= high {
                return Some(Extent::new(Pfn::new(start), order.frames()));
            }
            next = node.next;
        }
        None
    }
}

impl<W: Watch> FrameAllocator for PaperLists<W> {
    /// Fig. 4, lines 3 to 25. O(C) for C orders, plus the walks that the
    /// remaining part costs.
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max == 0 {
            return None;
        }
        let mut high_order_has_block = false;
        for i in (0..self.heads.len()).rev() {
            self.watch.list();
            if self.heads[i].is_none() && !high_order_has_block {
                continue;
            }
            high_order_has_block = true;
            if 1 << self.order(i) > frames_max {
                continue;
            }
            let (heads, watch) = (&self.heads, &mut self.watch);
            let from = (i..heads.len()).find(|&from| {
                if from > i {
                    watch.list();
                }
                heads[from].is_some()
            })?;
            let head = self.heads[from]?;
            self.watch.node();
            let node = self.nodes[head];
            let limit = if self.granularity == 1 { 1 << i } else { frames_max };
            let block = Extent::new(Pfn::new(node.base), node.size.min(limit));
            if from == 0 && block.count < node.size {
                self.shorten(head, block.count);
            } else {
                self.remove(from, u64::MAX, |_| true);
                if block.count < node.size {
                    self.free_span(block.end().raw(), node.base + node.size);
                }
            }
            self.taken(block);
            return Some(block);
        }
        None
    }

    /// The choice of [`PageBuddy`](crate::PageBuddy). O(n).
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let below = ((order.k() / self.granularity) as usize).min(self.last());
        let listed = order.k() == self.order(below);
        let from = below + usize::from(!listed);
        let above = (from..self.heads.len()).find_map(|i| self.heads[i].map(|at| (i, at)));
        let found = match above {
            Some((i, at)) => Some((i, Extent::new(Pfn::new(self.nodes[at].base), order.frames()))),
            None if !listed => self.find_aligned(below, order).map(|extent| (below, extent)),
            None => None,
        };
        match found {
            Some((i, extent)) => {
                self.carve(i, extent);
                Ok(extent)
            }
            None if order.frames() > self.free => {
                Err(FrameAllocateError::OutOfFrames { wanted: order.frames(), free: self.free })
            }
            None => Err(FrameAllocateError::NoBlock { order }),
        }
    }

    /// O(n) for each list that the extent reaches.
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        for frame in extent.iter() {
            let at = frame.raw().wrapping_sub(self.span.start.raw());
            match usize::try_from(at).ok().and_then(|at| self.uses.get(at)) {
                Some(Use::Allocated) => {}
                Some(Use::Free) => return Err(FrameFreeError::NotAllocated { frame }),
                Some(Use::Hole) | None => return Err(FrameFreeError::Foreign { frame }),
            }
        }
        self.mark(extent, Use::Free);
        self.free += extent.count;
        self.free_span(extent.start.raw(), extent.end().raw());
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.free
    }

    fn total_frames(&self) -> u64 {
        self.total
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        for &head in &self.heads {
            let mut next = head;
            while let Some(at) = next {
                let node = self.nodes[at];
                visit(Extent::new(Pfn::new(node.base), node.size));
                next = node.next;
            }
        }
    }
}

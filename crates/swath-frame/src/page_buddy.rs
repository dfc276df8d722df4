//! The page buddy system (PBS), and the binary buddy system (BBS) as its
//! granularity 1.
//!
//! PBS (sections IV-B to IV-D of the paper) keeps free memory in lists of
//! **nodes** (base, size), one list per page size of the architecture. A node
//! need not be a power of two, nor aligned, so contiguity that a binary buddy
//! system cuts up stays one block, and one TLB entry with coalescing.
//!
//! Here no list is stored. Class i stands for blocks of order o = i·G, G being
//! the granularity. A **unit** of class i is 2^o frames, aligned; its
//! **parent** is the unit of class i+1 around it. Each class is a bitmap:
//!
//! > bit u of class i is set exactly if unit u is wholly free and its parent
//! > is not (or i is the top class).
//!
//! So each free frame is in exactly one class, and a list's nodes, ordered by
//! frame, are the bitmap's runs of ones ([`rule`](crate::rule) says where a
//! run is cut). Neighbours on either side, the paper's ascending and
//! descending buddies, are adjacent bits: freeing sets bits, and nothing
//! needs merging until a parent is full; then its units are cleared and the
//! parent's bit is set, one class up.
//!
//! ```text
//!  frames   0               16              32              48
//!           .###############|###############|#########.......   # free
//!  class 0  .###############|...............|#########.......   15 units, 9 units
//!  class 1  0               1               0               0   unit 1 = frames 16..32
//!  nodes    (1, 15) (32, 9) in list 0,  (16, 16) in list 4      with G = 4
//! ```
//!
//! PPNs 1 to 256 of Fig. 6 are nine nodes with G = 1, three with G = 4
//! ((1, 15), (256, 1) and (16, 240)) and one with G = 9.
//!
//! # What it costs
//! L is the number of levels of a bitmap, ceil(log64 of its units), and C the
//! number of classes. State per frame of the span: one bit for `allocated`
//! and 2^-o bits for each class of order o, of which each bitmap's upper
//! levels add one 64th: 0.13 bytes per bit. That makes 0.38 bytes per frame
//! for BBS with MAX_ORDER 9 and 0.26 for PBS with G = 4 or 9. A granularity
//! above 6 adds eight bytes per parent. [`BestFit`](crate::BestFit) adds
//! 12 bytes per unit of each class. Vacuums cost as much as memory.

use core::fmt;
use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::{AllocError, FrameAllocator, FreeError};
use crate::bitmap::{Bitmap, clear, first_clear, ones, set};
use crate::map::MemoryMap;
use crate::rule::{HeadOfList, Rule};

/// The most classes that an allocator can have.
pub const CLASSES_MAX: usize = 32;

/// Which orders have a list: 0, G, 2G, … up to a top order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    granularity: u32,
    last: usize,
}

impl Config {
    /// The binary buddy system as the paper measures it: MAX_ORDER 9, which
    /// is orders 0 to 8.
    pub const BBS: Self = Self { granularity: 1, last: 8 };
    /// PBS for ARMv7: orders 0, 4, 8 (4 KiB, 64 KiB, 1 MiB).
    pub const PBS_ARMV7: Self = Self { granularity: 4, last: 2 };
    /// PBS for ARMv8 with 4 KiB granule and for x86-64: orders 0, 9, 18
    /// (4 KiB, 2 MiB, 1 GiB).
    pub const PBS_ARMV8: Self = Self { granularity: 9, last: 2 };

    /// Lists for the orders 0, `granularity`, 2·`granularity`, … as far as
    /// they do not exceed `top`. Granularity 1 makes a binary buddy system
    /// with MAX_ORDER = `top` + 1.
    ///
    /// # Errors
    /// [`ConfigError`] if `granularity` is 0 or beyond [`Order::MAX`], or if
    /// there would be more than [`CLASSES_MAX`] classes.
    pub const fn new(granularity: u32, top: Order) -> Result<Self, ConfigError> {
        if granularity == 0 || granularity > Order::MAX.k() {
            return Err(ConfigError::Granularity { granularity });
        }
        let last = (top.k() / granularity) as usize;
        if last >= CLASSES_MAX {
            return Err(ConfigError::TooManyClasses { classes: last + 1 });
        }
        Ok(Self { granularity, last })
    }

    /// G, the distance between orders that have a list.
    pub const fn granularity(self) -> u32 {
        self.granularity
    }

    /// How many orders have a list.
    pub const fn classes(self) -> usize {
        self.last + 1
    }

    /// The largest order that has a list.
    pub const fn top(self) -> Order {
        Order::known((self.last as u32 * self.granularity) as u8)
    }

    /// The most units that a node of class `i` holds.
    const fn node_max(self, i: usize) -> u64 {
        if self.granularity == 1 {
            1
        } else if i == self.last {
            u64::MAX
        } else {
            (1 << self.granularity) - 1
        }
    }

    /// Whether a count is kept for each parent of class `i`: its units fill
    /// more than one word.
    const fn counts(self, i: usize) -> bool {
        self.granularity > 6 && i < self.last
    }
}

/// Why orders cannot be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The granularity is 0 or beyond [`Order::MAX`].
    Granularity {
        /// The granularity.
        granularity: u32,
    },
    /// The orders are more than [`CLASSES_MAX`].
    TooManyClasses {
        /// How many there would be.
        classes: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granularity { granularity } => {
                write!(f, "granularity {granularity} is not from 1 to {}", Order::MAX)
            }
            Self::TooManyClasses { classes } => {
                write!(f, "{classes} orders would need a list, {CLASSES_MAX} can have one")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// Why an allocator cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// The storage is too small.
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// The rule cannot tell so many frames apart.
    Span {
        /// Frames from the first to the last of the map.
        frames: u64,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage { needed_words, given_words } => {
                write!(f, "{needed_words} words of storage needed, {given_words} given")
            }
            Self::Span { frames } => {
                write!(f, "a span of {frames} frames is too long for the rule")
            }
        }
    }
}

impl core::error::Error for BuildError {}

/// One size class: which of its units are free while their parents are not.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Bit u stands for unit `base + u`.
    pub(crate) free: Bitmap,
    /// A multiple of 64, so that the units of a parent share a word wherever
    /// they fit into one.
    base: u64,
    /// The first unit of the span.
    first: u64,
    /// The most units of a node.
    pub(crate) node_max: usize,
    granularity: u32,
    /// Where the counts of free units of each parent start, if they are kept.
    counts: usize,
}

impl Class {
    const NONE: Self =
        Self { free: Bitmap::none(), base: 0, first: 0, node_max: 0, granularity: 0, counts: 0 };

    /// Units from `unit` to the end of its parent.
    #[inline]
    fn until_border(&self, unit: usize) -> usize {
        let size = 1u64 << self.granularity;
        (size - ((self.base + unit as u64) & (size - 1))) as usize
    }

    /// Whether `unit` is the first of its parent.
    pub(crate) fn is_border(&self, unit: usize) -> bool {
        (self.base + unit as u64).trailing_zeros() >= self.granularity
    }

    /// How much of a maximal run from `unit` on is its first node.
    #[inline]
    pub(crate) fn cut(&self, unit: usize, run: usize) -> usize {
        if run <= self.node_max { run } else { self.until_border(unit).min(self.node_max) }
    }

    /// The length of the node that starts at `unit`, cut to `wanted`.
    /// O(min(wanted, node_max)/64).
    #[inline]
    pub(crate) fn node_len(&self, storage: &[u64], unit: usize, wanted: usize) -> usize {
        let run = self.free.run(storage, unit, wanted.min(self.node_max));
        if run == 1 || self.node_max == usize::MAX || run <= self.until_border(unit) {
            return run;
        }
        // The run crosses a border: it is one node if it is short enough.
        let whole = self.free.run(storage, unit, self.node_max + 1);
        self.cut(unit, whole).min(run)
    }
}

/// The frame allocator of the PBS paper, with the list orders of a
/// [`Config`] and the choice of nodes of a [`Rule`].
///
/// `W` is where the state lives: any owner of a slice of words.
///
/// Invariants, all walked by [`check`](Self::check):
/// * a frame is free, allocated or a hole: it has at most one of its bit in
///   `allocated` and the bit of its unit in exactly one class;
/// * no parent is full: of its 2^G units not all are set, and none is set
///   while a unit of a higher class around it is;
/// * `nonempty` has the bit of each class that has a free unit;
/// * `free` is the number of free frames, and `total - free` bits of
///   `allocated` are set;
/// * a parent's count, where it is kept, is its number of set bits.
///
/// # Examples
/// The six frames from 16 on, and a request for five (Fig. 5):
/// ```
/// use swath_arch::{Extent, Pfn};
/// use swath_frame::{ByteRange, Config, FrameAllocator, MemoryMap, PageBuddy};
///
/// let mut areas = [Extent::default(); 1];
/// let six = Extent::new(Pfn::new(16), 6);
/// let map = MemoryMap::new(&[ByteRange::of_frames(six)], &mut areas).unwrap();
///
/// let config = Config::PBS_ARMV7;
/// let words = PageBuddy::<&mut [u64]>::storage_words(&map, config);
/// let mut pbs = PageBuddy::<_>::new(&map, config, vec![0; words]).unwrap();
/// let mut blocks = Vec::new();
/// pbs.allocate(5, &mut |block| blocks.push(block)).unwrap();
/// assert_eq!(blocks, [Extent::new(Pfn::new(16), 5)]);
///
/// // The binary buddy system needs two blocks (Fig. 3).
/// let words = PageBuddy::<&mut [u64]>::storage_words(&map, Config::BBS);
/// let mut bbs = PageBuddy::<_>::new(&map, Config::BBS, vec![0; words]).unwrap();
/// blocks.clear();
/// bbs.allocate(5, &mut |block| blocks.push(block)).unwrap();
/// assert_eq!(blocks, [Extent::new(Pfn::new(16), 4), Extent::new(Pfn::new(20), 1)]);
/// ```
#[derive(Clone, Debug)]
pub struct PageBuddy<W, R = HeadOfList> {
    storage: W,
    state: State<R>,
}

/// Everything but the words.
#[derive(Clone, Debug)]
struct State<R> {
    classes: [Class; CLASSES_MAX],
    /// The top class.
    last: usize,
    granularity: u32,
    /// The units of a word's first parent; 0 if a parent fills more words.
    siblings: u64,
    /// Cuts the number of a unit to where in its word its parent starts.
    first_sibling: u64,
    nonempty: u64,
    /// The bitmap of allocated frames is the storage's first words, as many
    /// as `allocated_words`; its bits are the units of class 0.
    allocated_words: usize,
    span: Extent,
    total: u64,
    free: u64,
    rule: R,
}

/// Where the parts of a class stand.
struct Layout {
    first: u64,
    base: u64,
    units: u64,
    counts_at: u64,
    rule_at: u64,
    end: u64,
}

fn layout<R: Rule>(span: Extent, config: Config, i: usize, at: u64) -> Layout {
    let order = i as u32 * config.granularity;
    let first = span.start.raw() >> order;
    let past = ((span.end().raw() - 1) >> order) + 1;
    let base = first & !63;
    let units = past - base;
    let counts_at = at + Bitmap::storage_words(units);
    let parents = if config.counts(i) {
        ((past - 1) >> config.granularity) - (first >> config.granularity) + 1
    } else {
        0
    };
    let rule_at = counts_at + parents;
    let end = rule_at.saturating_add(R::storage_words(units, config.node_max(i)));
    Layout { first, base, units, counts_at, rule_at, end }
}

/// Words of the bitmap of allocated frames.
fn allocated_words(span: Extent) -> u64 {
    (span.end().raw() - (span.start.raw() & !63)).div_ceil(64)
}

impl<W: DerefMut<Target = [u64]>, R: Rule> PageBuddy<W, R> {
    /// How many words of storage the frames of `map` need; `usize::MAX` if
    /// they cannot be addressed. O(C).
    pub fn storage_words(map: &MemoryMap<'_>, config: Config) -> usize {
        let words = (0..config.classes())
            .fold(allocated_words(map.span()), |at, i| layout::<R>(map.span(), config, i, at).end);
        usize::try_from(words).unwrap_or(usize::MAX)
    }

    /// An allocator for the frames of `map`, all of them free. Overwrites
    /// what `storage` holds; words beyond
    /// [`storage_words`](Self::storage_words) are not used. O(words).
    ///
    /// # Errors
    /// [`BuildError`] if `storage` is too small, or the map's span too long
    /// for the rule.
    pub fn new(map: &MemoryMap<'_>, config: Config, storage: W) -> Result<Self, BuildError> {
        let mut buddy = Self::new_allocated(map, config, storage)?;
        let Self { storage, state } = &mut buddy;
        storage[..state.allocated_words].fill(0);
        for area in map.areas() {
            state.release(storage, area.start.raw(), area.end().raw());
        }
        state.free = state.total;
        Ok(buddy)
    }

    /// Like [`new`](Self::new), but all frames are allocated: the caller
    /// frees those that are not in use.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_allocated(
        map: &MemoryMap<'_>,
        config: Config,
        mut storage: W,
    ) -> Result<Self, BuildError> {
        let span = map.span();
        let (needed_words, given_words) = (Self::storage_words(map, config), storage.len());
        if needed_words > given_words {
            return Err(BuildError::Storage { needed_words, given_words });
        }
        let mut state = State {
            classes: [Class::NONE; CLASSES_MAX],
            last: config.last,
            granularity: config.granularity,
            siblings: if config.granularity <= 6 { ones(1 << config.granularity) } else { 0 },
            first_sibling: 63 & !((1 << config.granularity) - 1),
            nonempty: 0,
            allocated_words: allocated_words(span) as usize,
            span,
            total: map.total_frames(),
            free: 0,
            rule: R::new(),
        };
        let mut at = allocated_words(span);
        for i in 0..config.classes() {
            let Layout { first, base, units, counts_at, rule_at, end } =
                layout::<R>(span, config, i, at);
            if !R::can_index(units) {
                return Err(BuildError::Span { frames: span.count });
            }
            storage[counts_at as usize..rule_at as usize].fill(0);
            state.classes[i] = Class {
                free: Bitmap::new(&mut storage, at as usize, units),
                base,
                first,
                node_max: usize::try_from(config.node_max(i)).unwrap_or(usize::MAX),
                granularity: config.granularity,
                counts: counts_at as usize,
            };
            let node_max = config.node_max(i);
            state.rule.add_class(&mut storage, i, rule_at as usize, units, node_max);
            at = end;
        }
        let allocated = &mut storage[..state.allocated_words];
        allocated.fill(0);
        for area in map.areas() {
            set(allocated, state.frame(area.start.raw()), area.count as usize);
        }
        Ok(Self { storage, state })
    }

    /// The orders that have a list.
    pub fn config(&self) -> Config {
        Config { granularity: self.state.granularity, last: self.state.last }
    }

    /// Whether the frame is free. O(C).
    pub fn is_free(&self, frame: Pfn) -> bool {
        self.state.span.contains(frame) && self.state.is_free(&self.storage, frame.raw())
    }

    /// Whether the frame is allocated: neither free nor a hole. O(1).
    pub fn is_allocated(&self, frame: Pfn) -> bool {
        self.state.span.contains(frame) && {
            let at = self.state.frame(frame.raw());
            self.storage[at / 64] >> (at % 64) & 1 == 1
        }
    }

    /// Takes back a single frame. O(1) plus, for each class in which a parent
    /// fills up, O(L + 2^G/64).
    ///
    /// # Errors
    /// [`FreeError::Foreign`] or [`FreeError::NotAllocated`]; nothing changes.
    #[inline]
    pub fn put_frame(&mut self, frame: Pfn) -> Result<(), FreeError> {
        self.state.put_frame(&mut self.storage, frame)
    }

    /// Walks all invariants in O(words); the first that does not hold is
    /// named.
    pub fn check(&self) -> Result<(), &'static str> {
        self.state.check(&self.storage)
    }
}

impl<W: DerefMut<Target = [u64]>, R: Rule> FrameAllocator for PageBuddy<W, R> {
    /// The body of Fig. 4's outer loop. From the highest order that is not
    /// larger than `frames_max` downwards (line 4), the first list counts that
    /// has a node or has one above it (line 5). Where it is empty, the nearest
    /// higher list gives the node (line 9). The node's first frames, up to
    /// `frames_max`, are the block (lines 10 and 13); the rest of a unit that
    /// was broken up goes to the lower lists.
    ///
    /// Lines 17 to 23 stand inside the `if` of line 7 here: read as they are
    /// indented, an order that has a node but exceeds the request would end
    /// the search with no block allocated, and the loop would never end. With
    /// granularity 1 the block is the largest power of two that fits, as the
    /// paper requires for BBS.
    ///
    /// O(C·L + n/64) for a block of n frames.
    fn take_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.state.take_block(&mut self.storage, frames_max)
    }

    /// From the lowest unit of the smallest order that has a list, is not
    /// below `order` and has a node: O(C·L + 2^G·C/64). Only where there is
    /// none and `order` itself has no list, the next lower list is scanned
    /// for aligned units side by side: O(r + u/64) for r runs and u units.
    fn take_aligned(&mut self, order: Order) -> Result<Extent, AllocError> {
        self.state.take_aligned(&mut self.storage, order)
    }

    /// O(n/64 + C·L + C·2^G/64) for n frames.
    fn free(&mut self, extent: Extent) -> Result<(), FreeError> {
        if extent.count == 1 && extent.start.raw() != u64::MAX {
            self.state.put_frame(&mut self.storage, extent.start)
        } else {
            self.state.free(&mut self.storage, extent)
        }
    }

    #[inline]
    fn free_frames(&self) -> u64 {
        self.state.free
    }

    #[inline]
    fn total_frames(&self) -> u64 {
        self.state.total
    }

    /// O(n·L) for n nodes.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.state.for_each_free(&self.storage, visit);
    }

    /// O(1) while list 0 has a node, else O(C·(L + 2^G/64)).
    #[inline]
    fn take_frame(&mut self) -> Option<Pfn> {
        self.state.take_frame(&mut self.storage)
    }
}

impl<R: Rule> State<R> {
    /// The position of a frame of the span in the bitmap of allocated frames
    /// and in class 0.
    #[inline]
    fn frame(&self, frame: u64) -> usize {
        (frame - self.classes[0].base) as usize
    }

    /// Adds the units `low..high` (absolute numbers) to class `i`.
    #[inline(always)]
    fn insert(&mut self, s: &mut [u64], i: usize, low: u64, high: u64) {
        let class = &mut self.classes[i];
        let (at, count) = ((low - class.base) as usize, (high - low) as usize);
        self.rule.inserting(s, i, class, at, at + count);
        class.free.insert(s, at, count);
        self.nonempty |= 1 << i;
        if self.siblings == 0 && i < self.last {
            self.count(s, i, low, high, u64::wrapping_add);
        }
    }

    /// Removes the units `low..high` (absolute numbers) from class `i`.
    #[inline(always)]
    fn remove(&mut self, s: &mut [u64], i: usize, low: u64, high: u64) {
        let class = &mut self.classes[i];
        let (at, count) = ((low - class.base) as usize, (high - low) as usize);
        self.rule.removing(s, i, class, at, at + count);
        class.free.remove(s, at, count);
        self.nonempty &= !(u64::from(class.free.is_empty()) << i);
        if self.siblings == 0 && i < self.last {
            self.count(s, i, low, high, u64::wrapping_sub);
        }
    }

    /// Changes the counts of the parents of the units `low..high`, which a
    /// node's limit keeps to two parents.
    fn count(&self, s: &mut [u64], i: usize, mut low: u64, high: u64, f: fn(u64, u64) -> u64) {
        while low < high {
            let end = (((low >> self.granularity) + 1) << self.granularity).min(high);
            let count = &mut s[self.parent_count(i, low >> self.granularity)];
            *count = f(*count, end - low);
            low = end;
        }
    }

    /// Where the count of `parent`, a unit of class i+1, stands.
    #[inline]
    fn parent_count(&self, i: usize, parent: u64) -> usize {
        self.classes[i].counts + (parent - self.classes[i + 1].first) as usize
    }

    /// Makes the units `low..high` of class `i`, all of one parent, free. If
    /// they complete the parent, its other units go and the caller is to make
    /// the parent free: true.
    #[inline(always)]
    fn fill(&mut self, s: &mut [u64], i: usize, low: u64, high: u64) -> bool {
        let parent = low >> self.granularity;
        let (start, size) = (parent << self.granularity, 1 << self.granularity);
        let full = if self.siblings == 0 {
            s[self.parent_count(i, parent)] + (high - low) == size
        } else {
            let class = &mut self.classes[i];
            let at = (low - class.base) as usize;
            let siblings = self.siblings << ((start - class.base) % 64);
            let added = ones((high - low) as usize) << (at % 64);
            let others = siblings & !added;
            let full = class.free.word(s, at) & others == others;
            if full && !R::INDEXED {
                if others != 0 {
                    class.free.remove_bits(s, at / 64, others, (size - (high - low)) as usize);
                    self.nonempty &= !(u64::from(class.free.is_empty()) << i);
                }
                return true;
            }
            full
        };
        if full {
            if start < low {
                self.remove(s, i, start, low);
            }
            if high < start + size {
                self.remove(s, i, high, start + size);
            }
        } else {
            self.insert(s, i, low, high);
        }
        full
    }

    /// Makes the frames `low..high` free: they are in no class so far. In each
    /// class, whole parents go one class up, with the parents at the two ends
    /// if the units there complete them.
    fn release(&mut self, s: &mut [u64], mut low: u64, mut high: u64) {
        let g = self.granularity;
        for i in 0..self.last {
            let (mut first, mut past) = ((low + (1 << g) - 1) >> g, high >> g);
            if first > past {
                // Inside one parent.
                if !self.fill(s, i, low, high) {
                    return;
                }
                first = past;
                past += 1;
            } else {
                let (inner, outer) = (first << g, past << g);
                if low < inner && self.fill(s, i, low, inner) {
                    first -= 1;
                }
                if outer < high && self.fill(s, i, outer, high) {
                    past += 1;
                }
                if first == past {
                    return;
                }
            }
            (low, high) = (first, past);
        }
        self.insert(s, self.last, low, high);
    }

    /// Returns to the lower classes the frames `low..high`, what is left at
    /// the end of a unit whose start has been taken: no parent can be full.
    fn give_back(&mut self, s: &mut [u64], mut low: u64, mut high: u64) {
        let g = self.granularity;
        let mut i = 0;
        while low < high {
            let parent = (low + (1 << g) - 1) >> g;
            let end = (parent << g).min(high);
            if low < end {
                self.insert(s, i, low, end);
            }
            (low, high) = (parent, high >> g);
            i += 1;
        }
    }

    #[inline]
    fn take_frame(&mut self, s: &mut [u64]) -> Option<Pfn> {
        let class = &mut self.classes[0];
        if R::INDEXED || self.siblings == 0 {
            return self.take_lowest(s);
        }
        let Some(at) = class.free.pop_head(s) else { return self.take_lowest(s) };
        if class.free.is_empty() {
            self.nonempty &= !1;
        }
        s[at >> 6] |= 1 << (at & 63);
        self.free -= 1;
        Some(Pfn::new(class.base + at as u64))
    }

    /// The general case of [`take_frame`](Self::take_frame).
    #[inline(never)]
    fn take_lowest(&mut self, s: &mut [u64]) -> Option<Pfn> {
        if R::INDEXED {
            return self.take_block(s, 1).map(|block| block.start);
        }
        let i = self.nonempty.trailing_zeros() as usize;
        let class = self.classes.get_mut(i)?;
        let at = class.free.pop(s)?;
        let unit = class.base + at as u64;
        if class.free.is_empty() {
            self.nonempty &= !(1 << i);
        }
        if self.siblings == 0 && i < self.last {
            self.count(s, i, unit, unit + 1, u64::wrapping_sub);
        }
        self.free -= 1;
        if i == 0 {
            s[at / 64] |= 1 << (at % 64);
            return Some(Pfn::new(unit));
        }
        Some(self.split(s, i, unit))
    }

    /// Takes the first frame of a unit of class `i`, which is in no class. Of
    /// each unit on the way down, all but the first part stays free.
    #[inline(never)]
    fn split(&mut self, s: &mut [u64], i: usize, mut unit: u64) -> Pfn {
        let g = self.granularity;
        if self.siblings == 0 {
            for lower in (0..i).rev() {
                unit <<= g;
                self.insert(s, lower, unit + 1, unit + (1 << g));
            }
        } else {
            let rest = self.siblings & !1;
            for class in self.classes[..i].iter_mut().rev() {
                unit <<= g;
                let at = (unit - class.base) as usize;
                class.free.insert_bits(s, at / 64, rest << (at % 64), (1 << g) - 1);
            }
            self.nonempty |= (1 << i) - 1;
        }
        let at = self.frame(unit);
        s[at / 64] |= 1 << (at % 64);
        Pfn::new(unit)
    }

    #[inline]
    fn put_frame(&mut self, s: &mut [u64], frame: Pfn) -> Result<(), FreeError> {
        let class = &mut self.classes[0];
        let at = frame.raw().wrapping_sub(class.base);
        let (index, bit) = (at >> 6, 1 << (at & 63));
        if index >= self.allocated_words as u64 || s[index as usize] & bit == 0 {
            return Err(self.refuse(s, frame));
        }
        let index = index as usize;
        s[index] &= !bit;
        self.free += 1;
        if R::INDEXED || self.siblings == 0 {
            self.put_indexed(s, frame.raw());
        } else if !class.free.joins(s, index, bit, self.siblings << (at & self.first_sibling)) {
            self.put_up(s, frame.raw());
        }
        Ok(())
    }

    /// Makes a frame free, and each parent that this completes.
    #[inline(never)]
    fn put_indexed(&mut self, s: &mut [u64], mut unit: u64) {
        for i in 0..self.last {
            if !self.fill(s, i, unit, unit + 1) {
                return;
            }
            unit >>= self.granularity;
        }
        self.insert(s, self.last, unit, unit + 1);
    }

    /// As [`put_indexed`](Self::put_indexed), without a rule to tell and
    /// with a parent's units in one word.
    #[inline(never)]
    fn put_up(&mut self, s: &mut [u64], mut unit: u64) {
        let (g, first_sibling) = (self.granularity, self.first_sibling);
        let mut nonempty = self.nonempty;
        for (i, class) in self.classes[..self.last].iter_mut().enumerate() {
            let at = unit - class.base;
            let (index, bit) = ((at >> 6) as usize, 1 << (at & 63));
            let others = (self.siblings << (at & first_sibling)) & !bit;
            if class.free.word(s, at as usize) & others != others {
                class.free.insert_bits(s, index, bit, 1);
                self.nonempty = nonempty | 1 << i;
                return;
            }
            class.free.remove_bits(s, index, others, (1 << g) - 1);
            nonempty &= !(u64::from(class.free.is_empty()) << i);
            unit >>= g;
        }
        self.nonempty = nonempty;
        self.insert(s, self.last, unit, unit + 1);
    }

    /// Why a frame that is not allocated cannot be freed.
    #[cold]
    fn refuse(&self, s: &[u64], frame: Pfn) -> FreeError {
        if self.span.contains(frame) && self.is_free(s, frame.raw()) {
            FreeError::NotAllocated { frame }
        } else {
            FreeError::Foreign { frame }
        }
    }

    /// Whether a frame of the span is free.
    fn is_free(&self, s: &[u64], frame: u64) -> bool {
        let mut unit = frame;
        self.classes[..=self.last].iter().any(|class| {
            let found = class.free.contains(s, (unit - class.base) as usize);
            unit >>= self.granularity;
            found
        })
    }

    fn free(&mut self, s: &mut [u64], extent: Extent) -> Result<(), FreeError> {
        if extent.is_empty() {
            return Err(FreeError::Empty);
        }
        let Some(end) = extent.checked_end() else {
            return Err(FreeError::Overflow { extent });
        };
        if !self.span.contains(extent.start) {
            return Err(FreeError::Foreign { frame: extent.start });
        }
        let at = self.frame(extent.start.raw());
        let inside = (end.raw().min(self.span.end().raw()) - extent.start.raw()) as usize;
        let allocated = &mut s[..self.allocated_words];
        if let Some(bad) = first_clear(allocated, at, inside) {
            let frame = Pfn::new(self.classes[0].base + bad as u64);
            return Err(self.refuse(s, frame));
        }
        if end > self.span.end() {
            return Err(FreeError::Foreign { frame: self.span.end() });
        }
        clear(allocated, at, inside);
        self.free += extent.count;
        self.release(s, extent.start.raw(), end.raw());
        Ok(())
    }

    fn take_block(&mut self, s: &mut [u64], frames_max: u64) -> Option<Extent> {
        if frames_max == 0 || self.nonempty == 0 {
            return None;
        }
        let g = self.granularity;
        let fitting = ((frames_max.ilog2() / g) as usize).min(self.last);
        let above = self.nonempty >> fitting;
        let i = if above != 0 {
            fitting + above.trailing_zeros() as usize
        } else {
            self.nonempty.ilog2() as usize
        };
        // In BBS a block is a power of two.
        let frames_max = if g == 1 { 1 << fitting } else { frames_max };

        let order = i as u32 * g;
        let wanted = ((frames_max - 1) >> order) + 1;
        let class = &mut self.classes[i];
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let (at, len) = self.rule.pick(s, i, class, wanted)?;
        let unit = class.base + at as u64;
        let start = unit << order;
        let end = start + ((len as u64) << order).min(frames_max);
        let broken = ((end - 1) >> order) + 1;
        self.remove(s, i, unit, broken);
        self.give_back(s, end, broken << order);
        Some(self.taken(s, start, end))
    }

    fn take_aligned(&mut self, s: &mut [u64], order: Order) -> Result<Extent, AllocError> {
        let (g, k) = (self.granularity, order.k());
        let below = ((k / g) as usize).min(self.last);
        let listed = k == below as u32 * g;
        let from = below + usize::from(!listed);
        let above = self.nonempty >> from;
        let start = if above != 0 {
            let i = from + above.trailing_zeros() as usize;
            let class = &mut self.classes[i];
            class.free.first(s).map(|at| class.base + at as u64).map(|unit| {
                self.remove(s, i, unit, unit + 1);
                let start = unit << (i as u32 * g);
                self.give_back(s, start + order.frames(), (unit + 1) << (i as u32 * g));
                start
            })
        } else if !listed && order.frames() <= self.free {
            let units = 1 << (k - below as u32 * g);
            self.find_aligned(s, below, units).map(|unit| {
                self.remove(s, below, unit, unit + units);
                unit << (below as u32 * g)
            })
        } else {
            None
        };
        match start {
            Some(start) => Ok(self.taken(s, start, start + order.frames())),
            None if order.frames() > self.free => {
                Err(AllocError::OutOfFrames { wanted: order.frames(), free: self.free })
            }
            None => Err(AllocError::NoBlock { order }),
        }
    }

    /// The lowest multiple of `units`, a power of two, from which as many
    /// units of class `i` are free, by a scan over the class's runs.
    fn find_aligned(&self, s: &[u64], i: usize, units: u64) -> Option<u64> {
        let class = &self.classes[i];
        let mut from = 0;
        while let Some(unit) = class.free.next(s, from) {
            let aligned = (class.base + unit as u64).next_multiple_of(units) - class.base;
            let at = usize::try_from(aligned).ok()?;
            let run = class.free.run(s, at, units as usize);
            if run as u64 == units {
                return Some(class.base + aligned);
            }
            from = at + run + 1;
        }
        None
    }

    /// Notes that the free frames `start..end`, in no class now, are allocated.
    #[inline]
    fn taken(&mut self, s: &mut [u64], start: u64, end: u64) -> Extent {
        let (at, count) = (self.frame(start), (end - start) as usize);
        set(&mut s[..self.allocated_words], at, count);
        self.free -= end - start;
        Extent::new(Pfn::new(start), end - start)
    }

    fn for_each_free(&self, s: &[u64], visit: &mut dyn FnMut(Extent)) {
        for (i, class) in self.classes[..=self.last].iter().enumerate() {
            let order = i as u32 * self.granularity;
            let mut from = 0;
            while let Some(unit) = class.free.next(s, from) {
                let len = class.node_len(s, unit, usize::MAX);
                let start = Pfn::new((class.base + unit as u64) << order);
                visit(Extent::new(start, (len as u64) << order));
                from = unit + len;
            }
        }
    }

    fn check(&self, s: &[u64]) -> Result<(), &'static str> {
        let size = 1u64 << self.granularity;
        let mut free = 0;
        for (i, class) in self.classes[..=self.last].iter().enumerate() {
            class.free.check(s)?;
            self.rule.check(s, i, class)?;
            if class.free.is_empty() == (self.nonempty >> i & 1 == 1) {
                return Err("the mask of classes differs from the classes");
            }
            let order = i as u32 * self.granularity;
            free += (class.free.len() as u64) << order;
            let mut from = 0;
            let (mut parent, mut siblings) = (u64::MAX, 0);
            while let Some(at) = class.free.next(s, from) {
                let unit = class.base + at as u64;
                let (start, end) = (unit << order, (unit + 1) << order);
                if start < self.span.start.raw() || end > self.span.end().raw() {
                    return Err("a free unit reaches beyond the span");
                }
                let frame = self.frame(start);
                let mut frames = frame..frame + (end - start) as usize;
                if frames.any(|frame| s[frame / 64] >> (frame % 64) & 1 == 1) {
                    return Err("a frame is both free and allocated");
                }
                let mut above = unit;
                for higher in &self.classes[i + 1..=self.last] {
                    above >>= self.granularity;
                    if higher.free.contains(s, (above - higher.base) as usize) {
                        return Err("a unit is free in two classes");
                    }
                }
                if i < self.last {
                    siblings = if unit >> self.granularity == parent { siblings + 1 } else { 1 };
                    parent = unit >> self.granularity;
                    if siblings == size {
                        return Err("a parent is full");
                    }
                }
                from = at + 1;
            }
            if self.siblings == 0 && i < self.last {
                let next = &self.classes[i + 1];
                let past = next.base
                    + (((self.span.end().raw() - 1) >> (order + self.granularity)) + 1 - next.base);
                for parent in next.first..past {
                    let units = (parent << self.granularity)..(parent + 1) << self.granularity;
                    let held = units
                        .filter(|&unit| unit >= class.base)
                        .filter(|unit| class.free.contains(s, (unit - class.base) as usize))
                        .count();
                    if s[self.parent_count(i, parent)] != held as u64 {
                        return Err("the count of a parent differs from its free units");
                    }
                }
            }
        }
        if self.nonempty >> self.last > 1 {
            return Err("the mask names a class that there is not");
        }
        if free != self.free {
            return Err("the number of free frames differs from the classes");
        }
        let allocated = &s[..self.allocated_words];
        let allocated = allocated.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        if allocated != self.total - free {
            return Err("the number of allocated frames differs from their bitmap");
        }
        Ok(())
    }
}

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
//! frame, are the bitmap's runs of ones ([`rule`](crate::buddy::rule) says where a
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
//! for BBS with MAX_ORDER 9, 0.26 for PBS with G = 4 or 9. With
//! [`BestFit`](crate::BestFit) it is 0.33 with G = 4 and 0.58 with G = 9, whose
//! runs have more lengths to tell apart, and 0.73 for a single list of 2^20
//! frames. Vacuums cost as much as memory.
//!
//! Instructions per call, counted on x86-64: with a random half of 2^20 frames
//! in use, 41 to allocate a frame and 39 to free one with G = 4 or 9; 43 and
//! 60 with BBS, where every second put completes a pair. A request of 900
//! frames that finds single free frames only costs 89 per block. An aligned
//! block of 2^9 frames costs 150 to allocate and 210 to free with G = 9. A frame
//! allocated while list 0 is empty costs 620 with G = 9, and 970 to free if
//! that completes 512 frames; with G = 4 it is 150 and 220.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::BuildError;
use crate::allocator::{FrameAllocateError, FrameAllocator, FrameFreeError};
use crate::areas::RECORD_WORDS;
use crate::buddy::config::BuddyConfig;
use crate::buddy::rule::{HeadOfList, Rule};
use crate::buddy::state::State;
use crate::contiguous::{ContiguousAllocator, ContiguousError, ContiguousRequest};
use crate::hardening::{Checked, Hardening, Latch, Trusting, WordFault};
use crate::hotplug::{FrameHotplug, FrameHotplugError};
use crate::map::MemoryMap;

/// The frame allocator of the PBS paper, with the list orders of a
/// [`BuddyConfig`] and the choice of nodes of a [`Rule`].
///
/// `W` is where the state lives: any owner of a slice of words. `H` is the tier of
/// [checks](crate::hardening) of these words; the default makes none.
///
/// Invariants, all walked by [`check`](Self::check):
/// * a frame is free, allocated or a hole: it has at most one of its bit in
///   `allocated` and the bit of its unit in exactly one class;
/// * no parent is full: of its 2^G units not all are set, and none is set
///   while a unit of a higher class around it is;
/// * `nonempty` has the bit of each class that has a free unit;
/// * `free` is the number of free frames, and `total - free` bits of
///   `allocated` are set; in the checked tier those of holes are set, too.
///
/// # Examples
/// The six frames from 16 on, and a request for five (Fig. 5):
/// ```
/// use swath_arch::{Extent, Pfn};
/// use swath_frame::{ByteRange, BuddyConfig, FrameAllocator, MemoryMap, PageBuddy};
///
/// let mut areas = [Extent::default(); 1];
/// let six = Extent::new(Pfn::new(16), 6);
/// let map = MemoryMap::new(&[ByteRange::of_frames(six)], &mut areas).unwrap();
///
/// let config = BuddyConfig::PBS_ARMV7;
/// let words = PageBuddy::<&mut [u64]>::storage_words(&map, config);
/// let mut pbs = PageBuddy::<_>::new(&map, config, vec![0; words]).unwrap();
/// let mut blocks = Vec::new();
/// pbs.allocate(5, &mut |block| blocks.push(block)).unwrap();
/// assert_eq!(blocks, [Extent::new(Pfn::new(16), 5)]);
///
/// // The binary buddy system needs two blocks (Fig. 3).
/// let words = PageBuddy::<&mut [u64]>::storage_words(&map, BuddyConfig::BBS);
/// let mut bbs = PageBuddy::<_>::new(&map, BuddyConfig::BBS, vec![0; words]).unwrap();
/// blocks.clear();
/// bbs.allocate(5, &mut |block| blocks.push(block)).unwrap();
/// assert_eq!(blocks, [Extent::new(Pfn::new(16), 4), Extent::new(Pfn::new(20), 1)]);
/// ```
#[derive(Clone, Debug)]
pub struct PageBuddy<W, R = HeadOfList, H: Hardening = Trusting> {
    storage: W,
    state: State<R, H>,
}

impl<W: DerefMut<Target = [u64]>, R: Rule, H: Hardening> PageBuddy<W, R, H> {
    /// Counts the words of storage that the frames of `map` need; `usize::MAX`
    /// if they cannot be addressed. O(C).
    pub fn storage_words(map: &MemoryMap<'_>, config: BuddyConfig) -> usize {
        State::<R, H>::storage_words(map, config)
    }

    /// The words for each area that is to come late ([`add_frames`](FrameHotplug::add_frames)) and touches no
    /// other, or that a removal leaves, beyond [`storage_words`](Self::storage_words): the checked tier keeps a
    /// record of it.
    pub const LATE_AREA_WORDS: usize = if H::CHECKED { RECORD_WORDS } else { 0 };

    /// An allocator for the frames of `map`, all of them free. Overwrites
    /// what `storage` holds; words beyond
    /// [`storage_words`](Self::storage_words) are room for areas that come late. O(words); up to 20 KiB
    /// of stack, as the struct, of 5 KiB, is handed on by value.
    ///
    /// # Errors
    /// [`BuildError`] if `storage` is too small, or the map's span too long
    /// for the rule.
    pub fn new(map: &MemoryMap<'_>, config: BuddyConfig, storage: W) -> Result<Self, BuildError> {
        let mut buddy = Self::new_allocated(map, config, storage)?;
        buddy.state.free_all(map, &mut buddy.storage);
        Ok(buddy)
    }

    /// Like [`new`](Self::new), but all frames are allocated: the caller
    /// frees those that are not in use.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_allocated(
        map: &MemoryMap<'_>,
        config: BuddyConfig,
        mut storage: W,
    ) -> Result<Self, BuildError> {
        let state = State::new(map, config, &mut storage)?;
        Ok(Self { storage, state })
    }

    /// An allocator of no frames, which [`lay_out`](Self::lay_out) makes one of a map's where it stands:
    /// by value an allocator may be some 7 KiB, more than a kernel's stack has room for.
    #[inline(always)]
    pub fn vacant(storage: W) -> Self {
        Self { storage, state: State::VACANT }
    }

    /// Makes of a [`vacant`](Self::vacant) allocator what [`new_allocated`](Self::new_allocated) would
    /// make in its storage.
    ///
    /// # Errors
    /// As for [`new`](Self::new); the allocator is of no use then.
    pub fn lay_out(&mut self, map: &MemoryMap<'_>, config: BuddyConfig) -> Result<(), BuildError> {
        self.state.build(map, config, &mut self.storage)
    }

    /// The orders that have a list.
    pub fn config(&self) -> BuddyConfig {
        self.state.config()
    }

    /// Returns true if the frame is free. O(C).
    pub fn is_free(&self, frame: Pfn) -> bool {
        self.state.is_free(&self.storage, frame)
    }

    /// Returns true if the frame is allocated: neither free nor a hole. O(1).
    pub fn is_allocated(&self, frame: Pfn) -> bool {
        self.state.is_allocated(&self.storage, frame)
    }

    /// Frees a single frame. O(1) plus, for each class in which a parent
    /// fills up, O(L + 2^G/64).
    ///
    /// # Errors
    /// [`FrameFreeError::Foreign`] or [`FrameFreeError::NotAllocated`]; nothing changes.
    #[inline(always)]
    pub fn free_frame(&mut self, frame: Pfn) -> Result<(), FrameFreeError> {
        self.state.free_frame(&mut self.storage, frame)
    }

    /// Walks all invariants in O(words); the first that does not hold is
    /// named.
    pub fn check(&self) -> Result<(), &'static str> {
        self.state.check(&self.storage)
    }
}

impl<W: DerefMut<Target = [u64]>, R: Rule> PageBuddy<W, R, Checked> {
    /// Compares all words with each other: finds what [`fault`](FrameAllocator::fault) will
    /// be, before a call meets it. O(words·C).
    ///
    /// # Errors
    /// The word that is at fault.
    pub fn find_fault(&self) -> Result<(), WordFault> {
        self.state.find_fault(&self.storage)
    }
}

impl<W: DerefMut<Target = [u64]>, R: Rule, H: Hardening> FrameAllocator for PageBuddy<W, R, H> {
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
    /// With [`BestFit`](crate::BestFit), the first class from there on counts in
    /// which a run serves all of `frames_max`, so a request is split only where
    /// no run of any of them does.
    ///
    /// O(C·L + n/64) for a block of n frames.
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.state.allocate_block(&mut self.storage, frames_max)
    }

    /// From the lowest unit of the smallest order that has a list, is not
    /// below `order` and has a node: O(C·L + 2^G·C/64). Only where there is
    /// none and `order` itself has no list, the next lower list is scanned
    /// for aligned units side by side: O(r + u/64) for r runs and u units.
    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.state.allocate_aligned(&mut self.storage, order)
    }

    /// O(n/64 + C·L + C·2^G/64) for n frames.
    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        self.state.free(&mut self.storage, extent)
    }

    fn allocate(
        &mut self,
        count_frames: u64,
        sink: &mut dyn FnMut(Extent),
    ) -> Result<(), FrameAllocateError> {
        self.state.allocate(&mut self.storage, count_frames, sink)
    }

    #[inline]
    fn free_frames(&self) -> u64 {
        self.state.free_frames()
    }

    #[inline]
    fn total_frames(&self) -> u64 {
        self.state.total_frames()
    }

    /// O(n·L) for n nodes.
    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.state.for_each_free(&self.storage, visit);
    }

    /// O(1) while list 0 has a node and the rule is the head of list, else
    /// O(C·(L + 2^G/64)).
    #[inline]
    fn allocate_frame(&mut self) -> Option<Pfn> {
        self.state.allocate_frame(&mut self.storage)
    }

    fn fault(&self) -> Option<WordFault> {
        self.state.latch.fault()
    }
}

impl<W, R, H> ContiguousAllocator for PageBuddy<W, R, H>
where
    W: DerefMut<Target = [u64]>,
    R: Rule,
    H: Hardening,
{
    /// O(r·C·L) for the r free runs below the one found that have a whole block of the largest order of
    /// which each run of that length has one.
    fn allocate_contiguous(
        &mut self,
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        self.state.allocate_contiguous(&mut self.storage, request)
    }
}

impl<W: DerefMut<Target = [u64]>, R: Rule, H: Hardening> FrameHotplug for PageBuddy<W, R, H> {
    fn span(&self) -> Extent {
        self.state.span
    }

    /// O(n/64 + C·L + C·2^G/64) for n frames; in the checked tier O(a) more for a areas.
    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        self.state.add_frames(&mut self.storage, extent)
    }

    /// O(n/64 + u·C·L) for n frames in u units; in the checked tier O(a) more for a areas.
    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        self.state.remove_frames(&mut self.storage, extent)
    }
}

//! The lists, frame states and pageblocks of a [`LinuxZone`](crate::LinuxZone).
//!
//! Frames are numbered from the zone's start, rounded down to 1024 frames, so
//! that the buddy of block i of order k is block i XOR 2^k. Three arrays share
//! the storage: a word of links per frame, a byte of state per frame, and four
//! bits per pageblock.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::zone::allocator::Mobility;
use crate::zone::linux::build::{LinuxBuildError, ORDER_MAX};

/// The orders that have lists.
pub(crate) const ORDERS: usize = ORDER_MAX.k() as usize + 1;
/// The list of isolated blocks; those of mobilities stand before it.
pub(crate) const ISOLATED: usize = Mobility::ALL.len();
/// No frame.
pub(crate) const NONE: u32 = u32::MAX;

/// State of a frame in use; a state of 0 is a hole.
pub(crate) const USED: u8 = 1;
/// State of a frame in use by an owner that can be moved.
pub(crate) const USED_MOVABLE: u8 = USED | 2;
/// State of a frame of a free block, but for the first.
pub(crate) const TAIL: u8 = 4;
const HEAD: u8 = TAIL | 8;

/// State of the first frame of a free block of order `k`.
pub(crate) const fn head(k: u32) -> u8 {
    HEAD | (k as u8) << 4
}

/// The byte in each place of a word.
const fn spread(state: u8) -> u64 {
    u64::from_ne_bytes([state; 8])
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// The free lists over their storage; see [`LinuxZone`](crate::LinuxZone) for
/// the invariants.
#[derive(Clone, Debug)]
pub(crate) struct Lists<W> {
    words: W,
    lists: [[List; ORDERS]; ISOLATED + 1],
    /// Bit k of a mobility: its list of order k has a block.
    nonempty: [u16; ISOLATED + 1],
    /// The frame with number 0.
    base: u64,
    frames: u32,
    pub(crate) pageblock_k: u32,
    /// Free and not isolated.
    pub(crate) free_frames: u64,
    isolated_frames: u64,
}

/// Words for states and for pageblocks of `frames` frames, a multiple of 1024;
/// pageblocks are at least of order 3.
const fn state_words(frames: usize) -> usize {
    frames / 8
}

const fn pageblock_words(frames: usize, pageblock_k: u32) -> usize {
    (frames >> pageblock_k).div_ceil(16)
}

/// `span` rounded out to 1024 frames.
fn rounded(span: Extent) -> Option<(u64, u32)> {
    let whole = span.align_outward(ORDER_MAX.k())?;
    // The largest number must not be NONE.
    let frames = u32::try_from(whole.count).ok()?;
    usize::try_from(u64::from(frames) * 8).ok()?;
    Some((whole.start.raw(), frames))
}

impl<W: DerefMut<Target = [u64]>> Lists<W> {
    pub(crate) fn storage_words(span: Extent) -> usize {
        let Some((_, frames)) = rounded(span) else { return usize::MAX };
        let frames = frames as usize;
        frames + state_words(frames) + pageblock_words(frames, 3)
    }

    /// All of `span` is a hole, all pageblocks are movable.
    pub(crate) fn new(
        span: Extent,
        pageblock: Order,
        mut words: W,
    ) -> Result<Self, LinuxBuildError> {
        if pageblock.k() < 3 || pageblock > ORDER_MAX {
            return Err(LinuxBuildError::Pageblock { order: pageblock });
        }
        let (base, frames) = rounded(span).ok_or(LinuxBuildError::Span { span })?;
        let count = frames as usize;
        let needed_words = count + state_words(count) + pageblock_words(count, pageblock.k());
        let given_words = words.len();
        let Some(used) = words.get_mut(..needed_words) else {
            return Err(LinuxBuildError::Storage { needed_words, given_words });
        };
        let (states, pageblocks) = used[count..].split_at_mut(state_words(count));
        states.fill(0);
        pageblocks.fill(spread((Mobility::Movable as u8) << 4 | Mobility::Movable as u8));
        let empty = List { first: NONE, last: NONE };
        Ok(Self {
            words,
            lists: [[empty; ORDERS]; ISOLATED + 1],
            nonempty: [0; ISOLATED + 1],
            base,
            frames,
            pageblock_k: pageblock.k(),
            free_frames: 0,
            isolated_frames: 0,
        })
    }

    pub(crate) fn pageblock_bytes(&self) -> usize {
        pageblock_words(self.frames as usize, self.pageblock_k) * size_of::<u64>()
    }

    #[inline]
    pub(crate) fn index(&self, frame: Pfn) -> u32 {
        (frame.raw() - self.base) as u32
    }

    #[inline]
    pub(crate) fn frame(&self, index: u32) -> Pfn {
        Pfn::new(self.base + u64::from(index))
    }

    #[inline]
    pub(crate) fn nonempty(&self, list: usize) -> u16 {
        self.nonempty[list]
    }

    #[inline]
    pub(crate) fn first(&self, k: u32, list: usize) -> u32 {
        self.lists[list][k as usize].first
    }

    pub(crate) fn iter(&self, k: u32, list: usize) -> impl Iterator<Item = u32> {
        let mut at = match self.lists[list].get(k as usize) {
            Some(list) => list.first,
            None => NONE,
        };
        core::iter::from_fn(move || {
            let index = at;
            (index != NONE).then(|| {
                at = self.links(index).1;
                index
            })
        })
    }

    // States.

    #[inline]
    fn state_at(&self, index: u32) -> usize {
        self.frames as usize + index as usize / 8
    }

    /// The frame's state, which is in the span rounded out.
    #[inline]
    pub(crate) fn state(&self, index: u32) -> u8 {
        (self.words[self.state_at(index)] >> (index % 8 * 8)) as u8
    }

    #[inline]
    fn set_state(&mut self, index: u32, state: u8) {
        let at = self.state_at(index);
        let shift = index % 8 * 8;
        let word = self.words[at];
        self.words[at] = word & !(0xff << shift) | u64::from(state) << shift;
    }

    /// Sets 2^k frames from `index` on, aligned, to the same state.
    #[inline]
    pub(crate) fn fill(&mut self, index: u32, k: u32, state: u8) {
        if k == 0 {
            self.set_state(index, state);
        } else {
            self.fill_block(index, k, state);
        }
    }

    #[inline(never)]
    fn fill_block(&mut self, index: u32, k: u32, state: u8) {
        let at = self.state_at(index);
        if k >= 3 {
            self.words[at..at + (1 << (k - 3))].fill(spread(state));
        } else {
            let mask = ((1 << (8 << k)) - 1) << (index % 8 * 8);
            let word = self.words[at];
            self.words[at] = word & !mask | spread(state) & mask;
        }
    }

    /// The first of 2^k frames from `index` on, aligned, that is not in use.
    #[inline]
    pub(crate) fn find_unused(&self, index: u32, k: u32) -> Option<u32> {
        if k < 3 {
            return (index..index + (1 << k)).find(|index| self.state(*index) & USED == 0);
        }
        let at = self.state_at(index);
        let words = &self.words[at..at + (1 << (k - 3))];
        let unused = |word: u64| !word & spread(USED);
        let nth = words.iter().position(|word| unused(*word) != 0)?;
        Some(index + nth as u32 * 8 + unused(words[nth]).trailing_zeros() / 8)
    }

    fn pageblock_states(&self, start: u32) -> (usize, &[u64]) {
        let at = self.state_at(start);
        (at, &self.words[at..at + (1 << (self.pageblock_k - 3))])
    }

    /// Counts the frames of the pageblock from `start` on that are free, and
    /// those in use by movable owners. No free block reaches beyond it.
    pub(crate) fn count(&self, start: u32) -> (u32, u32) {
        let ones = |word: &u64, state: u8| (word & spread(state)).count_ones();
        let (_, states) = self.pageblock_states(start);
        states.iter().fold((0, 0), |(free, movable), word| {
            (free + ones(word, TAIL), movable + ones(word, USED_MOVABLE & !USED))
        })
    }

    /// Counts the frames of the pageblock from `start` on that movable owners
    /// use, and those of others.
    pub(crate) fn users(&self, start: u32) -> [u32; 2] {
        let ones = |word: &u64, state: u8| (word & spread(state)).count_ones();
        let (_, states) = self.pageblock_states(start);
        let movable = states.iter().map(|word| ones(word, USED_MOVABLE & !USED)).sum();
        let all: u32 = states.iter().map(|word| ones(word, USED)).sum();
        [movable, all - movable]
    }

    // Pageblocks.

    #[inline]
    fn pageblock_at(&self, index: u32) -> (usize, u32) {
        let pageblock = index >> self.pageblock_k;
        let frames = self.frames as usize;
        (frames + state_words(frames) + pageblock as usize / 16, pageblock % 16 * 4)
    }

    /// The mobility in bits 0 and 1, the isolation in bit 2.
    #[inline]
    fn pageblock(&self, index: u32) -> u64 {
        let (at, shift) = self.pageblock_at(index);
        self.words[at] >> shift & 0xf
    }

    fn set_pageblock(&mut self, index: u32, value: u64) {
        let (at, shift) = self.pageblock_at(index);
        self.words[at] = self.words[at] & !(0xf << shift) | value << shift;
    }

    #[inline]
    pub(crate) fn mobility(&self, index: u32) -> Mobility {
        match self.pageblock(index) & 3 {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }

    /// The list in which the free blocks of the pageblock around `index` are.
    #[inline]
    pub(crate) fn list_of(&self, index: u32) -> usize {
        let value = self.pageblock(index);
        if value & 4 != 0 { ISOLATED } else { (value & 3) as usize }
    }

    /// Changes the mobility of the pageblocks of a block of order `k`, which is
    /// at least theirs. None is isolated.
    pub(crate) fn set_mobility(&mut self, block: u32, k: u32, mobility: Mobility) {
        for nth in 0..1 << (k - self.pageblock_k) {
            self.set_pageblock(block + (nth << self.pageblock_k), mobility as u64);
        }
    }

    /// The first frames of all pageblocks.
    pub(crate) fn pageblocks(&self) -> impl Iterator<Item = u32> + use<W> {
        (0..self.frames).step_by(1 << self.pageblock_k)
    }

    // Lists.

    #[inline]
    fn links(&self, index: u32) -> (u32, u32) {
        let word = self.words[index as usize];
        (word as u32, (word >> 32) as u32)
    }

    #[inline]
    fn set_previous(&mut self, index: u32, previous: u32) {
        let word = &mut self.words[index as usize];
        *word = *word >> 32 << 32 | u64::from(previous);
    }

    #[inline]
    fn set_next(&mut self, index: u32, next: u32) {
        let word = &mut self.words[index as usize];
        *word = u64::from(*word as u32) | u64::from(next) << 32;
    }

    /// Links a free block in front, or as the last, and marks its first frame.
    #[inline(always)]
    pub(crate) fn link(&mut self, index: u32, k: u32, list: usize, last: bool) {
        self.set_state(index, head(k));
        let List { first: old_first, last: old_last } = self.lists[list][k as usize];
        let (previous, next) = if last { (old_last, NONE) } else { (NONE, old_first) };
        self.words[index as usize] = u64::from(previous) | u64::from(next) << 32;
        if old_first == NONE {
            self.lists[list][k as usize] = List { first: index, last: index };
            self.nonempty[list] |= 1 << k;
        } else if last {
            self.set_next(old_last, index);
            self.lists[list][k as usize].last = index;
        } else {
            self.set_previous(old_first, index);
            self.lists[list][k as usize].first = index;
        }
    }

    #[inline]
    pub(crate) fn unlink(&mut self, index: u32, k: u32, list: usize) {
        let (previous, next) = self.links(index);
        if previous == NONE {
            self.lists[list][k as usize].first = next;
            if next == NONE {
                self.nonempty[list] &= !(1 << k);
            }
        } else {
            self.set_next(previous, next);
        }
        if next == NONE {
            self.lists[list][k as usize].last = previous;
        } else {
            self.set_previous(next, previous);
        }
    }

    fn account(&mut self, list: usize, frames: u64) {
        if list == ISOLATED {
            self.isolated_frames += frames;
        } else {
            self.free_frames += frames;
        }
    }

    fn unaccount(&mut self, list: usize, frames: u64) {
        if list == ISOLATED {
            self.isolated_frames -= frames;
        } else {
            self.free_frames -= frames;
        }
    }

    /// Allocates the first block of the smallest order from `k` on. The caller
    /// marks its frames.
    #[inline]
    pub(crate) fn pop(&mut self, k: u32, list: usize) -> Option<u32> {
        let orders = self.nonempty[list] >> k;
        if orders == 0 {
            return None;
        }
        if orders & 1 == 0 {
            return Some(self.pop_larger(k, list));
        }
        let ends = &mut self.lists[list][k as usize];
        let block = ends.first;
        // Of the first block, only the link to the next one counts.
        let next = (self.words[block as usize] >> 32) as u32;
        ends.first = next;
        if next == NONE {
            ends.last = NONE;
            self.nonempty[list] &= !(1 << k);
        } else {
            self.set_previous(next, NONE);
        }
        self.unaccount(list, 1 << k);
        Some(block)
    }

    #[inline(never)]
    fn pop_larger(&mut self, k: u32, list: usize) -> u32 {
        let block_k = k + (self.nonempty[list] >> k).trailing_zeros();
        let block = self.lists[list][block_k as usize].first;
        self.cut(block, block_k, k, list, list);
        block
    }

    /// Takes the first 2^k frames of a free block of order `block_k` out of the
    /// list `from`; the upper halves go to the heads of the lists `rest`.
    pub(crate) fn cut(&mut self, block: u32, block_k: u32, k: u32, from: usize, rest: usize) {
        self.unlink(block, block_k, from);
        self.unaccount(from, 1 << k);
        for half in (k..block_k).rev() {
            self.link(block + (1 << half), half, rest, false);
        }
    }

    /// Splits a free block of order `k` in its list: two free blocks of half
    /// its size, at the head.
    pub(crate) fn halve(&mut self, block: u32, k: u32, list: usize) {
        self.unlink(block, k, list);
        self.link(block, k - 1, list, false);
        self.link(block + (1 << (k - 1)), k - 1, list, false);
    }

    /// Makes 2^k frames from `start` on, aligned, free. Above the pageblock
    /// order, each pageblock on its own.
    #[inline]
    pub(crate) fn release(&mut self, start: Pfn, k: u32, last: bool) {
        let index = self.index(start);
        if k == 0 {
            // The head's state is the only one.
            return self.merge(index, 0, last);
        }
        self.fill_block(index, k, TAIL);
        let piece = k.min(self.pageblock_k);
        for nth in 0..1 << (k - piece) {
            self.merge(index + (nth << piece), piece, last);
        }
    }

    #[inline]
    pub(crate) fn is_free(&self, index: u32, k: u32) -> bool {
        index < self.frames && self.state(index) == head(k)
    }

    /// Merges a block, whose frames are marked as [`TAIL`] but for the first,
    /// with its free buddies, and links the result.
    #[inline(always)]
    fn merge(&mut self, index: u32, k: u32, last: bool) {
        let list = self.list_of(index);
        self.account(list, 1 << k);
        if k < ORDER_MAX.k() && self.is_free(index ^ 1 << k, k) {
            self.merge_buddies(index, k, list, last);
        } else {
            self.link_merged(index, k, list, last);
        }
    }

    #[inline(never)]
    fn merge_buddies(&mut self, mut index: u32, mut k: u32, list: usize, last: bool) {
        let mut buddy = index ^ 1 << k;
        while k < ORDER_MAX.k() && self.is_free(buddy, k) {
            if k >= self.pageblock_k {
                let other = self.list_of(buddy);
                if other != list && (other == ISOLATED || list == ISOLATED) {
                    break;
                }
                self.unlink(buddy, k, other);
                if other != list {
                    let mobility = self.mobility(index);
                    self.set_mobility(buddy, k, mobility);
                }
            } else {
                self.unlink(buddy, k, list);
            }
            self.set_state(index | buddy, TAIL);
            index &= buddy;
            k += 1;
            buddy = index ^ 1 << k;
        }
        self.link_merged(index, k, list, last);
    }

    /// Links a block that has no free buddy: to the tail if the pair's buddy is
    /// free, since it will soon be merged.
    #[inline(always)]
    fn link_merged(&mut self, index: u32, k: u32, list: usize, last: bool) {
        let pair = index & !(1 << k);
        let merges_soon = k + 1 < ORDER_MAX.k() && self.is_free(pair ^ 2 << k, k + 1);
        self.link(index, k, list, last || merges_soon);
    }

    /// Moves the free blocks of the pageblock from `start` on to the tails of
    /// other lists. No free block reaches beyond it.
    pub(crate) fn move_block(&mut self, start: u32, from: usize, to: usize) {
        let (at, states) = self.pageblock_states(start);
        for nth in 0..states.len() {
            let mut heads = self.words[at + nth] & spread(HEAD & !TAIL);
            while heads != 0 {
                let index = start + nth as u32 * 8 + heads.trailing_zeros() / 8;
                heads &= heads - 1;
                let k = u32::from(self.state(index) >> 4);
                self.unlink(index, k, from);
                self.link(index, k, to, true);
                self.unaccount(from, 1 << k);
                self.account(to, 1 << k);
            }
        }
    }

    /// Isolates the pageblock from `start` on, or ends its isolation.
    pub(crate) fn set_isolated(&mut self, start: u32, isolated: bool) {
        let from = self.list_of(start);
        let value = self.pageblock(start) & 3 | u64::from(isolated) << 2;
        let spans = |k: &u32| self.is_free(start >> k << k, *k);
        if let Some(k) = (self.pageblock_k + 1..=ORDER_MAX.k()).find(spans) {
            let block = start >> k << k;
            self.unlink(block, k, from);
            self.unaccount(from, 1 << k);
            self.set_pageblock(start, value);
            self.release(self.frame(block), k, false);
            return;
        }
        let k = self.pageblock_k;
        let buddy = start ^ 1 << k;
        let rejoins = !isolated
            && k < ORDER_MAX.k()
            && self.is_free(start, k)
            && self.is_free(buddy, k)
            && self.list_of(buddy) != ISOLATED;
        if rejoins {
            self.unlink(start, k, from);
            self.unaccount(from, 1 << k);
            self.set_pageblock(start, value);
            self.release(self.frame(start), k, true);
            return;
        }
        self.set_pageblock(start, value);
        self.move_block(start, from, self.list_of(start));
    }

    /// Walks all invariants; returns how many frames are not holes. `outside`
    /// says of a frame that it lies outside the zone.
    pub(crate) fn check(&self, outside: &dyn Fn(u32) -> bool) -> Result<u64, &'static str> {
        let (mut index, mut present) = (0, 0);
        let mut blocks = [[0_u32; ORDERS]; ISOLATED + 1];
        while index < self.frames {
            let state = self.state(index);
            if state != 0 && outside(index) {
                return Err("a frame outside the zone that is not a hole");
            }
            match state {
                0 => index += 1,
                USED | USED_MOVABLE => {
                    present += 1;
                    index += 1;
                }
                _ => {
                    let k = u32::from(state >> 4);
                    let past = index + (1 << k);
                    if state != head(k) || k > ORDER_MAX.k() || index % (1 << k) != 0 {
                        return Err("a state that is none");
                    }
                    if past > self.frames || (index + 1..past).any(|i| self.state(i) != TAIL) {
                        return Err("a free block of frames that are not free");
                    }
                    let list = self.list_of(index);
                    let kind = self.pageblock(index);
                    let agrees = |i| {
                        list == ISOLATED && self.list_of(i) == list || self.pageblock(i) == kind
                    };
                    if !(index..past).step_by(1 << self.pageblock_k).all(agrees) {
                        return Err("a free block over pageblocks of different mobilities");
                    }
                    let buddy = index ^ 1 << k;
                    if k < ORDER_MAX.k()
                        && self.is_free(buddy, k)
                        && (k < self.pageblock_k
                            || list != ISOLATED && self.list_of(buddy) != ISOLATED)
                    {
                        return Err("free buddies that are not merged");
                    }
                    blocks[list][k as usize] += 1;
                    present += 1 << k;
                    index = past;
                }
            }
        }
        let (mut free, mut isolated) = (0, 0);
        for (list, counts) in blocks.iter().enumerate() {
            for (k, &count) in counts.iter().enumerate() {
                self.check_list(k as u32, list, count)?;
                *if list == ISOLATED { &mut isolated } else { &mut free } += u64::from(count) << k;
            }
        }
        if (free, isolated) != (self.free_frames, self.isolated_frames) {
            return Err("the count of free frames is wrong");
        }
        Ok(present)
    }

    /// The list of one order holds `count` blocks, which is all there are.
    fn check_list(&self, k: u32, list: usize, count: u32) -> Result<(), &'static str> {
        let mut previous = NONE;
        let mut linked = 0;
        let mut at = self.lists[list][k as usize].first;
        while at != NONE {
            if !self.is_free(at, k) || self.list_of(at) != list {
                return Err("a list that holds what is not its own");
            }
            let (before, next) = self.links(at);
            if before != previous {
                return Err("a list whose links disagree");
            }
            linked += 1;
            if linked > count {
                return Err("a list with a block too many");
            }
            (previous, at) = (at, next);
        }
        if linked != count || self.lists[list][k as usize].last != previous {
            return Err("a free block that its list does not hold");
        }
        if (self.nonempty[list] >> k & 1 == 1) != (count > 0) {
            return Err("the bit of a list is wrong");
        }
        Ok(())
    }
}

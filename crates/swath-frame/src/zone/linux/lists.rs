//! The lists, frame states and pageblocks of a [`LinuxZone`](crate::LinuxZone).
//!
//! Frames are numbered from the zone's start, rounded down to 1024 frames, so
//! that the buddy of block i of order k is block i XOR 2^k. Three arrays share
//! the storage: a word of links per frame, a byte of state per frame, and four
//! bits per pageblock.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::hardening::{Hardening, Latch, Table};
use crate::zone::allocator::Mobility;
use crate::zone::linux::build::{LinuxBuildError, ORDER_MAX};
use crate::zone::linux::codes::{
    HEAD_BIT, MOVABLE_BIT, TAIL, TAIL_BIT, USED, USED_BIT, USED_MOVABLE, head, head_order,
    is_pageblock, is_state, not_used, pageblock_code, spread,
};

/// The orders that have lists.
pub(crate) const ORDERS: usize = ORDER_MAX.k() as usize + 1;
/// The list of isolated blocks; those of mobilities stand before it.
pub(crate) const ISOLATED: usize = Mobility::ALL.len();
/// No frame.
pub(crate) const NONE: u32 = u32::MAX;
/// In the checked tier, the links of a frame that is not the first of a free block:
/// none, so that a block is never taken for one that was its neighbour before.
pub(crate) const UNLINKED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { first: NONE, last: NONE };
}

/// The free lists over their storage; see [`LinuxZone`](crate::LinuxZone) for
/// the invariants. What changes words and returns false has stopped the allocator,
/// which only the checked tier does.
#[derive(Clone, Debug)]
pub(crate) struct Lists<W, H: Hardening> {
    pub(crate) words: W,
    pub(crate) lists: [[List; ORDERS]; ISOLATED + 1],
    /// Bit k of a mobility: its list of order k has a block.
    pub(crate) nonempty: [u16; ISOLATED + 1],
    /// The frame with number 0.
    base: u64,
    pub(crate) frames: u32,
    pub(crate) pageblock_k: u32,
    /// Free and not isolated.
    pub(crate) free_frames: u64,
    pub(crate) isolated_frames: u64,
    pub(crate) latch: H::Latch,
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

/// Counts the frames of up to 255 words of states in whose byte the lowest bit of what
/// `bit` makes of their word is set.
fn tally(states: &[u64], bit: impl Fn(u64) -> u64) -> u32 {
    let sums = states.iter().fold(0, |sums, &word| sums + (bit(word) & spread(1)));
    sums.to_ne_bytes().into_iter().map(u32::from).sum()
}

impl<W: DerefMut<Target = [u64]>, H: Hardening> Lists<W, H> {
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
        let movable = pageblock_code(Mobility::Movable as u64, false) as u8;
        pageblocks.fill(spread(movable << 4 | movable));
        Ok(Self {
            words,
            lists: [[List::EMPTY; ORDERS]; ISOLATED + 1],
            nonempty: [0; ISOLATED + 1],
            base,
            frames,
            pageblock_k: pageblock.k(),
            free_frames: 0,
            isolated_frames: 0,
            latch: H::Latch::default(),
        })
    }

    /// The same words and lists in another tier.
    pub(crate) fn in_tier<G: Hardening>(self) -> Lists<W, G> {
        Lists {
            words: self.words,
            lists: self.lists,
            nonempty: self.nonempty,
            base: self.base,
            frames: self.frames,
            pageblock_k: self.pageblock_k,
            free_frames: self.free_frames,
            isolated_frames: self.isolated_frames,
            latch: G::Latch::default(),
        }
    }

    /// What a change of words has said, which is always true in the trusting tier.
    #[inline(always)]
    pub(crate) fn held(changed: bool) -> bool {
        !H::CHECKED || changed
    }

    /// Words of the pageblocks' mobilities.
    pub(crate) fn pageblock_words(&self) -> core::ops::Range<usize> {
        let at = self.pageblock_at(0).0;
        at..at + pageblock_words(self.frames as usize, self.pageblock_k)
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
        let ends = self.lists[list].get(k as usize).copied();
        let ends = ends.unwrap_or(List::EMPTY);
        let mut at = ends.first;
        // A list that runs in a circle ends, too.
        let most = if H::CHECKED { self.frames as usize } else { usize::MAX };
        let blocks = core::iter::from_fn(move || {
            let index = at;
            (index != NONE && (!H::CHECKED || index < self.frames)).then(|| {
                at = self.links(index).1;
                index
            })
        });
        blocks.take(most)
    }

    // States.

    #[inline]
    pub(crate) fn state_at(&self, index: u32) -> usize {
        self.frames as usize + index as usize / 8
    }

    /// The frame's state, which is in the span rounded out.
    #[inline]
    pub(crate) fn state(&self, index: u32) -> u8 {
        (self.words[self.state_at(index)] >> (index % 8 * 8)) as u8
    }

    /// The number of a frame in use, in a zone that has not stopped. Frames that are not
    /// the zone's are holes.
    #[inline(always)]
    pub(crate) fn used_at(&self, frame: Pfn) -> Option<u32> {
        let at = frame.raw().wrapping_sub(self.base);
        let reaches = at < u64::from(self.frames) && self.latch.fault().is_none();
        (reaches && self.is_used(at as u32)).then_some(at as u32)
    }

    /// Returns true if the frame is in use.
    #[inline(always)]
    pub(crate) fn is_used(&self, index: u32) -> bool {
        let state = self.state(index);
        if H::CHECKED { matches!(state, USED | USED_MOVABLE) } else { state >> USED_BIT & 1 == 1 }
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
    pub(crate) fn fill_block(&mut self, index: u32, k: u32, state: u8) {
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
            return (index..index + (1 << k)).find(|index| !self.is_used(*index));
        }
        let at = self.state_at(index);
        let words = &self.words[at..at + (1 << (k - 3))];
        let unused = |word: u64| {
            if H::CHECKED { not_used(word) } else { !word & spread(1 << USED_BIT) }
        };
        let mut past = 0;
        if H::CHECKED {
            // Eight at once, as that costs no more than two.
            let is_used = |some: &&[u64]| some.iter().fold(0, |all, &w| all | unused(w)) == 0;
            past = words.chunks_exact(8).take_while(is_used).count() * 8;
        }
        let nth = past + words[past..].iter().position(|word| unused(*word) != 0)?;
        Some(index + nth as u32 * 8 + unused(words[nth]).trailing_zeros() / 8)
    }

    fn pageblock_states(&self, start: u32) -> (usize, &[u64]) {
        let at = self.state_at(start);
        (at, &self.words[at..at + (1 << (self.pageblock_k - 3))])
    }

    /// Counts the frames of the pageblock from `start` on that are free, and
    /// those in use by movable owners. No free block reaches beyond it.
    pub(crate) fn count(&self, start: u32) -> (u32, u32) {
        let (_, states) = self.pageblock_states(start);
        let free = tally(states, |word| word >> TAIL_BIT | word >> HEAD_BIT);
        (free, tally(states, |word| word >> MOVABLE_BIT))
    }

    /// Counts the frames of the pageblock from `start` on that movable owners
    /// use, and those of others.
    pub(crate) fn users(&self, start: u32) -> [u32; 2] {
        let (_, states) = self.pageblock_states(start);
        let movable = tally(states, |word| word >> MOVABLE_BIT);
        let all = tally(states, |word| word >> USED_BIT);
        [movable, all.saturating_sub(movable)]
    }

    // Pageblocks.

    #[inline]
    pub(crate) fn pageblock_at(&self, index: u32) -> (usize, u32) {
        let pageblock = index >> self.pageblock_k;
        let frames = self.frames as usize;
        (frames + state_words(frames) + pageblock as usize / 16, pageblock % 16 * 4)
    }

    /// The [code](pageblock_code) of the pageblock around `index`.
    #[inline]
    pub(crate) fn pageblock(&self, index: u32) -> u64 {
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

    /// Returns true if the mobility of the pageblock around `index` can be believed.
    #[inline(always)]
    pub(crate) fn has_mobility(&mut self, index: u32) -> bool {
        if H::CHECKED && !is_pageblock(self.pageblock(index)) {
            self.stop(Table::Pageblocks, self.pageblock_at(index).0);
            return false;
        }
        true
    }

    /// Changes the mobility of the pageblocks of a block of order `k`, which is
    /// at least theirs. None is isolated.
    pub(crate) fn set_mobility(&mut self, block: u32, k: u32, mobility: Mobility) {
        let code = pageblock_code(mobility as u64, false);
        for nth in 0..1 << (k - self.pageblock_k) {
            self.set_pageblock(block + (nth << self.pageblock_k), code);
        }
    }

    /// The first frames of all pageblocks.
    pub(crate) fn pageblocks(&self) -> impl Iterator<Item = u32> + use<W, H> {
        (0..self.frames).step_by(1 << self.pageblock_k)
    }

    // Lists.

    #[inline]
    pub(crate) fn links(&self, index: u32) -> (u32, u32) {
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
    pub(crate) fn unlink(&mut self, index: u32, k: u32, list: usize) -> bool {
        if H::CHECKED {
            return self.unlink_mutual(index, k, list);
        }
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
        true
    }

    /// As [`unlink`](Self::unlink), where it is done most.
    #[inline(always)]
    fn take_out(&mut self, index: u32, k: u32, list: usize) -> bool {
        if H::CHECKED {
            return self.unlink_mutual(index, k, list);
        }
        self.unlink(index, k, list);
        true
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
        if H::CHECKED || orders & 1 == 0 {
            let block = self.pop_larger(k, list);
            return (!H::CHECKED || block != NONE).then_some(block);
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
        if Self::held(self.cut(block, block_k, k, list, list)) { block } else { NONE }
    }

    /// Takes the first 2^k frames of a free block of order `block_k` out of the
    /// list `from`; the upper halves go to the heads of the lists `rest`.
    pub(crate) fn cut(
        &mut self,
        block: u32,
        block_k: u32,
        k: u32,
        from: usize,
        rest: usize,
    ) -> bool {
        if !self.is_head(block, block_k) || !self.take_out(block, block_k, from) {
            return false;
        }
        self.unaccount(from, 1 << k);
        for half in (k..block_k).rev() {
            self.link(block + (1 << half), half, rest, false);
        }
        true
    }

    /// Splits a free block of order `k` in its list: two free blocks of half
    /// its size, at the head.
    pub(crate) fn halve(&mut self, block: u32, k: u32, list: usize) -> bool {
        if !Self::held(self.unlink(block, k, list)) {
            return false;
        }
        self.link(block, k - 1, list, false);
        self.link(block + (1 << (k - 1)), k - 1, list, false);
        true
    }

    /// Makes 2^k frames from `start` on, aligned, free. Above the pageblock
    /// order, each pageblock on its own.
    #[inline]
    pub(crate) fn release(&mut self, start: Pfn, k: u32, last: bool) -> bool {
        let index = self.index(start);
        if k == 0 {
            // The head's state is the only one.
            return self.merge(index, 0, last);
        }
        self.fill_block(index, k, TAIL);
        let piece = k.min(self.pageblock_k);
        let mut merged = true;
        for nth in 0..1 << (k - piece) {
            merged = merged && Self::held(self.merge(index + (nth << piece), piece, last));
        }
        merged
    }

    #[inline]
    pub(crate) fn is_free(&self, index: u32, k: u32) -> bool {
        index < self.frames && self.state(index) == head(k)
    }

    /// Merges a block, whose frames are marked as [`TAIL`] but for the first,
    /// with its free buddies, and links the result.
    #[inline(always)]
    fn merge(&mut self, index: u32, k: u32, last: bool) -> bool {
        if !self.has_mobility(index) {
            return false;
        }
        let list = self.list_of(index);
        self.account(list, 1 << k);
        if k < ORDER_MAX.k() && self.is_free(index ^ 1 << k, k) {
            return Self::held(self.merge_buddies(index, k, list, last));
        }
        self.link_merged(index, k, list, last);
        true
    }

    #[inline(never)]
    fn merge_buddies(&mut self, mut index: u32, mut k: u32, list: usize, last: bool) -> bool {
        let mut buddy = index ^ 1 << k;
        while k < ORDER_MAX.k() && self.is_free(buddy, k) {
            let mut own = list;
            if k >= self.pageblock_k {
                if !self.has_mobility(buddy) {
                    return false;
                }
                own = self.list_of(buddy);
                if own != list && (own == ISOLATED || list == ISOLATED) {
                    break;
                }
            }
            if !self.take_out(buddy, k, own) {
                return false;
            }
            if own != list {
                let mobility = self.mobility(index);
                self.set_mobility(buddy, k, mobility);
            }
            self.set_state(index | buddy, TAIL);
            index &= buddy;
            k += 1;
            buddy = index ^ 1 << k;
        }
        self.link_merged(index, k, list, last);
        true
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
    pub(crate) fn move_block(&mut self, start: u32, from: usize, to: usize) -> bool {
        let (at, states) = self.pageblock_states(start);
        for nth in 0..states.len() {
            let mut heads = self.words[at + nth] & spread(1 << HEAD_BIT);
            while heads != 0 {
                let index = start + nth as u32 * 8 + heads.trailing_zeros() / 8;
                heads &= heads - 1;
                let state = self.state(index);
                let k = head_order(state);
                if H::CHECKED && !is_state(state) {
                    self.stop(Table::States, at + nth);
                    return false;
                }
                if !Self::held(self.unlink(index, k, from)) {
                    return false;
                }
                self.link(index, k, to, true);
                self.unaccount(from, 1 << k);
                self.account(to, 1 << k);
            }
        }
        true
    }

    /// Isolates the pageblock from `start` on, or ends its isolation.
    pub(crate) fn set_isolated(&mut self, start: u32, isolated: bool) -> bool {
        if !self.has_mobility(start) {
            return false;
        }
        let from = self.list_of(start);
        let value = pageblock_code(self.pageblock(start), isolated);
        let spans = |k: &u32| self.is_free(start >> k << k, *k);
        if let Some(k) = (self.pageblock_k + 1..=ORDER_MAX.k()).find(spans) {
            return self.join_isolated(start, value, start >> k << k, k, from, false);
        }
        let k = self.pageblock_k;
        let buddy = start ^ 1 << k;
        let rejoins = !isolated
            && k < ORDER_MAX.k()
            && self.is_free(start, k)
            && self.is_free(buddy, k)
            && self.list_of(buddy) != ISOLATED;
        if rejoins {
            return self.join_isolated(start, value, start, k, from, true);
        }
        self.set_pageblock(start, value);
        self.move_block(start, from, self.list_of(start))
    }

    /// Gives the pageblock from `start` on its new code, and takes the free block of
    /// order `k` that holds it out of its list and back.
    fn join_isolated(
        &mut self,
        start: u32,
        value: u64,
        block: u32,
        k: u32,
        from: usize,
        last: bool,
    ) -> bool {
        if !Self::held(self.unlink(block, k, from)) {
            return false;
        }
        self.unaccount(from, 1 << k);
        self.set_pageblock(start, value);
        self.release(self.frame(block), k, last)
    }
}

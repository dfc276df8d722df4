//! A zone that follows a recorded kernel: it starts in a given state, and
//! the recording supplies what the free lists alone do not determine.
//!
//! A recording names the frames that a real kernel allocated and freed. To ask
//! at every event whether this zone would have done the same, it must be in the
//! state that the kernel was in. [`LinuxZone::from_state`] begins with one;
//! [`LinuxZone::bring_forward`] puts the block that the kernel found at the
//! head of its list, after which only the rules decide; and
//! [`LinuxZone::allocate_at`] and [`LinuxZone::set_mobility`] do by force what the
//! rules would not have done, so that one difference is counted once.

use core::ops::DerefMut;

use swath_arch::{Extent, Order, Pfn};

use crate::hardening::{Hardening, Latch};
use crate::map::MemoryMap;
use crate::zone::allocator::Mobility;
use crate::zone::linux::build::{LinuxBuildError, ORDER_MAX};
use crate::zone::linux::codes::{USED, USED_MOVABLE};
use crate::zone::linux::fallback::Observe;
use crate::zone::linux::lists::{ISOLATED, Lists};
use crate::zone::linux::zone::LinuxZone;

impl<W: DerefMut<Target = [u64]>> LinuxZone<W> {
    /// The frames of `map` that lie in `span`, each in use or free as `owner`
    /// says (`None` is free), in pageblocks whose mobility `pageblock_of` says
    /// of the first frame. The free blocks are as large as they can be, in
    /// lists that ascend; a block larger than a pageblock takes the mobility
    /// of the pageblock that joined it last. O(words + frames).
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn from_state(
        map: &MemoryMap<'_>,
        span: Extent,
        pageblock: Order,
        storage: W,
        owner: &mut dyn FnMut(Pfn) -> Option<Mobility>,
        pageblock_of: &mut dyn FnMut(Pfn) -> Mobility,
    ) -> Result<Self, LinuxBuildError> {
        let mut zone = Self::new_allocated(map, span, pageblock, storage)?;
        for start in zone.lists.pageblocks() {
            zone.lists.set_mobility(start, pageblock.k(), pageblock_of(zone.lists.frame(start)));
        }
        for area in map.areas().iter().map(|area| area.intersect(span)) {
            for frame in area.iter() {
                match owner(frame) {
                    Some(mobility) => zone.lists.fill(zone.lists.index(frame), 0, state(mobility)),
                    None => {
                        zone.lists.release(frame, 0, true);
                    }
                }
            }
        }
        Ok(zone)
    }
}

/// The state of a frame in use by an owner of this mobility.
const fn state(mobility: Mobility) -> u8 {
    if matches!(mobility, Mobility::Movable) { USED_MOVABLE } else { USED }
}

impl<W: DerefMut<Target = [u64]>, O: Observe, H: Hardening> LinuxZone<W, O, H> {
    /// The free block that holds `frame`, isolated or not: its first frame and
    /// its order. O(M) for M orders.
    pub fn free_block(&self, frame: Pfn) -> Option<(Pfn, Order)> {
        if !self.span().contains(frame) {
            return None;
        }
        let (index, k) = self.block(frame)?;
        Some((self.lists.frame(index), Order::known(k as u8)))
    }

    /// Returns true if the frame is in the span, and the zone has not stopped.
    fn may_change(&self, frame: Pfn) -> bool {
        self.span().contains(frame) && self.lists.latch.fault().is_none()
    }

    fn block(&self, frame: Pfn) -> Option<(u32, u32)> {
        let index = self.lists.index(frame);
        (0..=ORDER_MAX.k()).map(|k| (index >> k << k, k)).find(|&(at, k)| self.lists.is_free(at, k))
    }

    /// Moves the free block that holds `frame` to the head of its list, so
    /// that it is the first of its order and mobility to be allocated. Whether it
    /// was there already; `None` if the frame is not free. O(M) for M orders.
    pub fn bring_forward(&mut self, frame: Pfn) -> Option<bool> {
        if !self.may_change(frame) {
            return None;
        }
        let (index, k) = self.block(frame)?;
        if !self.lists.has_mobility(index) {
            return None;
        }
        let list = self.lists.list_of(index);
        if self.lists.first(k, list) == index {
            return Some(true);
        }
        if !Lists::<W, H>::held(self.lists.unlink(index, k, list)) {
            return None;
        }
        self.lists.link(index, k, list, false);
        Some(false)
    }

    /// Allocates the 2^`order` frames from `start` on, aligned, out of the free
    /// block in which they lie, for an owner of this mobility; no pageblock
    /// changes. Whether one free block held them all and is not isolated; if
    /// not, nothing has changed. O(M) for M orders, and O(2^order) to mark the
    /// frames.
    pub fn allocate_at(&mut self, start: Pfn, order: Order, mobility: Mobility) -> bool {
        if !self.may_change(start) || !start.is_aligned(order.k()) {
            return false;
        }
        let Some((mut block, mut k)) = self.block(start).filter(|&(_, k)| k >= order.k()) else {
            return false;
        };
        if !self.lists.has_mobility(block) {
            return false;
        }
        let list = self.lists.list_of(block);
        if list == ISOLATED {
            return false;
        }
        let index = self.lists.index(start);
        // The half with the frames is split on, the other stays in the list.
        while k > order.k() {
            if !Lists::<W, H>::held(self.lists.halve(block, k, list)) {
                return false;
            }
            k -= 1;
            block += (index - block) >> k << k;
        }
        if !Lists::<W, H>::held(self.lists.cut(block, k, k, list, list)) {
            return false;
        }
        self.lists.fill(block, k, state(mobility));
        true
    }

    /// Allocates one block of a batch, as [`allocate_batch`](crate::ZoneAllocator::allocate_batch)
    /// does one after another. `stealing` says whether the batch has come down to
    /// single blocks of other mobilities, and is false at its beginning. O(M) for M
    /// orders, but for a claim.
    pub fn allocate_of_batch(
        &mut self,
        order: Order,
        mobility: Mobility,
        stealing: &mut bool,
    ) -> Option<Pfn> {
        self.allocate_from(order, mobility, false, stealing)
    }

    /// Changes the mobility of the pageblock around `frame`, and moves its free
    /// blocks to the tails of the new lists; if one free block holds it and
    /// others, theirs too. Whether it lies whole in the zone and is not
    /// isolated; if not, nothing has changed. O(2^(pageblock order - 3)).
    pub fn set_mobility(&mut self, frame: Pfn, mobility: Mobility) -> bool {
        if !self.may_change(frame) {
            return false;
        }
        let pageblock_k = self.lists.pageblock_k;
        let start = self.lists.index(frame) >> pageblock_k << pageblock_k;
        let around = Extent::new(self.lists.frame(start), 1 << pageblock_k);
        if !self.lists.has_mobility(start) {
            return false;
        }
        let from = self.lists.list_of(start);
        if around.intersect(self.span()) != around || from == ISOLATED {
            return false;
        }
        let to = mobility as usize;
        if from == to {
            return true;
        }
        if let Some((block, k)) = self.block(around.start).filter(|&(_, k)| k > pageblock_k) {
            if !Lists::<W, H>::held(self.lists.unlink(block, k, from)) {
                return false;
            }
            self.lists.set_mobility(block, k, mobility);
            self.lists.link(block, k, to, true);
            return true;
        }
        let moved = Lists::<W, H>::held(self.lists.move_block(start, from, to));
        if moved {
            self.lists.set_mobility(start, pageblock_k, mobility);
        }
        moved
    }

    /// Makes an owner of this mobility the user of a frame in use. Whether the
    /// frame is in use; if not, nothing has changed. O(1).
    pub fn set_user(&mut self, frame: Pfn, mobility: Mobility) -> bool {
        let used = self.may_change(frame) && self.lists.is_used(self.lists.index(frame));
        if used {
            self.lists.fill(self.lists.index(frame), 0, state(mobility));
        }
        used
    }

    /// Counts the frames of the pageblock around `frame` that are free or alike
    /// to a request of this mobility, which claims it from half of them on;
    /// `None` if it does not lie whole in the zone. O(2^(pageblock order - 3)).
    pub fn free_or_alike(&self, frame: Pfn, mobility: Mobility) -> Option<u32> {
        if !self.span().contains(frame) {
            return None;
        }
        self.free_or_alike_at(self.lists.index(frame), mobility)
    }

    /// Counts the frames of the pageblock around `frame` that movable owners
    /// use, and those of others; none outside the zone. O(2^(pageblock order -
    /// 3)).
    pub fn pageblock_users(&self, frame: Pfn) -> [u32; 2] {
        if !self.span().contains(frame) {
            return [0; 2];
        }
        let pageblock_k = self.lists.pageblock_k;
        self.lists.users(self.lists.index(frame) >> pageblock_k << pageblock_k)
    }
}

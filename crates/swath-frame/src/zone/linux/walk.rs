//! The walk over all words of a [`LinuxZone`](crate::LinuxZone): its invariants.

use core::ops::DerefMut;

use crate::hardening::Hardening;
use crate::zone::linux::build::ORDER_MAX;
use crate::zone::linux::codes::{HOLE, TAIL, USED, USED_MOVABLE, head, head_order};
use crate::zone::linux::lists::{ISOLATED, Lists, NONE, ORDERS};

impl<W: DerefMut<Target = [u64]>, H: Hardening> Lists<W, H> {
    /// Walks all invariants; returns how many frames are not holes. `outside`
    /// says of a frame that it lies outside the zone.
    pub(crate) fn check(&self, outside: &dyn Fn(u32) -> bool) -> Result<u64, &'static str> {
        let (mut index, mut present) = (0, 0);
        let mut blocks = [[0_u32; ORDERS]; ISOLATED + 1];
        while index < self.frames {
            let state = self.state(index);
            if state != HOLE && outside(index) {
                return Err("a frame outside the zone that is not a hole");
            }
            match state {
                HOLE => index += 1,
                USED | USED_MOVABLE => {
                    present += 1;
                    index += 1;
                }
                _ => {
                    let k = head_order(state);
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

//! Looking before believing: what the checked tier of a [`LinuxZone`](crate::LinuxZone)
//! does with words that may be anything.
//!
//! The states decide: a block goes out only if its first frame's state says that it is
//! free and of its order, and no flipped bit makes one [code](crate::zone::linux::codes)
//! of another. A link is followed only to a block that links back, and all other frames
//! have links to none; so of two words that disagree, it is known which was changed.

use core::ops::DerefMut;

use crate::hardening::{Hardening, Latch, Table, WordFault};
use crate::zone::linux::codes::{HOLE, head, head_order, is_pageblock, is_state};
use crate::zone::linux::lists::{ISOLATED, List, Lists, NONE, ORDERS, UNLINKED};

/// The two neighbours in a list, by their place in a word of links.
const PREVIOUS: u32 = 0;
const NEXT: u32 = 1;

impl<W: DerefMut<Target = [u64]>, H: Hardening> Lists<W, H> {
    /// Stops the allocator at a word that cannot be right. Nothing is handed out or
    /// taken back from here on.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop(&mut self, table: Table, word: usize) -> WordFault {
        let fault = self.fault_at(table, word);
        self.nonempty = [0; ISOLATED + 1];
        self.lists = [[List::EMPTY; ORDERS]; ISOLATED + 1];
        self.latch.close(fault)
    }

    fn fault_at(&self, table: Table, word: usize) -> WordFault {
        WordFault { table, word, value: self.words.get(word).copied().unwrap_or(0) }
    }

    /// The contradiction at which the allocator has stopped.
    #[cold]
    #[inline(never)]
    pub(crate) fn stopped(&mut self) -> WordFault {
        match self.latch.fault() {
            Some(fault) => fault,
            // No list holds a frame that is free.
            None => self.stop(Table::Links, 0),
        }
    }

    /// Stops the allocator at the link on one side of a block of order `k`, whose links
    /// were `links`; false.
    #[cold]
    #[inline(never)]
    fn stop_at_link(&mut self, index: u32, k: u32, list: usize, side: u32, links: u64) -> bool {
        self.words[index as usize] = links;
        let word = self.link_at_fault(index, k, list, side).unwrap_or(index);
        self.stop(Table::Links, word as usize);
        false
    }

    /// Returns true if a frame is the first of a free block of order `k`; if not, the
    /// allocator has stopped.
    #[inline(always)]
    pub(crate) fn is_head(&mut self, index: u32, k: u32) -> bool {
        if H::CHECKED && !self.is_free(index, k) {
            self.stop(Table::States, self.state_at(index));
            return false;
        }
        true
    }

    /// Takes the first block of a list and gives its frames a state, if it is free and
    /// links to one that links back, or is the last. If not, nothing changes and the
    /// general way decides. O(1) and O(2^k).
    #[inline(always)]
    pub(crate) fn take_first(&mut self, k: u32, list: usize, used: u8) -> Option<u32> {
        let ends = self.lists[list].get_mut(k as usize)?;
        let index = ends.first;
        let (links, states) = self.words.split_at_mut_checked(self.frames as usize)?;
        let next = (*links.get(index as usize)? >> 32) as u32;
        let shift = index % 8 * 8;
        let states = states.get_mut(index as usize / 8)?;
        if (*states >> shift) as u8 != head(k) {
            return None;
        }
        match links.get_mut(next as usize) {
            Some(word) if *word as u32 == index => *word |= u64::from(NONE),
            None if next == NONE && ends.last == index => {
                ends.last = NONE;
                self.nonempty[list] &= !(1 << k);
            }
            _ => return None,
        }
        *links.get_mut(index as usize)? = UNLINKED;
        ends.first = next;
        self.free_frames -= 1 << k;
        if k == 0 {
            *states ^= u64::from(head(0) ^ used) << shift;
        } else {
            self.fill_block(index, k, used);
        }
        Some(index)
    }

    /// Takes a block out of its list, if its neighbours link back to it; if not, the
    /// allocator stops.
    #[inline(always)]
    pub(crate) fn unlink_mutual(&mut self, index: u32, k: u32, list: usize) -> bool {
        let ends = &mut self.lists[list][k as usize];
        let Some(links) = self.words.get_mut(..self.frames as usize) else { return false };
        let Some(own) = links.get_mut(index as usize) else { return false };
        let links_were = *own;
        let (previous, next) = (links_were as u32, (links_were >> 32) as u32);
        *own = UNLINKED;
        match links.get_mut(previous as usize) {
            Some(word) if (*word >> 32) as u32 == index => {
                *word = u64::from(*word as u32) | u64::from(next) << 32;
            }
            None if previous == NONE && ends.first == index => {
                ends.first = next;
                if next == NONE {
                    self.nonempty[list] &= !(1 << k);
                }
            }
            _ => return self.stop_at_link(index, k, list, PREVIOUS, links_were),
        }
        match links.get_mut(next as usize) {
            Some(word) if *word as u32 == index => {
                *word = *word >> 32 << 32 | u64::from(previous);
            }
            None if next == NONE && ends.last == index => ends.last = previous,
            _ => return self.stop_at_link(index, k, list, NEXT, links_were),
        }
        true
    }

    /// The frame whose links are wrong, if a block of a list and its neighbour on one
    /// side disagree.
    fn link_at_fault(&self, index: u32, k: u32, list: usize, side: u32) -> Option<u32> {
        let neighbour = self.neighbour(index, side);
        if neighbour == NONE {
            return (self.end(k, list, side) != index).then_some(index);
        }
        if !self.is_free(neighbour, k) {
            return Some(index);
        }
        let back = self.neighbour(neighbour, side ^ 1);
        if back == index {
            return None;
        }
        // If the neighbour has its own on this side, it is not the one at fault.
        let has_own = if back == NONE {
            self.end(k, self.list_of(neighbour), side ^ 1) == neighbour
        } else {
            self.is_free(back, k) && self.neighbour(back, side) == neighbour
        };
        Some(if has_own { index } else { neighbour })
    }

    /// The link of a frame on one side.
    fn neighbour(&self, index: u32, side: u32) -> u32 {
        (self.words[index as usize] >> (32 * side)) as u32
    }

    /// The block at the end of a list that has no neighbour on this side.
    fn end(&self, k: u32, list: usize, side: u32) -> u32 {
        let List { first, last } = self.lists[list][k as usize];
        if side == PREVIOUS { first } else { last }
    }

    /// Sets the links of all frames that are in no list to none.
    pub(crate) fn clear_links(&mut self) {
        for index in 0..self.frames {
            let state = self.state(index);
            if !is_state(state) || state != head(head_order(state)) {
                self.words[index as usize] = UNLINKED;
            }
        }
    }

    /// Compares all words of the checked tier with each other and with the counts: the
    /// word at fault, if one is. `outside` says of a frame that it lies outside the zone,
    /// which has `total` frames. O(words).
    pub(crate) fn find_fault(
        &self,
        outside: &dyn Fn(u32) -> bool,
        total: u64,
    ) -> Result<(), WordFault> {
        if let Some(fault) = self.latch.fault() {
            return Err(fault);
        }
        for word in self.pageblock_words() {
            let codes = self.words[word];
            if (0..16).any(|nth| !is_pageblock(codes >> (4 * nth) & 0xf)) {
                return Err(self.fault_at(Table::Pageblocks, word));
            }
        }
        for index in 0..self.frames {
            let state = self.state(index);
            if !is_state(state) || state != HOLE && outside(index) {
                return Err(self.fault_at(Table::States, self.state_at(index)));
            }
        }
        for index in 0..self.frames {
            let state = self.state(index);
            let k = head_order(state);
            let at_fault = if state == head(k) {
                let mut sides = [PREVIOUS, NEXT].into_iter();
                let list = self.list_of(index);
                sides.find_map(|side| self.link_at_fault(index, k, list, side))
            } else {
                (self.words[index as usize] != UNLINKED).then_some(index)
            };
            if let Some(index) = at_fault {
                return Err(self.fault_at(Table::Links, index as usize));
            }
        }
        // More than one word was changed, and those of one table agree: its first stands
        // for them.
        if self.check(outside) != Ok(total) {
            return Err(self.fault_at(Table::States, self.state_at(0)));
        }
        Ok(())
    }
}

//! Single frames many at once: those that stand in one word of a bank are taken from it, and come
//! back to it, as one.
//!
//! Blocks and state are those of as many single calls. The checked tier makes these.

use core::ops::DerefMut;

use swath_arch::{Order, Pfn};

use crate::allocator::FrameFreeError;
use crate::bits::store::Keep;
use crate::hardening::Hardening;
use crate::zone::allocator::{Mobility, ZoneAllocator};
use crate::zone::bank::blocks::BankBlocks;
use crate::zone::bank::buddy::{BankBuddy, file_released};
use crate::zone::bank::open::Released;
use crate::zone::bank::placement::Placement;

impl<W: DerefMut<Target = [u64]>, P: Placement, H: Hardening> BankBuddy<W, P, H> {
    /// Allocates up to `count` blocks, handing each to `sink`; returns their number.
    pub(crate) fn allocate_rows(
        &mut self,
        order: Order,
        mobility: Mobility,
        count: u32,
        sink: &mut dyn FnMut(Pfn),
    ) -> u32 {
        let movable = mobility == Mobility::Movable;
        let slot = usize::from(movable);
        let has_rows = !H::CHECKED && order == Order::BASE;
        let mut taken = 0;
        while taken < count {
            if has_rows && self.rule.keeps(self.blocks.open[slot].bank, movable) {
                taken += self.blocks.allocate_row(slot, count - taken, sink);
            }
            if taken < count {
                let Some(frame) = self.allocate(order, mobility) else { break };
                sink(frame);
                taken += 1;
            }
        }
        taken
    }

    /// Frees blocks up to the first that cannot be freed, whose error it is.
    pub(crate) fn free_rows(&mut self, order: Order, blocks: &[Pfn]) -> Result<(), FrameFreeError> {
        let has_rows = !H::CHECKED && order == Order::BASE;
        let mut rest = blocks;
        while let Some((&first, others)) = rest.split_first() {
            let freed = if has_rows { self.free_row(rest) } else { 0 };
            rest = rest.get(freed..).unwrap_or_default();
            if freed == 0 {
                self.free(first, order)?;
                rest = others;
            }
        }
        Ok(())
    }

    /// Single frames of one word, those at the beginning of `frames`; returns their number, 0
    /// where the first is to be looked at by itself.
    #[inline]
    fn free_row(&mut self, frames: &[Pfn]) -> usize {
        let s = H::write(&mut self.storage);
        let Some((bank, count, released)) = self.blocks.release_row(s, frames) else {
            return 0;
        };
        if file_released(&self.blocks, &mut self.rule, s, bank, &released) {
            self.freed(bank, &released);
        }
        count
    }
}

impl BankBlocks {
    /// Allocates up to `count` frames of the open word, but for its last one; returns their
    /// number. O(1) and O(1) for each.
    #[inline(always)]
    pub(crate) fn allocate_row(
        &mut self,
        slot: usize,
        count: u32,
        sink: &mut dyn FnMut(Pfn),
    ) -> u32 {
        let open = &mut self.open[slot];
        let mut taken = 0;
        while taken < count && open.bits & open.bits.wrapping_sub(1) != 0 {
            sink(Pfn::new(open.first + u64::from(open.bits.trailing_zeros())));
            open.bits &= open.bits - 1;
            taken += 1;
        }
        self.free -= u64::from(taken);
        taken
    }

    /// Frees those of the frames, from the first on, that stand in one word and are in use: their
    /// bank, their number, and the changes to it. The frame that completes the bank comes by
    /// itself, since the placement is to see the bank before it is whole. None, and nothing
    /// has changed, if the first is not in use. O(L) as for one frame.
    #[inline]
    pub(crate) fn release_row<S: Keep + ?Sized>(
        &mut self,
        s: &mut S,
        frames: &[Pfn],
    ) -> Option<(usize, usize, Released)> {
        let (bank, at) = self.position(frames.first()?.raw());
        if bank >= self.reach {
            return None;
        }
        let unit = at / 64;
        let cell = self.cell(bank, unit);
        let open = self.open.iter().find(|open| open.cell == cell).map(|open| open.bits);
        // What lies beyond the bank is not present.
        let [stored, present] = Self::frames(s, cell);
        let was = open.unwrap_or(stored);
        let start = self.first_of(bank) + unit as u64 * 64;
        let used = self.frames_of(s, bank) - self.free_of(s, bank);
        let most = used.saturating_sub(1).max(1) as usize;
        let (mut now, mut count) = (was, 0);
        for frame in frames.iter().take(most) {
            let bit = frame.raw().wrapping_sub(start);
            if bit >= 64 || (present & !now) >> bit & 1 == 0 {
                break;
            }
            now |= 1 << bit;
            count += 1;
        }
        if count == 0 {
            return None;
        }
        let mask = now & !was;
        if open.is_some() {
            let released = self.release_in_open(s, cell, mask)?;
            self.free += count as u64;
            return Some((bank, count, released));
        }
        Self::give(s, cell, mask)?;
        self.free += count as u64;
        let largest = |word| (word != 0).then(|| self.largest(word));
        let (from, to) = (largest(was), self.largest(now));
        let whole = now == u64::MAX && self.top > 5;
        let mut reordered = false;
        if whole || from != Some(to) {
            reordered = from.is_some_and(|from| self.leave(s, bank, from, unit));
            reordered |= match whole {
                true => self.merge_words(s, bank, unit, 6),
                false => self.enter(s, bank, to, unit),
            };
        }
        Some((bank, count, Released { filed: count as u32, reordered }))
    }
}

//! Ranges of frame numbers in a page buddy allocator: a free run in one, one that is added, one that is removed.
//!
//! The classes tell of free memory by size, a range asks by number. A walk goes from one free
//! piece to the next: of each class the next unit, of these the lowest.

use swath_arch::{Extent, Pfn};

use crate::bits::words::{any_set, clear};
use crate::buddy::rule::Rule;
use crate::buddy::state::State;
use crate::contiguous::{ContiguousError, ContiguousRequest};
use crate::hardening::{Hardening, Latch};
use crate::hotplug::{FrameHotplugError, within};

impl<R: Rule, H: Hardening> State<R, H> {
    /// The lowest free frames at or after `from`, as far as they are in a row in one class, of the classes
    /// from `least` on: the first, and one past the last. O(C·L + n/64) for n units.
    fn free_piece(&self, s: &[u64], from: u64, least: usize) -> Option<(u64, u64)> {
        let next = |i: usize| {
            let (class, order) = (&self.classes[i], i as u32 * self.granularity);
            let unit = (from >> order).max(class.base);
            let at = class.free.next(s, usize::try_from(unit - class.base).ok()?)?;
            Some((((class.base + at as u64) << order).max(from), i, at))
        };
        let (start, i, at) = (least..=self.last).filter_map(next).min()?;
        let class = &self.classes[i];
        let past = class.base + (at + class.free.run(s, at, usize::MAX)) as u64;
        Some((start, past << (i as u32 * self.granularity)))
    }

    /// One past the frames that are free without a gap from a free frame before `end` on, which are known
    /// to be up to `end`; stops looking at `enough`. O(C) for each piece.
    fn free_until(&self, s: &[u64], mut end: u64, enough: u64) -> u64 {
        'pieces: while end < enough {
            for i in 0..=self.last {
                let (class, order) = (&self.classes[i], i as u32 * self.granularity);
                let Some(unit) = (end >> order).checked_sub(class.base) else { continue };
                let run = class.free.run(s, unit as usize, usize::MAX);
                if run > 0 {
                    end = (class.base + unit + run as u64) << order;
                    continue 'pieces;
                }
            }
            break;
        }
        end
    }

    /// The lowest start of a free run that meets a request, which is possible.
    ///
    /// A run of `count` frames holds a whole aligned block of 2^o frames if `count >= 2^(o + 1) - 1`, so that
    /// long runs are found by the blocks of their class, and what is shorter is passed by unseen.
    fn find_contiguous(&self, s: &[u64], request: &ContiguousRequest) -> Option<u64> {
        let whole = request.count.saturating_add(1).ilog2() - 1;
        let least = ((whole / self.granularity) as usize).min(self.last);
        let before = (1 << (least as u32 * self.granularity)) - 1;
        let mut from = request.admit(0)?;
        loop {
            // A run that holds this block has at most `before` frames ahead of it.
            let (block, _) = self.free_piece(s, from, least)?;
            from = from.max(block.saturating_sub(before));
            let (start, end) = self.free_piece(s, from, 0)?;
            let place = request.admit(start)?;
            let past = place + request.count;
            let end = self.free_until(s, end, past);
            if end >= past {
                return Some(place);
            }
            // Wherever else in this run a place is, it ends later.
            from = end;
        }
    }

    /// Allocates the lowest run that meets a request.
    pub(crate) fn allocate_contiguous(
        &mut self,
        s: &mut [u64],
        request: &ContiguousRequest,
    ) -> Result<Extent, ContiguousError> {
        request.check()?;
        let (wanted, free) = (request.count, self.free);
        if let Some(fault) = self.latch.fault() {
            return Err(ContiguousError::Corrupt(fault));
        }
        if wanted > free {
            return Err(ContiguousError::OutOfFrames { wanted, free });
        }
        let found = self.find_contiguous(s, request);
        let start = found.ok_or(ContiguousError::NoRun { request: *request })?;
        let run = Extent::new(Pfn::new(start), wanted);
        self.allocate_at(s, run);
        self.latch.fault().map_or(Ok(run), |fault| Err(ContiguousError::Corrupt(fault)))
    }

    /// The first and one past the last frame of an extent of the span, if the allocator has not stopped.
    fn within_span(&self, extent: Extent) -> Result<(u64, u64), FrameHotplugError> {
        let bounds = within(extent, self.span)?;
        self.latch.fault().map_or(Ok(bounds), |fault| Err(fault.into()))
    }

    /// Takes note of a change of the areas; stops the allocator at a record that is not as it was written.
    fn changed_areas(
        &mut self,
        s: &mut [u64],
        change: Result<(), FrameHotplugError>,
    ) -> Result<(), FrameHotplugError> {
        if let Err(FrameHotplugError::Corrupt(fault)) = change {
            return Err(self.stop(s, fault.table, fault.word).into());
        }
        self.note_solid();
        change
    }

    /// Adds frames of a hole.
    pub(crate) fn add_frames(
        &mut self,
        s: &mut [u64],
        extent: Extent,
    ) -> Result<(), FrameHotplugError> {
        let (start, end) = self.within_span(extent)?;
        let present = |frame| Err(FrameHotplugError::Present { frame: Pfn::new(frame) });
        if let Some((frame, _)) = self.free_piece(s, start, 0)
            && frame < end
        {
            return present(frame);
        }
        let at = self.frame(start);
        if H::CHECKED {
            let change = self.areas.add(s, start, end);
            self.changed_areas(s, change)?;
            clear(&mut s[..self.allocated_words], at, extent.count as usize);
        } else if any_set(&s[..self.allocated_words], at, extent.count as usize) {
            let allocated = |&frame: &u64| self.is_allocated(s, Pfn::new(frame));
            return present((start..end).find(allocated).unwrap_or(start));
        }
        self.total += extent.count;
        self.free += extent.count;
        self.release(s, start, end);
        Ok(())
    }

    /// Makes a hole of free frames.
    pub(crate) fn remove_frames(
        &mut self,
        s: &mut [u64],
        extent: Extent,
    ) -> Result<(), FrameHotplugError> {
        let (start, end) = self.within_span(extent)?;
        let free = match self.free_piece(s, start, 0) {
            Some((first, past)) if first == start => self.free_until(s, past, end),
            _ => start,
        };
        if free < end {
            let frame = Pfn::new(free);
            return Err(if self.is_allocated(s, frame) {
                FrameHotplugError::InUse { frame }
            } else {
                FrameHotplugError::Absent { frame }
            });
        }
        if H::CHECKED {
            let change = self.areas.remove(s, start, end);
            self.changed_areas(s, change)?;
        }
        self.allocate_at(s, extent);
        if let Some(fault) = self.latch.fault() {
            return Err(FrameHotplugError::Corrupt(fault));
        }
        self.total -= extent.count;
        if !H::CHECKED {
            let at = self.frame(start);
            clear(&mut s[..self.allocated_words], at, extent.count as usize);
        }
        Ok(())
    }
}

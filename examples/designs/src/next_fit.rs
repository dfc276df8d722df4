//! Next fit: the search for a hole goes on behind the last block. Of the next 64 holes the first is
//! taken that holds all that is wanted, else the longest.

use std::collections::BTreeMap;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::{FrameAllocateError, FrameAllocator, FrameFreeError};
use swath_lab::papers::page_buddy::design::{self, AddError, Added, AddedFrames, Scheme};

/// Holes that are looked at for one block.
const HOLES_MAX: usize = 64;

/// The allocator.
pub struct NextFit {
    /// All frames, free or not.
    frames: Extent,
    /// The first frame of each hole, and the frames in it; no two touch.
    holes: BTreeMap<u64, u64>,
    /// Frames in all holes.
    free: u64,
    /// Where the search goes on.
    next: u64,
}

/// Adds it, under tables that tell of contiguity as those over PBS do.
///
/// # Errors
/// [`AddError`].
pub fn add() -> Result<(), AddError> {
    let frames = AddedFrames::Own(|frames| Ok(Box::new(NextFit::allocated(frames))));
    design::add(Added { name: "Next fit", frames, scheme: Scheme::Pcad, tlb: None, tables: None })
}

impl NextFit {
    /// Creates one over `frames`, all of them allocated.
    pub const fn allocated(frames: Extent) -> Self {
        Self { frames, holes: BTreeMap::new(), free: 0, next: 0 }
    }

    /// Takes frames out of the hole that begins at `hole`.
    fn take(&mut self, hole: u64, block: Extent) -> Extent {
        let (start, end) = (block.start.raw(), block.end().raw());
        let hole_end = hole + self.holes.remove(&hole).unwrap_or(0);
        if hole < start {
            self.holes.insert(hole, start - hole);
        }
        if end < hole_end {
            self.holes.insert(end, hole_end - end);
        }
        self.free -= block.count;
        self.next = end;
        block
    }
}

impl FrameAllocator for NextFit {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if frames_max == 0 {
            return None;
        }
        let behind = self.holes.range(self.next..).chain(self.holes.range(..self.next));
        let mut longest = (0, 0);
        for (&start, &count) in behind.take(HOLES_MAX) {
            if count > longest.1 {
                longest = (start, count);
            }
            if count >= frames_max {
                break;
            }
        }
        let (start, count) = longest;
        (count > 0).then(|| self.take(start, Extent::new(Pfn::new(start), count.min(frames_max))))
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        let wanted = order.frames();
        if wanted > self.free {
            return Err(FrameAllocateError::OutOfFrames { wanted, free: self.free });
        }
        let place = |(&start, &count): (&u64, &u64)| {
            let aligned = start.checked_next_multiple_of(wanted)?;
            (aligned.checked_add(wanted)? <= start + count).then_some((start, aligned))
        };
        let mut behind = self.holes.range(self.next..).chain(self.holes.range(..self.next));
        let (hole, start) = behind.find_map(place).ok_or(FrameAllocateError::NoBlock { order })?;
        Ok(self.take(hole, Extent::new(Pfn::new(start), wanted)))
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.count == 0 {
            return Err(FrameFreeError::Empty);
        }
        let end = extent.checked_end().ok_or(FrameFreeError::Overflow { extent })?.raw();
        let (mut start, mut stop) = (extent.start.raw(), end);
        if !self.frames.contains(extent.start) {
            return Err(FrameFreeError::Foreign { frame: extent.start });
        }
        let before = self.holes.range(..=start).next_back().map(|(&at, &count)| (at, at + count));
        let behind = self.holes.range(start..).next().map(|(&at, &count)| (at, at + count));
        if before.is_some_and(|(_, before_end)| before_end > start) {
            return Err(FrameFreeError::NotAllocated { frame: extent.start });
        }
        if let Some((at, _)) = behind.filter(|(at, _)| *at < end) {
            return Err(FrameFreeError::NotAllocated { frame: Pfn::new(at) });
        }
        if end > self.frames.end().raw() {
            return Err(FrameFreeError::Foreign { frame: self.frames.end() });
        }
        if let Some((at, _)) = before.filter(|(_, before_end)| *before_end == start) {
            start = at;
        }
        if let Some((at, behind_end)) = behind.filter(|(at, _)| *at == end) {
            self.holes.remove(&at);
            stop = behind_end;
        }
        self.holes.insert(start, stop - start);
        self.free += extent.count;
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        self.free
    }

    fn total_frames(&self) -> u64 {
        self.frames.count
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.holes.iter().for_each(|(&at, &count)| visit(Extent::new(Pfn::new(at), count)));
    }
}

//! The backing of the arena: pages of the kernel, as large as it has them.
//!
//! Addresses are reserved once and without access. Memory comes in **chunks** of 2 MiB, when
//! the first unit of a chunk is acquired: from the hugetlb pools (1 GiB for a
//! segment that holds one whole, else 2 MiB), else as ordinary pages for which a transparent huge
//! page is asked. So whatever lies within a chunk is contiguous in physical memory if the kernel has
//! a huge page to give.
//!
//! Segments come from the [reserve](crate::reserve) first, if there is one.
//!
//! A segment of whole chunks can be **populated**: its chunks, and a fourth more, are touched
//! elsewhere first; where their frames lie is read from the page map, the
//! longest runs of neighbours are chosen, and these are moved into place in the order of
//! their frames. No page is copied: moving a huge page is one entry of a table.
//!
//! A fork's child has no pages of the hugetlb pools: [`ordinary`](crate::source::ordinary) says why. What
//! is pinned of them in the reserve, where no record of the C library's lies, the child does not share
//! either: it has copies. The same holds for memory of a [dma-heap](crate::source::dma_heap).

use core::ops::Range;

use swath_arch::{BASE_PAGE_BYTES, PhysAddr};
use swath_pool::{MakeUsable, Placement, SegmentSource, UNIT_BYTES};

use crate::reserve::extent::{Pages, ReserveExtent};
use crate::reserve::frames::{CHUNK_FRAMES, ReserveFrames, Run, UNIT_FRAMES};
use crate::source::chunk::{CHUNK_BYTES, CHUNK_UNITS, Chunk, Chunks};
use crate::source::mapping::keep_from_children;
use crate::source::pages::ArenaPages;
use crate::source::runs::Runs;
use crate::source::scratch::Scratch;

/// The kernel's pages as a buffer pool's source: what is under the pool's lock.
pub(crate) struct Backing {
    runs: Runs,
    pages: &'static ArenaPages,
    /// The first frame of each chunk of the reserve; 0 for the others.
    frames: &'static mut [u64],
    reserve: Option<ReserveFrames>,
    /// True if a fork's child does not have the reserve.
    dontfork: bool,
    /// During a fork: copies of the reserve's chunks of the pools, from the first of them on.
    copies: Option<(Scratch, usize)>,
    /// Chunks in which nothing is in use, held until their memory has gone back to the system.
    purging: [Range<usize>; PURGING],
}

/// The most runs of chunks that are purged at once.
const PURGING: usize = 64;

impl Backing {
    /// Makes the backing of an arena with free units; `frames`, a record for each of its chunks, is
    /// zeroed.
    pub(crate) fn new(
        runs: Runs,
        pages: &'static ArenaPages,
        frames: &'static mut [u64],
        dontfork: bool,
    ) -> Self {
        Self {
            runs,
            pages,
            frames,
            reserve: None,
            dontfork,
            copies: None,
            purging: [const { 0..0 }; PURGING],
        }
    }

    /// Counts the chunks by what backs them. O(c) for c chunks used so far.
    pub(crate) fn counts(&self) -> Chunks {
        self.pages.counts(self.runs.end())
    }

    /// Finds the first run of neighbouring chunks of the hugetlb pools that begins at `from` or
    /// behind it, of those that a fork's child has.
    pub(crate) fn next_pooled(&self, from: usize) -> Option<Range<usize>> {
        self.next(from, |chunk| self.is_pooled(chunk) && !self.is_kept(chunk))
    }

    /// Finds the next run of chunks in the reserve that parent and child may not share.
    fn next_reserved(&self, from: usize) -> Option<Range<usize>> {
        let unshared = |chunk| self.is_pooled(chunk) || self.pages.is(chunk, Chunk::Heap);
        self.next(from, |chunk| self.frames[chunk] != 0 && unshared(chunk) && !self.is_kept(chunk))
    }

    fn next(&self, from: usize, is: impl Fn(usize) -> bool) -> Option<Range<usize>> {
        let first = (from..self.runs.end()).find(|&chunk| is(chunk))?;
        let count = (first..self.runs.end()).take_while(|&chunk| is(chunk)).count();
        Some(first..first + count)
    }

    fn is_pooled(&self, chunk: usize) -> bool {
        self.pages.is(chunk, Chunk::Huge) || self.pages.is(chunk, Chunk::Giant)
    }

    /// Returns true if a fork's child does not have a chunk.
    fn is_kept(&self, chunk: usize) -> bool {
        self.dontfork && self.frames[chunk] != 0
    }

    /// Copies what is in use of the reserve's chunks that are not shared, for a fork's child; false without
    /// the memory.
    fn copy_reserved(&mut self) -> bool {
        let Some(first) = self.next_reserved(0).map(|run| run.start) else { return false };
        let end = self.runs.end();
        let Some(copies) = Scratch::new(end - first, CHUNK_BYTES, self.pages.is_thp()) else {
            return false;
        };
        let mut from = first;
        while let Some(run) = self.next_reserved(from) {
            from = run.end;
            let mut used = run.filter(|&chunk| self.is_used(chunk));
            // SAFETY: a chunk of the arena that is all there.
            let copy = |chunk| unsafe { copies.copy(chunk - first, self.pages.address(chunk)) };
            if !used.all(copy) {
                return false;
            }
        }
        self.copies = Some((copies, first));
        true
    }

    /// Keeps the pools' pages in the reserve from a fork's child, or no longer. A heap's always are.
    fn keep_reserved(&self, keep: bool) {
        let mut from = 0;
        let pooled = |chunk| self.is_pooled(chunk) && self.frames[chunk] != 0;
        while let Some(run) = self.next(from, |chunk| pooled(chunk) && !self.is_kept(chunk)) {
            from = run.end;
            let (at, len_bytes) = (self.pages.address(run.start), run.len() * CHUNK_BYTES);
            // SAFETY: chunks of the arena, of which the child has copies.
            unsafe { keep_from_children(at, len_bytes, keep) };
        }
    }

    /// Returns the pages of the arena.
    pub(crate) fn pages(&self) -> &'static ArenaPages {
        self.pages
    }

    /// Returns the chunk from which on none was ever used.
    pub(crate) fn end(&self) -> usize {
        self.runs.end()
    }

    /// Takes the runs of chunks that are to go back to the system, and that are held so long.
    pub(crate) fn take_purging(&mut self) -> [Range<usize>; PURGING] {
        core::mem::replace(&mut self.purging, [const { 0..0 }; PURGING])
    }

    /// Ends the purge of chunks.
    pub(crate) fn end_purge(&mut self, chunks: Range<usize>) {
        self.runs.release(chunks.start as u32 * CHUNK_UNITS, chunks.len() as u32 * CHUNK_UNITS);
    }

    /// Returns true if a unit of the chunk is in use.
    pub(crate) fn is_used(&self, chunk: usize) -> bool {
        match (self.frames[chunk], &self.reserve) {
            (frame @ 1.., Some(reserve)) => !reserve.is_free(frame),
            _ => self.runs.is_used(chunk),
        }
    }
}

/// The reserve.
impl Backing {
    pub(crate) fn has_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// Begins a reserve, unless there is one.
    pub(crate) fn begin_reserve(&mut self, frames: ReserveFrames) {
        self.reserve.get_or_insert(frames);
    }

    /// Acquires addresses for an extent, the first at a multiple of `align` chunks, with a hole at each
    /// end; returns the first chunk between the holes and its address.
    pub(crate) fn place_extent(&mut self, chunks: usize, align: usize) -> Option<(u32, *mut u8)> {
        let units = |chunks: usize| u32::try_from(chunks).ok()?.checked_mul(CHUNK_UNITS);
        let first = self.runs.acquire(units(align.checked_add(chunks)? + 1)?, units(align)?)?;
        let chunk = first as usize / CHUNK_UNITS as usize + align;
        Some((chunk as u32, self.pages.address(chunk)))
    }

    /// Enters memory at addresses of [`place_extent`](Self::place_extent) into the reserve, and returns
    /// the number of chunks. Frames that are not known, or that the reserve has elsewhere, are
    /// simulated.
    pub(crate) fn enter_extent(
        &mut self,
        chunk: u32,
        chunks: usize,
        frame: Option<u64>,
        pages: Pages,
    ) -> usize {
        let Some(reserve) = self.reserve.as_mut().filter(|_| chunks > 0) else { return 0 };
        let run = |frame| Run { frame, chunk, chunks: chunks as u32 };
        let known =
            frame.filter(|&frame| !reserve.is_simulated(frame) && reserve.enter(run(frame)));
        let simulated = || {
            let frame = reserve.simulate(chunks as u32)?;
            reserve.enter(run(frame)).then_some(frame)
        };
        let Some(frame) = known.or_else(simulated) else { return 0 };
        let places = &mut self.frames[chunk as usize..chunk as usize + chunks];
        for (place, frame) in places.iter_mut().zip((frame..).step_by(CHUNK_FRAMES as usize)) {
            *place = frame;
        }
        self.pages.publish(chunk as usize, chunks, pages.chunk());
        chunks
    }

    /// Makes the reserve's addresses ordinary ones without pages. What is in use of them may be freed; what
    /// is not stays in use.
    fn forget_reserve(&mut self) {
        let Some(reserve) = self.reserve.take() else { return };
        for run in (0..).map_while(|index| reserve.run(index)) {
            let (from, to) = (run.chunk as usize, (run.chunk + run.chunks) as usize);
            self.pages.purge(from, to);
            self.frames[from..to].fill(0);
        }
    }

    /// Returns the frame of a unit of the reserve, if it is one.
    fn frame(&self, unit: u32) -> Option<u64> {
        let frame = self.frames[(unit / CHUNK_UNITS) as usize];
        (frame != 0).then(|| frame + u64::from(unit % CHUNK_UNITS) * UNIT_FRAMES)
    }

    /// Returns the frames of the reserve's longest free run.
    pub(crate) fn reserve_longest(&self) -> u64 {
        self.reserve.as_ref().map_or(0, ReserveFrames::longest_frames)
    }

    /// Returns the reserve's free frames and the number of its free runs.
    pub(crate) fn reserve_free(&self) -> (u64, u64) {
        let free = |reserve: &ReserveFrames| (reserve.free_frames(), reserve.free_runs());
        self.reserve.as_ref().map_or((0, 0), free)
    }

    /// Returns the physical address behind an address of the reserve whose frame a dma-heap holds in place, and
    /// the bytes from there to the end of its extent.
    pub(crate) fn held(&self, address: usize) -> Option<(PhysAddr, u64)> {
        let (chunk, within) = self.pages.chunk_of(address)?;
        let (frame, reserve) = (self.frames[chunk], self.reserve.as_ref()?);
        if frame == 0 || reserve.is_simulated(frame) || !self.pages.is(chunk, Chunk::Heap) {
            return None;
        }
        let physical = frame * BASE_PAGE_BYTES + within as u64;
        let end = reserve.run_of(frame)?.end() * BASE_PAGE_BYTES;
        Some((PhysAddr::new(physical), end - physical))
    }

    /// Returns true if a dma-heap holds the frames of these bytes in place, known or not.
    pub(crate) fn is_held(&self, start: usize, len_bytes: usize) -> bool {
        let Some(end) = start.checked_add(len_bytes.saturating_sub(1)) else { return false };
        let places = (self.pages.chunk_of(start), self.pages.chunk_of(end));
        let (Some((first, _)), Some((last, _))) = places else { return false };
        (first..=last).all(|chunk| self.pages.is(chunk, Chunk::Heap))
    }

    /// Returns one of the reserve's extents, which ascend by frame.
    pub(crate) fn extent(&self, index: usize) -> Option<ReserveExtent> {
        let reserve = self.reserve.as_ref()?;
        let run = reserve.run(index)?;
        let known = !reserve.is_simulated(run.frame);
        Some(ReserveExtent {
            address: self.pages.address(run.chunk as usize).addr(),
            len_bytes: u64::from(run.chunks) * CHUNK_BYTES as u64,
            physical: known.then(|| PhysAddr::new(run.frame * BASE_PAGE_BYTES)),
            pages: self.pages.of(run.chunk as usize)?,
        })
    }
}

// SAFETY: `Runs` has each unit in use at most once, and their chunks are made usable before.
unsafe impl SegmentSource for Backing {
    const PAGE_UNITS: u32 = CHUNK_UNITS;

    fn make_usable(&self) -> Option<&'static dyn MakeUsable> {
        Some(self.pages)
    }

    fn reads_zero(&self) -> bool {
        true
    }

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        self.runs.acquire(units, align_units)
    }

    fn acquire_segment(&mut self, units: u32, align_units: u32) -> Option<u32> {
        // Addresses and frames are multiples of a chunk together.
        if align_units <= CHUNK_UNITS
            && let Some(reserve) = &mut self.reserve
        {
            let align_bytes = u64::from(align_units) * UNIT_BYTES as u64;
            let placement = Placement { align_bytes, ..Placement::ANY };
            if let Some(first) = reserve.acquire(units, &placement) {
                return Some(first);
            }
        }
        self.acquire(units, align_units)
    }

    fn acquire_placed(&mut self, units: u32, placement: &Placement) -> Option<u32> {
        self.reserve.as_mut()?.acquire(units, placement)
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        if let Some(frame) = self.frame(first) {
            let end = frame + u64::from(units) * UNIT_FRAMES;
            // The addresses behind an extent are a hole.
            let inside = self.frame(first + units).is_some();
            let reserve = self.reserve.as_mut();
            return inside && reserve.is_some_and(|reserve| reserve.acquire_at(end, more));
        }
        self.runs.extend(first + units, more)
    }

    fn release(&mut self, first: u32, units: u32) {
        match (self.frame(first), &mut self.reserve) {
            (Some(frame), Some(reserve)) => reserve.release(frame, units),
            _ => self.runs.release(first, units),
        }
    }

    /// Only whole chunks, which are reserved addresses again once
    /// [`take_purging`](Self::take_purging) was called: a hole in a huge page would break it up. Pages of
    /// 1 GiB stay, and so does the reserve.
    fn purge(&mut self, first: u32, units: u32) -> bool {
        let end = first + units;
        let mut from = (first / CHUNK_UNITS) as usize;
        let mut to = end.div_ceil(CHUNK_UNITS) as usize;
        // Of the first and the last chunk other units may be in use.
        while from < to && self.runs.is_used(from) {
            from += 1;
        }
        while from < to && self.runs.is_used(to - 1) {
            to -= 1;
        }
        let all = from as u32 * CHUNK_UNITS <= first && end <= to as u32 * CHUNK_UNITS;
        let stays = |chunk: usize| self.pages.is(chunk, Chunk::Giant) || self.frames[chunk] != 0;
        if from >= to || (from..to).any(stays) {
            return false;
        }
        if (from..to).all(|chunk| self.pages.is(chunk, Chunk::Reserved)) {
            return all;
        }
        // The pool asks in the order of the units: the last run may go on.
        let goes_on = |run: &Range<usize>| run.start < run.end && run.end == from;
        let is_free = |run: &Range<usize>| run.start >= run.end;
        let place = self.purging.iter().position(goes_on);
        let Some(place) = place.or_else(|| self.purging.iter().position(is_free)) else {
            return false;
        };
        let held = (to - from) as u32 * CHUNK_UNITS;
        if !self.runs.extend(from as u32 * CHUNK_UNITS, held) {
            return false;
        }
        let run = &mut self.purging[place];
        *run = if is_free(run) { from..to } else { run.start..to };
        all
    }

    /// Without the memory for the copies, parent and child share the pools' pages, and the child has none of
    /// a heap's.
    fn before_fork(&mut self) {
        if self.copy_reserved() {
            self.keep_reserved(true);
        }
    }

    fn after_fork_in_parent(&mut self) {
        if self.copies.take().is_some() {
            self.keep_reserved(false);
        }
    }

    fn after_fork_in_child(&mut self) {
        let copies = self.copies.take();
        let mut from = 0;
        while let Some((copies, first)) = &copies
            && let Some(run) = self.next_reserved(from)
        {
            from = run.end;
            let to = self.pages.address(run.start);
            // SAFETY: the copies move to where their contents are from, of which the child has nothing;
            // it has no other thread.
            unsafe { copies.move_some(run.start - first, run.len(), to) };
            let what = if self.pages.is_thp() { Chunk::Advised } else { Chunk::Small };
            self.pages.publish(run.start, run.len(), what);
        }
        if self.dontfork {
            self.forget_reserve();
        }
        self.pages.after_fork_in_child(self.runs.end());
    }
}

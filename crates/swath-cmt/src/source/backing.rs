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
//! A fork's child that shares a page of a hugetlb pool with its parent is ended by the kernel if
//! either writes to it and the pool has no page for the copy. So what is in use of them is copied to
//! ordinary pages before the fork; the child has the copies, and none of the pool's pages.

use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use swath_arch::{BASE_PAGE_BYTES, PhysAddr};
use swath_pool::{Placement, SegmentSource, UNIT_BYTES};

use crate::options::{Hugetlb, Options, Populate};
use crate::reserve::extent::{Pages, ReserveExtent};
use crate::reserve::frames::{CHUNK_FRAMES, Frames, Run, UNIT_FRAMES};
use crate::reserve::stock::{Stock, Wanted};
use crate::source::chunk::{CHUNK_BYTES, CHUNK_UNITS, Chunk, Chunks, GIANT_BYTES, GIANT_CHUNKS};
use crate::source::mapping::{make_usable, move_pages, place_huge, touch};
use crate::source::runs::{Runs, pieces};
use crate::source::scratch::Scratch;

/// The most chunks that one segment's populating orders at once; longer segments are ordered
/// piece by piece.
const ORDER_MAX: usize = 1024;

/// True if the library overrides `malloc`: its programs do not expect that memory is touched before they
/// touch it, nor that the pages of the hugetlb pools go.
static OVERRIDES: AtomicBool = AtomicBool::new(false);

/// Sets the meaning of [`Populate::Default`] and [`Hugetlb::Default`] for a library that overrides
/// `malloc`: its programs know nothing of this one, so no memory is touched before they touch it, and
/// the kernel's hugetlb pools are left to those for whom they were made.
pub fn override_malloc() {
    OVERRIDES.store(true, Relaxed);
}

/// The kernel's pages as a buffer pool's source.
pub(crate) struct Backing {
    runs: Runs,
    /// Units that fault at every access, by chunk. Those of them that are free are such that the
    /// kernel did not make usable again.
    guarded: &'static mut [u32],
    base: *mut u8,
    chunks: &'static mut [u8],
    /// The first frame of each chunk of the reserve; 0 for the others.
    frames: &'static mut [u64],
    reserve: Option<Frames>,
    counts: Chunks,
    hugetlb: Hugetlb,
    thp: bool,
    populate: Populate,
    /// True if populated chunks are ordered: physical addresses are known.
    order: bool,
    /// During a fork: what is in use of the pools' pages, at the places that the chunks have in the
    /// arena.
    copies: Option<Scratch>,
}

// SAFETY: it owns the arena; the pointer is not shared.
unsafe impl Send for Backing {}

/// The tables of a backing, with a record for each chunk; all zeroes.
pub(crate) struct Records {
    pub(crate) used: &'static mut [u32],
    /// Of [`Runs::tree_bytes`] bytes.
    pub(crate) tree: &'static mut [u8],
    pub(crate) guarded: &'static mut [u32],
    pub(crate) chunks: &'static mut [u8],
    pub(crate) frames: &'static mut [u64],
}

impl Backing {
    /// Makes the backing of the arena from `base` on, reserved, of as many chunks as there are records.
    ///
    /// # Safety
    /// The range is mapped without access, aligned to a chunk, and used by nothing else.
    pub(crate) unsafe fn new(
        base: *mut u8,
        records: Records,
        options: &Options,
        order: bool,
    ) -> Self {
        let Records { used, tree, guarded, chunks, frames } = records;
        Self {
            runs: Runs::new(used, tree, base.addr() / CHUNK_BYTES),
            guarded,
            base,
            chunks,
            frames,
            reserve: None,
            counts: Chunks::default(),
            hugetlb: options.hugetlb,
            thp: options.thp,
            populate: options.populate,
            order: order && options.thp,
            copies: None,
        }
    }

    /// Counts the chunks by what backs them.
    pub(crate) fn counts(&self) -> Chunks {
        self.counts
    }

    pub(crate) fn address(&self, chunk: usize) -> *mut u8 {
        self.base.wrapping_add(chunk * CHUNK_BYTES)
    }

    /// Notes that the chunks are made of this from now on.
    fn note(&mut self, chunk: usize, count: usize, what: Chunk) {
        for was in &mut self.chunks[chunk..chunk + count] {
            if let Some(counter) = self.counts.of(*was) {
                *counter -= 1;
            }
            *was = what as u8;
        }
        if let Some(counter) = self.counts.of(what as u8) {
            *counter += count as u64;
        }
    }

    fn is(&self, chunk: usize, what: Chunk) -> bool {
        self.chunks[chunk] == what as u8
    }

    /// Makes units usable that the kernel did not make so at the end of a guard, and returns true if none
    /// is left.
    fn unguard(&mut self, first: u32, units: u32) -> bool {
        !pieces(first, units).any(|(chunk, mask)| self.guarded[chunk] & mask != 0)
            || self.protect(first, units, false)
    }

    /// Makes the chunks of some units usable; on failure those that became so stay.
    fn prepare(&mut self, first: u32, units: u32) -> bool {
        if !self.unguard(first, units) {
            return false;
        }
        let populate = units > CHUNK_UNITS
            && match self.populate {
                Populate::Never => false,
                Populate::Always => true,
                Populate::Default => !OVERRIDES.load(Relaxed),
            };
        let end = ((first + units).div_ceil(CHUNK_UNITS)) as usize;
        let mut at = (first / CHUNK_UNITS) as usize;
        while at < end {
            if !self.is(at, Chunk::Reserved) {
                at += 1;
                continue;
            }
            let reserved = self.chunks[at..end].iter().take_while(|&&chunk| chunk == 0).count();
            let prepared = self.prepare_run(at, reserved, populate);
            if prepared == 0 {
                return false;
            }
            at += prepared;
        }
        true
    }

    /// Makes units of chunks in use fault at every access, or usable, and returns true if it could.
    fn protect(&mut self, first: u32, units: u32, on: bool) -> bool {
        let access = if on { libc::PROT_NONE } else { libc::PROT_READ | libc::PROT_WRITE };
        let at = self.base.wrapping_add(first as usize * UNIT_BYTES);
        // SAFETY: units that the pool has acquired, and no block's.
        if unsafe { libc::mprotect(at.cast(), units as usize * UNIT_BYTES, access) } != 0 {
            return false;
        }
        for (chunk, mask) in pieces(first, units) {
            let word = &mut self.guarded[chunk];
            *word = if on { *word | mask } else { *word & !mask };
        }
        true
    }

    /// Makes some of `count` reserved chunks from `chunk` on usable, populates them if told to, and
    /// returns their number.
    fn prepare_run(&mut self, chunk: usize, count: usize, populate: bool) -> usize {
        let at = self.address(chunk);
        let hugetlb = match self.hugetlb {
            Hugetlb::Never => false,
            Hugetlb::Always => true,
            Hugetlb::Default => !OVERRIDES.load(Relaxed),
        };
        if hugetlb {
            let flags = if populate { libc::MAP_POPULATE } else { 0 };
            if count >= GIANT_CHUNKS
                && at.addr().is_multiple_of(GIANT_BYTES)
                && place_huge(at, GIANT_BYTES, libc::MAP_HUGE_1GB | flags)
            {
                self.note(chunk, GIANT_CHUNKS, Chunk::Giant);
                return GIANT_CHUNKS;
            }
            if place_huge(at, CHUNK_BYTES, libc::MAP_HUGE_2MB | flags) {
                self.note(chunk, 1, Chunk::Huge);
                return 1;
            }
        }
        // Up to where a page of 1 GiB could begin.
        let to_giant = (GIANT_BYTES - at.addr() % GIANT_BYTES) / CHUNK_BYTES;
        let count = count.min(to_giant);
        if self.order && populate {
            let placed = self.place_ordered(chunk, count.min(ORDER_MAX * 4 / 5));
            if placed > 0 {
                return placed;
            }
        }
        let len = count * CHUNK_BYTES;
        // SAFETY: reserved addresses of the arena, which nothing uses yet.
        let Some(advised) = (unsafe { make_usable(at, len, self.thp) }) else { return 0 };
        self.note(chunk, count, if advised { Chunk::Advised } else { Chunk::Small });
        if populate {
            // A page that is missing now is tried again at the first touch.
            // SAFETY: as above.
            unsafe { touch(at, len) };
        }
        count
    }

    /// Finds the first run of neighbouring chunks of the hugetlb pools that begins at `from` or
    /// behind it.
    fn next_pooled(&self, from: usize) -> Option<Range<usize>> {
        let pooled = |&what: &u8| what == Chunk::Huge as u8 || what == Chunk::Giant as u8;
        let chunks = &self.chunks[..self.runs.end()];
        let first = from + chunks.get(from..)?.iter().position(pooled)?;
        let count = chunks[first..].iter().take_while(|what| pooled(what)).count();
        Some(first..first + count)
    }

    /// Returns true if a unit of the chunk is in use.
    fn is_used(&self, chunk: usize) -> bool {
        match (self.frames[chunk], &self.reserve) {
            (frame @ 1.., Some(reserve)) => !reserve.is_free(frame),
            _ => self.runs.is_used(chunk),
        }
    }

    /// Fills `count` reserved chunks from `chunk` on with the best of some more, and returns the
    /// number that it filled: all, or none if there are no huge pages.
    fn place_ordered(&mut self, chunk: usize, count: usize) -> usize {
        let more = count.div_ceil(4).min(ORDER_MAX - count);
        let wanted = Wanted { pages: count, more, per_run: 0, run: 0 };
        let Some(mut stock) = Stock::take(Pages::Transparent, wanted, true) else {
            return 0;
        };
        if stock.chosen() < count {
            return 0;
        }
        let mut placed = 0;
        for index in 0..stock.runs() {
            let (len, _) = stock.run(index);
            // SAFETY: reserved addresses of the arena, which nothing uses yet; each run moves once.
            let moved = unsafe { stock.move_run(index, self.address(chunk + placed)) };
            placed += moved;
            if moved < len {
                break;
            }
        }
        self.note(chunk, placed, Chunk::Advised);
        self.counts.ordered += placed as u64;
        placed
    }
}

/// The reserve.
impl Backing {
    pub(crate) fn has_reserve(&self) -> bool {
        self.reserve.is_some()
    }

    /// Begins a reserve, unless there is one.
    pub(crate) fn begin_reserve(&mut self, frames: Frames) {
        self.reserve.get_or_insert(frames);
    }

    /// Acquires addresses for an extent, the first at a multiple of `align` chunks, with a hole at each
    /// end; returns the first chunk between the holes and its address.
    pub(crate) fn place_extent(&mut self, chunks: usize, align: usize) -> Option<(u32, *mut u8)> {
        let units = |chunks: usize| u32::try_from(chunks).ok()?.checked_mul(CHUNK_UNITS);
        let first = self.runs.acquire(units(align.checked_add(chunks)? + 1)?, units(align)?)?;
        let chunk = first as usize / CHUNK_UNITS as usize + align;
        Some((chunk as u32, self.address(chunk)))
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
        let known = frame.filter(|&frame| reserve.enter(run(frame)));
        let simulated = || {
            let frame = reserve.simulate(chunks as u32)?;
            reserve.enter(run(frame)).then_some(frame)
        };
        let Some(frame) = known.or_else(simulated) else { return 0 };
        let places = &mut self.frames[chunk as usize..chunk as usize + chunks];
        for (place, frame) in places.iter_mut().zip((frame..).step_by(CHUNK_FRAMES as usize)) {
            *place = frame;
        }
        self.note(chunk as usize, chunks, pages.chunk());
        chunks
    }

    /// Returns units of the reserve if they are usable; else they are released.
    fn unguarded(&mut self, first: u32, units: u32) -> Option<u32> {
        if self.unguard(first, units) {
            return Some(first);
        }
        self.release(first, units);
        None
    }

    /// Returns the frame of a unit of the reserve, if it is one.
    fn frame(&self, unit: u32) -> Option<u64> {
        let frame = self.frames[(unit / CHUNK_UNITS) as usize];
        (frame != 0).then(|| frame + u64::from(unit % CHUNK_UNITS) * UNIT_FRAMES)
    }

    /// Returns the frames of the reserve's longest free run.
    pub(crate) fn reserve_longest(&self) -> u64 {
        self.reserve.as_ref().map_or(0, Frames::longest_frames)
    }

    /// Returns the reserve's free frames and the number of its free runs.
    pub(crate) fn reserve_free(&self) -> (u64, u64) {
        let free = |reserve: &Frames| (reserve.free_frames(), reserve.free_runs());
        self.reserve.as_ref().map_or((0, 0), free)
    }

    /// Returns one of the reserve's extents, which ascend by frame.
    pub(crate) fn extent(&self, index: usize) -> Option<ReserveExtent> {
        let reserve = self.reserve.as_ref()?;
        let run = reserve.run(index)?;
        let known = !reserve.is_simulated(run.frame);
        Some(ReserveExtent {
            address: self.address(run.chunk as usize).addr(),
            len_bytes: u64::from(run.chunks) * CHUNK_BYTES as u64,
            physical: known.then(|| PhysAddr::new(run.frame * BASE_PAGE_BYTES)),
            pages: Pages::of(self.chunks[run.chunk as usize])?,
        })
    }
}

// SAFETY: `Runs` has each unit in use at most once, and their chunks are made usable before.
unsafe impl SegmentSource for Backing {
    const PAGE_UNITS: u32 = CHUNK_UNITS;

    fn reads_zero(&self) -> bool {
        true
    }

    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32> {
        let first = self.runs.acquire(units, align_units)?;
        if !self.prepare(first, units) {
            self.runs.release(first, units);
            return None;
        }
        Some(first)
    }

    fn acquire_segment(&mut self, units: u32, align_units: u32) -> Option<u32> {
        // Addresses and frames are multiples of a chunk together.
        if align_units <= CHUNK_UNITS
            && let Some(reserve) = &mut self.reserve
        {
            let align_bytes = u64::from(align_units) * UNIT_BYTES as u64;
            let placement = Placement { align_bytes, ..Placement::ANY };
            if let Some(first) = reserve.acquire(units, &placement) {
                return self.unguarded(first, units);
            }
        }
        self.acquire(units, align_units)
    }

    fn acquire_placed(&mut self, units: u32, placement: &Placement) -> Option<u32> {
        let first = self.reserve.as_mut()?.acquire(units, placement)?;
        self.unguarded(first, units)
    }

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        if let Some(frame) = self.frame(first) {
            let end = frame + u64::from(units) * UNIT_FRAMES;
            // The addresses behind an extent are a hole.
            let inside = self.frame(first + units).is_some();
            let reserve = self.reserve.as_mut();
            return inside && reserve.is_some_and(|reserve| reserve.acquire_at(end, more));
        }
        if !self.runs.extend(first + units, more) {
            return false;
        }
        let ready = self.prepare(first + units, more);
        if !ready {
            self.runs.release(first + units, more);
        }
        ready
    }

    fn release(&mut self, first: u32, units: u32) {
        match (self.frame(first), &mut self.reserve) {
            (Some(frame), Some(reserve)) => reserve.release(frame, units),
            _ => self.runs.release(first, units),
        }
    }

    /// Only whole chunks, which are reserved addresses again then: a hole in a huge page would break
    /// it up. Pages of 1 GiB stay, and so does the reserve.
    fn purge(&mut self, first: u32, units: u32) -> bool {
        let from = first.div_ceil(CHUNK_UNITS) as usize;
        let to = ((first + units) / CHUNK_UNITS) as usize;
        let stays = |chunk: usize| self.is(chunk, Chunk::Giant) || self.frames[chunk] != 0;
        if from >= to || (from..to).any(stays) {
            return false;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let (at, len) = (self.address(from).cast(), (to - from) * CHUNK_BYTES);
        // SAFETY: chunks of the arena in which no unit is in use.
        if unsafe { libc::mmap(at, len, libc::PROT_NONE, flags, -1, 0) } == libc::MAP_FAILED {
            return false;
        }
        self.guarded[from..to].fill(0);
        self.note(from, to - from, Chunk::Reserved);
        first.is_multiple_of(CHUNK_UNITS) && units.is_multiple_of(CHUNK_UNITS)
    }

    fn guard(&mut self, first: u32, units: u32, on: bool) {
        let chunk = (first / CHUNK_UNITS) as usize;
        if self.is(chunk, Chunk::Huge) || self.is(chunk, Chunk::Giant) {
            return;
        }
        // What stays guarded is tried again when it is wanted.
        self.protect(first, units, on);
    }

    /// Without the memory for the copies, parent and child share the pool's pages.
    fn before_fork(&mut self) {
        if self.next_pooled(0).is_none() {
            return;
        }
        let Some(copies) = Scratch::reserve(self.runs.end()) else { return };
        if self.thp {
            let len = self.runs.end() * CHUNK_BYTES;
            // SAFETY: within the mapping; advice changes no contents.
            unsafe { libc::madvise(copies.start.cast(), len, libc::MADV_HUGEPAGE) };
        }
        let mut from = 0;
        while let Some(run) = self.next_pooled(from) {
            from = run.end;
            for chunk in run.filter(|&chunk| self.is_used(chunk)) {
                let (copy, content) = (copies.at(chunk), self.address(chunk));
                // SAFETY: a chunk of the arena that is all there, and its place among the copies. What
                // other threads write meanwhile the child has or has not, as in any fork; it is foreign
                // code that reads it, as the kernel would.
                unsafe { libc::memcpy(copy.cast(), content.cast(), CHUNK_BYTES) };
            }
        }
        self.copies = Some(copies);
    }

    fn after_fork_in_parent(&mut self) {
        self.copies = None;
    }

    fn after_fork_in_child(&mut self) {
        let Some(copies) = self.copies.take() else { return };
        let mut from = 0;
        while let Some(run) = self.next_pooled(from) {
            from = run.end;
            let len = run.len() * CHUNK_BYTES;
            // SAFETY: the copies move to where their content is from, which nothing else is to.
            unsafe { move_pages(copies.at(run.start), self.address(run.start), len) };
            self.note(run.start, run.len(), if self.thp { Chunk::Advised } else { Chunk::Small });
        }
    }
}

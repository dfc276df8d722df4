//! The backing of the arena: pages of the kernel, as large as it has them.
//!
//! Addresses are reserved once and without access. Memory comes in **chunks** of 2 MiB, when
//! the first unit of a chunk is acquired: from the hugetlb pools (1 GiB for a
//! segment that holds one whole, else 2 MiB), else as ordinary pages for which a transparent huge
//! page is asked. So whatever lies within a chunk is contiguous in physical memory if the kernel has
//! a huge page to give.
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

use swath_pool::{SegmentSource, UNIT_BYTES};

use crate::options::{Options, Populate};
use crate::physical::page_map::PageMap;
use crate::source::choose::choose;
use crate::source::chunk::{CHUNK_BYTES, CHUNK_UNITS, Chunk, Chunks, GIANT_BYTES, GIANT_CHUNKS};
use crate::source::mapping::{MOVE, map_huge};
use crate::source::runs::{Runs, pieces};
use crate::source::scratch::Scratch;

const PAGE_BYTES: usize = 4096;

/// The most chunks that one segment's populating orders at once; longer segments are ordered
/// piece by piece.
const ORDER_MAX: usize = 1024;

/// True if segments are populated where the options do not say.
static POPULATE: AtomicBool = AtomicBool::new(true);

/// Sets the meaning of [`Populate::Default`]. A library that overrides `malloc` sets it to false:
/// its programs do not expect that memory is touched before they touch it.
pub fn set_populate_default(populate: bool) {
    POPULATE.store(populate, Relaxed);
}

/// The kernel's pages as a buffer pool's source.
pub(crate) struct Backing {
    runs: Runs,
    /// Units that fault at every access, by chunk. Those of them that are free are such that the
    /// kernel did not make usable again.
    guarded: &'static mut [u32],
    base: *mut u8,
    chunks: &'static mut [u8],
    counts: Chunks,
    hugetlb: bool,
    thp: bool,
    populate: Populate,
    /// True if populated chunks are ordered: physical addresses are known.
    order: bool,
    /// While populating: the first frame of a chunk, and the chunk's number.
    found: &'static mut [u64],
    /// During a fork: what is in use of the pools' pages, at the places that the chunks have in the
    /// arena.
    copies: Option<Scratch>,
}

// SAFETY: it owns the arena; the pointer is not shared.
unsafe impl Send for Backing {}

/// Number of words that a backing keeps beside its bits, for populating.
pub(crate) const FOUND_WORDS: usize = 2 * ORDER_MAX;

impl Backing {
    /// Makes the backing of the arena from `base` on, reserved, of as many chunks as `chunks` and two tables of units have,
    /// which are zeroed.
    ///
    /// # Safety
    /// The range is mapped without access, aligned to a chunk, and used by nothing else.
    pub(crate) unsafe fn new(
        base: *mut u8,
        [used, guarded]: [&'static mut [u32]; 2],
        chunks: &'static mut [u8],
        found: &'static mut [u64],
        options: &Options,
        order: bool,
    ) -> Self {
        Self {
            runs: Runs::new(used, base.addr() / CHUNK_BYTES),
            guarded,
            base,
            chunks,
            counts: Chunks::default(),
            hugetlb: options.hugetlb,
            thp: options.thp,
            populate: options.populate,
            order: order && options.thp,
            found,
            copies: None,
        }
    }

    /// Counts the chunks by what backs them.
    pub(crate) fn counts(&self) -> Chunks {
        self.counts
    }

    fn address(&self, chunk: usize) -> *mut u8 {
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

    /// Makes the chunks of some units usable; on failure those that became so stay.
    fn prepare(&mut self, first: u32, units: u32) -> bool {
        if pieces(first, units).any(|(chunk, mask)| self.guarded[chunk] & mask != 0)
            && !self.protect(first, units, false)
        {
            return false;
        }
        let populate = units > CHUNK_UNITS
            && match self.populate {
                Populate::Never => false,
                Populate::Always => true,
                Populate::Default => POPULATE.load(Relaxed),
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
        if self.hugetlb {
            let flags = if populate { libc::MAP_POPULATE } else { 0 };
            if count >= GIANT_CHUNKS
                && at.addr().is_multiple_of(GIANT_BYTES)
                && map_huge(at, GIANT_BYTES, libc::MAP_HUGE_1GB | flags)
            {
                self.note(chunk, GIANT_CHUNKS, Chunk::Giant);
                return GIANT_CHUNKS;
            }
            if map_huge(at, CHUNK_BYTES, libc::MAP_HUGE_2MB | flags) {
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
        if unsafe { libc::mprotect(at.cast(), len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return 0;
        }
        // SAFETY: as above; advice changes no contents.
        let advised =
            self.thp && unsafe { libc::madvise(at.cast(), len, libc::MADV_HUGEPAGE) } == 0;
        self.note(chunk, count, if advised { Chunk::Advised } else { Chunk::Small });
        if populate {
            // SAFETY: as above. A page that is missing now is tried again at the first touch.
            unsafe { libc::madvise(at.cast(), len, libc::MADV_POPULATE_WRITE) };
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

    /// Fills `count` reserved chunks from `chunk` on with the best of some more, and returns the
    /// number that it filled: all, or none if there are no huge pages.
    fn place_ordered(&mut self, chunk: usize, count: usize) -> usize {
        let tried = (count + count.div_ceil(4)).min(ORDER_MAX);
        let Some(scratch) = Scratch::touched(tried) else { return 0 };
        let mut found = 0;
        let Some(map) = PageMap::open() else { return 0 };
        for index in 0..tried {
            let at = scratch.at(index).addr();
            if let Some(frame) = map.contiguous(at, CHUNK_BYTES / PAGE_BYTES) {
                self.found[2 * found] = frame;
                self.found[2 * found + 1] = index as u64;
                found += 1;
            }
        }
        if found < count {
            return 0;
        }
        let (pairs, _) = self.found[..2 * found].as_chunks_mut::<2>();
        pairs.sort_unstable();
        choose(pairs, count);
        for place in 0..count {
            let index = self.found[2 * place + 1] as usize;
            let from = scratch.at(index);
            let to = self.address(chunk + place);
            // SAFETY: a chunk of the scratch range, moved once; the place is reserved and unused.
            let moved = unsafe { libc::mremap(from.cast(), CHUNK_BYTES, CHUNK_BYTES, MOVE, to) };
            if moved == libc::MAP_FAILED {
                self.note(chunk, place, Chunk::Advised);
                self.counts.ordered += place as u64;
                return place;
            }
        }
        self.note(chunk, count, Chunk::Advised);
        self.counts.ordered += count as u64;
        count
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

    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
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
        self.runs.release(first, units);
    }

    /// Only whole chunks, which are reserved addresses again then: a hole in a huge page would break
    /// it up. Pages of 1 GiB stay.
    fn purge(&mut self, first: u32, units: u32) -> bool {
        let from = first.div_ceil(CHUNK_UNITS) as usize;
        let to = ((first + units) / CHUNK_UNITS) as usize;
        if from >= to || self.chunks[from..to].contains(&(Chunk::Giant as u8)) {
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
            for chunk in run.filter(|&chunk| self.runs.is_used(chunk)) {
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
            let (at, len) = (copies.at(run.start).cast(), run.len() * CHUNK_BYTES);
            // SAFETY: the copies move to where their content is from.
            unsafe { libc::mremap(at, len, len, MOVE, self.address(run.start)) };
            self.note(run.start, run.len(), if self.thp { Chunk::Advised } else { Chunk::Small });
        }
    }
}

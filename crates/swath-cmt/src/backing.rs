//! What backs the arena: pages of the kernel, as large as it gives them.
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
use core::ptr;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;

use swath_pool::pool::{SegmentSource, UNIT_BYTES};

use crate::choice::cmt_options;
use crate::physical::PageMap;
use crate::runs::{Runs, pieces};

/// Bytes of a chunk: a huge page of x86-64 and of ARMv8 with granule 4 KiB.
pub const CHUNK_BYTES: usize = 2 << 20;
pub const CHUNK_UNITS: u32 = (CHUNK_BYTES / UNIT_BYTES) as u32;
/// Chunks of a page of 1 GiB.
const GIANT_CHUNKS: usize = 512;
const GIANT_BYTES: usize = GIANT_CHUNKS * CHUNK_BYTES;
const PAGE_BYTES: usize = 4096;

/// What a chunk is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Chunk {
    /// Nothing yet.
    Reserved = 0,
    /// Ordinary pages.
    Small = 1,
    /// Ordinary pages, and a transparent huge page asked for.
    Advised = 2,
    /// A page of the hugetlb pool.
    Huge = 3,
    /// A part of a page of 1 GiB.
    Giant = 4,
}

/// Chunks by what they are made of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Chunks {
    pub small: u64,
    pub advised: u64,
    pub huge: u64,
    pub giant: u64,
    /// Those that were picked and ordered by their frames.
    pub ordered: u64,
}

impl Chunks {
    fn of(&mut self, what: u8) -> Option<&mut u64> {
        Some(match what {
            what if what == Chunk::Small as u8 => &mut self.small,
            what if what == Chunk::Advised as u8 => &mut self.advised,
            what if what == Chunk::Huge as u8 => &mut self.huge,
            what if what == Chunk::Giant as u8 => &mut self.giant,
            _ => return None,
        })
    }
}

/// The most chunks that one segment's populating orders at once; longer segments are ordered
/// piece by piece.
const ORDER_MAX: usize = 1024;

/// Whether segments are populated where the options do not say.
pub static POPULATE: AtomicBool = AtomicBool::new(true);

/// The kernel's pages as a buffer pool's source.
pub struct Backing {
    runs: Runs,
    /// Units that fault at every access, by chunk. Those of them that are free are such that the
    /// kernel did not make usable again.
    guarded: &'static mut [u32],
    base: *mut u8,
    chunks: &'static mut [u8],
    counts: Chunks,
    hugetlb: bool,
    thp: bool,
    populate: u32,
    /// Whether populated chunks are ordered: physical addresses are known.
    order: bool,
    /// While populating: the first frame of a chunk, and which it is.
    found: &'static mut [u64],
    /// During a fork: what is in use of the pools' pages, at the places that the chunks have in the
    /// arena.
    copies: Option<Scratch>,
}

// SAFETY: it owns the arena; the pointer is not shared.
unsafe impl Send for Backing {}

/// Words that a backing keeps beside its bits, for populating.
pub const FOUND_WORDS: usize = 2 * ORDER_MAX;

impl Backing {
    /// The arena from `base` on, reserved, of as many chunks as `chunks` and two tables of units have,
    /// which are zeroed.
    ///
    /// # Safety
    /// The range is mapped without access, aligned to a chunk, and nobody else's.
    pub unsafe fn new(
        base: *mut u8,
        [used, guarded]: [&'static mut [u32]; 2],
        chunks: &'static mut [u8],
        found: &'static mut [u64],
        options: &cmt_options,
        order: bool,
    ) -> Self {
        Self {
            runs: Runs::new(used, base.addr() / CHUNK_BYTES),
            guarded,
            base,
            chunks,
            counts: Chunks::default(),
            hugetlb: options.hugetlb != 0,
            thp: options.thp != 0,
            populate: options.populate,
            order: order && options.thp != 0,
            found,
            copies: None,
        }
    }

    pub fn counts(&self) -> Chunks {
        self.counts
    }

    fn address(&self, chunk: usize) -> *mut u8 {
        self.base.wrapping_add(chunk * CHUNK_BYTES)
    }

    /// The chunks are made of this from now on.
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
                0 | 1 => self.populate == 1,
                _ => POPULATE.load(Relaxed),
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

    /// Makes units of chunks in use fault at every access, or usable; whether it could.
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

    /// Makes some of `count` reserved chunks from `chunk` on usable, and populates them if told to;
    /// how many.
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
        // Up to where a page of 1 GiB could be had.
        let to_giant = (GIANT_BYTES - at.addr() % GIANT_BYTES) / CHUNK_BYTES;
        let count = count.min(to_giant);
        if self.order && populate {
            let placed = self.place_ordered(chunk, count.min(ORDER_MAX * 4 / 5));
            if placed > 0 {
                return placed;
            }
        }
        let len = count * CHUNK_BYTES;
        // SAFETY: reserved addresses of the arena, which nobody uses yet.
        if unsafe { libc::mprotect(at.cast(), len, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return 0;
        }
        // SAFETY: as above; advice changes no contents.
        let advised =
            self.thp && unsafe { libc::madvise(at.cast(), len, libc::MADV_HUGEPAGE) } == 0;
        self.note(chunk, count, if advised { Chunk::Advised } else { Chunk::Small });
        if populate {
            // SAFETY: as above. Memory that cannot be had now is had at the first touch, or not.
            unsafe { libc::madvise(at.cast(), len, libc::MADV_POPULATE_WRITE) };
        }
        count
    }

    /// The first run of neighbouring chunks of the hugetlb pools that begins at `from` or behind it:
    /// its chunks.
    fn next_pooled(&self, from: usize) -> Option<Range<usize>> {
        let pooled = |&what: &u8| what == Chunk::Huge as u8 || what == Chunk::Giant as u8;
        let chunks = &self.chunks[..self.runs.end()];
        let first = from + chunks.get(from..)?.iter().position(pooled)?;
        let count = chunks[first..].iter().take_while(|what| pooled(what)).count();
        Some(first..first + count)
    }

    /// Fills `count` reserved chunks from `chunk` on with the best of some more; how many it filled: all,
    /// or none if huge pages are not to be had.
    fn place_ordered(&mut self, chunk: usize, count: usize) -> usize {
        let tried = (count + count.div_ceil(4)).min(ORDER_MAX);
        let Some(scratch) = Scratch::new(tried) else { return 0 };
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

/// Of chunks sorted by frame keeps the `count` that make the fewest runs, in order, at the front:
/// whole runs from the longest on, then the beginning of another.
fn choose(pairs: &mut [[u64; 2]], count: usize) {
    const STEP: u64 = (CHUNK_BYTES / PAGE_BYTES) as u64;
    let follows = |pairs: &[[u64; 2]], at: usize| at > 0 && pairs[at][0] == pairs[at - 1][0] + STEP;
    // Drops what is too much from the shortest runs, the last of them first.
    let mut len = pairs.len();
    while len > count {
        let (mut shortest, mut best) = (0..0, usize::MAX);
        let mut start = 0;
        for end in 1..=len {
            if end == len || !follows(pairs, end) {
                if end - start <= best {
                    (best, shortest) = (end - start, start..end);
                }
                start = end;
            }
        }
        let drop = best.min(len - count);
        pairs.copy_within(shortest.end..len, shortest.end - drop);
        len -= drop;
    }
}

/// Moves a mapping to a fixed address.
const MOVE: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;

/// Chunks elsewhere; what is not moved away goes back in the end.
struct Scratch {
    mapped: *mut u8,
    mapped_len: usize,
    /// The first chunk.
    start: *mut u8,
}

impl Scratch {
    /// Chunks that are not touched yet.
    fn reserve(chunks: usize) -> Option<Self> {
        let mapped_len = (chunks + 1) * CHUNK_BYTES;
        let mapped = map(mapped_len, libc::PROT_READ | libc::PROT_WRITE)?;
        let start = mapped.wrapping_add(mapped.align_offset(CHUNK_BYTES));
        Some(Self { mapped, mapped_len, start })
    }

    fn at(&self, chunk: usize) -> *mut u8 {
        self.start.wrapping_add(chunk * CHUNK_BYTES)
    }

    /// Touched chunks, if the memory for them is there.
    fn new(chunks: usize) -> Option<Self> {
        let (scratch, len) = (Self::reserve(chunks)?, chunks * CHUNK_BYTES);
        let start = scratch.start.cast();
        // SAFETY: within the mapping, which nobody else has.
        let touched = unsafe {
            libc::madvise(start, len, libc::MADV_HUGEPAGE) == 0
                && libc::madvise(start, len, libc::MADV_POPULATE_WRITE) == 0
        };
        touched.then_some(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; chunks that moved away are holes in it, which is allowed.
        unsafe { unmap(self.mapped, self.mapped_len) };
    }
}

/// Gives back what [`map`] mapped.
///
/// # Safety
/// Nobody uses it.
pub unsafe fn unmap(at: *mut u8, len_bytes: usize) {
    // SAFETY: as the caller says.
    unsafe { libc::munmap(at.cast(), len_bytes) };
}

/// Zeroed memory of the process, or reserved addresses with `PROT_NONE`.
pub fn map(len_bytes: usize, access: i32) -> Option<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel wants it.
    let at = unsafe { libc::mmap(ptr::null_mut(), len_bytes, access, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at.cast())
}

/// Puts pages of a hugetlb pool, of a size and perhaps populated, at a reserved place; whether there
/// were any.
fn map_huge(at: *mut u8, len_bytes: usize, more_flags: i32) -> bool {
    // Not `MAP_FIXED` at once: on failure the reservation would be gone.
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | more_flags;
    // SAFETY: a new mapping where the kernel wants it.
    let pages = unsafe { libc::mmap(ptr::null_mut(), len_bytes, access, flags, -1, 0) };
    if pages == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the pages are new and move to reserved addresses that nobody uses.
    let moved = unsafe { libc::mremap(pages, len_bytes, len_bytes, MOVE, at) };
    if moved == libc::MAP_FAILED {
        // SAFETY: mapped just now.
        unsafe { libc::munmap(pages, len_bytes) };
        return false;
    }
    true
}

// SAFETY: units come from `Runs`, which hands each out once, and their chunks are made
// usable before.
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

#[cfg(test)]
mod tests {
    use super::choose;

    /// The kept chunks, by number of frame / 512.
    fn kept(chunks: &[u64], count: usize) -> Vec<u64> {
        let mut pairs: Vec<[u64; 2]> = chunks.iter().map(|&chunk| [chunk * 512, chunk]).collect();
        choose(&mut pairs, count);
        pairs[..count].iter().map(|pair| pair[1]).collect()
    }

    #[test]
    fn the_longest_runs_are_kept_in_order() {
        assert_eq!(kept(&[1, 2, 3], 3), [1, 2, 3]);
        assert_eq!(kept(&[1, 5, 6, 7, 9, 10], 5), [5, 6, 7, 9, 10]);
        assert_eq!(kept(&[1, 5, 6, 7, 9, 10], 3), [5, 6, 7]);
        // Of a run that is cut the beginning stays.
        assert_eq!(kept(&[1, 2, 3, 7, 8, 9, 10], 6).len(), 6);
        assert_eq!(kept(&[4, 8], 1), [4]);
    }
}

//! The pages behind the arena's chunks: made usable without the pool's lock.
//!
//! A thread that has acquired units of a chunk that has no pages yet **claims** the chunk, asks the kernel
//! for pages, and **publishes** what they are. Another that has units of the same chunk waits for that; it
//! never waits for the memory of a long segment to be touched, since that comes before the claim, or
//! after the publication.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use lock_api::{Mutex, MutexGuard};
use swath_pool::{MakeUsable, UNIT_BYTES};

use crate::foreign::foreign;
use crate::lock::{Futex, sleep_while, wake_all};
use crate::options::{Hugetlb, Options, Populate, addresses_limit};
use crate::reserve::extent::Pages;
use crate::reserve::stock::{Stock, Wanted};
use crate::source::chunk::{CHUNK_BYTES, CHUNK_UNITS, Chunk, Chunks, GIANT_BYTES, GIANT_CHUNKS};
use crate::source::mapping::{make_huge, make_usable, place_huge, reserve_again, resident, touch};
use crate::source::protect::can_protect;
use crate::source::runs::pieces;

/// The most chunks that one segment's populating orders at once; longer segments are ordered
/// piece by piece.
const ORDER_MAX: usize = 1024;

/// The most chunks of a hugetlb pool that are ordered at once: a fork waits for so long.
const ORDER_POOLED_MAX: usize = 64;

/// Chunks that are purged at once: others wait for the process's mappings meanwhile.
const PURGE_CHUNKS: usize = 32;

/// A process that uses no more chunks than these gets the pages of a chunk as it uses them, and a huge page
/// once enough of them are there; but no chunk begins so once it has used [`THERE_BYTES`].
const SMALL_CHUNKS: usize = 4;

/// Memory with pages of a process that uses much, in all chunks: of the next one, each page by a fault of its own would take
/// longer than what a huge page may leave without use is worth.
const THERE_BYTES: usize = CHUNK_BYTES / 4 * 5;

/// Bytes of a huge page that may be without use when it comes, in a process of so many chunks: an eighth of their memory,
/// but no more than seven eighths of the page. So no more than half of all chunks' memory is, as only the first
/// [few](SMALL_CHUNKS) begin without one. Who waits until a chunk is full has paid for as many faults, and the last one of a
/// process never is.
fn unused_max(chunks: u64) -> usize {
    CHUNK_BYTES / 8 * chunks.clamp(1, 7) as usize
}

/// Units that are made usable at once then.
const PIECE_UNITS: u32 = 4;

/// In place of a [`Chunk`]: a thread is about it, and others may sleep until it is done.
const CLAIMED: u32 = 8;
const AWAITED: u32 = 9;

/// The pages of the arena.
///
/// Invariants: a chunk that is neither reserved nor claimed can be read and written, but for units that
/// are guarded; only the thread that claimed a chunk changes its mapping, or one that has all its units
/// for itself.
pub(crate) struct ArenaPages {
    base: *mut u8,
    /// For each chunk a [`Chunk`], or that it is claimed.
    chunks: &'static [AtomicU32],
    /// Units that fault at every access, by chunk. Those of them that are free are such that the
    /// kernel did not make usable again.
    guarded: &'static [AtomicU32],
    /// For each chunk the number of its pins.
    pub(crate) pins: &'static [AtomicU32],
    hugetlb: Hugetlb,
    thp: bool,
    /// True if units of chunks in use may be guarded.
    guards: bool,
    populate: Populate,
    /// True if populated chunks are ordered: physical addresses are known.
    order: bool,
    /// Number of chunks that are neither reserved nor claimed.
    usable: AtomicU64,
    /// Number of chunks that were picked and ordered by their frames.
    ordered: AtomicU64,
    /// True once the process has forked: pages of a hugetlb pool come no more.
    forked: AtomicBool,
    /// Held while a page of a hugetlb pool comes or goes, while chunks are purged, and during a fork.
    gate: Mutex<Futex, ()>,
}

// SAFETY: it owns the arena's mappings; the pointer is only offset.
unsafe impl Send for ArenaPages {}
// SAFETY: as above; all else is atomic, or behind a lock.
unsafe impl Sync for ArenaPages {}

impl ArenaPages {
    /// Makes the pages of the arena from `base` on; the tables are zeroed.
    ///
    /// # Safety
    /// A range of as many chunks as the tables have is mapped without access from `base` on, which is
    /// aligned to a chunk, and used by nothing else.
    pub(crate) unsafe fn new(
        base: *mut u8,
        [chunks, guarded, pins]: [&'static [AtomicU32]; 3],
        options: &Options,
        order: bool,
    ) -> Self {
        Self {
            base,
            chunks,
            guarded,
            pins,
            hugetlb: options.hugetlb,
            thp: options.thp,
            guards: options.guard,
            populate: options.populate,
            order: order && options.thp,
            usable: AtomicU64::new(0),
            ordered: AtomicU64::new(0),
            forked: AtomicBool::new(false),
            gate: Mutex::new(()),
        }
    }

    /// Counts a pin more, or one less, of the pages at these addresses, those that are the arena's.
    pub(crate) fn note_pin(&self, addresses: Range<usize>, more: bool) {
        let (base, arena) = (self.base.addr(), self.chunks.len() * CHUNK_BYTES);
        let from = addresses.start.clamp(base, base + arena) - base;
        let to = addresses.end.clamp(base, base + arena) - base;
        for pins in &self.pins[from / CHUNK_BYTES..to.div_ceil(CHUNK_BYTES).max(from / CHUNK_BYTES)]
        {
            if more {
                pins.fetch_add(1, Relaxed);
            } else {
                let less = |pins: u32| pins.checked_sub(1);
                let _ = pins.fetch_update(Relaxed, Relaxed, less);
            }
        }
    }

    pub(crate) fn address(&self, chunk: usize) -> *mut u8 {
        self.base.wrapping_add(chunk * CHUNK_BYTES)
    }

    /// Returns the chunk that an address lies in, and how far in it, if it is one of the arena.
    pub(crate) fn chunk_of(&self, address: usize) -> Option<(usize, usize)> {
        let offset = address.checked_sub(self.base.addr())?;
        let chunk = offset / CHUNK_BYTES;
        (chunk < self.chunks.len()).then_some((chunk, offset % CHUNK_BYTES))
    }

    pub(crate) fn is_thp(&self) -> bool {
        self.thp
    }

    /// Returns the pages of a chunk, if it has any.
    pub(crate) fn of(&self, chunk: usize) -> Option<Pages> {
        Pages::of(self.chunks[chunk].load(Acquire))
    }

    pub(crate) fn is(&self, chunk: usize, what: Chunk) -> bool {
        self.chunks[chunk].load(Acquire) == what as u32
    }

    /// Counts the chunks below `end` by what backs them. O(c) for c chunks.
    pub(crate) fn counts(&self, end: usize) -> Chunks {
        let mut counts = Chunks { ordered: self.ordered.load(Relaxed), ..Chunks::default() };
        for chunk in &self.chunks[..end] {
            if let Some(counter) = counts.of(chunk.load(Relaxed)) {
                *counter += 1;
            }
        }
        counts
    }

    /// Claims chunks that are made of `what`, `count` of them at most, from `chunk` on, and returns their
    /// number.
    pub(crate) fn claim(&self, chunk: usize, count: usize, what: Chunk) -> usize {
        let claim = |chunk: &&AtomicU32| {
            chunk.compare_exchange(what as u32, CLAIMED, Acquire, Relaxed).is_ok()
        };
        let claimed = self.chunks[chunk..chunk + count].iter().take_while(claim).count();
        if what != Chunk::Reserved {
            self.usable.fetch_sub(claimed as u64, Relaxed);
        }
        claimed
    }

    /// Takes the gate, under which no page of a hugetlb pool comes and no chunk is purged.
    pub(crate) fn gate(&self) -> MutexGuard<'_, Futex, ()> {
        self.gate.lock()
    }

    /// Lets no page of a hugetlb pool come from now on, in a process that forks.
    pub(crate) fn note_fork(&self) {
        self.forked.store(true, Relaxed);
    }

    /// Returns true if the process, or one that it is a child of, has forked.
    pub(crate) fn has_forked(&self) -> bool {
        self.forked.load(Relaxed)
    }

    /// Returns true if pages of a hugetlb pool may come that a fork's child is to have: they can be moved
    /// before the fork, of which there was none.
    pub(crate) fn may_take_pooled(&self) -> bool {
        !self.forked.load(Relaxed) && can_protect()
    }

    /// Says what chunks are made of from now on.
    pub(crate) fn publish(&self, chunk: usize, count: usize, what: Chunk) {
        let mut more = 0_i64;
        for chunk in &self.chunks[chunk..chunk + count] {
            let was = chunk.swap(what as u32, AcqRel);
            more += i64::from(what != Chunk::Reserved) - i64::from(Pages::of(was).is_some());
            if was == AWAITED {
                wake_all(chunk);
            }
        }
        self.usable.fetch_add(more as u64, Relaxed);
    }

    /// Returns true if so many chunks more are within the process's limit of addresses, of which those
    /// that are only reserved are not counted here: the limit may have come after them.
    fn may_have(&self, chunks: usize) -> bool {
        let chunks = self.usable.load(Relaxed) + chunks as u64;
        addresses_limit().is_none_or(|limit| chunks * CHUNK_BYTES as u64 <= limit)
    }

    /// Waits while another thread is about a chunk.
    fn wait(&self, chunk: usize) {
        let word = &self.chunks[chunk];
        if word.compare_exchange(CLAIMED, AWAITED, Relaxed, Relaxed).is_ok()
            || word.load(Relaxed) == AWAITED
        {
            sleep_while(word, AWAITED);
        }
    }

    /// Makes units of chunks in use fault at every access, or usable, and returns true if it could.
    fn protect(&self, first: u32, units: u32, on: bool) -> bool {
        let access = if on { libc::PROT_NONE } else { libc::PROT_READ | libc::PROT_WRITE };
        let at = self.base.wrapping_add(first as usize * UNIT_BYTES);
        // SAFETY: units that the pool has acquired, and no block's.
        if unsafe { libc::mprotect(at.cast(), units as usize * UNIT_BYTES, access) } != 0 {
            return false;
        }
        for (chunk, mask) in pieces(first, units) {
            if on {
                self.guarded[chunk].fetch_or(mask, Relaxed);
            } else {
                self.guarded[chunk].fetch_and(!mask, Relaxed);
            }
        }
        true
    }

    /// Makes units usable that are not: of a chunk in pieces, or because the kernel did not make them so at
    /// the end of a guard. Returns true if none is left.
    fn unguard(&self, first: u32, units: u32) -> bool {
        let guarded = |(chunk, mask): (usize, u32)| self.guarded[chunk].load(Relaxed) & mask != 0;
        !pieces(first, units).any(guarded) || self.protect(first, units, false)
    }

    /// Makes those pieces of a chunk usable in which units are wanted; the others are guarded.
    fn extend_small(&self, chunk: usize, first: u32, units: u32) -> bool {
        let start = chunk as u32 * CHUNK_UNITS;
        let from = (first.max(start) - start) / PIECE_UNITS * PIECE_UNITS;
        let to = ((first + units).min(start + CHUNK_UNITS) - start).next_multiple_of(PIECE_UNITS);
        self.unguard(start + from, to - from)
    }

    /// Gives a chunk in pieces a huge page if [enough](unused_max) of it is there. O(p) for p pages of a chunk.
    fn make_huge_if_used(&self, chunk: usize) {
        let unused_max = unused_max(self.usable.load(Relaxed));
        let guarded_bytes = self.guarded[chunk].load(Relaxed).count_ones() as usize * UNIT_BYTES;
        if self.guards || !self.thp || guarded_bytes > unused_max || !self.is(chunk, Chunk::Pieces)
        {
            return;
        }
        let at = self.address(chunk);
        // SAFETY: a chunk of the arena.
        if unsafe { resident(at) } + unused_max < CHUNK_BYTES {
            return;
        }
        let change = |from: Chunk, to: Chunk| {
            let word = &self.chunks[chunk];
            word.compare_exchange(from as u32, to as u32, AcqRel, Relaxed).is_ok()
        };
        // One thread does so. What it leaves guarded others make usable as they want it.
        let all = chunk as u32 * CHUNK_UNITS;
        if change(Chunk::Pieces, Chunk::Small) && self.unguard(all, CHUNK_UNITS) {
            // SAFETY: a chunk of the arena; contents stay.
            if unsafe { make_huge(at, CHUNK_BYTES) } {
                change(Chunk::Small, Chunk::Advised);
            }
        }
    }

    /// Returns true if chunks have so many pages that the process [uses much](THERE_BYTES). O(p) for p pages of them.
    fn are_used(&self, chunks: Range<usize>) -> bool {
        let usable = chunks.filter(|&chunk| self.of(chunk).is_some());
        // SAFETY: a chunk of the arena.
        let there = usable.map(|chunk| unsafe { resident(self.address(chunk)) });
        there.sum::<usize>() >= THERE_BYTES
    }

    /// Makes whole chunks, of which nothing is in use and which nobody else acquires or changes, reserved
    /// addresses again. Those that the kernel leaves are zero.
    pub(crate) fn purge(&self, from: usize, to: usize) {
        for at in (from..to).step_by(PURGE_CHUNKS) {
            let count = PURGE_CHUNKS.min(to - at);
            // SAFETY: chunks of the arena as the caller says.
            if unsafe { reserve_again(self.address(at), count * CHUNK_BYTES) } {
                self.guarded[at..at + count].iter().for_each(|guarded| guarded.store(0, Relaxed));
                self.publish(at, count, Chunk::Reserved);
                continue;
            }
            let usable = |chunk: &usize| self.of(*chunk).is_some();
            for chunk in (at..at + count).filter(usable) {
                if self.unguard(chunk as u32 * CHUNK_UNITS, CHUNK_UNITS) {
                    // SAFETY: as above, and no unit is guarded.
                    unsafe { self.address(chunk).write_bytes(0, CHUNK_BYTES) };
                }
            }
        }
    }

    /// Makes some of `count` reserved chunks from `chunk` on usable, in which so many units are wanted, populates them if
    /// told to, and returns their number: 0 if another thread is about the first, or it is in pieces, as it may be if no
    /// whole chunk is wanted; `None` if it could not.
    fn prepare(&self, chunk: usize, count: usize, units: u32, populate: bool) -> Option<usize> {
        let (whole, is_short) = (units >= CHUNK_UNITS, units <= PIECE_UNITS);
        let at = self.address(chunk);
        if !self.may_have(count) {
            return None;
        }
        let hugetlb = match self.hugetlb {
            Hugetlb::Never => false,
            Hugetlb::Always => true,
            Hugetlb::Default => foreign().is_none(),
        };
        // Up to where a page of 1 GiB could begin.
        let to_giant = (GIANT_BYTES - at.addr() % GIANT_BYTES) / CHUNK_BYTES;
        let (all, count) = (count, count.min(to_giant));
        if hugetlb && self.may_take_pooled() {
            // Of a page of 1 GiB nothing is to be ordered.
            let ordered = if self.order && populate && count < GIANT_CHUNKS {
                self.place_pooled_ordered(chunk, count.min(ORDER_POOLED_MAX))
            } else {
                0
            };
            if ordered > 0 {
                return Some(ordered);
            }
            if let Some(prepared) = self.place_pooled(chunk, all) {
                if populate {
                    // SAFETY: this thread's units, and perhaps others', whose contents stay.
                    unsafe { touch(at, prepared * CHUNK_BYTES, true) };
                }
                return Some(prepared);
            }
        }
        if self.order && populate {
            let count = count.min(ORDER_MAX * 4 / 5);
            let placed = self.place_ordered(chunk, count, count, Pages::Transparent);
            if placed > 0 {
                return Some(placed);
            }
        }
        // Those before are as full as they will be for now; the first ones may have been left as a small process's.
        let before = chunk.saturating_sub(SMALL_CHUNKS)..chunk;
        (0..SMALL_CHUNKS.min(before.start))
            .chain(before.clone())
            .for_each(|before| self.make_huge_if_used(before));
        if !whole && self.usable.load(Relaxed) < SMALL_CHUNKS as u64 && !self.are_used(before) {
            if self.claim(chunk, 1, Chunk::Reserved) == 1 {
                self.guarded[chunk].store(u32::MAX, Relaxed);
                self.publish(chunk, 1, Chunk::Pieces);
            }
            return Some(0);
        }
        let count = self.claim(chunk, count, Chunk::Reserved);
        if count == 0 {
            return Some(0);
        }
        let len = count * CHUNK_BYTES;
        // SAFETY: reserved addresses of the arena, which this thread has claimed.
        let Some(advised) = (unsafe { make_usable(at, len, self.thp) }) else {
            self.publish(chunk, count, Chunk::Reserved);
            return None;
        };
        if advised && is_short {
            // Threads that share a chunk would each have a huge page zeroed at its first touch, of which one stays.
            // SAFETY: as above, of pages that hold nothing yet.
            unsafe { at.write_volatile(0) };
        } else if advised && self.guards {
            // Where a guard comes before the first touch there is no huge page: the last chunk has one.
            // SAFETY: as above.
            unsafe { at.wrapping_add(len - CHUNK_BYTES).write_volatile(0) };
        }
        self.publish(chunk, count, if advised { Chunk::Advised } else { Chunk::Small });
        if populate {
            // A page that is missing now is tried again at the first touch.
            // SAFETY: as above, and contents stay.
            unsafe { touch(at, len, false) };
        }
        Some(count)
    }

    /// Puts a page of a hugetlb pool at chunks of which `count` are reserved, and returns the number of
    /// those that it is for; `None` without such a page.
    fn place_pooled(&self, chunk: usize, count: usize) -> Option<usize> {
        let at = self.address(chunk);
        let _no_fork = self.gate.lock();
        if !self.may_take_pooled() {
            return None;
        }
        let place = |chunks, what, size| {
            let claimed = self.claim(chunk, chunks, Chunk::Reserved);
            let placed = claimed == chunks && place_huge(at, chunks * CHUNK_BYTES, size);
            self.publish(chunk, claimed, if placed { what } else { Chunk::Reserved });
            placed.then_some(chunks)
        };
        let is_giant = count >= GIANT_CHUNKS && at.addr().is_multiple_of(GIANT_BYTES);
        let giant = || place(GIANT_CHUNKS, Chunk::Giant, libc::MAP_HUGE_1GB);
        let giant = if is_giant { giant() } else { None };
        giant.or_else(|| place(1, Chunk::Huge, libc::MAP_HUGE_2MB))
    }

    /// Fills reserved chunks, of which there are `count` from `chunk` on, with the best pages of the hugetlb
    /// pool as far as it has any, and returns their number.
    fn place_pooled_ordered(&self, chunk: usize, count: usize) -> usize {
        let _no_fork = self.gate.lock();
        if !self.may_take_pooled() {
            return 0;
        }
        self.place_ordered(chunk, count, 1, Pages::Hugetlb2M)
    }

    /// Fills reserved chunks, of which there are `count` from `chunk` on, with the best of some more pages, and
    /// returns the number that it filled; 0 if there are fewer than `least` pages.
    fn place_ordered(&self, chunk: usize, count: usize, least: usize, pages: Pages) -> usize {
        let more = count.div_ceil(4).min(ORDER_MAX - count);
        let wanted = Wanted { pages: count, more, block: 0, run: 0 };
        let Some(mut stock) = Stock::take(pages, wanted, true, &|| true) else { return 0 };
        if stock.chosen() < least {
            return 0;
        }
        let mut placed = 0;
        for index in 0..stock.runs() {
            let (len, _) = stock.run(index);
            let place = chunk + placed;
            let claimed = self.claim(place, len, Chunk::Reserved);
            // SAFETY: reserved addresses of the arena, which this thread has claimed; each run moves once.
            let moved = unsafe { stock.move_run(index, self.address(place), claimed) };
            self.publish(place, moved, pages.chunk());
            self.publish(place + moved, claimed - moved, Chunk::Reserved);
            placed += moved;
            if moved < len {
                break;
            }
        }
        self.ordered.fetch_add(placed as u64, Relaxed);
        placed
    }

    /// Opens the gate after a fork.
    ///
    /// # Safety
    /// This thread, or in the child the one that it is a copy of, holds it and has no guard.
    pub(crate) unsafe fn open_gate(&self) {
        // SAFETY: as the caller says.
        unsafe { self.gate.force_unlock() };
    }

    /// In a fork's child: what other threads had claimed of the chunks below `end` is reserved.
    pub(crate) fn after_fork_in_child(&self, end: usize) {
        for (chunk, pins) in self.chunks[..end].iter().zip(self.pins) {
            if chunk.load(Relaxed) >= CLAIMED {
                chunk.store(Chunk::Reserved as u32, Release);
            }
            pins.store(0, Relaxed);
        }
    }
}

impl MakeUsable for ArenaPages {
    /// A hugetlb pool's page has no guards. What stays guarded is tried again when it is wanted.
    fn guard(&self, first: u32, units: u32, on: bool) {
        let chunk = (first / CHUNK_UNITS) as usize;
        if !self.is(chunk, Chunk::Huge) && !self.is(chunk, Chunk::Giant) {
            self.protect(first, units, on);
        }
    }

    fn make_usable(&self, first: u32, units: u32) -> bool {
        let populate = units > CHUNK_UNITS
            && match self.populate {
                Populate::Never => false,
                Populate::Always => true,
                Populate::Default => foreign().is_none(),
            };
        let end = ((first + units).div_ceil(CHUNK_UNITS)) as usize;
        let mut at = (first / CHUNK_UNITS) as usize;
        while at < end {
            let reserved = |chunk: &&AtomicU32| chunk.load(Acquire) == Chunk::Reserved as u32;
            match self.chunks[at..end].iter().take_while(reserved).count() {
                0 if self.chunks[at].load(Acquire) >= CLAIMED => self.wait(at),
                0 if self.is(at, Chunk::Pieces) => {
                    let guarded = self.guarded[at].load(Relaxed);
                    if !self.extend_small(at, first, units) {
                        return false;
                    }
                    // Else it is as full as it was when it was looked at, or will be looked at with the next chunk.
                    if self.guarded[at].load(Relaxed) != guarded {
                        self.make_huge_if_used(at);
                    }
                    at += 1;
                }
                0 => at += usize::from(!self.is(at, Chunk::Reserved)),
                count => match self.prepare(at, count, units, populate) {
                    Some(prepared) => at += prepared,
                    None => return false,
                },
            }
        }
        self.unguard(first, units)
    }
}

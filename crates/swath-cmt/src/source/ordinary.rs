//! Moving what lies in pages of the hugetlb pools to ordinary pages, before a fork.
//!
//! A fork's child that shares a page of a hugetlb pool with its parent is ended by the kernel if either
//! writes to it and the pool has no page for the copy. A copy beside the shared page cannot be exact: the
//! child's C library writes to what was shared before anybody could put the copy in its place. So at a
//! process's first fork such memory becomes ordinary memory, once, and no more of it comes. Threads that
//! write to it meanwhile wait for the piece that they write to.
//!
//! Pinned pages stay, since a device may be at them.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use crate::reserve::room::available_bytes;
use crate::source::chunk::{CHUNK_BYTES, Chunk, GIANT_CHUNKS};
use crate::source::pages::ArenaPages;
use crate::source::protect::Protected;
use crate::source::scratch::Scratch;

/// Chunks that move at once: writers wait for so long.
const PIECE: usize = 16;

impl ArenaPages {
    /// Moves a run of chunks of the hugetlb pools, of which those that `is_used` says are in use have
    /// contents; the caller holds the gate. What is pinned stays, and so does what there is no
    /// memory for.
    pub(crate) fn move_to_ordinary(&self, run: Range<usize>, is_used: &dyn Fn(usize) -> bool) {
        let mut at = run.start;
        while at < run.end {
            let what = if self.is(at, Chunk::Giant) { Chunk::Giant } else { Chunk::Huge };
            let most = if what == Chunk::Giant { GIANT_CHUNKS } else { PIECE };
            let (end, mut count) = (run.end.min(at + most), 0);
            while at + count < end && self.is(at + count, what) {
                count += 1;
            }
            let page = if what == Chunk::Giant { count } else { 1 };
            let is_pinned = |chunk: usize| self.pins[chunk].load(Relaxed) != 0;
            let free = (at..at + count).take_while(|&chunk| !is_pinned(chunk)).count();
            let movable = free / page.max(1) * page;
            if movable > 0 {
                self.move_piece(at, movable, what, is_used);
            }
            at += movable.max(page).max(1);
        }
    }

    fn move_piece(&self, chunk: usize, count: usize, what: Chunk, is_used: &dyn Fn(usize) -> bool) {
        let claimed = self.claim(chunk, count, what);
        let moved = claimed == count && self.replace(chunk, count, is_used);
        let ordinary = if self.is_thp() { Chunk::Advised } else { Chunk::Small };
        self.publish(chunk, claimed, if moved { ordinary } else { what });
    }

    /// Replaces claimed chunks by ordinary memory with the same contents, and returns true if it could.
    fn replace(&self, chunk: usize, count: usize, is_used: &dyn Fn(usize) -> bool) -> bool {
        let (at, len_bytes) = (self.address(chunk), count * CHUNK_BYTES);
        // A thread that acquires a unit from now on waits for the claim.
        let used = || (0..count).filter(|&index| is_used(chunk + index));
        if available_bytes() / 8 * 7 < (used().count() * CHUNK_BYTES) as u64 {
            return false;
        }
        let align = if count == GIANT_CHUNKS { len_bytes } else { CHUNK_BYTES };
        let Some(scratch) = Scratch::new(count, align, self.is_thp()) else { return false };
        let Some(protected) = Protected::new(at, len_bytes) else { return false };
        // SAFETY: chunks of the arena, which can be read; writers wait until they are replaced.
        let there = used()
            .all(|index| unsafe { scratch.copy(index, at.wrapping_add(index * CHUNK_BYTES)) });
        // SAFETY: chunks that this thread has claimed, and their contents.
        let moved = there && unsafe { scratch.move_to(at) };
        drop(protected);
        moved
    }
}

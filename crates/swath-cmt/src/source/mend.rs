//! Mending of huge pages that writes after a fork have broken up.
//!
//! Parent and child share a huge page after a fork until one of them writes to it. The writer gets copies, page by
//! page of 4 KiB, wherever the kernel has them: a block of ten runs becomes one of some five thousand. In the
//! parent a chunk of which nearly all pages are its own again gets a huge page in their place. What
//! is still shared is left alone, since a copy would only cost memory; it is looked at again later.

use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::physical::page_map::PageMap;
use crate::source::chunk::{CHUNK_BYTES, Chunk};
use crate::source::mapping::make_huge;
use crate::source::pages::ArenaPages;

/// Time from a fork to the first look at the chunks, in ms: a child that begins another program, or ends, has
/// left them by then. Twice as long from each look to the next.
const PAUSE_MS: u64 = 1000;
/// Chunks that one call looks at.
const LOOKS: usize = 16;
/// Pages of a chunk that are its process's own, at least, when it is mended: an eighth may be copied for it.
const OWN_PAGES: usize = 448;

/// When to look at which chunk.
pub(crate) struct Mending {
    /// Time of the next look; never, while a thread is about it or where no fork left anything to mend.
    due_ms: AtomicU64,
    /// Time from one look at all chunks to the next.
    pause_ms: AtomicU64,
    /// The chunk that is next.
    next: AtomicUsize,
    /// True if one of those before it is shared.
    shared: AtomicBool,
}

impl Mending {
    pub(crate) const fn new() -> Self {
        Self {
            due_ms: AtomicU64::new(u64::MAX),
            pause_ms: AtomicU64::new(PAUSE_MS),
            next: AtomicUsize::new(0),
            shared: AtomicBool::new(false),
        }
    }

    /// Takes note of a fork.
    pub(crate) fn begin(&self, now_ms: u64) {
        self.pause_ms.store(PAUSE_MS, Relaxed);
        self.next.store(0, Relaxed);
        self.due_ms.store(now_ms.saturating_add(PAUSE_MS), Relaxed);
    }

    /// Returns true if it is time to look at chunks.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        let due = self.due_ms.load(Relaxed);
        now_ms >= due && due != u64::MAX
    }

    /// Looks at some chunks below `end`, unless another thread is about it, and mends one at most.
    pub(crate) fn mend_some(&self, pages: &ArenaPages, end: usize, now_ms: u64) {
        let due = self.due_ms.load(Relaxed);
        let exchange = |from, to| self.due_ms.compare_exchange(from, to, AcqRel, Relaxed).is_ok();
        if due == u64::MAX || !exchange(due, u64::MAX) {
            return;
        }
        let Some(map) = PageMap::open() else { return };
        let mut at = self.next.load(Relaxed);
        let to = end.min(at + LOOKS);
        while at < to {
            let look = look(pages, &map, at);
            at += 1;
            match look {
                Look::Whole => {}
                Look::Shared => self.shared.store(true, Relaxed),
                Look::Broken => {
                    mend(pages, at - 1);
                    break;
                }
            }
        }
        let all = at >= end;
        let (next, pause) = if all { (0, 2 * self.pause_ms.load(Relaxed)) } else { (at, 0) };
        let done = all && !self.shared.swap(false, Relaxed);
        // A fork meanwhile begins anew.
        if !done && exchange(u64::MAX, now_ms.saturating_add(pause)) {
            self.next.store(next, Relaxed);
            self.pause_ms.fetch_max(pause, Relaxed);
        }
    }
}

/// The state of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// One page, or memory of another kind.
    Whole,
    /// In pieces, nearly all of them this process's own.
    Broken,
    Shared,
}

fn look(pages: &ArenaPages, map: &PageMap, chunk: usize) -> Look {
    if !pages.is(chunk, Chunk::Advised) {
        return Look::Whole;
    }
    match map.shared(pages.address(chunk).addr()) {
        Some(pages) if pages.is_run => Look::Whole,
        Some(pages) if pages.own >= OWN_PAGES => Look::Broken,
        Some(pages) if pages.own < pages.present => Look::Shared,
        _ => Look::Whole,
    }
}

/// Gives a chunk one page, if it has memory. Contents stay, whatever others do with it meanwhile.
fn mend(pages: &ArenaPages, chunk: usize) {
    // SAFETY: a chunk of the arena; reserved addresses take no such advice.
    unsafe { make_huge(pages.address(chunk), CHUNK_BYTES) };
}

/// Mends all chunks below `end`, if there was a fork.
pub(crate) fn mend_all(pages: &ArenaPages, end: usize) {
    if !pages.has_forked() {
        return;
    }
    let Some(map) = PageMap::open() else { return };
    for chunk in (0..end).filter(|&chunk| look(pages, &map, chunk) == Look::Broken) {
        mend(pages, chunk);
    }
}

//! Taking memory for the reserve: all system calls are outside the pool's lock.

use core::sync::atomic::Ordering::Relaxed;

use swath_arch::BASE_PAGE_BYTES;

use crate::options::{Hugetlb, memory_bytes};
use crate::physical::areas::areas;
use crate::process::state::Process;
use crate::reserve::extent::Pages;
use crate::reserve::frames::ReserveFrames;
use crate::reserve::room::{available_bytes, free_bytes};
use crate::reserve::stock::{Stock, Wanted};
use crate::source::backing::Backing;
use crate::source::chunk::{CHUNK_BYTES, GIANT_CHUNKS};
use crate::source::dma_heap::{DmaHeap, HeapRun};
use crate::source::mapping::{keep_from_children, make_usable, touch};

/// What is touched beside the pages that are kept, as a multiple of these, or of this many chunks where a run
/// is a must. When a reserve begins it may be more.
const MORE: usize = 7;
const FOR_A_RUN: usize = 64;

/// Blocks for which the runs of a reserve shall have room, as one run of it has, and the least chunks of one.
const BLOCKS: usize = 12;
const BLOCK_CHUNKS_LEAST: usize = 8;

/// Processor time after which a reserve has the runs that were found till then, in ms. Where free memory is in pieces a few
/// gigabytes are touched, which takes 0.15 ms for each page, and ten times as long where a virtual machine's
/// host has to supply it first.
const SEARCH_MS: u64 = 5000;

/// Of the memory that is available a reserve leaves an eighth.
const LEFT_EIGHTHS: u64 = 1;

/// Makes the reserve longer by extents of `bytes` or somewhat more together, or by as much as there is
/// memory for, and returns the bytes. O(n log n) for n pages that are touched.
pub(crate) fn grow(process: &Process, bytes: u64) -> u64 {
    grow_with(process, bytes, 0)
}

/// Makes the reserve longer for a request of `size` bytes, by one extent at least that has as many, and
/// by `bytes` together; nothing changes, and it returns false, where there is no such run.
pub(crate) fn grow_to(process: &Process, size: u64, bytes: u64) -> bool {
    grow_with(process, size.max(bytes), size) >= size
}

/// Grows by `bytes`, taking such pages only as have a run of `run_bytes` among them.
fn grow_with(process: &Process, bytes: u64, run_bytes: u64) -> u64 {
    let run = run_bytes.div_ceil(CHUNK_BYTES as u64);
    let chunks = bytes.div_ceil(CHUNK_BYTES as u64);
    let held = if process.options.dma_heap { take_held(process, chunks, run) } else { 0 };
    let bytes_of = |chunks: usize| chunks as u64 * CHUNK_BYTES as u64;
    let most = available_bytes() / 8 * (8 - LEFT_EIGHTHS) / CHUNK_BYTES as u64;
    let wanted = (chunks - held as u64).min(most) as usize;
    let run = if held == 0 { run } else { 0 };
    if wanted == 0 || run > most || !begin(process, || 0) {
        return bytes_of(held);
    }
    // Of what is available beyond, a half is touched at most.
    let beside = (most as usize - wanted) / 2;
    let usual = MORE * if run > 0 { wanted.max(FOR_A_RUN) } else { wanted };
    // Files stay in memory.
    let free = (free_bytes() / 8 * (8 - LEFT_EIGHTHS)) as usize / CHUNK_BYTES;
    let long = if run > 0 { usual } else { usual.max(free.saturating_sub(wanted)) };
    let mut got = 0;
    for pages in [Pages::Hugetlb1G, Pages::Hugetlb2M, Pages::Transparent] {
        let left = wanted.saturating_sub(got);
        if left > 0 && takes(process, pages) {
            // Once there is a run, the rest may be in pieces.
            let run = if got == 0 { run as usize } else { 0 };
            // What a pool has may be promised to others by its administrator.
            let more = if pages == Pages::Transparent { long } else { usual };
            got += take(process, pages, left, beside.min(more), run);
        }
    }
    // Of memory whose frames are known and are not a run it cannot be said that they are one.
    if got < wanted && (run == 0 || !process.physical) {
        got += simulate(process, wanted - got);
    }
    bytes_of(held + got)
}

/// Time after a growth in vain until the next for an ordinary request, in ms.
const PAUSE_MS: u64 = 1000;

/// Makes the reserve longer if there is one that cannot serve an ordinary request of so many bytes, and
/// no other thread is about it.
#[cold]
pub(crate) fn grow_for(process: &Process, size: usize) {
    let serves = || {
        process.pool.with_source(|source| {
            !source.has_reserve() || source.reserve_longest() * BASE_PAGE_BYTES >= size as u64
        })
    };
    if serves() {
        return;
    }
    let (from, now) = (process.grows_from_ms.load(Relaxed), Process::now_ms());
    let exchange = |from| process.grows_from_ms.compare_exchange(from, u64::MAX, Relaxed, Relaxed);
    if now < from || exchange(from).is_err() {
        return;
    }
    grow_to(process, size as u64, process.options.reserve_bytes / 4);
    let from = if serves() { 0 } else { now + PAUSE_MS };
    process.grows_from_ms.store(from, Relaxed);
}

/// Returns true if the reserve takes such pages. Its pages of the hugetlb pools were asked for with it.
fn takes(process: &Process, pages: Pages) -> bool {
    match pages {
        Pages::Hugetlb1G | Pages::Hugetlb2M => {
            let pages = process.pool.with_source(Backing::pages);
            process.options.hugetlb != Hugetlb::Never
                && (process.options.dontfork || pages.may_take_pooled())
        }
        // Only frames tell where there is a huge page.
        Pages::Transparent => process.options.thp && process.physical,
        Pages::Small | Pages::DmaHeap => true,
    }
}

/// Changes the source under the pool's lock.
fn change<T>(process: &Process, change: impl FnOnce(&mut Backing) -> T) -> T {
    // SAFETY: the functions of this file only acquire addresses, and enter memory that is usable and
    // that the pool has not.
    unsafe { process.pool.with_source_mut(change) }
}

/// Makes the tables of the reserve, if there are none yet, and returns true if they are there. They have room
/// for the frames below `held_end`, and for those that the process may know of.
fn begin(process: &Process, held_end: impl FnOnce() -> u64) -> bool {
    if process.pool.with_source(|source| source.has_reserve()) {
        return true;
    }
    let memory_frames = memory_bytes() / BASE_PAGE_BYTES;
    let mut top = held_end();
    if process.physical && areas(|area| top = top.max(area.end().raw())).is_err() {
        // What lies higher is not used then.
        top = top.max(2 * memory_frames);
    }
    let Some(frames) = ReserveFrames::new(top, memory_frames) else { return false };
    // Another thread's, if there is one by now.
    change(process, |source| source.begin_reserve(frames));
    true
}

/// Acquires addresses for an extent, the first at a multiple of `align` chunks, with a hole at each end;
/// returns the first chunk between the holes and its address.
fn place(process: &Process, chunks: usize, align: usize) -> Option<(u32, *mut u8)> {
    change(process, |source| source.place_extent(chunks, align))
}

/// Takes about `wanted` chunks of some pages into the reserve, if a run of them has `run` chunks, and
/// returns their number. `more` are touched beside them at most.
fn take(process: &Process, pages: Pages, wanted: usize, more: usize, run: usize) -> usize {
    let page_chunks = if pages == Pages::Hugetlb1G { GIANT_CHUNKS } else { 1 };
    // So blocks of up to a twelfth of the reserve, or as long as the run, fill it as if it were one run.
    let block = match (page_chunks, run) {
        (1, 0) => (wanted / BLOCKS).max(BLOCK_CHUNKS_LEAST).min(wanted),
        (1, run) => run,
        _ => 0,
    };
    let wanted = Wanted {
        pages: wanted.div_ceil(page_chunks),
        more: more / page_chunks,
        block,
        run: run.div_ceil(page_chunks),
    };
    let until = Process::thread_ms() + SEARCH_MS;
    let goes_on = || Process::thread_ms() < until;
    let stock = Stock::take(pages, wanted, process.physical, &goes_on);
    let Some(mut stock) = stock else { return 0 };
    let mut got = 0;
    for index in 0..stock.runs() {
        let (chunks, frame) = stock.run(index);
        let Some((chunk, at)) = place(process, chunks, page_chunks) else { break };
        // SAFETY: addresses that were acquired just now; each run moves once.
        let moved = unsafe { stock.move_run(index, at, chunks) };
        if process.options.dontfork {
            // SAFETY: as above.
            unsafe { keep_from_children(at, moved * CHUNK_BYTES, true) };
        }
        let frame = process.physical.then_some(frame);
        got += change(process, |source| source.enter_extent(chunk, moved, frame, pages));
        if moved < chunks {
            break;
        }
    }
    got
}

/// Returns what to ask a heap for that refused `asked` chunks of the `wanted` ones: a little less, so that a heap
/// from which others have taken little still gives nearly all as one run, then a quarter less each time. A heap
/// without anything is asked O(log n) times for n chunks.
fn fewer(wanted: usize, asked: usize) -> usize {
    let missing = wanted - asked;
    if missing < wanted / 4 { wanted - (2 * missing).max(1) } else { asked - asked.div_ceil(4) }
}

/// Takes `wanted` chunks of a dma-heap into the reserve, or as many as it has, and returns their number: as one
/// run if there is one, else in runs that become shorter. The first has `run` chunks at least. O(r log n) for n
/// chunks in r runs.
fn take_held(process: &Process, wanted: u64, run: u64) -> usize {
    let Some(heap) = DmaHeap::open() else { return 0 };
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    // A heap that takes its memory from the system on demand may move pages for each answer.
    let until = Process::thread_ms() + SEARCH_MS;
    let (mut got, mut left, mut asked) = (0, wanted, wanted);
    while asked > 0 && (got > 0 || asked as u64 >= run) && Process::thread_ms() < until {
        let Some(held) = heap.take(asked) else {
            asked = fewer(left, asked);
            continue;
        };
        if !begin(process, || heap.frames_end()) {
            break;
        }
        let Some((chunk, at)) = place(process, asked, 1) else { break };
        let HeapRun { memory, frame } = held;
        // SAFETY: addresses that were acquired just now.
        if !unsafe { memory.move_to(at) } {
            break;
        }
        let entered =
            change(process, |source| source.enter_extent(chunk, asked, frame, Pages::DmaHeap));
        got += entered;
        if entered < asked {
            break;
        }
        // None that is left is longer than this one was.
        left = wanted - got;
        asked = asked.min(left);
    }
    got
}

/// Takes `wanted` chunks of ordinary memory, whose frames are simulated, into the reserve, and returns
/// their number.
fn simulate(process: &Process, wanted: usize) -> usize {
    let Some((chunk, at)) = place(process, wanted, 1) else { return 0 };
    let len_bytes = wanted * CHUNK_BYTES;
    // SAFETY: addresses that were acquired just now.
    let Some(huge) = (unsafe { make_usable(at, len_bytes, process.options.thp) }) else { return 0 };
    // SAFETY: as above.
    if !unsafe { touch(at, len_bytes, false) } {
        return 0;
    }
    if process.options.dontfork {
        // SAFETY: as above.
        unsafe { keep_from_children(at, len_bytes, true) };
    }
    let pages = if huge { Pages::Transparent } else { Pages::Small };
    change(process, |source| source.enter_extent(chunk, wanted, None, pages))
}

#[cfg(test)]
mod tests {
    use super::fewer;

    #[test]
    fn a_heap_is_asked_for_less_and_less() {
        for wanted in 1..=4096 {
            // What a heap gives whose longest run has so many chunks: all but twice what it lacks, or two thirds
            // of what it has.
            for longest in (0..=wanted).step_by(1 + wanted / 7) {
                let (mut asked, mut times) = (wanted, 0);
                while asked > longest {
                    asked = fewer(wanted, asked);
                    times += 1;
                }
                assert!(times <= 1 + 4 * (wanted.ilog2() + 1), "{wanted}, {longest}: {times}");
                let lacks = wanted - longest;
                let least = if lacks < wanted / 4 { wanted - 2 * lacks } else { longest * 2 / 3 };
                assert!(asked >= least.saturating_sub(1), "{wanted}, {longest}: {asked}");
            }
        }
        assert_eq!(fewer(128, 128), 127);
        assert_eq!(fewer(1, 1), 0);
    }
}

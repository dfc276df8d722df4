//! Pages outside the arena, of which those in the longest runs of frames move into it.
//!
//! No page is given back before all are touched: the kernel would hand it out again at once.

use core::slice;

use crate::physical::page_map::PageMap;
use crate::reserve::extent::Pages;
use crate::reserve::frames::CHUNK_FRAMES;
use crate::source::choose::{Choice, choose};
use crate::source::chunk::{CHUNK_BYTES, GIANT_CHUNKS};
use crate::source::mapping::{give_back, map, map_huge, move_pages, touch, unmap};

/// In place of the frame of a page that was moved.
const MOVED: u64 = u64::MAX;

/// Bytes that are unmapped at once: others wait for the process's mappings meanwhile.
const UNMAP_BYTES: usize = 64 << 20;

/// The pages that a stock shall have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    /// Number of them.
    pub(crate) pages: usize,
    /// Number of those that may be touched beside them, to choose from.
    pub(crate) more: usize,
    /// Number of those that a block has for which the runs shall have room, see [`choose`].
    pub(crate) block: usize,
    /// Number of them that one run has at least.
    pub(crate) run: usize,
}

/// Touched pages, sorted by their frames.
pub(crate) struct Stock {
    mapped: *mut u8,
    mapped_len: usize,
    /// The first page.
    start: *mut u8,
    page_bytes: usize,
    is_pooled: bool,
    /// For each page its frame and its number in the mapping; behind them as many runs.
    table: *mut [u64; 2],
    table_pages: usize,
    /// Number of pages that are touched and have a frame of a whole page.
    found: usize,
    choice: Choice,
}

impl Stock {
    /// Takes pages of a kind, and beside those that are wanted as many as it takes for runs with room for the
    /// blocks, while `goes_on`. Where frames are not `known` the pages count as neighbours. `None` if there is
    /// no page, or no run as long as one is wanted.
    pub(crate) fn take(
        pages: Pages,
        wanted: Wanted,
        known: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let mut more = if known { wanted.more } else { 0 };
        loop {
            if let Some(mut stock) = Self::map(pages, wanted.pages + more) {
                stock.touch_and_choose(wanted, known, goes_on);
                let Choice { pages, longest, .. } = stock.choice;
                return (pages > 0 && longest >= wanted.run).then_some(stock);
            }
            // Addresses may be limited, or counted.
            more = if more == 0 { return None } else { more / 2 };
        }
    }

    /// Maps addresses for `most` pages of a kind, and their table.
    fn map(pages: Pages, most: usize) -> Option<Self> {
        let chunks = if pages == Pages::Hugetlb1G { GIANT_CHUNKS } else { 1 };
        let page_bytes = chunks * CHUNK_BYTES;
        let len = most * page_bytes;
        let (mapped, mapped_len, start) = match pages {
            // Promised to nobody: of a mapping with a promise that is not kept no part may move, as the
            // kernel would never take the promise back.
            Pages::Hugetlb1G | Pages::Hugetlb2M => {
                let size = if chunks == 1 { libc::MAP_HUGE_2MB } else { libc::MAP_HUGE_1GB };
                let mapped = map_huge(len, size | libc::MAP_NORESERVE)?;
                (mapped, len, mapped)
            }
            Pages::Transparent | Pages::Small | Pages::DmaHeap => {
                let mapped = map(len + page_bytes, libc::PROT_READ | libc::PROT_WRITE)?;
                let start = mapped.wrapping_add(mapped.align_offset(page_bytes));
                // SAFETY: a new mapping; advice changes no contents.
                if unsafe { libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE) } != 0 {
                    // SAFETY: mapped just now.
                    unsafe { unmap(mapped, len + page_bytes) };
                    return None;
                }
                (mapped, len + page_bytes, start)
            }
        };
        let bytes = 2 * most * size_of::<[u64; 2]>();
        let Some(table) = map(bytes, libc::PROT_READ | libc::PROT_WRITE) else {
            // SAFETY: mapped just now.
            unsafe { unmap(mapped, mapped_len) };
            return None;
        };
        Some(Self {
            mapped,
            mapped_len,
            start,
            page_bytes,
            is_pooled: matches!(pages, Pages::Hugetlb1G | Pages::Hugetlb2M),
            table: table.cast(),
            table_pages: most,
            found: 0,
            choice: Choice::default(),
        })
    }

    /// The pages found, and the runs.
    fn tables(&mut self) -> (&mut [[u64; 2]], &mut [[u64; 2]]) {
        // SAFETY: mapped for this, zeroed at first, and unmapped when the stock is dropped.
        let table = unsafe { slice::from_raw_parts_mut(self.table, 2 * self.table_pages) };
        table.split_at_mut(self.table_pages)
    }

    fn step(&self) -> u64 {
        (self.page_bytes / CHUNK_BYTES) as u64 * CHUNK_FRAMES
    }

    fn touch_and_choose(&mut self, wanted: Wanted, known: bool, goes_on: &dyn Fn() -> bool) {
        let Wanted { pages: count, block, run, .. } = wanted;
        let map = if known { PageMap::open() } else { None };
        let (step, page_bytes, start) = (self.step(), self.page_bytes, self.start);
        let is_pooled = self.is_pooled;
        let (mut tried, mut most) = (0, self.table_pages);
        let least = count + if known { count.div_ceil(4) } else { 0 };
        let mut goal = least;
        loop {
            while tried < goal.min(most) {
                if tried >= least && !goes_on() {
                    most = tried;
                    break;
                }
                let at = start.wrapping_add(tried * page_bytes);
                // SAFETY: a page of the mapping.
                if !unsafe { touch(at, page_bytes, is_pooled) } {
                    most = tried;
                    break;
                }
                let frame = match &map {
                    Some(map) => map.contiguous(at.addr(), CHUNK_FRAMES as usize),
                    None => Some(tried as u64 * step),
                };
                if let Some(frame) = frame.filter(|frame| frame.is_multiple_of(step)) {
                    let found = self.found;
                    self.tables().0[found] = [frame, tried as u64];
                    self.found += 1;
                }
                tried += 1;
            }
            let found = self.found;
            let (pages, runs) = self.tables();
            let pages = &mut pages[..found];
            pages.sort_unstable();
            let choice = choose(pages, runs, step, count, block);
            self.choice = choice;
            let enough = choice.pages >= count && choice.has_room && choice.longest >= run;
            if tried >= most || enough {
                return;
            }
            goal += goal.div_ceil(4);
        }
    }

    /// Returns the number of runs that were chosen.
    pub(crate) fn runs(&self) -> usize {
        self.choice.runs
    }

    /// Returns the number of pages that were chosen.
    pub(crate) fn chosen(&self) -> usize {
        self.choice.pages
    }

    /// Returns the chunks of a run, and its first frame.
    pub(crate) fn run(&mut self, index: usize) -> (usize, u64) {
        let page_chunks = self.page_bytes / CHUNK_BYTES;
        let (pages, runs) = self.tables();
        let [len, first] = runs[index];
        (len as usize * page_chunks, pages[first as usize][0])
    }

    /// Moves a run to reserved addresses, in the order of its frames, and returns the chunks that are
    /// there: `most` of them at most, or those before a page that the kernel did not move.
    ///
    /// # Safety
    /// Nothing uses the addresses; the run was not moved before.
    pub(crate) unsafe fn move_run(&mut self, index: usize, to: *mut u8, most: usize) -> usize {
        let (page_bytes, start) = (self.page_bytes, self.start);
        let (pages, runs) = self.tables();
        let [len, first] = runs[index].map(|number| number as usize);
        let len = len.min(most / (page_bytes / CHUNK_BYTES));
        let mut moved = 0;
        let pages = &mut pages[first..first + len];
        // Pages that are neighbours in the mapping, too, move at once, and stay one mapping.
        for piece in pages.chunk_by_mut(|a, b| b[1] == a[1] + 1) {
            let from = start.wrapping_add(piece[0][1] as usize * page_bytes);
            let place = to.wrapping_add(moved * page_bytes);
            // SAFETY: touched pages of the mapping, moved once, to a place that is the caller's.
            if !unsafe { move_pages(from, place, piece.len() * page_bytes) } {
                break;
            }
            moved += piece.len();
            piece.iter_mut().for_each(|page| page[0] = MOVED);
        }
        moved * (page_bytes / CHUNK_BYTES)
    }
}

impl Drop for Stock {
    /// Gives the pages back from the highest frame down: the kernel hands out first what came last, so
    /// whoever wants pages next has them in the order of their frames, and finds runs sooner.
    fn drop(&mut self) {
        let found = self.found;
        let (start, page_bytes) = (self.start, self.page_bytes);
        for &[_, page] in self.tables().0[..found].iter().rev().filter(|page| page[0] != MOVED) {
            // SAFETY: a page of the mapping that was not moved away; nothing uses it.
            unsafe { give_back(start.wrapping_add(page as usize * page_bytes), page_bytes) };
        }
        let end = self.mapped.wrapping_add(self.mapped_len);
        let mut at = self.mapped;
        let mut unmap_to = |to: *mut u8| {
            while at < to {
                let len = UNMAP_BYTES.max(page_bytes).min(to.addr() - at.addr());
                // SAFETY: mapped by `take`, and not moved away.
                unsafe { unmap(at, len) };
                at = at.wrapping_add(len);
            }
            at = to.wrapping_add(page_bytes);
        };
        // Where a page was there may be another's mapping now.
        let pages = &mut self.tables().0[..found];
        pages.sort_unstable_by_key(|page| page[1]);
        for page in pages.iter().filter(|page| page[0] == MOVED) {
            unmap_to(start.wrapping_add(page[1] as usize * page_bytes));
        }
        unmap_to(end);
        let bytes = 2 * self.table_pages * size_of::<[u64; 2]>();
        // SAFETY: mapped by `take`, and not used any more.
        unsafe { unmap(self.table.cast(), bytes) };
    }
}

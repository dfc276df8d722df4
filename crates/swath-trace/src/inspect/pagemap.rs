//! A process's page table, as `/proc/PID/pagemap` shows it.
//!
//! A word of the file tells a page's frame. The kernel writes one for every page, mapped or not, so
//! that a reservation of terabytes, as some languages and sanitizers make it, would take hours to
//! read. `PAGEMAP_SCAN` (Linux 6.7) asks for the next page of a kind instead: it walks past what is
//! not mapped by whole tables, and says of a page whether it is part of a huge one, of which one
//! word is enough.
#![allow(unsafe_code, reason = "one ioctl, which no safe crate offers, with its proof")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use linux_raw_sys::general::{
    PAGE_IS_FILE, PAGE_IS_HUGE, PAGE_IS_PFNZERO, PAGE_IS_PRESENT, page_region, pm_scan_arg,
};
use nix::errno::Errno;
use swath_arch::BASE_PAGE_BYTES;

/// Pages below one entry of the table of the second level: a huge page.
const TABLE_PAGES: u64 = 512;

/// Bits of a word: the frame, memory of a file or shared, present.
const FRAME: u64 = (1 << 55) - 1;
const FILE: u64 = 1 << 61;
const PRESENT: u64 = 1 << 63;

nix::ioctl_readwrite!(pagemap_scan, b'f', 16, pm_scan_arg);

/// Pages that follow one another in frames that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageRun {
    /// The first page, by its number.
    pub(crate) page: u64,
    /// Its frame; 0 without the right to see it.
    pub(crate) frame: u64,
    /// Pages.
    pub(crate) count: u64,
    /// Whether the table maps them by an entry for a huge page.
    pub(crate) is_huge: bool,
}

/// The page table of a process, open for reading.
pub(crate) struct PageMap {
    file: File,
    /// Whether the kernel can look for pages.
    can_scan: bool,
    words: [u8; TABLE_PAGES as usize * size_of::<u64>()],
}

impl PageMap {
    /// Opens the table at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let words = [0; TABLE_PAGES as usize * size_of::<u64>()];
        let mut table = Self { file: File::open(path)?, can_scan: true, words };
        table.next_anonymous(0..1)?;
        Ok(table)
    }

    /// Returns true if the kernel can look for pages.
    pub(crate) fn can_scan(&self) -> bool {
        self.can_scan
    }

    /// Tells `each` run of anonymous pages in memory within a range of pages that lies in one area of
    /// the process's, ascending. Without the right to see frames a page is a run. A kernel that
    /// cannot look for pages has every word read, and shows no huge page. O(tables of the range +
    /// pages in memory that are in no huge page).
    pub(crate) fn anonymous(
        &mut self,
        pages: Range<u64>,
        each: &mut dyn FnMut(PageRun),
    ) -> io::Result<()> {
        let mut next = pages.start;
        while let Some((page, is_huge)) = self.next_anonymous(next..pages.end)? {
            let end = ((page / TABLE_PAGES + 1) * TABLE_PAGES).min(pages.end);
            let asked = if is_huge { 1 } else { end - page };
            let words = &mut self.words[..asked as usize * size_of::<u64>()];
            let len = self.file.read_at(words, page * size_of::<u64>() as u64)?;
            let words = words[..len].as_chunks().0;
            if words.is_empty() {
                break; // The process has ended.
            }
            let mut run = PageRun { page, frame: 0, count: 0, is_huge };
            for (page, word) in (page..).zip(words.iter().map(|word| u64::from_ne_bytes(*word))) {
                if word & (PRESENT | FILE) != PRESENT {
                    continue;
                }
                let frame = word & FRAME;
                if (page, frame) != (run.page + run.count, run.frame + run.count) || frame == 0 {
                    tell(run, each);
                    run = PageRun { page, frame, count: 0, is_huge };
                }
                run.count += if is_huge { end - page } else { 1 };
            }
            tell(run, each);
            next = if is_huge { end } else { page + words.len() as u64 };
        }
        Ok(())
    }

    /// The first anonymous page in memory within the range, and whether it is part of a huge page.
    fn next_anonymous(&mut self, pages: Range<u64>) -> io::Result<Option<(u64, bool)>> {
        if pages.is_empty() {
            return Ok(None);
        }
        let mut found = page_region { start: 0, end: 0, categories: 0 };
        let without = u64::from(PAGE_IS_FILE | PAGE_IS_PFNZERO);
        let mut request = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: 0,
            start: pages.start * BASE_PAGE_BYTES,
            end: pages.end * BASE_PAGE_BYTES,
            walk_end: 0,
            vec: &raw mut found as u64,
            vec_len: 1,
            max_pages: 1,
            category_inverted: without,
            category_mask: without | u64::from(PAGE_IS_PRESENT),
            category_anyof_mask: 0,
            return_mask: u64::from(PAGE_IS_PRESENT | PAGE_IS_HUGE),
        };
        while self.can_scan {
            // Without flags nothing is changed in the process looked at.
            // SAFETY: the file is open, and `request`, which says its own size, is valid for the whole call, as is
            // `found`, which nobody else borrows and to which the kernel writes one region at most.
            match unsafe { pagemap_scan(self.file.as_raw_fd(), &raw mut request) } {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    let is_huge = found.categories & u64::from(PAGE_IS_HUGE) != 0;
                    let page = found.start / BASE_PAGE_BYTES;
                    return Ok(pages.contains(&page).then_some((page, is_huge)));
                }
                Err(Errno::EINTR) => {}
                Err(Errno::ENOTTY | Errno::EINVAL) => self.can_scan = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some((pages.start, false)))
    }
}

fn tell(run: PageRun, each: &mut dyn FnMut(PageRun)) {
    if run.count > 0 {
        each(run);
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    const PATH: &str = "/proc/self/pagemap";

    /// Pages of a reservation of 1 GiB, of which every 3,000th is in memory and 700 in a row are.
    fn runs(can_scan: bool) -> (u64, Vec<PageRun>) {
        let mut sparse = vec![0u8; 1 << 30];
        let first = sparse.as_ptr() as u64 / BASE_PAGE_BYTES + 1;
        let pages = sparse.len() as u64 / BASE_PAGE_BYTES - 2;
        let in_memory = |page: u64| page.is_multiple_of(3000) || (5000..5700).contains(&page);
        for page in (0..pages).filter(|page| in_memory(*page)) {
            sparse[((page + 1) * BASE_PAGE_BYTES) as usize] = 1;
        }
        let mut table = PageMap::open(PATH.as_ref()).unwrap();
        table.can_scan &= can_scan;
        let mut runs = Vec::new();
        table.anonymous(first..first + pages, &mut |run| runs.push(run)).unwrap();
        for run in &mut runs {
            run.page -= first;
        }
        let touched = (0..pages).filter(|page| in_memory(*page)).count() as u64;
        (touched, runs)
    }

    #[test]
    fn what_is_looked_for_is_what_every_word_shows() {
        for can_scan in [true, false] {
            let (touched, runs) = runs(can_scan);
            // Memory may come as huge pages, all of whose pages are in memory then.
            let huge = runs.iter().any(|run| run.count >= TABLE_PAGES);
            let sum: u64 = runs.iter().map(|run| run.count).sum();
            assert!(
                if huge { sum >= touched } else { sum == touched },
                "{can_scan} {sum} {touched}"
            );
            assert!(runs.is_sorted_by(|a, b| a.page + a.count <= b.page));
            let covers =
                |page| runs.iter().any(|run| (run.page..run.page + run.count).contains(&page));
            assert!((5000..5700).chain([0, 3000, 9000, 258_000]).all(covers), "{can_scan}");
        }
    }

    #[test]
    fn a_table_that_is_none_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut table = PageMap::open(file.path()).unwrap();
        assert!(!table.can_scan());
        let mut told = 0;
        table.anonymous(0..1000, &mut |_| told += 1).unwrap();
        assert_eq!(told, 0);
        assert!(PageMap::open("/proc/self/no_such_table".as_ref()).is_err());
    }
}

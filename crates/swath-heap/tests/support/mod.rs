//! Memory and sources of pages for the tests.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) mod forked;

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use swath_heap::{PageSource, SourceError};

/// Memory that starts on a multiple of a page, and is freed with this.
pub(crate) struct Memory {
    words: Vec<Page>,
}

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([MaybeUninit<u8>; 4096]);

impl Memory {
    /// At least `len_bytes`.
    pub(crate) fn new(len_bytes: usize) -> Self {
        Self { words: vec![Page([MaybeUninit::new(0xa5); 4096]); len_bytes.div_ceil(4096)] }
    }

    /// The first `len_bytes`.
    pub(crate) fn bytes(&mut self, len_bytes: usize) -> &mut [MaybeUninit<u8>] {
        assert!(len_bytes <= self.words.len() * 4096);
        // SAFETY: pages are arrays of such bytes, one after the other.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len_bytes) }
    }

    pub(crate) fn start(&mut self) -> NonNull<u8> {
        NonNull::new(self.words.as_mut_ptr()).expect("a vector's start").cast()
    }
}

/// A source over memory that stays where it is: it keeps account of the pages
/// and overwrites what goes back, so that whoever reads or wants it is seen.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) page_bytes: usize,
    pub(crate) committed: BTreeSet<usize>,
    /// Pages that it gives at most at a time.
    pub(crate) pages_max: usize,
    /// Calls of commit and release so far.
    pub(crate) calls: usize,
}

impl Account {
    pub(crate) fn new(page_bytes: usize, pages_max: usize) -> Self {
        Self { page_bytes, committed: BTreeSet::new(), pages_max, calls: 0 }
    }

    fn pages(&self, start: NonNull<u8>, len: usize) -> impl Iterator<Item = usize> + use<> {
        let start = start.addr().get();
        assert!(len > 0 && (start | len).is_multiple_of(self.page_bytes), "{start:#x}, {len}");
        (start..start + len).step_by(self.page_bytes)
    }
}

// SAFETY: the memory is there all the time.
unsafe impl PageSource for Account {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        self.calls += 1;
        let new = len_bytes / self.page_bytes;
        if self.committed.len() + new > self.pages_max {
            return Err(SourceError { address: start.addr().get(), len_bytes });
        }
        for page in self.pages(start, len_bytes) {
            assert!(self.committed.insert(page), "{page:#x} was committed");
        }
        Ok(())
    }

    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        self.calls += 1;
        for page in self.pages(start, len_bytes) {
            assert!(self.committed.remove(&page), "{page:#x} was not committed");
        }
        // SAFETY: pages of the test's memory, which the heap gave up.
        unsafe { start.write_bytes(0xdd, len_bytes) };
    }

    fn is_committed(&self, address: usize) -> bool {
        self.committed.contains(&(address & !(self.page_bytes - 1)))
    }
}

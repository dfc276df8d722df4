//! Over real pages: what a heap has released faults when touched.
#![cfg(target_os = "linux")]

use std::ptr::NonNull;

use swath_heap::conformance::{Plan, conform};
use swath_heap::{ByteAllocator, Heap, Links, PageSource, PowersOfTwo, SourceError, TwoLevel};

const PAGE_BYTES: usize = 4096;

/// Address space of the process, without access but where it is committed.
struct Mapped {
    start: NonNull<u8>,
    len_bytes: usize,
    committed: Vec<bool>,
}

impl Mapped {
    fn new(len_bytes: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping that nobody can touch harms nobody.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let start = NonNull::new(start.cast()).expect("not 0");
        Self { start, len_bytes, committed: vec![false; len_bytes / PAGE_BYTES] }
    }

    fn set(&mut self, start: NonNull<u8>, len_bytes: usize, committed: bool) {
        let first = (start.addr().get() - self.start.addr().get()) / PAGE_BYTES;
        for page in &mut self.committed[first..][..len_bytes / PAGE_BYTES] {
            assert_ne!(std::mem::replace(page, committed), committed);
        }
        let access = if committed { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let at = start.as_ptr().cast();
        // SAFETY: pages of the mapping of this source. When they lose their
        // access the heap has given them up, and their contents may be lost.
        let failed = unsafe {
            libc::mprotect(at, len_bytes, access) != 0
                || !committed && libc::madvise(at, len_bytes, libc::MADV_DONTNEED) != 0
        };
        assert!(!failed, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, whose users are gone before the source is.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len_bytes) };
    }
}

// SAFETY: committed pages are readable and writable, and the process's alone.
unsafe impl PageSource for Mapped {
    fn page_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn commit(&mut self, start: NonNull<u8>, len_bytes: usize) -> Result<(), SourceError> {
        self.set(start, len_bytes, true);
        Ok(())
    }

    fn release(&mut self, start: NonNull<u8>, len_bytes: usize) {
        self.set(start, len_bytes, false);
    }

    fn is_committed(&self, address: usize) -> bool {
        self.committed[(address - self.start.addr().get()) / PAGE_BYTES]
    }
}

fn run<F: swath_heap::Fit>() {
    let len = 1 << 20;
    for seed in 1..=3 {
        println!("seed {seed}");
        let source = Mapped::new(len);
        let start = source.start;
        let mut heap = Heap::<F, Mapped, Links>::over(source, seed as usize);
        // SAFETY: the source keeps the mapping for as long as the heap lives.
        let pool = unsafe { heap.add_pool_at(start, len) }.expect("a pool");
        let plan =
            Plan { seed, steps: 2000, size_bytes_max: 100_000, align_log2_max: 13, blocks: 20 };
        let done = conform(&mut heap, plan, &mut |heap, _, place| {
            heap.check().unwrap_or_else(|fault| panic!("{place}: {fault}"));
        });
        assert!(done.allocated > 300 && done.moved > 20, "{done:?}");
        let held = heap.source().committed.iter().filter(|&&committed| committed).count();
        assert_eq!(held, 2, "the first page and the last");
        assert_eq!(heap.largest_bytes(), heap.largest_ever_bytes());
        heap.remove_pool(pool).expect("nothing is allocated");
    }
}

#[test]
fn two_level_never_touches_what_it_released() {
    run::<TwoLevel>();
}

#[test]
fn half_fit_never_touches_what_it_released() {
    run::<PowersOfTwo>();
}

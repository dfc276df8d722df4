//! Cases that may end in a signal: children of the test run them, and what became of each is counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, slice};

/// Seconds after which a case is taken for an endless loop.
const SECONDS_MAX: u32 = 5;

/// The end of one case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It returned this, of at most 6 bits.
    Returned(u8),
    Panicked,
    /// It was ended by a signal; by SIGALRM if it took too long.
    Signal,
}

const NOT_BEGUN: u8 = 0xFF;
const BEGUN: u8 = 0xFE;
const PANICKED: u8 = 0xFD;

/// Runs each of the cases `0..cases` in a forked child: one child runs up to `at_once` of them one
/// after the other until a signal ends it, then the next goes on behind. Nothing that a
/// case changes is seen by the caller.
pub(crate) fn run(cases: usize, at_once: usize, case: impl Fn(usize) -> u8) -> Vec<End> {
    let ends = Shared::new(cases);
    let mut next = 0;
    while next < cases {
        // SAFETY: the child calls nothing that another thread may have locked but the C library's
        // malloc, which is made for it.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        if child == 0 {
            std::panic::set_hook(Box::new(|_| {}));
            for index in next..cases.min(next + at_once) {
                // SAFETY: both only set something of this process.
                unsafe { libc::alarm(SECONDS_MAX) };
                ends.set(index, BEGUN);
                let end = catch_unwind(AssertUnwindSafe(|| case(index)));
                ends.set(index, end.map_or(PANICKED, |code| code & 0x3F));
            }
            // SAFETY: ends the child, without the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: our child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        match (next..cases).find(|&index| ends.get(index) == BEGUN) {
            Some(index) if libc::WIFSIGNALED(status) => next = index + 1,
            None if libc::WIFEXITED(status) => next = cases.min(next + at_once),
            at => panic!("a child ended with {status:#x} at case {at:?}"),
        }
    }
    let end = |code| match code {
        BEGUN => End::Signal,
        PANICKED => End::Panicked,
        NOT_BEGUN => panic!("a case was left out"),
        code => End::Returned(code),
    };
    (0..cases).map(|index| end(ends.get(index))).collect()
}

/// Bytes that a process and its children share.
struct Shared {
    start: *mut u8,
    len: usize,
}

impl Shared {
    fn new(len: usize) -> Self {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len.max(1), access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let shared = Self { start: start.cast(), len };
        // SAFETY: as long as the mapping.
        unsafe { shared.start.write_bytes(NOT_BEGUN, len) };
        shared
    }

    fn set(&self, index: usize, code: u8) {
        assert!(index < self.len);
        // SAFETY: within the mapping. Volatile: a signal may come at once.
        unsafe { self.start.add(index).write_volatile(code) };
    }

    fn get(&self, index: usize) -> u8 {
        // SAFETY: the mapping, which no child writes while the parent reads.
        unsafe { slice::from_raw_parts(self.start, self.len)[index] }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`.
        unsafe { libc::munmap(self.start.cast(), self.len.max(1)) };
    }
}

//! The process's one pool.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use lock_api::Mutex;
use swath_pool::BufferFreeError;

use crate::lock::Futex;
use crate::options::Options;
use crate::process::canary::Canary;
use crate::process::nothing::Nothing;
use crate::process::thread::{Local, Pool, Thread};
use crate::source::backing::Backing;
use crate::source::mend::{Mending, mend_all};

/// A pool, and what it was made with.
pub(crate) struct Process {
    pub(crate) pool: Pool,
    pub(crate) options: Options,
    /// Blocks of no bytes.
    pub(crate) nothing: Nothing,
    /// The key of the canaries, if blocks have them.
    pub(crate) canary: Option<Canary>,
    /// True if physical addresses are known.
    pub(crate) physical: bool,
    /// The key whose destructor ends a thread's heap.
    pub(crate) key: libc::pthread_key_t,
    /// Time at which memory may go back to the system for the first time.
    pub(crate) first_purge_ms: u64,
    /// For threads without a heap of their own.
    pub(crate) shared: Mutex<Futex, Option<Thread>>,
    /// Time from which an ordinary request may make the reserve longer; never, while one does.
    pub(crate) grows_from_ms: AtomicU64,
    /// What is to be done after a fork.
    pub(crate) mending: Mending,
    /// True if a thread of the process's own purges, or none is to.
    pub(crate) has_background: AtomicBool,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Returns the process's pool, if it has begun.
#[inline]
pub(crate) fn begun() -> Option<&'static Process> {
    // SAFETY: null, or a process that is never taken down.
    unsafe { PROCESS.load(Acquire).as_ref() }
}

/// The place of the one process.
struct Place(UnsafeCell<MaybeUninit<Process>>);

// SAFETY: written once, before any thread is led to it.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(MaybeUninit::uninit()));

/// Makes `process` the one that has begun.
///
/// # Safety
/// None has begun, and no other thread is here.
pub(crate) unsafe fn publish(process: Process) -> &'static Process {
    // SAFETY: nothing refers to the place yet, as the caller says.
    let process = unsafe { (*PLACE.0.get()).write(process) };
    PROCESS.store(process, Release);
    process
}

impl Process {
    /// Returns the milliseconds of a clock that only rises.
    pub(crate) fn now_ms() -> u64 {
        Self::clock_ms(libc::CLOCK_MONOTONIC_COARSE)
    }

    /// Returns the milliseconds of processor time that the calling thread has taken.
    pub(crate) fn thread_ms() -> u64 {
        Self::clock_ms(libc::CLOCK_THREAD_CPUTIME_ID)
    }

    fn clock_ms(clock: libc::clockid_t) -> u64 {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes the time.
        unsafe { libc::clock_gettime(clock, &mut now) };
        now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    /// Returns memory to the system that has been free for long enough. A process that ends before
    /// the delay is over has none.
    pub(crate) fn purge(&self) {
        let now = Self::now_ms();
        if now >= self.first_purge_ms {
            self.pool.purge(now);
            self.return_purged();
            if self.mending.is_due(now) {
                let (pages, end) = self.pool.with_source(|source| (source.pages(), source.end()));
                self.mending.mend_some(pages, end, now);
            }
        }
    }

    /// Returns all free memory to the system, and mends what a fork has broken up.
    pub(crate) fn purge_all(&self) {
        loop {
            self.pool.purge_all();
            if !self.return_purged() {
                break;
            }
        }
        let (pages, end) = self.pool.with_source(|source| (source.pages(), source.end()));
        mend_all(pages, end);
    }

    /// Returns to the system what the pool has purged, without its lock, and returns true if there may be
    /// more.
    fn return_purged(&self) -> bool {
        let pages = self.pool.with_source(Backing::pages);
        let _no_fork = pages.gate();
        // SAFETY: the source holds these chunks, in which nothing is in use, until they are purged.
        let runs = unsafe { self.pool.with_source_mut(Backing::take_purging) };
        let more = runs.iter().all(|run| run.start < run.end);
        for run in runs.into_iter().filter(|run| run.start < run.end) {
            pages.purge(run.start, run.end);
            // SAFETY: as above.
            unsafe { self.pool.with_source_mut(|source| source.end_purge(run)) };
        }
        more
    }

    /// Returns the bytes that the user of a block in use has.
    pub(crate) fn usable_size(&self, block: NonNull<u8>) -> Result<usize, BufferFreeError> {
        if let Some(found) = self.nothing.look(block) {
            return found.map(|()| 0);
        }
        let len_bytes = self.pool.usable_size(block)?;
        let Some(canary) = self.canary else { return Ok(len_bytes) };
        // SAFETY: a block in use, as the pool says.
        let kept = unsafe { canary.read(block, len_bytes) };
        // Of an overwritten one nothing is known.
        Ok(kept.map_or(0, |kept| kept.user_bytes))
    }

    /// Makes the state of another thread, sparing the last of the heaps' slots for the shared state.
    pub(crate) fn attach(&'static self) -> Option<Thread> {
        self.state_of(self.pool.attach_sparing(1)?)
    }

    /// Makes the state that threads without a heap share.
    pub(crate) fn attach_shared(&'static self) -> Option<Thread> {
        self.state_of(self.pool.attach()?)
    }

    fn state_of(&self, heap: Local) -> Option<Thread> {
        Thread::new(heap, self.options.quarantine as usize, self.canary)
    }
}

//! A lock that neither allocates nor unwinds: one word, and the kernel's futex where a
//! thread has to wait.

use core::ptr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lock_api::{GuardSend, RawMutex};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep.
const AWAITED: u32 = 2;

/// Tries before a thread sleeps: a short call holds the lock for less.
const SPINS: u32 = 100;

/// Sleeps while a word has a value, or for less.
pub(crate) fn sleep_while(word: &AtomicU32, value: u32) {
    // SAFETY: the word is there; the kernel only reads it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            ptr::from_ref(word),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            ptr::null::<libc::timespec>(),
        );
    }
}

/// Wakes all threads that sleep for a word.
pub(crate) fn wake_all(word: &AtomicU32) {
    wake(word, i32::MAX);
}

fn wake(word: &AtomicU32, threads: i32) {
    // SAFETY: as above.
    unsafe {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        libc::syscall(libc::SYS_futex, ptr::from_ref(word), wake, threads);
    }
}

/// A mutex of one word.
pub(crate) struct Futex(AtomicU32);

impl Futex {
    #[cold]
    fn wait(&self) {
        for _ in 0..SPINS {
            if self.0.load(Relaxed) == FREE && self.try_lock() {
                return;
            }
            core::hint::spin_loop();
        }
        while self.0.swap(AWAITED, Acquire) != FREE {
            sleep_while(&self.0, AWAITED);
        }
    }
}

// SAFETY: the word goes from free to held in one step, by one thread.
unsafe impl RawMutex for Futex {
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if self.0.swap(FREE, Release) == AWAITED {
            // It marks the lock awaited again.
            wake(&self.0, 1);
        }
    }
}

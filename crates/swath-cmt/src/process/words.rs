//! Three words for each thread, found by an instruction each and one for all: the addresses of its state, of
//! its processor heap, and of the pool.
//!
//! The second is that of a heap always, and the third that of a pool or of nothing, so that to allocate and to
//! free need not ask if there is one. A thread without a heap reads what is never written, not the
//! place where the first call of another is about to make the pool.
//! `thread_local!` in a shared library asks the dynamic linker at each use. The initial-exec
//! model, which a library that is loaded with its program may use, is an offset from the
//! thread's register; stable Rust names it in assembly only.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use swath_pool::HeapSlot;

use crate::process::thread::Pool;

/// The thread's words: 0, nobody's heap and no pool, at first.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod word {
    use core::ptr::{self, NonNull};

    use swath_pool::HeapSlot;

    use crate::process::thread::Pool;

    core::arch::global_asm!(
        ".pushsection .tdata.swath_cmt_word,\"awT\",@progbits",
        ".hidden swath_cmt_word",
        ".globl swath_cmt_word",
        ".type swath_cmt_word,@object",
        ".size swath_cmt_word,24",
        ".p2align 4",
        "swath_cmt_word:",
        ".quad 0",
        ".quad {nobodys}",
        ".quad {no_pool}",
        ".popsection",
        nobodys = sym super::NOBODYS,
        no_pool = sym super::NO_POOL,
    );

    /// Returns the address of the thread's state, 0 or [`ENDED`](super::ENDED).
    #[inline(always)]
    pub(crate) fn get() -> usize {
        let value: usize;
        // SAFETY: reads a word of the thread's own, which is there as long as the thread.
        unsafe {
            core::arch::asm!(
                "mov {value}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov {value}, qword ptr fs:[{value}]",
                value = out(reg) value,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }

    /// Returns the thread's heap, or [`NOBODYS`](super::NOBODYS), and its pool, or [`NO_POOL`](super::NO_POOL).
    #[inline(always)]
    pub(crate) fn heap_and_pool() -> (NonNull<HeapSlot>, *const Pool) {
        let (heap, pool): (usize, usize);
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "mov {pool}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov {heap}, qword ptr fs:[{pool} + 8]",
                "mov {pool}, qword ptr fs:[{pool} + 16]",
                heap = out(reg) heap,
                pool = out(reg) pool,
                options(nostack, preserves_flags, readonly),
            );
        }
        let heap = ptr::with_exposed_provenance_mut(heap);
        // SAFETY: never 0, neither at first nor by `set`.
        (unsafe { NonNull::new_unchecked(heap) }, ptr::with_exposed_provenance(pool))
    }

    /// Sets all words.
    pub(crate) fn set(value: usize, heap: NonNull<HeapSlot>, pool: *const Pool) {
        // SAFETY: writes the thread's own words.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {value}",
                "mov qword ptr fs:[{at} + 8], {heap}",
                "mov qword ptr fs:[{at} + 16], {pool}",
                at = out(reg) _,
                value = in(reg) value,
                heap = in(reg) heap.as_ptr().expose_provenance(),
                pool = in(reg) pool.expose_provenance(),
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod word {
    use core::cell::Cell;
    use core::ptr::NonNull;

    use swath_pool::HeapSlot;

    use crate::process::thread::Pool;

    thread_local! {
        static WORDS: Cell<(usize, Option<(NonNull<HeapSlot>, *const Pool)>)> =
            const { Cell::new((0, None)) };
    }

    pub(crate) fn get() -> usize {
        WORDS.get().0
    }

    pub(crate) fn heap_and_pool() -> (NonNull<HeapSlot>, *const Pool) {
        WORDS.get().1.unwrap_or_else(|| (super::nobodys(), super::no_pool()))
    }

    pub(crate) fn set(value: usize, heap: NonNull<HeapSlot>, pool: *const Pool) {
        WORDS.set((value, Some((heap, pool))));
    }
}

pub(crate) use word::{get, heap_and_pool, set};

/// The heap of a thread that has none, or none that may be asked without a look at the thread's state.
pub(crate) static NOBODYS: HeapSlot = HeapSlot::NOBODYS;

/// Returns [`NOBODYS`] as a thread's heap.
pub(crate) fn nobodys() -> NonNull<HeapSlot> {
    NonNull::from(&NOBODYS)
}

/// The memory of no pool, which nobody writes.
pub(crate) struct NoPool(MaybeUninit<Pool>);

// SAFETY: read as bytes only, and never written.
unsafe impl Sync for NoPool {}

/// What a thread without a heap has for a pool.
pub(crate) static NO_POOL: NoPool = NoPool(Pool::NOTHING);

/// Returns [`NO_POOL`] as a thread's pool.
pub(crate) fn no_pool() -> *const Pool {
    NO_POOL.0.as_ptr()
}

/// A thread's first word once its heap is gone: from then on it uses the shared one.
pub(crate) const ENDED: usize = 1;

#[cfg(test)]
mod tests {
    use core::num::NonZero;
    use core::ptr::{self, NonNull};

    use swath_pool::HeapSlot;

    use crate::process::thread::Pool;

    #[test]
    fn each_thread_has_its_own_words() {
        let words = || (super::get(), super::heap_and_pool());
        let nothing = (super::nobodys(), super::no_pool());
        let heaps = [HeapSlot::new(), HeapSlot::new()];
        let [first, second] = heaps.each_ref().map(|slot| NonNull::from(slot).addr());
        let heap = |at: NonZero<usize>| NonNull::without_provenance(at);
        let pool = |at| ptr::without_provenance::<Pool>(at);
        super::set(7, heap(first), pool(64));
        std::thread::spawn(move || {
            assert_eq!(words(), (0, (super::nobodys(), super::no_pool())));
            super::set(8, heap(second), pool(128));
            assert_eq!(words(), (8, (heap(second), pool(128))));
        })
        .join()
        .expect("no panic");
        assert_eq!(words(), (7, (heap(first), pool(64))));
        super::set(0, nothing.0, nothing.1);
    }
}

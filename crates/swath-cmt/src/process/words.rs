//! Words for each thread, found by an instruction each and one for all: the addresses of its state, of its processor heap,
//! and of the pool, and what nearly every call reads of the pool's tables, which then need not wait for their address.
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

/// The thread's words: 0, nobody's heap, no pool and nothing of its tables, at first.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod word {
    use core::ptr::{self, NonNull};

    use swath_pool::{Claim, HeapSlot, Live, Reach};

    use crate::lock::Futex;
    use crate::process::thread::Pool;
    use crate::source::backing::Backing;

    core::arch::global_asm!(
        ".pushsection .tdata.swath_cmt_word,\"awT\",@progbits",
        ".hidden swath_cmt_word",
        ".globl swath_cmt_word",
        ".type swath_cmt_word,@object",
        ".size swath_cmt_word,56",
        ".p2align 4",
        "swath_cmt_word:",
        ".quad 0",
        ".quad {nobodys}",
        ".quad {no_pool}",
        ".quad {base}",
        ".quad {live}",
        ".quad {claims}",
        ".quad {granules}",
        ".popsection",
        nobodys = sym super::NOBODYS,
        no_pool = sym super::NO_POOL,
        base = const super::NO_TABLES[0],
        live = const super::NO_TABLES[1],
        claims = const super::NO_TABLES[2],
        granules = const super::NO_TABLES[3],
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

    /// The way to the thread's pool: how far from its register the words lie.
    #[derive(Clone, Copy)]
    #[repr(transparent)]
    pub(crate) struct OwnReach(usize);

    /// Reads a word of the thread's own, of this [`OwnReach`], so many bytes behind the first.
    macro_rules! word {
        ($reach:expr, $at:literal) => {{
            let value: usize;
            // SAFETY: as above; no other thread writes it, and this one not while a front has the reach.
            unsafe {
                core::arch::asm!(
                    concat!("mov {value}, qword ptr fs:[{at} + ", $at, "]"),
                    at = in(reg) $reach.0,
                    value = out(reg) value,
                    options(nostack, preserves_flags, pure, readonly),
                );
            }
            value
        }};
    }

    // SAFETY: the words have what `set` was given: of a pool, or of none.
    unsafe impl Reach<'static, Futex, Backing> for OwnReach {
        #[inline(always)]
        fn pool(self) -> *const Pool {
            ptr::with_exposed_provenance(word!(self, "16"))
        }

        #[inline(always)]
        unsafe fn offset_of(self, address: usize) -> usize {
            let offset: usize;
            // SAFETY: as for `word`.
            unsafe {
                core::arch::asm!(
                    "sub {offset}, qword ptr fs:[{at} + 24]",
                    at = in(reg) self.0,
                    offset = inout(reg) address => offset,
                    options(nostack, pure, readonly),
                );
            }
            offset
        }

        #[inline(always)]
        unsafe fn has_granule(self, granule: usize) -> bool {
            // SAFETY: as for `word`.
            unsafe {
                core::arch::asm!(
                    "cmp {granule}, qword ptr fs:[{at} + 48]",
                    "jae {beyond}",
                    at = in(reg) self.0,
                    granule = in(reg) granule,
                    beyond = label { return false },
                    options(nostack, readonly),
                );
            }
            true
        }

        #[inline(always)]
        unsafe fn claim_zero(self) -> *const Claim {
            ptr::with_exposed_provenance(word!(self, "40"))
        }

        #[inline(always)]
        unsafe fn live(self) -> *const Live {
            ptr::with_exposed_provenance(word!(self, "32"))
        }

        #[inline(always)]
        unsafe fn place_at(self, address: usize) -> *mut u8 {
            ptr::with_exposed_provenance_mut(address)
        }
    }

    /// Returns the thread's heap, or [`NOBODYS`](super::NOBODYS), and the way to its pool.
    #[inline(always)]
    pub(crate) fn heap_and_reach() -> (NonNull<HeapSlot>, OwnReach) {
        let (heap, at): (usize, usize);
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov {heap}, qword ptr fs:[{at} + 8]",
                heap = out(reg) heap,
                at = out(reg) at,
                options(nostack, preserves_flags, readonly),
            );
        }
        let heap = ptr::with_exposed_provenance_mut(heap);
        // SAFETY: never 0, neither at first nor by `set`.
        (unsafe { NonNull::new_unchecked(heap) }, OwnReach(at))
    }

    /// Returns the thread's heap, or [`NOBODYS`](super::NOBODYS), and its pool, or [`NO_POOL`](super::NO_POOL).
    #[inline(always)]
    pub(crate) fn heap_and_pool() -> (NonNull<HeapSlot>, *const Pool) {
        let (heap, reach) = heap_and_reach();
        (heap, reach.pool())
    }

    /// Sets all words; the last are the pool's [`table_words`](Pool::table_words), or [none's](super::NO_TABLES).
    pub(crate) fn set(
        value: usize,
        heap: NonNull<HeapSlot>,
        pool: *const Pool,
        tables: [usize; 4],
    ) {
        let [base, live, claims, granules] = tables;
        // SAFETY: writes the thread's own words.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {value}",
                "mov qword ptr fs:[{at} + 8], {heap}",
                "mov qword ptr fs:[{at} + 16], {pool}",
                "mov qword ptr fs:[{at} + 24], {base}",
                "mov qword ptr fs:[{at} + 32], {live}",
                "mov qword ptr fs:[{at} + 40], {claims}",
                "mov qword ptr fs:[{at} + 48], {granules}",
                at = out(reg) _,
                base = in(reg) base,
                live = in(reg) live,
                claims = in(reg) claims,
                granules = in(reg) granules,
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

    /// The way to the thread's pool.
    pub(crate) type OwnReach = *const Pool;

    pub(crate) fn heap_and_reach() -> (NonNull<HeapSlot>, OwnReach) {
        heap_and_pool()
    }

    pub(crate) fn set(
        value: usize,
        heap: NonNull<HeapSlot>,
        pool: *const Pool,
        _tables: [usize; 4],
    ) {
        WORDS.set((value, Some((heap, pool))));
    }
}

pub(crate) use word::{OwnReach, get, heap_and_pool, heap_and_reach, set};

/// The table words of [`NO_POOL`]: some first byte, so that an entry of zeroes is none of a cache.
pub(crate) const NO_TABLES: [usize; 4] = [1, 0, 0, 0];

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

    use swath_pool::{HeapSlot, Reach};

    use crate::process::thread::Pool;

    /// What a thread without a heap has of tables is what no pool's say.
    #[test]
    fn the_words_of_no_pool_are_its_own() {
        let (heap, reach) = super::heap_and_reach();
        assert_eq!((heap, reach.pool()), (super::nobodys(), super::no_pool()));
        // SAFETY: its memory is there.
        let numbers = |reach: *const Pool| unsafe {
            [reach.offset_of(17), reach.claim_zero().addr(), reach.has_granule(0).into()]
        };
        // SAFETY: as above.
        let own = unsafe {
            [reach.offset_of(17), reach.claim_zero().addr(), reach.has_granule(0).into()]
        };
        assert_eq!((own, numbers(super::no_pool())), ([16, 0, 0], [16, 0, 0]));
    }

    /// A front that finds its tables in the words finds what its pool says.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    #[test]
    fn a_threads_words_have_what_its_pools_tables_say() {
        let tables = [7 << 16, 1 << 12, 1 << 20, 100];
        super::set(0, super::nobodys(), super::no_pool(), tables);
        let reach = super::heap_and_reach().1;
        // SAFETY: nothing is read but the words.
        unsafe {
            assert_eq!(reach.offset_of((7 << 16) + 48), 48);
            assert_eq!((reach.live().addr(), reach.claim_zero().addr()), (1 << 12, 1 << 20));
            assert_eq!(
                [0, 99, 100, usize::MAX].map(|granule| reach.has_granule(granule)),
                [true, true, false, false]
            );
            assert_eq!(reach.place_at(0x1234).addr(), 0x1234);
        }
        super::set(0, super::nobodys(), super::no_pool(), super::NO_TABLES);
    }

    #[test]
    fn each_thread_has_its_own_words() {
        let words = || (super::get(), super::heap_and_pool());
        let nothing = (super::nobodys(), super::no_pool());
        let heaps = [HeapSlot::new(), HeapSlot::new()];
        let [first, second] = heaps.each_ref().map(|slot| NonNull::from(slot).addr());
        let heap = |at: NonZero<usize>| NonNull::without_provenance(at);
        let pool = |at| ptr::without_provenance::<Pool>(at);
        super::set(7, heap(first), pool(64), [1 << 16, 0, 0, 5]);
        std::thread::spawn(move || {
            assert_eq!(words(), (0, (super::nobodys(), super::no_pool())));
            super::set(8, heap(second), pool(128), super::NO_TABLES);
            assert_eq!(words(), (8, (heap(second), pool(128))));
        })
        .join()
        .expect("no panic");
        assert_eq!(words(), (7, (heap(first), pool(64))));
        super::set(0, nothing.0, nothing.1, super::NO_TABLES);
    }
}

//! Two words for each thread, each found in two instructions: the addresses of its state and of its
//! processor heap.
//!
//! The second is that of a heap always, so that to allocate and to free need not ask if there is one.
//! `thread_local!` in a shared library asks the dynamic linker at each use. The initial-exec
//! model, which a library that is loaded with its program may use, is an offset from the
//! thread's register; stable Rust names it in assembly only.

use core::ptr::NonNull;

use swath_pool::HeapSlot;

/// The thread's words: 0, and nobody's heap, at first.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod word {
    use core::ptr::{self, NonNull};

    use swath_pool::HeapSlot;

    core::arch::global_asm!(
        ".pushsection .tdata.swath_cmt_word,\"awT\",@progbits",
        ".hidden swath_cmt_word",
        ".globl swath_cmt_word",
        ".type swath_cmt_word,@object",
        ".size swath_cmt_word,16",
        ".p2align 4",
        "swath_cmt_word:",
        ".quad 0",
        ".quad {nobodys}",
        ".popsection",
        nobodys = sym super::NOBODYS,
    );

    #[inline(always)]
    fn word<const OFFSET_BYTES: usize>() -> usize {
        const { assert!(OFFSET_BYTES == 0 || OFFSET_BYTES == 8, "there are two words") };
        let value: usize;
        // SAFETY: reads a word of the thread's own, which is there as long as the thread.
        unsafe {
            core::arch::asm!(
                "mov {value}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov {value}, qword ptr fs:[{value} + {offset}]",
                value = out(reg) value,
                offset = const OFFSET_BYTES,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }

    /// Returns the address of the thread's state, 0 or [`ENDED`](super::ENDED).
    #[inline(always)]
    pub(crate) fn get() -> usize {
        word::<0>()
    }

    /// Returns the thread's heap, or [`NOBODYS`](super::NOBODYS).
    #[inline(always)]
    pub(crate) fn heap() -> NonNull<HeapSlot> {
        // SAFETY: never 0, neither at first nor by `set`.
        unsafe { NonNull::new_unchecked(ptr::with_exposed_provenance_mut(word::<8>())) }
    }

    /// Sets both words.
    pub(crate) fn set(value: usize, heap: NonNull<HeapSlot>) {
        // SAFETY: writes the thread's own words.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {value}",
                "mov qword ptr fs:[{at} + 8], {heap}",
                at = out(reg) _,
                value = in(reg) value,
                heap = in(reg) heap.as_ptr().expose_provenance(),
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

    thread_local! {
        static WORDS: Cell<(usize, Option<NonNull<HeapSlot>>)> = const { Cell::new((0, None)) };
    }

    pub(crate) fn get() -> usize {
        WORDS.get().0
    }

    pub(crate) fn heap() -> NonNull<HeapSlot> {
        WORDS.get().1.unwrap_or_else(super::nobodys)
    }

    pub(crate) fn set(value: usize, heap: NonNull<HeapSlot>) {
        WORDS.set((value, Some(heap)));
    }
}

pub(crate) use word::{get, heap, set};

/// The heap of a thread that has none, or none that may be asked without a look at the thread's state.
pub(crate) static NOBODYS: HeapSlot = HeapSlot::NOBODYS;

/// Returns [`NOBODYS`] as a thread's heap.
pub(crate) fn nobodys() -> NonNull<HeapSlot> {
    NonNull::from(&NOBODYS)
}

/// A thread's first word once its heap is gone: from then on it uses the shared one.
pub(crate) const ENDED: usize = 1;

#[cfg(test)]
mod tests {
    use core::num::NonZero;
    use core::ptr::NonNull;

    use swath_pool::HeapSlot;

    #[test]
    fn each_thread_has_its_own_words() {
        let words = || (super::get(), super::heap());
        let heaps = [HeapSlot::new(), HeapSlot::new()];
        let [first, second] = heaps.each_ref().map(|slot| NonNull::from(slot).addr());
        let heap = |at: NonZero<usize>| NonNull::without_provenance(at);
        super::set(7, heap(first));
        std::thread::spawn(move || {
            assert_eq!(words(), (0, super::nobodys()));
            super::set(8, heap(second));
            assert_eq!(words(), (8, heap(second)));
        })
        .join()
        .expect("no panic");
        assert_eq!(words(), (7, heap(first)));
        super::set(0, super::nobodys());
    }
}

//! Two words for each thread, each found in two instructions: the addresses of its state and of its
//! processor heap.
//!
//! `thread_local!` in a shared library asks the dynamic linker at each use. The initial-exec
//! model, which a library that is loaded with its program may use, is an offset from the
//! thread's register; stable Rust names it in assembly only.

/// The thread's words: 0 at first.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod word {
    core::arch::global_asm!(
        ".pushsection .tbss.swath_cmt_word,\"awT\",@nobits",
        ".hidden swath_cmt_word",
        ".globl swath_cmt_word",
        ".type swath_cmt_word,@object",
        ".size swath_cmt_word,16",
        ".p2align 4",
        "swath_cmt_word:",
        ".zero 16",
        ".popsection",
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

    /// Returns the address of the thread's heap, or 0.
    #[inline(always)]
    pub(crate) fn heap() -> usize {
        word::<8>()
    }

    /// Sets both words.
    pub(crate) fn set(value: usize, heap: usize) {
        // SAFETY: writes the thread's own words.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {value}",
                "mov qword ptr fs:[{at} + 8], {heap}",
                at = out(reg) _,
                value = in(reg) value,
                heap = in(reg) heap,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod word {
    use core::cell::Cell;

    thread_local! {
        static WORDS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    }

    pub(crate) fn get() -> usize {
        WORDS.get()[0]
    }

    pub(crate) fn heap() -> usize {
        WORDS.get()[1]
    }

    pub(crate) fn set(value: usize, heap: usize) {
        WORDS.set([value, heap]);
    }
}

pub(crate) use word::{get, heap, set};

/// A thread's first word once its heap is gone: from then on it uses the shared one.
pub(crate) const ENDED: usize = 1;

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own_words() {
        let words = || (super::get(), super::heap());
        super::set(7, 70);
        std::thread::spawn(move || {
            assert_eq!(words(), (0, 0));
            super::set(8, 80);
            assert_eq!(words(), (8, 80));
        })
        .join()
        .expect("no panic");
        assert_eq!(words(), (7, 70));
        super::set(0, 0);
    }
}

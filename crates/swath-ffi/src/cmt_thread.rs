//! A word for each thread, found in two instructions: where its processor heap is.
//!
//! `thread_local!` in a shared library asks the dynamic linker at each use. The initial-exec
//! model, which a library that is loaded with its program may use, is an offset from the
//! thread's register; stable Rust names it in assembly only.

/// The thread's word: 0 at first.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod word {
    core::arch::global_asm!(
        ".pushsection .tbss.swath_cmt_word,\"awT\",@nobits",
        ".hidden swath_cmt_word",
        ".globl swath_cmt_word",
        ".type swath_cmt_word,@object",
        ".size swath_cmt_word,8",
        ".p2align 3",
        "swath_cmt_word:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(crate) fn get() -> usize {
        let value: usize;
        // SAFETY: reads the thread's own word, which is there as long as the thread.
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

    pub(crate) fn set(value: usize) {
        // SAFETY: writes the thread's own word.
        unsafe {
            core::arch::asm!(
                "mov {at}, qword ptr [rip + swath_cmt_word@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {value}",
                at = out(reg) _,
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod word {
    use core::cell::Cell;

    thread_local! {
        static WORD: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn get() -> usize {
        WORD.with(Cell::get)
    }

    pub(crate) fn set(value: usize) {
        WORD.with(|word| word.set(value));
    }
}

pub(crate) use word::{get, set};

#[cfg(test)]
mod tests {
    #[test]
    fn each_thread_has_its_own_word() {
        super::set(7);
        std::thread::spawn(|| {
            assert_eq!(super::get(), 0);
            super::set(8);
            assert_eq!(super::get(), 8);
        })
        .join()
        .expect("no panic");
        assert_eq!(super::get(), 7);
        super::set(0);
    }
}

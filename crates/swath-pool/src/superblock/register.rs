//! The address of a word that each call changes, in one register.
//!
//! A call waits for what the one before wrote to the same word. A processor that foresees which store a load reads passes
//! the value on without that wait, but only where both have their address from one register and a constant; with a second
//! register as an index it takes five cycles. A compiler prefers the index: it saves an instruction. The words of live
//! bits, of which calls in turn change different ones, gain nothing.

/// Returns the pointer, of which the compiler knows no more then than the register that it stands in.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block, reason = "nothing is read or written there")]
pub(crate) fn in_register<T>(pointer: *mut T) -> *mut T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut pointer = pointer;
        // SAFETY: a comment, no instruction: the register has what it had.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inout(reg) pointer,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        pointer
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    pointer
}

//! A panic where there is no `std`: a line that says where it was, and the end of the process.

use core::panic::PanicInfo;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    swath_cmt::abort(format_args!("{info}"))
}

// What an unwinder asks about a frame of this library: it is to go on to the next (`_URC_CONTINUE_UNWIND`, Itanium C++
// ABI, exception handling, section 1.5.3). No panic unwinds here; what does is the exception of C++'s `new` in its way out
// of `operators`, whose frames hold nothing then. Hidden, so that no other library's frames are asked about here.
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality,@function",
    "rust_eh_personality:",
    "mov eax, 8",
    "ret",
    ".size rust_eh_personality, . - rust_eh_personality",
    ".popsection",
);

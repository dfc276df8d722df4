//! The place of the kernel itself.

unsafe extern "C" {
    static kernel_begin: u8;
    static kernel_end: u8;
}

/// Returns the address of the kernel's first byte and the one after its last.
pub fn kernel() -> (u64, u64) {
    (&raw const kernel_begin as u64, &raw const kernel_end as u64)
}

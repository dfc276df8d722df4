//! What differs from machine to machine: the way in, faults, the root register, invalidation, the
//! serial port, the end. One file for each, all with the same functions.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "arm")]
mod arm;
#[cfg(not(target_arch = "x86_64"))]
mod device_tree;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "arm")]
pub use arm::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

unsafe extern "C" {
    static kernel_begin: u8;
    static kernel_end: u8;
}

/// Returns where the kernel lies: its first byte's address and the one after its last.
pub fn kernel() -> (u64, u64) {
    (&raw const kernel_begin as u64, &raw const kernel_end as u64)
}

/// A translation that the machine refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The address that was accessed.
    pub address: usize,
    /// It was a write.
    pub write: bool,
    /// A translation was there, but did not permit the access (or, on ARM, was not accessed yet).
    pub present: bool,
}

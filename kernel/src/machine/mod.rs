//! The machines: the way in, faults, the root register, invalidation, the serial port, the end. One
//! file for each machine, all with the same functions.

mod fault;
mod image;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "arm")]
mod arm;
#[cfg(not(target_arch = "x86_64"))]
mod device_tree;
#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "arm")]
pub use arm::*;
#[cfg(target_arch = "riscv64")]
pub use riscv64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

pub use fault::Fault;
pub use image::kernel;

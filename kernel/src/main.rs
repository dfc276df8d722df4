#![doc = include_str!("../README.md")]
#![cfg_attr(
    any(feature = "c", feature = "heap"),
    allow(dead_code, unused_macros, reason = "another scenario needs it")
)]
#![no_std]
#![no_main]

#[macro_use]
mod check;
#[macro_use]
mod console;
#[cfg(feature = "c")]
mod c;
#[cfg(feature = "heap")]
#[path = "../../rtl/system/program/src/global.rs"]
mod global;
#[cfg(feature = "heap")]
mod heap;
mod machine;
mod memory;
#[cfg(not(any(feature = "c", feature = "heap")))]
mod model;
#[cfg(not(feature = "c"))]
mod random;
#[cfg(not(any(feature = "c", feature = "heap")))]
mod scenario;
#[cfg(not(any(feature = "c", feature = "heap")))]
mod vm;

#[cfg(feature = "c")]
use c as scenario;
#[cfg(feature = "heap")]
use heap as scenario;

use core::panic::PanicInfo;

use crate::memory::Firmware;

/// Runs the scenario on what the firmware left, and ends the machine with its outcome.
fn start(firmware: Firmware) -> ! {
    say!("swath on {}: {} MiB", machine::NAME, firmware.len_bytes() >> 20);
    scenario::run(firmware);
    say!("passed: {} checks", check::count());
    machine::exit(true)
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    say!("failed after {} checks: {info}", check::count());
    machine::exit(false)
}

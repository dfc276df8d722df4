#![doc = include_str!("../README.md")]
#![no_std]
#![no_main]

#[macro_use]
mod check;
#[macro_use]
mod console;
mod machine;
mod memory;
mod model;
mod random;
mod scenario;
mod vm;

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

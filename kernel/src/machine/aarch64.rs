//! A board with a 64-bit ARM processor (QEMU's `virt`), begun at exception level 1.

use core::arch::{asm, global_asm};

use swath_arch::{Format, Regime};
use swath_vm::Flush;

use crate::machine::{Fault, device_tree};

/// The machine's name.
pub const NAME: &str = "AArch64";
/// The format of its tables.
pub const FORMAT: Format = Format::ArmV8;
/// The address at which the pages of programs begin.
pub const WINDOW: usize = 0x80_0000_0000;
/// Registers of devices that the kernel reaches by memory: those of the serial port.
pub const DEVICES: &[u64] = &[SERIAL as u64];
/// The machine does not set the accessed flag of a page: its access faults.
pub const SETS_ACCESSED: bool = false;

/// The PL011's data register.
const SERIAL: usize = 0x0900_0000;
/// Where memory begins, and with it the device tree.
const MEMORY: usize = 0x4000_0000;

global_asm!(include_str!("aarch64.s"));

unsafe extern "C" {
    fn probe_read(address: usize) -> Probed;
    fn probe_write(address: usize, value: usize) -> Probed;
}

/// What an access came to: the value and 0, or the faulting address and the syndrome with bit 63.
#[repr(C)]
struct Probed {
    value: usize,
    fault: u64,
}

fn probed(Probed { value, fault }: Probed) -> Result<usize, Fault> {
    if fault == 0 {
        return Ok(value);
    }
    // DDI 0487, ISS encoding for a data abort: bit 6, a write; bits 5 to 0, the status.
    // A translation, an accessed flag or a permission that is missing.
    let explained = matches!(fault & 0x3c, 0b000_100 | 0b001_000 | 0b001_100);
    assert!(explained, "a data abort with syndrome {fault:#x} at {value:#x}");
    Err(Fault { address: value, write: fault & 1 << 6 != 0 })
}

/// Reads the word at a virtual address.
///
/// # Errors
/// The fault, if its translation does not permit it.
pub fn read(address: usize) -> Result<usize, Fault> {
    // SAFETY: the routine survives a fault; what it reads is a program's page, which no reference reaches.
    probed(unsafe { probe_read(address) })
}

/// Writes the word at a virtual address.
///
/// # Errors
/// The fault, if its translation does not permit it.
pub fn write(address: usize, value: usize) -> Result<(), Fault> {
    // SAFETY: as in `read`.
    probed(unsafe { probe_write(address, value) }).map(drop)
}

/// Makes the space's root the one by which everything is translated, and empties the TLBs.
///
/// # Safety
/// The space must map all memory at its own address.
pub unsafe fn load(regime: Regime) {
    // MAIR: index 0 is normal, write-back, 1 device. TCR: 48-bit addresses of 4 KiB pages in the
    // lower half, walks cached and inner shareable, none in the upper half, 40-bit frames' addresses.
    const MAIR: u64 = 0x04ff;
    const TCR: u64 = 16 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32;
    // SAFETY: the caller's promise, and nothing that Rust knows of moves.
    unsafe {
        asm!(
            "dsb sy",
            "msr mair_el1, {mair}",
            "msr tcr_el1, {tcr}",
            "msr ttbr0_el1, {root}",
            "isb",
            "tlbi vmalle1",
            "dsb sy",
            "isb",
            // Translation and both caches on.
            "mrs {old}, sctlr_el1",
            "mov {new}, #0x1005",
            "orr {old}, {old}, {new}",
            "msr sctlr_el1, {old}",
            "isb",
            mair = in(reg) MAIR,
            tcr = in(reg) TCR,
            root = in(reg) regime.root.raw(),
            old = out(reg) _,
            new = out(reg) _,
            options(nostack)
        );
    }
}

/// Turns translation off.
pub fn leave() {
    // SAFETY: all that Rust knows of lies at its own address.
    unsafe {
        asm!(
            "dsb sy",
            "mrs {old}, sctlr_el1",
            "bic {old}, {old}, #1",
            "msr sctlr_el1, {old}",
            "isb",
            "tlbi vmalle1",
            "dsb sy",
            "isb",
            old = out(reg) _,
            options(nostack)
        );
    }
}

/// Empties the TLB of what the flush names, in the space that is loaded.
pub fn invalidate(flush: Flush) {
    // SAFETY: an invalidation changes no memory. By address it empties the caches of upper entries, too.
    unsafe { asm!("dsb ishst", options(nostack)) };
    for page in 0..flush.range.count {
        let page = (flush.range.start + page).raw() & 0xfff_ffff_ffff;
        // SAFETY: as above.
        unsafe { asm!("tlbi vaae1, {}", in(reg) page, options(nostack)) };
    }
    // SAFETY: as above.
    unsafe { asm!("dsb ish", "isb", options(nostack)) };
}

/// Returns the instructions that were executed, if the emulator lets one take a nanosecond (`-icount shift=0`).
#[cfg(feature = "heap")]
pub fn instructions() -> u64 {
    let count;
    // SAFETY: switches the counter of cycles on and reads it; memory counts as touched, so that what is measured stays
    // between two calls.
    unsafe {
        asm!(
            "msr pmcntenset_el0, {all}",
            "msr pmcr_el0, {on}",
            "isb",
            "mrs {count}, pmccntr_el0",
            all = in(reg) 1_u64 << 31,
            // All 64 bits of it.
            on = in(reg) 1_u64 | 1 << 6,
            count = out(reg) count,
            options(nostack)
        );
    }
    count
}

/// Sends a byte to the serial port, which the emulator takes at once.
pub fn put(byte: u8) {
    // SAFETY: the register of the board's serial port.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(SERIAL).write_volatile(byte.into()) };
}

/// Ends the machine by semihosting: the emulator exits with 33 if all was well, else with 35.
pub fn exit(well: bool) -> ! {
    // ADP_Stopped_ApplicationExit, and the code.
    let block = [0x20026_u64, if well { 33 } else { 35 }];
    // SAFETY: SYS_EXIT reads the two words.
    unsafe { asm!("hlt #0xf000", in("x0") 0x18, in("x1") &raw const block, options(nostack)) };
    loop {
        core::hint::spin_loop();
    }
}

/// Enters Rust from the way in, with translation off.
#[unsafe(no_mangle)]
extern "C" fn enter() -> ! {
    let taken = (MEMORY as u64, super::kernel().1);
    // SAFETY: the loader leaves a device tree before the kernel.
    crate::start(unsafe { device_tree::memory(MEMORY, taken) })
}

/// Ends the machine at an exception that no access of a program explains.
#[unsafe(no_mangle)]
extern "C" fn unexpected(vector: u64, syndrome: u64, at: u64, address: u64) -> ! {
    panic!("exception {vector}, syndrome {syndrome:#x}, at {at:#x}, address {address:#x}");
}

//! A board with a 32-bit ARM processor (QEMU's `virt` with a Cortex-A15), begun in supervisor mode.

use core::arch::{asm, global_asm};

use swath_arch::{Format, Regime};
use swath_vm::Flush;

use crate::machine::{Fault, device_tree};

/// The machine's name.
pub const NAME: &str = "ARMv7";
/// The format of its tables.
pub const FORMAT: Format = Format::ArmV7;
/// The address at which the pages of programs begin.
pub const WINDOW: usize = 0x8000_0000;
/// Registers of devices that the kernel reaches by memory: those of the serial port.
pub const DEVICES: &[u64] = &[SERIAL as u64];
/// The machine does not set the accessed flag of a page: its access faults.
pub const SETS_ACCESSED: bool = false;

/// The PL011's data register.
const SERIAL: usize = 0x0900_0000;
/// Where memory begins, and with it the device tree.
const MEMORY: usize = 0x4000_0000;

global_asm!(include_str!("arm.s"), options(raw));

// The value, and in the upper half 0 or the fault's status with bit 31, where the value is the
// faulting address: two registers.
unsafe extern "C" {
    fn probe_read(address: usize) -> u64;
    fn probe_write(address: usize, value: usize) -> u64;
}

fn probed(outcome: u64) -> Result<usize, Fault> {
    let (value, fault) = (outcome as usize, (outcome >> 32) as u32);
    if fault == 0 {
        return Ok(value);
    }
    // DDI 0406C, table B3-23: bit 11 of the DFSR, a write; bits 10 and 3 to 0, the status.
    // A translation, an accessed flag or a permission that is missing, of a section or a page.
    let explained = matches!(fault & 0x40f, 0b0101 | 0b0111 | 0b0011 | 0b0110 | 0b1101 | 0b1111);
    assert!(explained, "a data abort with status {fault:#x} at {value:#x}");
    Err(Fault { address: value, write: fault & 1 << 11 != 0 })
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
    // {TEX[0], C, B} = 3 is normal, write-back, 4 device; all is shareable whatever S says
    // (DDI 0406C, B4.1.127 and B4.1.104).
    const PRRR: u32 = 2 << 6 | 1 << 8 | 0xf << 16 | 1 << 27 | 1 << 28;
    const NMRR: u32 = 1 << 6 | 1 << 22;
    // TRE and AFE, both caches, translation.
    const SCTLR: u32 = 1 << 29 | 1 << 28 | 1 << 12 | 1 << 2 | 1;
    // SAFETY: the caller's promise, and nothing that Rust knows of moves.
    unsafe {
        asm!(
            "dsb",
            "mcr p15, 0, {prrr}, c10, c2, 0",
            "mcr p15, 0, {nmrr}, c10, c2, 1",
            // TTBCR.N = 0; domain 0 is a client; TTBR0, walks cached and inner shareable.
            "mcr p15, 0, {zero}, c2, c0, 2",
            "mcr p15, 0, {one}, c3, c0, 0",
            "mcr p15, 0, {root}, c2, c0, 0",
            "isb",
            "mcr p15, 0, {zero}, c8, c7, 0",
            "dsb",
            "isb",
            "mrc p15, 0, {old}, c1, c0, 0",
            "orr {old}, {old}, {on}",
            "mcr p15, 0, {old}, c1, c0, 0",
            "isb",
            prrr = in(reg) PRRR,
            nmrr = in(reg) NMRR,
            zero = in(reg) 0,
            one = in(reg) 1,
            root = in(reg) regime.root.raw() as u32 | 1 << 6 | 1 << 3 | 1 << 1,
            on = in(reg) SCTLR,
            old = out(reg) _,
            options(nostack)
        );
    }
}

/// Turns translation off.
pub fn leave() {
    // SAFETY: all that Rust knows of lies at its own address.
    unsafe {
        asm!(
            "dsb",
            "mrc p15, 0, {old}, c1, c0, 0",
            "bic {old}, {old}, #1",
            "mcr p15, 0, {old}, c1, c0, 0",
            "isb",
            "mcr p15, 0, {zero}, c8, c7, 0",
            "dsb",
            "isb",
            old = out(reg) _,
            zero = in(reg) 0,
            options(nostack)
        );
    }
}

/// Empties the TLB of what the flush names, in the space that is loaded.
pub fn invalidate(flush: Flush) {
    // SAFETY: an invalidation changes no memory. By address it empties the caches of upper entries, too.
    unsafe { asm!("dsb", options(nostack)) };
    for page in 0..flush.range.count {
        let address = (flush.range.start + page).address().raw() as u32;
        // SAFETY: as above.
        unsafe { asm!("mcr p15, 0, {}, c8, c7, 3", in(reg) address, options(nostack)) };
    }
    // SAFETY: as above.
    unsafe { asm!("dsb", "isb", options(nostack)) };
}

/// Returns the instructions that were executed, if the emulator lets one take a nanosecond (`-icount shift=0`); the
/// lower 32 bits of them.
#[cfg(feature = "heap")]
pub fn instructions() -> u64 {
    let count: u32;
    // SAFETY: switches the counter of cycles on and reads it; memory counts as touched, so that what is measured stays
    // between two calls.
    unsafe {
        asm!(
            "mcr p15, 0, {all}, c9, c12, 1",
            "mcr p15, 0, {on}, c9, c12, 0",
            "isb",
            "mrc p15, 0, {count}, c9, c13, 0",
            all = in(reg) 1_u32 << 31,
            on = in(reg) 1_u32,
            count = out(reg) count,
            options(nostack)
        );
    }
    count.into()
}

/// Sends a byte to the serial port, which the emulator takes at once.
pub fn put(byte: u8) {
    // SAFETY: the register of the board's serial port.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(SERIAL).write_volatile(byte.into()) };
}

/// Ends the machine by semihosting: the emulator exits with 33 if all was well, else with 35.
pub fn exit(well: bool) -> ! {
    // ADP_Stopped_ApplicationExit, and the code.
    let block = [0x20026_u32, if well { 33 } else { 35 }];
    // SAFETY: SYS_EXIT_EXTENDED reads the two words.
    unsafe { asm!("svc #0x123456", in("r0") 0x20, in("r1") &raw const block, options(nostack)) };
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
extern "C" fn unexpected(vector: u32, status: u32, at: u32, address: u32) -> ! {
    panic!("exception {vector}, status {status:#x}, at {at:#x}, address {address:#x}");
}

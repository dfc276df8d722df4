//! A board with a 64-bit RISC-V processor (QEMU's `virt`), begun in machine mode.

use core::arch::{asm, global_asm};

use swath_arch::{Format, Regime};
use swath_vm::Flush;

use crate::machine::{Fault, device_tree};

/// The machine's name.
pub const NAME: &str = "RISC-V";
/// The format of its tables.
pub const FORMAT: Format = Format::Sv39;
/// The address at which the pages of programs begin.
pub const WINDOW: usize = 0x20_0000_0000;
/// Registers of devices that the kernel reaches by memory: the serial port and the machine's end.
pub const DEVICES: &[u64] = &[SERIAL as u64, FINISHER as u64];
/// The machine sets the accessed flag of a page itself.
pub const SETS_ACCESSED: bool = true;

/// The 16550's data register.
const SERIAL: usize = 0x1000_0000;
/// The register that ends the machine.
const FINISHER: usize = 0x10_0000;
/// `satp`: tables of Sv39.
const MODE_SV39: u64 = 8 << 60;

global_asm!(include_str!("riscv64.s"));

unsafe extern "C" {
    fn probe_read(address: usize) -> Probed;
    fn probe_write(address: usize, value: usize) -> Probed;
}

/// What an access came to: the value and 0, or the faulting address and the cause with bit 63.
#[repr(C)]
struct Probed {
    value: usize,
    fault: u64,
}

fn probed(Probed { value, fault }: Probed) -> Result<usize, Fault> {
    // Privileged architecture, "Supervisor Cause Register": the faults of pages at loads and stores.
    match fault & !(1 << 63) {
        0 => Ok(value),
        13 => Err(Fault { address: value, write: false }),
        15 => Err(Fault { address: value, write: true }),
        cause => panic!("cause {cause} at {value:#x}"),
    }
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
    let satp = MODE_SV39 | regime.root.frame().raw();
    // SAFETY: the caller's promise, and nothing that Rust knows of moves.
    unsafe { asm!("csrw satp, {}", "sfence.vma", in(reg) satp, options(nostack)) };
}

/// Turns translation off.
pub fn leave() {
    // SAFETY: all that Rust knows of lies at its own address.
    unsafe { asm!("csrw satp, zero", "sfence.vma", options(nostack)) };
}

/// Empties the TLB of what the flush names, in the space that is loaded.
pub fn invalidate(flush: Flush) {
    // Of many pages all is emptied, as kernels do; this emulator empties all for a single one, too.
    if flush.range.count > 8 {
        // SAFETY: an invalidation changes no memory.
        unsafe { asm!("sfence.vma", options(nostack)) };
        return;
    }
    for page in 0..flush.range.count {
        let address = (flush.range.start + page).address().raw();
        // SAFETY: an invalidation changes no memory. By address it empties the caches of upper entries, too.
        unsafe { asm!("sfence.vma {}", in(reg) address, options(nostack)) };
    }
}

/// Returns the instructions that were executed, as the emulator counts them if it does (`-icount`).
#[cfg(feature = "heap")]
pub fn instructions() -> u64 {
    let count;
    // SAFETY: reads a counter; memory counts as touched, so that what is measured stays between two calls.
    unsafe { asm!("csrr {}, instret", out(reg) count, options(nostack)) };
    count
}

/// Sends a byte to the serial port, which the emulator takes at once.
pub fn put(byte: u8) {
    // SAFETY: the register of the board's serial port.
    unsafe { core::ptr::with_exposed_provenance_mut::<u8>(SERIAL).write_volatile(byte) };
}

/// Ends the machine: the emulator exits with 33 if all was well, else with 35.
pub fn exit(well: bool) -> ! {
    // The finisher's word for a failure, which alone has a code.
    let word = if well { 33 } else { 35 } << 16 | 0x3333;
    // SAFETY: the register that ends the machine.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(FINISHER).write_volatile(word) };
    loop {
        core::hint::spin_loop();
    }
}

/// Enters Rust from the way in, with translation off; the loader's word is where the device tree lies.
#[unsafe(no_mangle)]
extern "C" fn enter(tree: usize) -> ! {
    // SAFETY: the loader leaves a device tree there, outside of the kernel.
    crate::start(unsafe { device_tree::memory(tree, super::kernel()) })
}

/// Ends the machine at an exception that no access of a program explains.
#[unsafe(no_mangle)]
extern "C" fn unexpected(cause: u64, at: u64, address: u64) -> ! {
    panic!("exception with cause {cause:#x}, at {at:#x}, address {address:#x}");
}

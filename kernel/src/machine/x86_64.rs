//! A PC with a 64-bit processor, begun through the entry for virtual machines (PVH: the Xen project's
//! "x86/HVM direct boot ABI").

use core::arch::{asm, global_asm};
use core::ptr;

use swath_arch::{Format, Regime};
use swath_vm::Flush;

use crate::machine::Fault;
use crate::memory::Firmware;

/// The machine's name.
pub const NAME: &str = "x86-64";
/// The format of its tables.
pub const FORMAT: Format = Format::X86_64;
/// The address at which the pages of programs begin.
pub const WINDOW: usize = 0x80_0000_0000;
/// Registers of devices that the kernel reaches by memory: none.
pub const DEVICES: &[u64] = &[];
/// The machine sets the accessed flag of a page itself.
pub const SETS_ACCESSED: bool = true;

global_asm!(include_str!("x86_64.s"), options(att_syntax));

unsafe extern "C" {
    fn probe_read(address: usize) -> Probed;
    fn probe_write(address: usize, value: usize) -> Probed;
}

/// What an access came to: the value and 0, or the faulting address and the error code with bit 63.
#[repr(C)]
struct Probed {
    value: u64,
    fault: u64,
}

fn probed(Probed { value, fault }: Probed) -> Result<usize, Fault> {
    match fault {
        0 => Ok(value as usize),
        // Bits of the error code: 1, a write; 3, a reserved bit was set.
        code => {
            assert!(code & 8 == 0, "a reserved bit is set on the way to {value:#x}");
            let address = value as usize;
            Err(Fault { address, write: code & 2 != 0 })
        }
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
    // SAFETY: the caller's promise, and nothing that Rust knows of moves.
    unsafe { asm!("mov cr3, {}", in(reg) regime.root.raw(), options(nostack)) };
}

/// Empties the TLB of what the flush names, in the space that is loaded.
pub fn invalidate(flush: Flush) {
    for page in 0..flush.range.count {
        let address = (flush.range.start + page).address().raw();
        // SAFETY: an invalidation changes no memory. It empties the caches of upper entries, too
        // (SDM volume 3A, section 5.10.4.1).
        unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack)) };
    }
}

/// Returns the instructions that were executed, if the emulator lets one take a nanosecond (`-icount shift=0`).
#[cfg(feature = "heap")]
pub fn instructions() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter; memory counts as touched, so that what is measured stays between two calls.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

fn out(port: u16, byte: u8) {
    // SAFETY: the ports are those of the first serial port and of the emulator's exit device.
    unsafe { asm!("out dx, al", in("dx") port, in("al") byte, options(nomem, nostack)) };
}

/// Sends a byte to the first serial port, which the emulator takes at once.
pub fn put(byte: u8) {
    out(0x3f8, byte);
}

/// Ends the machine: the emulator exits with 33 if all was well, else with 35.
pub fn exit(well: bool) -> ! {
    out(0xf4, if well { 16 } else { 17 });
    loop {
        // SAFETY: the processor stops until an interrupt comes; none is let through.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

/// What the loader leaves (`hvm_start_info`, version 1).
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// One range of the memory map.
#[repr(C)]
#[derive(Clone, Copy)]
struct MapEntry {
    start: u64,
    len_bytes: u64,
    kind: u32,
    reserved: u32,
}

/// The kind of usable memory.
const RAM: u32 = 1;

/// Enters Rust from the way in, in 64-bit mode, with all below 4 GiB mapped at its own address.
#[unsafe(no_mangle)]
extern "C" fn enter(info: *const StartInfo) -> ! {
    // SAFETY: the loader's promise: the structure lies there, below 4 GiB.
    let info = unsafe { ptr::read(info) };
    assert!(info.magic == 0x336e_c578 && info.version >= 1, "no memory map was left");
    let mut firmware = Firmware::new();
    let entries = ptr::with_exposed_provenance::<MapEntry>(info.memory_map as usize);
    for at in 0..info.memory_map_entries as usize {
        // SAFETY: the loader's promise: so many entries lie there.
        let entry = unsafe { ptr::read(entries.add(at)) };
        // The first megabyte holds what the loader left.
        if entry.kind == RAM && entry.start >= 0x10_0000 {
            firmware.add(entry.start, entry.len_bytes, super::kernel());
        }
    }
    crate::start(firmware)
}

/// Ends the machine at an exception that no access of a program explains.
#[unsafe(no_mangle)]
extern "C" fn unexpected(vector: u64, code: u64, at: u64, address: u64) -> ! {
    panic!("exception {vector}, code {code:#x}, at {at:#x}, address {address:#x}");
}

/// Returns to the tables of the way in.
pub fn leave() {
    unsafe extern "C" {
        static boot_pml4: u8;
    }
    // SAFETY: they map all below 4 GiB at its own address.
    unsafe { asm!("mov cr3, {}", in(reg) &raw const boot_pml4, options(nostack)) };
}

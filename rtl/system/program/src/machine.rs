//! The core, the host and the memories, as `rtl/system/system.sv` has them.

use core::alloc::Layout;
use core::arch::{asm, global_asm};
use core::ptr::{NonNull, with_exposed_provenance, with_exposed_provenance_mut};

use swath_arch::{
    BASE_PAGE_BYTES, BusError, Extent, Pfn, PhysAddr, PhysMemory, ValidityTables, VirtAddr, Vpn,
};

/// log2 of the pages of the space.
pub const PAGES_LOG2: u32 = 19;

/// The first address that goes through the unit: page 0 of the space.
const VIRTUAL: usize = 0x8000_0000;

/// Pages of the heap's pool: TLSF's longest block where a word has four bytes is a 32nd less than the space.
pub const POOL_PAGES: u64 = (31 << PAGES_LOG2) / 32;

/// The chips, the module, and the end of what the core reaches of it beside the unit.
const CHIP1: u64 = 0x2000_0000;
const CHIP2: u64 = 0x3000_0000;
const MODULE: u64 = 0x4000_0000;

/// Bytes of an array with a word for each page.
const ARRAY_BYTES: u64 = 4 << PAGES_LOG2;

/// The places of the tables that the unit reads (Böhnert and Scholl, section V-A): VRC and stack ends in one
/// chip, helper and stack in another, the data array in the module.
pub const TABLES: ValidityTables = ValidityTables {
    pages_log2: PAGES_LOG2,
    regions: PhysAddr::new(CHIP1),
    stack_end: PhysAddr::new(CHIP1 + ARRAY_BYTES),
    helper: PhysAddr::new(CHIP2),
    stack: PhysAddr::new(CHIP2 + ARRAY_BYTES),
    data: PhysAddr::new(MODULE),
};

/// Behind it in the module: headers, words of the heap's regions, links of the frames, the frames.
const HEADERS: u64 = MODULE + ARRAY_BYTES;
const WORDS: u64 = HEADERS + 4 * ARRAY_BYTES;
const LINKS: u64 = WORDS + ARRAY_BYTES;
const FRAMES: u64 = MODULE + 8 * ARRAY_BYTES;
const MODULE_END: u64 = 0x8000_0000;

/// The frames of the pages, one for each. Beyond the first GiB of the module the unit alone reaches them.
pub const POOL: Extent =
    Extent { start: Pfn::new(FRAMES / BASE_PAGE_BYTES), count: 1 << PAGES_LOG2 };

/// Returns memory of the module, which may hold anything.
///
/// # Safety
/// `at` is a multiple of `T`'s alignment, all bit patterns are values of `T`, and nobody else uses so much of the
/// module there.
unsafe fn module<T>(at: u64, count: usize) -> &'static mut [T] {
    // SAFETY: the module is there for ever, the rest is the contract.
    unsafe { core::slice::from_raw_parts_mut(with_exposed_provenance_mut(at as usize), count) }
}

/// Returns the words of the headers, of the heap's regions, and of the frames' links.
///
/// # Safety
/// To be called once.
pub unsafe fn storage() -> (&'static mut [u64], &'static mut [u32], &'static mut [u32]) {
    // SAFETY: the three lie one behind the other, before the frames: the links have less than an array.
    unsafe {
        (
            module(HEADERS, 2 << PAGES_LOG2),
            module(WORDS, 1 << PAGES_LOG2),
            module(LINKS, POOL.count as usize),
        )
    }
}

const _: () = assert!(LINKS + 4 * POOL.count <= FRAMES);

/// Returns the pool of the heap: its first byte and its length.
pub fn pool() -> (NonNull<u8>, usize) {
    let start = NonNull::new(with_exposed_provenance_mut(VIRTUAL)).expect("it is not 0");
    (start, (POOL_PAGES * BASE_PAGE_BYTES) as usize)
}

/// Returns the page of the space that an address lies in.
pub fn page_of(address: usize) -> Vpn {
    VirtAddr::new((address - VIRTUAL) as u64).page()
}

/// The memories beside the unit.
#[derive(Clone, Copy)]
pub struct Bus;

impl Bus {
    fn at(addr: PhysAddr, len_bytes: u32) -> Result<usize, BusError> {
        match (CHIP1..MODULE_END).contains(&addr.raw()) && addr.raw() % u64::from(len_bytes) == 0 {
            true => Ok(addr.raw() as usize),
            false => Err(BusError { addr, len_bytes }),
        }
    }
}

impl PhysMemory for Bus {
    #[inline]
    fn read_u32(&self, addr: PhysAddr) -> Result<u32, BusError> {
        let at = with_exposed_provenance::<u32>(Self::at(addr, 4)?);
        // SAFETY: a word of a memory; the tables are no object of the program.
        Ok(unsafe { at.read_volatile() })
    }

    #[inline]
    fn read_u64(&self, addr: PhysAddr) -> Result<u64, BusError> {
        let at = with_exposed_provenance::<u64>(Self::at(addr, 8)?);
        // SAFETY: as above.
        Ok(unsafe { at.read_volatile() })
    }

    #[inline]
    fn write_u32(&self, addr: PhysAddr, value: u32) -> Result<(), BusError> {
        let at = with_exposed_provenance_mut::<u32>(Self::at(addr, 4)?);
        // SAFETY: as above.
        unsafe { at.write_volatile(value) };
        Ok(())
    }

    #[inline]
    fn write_u64(&self, addr: PhysAddr, value: u64) -> Result<(), BusError> {
        let at = with_exposed_provenance_mut::<u64>(Self::at(addr, 8)?);
        // SAFETY: as above.
        unsafe { at.write_volatile(value) };
        Ok(())
    }
}

/// A command of the host.
pub enum Command {
    End,
    Allocate { layout: Layout },
    Free { at: NonNull<u8>, end: u64 },
    Read { at: *const u8 },
    Write { at: *mut u8, value: u8 },
    Check,
}

/// The outcome of a command: the cycles, an address or a byte, and whether it was done.
pub struct Outcome {
    pub cycles: u32,
    pub value: u32,
    pub done: bool,
}

const HOST: usize = 0x1000_0000;
const UNIT: usize = 0x1000_1000;

fn read(register: usize) -> u32 {
    // SAFETY: registers of the host.
    unsafe { with_exposed_provenance::<u32>(HOST + register).read_volatile() }
}

fn write(at: usize, value: u32) {
    // SAFETY: registers of the host or of the unit.
    unsafe { with_exposed_provenance_mut::<u32>(at).write_volatile(value) };
}

/// Waits for the next command.
pub fn command() -> Command {
    let (code, first, second) = (read(0), read(4), read(8));
    let at = || with_exposed_provenance_mut::<u8>(first as usize);
    match code {
        0 => Command::End,
        1 => match Layout::from_size_align(first as usize, second as usize) {
            Ok(layout) => Command::Allocate { layout },
            Err(_) => panic!(),
        },
        2 => match NonNull::new(at()) {
            Some(at) => Command::Free { at, end: second.into() },
            None => panic!(),
        },
        3 => Command::Read { at: at() },
        4 => Command::Write { at: at(), value: second as u8 },
        5 => Command::Check,
        _ => panic!(),
    }
}

/// Tells the host what came of a command.
pub fn answer(outcome: Outcome, mapped_pages: u32) {
    write(HOST + 4, outcome.cycles);
    write(HOST + 8, outcome.value);
    write(HOST + 12, mapped_pages);
    write(HOST + 16, outcome.done.into());
}

/// Tells the host the page at which a footprint ends whose last block is the one that it is given next.
pub fn tell_end(page: u32) {
    write(HOST + 20, page);
}

/// Returns true if the unit is the conventional one.
pub fn is_conventional() -> bool {
    read(12) != 0
}

/// Ends the simulation: all was well.
pub fn end() -> ! {
    write(HOST, 1);
    loop {}
}

/// Ends the simulation, and says which trap could not be handled and of what: an address, or 0 and the line of a panic.
pub fn fail(cause: u32, what: u32) -> ! {
    write(HOST + 24, cause);
    write(HOST + 28, what);
    write(HOST, 0);
    loop {}
}

/// Loads the unit's registers. `hold` is the number of cycles after which each verdict comes.
pub fn set_unit(tables: ValidityTables) {
    let bases = [tables.regions, tables.stack_end, tables.helper, tables.stack, tables.data];
    for (n, base) in bases.into_iter().enumerate() {
        write(UNIT + 4 * n, base.raw() as u32);
    }
    write(UNIT + 20, (1 << PAGES_LOG2) - 1);
    // As long as the slower way takes: two reads of a chip, or one of the table.
    write(UNIT + 24, read(16));
}

/// Returns the cycles since the reset, of which calls are up to 2^32 apart.
#[inline]
pub fn cycles() -> u32 {
    let cycles;
    // SAFETY: reads the counter. It may touch memory for all that the compiler knows, so that what is measured
    // stays between two reads.
    unsafe { asm!("csrr {}, mcycle", out(reg) cycles, options(nostack)) };
    cycles
}

/// Returns the cycles between two reads of the counter, without those of the reads.
#[inline]
pub fn cycles_since(began: u32) -> u32 {
    cycles().wrapping_sub(began) - 1
}

/// Has traps handled.
pub fn set_trap() {
    // SAFETY: the handler keeps all registers.
    unsafe { asm!("la {0}, trap", "csrw mtvec, {0}", out(reg) _) };
}

/// Handles a trap; what is no page fault ends the program.
#[unsafe(no_mangle)]
extern "C" fn handle_trap(cause: u32, value: usize) {
    // A load, a store.
    if !(matches!(cause, 13 | 15) && crate::page_fault(page_of(value))) {
        fail(cause, value as u32);
    }
}

global_asm!(
    ".section .text.start, \"ax\"",
    ".globl start",
    "start:",
    "la sp, stack_end",
    "j run",
    ".text",
    ".balign 4",
    "trap:",
    "addi sp, sp, -64",
    "sw ra, 0(sp)",
    "sw t0, 4(sp)",
    "sw t1, 8(sp)",
    "sw t2, 12(sp)",
    "sw a0, 16(sp)",
    "sw a1, 20(sp)",
    "sw a2, 24(sp)",
    "sw a3, 28(sp)",
    "sw a4, 32(sp)",
    "sw a5, 36(sp)",
    "sw a6, 40(sp)",
    "sw a7, 44(sp)",
    "sw t3, 48(sp)",
    "sw t4, 52(sp)",
    "sw t5, 56(sp)",
    "sw t6, 60(sp)",
    "csrr a0, mcause",
    "csrr a1, mtval",
    "call handle_trap",
    "lw ra, 0(sp)",
    "lw t0, 4(sp)",
    "lw t1, 8(sp)",
    "lw t2, 12(sp)",
    "lw a0, 16(sp)",
    "lw a1, 20(sp)",
    "lw a2, 24(sp)",
    "lw a3, 28(sp)",
    "lw a4, 32(sp)",
    "lw a5, 36(sp)",
    "lw a6, 40(sp)",
    "lw a7, 44(sp)",
    "lw t3, 48(sp)",
    "lw t4, 52(sp)",
    "lw t5, 56(sp)",
    "lw t6, 60(sp)",
    "addi sp, sp, 64",
    "mret",
);

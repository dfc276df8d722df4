//! The machine for the scenario in C (`c/scenario.c`), which is linked with `libswath.a`.

use core::ffi::{CStr, c_char};

use swath_arch::{Coalescing, Format, PageRange, PhysAddr, Regime, Vpn};
use swath_frame::reserve::ReservationLevels;
use swath_vm::Flush;

use crate::machine::{self, FORMAT, Fault, WINDOW};
use crate::memory::Firmware;

/// Bytes of storage for all that the scenario makes: most of it is the reverse map's.
const STORAGE_BYTES: usize = 1 << 20;

/// An extent of frames (`swath_extent`).
#[repr(C)]
struct Frames {
    start: u64,
    count: u64,
}

/// A range of bytes (`swath_range`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    start: u64,
    len_bytes: u64,
}

/// What the scenario is told (`struct machine`).
#[repr(C)]
struct Machine {
    format: u32,
    levels: u32,
    orders: [u32; 2],
    sets_accessed: u32,
    window: u64,
    span: Frames,
    ranges: *const Bytes,
    range_count: usize,
    devices: *const u64,
    device_count: usize,
    storage: *mut u64,
    storage_bytes: usize,
}

/// TLB maintenance (`swath_flush`).
#[repr(C)]
struct Maintenance {
    first_page: u64,
    count: u64,
    links_changed: u32,
}

unsafe extern "C" {
    fn scenario(machine: *const Machine);
}

/// Runs the scenario in C on the memory that the firmware left.
pub fn run(mut firmware: Firmware) {
    let span = firmware.span(machine::kernel());
    let storage = firmware.cut(STORAGE_BYTES / 8, 0_u64);
    let mut ranges = [Bytes { start: 0, len_bytes: 0 }; 16];
    for (range, known) in ranges.iter_mut().zip(firmware.ranges()) {
        *range = Bytes { start: known.start.raw(), len_bytes: known.len_bytes };
    }
    // The numbers of `swath_format` and `swath_levels`; RISC-V has ARMv8's.
    let (format, levels) = match FORMAT {
        Format::ArmV7 => (0, 0),
        Format::ArmV8 => (1, 2),
        Format::X86_64 => (2, 4),
        Format::Sv39 => (3, 2),
        Format::Sv48 => (4, 2),
    };
    let usual = ReservationLevels::usual(FORMAT);
    let orders = usual.orders();
    let order = |at: usize| orders.get(at).map_or(0, |order| order.k());
    let machine = Machine {
        format,
        levels,
        orders: [order(0), order(1)],
        sets_accessed: machine::SETS_ACCESSED.into(),
        window: (WINDOW >> 12) as u64,
        span: Frames { start: span.start.raw(), count: span.count },
        ranges: ranges.as_ptr(),
        range_count: firmware.ranges().len(),
        devices: machine::DEVICES.as_ptr(),
        device_count: machine::DEVICES.len(),
        storage: storage.as_mut_ptr(),
        storage_bytes: STORAGE_BYTES,
    };
    // SAFETY: all that it is told of stays to its end, and the storage is its own.
    unsafe { scenario(&raw const machine) };
}

/// What an access came to, as C has it; an address of a fault is written.
///
/// # Safety
/// `fault` can be written.
unsafe fn came(done: Result<(), Fault>, fault: *mut usize) -> u32 {
    match done {
        Ok(()) => 0,
        Err(Fault { address, write }) => {
            // SAFETY: the caller's promise.
            unsafe { fault.write(address) };
            1 + u32::from(write)
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kernel_read(address: usize, value: *mut usize, fault: *mut usize) -> u32 {
    // SAFETY: C has room for both.
    let done = machine::read(address).map(|word| unsafe { value.write(word) });
    // SAFETY: as above.
    unsafe { came(done, fault) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kernel_write(address: usize, value: usize, fault: *mut usize) -> u32 {
    // SAFETY: C has room for it.
    unsafe { came(machine::write(address, value), fault) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kernel_load(root: u64) {
    let regime = Regime { format: FORMAT, root: PhysAddr::new(root), coalescing: Coalescing::None };
    // SAFETY: every space of the scenario begins with the direct map.
    unsafe { machine::load(regime) };
}

#[unsafe(no_mangle)]
extern "C" fn kernel_leave() {
    machine::leave();
}

#[unsafe(no_mangle)]
extern "C" fn kernel_invalidate(flush: Maintenance) {
    machine::invalidate(Flush {
        range: PageRange::new(Vpn::new(flush.first_page), flush.count),
        links_changed: flush.links_changed != 0,
    });
}

/// The text of C.
///
/// # Safety
/// It is one, and stays.
unsafe fn text(text: *const c_char) -> &'static str {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?")
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kernel_say(said: *const c_char, number: u64) {
    // SAFETY: a literal of the scenario's.
    say!("{}: {number}", unsafe { text(said) });
}

#[unsafe(no_mangle)]
extern "C" fn kernel_passed() {
    crate::check::passed();
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kernel_failed(what: *const c_char, line: u32, at: u64) -> ! {
    // SAFETY: a literal of the scenario's.
    panic!("scenario.c, line {line}, at {at}: {}", unsafe { text(what) })
}

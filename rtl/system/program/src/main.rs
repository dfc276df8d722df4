#![doc = include_str!("../README.md")]
#![no_std]
#![no_main]

mod global;
mod machine;
mod regions;
mod table;

use core::alloc::Layout;
use core::panic::PanicInfo;
use core::ptr::NonNull;

use swath_arch::Vpn;
use swath_heap::{GRANULE_BYTES, HEADER_BYTES};

use crate::machine::{Command, Outcome};
use crate::regions::Regions;
use crate::table::Table;

/// One of the two systems that are compared: a heap, and the pages under it.
trait System {
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>>;

    /// Frees an allocation, after which the last block ends before page `end`; returns true if the heap knew it.
    ///
    /// # Safety
    /// `at` came from this heap, was not freed since, and nobody uses it after.
    unsafe fn free(&mut self, at: NonNull<u8>, end: u64) -> bool;

    /// Counts the bytes that may be used at `at`.
    ///
    /// # Safety
    /// `at` came from this heap and was not freed since.
    unsafe fn usable_bytes(&self, at: NonNull<u8>) -> usize;

    /// Counts the pages that have a frame.
    fn mapped_pages(&self) -> u32;

    /// Walks the heap's invariants and those of the pages.
    fn check(&self) -> bool;
}

/// Runs on the heap over regions, or on the one over a page table, as the host says.
#[unsafe(no_mangle)]
extern "C" fn run() -> ! {
    machine::set_trap();
    match machine::is_conventional() {
        false => serve(Regions::start()),
        true => serve(Table::start()),
    }
}

/// Does what the host says until it says no more, and tells it how many cycles each command took.
fn serve(mut system: impl System) -> ! {
    loop {
        let outcome = match machine::command() {
            Command::Allocate { layout } => {
                let began = machine::cycles();
                let at = system.allocate(layout);
                let cycles = machine::cycles_since(began);
                let value = at.map_or(0, |at| at.addr().get() as u32);
                machine::tell_end(at.map_or(0, |at| end_of(&system, at)));
                Outcome { cycles, value, done: at.is_some() }
            }
            Command::Free { at, end } => {
                let began = machine::cycles();
                // SAFETY: the host frees each address that it was given once, and accesses none after.
                let done = unsafe { system.free(at, end) };
                Outcome { cycles: machine::cycles_since(began), value: 0, done }
            }
            Command::Read { at } => {
                let began = machine::cycles();
                // SAFETY: the host says so of bytes that it was given; a page without a frame gets one.
                let value = unsafe { at.read_volatile() };
                Outcome { cycles: machine::cycles_since(began), value: value.into(), done: true }
            }
            Command::Write { at, value } => {
                let began = machine::cycles();
                // SAFETY: as above.
                unsafe { at.write_volatile(value) };
                Outcome { cycles: machine::cycles_since(began), value: 0, done: true }
            }
            Command::Check => {
                let began = machine::cycles();
                let done = system.check();
                Outcome { cycles: machine::cycles_since(began), value: 0, done }
            }
            Command::End => machine::end(),
        };
        machine::answer(outcome, system.mapped_pages());
    }
}

/// Returns the page at which a footprint ends whose last block is that at `at`: behind it lie a tag and links.
fn end_of(system: &impl System, at: NonNull<u8>) -> u32 {
    // SAFETY: it was allocated just now.
    let usable_bytes = unsafe { system.usable_bytes(at) };
    let last =
        at.addr().get() - GRANULE_BYTES + usable_bytes + HEADER_BYTES + 2 * GRANULE_BYTES - 1;
    (machine::page_of(last).raw() + 1) as u32
}

/// Handles a page fault: the page gets a frame, and the access is made again.
fn page_fault(page: Vpn) -> bool {
    match machine::is_conventional() {
        false => regions::fault(page),
        true => table::fault(page),
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    machine::fail(0, info.location().map_or(0, |place| place.line()))
}

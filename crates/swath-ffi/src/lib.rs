#![cfg_attr(feature = "cmt", doc = include_str!("../README.md"))]
//!
//! # Objects
//!
//! A C object is the Rust structure of the same name, placed
//! at the beginning of storage that the caller supplies, with its metadata behind it:
//! ask for the size, hand over the storage, and nothing else is ever allocated. To
//! end an object, forget it. The models of hardware alone, which a simulator links and no kernel, stand
//! on the heap, and have a function that ends them.
//!
//! ```text
//!  storage   |  tag  |  the structure  |  its words ...              |
//!            ^ what C holds
//! ```
//!
//! What every function promises and asks for:
//! * A [`Result`](swath_result) says what went wrong and at which frame, page or
//!   address, or how many bytes are needed; then nothing has changed.
//! * A null pointer or an object of another kind is found and refused. Any other
//!   pointer must be what it is said to be; an object is used by one thread at a time, but any
//!   number of them may read one map.
//! * What C passes as an enumeration arrives as a number, so that one out of range is
//!   refused and not undefined behaviour.
//! * Objects that another is made over (a map, a pool, frames under reservations) stay where
//!   they are as long as the other is used.

#![cfg_attr(not(any(feature = "cmt", feature = "hw")), no_std)]
#![allow(non_camel_case_types, reason = "the names are those of C")]

mod banks;
#[cfg(feature = "cmt")]
mod cmt;
#[cfg(feature = "hw")]
mod dram;
mod frames;
mod heap;
mod map;
#[cfg(feature = "hw")]
mod mmu;
mod object;
mod pmap;
mod regions;
mod reservations;
mod result;
mod segments;
mod space;

pub use banks::*;
#[cfg(feature = "cmt")]
pub use cmt::*;
#[cfg(feature = "hw")]
pub use dram::*;
pub use frames::*;
pub use heap::*;
pub use map::*;
#[cfg(feature = "hw")]
pub use mmu::*;
pub use pmap::*;
pub use regions::*;
pub use reservations::*;
pub use result::*;
pub use segments::*;
pub use space::*;

#[cfg(not(any(feature = "cmt", feature = "hw", test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

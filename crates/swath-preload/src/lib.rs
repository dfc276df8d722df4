//! The library that tells of a process's heap, and how it tells.
//!
//! [`LIBRARY`] is a shared object for `LD_PRELOAD`. It stands before the C
//! library's `malloc` and its kin, hands every call on, and says what was
//! called by **where it stores**: a page of its own for each thread, the lane,
//! takes a few stores whose addresses and lengths are the message. Under
//! valgrind's lackey, which prints each store's address and length, messages
//! and the program's accesses are one stream: nothing has to be merged, no
//! second channel can run full or be closed by the program, and the program's
//! files, time and environment are left alone.
//!
//! A record, by the length of its stores and their offset in the lane:
//!
//! | store | offset | says |
//! |---|---|---|
//! | 8 bytes | 8 × n | a record begins, the n-th of its lane modulo [`SEQUENCE`] |
//! | 1 byte | d | 12 bits of a number, the lowest first |
//! | 2 bytes | d | the last 12 bits of a number |
//! | 4 bytes | 4 × code | it ends: [`MALLOC`], [`FREE`], … |
//!
//! What is given back is told before it is done, what is allocated afterwards,
//! so that at no point of the stream two blocks hold the same byte, whatever
//! the threads do. The values stored mean nothing.
//!
//! The library is written in C, as what it stands in for: it must run before
//! anything else does, in any process, without a runtime. It is compiled by the
//! build script, since a workspace that can build the rest has a C compiler, and
//! stands in this crate as bytes, so that a program has it with it wherever it
//! is installed.

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;

include!("protocol.rs");

/// Records of a lane are numbered modulo this.
pub const SEQUENCE: u64 = LANE_BYTES / 8;

/// The library for this target; `None` where there is none, which is anywhere
/// but on 64-bit Linux with the GNU C library.
#[cfg(has_library)]
pub const LIBRARY: Option<&[u8]> =
    Some(include_bytes!(concat!(env!("OUT_DIR"), "/libswath_preload.so")));
/// The library for this target: none.
#[cfg(not(has_library))]
pub const LIBRARY: Option<&[u8]> = None;

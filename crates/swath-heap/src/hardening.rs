//! The tiers of checks that a heap makes of its caller's pointers.
//!
//! | found | [`Trusting`] | [`Headers`] | [`Links`] |
//! |---|---|---|---|
//! | misaligned or foreign pointer | | yes | yes |
//! | freed twice, before the memory is written again | | yes | yes |
//! | pointer into a block | | by the seal | by the seal |
//! | header overwritten | | by the seal, by its neighbours | the same |
//! | write beyond a block's end | | when the block is freed | the same |
//! | record of a pool overwritten | by `check` | before it is followed | the same |
//! | bit map overwritten | by `check` | where a bit has no list | the same |
//! | link of a free block, head of a list overwritten | by `check` | by `check` | before it is followed |
//!
//! A **seal** is 16 bits in each header, a keyed product of the header's
//! address and the rest of it; a wrong header passes with probability 2^−16, and one with a single
//! bit or byte changed never (the flag of the block before is checked against that one). It
//! exists where words have 64 bits. It is also the canary between two blocks: nothing lies between
//! the bytes of one that may be used and the header of the next, so whoever writes on overwrites a
//! seal, and the free of the block finds it (one load and a product). On smaller words a header is judged by its
//! neighbours alone: its size must lead to another border of the same pool
//! whose flags, and whose way back, agree.
//!
//! Every tier is O(1) per call but for finding the pool of a pointer, which
//! takes O(p) with p pools. Nothing here makes a use after free safe: the tiers
//! find mistakes, they do not contain an attacker who knows the key.

mod sealed {
    pub trait Sealed {}
}

/// A tier of checks.
pub trait Hardening: sealed::Sealed + Default + core::fmt::Debug {
    /// True if pointers and headers are checked.
    #[doc(hidden)]
    const HEADERS: bool;
    /// True if links are, too.
    #[doc(hidden)]
    const LINKS: bool;
}

/// The tier without checks: the caller keeps to the contract.
#[derive(Clone, Copy, Default, Debug)]
pub struct Trusting;

/// The tier that checks pointers and headers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Headers;

/// The tier that checks pointers, headers and the links of free blocks.
#[derive(Clone, Copy, Default, Debug)]
pub struct Links;

impl sealed::Sealed for Trusting {}
impl sealed::Sealed for Headers {}
impl sealed::Sealed for Links {}

impl Hardening for Trusting {
    const HEADERS: bool = false;
    const LINKS: bool = false;
}

impl Hardening for Headers {
    const HEADERS: bool = true;
    const LINKS: bool = false;
}

impl Hardening for Links {
    const HEADERS: bool = true;
    const LINKS: bool = true;
}

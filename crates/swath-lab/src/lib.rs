#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod film;
pub mod host;
pub mod live;
pub(crate) mod names;
pub mod papers;
pub mod report;
pub mod source;
pub mod study;
pub mod sweep;
pub mod table;

/// The README's example, tested.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The book's page for who writes a kernel, tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/kernel.md")]
struct Book;

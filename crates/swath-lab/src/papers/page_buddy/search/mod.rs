//! Readings of Table 3 searched jointly: what it leaves open as axes, their product, each
//! reading's ten claims, and which of them exclude each other.
//!
//! A search judges nothing: whatever it finds was chosen after looking, and each score bears the
//! number of parameters that were.

pub(crate) mod figures;
pub mod front;
pub mod measure;
pub mod plan;
pub mod space;
pub mod study;

//! The page-table formats: where each field of a descriptor lies.
//!
//! [`Format`] gathers what the four architectures have in common (levels, sizes,
//! the bits that are free for contiguity); the modules name every [`Field`] of
//! their descriptors and cite its specification. [`mod@line`] says how those free bits serve
//! together.

pub mod armv7;
pub mod armv8;
pub(crate) mod field;
pub(crate) mod format;
pub mod line;
pub mod riscv;
pub mod x86_64;

pub use field::{Field, Scattered};
pub use format::{Attributes, Coalescing, ContiguityField, Format, Level, MemoryKind, Regime};

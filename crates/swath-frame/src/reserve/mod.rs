//! TODO reserve.

pub(crate) mod allocator;
pub(crate) mod check;
pub(crate) mod levels;
pub mod reservations;
pub(crate) mod slots;
pub(crate) mod table;
pub(crate) mod types;

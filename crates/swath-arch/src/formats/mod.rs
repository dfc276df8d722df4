//! TODO formats.

pub mod armv7;
pub mod armv8;
pub mod field;
pub mod format;
pub mod x86_64;

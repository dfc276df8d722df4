//! TODO buddy.

pub(crate) mod class;
pub(crate) mod classes;
pub mod config;
pub mod page_buddy;
pub mod quick_fit;
pub mod rule;
pub(crate) mod short;

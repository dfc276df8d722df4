//! TODO migrate.

pub mod daemon;
pub mod relocate;
pub mod units;

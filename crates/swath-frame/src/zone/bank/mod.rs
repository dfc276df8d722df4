//! TODO zone/bank.

pub(crate) mod adaptive;
pub(crate) mod blocks;
pub mod buddy;
pub(crate) mod open;
pub mod ranges;
pub(crate) mod rules;
pub(crate) mod walk;

//! TODO rtmmu.

pub mod tables;
pub mod unit;
pub mod walk;

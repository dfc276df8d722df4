//! TODO dram.

pub mod controller;
pub mod energy;
pub mod mapping;
pub mod memory;
pub(crate) mod queue;
pub mod state;
pub mod stats;
pub mod timing;
pub mod trace;

//! Measurements of the machine that runs a study: exact instruction counts of a
//! child process, stepped or simulated, and the worth of its large pages.

pub mod callgrind;
pub mod count;
pub(crate) mod machine;
pub mod memory;

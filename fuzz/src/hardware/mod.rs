//! Hardware with time: bytes choose what it is and what it is asked for, and a model that looks at
//! everything in every cycle does the same.

pub mod dram;

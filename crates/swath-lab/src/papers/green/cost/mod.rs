//! Costs of the allocators: instructions and time of single frames taken one after the other (Table III),
//! bytes of the management structures (Table II), and instructions in programs and a kernel's operations (Tables V and VI).

pub(crate) mod count;
pub mod operations;
pub mod plan;
pub(crate) mod rows;
pub mod sample;
pub(crate) mod sequence;
pub(crate) mod structures;
pub mod study;

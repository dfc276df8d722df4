//! Transparent superpages by reservation (Bodek).

pub mod benchmark;
pub mod execute;
pub(crate) mod figures;
pub mod kernel;
pub(crate) mod objects;
pub mod paper;
pub mod plan;
pub mod process;
pub(crate) mod real;
pub mod talk;

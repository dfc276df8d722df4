//! TODO papers/superpages.

pub mod benchmark;
pub mod execute;
pub(crate) mod figures;
pub mod kernel;
pub(crate) mod objects;
pub mod plan;
pub mod process;
pub(crate) mod real;
pub mod talk;

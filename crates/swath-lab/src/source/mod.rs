//! Inputs of studies that are no plan: memory before a study asks for some, and real
//! machines and programs.

pub mod film;
pub mod memory;
pub mod real;

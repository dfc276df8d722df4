#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fault;
mod graph;
mod session;
mod symbol;
mod theorem;

pub use fault::Operator;
pub use graph::Bit;
pub use session::{Refutation, assume, claim, specify};
pub use symbol::{Symbol, all, any};
pub use theorem::{Proof, prove};

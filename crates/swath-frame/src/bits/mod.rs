//! Sets of numbers as bits in words that the caller owns: a bitmap whose levels
//! of summaries find the first bit in O(log n), and a tree of such words for
//! each size class of a bank.

pub mod bitmap;
#[cfg(test)]
mod model;
#[cfg(test)]
mod proofs;
pub(crate) mod store;
pub(crate) mod tree;
pub(crate) mod words;

pub use bitmap::Bitmap;

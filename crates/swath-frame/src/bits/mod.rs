//! TODO bits.

pub mod bitmap;
pub(crate) mod shape;

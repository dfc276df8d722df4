//! The proofs of `swath-arch`.

mod fields;
mod numbers;
mod ranges;

//! The lint: rustfmt, clippy and rustdoc, and the rules of this project that none of them knows.
//!
//! A rule is a file in [`rules`] with a function from the [`tree`] to its breaches, one line each;
//! the list in [`run`] names them all. A new rule is a new file and a new line in that list.

mod proof;
mod rules;
mod run;
mod rust;
mod tree;

pub(crate) use run::{check_rules, lint};

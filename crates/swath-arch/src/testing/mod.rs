//! Support for the tests of all crates, behind the feature `testing`.

pub mod random;

pub use random::Random;

//! Support for the tests of all crates, behind the feature `testing`.

pub mod random;
pub mod steps;

pub use random::Random;
pub use steps::{Steps, few};

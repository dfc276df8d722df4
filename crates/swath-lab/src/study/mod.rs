//! TODO study.

pub(crate) mod check;
pub(crate) mod claim;
pub mod plan;
pub mod registry;
pub mod results;
pub mod run;

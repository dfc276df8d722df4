//! TODO report.

pub(crate) mod axis;
pub mod figure;
pub(crate) mod page;
pub(crate) mod palette;
pub mod write;

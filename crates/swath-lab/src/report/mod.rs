//! The report: each study as files, its figures as SVG, and one page over all of
//! them.

pub(crate) mod axis;
pub mod compare;
pub mod error;
pub mod figure;
pub mod folder;
pub(crate) mod page;
pub mod palette;
pub mod write;

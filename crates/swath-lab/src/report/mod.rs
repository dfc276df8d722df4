//! The report: each study as files and as a page, its figures as SVG, and one page over
//! all of them.

pub(crate) mod axis;
pub(crate) mod claims;
pub mod compare;
pub mod error;
pub mod figure;
pub mod film;
pub mod folder;
pub(crate) mod index;
pub(crate) mod page;
pub mod palette;
pub(crate) mod paths;
pub(crate) mod plot;
pub(crate) mod thin;
pub mod write;

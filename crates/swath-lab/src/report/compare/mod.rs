//! Two reports side by side: what changed beyond its interval.

pub(crate) mod error;
pub mod find;
pub mod page;

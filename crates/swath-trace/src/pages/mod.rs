//! TODO pages.

pub mod events;
pub mod file;
pub mod record;
pub(crate) mod ring;

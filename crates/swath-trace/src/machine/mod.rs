//! TODO machine.

pub mod file;
pub mod record;
pub mod snapshot;

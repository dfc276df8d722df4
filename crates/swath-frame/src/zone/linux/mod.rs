//! TODO zone/linux.

pub(crate) mod follow;
pub(crate) mod state;
pub mod zone;

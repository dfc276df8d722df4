//! TODO processor.

pub mod cache;
pub(crate) mod data_path;
pub mod in_order;
pub mod presets;

//! Plans and claims of the studies that are not values yet.

pub mod check;
pub mod claim;
pub mod plan;
pub mod registry;

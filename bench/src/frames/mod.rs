//! Measurements of the frame allocators: of the front, of zones, and what churn leaves of memory.

pub(crate) mod churn;
pub(crate) mod churned;
pub(crate) mod fronts;
pub(crate) mod zones;

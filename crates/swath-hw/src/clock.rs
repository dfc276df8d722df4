//! Time, counted in cycles.

/// A point in time or a length of time, in cycles of a model's clock.
pub type Cycle = u64;

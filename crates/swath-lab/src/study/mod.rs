//! Studies as values: the trait and the registry, plans as types that refuse,
//! measurements by named axes, and verdicts that follow from them.
//!
//! ```text
//!   plan (TOML) ──► Study::measure ──► Grid ──┬─► Study::show    ──► figures
//!     bounds         run: points × seeds      └─► Study::claims  ──► verdicts
//! ```

pub mod bounds;
pub mod child;
pub mod citation;
pub mod claim;
pub mod estimate;
pub mod grid;
pub mod journal;
pub(crate) mod key;
pub mod kind;
pub mod needs;
pub mod paper;
pub(crate) mod place;
pub mod plan;
pub mod point;
pub mod registry;
pub mod results;
pub mod run;
pub mod tally;
pub mod verdict;

//! The page buddy system of *Duong and Hur 2020* (PBS), of which the binary
//! buddy system (BBS) is the case of granularity 1.
//!
//! A buddy allocator halves blocks, so it needs a list for each order. Page
//! tables can use only some orders: PBS keeps a list for each of those alone,
//! and lets a list's node be any run of units. [`PageBuddy`] is the allocator,
//! [`BuddyConfig`] says which orders have a list, a [`Rule`] which node serves
//! a request, and [`QuickFit`] keeps short blocks by their length in front of
//! any allocator.

pub(crate) mod class;
pub mod config;
pub(crate) mod fast_path;
pub mod fit;
pub mod page_buddy;
pub(crate) mod plausible;
pub mod quick_fit;
pub(crate) mod range;
pub mod rule;
pub(crate) mod state;

pub use config::{BuddyConfig, BuddyConfigError, CLASSES_MAX};
pub use fit::{ByFit, Fit, FreeRuns};
pub use page_buddy::PageBuddy;
pub use quick_fit::QuickFit;
pub use rule::{BestFit, HeadOfList, Rule};

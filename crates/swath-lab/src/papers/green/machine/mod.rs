//! The machine of the studies: zones under one of the allocators, processors with
//! their page lists, a migration daemon for each node, and banks that rest. It is
//! driven by runs of requests with handles and looked at in intervals of simulated time.

pub mod age;
pub mod allocator;
pub(crate) mod blocks;
pub(crate) mod build;
pub mod computer;
pub mod config;
pub(crate) mod guaranteed;
pub mod places;
pub(crate) mod seen;
pub mod start;
pub mod view;
pub(crate) mod zone;

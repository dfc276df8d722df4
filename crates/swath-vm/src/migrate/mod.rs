//! Migration: banks and sections of movable memory are emptied, so that they can be powered
//! down or taken offline (Panwar and Gopinath, section IV-E).
//!
//! The [`daemon`] decides and knows neither allocator nor page tables; [`units`] gives it the
//! memory of a machine, [`relocate`] the owners of its frames.

pub mod daemon;
#[cfg(test)]
mod daemon_model;
pub mod relocate;
pub mod units;

pub use daemon::{
    AVOIDED_MAX, BankCandidate, Daemon, GiveUpCause, MigrationConfig, MigrationStatistics,
    MigrationStep, MovableBanks, Owners, Stuck,
};
pub use relocate::{Held, Holders, Relocator};
pub use units::{Emptying, HotplugUnits, NodeBanks, OfflineError};

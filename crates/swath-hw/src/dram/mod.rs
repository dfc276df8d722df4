//! A memory with time: channels of DRAM behind their controllers.
//!
//! A [part](timing) is a table of timing constraints, and [its state](state) says when the next
//! command may follow. Each channel has a [controller] with a [queue](scheduling) that chooses the
//! command, and a [`Dram`] puts the channels behind one [address mapping](mapping). Time
//! goes from event to event, so cycles in which nothing happens cost nothing.

pub(crate) mod bypasses;
pub mod config;
pub(crate) mod controller;
pub(crate) mod ends;
pub mod energy;
pub mod mapping;
pub mod memory;
#[cfg(test)]
mod model;
pub mod parts;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod refresh;
pub mod request;
pub mod scheduling;
pub mod state;
pub mod stats;
pub mod timing;
pub mod trace;

pub use config::{DramConfig, DramConfigError};
pub use energy::{Currents, DramEnergy};
pub use mapping::{AddressField, AddressMapping, AddressMappingError, Coordinate, Location};
pub use memory::Dram;
pub use parts::{DDR3_800, DDR3_1600, DDR4_3200, DDR5_4800, LPDDR4_3200, LPDDR5_6400, PARTS};
pub use request::{Completion, DramRequest, IssuedCommand, OfferError};
pub use scheduling::{DrainRule, RefreshMode, Scheduling, WaitingRequests, WritePolicy};
pub use state::TimingState;
pub use stats::{ChannelStats, DramStats};
pub use timing::{BANKS_MAX, BankIndex, Command, Constraint, Part, PartError, Scope, SetRefresh};
pub use trace::{TraceFormat, write_commands, write_trace};

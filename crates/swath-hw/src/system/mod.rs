//! Masters with IOMMUs on an interconnect with the timed memory.
//!
//! A [`System`] is the machine in which *Duong and Hur* measure the page buddy system:
//! devices issue [`Transaction`]s at virtual addresses, each device's IOMMU translates them (its
//! walks read memory over the same interconnect), and the [`Dram`](crate::dram::Dram)
//! serves both. The run goes from event to event and is a function of its configuration
//! and its streams.

pub mod config;
pub mod error;
pub mod event;
pub mod interconnect;
pub mod iommu;
pub(crate) mod master;
pub mod paging;
pub mod run;
pub mod shared;
pub mod stats;
pub mod transaction;

pub use config::{Pace, SystemConfig, SystemConfigError};
pub use error::{SystemError, SystemErrorCause};
pub use event::SystemEvent;
pub use interconnect::{InterconnectConfig, Wiring, WriteResponse};
pub use iommu::{DESCRIPTOR_LINES_MAX, IommuConfig, WALKS_MAX};
pub use paging::Paging;
pub use run::System;
pub use shared::SharedBuffer;
pub use stats::{InterconnectStats, MasterStats, SystemStats};
pub use transaction::{TRANSACTION_BYTES, Transaction};

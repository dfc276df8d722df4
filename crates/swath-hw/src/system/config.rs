//! The configuration of a system.

use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::config::{DramConfig, DramConfigError};
use crate::system::interconnect::InterconnectConfig;
use crate::system::iommu::IommuConfig;
use crate::system::shared::SharedBuffer;
use crate::system::transaction::TRANSACTION_BYTES;

/// The configuration of a system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemConfig {
    /// The memory.
    pub dram: DramConfig,
    /// The interconnect between it and the masters.
    pub interconnect: InterconnectConfig,
    /// The IOMMU of each master.
    pub iommu: IommuConfig,
    /// Transactions that a master may have in flight: 1 to 4096.
    pub outstanding_max: u32,
    /// True if a master may have so many reads in flight and as many writes, as AXI has channels
    /// of their own for both; false if they count together.
    pub outstanding_each: bool,
    /// The pace of each master, in their order; those beyond the list go as fast as they can.
    pub paces: Vec<Option<Pace>>,
    /// The buffers that masters hand to each other; they may not overlap, and have up to 64 GiB in
    /// all.
    pub shared: Vec<SharedBuffer>,
    /// True if every command of the memory is kept, in [`SystemStats::commands`](crate::SystemStats::commands).
    pub record_commands: bool,
}

/// The rate at which a device has something to transfer, as a camera or a display has by its frames:
/// transaction n, from 0, is issued no earlier than in cycle n `cycles` / `transactions`, rounded down.
/// A device that was held up catches up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pace {
    /// So many transactions, 1 and more,
    pub transactions: u64,
    /// in so many cycles.
    pub cycles: u64,
}

impl Pace {
    /// Returns the first cycle in which transaction `number` may be issued.
    #[inline]
    pub(crate) fn due(self, number: u64) -> Cycle {
        let due = u128::from(number) * u128::from(self.cycles) / u128::from(self.transactions);
        Cycle::try_from(due).unwrap_or(Cycle::MAX)
    }
}

impl SystemConfig {
    /// Returns the system of *Duong and Hur*, Table 3: 16 transactions in flight, 128 bits,
    /// [`DramConfig::paper`]; what it leaves open as in
    /// [`IommuConfig::default`] and [`InterconnectConfig::default`].
    pub fn paper() -> Self {
        Self {
            dram: DramConfig::paper(),
            interconnect: InterconnectConfig::default(),
            iommu: IommuConfig::default(),
            outstanding_max: 16,
            outstanding_each: false,
            paces: Vec::new(),
            shared: Vec::new(),
            record_commands: false,
        }
    }
}

/// Reasons why a system cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SystemConfigError {
    /// The memory.
    #[error(transparent)]
    Dram(#[from] DramConfigError),
    /// A number outside its range.
    #[error("{value} {field}: {min} to {max}")]
    Count {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least that it may be.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A beat that is no power of two of 8 to 64 bytes.
    #[error("a beat of {beat_bytes} bytes: a power of two, 8 to 64")]
    Beat {
        /// Its bytes.
        beat_bytes: u32,
    },
    /// A memory whose burst is not a transaction.
    #[error("the memory's burst of {burst_bytes} bytes is not {}", TRANSACTION_BYTES)]
    Burst {
        /// Its bytes.
        burst_bytes: u32,
    },
    /// A shared buffer that is misaligned, overlaps another or is too long.
    #[error(
        "shared buffer of {} bytes at {}: misaligned, overlaps, or too long",
        .0.len_bytes,
        .0.start
    )]
    Shared(SharedBuffer),
}

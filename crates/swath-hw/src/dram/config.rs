//! The configuration of a memory.

use crate::dram::mapping::{AddressMapping, AddressMappingError};
use crate::dram::parts::{DDR3_800, DDR5_4800};
use crate::dram::scheduling::{RefreshMode, Scheduling, WritePolicy};
use crate::dram::timing::{BANKS_MAX, Part, PartError};

/// The configuration of a memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DramConfig {
    /// The chips of each rank.
    pub part: Part,
    /// Channels: a power of two up to 64.
    pub channels: u32,
    /// Ranks on each channel: a power of two, up to 64 banks on a channel.
    pub ranks: u32,
    /// The place of each address.
    pub mapping: AddressMapping,
    /// The scheduling of each channel.
    pub scheduling: Scheduling,
}

/// Reasons why a memory cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DramConfigError {
    /// The part.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The mapping.
    #[error(transparent)]
    Mapping(#[from] AddressMappingError),
    /// Channels or ranks that are no power of two, or too many.
    #[error("{value} {field}: a power of two, up to 64 channels and 64 banks on a channel")]
    Count {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A queue without places or with more than 4096, or marks that are not in
    /// order.
    #[error("queues of 1 to 4096 places, 0 <= low < high <= places: {0:?}")]
    Scheduling(Scheduling),
    /// A refresh of sets of banks that the part does not have.
    #[error("{part} cannot be refreshed by sets of banks")]
    Refresh {
        /// The part's name.
        part: &'static str,
    },
}

/// Places in a queue, at most.
const ENTRIES_MAX: u32 = 4096;

impl DramConfig {
    /// Returns the memory of *Duong and Hur*, Table 3: DDR3-800 5-5-5, four channels,
    /// four banks, a queue of 16 entries, bank hits first, and the mapping
    /// *Row, Bank, Column, Channel, Column* ([`AddressMapping::interleaved`] at 64 bytes).
    ///
    /// The paper states the entries and bank hits first; of writes it says nothing, and
    /// [`Scheduling::fr_fcfs`] has the rest.
    pub fn paper() -> Self {
        Self {
            part: DDR3_800,
            channels: 4,
            ranks: 1,
            mapping: AddressMapping::interleaved(&DDR3_800, 4, 1, 64)
                .expect("the mapping of a constant part, which a test makes"),
            scheduling: Scheduling { hits_first: true, ..Scheduling::fr_fcfs(16) },
        }
    }

    /// Returns the memory of one DDR5-4800 module (DIMM) of a rank: **two channels of 32 bits**,
    /// the module's two sub-channels. Each has its own command and address bus, its own four chips
    /// of 16 Gb x8 and its own controller, so nothing but the address mapping binds them; together
    /// they are 16 GiB. The channels take turns every 64 bytes, a burst, and each schedules by
    /// [`Scheduling::fr_fcfs`] with 32 entries. Two modules are four channels.
    pub fn ddr5_module() -> Self {
        Self {
            part: DDR5_4800,
            channels: 2,
            ranks: 1,
            mapping: AddressMapping::interleaved(&DDR5_4800, 2, 1, 64)
                .expect("the mapping of a constant part, which a test makes"),
            scheduling: Scheduling::fr_fcfs(32),
        }
    }

    /// Returns the number of bytes of all channels.
    pub const fn len_bytes(&self) -> u64 {
        self.part.rank_bytes() * self.ranks as u64 * self.channels as u64
    }

    /// Tests whether a memory can be built so. O(constraints of the part).
    ///
    /// # Errors
    /// [`DramConfigError`] names the first reason why not.
    pub fn validate(&self) -> Result<(), DramConfigError> {
        self.part.validate()?;
        let counts =
            [("channels", self.channels, 64), ("ranks", self.ranks, BANKS_MAX / self.part.banks())];
        for (field, value, max) in counts {
            if !value.is_power_of_two() || value > max {
                return Err(DramConfigError::Count { field, value });
            }
        }
        self.mapping.validate(&self.part, self.channels, self.ranks)?;
        let places = 1..=ENTRIES_MAX;
        let writes = match self.scheduling.writes {
            WritePolicy::Unified => true,
            WritePolicy::Watermark { entries, high, low } => {
                places.contains(&entries) && low < high && high <= entries
            }
            WritePolicy::Own { entries, .. } => places.contains(&entries),
        };
        if !writes || !places.contains(&self.scheduling.entries) {
            return Err(DramConfigError::Scheduling(self.scheduling));
        }
        if self.scheduling.refresh == RefreshMode::SameBank && self.part.set_refresh.is_none() {
            return Err(DramConfigError::Refresh { part: self.part.name });
        }
        Ok(())
    }
}

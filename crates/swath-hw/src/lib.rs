#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod coalesce;
pub mod dram;
pub mod power;
pub mod processor;
pub mod rtmmu;
pub mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tlb;
pub mod translate;

pub(crate) mod clock;
pub(crate) mod histogram;

pub use clock::Cycle;
pub use coalesce::joined::{Join, Joined};
pub use coalesce::offsets::{OffsetOutcome, OffsetPrediction, OffsetStats};
pub use coalesce::ranges::{RangesMiss, RedundantRanges};
pub use dram::config::{DramConfig, DramConfigError};
pub use dram::energy::{Currents, DramEnergy};
pub use dram::mapping::{AddressMapping, AddressMappingError, Location};
pub use dram::memory::Dram;
pub use dram::parts::{DDR3_800, DDR3_1600, DDR4_3200, DDR5_4800, LPDDR4_3200, LPDDR5_6400};
pub use dram::request::{Completion, DramRequest, IssuedCommand, OfferError};
pub use dram::scheduling::{DrainRule, RefreshMode, Scheduling, WaitingRequests, WritePolicy};
pub use dram::stats::{ChannelStats, DramStats};
pub use dram::timing::{Part, PartError, SetRefresh};
pub use histogram::Histogram;
pub use power::{BankEnergy, BankPower, PowerError, PowerState, PowerTable};
pub use processor::access::{Exception, ExceptionCause, MemoryAccess};
pub use processor::cache::{Cache, CacheConfig, CacheConfigError, CacheOutcome, CacheStats};
pub use processor::config::{ProcessorConfig, ProcessorConfigError, WalksFrom};
pub use processor::in_order::{Processor, ProcessorStats};
pub use processor::presets::ProcessorPreset;
pub use rtmmu::tables::{
    MappedPage, PageRights, PageTable, PortReads, RtFault, RtTables, RtTablesError, UnmappedCause,
};
pub use rtmmu::unit::{RtAccess, RtStats, Rtmmu};
pub use rtmmu::walk::{RtLatency, RtWalk};
pub use system::config::{Pace, SystemConfig, SystemConfigError};
pub use system::error::{SystemError, SystemErrorCause};
pub use system::event::SystemEvent;
pub use system::interconnect::{InterconnectConfig, Wiring, WriteResponse};
pub use system::iommu::IommuConfig;
pub use system::run::System;
pub use system::shared::SharedBuffer;
pub use system::stats::{InterconnectStats, MasterStats, SystemStats};
pub use system::transaction::{TRANSACTION_BYTES, Transaction};
pub use tlb::array::Tlb;
pub use tlb::fill::{EntryKind, TlbFill, TlbHit};
pub use tlb::geometry::{Geometry, GeometryError, Indexing, Replacement};
pub use tlb::split::{SplitTlb, TlbArray, TlbForm};
pub use tlb::stats::{SizeStats, TlbStats};
pub use translate::decode::{Descriptor, Leaf, TableRights, decode};
pub use translate::hierarchy::{Hierarchy, HierarchyConfig};
pub use translate::miss::{Miss, Resolved, TlbOutcome, TranslatedAccess, WalkOrder, WalkStats};
pub use translate::mmu::{Mmu, MmuStats};
pub use translate::nested::{Nested, NestedFault, NestedStats};
pub use translate::permit::{AccessKind, Denied, Operation, permit};
pub use translate::regime::MmuConfigError;
pub use translate::segments::{SegmentMiss, SegmentRegisters};
pub use translate::translator::{PendingMiss, Translate, TranslationStats};
pub use translate::walker::{LeafContiguity, Translation, TranslationFault, Walk, WalkStep, walk};

//! Models of translation hardware, read from bytes of physical memory.
//!
//! A master presents a virtual address. The [`Tlb`] answers at once, or the
//! [`Mmu`] walks the tables: a [`Walk`] is a sequence of memory reads, each a
//! [`step`](Walk::step), decoded by [`decode()`]. What comes back is filled into
//! the TLB. Nothing here knows how the software side writes its tables: the
//! two meet in [`PhysMemory`](swath_arch::PhysMemory) and in the fields of
//! `swath-arch`, so that a wrong table shows up as a wrong translation.
//!
//! The models are functional: they count hits, misses, walks and reads, and
//! know no time. A timed model drives the same parts one read at a time
//! ([`Mmu::lookup`], [`Mmu::begin`], [`Miss::next_read`], [`Miss::step`],
//! [`Mmu::complete`]).
//!
//! Beside them stands a memory with time: [`Dram`], channels of DRAM whose
//! [timing constraints](timing) are a table, driven from event to event. A
//! [`System`] puts both together: masters with IOMMUs (or with a processor's
//! [`Hierarchy`]) on an [interconnect] with that memory. A [`Processor`] is an in-order core
//! with data [caches](Cache) before it, made one access at a time; [presets] are some that exist.
//!
//! Three designs, chosen by [`Regime::coalescing`](swath_arch::Regime):
//! **TRAD** (one base page to an entry), **PCAD** (page-table contiguity
//! ascending descending, the PBS paper's section III-B) and **AT** (anchor
//! translation: Park et al., "Hybrid TLB coalescing", ISCA 2017).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cache;
pub mod controller;
mod controller_queue;
mod data_path;
pub mod decode;
pub mod dram;
pub mod dram_mapping;
pub mod dram_stats;
pub mod dram_trace;
pub mod energy;
pub mod fill;
pub mod geometry;
pub mod hierarchy;
pub mod interconnect;
pub mod iommu;
pub mod master;
pub mod mmu;
pub mod power;
pub mod presets;
pub mod processor;
pub mod rtmmu;
pub mod rtmmu_tables;
pub mod rtmmu_walk;
pub mod system;
pub mod system_stats;
pub mod timing;
pub mod timing_state;
pub mod tlb;
mod tlb_check;
pub mod tlb_split;
pub mod tlb_stats;
pub mod walker;

pub use cache::{Cache, CacheStats};
pub use controller::{Scheduling, WritePolicy};
pub use decode::{Descriptor, Leaf, Rights, decode};
pub use dram::{Completion, Dram, Issued, OfferError, Request};
pub use dram_mapping::{Location, Mapping};
pub use dram_stats::{ChannelStats, DramStats, Histogram};
pub use energy::{Currents, DramEnergy};
pub use fill::{EntryKind, Fill, Hit};
pub use geometry::{Geometry, GeometryError, Indexing};
pub use hierarchy::Hierarchy;
pub use iommu::{Translate, TranslationStats};
pub use master::{SharedBuffer, Transaction};
pub use mmu::{Access, ConfigError, Miss, Mmu, Outcome, Resolved, Stats, WalkOrder, WalkStats};
pub use power::{BankPower, PowerState, PowerTable};
pub use presets::Preset;
pub use processor::{Exception, MemoryAccess, Processor, ProcessorStats};
pub use rtmmu::{RtAccess, RtStats, Rtmmu};
pub use rtmmu_tables::{
    Cause, MappedPage, PageRights, PageTable, PortReads, RtFault, RtTables, RtTablesError,
};
pub use rtmmu_walk::{RtLatency, RtWalk};
pub use system::{System, SystemError};
pub use system_stats::{InterconnectStats, MasterStats, SystemStats};
pub use timing::{Cycle, DDR3_800, DDR3_1600, DDR4_3200, LPDDR4_3200, Part};
pub use tlb::Tlb;
pub use tlb_split::{SplitTlb, TlbArray, TlbForm};
pub use tlb_stats::{SizeStats, TlbStats};
pub use walker::{
    AccessKind, Contiguity, Denied, Fault, Operation, Step, Translation, Walk, permit, walk,
};

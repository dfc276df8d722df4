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

pub mod dram;
pub mod power;
pub mod processor;
pub mod rtmmu;
pub mod system;
pub mod tlb;
pub mod translate;

pub use dram::controller::{Scheduling, WritePolicy};
pub use dram::energy::{Currents, DramEnergy};
pub use dram::mapping::{Location, Mapping};
pub use dram::memory::{Completion, Dram, Issued, OfferError, Request};
pub use dram::stats::{ChannelStats, DramStats, Histogram};
pub use dram::timing::{Cycle, DDR3_800, DDR3_1600, DDR4_3200, LPDDR4_3200, Part};
pub use power::{BankPower, PowerState, PowerTable};
pub use processor::cache::{Cache, CacheStats};
pub use processor::in_order::{Exception, MemoryAccess, Processor, ProcessorStats};
pub use processor::presets::Preset;
pub use rtmmu::tables::{
    Cause, MappedPage, PageRights, PageTable, PortReads, RtFault, RtTables, RtTablesError,
};
pub use rtmmu::unit::{RtAccess, RtStats, Rtmmu};
pub use rtmmu::walk::{RtLatency, RtWalk};
pub use system::iommu::{Translate, TranslationStats};
pub use system::master::{SharedBuffer, Transaction};
pub use system::run::{System, SystemError};
pub use system::stats::{InterconnectStats, MasterStats, SystemStats};
pub use tlb::fill::{EntryKind, Fill, Hit};
pub use tlb::geometry::{Geometry, GeometryError, Indexing};
pub use tlb::ranges::Tlb;
pub use tlb::split::{SplitTlb, TlbArray, TlbForm};
pub use tlb::stats::{SizeStats, TlbStats};
pub use translate::decode::{Descriptor, Leaf, Rights, decode};
pub use translate::hierarchy::Hierarchy;
pub use translate::mmu::{
    Access, ConfigError, Miss, Mmu, Outcome, Resolved, Stats, WalkOrder, WalkStats,
};
pub use translate::walker::{
    AccessKind, Contiguity, Denied, Fault, Operation, Step, Translation, Walk, permit, walk,
};

//! The counters of a system, in one shape for any number of masters and
//! channels. Cycles are those of the DRAM's command clock.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::dram::request::IssuedCommand;
use crate::dram::stats::DramStats;
use crate::histogram::Histogram;
use crate::system::transaction::TRANSACTION_BYTES;
use crate::translate::translator::TranslationStats;

/// The counters of one master.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MasterStats {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// The cycle in which the first transaction was issued; 0 without any.
    pub first_issue_cycle: Cycle,
    /// The cycle in which the last one had completed; 0 without any.
    pub last_completion_cycle: Cycle,
    /// Cycles from the issue of a read, its translation included, until its
    /// last data were there.
    pub read_latency: Histogram,
    /// Cycles from the issue of a write until its response was there.
    pub write_latency: Histogram,
    /// Cycles from a lookup that missed and began a walk until the entry was
    /// filled.
    pub miss_latency: Histogram,
    /// Cycles in which at least one miss was under way. Without hit-under-miss
    /// these are the cycles in which the master could issue nothing.
    pub walk_cycles: Cycle,
    /// Cycles in which the next transaction waited for its line to be written.
    pub shared_wait_cycles: Cycle,
    /// The most transactions that were in flight at once.
    pub in_flight_max: u32,
    /// Reads of walks that its cache of descriptors answered.
    pub descriptor_hits: u64,
    /// The counters of its IOMMU.
    pub translation: TranslationStats,
}

impl MasterStats {
    /// Returns the number of transactions completed.
    pub const fn transactions(&self) -> u64 {
        self.reads + self.writes
    }

    /// Returns the number of cycles from the first issue to the last completion.
    pub const fn cycles(&self) -> Cycle {
        self.last_completion_cycle - self.first_issue_cycle
    }

    /// Returns the number of bytes read and written.
    pub const fn len_bytes(&self) -> u64 {
        self.transactions() * TRANSACTION_BYTES
    }

    /// Returns the number of bytes moved in a cycle of [`cycles`](Self::cycles); 0 without any.
    pub fn bandwidth_bytes_per_cycle(&self) -> f64 {
        per_cycle(self.len_bytes(), self.cycles())
    }
}

/// The counters of the interconnect.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterconnectStats {
    /// Requests accepted by the memory: transactions and reads of descriptors.
    pub requests: u64,
    /// Those among them that read descriptors.
    pub walk_requests: u64,
    /// Beats on the read data channels.
    pub read_beats: u64,
    /// Beats on the write data channels.
    pub write_beats: u64,
    /// Cycles from the arrival of a request at the arbiter to its acceptance by
    /// the memory.
    pub wait: Histogram,
}

/// The counters of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemStats {
    /// The masters, in the order in which they were given.
    pub masters: Box<[MasterStats]>,
    /// The interconnect.
    pub interconnect: InterconnectStats,
    /// The memory, its queues included, up to [`total_cycles`](Self::total_cycles).
    pub dram: DramStats,
    /// Cycles from the start until every transaction had completed and the memory
    /// had written what it had promised to.
    pub total_cycles: Cycle,
    /// The commands of the memory, of one channel in order of time, if the configuration has them
    /// recorded.
    pub commands: Vec<IssuedCommand>,
}

impl SystemStats {
    /// Returns the number of bytes that the masters moved in a cycle; 0 without any. Descriptors do not
    /// count. O(masters).
    pub fn bandwidth_bytes_per_cycle(&self) -> f64 {
        per_cycle(self.masters.iter().map(MasterStats::len_bytes).sum(), self.total_cycles)
    }
}

fn per_cycle(len_bytes: u64, cycles: Cycle) -> f64 {
    if cycles == 0 { 0.0 } else { len_bytes as f64 / cycles as f64 }
}

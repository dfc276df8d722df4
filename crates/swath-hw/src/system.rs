//! Masters with IOMMUs on an interconnect with a memory, in simulated time:
//! the PBS paper's Fig. 9, with the figures of its Table 3 as the default.
//!
//! **Time moves from event to event**: data that arrive, a place in a queue, a
//! request at the arbiter, a master that can issue. One clock drives
//! everything, the DRAM's command clock. **Within a cycle**, what has ended
//! arrives first, then masters issue, then the arbiter hands the memory a
//! request, then the memory issues commands; so an arrival lets its master issue in
//! the same cycle, and with an interconnect of no cycles the memory sees the request in that
//! cycle, too.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use swath_arch::{PhysAddr, PhysMemory, VirtAddr};

use crate::dram::{self, Dram, OfferError};
use crate::interconnect;
use crate::iommu::{self, Translate};
use crate::master::{SharedBuffer, Transaction};
use crate::system_stats::SystemStats;
use crate::timing::Cycle;
use crate::walker::{Denied, Fault};

/// A system to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The memory.
    pub dram: dram::Config,
    /// What lies between it and the masters.
    pub interconnect: interconnect::Config,
    /// The IOMMU of each master.
    pub iommu: iommu::Config,
    /// Transactions that a master may have in flight: 1 to 4096.
    pub outstanding_max: u32,
    /// What masters hand to each other; buffers may not overlap, and have up to 64 GiB in all.
    pub shared: Vec<SharedBuffer>,
}

impl Config {
    /// The PBS paper's Table 3: 16 transactions in flight, 128 bits,
    /// [`dram::Config::paper`]; what it leaves open as in
    /// [`iommu::Config::default`] and [`interconnect::Config::default`].
    pub fn paper() -> Self {
        Self {
            dram: dram::Config::paper(),
            interconnect: interconnect::Config::default(),
            iommu: iommu::Config::default(),
            outstanding_max: 16,
            shared: Vec::new(),
        }
    }
}

/// A system that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The memory.
    Dram(dram::ConfigError),
    /// A number outside its range.
    Count {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least that it may be.
        min: u64,
        /// The most.
        max: u64,
    },
    /// A beat that is no power of two of 8 to 64 bytes.
    Beat {
        /// Its bytes.
        beat_bytes: u32,
    },
    /// A memory whose burst is not a transaction.
    Burst {
        /// Its bytes.
        burst_bytes: u32,
    },
    /// A shared buffer that is misaligned, overlaps another or is too long.
    Shared(SharedBuffer),
}

/// What went wrong, and for whom. The run ends there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemError {
    /// The number of the master.
    pub master: usize,
    /// The number of its transaction, from 0.
    pub transaction: u64,
    /// The transaction's address.
    pub addr: VirtAddr,
    /// When.
    pub cycle: Cycle,
    /// What.
    pub cause: Cause,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The address is no multiple of [`TRANSACTION_BYTES`](crate::master::TRANSACTION_BYTES).
    Misaligned,
    /// The page has no translation.
    Fault(Fault),
    /// The page may not be accessed so. Masters are unprivileged.
    Denied(Denied),
    /// The memory refused the transaction, or a read of its walk.
    Memory {
        /// The physical address.
        addr: PhysAddr,
        /// Why.
        error: OfferError,
    },
    /// The line is in a shared buffer and nobody will write it any more:
    /// every master that has not ended waits like this one.
    NeverWritten,
}

/// What a run shows to an observer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A master has issued a transaction.
    Issued {
        /// When.
        cycle: Cycle,
        /// The number of the master.
        master: usize,
        /// The number of its transaction, from 0.
        number: u64,
        /// The transaction.
        transaction: Transaction,
    },
    /// The memory has accepted a request.
    Accepted {
        /// When.
        cycle: Cycle,
        /// For which master.
        master: usize,
        /// Where.
        addr: PhysAddr,
        /// Whether it is a write.
        write: bool,
        /// Whether it reads a descriptor.
        walk: bool,
    },
    /// A transaction has completed.
    Completed {
        /// When.
        cycle: Cycle,
        /// The number of the master.
        master: usize,
        /// The number of its transaction, from 0.
        number: u64,
        /// The transaction.
        transaction: Transaction,
    },
}

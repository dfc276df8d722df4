//! The interconnect between masters and memory, after AXI.
//!
//! Each master has three **ports** towards it: its reads, its writes, and the
//! reads of its walker. A port is a queue: what stands at its head holds up
//! what stands behind it, and nothing else. A request reaches the **arbiter**
//! [`request_cycles`](Config::request_cycles) after it was sent. The arbiter hands the memory one
//! request a cycle, round-robin over the ports: the next after the one served last that
//! has a request which can go. A request can go if the queue of its DRAM channel has a place
//! and, for a write, if the write data channel is free.
//!
//! **Data** move in beats of [`beat_bytes`](Config::beat_bytes), one a cycle: four for 64 bytes on
//! 128 bits, one for a descriptor. A write occupies its channel
//! from the cycle in which it is accepted (the memory wants the data later than
//! that). Read data take theirs in the order in which the memory
//! has them, when all of a transaction's are there, and arrive
//! [`response_cycles`](Config::response_cycles) after their last beat. So does the
//! response to a write after the [`WriteResponse`] says.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use swath_arch::PhysAddr;

use crate::dram::{Dram, OfferError, Request};
use crate::master::TRANSACTION_BYTES;
use crate::system_stats::InterconnectStats;
use crate::timing::Cycle;

/// How many data channels there are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wiring {
    /// One for all reads and one for all writes: the memory controller has one port.
    Shared,
    /// One of each to every master, which its walker shares: a crossbar in front of
    /// a controller with a port to each channel.
    PerMaster,
}

/// When a write has completed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WriteResponse {
    /// When its data are in the memory.
    Written,
    /// When the controller has taken its data, which is its promise that later
    /// reads will find them.
    Accepted,
}

/// An interconnect to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    /// Bytes of a beat: a power of two, 8 to 64.
    pub beat_bytes: u32,
    /// Cycles of a request on its way to the arbiter.
    pub request_cycles: u32,
    /// Cycles of data or a response on the way back.
    pub response_cycles: u32,
    /// How many data channels there are.
    pub wiring: Wiring,
    /// When a write has completed.
    pub write_response: WriteResponse,
}

impl Default for Config {
    /// 128 bits (the PBS paper's Table 3), one cycle each way (a register at
    /// the interconnect's edge; the paper does not say), one channel for reads and
    /// one for writes, and writes complete when they are written.
    fn default() -> Self {
        Self {
            beat_bytes: 16,
            request_cycles: 1,
            response_cycles: 1,
            wiring: Wiring::Shared,
            write_response: WriteResponse::Written,
        }
    }
}

//! Requests to a memory, their ends, and the commands issued for them.

use swath_arch::PhysAddr;

use crate::clock::Cycle;
use crate::dram::timing::{BankIndex, Command};

/// One burst to be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DramRequest {
    /// The caller's name for it, handed back when it is done.
    pub id: u64,
    /// An address in the burst; the bits below a burst do not matter.
    pub addr: PhysAddr,
    /// True if it is a write.
    pub write: bool,
}

/// The end of a request: its last data have passed the data bus, or, for a
/// read that a queued write answered, its data are there.
///
/// A master that need not wait for the memory to have a write may go on from
/// [`offer`](crate::Dram::offer), which is the promise that it will be written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Completion {
    /// The cycle after the last data: they are there from now on.
    pub cycle: Cycle,
    /// Number of requests that had been accepted before it.
    pub order: u64,
    /// The request's name.
    pub id: u64,
    /// True if it was a write.
    pub write: bool,
}

/// A command that was issued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IssuedCommand {
    /// The cycle in which it was issued.
    pub cycle: Cycle,
    /// The channel.
    pub channel: u32,
    /// The command.
    pub command: Command,
    /// The bank of the channel; for a rank, its first.
    pub bank: BankIndex,
    /// The row that it opens or finds open; `u32::MAX` if none.
    pub row: u32,
}

/// Reasons why a request is not accepted. Nothing has changed but the clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfferError {
    /// The queue has no place. Ask again after [`Dram::next_event`](crate::Dram::next_event).
    #[error("the queue of channel {channel} is full")]
    Full {
        /// The channel.
        channel: u32,
    },
    /// The memory has no such address.
    #[error("no memory at {addr}: it ends at {len_bytes:#x}")]
    Address {
        /// The address.
        addr: PhysAddr,
        /// Length of the memory.
        len_bytes: u64,
    },
    /// The cycle lies before one that has been simulated, or beyond 2^62.
    #[error("cycle {cycle} is not between the present one, {now}, and 2^62")]
    Time {
        /// The cycle offered.
        cycle: Cycle,
        /// The present one.
        now: Cycle,
    },
}

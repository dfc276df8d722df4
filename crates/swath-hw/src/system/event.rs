//! The events that a run shows to an observer.

use swath_arch::PhysAddr;

use crate::clock::Cycle;
use crate::system::transaction::Transaction;

/// An event that a run shows to its observer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemEvent {
    /// A master has issued a transaction.
    Issued {
        /// The cycle.
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
        /// The cycle.
        cycle: Cycle,
        /// The number of the master.
        master: usize,
        /// The physical address.
        addr: PhysAddr,
        /// True if it is a write.
        write: bool,
        /// True if it reads a descriptor.
        walk: bool,
    },
    /// A transaction has completed.
    Completed {
        /// The cycle.
        cycle: Cycle,
        /// The number of the master.
        master: usize,
        /// The number of its transaction, from 0.
        number: u64,
        /// The transaction.
        transaction: Transaction,
    },
}

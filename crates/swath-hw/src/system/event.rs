//! The events that a run shows to an observer.

use swath_arch::PhysAddr;

use crate::clock::Cycle;
use crate::system::transaction::Transaction;

/// What a run shows to an observer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemEvent {
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

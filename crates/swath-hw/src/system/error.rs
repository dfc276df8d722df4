//! The errors that end a run.

use swath_arch::{PhysAddr, VirtAddr};

use crate::clock::Cycle;
use crate::dram::request::OfferError;
use crate::system::transaction::TRANSACTION_BYTES;
use crate::translate::permit::Denied;
use crate::translate::walker::TranslationFault;

/// An error that ends a run, with the transaction that met it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("master {master}, transaction {transaction} at {addr}, cycle {cycle}: {cause}")]
pub struct SystemError {
    /// The number of the master.
    pub master: usize,
    /// The number of its transaction, from 0.
    pub transaction: u64,
    /// The transaction's address.
    pub addr: VirtAddr,
    /// The cycle.
    pub cycle: Cycle,
    /// The cause.
    pub cause: SystemErrorCause,
}

/// Reasons why a run ends early.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SystemErrorCause {
    /// The address is no multiple of [`TRANSACTION_BYTES`].
    #[error("no multiple of {}", TRANSACTION_BYTES)]
    Misaligned,
    /// The page has no translation.
    #[error(transparent)]
    Fault(#[from] TranslationFault),
    /// The page may not be accessed so. Masters are unprivileged.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The memory refused the transaction, or a read of its walk.
    #[error("request at {addr}: {error}")]
    Memory {
        /// The physical address.
        addr: PhysAddr,
        /// The memory's reason.
        error: OfferError,
    },
    /// The line is in a shared buffer and no master will write it any more:
    /// every master that has not ended waits like this one.
    #[error("waits for a line that no master writes")]
    NeverWritten,
}

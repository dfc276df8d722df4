//! One access of a program, and the exception that may stop it.

use swath_arch::VirtAddr;

use crate::clock::Cycle;
use crate::dram::request::OfferError;
use crate::translate::permit::{Denied, Operation};
use crate::translate::walker::TranslationFault;

/// One access of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryAccess {
    /// The address. One access touches one line: data that cross lines are two accesses.
    pub addr: VirtAddr,
    /// Its operation: data read or written, or an instruction fetched.
    pub operation: Operation,
    /// True if it needs the data of the access of data before, as its address or as the data it writes.
    pub depends: bool,
    /// Cycles that the core computes before it.
    pub compute_cycles: u32,
}

impl MemoryAccess {
    /// Creates an access that depends on nothing and needs no computation before it.
    pub const fn new(addr: VirtAddr, operation: Operation) -> Self {
        Self { addr, operation, depends: false, compute_cycles: 0 }
    }

    /// Creates a read that depends on nothing and needs no computation before it.
    pub const fn read(addr: VirtAddr) -> Self {
        Self::new(addr, Operation::Read)
    }

    /// Creates a write that depends on nothing and needs no computation before it.
    pub const fn write(addr: VirtAddr) -> Self {
        Self::new(addr, Operation::Write)
    }

    /// Creates a fetch of an instruction that needs no computation before it.
    pub const fn fetch(addr: VirtAddr) -> Self {
        Self::new(addr, Operation::Fetch)
    }

    /// Returns the access with a dependence on the data of the access before.
    #[must_use]
    pub const fn depending(self) -> Self {
        Self { depends: true, ..self }
    }

    /// Returns the access to be made again after its exception, without the dependence and the
    /// computation, which are over.
    #[must_use]
    pub const fn again(self) -> Self {
        Self { depends: false, compute_cycles: 0, ..self }
    }
}

/// Reasons why an access is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExceptionCause {
    /// The page has no translation.
    #[error(transparent)]
    Fault(#[from] TranslationFault),
    /// The page may not be accessed so.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The memory has no such address, or cannot count so far.
    #[error(transparent)]
    Memory(#[from] OfferError),
}

/// An access that was not made. The core has come to `cycle`, walks it did are paid for;
/// the TLBs hold nothing new of a page without translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{} at {addr}, cycle {cycle}: {cause}", .operation.name())]
pub struct Exception {
    /// The address.
    pub addr: VirtAddr,
    /// Its operation.
    pub operation: Operation,
    /// The cycle of the core.
    pub cycle: Cycle,
    /// The reason.
    pub cause: ExceptionCause,
}

//! One access of a program, and the exception that may stop it.

use swath_arch::VirtAddr;

use crate::clock::Cycle;
use crate::dram::request::OfferError;
use crate::translate::permit::Denied;
use crate::translate::walker::TranslationFault;

/// One access of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryAccess {
    /// Where. One access touches one line: what crosses lines is two of them.
    pub addr: VirtAddr,
    /// Whether it writes.
    pub write: bool,
    /// Whether it needs the data of the access before, as its address or what it writes.
    pub depends: bool,
    /// Cycles that the core computes before it.
    pub compute_cycles: u32,
}

impl MemoryAccess {
    /// A read that needs nothing, at once.
    pub const fn read(addr: VirtAddr) -> Self {
        Self { addr, write: false, depends: false, compute_cycles: 0 }
    }

    /// A write that needs nothing, at once.
    pub const fn write(addr: VirtAddr) -> Self {
        Self { addr, write: true, depends: false, compute_cycles: 0 }
    }

    /// The same, needing the data of the access before.
    #[must_use]
    pub const fn depending(self) -> Self {
        Self { depends: true, ..self }
    }

    /// The same access once more, after its exception: what went before it is over.
    #[must_use]
    pub const fn again(self) -> Self {
        Self { depends: false, compute_cycles: 0, ..self }
    }
}

/// Why an access was not made.
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
#[error("{} at {addr}, cycle {cycle}: {cause}", verb(*.write))]
pub struct Exception {
    /// The address.
    pub addr: VirtAddr,
    /// Whether it was to be written.
    pub write: bool,
    /// When.
    pub cycle: Cycle,
    /// Why.
    pub cause: ExceptionCause,
}

const fn verb(write: bool) -> &'static str {
    if write { "write" } else { "read" }
}

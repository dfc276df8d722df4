//! Transactions of masters.

use swath_arch::VirtAddr;

/// Bytes of a transaction, at a multiple of so many (*Duong and Hur*, Table 3).
pub const TRANSACTION_BYTES: u64 = 64;

/// One transaction of a master.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transaction {
    /// The virtual address of its first byte, a multiple of
    /// [`TRANSACTION_BYTES`].
    pub addr: VirtAddr,
    /// True if it is a write.
    pub write: bool,
}

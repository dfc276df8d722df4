//! A block as the leaf tables hold it: piece by piece.

use swath_arch::PhysAddr;

/// A piece of a block whose entries follow one another in one leaf table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// The first entry.
    pub(crate) at: PhysAddr,
    /// The first page's number.
    pub(crate) page: u64,
    /// The first page's descriptor without contiguity.
    pub(crate) word: u64,
    /// Number of pages of the block that precede the first.
    pub(crate) before: u64,
    /// Number of pages of the block from the first on.
    pub(crate) after: u64,
    /// Number of entries to write: at most `after`.
    pub(crate) count: u64,
}

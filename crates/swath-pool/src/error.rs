//! Errors of the pool's calls. A call that fails has changed nothing.

use thiserror::Error;

/// An error of an allocation: there is no memory, or no block can be so large or so aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no {size_bytes} bytes aligned to {align_bytes}")]
pub struct BufferAllocateError {
    /// Bytes asked for.
    pub size_bytes: usize,
    /// Alignment asked for.
    pub align_bytes: usize,
}

/// Reasons why a pointer is refused: it is not one of a block in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BufferFreeError {
    /// No block begins there.
    #[error("no block begins at {address:#x}")]
    Misaligned {
        /// The pointer.
        address: usize,
    },
    /// The pointer leads outside the pool.
    #[error("{address:#x} is outside the pool")]
    Foreign {
        /// The pointer.
        address: usize,
    },
    /// The block is free already.
    #[error("{address:#x} is free already")]
    NotAllocated {
        /// The pointer.
        address: usize,
    },
    /// The record of the block's unit was overwritten.
    #[error("no intact record of unit {unit}")]
    Corrupt {
        /// The unit, counted from the arena's start.
        unit: u32,
    },
}

/// Reasons why a block is not resized. It still has its place, size and contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BufferResizeError {
    /// The pointer is not one of a block in use.
    #[error(transparent)]
    Free(#[from] BufferFreeError),
    /// There is no room.
    #[error(transparent)]
    Allocate(#[from] BufferAllocateError),
}

/// Reasons why a pool is not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BufferPoolError {
    /// The arena does not start at a multiple of a unit.
    #[error("an arena at {address:#x} cuts a unit")]
    Misaligned {
        /// Address of the arena's first byte.
        address: usize,
    },
    /// The arena's end lies beyond the last address, or it has too many units.
    #[error("an arena of {units} units")]
    TooLong {
        /// Number of its units.
        units: usize,
    },
    /// The table of returned slots is shorter than that of superblocks.
    #[error("{given} records of returned slots, {needed} are needed")]
    ReturnedTooShort {
        /// Records needed.
        needed: usize,
        /// Records supplied.
        given: usize,
    },
    /// The table of claims is shorter than that of superblocks.
    #[error("{given} claims of fronts, {needed} are needed")]
    ClaimsTooShort {
        /// Number needed.
        needed: usize,
        /// Number given.
        given: usize,
    },
    /// The table of live bits is shorter than that of superblocks.
    #[error("{given} records of live bits, {needed} are needed")]
    LiveTooShort {
        /// Records needed.
        needed: usize,
        /// Records supplied.
        given: usize,
    },
    /// The bits of dirty units are too few.
    #[error("{given} words of dirty units, {needed} are needed")]
    DirtyTooShort {
        /// Words needed: [`dirty_words`](crate::dirty_words).
        needed: usize,
        /// Words supplied.
        given: usize,
    },
    /// More heaps than an owner's number has bits for.
    #[error("{given} heaps are too many")]
    TooManyHeaps {
        /// Heaps supplied.
        given: usize,
    },
    /// The threshold is none of 1 to 7 eighths.
    #[error("an emptiness threshold of {eighths}/8")]
    Threshold {
        /// Eighths asked for.
        eighths: u32,
    },
}

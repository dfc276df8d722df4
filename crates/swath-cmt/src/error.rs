//! The errors of the crate's calls.

use swath_pool::BufferFreeError;
use thiserror::Error;

/// An error of an allocation: the arena or the machine has no memory for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("out of memory")]
pub struct OutOfMemory;

/// An error of a question about physical addresses: the process may not know them (it lacks
/// CAP_SYS_ADMIN).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("physical addresses are not known to this process")]
pub struct PhysicalUnknown;

/// An option that is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{value} is out of range for {name}")]
pub struct OptionError {
    /// Name of the member of [`Options`](crate::Options).
    pub name: &'static str,
    /// Its value.
    pub value: u64,
}

/// Reasons why the pool does not begin with some options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BeginError {
    /// An option is out of range.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The pool has begun before.
    #[error("the pool has begun already")]
    AlreadyBegun,
    /// There is no memory for the pool's tables, or too few addresses for the arena.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Reasons why a block is not freed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FreeError {
    /// The pointer is not one of a block in use.
    #[error(transparent)]
    Pool(#[from] BufferFreeError),
    /// Bytes behind the block were written: with [`canary`](crate::Options::canary) they are
    /// looked at.
    #[error("the bytes behind the block at {address:#x} were overwritten")]
    Overrun {
        /// The pointer.
        address: usize,
    },
    /// Bytes before the block were written, seen as the bytes behind are.
    #[error("the bytes before the block at {address:#x} were overwritten")]
    Underrun {
        /// The pointer.
        address: usize,
    },
    /// The block was written to after it was freed: with [`quarantine`](crate::Options::quarantine) its bytes
    /// are looked at when its place is free again. Another block's free, or an allocation, finds it.
    #[error("the block at {address:#x} was written to after it was freed")]
    UsedAfterFree {
        /// The pointer.
        address: usize,
    },
    /// One of C++'s operators says another length, or frees what another made: this, and lengths that get the same
    /// place, are looked at with [`canary`](crate::Options::canary).
    #[error("the block at {address:#x} was made by another operator, or with another length")]
    Mismatched {
        /// The pointer.
        address: usize,
    },
}

/// Reasons why a block is not resized. It still has its place, size and contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ResizeError {
    /// The pointer is not one of a block in use, or bytes behind the block were written.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// There is no memory for the larger block.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Reasons why no contiguous block is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ContiguousError {
    /// An alignment or a boundary is no power of two.
    #[error("{value} is no power of two")]
    NoPowerOfTwo {
        /// Its value.
        value: u64,
    },
    /// There is no free run of physical memory that is long enough where the block may lie, nor memory
    /// for one.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// An error of the kernel's when memory was to be pinned or locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the memory cannot be held in place (error {errno})")]
pub struct PinError {
    /// The C library's number of it.
    pub errno: i32,
}

/// Reasons why the physical extents of a block are not told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ExtentsError {
    /// The range has no bytes.
    #[error("the range is empty")]
    Empty,
    /// The pointer is not one of a block in use.
    #[error("{address:#x} is no block in use")]
    Foreign {
        /// The pointer.
        address: usize,
    },
    /// The range does not lie in the block.
    #[error("the block has {usable_bytes} bytes")]
    Outside {
        /// Bytes of the block.
        usable_bytes: usize,
    },
    /// The process may not know physical addresses.
    #[error(transparent)]
    Unknown(#[from] PhysicalUnknown),
}

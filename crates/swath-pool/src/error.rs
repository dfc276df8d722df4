//! Why a call of the pool was refused. Nothing has changed then.

use core::fmt;

/// There is no memory, or no block can be so large or so aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocError {
    /// Bytes asked for.
    pub size_bytes: usize,
    /// Alignment asked for.
    pub align_bytes: usize,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} bytes aligned to {}", self.size_bytes, self.align_bytes)
    }
}

impl core::error::Error for AllocError {}

/// Why a pointer was not taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// No block begins there.
    Misaligned {
        /// The pointer.
        address: usize,
    },
    /// The pointer leads outside the pool.
    Foreign {
        /// The pointer.
        address: usize,
    },
    /// The block is free already.
    NotAllocated {
        /// The pointer.
        address: usize,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { address } => write!(f, "no block begins at {address:#x}"),
            Self::Foreign { address } => write!(f, "{address:#x} is outside the pool"),
            Self::NotAllocated { address } => write!(f, "{address:#x} is free already"),
        }
    }
}

impl core::error::Error for FreeError {}

/// Why a block was not resized. It still has its place, size and contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeError {
    /// The pointer is not one of an allocated block.
    Pointer(FreeError),
    /// There is no room.
    Alloc(AllocError),
}

impl From<FreeError> for ResizeError {
    fn from(error: FreeError) -> Self {
        Self::Pointer(error)
    }
}

impl From<AllocError> for ResizeError {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(error) => error.fmt(f),
            Self::Alloc(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ResizeError {}

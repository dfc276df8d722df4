//! What can go wrong, by name and place.

use core::fmt;

use crate::pages::SourceError;

/// What is wrong at an address of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The header's seal is broken: no block starts there, or it was
    /// overwritten.
    Header,
    /// The size leads out of the pool or is none.
    Size,
    /// The neighbours' flags do not agree.
    Flags,
    /// The tag does not lead back to the free block before.
    Before,
    /// Two free blocks side by side.
    NotCoalesced,
    /// A link leads to what is no free block of the list, or not back.
    Link,
    /// The block is free and in no list, or in another than its size's.
    List,
    /// The bit maps do not say which lists have blocks.
    Bits,
}

/// A pool's memory is not as the heap left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The border of the block at which it shows; 0 for the bit maps.
    pub address: usize,
    /// What is wrong there.
    pub kind: FaultKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            FaultKind::Header => "no intact header",
            FaultKind::Size => "an impossible size",
            FaultKind::Flags => "flags that contradict the neighbour",
            FaultKind::Before => "no way back to the free block before",
            FaultKind::NotCoalesced => "two free blocks side by side",
            FaultKind::Link => "a broken link",
            FaultKind::List => "a free block in no list or a wrong one",
            FaultKind::Bits => return write!(f, "the bit maps and the lists disagree"),
        };
        write!(f, "{what} at {:#x}", self.address)
    }
}

impl core::error::Error for Fault {}

/// Why nothing was allocated. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No heap of this kind ever serves so much.
    TooLarge {
        /// Bytes asked for.
        size_bytes: usize,
        /// Alignment asked for.
        align_bytes: usize,
    },
    /// No free block is surely large enough.
    OutOfMemory {
        /// Bytes asked for.
        size_bytes: usize,
        /// Bytes of the largest request that would be served now, with the
        /// usual alignment.
        largest_bytes: usize,
    },
    /// The source of pages had none.
    Source(SourceError),
    /// The free block that was found is not intact.
    Corrupt(Fault),
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { size_bytes, align_bytes } => {
                write!(f, "{size_bytes} bytes aligned to {align_bytes} are never served")
            }
            Self::OutOfMemory { size_bytes, largest_bytes } => {
                write!(f, "{size_bytes} bytes wanted, at most {largest_bytes} can be had")
            }
            Self::Source(error) => error.fmt(f),
            Self::Corrupt(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for AllocError {}

/// Why a pointer was not taken back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// No allocation is aligned like this.
    Misaligned {
        /// The pointer.
        address: usize,
    },
    /// The pointer leads into none of the heap's pools.
    Foreign {
        /// The pointer.
        address: usize,
    },
    /// The block is free already.
    NotAllocated {
        /// The pointer.
        address: usize,
    },
    /// No intact block begins there, or a neighbour is not intact.
    Corrupt(Fault),
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { address } => write!(f, "{address:#x} is misaligned"),
            Self::Foreign { address } => write!(f, "{address:#x} is in no pool of the heap"),
            Self::NotAllocated { address } => write!(f, "{address:#x} is free already"),
            Self::Corrupt(fault) => fault.fmt(f),
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

/// Why a pool was not added or removed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolError {
    /// Too short for its own records and one block.
    TooShort {
        /// Bytes given, once aligned.
        len_bytes: usize,
        /// Bytes needed at least.
        min_bytes: usize,
    },
    /// Longer than the longest block that the policy knows.
    TooLong {
        /// Bytes given, once aligned.
        len_bytes: usize,
        /// Bytes allowed at most.
        max_bytes: usize,
    },
    /// Over a source of pages a pool has to consist of whole pages.
    NotPages {
        /// Where it begins.
        address: usize,
        /// Its bytes.
        len_bytes: usize,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// It overlaps a pool of the heap.
    Overlaps {
        /// Where that pool begins.
        address: usize,
    },
    /// The source of pages had none.
    Source(SourceError),
    /// The heap has no such pool.
    Unknown {
        /// Where it would begin.
        address: usize,
    },
    /// Something in it is still allocated.
    InUse {
        /// The border of the first block that is.
        address: usize,
    },
    /// Its memory is not intact.
    Corrupt(Fault),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { len_bytes, min_bytes } => {
                write!(f, "a pool of {len_bytes} bytes, {min_bytes} are the least")
            }
            Self::TooLong { len_bytes, max_bytes } => {
                write!(f, "a pool of {len_bytes} bytes, {max_bytes} are the most")
            }
            Self::NotPages { address, len_bytes, page_bytes } => {
                write!(f, "{len_bytes} bytes at {address:#x} are not pages of {page_bytes}")
            }
            Self::Overlaps { address } => write!(f, "it overlaps the pool at {address:#x}"),
            Self::Source(error) => error.fmt(f),
            Self::Unknown { address } => write!(f, "no pool at {address:#x}"),
            Self::InUse { address } => write!(f, "the block at {address:#x} is in use"),
            Self::Corrupt(fault) => fault.fmt(f),
        }
    }
}

impl core::error::Error for PoolError {}

//! The errors and faults of a heap, by name and place.

use thiserror::Error;

use crate::block::WORD_BYTES;
use crate::pages::SourceError;

/// Invariants of a heap's words that are found broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HeapFaultKind {
    /// The header's seal is broken: no block starts there, or it was
    /// overwritten, as by a write beyond the end of the block before.
    #[error("no intact header")]
    Header,
    /// The size leads out of the pool or is none.
    #[error("an impossible size")]
    Size,
    /// The neighbours' flags do not agree.
    #[error("flags that contradict the neighbour")]
    Flags,
    /// The tag does not lead back to the free block before.
    #[error("no way back to the free block before")]
    Before,
    /// Two free blocks side by side.
    #[error("two free blocks side by side")]
    NotCoalesced,
    /// A free block's link to the next one leads to none, or to one that does not lead back.
    #[error("a broken link to the next free block")]
    Next,
    /// A free block's link to the previous one leads to none, or to one that does not lead here.
    #[error("a broken link to the previous free block")]
    Prev,
    /// The head of a list leads to no free block of its class, or not to the first one.
    #[error("a broken head of a list of free blocks")]
    Head,
    /// A word of the bit maps does not say which lists have blocks.
    #[error("a bit map that disagrees with the lists")]
    Bits,
    /// The record of a pool, or the heap's way to its first pool, is not as it was sealed.
    #[error("no intact record of a pool")]
    Pool,
}

/// A fault: a word is not as the heap left it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{kind} at {address:#x}")]
pub struct HeapFault {
    /// Border of the block that the word belongs to; for [`HeapFaultKind::Pool`] the start of the
    /// record; for a list's head and for the bit maps the word itself, which lies in the heap.
    pub address: usize,
    /// The broken invariant.
    pub kind: HeapFaultKind,
}

impl HeapFault {
    /// Returns the address of the word at which the fault shows; of a record the first of its
    /// words.
    #[must_use]
    pub const fn word_address(self) -> usize {
        let words = match self.kind {
            HeapFaultKind::Header
            | HeapFaultKind::Size
            | HeapFaultKind::Flags
            | HeapFaultKind::NotCoalesced => 1,
            HeapFaultKind::Next => 2,
            HeapFaultKind::Prev => 3,
            HeapFaultKind::Before
            | HeapFaultKind::Head
            | HeapFaultKind::Bits
            | HeapFaultKind::Pool => 0,
        };
        self.address + words * WORD_BYTES
    }
}

/// Reasons why an allocation is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AllocateBytesError {
    /// No heap of this kind ever serves so much.
    #[error("{size_bytes} bytes aligned to {align_bytes} are never served")]
    TooLarge {
        /// Bytes asked for.
        size_bytes: usize,
        /// Alignment asked for.
        align_bytes: usize,
    },
    /// No free block is surely large enough.
    #[error("{size_bytes} bytes wanted, {largest_bytes} are the most that a request gets now")]
    OutOfMemory {
        /// Bytes asked for.
        size_bytes: usize,
        /// Bytes of the largest request that would be served now, with the
        /// usual alignment.
        largest_bytes: usize,
    },
    /// The source of pages had none.
    #[error(transparent)]
    Source(SourceError),
    /// The free block that was found is not intact.
    #[error(transparent)]
    Corrupt(HeapFault),
}

/// Reasons why a pointer is not freed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FreeBytesError {
    /// No allocation is aligned like this.
    #[error("{address:#x} is misaligned")]
    Misaligned {
        /// The pointer.
        address: usize,
    },
    /// The pointer leads into none of the heap's pools.
    #[error("{address:#x} is in no pool of the heap")]
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
    /// No intact block begins there, or a neighbour is not intact.
    #[error(transparent)]
    Corrupt(HeapFault),
}

/// Reasons why a block is not resized. It still has its place, size and contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ResizeBytesError {
    /// The pointer is not one of an allocated block.
    #[error(transparent)]
    Free(#[from] FreeBytesError),
    /// There is no room.
    #[error(transparent)]
    Allocate(#[from] AllocateBytesError),
}

/// Reasons why a pool is not added or removed. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HeapPoolError {
    /// Too short for its own records and one block.
    #[error("a pool of {len_bytes} bytes, {min_bytes} are the least")]
    TooShort {
        /// Bytes of the pool, once aligned.
        len_bytes: usize,
        /// Bytes needed at least.
        min_bytes: usize,
    },
    /// Longer than the longest block that the policy knows.
    #[error("a pool of {len_bytes} bytes, {max_bytes} are the most")]
    TooLong {
        /// Bytes of the pool, once aligned.
        len_bytes: usize,
        /// Bytes allowed at most.
        max_bytes: usize,
    },
    /// Over a source of pages a pool has to consist of whole pages.
    #[error("{len_bytes} bytes at {address:#x} are not pages of {page_bytes}")]
    NotPages {
        /// Address of its first byte.
        address: usize,
        /// Its bytes.
        len_bytes: usize,
        /// Bytes of a page.
        page_bytes: usize,
    },
    /// It overlaps a pool of the heap.
    #[error("it overlaps the pool at {address:#x}")]
    Overlaps {
        /// Address of that pool's first byte.
        address: usize,
    },
    /// The source of pages had none.
    #[error(transparent)]
    Source(SourceError),
    /// The heap has no such pool.
    #[error("no pool at {address:#x}")]
    Unknown {
        /// Address at which it would begin.
        address: usize,
    },
    /// Something in it is still allocated.
    #[error("the block at {address:#x} is in use")]
    InUse {
        /// Border of the first block that is.
        address: usize,
    },
    /// Its memory is not intact.
    #[error(transparent)]
    Corrupt(HeapFault),
}

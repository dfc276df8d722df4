//! A program's use of its heap, event by event.
//!
//! A recording is a row of [`HeapEvent`]s in the order in which they happened:
//! each allocation, release and change of size, and among them all or some
//! of the reads and writes of what is allocated. Blocks are numbered, not
//! addressed: where they lay is the work of the allocator that the program ran
//! on, and a replay brings another. [`record_heap`](crate::heap::record_heap)
//! takes one; [`HeapReader`](crate::heap::HeapReader) and
//! [`HeapWriter`](crate::heap::HeapWriter) are its file.
//!
//! ```no_run
//! use swath_trace::heap::{HeapEvent, HeapReader};
//!
//! let mut reader = HeapReader::open("data/minisat.swheap".as_ref()).unwrap();
//! let mut live_bytes = 0;
//! let mut sizes = std::collections::HashMap::new();
//! for event in reader.by_ref() {
//!     match event.unwrap() {
//!         HeapEvent::Allocate { block, size_bytes, .. }
//!         | HeapEvent::Resize { block, size_bytes, .. } => {
//!             live_bytes += size_bytes;
//!             live_bytes -= sizes.insert(block, size_bytes).unwrap_or(0);
//!         }
//!         HeapEvent::Release { block, .. } => live_bytes -= sizes.remove(&block).unwrap(),
//!         HeapEvent::Read { .. } | HeapEvent::Write { .. } | HeapEvent::Skip { .. } => {}
//!     }
//! }
//! println!("{} accesses in all", reader.totals().unwrap().reads);
//! ```

use serde::Serialize;

use crate::access::event::Sampling;

/// The largest block, in bytes: what 48 bits can address.
pub const SIZE_MAX: u64 = 1 << 48;

/// The most blocks allocated at once that a recording may hold: what a hash table of
/// 2^22 places does, 100 MiB of a reader's memory.
pub const LIVE_MAX: usize = 7 << 19;

/// Sampling keeps the first access to each piece of a block of so many bytes,
/// counted from the block's start.
pub const PIECE_BYTES: u64 = 512;

/// Something that a program did.
///
/// What every reader promises, and [`HeapWriter`] demands: blocks are numbered
/// 0, 1, 2, … in the order of their allocation; `block` is allocated then, in
/// all events but [`Allocate`](Self::Allocate); sizes are at most [`SIZE_MAX`]
/// and may be 0, and all blocks together have less than 2^64 bytes; an access has at least one byte and ends within its block;
/// at most [`LIVE_MAX`] blocks are allocated at once. Blocks that are never
/// released were left to the end of the process.
///
/// [`HeapWriter`]: crate::heap::file::HeapWriter
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HeapEvent {
    /// `malloc`, `calloc`, `aligned_alloc` and their kin gave a block.
    Allocate {
        /// Its number: how many blocks were allocated before.
        block: u64,
        /// As asked for, not rounded.
        size_bytes: u64,
        /// A power of two that the program asked for; 1 if it asked for none,
        /// which in C means what suits every object, 16 on 64-bit machines.
        align_bytes: u64,
        /// It was asked to be zeros (`calloc`).
        zeroed: bool,
        /// Number of the thread: from 0 in the order of first calls.
        thread: u32,
    },
    /// `realloc` gave the block another size, and maybe another place. What it
    /// held is there up to the smaller of the two sizes; the copying is not
    /// among the accesses. An allocator that cannot do it in place allocates
    /// anew, copies and releases.
    Resize {
        /// Number of the block.
        block: u64,
        /// From now on.
        size_bytes: u64,
        /// Number of the thread.
        thread: u32,
    },
    /// `free`.
    Release {
        /// Number of the block; it does not come again.
        block: u64,
        /// Number of the thread.
        thread: u32,
    },
    /// The program, or a library that it called, read bytes of a block.
    Read {
        /// Number of the block.
        block: u64,
        /// The first byte, from the block's start.
        offset_bytes: u64,
        /// Number of them.
        len_bytes: u16,
    },
    /// … wrote bytes of a block.
    Write {
        /// Number of the block.
        block: u64,
        /// The first byte, from the block's start.
        offset_bytes: u64,
        /// Number of them.
        len_bytes: u16,
    },
    /// So many reads and writes, 1 or more, were left out here by sampling.
    Skip {
        /// Number of them.
        accesses: u64,
    },
}

/// Facts that a recording states before its first event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HeapHeader {
    /// The program's name, without the path to it: printable ASCII, at most
    /// 255 bytes; empty if nobody said.
    pub program: String,
    /// `None` if every access to a block is there. Otherwise the first
    /// accesses of each period are, and the first one to each piece of
    /// [`PIECE_BYTES`] of a block; a [`HeapEvent::Skip`] says how many are
    /// missing where. Periods count accesses to blocks.
    pub sampling: Option<Sampling>,
}

/// Totals that a recording states after its last event, of the whole run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct HeapTotals {
    /// Reads of blocks, written or left out.
    pub reads: u64,
    /// Writes of blocks, written or left out.
    pub writes: u64,
    /// Reads and writes of anything else: stacks, globals, mapped files, and
    /// the allocator's own headers.
    pub elsewhere: u64,
    /// Calls that gave no memory.
    pub failed_calls: u64,
    /// Releases and changes of size of what nobody was seen to allocate.
    pub unknown_calls: u64,
    /// Calls that are missing because their report was incomplete.
    pub lost_calls: u64,
}

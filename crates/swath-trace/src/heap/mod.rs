//! Heap recordings: what a program allocates and frees, and its reads and
//! writes of what is allocated.
//!
//! Blocks have numbers and no addresses, so that any allocator can be driven by
//! a recording. [`record_heap`] makes one, [`HeapWriter`] and [`HeapReader`]
//! are its file, [`HeapSummary`] is what it amounts to.

#[cfg(target_os = "linux")]
mod calls;
mod events;
mod file;
#[cfg(target_os = "linux")]
mod live;
mod record;
mod summary;

pub use events::{HeapEvent, HeapHeader, HeapTotals, LIVE_MAX, PIECE_BYTES, SIZE_MAX};
pub use file::{HEAP_FORMAT, HeapReader, HeapWriter};
pub use record::{HeapRecording, record_heap};
pub use summary::HeapSummary;

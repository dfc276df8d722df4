//! Machine snapshots: which frames a Linux machine has, and what each is used
//! for.
//!
//! [`capture`] takes a [`Snapshot`] of the running machine; the methods of
//! [`Snapshot`] read and write its file.

mod blocks;
pub(crate) mod facts;
mod file;
pub(crate) mod record;
mod snapshot;

pub use blocks::{MemoryBlock, memory_blocks};
pub use facts::{MachineFacts, ZONES_MAX, ZoneFacts};
pub use file::SNAPSHOT_FORMAT;
pub use record::{
    CaptureError, FreeBlocks, available_frames, capture, capture_from, classify, free_blocks,
    free_frames, total_frames,
};
pub use snapshot::{
    FrameKind, FrameRun, RANGES_MAX, RUNS_MAX, RamRange, Snapshot, SnapshotSummary, UnknownFrames,
};

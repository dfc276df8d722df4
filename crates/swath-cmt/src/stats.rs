//! The statistics of the process's pool.

use crate::process::state::begun;
use crate::source::chunk::CHUNK_BYTES;

/// Counts of what the pool holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Bytes of blocks in use, as long as their slots and segments are.
    pub live_bytes: u64,
    /// Bytes of superblocks and segments.
    pub held_bytes: u64,
    /// Bytes of segments in use.
    pub segment_bytes: u64,
    /// Bytes of free memory that has not gone back to the system.
    pub cached_bytes: u64,
    /// Bytes backed by pages of 1 GiB of the hugetlb pool.
    pub hugetlb_1g_bytes: u64,
    /// Bytes backed by pages of 2 MiB of the hugetlb pool.
    pub hugetlb_2m_bytes: u64,
    /// Bytes for which transparent huge pages were asked for.
    pub thp_bytes: u64,
    /// Bytes backed by pages of 4 KiB.
    pub small_bytes: u64,
    /// Bytes of segments whose pages were picked and ordered by their frames, so far.
    pub ordered_bytes: u64,
    /// Bytes of reserved addresses.
    pub arena_bytes: u64,
    /// Number of blocks that were freed by another thread than allocated them.
    pub remote_frees: u64,
    /// Number of blocks freed twice by two threads at once, found afterwards.
    pub late_double_frees: u64,
    /// Number of threads with a heap.
    pub threads: u32,
    /// True if physical addresses are known.
    pub physical_known: bool,
}

/// Counts what the pool holds now; all zero before anything was allocated.
#[must_use]
pub fn stats() -> Stats {
    let Some(process) = begun() else { return Stats::default() };
    let held = process.pool.stats();
    let chunks = process.pool.with_source(|source| source.counts());
    let bytes = |chunks: u64| chunks * CHUNK_BYTES as u64;
    Stats {
        live_bytes: held.live_bytes,
        held_bytes: held.held_bytes,
        segment_bytes: held.segment_bytes,
        cached_bytes: held.cached_bytes,
        hugetlb_1g_bytes: bytes(chunks.giant),
        hugetlb_2m_bytes: bytes(chunks.huge),
        thp_bytes: bytes(chunks.advised),
        small_bytes: bytes(chunks.small),
        ordered_bytes: bytes(chunks.ordered),
        arena_bytes: process.options.arena_mib << 20,
        remote_frees: held.remote_frees,
        late_double_frees: held.late_double_frees,
        threads: held.heaps,
        physical_known: process.physical,
    }
}

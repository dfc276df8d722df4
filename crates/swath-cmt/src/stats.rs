//! The statistics of the process's pool.

use swath_arch::BASE_PAGE_BYTES;

use crate::process::state::begun;
use crate::reserve::extent::ReserveExtent;
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
    /// Bytes of the kernel's dma-heaps.
    pub dma_heap_bytes: u64,
    /// Bytes of segments whose pages were picked and ordered by their frames, so far.
    pub ordered_bytes: u64,
    /// Bytes of the reserve.
    pub reserve_bytes: u64,
    /// Bytes of the reserve that are free; not those of segments up to 1 MiB that threads keep, up to 4 MiB
    /// each, until a purge or a request that finds no other memory.
    pub reserve_free_bytes: u64,
    /// Bytes of its longest free run: what one contiguous block can have.
    pub reserve_longest_bytes: u64,
    /// Number of its free runs.
    pub reserve_free_runs: u64,
    /// Number of its extents.
    pub reserve_extents: u64,
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
    let (chunks, (free, free_runs), longest) = process
        .pool
        .with_source(|source| (source.counts(), source.reserve_free(), source.reserve_longest()));
    let (mut reserve_bytes, mut extents) = (0, 0);
    reserve_extents(|extent| {
        reserve_bytes += extent.len_bytes;
        extents += 1;
    });
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
        dma_heap_bytes: bytes(chunks.heap),
        ordered_bytes: bytes(chunks.ordered),
        reserve_bytes,
        reserve_free_bytes: free * BASE_PAGE_BYTES,
        reserve_longest_bytes: longest * BASE_PAGE_BYTES,
        reserve_free_runs: free_runs,
        reserve_extents: extents,
        arena_bytes: process.options.arena_mib << 20,
        remote_frees: held.remote_frees,
        late_double_frees: held.late_double_frees,
        threads: held.heaps,
        physical_known: process.physical,
    }
}

/// Visits the extents of the reserve, ascending by frame.
///
/// ```
/// let mut len_bytes = 0;
/// swath_cmt::reserve_extents(|extent| len_bytes += extent.len_bytes);
/// assert_eq!(len_bytes, swath_cmt::stats().reserve_bytes);
/// ```
pub fn reserve_extents(visit: impl FnMut(ReserveExtent)) {
    let Some(process) = begun() else { return };
    // It may allocate.
    let extent = |index| process.pool.with_source(|source| source.extent(index));
    (0..).map_while(extent).for_each(visit);
}

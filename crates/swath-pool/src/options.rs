//! The settings of a pool.

/// Settings of a [`BufferPool`](crate::BufferPool).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferOptions {
    /// The emptiness threshold f in eighths, 1 to 7: a superblock that is at least so
    /// empty may go back to the global heap.
    pub empty_eighths: u32,
    /// Number of superblocks of one class and that emptiness which a heap keeps (the K of Hoard).
    pub slack: u32,
    /// Least time from a unit's release until its memory goes back to the system, in the unit
    /// of the time that [`BufferPool::purge`](crate::BufferPool::purge) is called with; the most
    /// is twice that.
    pub purge_delay: u64,
    /// True if a unit that faults lies behind every segment, provided the source can guard.
    pub guard_segments: bool,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self { empty_eighths: 7, slack: 4, purge_delay: 100, guard_segments: false }
    }
}

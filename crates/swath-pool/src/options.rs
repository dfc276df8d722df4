//! How a pool behaves.

/// How a pool behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferOptions {
    /// The emptiness threshold f in eighths, 1 to 7: a superblock that is at least so
    /// empty may go back to the global heap.
    pub empty_eighths: u32,
    /// Superblocks of one class and that emptiness which a heap keeps (the K of Hoard).
    pub slack: u32,
    /// From a unit's release until its memory goes back to the system, in
    /// the time that [`BufferPool::purge`] is called with; at most twice as long.
    pub purge_delay: u64,
    /// Whether behind every segment lies a unit that faults, if the source
    /// can guard.
    pub guard_segments: bool,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self { empty_eighths: 7, slack: 4, purge_delay: 100, guard_segments: false }
    }
}

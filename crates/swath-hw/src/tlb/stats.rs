//! The counters of TLBs.

/// The counters of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlbStats {
    /// Lookups.
    pub accesses: u64,
    /// Lookups that a regular entry answered.
    pub regular_hits: u64,
    /// Lookups that an anchor entry answered.
    pub anchor_hits: u64,
    /// Lookups that no entry answered.
    pub misses: u64,
    /// Entries written.
    pub fills: u64,
    /// Fills that were cut, by the window of their set, by the anchor distance
    /// or at an older entry.
    pub trimmed_fills: u64,
    /// Valid entries replaced as the least recently used of their set.
    pub evictions: u64,
    /// Older entries dropped because a fill covered them.
    pub displaced: u64,
    /// Entries dropped by invalidation.
    pub invalidated: u64,
}

impl TlbStats {
    /// Returns the number of lookups answered by either kind of entry.
    pub const fn hits(&self) -> u64 {
        self.regular_hits + self.anchor_hits
    }
}

/// The counters of a [`SplitTlb`](crate::SplitTlb) for one size of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SizeStats {
    /// Lookups that an entry of this size answered.
    pub hits: u64,
    /// Entries of this size written.
    pub fills: u64,
}

//! The interface between a buffer pool and what its units come from.

/// Hands runs of units of one arena to a buffer pool and takes them back.
///
/// Units are numbered from the arena's start, [`UNIT_BYTES`](crate::UNIT_BYTES)
/// each. The pool calls under its lock, releases, extends, purges and guards only what it
/// acquired (a purge: what it acquired once and released since), and may
/// release any part of what it acquired. Which units are free is the source's
/// business alone; when memory goes back to the system is the pool's: a
/// released unit keeps its memory, so that it is quick to acquire again, until
/// `purge` says that nobody has wanted it for long enough.
///
/// # Safety
/// From `acquire` (or `extend`) until `release`, the units lie inside the arena, can be read
/// and written, and belong to nobody else.
pub unsafe trait SegmentSource {
    /// Units of a page of the system, a power of two: what lies within one is contiguous in physical
    /// memory, so a segment lies in as few of them as its length allows, counted from the arena's
    /// start.
    const PAGE_UNITS: u32 = 1;

    /// Whether units that were never released, or purged since, read as zeroes.
    fn reads_zero(&self) -> bool {
        false
    }

    /// The first of `units` units in a row that are free, its number a multiple
    /// of `align_units` (a power of two) from address 0 on; none if there is no
    /// such run. The runs handed out earlier stay as they are.
    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32>;

    /// Adds the `more` units behind the `units` from `first` on; whether they
    /// were free.
    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let _ = (first, units, more);
        false
    }

    /// Takes `units` from `first` on back.
    fn release(&mut self, first: u32, units: u32);

    /// Gives the memory of free units back to the system, the addresses not;
    /// whether it did. If not, the pool will ask again.
    fn purge(&mut self, first: u32, units: u32) -> bool;

    /// Makes acquired units fault at every access, or (`on` false) usable again.
    fn guard(&mut self, first: u32, units: u32, on: bool) {
        let _ = (first, units, on);
    }

    /// The process is about to fork; one of the two calls below follows.
    fn before_fork(&mut self) {}

    /// The process has forked, or could not.
    fn after_fork_in_parent(&mut self) {}

    /// The process is a fork's child, and no other thread has begun in it.
    fn after_fork_in_child(&mut self) {}
}

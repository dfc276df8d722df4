//! The interface between a buffer pool and what its units come from.

/// The place that a segment shall have in physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placement {
    /// Its first byte's physical address is a multiple of this, a power of two.
    pub align_bytes: u64,
    /// No byte of it has this physical address or a higher one.
    pub below: u64,
    /// No two of its bytes lie on two sides of a multiple of this, a power of two.
    pub boundary_bytes: Option<u64>,
}

impl Placement {
    /// Any place.
    pub const ANY: Self = Self { align_bytes: 1, below: u64::MAX, boundary_bytes: None };
}

impl Default for Placement {
    fn default() -> Self {
        Self::ANY
    }
}

/// The part of a source that makes acquired units usable, or guards of them: the pool calls it without its
/// lock, so it may take its time.
pub trait MakeUsable: Sync {
    /// Makes units usable that the caller has acquired, and returns true if they are; if not, the caller
    /// releases them.
    fn make_usable(&self, first: u32, units: u32) -> bool;

    /// Makes units that the caller has acquired fault at every access, or (`on` false) usable again.
    fn guard(&self, first: u32, units: u32, on: bool) {
        let _ = (first, units, on);
    }
}

/// A source of units: a buffer pool acquires runs of them and releases them again.
///
/// Units are numbered from the arena's start, [`UNIT_BYTES`](crate::UNIT_BYTES)
/// each. The pool calls under its lock, releases, extends and purges only what it
/// acquired (a purge: what it acquired once and released since), and may
/// release any part of what it acquired. Which units are free is the source's
/// business alone; when memory goes back to the system is the pool's: a
/// released unit keeps its memory, so that it is quick to acquire again, until
/// `purge` says that it was free for long enough.
///
/// # Safety
/// From `acquire` (or `extend`) until `release`, the units lie inside the arena and are used by nothing
/// else. They can be read and written from then on, or, if the source has a
/// [`make_usable`](Self::make_usable), once that has returned true for them.
pub unsafe trait SegmentSource {
    /// Number of units in a page of the system, a power of two: what lies within one is contiguous in physical
    /// memory, so a segment lies in as few of them as its length allows, counted from the arena's
    /// start.
    const PAGE_UNITS: u32 = 1;

    /// Returns what makes acquired units usable, if anything has to: the pool asks once.
    fn make_usable(&self) -> Option<&'static dyn MakeUsable> {
        None
    }

    /// Returns true if units that were never released, or purged since, read as zeroes.
    fn reads_zero(&self) -> bool {
        false
    }

    /// Acquires `units` free units in a row, the first at a multiple of `align_units` (a power of
    /// two) counted from address 0, and returns its number; `None` if there is no such run.
    fn acquire(&mut self, units: u32, align_units: u32) -> Option<u32>;

    /// Acquires as [`acquire`](Self::acquire) for a segment: a source may have better places for these
    /// than for superblocks.
    fn acquire_segment(&mut self, units: u32, align_units: u32) -> Option<u32> {
        self.acquire(units, align_units)
    }

    /// Acquires `units` units that are one run of physical memory at a place that `placement` admits;
    /// `None` if there is no such run, or the source does not know where its units lie.
    fn acquire_placed(&mut self, units: u32, placement: &Placement) -> Option<u32> {
        let _ = (units, placement);
        None
    }

    /// Acquires the `more` units behind the `units` from `first` on, and returns true, if they
    /// are free.
    fn extend(&mut self, first: u32, units: u32, more: u32) -> bool {
        let _ = (first, units, more);
        false
    }

    /// Releases `units` units from `first` on.
    fn release(&mut self, first: u32, units: u32);

    /// Returns the memory of free units, though not the addresses, to the system: now, or soon after
    /// the call, as long as nobody acquires them before. If it returns false, the pool will ask again.
    fn purge(&mut self, first: u32, units: u32) -> bool;

    /// Prepares for a fork; one of the two calls below follows.
    fn before_fork(&mut self) {}

    /// Ends the preparation in the parent, or if the fork failed.
    fn after_fork_in_parent(&mut self) {}

    /// Ends the preparation in the child, before any other thread has begun there.
    fn after_fork_in_child(&mut self) {}
}

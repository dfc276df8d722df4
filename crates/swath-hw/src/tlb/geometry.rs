//! The forms that a TLB can have: sets, ways and which page bits choose a set.

use swath_arch::Order;

use crate::tlb::fill::PAGE_BITS;

/// The form of a TLB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Geometry {
    /// Number of sets, 1 or more. The set of a page is the
    /// remainder of its shifted number.
    pub sets: u32,
    /// Number of entries in a set, 1 or more.
    pub ways: u32,
    /// log2 of the pages that share a set; no entry is longer. Without effect
    /// when there is one set.
    pub index_shift: u32,
}

impl Geometry {
    /// The most entries that a TLB may have.
    pub const ENTRIES_MAX: u32 = 1 << 24;

    /// Returns the form of one set with `entries` ways.
    pub const fn fully_associative(entries: u32) -> Self {
        Self { sets: 1, ways: entries, index_shift: 0 }
    }
}

/// The most arrays that a TLB may have.
pub(crate) const ARRAYS_MAX: usize = 4;

/// The choice of a set for an entry that is longer than the window of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Indexing {
    /// It is cut to the window.
    #[default]
    Window,
    /// A superpage keeps its size, and its set follows from the address bits above it. Any other
    /// entry is cut.
    Size,
}

/// The choice of the entry that gives way to a fill in a set without an empty one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Replacement {
    /// The least recently used (true LRU).
    #[default]
    Lru,
    /// The one that was filled first.
    Fifo,
    /// Any of them: a shift register of 32 bits, which makes a step with each eviction, chooses. The
    /// same accesses choose the same.
    Random,
}

impl Default for Geometry {
    /// Returns the 32 entries of *Duong and Hur*, fully associative.
    fn default() -> Self {
        Self::fully_associative(32)
    }
}

/// Reasons why a TLB cannot have a form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// No sets or no ways, or more entries than [`Geometry::ENTRIES_MAX`].
    #[error("{sets} sets of {ways} ways: 1 to {} entries", Geometry::ENTRIES_MAX)]
    Entries {
        /// The sets asked for.
        sets: u32,
        /// The ways asked for.
        ways: u32,
    },
    /// An index shift beyond the 52 bits of a page number.
    #[error("index shift {index_shift}: at most {}", PAGE_BITS)]
    IndexShift {
        /// The shift asked for.
        index_shift: u32,
    },
    /// More arrays than [`TlbForm::ARRAYS_MAX`](crate::TlbForm::ARRAYS_MAX).
    #[error("{count} arrays of a TLB: at most {}", ARRAYS_MAX)]
    Arrays {
        /// The arrays asked for.
        count: usize,
    },
    /// An array whose largest entries are not larger than those of the one before.
    #[error("an array for order {largest} behind one for {before}")]
    Largest {
        /// The largest of the one before.
        before: Order,
        /// The largest of the array.
        largest: Order,
    },
}

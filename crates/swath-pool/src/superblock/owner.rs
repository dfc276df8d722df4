//! The owner of a unit, and the unit's role, in one number.

/// The owner and role of a unit, in one number. It changes only under the pool's lock, except that
/// an owner may turn its own superblock from open to full and back, and that segments begin and end
/// where their units are one thread's alone.
///
/// A heap's number is followed by its parity: a flipped bit makes no heap's owner another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(pub(crate) u32);

/// The role of a unit, as its [`Owner`] says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Nothing begins here.
    Free,
    /// The first unit of a segment.
    Segment,
    /// So many units after the first one of a superblock.
    Inner(u32),
    /// The first unit of a superblock of heap `heap`; 0 is the global heap.
    Superblock { heap: u32, full: bool },
}

/// Number of heaps that an owner's word has bits for.
pub(crate) const HEAPS_MAX: usize = 1 << 28;

const fn with_parity(heap: u32) -> u32 {
    heap << 1 | heap.count_ones() & 1
}

impl Owner {
    pub(crate) const FREE: Self = Self(0);
    pub(crate) const SEGMENT: Self = Self(3);

    pub(crate) const fn open(heap: u32) -> Self {
        Self(with_parity(heap) << 2 | 1)
    }

    pub(crate) const fn full(heap: u32) -> Self {
        Self(with_parity(heap) << 2 | 2)
    }

    pub(crate) const fn inner(distance: u32) -> Self {
        Self(distance << 2 | 3)
    }

    /// Returns true if it is a heap's superblock, open or full.
    #[inline(always)]
    pub(crate) const fn is_superblock(self) -> bool {
        matches!(self.0 & 3, 1 | 2)
    }

    /// Returns true if two superblocks are of one heap.
    #[inline(always)]
    pub(crate) const fn is_heap_of(self, other: Self) -> bool {
        self.0 >> 2 == other.0 >> 2
    }

    pub(crate) const fn role(self) -> Role {
        match (self.0 & 3, self.0 >> 2) {
            (0, _) => Role::Free,
            (1, heap) => Role::Superblock { heap: heap >> 1, full: false },
            (2, heap) => Role::Superblock { heap: heap >> 1, full: true },
            (_, 0) => Role::Segment,
            (_, distance) => Role::Inner(distance),
        }
    }
}

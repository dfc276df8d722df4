//! The owner of a unit, and the unit's role, in one number.

use crate::superblock::class::CLASSES;

/// The owner and role of a unit, in one number. It changes only under the pool's lock, except that
/// segments and superblocks begin and end where their units are one thread's alone.
///
/// A superblock's has its heap, its class and the parity of both: by one comparison a heap sees that a
/// superblock is its own and of what class, and no flipped bit makes it another's or of another class.
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
    Superblock { heap: u32 },
}

/// Number of heaps that an owner's word has bits for: above the class, its lowest byte, and above role and
/// parity.
pub(crate) const HEAPS_MAX: usize = 1 << 21;

impl Owner {
    pub(crate) const FREE: Self = Self(0);
    pub(crate) const SEGMENT: Self = Self(3 << 8);

    /// A superblock of `class` of heap `heap`.
    pub(crate) const fn of(heap: u32, class: usize) -> Self {
        const { assert!(CLASSES < 1 << 8) };
        let parity = (heap.count_ones() + class.count_ones()) & 1;
        Self(heap << 11 | parity << 10 | 1 << 8 | class as u32)
    }

    pub(crate) const fn inner(distance: u32) -> Self {
        Self((distance << 2 | 3).rotate_left(8))
    }

    /// The class of a superblock, or some byte.
    #[inline(always)]
    pub(crate) const fn class(self) -> u8 {
        self.0 as u8
    }

    /// Returns true if it is a heap's superblock.
    #[inline(always)]
    pub(crate) const fn is_superblock(self) -> bool {
        self.0 >> 8 & 3 == 1
    }

    /// Returns true if it is that of another unit of a superblock than the first, of those that a superblock's units have.
    #[inline(always)]
    pub(crate) const fn is_inner(self) -> bool {
        self.0 >> 8 & 2 != 0
    }

    pub(crate) const fn role(self) -> Role {
        let word = self.0.rotate_right(8);
        match (word & 3, word >> 2) {
            (1, _) => Role::Superblock { heap: word >> 3 & (HEAPS_MAX as u32 - 1) },
            (3, 0) => Role::Segment,
            (3, distance) => Role::Inner(distance),
            // Of an overwritten one, too.
            _ => Role::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::claim::CLOSED;

    #[test]
    fn roles_are_told_apart() {
        let kinds = |owner: Owner| (owner.role(), owner.is_superblock(), owner.is_inner());
        assert_eq!(kinds(Owner::FREE), (Role::Free, false, false));
        assert_eq!(kinds(Owner::SEGMENT), (Role::Segment, false, true));
        for distance in [1, 2, 3, 63, (1 << 30) - 1] {
            assert_eq!(kinds(Owner::inner(distance)), (Role::Inner(distance), false, true));
        }
        for heap in [0, 1, 2, 3, 77, HEAPS_MAX as u32 - 1] {
            for class in 0..CLASSES {
                let owner = Owner::of(heap, class);
                assert_eq!(kinds(owner), (Role::Superblock { heap }, true, false));
                assert_eq!(usize::from(owner.class()), class);
            }
        }
        // What no unit has.
        for word in [2 << 8, CLOSED, 1 << 31 | 2 << 8, 4 << 8, 1] {
            assert_eq!(Owner(word).role(), Role::Free, "{word:#x}");
            assert!(!Owner(word).is_superblock(), "{word:#x}");
        }
    }

    #[test]
    fn a_superblocks_word_has_its_heap_its_class_and_the_parity_of_both() {
        assert_eq!(Owner::of(0, 0), Owner(1 << 8));
        assert_eq!(Owner::of(1, 0), Owner(1 << 11 | 1 << 10 | 1 << 8));
        assert_eq!(Owner::of(0, 4), Owner(1 << 10 | 1 << 8 | 4));
        assert_eq!(Owner::of(5, 6), Owner(5 << 11 | 1 << 8 | 6));
        assert_eq!(Owner::of(5, 7), Owner(5 << 11 | 1 << 10 | 1 << 8 | 7));
        assert_eq!(Owner::of(HEAPS_MAX as u32 - 1, 0), Owner(0xffff_f800 | 1 << 10 | 1 << 8));
    }

    #[test]
    fn a_flipped_bit_opens_no_claim() {
        for other in (0..32).map(|bit| Owner(CLOSED ^ 1 << bit)) {
            assert!(!other.is_superblock() && other != Owner::FREE, "{other:?}");
        }
    }

    #[test]
    fn a_flipped_bit_makes_no_superblock_anothers_or_of_another_class() {
        for heap in [0, 1, 2, 77, HEAPS_MAX as u32 - 1] {
            for class in 0..CLASSES {
                let owner = Owner::of(heap, class);
                assert_eq!(owner.role(), Role::Superblock { heap });
                for other in (0..32).map(|bit| Owner(owner.0 ^ 1 << bit)) {
                    if let Role::Superblock { heap } = other.role() {
                        let is_one = |class| other == Owner::of(heap, class);
                        assert!(!(0..CLASSES).any(is_one), "{owner:?} and {other:?}");
                    }
                }
            }
        }
    }
}

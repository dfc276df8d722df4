//! The system's record of a region: the rights to it and the header (VRH) at its start
//! (Böhnert and Scholl, section IV-A2).

use core::fmt;
use core::ops::BitOr;

use swath_arch::validity;

/// Rights to a region, or what an access needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rights(u8);

impl Rights {
    /// None: every access faults.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(validity::READ.mask() as u8);
    /// Writing.
    pub const WRITE: Self = Self(validity::WRITE.mask() as u8);
    /// Execution.
    pub const EXECUTE: Self = Self(validity::EXECUTE.mask() as u8);

    /// Returns the rights as the low bits of a data entry.
    #[inline]
    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the rights in the low bits of a data entry.
    #[inline]
    pub(crate) const fn from_bits(word: u32) -> Self {
        Self(word as u8 & 7)
    }

    /// Returns true if all of `other` is among these.
    #[inline]
    pub const fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Rights {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (right, letter) in [(Self::READ, 'r'), (Self::WRITE, 'w'), (Self::EXECUTE, 'x')] {
            write!(f, "{}", if self.contain(right) { letter } else { '-' })?;
        }
        Ok(())
    }
}

/// A region's header (VRH). Two words at each page; those of starts count.
///
/// In a free interval only `kind` means anything. Without mapped pages the list's ends
/// mean nothing, and `mapped_end` is the start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The frame mapped last, where the list begins.
    pub(crate) newest: u32,
    /// The frame mapped first, where it ends.
    pub(crate) oldest: u32,
    /// One past the highest page that was mapped.
    pub(crate) mapped_end: u32,
    pub(crate) kind: Kind,
}

impl Header {
    /// Reads a header from its two words.
    #[inline]
    pub(crate) fn of([list, rest]: [u64; 2]) -> Self {
        Self {
            newest: list as u32,
            oldest: (list >> 32) as u32,
            mapped_end: rest as u32,
            kind: Kind::of(rest),
        }
    }

    /// Returns the two words.
    #[inline]
    pub(crate) fn words(self) -> [u64; 2] {
        let list = u64::from(self.oldest) << 32 | u64::from(self.newest);
        [list, self.kind.bits() | u64::from(self.mapped_end)]
    }
}

/// The kind of an interval.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Free,
    Region(Rights),
}

impl Kind {
    /// Bits 32 to 34 of a header's second word are the rights, bit 35 says region.
    const REGION: u64 = 1 << 35;

    #[inline]
    pub(crate) fn of(word: u64) -> Self {
        if word & Self::REGION == 0 {
            Self::Free
        } else {
            Self::Region(Rights::from_bits((word >> 32) as u32))
        }
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Region(rights) => Self::REGION | u64::from(rights.0) << 32,
        }
    }
}

//! The word that bitmaps, numbers and descriptors are computed in.
//!
//! In every program it is `u64`. The functions that all else stands on, the algebra
//! of numbers and ranges, the bits of a bitmap, the fields of a descriptor, are
//! written over [`Word`], so that the same code runs on the symbolic words of
//! `swath-prove` too and is proved there for all inputs. `u64` has every method
//! already: the implementation adds no instruction.

use core::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Not, Shl, Shr,
    Sub, SubAssign,
};

/// A word of 64 bits: `u64`, or a symbolic one in a proof.
///
/// All operations are those of `u64`: a sum, a difference or a shift that
/// overflows is a mistake of the caller. A comparison is a `bool`, and what
/// counts bits is a number, since code branches on them and indexes with them.
pub trait Word:
    Copy
    + Ord
    + From<u64>
    + Not<Output = Self>
    + BitAnd<Output = Self>
    + BitAndAssign
    + BitOr<Output = Self>
    + BitOrAssign
    + BitXor<Output = Self>
    + BitXorAssign
    + Shl<usize, Output = Self>
    + Shr<usize, Output = Self>
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + SubAssign
{
    /// No bits.
    const ZERO: Self;
    /// All bits.
    const MAX: Self;

    /// Returns the sum modulo 2^64.
    #[must_use]
    fn wrapping_add(self, other: Self) -> Self;
    /// Returns the difference modulo 2^64.
    #[must_use]
    fn wrapping_sub(self, other: Self) -> Self;
    /// Returns this, shifted to the left by a word, which is below 64.
    #[must_use]
    fn shifted_left(self, by: Self) -> Self;
    /// Counts the zeros below the lowest one; 64 if there is none.
    fn trailing_zeros(self) -> u32;
    /// Counts the zeros above the highest one; 64 if there is none.
    fn leading_zeros(self) -> u32;

    /// Counts the ones below the lowest zero.
    #[inline(always)]
    fn trailing_ones(self) -> u32 {
        (!self).trailing_zeros()
    }

    /// Counts the ones above the highest zero.
    #[inline(always)]
    fn leading_ones(self) -> u32 {
        (!self).leading_zeros()
    }

    /// Returns the number of the highest one, of which there is one.
    #[inline(always)]
    fn ilog2(self) -> u32 {
        63 - self.leading_zeros()
    }

    /// Returns the sum, or `None` on overflow.
    #[inline(always)]
    fn checked_add(self, other: Self) -> Option<Self> {
        let sum = self.wrapping_add(other);
        if sum < self { None } else { Some(sum) }
    }

    /// Returns the difference, or `None` below zero.
    #[inline(always)]
    fn checked_sub(self, other: Self) -> Option<Self> {
        if self < other { None } else { Some(self.wrapping_sub(other)) }
    }

    /// Returns the sum, or all ones on overflow.
    #[inline(always)]
    fn saturating_add(self, other: Self) -> Self {
        self.checked_add(other).unwrap_or(Self::MAX)
    }

    /// Returns the difference, or zero below it.
    #[inline(always)]
    fn saturating_sub(self, other: Self) -> Self {
        self.checked_sub(other).unwrap_or(Self::ZERO)
    }
}

/// Implements methods by the inherent ones of the same name.
macro_rules! inherent {
    ($(fn $name:ident(self $(, $with:ident)?) -> $result:ty;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $with: Self)?) -> $result {
            u64::$name(self $(, $with)?)
        }
    )*};
}

impl Word for u64 {
    const ZERO: Self = 0;
    const MAX: Self = Self::MAX;

    inherent! {
        fn wrapping_add(self, other) -> Self;
        fn wrapping_sub(self, other) -> Self;
        fn trailing_zeros(self) -> u32;
        fn leading_zeros(self) -> u32;
        fn trailing_ones(self) -> u32;
        fn leading_ones(self) -> u32;
        fn ilog2(self) -> u32;
        fn checked_add(self, other) -> Option<Self>;
        fn checked_sub(self, other) -> Option<Self>;
        fn saturating_add(self, other) -> Self;
        fn saturating_sub(self, other) -> Self;
    }

    #[inline(always)]
    fn shifted_left(self, by: Self) -> Self {
        self << by
    }
}

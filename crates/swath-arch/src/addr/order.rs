//! Orders: the exponents of block sizes.

use core::fmt;

use crate::addr::number::{BASE_PAGE_BYTES, BASE_PAGE_SHIFT};
use crate::word::Word;

/// An order k stands for 2^k base frames or base pages; k is at most
/// [`Order::MAX`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// The largest order: 2^51 frames of 4 KiB fill a 63-bit address space.
    pub const MAX: Self = Self(51);

    /// A single base frame.
    pub const BASE: Self = Self(0);

    /// Returns the order `k`, or `None` beyond [`Order::MAX`].
    #[inline]
    pub const fn new(k: u8) -> Option<Self> {
        if k <= Self::MAX.0 { Some(Self(k)) } else { None }
    }

    /// Returns the order `k` where it is known to be valid, as in constants.
    ///
    /// # Panics
    /// If `k` is beyond [`Order::MAX`]; at compile time in a constant.
    pub const fn known(k: u8) -> Self {
        match Self::new(k) {
            Some(order) => order,
            None => panic!("order beyond Order::MAX"),
        }
    }

    /// Returns the largest order that divides a block at `start` and is no
    /// longer than `count`, at least 1, and no larger than `max`.
    #[inline]
    pub fn fitting<W: Word>(start: W, count: W, max: Self) -> Self {
        let mut k = 63 - count.leading_zeros();
        if start.trailing_zeros() < k {
            k = start.trailing_zeros();
        }
        if max.k() < k { max } else { Self(k as u8) }
    }

    /// Returns the exponent k.
    #[inline]
    pub const fn k(self) -> u32 {
        self.0 as u32
    }

    /// Returns 2^k.
    #[inline]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// Returns the size of 2^k base pages in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        BASE_PAGE_BYTES << self.0
    }

    /// Returns log2 of the size in bytes: the alignment of such a block's address.
    #[inline]
    pub const fn shift(self) -> u32 {
        BASE_PAGE_SHIFT + self.0 as u32
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order:{}", self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(Order::new(52), None);
        assert_eq!(Order::known(9).len_bytes(), 2 << 20);
        assert_eq!(1 << Order::known(9).shift(), Order::known(9).len_bytes());
    }
}

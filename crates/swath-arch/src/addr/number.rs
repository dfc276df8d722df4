//! Addresses in bytes, and the numbers of frames and pages.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

use crate::word::Word;

/// The log2 of the base page size: all formats use 4 KiB base pages.
pub const BASE_PAGE_SHIFT: u32 = 12;

/// Bytes in a base page and in a frame: 4096.
pub const BASE_PAGE_BYTES: u64 = 1 << BASE_PAGE_SHIFT;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name<W = u64>(W);

        impl $name {
            /// Wraps a raw number.
            #[inline]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }
        }

        impl<W: Word> $name<W> {
            /// Wraps a raw number in any word.
            #[inline]
            pub const fn of(raw: W) -> Self {
                Self(raw)
            }

            /// Returns the raw number.
            #[inline]
            pub const fn raw(self) -> W {
                self.0
            }

            /// Returns this plus `count`, or `None` on overflow.
            #[inline]
            pub fn checked_add(self, count: W) -> Option<Self> {
                self.0.checked_add(count).map(Self)
            }

            /// Returns this minus `count`, or `None` below zero.
            #[inline]
            pub fn checked_sub(self, count: W) -> Option<Self> {
                self.0.checked_sub(count).map(Self)
            }

            /// Returns true if this is a multiple of `2^log2`. Any `log2` of 64
            /// or more is met by zero alone.
            #[inline]
            pub fn is_aligned(self, log2: u32) -> bool {
                self.0.trailing_zeros() >= log2 || self.0 == W::ZERO
            }

            /// Returns the largest multiple of `2^log2` that is not above this.
            /// The caller keeps `log2` below 64, here and in the two below.
            #[inline]
            pub fn align_down(self, log2: u32) -> Self {
                Self((self.0 >> log2 as usize) << log2 as usize)
            }

            /// Returns the smallest multiple of `2^log2` that is not below
            /// this, or `None` on overflow.
            #[inline]
            pub fn align_up(self, log2: u32) -> Option<Self> {
                let raw = self.0.checked_add(W::from((1 << log2) - 1))?;
                Some(Self(raw).align_down(log2))
            }

            /// Returns the distance from the multiple of `2^log2` below: this
            /// modulo `2^log2`.
            #[inline]
            pub fn offset_in(self, log2: u32) -> W {
                self.0 & W::from((1 << log2) - 1)
            }
        }

        /// Adds a count; as with integers, an overflow is a mistake of the caller.
        impl<W: Word> Add<W> for $name<W> {
            type Output = Self;

            #[inline]
            fn add(self, count: W) -> Self {
                Self(self.0 + count)
            }
        }

        impl<W: Word> AddAssign<W> for $name<W> {
            #[inline]
            fn add_assign(&mut self, count: W) {
                self.0 += count;
            }
        }

        /// Returns the distance from a number that is not above this one.
        impl<W: Word> Sub for $name<W> {
            type Output = W;

            #[inline]
            fn sub(self, from: Self) -> W {
                self.0 - from.0
            }
        }

        impl<W: fmt::Debug> fmt::Debug for $name<W> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:#x?}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

number! {
    /// A physical address, in bytes.
    PhysAddr, "pa:"
}
number! {
    /// A virtual address, in bytes.
    VirtAddr, "va:"
}
number! {
    /// A frame number: a physical address divided by the base page size (the
    /// papers' PPN).
    Pfn, "pfn:"
}
number! {
    /// A page number: a virtual address divided by the base page size.
    Vpn, "vpn:"
}

impl<W: Word> PhysAddr<W> {
    /// Returns the frame that holds this byte.
    #[inline]
    pub fn frame(self) -> Pfn<W> {
        Pfn(self.0 >> BASE_PAGE_SHIFT as usize)
    }

    /// Returns the byte's position within its frame.
    #[inline]
    pub fn frame_offset(self) -> W {
        self.0 & W::from(BASE_PAGE_BYTES - 1)
    }
}

impl<W: Word> VirtAddr<W> {
    /// Returns the page that holds this byte.
    #[inline]
    pub fn page(self) -> Vpn<W> {
        Vpn(self.0 >> BASE_PAGE_SHIFT as usize)
    }

    /// Returns the byte's position within its base page.
    #[inline]
    pub fn page_offset(self) -> W {
        self.0 & W::from(BASE_PAGE_BYTES - 1)
    }
}

impl<W: Word> Pfn<W> {
    /// Returns the address of the frame's first byte. The caller keeps frame
    /// numbers below 2^52; higher bits are lost.
    #[inline]
    pub fn address(self) -> PhysAddr<W> {
        PhysAddr(self.0 << BASE_PAGE_SHIFT as usize)
    }
}

impl<W: Word> Vpn<W> {
    /// Returns the address of the page's first byte. The caller keeps page
    /// numbers below 2^52; higher bits are lost.
    #[inline]
    pub fn address(self) -> VirtAddr<W> {
        VirtAddr(self.0 << BASE_PAGE_SHIFT as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_explicit_and_exact() {
        let at = VirtAddr::new(0x1234_5678);
        assert_eq!(at.page(), Vpn::new(0x12345));
        assert_eq!(at.page_offset(), 0x678);
        assert_eq!(Vpn::new(0x12345).address(), VirtAddr::new(0x1234_5000));
        assert_eq!(PhysAddr::new(0xffff).frame().address(), PhysAddr::new(0xf000));
        assert_eq!(PhysAddr::new(0xffff).frame_offset(), 0xfff);
    }

    /// Every small number, and as many at the top of the range, against the
    /// definitions in 128 bits.
    #[test]
    fn rounding_is_what_the_definitions_say() {
        let all = (0..300).chain(u64::MAX - 300..=u64::MAX);
        for raw in all {
            let number = Pfn::new(raw);
            for log2 in 0..64 {
                let size = 1u128 << log2;
                let down = u128::from(raw) / size * size;
                let up = u128::from(raw).div_ceil(size) * size;
                assert_eq!(u128::from(number.align_down(log2).raw()), down);
                assert_eq!(number.align_up(log2), u64::try_from(up).ok().map(Pfn::new));
                assert_eq!(u128::from(number.offset_in(log2)), u128::from(raw) - down);
                assert_eq!(number.is_aligned(log2), down == up);
                assert_eq!(number.align_down(log2) + number.offset_in(log2), number);
            }
            assert_eq!(number.is_aligned(64), raw == 0);
        }
    }

    #[test]
    fn sums_and_distances() {
        let mut page = Vpn::new(5);
        page += 3;
        assert_eq!(page, Vpn::new(5) + 3);
        assert_eq!(page - Vpn::new(5), 3);
        assert_eq!(page.checked_sub(9), None);
        assert_eq!(page.checked_sub(8), Some(Vpn::new(0)));
        assert_eq!(page.checked_add(u64::MAX), None);
    }
}

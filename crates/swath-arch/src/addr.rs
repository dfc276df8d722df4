//! Addresses, frame and page numbers, orders and ranges.
//!
//! **Frame** is physical, **page** is virtual. Every number is a newtype and
//! every conversion is spelled out, so that a frame number cannot be passed
//! where a page number is meant.

use core::fmt;

use crate::{BASE_PAGE_BYTES, BASE_PAGE_SHIFT};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a raw number.
            #[inline]
            pub const fn new(raw: u64) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[inline]
            pub const fn raw(self) -> u64 {
                self.0
            }

            /// This plus `count`, or `None` on overflow.
            #[inline]
            pub const fn checked_add(self, count: u64) -> Option<Self> {
                match self.0.checked_add(count) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// Whether this is a multiple of `2^log2`. Any `log2` of 64 or
            /// more is met by zero alone.
            #[inline]
            pub const fn is_aligned(self, log2: u32) -> bool {
                self.0.trailing_zeros() >= log2 || self.0 == 0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:#x}"), self.0)
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

impl PhysAddr {
    /// The frame that holds this byte.
    #[inline]
    pub const fn frame(self) -> Pfn {
        Pfn(self.0 >> BASE_PAGE_SHIFT)
    }
}

impl VirtAddr {
    /// The page that holds this byte.
    #[inline]
    pub const fn page(self) -> Vpn {
        Vpn(self.0 >> BASE_PAGE_SHIFT)
    }

    /// The byte's position within its base page.
    #[inline]
    pub const fn page_offset(self) -> u64 {
        self.0 & (BASE_PAGE_BYTES - 1)
    }
}

impl Pfn {
    /// The address of the frame's first byte. The caller keeps frame numbers
    /// below 2^52; higher bits are lost.
    #[inline]
    pub const fn addr(self) -> PhysAddr {
        PhysAddr(self.0 << BASE_PAGE_SHIFT)
    }
}

impl Vpn {
    /// The address of the page's first byte. The caller keeps page numbers
    /// below 2^52; higher bits are lost.
    #[inline]
    pub const fn addr(self) -> VirtAddr {
        VirtAddr(self.0 << BASE_PAGE_SHIFT)
    }
}

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

    /// The order `k`, or `None` beyond [`Order::MAX`].
    #[inline]
    pub const fn new(k: u8) -> Option<Self> {
        if k <= Self::MAX.0 { Some(Self(k)) } else { None }
    }

    /// The order `k` where it is known to be valid, as in constants.
    ///
    /// # Panics
    /// If `k` is beyond [`Order::MAX`]; at compile time in a constant.
    pub const fn known(k: u8) -> Self {
        match Self::new(k) {
            Some(order) => order,
            None => panic!("order beyond Order::MAX"),
        }
    }

    /// The exponent k.
    #[inline]
    pub const fn k(self) -> u32 {
        self.0 as u32
    }

    /// 2^k.
    #[inline]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// The size of 2^k base pages in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        BASE_PAGE_BYTES << self.0
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

macro_rules! range {
    ($(#[$doc:meta])* $name:ident of $unit:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name {
            /// The first number in the range.
            pub start: $unit,
            /// How many numbers the range holds.
            pub count: u64,
        }

        impl $name {
            /// The range of `count` numbers from `start` on.
            #[inline]
            pub const fn new(start: $unit, count: u64) -> Self {
                Self { start, count }
            }

            /// One past the last number, or `None` on overflow.
            #[inline]
            pub const fn checked_end(self) -> Option<$unit> {
                self.start.checked_add(self.count)
            }

            /// One past the last number; saturates on overflow, which a range
            /// handed out by this project never has.
            #[inline]
            pub const fn end(self) -> $unit {
                $unit(self.start.0.saturating_add(self.count))
            }

            /// Whether the range holds nothing.
            #[inline]
            pub const fn is_empty(self) -> bool {
                self.count == 0
            }

            /// Whether `number` lies in the range.
            #[inline]
            pub const fn contains(self, number: $unit) -> bool {
                number.0.wrapping_sub(self.start.0) < self.count
            }

            /// Whether the two ranges share a number.
            #[inline]
            pub const fn overlaps(self, other: Self) -> bool {
                !self.is_empty()
                    && !other.is_empty()
                    && self.start.0 < other.end().0
                    && other.start.0 < self.end().0
            }

            /// Every number in the range, ascending.
            #[inline]
            pub fn iter(self) -> impl DoubleEndedIterator<Item = $unit> + Clone {
                (self.start.0..self.end().0).map($unit)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}+{}", self.start, self.count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}+{}", self.start, self.count)
            }
        }
    };
}

range! {
    /// Frames that follow one another: any length, any alignment.
    Extent of Pfn
}
range! {
    /// Pages that follow one another: any length, any alignment.
    PageRange of Vpn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_explicit_and_exact() {
        let addr = VirtAddr::new(0x1234_5678);
        assert_eq!(addr.page(), Vpn::new(0x12345));
        assert_eq!(addr.page_offset(), 0x678);
        assert_eq!(Vpn::new(0x12345).addr(), VirtAddr::new(0x1234_5000));
        assert_eq!(PhysAddr::new(0xffff).frame().addr(), PhysAddr::new(0xf000));
    }

    #[test]
    fn ranges_at_the_edges() {
        let e = Extent::new(Pfn::new(4), 3);
        assert!(!e.contains(Pfn::new(3)));
        assert!(e.contains(Pfn::new(4)) && e.contains(Pfn::new(6)));
        assert!(!e.contains(Pfn::new(7)));
        assert!(e.overlaps(Extent::new(Pfn::new(6), 1)));
        assert!(!e.overlaps(Extent::new(Pfn::new(7), 1)));
        assert!(!e.overlaps(Extent::new(Pfn::new(5), 0)));
        assert_eq!(Extent::new(Pfn::new(u64::MAX), 2).checked_end(), None);
        assert_eq!(e.iter().map(Pfn::raw).sum::<u64>(), 15);
    }

    #[test]
    fn alignment() {
        assert!(Pfn::new(0).is_aligned(63));
        assert!(Pfn::new(16).is_aligned(4));
        assert!(!Pfn::new(16).is_aligned(5));
        assert_eq!(Order::new(52), None);
        assert_eq!(Order::known(9).len_bytes(), 2 << 20);
    }
}

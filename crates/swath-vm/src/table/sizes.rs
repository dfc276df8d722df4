//! Sets of superpage sizes.

use swath_arch::{Format, Order};

/// A set of superpage sizes, as orders: which are on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sizes(u64);

impl Sizes {
    /// None: superpages off.
    pub const NONE: Self = Self(0);

    /// Returns every superpage size of the format: the default, as Bodek's outlook
    /// wants it. ARMv7: 64 KiB, 1 MiB, 16 MiB. ARMv8: 64 KiB, 2 MiB, 32 MiB,
    /// 1 GiB. x86-64: 2 MiB, 1 GiB. RISC-V: 64 KiB, 2 MiB, 1 GiB.
    pub const fn all(format: Format) -> Self {
        match format {
            Format::ArmV7 => Self(1 << 4 | 1 << 8 | 1 << 12),
            Format::ArmV8 => Self(1 << 4 | 1 << 9 | 1 << 13 | 1 << 18),
            Format::X86_64 => Self(1 << 9 | 1 << 18),
            Format::Sv39 | Format::Sv48 => Self(1 << 4 | 1 << 9 | 1 << 18),
        }
    }

    /// Returns these sizes and `order`.
    #[must_use]
    pub const fn with(self, order: Order) -> Self {
        Self(self.0 | 1 << order.k())
    }

    /// Returns these sizes without `order`.
    #[must_use]
    pub const fn without(self, order: Order) -> Self {
        Self(self.0 & !(1 << order.k()))
    }

    /// Returns true if `order` is among them.
    pub const fn contains(self, order: Order) -> bool {
        self.0 >> order.k() & 1 == 1
    }

    /// Returns true if all of `others` are among them.
    pub const fn contains_all(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }

    /// Returns the orders, ascending. A few steps for each that is there.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Order> + Clone {
        Orders(self.0)
    }
}

/// The orders that are still to come.
#[derive(Clone)]
struct Orders(u64);

impl Iterator for Orders {
    type Item = Order;

    #[inline]
    fn next(&mut self) -> Option<Order> {
        let order = Order::new(self.0.trailing_zeros() as u8)?;
        self.0 &= self.0 - 1;
        Some(order)
    }
}

impl DoubleEndedIterator for Orders {
    #[inline]
    fn next_back(&mut self) -> Option<Order> {
        let k = self.0.checked_ilog2()?;
        self.0 &= !(1 << k);
        Order::new(k as u8)
    }
}

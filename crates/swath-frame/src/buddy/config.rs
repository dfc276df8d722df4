//! The orders of a page buddy allocator that have a list.

use swath_arch::Order;

/// The most classes that an allocator can have.
pub const CLASSES_MAX: usize = 32;

/// The orders that have a list: 0, G, 2G, … up to a top order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BuddyConfig {
    pub(crate) granularity: u32,
    /// The top class.
    pub(crate) last: usize,
}

impl BuddyConfig {
    /// The binary buddy system as the paper measures it: MAX_ORDER 9, which
    /// is orders 0 to 8.
    pub const BBS: Self = Self { granularity: 1, last: 8 };
    /// PBS for ARMv7: orders 0, 4, 8 (4 KiB, 64 KiB, 1 MiB).
    pub const PBS_ARMV7: Self = Self { granularity: 4, last: 2 };
    /// PBS for ARMv8 with 4 KiB granule and for x86-64: orders 0, 9, 18
    /// (4 KiB, 2 MiB, 1 GiB).
    pub const PBS_ARMV8: Self = Self { granularity: 9, last: 2 };

    /// Lists for the orders 0, `granularity`, 2·`granularity`, … as far as
    /// they do not exceed `top`. Granularity 1 makes a binary buddy system
    /// with MAX_ORDER = `top` + 1.
    ///
    /// # Errors
    /// [`BuddyConfigError`] if `granularity` is 0 or beyond [`Order::MAX`], or if
    /// there would be more than [`CLASSES_MAX`] classes.
    pub const fn new(granularity: u32, top: Order) -> Result<Self, BuddyConfigError> {
        if granularity == 0 || granularity > Order::MAX.k() {
            return Err(BuddyConfigError::Granularity { granularity });
        }
        let last = (top.k() / granularity) as usize;
        if last >= CLASSES_MAX {
            return Err(BuddyConfigError::TooManyClasses { classes: last + 1 });
        }
        Ok(Self { granularity, last })
    }

    /// G, the distance between orders that have a list.
    pub const fn granularity(self) -> u32 {
        self.granularity
    }

    /// Returns the number of orders that have a list.
    pub const fn classes(self) -> usize {
        self.last + 1
    }

    /// The largest order that has a list.
    pub const fn top(self) -> Order {
        Order::known((self.last as u32 * self.granularity) as u8)
    }

    /// The most units that a node of class `i` holds.
    pub(crate) const fn node_max(self, i: usize) -> u64 {
        if self.granularity == 1 {
            1
        } else if i == self.last {
            u64::MAX
        } else {
            (1 << self.granularity) - 1
        }
    }
}

/// Reasons why orders cannot have lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuddyConfigError {
    /// The granularity is 0 or beyond [`Order::MAX`].
    #[error("granularity {granularity} is not from 1 to {}", Order::MAX)]
    Granularity {
        /// The granularity.
        granularity: u32,
    },
    /// The orders are more than [`CLASSES_MAX`].
    #[error("{classes} orders would need a list, {CLASSES_MAX} can have one")]
    TooManyClasses {
        /// The number that there would be.
        classes: usize,
    },
}

//! The orders that a reservation may have, and those below them that are worth
//! a test.

use swath_arch::{Format, Order};

/// The most reservation levels, and the most sub-levels.
pub const LEVELS_MAX: usize = 4;

/// The orders of superpages that frames are reserved for, ascending, and the
/// sub-levels below the lowest of them.
///
/// Nothing is ever reserved at a **sub-level** (64 KiB by sixteen entries):
/// whether its frames are all populated is read off the bit map of the
/// reservation around it, which is one word up to order 6.
///
/// Invariants: at least one level; orders ascend strictly through sub-levels
/// and levels; no order is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReservationLevels {
    levels: [Order; LEVELS_MAX],
    level_count: usize,
    sublevels: [Order; LEVELS_MAX],
    sublevel_count: usize,
}

impl ReservationLevels {
    /// ARMv7 as in the talk: 1 MiB sections of 256 base pages; large pages of
    /// 64 KiB as the sub-level.
    pub const ARMV7: Self = Self::known(&[8], &[4]);
    /// ARMv7 with supersections of 16 MiB as a second level.
    pub const ARMV7_SUPERSECTIONS: Self = Self::known(&[8, 12], &[4]);
    /// ARMv8 with 4 KiB granule: 2 MiB blocks; 64 KiB by the contiguous bit as
    /// the sub-level.
    pub const ARMV8: Self = Self::known(&[9], &[4]);
    /// ARMv8 with blocks of 1 GiB as a second level.
    pub const ARMV8_GIGABYTES: Self = Self::known(&[9, 18], &[4]);
    /// RISC-V: 2 MiB; 64 KiB by Svnapot as the sub-level.
    pub const RISCV: Self = Self::known(&[9], &[4]);
    /// x86-64: 2 MiB.
    pub const X86_64: Self = Self::known(&[9], &[]);
    /// x86-64 with 1 GiB as a second level.
    pub const X86_64_GIGABYTES: Self = Self::known(&[9, 18], &[]);

    /// The orders of `levels`, and of `sublevels` below them, both ascending.
    ///
    /// # Errors
    /// A [`ReservationLevelsError`] that names the order at fault.
    pub const fn new(
        levels: &[Order],
        sublevels: &[Order],
    ) -> Result<Self, ReservationLevelsError> {
        if levels.is_empty() {
            return Err(ReservationLevelsError::None);
        }
        if levels.len() > LEVELS_MAX {
            return Err(ReservationLevelsError::TooMany { orders: levels.len() });
        }
        if sublevels.len() > LEVELS_MAX {
            return Err(ReservationLevelsError::TooMany { orders: sublevels.len() });
        }
        let mut this = Self {
            levels: [Order::BASE; LEVELS_MAX],
            level_count: levels.len(),
            sublevels: [Order::BASE; LEVELS_MAX],
            sublevel_count: sublevels.len(),
        };
        let mut below = Order::BASE;
        let mut at = 0;
        while at < sublevels.len() + levels.len() {
            let is_sublevel = at < sublevels.len();
            let order = if is_sublevel { sublevels[at] } else { levels[at - sublevels.len()] };
            if order.k() <= below.k() {
                return Err(ReservationLevelsError::NotAscending { order, below });
            }
            if is_sublevel {
                this.sublevels[at] = order;
            } else {
                this.levels[at - sublevels.len()] = order;
            }
            below = order;
            at += 1;
        }
        Ok(this)
    }

    const fn known(levels: &[u8], sublevels: &[u8]) -> Self {
        const fn orders(ks: &[u8]) -> [Order; LEVELS_MAX] {
            let mut orders = [Order::BASE; LEVELS_MAX];
            let mut at = 0;
            while at < ks.len() {
                orders[at] = Order::known(ks[at]);
                at += 1;
            }
            orders
        }
        let level_orders = orders(levels);
        let sublevel_orders = orders(sublevels);
        match Self::new(
            level_orders.split_at(levels.len()).0,
            sublevel_orders.split_at(sublevels.len()).0,
        ) {
            Ok(this) => this,
            Err(_) => panic!("levels that do not ascend"),
        }
    }

    /// The usual levels of `format`: one level, that of the smallest
    /// superpage that a single descriptor maps.
    pub const fn usual(format: Format) -> Self {
        match format {
            Format::ArmV7 => Self::ARMV7,
            Format::ArmV8 => Self::ARMV8,
            Format::X86_64 => Self::X86_64,
            Format::Sv39 | Format::Sv48 => Self::RISCV,
        }
    }

    /// The reservation levels, ascending.
    pub fn orders(&self) -> &[Order] {
        &self.levels[..self.level_count]
    }

    /// The orders below them that are tested only, ascending.
    pub fn suborders(&self) -> &[Order] {
        &self.sublevels[..self.sublevel_count]
    }

    /// The order of the largest level.
    pub const fn top(&self) -> Order {
        self.levels[self.level_count - 1]
    }

    /// The order of the smallest level.
    pub const fn lowest(&self) -> Order {
        self.levels[0]
    }
}

/// Reasons why orders do not make reservation levels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReservationLevelsError {
    /// There is no level.
    #[error("no reservation level")]
    None,
    /// More than [`LEVELS_MAX`] levels or sub-levels.
    #[error("{orders} levels or sub-levels, more than {LEVELS_MAX}")]
    TooMany {
        /// Number given.
        orders: usize,
    },
    /// An order is not above the one before it; the first is to be above 0,
    /// and the first level above the last sub-level.
    #[error("order {order} does not stand above order {below}")]
    NotAscending {
        /// The order.
        order: Order,
        /// The order that it has to be above.
        below: Order,
    },
}

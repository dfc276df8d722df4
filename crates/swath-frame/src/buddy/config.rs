//! Which orders of a page buddy allocator have a list.

use core::fmt;

use swath_arch::Order;

/// The most classes that an allocator can have.
pub const CLASSES_MAX: usize = 32;

/// Which orders have a list: 0, G, 2G, … up to a top order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Config {
    pub(crate) granularity: u32,
    /// The top class.
    pub(crate) last: usize,
}

impl Config {
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
    /// [`ConfigError`] if `granularity` is 0 or beyond [`Order::MAX`], or if
    /// there would be more than [`CLASSES_MAX`] classes.
    pub const fn new(granularity: u32, top: Order) -> Result<Self, ConfigError> {
        if granularity == 0 || granularity > Order::MAX.k() {
            return Err(ConfigError::Granularity { granularity });
        }
        let last = (top.k() / granularity) as usize;
        if last >= CLASSES_MAX {
            return Err(ConfigError::TooManyClasses { classes: last + 1 });
        }
        Ok(Self { granularity, last })
    }

    /// G, the distance between orders that have a list.
    pub const fn granularity(self) -> u32 {
        self.granularity
    }

    /// How many orders have a list.
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

/// Why orders cannot be laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The granularity is 0 or beyond [`Order::MAX`].
    Granularity {
        /// The granularity.
        granularity: u32,
    },
    /// The orders are more than [`CLASSES_MAX`].
    TooManyClasses {
        /// How many there would be.
        classes: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granularity { granularity } => {
                write!(f, "granularity {granularity} is not from 1 to {}", Order::MAX)
            }
            Self::TooManyClasses { classes } => {
                write!(f, "{classes} orders would need a list, {CLASSES_MAX} can have one")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// Why an allocator cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// The storage is too small.
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// The rule cannot tell so many frames apart.
    Span {
        /// Frames from the first to the last of the map.
        frames: u64,
    },
    /// The allocator behind has other frames than the map.
    OtherMap,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Storage { needed_words, given_words } => {
                write!(f, "{needed_words} words of storage needed, {given_words} given")
            }
            Self::Span { frames } => {
                write!(f, "a span of {frames} frames is too long for the rule")
            }
            Self::OtherMap => write!(f, "the allocator has other frames than the map"),
        }
    }
}

impl core::error::Error for BuildError {}

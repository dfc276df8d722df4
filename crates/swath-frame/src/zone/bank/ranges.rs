//! The division of a zone's frames into banks: the ranges of memory whose power
//! can be managed one by one.
//!
//! Banks are of one size and stand side by side from a first border on. The
//! zone decides which of them it sees: its first and last bank may be partial,
//! banks may have holes or be one hole altogether. Where memory is interleaved
//! two-way, two banks can only rest together, so they count as one of twice
//! the size ([`Layout`](crate::layout::Layout) counts them so).
//!
//! ```text
//!  border       +0              +1              +2              +3
//!               |---------------|---------------|---------------|
//!  zone             [###########|######....#####|####)
//!                    bank 0      bank 1: a hole  bank 2
//! ```

use swath_arch::{Extent, Order, Pfn};

/// The largest order of a block that a bank's free memory is kept in.
pub const BLOCK_ORDER_MAX: u32 = 24;

/// The most frames of a bank: 64 GiB.
pub const BANK_FRAMES_MAX: u64 = 1 << BLOCK_ORDER_MAX;

/// The most banks of a zone.
pub const BANKS_MAX: u64 = 1 << 18;

/// The place and size of banks, and the largest free block within.
///
/// Invariants: `frames` is from 1 to [`BANK_FRAMES_MAX`]; it and `first` are
/// multiples of 2^`top`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BankLayout {
    pub(crate) first: Pfn,
    pub(crate) frames: u64,
    pub(crate) top: Order,
}

impl BankLayout {
    /// Banks of 256 MiB from frame 0 on, with blocks up to 4 MiB (the paper's
    /// section IV and Linux's MAX_ORDER 11).
    pub const PAPER: Self = Self { first: Pfn::new(0), frames: 1 << 16, top: Order::known(10) };

    /// Banks of `frames` frames each from frame `first` on, whose free memory
    /// is kept in blocks of the orders up to `top`.
    ///
    /// # Errors
    /// [`BankLayoutError::Frames`], [`BankLayoutError::Order`] or
    /// [`BankLayoutError::Misaligned`].
    ///
    /// # Examples
    /// ```
    /// use swath_arch::{Order, Pfn};
    /// use swath_frame::zone::bank::{BankLayout, BankLayoutError};
    ///
    /// // Two banks of 256 MiB that are interleaved rest together.
    /// let pairs = BankLayout::new(Pfn::new(0), 2 << 16, Order::known(10)).unwrap();
    /// assert_eq!(pairs.frames(), 131_072);
    /// // A bank of 3 GiB is possible, one of a frame more is not.
    /// assert!(BankLayout::new(Pfn::new(0), 3 << 18, Order::known(18)).is_ok());
    /// let odd = BankLayout::new(Pfn::new(0), (3 << 18) + 1, Order::known(18));
    /// assert!(matches!(odd, Err(BankLayoutError::Misaligned { .. })));
    /// ```
    pub const fn new(first: Pfn, frames: u64, top: Order) -> Result<Self, BankLayoutError> {
        if frames == 0 || frames > BANK_FRAMES_MAX {
            return Err(BankLayoutError::Frames { frames });
        }
        if top.k() > BLOCK_ORDER_MAX {
            return Err(BankLayoutError::Order { top });
        }
        if (first.raw() | frames) & (top.frames() - 1) != 0 {
            return Err(BankLayoutError::Misaligned { first, frames, top });
        }
        Ok(Self { first, frames, top })
    }

    /// The first border.
    pub const fn first(self) -> Pfn {
        self.first
    }

    /// Frames of a bank.
    pub const fn frames(self) -> u64 {
        self.frames
    }

    /// The largest order of a block.
    pub const fn top(self) -> Order {
        self.top
    }
}

/// Reasons why there cannot be such banks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BankLayoutError {
    /// A bank's size is 0 or beyond [`BANK_FRAMES_MAX`].
    #[error("{frames} frames are not from 1 to {BANK_FRAMES_MAX}")]
    Frames {
        /// The size.
        frames: u64,
    },
    /// The largest order of a block is beyond [`BLOCK_ORDER_MAX`].
    #[error("order {top} is beyond {BLOCK_ORDER_MAX}")]
    Order {
        /// The order.
        top: Order,
    },
    /// The first border or the size is not a multiple of the largest block.
    #[error("banks of {frames} frames from {first} on do not fit order {top}")]
    Misaligned {
        /// The first border.
        first: Pfn,
        /// The size.
        frames: u64,
        /// The order of the largest block.
        top: Order,
    },
    /// The zone has no frames.
    #[error("zone {zone} has no frames")]
    NoFrame {
        /// The zone.
        zone: Extent,
    },
    /// The zone begins below the first border.
    #[error("frame {frame} is below the first bank")]
    Below {
        /// The zone's first frame.
        frame: Pfn,
    },
    /// The zone would have more than [`BANKS_MAX`] banks.
    #[error("{banks} banks are more than {BANKS_MAX}")]
    Count {
        /// Number that it would have.
        banks: u64,
    },
    /// The storage is too small.
    #[error("{needed_words} words of storage needed, {given_words} given")]
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
}

/// The pool in which a bank's free memory counts: the pools of Adaptive-Buddy,
/// and the lists of the list-based bank-buddy by the same names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BankPool {
    /// POOL_KERNEL or LIST_KERNEL: unmovable and reclaimable memory.
    Kernel,
    /// POOL_USER or LIST_USER: movable memory.
    User,
    /// POOL_OFFLINE or LIST_FREE: banks that are wholly free.
    Offline,
}

/// The state of one bank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BankState {
    /// From its first border to its last, holes and other zones' frames included.
    pub extent: Extent,
    /// Frames of the zone.
    pub total_frames: u64,
    /// Those of them that are free.
    pub free_frames: u64,
    /// Its pool; `None` where banks have none (array-based), or without frames.
    pub pool: Option<BankPool>,
    /// True if it is isolated.
    pub isolated: bool,
    /// True if frames of another zone lie in it, too. Such a bank stays in the
    /// allocation pools and is never offline (section IV-D).
    pub crosses: bool,
}

impl BankState {
    /// Frames that are in use.
    pub const fn allocated_frames(&self) -> u64 {
        self.total_frames - self.free_frames
    }
}

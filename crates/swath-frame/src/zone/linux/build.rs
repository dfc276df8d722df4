//! The orders that a Linux zone has, and the errors of building one.

use swath_arch::{Extent, Order};

/// The largest order of Linux's free lists (`MAX_PAGE_ORDER`).
pub const ORDER_MAX: Order = Order::known(10);

/// The pageblock order with 2 MiB huge pages: 9.
pub const PAGEBLOCK_ORDER: Order = Order::known(9);

/// Reasons why a zone cannot be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinuxBuildError {
    /// The storage is too small.
    #[error("{needed_words} words of storage needed, {given_words} given")]
    Storage {
        /// Words that are needed.
        needed_words: usize,
        /// Words that were given.
        given_words: usize,
    },
    /// The zone has more frames than 32 bits can number.
    #[error("zone {span} is too long")]
    Span {
        /// The zone.
        span: Extent,
    },
    /// The pageblock order is not from 3 to [`ORDER_MAX`].
    #[error("pageblocks of order {order}, which is not from 3 to {ORDER_MAX}")]
    Pageblock {
        /// The order.
        order: Order,
    },
    /// No frame of the map lies in the zone.
    #[error("zone {span} has no frame")]
    NoFrame {
        /// The zone.
        span: Extent,
    },
}

//! A reservation as callers see it, and the counters of what happened.

use core::ops::Range;

use swath_arch::{Extent, Order, Pfn};

/// The origin of a page's frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameSource {
    /// A reservation of this order was made for the range around the page.
    Reserved(Order),
    /// The range around the page had a reservation of this order.
    InReservation(Order),
    /// A frame by itself: no reservation was possible.
    Single,
}

/// The frame that a page was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Populated {
    /// The frame.
    pub frame: Pfn,
    /// The largest level or sub-level whose aligned range around the page is
    /// populated in full since this call: what can be promoted now. Never an
    /// order that was full before, since this page was missing.
    pub full: Option<Order>,
    /// The origin of the frame.
    pub source: FrameSource,
}

/// A reservation as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reservation {
    /// The object it belongs to.
    pub object: u64,
    /// The first of the object's pages that it covers, a multiple of
    /// 2^`order`.
    pub index: u64,
    /// The level.
    pub order: Order,
    /// The first of its 2^`order` frames, which page `index` has or would get.
    pub start: Pfn,
    /// Number of its frames that are populated: at least one.
    pub populated: u64,
}

impl Reservation {
    /// Its frames, populated or not.
    pub const fn frames(&self) -> Extent {
        Extent::new(self.start, self.order.frames())
    }

    /// The object's pages that it covers; the last of all 2^64 is left out.
    pub const fn pages(&self) -> Range<u64> {
        self.index..self.index.saturating_add(self.order.frames())
    }

    /// Returns true if all its frames are populated.
    pub const fn is_full(&self) -> bool {
        self.populated == self.order.frames()
    }
}

/// Counts of what happened since the reservations were built.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReservationCounters {
    /// Reservations made for a page.
    pub reserved: u64,
    /// Pages populated in a reservation, that of its first page included.
    pub populated: u64,
    /// Pages that got a frame without a reservation.
    pub single: u64,
    /// Superpages whose last frame was populated, at any level: also those
    /// within a reservation of a higher level.
    pub full: u64,
    /// Reservations broken up, for whatever reason.
    pub broken_up: u64,
    /// Those of them that were broken up under shortage.
    pub reclaimed: u64,
    /// Unpopulated frames that came free when reservations were broken up
    /// under shortage.
    pub reclaimed_frames: u64,
    /// Reservations that returned whole, after their last populated frame was
    /// freed.
    pub emptied: u64,
    /// Moves of a partially populated reservation to a queue's tail; joining
    /// a queue is none.
    pub moved: u64,
}

//! The masters: devices that read and write memory by themselves.
//!
//! A master issues its [`Transaction`]s in order, at most one a cycle and at
//! most so many in flight, and no faster than its [`Pace`] if it has one. They may complete in another order, as AXI lets
//! transactions of different identifiers do. A read of a [`SharedBuffer`](crate::system::SharedBuffer)
//! waits, and all behind it, until its line has been written: the display
//! reads what the camera wrote.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::clock::Cycle;
use crate::system::config::Pace;
use crate::system::iommu::Iommu;
use crate::system::shared::Line;
use crate::system::stats::MasterStats;
use crate::system::transaction::Transaction;
use crate::translate::translator::Translate;

/// The most transactions that a master may have in flight.
pub(crate) const OUTSTANDING_MAX: u32 = 4096;

/// A transaction in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) transaction: Transaction,
    pub(crate) number: u64,
    pub(crate) issued: Cycle,
}

/// Reasons why a master does not issue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// It does, in this cycle.
    Not(Cycle),
    /// As many transactions as allowed are in flight.
    Outstanding,
    /// A miss is under way, or one that cannot begin.
    Miss,
    /// The line has not been written, since this cycle.
    Line(Line, Cycle),
    /// Nothing is left.
    Ended,
}

/// A master with its IOMMU, under way.
///
/// Invariants: `free` lists the slots without a transaction in flight, and `in_flight` counts the
/// others; `next` is transaction `number` of the stream.
pub(crate) struct Master<T: Translate, I> {
    pub(crate) stream: I,
    pub(crate) next: Option<Transaction>,
    pub(crate) number: u64,
    pub(crate) blocked: Blocked,
    /// The cycle after that of the last issue.
    pub(crate) idle: Cycle,
    pub(crate) pace: Option<Pace>,
    /// Transactions that may be in flight: together, or reads and writes each.
    pub(crate) outstanding_max: u32,
    pub(crate) outstanding_each: bool,
    /// Reads and writes in flight.
    pub(crate) in_flight: [u32; 2],
    pub(crate) slots: Box<[InFlight]>,
    pub(crate) free: Vec<u16>,
    pub(crate) iommu: Iommu<T>,
    pub(crate) stats: MasterStats,
}

impl<T: Translate, I> Master<T, I> {
    /// Returns true if as many transactions are in flight as may be for another of this kind.
    #[inline]
    pub(crate) const fn is_full(&self, write: bool) -> bool {
        let [reads, writes] = self.in_flight;
        let counted = match (self.outstanding_each, write) {
            (false, _) => reads + writes,
            (true, false) => reads,
            (true, true) => writes,
        };
        counted >= self.outstanding_max
    }

    /// Lets the master issue in the cycle `now`, if it has not issued in it.
    #[inline]
    pub(crate) fn wake(&mut self, now: Cycle) {
        self.blocked = Blocked::Not(now.max(self.idle));
    }
}

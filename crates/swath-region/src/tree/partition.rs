//! The partition of a space's pages into intervals, as every tree provides it.

use swath_arch::Vpn;

/// Reasons why a tree refuses a split or a union.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TreeError {
    /// The page is not among the tree's.
    #[error("the page is not among the tree's")]
    OutOfRange,
    /// Split: the page is a start already.
    #[error("the page starts an interval already")]
    IsStart,
    /// Union: the page is no start.
    #[error("the page starts no interval")]
    NotStart,
    /// Union: page 0 starts the first interval, which has no neighbour below.
    #[error("page 0 always starts an interval")]
    First,
    /// Split: a sparse tree has no free node.
    #[error("no node of the tree is free")]
    OutOfNodes,
}

/// An error of a tree that is given too few words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{given} words for a tree that takes {needed}")]
pub struct TreeTooShort {
    /// Words needed.
    pub needed: usize,
    /// Words given.
    pub given: usize,
}

/// A partition of pages 0 to 2^K − 1 into intervals. Page 0 is always a start.
///
/// An error changes nothing.
pub trait RegionTree {
    /// Returns the number of pages, 2^K.
    fn pages(&self) -> u64;

    /// Makes `at` a start: its interval ends before it now.
    ///
    /// # Errors
    /// [`TreeError`] if it is one already or is out of range.
    fn split(&mut self, at: Vpn) -> Result<(), TreeError>;

    /// Makes `at` no start: its interval becomes part of the one below.
    ///
    /// # Errors
    /// [`TreeError`] if it is none, is page 0 or is out of range.
    fn union(&mut self, at: Vpn) -> Result<(), TreeError>;

    /// Returns the start of the interval that holds `page`, or `None` out of range.
    fn find(&self, page: Vpn) -> Option<Vpn>;

    /// Returns the first start above `page`, or `None` if there is none.
    fn next(&self, page: Vpn) -> Option<Vpn>;

    /// Returns true if the structure's own invariants hold. O(words).
    fn check(&self) -> bool;
}

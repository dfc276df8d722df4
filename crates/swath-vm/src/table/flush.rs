//! The TLB maintenance that changes of a table owe.

use swath_arch::PageRange;

/// The TLB maintenance that a change owes.
///
/// Until it is done, a TLB may go on using what is unmapped, and the frames
/// may have a new owner as soon as somebody takes them: do it before anyone
/// does.
#[must_use = "a TLB may still hold what was unmapped"]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flush {
    /// Every TLB entry that covers any of these pages is to be invalidated,
    /// also a coalesced one that was filled from a page outside.
    pub range: PageRange,
    /// Links to tables were taken away or put there: caches of table entries
    /// on the way to the range are to be invalidated too.
    pub links_changed: bool,
}

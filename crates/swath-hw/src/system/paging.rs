//! Pages that come when a master first touches them.

/// Demand paging in a [`System`](crate::system::System): what an operating system does when a walk
/// finds no page.
///
/// The IOMMU stalls the transaction as it would behind any miss. [`bring`](Self::bring) is called
/// in the cycle in which the page has come, so no other master sees it before, and the walk is then
/// made anew, from the root. Faults do not wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Paging<F> {
    /// Cycles from the walk that found no page until `bring` is called.
    pub fault_cycles: u32,
    /// Maps the page of a [`VirtAddr`](swath_arch::VirtAddr), which another fault may have brought meanwhile, and returns true;
    /// or returns false, and the fault ends the run. It does, too, if the walk made anew finds no page.
    pub bring: F,
}

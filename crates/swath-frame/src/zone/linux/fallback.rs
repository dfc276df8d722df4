//! Fallbacks: requests that the lists of their own mobility cannot serve.

use swath_arch::{Order, Pfn};

use crate::zone::allocator::Mobility;

/// In whose pageblocks a request looks when its own lists are empty.
pub const fn fallbacks(mobility: Mobility) -> [Mobility; 2] {
    match mobility {
        Mobility::Unmovable => [Mobility::Reclaimable, Mobility::Movable],
        Mobility::Movable => [Mobility::Reclaimable, Mobility::Unmovable],
        Mobility::Reclaimable => [Mobility::Unmovable, Mobility::Movable],
    }
}

/// A request that was served from another mobility's list: the kernel's event
/// `kmem:mm_page_alloc_extfrag`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fallback {
    /// The first frame that the request got.
    pub start: Pfn,
    /// The order asked for.
    pub order: Order,
    /// The order of the free block that was found.
    pub block_order: Order,
    /// The mobility asked for.
    pub wanted: Mobility,
    /// The mobility of the list in which the block was found.
    pub from: Mobility,
    /// True if the pageblock changed to the mobility asked for.
    pub claimed: bool,
}

/// An observer of fallbacks: `()` for none, or a closure.
pub trait Observe {
    /// Is called after each fallback.
    fn fallback(&mut self, event: &Fallback);
}

impl Observe for () {
    fn fallback(&mut self, _: &Fallback) {}
}

impl<F: FnMut(&Fallback)> Observe for F {
    fn fallback(&mut self, event: &Fallback) {
        self(event);
    }
}

//! Regions as callers see them.

use swath_arch::PageRange;

use crate::header::Rights;

/// A region: its pages and the rights to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its pages.
    pub pages: PageRange,
    /// The rights to them.
    pub rights: Rights,
}

/// A region that was unmapped. A TLB must invalidate its pages before they are mapped
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnmappedRegion {
    /// Its pages, now free.
    pub pages: PageRange,
    /// Frames that went back to the pool.
    pub frames: u32,
}

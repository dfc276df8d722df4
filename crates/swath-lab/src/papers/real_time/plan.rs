//! The parts that the plans of the studies on virtual memory with constant
//! bounds have in common.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::real_time::system::{PAGES, Size};
use crate::papers::real_time::workload::Synthetic;
use crate::study::bounds::{Bounded, Forms};
use crate::study::claim::Conditions;
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Refused, require};
use swath_arch::BASE_PAGE_BYTES;

/// Size of the two systems.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizePlan {
    /// Pages of the heap's pool.
    pub pool_pages: Forms<Bounded<16, PAGES>>,
    /// Frames of memory, at least one for each page of the pool.
    pub frames: Bounded<16, { 1 << 24 }>,
}

/// The most pages that the paper's heap has had (Table I, synthetic, conventional).
const PAPER_PAGES_MAX: u64 = 180_132;

impl SizePlan {
    /// The size of a system.
    pub const fn size(&self, quick: bool) -> Size {
        Size { pool_pages: self.pool_pages.of(quick).get(), frames: self.frames.get() }
    }

    /// Refuses a memory that a workload can exhaust before the pool's addresses: the paper has
    /// no such run, and whether one ends so depends on the seed.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let pages = self.pool_pages.full.max(self.pool_pages.quick).get();
        require(pages <= self.frames.get(), "size.frames", || {
            format!("{} are fewer than the pool's pages, {pages}", self.frames)
        })
    }

    /// The memory of a point of so many actions: tables and lists for each page and frame,
    /// and the pool, of which a fifth of the actions, allocations and releases, touch a page
    /// with a boundary tag.
    pub(crate) fn needs(&self, quick: bool, actions: u64) -> Needs {
        let (pages, key) = (self.pool_pages.of(quick).get(), "size.pool_pages");
        let touched = pages.min(actions / 5);
        Needs::small()
            .each(key, bytes(&[56, PAGES]).saturating_add(bytes(&[8, pages])))
            .each(key, bytes(&[BASE_PAGE_BYTES, touched]))
            .each("size.frames", bytes(&[8, self.frames.get()]))
            .reserved(key, bytes(&[BASE_PAGE_BYTES, pages + 1 - touched]))
    }

    /// The paper's machine (section IV-A5) as conditions of its claims. The space always has
    /// its 2^20 pages; the pool in it may be smaller as long as it holds the paper's heap.
    pub fn conditions(&self, quick: bool) -> Conditions {
        let pages = self.pool_pages.of(quick).get();
        Conditions::new().met(
            pages >= PAPER_PAGES_MAX,
            &format!("a pool of {pages} pages, fewer than the paper's heap has had"),
        )
    }
}

/// Bytes of an allocation.
pub type SizeBytes = Bounded<1, { 1 << 30 }>;

/// The synthetic workload (section V-A).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SyntheticPlan {
    /// Number of actions.
    pub actions: Forms<Bounded<1000, { 1 << 30 }>>,
    /// The largest size; all up to it have the same chance.
    pub size_bytes_max: SizeBytes,
}

impl SyntheticPlan {
    /// The workload of a repeat.
    pub const fn workload(&self, quick: bool, seed: u64, repeat: u64) -> Synthetic {
        let actions = self.actions.of(quick).get();
        Synthetic { actions, size_bytes_max: self.size_bytes_max.get(), seed, repeat }
    }

    /// The paper's workload as conditions: "about one million" actions. It gives
    /// no sizes.
    pub fn conditions(&self, conditions: Conditions, quick: bool) -> Conditions {
        conditions.same("actions", 1_000_000, self.actions.of(quick).get())
    }
}

/// The parameter of the workload that was chosen after the paper's figures were known.
pub const FITTED: &str = "synthetic.size_bytes_max: the power of two whose conventional footprint comes nearest to the \
     paper's, which gives no sizes";

//! The segment allocators that the studies compare.

use swath_arch::Order;
use swath_frame::segment::{
    AreaSpace, Baseline, FrameSupply, GlobalBitmap, HugePages, SegmentAllocator, SegmentRequest,
};

use crate::papers::clmalloc::areas::{AreasPlan, MIB_FRAMES};

/// Order of a huge page of 2 MiB.
const HUGE_PAGE: Order = Order::known(9);

/// A segment allocator of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Candidate {
    HugePages,
    Baseline,
    /// With frames of the areas' buddy systems.
    GlobalBitmap,
    /// The same with all frames taken at start: CLMalloc's.
    PreAllocated,
}

impl Candidate {
    pub(crate) const ALL: [Self; 4] =
        [Self::HugePages, Self::Baseline, Self::GlobalBitmap, Self::PreAllocated];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::HugePages => "Huge page",
            Self::Baseline => "Baseline",
            Self::GlobalBitmap => "Global bitmap",
            Self::PreAllocated => "CLMalloc",
        }
    }

    /// Calls `work` with the allocator of all memory of `machine`, in units of
    /// 2^`unit` frames unless they are huge pages.
    pub(crate) fn with<T>(
        self,
        machine: &AreasPlan,
        unit: Order,
        work: impl FnOnce(&mut dyn SegmentAllocator) -> T,
    ) -> Result<T, String> {
        let unit = if self == Self::HugePages { HUGE_PAGE } else { unit };
        machine.with_space(unit, |space| Ok(work(&mut *self.allocator(space)?)))?
    }

    /// The allocator of all units of `space`.
    pub(crate) fn allocator(
        self,
        space: AreaSpace<'_>,
    ) -> Result<Box<dyn SegmentAllocator + '_>, String> {
        let text = |error: swath_frame::BuildError| error.to_string();
        let bitmap = |frames| {
            let words = vec![0; GlobalBitmap::<Vec<u64>>::storage_words(&space)];
            GlobalBitmap::<_>::new(space, frames, words)
        };
        Ok(match self {
            Self::HugePages => {
                let words = vec![0; HugePages::<Vec<u64>>::storage_words(&space)];
                Box::new(HugePages::<_>::new(space, words).map_err(text)?)
            }
            Self::Baseline => {
                let words = vec![0; Baseline::<Vec<u64>>::storage_words(&space)];
                Box::new(Baseline::<_>::new(space, words).map_err(text)?)
            }
            Self::GlobalBitmap => Box::new(bitmap(FrameSupply::OnDemand).map_err(text)?),
            Self::PreAllocated => Box::new(bitmap(FrameSupply::PreAllocated).map_err(text)?),
        })
    }
}

/// Number of requests of `mib` MiB that are served one after the other, up to `most`.
pub(crate) fn serve(allocator: &mut dyn SegmentAllocator, mib: u64, most: u64) -> u64 {
    let request = SegmentRequest::new(mib * MIB_FRAMES);
    (0..most).take_while(|_| allocator.allocate(&request).is_ok()).count() as u64
}

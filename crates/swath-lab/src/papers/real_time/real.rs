//! The release of memory on the machine that runs the study beside that of a region: Linux
//! takes the pages back one by one, `unmap_region` all of them by a few words.

use std::hint::black_box;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
use swath_region::{DenseTree, FramePool, Quota, RegionSpace, Rights, dense_tree_words};

use crate::host::memory::{
    MEMORY, MemoryError, MemoryKind, MemoryPlan, RELEASED_MIB, RealMemory, measure,
};
use crate::papers::real_time::system::{PAGES, PAGES_LOG2};
use crate::papers::superpages::study::Superpages;
use crate::study::bounds::{Ascending, Bounded, Forms};
use crate::study::child::child_command;
use crate::study::grid::{CellView, Grid, Metrics, median, metrics};
use crate::study::kind::{Drawn, Study};
use crate::study::results::{Figure, FigureKind, Series};

const FIGURE: &str = "Release, real";
const UNMAP: &str = "unmap_region";
const TREE_WORDS: usize = dense_tree_words(PAGES_LOG2);
const MIB: u64 = 1 << 20;
/// A huge page.
const HUGE_MIB: u64 = 2;

/// Releases on the machine that runs the study.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RealReleases {
    /// Lengths in MiB.
    pub release_mib: Forms<Ascending<Bounded<1, 4096>>>,
    /// Processes of each kind of memory.
    pub repeats: Bounded<1, 100>,
}

/// The measurements of this machine.
#[derive(Serialize, Deserialize)]
pub(crate) struct Releases {
    memory: RealMemory,
    /// Metric `release_ns` of `unmap_region` by [`MEMORY`] and [`RELEASED_MIB`].
    ours: Grid,
    notes: Vec<String>,
}

impl Releases {
    /// Measures.
    ///
    /// # Errors
    /// The reason why nothing was measured, in words.
    pub(crate) fn measure(plan: &RealReleases, quick: bool) -> Result<Self, String> {
        let mut mib: Vec<u64> = plan.release_mib.of(quick).iter().map(|mib| mib.get()).collect();
        let repeats = plan.repeats.small();
        // Such a child is the other paper's: random updates, and releases.
        let child = |request: &str| child_command(Superpages::KIND, request);
        let of = |mib: &[u64]| {
            let memory_plan = MemoryPlan {
                table_bytes: HUGE_MIB * MIB,
                updates: 1,
                seed: 1,
                release_bytes: mib.iter().map(|mib| mib * MIB).collect(),
                repeats,
            };
            measure(&child, &memory_plan)
        };
        let mut notes = Vec::new();
        let measured = match of(&mib) {
            Err(MemoryError::TooLarge { available_bytes, .. }) => {
                let fits = |mib: u64| mib * MIB <= available_bytes / 2;
                let left_out: Vec<String> =
                    mib.iter().filter(|&&mib| !fits(mib)).map(u64::to_string).collect();
                notes.push(format!(
                    "Not measured, as they take more than half of the memory that is available \
                     ({} MiB): {} MiB.",
                    available_bytes / MIB,
                    left_out.join(", ")
                ));
                mib.retain(|&mib| fits(mib));
                of(&mib)
            }
            measured => measured,
        };
        let memory = measured.map_err(|error| error.to_string())?;
        notes.extend(memory.lacking());
        let mut ours = Grid::new(&[MEMORY, RELEASED_MIB], plan.repeats.size());
        for (mib, runs) in mib.iter().zip(unmap_ns(&mib, repeats)?) {
            let runs: Vec<Metrics> =
                runs.into_iter().map(|ns| metrics([("release_ns", ns)])).collect();
            ours.add(vec![UNMAP.into(), (*mib).into()], &runs);
        }
        Ok(Self { memory, ours, notes })
    }

    /// Remarks for the reader.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// The figure.
    pub(crate) fn drawn(&self) -> Drawn {
        let figure = Figure::new(
            FIGURE,
            "munmap of touched memory, and unmap_region",
            FigureKind::LinesLog2,
            "memory released (MiB)",
            "log10 of nanoseconds",
        )
        .with_caption(
            "All pages were touched. Means over processes, for unmap_region over medians of \
             several calls. A step of 1 is a factor of 10. What the kernel takes to enter and leave \
             is in munmap and not in unmap_region.",
        );
        let grid = self.memory.releases();
        let log = |cell: &CellView<'_>| Ok(cell.get("release_ns")?.max(1.0).log10());
        let line = |kind: MemoryKind| {
            // Less than a huge page has none.
            let least = if kind == MemoryKind::Base { 1 } else { HUGE_MIB };
            let points = grid.points(
                RELEASED_MIB,
                |all| {
                    all.is(MEMORY, kind.name()).some(RELEASED_MIB, "a page or more", |mib| {
                        mib.number().is_some_and(|mib| mib >= least as f64)
                    })
                },
                log,
            );
            let name = match kind {
                MemoryKind::Base => "munmap, 4 KiB pages",
                MemoryKind::Transparent => "munmap, transparent huge pages",
                MemoryKind::HugeTlb => "munmap, hugetlb 2 MiB",
            };
            Series::new(FIGURE, RELEASED_MIB, "log10_ns", name, points)
        };
        let mut series: Vec<Series> = MemoryKind::ALL.into_iter().map(line).collect();
        let points = self.ours.points(RELEASED_MIB, |all| all.is(MEMORY, UNMAP), log);
        series.push(Series::new(FIGURE, RELEASED_MIB, "log10_ns", UNMAP, points));
        Drawn { figure, series }
    }
}

/// Nanoseconds of `unmap_region` on regions of so many MiB with all pages mapped: for each length
/// as many medians of several calls as there are `repeats`.
fn unmap_ns(mib: &[u64], repeats: u32) -> Result<Vec<Vec<f64>>, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let first = ValidityTables::len_bytes(PAGES_LOG2).div_ceil(swath_arch::BASE_PAGE_BYTES);
    let mut words = vec![0_u64; (ValidityTables::len_bytes(PAGES_LOG2) / 8) as usize];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let tables = ValidityTables::consecutive(PAGES_LOG2, PhysAddr::new(0));
    let mut links = vec![0; PAGES as usize];
    let frames = Extent::new(Pfn::new(first), PAGES);
    let pool = FramePool::new(frames, &mut links).map_err(|error| text(&error))?;
    let tree_words: Result<Box<[u64; TREE_WORDS]>, _> =
        vec![0; TREE_WORDS].into_boxed_slice().try_into();
    let tree_words = tree_words.map_err(|_| "not as many words".to_owned())?;
    let tree = DenseTree::<PAGES_LOG2, TREE_WORDS, _>::new(tree_words);
    let headers = vec![0; 2 << PAGES_LOG2];
    let space = RegionSpace::new(&memory, tables, tree, headers, &pool, Quota::OPEN);
    let mut space = space.map_err(|error| text(&error))?;
    let mut all = Vec::new();
    for &mib in mib {
        let pages = mib * MIB / swath_arch::BASE_PAGE_BYTES;
        // About as many page faults for each length.
        let calls = (PAGES / pages / u64::from(repeats)).clamp(1, 33);
        let range = PageRange::new(Vpn::new(0), pages);
        let mut once = || -> Result<f64, String> {
            space.map_region(range, Rights::WRITE).map_err(|error| text(&error))?;
            for page in 0..pages {
                space.map_page(Vpn::new(page), Rights::WRITE).map_err(|error| text(&error))?;
            }
            let start = Instant::now();
            let unmapped = black_box(space.unmap_region(Vpn::new(0)));
            let ns = start.elapsed().as_nanos() as f64;
            let unmapped = unmapped.map_err(|error| text(&error))?;
            if u64::from(unmapped.frames) != pages {
                return Err(format!("{} of {pages} frames came back", unmapped.frames));
            }
            Ok(ns)
        };
        let mut run = || (0..calls).map(|_| once()).collect::<Result<Vec<f64>, String>>();
        let runs: Result<Vec<f64>, String> =
            (0..repeats).map(|_| run().map(|calls| median(&calls))).collect();
        all.push(runs?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_come_back() {
        let ns = unmap_ns(&[2, 8], 2).unwrap();
        assert!(ns.len() == 2 && ns.iter().flatten().all(|&ns| ns < 1e8), "{ns:?}");
    }
}

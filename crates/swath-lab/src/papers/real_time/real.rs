//! The release of memory on the machine that runs the study beside that of a region: Linux
//! takes the pages back one by one, `unmap_region` all of them by a few words.

use std::hint::black_box;
use std::time::Instant;

use swath_arch::{Extent, PageRange, Pfn, PhysAddr, SliceMemory, ValidityTables, Vpn};
use swath_region::{DenseTree, FramePool, Quota, RegionSpace, Rights, dense_tree_words};

use crate::host::memory::{MemoryError, MemoryKind, MemoryPlan, Runs, measure};
use crate::papers::real_time::plan::RealReleases;
use crate::papers::real_time::system::{PAGES, PAGES_LOG2};
use crate::study::results::{Figure, FigureKind, HostResult, Series};

const FIGURE: &str = "Release, real";
const TREE_WORDS: usize = dense_tree_words(PAGES_LOG2);
const MIB: u64 = 1 << 20;
/// A huge page.
const HUGE_MIB: u64 = 2;

/// Measures, and adds the figure.
///
/// # Errors
/// Why nothing was measured, in words.
pub(crate) fn add(plan: &RealReleases, quick: bool, host: &mut HostResult) -> Result<(), String> {
    let longest = if quick { plan.release_mib_quick } else { u64::MAX };
    let mut mib: Vec<u64> =
        plan.release_mib.iter().copied().filter(|&mib| mib <= longest).collect();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let measure = |mib: &[u64]| {
        let memory_plan = MemoryPlan {
            table_bytes: HUGE_MIB * MIB,
            updates: 1,
            seed: 1,
            release_bytes: mib.iter().map(|mib| mib * MIB).collect(),
            repeats: plan.repeats,
        };
        measure(&program, &["child", "measure-memory"], &memory_plan, &mut |_, _| {})
    };
    let measured = match measure(&mib) {
        Err(MemoryError::TooLarge { available_bytes, .. }) => {
            let fits = |mib: u64| mib * MIB <= available_bytes / 2;
            let left_out: Vec<String> =
                mib.iter().filter(|&&mib| !fits(mib)).map(u64::to_string).collect();
            host.notes.push(format!(
                "Not measured, as they take more than half of the memory that is available ({} \
                 MiB): {} MiB.",
                available_bytes / MIB,
                left_out.join(", ")
            ));
            mib.retain(|&mib| fits(mib));
            measure(&mib)
        }
        measured => measured,
    };
    let measured = measured.map_err(|error| error.to_string())?;
    host.figures.push(
        Figure::new(
            FIGURE,
            "munmap of touched memory, and unmap_region",
            FigureKind::LinesLog2,
            "memory released (MiB)",
            "log10 of nanoseconds",
        )
        .with_caption(
            "All pages were touched. Medians. A step of 1 is a factor of 10. What the \
             kernel takes to enter and leave is in munmap and not in unmap_region.",
        ),
    );
    let (x, y) = ("released_mib", "log10_ns");
    for kind in measured.kinds {
        let releases = match kind.outcome {
            Ok(outcome) => outcome.releases,
            Err(reason) => {
                host.notes.push(format!("Without {}: {reason}.", kind.kind.name()));
                continue;
            }
        };
        // Less than a huge page has none.
        let least = if kind.kind == MemoryKind::Base { 1 } else { HUGE_MIB };
        let points = releases.iter().filter(|release| release.len_bytes >= least * MIB);
        let points = points.filter_map(|release| {
            let mib = (release.len_bytes / MIB) as f64;
            Some((mib, release.release_ns.median()?.max(1.0).log10()))
        });
        let name = match kind.kind {
            MemoryKind::Base => "munmap, 4 KiB pages",
            MemoryKind::Transparent => "munmap, transparent huge pages",
            MemoryKind::HugeTlb => "munmap, hugetlb 2 MiB",
        };
        host.series.push(Series::new(FIGURE, x, y, name, points));
    }
    let ours = unmap_ns(&mib)?;
    let points = mib.iter().zip(ours).map(|(&mib, ns)| (mib as f64, ns.max(1.0).log10()));
    host.series.push(Series::new(FIGURE, x, y, "unmap_region", points));
    Ok(())
}

/// Nanoseconds of `unmap_region` on regions of so many MiB with all pages mapped: medians.
fn unmap_ns(mib: &[u64]) -> Result<Vec<f64>, String> {
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
        let mut runs = Runs::default();
        // About as many page faults for each length.
        for _ in 0..(PAGES / pages).clamp(3, 101) {
            let range = PageRange::new(Vpn::new(0), pages);
            space.map_region(range, Rights::WRITE).map_err(|error| text(&error))?;
            for page in 0..pages {
                space.map_page(Vpn::new(page), Rights::WRITE).map_err(|error| text(&error))?;
            }
            let start = Instant::now();
            let unmapped = black_box(space.unmap_region(Vpn::new(0)));
            runs.values.push(start.elapsed().as_nanos() as f64);
            let unmapped = unmapped.map_err(|error| text(&error))?;
            if u64::from(unmapped.frames) != pages {
                return Err(format!("{} of {pages} frames came back", unmapped.frames));
            }
        }
        all.push(runs.median().unwrap_or(0.0));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_come_back() {
        let ns = unmap_ns(&[2, 8]).unwrap();
        assert!(ns.len() == 2 && ns.iter().all(|&ns| ns < 1e8), "{ns:?}");
    }
}

//! The words that allocations and releases touch against their sizes (Fig. 5 and 6), their
//! bounds, and the cycles of accesses.

use std::collections::BTreeSet;

use swath_region::TAG_PAGES_MAX;

use serde::{Deserialize, Serialize};

use crate::papers::real_time::run::{Observed, Step, words_max};
use crate::papers::real_time::system::{PAGES, SystemName};
use crate::study::grid::{CellView, Grid, Metrics, Missing, View, metrics};
use crate::study::kind::Drawn;
use crate::study::results::{Figure, FigureKind, Point, Series};

/// Axis: the system.
pub(crate) const SYSTEM: &str = "system";

const ALLOCATIONS: &str = "Fig. 5";
const RELEASES: &str = "Fig. 6";
const RELEASES_REGIONS: &str = "Fig. 6a";
const WORST: &str = "Worst case, memory accesses";
const ACCESS: &str = "Access time";

pub(crate) const KIB: f64 = 1024.0;
/// Points of a scatter plot fall into so many columns and rows; of each cell one is drawn.
const COLUMNS: f64 = 400.0;
const ROWS: f64 = 200.0;

/// One point for each cell that has any, and each is one that was measured.
fn distinct(points: impl Iterator<Item = (f64, f64)> + Clone) -> Vec<(f64, f64)> {
    let most = |of: fn(&(f64, f64)) -> f64| points.clone().map(|p| of(&p)).fold(1.0, f64::max);
    let (x_max, y_max) = (most(|p| p.0), most(|p| p.1));
    let mut seen = BTreeSet::new();
    let cell = |(x, y): (f64, f64)| ((x / x_max * COLUMNS) as u32, (y / y_max * ROWS) as u32);
    points.filter(|&point| seen.insert(cell(point))).collect()
}

fn scatter(steps: &[Step]) -> Vec<(f64, f64)> {
    distinct(steps.iter().map(|step| (step.size_bytes as f64 / KIB, step.words as f64)))
}

/// The operations of a table of worst cases, as its rows, and the metrics of their longest in words.
pub(crate) const OPERATIONS: [(&str, &str); 4] = [
    ("allocation", "allocation_words"),
    ("release", "release_words"),
    ("page fault", "fault_words"),
    ("access", "access_words"),
];

/// The most words that each of [`OPERATIONS`] touches on regions, from the table of
/// `swath_region::space` for 2^20 pages: finding the region of a page takes 18, mapping one 27,
/// splitting 16, a fault 21, unmapping 39. An allocation maps a region and cuts two pages for tags
/// below and above each (find, two splits, fault); a release finds and unmaps five regions.
const REGIONS_BOUNDS: [u64; 4] =
    [27 + TAG_PAGES_MAX * (18 + 2 * 16 + 21), REGIONS_MAX * (18 + 39), 21, 5];

/// The same of the page table, where a page is looked at, mapped or unmapped by at most three
/// words; a release may unmap all of them.
const TABLE_BOUNDS: [u64; 4] = [TAG_PAGES_MAX * (1 + 3), 3 * PAGES, 3, 1];

/// The most regions that a release ends.
const REGIONS_MAX: u64 = 5;

/// The prefix of a column of bounds.
pub(crate) const BOUND: &str = "bound";

/// The numbers of a run.
pub(crate) fn numbers(observed: &Observed) -> Metrics {
    let middle = observed.releases.iter().map(|step| step.size_bytes).max().unwrap_or(0) / 2;
    let (large, small): (Vec<Step>, Vec<Step>) =
        observed.releases.iter().partition(|step| step.size_bytes > middle);
    let accesses = observed.bare.accesses.max(1) as f64;
    let with_tlb = observed.with_tlb.accesses.max(1) as f64;
    metrics([
        ("allocation_words", words_max(&observed.allocations) as f64),
        ("release_words", words_max(&observed.releases) as f64),
        ("large_release_words", words_max(&large) as f64),
        ("small_release_words", words_max(&small) as f64),
        ("fault_words", observed.fault_words_max as f64),
        ("access_words", observed.access_words_max as f64),
        ("access_cycles_mean", observed.bare.cycles as f64 / accesses),
        ("access_cycles_max", observed.bare.cycles_max as f64),
        ("tlb_cycles_mean", observed.with_tlb.cycles as f64 / with_tlb),
        ("tlb_cycles_max", observed.with_tlb.cycles_max as f64),
        ("allocations", observed.allocations.len() as f64),
        ("releases", observed.releases.len() as f64),
        ("failures", observed.failures as f64),
        ("ended_max", observed.ended_max as f64),
        ("forget_cycles_max", observed.forget_cycles.1 as f64),
    ])
}

/// Points of all metrics of a system, each in its category.
fn categories(grid: &Grid, system: SystemName, of: [(&str, &str); 4]) -> Vec<Point> {
    let points = of.into_iter().filter_map(|(category, metric)| {
        let select = |view: &View<'_>| view.select().is(SYSTEM, system.name()).one(metric);
        Some(grid.evidence(select).ok()?.point(category))
    });
    points.collect()
}

/// Ratio of two systems' metric.
pub(crate) fn ratio(
    view: &View<'_>,
    metric: &str,
    of: SystemName,
    to: SystemName,
) -> Result<f64, Missing> {
    let ratio =
        |to: &CellView<'_>, of: &CellView<'_>| Ok(of.get(metric)? / to.get(metric)?.max(1.0));
    let ratios = view.select().pairs(SYSTEM, to.name(), of.name(), ratio)?;
    let lacks = || Missing { axis: SYSTEM.to_owned(), lacks: of.name().to_owned() };
    ratios.first().copied().ok_or_else(lacks)
}

/// Words by size of a run's allocations and releases, as points of a figure.
#[derive(Serialize, Deserialize)]
pub(crate) struct Scatter {
    allocations: Vec<(f64, f64)>,
    releases: Vec<(f64, f64)>,
}

impl Scatter {
    pub(crate) fn of(observed: &Observed) -> Self {
        Self { allocations: scatter(&observed.allocations), releases: scatter(&observed.releases) }
    }
}

/// The figures of words and cycles; `drawn` is the first seed.
pub(crate) fn drawn(grid: &Grid, drawn: &[(SystemName, Scatter)]) -> Vec<Drawn> {
    let mut series: Vec<Vec<Series>> = vec![Vec::new(); 5];
    for (system, found) in drawn {
        let name = system.name();
        let line = |figure, points: &[(f64, f64)]| {
            Series::new(figure, "size_kib", "words", name, points.iter().copied())
        };
        series[0].push(line(ALLOCATIONS, &found.allocations));
        series[1].push(line(RELEASES, &found.releases));
        if *system == SystemName::Regions {
            series[2].push(line(RELEASES_REGIONS, &found.releases));
        }
    }
    for (system, bounds) in SystemName::ALL.into_iter().zip([REGIONS_BOUNDS, TABLE_BOUNDS]) {
        let name = system.name();
        let bounds = OPERATIONS.into_iter().zip(bounds);
        let bounds = bounds.map(|((operation, _), bound)| (operation, bound as f64));
        let column = format!("{BOUND}, {name}");
        series[3].push(Series::new(WORST, "operation", "words", &column, bounds));
        let measured = categories(grid, system, OPERATIONS);
        series[3].push(Series::new(WORST, "operation", "words", name, measured));
        let cycles = categories(grid, system, CYCLES);
        series[4].push(Series::new(ACCESS, "access", "cycles", name, cycles));
    }
    figures().into_iter().zip(series).map(|(figure, series)| Drawn { figure, series }).collect()
}

/// One of a run's two lists of points.
type PointsOf = fn(&Scatter) -> &[(f64, f64)];

/// Microseconds of a word, for numbers in the paper's unit: FFT's conventional release takes 94,305
/// of them (Table I), for the three words of each of its 6,263 pages.
///
/// The paper gives no clock; its times are nearly words times a constant. That one cell is taken for
/// the unit, and all others follow from it.
pub(crate) const WORD_US: f64 = 94_305.0 / (3.0 * 6_263.0);

/// Where [`WORD_US`] comes from, for the caption of a figure.
pub(crate) fn unit() -> String {
    format!(
        "The paper gives no clock: a word is taken for {WORD_US:.2} µs, at which 3 words for each of \
         the 6,263 pages that fft releases take the paper's 94,305 µs, and the others follow. No \
         claim is made from it."
    )
}

/// The points of Fig. 5 and 6 on the paper's axes, by [`WORD_US`]: a figure for each system, both of
/// one scale, as the paper has them; and the regions' releases, which lie on the axis there, on a
/// scale of their own.
pub(crate) fn drawn_in_microseconds(drawn: &[(SystemName, Scatter)]) -> Vec<Drawn> {
    let caption = format!("The first seed. {}", unit());
    let figure = |id: &str, title: &str, system: SystemName, points: PointsOf, scale: f64| {
        let found = drawn.iter().filter(|(name, _)| *name == system);
        let points = found.flat_map(|(_, found)| points(found)).map(|&(x, y)| (x, y * WORD_US));
        let series = Series::new(id, "size_kib", "microseconds", system.name(), points);
        let figure = Figure::new(id, title, FigureKind::Scatter, "size (KiB)", "µs");
        let figure = figure.with_caption(&caption).with_y_range(0.0, scale);
        Drawn { figure, series: vec![series] }
    };
    let allocations: PointsOf = |found| &found.allocations;
    let releases: PointsOf = |found| &found.releases;
    let scale = |points: PointsOf, kept: &[SystemName]| {
        let kept = drawn.iter().filter(|(system, _)| kept.contains(system));
        let most = kept.flat_map(|(_, found)| points(found)).map(|&(_, y)| y * WORD_US);
        round_up(most.fold(1.0, f64::max))
    };
    let [regions, conventional] = SystemName::ALL;
    let (all, alone) = (&SystemName::ALL[..], &[regions][..]);
    let (allocation, release) = ("time of each allocation", "time of each release");
    let of_release = scale(releases, all);
    let of_allocation = scale(allocations, all);
    vec![
        figure("Fig. 5a, microseconds", allocation, regions, allocations, of_allocation),
        figure("Fig. 5b, microseconds", allocation, conventional, allocations, of_allocation),
        figure("Fig. 6a, microseconds", release, regions, releases, of_release),
        figure("Fig. 6b, microseconds", release, conventional, releases, of_release),
        figure(
            "Fig. 6a, microseconds, own scale",
            release,
            regions,
            releases,
            scale(releases, alone),
        ),
    ]
}

/// The end of an axis for values up to `most`, which is positive: the next number of one digit.
pub(crate) fn round_up(most: f64) -> f64 {
    let digit = 10f64.powf(most.log10().floor());
    (most / digit).ceil() * digit
}

/// Categories of the access times, and their metrics.
const CYCLES: [(&str, &str); 4] = [
    ("mean without TLB", "access_cycles_mean"),
    ("worst without TLB", "access_cycles_max"),
    ("mean with TLB", "tlb_cycles_mean"),
    ("worst with TLB", "tlb_cycles_max"),
];

fn figures() -> [Figure; 5] {
    let (x, y) = ("size (KiB)", "words touched");
    let plot = |id, title| Figure::new(id, title, FigureKind::Scatter, x, y);
    [
        plot(ALLOCATIONS, "words touched by each allocation").with_caption(
            "The first seed. Bands as in the paper: lowest where nothing is mapped anew, above it where a region is \
             mapped, highest where a page is cut off for a tag and gets a frame. Points that fall \
             together are drawn once.",
        ),
        plot(RELEASES, "words touched by each release").with_caption(
            "The first seed. The conventional system touches nothing, unless the footprint shrinks: then all of \
             its pages up to the last block left. Points of the regions lie on the axis; the next \
             figure has them alone.",
        ),
        plot(RELEASES_REGIONS, "words touched by each release, regions alone").with_caption(
            "The first seed. Bands by how many regions end: the inside of the block, and up to two pages of tags \
             on either side.",
        ),
        Figure::new(WORST, "of each operation", FigureKind::Table, "operation", "words touched")
            .with_caption(
                "Bounds for 2^20 pages, for any alignment and history, beside the longest of the run. \
                 The page table's bound for a release is that of all its pages.",
            ),
        Figure::new(ACCESS, "of users' reads and writes", FigureKind::Bars, "", "cycles")
            .with_caption(
                "A page fault ends sooner and counts as an access of its own, so means are those of \
                 the workload. Simulated units; fast memories take 1 cycle, page table and data 2, as at the \
                 paper's double speed. TLB: 32 entries, fully associative, 1 cycle.",
            ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::real_time::run;
    use crate::papers::real_time::system::Size;
    use crate::papers::real_time::workload::Action;

    #[test]
    fn axes_end_at_one_digit() {
        for (most, end) in [(1.0, 1.0), (175_713.0, 200_000.0), (4323.0, 5000.0), (9.5, 10.0)] {
            assert!((round_up(most) / end - 1.0).abs() < 1e-9, "{most}: {}", round_up(most));
        }
    }

    #[test]
    fn points_that_fall_together_are_drawn_once() {
        let points = [(1.0, 5.0), (1.01, 5.0), (400.0, 5.0), (400.0, 1000.0)];
        assert_eq!(distinct(points.into_iter()), [points[0], points[2], points[3]]);
        assert_eq!(distinct(std::iter::empty()), []);
    }

    /// Blocks whose borders fall on each granule of a page, released between neighbours that
    /// are free, and allocations in the middle of what is free then.
    fn adversarial() -> Vec<Action> {
        let mut actions = Vec::new();
        let allocate = |id, size_bytes: u64, align_bytes, to: &mut Vec<Action>| {
            to.push(Action::Allocate { id, size_bytes, align_bytes });
            for offset in [0, size_bytes / 2, size_bytes - 1] {
                to.push(Action::Access { id, offset, write: true });
            }
        };
        for granule in 1..=256_u64 {
            // Each of these stays and moves all borders by two granules; one is of three.
            allocate(10 + granule as u32, if granule == 128 { 40 } else { 8 }, 16, &mut actions);
            for id in 1..4 {
                allocate(id, (1 + granule % 3 * 40) * 4096 - 8, 16, &mut actions);
            }
            allocate(4, 8, 16, &mut actions);
            actions.extend([1, 3, 2].map(|id| Action::Free { id }));
            for (id, align_bytes) in [(1, 64), (2, 4096), (3, 16 * 4096)] {
                allocate(id, 4096 * (granule % 2) + 8, align_bytes, &mut actions);
            }
            actions.extend([2, 4, 1, 3].map(|id| Action::Free { id }));
        }
        actions
    }

    #[test]
    fn no_bound_is_passed() {
        let size = Size { pool_pages: 1024, frames: 2048 };
        let run = |system| run::run(system, size, true, adversarial().into_iter()).unwrap();
        let [regions, conventional] = SystemName::ALL.map(run);
        assert_eq!(regions.failures + conventional.failures, 0);
        assert!(regions.ended_max > 2 && regions.ended_max <= REGIONS_MAX);
        for (observed, bounds) in [(regions, REGIONS_BOUNDS), (conventional, TABLE_BOUNDS)] {
            let numbers = numbers(&observed);
            for ((_, metric), bound) in OPERATIONS.into_iter().zip(bounds) {
                let measured = numbers.iter().find(|(name, _)| name == metric).unwrap().1;
                assert!(measured <= bound as f64, "{metric}: {measured} of {bound}");
            }
        }
    }
}

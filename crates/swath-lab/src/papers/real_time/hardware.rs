//! The paper's system in hardware (*Böhnert and Scholl 2014*, section V): Fig. 5 to 7 and the first row of Table I in
//! cycles of a core of which the RTL is in `rtl/system`.
//!
//! The times are a table that `cargo xtask rtl times` writes: a run of the synthetic trace, of a million
//! actions, for each system and seed. Nothing is simulated here.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::real_time::footprint::{FITTED_RUNS, PAPER_PAGES};
use crate::papers::real_time::runtimes::{PAPER_CONVENTIONAL, PAPER_RT};
use crate::papers::real_time::system::SystemName;
use crate::papers::real_time::words::{SYSTEM, ratio, round_up};
use crate::study::bounds::{Bounded, Forms};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, View, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::Needs;
use crate::study::plan::Head;
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// The table.
const TABLE: &str = include_str!("../../../data/system.csv");

/// The number of the table's seeds: the first whose footprint has the three arcs of Fig. 7b.
const SEEDS: u64 = 5;

/// The largest size of the trace, as in the other studies of this paper.
const SIZE_KIB_MAX: f64 = 4096.0;

/// Actions of the paper's trace: "about one million".
const PAPER_ACTIONS: u64 = 1_000_000;

/// A row: the calls of a kind whose size, or whose time, lies in a bin; cycles, or pages that are mapped.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    system: SystemName,
    seed: u64,
    actions: u64,
    fast: u64,
    table: u64,
    data: u64,
    kind: Kind,
    bin: u64,
    bins: u64,
    count: u64,
    min: u64,
    mean: f64,
    max: u64,
}

/// The kinds of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Allocation,
    Release,
    /// An access to a page that has a frame, and one to a page that gets one.
    Access,
    Fault,
    /// An allocation that found no room.
    Failure,
    /// Pages that have a frame, by the time.
    Mapped,
}

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let rows = csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize();
    rows.collect::<Result<_, _>>().expect("a test reads the table that comes with the program")
});

/// The table's seeds, in its order.
static TABLE_SEEDS: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let mut seeds: Vec<u64> = ROWS.iter().map(|row| row.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
});

/// The first `count` of the table's seeds.
fn first_seeds(count: u64) -> impl Iterator<Item = u64> + Clone {
    TABLE_SEEDS.iter().copied().take(usize::try_from(count).unwrap_or(usize::MAX))
}

/// The rows of a run.
fn rows(system: SystemName, seed: u64, kind: Kind) -> impl Iterator<Item = &'static Row> + Clone {
    ROWS.iter().filter(move |row| (row.system, row.seed, row.kind) == (system, seed, kind))
}

fn most<'a>(rows: impl Iterator<Item = &'a Row>) -> f64 {
    rows.map(|row| row.max).max().unwrap_or(0) as f64
}

fn mean<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> f64 {
    let sum: f64 = rows.clone().map(|row| row.mean * row.count as f64).sum();
    sum / rows.map(|row| row.count).sum::<u64>().max(1) as f64
}

/// The paper's system in hardware.
pub struct InHardware;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardwarePlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of the table's seeds, from the first on.
    pub repeats: Forms<Bounded<1, SEEDS>>,
}

crate::plan!(HardwarePlan);

/// The numbers of a run.
fn numbers(system: SystemName, seed: u64) -> Metrics {
    let of = |kind| rows(system, seed, kind);
    let (small, large): (Vec<&Row>, Vec<&Row>) =
        of(Kind::Release).partition(|row| row.bin < row.bins / 2);
    let count = |kind| of(kind).map(|row| row.count).sum::<u64>() as f64;
    metrics([
        ("allocation_max", most(of(Kind::Allocation))),
        ("allocation_mean", mean(of(Kind::Allocation))),
        ("release_max", most(of(Kind::Release))),
        ("release_mean", mean(of(Kind::Release))),
        ("small_release_max", most(small.into_iter())),
        ("large_release_max", most(large.into_iter())),
        ("access_max", most(of(Kind::Access))),
        ("access_min", of(Kind::Access).map(|row| row.min).min().unwrap_or(0) as f64),
        ("fault_max", most(of(Kind::Fault))),
        ("fault_mean", mean(of(Kind::Fault))),
        ("mapped_max", most(of(Kind::Mapped))),
        ("allocations", count(Kind::Allocation)),
        ("failures", count(Kind::Failure)),
    ])
}

impl Study for InHardware {
    const KIND: &'static str = "rt-hardware";
    type Plan = HardwarePlan;
    type Found = Grid;

    fn seeds(plan: &HardwarePlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(_: &HardwarePlan, _: &Run<'_>) -> Needs {
        Needs::small()
    }

    fn measure(plan: &HardwarePlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let seeds = Self::seeds(plan, run.quick);
        let mut grid = Grid::new(&[SYSTEM], usize::try_from(seeds).unwrap_or(usize::MAX));
        for system in SystemName::ALL {
            let runs: Vec<Metrics> = first_seeds(seeds).map(|seed| numbers(system, seed)).collect();
            grid.add(vec![system.name().into()], &runs);
        }
        Ok(grid)
    }

    fn claims(_: &HardwarePlan, _: &Run<'_>) -> Vec<Statement<Grid>> {
        claims()
    }

    fn show(plan: &HardwarePlan, run: &Run<'_>, grid: &Grid) -> Shown {
        let seeds = Self::seeds(plan, run.quick);
        let mut figures = by_size(seeds);
        figures.extend([over_time(), table_one(grid), accesses(grid)]);
        Shown { finding: finding(grid), figures, notes: notes(grid), host: None }
    }
}

/// The estimate of a system's metric over the seeds.
fn estimate(grid: &Grid, system: SystemName, metric: &'static str) -> f64 {
    let select = |view: &View<'_>| view.select().is(SYSTEM, system.name()).one(metric);
    grid.evidence(select).map_or(f64::NAN, |found| found.estimate().value)
}

/// Fig. 5 and 6: the longest and the shortest calls by their size, over all seeds; of Fig. 6 the regions' on a scale of
/// their own, too.
fn by_size(seeds: u64) -> Vec<Drawn> {
    let [regions, conventional] = SystemName::ALL;
    let line = |id: &str, system: SystemName, kind: Kind, longest: bool| {
        let mut bins: Vec<(f64, f64)> = Vec::new();
        for row in first_seeds(seeds).flat_map(|seed| rows(system, seed, kind)) {
            if row.count == 0 {
                continue;
            }
            let size = (row.bin + 1) as f64 * SIZE_KIB_MAX / row.bins as f64;
            let cycles = if longest { row.max } else { row.min } as f64;
            match bins.iter_mut().find(|(at, _)| *at == size) {
                Some((_, most)) if longest => *most = most.max(cycles),
                Some((_, least)) => *least = least.min(cycles),
                None => bins.push((size, cycles)),
            }
        }
        bins.sort_by(|a, b| a.0.total_cmp(&b.0));
        let name = format!("{}, {}", system.name(), if longest { "longest" } else { "shortest" });
        Series::new(id, "size_kib_max", "cycles", &name, bins)
    };
    let drawn = |id: &str, title: &str, kind: Kind, systems: &[SystemName]| {
        let series: Vec<Series> = systems
            .iter()
            .flat_map(|&system| [true, false].map(|longest| line(id, system, kind, longest)))
            .collect();
        let points = series.iter().flat_map(|one| &one.points).map(|point| point.y);
        let figure = Figure::new(id, title, FigureKind::Lines, "size (KiB)", "cycles")
            .with_y_range(0.0, round_up(points.fold(1.0, f64::max)))
            .with_caption(&format!(
                "Of {seeds} runs. A point stands at the end of the sizes that it is for."
            ));
        Drawn { figure, series }
    };
    let (allocation, release) = ("time of an allocation", "time of a release");
    vec![
        drawn("Fig. 5", allocation, Kind::Allocation, &[regions, conventional]),
        drawn("Fig. 6a", release, Kind::Release, &[regions]),
        drawn("Fig. 6b", release, Kind::Release, &[conventional]),
    ]
}

/// Fig. 7: the pages that are mapped, of the first seed.
fn over_time() -> Drawn {
    let id = "Fig. 7";
    let (x, y) = ("actions", "pages mapped");
    let caption = "The most in each hundredth of the first seed's run.";
    let figure = Figure::new(id, "pages mapped over the run", FigureKind::Lines, x, y);
    let line = |system: SystemName| {
        let points = first_seeds(1)
            .flat_map(|seed| rows(system, seed, Kind::Mapped))
            .map(|row| (((row.bin + 1) * row.actions / row.bins) as f64, row.max as f64));
        Series::new(id, "actions", "pages", system.name(), points)
    };
    let series = SystemName::ALL.map(line).into();
    Drawn { figure: figure.with_caption(caption), series }
}

/// A table with a row for each of these metrics and a column for each system.
fn table(grid: &Grid, (id, title): (&str, &str), metrics: &[(&str, &'static str)]) -> Drawn {
    let figure = Figure::new(id, title, FigureKind::Table, "longest", "cycles, pages");
    let column = |system: SystemName| {
        let points = metrics.iter().filter_map(|&(row, metric)| {
            let select = |view: &View<'_>| view.select().is(SYSTEM, system.name()).one(metric);
            Some(grid.evidence(select).ok()?.point(row))
        });
        Series::new(id, "longest", "cycles", system.name(), points)
    };
    Drawn { figure, series: SystemName::ALL.map(column).into() }
}

const TABLE_ONE: [(&str, &str); 3] =
    [("allocation", "allocation_max"), ("release", "release_max"), ("pages mapped", "mapped_max")];

/// The first row of Table I, beside the paper's, which are microseconds.
fn table_one(grid: &Grid) -> Drawn {
    let id = "Table I, first row";
    let mut drawn = table(grid, (id, "the longest calls and the most pages"), &TABLE_ONE);
    for ((name, times), pages) in
        [("RTMMU", PAPER_RT), ("conventional", PAPER_CONVENTIONAL)].into_iter().zip(PAPER_PAGES)
    {
        let numbers = times.into_iter().chain([pages]);
        let points =
            TABLE_ONE.iter().zip(numbers).map(|(&(row, _), number)| Point::named(row, number));
        drawn.series.push(Series::new(id, "longest", "us", &format!("paper (µs), {name}"), points));
    }
    drawn
}

fn accesses(grid: &Grid) -> Drawn {
    let metrics = [
        ("access, longest", "access_max"),
        ("access, shortest", "access_min"),
        ("with a page fault, longest", "fault_max"),
        ("with a page fault, mean", "fault_mean"),
        ("allocation, mean", "allocation_mean"),
        ("release, mean", "release_mean"),
    ];
    table(grid, ("Other times", "accesses, and the mean calls"), &metrics)
}

fn finding(grid: &Grid) -> String {
    let [regions, conventional] = SystemName::ALL;
    let of = |metric| (estimate(grid, regions, metric), estimate(grid, conventional, metric));
    let (access, release, usual) = (of("access_max"), of("release_max"), of("release_mean"));
    let (allocation, fault, pages) = (of("allocation_max"), of("fault_mean"), of("mapped_max"));
    format!(
        "Through the RTMMU an access takes {:.0} cycles at most, through the conventional unit {:.0}. The longest release \
         takes {:.0} cycles over regions and {:.0} over a page table, the mean one {:.0} and {:.0}; the longest allocation \
         {:.0} and {:.0}; a page fault {:.0} and {:.0}. The footprint is {:.0} and {:.0} pages.",
        access.0,
        access.1,
        release.0,
        release.1,
        usual.0,
        usual.1,
        allocation.0,
        allocation.1,
        fault.0,
        fault.1,
        pages.0,
        pages.1
    )
}

fn notes(grid: &Grid) -> Vec<String> {
    let first = ROWS.first();
    let of = |number: fn(&Row) -> u64| first.map_or(0, number);
    let [regions, conventional] = SystemName::ALL;
    let failures = |system| estimate(grid, system, "failures");
    vec![
        format!(
            "The system is rtl/system, simulated by Verilator: a core for RV32I and Zbb that makes an instruction a \
             cycle, its program in static RAM; two chips for VRC, stack ends, helper and stack, {} cycles from request to \
             word; a module for page table, headers and frames, {} cycles for a word of tables and {} for data. \
             2^19 pages of 4 KiB, {} actions. `cargo xtask rtl times` writes the table anew; `cargo xtask \
             rtl system` runs the core beside an interpreter of its instructions, and looks up each access's byte by \
             the model of the unit.",
            of(|row| row.fast), of(|row| row.table), of(|row| row.data), of(|row| row.actions)
        ),
        "The program is that of the repository: TLSF, whose tags lie in the pages, with all its page faults handled in \
         software, over the regions of swath-region, or over a page table in a hundred lines. Over that, the page at which \
         a footprint ends comes with the command, so a release is charged for unmapping alone."
            .to_owned(),
        format!(
            "The paper gives no sizes: here they are uniform up to {SIZE_KIB_MAX:.0} KiB, the power of two with which, over runs of any \
             course, the conventional footprint comes nearest to the paper's. The runs are the first whose footprint has the \
             three arcs of Fig. 7b. In the mean over seeds {:.1} and {:.1} allocations found no room.",
            failures(regions),
            failures(conventional)
        ),
    ]
}

/// The statements of Table I's first row and of section V-B. Tolerances: ratios of Table I are bounds
/// without any; "whatever the size" has a tenth, as in rt-runtimes.
fn claims() -> Vec<Statement<Grid>> {
    let (regions, conventional) = (SystemName::Regions, SystemName::Conventional);
    let actions = ROWS.first().map_or(0, |row| row.actions);
    let conditions = &Conditions::new().same("actions", PAPER_ACTIONS, actions);
    let ratio_of = |statement: Statement<Grid>| statement.unit(Unit::Ratio).under(conditions);
    let place = "Table I, synthetic";
    vec![
        ratio_of(Statement::exactly(
            "Section IV-A2b, IV-B",
            "original access times are preserved with memories at double speed: longest access, RTMMU / conventional",
            1.0,
        ))
        .measured(move |grid: &Grid| grid.evidence(|view| ratio(view, "access_max", regions, conventional))),
        ratio_of(Statement::within(
            "Section V-B, Fig. 6",
            "a strict upper limit whatever the size: longest release of the larger half of sizes / of the smaller half",
            1.0,
            0.1,
        ))
        .measured(move |grid: &Grid| {
            grid.evidence(|view| {
                let cell = view.select().is(SYSTEM, regions.name());
                Ok(cell.one("large_release_max")? / cell.one("small_release_max")?.max(1.0))
            })
        }),
        ratio_of(Statement::at_least(
            place,
            "longest release, conventional / RTMMU (4,145,462 µs against 945)",
            PAPER_CONVENTIONAL[1] / PAPER_RT[1],
            0.0,
        ))
        .cause(RELEASE_CAUSE)
        .fitted(FITTED_RUNS)
        .measured(move |grid: &Grid| grid.evidence(|view| ratio(view, "release_max", conventional, regions))),
        ratio_of(Statement::at_most(
            place,
            "small runtime penalty: longest allocation, RTMMU / conventional (339 µs against 237)",
            PAPER_RT[0] / PAPER_CONVENTIONAL[0],
            0.0,
        ))
        .cause(ALLOCATION_CAUSE)
        .measured(move |grid: &Grid| grid.evidence(|view| ratio(view, "allocation_max", regions, conventional))),
        ratio_of(Statement::about(
            "Table I, synthetic; Fig. 7",
            "most pages mapped, conventional / RTMMU (measured: runs with the three arcs of Fig. 7b)",
            PAPER_PAGES[1] / PAPER_PAGES[0],
            0.25,
        ))
        .cause(FOOTPRINT_CAUSE)
        .fitted(FITTED_RUNS)
        .measured(move |grid: &Grid| grid.evidence(|view| ratio(view, "mapped_max", conventional, regions))),
    ]
}

const RELEASE_CAUSE: &str = "In the paper a page of the loop takes 23 µs, a 41st of the longest bounded release; here its three \
     accesses to memory and the loop take a hundredth.";
const ALLOCATION_CAUSE: &str = "An allocation maps a region, cuts off the pages of its tags and takes their page faults, over trees and \
     headers in the module; over a page table a fault writes two words.";
const FOOTPRINT_CAUSE: &str = "The footprint grows with the sizes: of runs with three arcs rt-footprint finds 36 with sizes up to 4 MiB, \
     as here, and 60 up to 16 MiB (its figure \"Bound of the sizes\"), whose blocks do not fit into the 2 GiB of \
     addresses that the core has for its heap.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_is_there() {
        for system in SystemName::ALL {
            for seed in first_seeds(SEEDS) {
                for kind in [
                    Kind::Allocation,
                    Kind::Release,
                    Kind::Access,
                    Kind::Fault,
                    Kind::Failure,
                    Kind::Mapped,
                ] {
                    let rows: Vec<&Row> = rows(system, seed, kind).collect();
                    let bins = rows.first().map_or(0, |row| row.bins);
                    assert!(bins > 0, "{system:?} {seed} {kind:?}");
                    assert!(
                        rows.iter().map(|row| row.bin).eq(0..bins),
                        "{system:?} {seed} {kind:?}"
                    );
                    for row in rows {
                        assert!(row.min <= row.max && row.actions == PAPER_ACTIONS, "{row:?}");
                        let first = &ROWS[0];
                        assert_eq!(
                            (row.fast, row.table, row.data),
                            (first.fast, first.table, first.data)
                        );
                    }
                }
            }
        }
        assert_eq!(TABLE_SEEDS.len() as u64, SEEDS);
    }
}

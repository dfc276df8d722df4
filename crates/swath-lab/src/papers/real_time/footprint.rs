//! The pages mapped while the synthetic workload runs, on both systems (*Böhnert and Scholl 2014*,
//! Fig. 7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::real_time::plan::{SizeBytes, SizePlan, SyntheticPlan};
use crate::papers::real_time::run::run as run_workload;
use crate::papers::real_time::system::SystemName;
use crate::papers::real_time::words::round_up;
use crate::papers::real_time::workload::Synthetic;
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Grid, Metrics, Missing, Value, View, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

const REGIONS: &str = "Fig. 7a";
const CONVENTIONAL: &str = "Fig. 7b";
const REGIONS_ALONE: &str = "Fig. 7a, own scale";
const SWEEP: &str = "Bound of the sizes";

/// The most pages mapped (Table I): with the RTMMU and with the conventional MMU.
pub(crate) const PAPER_PAGES: [f64; 2] = [2_971.0, 180_132.0];

/// "Three rising curves, each ended with a drop down to almost no mapped memory pages" (section
/// V-B, of Fig. 7b).
const PAPER_ARCS: u64 = 3;

/// What was chosen after the paper's figures were known.
pub(crate) const FITTED_RUNS: &str = "synthetic.size_bytes_max: the power of two whose conventional footprint comes nearest to the \
                           paper's, which gives no sizes; that runs have the three arcs of Fig. 7b";

/// Pages mapped over time.
pub struct Footprint;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FootprintPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of runs of the workload.
    pub repeats: Forms<Repeats>,
    /// Arcs that a run's footprint has, each of which ends with an empty heap: of the workload's
    /// repeats the first that have so many.
    pub arcs: Bounded<1, 10>,
    /// Pages of the heap's pool, frames of memory.
    pub size: SizePlan,
    /// The synthetic workload.
    pub synthetic: SyntheticPlan,
    /// Largest sizes at which the footprint is measured, that of the workload among them.
    pub size_bytes_sweep: Forms<Ascending<SizeBytes>>,
}

crate::plan!(FootprintPlan, check);

fn check(plan: &FootprintPlan) -> Result<(), Refused> {
    plan.size.check()?;
    let chosen = plan.synthetic.size_bytes_max;
    for sweep in [&plan.size_bytes_sweep.full, &plan.size_bytes_sweep.quick] {
        require(sweep.contains(&chosen), "size_bytes_sweep", || {
            format!("{chosen}, the workload's, is not among them")
        })?;
    }
    Ok(())
}

/// The measurements.
pub struct FootprintFound {
    /// The most pages by [`SIZE`] and [`SYSTEM`].
    grid: Grid,
    /// Pages over the run of the first seed, of each system.
    lines: Vec<(SystemName, Vec<(f64, f64)>)>,
}

/// Axis: the largest size of the workload in KiB.
const SIZE: &str = "size_kib_max";
/// Axis: the system.
const SYSTEM: &str = "system";
/// Metric: the most pages mapped.
const PAGES: &str = "pages";

/// Points of a line.
const POINTS: usize = 1000;

/// At most [`POINTS`] points: of each stretch its first value, and the largest and the
/// smallest where they are others, so that no peak is lost.
fn thinned(pages: &[u32]) -> Vec<(f64, f64)> {
    let stretch = (3 * pages.len()).div_ceil(POINTS).max(1);
    let mut points = Vec::new();
    for (n, part) in pages.chunks(stretch).enumerate() {
        let most = (0..part.len()).max_by_key(|&i| part[i]).unwrap_or(0);
        let least = (0..part.len()).min_by_key(|&i| part[i]).unwrap_or(0);
        let mut chosen = vec![0, most, least];
        chosen.sort_unstable();
        chosen.dedup();
        points.extend(chosen.into_iter().map(|i| ((n * stretch + i) as f64, f64::from(part[i]))));
    }
    points
}

fn kib(size_bytes: u64) -> Value {
    Value::Number(size_bytes as f64 / 1024.0)
}

impl Study for Footprint {
    const KIND: &'static str = "rt-footprint";
    type Plan = FootprintPlan;
    type Found = FootprintFound;

    fn seeds(plan: &FootprintPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &FootprintPlan, run: &Run<'_>) -> Needs {
        let actions = plan.synthetic.actions.of(run.quick).get();
        plan.size.needs(run.quick, actions).each("synthetic.actions", bytes(&[40, actions]))
    }

    fn measure(plan: &FootprintPlan, run: &Run<'_>) -> Result<FootprintFound, StudyError> {
        let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
        let seeds = Self::seeds(plan, run.quick);
        let first = plan.synthetic.workload(run.quick, plan.about.seed, 0);
        let sizes = plan.size_bytes_sweep.of(run.quick).iter();
        let sizes: Vec<u64> = sizes.map(|size| size.get()).collect();
        let chosen = run.points(&plan.about, &sizes, |&size_bytes_max| {
            let first = Synthetic { size_bytes_max, ..first };
            let chosen = first.with_arcs(plan.arcs.get(), seeds);
            let too_few = chosen.len() as u64 != seeds;
            if too_few {
                return Err(failed(format!("too few runs have {} arcs", plan.arcs)));
            }
            Ok(chosen.into_iter().map(|one| one.repeat).collect::<Vec<u64>>())
        })?;
        let mut jobs = Vec::new();
        let mut drawn = None;
        for (&size_bytes_max, repeats) in sizes.iter().zip(&chosen) {
            let of = |&repeat| Synthetic { size_bytes_max, repeat, ..first };
            let workloads: Vec<Synthetic> = repeats.iter().map(of).collect();
            if size_bytes_max == first.size_bytes_max {
                drawn = workloads.first().copied();
            }
            for system in SystemName::ALL {
                jobs.extend(workloads.iter().map(|&workload| (workload, system)));
            }
        }
        let measured = run.points(&plan.about, &jobs, |&(workload, system)| {
            let observed =
                run_workload(system, plan.size.size(run.quick), false, workload.actions());
            let observed = observed.map_err(|error| failed(error.to_string()))?;
            let is_drawn = Some(workload) == drawn;
            let line = if is_drawn { thinned(&observed.mapped_pages) } else { Vec::new() };
            let numbers = metrics([
                (PAGES, observed.mapped_pages_max as f64),
                ("failures", observed.failures as f64),
            ]);
            Ok((numbers, is_drawn.then_some(line)))
        })?;
        let seeds = usize::try_from(seeds).unwrap_or(usize::MAX);
        let mut found =
            FootprintFound { grid: Grid::new(&[SIZE, SYSTEM], seeds), lines: Vec::new() };
        for (jobs, runs) in jobs.chunks(seeds).zip(measured.chunks(seeds)) {
            let (workload, system) = jobs[0];
            let numbers: Vec<Metrics> = runs.iter().map(|(numbers, _)| numbers.clone()).collect();
            found.grid.add(vec![kib(workload.size_bytes_max), system.name().into()], &numbers);
            let lines = runs.iter().filter_map(|(_, line)| Some((system, line.clone()?)));
            found.lines.extend(lines);
        }
        Ok(found)
    }

    fn claims(plan: &FootprintPlan, run: &Run<'_>) -> Vec<Statement<FootprintFound>> {
        let conditions = plan.synthetic.conditions(plan.size.conditions(run.quick), run.quick);
        let conditions = conditions.same("arcs of the footprint", PAPER_ARCS, plan.arcs.get());
        claims(plan.synthetic.size_bytes_max.get(), &conditions)
    }

    fn show(plan: &FootprintPlan, run: &Run<'_>, found: &FootprintFound) -> Shown {
        let mut figures = over_time(found);
        if plan.size_bytes_sweep.of(run.quick).len() > 1 {
            figures.push(sweep(found));
        }
        let notes = notes(plan, run.quick, found);
        Shown { figures, notes, ..Shown::default() }
    }
}

/// Fig. 7a and 7b on one scale, as in the paper, and the regions' line, which lies on the axis there,
/// on its own.
fn over_time(found: &FootprintFound) -> Vec<Drawn> {
    let most = |kept: &[SystemName]| {
        let lines = found.lines.iter().filter(|(system, _)| kept.contains(system));
        let pages = lines.flat_map(|(_, points)| points).map(|&(_, pages)| pages);
        round_up(pages.fold(1.0, f64::max))
    };
    let drawn = |id: &str, system: SystemName, scale: f64, caption: &str| {
        let (x, y) = ("time (allocations and releases)", "pages mapped");
        let line = |(name, points): &(SystemName, Vec<(f64, f64)>)| {
            let series = || Series::new(id, "calls", "pages", name.name(), points.clone());
            (*name == system).then(series)
        };
        let figure = Figure::new(id, "pages mapped over the run", FigureKind::Lines, x, y);
        let figure = figure.with_y_range(0.0, scale).with_caption(&format!(
            "The first seed. {caption}Largest and smallest of each stretch are drawn."
        ));
        Drawn { figure, series: found.lines.iter().filter_map(line).collect() }
    };
    let [regions, conventional] = SystemName::ALL;
    let both = most(&SystemName::ALL);
    vec![
        drawn(REGIONS, regions, both, "On the scale of Fig. 7b, as in the paper. "),
        drawn(
            CONVENTIONAL,
            conventional,
            both,
            "The footprint grows until the last block before its end is freed, and falls to the \
             last one left. ",
        ),
        drawn(REGIONS_ALONE, regions, most(&[regions]), ""),
    ]
}

/// The most pages against the bound of the sizes.
fn sweep(found: &FootprintFound) -> Drawn {
    let (x, y) = ("bound of the sizes (KiB)", "log10 of the most pages mapped");
    let figure = Figure::new(SWEEP, "by the sizes", FigureKind::LinesLog2, x, y).with_caption(
        "Means over the seeds. A step of 1 is a factor of 10. The last line is the paper's.",
    );
    let line = |system: SystemName| {
        let log = |cell: &CellView<'_>| Ok(cell.get(PAGES)?.max(1.0).log10());
        let points = found.grid.points(SIZE, |all| all.is(SYSTEM, system.name()), log);
        Series::new(SWEEP, SIZE, "log10_pages", system.name(), points)
    };
    let mut series: Vec<Series> = SystemName::ALL.into_iter().map(line).collect();
    let sizes = found.grid.values(SIZE).into_iter().filter_map(Value::number);
    let paper = sizes.map(|size| Point::at(size, PAPER_PAGES[1].log10()));
    series.push(Series::new(SWEEP, SIZE, "log10_pages", "conventional, paper", paper));
    Drawn { figure, series }
}

/// The most pages of a system with sizes up to a bound.
fn pages(view: &View<'_>, size: &Value, system: SystemName) -> Result<f64, Missing> {
    view.select().is(SIZE, size.clone()).is(SYSTEM, system.name()).one(PAGES)
}

fn notes(plan: &FootprintPlan, quick: bool, found: &FootprintFound) -> Vec<String> {
    let [regions, conventional] = PAPER_PAGES;
    let (repeats, seed) = (plan.repeats.of(quick), plan.about.seed);
    let mut notes = vec![
        format!(
            "The paper does not give the sizes. They are uniform from 1 byte to {} KiB: of the \
             powers of two the bound whose conventional footprint, in the mean over the seeds, \
             comes nearest to the paper's {conventional} pages, the one figure that the paper gives \
             of it. That footprint is therefore no claim, and the claims on the regions' ({regions} \
             in the paper) and on the ratio say that the bound was chosen after looking.",
            plan.synthetic.size_bytes_max.get() / 1024,
        ),
        format!(
            "How much is allocated at once is a random walk, whose peak differs by a factor of three from run to run. \
             The paper has one run and says how it went: three rising curves, each of which ends with a drop to almost \
             no pages. A run here is one that has been empty {} times after at least half of its most was allocated, and \
             has not been half full after the last: of those with the seed {seed} the first {repeats}, of which the \
             first is drawn.",
            plan.arcs,
        ),
        "A page counts from its first access on, and with it those of boundary tags.".to_owned(),
    ];
    let sizes: Vec<Value> = found.grid.values(SIZE).into_iter().cloned().collect();
    let estimate = |size: &Value, system| {
        let of = |view: &View<'_>| pages(view, size, system);
        found.grid.evidence(of).ok().map(|found| *found.estimate())
    };
    if sizes.len() > 1 {
        let far = |size: &Value| {
            let most = estimate(size, SystemName::Conventional).map(|found| found.value);
            most.map_or(f64::INFINITY, |most| (most / conventional).ln().abs())
        };
        if let Some(best) = sizes.iter().min_by(|a, b| far(a).total_cmp(&far(b))) {
            notes.push(format!("Of the bounds measured here the rule takes {best} KiB."));
        }
    } else {
        notes.push("The rule is checked in the full form, which measures the other bounds.".into());
    }
    for size in &sizes {
        let show = |system| {
            estimate(size, system).map_or_else(
                || "not measured".to_owned(),
                |found| format!("{:.0} (± {:.0})", found.value, found.half_width()),
            )
        };
        let failures = |view: &View<'_>| {
            Ok(view.select().is(SIZE, size.clone()).numbers("failures")?.iter().sum())
        };
        let failures = found.grid.evidence(failures).map_or(0.0, |found| found.estimate().value);
        notes.push(format!(
            "Most pages with sizes up to {size} KiB, mean over {repeats} seeds and half of its 95% \
             interval: regions {}, conventional {}; {failures:.1} allocations found no room.",
            show(SystemName::Regions),
            show(SystemName::Conventional),
        ));
    }
    notes
}

/// The statements on footprints of the synthetic workload, over runs whose course is that of the
/// paper's. Tolerance: the paper has one run of a random workload, and a quarter is allowed.
fn claims(size_bytes_max: u64, conditions: &Conditions) -> Vec<Statement<FootprintFound>> {
    let place = "Table I, synthetic; Fig. 7";
    let size = kib(size_bytes_max);
    let says = "most pages mapped, RTMMU (measured: mean over runs with the three arcs of Fig. 7b)";
    let cause = "How many allocations there are at once is a random walk, whose peak depends on the \
                 run, of which the paper has one; the notes have the spread over runs with as many arcs.";
    let of = size.clone();
    let regions = Statement::about(place, says, PAPER_PAGES[0], 0.25)
        .cause(cause)
        .fitted(FITTED_RUNS)
        .under(conditions)
        .measured(move |found: &FootprintFound| {
            found.grid.evidence(|view| pages(view, &of, SystemName::Regions))
        });
    let says = "most pages mapped, conventional / RTMMU (measured: of means over such runs)";
    let ratio = Statement::about(place, says, PAPER_PAGES[1] / PAPER_PAGES[0], 0.25)
        .unit(Unit::Ratio)
        .cause(cause)
        .fitted(FITTED_RUNS)
        .under(conditions)
        .measured(move |found: &FootprintFound| {
            found.grid.evidence(|view| {
                let regions = pages(view, &size, SystemName::Regions)?;
                Ok(pages(view, &size, SystemName::Conventional)? / regions.max(1.0))
            })
        });
    vec![regions, ratio]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peak_is_lost() {
        let mut pages = vec![5; 30_000];
        (pages[12_345], pages[12_346]) = (9, 1);
        let points = thinned(&pages);
        assert!(points.len() <= POINTS + 3, "{}", points.len());
        assert!(points.contains(&(12_345.0, 9.0)) && points.contains(&(12_346.0, 1.0)));
        assert_eq!(thinned(&[]), []);
    }
}

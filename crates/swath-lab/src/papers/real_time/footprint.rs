//! How many pages are mapped while the synthetic workload runs, on both systems (Fig. 7 of
//! 004_0cb2f33903da1556.txt).

use crate::papers::real_time::plan::RtPlan;
use crate::papers::real_time::run;
use crate::papers::real_time::system::SystemName;
use crate::papers::real_time::workload::Synthetic;
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::study::run::{Outcome, Run, StudyError};

const BOTH: &str = "Fig. 7";
const REGIONS: &str = "Fig. 7a";
const SWEEP: &str = "Bound of the sizes";

/// The most pages mapped (Table I): with the RTMMU and with the conventional MMU.
const PAPER_PAGES: [f64; 2] = [2_971.0, 180_132.0];

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

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &RtPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let failed = |what: String| StudyError::Machine { study: about.study.clone(), what };
    let workload = plan.workload(run.quick);
    let chosen = workload.size_bytes_max;
    let mut sizes = if run.quick { Vec::new() } else { plan.synthetic.size_bytes_sweep.clone() };
    if !sizes.contains(&chosen) {
        sizes.push(chosen);
        sizes.sort_unstable();
    }
    let mut points = Vec::new();
    for &size_bytes_max in &sizes {
        for seed in plan.seeds(run.quick) {
            let other = Synthetic { size_bytes_max, seed, ..workload };
            points.extend(SystemName::ALL.map(|system| (other, system)));
        }
    }
    // The run that is drawn has the plan's seed; of the others only the most is kept.
    let compared = points.len();
    let drawn = points.iter().position(|&(other, _)| other == workload).unwrap_or(compared);
    if drawn == compared {
        points.extend(SystemName::ALL.map(|system| (workload, system)));
    }
    let found = run.points(about, &points, |&(workload, system)| {
        let drawn = workload == points[drawn].0;
        run::run(system, plan.size, false, workload.actions())
            .map(|found| Measured {
                pages: if drawn { thinned(&found.mapped_pages) } else { Vec::new() },
                most: found.mapped_pages_max as f64,
                failures: found.failures,
            })
            .map_err(|error| failed(error.to_string()))
    })?;
    let (x, y) = ("allocations and releases", "pages mapped");
    let mut result = StudyResult {
        figures: vec![
            Figure::new(BOTH, "pages mapped over the run", FigureKind::Lines, x, y).with_caption(
                "The conventional footprint grows until the last block before its end is freed, \
                 and falls to the last one left. Largest and smallest of each stretch are drawn.",
            ),
            Figure::new(REGIONS, "the same, regions alone", FigureKind::Lines, x, y),
        ],
        ..crate::study::run::result(about, plan, run, about.purpose.clone())
    };
    for (name, found) in SystemName::ALL.iter().zip(&found[drawn..]) {
        let series =
            |figure| Series::new(figure, "calls", "pages", name.name(), found.pages.clone());
        result.series.push(series(BOTH));
        if *name == SystemName::Regions {
            result.series.push(series(REGIONS));
        }
    }
    let seeds = plan.seeds(run.quick).count();
    let sweep: Vec<Spread> =
        found[..compared].chunks(SystemName::ALL.len() * seeds).map(Spread::of).collect();
    if sizes.len() > 1 {
        result.figures.push(sweep_figure(seeds));
        result.series.extend(sweep_series(&sizes, &sweep));
    }
    let at = sizes.iter().position(|&size| size == chosen).unwrap_or(0);
    result.notes = notes(plan, &sizes, &sweep, seeds, run.quick);
    if plan.claims {
        result.claims = claims(&sweep[at], seeds);
    }
    Ok(Outcome { result, host: None })
}

/// What is kept of one run.
struct Measured {
    pages: Vec<(f64, f64)>,
    most: f64,
    failures: u64,
}

/// Smallest, median and largest of a value over the seeds.
type Range = [f64; 3];

/// The most pages of all seeds of one bound.
struct Spread {
    regions: Range,
    conventional: Range,
    /// Conventional / regions, seed by seed.
    ratio: Range,
    failures: u64,
}

fn range(mut values: Vec<f64>) -> Range {
    values.sort_by(f64::total_cmp);
    let most = values.len().saturating_sub(1);
    let middle = (values[most / 2] + values[values.len() / 2]) / 2.0;
    [values[0], middle, values[most]]
}

impl Spread {
    /// Runs of the two systems in turn, at least one of each.
    fn of(found: &[Measured]) -> Self {
        let of = |system: usize| found.iter().skip(system).step_by(2).map(|run| run.most);
        Self {
            regions: range(of(0).collect()),
            conventional: range(of(1).collect()),
            ratio: range(of(1).zip(of(0)).map(|(of, to)| of / to.max(1.0)).collect()),
            failures: found.iter().map(|run| run.failures).sum(),
        }
    }
}

fn sweep_figure(seeds: usize) -> Figure {
    let (x, y) = ("bound of the sizes (KiB)", "log10 of the most pages mapped");
    Figure::new(SWEEP, "what the sizes do", FigureKind::LinesLog2, x, y).with_caption(&format!(
        "Medians over {seeds} seeds. A step of 1 is a factor of 10. The last line is the paper's."
    ))
}

fn sweep_series(sizes: &[u64], sweep: &[Spread]) -> [Series; 3] {
    let line = |name: &str, of: fn(&Spread) -> f64| {
        let points = sizes.iter().zip(sweep);
        let points = points.map(|(&size, of_size)| (size as f64 / 1024.0, of(of_size).log10()));
        Series::new(SWEEP, "size_kib_max", "log10_pages", name, points)
    };
    [
        line(SystemName::Regions.name(), |spread| spread.regions[1]),
        line(SystemName::Conventional.name(), |spread| spread.conventional[1]),
        line("conventional, paper", |_| PAPER_PAGES[1]),
    ]
}

fn notes(plan: &RtPlan, sizes: &[u64], sweep: &[Spread], seeds: usize, quick: bool) -> Vec<String> {
    let [regions, conventional] = PAPER_PAGES;
    let mut notes = vec![
        format!(
            "The paper does not give the sizes. They are uniform from 1 byte to {} KiB: of the \
             powers of two the bound whose conventional footprint, in the median over seeds 1 to {}, \
             comes nearest to the paper's {conventional} pages, the one figure that the paper gives of it. That footprint is \
             therefore fitted and no claim; the regions' ({regions} in the paper) and the ratio \
             are not fitted. The seed of what is drawn is {}.",
            plan.synthetic.size_bytes_max / 1024,
            plan.synthetic.seeds,
            plan.about.seed,
        ),
        "A page counts from its first access on, and with it those of boundary tags.".to_owned(),
    ];
    if quick {
        notes.push("The rule is checked in the full form, which measures the other bounds.".into());
    } else {
        let near = |spread: &Spread| (spread.conventional[1] / conventional).ln().abs();
        let best = (0..sizes.len()).min_by(|&a, &b| near(&sweep[a]).total_cmp(&near(&sweep[b])));
        let best = best.map_or(0, |best| sizes[best] / 1024);
        notes.push(format!("Of the bounds measured here the rule takes {best} KiB."));
    }
    for (size, spread) in sizes.iter().zip(sweep) {
        let show = |[least, middle, most]: Range| format!("{middle:.0} ({least:.0} to {most:.0})");
        notes.push(format!(
            "Most pages over {seeds} seeds with sizes up to {} KiB, median and range: regions {}, \
             conventional {}; {} allocations found no room.",
            size / 1024,
            show(spread.regions),
            show(spread.conventional),
            spread.failures,
        ));
    }
    notes
}

fn claims(spread: &Spread, seeds: usize) -> Vec<Claim> {
    let place = "Table I, synthetic; Fig. 7";
    let [least, _, most] = spread.ratio;
    vec![
        Claim::about(
            place,
            "most pages mapped, RTMMU (measured: median over seeds)",
            PAPER_PAGES[0],
            spread.regions[1],
            0.25,
        )
        .with_cause(&format!(
            "How many allocations there are at once is a random walk, whose peak depends on the \
             seed: the {seeds} seeds gave {} to {} pages.",
            spread.regions[0], spread.regions[2],
        )),
        Claim::about(
            place,
            "most pages mapped, conventional / RTMMU (measured: median over seeds)",
            PAPER_PAGES[1] / PAPER_PAGES[0],
            spread.ratio[1],
            0.25,
        )
        .with_unit(Unit::Ratio)
        .with_cause(&format!(
            "The {seeds} seeds gave {least:.0} to {most:.0}; the paper has one run."
        )),
    ]
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

    #[test]
    fn medians_and_ranges() {
        assert_eq!(range(vec![3.0]), [3.0; 3]);
        assert_eq!(range(vec![9.0, 1.0, 2.0]), [1.0, 2.0, 9.0]);
        assert_eq!(range(vec![4.0, 1.0, 2.0, 9.0]), [1.0, 3.0, 9.0]);
        let run = |most| Measured { pages: Vec::new(), most, failures: 1 };
        let spread = Spread::of(&[run(2.0), run(8.0), run(5.0), run(10.0)]);
        assert_eq!((spread.regions, spread.conventional), ([2.0, 3.5, 5.0], [8.0, 9.0, 10.0]));
        assert_eq!((spread.ratio, spread.failures), ([2.0, 3.0, 4.0], 4));
    }
}

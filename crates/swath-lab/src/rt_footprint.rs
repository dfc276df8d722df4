//! How many pages are mapped while the synthetic workload runs, on both systems (Fig. 7 of
//! 004_0cb2f33903da1556.txt).

use crate::plan_rt::RtPlan;
use crate::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::rt_run::{self, Found};
use crate::rt_system::SystemName;
use crate::study::{self, Outcome, Run, StudyError};

const BOTH: &str = "Fig. 7";
const REGIONS: &str = "Fig. 7a";

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
    let found = run.points(about, &SystemName::ALL, |&name| {
        let actions = plan.workload(run.quick).actions();
        rt_run::run(name, plan.size, actions).map_err(|error| failed(error.to_string()))
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
        notes: vec![format!(
            "Sizes are uniform from 1 byte to {} KiB, chosen so that the conventional footprint \
             comes near the paper's, which does not give them; that of the regions then follows. \
             A page counts from its first access on, and with it those of boundary tags.",
            plan.synthetic.size_bytes_max / 1024,
        )],
        ..study::result(about, plan, run, about.purpose.clone())
    };
    for (name, found) in SystemName::ALL.iter().zip(&found) {
        let points = thinned(&found.mapped_pages);
        let series = |figure| Series::new(figure, "calls", "pages", name.name(), points.clone());
        result.series.push(series(BOTH));
        if *name == SystemName::Regions {
            result.series.push(series(REGIONS));
        }
    }
    if let ([regions, conventional], true) = (&found[..], plan.claims) {
        result.claims = claims(regions, conventional);
    }
    Ok(Outcome { result, host: None })
}

fn claims(regions: &Found, conventional: &Found) -> Vec<Claim> {
    let [regions, conventional] =
        [regions, conventional].map(|found| found.mapped_pages_max as f64);
    let place = "Table I, synthetic; Fig. 7";
    vec![
        Claim::about(place, "most pages mapped, RTMMU", PAPER_PAGES[0], regions, 0.25).with_cause(
            "How many allocations there are at once is a random walk, whose peak depends on the \
             seed: others gave 2,600 to 5,500 pages.",
        ),
        Claim::about(place, "most pages mapped, conventional", PAPER_PAGES[1], conventional, 0.25)
            .with_cause("The bound of the sizes is chosen for this figure in the full form."),
        Claim::about(
            place,
            "most pages mapped, conventional / RTMMU",
            PAPER_PAGES[1] / PAPER_PAGES[0],
            conventional / regions.max(1.0),
            0.25,
        )
        .with_unit(Unit::Ratio),
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
}

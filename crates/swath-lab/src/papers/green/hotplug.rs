//! How many sections could be taken offline over time (Fig. 8).

use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::plan::{GreenPlan, GreenRun};
use crate::papers::green::track;
use crate::papers::green::track::{Track, Tracks, find};
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &GreenPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let rows = track::track_all(plan, run)?;
    let (mut figures, mut series) = (Vec::new(), Vec::new());
    let (mut claims, mut findings) = (Vec::new(), Vec::new());
    for (row, tracks) in &rows {
        let id = format!("Fig. 8, {}", row.title());
        let kind = FigureKind::Lines;
        figures.push(Figure {
            y_range: Some((0.0, 1.0)),
            ..Figure::new(&id, "Removable sections", kind, "minutes", "share of all sections")
        });
        for (design, track) in tracks {
            let points = track.line(removable_share);
            series.push(Series::new(
                &id,
                "time_minutes",
                "removable_share",
                &design.title(),
                points,
            ));
        }
        claims.extend(judge(*row, tracks));
        findings.extend(finding(*row, tracks));
    }
    let finding = format!("{} {}", plan.about.purpose, findings.join(" "));
    let mut notes = track::notes(plan, run);
    notes.push(
        "A section is removable if it is memory of one zone without holes and none of its frames \
         is unmovable; it need not be empty."
            .to_owned(),
    );
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes,
            ..run::result(&plan.about, plan, run, finding)
        },
        host: None,
    })
}

fn removable_share(look: &crate::papers::green::machine::Look) -> f64 {
    look.removable_sections as f64 / look.sections as f64
}

/// By how much more sections are removable than with the baseline, at each
/// look; as a share of the baseline's.
fn gains(track: &Track, baseline: &Track) -> Vec<f64> {
    let pairs = track.looks.iter().zip(&baseline.looks);
    pairs
        .map(|(own, other)| {
            own.removable_sections as f64 / other.removable_sections.max(1) as f64 - 1.0
        })
        .collect()
}

fn finding(row: GreenRun, tracks: &Tracks) -> Option<String> {
    let shares: Vec<String> = tracks
        .iter()
        .map(|(design, track)| {
            let (mean, spoiled) = (track.mean(removable_share), track.counts().spoiled);
            format!("{} {:.0}% ({spoiled} spoiled)", design.title(), 100.0 * mean)
        })
        .collect();
    (!shares.is_empty())
        .then(|| format!("{}: removable sections on average {}.", row.title(), shares.join(", ")))
}

fn judge(row: GreenRun, tracks: &Tracks) -> Vec<Claim> {
    let Some(linux) = find(tracks, AllocatorName::Linux, false) else { return Vec::new() };
    let adaptive = [
        (AllocatorName::Adaptive, "Adaptive-Buddy"),
        (AllocatorName::AdaptivePacked, "Adaptive-Buddy, packed"),
    ];
    let place = format!("Fig. 8 ({})", row.title());
    let found = adaptive.into_iter().filter_map(|(name, title)| {
        let gains = gains(find(tracks, name, false)?, linux);
        let most = gains.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = gains.iter().sum::<f64>() / gains.len().max(1) as f64;
        Some(
            Claim::at_least(
                &place,
                &format!("{title}: in some cases 85% to 90% more removable sections than Linux"),
                0.85,
                most,
                0.05,
            )
            .with_unit(Unit::Share)
            .with_cause(&format!(
                "On average over the run it is {:.0}%. The baseline is Linux 6.18, whose grouping \
                 by mobility claims whole pageblocks; the paper's was of 2015.",
                100.0 * mean
            )),
        )
    });
    found.collect()
}

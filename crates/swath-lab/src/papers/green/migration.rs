//! What migration moves and what it frees (Fig. 9).

use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::machine::Look;
use crate::papers::green::plan::{Design, GreenPlan, GreenRun};
use crate::papers::green::track;
use crate::papers::green::track::{Track, Tracks};
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// GiB of so many frames.
fn gib(frames: u64) -> f64 {
    frames as f64 / f64::from(1 << 18)
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &GreenPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let rows = track::track_all(plan, run)?;
    let (mut figures, mut series) = (Vec::new(), Vec::new());
    let (mut claims, mut findings) = (Vec::new(), Vec::new());
    for (row, tracks) in &rows {
        let over_time = format!("Fig. 9b, {}", row.title());
        let per_bank = format!("Fig. 9c, {}", row.title());
        let lines = FigureKind::Lines;
        figures.push(Figure::new(&over_time, "Memory moved, summed up", lines, "minutes", "GiB"));
        figures.push(Figure {
            y_range: Some((0.0, 1.0)),
            ..Figure::new(
                &per_bank,
                "Frames moved to empty a bank",
                FigureKind::Scatter,
                "nth bank emptied",
                "share of the bank's frames",
            )
        });
        for (design, track) in tracks.iter().filter(|(design, _)| design.migrate) {
            let moved = track.line(|look| gib(look.moved_frames));
            let title = design.title();
            series.push(Series::new(&over_time, "time_minutes", "moved_gib", &title, moved));
            let offlined = track.line(|look| gib(look.emptied_banks * track.bank_frames));
            let offlined_title = format!("{title}: banks emptied");
            let x = "time_minutes";
            series.push(Series::new(&over_time, x, "emptied_gib", &offlined_title, offlined));
            series.push(Series::new(&per_bank, "bank", "moved_share", &title, track.each_bank()));
            claims.extend(judge(*row, *design, track));
        }
        findings.push(finding(*row, tracks));
    }
    let finding = format!("{} {}", plan.about.purpose, findings.join(" "));
    let mut notes = track::notes(plan, run);
    let daemon = &plan.daemon;
    notes.push(format!(
        "The daemon of each node looks for a bank every {} ms, of which at most {}% is in use, \
         moves up to {} frames each 100 ms (twice as many where banks are interleaved), and leaves {} frames free.",
        daemon.interval_ms,
        daemon.occupied_permille_max / 10,
        daemon.budget_frames,
        daemon.reserve_frames
    ));
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

impl Track {
    /// Each bank emptied, in order, as a share of a bank; thinned out.
    fn each_bank(&self) -> Vec<Point> {
        let every = self.emptied.len().div_ceil(300).max(1);
        let banks = self.emptied.iter().enumerate().step_by(every);
        banks
            .map(|(nth, &moved)| Point::at(nth as f64, moved as f64 / self.bank_frames as f64))
            .collect()
    }
}

fn finding(row: GreenRun, tracks: &Tracks) -> String {
    let designs: Vec<String> = tracks
        .iter()
        .map(|(design, track)| {
            let rests = 100.0 * track.mean(Look::resting_share);
            let moved: u64 = track.emptied.iter().sum();
            format!(
                "{} moved {:.1} GiB to empty {} banks ({:.0}% of a bank each); {rests:.0}% of memory \
                 rests on average",
                design.title(),
                gib(moved),
                track.emptied.len(),
                100.0 * track.moved_share(),
            )
        })
        .collect();
    format!("{}: {}.", row.title(), designs.join("; "))
}

/// The paper gives what its allocator moved under its load: the same is judged
/// both ways. What is beyond the paper moves no more than it does; the baseline's
/// daemon has no figure in the paper.
fn judge(row: GreenRun, design: Design, track: &Track) -> Vec<Claim> {
    let moved = track.end.moved_frames as f64;
    let emptied = (track.end.emptied_banks * track.bank_frames).max(1) as f64;
    let per_bank = ("Fig. 9c", 0.4, track.moved_share());
    let overall = ("Fig. 9b", 12.0 / 28.0, moved / emptied);
    let paper_says =
        ["about 40% of a bank's pages are moved to offline it", "12 GiB moved for 28 GiB offlined"];
    let claims = [per_bank, overall].into_iter().zip(paper_says);
    let claims = claims.filter_map(|((figure, paper, found), says)| {
        let place = format!("{figure} ({})", row.title());
        let title = design.title();
        Some(match design.allocator {
            AllocatorName::Adaptive => {
                Claim::within(&place, &format!("{title}: {says}"), paper, found, 0.1)
            }
            AllocatorName::AdaptivePacked => {
                let says = format!("Beyond, {title}: no more than that; {says}");
                Claim::at_most(&place, &says, paper, found, 0.0)
            }
            _ => return None,
        })
    });
    let cause = format!(
        "Of the banks emptied, {:.0}% held less than a tenth: a short burst had opened them.",
        100.0
            * track.emptied.iter().filter(|&&moved| moved < track.bank_frames / 10).count() as f64
            / track.emptied.len().max(1) as f64
    );
    claims.map(|claim| claim.with_unit(Unit::Share).with_cause(&cause)).collect()
}

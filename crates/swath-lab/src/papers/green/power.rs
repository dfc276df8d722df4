//! How much memory rests, and what that saves (Table IV and section V-D).

use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::machine::{Look, MachineName};
use crate::papers::green::plan::{GreenPlan, GreenRun, LoadName};
use crate::papers::green::track;
use crate::papers::green::track::{Track, Tracks, find};
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &GreenPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let rows = track::track_all(plan, run)?;
    let bars = FigureKind::Bars;
    let load = "machine and load";
    let mut figures = vec![
        Figure::new(
            "Table IV, average",
            "Memory that rests",
            bars,
            load,
            "share of memory, average",
        ),
        Figure::new("Table IV, max", "Memory that rests", bars, load, "share of memory, maximum"),
        Figure::new("c", "Resting by free memory", bars, load, "c = resting / free"),
        Figure::new("Energy", "Energy of the banks", bars, load, "share of all in active idle"),
    ];
    let mut series: Vec<Series> = Vec::new();
    for (nth, design) in plan.designs.iter().enumerate() {
        let points = |of: &dyn Fn(&Track) -> f64| -> Vec<Point> {
            rows.iter().map(|(row, tracks)| Point::named(row.title(), of(&tracks[nth].1))).collect()
        };
        let title = design.title();
        let mut push = |figure: &str, y: &str, points| {
            series.push(Series::new(figure, "load", y, &title, points));
        };
        push(
            "Table IV, average",
            "resting_share",
            points(&|track| track.mean(Look::resting_share)),
        );
        push("Table IV, max", "resting_share", points(&|track| track.max(Look::resting_share)));
        push("c", "c", points(&Track::c));
        push("Energy", "energy_share", points(&Track::energy_share));
    }
    for (row, tracks) in &rows {
        let id = format!("c over time, {}", row.title());
        let title = "Resting by free memory";
        figures.push(Figure {
            y_range: Some((0.0, 1.0)),
            ..Figure::new(&id, title, FigureKind::Lines, "minutes", "c = resting / free")
        });
        for (design, track) in tracks {
            let points = track.line(Look::c);
            series.push(Series::new(&id, "time_minutes", "c", &design.title(), points));
        }
    }
    let claims = rows.iter().flat_map(|(row, tracks)| judge(*row, tracks, &rows)).collect();
    let findings: Vec<String> = rows.iter().map(|(row, tracks)| finding(*row, tracks)).collect();
    let finding = format!("{} {}", plan.about.purpose, findings.join(" "));
    let mut notes = track::notes(plan, run);
    notes.push(
        "Energy is that of Table I: 63% of a bank's full power in active idle, 0.9% in deep \
         power-down, and a transition. Accesses are not simulated here, so a bank that is in use \
         takes active idle throughout; what is shown is the share of the energy that all banks \
         take in active idle."
            .to_owned(),
    );
    notes.push(
        "No bank was in use when it was powered down; a run in which one was would have failed."
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

/// Table IV: maximum and average share of offlined memory.
fn table_4(row: GreenRun) -> Option<(Option<f64>, f64)> {
    Some(match (row.machine, row.load, row.interleaved) {
        (MachineName::ThirtyTwoGib, LoadName::Light, false) => (Some(0.81), 0.595),
        (MachineName::ThirtyTwoGib, LoadName::Light, true) => (None, 0.552),
        (MachineName::ThirtyTwoGib, LoadName::Medium, false) => (Some(0.56), 0.457),
        (MachineName::ThirtyTwoGib, LoadName::Medium, true) => (None, 0.407),
        (MachineName::FourGib, LoadName::Light, false) => (Some(0.64), 0.48),
        (MachineName::FourGib, LoadName::Medium, false) => (Some(0.45), 0.26),
        (MachineName::FourGib, _, true) | (_, LoadName::Filled, _) => return None,
    })
}

/// Free memory as a share of all.
fn free_share(look: &Look) -> f64 {
    look.free_frames as f64 / look.total_frames as f64
}

/// How far the free memory of a look may be from what is looked for.
const NEAR: f64 = 0.03;

/// Whether the load's course explains how much rests: what rests when as much
/// is free as the paper's share and its c make.
fn course(track: &Track, paper: f64, c: f64) -> String {
    let (free, implied) = (track.mean(free_share), (paper / c).min(1.0));
    let near = track.looks.iter().filter(|look| (free_share(look) - implied).abs() <= NEAR);
    let rests: Vec<f64> = near.map(Look::resting_share).collect();
    let mean = 100.0 * rests.iter().sum::<f64>() / rests.len().max(1) as f64;
    let then = match rests.is_empty() {
        true => "here it never is".to_owned(),
        false => format!("when it is here, {mean:.0}% rests"),
    };
    format!(
        "The load's course decides, which the paper does not give. {:.0}% of memory is free on \
         average here and at most {:.0}%; the paper's figure and its c mean {:.0}%, and {then}.",
        100.0 * free,
        100.0 * track.max(free_share),
        100.0 * implied
    )
}

/// What the least c is with smaller banks and all else the same, if the plan has
/// such a row.
fn with_smaller_banks(row: GreenRun, rows: &[(GreenRun, Tracks)]) -> Option<String> {
    let same = |other: &GreenRun| GreenRun { bank_mib: row.bank_mib, ..*other } == row;
    let (other, tracks) =
        rows.iter().find(|(other, _)| same(other) && other.bank_mib < row.bank_mib)?;
    let track = find(tracks, AllocatorName::Adaptive, true)?;
    let (least, mib) = (track.min(Look::c), other.bank_mib);
    Some(format!(" With banks of {mib} MiB and all else the same the least is {least:.2}."))
}

fn finding(row: GreenRun, tracks: &Tracks) -> String {
    let designs: Vec<String> = tracks
        .iter()
        .map(|(design, track)| {
            format!(
                "{} c {:.2}, {:.0}% of memory, {:.0}% of the energy",
                design.title(),
                track.c(),
                100.0 * track.mean(Look::resting_share),
                100.0 * track.energy_share()
            )
        })
        .collect();
    format!("{}: {}.", row.title(), designs.join("; "))
}

fn judge(row: GreenRun, tracks: &Tracks, rows: &[(GreenRun, Tracks)]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let place = format!("Table IV ({})", row.title());
    let c_place = format!("Section V-D ({})", row.title());
    let (c, c_text) = match row.load {
        LoadName::Light => (0.85, "c is 0.85 on average under light load"),
        LoadName::Medium => (0.80, "c is 0.80 on average under medium load"),
        LoadName::Filled => return claims,
    };
    // Other banks only vary a row.
    if !row.has_paper_banks() {
        return claims;
    }
    if let Some(track) = find(tracks, AllocatorName::Adaptive, true) {
        if let Some((max, mean)) = table_4(row) {
            let figures = [("maximum", max, track.max(Look::resting_share))];
            let average = ("average", Some(mean), track.mean(Look::resting_share));
            for (which, paper, found) in figures.into_iter().chain([average]) {
                let Some(paper) = paper else { continue };
                let says = format!("Adaptive-Buddy with migration: offlined memory, {which}");
                let claim = Claim::within(&place, &says, paper, found, 0.1);
                claims.push(claim.with_unit(Unit::Share).with_cause(&course(track, paper, c)));
            }
        }
        let says = format!("Adaptive-Buddy with migration: {c_text}");
        claims.push(Claim::at_least(&c_place, &says, c, track.c(), 0.05));
        let says = "Adaptive-Buddy with migration: c is between 0.75 and 0.90 at all times";
        let at_least = track.looks.iter().min_by(|a, b| a.c().total_cmp(&b.c()));
        let free = at_least.map_or(0.0, |look| look.free_frames as f64 / track.bank_frames as f64);
        let smaller = with_smaller_banks(row, rows).unwrap_or_default();
        claims.push(
            Claim::between(&c_place, says, (0.75, 0.90), track.min(Look::c), 0.05).with_cause(
                &format!(
                    "The least value is judged; the largest is {:.2}. When it is least, \
                     {free:.1} banks' worth is free, and each zone and pool holds on to a part of \
                     a bank.{smaller}",
                    track.max(Look::c)
                ),
            ),
        );
    }
    if let Some(track) = find(tracks, AllocatorName::AdaptivePacked, true) {
        let says = format!("Beyond: packed pools with migration; {c_text}");
        let cause = loss(track);
        claims.push(Claim::at_least(&c_place, &says, c, track.c(), 0.0).with_cause(&cause));
    }
    claims
}

/// Where the free memory that does not rest is.
fn loss(track: &Track) -> String {
    let awake = track.mean(|look| (look.free_frames - look.resting_frames) as f64);
    let banks = track.mean(|look| (look.banks - look.resting_banks) as f64);
    format!(
        "On average {:.1} banks' worth of free frames lie in the {banks:.1} banks that do not rest.",
        awake / track.bank_frames as f64
    )
}

//! Recordings of a real kernel's page events, on machines that a load has aged;
//! and the baseline's fallbacks beside the kernel's own.

use std::collections::BTreeSet;
use std::path::Path;

use swath_frame::Mobility;
use swath_frame::zone::linux::PAGEBLOCK_ORDER;

use crate::papers::green::allocator::{AllocatorName, FallbackTally};
use crate::papers::green::plan::{Design, GreenPlan};
use crate::papers::green::replay::{FOLLOWED, ReplayError};
use crate::papers::green::track::{Tail, Track};
use crate::papers::green::{replay, track};
use crate::source::follow;
use crate::source::follow::{Agreement, Course, FallbackKind};
use crate::source::replay::{TimedOp, mobility_of};
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};
use swath_trace::machine::Snapshot;
use swath_trace::pages::{PageChange, PageReader};

/// A recording, read.
struct Recording {
    name: String,
    ops: Vec<TimedOp>,
    requests: u64,
    fallbacks: FallbackTally,
    /// Fallbacks for which the kernel's rules leave one outcome, and those of
    /// them that had it.
    decided: u64,
    as_ruled: u64,
    kernel: String,
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &GreenPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let fault = |error: ReplayError| {
        let (study, what) = (plan.about.study.clone(), error.to_string());
        StudyError::Machine { study, what }
    };
    let recordings: Result<Vec<Recording>, _> =
        plan.recordings.iter().map(|name| read(name).map_err(fault)).collect();
    let recordings = recordings?;
    let rows = plan.runs(run.quick);
    let row = rows[0];
    let points: Vec<(usize, Design)> = (0..recordings.len())
        .flat_map(|nth| plan.designs.iter().map(move |&design| (nth, design)))
        .collect();
    let tracks = run.points(&plan.about, &points, |&(nth, design)| {
        let ops = &recordings[nth].ops;
        let duration_us = ops.last().map_or(0, |op| op.time_us) + 1;
        track::track(plan, run, row, design, Some(&Tail { ops, duration_us }))
    })?;
    let of = |nth: usize, design: usize| &tracks[nth * plan.designs.len() + design];

    let bars = FigureKind::Bars;
    let x = "recording";
    let mut figures = vec![
        Figure::new("Removable sections", "at the end", bars, x, "share of all sections"),
        Figure::new("Free blocks", "at the end", bars, x, "blocks"),
        Figure::new(
            "Fallbacks",
            "of the kernel and of the baseline",
            bars,
            "wanted from found, taken or claimed",
            "share of all fallbacks",
        ),
        Figure::new("Resting", "on average while it runs", bars, x, "c = resting / free"),
    ];
    figures[2].caption = "\"claimed\": the whole pageblock changed over.".to_owned();
    let mut series = Vec::new();
    for (nth_design, design) in plan.designs.iter().enumerate() {
        let points = |of_track: &dyn Fn(&Track) -> f64| -> Vec<Point> {
            let named = recordings.iter().enumerate();
            named
                .map(|(nth, r)| Point::named(r.name.clone(), of_track(of(nth, nth_design))))
                .collect()
        };
        let title = design.title();
        let removable =
            |track: &Track| track.end.removable_sections as f64 / track.end.sections as f64;
        series.push(Series::new(
            "Removable sections",
            x,
            "removable_share",
            &title,
            points(&removable),
        ));
        let blocks = |track: &Track| track.end_blocks.count as f64;
        series.push(Series::new("Free blocks", x, "free_blocks", &title, points(&blocks)));
        series.push(Series::new("Resting", x, "c", &title, points(&Track::c)));
    }
    let mut claims = Vec::new();
    let followed = followed().map_err(fault)?;
    figures.push(followed.figure);
    series.extend(followed.series);
    claims.extend(followed.claims);
    let linux = Design { allocator: AllocatorName::Linux, migrate: false };
    let linux = plan.designs.iter().position(|design| *design == linux);
    for (nth, recording) in recordings.iter().enumerate() {
        let name = &recording.name;
        series.push(shares(&format!("{name}: Linux {}", recording.kernel), &recording.fallbacks));
        if let Some(linux) = linux {
            let track = of(nth, linux);
            let ours = since(track);
            series.push(shares(&format!("{name}: baseline"), &ours));
            let requests = track.counts().requests - requests_before(track);
            claims.push(frequency(recording, &ours, requests));
        }
        if recording.decided > 0 {
            let says = format!(
                "{name}: where Linux's rules leave one outcome, the kernel's fallbacks claim the \
                 pageblock or not as the baseline's rules say ({} of {} events)",
                recording.decided,
                recording.fallbacks.total()
            );
            let share = recording.as_ruled as f64 / recording.decided as f64;
            claims.push(
                Claim::at_least("recorded mm_page_alloc_extfrag", &says, 1.0, share, 0.0)
                    .with_unit(Unit::Share),
            );
        }
        let failed: u64 =
            (0..plan.designs.len()).map(|design| of(nth, design).counts().failed).sum();
        claims.push(Claim::exactly(
            "recorded requests",
            &format!("{name}: no request fails on any allocator"),
            0.0,
            failed as f64,
        ));
    }
    let findings: Vec<String> = recordings
        .iter()
        .enumerate()
        .map(|(nth, recording)| finding(plan, recording, &|d| of(nth, d)))
        .collect();
    let finding = format!("{} {} {}", plan.about.purpose, findings.join(" "), followed.finding);
    let mut notes = track::notes(plan, run);
    notes.push(
        "A recording begins when the load has ended; its memory stays in use. Looks and averages \
         are those of the recording's time."
            .to_owned(),
    );
    notes.push(
        "The baseline's fallbacks are not the kernel's one by one: the recorded machine had \
         another history, and its free lists when the recording began are not known; it reclaims \
         and compacts, and memory that others than the recorded processes took is not replayed. \
         What can be compared is the rule and the mixture."
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

/// What following a whole system's recording adds to the study.
struct FollowedPart {
    figure: Figure,
    series: Vec<Series>,
    claims: Vec<Claim>,
    finding: String,
}

/// The baseline beside a kernel whose free lists were rebuilt.
fn followed() -> Result<FollowedPart, ReplayError> {
    let (name, events, snapshot) = FOLLOWED;
    let fault = |error| ReplayError::File { file: name.into(), error };
    let reader = PageReader::new(events).map_err(fault)?;
    let events: Result<Vec<_>, _> = reader.collect();
    let events = events.map_err(fault)?;
    let snapshot = Snapshot::read(snapshot).map_err(fault)?;
    let course = Course::new(&events, &snapshot)?;
    let there = follow::follow(&course);
    let free = follow::run_free(&course);

    let title = "Fallbacks, step by step";
    let kinds: BTreeSet<_> = there.fallbacks.keys().chain(free.fallbacks.keys()).copied().collect();
    let points = |count: &dyn Fn(&FallbackKind) -> u64| -> Vec<Point> {
        kinds.iter().map(|kind| Point::named(kind.to_string(), count(kind) as f64)).collect()
    };
    let of = |kind: &FallbackKind| there.fallbacks.get(kind).copied().unwrap_or_default();
    let line = |design: &str, points| Series::new(title, "kind", "fallbacks", design, points);
    let series = vec![
        line("recorded", points(&|kind| of(kind).recorded)),
        line("the same by the baseline's rules", points(&|kind| of(kind).same)),
        line(
            "baseline by itself",
            points(&|kind| free.fallbacks.get(kind).copied().unwrap_or_default()),
        ),
    ];
    let bars = FigureKind::Bars;
    let of_kind = "wanted from found, and what was found";
    let figure = Figure::new(title, "of a kernel and of the baseline", bars, of_kind, "fallbacks");

    let all = there.all_fallbacks();
    let whose = "recorded free lists";
    let share = |agreement: Agreement| agreement.same as f64 / agreement.recorded.max(1) as f64;
    let differences: Vec<String> = there
        .differences
        .iter()
        .map(|((kind, why), count)| format!("{count} of {kind}: {why}"))
        .collect();
    let frames = |count: Option<u32>| count.map_or(0.0, f64::from);
    let claims = vec![
        Claim::at_least(
            whose,
            &format!("{name}: takes without a fallback that the baseline's rules lead to, from the same order and list ({} takes)", there.own.recorded),
            1.0,
            share(there.own),
            0.0,
        )
        .with_unit(Unit::Share),
        Claim::at_least(
            whose,
            &format!("{name}: fallbacks that the baseline's rules lead to, from the same order and mobility, claimed or not ({} fallbacks)", all.recorded),
            1.0,
            share(all),
            0.0,
        )
        .with_unit(Unit::Share)
        .with_cause(&differences.join("; ")),
        Claim::at_least(
            whose,
            &format!("{name}: takes of the baseline by itself, from the same beginning and under the same requests, that get the kernel's frames"),
            1.0,
            share(free.takes),
            0.0,
        )
        .with_unit(Unit::Share),
        Claim::exactly(
            whose,
            &format!("{name}: frames of 512, free or alike, with which the kernel claims a pageblock: the fewest"),
            256.0,
            frames(there.claimed_least),
        ),
        Claim::exactly(
            whose,
            &format!("{name}: frames of 512, free or alike, with which it leaves a pageblock: the most"),
            255.0,
            frames(there.left_most),
        ),
    ];
    let finding = format!(
        "{name}, {} takes, {} fallbacks: {} and {} are as the baseline's rules say.",
        there.own.recorded, all.recorded, there.own.same, all.same
    );
    Ok(FollowedPart { figure, series, claims, finding })
}

fn read(name: &str) -> Result<Recording, ReplayError> {
    let path = Path::new(name);
    let (ops, _) = replay::read_recording(path)?;
    let reader = replay::open(path)?;
    let kernel = reader.head().facts.kernel_release.clone();
    let mut recording = Recording {
        name: name.to_owned(),
        ops,
        requests: 0,
        fallbacks: FallbackTally::default(),
        decided: 0,
        as_ruled: 0,
        kernel: kernel.split('-').next().unwrap_or_default().to_owned(),
    };
    for event in reader {
        let event = event.map_err(|error| ReplayError::File { file: path.to_owned(), error })?;
        match event.change {
            PageChange::Alloc { .. } => recording.requests += 1,
            PageChange::Fallback { order, fallback_order, wanted, found, claimed, .. } => {
                let (Some(wanted), Some(found)) = (mobility_of(wanted), mobility_of(found)) else {
                    continue;
                };
                recording.fallbacks.count(wanted, found, claimed, fallback_order);
                let ruled = if fallback_order >= PAGEBLOCK_ORDER {
                    Some(true)
                } else if wanted == Mobility::Movable
                    && fallback_order.k() < PAGEBLOCK_ORDER.k() / 2
                    && order <= fallback_order
                {
                    Some(false)
                } else {
                    None
                };
                recording.decided += u64::from(ruled.is_some());
                recording.as_ruled += u64::from(ruled == Some(claimed));
            }
            _ => {}
        }
    }
    Ok(recording)
}

/// The baseline's fallbacks since the recording began.
fn since(track: &Track) -> FallbackTally {
    let mut tally = track.tally.unwrap_or_default();
    let before = track.tally_before.unwrap_or_default();
    let counts = tally.counts.iter_mut().flatten().flatten();
    for (now, before) in counts.zip(before.counts.iter().flatten().flatten()) {
        *now -= before;
    }
    for (now, before) in tally.block_orders.iter_mut().zip(before.block_orders) {
        *now -= before;
    }
    tally
}

/// Requests of the load, which ended before the first look at the recording.
fn requests_before(track: &Track) -> u64 {
    track.looks.first().map_or(0, |look| look.counts.requests)
}

/// The mixture of fallbacks.
fn shares(design: &str, tally: &FallbackTally) -> Series {
    let total = tally.total().max(1) as f64;
    let mut points = Vec::new();
    for wanted in Mobility::ALL {
        for found in Mobility::ALL.into_iter().filter(|found| *found != wanted) {
            for (claimed, how) in ["taken", "claimed"].into_iter().enumerate() {
                let count = tally.counts[wanted as usize][found as usize][claimed];
                let short = |mobility| match mobility {
                    Mobility::Unmovable => "U",
                    Mobility::Movable => "M",
                    Mobility::Reclaimable => "R",
                };
                let category = format!("{}←{} {how}", short(wanted), short(found));
                points.push(Point::named(category, count as f64 / total));
            }
        }
    }
    Series::new("Fallbacks", "kind", "share", design, points)
}

/// How often requests fall back.
fn frequency(recording: &Recording, ours: &FallbackTally, requests: u64) -> Claim {
    let kernel = 1000.0 * recording.fallbacks.total() as f64 / recording.requests.max(1) as f64;
    let baseline = 1000.0 * ours.total() as f64 / requests.max(1) as f64;
    let says = format!("{}: fallbacks in a thousand requests, as recorded", recording.name);
    Claim::within("recorded mm_page_alloc_extfrag", &says, kernel, baseline, 5.0).with_cause(
        "The machines' free lists differ when the recording begins, and with them how often a \
         request finds its own lists empty.",
    )
}

fn finding<'a>(plan: &GreenPlan, recording: &Recording, of: &dyn Fn(usize) -> &'a Track) -> String {
    let designs: Vec<String> = plan
        .designs
        .iter()
        .enumerate()
        .map(|(nth, design)| {
            let track = of(nth);
            format!(
                "{} {} removable, c {:.2}",
                design.title(),
                track.end.removable_sections,
                track.c()
            )
        })
        .collect();
    format!(
        "{}, {} requests, of {} sections: {}.",
        recording.name,
        recording.requests,
        of(0).end.sections,
        designs.join("; ")
    )
}

//! Recordings of a real kernel's page events, on machines that a load has aged;
//! and the baseline's fallbacks beside the kernel's own.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_frame::Mobility;
use swath_frame::zone::linux::PAGEBLOCK_ORDER;
use swath_trace::pages::PageChange;

use crate::papers::green::followed::{Followed, followed, followed_claims};
use crate::papers::green::machine::allocator::{AllocatorName, FallbackTally};
use crate::papers::green::pages::recordings::{
    RecordingError, SHIPPED, open, read_recording, requests_bytes,
};
use crate::papers::green::pages::requests::{TimedOp, duration_us, mobility_of};
use crate::papers::green::setting::{DaemonPlan, Design, LoadRun};
use crate::papers::green::track::{
    LOOK_BYTES, LOOKS_A_MINUTE, Tail, Track, Trial, machine_bytes, track,
};
use crate::study::bounds::{Distinct, Forms, Repeats};
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, Selection, View, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Recordings of a real kernel on every allocator.
pub struct Recorded;

/// Recordings on designs that a load has aged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordedPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of loads with other random numbers on which each recording follows.
    pub repeats: Forms<Repeats>,
    /// The designs that are compared.
    pub designs: Forms<Distinct<Design>>,
    /// The recordings: files, or the names of those that come with the program.
    pub recordings: Distinct<String>,
    /// The load that ages the machine.
    pub load: LoadRun,
    /// The daemon of the designs with migration.
    pub daemon: DaemonPlan,
}

crate::plan!(RecordedPlan, check);

fn check(plan: &RecordedPlan) -> Result<(), Refused> {
    for minutes in [plan.load.minutes.full.get(), plan.load.minutes.quick.get()] {
        require(minutes >= 3, "load.minutes", || format!("{minutes} is less than 3"))?;
    }
    plan.load.check("load")
}

/// The measurements.
pub struct RecordedFound {
    recordings: Vec<Recording>,
    /// Every design under every recording.
    grid: Grid,
    /// The baseline's mixture of fallbacks under every recording.
    mixture: Grid,
    /// The rules of the kernel's own fallbacks, which depend on no seed.
    kernel: Grid,
    followed: Followed,
    sections: u64,
}

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

/// Bytes of the requests of the recordings that come with the program.
const RECORDINGS_BYTES: u64 = 256 << 20;

const RECORDING: &str = "recording";
const DESIGN: &str = "design";
const KIND: &str = "kind";

impl Study for Recorded {
    const KIND: &'static str = "green-replay";
    type Plan = RecordedPlan;
    type Found = RecordedFound;

    fn seeds(plan: &RecordedPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &RecordedPlan, run: &Run<'_>) -> Needs {
        let minutes = plan.load.minutes(run.quick);
        let tracks = bytes(&[
            plan.designs.of(run.quick).len() as u64,
            plan.repeats.of(run.quick).get(),
            plan.recordings.len() as u64,
        ]);
        let files = requests_bytes(plan.recordings.iter());
        Needs::small()
            .once("recordings", files.saturating_add(RECORDINGS_BYTES))
            .once("repeats", bytes(&[48, LOOK_BYTES, tracks]))
            .each("load.machine", machine_bytes(plan.load.machine.load().frames))
            .each("load.minutes", bytes(&[LOOK_BYTES, LOOKS_A_MINUTE, minutes]))
    }

    fn measure(plan: &RecordedPlan, run: &Run<'_>) -> Result<RecordedFound, StudyError> {
        measure(plan, run)
    }

    fn claims(plan: &RecordedPlan, run: &Run<'_>) -> Vec<Statement<RecordedFound>> {
        let mut claims = followed_claims(|found: &RecordedFound| found.followed.grid());
        let mut names: Vec<String> = SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
        let own = plan.recordings.iter().filter(|name| !names.contains(name));
        let own: Vec<String> = own.cloned().collect();
        names.extend(own);
        let designs = plan.designs.of(run.quick);
        claims.extend(names.iter().flat_map(|name| recording_claims(name, designs)));
        claims
    }

    fn show(plan: &RecordedPlan, run: &Run<'_>, found: &RecordedFound) -> Shown {
        let mut figures = bars(plan, run, found);
        figures.insert(2, mixtures(found));
        figures.push(found.followed.drawn().clone());
        let findings: Vec<String> =
            found.recordings.iter().map(|recording| finding(plan, run, found, recording)).collect();
        let finding = format!("{} {}", findings.join(" "), found.followed.finding());
        Shown { finding, figures, notes: notes(plan, run, found), host: None }
    }
}

fn measure(plan: &RecordedPlan, run: &Run<'_>) -> Result<RecordedFound, StudyError> {
    let study = || plan.about.study.clone();
    let fault =
        |error: RecordingError| StudyError::Machine { study: study(), what: error.to_string() };
    let recordings: Result<Vec<Recording>, _> =
        plan.recordings.iter().map(|name| read(name).map_err(fault)).collect();
    let recordings = recordings?;
    let designs = plan.designs.of(run.quick);
    let repeats = plan.repeats.of(run.quick).get();
    let (about, daemon, load) = (&plan.about, &plan.daemon, plan.load);
    let mut points = Vec::new();
    for recording in &recordings {
        for &design in designs {
            let trial = |repeat| (recording, Trial { about, daemon, load, design, repeat });
            points.extend((0..repeats).map(trial));
        }
    }
    let tracks = run.points(about, &points, |(recording, trial)| {
        let ops = &recording.ops;
        track(trial, run, Some(&Tail { ops, duration_us: duration_us(ops) }))
    })?;
    let sections = tracks.first().map_or(0, |track| track.end.sections);
    let seeds = usize::try_from(repeats).unwrap_or(usize::MAX);
    let mut grid = Grid::new(&[RECORDING, DESIGN], seeds);
    let mut mixture = Grid::new(&[RECORDING, KIND], seeds);
    let mut kernel = Grid::new(&[RECORDING], 0);
    let mut tracks = tracks.chunks(seeds);
    for recording in &recordings {
        for design in designs {
            let Some(own) = tracks.next() else { continue };
            let of = |track: &Track| [track.metrics(), recording.beside(track)].concat();
            let runs: Vec<Metrics> = own.iter().map(of).collect();
            grid.add(vec![recording.name.as_str().into(), design.title().into()], &runs);
            if *design == LINUX {
                add_mixture(&mut mixture, recording, own);
            }
        }
        let share = recording.as_ruled as f64 / recording.decided as f64;
        kernel.add(vec![recording.name.as_str().into()], &[metrics([("as_ruled", share)])]);
    }
    let followed = followed().map_err(|what| StudyError::Machine { study: study(), what })?;
    Ok(RecordedFound { recordings, grid, mixture, kernel, followed, sections })
}

/// The baseline.
const LINUX: Design = Design::plain(AllocatorName::Linux);

impl Recording {
    /// The baseline's fallbacks in a thousand requests, beside the kernel's.
    fn beside(&self, track: &Track) -> Metrics {
        if track.tally.is_none() {
            return Metrics::new();
        }
        let before = track.looks.first().map_or(0, |look| look.counts.requests);
        let requests = (track.counts().requests - before).max(1);
        let own = 1000.0 * since(track).total() as f64 / requests as f64;
        let kernel = 1000.0 * self.fallbacks.total() as f64 / self.requests.max(1) as f64;
        metrics([("fallbacks_per_1000", own), ("fallbacks_beyond_kernel_per_1000", own - kernel)])
    }
}

fn read(name: &str) -> Result<Recording, RecordingError> {
    let path = Path::new(name);
    let (ops, _) = read_recording(path)?;
    let reader = open(path)?;
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
        let event = event.map_err(|error| RecordingError::File { file: path.to_owned(), error })?;
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

/// Kinds of fallbacks in words, with their share of all.
fn shares(tally: &FallbackTally) -> Vec<(String, f64)> {
    let total = tally.total().max(1) as f64;
    let short = |mobility| match mobility {
        Mobility::Unmovable => "U",
        Mobility::Movable => "M",
        Mobility::Reclaimable => "R",
    };
    let mut shares = Vec::new();
    for wanted in Mobility::ALL {
        for found in Mobility::ALL.into_iter().filter(|found| *found != wanted) {
            for (claimed, how) in ["taken", "claimed"].into_iter().enumerate() {
                let count = tally.counts[wanted as usize][found as usize][claimed];
                let kind = format!("{}←{} {how}", short(wanted), short(found));
                shares.push((kind, count as f64 / total));
            }
        }
    }
    shares
}

fn add_mixture(mixture: &mut Grid, recording: &Recording, tracks: &[Track]) {
    let of_runs: Vec<Vec<(String, f64)>> =
        tracks.iter().map(|track| shares(&since(track))).collect();
    let Some(first) = of_runs.first() else { return };
    for (nth, (kind, _)) in first.iter().enumerate() {
        let runs: Vec<Metrics> =
            of_runs.iter().map(|shares| metrics([("share", shares[nth].1)])).collect();
        mixture.add(vec![recording.name.as_str().into(), kind.as_str().into()], &runs);
    }
}

/// The kernel's and the baseline's fallbacks by kind.
fn mixtures(found: &RecordedFound) -> Drawn {
    let id = "Fallbacks";
    let title = "of the kernel and of the baseline";
    let x_label = "wanted from found, taken or claimed";
    let figure = Figure::new(id, title, FigureKind::Bars, x_label, "share of all fallbacks");
    let mut series = Vec::new();
    for recording in &found.recordings {
        let name = &recording.name;
        let design = format!("{name}: Linux {}", recording.kernel);
        let points = shares(&recording.fallbacks);
        series.push(Series::new(id, KIND, "share", &design, points));
        let points = found.mixture.points(
            KIND,
            |all| all.is(RECORDING, name.as_str()),
            |cell| cell.get("share"),
        );
        if !points.is_empty() {
            series.push(Series::new(id, KIND, "share", &format!("{name}: baseline"), points));
        }
    }
    let caption = "\"claimed\": the whole pageblock changed over.";
    Drawn { figure: figure.with_caption(caption), series }
}

fn bars(plan: &RecordedPlan, run: &Run<'_>, found: &RecordedFound) -> Vec<Drawn> {
    let figures = [
        ("Removable sections", "at the end", "share of all sections", "removable_share"),
        ("Free blocks", "at the end", "blocks", "free_blocks"),
        ("Resting", "on average while it runs", "c = resting / free", "c"),
    ];
    let metric_of = |y| match y {
        "removable_share" => "end_removable_share",
        "free_blocks" => "end_free_blocks",
        other => other,
    };
    let drawn = |(id, title, y_label, y)| {
        let figure = Figure::new(id, title, FigureKind::Bars, RECORDING, y_label);
        let of = |design: &Design| {
            let point = |recording: &Recording| -> Option<Point> {
                let evidence = found
                    .grid
                    .evidence(|view| cell(view, &recording.name, *design).one(metric_of(y)));
                Some(evidence.ok()?.point(recording.name.as_str()))
            };
            let points = found.recordings.iter().filter_map(point);
            Series::new(id, RECORDING, y, &design.title(), points)
        };
        let series = plan.designs.of(run.quick).iter().map(of).collect();
        Drawn { figure, series }
    };
    figures.into_iter().map(drawn).collect()
}

/// The cell of a design under a recording.
fn cell<'v>(view: &'v View<'_>, recording: &str, design: Design) -> Selection<'v> {
    view.select().is(RECORDING, recording).is(DESIGN, design.title())
}

fn finding(
    plan: &RecordedPlan,
    run: &Run<'_>,
    found: &RecordedFound,
    recording: &Recording,
) -> String {
    let mean = |design: Design, metric: &str| {
        let of = |view: &View<'_>| cell(view, &recording.name, design).one(metric);
        Some(found.grid.evidence(of).ok()?.estimate().value)
    };
    let of = |design: &Design| {
        let (removable, c) = (mean(*design, "end_removable_share")?, mean(*design, "c")?);
        Some(format!("{} {:.0}% removable, c {c:.2}", design.title(), 100.0 * removable))
    };
    let designs: Vec<String> = plan.designs.of(run.quick).iter().filter_map(of).collect();
    format!(
        "{}, {} requests, of {} sections: {}.",
        recording.name,
        recording.requests,
        found.sections,
        designs.join("; ")
    )
}

fn notes(plan: &RecordedPlan, run: &Run<'_>, found: &RecordedFound) -> Vec<String> {
    let mut notes = vec![format!(
        "The machine is aged by the synthetic load {} for {} simulated minutes, with each of {} \
         seeds. A recording begins when the load has ended; its memory stays in use. Looks and \
         averages are those of the recording's time.",
        plan.load.title(),
        plan.load.minutes(run.quick),
        plan.repeats.of(run.quick),
    )];
    for recording in &found.recordings {
        notes.push(format!(
            "{}: {} fallbacks of the kernel; for {} of them its rules leave one outcome.",
            recording.name,
            recording.fallbacks.total(),
            recording.decided
        ));
    }
    notes.push(
        "The baseline's fallbacks are not the kernel's one by one: the recorded machine had \
         another history, and its free lists when the recording began are not known; it reclaims \
         and compacts, and memory that others than the recorded processes took is not replayed. \
         What can be compared is the rule and the mixture."
            .to_owned(),
    );
    notes
}

/// The statements on a recording: none is a figure of the paper. Fallbacks
/// happen up to some dozens of times in a thousand requests: within 5.
fn recording_claims(name: &str, designs: &[Design]) -> Vec<Statement<RecordedFound>> {
    let (place, own) = ("recorded mm_page_alloc_extfrag", name.to_owned());
    let says = format!("Beyond: {name}: fallbacks in a thousand requests that were not recorded");
    let frequency = Statement::within(place, &says, 0.0, 5.0).cause(
        "The machines' free lists differ when the recording begins, and with them how often a \
         request finds its own lists empty.",
    );
    let recording = own.clone();
    let frequency = frequency.measured(move |found: &RecordedFound| {
        let metric = "fallbacks_beyond_kernel_per_1000";
        found.grid.evidence(|view| cell(view, &recording, LINUX).one(metric))
    });
    let says = format!(
        "Beyond: {name}: where Linux's rules leave one outcome, the kernel's fallbacks claim the pageblock \
         or not as the baseline's rules say"
    );
    let recording = own.clone();
    let rules = Statement::at_least(place, &says, 1.0, 0.0).unit(Unit::Share);
    let rules = rules.measured(move |found: &RecordedFound| {
        let of = |view: &View<'_>| view.select().is(RECORDING, recording.as_str()).one("as_ruled");
        found.kernel.evidence(of)
    });
    let titles: Vec<String> = designs.iter().map(|design| design.title()).collect();
    let says = format!(
        "Beyond: {name}: no request fails on any of {} allocators ({})",
        titles.len(),
        titles.join("; ")
    );
    let failed = Statement::exactly("recorded requests", &says, 0.0);
    let failed = failed.measured(move |found: &RecordedFound| {
        found.grid.evidence(|view| {
            let cells = view.select().is(RECORDING, own.as_str()).all(DESIGN, titles.clone());
            Ok(cells.numbers("failed")?.iter().sum())
        })
    });
    // The recording of a compilation has no fallback at all.
    if name == "compile" { vec![frequency, failed] } else { vec![frequency, rules, failed] }
}

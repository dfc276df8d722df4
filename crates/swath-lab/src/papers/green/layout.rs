//! Which sections are in use, and which by the kernel, on a machine that has
//! run for a while (Fig. 1, 2 and 7).

use swath_frame::machine::UnitState;

use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::plan::{GreenPlan, GreenRun, LoadName};
use crate::papers::green::track;
use crate::papers::green::track::{Sections, Track, Tracks, find};
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

type Rows = [(GreenRun, Tracks)];

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &GreenPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let rows = track::track_all(plan, run)?;
    let (mut figures, mut series) = (Vec::new(), Vec::new());
    let (mut claims, mut findings) = (Vec::new(), Vec::new());
    for (nth, (row, tracks)) in rows.iter().enumerate() {
        // The first has the paper's names.
        let named = |name: &str| match nth {
            0 => name.to_owned(),
            _ => format!("{name}, {}", row.title()),
        };
        let occupancy = named("Fig. 1");
        let kernel = named("Fig. 2 and 7");
        let x_label = format!("section of 128 MiB, {}", row.title());
        let used = (tracks.first()).map_or(0.0, |(_, track)| 1.0 - track.free_share_at_lowest());
        let map = |id: &str, title: &str, y_label: &str| Figure {
            y_range: Some((0.0, 1.0)),
            caption: format!(
                "At the moment of the second half at which the least memory is in use: {:.0}%.",
                100.0 * used
            ),
            ..Figure::new(id, title, FigureKind::Map, &x_label, y_label)
        };
        figures.push(map(&occupancy, "Frames in use by section", "share of frames in use"));
        figures.push(map(&kernel, "Sections with a kernel frame", "holds unmovable memory"));
        for (design, track) in tracks {
            let share = |state: &UnitState| 1.0 - state.free as f64 / state.present as f64;
            let points = track.cells(share);
            series.push(Series::new(&occupancy, "section", "used_share", &design.title(), points));
            let points = track.cells(|state| f64::from(u8::from(state.unmovable > 0)));
            series.push(Series::new(&kernel, "section", "has_kernel", &design.title(), points));
        }
        claims.extend(judge(*row, tracks, &rows));
        findings.extend(finding(*row, tracks));
    }
    let finding = format!("{} {}", plan.about.purpose, findings.join(" "));
    let notes = track::notes(plan, run);
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes,
            ..run::result(&plan.about, plan, run, finding.trim().to_owned())
        },
        host: None,
    })
}

impl Track {
    fn free_share_at_lowest(&self) -> f64 {
        self.lowest.look.free_frames as f64 / self.lowest.look.total_frames as f64
    }

    /// The sections that have frames, each at its number.
    fn cells(&self, of: impl Fn(&UnitState) -> f64) -> Vec<Point> {
        let states = self.lowest.states.iter().enumerate();
        let present = states.filter(|(_, state)| state.present > 0);
        present.map(|(section, state)| Point::at(section as f64, of(state))).collect()
    }

    /// Of the sections with kernel memory, the share that stands side by side
    /// from the first section of a zone on.
    fn kernel_in_rows(&self) -> f64 {
        let Sections { look, states, zone_starts } = &self.lowest;
        let ends = zone_starts.iter().skip(1).copied().chain([states.len()]);
        let rows = zone_starts.iter().zip(ends).map(|(&start, end)| &states[start..end]);
        let in_row = |row: &[UnitState]| row.iter().take_while(|s| s.unmovable > 0).count();
        rows.map(in_row).sum::<usize>() as f64 / look.kernel_sections.max(1) as f64
    }

    /// The share of sections that are wholly free.
    fn whole_share(&self) -> f64 {
        let Sections { look, states, .. } = &self.lowest;
        let whole = states.iter().filter(|s| s.present > 0 && s.free == s.present);
        whole.count() as f64 / look.sections as f64
    }

    /// The share of sections with kernel memory.
    fn kernel_share(&self) -> f64 {
        self.lowest.look.kernel_sections as f64 / self.lowest.look.sections as f64
    }
}

fn finding(row: GreenRun, tracks: &Tracks) -> Option<String> {
    let linux = find(tracks, AllocatorName::Linux, false)?;
    let parts: Vec<String> = tracks
        .iter()
        .map(|(design, track)| {
            let look = &track.lowest.look;
            format!("{} {} and {}", design.title(), look.kernel_sections, look.resting_banks)
        })
        .collect();
    Some(format!(
        "{}, {:.0}% in use, of {} sections so many hold kernel memory and of {} banks so many \
         are wholly free: {}.",
        row.title(),
        100.0 * (1.0 - linux.free_share_at_lowest()),
        linux.lowest.look.sections,
        linux.lowest.look.banks,
        parts.join("; ")
    ))
}

/// What Linux shows under the loads that never filled this machine's memory.
fn unfilled(row: GreenRun, rows: &Rows, of: impl Fn(&Track) -> f64) -> String {
    let others = rows
        .iter()
        .filter(|(other, _)| other.machine == row.machine && other.load != LoadName::Filled);
    let shares = others.filter_map(|(other, tracks)| {
        let track = find(tracks, AllocatorName::Linux, false)?;
        let share = 100.0 * of(track);
        Some(format!(
            " Under the {} load, which never fills memory, it is {share:.0}%.",
            other.load.title()
        ))
    });
    shares.collect()
}

/// The paper's figures are of a machine that has been up for long, after file
/// benchmarks; other loads only vary them.
fn judge(row: GreenRun, tracks: &Tracks, rows: &Rows) -> Vec<Claim> {
    let mut claims = Vec::new();
    if row.load != LoadName::Filled {
        return claims;
    }
    let at = |figure: &str| format!("{figure} ({})", row.title());
    let mut push = |claim: Claim, cause: &str| {
        claims.push(claim.with_unit(Unit::Share).with_cause(cause));
    };
    if let Some(linux) = find(tracks, AllocatorName::Linux, false) {
        let says = "Linux: no section is wholly free although most memory is";
        let claim = Claim::at_most(&at("Fig. 1"), says, 0.0, linux.whole_share(), 0.1);
        push(claim, &unfilled(row, rows, Track::whole_share));
        let (says, paper) =
            ("Linux: more than 170 of 256 sections hold kernel memory", 170.0 / 256.0);
        let claim = Claim::at_least(&at("Fig. 2"), says, paper, linux.kernel_share(), 0.1);
        push(claim, &unfilled(row, rows, Track::kernel_share));
    }
    if let Some(adaptive) = find(tracks, AllocatorName::Adaptive, false) {
        let says = "Adaptive-Buddy: kernel memory is in contiguous sections from the first of \
                    each zone on";
        let claim = Claim::at_least(&at("Fig. 7"), says, 1.0, adaptive.kernel_in_rows(), 0.1);
        push(
            claim,
            "Where the peak fills a zone, the kernel takes the emptiest bank of POOL_USER, \
             wherever that lies, and keeps it.",
        );
    }
    claims
}

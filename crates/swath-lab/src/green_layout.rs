//! Which sections are in use, and which by the kernel, on a machine that has
//! run for a while (Fig. 1, 2 and 7).

use swath_frame::usage::UnitState;

use crate::green_allocator::AllocatorName;
use crate::green_track::{self, Track, Tracks, find};
use crate::plan_green::{GreenPlan, GreenRun};
use crate::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::{self, Outcome, Run, StudyError};

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &GreenPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let rows = green_track::track_all(plan, run)?;
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
        claims.extend(judge(*row, tracks));
        findings.extend(finding(*row, tracks));
    }
    let finding = format!("{} {}", plan.about.purpose, findings.join(" "));
    let notes = green_track::notes(plan, run);
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes,
            ..study::result(&plan.about, plan, run, finding.trim().to_owned())
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
        present.map(|(section, state)| Point::At(section as f64, of(state))).collect()
    }

    /// Of the sections with kernel memory, the share that stands side by side
    /// from the first section of a zone on. Sections below 4 GiB are one row,
    /// those above, by node, others.
    fn kernel_in_rows(&self, nodes: usize) -> f64 {
        let states = &self.lowest.states;
        let high = 32;
        let per_node = (states.len() - high.min(states.len())).div_ceil(nodes).max(1);
        let mut rows: Vec<&[UnitState]> = vec![&states[..high.min(states.len())]];
        rows.extend(states[high.min(states.len())..].chunks(per_node));
        let in_row = |row: &[UnitState]| row.iter().take_while(|s| s.unmovable > 0).count();
        let in_rows: usize = rows.into_iter().map(in_row).sum();
        in_rows as f64 / self.lowest.look.kernel_sections.max(1) as f64
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

fn judge(row: GreenRun, tracks: &Tracks) -> Vec<Claim> {
    let mut claims = Vec::new();
    let at = |figure: &str| format!("{figure} ({})", row.title());
    if let Some(linux) = find(tracks, AllocatorName::Linux, false) {
        let look = &linux.lowest.look;
        let wholly = linux.lowest.states.iter().filter(|s| s.present > 0 && s.free == s.present);
        let share = wholly.count() as f64 / look.sections as f64;
        claims.push(
            Claim::at_most(
                &at("Fig. 1"),
                "Linux: no section is wholly free although most memory is",
                0.0,
                share,
                0.1,
            )
            .with_unit(Unit::Share)
            .with_cause(
                "The load's peak has touched most sections; what is freed at once by large exits \
                 leaves some of them wholly free, which weeks of uptime would not.",
            ),
        );
        claims.push(
            Claim::at_least(
                &at("Fig. 2"),
                "Linux: more than 170 of 256 sections hold kernel memory",
                170.0 / 256.0,
                look.kernel_sections as f64 / look.sections as f64,
                0.1,
            )
            .with_unit(Unit::Share)
            .with_cause(
                "Linux 6.18 keeps mobilities apart by pageblock and claims whole ones; the \
                 load's unmovable memory is 1/64 of all and short runs spread it less than file \
                 benchmarks did.",
            ),
        );
    }
    if let Some(adaptive) = find(tracks, AllocatorName::Adaptive, false) {
        let nodes = usize::from(row.machine.load().nodes);
        claims.push(
            Claim::at_least(
                &at("Fig. 7"),
                "Adaptive-Buddy: kernel memory is in contiguous sections from the first of each \
                 zone on",
                1.0,
                adaptive.kernel_in_rows(nodes),
                0.1,
            )
            .with_unit(Unit::Share)
            .with_cause(
                "Where the peak fills a zone, the kernel takes the emptiest bank of POOL_USER, \
                 wherever that lies, and keeps it.",
            ),
        );
    }
    claims
}

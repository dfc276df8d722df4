//! Every design under every load with every repeat: the grid of their numbers,
//! their course over time, and what the studies say of both alike.

use crate::film::Film;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::config::{Interleaved, MachineName};
use crate::papers::green::machine::view::Look;
use crate::papers::green::reel;
use crate::papers::green::setting::{Design, GreenPlan, LoadName, LoadRun, PAPER_BANK_MIB, ways};
use crate::papers::green::track::{LOOK_BYTES, LOOKS_A_MINUTE, Track, Trial, machine_bytes, track};
use crate::study::claim::Conditions;
use crate::study::grid::{Grid, Metrics, Missing, Selection, Value, View};
use crate::study::kind::Drawn;
use crate::study::needs::{Needs, bytes};
use crate::study::results::{Figure, Point, Series};
use crate::study::run::{Run, StudyError};

/// The most points of a line over time.
const POINTS_MAX: usize = 60;

/// Minutes of the load's longest course: boot, a rise and a fall of the footprint.
const COURSE_MINUTES: u64 = 40;

pub(crate) const MACHINE: &str = "machine";
pub(crate) const LOAD: &str = "load";
pub(crate) const INTERLEAVING: &str = "interleaving";
pub(crate) const BANK: &str = "bank_mib";
pub(crate) const DESIGN: &str = "design";
const MINUTES: &str = "time_minutes";

/// The numbers of designs under loads.
pub struct Compared {
    /// The loads of this form.
    pub(crate) loads: Vec<LoadRun>,
    /// The designs of this form.
    pub(crate) designs: Vec<Design>,
    /// Every design under every load.
    pub(crate) grid: Grid,
    /// The same over time, a grid for each load.
    courses: Vec<Grid>,
    /// The first repeat of each design under each load, loads first.
    first: Vec<Track>,
}

/// A number over time: its name, and its value at a look.
pub(crate) type OverTime = (&'static str, fn(&Look) -> f64);

/// Numbers of a track beside its own, given the baseline's under the same load.
pub(crate) type Beside<'a> = &'a (dyn Fn(&LoadRun, &Track, Option<&Track>) -> Metrics + Sync);

/// No numbers beside a track's own.
pub(crate) fn nothing(_: &LoadRun, _: &Track, _: Option<&Track>) -> Metrics {
    Metrics::new()
}

/// The baseline.
const LINUX: Design = Design::plain(AllocatorName::Linux);

/// Runs every design under every load, each repeat with other random numbers.
///
/// # Errors
/// [`StudyError`].
pub(crate) fn compare(
    plan: &GreenPlan,
    run: &Run<'_>,
    over_time: &[OverTime],
    beside: Beside<'_>,
) -> Result<Compared, StudyError> {
    let loads = plan.runs(run.quick);
    let designs = plan.designs.of(run.quick).to_vec();
    let repeats = plan.repeats.of(run.quick).get();
    let (about, daemon) = (&plan.about, &plan.daemon);
    // Repeats outermost: a run that is stopped has all designs of the first ones in its journal.
    let mut trials = Vec::new();
    for repeat in 0..repeats {
        for &load in &loads {
            trials.extend(designs.iter().map(|&design| Trial {
                about,
                daemon,
                load,
                design,
                repeat,
            }));
        }
    }
    let one = |trial: &Trial<'_>| {
        run.shared.get_or_measure(&trial.key(run.quick), || track(trial, run, None))
    };
    let points = loads.len() * designs.len();
    let mut tracks: Vec<Vec<Track>> = (0..points).map(|_| Vec::new()).collect();
    for (nth, track) in run.points(about, &trials, one)?.into_iter().enumerate() {
        tracks[nth % points].push(track);
    }
    let mut tracks = tracks.into_iter();
    let mut grid = Grid::new(&[MACHINE, LOAD, INTERLEAVING, BANK, DESIGN], plan_seeds(repeats));
    let (mut courses, mut first) = (Vec::new(), Vec::new());
    for load in &loads {
        let of_load: Vec<Vec<Track>> = tracks.by_ref().take(designs.len()).collect();
        let baseline = designs.iter().position(|design| *design == LINUX);
        let mut course = Grid::new(&[DESIGN, MINUTES], plan_seeds(repeats));
        for (design, tracks) in designs.iter().zip(&of_load) {
            let metrics = tracks.iter().enumerate().map(|(repeat, track)| {
                let linux = baseline.map(|nth| &of_load[nth][repeat]);
                [track.metrics(), beside(load, track, linux)].concat()
            });
            let at = [place_of(load), vec![design.title().into()]].concat();
            grid.add(at, &metrics.collect::<Vec<_>>());
            add_course(&mut course, *design, tracks, over_time);
        }
        courses.push(course);
        first.extend(of_load.into_iter().filter_map(|tracks| tracks.into_iter().next()));
    }
    Ok(Compared { loads, designs, grid, courses, first })
}

/// The memory that the comparison takes: a machine for each point, and what was seen of all.
pub(crate) fn needs(plan: &GreenPlan, run: &Run<'_>) -> Needs {
    let runs = plan.runs(run.quick);
    let looks = runs.iter().map(|row| row.minutes(run.quick) * LOOKS_A_MINUTE);
    let looks = looks.fold(0, u64::saturating_add);
    let tracks = plan.designs.of(run.quick).len() as u64 * plan.repeats.of(run.quick).get();
    let nth = (0..runs.len()).max_by_key(|&nth| runs[nth].machine.load().frames).unwrap_or(0);
    let frames = runs.get(nth).map_or(0, |row| row.machine.load().frames);
    Needs::small()
        .once("runs.0.minutes", bytes(&[LOOK_BYTES, looks, tracks]))
        .each(&format!("runs.{nth}.machine"), machine_bytes(frames))
}

fn plan_seeds(repeats: u64) -> usize {
    usize::try_from(repeats).unwrap_or(usize::MAX)
}

/// The coordinates of a load, without the design's.
pub(crate) fn place_of(load: &LoadRun) -> Vec<Value> {
    let LoadRun { machine, load, interleaving, bank_mib, .. } = load;
    let bank = bank_mib.get().into();
    vec![machine.title().into(), load.title().into(), interleaving.title().into(), bank]
}

/// A cell for each of the moments at which the line of a design has a point.
fn add_course(course: &mut Grid, design: Design, tracks: &[Track], over_time: &[OverTime]) {
    let looks = tracks.iter().map(|track| track.looks.len()).min().unwrap_or(0);
    if over_time.is_empty() {
        return;
    }
    for nth in (0..looks).step_by(looks.div_ceil(POINTS_MAX).max(1)) {
        let time_us = tracks[0].looks[nth].time_us;
        // The end of a run is a look of its own, where the last was at the same time.
        if nth > 0 && tracks[0].looks[nth - 1].time_us == time_us {
            continue;
        }
        let minutes = time_us as f64 / 60e6;
        let of = |track: &Track| {
            let value = |&(name, of): &OverTime| (name.to_owned(), of(&track.looks[nth]));
            over_time.iter().map(value).collect()
        };
        let metrics: Vec<Metrics> = tracks.iter().map(of).collect();
        course.add(vec![design.title().into(), minutes.into()], &metrics);
    }
}

impl Compared {
    /// The first repeat of every design under a load.
    pub(crate) fn first(&self, load: &LoadRun) -> impl Iterator<Item = (Design, &Track)> {
        let nth = self.loads.iter().position(|other| other == load).unwrap_or(self.loads.len());
        let tracks = self.first.iter().skip(nth * self.designs.len());
        self.designs.iter().copied().zip(tracks)
    }

    /// Memory over time under the first load: the first of the designs beside the last.
    pub(crate) fn film(&self) -> Option<Film> {
        let load = self.loads.first()?;
        let all: Vec<(Design, &Track)> = self.first(load).collect();
        let (first, last) = (all.first()?, all.last()?);
        let shown = if all.len() == 1 { vec![first] } else { vec![first, last] };
        let shown: Vec<_> =
            shown.iter().map(|(design, track)| (design.title(), &track.maps)).collect();
        reel::film(&load.title(), &shown)
    }

    /// Lines over time of a design under a load, as points with their spread.
    pub(crate) fn over_time(
        &self,
        load: &LoadRun,
        design: Design,
        metric: &'static str,
    ) -> Vec<Point> {
        let courses = self.loads.iter().zip(&self.courses);
        let mut course = courses.filter(|(other, _)| *other == load).map(|(_, course)| course);
        course.next().map_or_else(Vec::new, |course| {
            course.points(MINUTES, |all| all.is(DESIGN, design.title()), |cell| cell.get(metric))
        })
    }

    /// A figure with a group of bars for each load, a bar for each design.
    pub(crate) fn bars(&self, figure: Figure, y: &str, metric: &'static str) -> Drawn {
        let of = |design: &Design| {
            let point = |load: &LoadRun| {
                let of = |view: &View<'_>| under(view, load).is(DESIGN, design.title()).one(metric);
                Some(self.grid.evidence(of).ok()?.point(load.title()))
            };
            let points = self.loads.iter().filter_map(point);
            Series::new(&figure.id, "load", y, &design.title(), points)
        };
        let series = self.designs.iter().map(of).collect();
        Drawn { figure, series }
    }

    /// The mean of a metric over the repeats of a design under a load.
    pub(crate) fn mean(&self, load: &LoadRun, design: Design, metric: &str) -> Option<f64> {
        let of = |view: &View<'_>| under(view, load).is(DESIGN, design.title()).one(metric);
        Some(self.grid.evidence(of).ok()?.estimate().value)
    }

    /// The metrics of a design under a load as text, in the order of `of`, by
    /// `text`; nothing if one is missing.
    pub(crate) fn sentence(
        &self,
        load: &LoadRun,
        metrics: &[&str],
        text: impl Fn(&str, &[f64]) -> String,
    ) -> Vec<String> {
        let of = |design: &Design| {
            let values: Option<Vec<f64>> =
                metrics.iter().map(|metric| self.mean(load, *design, metric)).collect();
            Some(text(&design.title(), &values?))
        };
        self.designs.iter().filter_map(of).collect()
    }
}

/// The cells of a load.
pub(crate) fn under<'v>(view: &'v View<'_>, load: &LoadRun) -> Selection<'v> {
    let axes = [MACHINE, LOAD, INTERLEAVING, BANK];
    let places = axes.into_iter().zip(place_of(load));
    places.fold(view.select(), |cells, (axis, value)| cells.is(axis, value))
}

/// A machine and load for which the paper states a figure, with its banks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stated {
    pub(crate) machine: MachineName,
    pub(crate) load: LoadName,
    pub(crate) interleaving: Interleaved,
}

impl Stated {
    pub(crate) const fn new(machine: MachineName, load: LoadName) -> Self {
        Self { machine, load, interleaving: Interleaved::None }
    }

    /// Its name, as in figures.
    pub(crate) fn title(self) -> String {
        format!("{}, {}{}", self.machine.title(), self.load.title(), ways(self.interleaving))
    }

    /// Its cells: each axis must have the value that the paper states.
    pub(crate) fn cells<'v>(self, view: &'v View<'_>) -> Selection<'v> {
        view.select()
            .is(MACHINE, self.machine.title())
            .is(LOAD, self.load.title())
            .is(INTERLEAVING, self.interleaving.title())
            .is(BANK, PAPER_BANK_MIB)
    }

    /// The load's course as a condition: a run that ends before the footprint
    /// has risen and fallen says nothing of averages and extremes.
    pub(crate) fn conditions(self, plan: &GreenPlan, quick: bool) -> Conditions {
        let runs = plan.runs(quick);
        let mut own = runs.iter().filter(|run| {
            (run.machine, run.load, run.interleaving)
                == (self.machine, self.load, self.interleaving)
                && run.bank_mib.get() == PAPER_BANK_MIB
        });
        let short = own.find(|run| run.minutes(quick) < COURSE_MINUTES);
        Conditions::new().met(
            short.is_none(),
            &format!(
                "{} simulated minutes here; the load's footprint takes {COURSE_MINUTES} to rise \
                 and fall, and the paper's loads run for hours",
                short.map_or(0, |run| run.minutes(quick)),
            ),
        )
    }
}

/// The value of a metric of the only cell of a design.
pub(crate) fn of_design(
    cells: Selection<'_>,
    design: Design,
    metric: &str,
) -> Result<f64, Missing> {
    cells.is(DESIGN, design.title()).one(metric)
}

/// Facts that a reader must know of every such study.
pub(crate) fn notes(plan: &GreenPlan, run: &Run<'_>) -> Vec<String> {
    let named = |row: &LoadRun| {
        let system = match row.system_mib.get() {
            0 => String::new(),
            mib => format!(", beside {mib} MiB of the system's"),
        };
        format!("{} for {} minutes{system}", row.title(), row.minutes(run.quick))
    };
    let rows: Vec<String> = plan.runs(run.quick).iter().map(named).collect();
    let repeats = plan.repeats.of(run.quick);
    let mut notes = vec![format!(
        "Synthetic load, in simulated time, each with {repeats} seeds: {}. The first minute is boot \
         and is not counted. Each design gets the same requests. Numbers are means over the seeds \
         of the number of each run.",
        rows.join("; ")
    )];
    if run.quick {
        let all = plan
            .designs
            .full
            .iter()
            .filter(|design| !plan.designs.quick.iter().any(|quick| quick == *design));
        let left_out: Vec<String> = all.map(|design| design.title()).collect();
        let without = match left_out.as_slice() {
            [] => String::new(),
            _ => format!(" and without {}", left_out.join(", ")),
        };
        notes.push(format!(
            "This is a quick run: shorter, without the larger machines{without}. The full run is \
             requested by name or with --full."
        ));
    }
    notes.push(
        "A bank rests if it is in POOL_OFFLINE. Designs without pools are favoured: a bank of \
         theirs rests as soon as it happens to be wholly free, although they do not know it, or \
         while hotplug has taken it offline. Banks that cross zones or have holes never rest."
            .to_owned(),
    );
    notes
}

#[cfg(test)]
impl Compared {
    /// The numbers of a test, by design, under a load with the paper's banks.
    pub(crate) fn of(stated: Stated, designs: &[Design], metric: &str, values: &[f64]) -> Self {
        let axes = [MACHINE, LOAD, INTERLEAVING, BANK, DESIGN];
        let mut grid = Grid::new(&axes, values.len());
        let runs: Vec<Metrics> =
            values.iter().map(|&value| vec![(metric.to_owned(), value)]).collect();
        for design in designs {
            let at = vec![
                stated.machine.title().into(),
                stated.load.title().into(),
                stated.interleaving.title().into(),
                PAPER_BANK_MIB.into(),
                design.title().into(),
            ];
            grid.add(at, &runs);
        }
        Self {
            loads: Vec::new(),
            designs: designs.to_vec(),
            grid,
            courses: Vec::new(),
            first: Vec::new(),
        }
    }
}

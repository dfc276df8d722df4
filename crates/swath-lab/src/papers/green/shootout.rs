//! Allocators side by side over several seeds: where each has left the machine at the end of a replay, with
//! intervals, and a figure of it.

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use swath_trace::output;

use crate::host::count::CountError;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::replay::{self, ReplayError, ReplayOptions, ReplayRow, RequestSource};
use crate::report::error::ReportError;
use crate::report::figure::{FigureError, draw, stand_alone};
use crate::report::palette::Palette;
use crate::study::estimate::Estimate;
use crate::study::results::{Figure, FigureKind, Point, Series, Spread};

/// A number of an allocator at the end: its name, whether it is a share, and so in the figure, and how it
/// follows from the last row; `None` where that is a share of nothing.
struct Measure {
    name: &'static str,
    is_share: bool,
    of: fn(&ReplayRow) -> Option<f64>,
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole != 0).then(|| part as f64 / whole as f64)
}

/// Of the requests for 2 MiB and more, the share that got one block.
fn in_one(row: &ReplayRow) -> Option<f64> {
    ratio(row.look.counts.huge_served, row.look.counts.huge_requests)
}

const fn share(name: &'static str, of: fn(&ReplayRow) -> Option<f64>) -> Measure {
    Measure { name, is_share: true, of }
}

const fn count(name: &'static str, of: fn(&ReplayRow) -> Option<f64>) -> Measure {
    Measure { name, is_share: false, of }
}

const MEASURES: [Measure; 10] = [
    // Of the places for pages that free memory has room for, those that are there.
    share("2 MiB of room", |row| row.huge.share_of(row.look.free_frames)),
    share("1 GiB of room", |row| row.gigantic.share_of(row.look.free_frames)),
    share("2 MiB blocked", |row| ratio(row.huge.blocked, row.huge.places)),
    share("1 GiB blocked", |row| ratio(row.gigantic.blocked, row.gigantic.places)),
    share("2 MiB in one", in_one),
    share("resting", |row| Some(row.look.resting_share())),
    count("moved MiB", |row| Some(row.look.moved_frames as f64 / 256.0)),
    count("dropped MiB", |row| Some(row.look.counts.dropped_frames as f64 / 256.0)),
    count("stalls", |row| Some(row.stalls() as f64)),
    count("failed", |row| Some(row.look.counts.failed as f64)),
];

/// An allocator's numbers over the seeds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Contestant {
    /// The allocator.
    pub allocator: AllocatorName,
    /// Names of numbers, and their means with 95% intervals over the seeds that have them; `None` of a share of
    /// nothing, as of requests that never came.
    pub measures: Vec<(&'static str, Option<Estimate>)>,
    /// Number of seeds.
    pub seeds: u64,
    /// Instructions of the machine's allocator for each request that was taken and what was given back, in the
    /// first seed's replay, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<f64>,
}

/// Counts the instructions of an allocator's calls in the replay of the first seed.
pub type CountInstructions<'a> = &'a (dyn Fn(AllocatorName) -> Result<u64, CountError> + Sync);

/// Replays with as many seeds, from the options' own on, and returns the allocators' numbers.
/// `go_on` is called at each row of each, from several threads, and ends the run by `false`. With `count` the
/// allocators' instructions are counted, too, one after the other.
///
/// # Errors
/// A [`ReplayError`].
pub fn shoot_out(
    options: &ReplayOptions,
    seeds: u64,
    count: Option<CountInstructions<'_>>,
    go_on: &(dyn Fn(AllocatorName) -> bool + Sync),
) -> Result<Vec<Contestant>, ReplayError> {
    let draws = options.start.is_some() || matches!(options.source, RequestSource::Load(..));
    if seeds > 1 && !draws {
        return Err(ReplayError::Seeds);
    }
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            if nth >= seeds {
                return;
            }
            let seed = options.seed.wrapping_add(nth);
            let options = ReplayOptions { seed, rows: 1, film: false, ..options.clone() };
            let tables = replay::run(&options, &mut |allocator| go_on(allocator));
            if tables.is_err() {
                next.store(seeds, Ordering::Relaxed);
            }
            if let Ok(mut found) = found.lock() {
                found.push((nth, tables));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    std::thread::scope(|scope| {
        for _ in 1..threads.min(seeds) {
            // Without a further thread the seeds take longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(nth, _)| *nth);
    let runs: Result<Vec<_>, _> = found.into_iter().map(|(_, tables)| tables).collect();
    let runs = runs?;
    let contestant = |(nth, &allocator): (usize, &AllocatorName)| {
        let of = |measure: &Measure| {
            let last = runs.iter().filter_map(|tables| tables.get(nth)?.rows.last());
            let values: Vec<f64> = last.filter_map(measure.of).collect();
            (measure.name, (!values.is_empty()).then(|| Estimate::mean(&values)))
        };
        let instructions = count.map(|count| {
            let first = runs.first().and_then(|tables| tables.get(nth)?.rows.last());
            let requests = first.map_or(0, |row| row.look.counts.requests);
            count(allocator).map(|sum| sum as f64 / (requests as f64).max(1.0))
        });
        let instructions = instructions.transpose()?;
        let measures = MEASURES.iter().map(of).collect();
        Ok(Contestant { allocator, measures, seeds, instructions })
    };
    options.allocators.iter().enumerate().map(contestant).collect()
}

/// The table: a line for each allocator, means with half of their 95% intervals.
pub fn lines(contestants: &[Contestant]) -> Vec<String> {
    let seeds = contestants.first().map_or(0, |one| one.seeds);
    let head = MEASURES.iter().map(|measure| format!("{:>18}", measure.name)).collect::<String>();
    let counted = contestants.iter().any(|one| one.instructions.is_some());
    let tail = if counted { format!("{:>18}", "instructions") } else { String::new() };
    let mut lines = vec![format!("{:24}{head}{tail}", format!("{seeds} seeds, at the end"))];
    for one in contestants {
        let cell = |(measure, (_, estimate)): (&Measure, &(&str, Option<Estimate>))| {
            let Some(estimate) = estimate else { return format!("{:>18}", "-") };
            let (scale, places, unit) =
                if measure.is_share { (100.0, 1, "%") } else { (1.0, 0, "") };
            let (value, half) = (scale * estimate.value, scale * estimate.half_width());
            format!("{:>18}", format!("{value:.places$}{unit} ± {half:.places$}"))
        };
        let cells: String = MEASURES.iter().zip(&one.measures).map(cell).collect();
        let count = one.instructions.map_or_else(String::new, |count| format!("{count:>18.0}"));
        lines.push(format!("{:24}{cells}{count}", one.allocator.title()));
    }
    lines
}

/// Writes the numbers that are shares as a drawing, a bar for each allocator with its interval.
///
/// # Errors
/// [`ReportError::Figure`] if it cannot be drawn, [`ReportError::File`] if it cannot be written.
pub fn write(path: &Path, contestants: &[Contestant], title: &str) -> Result<(), ReportError> {
    let drawn = figure(contestants, title)
        .map_err(|source| ReportError::Figure { path: path.to_owned(), source })?;
    output::replace(path, |file| file.write_all(drawn.as_bytes()))
        .map_err(|source| ReportError::File { path: path.to_owned(), source })
}

fn figure(contestants: &[Contestant], title: &str) -> Result<String, FigureError> {
    let id = "Shoot-out";
    let figure =
        Figure::new(id, title, FigureKind::Bars, "at the end", "share").with_y_range(0.0, 1.0);
    let of = |one: &Contestant| {
        let shares = MEASURES.iter().zip(&one.measures).filter(|(measure, _)| measure.is_share);
        let points = shares.filter_map(|(measure, (_, estimate))| {
            let estimate = estimate.as_ref()?;
            Some(Point::named(measure.name, estimate.value).with_spread(Spread::of(estimate)))
        });
        Series::new(id, "measure", "share", one.allocator.title(), points)
    };
    let series: Vec<Series> = contestants.iter().map(of).collect();
    let palette = Palette::new(contestants.iter().map(|one| one.allocator.title()));
    Ok(stand_alone(&draw(&figure, &series, &palette)?))
}

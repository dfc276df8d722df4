//! The share of a program's memory that is referenced at a time (Panwar and
//! Gopinath, section III-B, Fig. 3), on recorded accesses.
//!
//! The paper samples page tables: in each 100 ms, which pages have their
//! reference bit set in the last 10 ms. Its program is facesim. One after facesim's public description
//! (`data/face`) ran with each of the paper's numbers of threads, and the pages that each thread referenced in its
//! windows were recorded. A thread's clock is its accesses, of which 100 ms have so many as the recorder says; where
//! threads wait for each other, their clocks are set to that of the last one.
//!
//! A program that is given instead has one thread, and periods in accesses. Of a recording that was thinned
//! out, the bursts that it holds whole are the windows.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::{HashSet, HashSetExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::PageRange;
use swath_trace::access::{Sampling, TraceError, TraceEvent, TraceItem, TraceReader};

use crate::source::real::Trace;
use crate::study::bounds::{Ascending, Bounded};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Value, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Pages that programs reference at a time.
pub struct WorkingSet;

/// Pages that programs reference in a window of each period.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkingSetPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Numbers of threads of the face, each of which a recording comes with the program for.
    pub threads: Ascending<Bounded<1, 1024>>,
    /// Accesses of a thread of the face in a period.
    pub period_accesses: Bounded<1, { 1 << 40 }>,
    /// Accesses at the end of a period whose pages are counted.
    pub window_accesses: Bounded<1, { 1 << 40 }>,
    /// Accesses of a period of a program that is given, if its recording holds every access.
    pub given_period_accesses: Bounded<1, { 1 << 40 }>,
    /// Accesses at the end of such a period whose pages are counted.
    pub given_window_accesses: Bounded<1, { 1 << 40 }>,
}

crate::plan!(WorkingSetPlan, check);

fn check(plan: &WorkingSetPlan) -> Result<(), Refused> {
    for (key, period, window) in [
        ("period_accesses", plan.period_accesses, plan.window_accesses),
        ("given_period_accesses", plan.given_period_accesses, plan.given_window_accesses),
    ] {
        let (period, window) = (period.get(), window.get());
        require(window <= period, key, || format!("{period} is less than a window"))?;
    }
    for (nth, threads) in plan.threads.iter().map(|threads| threads.get()).enumerate() {
        require(Trace::face(threads).is_some(), &format!("threads.{nth}"), || {
            format!("no recording with {threads}")
        })?;
    }
    Ok(())
}

/// The most pages that are held of a recording at a time, and of all its windows together.
const PAGES_MAX: u64 = 1 << 21;

/// The place of windows: the accesses of each period from `from` to `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    period: u64,
    from: u64,
    to: u64,
}

impl Shape {
    /// Windows at the end of each period.
    const fn at_end(period: u64, window: u64) -> Self {
        Self { period, from: period - window, to: period }
    }

    /// The bursts of a recording that was thinned out.
    const fn of_bursts(sampling: Sampling) -> Self {
        Self { period: sampling.period_accesses, from: 0, to: sampling.burst_accesses }
    }

    const fn window(self) -> u64 {
        self.to - self.from
    }
}

/// The pages of a recording's windows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Windows {
    /// The pages referenced in each window, each once, by the number of its period; those without any are left out.
    pages: BTreeMap<u64, Vec<u64>>,
    /// The most pages that were resident at a time: touched, and not given back.
    resident_pages: u64,
    /// Accesses, those that were left out among them.
    accesses: u64,
}

impl Windows {
    /// Walks a recording. O((a + e) · log r) for a accesses, e events and r resident pages.
    ///
    /// # Errors
    /// Those of the reader; [`TraceError::TooLarge`] for more than [`PAGES_MAX`] pages that
    /// are resident, or that are in all windows and between them.
    fn of(recording: TraceReader, shape: Shape) -> Result<Self, TraceError> {
        let mut windows = Self::default();
        let mut resident: BTreeSet<u64> = BTreeSet::new();
        let mut inside: HashSet<u64> = HashSet::new();
        let mut open = 0;
        let mut kept = 0;
        let mut at: u64 = 0;
        for item in recording.items() {
            let access = match item? {
                TraceItem::Access(access) => access,
                TraceItem::Event(event) => {
                    if let TraceEvent::Skip { accesses } = event {
                        at = at.saturating_add(accesses);
                    }
                    forget(&mut resident, event);
                    continue;
                }
            };
            let (period, place) = (at / shape.period, at % shape.period);
            if period != open {
                kept += windows.close(open, &mut inside);
                open = period;
            }
            if (shape.from..shape.to).contains(&place) {
                inside.extend(access.pages().iter().map(|page| page.raw()));
            }
            resident.extend(access.pages().iter().map(|page| page.raw()));
            windows.resident_pages = windows.resident_pages.max(resident.len() as u64);
            if (kept + 1 + inside.len() as u64).max(windows.resident_pages) > PAGES_MAX {
                let what = "pages in windows, or resident ones";
                return Err(TraceError::TooLarge { limit: PAGES_MAX, what });
            }
            at = at.saturating_add(1);
        }
        // A window that the end cuts off is left out.
        if open.saturating_mul(shape.period).saturating_add(shape.to) <= at {
            windows.close(open, &mut inside);
        }
        windows.accesses = at;
        Ok(windows)
    }

    /// Keeps a window, and returns how much there is to it.
    fn close(&mut self, period: u64, inside: &mut HashSet<u64>) -> u64 {
        let mut pages: Vec<u64> = inside.drain().collect();
        let kept = 1 + pages.len() as u64;
        if !pages.is_empty() {
            pages.sort_unstable();
            self.pages.insert(period, pages);
        }
        kept
    }

    /// The windows of threads at the same time: pages that are referenced, each once, and once
    /// for each thread. The recording has the threads' times one after the other, all of `periods`.
    fn together(&self, threads: u64, periods: u64) -> Vec<(u64, u64)> {
        let together = |period| {
            let of = |thread| self.pages.get(&(thread * periods + period));
            let pages = || (0..threads).filter_map(of);
            let union: HashSet<u64> = pages().flatten().copied().collect();
            let each = pages().map(|pages| pages.len() as u64).sum();
            (union.len() as u64, each)
        };
        (0..periods).map(together).collect()
    }
}

/// Pages that an event takes away are resident no more.
fn forget(resident: &mut BTreeSet<u64>, event: TraceEvent) {
    let mut take = |range: PageRange| -> Vec<u64> {
        let pages: Vec<u64> =
            resident.range(range.start.raw()..range.end().raw()).copied().collect();
        for page in &pages {
            resident.remove(page);
        }
        pages
    };
    match event {
        TraceEvent::Map { pages, .. }
        | TraceEvent::Unmap { pages }
        | TraceEvent::Discard { pages } => drop(take(pages)),
        TraceEvent::Move { from, to } => {
            let moved = take(from);
            take(to);
            let offsets = moved.into_iter().map(|page| page - from.start.raw());
            let inside = offsets.filter(|&offset| offset < to.count);
            resident.extend(inside.map(|offset| to.start.raw() + offset));
        }
        TraceEvent::Protect { .. } | TraceEvent::Fork | TraceEvent::Skip { .. } => {}
    }
}

/// The samples of a program with so many threads.
#[derive(Serialize, Deserialize)]
struct Sampled {
    threads: u64,
    /// Pages referenced in each window, each once, and once for each thread.
    samples: Vec<(u64, u64)>,
    resident_pages: u64,
    window_accesses: u64,
    period_accesses: u64,
}

impl Sampled {
    /// Averages over all windows, as shares of the resident set.
    fn shares(&self) -> (f64, f64) {
        let sum = self.samples.iter().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1));
        let all = (self.samples.len() as u64 * self.resident_pages).max(1) as f64;
        (sum.0 as f64 / all, sum.1 as f64 / all)
    }
}

/// The measurements. Nothing depends on a seed.
pub struct WorkingSetFound {
    program: String,
    sampled: Vec<Sampled>,
    grid: Grid,
}

/// Bytes that the windows of a recording that comes with the program take.
const SHIPPED_BYTES: u64 = 64 << 20;

/// Pages of a window that an estimate of memory allows for.
const WINDOW_PAGES_MAX: u64 = 1 << 12;

const THREADS: &str = "threads";
const ONCE: &str = "once";
const PER_THREAD: &str = "per_thread";

/// The paper's program.
const FACESIM: &str = "facesim";

/// Average shares of facesim's resident set, by threads.
const SHARES: [(u64, f64); 4] = [(1, 0.05), (4, 0.13), (8, 0.23), (16, 0.5)];

impl Study for WorkingSet {
    const KIND: &'static str = "green-working-set";
    const USES: Uses = Uses { memory: false, accesses: true, machine: false };
    type Plan = WorkingSetPlan;
    type Found = WorkingSetFound;

    fn seeds(_: &WorkingSetPlan, _: bool) -> u64 {
        0
    }

    fn needs(plan: &WorkingSetPlan, run: &Run<'_>) -> Needs {
        let given = run.real.accesses.as_ref().and_then(|file| std::fs::metadata(file).ok());
        let Some(file) = given else {
            return Needs::small().each("threads", SHIPPED_BYTES);
        };
        // A recorded access takes a quarter of a byte or more.
        let accesses = file.len().saturating_mul(4);
        let period = plan.given_period_accesses.get();
        let window = plan.given_window_accesses.get().min(accesses);
        let windows = accesses / period + 1;
        Needs::small()
            .once(
                "given_period_accesses",
                bytes(&[2, 56 + 8 * window.min(WINDOW_PAGES_MAX), windows]),
            )
            .each("given_window_accesses", bytes(&[32, window.min(1 << 24)]))
    }

    fn measure(plan: &WorkingSetPlan, run: &Run<'_>) -> Result<WorkingSetFound, StudyError> {
        let given = run.real.accesses.as_deref().map(|file| Trace::new(Some(file)));
        let sampled = match &given {
            Some(trace) => run.points(&plan.about, &[()], |()| of_given(plan, trace))?,
            None => {
                let threads: Vec<u64> = plan.threads.iter().map(|threads| threads.get()).collect();
                run.points(&plan.about, &threads, |&threads| of_face(plan, threads))?
            }
        };
        let mut grid = Grid::new(&[THREADS], 0);
        for program in &sampled {
            let (once, each) = program.shares();
            grid.add(vec![program.threads.into()], &[metrics([(ONCE, once), (PER_THREAD, each)])]);
        }
        let program = given.map_or_else(|| "face".to_owned(), |trace| trace.name());
        Ok(WorkingSetFound { program, sampled, grid })
    }

    fn claims(_: &WorkingSetPlan, run: &Run<'_>) -> Vec<Statement<WorkingSetFound>> {
        let given = run.real.accesses.as_deref().map(|file| Trace::new(Some(file)).name());
        let in_time = given.is_none();
        let program = given.unwrap_or_else(|| FACESIM.to_owned());
        let conditions = Conditions::new()
            .same("program", FACESIM.to_owned(), program)
            .met(in_time, "windows counted in accesses, not of 10 ms");
        let all = SHARES.iter().flat_map(|&(threads, share)| {
            let readings =
                [ONCE, PER_THREAD].into_iter().filter(move |&r| r == ONCE || threads > 1);
            readings.map(move |reading| (threads, share, reading))
        });
        all.map(|(threads, share, reading)| claim(threads, share, reading).under(&conditions))
            .collect()
    }

    fn show(_: &WorkingSetPlan, _: &Run<'_>, found: &WorkingSetFound) -> Shown {
        let mut figures: Vec<Drawn> = found.sampled.iter().map(windows_figure).collect();
        figures.push(threads_figure(found));
        let notes = vec![
            "The paper's program, facesim, was written anew from its public description: a mesh of as many tetrahedra, \
             Newton's method and conjugate gradient, partitions that stand from the beginning. Its time is \
             counted in each thread's accesses at an instruction a cycle of 3 GHz."
                .to_owned(),
            "The resident set is the largest of the run: pages touched and not given back. The paper counts a page \
             that several threads reference once for each of them; a page table has one bit for all: both are \
             shown."
                .to_owned(),
        ];
        Shown { finding: String::new(), figures, notes, host: None }
    }
}

/// The face with so many threads.
fn of_face(plan: &WorkingSetPlan, threads: u64) -> Result<Sampled, StudyError> {
    let failed = |what| StudyError::Machine { study: plan.about.study.clone(), what };
    let trace = Trace::face(threads).ok_or_else(|| failed(format!("no face with {threads}")))?;
    let shape = Shape::at_end(plan.period_accesses.get(), plan.window_accesses.get());
    let windows = trace.open().and_then(|recording| Windows::of(recording, shape));
    let windows = windows.map_err(|error| trace.error(&error))?;
    let periods = windows.accesses / shape.period / threads;
    if periods == 0 || periods * threads * shape.period != windows.accesses {
        return Err(failed(format!("the face with {threads} threads has other periods")));
    }
    Ok(sampled(threads, shape, windows.together(threads, periods), windows.resident_pages))
}

/// A program that is given: each window is a sample.
fn of_given(plan: &WorkingSetPlan, trace: &Trace) -> Result<Sampled, StudyError> {
    let opened = trace.open().map_err(|error| trace.error(&error))?;
    let shape = match opened.header().and_then(|header| header.sampling) {
        Some(sampling) => Shape::of_bursts(sampling),
        None => Shape::at_end(plan.given_period_accesses.get(), plan.given_window_accesses.get()),
    };
    let windows = Windows::of(opened, shape).map_err(|error| trace.error(&error))?;
    if windows.pages.is_empty() {
        return Err(StudyError::Machine {
            study: plan.about.study.clone(),
            what: format!("{} is shorter than one period of {}", trace.name(), shape.period),
        });
    }
    let samples = windows.pages.values().map(|pages| (pages.len() as u64, pages.len() as u64));
    Ok(sampled(1, shape, samples.collect(), windows.resident_pages))
}

const fn sampled(
    threads: u64,
    shape: Shape,
    samples: Vec<(u64, u64)>,
    resident_pages: u64,
) -> Sampled {
    let (window_accesses, period_accesses) = (shape.window(), shape.period);
    Sampled { threads, samples, resident_pages, window_accesses, period_accesses }
}

fn threads_in_words(threads: u64) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// The pages of each window.
fn windows_figure(sampled: &Sampled) -> Drawn {
    let id = format!("Fig. 3, {}", threads_in_words(sampled.threads));
    let title = "pages referenced in each window";
    let caption = format!(
        "Windows of {} accesses of a thread in each {}; {} pages are resident.",
        sampled.window_accesses, sampled.period_accesses, sampled.resident_pages,
    );
    let figure = Figure::new(&id, title, FigureKind::Lines, "window", "pages referenced");
    let line = |design, of: &dyn Fn(&(u64, u64)) -> u64| {
        let samples = sampled.samples.iter().enumerate();
        let points = samples.map(|(window, sample)| (window as f64, of(sample) as f64));
        Series::new(&id, "window", "pages", design, points)
    };
    let mut series = vec![line("each once", &|sample| sample.0)];
    if sampled.threads > 1 {
        series.push(line("once for each thread", &|sample| sample.1));
    }
    Drawn { figure: figure.with_caption(&caption), series }
}

/// The shares of the resident set by threads, beside facesim's.
fn threads_figure(found: &WorkingSetFound) -> Drawn {
    let id = "Section III-B";
    let title = "pages referenced in a window";
    let y_label = "share of the resident set";
    let figure = Figure::new(id, title, FigureKind::LinesLog2, "threads", y_label);
    let of = |metric: &'static str, design: &str| {
        let points = found.grid.points(THREADS, |all| all, |cell| cell.get(metric));
        Series::new(id, THREADS, "referenced_share", design, points)
    };
    let program = &found.program;
    let paper = SHARES.map(|(threads, share)| (threads as f64, share));
    let series = vec![
        of(ONCE, program),
        of(PER_THREAD, &format!("{program}, once for each thread")),
        Series::new(id, THREADS, "referenced_share", "facesim (paper)", paper),
    ];
    Drawn { figure, series }
}

/// The paper says "approximately" 50%, which stands for tens: a tenth of it, and of the others, which is also what "5%"
/// can be.
const TOLERANCE: f64 = 0.1;

/// Measured on the face.
const CAUSE: &str = "Most windows lie in conjugate gradient, an iteration of which references 12,749 to 12,975 pages here, \
                     21 to 22% of the resident set. One thread comes through half of them in 10 ms; four and more come through \
                     all, and reference no others until the solution is found. Only where the state of the tetrahedra is updated \
                     is there more, up to 62% with 16 threads.";

/// A share of the paper's, by one reading of what is counted.
fn claim(threads: u64, share: f64, reading: &'static str) -> Statement<WorkingSetFound> {
    let counted = match (reading, threads) {
        (_, 1) => "",
        (ONCE, _) => ", each page once",
        _ => ", a page once for each thread",
    };
    let threads_said = threads_in_words(threads);
    let says = format!(
        "facesim with {threads_said}: share of the resident set referenced in a sample{counted}"
    );
    let statement = Statement::about("Section III-B, Fig. 3", &says, share, TOLERANCE);
    statement.unit(Unit::Share).cause(CAUSE).measured(move |found: &WorkingSetFound| {
        found
            .grid
            .evidence(|view| view.select().is(THREADS, Value::Number(threads as f64)).one(reading))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use swath_arch::Vpn;

    fn lackey(pages: &[u64]) -> TraceReader {
        let text: String = pages.iter().map(|page| format!(" L {:x},8\n", page << 12)).collect();
        TraceReader::from_reader(Cursor::new(text.into_bytes()), None).unwrap()
    }

    fn plan() -> WorkingSetPlan {
        toml::from_str(include_str!("working_set.toml")).unwrap()
    }

    #[test]
    fn windows_are_the_ends_of_periods() {
        // Periods of four accesses, windows of the last two; the last is cut off.
        let windows =
            Windows::of(lackey(&[1, 1, 2, 3, 9, 9, 3, 3, 4, 4, 5]), Shape::at_end(4, 2)).unwrap();
        assert_eq!(windows.pages, BTreeMap::from([(0, vec![2, 3]), (1, vec![3])]));
        // Pages 1 to 5, and 9.
        assert_eq!((windows.resident_pages, windows.accesses), (6, 11));
    }

    #[test]
    fn threads_that_run_at_the_same_time_share_pages() {
        // Two threads of three periods, the second without a page in its first window.
        let pages = BTreeMap::from([
            (0, vec![1, 2]),
            (1, vec![2, 3]),
            (2, vec![7]),
            (4, vec![3, 4, 5]),
            (5, vec![7]),
        ]);
        let windows = Windows { pages, resident_pages: 10, accesses: 24 };
        let samples = windows.together(2, 3);
        assert_eq!(samples, [(2, 2), (4, 5), (1, 2)]);
        let of = sampled(2, Shape::at_end(4, 2), samples, 10);
        assert_eq!(of.shares(), (7.0 / 30.0, 0.3));
    }

    #[test]
    fn what_is_given_back_is_not_resident() {
        let range = |start, count| PageRange::new(Vpn::new(start), count);
        let mut resident: BTreeSet<u64> = (0..20).collect();
        forget(&mut resident, TraceEvent::Unmap { pages: range(0, 5) });
        forget(&mut resident, TraceEvent::Discard { pages: range(8, 2) });
        // Of five pages three are kept; page 10 was there before and is gone.
        forget(&mut resident, TraceEvent::Move { from: range(15, 5), to: range(10, 3) });
        forget(&mut resident, TraceEvent::Skip { accesses: 5 });
        let left: Vec<u64> = resident.into_iter().collect();
        assert_eq!(left, [5, 6, 7, 10, 11, 12, 13, 14]);
    }

    /// A whole compilation, thinned out: 536,156,614 accesses are 134 periods and the burst of another.
    #[test]
    fn the_bursts_of_a_recording_are_its_windows() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cc1.swtrace");
        let compiler = Trace::new(Some(file.as_ref()));
        let sampled = of_given(&plan(), &compiler).unwrap();
        assert_eq!((sampled.period_accesses, sampled.window_accesses), (4_000_000, 20_000));
        assert_eq!(sampled.samples.len(), 135);
        assert!((1000..=5284).contains(&sampled.resident_pages));
    }

    /// The plan's periods are those of the recorder, at the ratio of the script that runs it.
    #[test]
    fn a_period_is_as_long_as_was_recorded() {
        let recorder = include_str!("../../../data/face/pages.c");
        assert!(recorder.contains("PERIOD = 300000000ull * 100 / ACCESS_INSTRUCTIONS_PERCENT"));
        assert!(recorder.contains("WINDOW = 30000000ull * 100 / ACCESS_INSTRUCTIONS_PERCENT"));
        assert!(include_str!("../../../data/face/record.sh").contains("_PERCENT=218 "));
        assert_eq!(plan().period_accesses.get(), 300_000_000 * 100 / 218);
        assert_eq!(plan().window_accesses.get(), 30_000_000 * 100 / 218);
    }

    #[test]
    fn each_number_of_threads_has_whole_periods() {
        for (threads, _) in SHARES {
            let sampled = of_face(&plan(), threads).unwrap();
            let most = sampled.resident_pages;
            assert!(sampled.samples.len() > 10, "{threads}");
            assert!(sampled.samples.iter().all(|s| s.0 <= most && s.0 <= s.1), "{threads}");
        }
    }
}

//! The share of a program's memory that is referenced at a time (Panwar and
//! Gopinath, section III-B, Fig. 3), on recorded accesses.
//!
//! The paper samples page tables: in each 100 ms, which pages have their
//! reference bit set in the last 10 ms. A recording has no clock, so periods
//! and windows are counted in accesses here. Of a recording that was thinned
//! out, the bursts that it holds whole are the windows.
//!
//! The recorded programs have one thread. Several threads are **made up**: n
//! copies of the recording over the same pages, copy i an i-th of n of the run
//! ahead, all in the same window. That keeps what each does, and knows nothing
//! of how threads share their work.

use std::collections::BTreeSet;
use std::io::Cursor;

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

/// Pages that recorded programs reference at a time.
pub struct WorkingSet;

/// Pages that recorded programs reference in a window of each period.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkingSetPlan {
    /// Name, title, seed.
    pub about: Head,
    /// TraceReader of a period, for recordings that hold every access.
    pub period_accesses: Bounded<1, { 1 << 40 }>,
    /// TraceReader at the end of a period whose pages are counted.
    pub window_accesses: Bounded<1, { 1 << 40 }>,
    /// Numbers of shifted copies of a recording that run at once, one point each.
    pub threads: Ascending<Bounded<1, 1024>>,
}

crate::plan!(WorkingSetPlan, check);

fn check(plan: &WorkingSetPlan) -> Result<(), Refused> {
    let (period, window) = (plan.period_accesses.get(), plan.window_accesses.get());
    require(window <= period, "period_accesses", || format!("{period} is less than a window"))
}

/// A whole compilation, thinned out.
const SHIPPED_COMPILER: &[u8] = include_bytes!("../../../data/cc1.swtrace");

/// The most pages that are held of a recording at a time, and of all its windows together.
const PAGES_MAX: u64 = 1 << 21;

/// The working sets of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Windows {
    /// The pages referenced in each window, each window ascending.
    pages: Vec<Vec<u64>>,
    /// The most pages that were resident at the end of a window: touched, and
    /// not given back.
    resident_pages: u64,
}

/// The place of windows: the accesses of each period from `from` to `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Shape {
    period: u64,
    from: u64,
    to: u64,
}

impl Shape {
    fn of(plan: &WorkingSetPlan, sampling: Option<Sampling>) -> Self {
        match sampling {
            Some(Sampling { burst_accesses, period_accesses }) => {
                Self { period: period_accesses, from: 0, to: burst_accesses }
            }
            None => {
                let period = plan.period_accesses.get();
                Self { period, from: period - plan.window_accesses.get(), to: period }
            }
        }
    }
}

impl Windows {
    /// Walks a recording. O((a + e) · log r) for a accesses, e events and r resident pages.
    ///
    /// # Errors
    /// Those of the reader; [`TraceError::TooLarge`] for more than [`PAGES_MAX`] pages that
    /// are resident, or that are in all windows and between them.
    fn of(accesses: TraceReader, plan: &WorkingSetPlan) -> Result<(Self, Shape), TraceError> {
        let shape = Shape::of(plan, accesses.header().and_then(|header| header.sampling));
        let mut windows = Self::default();
        let mut resident: BTreeSet<u64> = BTreeSet::new();
        let mut inside: HashSet<u64> = HashSet::new();
        let mut kept = 0;
        let mut at: u64 = 0;
        let mut open = false;
        for item in accesses.items() {
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
            let place = at % shape.period;
            if (shape.from..shape.to).contains(&place) {
                open = true;
                inside.extend(access.pages().iter().map(|page| page.raw()));
            }
            resident.extend(access.pages().iter().map(|page| page.raw()));
            let what = "pages in windows, or resident ones";
            kept += u64::from(place + 1 == shape.to && open) * (1 + inside.len() as u64);
            if kept.max(inside.len() as u64).max(resident.len() as u64) > PAGES_MAX {
                return Err(TraceError::TooLarge { limit: PAGES_MAX, what });
            }
            if place + 1 == shape.to && open {
                windows.close(&mut inside, resident.len());
                open = false;
            }
            at = at.saturating_add(1);
        }
        // A window that the end cuts off is left out.
        Ok((windows, shape))
    }

    fn close(&mut self, inside: &mut HashSet<u64>, resident: usize) {
        let mut pages: Vec<u64> = inside.drain().collect();
        pages.sort_unstable();
        self.pages.push(pages);
        self.resident_pages = self.resident_pages.max(resident as u64);
    }

    /// Pages that `threads` copies reference in window `w`: each once, and once
    /// for each thread.
    fn referenced(&self, w: usize, threads: u64) -> (u64, u64) {
        let count = self.pages.len() as u64;
        let mut union: HashSet<u64> = HashSet::new();
        let mut sum = 0;
        for thread in 0..threads {
            let shifted = (w as u64 + thread * count / threads) % count;
            let pages = &self.pages[shifted as usize];
            sum += pages.len() as u64;
            union.extend(pages);
        }
        (union.len() as u64, sum)
    }

    /// Averages over all windows, as shares of the resident set: each page once,
    /// and once for each thread.
    fn shares(&self, threads: u64) -> (f64, f64) {
        let windows = 0..self.pages.len();
        let (union, sum) = windows.fold((0, 0), |(union, sum), w| {
            let (u, s) = self.referenced(w, threads);
            (union + u, sum + s)
        });
        let all = (self.pages.len() as u64 * self.resident_pages).max(1) as f64;
        (union as f64 / all, sum as f64 / all)
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

/// A recording by name.
#[derive(Serialize, Deserialize)]
struct Recording {
    name: String,
    windows: Windows,
    shape: Shape,
}

/// The measurements. Nothing depends on a seed.
pub struct WorkingSetFound {
    recordings: Vec<Recording>,
    grid: Grid,
}

/// Accesses of the longer of the recordings that come with the program.
const SHIPPED_ACCESSES: u64 = 1 << 24;

/// Pages of a window that an estimate of memory allows for.
const WINDOW_PAGES_MAX: u64 = 1 << 12;

const RECORDING: &str = "recording";
const THREADS: &str = "threads";

/// The whole compilation's name.
const COMPILER: &str = "cc1";

/// Average shares of facesim's resident set, by threads.
const FACESIM: [(u64, f64); 4] = [(1, 0.05), (4, 0.13), (8, 0.23), (16, 0.5)];

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
        // A recorded access takes a quarter of a byte or more.
        let accesses = given.map_or(SHIPPED_ACCESSES, |file| file.len().saturating_mul(4));
        let period = plan.period_accesses.get();
        let window = plan.window_accesses.get().min(accesses);
        let windows = accesses / period + 1;
        Needs::small()
            .once("period_accesses", bytes(&[2, 56 + 8 * window.min(WINDOW_PAGES_MAX), windows]))
            .each("window_accesses", bytes(&[32, window.min(1 << 24)]))
    }

    fn measure(plan: &WorkingSetPlan, run: &Run<'_>) -> Result<WorkingSetFound, StudyError> {
        let compilers: &[bool] =
            if run.real.accesses.is_some() { &[false] } else { &[false, true] };
        let recordings =
            run.points(&plan.about, compilers, |&compiler| recording(plan, run, compiler))?;
        let mut grid = Grid::new(&[RECORDING, THREADS], 0);
        for Recording { name, windows, .. } in &recordings {
            for threads in plan.threads.iter().map(|threads| threads.get()) {
                let (once, each) = windows.shares(threads);
                let shares = metrics([("once", once), ("per_thread", each)]);
                grid.add(vec![name.as_str().into(), threads.into()], &[shares]);
            }
        }
        Ok(WorkingSetFound { recordings, grid })
    }

    fn claims(_: &WorkingSetPlan, run: &Run<'_>) -> Vec<Statement<WorkingSetFound>> {
        let given = run.real.accesses.as_deref();
        claims(&given.map_or_else(|| COMPILER.to_owned(), |file| Trace::new(Some(file)).name()))
    }

    fn show(plan: &WorkingSetPlan, _: &Run<'_>, found: &WorkingSetFound) -> Shown {
        let windows = found.recordings.iter().map(|recording| windows_figure(plan, recording));
        let mut figures: Vec<Drawn> = windows.collect();
        figures.push(threads_figure(found));
        let notes = vec![
            "Several threads are made up: copies of one recording over the same pages, each a \
             part of the run ahead of the other. A page that several of them reference counts \
             once, or, as in the paper for shared pages, once for each thread; the latter is \
             the first times the number of threads by construction."
                .to_owned(),
            "The resident set is the largest of the run: pages touched and not given back, \
             code included. Facesim, the paper's program, is not among the recordings; its \
             windows last 10 ms, which is thousands of times more accesses."
                .to_owned(),
        ];
        Shown { finding: String::new(), figures, notes, host: None }
    }
}

/// Reads the program's recording, or the shipped one of a compiler.
fn recording(
    plan: &WorkingSetPlan,
    run: &Run<'_>,
    compiler: bool,
) -> Result<Recording, StudyError> {
    let given = run.real.accesses.as_deref();
    let trace = Trace::new(given);
    let name = match (compiler, given) {
        (true, _) => COMPILER.to_owned(),
        (false, Some(_)) => trace.name(),
        (false, None) => "sort".to_owned(),
    };
    let opened = match compiler {
        true => TraceReader::from_reader(Cursor::new(SHIPPED_COMPILER), None),
        false => trace.open(),
    };
    let read = opened.and_then(|accesses| Windows::of(accesses, plan));
    let (windows, shape) = read.map_err(|error| {
        let mut error = trace.error(&error);
        error.file = if compiler { "cc1 (shipped trace)".to_owned() } else { error.file };
        error
    })?;
    if windows.pages.is_empty() {
        return Err(StudyError::Machine {
            study: plan.about.study.clone(),
            what: format!("{name} is shorter than one period of {}", shape.period),
        });
    }
    Ok(Recording { name, windows, shape })
}

/// The pages of each window, of one thread and of the most.
fn windows_figure(plan: &WorkingSetPlan, recording: &Recording) -> Drawn {
    let Recording { name, windows, shape } = recording;
    let id = format!("Fig. 3, {name}");
    let title = "pages referenced in each window";
    let caption = format!(
        "Windows of {} accesses in each {}; {} pages are resident at most. More than one thread is \
         made up of shifted copies; each page counts once.",
        shape.to - shape.from,
        shape.period,
        windows.resident_pages,
    );
    let figure = Figure::new(&id, title, FigureKind::Lines, "window", "pages referenced");
    let mut shown = vec![1];
    shown.extend(plan.threads.last().map(|most| most.get()).filter(|most| *most > 1));
    let line = |threads: u64| {
        let referenced = |w: usize| (w as f64, windows.referenced(w, threads).0 as f64);
        let points = (0..windows.pages.len()).map(referenced);
        let design = if threads == 1 { "1 thread" } else { &format!("{threads} threads") };
        Series::new(&id, "window", "pages", design, points)
    };
    let series = shown.into_iter().map(line).collect();
    Drawn { figure: figure.with_caption(&caption), series }
}

/// The shares of the resident set by threads, beside facesim's.
fn threads_figure(found: &WorkingSetFound) -> Drawn {
    let id = "Section III-B";
    let title = "pages referenced in a window";
    let y_label = "share of the resident set";
    let figure = Figure::new(id, title, FigureKind::LinesLog2, "threads", y_label);
    let mut series = Vec::new();
    for Recording { name, .. } in &found.recordings {
        for (metric, design) in
            [("once", name.clone()), ("per_thread", format!("{name}, per thread"))]
        {
            let points = found.grid.points(
                THREADS,
                |all| all.is(RECORDING, name.as_str()),
                |cell| cell.get(metric),
            );
            series.push(Series::new(id, THREADS, "referenced_share", &design, points));
        }
    }
    let paper = FACESIM.map(|(threads, share)| (threads as f64, share));
    series.push(Series::new(id, THREADS, "referenced_share", "facesim (paper)", paper));
    let figure = figure.with_caption(
        "Facesim's are the paper's figures, for windows of 10 ms: another program and other \
         windows, shown for the shape.",
    );
    Drawn { figure, series }
}

/// The statements on facesim, which is not recorded. Read off the text in whole
/// per cent, the last as "approximately": 5 points.
fn claims(program: &str) -> Vec<Statement<WorkingSetFound>> {
    let conditions = Conditions::new().same("program", "facesim", program).met(
        false,
        "windows counted in accesses, not of 10 ms, and threads made up of shifted copies",
    );
    let claim = |(threads, share): (u64, f64)| {
        let says = format!(
            "facesim with {threads} thread{}: share of the resident set referenced in a sample; \
             measured on {program}, each page once",
            if threads == 1 { "" } else { "s" },
        );
        let statement = Statement::within("Section III-B, Fig. 3", &says, share, 0.05);
        let program = program.to_owned();
        statement.unit(Unit::Share).under(&conditions).measured(move |found: &WorkingSetFound| {
            found.grid.evidence(|view| {
                let cells = view.select().is(RECORDING, program.as_str());
                cells.is(THREADS, Value::Number(threads as f64)).one("once")
            })
        })
    };
    FACESIM.into_iter().map(claim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use swath_arch::Vpn;

    fn plan(period_accesses: u64, window_accesses: u64) -> WorkingSetPlan {
        let text = include_str!("working_set.toml");
        let mut plan: WorkingSetPlan = toml::from_str(text).unwrap();
        plan.period_accesses = Bounded::new(period_accesses).unwrap();
        plan.window_accesses = Bounded::new(window_accesses).unwrap();
        plan
    }

    fn lackey(pages: &[u64]) -> TraceReader {
        let text: String = pages.iter().map(|page| format!(" L {:x},8\n", page << 12)).collect();
        TraceReader::from_reader(Cursor::new(text.into_bytes()), None).unwrap()
    }

    #[test]
    fn windows_are_the_ends_of_periods() {
        // Periods of four accesses, windows of the last two; the last is cut off.
        let accesses = lackey(&[1, 1, 2, 3, 9, 9, 3, 3, 4, 4, 5]);
        let (windows, _) = Windows::of(accesses, &plan(4, 2)).unwrap();
        assert_eq!(windows.pages, [vec![2, 3], vec![3]]);
        // Pages 1, 2, 3 and 9.
        assert_eq!(windows.resident_pages, 4);
    }

    #[test]
    fn copies_share_pages() {
        let windows = Windows { pages: vec![vec![1, 2], vec![2, 3], vec![7]], resident_pages: 10 };
        assert_eq!(windows.referenced(0, 1), (2, 2));
        assert_eq!(windows.referenced(0, 3), (4, 5));
        assert_eq!(windows.referenced(1, 3), (4, 5));
        assert_eq!(windows.shares(1), (5.0 / 30.0, 5.0 / 30.0));
        assert_eq!(windows.shares(3), (0.4, 0.5));
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

    #[test]
    fn the_shipped_recordings_have_windows() {
        let plan = plan(100_000, 10_000);
        let compiler = TraceReader::from_reader(Cursor::new(SHIPPED_COMPILER), None).unwrap();
        let (windows, shape) = Windows::of(compiler, &plan).unwrap();
        assert_eq!(shape, Shape { period: 4_000_000, from: 0, to: 20_000 });
        // 536,156,614 accesses: 134 periods and the burst of another.
        assert_eq!(windows.pages.len(), 135);
        assert!(windows.pages.iter().all(|pages| !pages.is_empty()));
        assert!((1000..=5284).contains(&windows.resident_pages));
    }
}

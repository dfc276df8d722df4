//! The run of a sweep, or of one shard of it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use serde_json::Value as Json;

use crate::report::error::ReportError;
use crate::report::folder::Folder;
use crate::study::journal::{Begun, Journal, JournalError};
use crate::study::needs::Limits;
use crate::study::plan::PlanError;
use crate::study::run::{Run, Shared, StudyError, Unwatched, Watch};
use crate::sweep::definition::{OnRefusal, Sweep};
use crate::sweep::folder::{self, Shard};
use crate::table::column::{Cell, Table};
use crate::table::parquet::{TableError, Writer};
use crate::table::result;

/// The kinds of rows of points without a result.
const REFUSED: &str = "refused";
const FAILED: &str = "failed";

/// Reasons why a sweep gave no table.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A plan is refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A point cannot be measured, for a reason that is not its own.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// The folder refuses.
    #[error(transparent)]
    Folder(#[from] ReportError),
    /// The table cannot be written.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The journal cannot be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Threads cannot be had.
    #[error("threads: {0}")]
    Threads(String),
}

/// The threads and memory of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Threads on which its points keep within the limits.
    pub threads: u64,
    /// Bytes of memory on so many threads.
    pub memory_bytes: u64,
    /// Points whose plans are refused.
    pub refused: u64,
}

/// Reads the plans of these points, on the current thread pool, and finds out how many of them keep
/// within the limits at a time.
///
/// # Errors
/// [`PlanError`] of the first point that is refused, unless the sweep skips such points, or that
/// takes more memory than it may.
pub fn check(
    sweep: &Sweep,
    points: &[u64],
    threads: u64,
    limits: Limits,
) -> Result<Checked, PlanError> {
    let shared = Shared::default();
    let run = Run {
        quick: sweep.quick,
        real: &sweep.real,
        watch: &Unwatched,
        journal: None,
        shared: &shared,
    };
    let one = |&point: &u64| -> Result<Checked, PlanError> {
        let plan = match sweep.read_point(point) {
            Err(_) if sweep.refused == OnRefusal::Skip => {
                return Ok(Checked { threads, memory_bytes: 0, refused: 1 });
            }
            plan => plan?,
        };
        let threads = plan
            .threads_within(&run, threads, limits)
            .map_err(|error| sweep.too_large(point, error))?;
        Ok(Checked { threads, memory_bytes: plan.needs(&run).memory_bytes(1), refused: 0 })
    };
    // In the points' order, so that the first error is that of any number of threads.
    let each: Vec<Result<Checked, PlanError>> = points.par_iter().map(one).collect();
    let nothing = Checked { threads, memory_bytes: 0, refused: 0 };
    let all = each.into_iter().try_fold(nothing, |all, one| {
        let one = one?;
        Ok::<_, PlanError>(Checked {
            threads: all.threads.min(one.threads),
            memory_bytes: all.memory_bytes.max(one.memory_bytes),
            refused: all.refused + one.refused,
        })
    })?;
    Ok(Checked { memory_bytes: all.memory_bytes.saturating_mul(all.threads), ..all })
}

/// A sweep's table that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Points of the sweep or shard.
    pub points: u64,
    /// Points that an earlier run had measured.
    pub resumed: u64,
    /// Points whose plans are refused; the table says why.
    pub refused: u64,
    /// Points that gave no result for another reason; the table says why.
    pub failed: u64,
    /// Rows of the table.
    pub rows: u64,
    /// True if the table was there, whole, before.
    pub was_whole: bool,
}

/// Runs a sweep, or one shard of it, into its folder below `out`, on so many threads; says
/// through `say` what an earlier run left. With `fresh` all is measured anew.
///
/// # Errors
/// [`RunError`]; points measured until then are in the journal.
pub fn run(
    sweep: &Sweep,
    out: &Path,
    shard: Shard,
    threads: u64,
    fresh: bool,
    watch: &dyn Watch,
    say: &dyn Fn(&str),
) -> Result<Swept, RunError> {
    let manifest = folder::manifest(sweep, shard)?;
    let place = shard.place(out);
    let folder = Folder::open(&place)?;
    let key = manifest.to_string();
    let path = folder.journal(&sweep.study, &key);
    for other in folder.journals(&sweep.study)? {
        if fresh {
            std::fs::remove_file(&other)
                .map_err(|source| ReportError::File { path: other.clone(), source })?;
        } else if other != path {
            say(&format!(
                "{} is of another sweep or build and stays; --fresh removes it",
                other.display()
            ));
        }
    }
    let points = shard.points(sweep.points());
    if !fresh && folder::read_manifest(&place).as_ref() == Some(&manifest) {
        // A kill after the last step but before this one.
        let _ = std::fs::remove_file(&path);
        let count = points.len() as u64;
        return Ok(Swept { points: count, resumed: count, was_whole: true, ..Swept::default() });
    }
    let (journal, begun) = Journal::open(&path, &key)?;
    if let Begun::Resumed { points, .. } = begun {
        say(&format!("{points} points of a run that did not end are in the journal"));
    }
    let shared = Shared::default();
    let run = Run {
        quick: sweep.quick,
        real: &sweep.real,
        watch,
        journal: Some(&journal),
        shared: &shared,
    };
    measure(sweep, &points, threads, &run)?;
    let (resumed, _) = journal.counts();
    drop(journal);
    let swept = gather(sweep, &folder, &manifest, (&path, &key), points.len())?;
    let _ = std::fs::remove_file(&path);
    Ok(Swept { resumed, ..swept })
}

/// Measures points side by side, each on one thread, into the run's journal.
fn measure(sweep: &Sweep, points: &[u64], threads: u64, run: &Run<'_>) -> Result<(), RunError> {
    let stage = run.stage(&sweep.study, points.len());
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<RunError>> = Mutex::default();
    let fail = |error: RunError| {
        // The others stop after the point that they are at.
        next.store(points.len(), Ordering::Relaxed);
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    let work = || {
        // A study's own points run on this thread, so that so many points are measured at a time
        // as there is memory for.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        let pool = match pool {
            Ok(pool) => pool,
            Err(error) => return fail(RunError::Threads(error.to_string())),
        };
        loop {
            let nth = next.fetch_add(1, Ordering::Relaxed);
            let Some(&point) = points.get(nth) else { return };
            let measured = run
                .one(stage, nth as u32, || pool.install(|| point_table(sweep, point, run.watch)));
            if let Err(error) = measured {
                return fail(error.into());
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(points.len() as u64) {
            // Without a further thread the points take longer.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// An observer of a point's study, whose own points do not count.
struct Inner<'a>(&'a dyn Watch);

impl Watch for Inner<'_> {
    fn begin(&self, _: &str, _: u64) {}
    fn point(&self) {}
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// The rows of a point: of its result, or one with the reason why there is none.
///
/// # Errors
/// [`StudyError`] for a reason that is not the point's own.
pub fn point_table(sweep: &Sweep, point: u64, watch: &dyn Watch) -> Result<Table, StudyError> {
    let front = sweep.front(point);
    let mut table = Table::new(&sweep.schema());
    let (inner, shared) = (Inner(watch), Shared::default());
    let run = Run {
        quick: sweep.quick,
        real: &sweep.real,
        watch: &inner,
        journal: None,
        shared: &shared,
    };
    let outcome = sweep.read_point(point).map_err(StudyError::from).and_then(|plan| plan.run(&run));
    match outcome {
        Ok(outcome) => result::append(&mut table, &front, &outcome.result),
        Err(error) if is_own(&error) => {
            let kind = if matches!(error, StudyError::Plan(_)) { REFUSED } else { FAILED };
            let row = result::without(kind, &sweep.study, &error.to_string());
            table.push(front.into_iter().chain(row));
        }
        Err(error) => return Err(error),
    }
    Ok(table)
}

/// Returns true for an error that the same point gives whenever it is measured.
fn is_own(error: &StudyError) -> bool {
    match error {
        StudyError::Plan(_)
        | StudyError::Result(_)
        | StudyError::TooFull(_)
        | StudyError::Machine { .. }
        | StudyError::NoDesign { .. } => true,
        StudyError::Interrupted | StudyError::Input(_) | StudyError::Journal(_) => false,
    }
}

/// Writes the table from the journal, point by point.
fn gather(
    sweep: &Sweep,
    folder: &Folder,
    manifest: &Json,
    (path, key): (&Path, &str),
    points: usize,
) -> Result<Swept, RunError> {
    let (journal, _) = Journal::open(path, key)?;
    let stage = journal.stage(points);
    let mut swept = Swept { points: points as u64, ..Swept::default() };
    let lost = |nth: usize| JournalError {
        path: path.to_owned(),
        what: format!("point {nth} of it is not there any more"),
    };
    folder::put(folder, manifest, |file| {
        let mut writer = Writer::create(file, &sweep.schema())?;
        for nth in 0..points {
            let table: Table = journal.recall(stage, nth as u32).ok_or_else(|| lost(nth))?;
            swept.rows += table.rows() as u64;
            match table.column("kind").map(|kind| kind.cell(0)) {
                Some(Cell::Text(kind)) if kind == REFUSED => swept.refused += 1,
                Some(Cell::Text(kind)) if kind == FAILED => swept.failed += 1,
                _ => {}
            }
            writer.append(&table)?;
        }
        Ok::<(), RunError>(writer.finish()?)
    })?;
    Ok(swept)
}

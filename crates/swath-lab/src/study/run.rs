//! The run of a study: points in parallel, seeds, and the errors of it.
//!
//! A study is a list of points that do not depend on each other. They run on
//! as many threads as the caller's pool has, and are gathered in the plan's
//! order, so that the same plan and seed give the same bytes whatever the
//! number of threads. What each gave is written into the run's
//! [journal](crate::study::journal), if it has one, and read from there by the next run.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::source::real::{InputError, RealInput};
use crate::study::grid::{Grid, Metrics, Value};
use crate::study::journal::{Journal, JournalError};
use crate::study::plan::{Head, PlanError};
use crate::study::results::{HostResult, ResultError, StudyResult};

/// An observer of a run.
pub trait Watch: Sync {
    /// A study of so many points begins.
    fn begin(&self, study: &str, points: u64);
    /// One point is done.
    fn point(&self);
    /// Returns true if the run should stop at the next point.
    fn cancelled(&self) -> bool;
}

/// An observer that shows nothing and stops nothing.
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&self, _: &str, _: u64) {}
    fn point(&self) {}
    fn cancelled(&self) -> bool {
        false
    }
}

/// Results that several studies of a process have in common, each by all that it follows from.
#[derive(Default)]
pub struct Shared(Mutex<BTreeMap<String, Box<dyn Any + Send>>>);

impl Shared {
    /// The result of `measure`, or what it gave for the same key. The lock is not held meanwhile: two
    /// threads that ask for one key at a time measure both.
    ///
    /// # Errors
    /// That of `measure`, of which nothing is kept.
    pub fn get_or_measure<R: Clone + Send + 'static, E>(
        &self,
        key: &str,
        measure: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        let known = self.lock().get(key).and_then(|known| known.downcast_ref::<R>().cloned());
        if let Some(known) = known {
            return Ok(known);
        }
        let result = measure()?;
        self.lock().insert(key.to_owned(), Box::new(result.clone()));
        Ok(result)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Box<dyn Any + Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The circumstances of a run.
pub struct Run<'a> {
    /// True for the quick form of the plan.
    pub quick: bool,
    /// Real input in place of the plan's.
    pub real: &'a RealInput,
    /// The observer.
    pub watch: &'a dyn Watch,
    /// The journal of the study, if its points are to outlive the process.
    pub journal: Option<&'a Journal>,
    /// Results that studies before this one have measured and others need, too.
    pub shared: &'a Shared,
}

impl Run<'_> {
    /// Measures every point on the current thread pool; results in the order
    /// of the points. A point whose result is in the journal is not measured again.
    ///
    /// # Errors
    /// The first error in that order, or [`StudyError::Interrupted`].
    pub fn points<P: Sync, R: Send + Serialize + DeserializeOwned>(
        &self,
        about: &Head,
        points: &[P],
        measure: impl Fn(&P) -> Result<R, StudyError> + Sync,
    ) -> Result<Vec<R>, StudyError> {
        let stage = self.stage(&about.study, points.len());
        let results: Vec<Mutex<Option<Result<R, StudyError>>>> =
            points.iter().map(|_| Mutex::default()).collect();
        side_by_side(points.len(), &|nth| {
            let result = self.one(stage, nth as u32, || measure(&points[nth]));
            *results[nth].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        let each = results.into_iter().map(|result| {
            let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
            result.unwrap_or(Err(StudyError::Interrupted))
        });
        each.collect()
    }

    /// As [`points`](Self::points), one after the other on this thread: for times, which
    /// another point beside would disturb.
    ///
    /// # Errors
    /// The first error, or [`StudyError::Interrupted`].
    pub fn points_in_turn<P, R: Serialize + DeserializeOwned>(
        &self,
        about: &Head,
        points: &[P],
        mut measure: impl FnMut(&P) -> Result<R, StudyError>,
    ) -> Result<Vec<R>, StudyError> {
        let stage = self.stage(&about.study, points.len());
        let one = |(nth, point)| self.one(stage, nth, || measure(point));
        (0..).zip(points).map(one).collect()
    }

    /// Measures every point in each of so many rounds, [in turn](Self::points_in_turn), all
    /// points of a round before the next: the rounds of each point.
    ///
    /// # Errors
    /// As for [`points_in_turn`](Self::points_in_turn).
    pub fn rounds<P, R: Serialize + DeserializeOwned>(
        &self,
        about: &Head,
        rounds: u64,
        points: &[P],
        mut measure: impl FnMut(&P, u64) -> Result<R, StudyError>,
    ) -> Result<Vec<Vec<R>>, StudyError> {
        let all = (0..rounds).flat_map(|round| points.iter().map(move |point| (point, round)));
        let all: Vec<(&P, u64)> = all.collect();
        let measured = self.points_in_turn(about, &all, |(point, round)| measure(point, *round))?;
        let mut of_points: Vec<Vec<R>> = points.iter().map(|_| Vec::new()).collect();
        for (nth, result) in measured.into_iter().enumerate() {
            of_points[nth % points.len()].push(result);
        }
        Ok(of_points)
    }

    /// Begins a list of points.
    pub(crate) fn stage(&self, study: &str, points: usize) -> u32 {
        self.watch.begin(study, points as u64);
        self.journal.map_or(0, |journal| journal.stage(points))
    }

    /// The result of a point: the journal's, or measured and written there.
    pub(crate) fn one<R: Serialize + DeserializeOwned>(
        &self,
        stage: u32,
        nth: u32,
        measure: impl FnOnce() -> Result<R, StudyError>,
    ) -> Result<R, StudyError> {
        if self.watch.cancelled() {
            return Err(StudyError::Interrupted);
        }
        let result = match self.journal.and_then(|journal| journal.recall(stage, nth)) {
            Some(recorded) => Ok(recorded),
            None => {
                self.journal.map_or(Ok(()), |journal| journal.begin(stage, nth))?;
                measure().and_then(|result| {
                    self.journal.map_or(Ok(()), |journal| journal.record(stage, nth, &result))?;
                    Ok(result)
                })
            }
        };
        self.watch.point();
        result
    }

    /// Measures every point with every seed: a cell for each point. Points
    /// and seeds run side by side. `at` gives a point's coordinates on `axes`,
    /// `measure` its metrics with the seed's number, from 0; with 0 seeds
    /// nothing depends on one and every point is measured once.
    ///
    /// # Errors
    /// As for [`points`](Self::points).
    pub fn grid<P: Sync>(
        &self,
        about: &Head,
        axes: &[&str],
        seeds: u64,
        points: &[P],
        at: impl Fn(&P) -> Vec<Value>,
        measure: impl Fn(&P, u64) -> Result<Metrics, StudyError> + Sync,
    ) -> Result<Grid, StudyError> {
        let each = seeds.max(1);
        let jobs: Vec<(&P, u64)> =
            points.iter().flat_map(|point| (0..each).map(move |seed| (point, seed))).collect();
        let measured = self.points(about, &jobs, |(point, seed)| measure(point, *seed))?;
        let mut grid = Grid::new(axes, usize::try_from(seeds).unwrap_or(usize::MAX));
        let runs = measured.chunks(usize::try_from(each).unwrap_or(usize::MAX));
        for (point, runs) in points.iter().zip(runs) {
            grid.add(at(point), runs);
        }
        Ok(grid)
    }
}

/// Does so many jobs on the current thread pool, each by its number. It is one function for all
/// studies, as what the pool makes of a job is much code.
fn side_by_side(jobs: usize, job: &(dyn Fn(usize) + Sync)) {
    // One by one: one takes a hundred times as long as another, and a thread that has nothing to
    // do cannot take from the jobs of a piece that is begun.
    (0..jobs).into_par_iter().with_max_len(1).for_each(job);
}

/// Results of a study.
pub struct Outcome {
    /// The part that follows from plan and seed.
    pub result: StudyResult,
    /// The part that depends on the machine that ran it.
    pub host: Option<HostResult>,
}

/// Reasons why a study gave no result.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The observer stopped it.
    #[error("interrupted")]
    Interrupted,
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The measurements are not a valid result.
    #[error(transparent)]
    Result(#[from] ResultError),
    /// Free blocks do not fit into memory.
    #[error("memory.block_frames: {0}")]
    TooFull(#[from] crate::source::memory::TooFull),
    /// Memory cannot be prepared, or a request of the workload not be served.
    #[error("study {study}: {what}")]
    Machine {
        /// The study.
        study: String,
        /// The fault, with its numbers.
        what: String,
    },
    /// There is no such design.
    #[error("no design {design:?}; there are {known}")]
    NoDesign {
        /// The name that was asked for.
        design: String,
        /// Those that there are.
        known: String,
    },
    /// Real input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn what_is_shared_is_measured_once_for_each_key() {
        let shared = Shared::default();
        let mut measured = Vec::new();
        let mut get = |key: &str, result: Result<u64, &'static str>| {
            shared.get_or_measure(key, || {
                measured.push(key.to_owned());
                result
            })
        };
        assert_eq!(get("a", Err("no")), Err("no"));
        assert_eq!(get("a", Ok(1)), Ok(1));
        assert_eq!(get("a", Ok(2)), Ok(1));
        assert_eq!(get("b", Ok(2)), Ok(2));
        assert_eq!(measured, ["a", "a", "b"]);
    }
}

//! The run of a study: points in parallel, seeds, and the errors of it.
//!
//! A study is a list of points that do not depend on each other. They run on
//! as many threads as the caller's pool has, and are gathered in the plan's
//! order, so that the same plan and seed give the same bytes whatever the
//! number of threads.

use rayon::prelude::*;

use crate::source::real::{InputError, RealInput};
use crate::study::grid::{Grid, Metrics, Value};
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

/// The circumstances of a run.
pub struct Run<'a> {
    /// True for the quick form of the plan.
    pub quick: bool,
    /// Real input in place of the plan's.
    pub real: &'a RealInput,
    /// The observer.
    pub watch: &'a dyn Watch,
}

impl Run<'_> {
    /// Measures every point on the current thread pool; results in the order
    /// of the points.
    ///
    /// # Errors
    /// The first error in that order, or [`StudyError::Interrupted`].
    pub fn points<P: Sync, R: Send>(
        &self,
        about: &Head,
        points: &[P],
        measure: impl Fn(&P) -> Result<R, StudyError> + Sync,
    ) -> Result<Vec<R>, StudyError> {
        self.watch.begin(&about.study, points.len() as u64);
        let results: Vec<Result<R, StudyError>> = points
            .par_iter()
            .map(|point| {
                if self.watch.cancelled() {
                    return Err(StudyError::Interrupted);
                }
                let result = measure(point);
                self.watch.point();
                result
            })
            .collect();
        results.into_iter().collect()
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
}

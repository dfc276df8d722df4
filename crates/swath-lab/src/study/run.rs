//! What every study shares: how it is run, what it gives, how it fails.
//!
//! A study is a list of points that do not depend on each other. They run on
//! as many threads as the caller's pool has, and are gathered in the plan's
//! order, so that the same plan and seed give the same bytes whatever the
//! number of threads.

use rayon::prelude::*;
use serde::Serialize;

use crate::source::real::{InputError, RealInput};
use crate::study::plan::{About, PlanError};
use crate::study::results::{HostResult, ResultError, StudyResult};

/// Who watches a study run.
pub trait Watch: Sync {
    /// A study of so many points begins.
    fn begin(&self, study: &str, points: u64);
    /// One point is done.
    fn point(&self);
    /// Whether the run should stop at the next point.
    fn cancelled(&self) -> bool;
}

/// How a plan is run.
pub struct Run<'a> {
    /// Fewer repeats.
    pub quick: bool,
    /// Real input in place of the plan's.
    pub real: &'a RealInput,
    /// Who watches.
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
        about: &About,
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
}

/// What a study found.
pub struct Outcome {
    /// What follows from plan and seed.
    pub result: StudyResult,
    /// What depends on the machine that ran it.
    pub host: Option<HostResult>,
}

/// Why a study gave no result.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The watcher stopped it.
    #[error("interrupted")]
    Interrupted,
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// What was measured is not a valid result.
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
        /// What went wrong, with its numbers.
        what: String,
    },
    /// There is no such design.
    #[error("no design {design:?}; there are {known}")]
    NoDesign {
        /// What was asked for.
        design: String,
        /// Those that there are.
        known: String,
    },
    /// Real input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// A result without figures yet. Its plan is the one that was run: whether
/// quick, and with the real input that took the place of its own.
pub fn result(about: &About, plan: &impl Serialize, run: &Run<'_>, finding: String) -> StudyResult {
    let mut json = serde_json::to_value(plan).unwrap_or_default();
    if let Some(keys) = json.as_object_mut() {
        keys.insert("quick".to_owned(), run.quick.into());
        if let Some(machine) = run.real.memory.as_ref().filter(|_| about.kind.uses_memory()) {
            keys.insert("real_memory".to_owned(), machine.name.clone().into());
        }
        if let Some(file) = run.real.accesses.as_ref().filter(|_| about.kind.uses_accesses()) {
            keys.insert("real_accesses".to_owned(), file.display().to_string().into());
        }
    }
    StudyResult {
        study: about.study.clone(),
        title: about.title.clone(),
        paper: about.paper.clone(),
        reference: about.reference.clone(),
        seed: about.seed,
        plan: json,
        finding,
        figures: Vec::new(),
        series: Vec::new(),
        claims: Vec::new(),
        notes: Vec::new(),
    }
}

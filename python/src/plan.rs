//! Plans and their results.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use swath_lab::report::write;
use swath_lab::source::real::RealInput;
use swath_lab::study::needs::Limits;
use swath_lab::study::registry;
use swath_lab::study::run::{Outcome as Found, Run, Shared};
use swath_lab::sweep::key::set;
use swath_lab::table::column::Table as Rows;
use swath_lab::table::result;

use crate::error::{failed, of_study, refused, there};
use crate::interrupt::interruptible;
use crate::source::Memory;
use crate::table::Table;

/// The names of the studies.
#[pyfunction]
pub(crate) fn studies() -> PyResult<Vec<String>> {
    let built_in = registry::built_in().map_err(failed)?;
    Ok(built_in.iter().map(|plan| plan.about().study.clone()).collect())
}

/// The plan of a study, as TOML.
#[pyfunction]
pub(crate) fn plan_text(study: &str) -> PyResult<&'static str> {
    registry::text_of(study).ok_or_else(|| refused(format!("no study {study:?}")))
}

/// The name of a plan's study, if the plan can be run.
#[pyfunction]
pub(crate) fn study_of(name: &str, text: &str) -> PyResult<String> {
    Ok(registry::parse(name, text).map_err(refused)?.about().study.clone())
}

/// The value of a key, as JSON; that of the whole plan without a key.
#[pyfunction]
pub(crate) fn plan_get(text: &str, key: &str) -> PyResult<String> {
    let plan: toml::Value = toml::from_str(text).map_err(refused)?;
    let mut at = &plan;
    for part in key.split('.').filter(|_| !key.is_empty()) {
        let inner = match at {
            toml::Value::Array(list) => part.parse::<usize>().ok().and_then(|nth| list.get(nth)),
            value => value.get(part),
        };
        at = inner.ok_or_else(|| PyKeyError::new_err(key.to_owned()))?;
    }
    serde_json::to_string(at).map_err(refused)
}

/// The plan with a key set to the value in JSON, as TOML.
#[pyfunction]
pub(crate) fn plan_set(text: &str, key: &str, json: &str) -> PyResult<String> {
    let mut plan: toml::Table = toml::from_str(text).map_err(refused)?;
    let value: toml::Value =
        serde_json::from_str(json).map_err(|why| refused(format!("{key}: {why}")))?;
    set(&mut plan, key, &value)
        .map_err(|refusal| refused(format!("{}: {}", refusal.key, refusal.why)))?;
    toml::to_string(&plan).map_err(refused)
}

/// The results of a study.
#[pyclass(module = "swath._native", frozen)]
pub(crate) struct Outcome(Found);

/// The most threads of a run.
const THREADS_MAX: usize = 1 << 10;

/// Runs a plan on so many threads, or on as many as processors.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "called by keyword from the package around it")]
pub(crate) fn run(
    py: Python<'_>,
    name: &str,
    text: &str,
    quick: bool,
    seed: Option<u64>,
    memory: Option<&Memory>,
    accesses: Option<PathBuf>,
    threads: usize,
) -> PyResult<Outcome> {
    let mut plan = registry::parse(name, text).map_err(refused)?;
    if let Some(seed) = seed {
        plan.about_mut().seed = seed;
    }
    let uses = plan.uses();
    for (given, used, what) in
        [(memory.is_some(), uses.memory, "memory"), (accesses.is_some(), uses.accesses, "accesses")]
    {
        if given && !used {
            return Err(refused(format!("{what}: the study {} uses none", plan.about().study)));
        }
    }
    if threads > THREADS_MAX {
        return Err(refused(format!("threads: {threads}, of at most {THREADS_MAX}")));
    }
    accesses.as_deref().map_or(Ok(()), there)?;
    let memory = memory.map(|memory| Arc::clone(&memory.0));
    interruptible(py, |interrupt| {
        let real = RealInput { memory, accesses, measure: false };
        let shared = Shared::default();
        let run = Run { quick, real: &real, watch: interrupt, journal: None, shared: &shared };
        let most =
            if threads == 0 { available_parallelism().map_or(1, usize::from) } else { threads };
        let threads = plan.threads_within(&run, most as u64, Limits::here()).map_err(refused)?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build();
        pool.map_err(failed)?.install(|| plan.run(&run)).map(Outcome).map_err(of_study)
    })
}

#[pymethods]
impl Outcome {
    /// The bytes of `results.json`.
    fn json<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = write::results_json(&self.0.result).map_err(failed)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Its rows, with those that depend on the machine.
    fn table(&self) -> Table {
        let mut rows = Rows::new(&result::schema());
        result::append(&mut rows, &[], &self.0.result);
        if let Some(host) = &self.0.host {
            result::append_host(&mut rows, &[], host);
        }
        rows.into()
    }

    #[getter]
    fn study(&self) -> &str {
        &self.0.result.study
    }

    #[getter]
    fn finding(&self) -> &str {
        &self.0.result.finding
    }
}

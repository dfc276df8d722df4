//! Sweeps, point by point, for executors that run them.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use swath_lab::study::journal;
use swath_lab::study::needs::Limits;
use swath_lab::sweep::folder::{Shard, manifest};
use swath_lab::sweep::{definition, run};
use swath_lab::table::column::Table as Rows;

use crate::error::{failed, of_study, refused};
use crate::interrupt::interruptible;
use crate::table::Table;

/// A sweep's definition, as TOML: a plan, the values of its keys in JSON, and files in place of the
/// plan's input.
#[pyfunction]
pub(crate) fn sweep_text(
    plan: &str,
    keys: Vec<(String, String)>,
    quick: bool,
    skip_refused: bool,
    memory: Option<&str>,
    unknown_free: bool,
    accesses: Option<&str>,
) -> PyResult<String> {
    let plan: toml::Table = toml::from_str(plan).map_err(refused)?;
    let mut text = format!("plan = {}\n", toml::Value::Table(plan));
    let form = if quick { "quick" } else { "full" };
    let on_refusal = if skip_refused { "skip" } else { "error" };
    text += &format!("form = \"{form}\"\nrefused = \"{on_refusal}\"\n");
    let word = |word: &str| toml::Value::String(word.to_owned()).to_string();
    for (name, file) in [("memory", memory), ("accesses", accesses)] {
        if let Some(file) = file {
            text += &format!("{name} = {}\n", word(file));
        }
    }
    text += &format!("unknown_free = {unknown_free}\n\n[keys]\n");
    for (path, json) in keys {
        let values: toml::Value =
            serde_json::from_str(&json).map_err(|why| refused(format!("{path}: {why}")))?;
        text += &format!("{} = {values}\n", word(&path));
    }
    Ok(text)
}

/// A sweep's definition: what `swath sweep` reads.
#[pyclass(module = "swath._native", frozen)]
pub(crate) struct Sweep(definition::Sweep);

#[pymethods]
impl Sweep {
    #[new]
    fn new(py: Python<'_>, name: &str, text: &str, folder: PathBuf) -> PyResult<Self> {
        py.detach(|| definition::Sweep::read(name, text, &folder)).map(Self).map_err(refused)
    }

    #[getter]
    fn study(&self) -> &str {
        &self.0.study
    }

    #[getter]
    fn points(&self) -> u64 {
        self.0.points()
    }

    /// A point's values, by key, as JSON.
    fn values(&self, point: u64) -> PyResult<Vec<(String, String)>> {
        self.check(point)?;
        let values = self.0.keys.iter().zip(self.0.places(point)).map(|(key, place)| {
            let json = serde_json::to_string(&key.values[place]).map_err(refused)?;
            Ok((key.path.clone(), json))
        });
        values.collect()
    }

    /// The plan of a point, as TOML.
    fn plan_text(&self, point: u64) -> PyResult<String> {
        self.check(point)?;
        self.0.plan_text(point).map_err(refused)
    }

    /// Refuses points whose plans cannot be run, unless the sweep skips such points.
    fn check_points(&self, py: Python<'_>, points: Vec<u64>) -> PyResult<()> {
        points.iter().try_for_each(|&point| self.check(point))?;
        py.detach(|| {
            let pool = rayon::ThreadPoolBuilder::new().build().map_err(failed)?;
            let checked = pool.install(|| run::check(&self.0, &points, 1, Limits::here()));
            checked.map(drop).map_err(refused)
        })
    }

    /// Measures a point, on one thread.
    fn run_point(&self, py: Python<'_>, point: u64) -> PyResult<Table> {
        self.check(point)?;
        interruptible(py, |interrupt| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
            let rows =
                pool.map_err(failed)?.install(|| run::point_table(&self.0, point, interrupt));
            rows.map(Table::from).map_err(of_study)
        })
    }

    /// All that its points follow from but this library, as JSON.
    fn key(&self, py: Python<'_>) -> PyResult<String> {
        let manifest = py.detach(|| manifest(&self.0, Shard::WHOLE));
        manifest.map(|manifest| manifest.to_string()).map_err(failed)
    }
}

impl Sweep {
    fn check(&self, point: u64) -> PyResult<()> {
        let points = self.0.points();
        if point < points { Ok(()) } else { Err(refused(format!("point {point} of {points}"))) }
    }
}

/// A journal of points, as `swath sweep` writes one.
#[pyclass(module = "swath._native", frozen)]
pub(crate) struct Journal {
    journal: journal::Journal,
    stage: u32,
}

#[pymethods]
impl Journal {
    #[new]
    fn new(path: &str, key: &str, points: usize) -> PyResult<Self> {
        let path = Path::new(path);
        if !journal::Journal::fits(path, key).map_err(failed)? {
            let path = path.display();
            return Err(refused(format!("{path}: no journal of these points; it stays as it is")));
        }
        let (journal, _) = journal::Journal::open(path, key).map_err(failed)?;
        let stage = journal.stage(points);
        Ok(Self { journal, stage })
    }

    /// The rows of a point that was measured before.
    fn recall(&self, py: Python<'_>, point: u32) -> Option<Table> {
        py.detach(|| self.journal.recall::<Rows>(self.stage, point)).map(Table::from)
    }

    /// Writes down the rows of a point.
    fn record(&self, py: Python<'_>, point: u32, table: &Bound<'_, Table>) -> PyResult<()> {
        let rows = &*table.get().0;
        py.detach(|| self.journal.record(self.stage, point, rows)).map_err(failed)
    }
}

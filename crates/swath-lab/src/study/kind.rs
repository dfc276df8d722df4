//! The trait of studies, and studies with a plan that was read.
//!
//! A study is one file of code with a unit struct that implements [`Study`], one
//! plan beside it, and one entry in its paper's list. The rest of the laboratory
//! sees any of them as an [`AnyStudy`], and once its plan is read as a
//! [`ReadyStudy`].

use std::any::Any;

use serde_json::Value as Json;

use crate::film::Film;
use crate::study::citation::Citation;
use crate::study::claim::{Claim, Statement};
use crate::study::journal::JournalError;
use crate::study::key;
use crate::study::needs::{Limits, Needs};
use crate::study::plan::{Head, Plan, PlanError, Refused, read, value_error};
use crate::study::results::{Figure, HostResult, Series, StudyResult, check_pair};
use crate::study::run::{Outcome, Run, StudyError};

/// A kind of study: its plan as a type, what it measures, its figures, its
/// claims, and the work that a child process does for it.
pub trait Study: Sync + 'static {
    /// The name by which plans ask for this code.
    const KIND: &'static str;
    /// The real input that it can use.
    const USES: Uses = Uses::NOTHING;
    /// The plan.
    type Plan: Plan;
    /// The measurements: a [`Grid`](crate::study::grid::Grid), or several with
    /// what else the figures show.
    type Found;

    /// Number of seeds of a run; 0 if nothing depends on one.
    fn seeds(plan: &Self::Plan, quick: bool) -> u64;

    /// The memory that it takes, by the keys of the plan that it grows with.
    fn needs(plan: &Self::Plan, run: &Run<'_>) -> Needs;

    /// Measures.
    ///
    /// # Errors
    /// [`StudyError`].
    fn measure(plan: &Self::Plan, run: &Run<'_>) -> Result<Self::Found, StudyError>;

    /// The paper's statements, all of them, whatever the plan leaves out.
    fn claims(plan: &Self::Plan, run: &Run<'_>) -> Vec<Statement<Self::Found>>;

    /// The parameters that were chosen by their results, after the paper's figures were
    /// known: each with its value and what leaves it open. They are shown with the claims.
    fn fitted(_plan: &Self::Plan) -> Vec<String> {
        Vec::new()
    }

    /// The figures, the finding and the notes.
    fn show(plan: &Self::Plan, run: &Run<'_>, found: &Self::Found) -> Shown;

    /// Memory over time, shown before the figures.
    fn film(_plan: &Self::Plan, _run: &Run<'_>, _found: &Self::Found) -> Option<Film> {
        None
    }

    /// Does a job of this study in a process of its own.
    ///
    /// # Errors
    /// The fault, for the program to say.
    fn child(_job: &str) -> Result<(), Box<dyn std::error::Error>> {
        Err(format!("studies of the kind {} have no work for a child", Self::KIND).into())
    }
}

/// The real input that a study can use in place of its plan's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The free frames of a machine.
    pub memory: bool,
    /// The accesses of a program.
    pub accesses: bool,
    /// The machine that runs the study.
    pub machine: bool,
}

impl Uses {
    /// No real input.
    pub const NOTHING: Self = Self { memory: false, accesses: false, machine: false };
}

/// A figure with its series.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// The drawing.
    pub figure: Figure,
    /// Its data.
    pub series: Vec<Series>,
}

/// The parts of a report that a study writes itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shown {
    /// The finding in one paragraph of plain text, after the plan's purpose.
    pub finding: String,
    /// The figures in the order of the report.
    pub figures: Vec<Drawn>,
    /// Facts that a reader must know to judge the figures, one paragraph each.
    pub notes: Vec<String>,
    /// The part that depends on the machine that ran the study.
    pub host: Option<HostShown>,
}

/// The part of a report that depends on the machine that ran the study.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostShown {
    /// The machine in words.
    pub machine: String,
    /// The figures.
    pub figures: Vec<Drawn>,
    /// Facts that a reader must know to judge the figures.
    pub notes: Vec<String>,
}

/// Any [`Study`], for the registry.
pub trait AnyStudy: Sync {
    /// [`Study::KIND`].
    fn kind(&self) -> &'static str;
    /// [`Study::USES`].
    fn uses(&self) -> Uses;
    /// The JSON Schema of its plans.
    fn schema(&self) -> Json;
    /// Reads a plan and checks it.
    ///
    /// # Errors
    /// [`PlanError`].
    fn read(
        &self,
        citation: &'static Citation,
        name: &str,
        text: &str,
    ) -> Result<Box<dyn ReadyStudy>, PlanError>;
    /// [`Study::child`].
    ///
    /// # Errors
    /// The fault, for the program to say.
    fn child(&self, job: &str) -> Result<(), Box<dyn std::error::Error>>;
}

/// A study with a plan that was read and checked.
pub trait ReadyStudy: Send + Sync {
    /// The plan's head.
    fn about(&self) -> &Head;
    /// The plan's head, to be changed.
    fn about_mut(&mut self) -> &mut Head;
    /// The paper's citation.
    fn citation(&self) -> &'static Citation;
    /// The real input that it can use.
    fn uses(&self) -> Uses;
    /// Statements of the paper, as places, words and the reason if none of the
    /// plan's runs can be compared.
    fn statements(&self, run: &Run<'_>) -> Vec<(String, Option<String>)>;
    /// The memory that it takes.
    fn needs(&self, run: &Run<'_>) -> Needs;
    /// The most points at the same time, up to `threads`, that keep within the limits.
    ///
    /// # Errors
    /// [`PlanError::Value`], which names the key whose part is the largest, and its line, if
    /// not even one point does.
    fn threads_within(&self, run: &Run<'_>, threads: u64, limits: Limits)
    -> Result<u64, PlanError>;
    /// The key of its journal: all that its points follow from.
    ///
    /// # Errors
    /// [`JournalError`] if a file that it names cannot be read.
    fn journal_key(&self, run: &Run<'_>) -> Result<String, JournalError>;
    /// Runs it.
    ///
    /// # Errors
    /// [`StudyError`].
    fn run(&self, run: &Run<'_>) -> Result<Outcome, StudyError>;
    /// The plan, as its own type.
    fn plan(&self) -> &dyn Any;
}

struct Ready<S: Study> {
    citation: &'static Citation,
    plan: S::Plan,
    /// The name and text that the plan was read from.
    source: (String, String),
}

impl<S: Study> AnyStudy for S {
    fn kind(&self) -> &'static str {
        S::KIND
    }

    fn uses(&self) -> Uses {
        S::USES
    }

    fn schema(&self) -> Json {
        schemars::schema_for!(S::Plan).to_value()
    }

    fn read(
        &self,
        citation: &'static Citation,
        name: &str,
        text: &str,
    ) -> Result<Box<dyn ReadyStudy>, PlanError> {
        let source = (name.to_owned(), text.to_owned());
        Ok(Box::new(Ready::<S> { citation, plan: read(name, text)?, source }))
    }

    fn child(&self, job: &str) -> Result<(), Box<dyn std::error::Error>> {
        S::child(job)
    }
}

impl<S: Study> ReadyStudy for Ready<S> {
    fn about(&self) -> &Head {
        self.plan.about()
    }

    fn about_mut(&mut self) -> &mut Head {
        self.plan.about_mut()
    }

    fn citation(&self) -> &'static Citation {
        self.citation
    }

    fn uses(&self) -> Uses {
        S::USES
    }

    fn statements(&self, run: &Run<'_>) -> Vec<(String, Option<String>)> {
        S::claims(&self.plan, run).iter().map(Statement::describe).collect()
    }

    fn needs(&self, run: &Run<'_>) -> Needs {
        S::needs(&self.plan, run)
    }

    fn threads_within(
        &self,
        run: &Run<'_>,
        threads: u64,
        limits: Limits,
    ) -> Result<u64, PlanError> {
        let (name, text) = &self.source;
        let refused = |(key, why)| value_error(name, text, Refused { key, why });
        self.needs(run).threads_within(threads, limits).map_err(refused)
    }

    fn journal_key(&self, run: &Run<'_>) -> Result<String, JournalError> {
        key::journal_key(&self.plan_as_run(run), run)
    }

    fn run(&self, run: &Run<'_>) -> Result<Outcome, StudyError> {
        let about = self.plan.about();
        let found = S::measure(&self.plan, run)?;
        let (host_claims, claims): (Vec<_>, Vec<_>) =
            S::claims(&self.plan, run).into_iter().partition(Statement::is_on_host);
        let judge = |statements: Vec<Statement<S::Found>>| -> Vec<Claim> {
            statements.into_iter().map(|statement| statement.judge(&found)).collect()
        };
        let shown = S::show(&self.plan, run, &found);
        let (figures, series) = apart(shown.figures);
        let seeds = S::seeds(&self.plan, run.quick);
        let result = StudyResult {
            study: about.study.clone(),
            title: about.title.clone(),
            paper: self.citation.key.to_owned(),
            reference: self.citation.text(),
            seed: about.seed,
            quick: run.quick,
            n: u32::try_from(seeds).unwrap_or(u32::MAX),
            plan: self.plan_as_run(run),
            finding: format!("{} {}", about.purpose, shown.finding).trim().to_owned(),
            film: S::film(&self.plan, run, &found),
            figures,
            series,
            fitted: S::fitted(&self.plan),
            claims: judge(claims),
            notes: shown.notes,
        };
        let empty = HostShown::default();
        let host = (shown.host.is_some() || !host_claims.is_empty()).then(|| {
            let part = shown.host.as_ref().unwrap_or(&empty);
            let (figures, series) = apart(part.figures.clone());
            HostResult {
                study: about.study.clone(),
                host: part.machine.clone(),
                figures,
                series,
                claims: judge(host_claims),
                notes: part.notes.clone(),
            }
        });
        check_pair(&result, host.as_ref())?;
        Ok(Outcome { result, host })
    }

    fn plan(&self) -> &dyn Any {
        &self.plan
    }
}

impl<S: Study> Ready<S> {
    /// The plan with the form of the run and the real input that took the place
    /// of its own.
    fn plan_as_run(&self, run: &Run<'_>) -> Json {
        let mut json = serde_json::to_value(&self.plan).unwrap_or_default();
        if let Some(keys) = json.as_object_mut() {
            keys.insert("quick".to_owned(), run.quick.into());
            if let Some(machine) = run.real.memory.as_ref().filter(|_| S::USES.memory) {
                keys.insert("real_memory".to_owned(), machine.name.clone().into());
            }
            if let Some(file) = run.real.accesses_name().filter(|_| S::USES.accesses) {
                keys.insert("real_accesses".to_owned(), file.into());
            }
        }
        json
    }
}

fn apart(drawn: Vec<Drawn>) -> (Vec<Figure>, Vec<Series>) {
    let (figures, series): (Vec<_>, Vec<_>) =
        drawn.into_iter().map(|one| (one.figure, one.series)).unzip();
    (figures, series.into_iter().flatten().collect())
}

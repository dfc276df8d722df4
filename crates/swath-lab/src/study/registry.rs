//! The one list of studies: papers with their entries.
//!
//! Nothing else knows which studies there are: the program, the report and the
//! children that measure for a study all go through [`PAPERS`].

use serde_json::Value as Json;

use crate::papers;
use crate::study::citation::Citation;
use crate::study::kind::{AnyStudy, ReadyStudy};
use crate::study::paper::{Entry, Paper};
use crate::study::plan::{PlanError, read_head};

/// Papers in the order of the report.
///
/// Constants, here and in the papers: the code that a static names is part of every program,
/// and the unit tests, which run no study, took four times as long to build.
pub const PAPERS: [&Paper; 5] = [
    &papers::page_buddy::paper::PAPER,
    &papers::green::paper::PAPER,
    &papers::superpages::paper::PAPER,
    &papers::real_time::paper::PAPER,
    &papers::clmalloc::paper::PAPER,
];

/// Entries of all papers, in the order of the report.
pub fn entries() -> impl Iterator<Item = (&'static Paper, Entry)> {
    PAPERS.into_iter().flat_map(|paper| paper.studies.iter().map(move |entry| (paper, *entry)))
}

/// Entries of the studies' searches, each with its study's.
fn searches() -> impl Iterator<Item = (&'static Paper, Entry, Entry)> {
    entries().filter_map(|(paper, entry)| Some((paper, entry, *entry.search?)))
}

/// The entries of studies and of their searches.
fn all() -> impl Iterator<Item = (&'static Paper, Entry)> {
    entries().chain(searches().map(|(paper, _, search)| (paper, search)))
}

/// The code of a kind.
///
/// # Errors
/// [`PlanError::Parse`] with the kinds that there are.
fn code_of(
    kind: &str,
    plan: &str,
) -> Result<(&'static Citation, &'static dyn AnyStudy), PlanError> {
    let found = all().find(|(_, entry)| entry.code.kind() == kind);
    found.map(|(paper, entry)| (&paper.citation, entry.code)).ok_or_else(|| {
        let mut kinds: Vec<&str> = all().map(|(_, entry)| entry.code.kind()).collect();
        kinds.dedup();
        let message = format!("about.kind: no kind {kind:?}; there are {}", kinds.join(", "));
        PlanError::Parse { plan: plan.to_owned(), message }
    })
}

/// Reads a plan of any kind; `name` is its name or file.
///
/// # Errors
/// [`PlanError`].
pub fn parse(name: &str, text: &str) -> Result<Box<dyn ReadyStudy>, PlanError> {
    let head = read_head(name, text)?;
    let (citation, code) = code_of(&head.kind, name)?;
    code.read(citation, name, text)
}

/// The plan of the study of this name, as text.
pub fn text_of(study: &str) -> Option<&'static str> {
    let is_its = |plan: &str| read_head(study, plan).is_ok_and(|head| head.study == study);
    entries().map(|(_, entry)| entry.plan).find(|plan| is_its(plan))
}

/// Every study that comes with the program.
///
/// # Errors
/// [`PlanError`]; never for the plans that come with the program, which a test reads.
pub fn built_in() -> Result<Vec<Box<dyn ReadyStudy>>, PlanError> {
    entries()
        .map(|(paper, entry)| entry.code.read(&paper.citation, entry.code.kind(), entry.plan))
        .collect()
}

/// A search with the name of its study.
pub type NamedSearch = (String, Box<dyn ReadyStudy>);

/// The searches that come with the program, each with the name of its study.
///
/// # Errors
/// [`PlanError`]; never for the plans that come with the program, which a test reads.
pub fn built_in_searches() -> Result<Vec<NamedSearch>, PlanError> {
    searches()
        .map(|(paper, entry, search)| {
            let of = read_head(entry.code.kind(), entry.plan)?.study;
            Ok((of, search.code.read(&paper.citation, search.code.kind(), search.plan)?))
        })
        .collect()
}

/// The JSON Schema of every kind's plans, by kind.
pub fn schemas() -> Json {
    let all = all().map(|(_, entry)| (entry.code.kind().to_owned(), entry.code.schema()));
    Json::Object(all.collect())
}

/// Does a job in this process, which is the child.
///
/// # Errors
/// The fault, for the program to say.
pub fn child(kind: &str, job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let (_, code) = code_of(kind, "child")?;
    code.child(job)
}

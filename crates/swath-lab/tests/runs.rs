//! Runs without real input, journal or watch, and the built-in plans that are run.

use swath_lab::source::real::RealInput;
use swath_lab::study::registry;
use swath_lab::study::run::{Run, Shared, Unwatched};

/// Hands `visit` a quick or full run.
pub(crate) fn with_run<T>(quick: bool, visit: impl FnOnce(&Run<'_>) -> T) -> T {
    visit(&Run {
        quick,
        real: &RealInput::default(),
        watch: &Unwatched,
        journal: None,
        shared: &Shared::default(),
    })
}

/// The text of a built-in plan.
pub(crate) fn text(study: &str) -> &'static str {
    let wanted = format!("study = \"{study}\"");
    let plans: Vec<_> = registry::entries().map(|(_, entry)| entry.plan).collect();
    plans.into_iter().find(|plan| plan.contains(&wanted)).unwrap()
}

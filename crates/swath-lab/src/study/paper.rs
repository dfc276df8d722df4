//! A paper: its citation and its studies.

use crate::study::citation::Citation;
use crate::study::kind::AnyStudy;

/// A paper that the laboratory reproduces.
#[derive(Clone, Copy)]
pub struct Paper {
    /// The citation, which stands here alone.
    pub citation: Citation,
    /// Its studies in the order of the report.
    pub studies: &'static [Entry],
}

/// One study of the registry: code, and the text of the plan beside it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: &'static dyn AnyStudy,
    /// The plan.
    pub plan: &'static str,
    /// The search over the study's open parameters, if it has one. It runs only if it is asked for.
    pub search: Option<&'static Entry>,
}

/// An entry: the code and the plan of a study, and the entry of its search.
#[macro_export]
macro_rules! entry {
    ($code:expr, $plan:literal) => {
        $crate::study::paper::Entry { code: &$code, plan: include_str!($plan), search: None }
    };
    ($code:expr, $plan:literal, search: $search:expr) => {
        $crate::study::paper::Entry {
            code: &$code,
            plan: include_str!($plan),
            search: Some(&$search),
        }
    };
}

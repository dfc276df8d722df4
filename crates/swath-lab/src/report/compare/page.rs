//! A comparison as a page of its own.

use std::io::Write as _;
use std::path::Path;

use maud::{Markup, html};
use swath_trace::output;

use crate::report::compare::error::CompareError;
use crate::report::compare::find::{
    Change, Comparison, FAMILY_ALPHA, KeyChange, StudyChanges, Subject,
};
use crate::report::error::ReportError;
use crate::report::folder::check_page;
use crate::report::page::{document, scrolling};
use crate::study::estimate::Estimate;
use crate::study::results::Unit;

/// Writes the page of a comparison of the reports with these names.
///
/// # Errors
/// [`ReportError::Foreign`] if the file is there and another program's,
/// [`ReportError::File`] if it cannot be written.
pub fn write(
    path: &Path,
    names: (&str, &str),
    comparison: &Comparison,
) -> Result<(), CompareError> {
    check_page(path)?;
    let page = page(names, comparison).into_string();
    output::replace(path, |file| file.write_all(page.as_bytes()))
        .map_err(|source| ReportError::File { path: path.to_owned(), source }.into())
}

/// How many numbers changed, in one sentence.
pub fn summary(comparison: &Comparison) -> String {
    let changes: usize = comparison.studies.iter().map(|study| study.changes.len()).sum();
    let (judged, unjudged) = (comparison.judged, comparison.unjudged);
    let mut text = format!("{changes} of {judged} numbers changed beyond their intervals");
    let lone = comparison.changed() - changes;
    if lone > 0 {
        text += &format!("; {lone} parts are in one report alone");
    }
    if unjudged > 0 {
        text += &format!("; {unjudged} numbers of one seed or without an interval were not judged");
    }
    text
}

/// The bound on false alarms, in one sentence.
pub fn bound() -> String {
    format!(
        "Where nothing changed, the chance that any number is called changed is at most {} % \
         (Student's test for two samples, Holm's bound over all numbers).",
        FAMILY_ALPHA * 100.0
    )
}

/// A number with the ends of its interval.
pub fn show(unit: Unit, estimate: &Estimate) -> String {
    let value = unit.show(estimate.value);
    match estimate.interval {
        Some((low, high)) if low < high => {
            format!("{value} ({} to {})", unit.show(low), unit.show(high))
        }
        _ => value,
    }
}

/// The change in per cent with its sign, or a dash.
pub fn percent(change: &Change) -> String {
    let Some(share) = change.relative() else { return "–".to_owned() };
    format!("{}{}", if share > 0.0 { "+" } else { "" }, Unit::Share.show(share))
}

/// A key's value; a dash where the plan has no such key.
pub fn value(of: Option<&serde_json::Value>) -> String {
    of.map_or_else(|| "–".to_owned(), ToString::to_string)
}

fn page((a, b): (&str, &str), comparison: &Comparison) -> Markup {
    document(
        "Swath: two reports compared",
        &[],
        html! {
            header {
                h1 { "Two reports compared" }
                p.lead { "A: " (a) br; "B: " (b) }
            }
            main #content {
                section #summary {
                    h2 { "Summary" }
                    p.total { (summary(comparison)) "." }
                    p.quiet { (bound()) " What was measured on a machine is not compared." }
                    @for (names, which) in [(&comparison.only_a, "A"), (&comparison.only_b, "B")] {
                        @if !names.is_empty() {
                            p { "In " (which) " alone: " (names.join(", ")) "." }
                        }
                    }
                }
                @for study in &comparison.studies { (section(study)) }
            }
        },
    )
}

fn section(study: &StudyChanges) -> Markup {
    let StudyChanges { study, title, plan, changes, lone, verdicts } = study;
    html! {
        section.study id=(study) {
            h2 { (title) }
            @if !plan.is_empty() { (plans(plan)) }
            @if changes.is_empty() && lone.is_empty() { p { "Nothing changed." } }
            @if !changes.is_empty() { (table(title, changes)) }
            @if !lone.is_empty() {
                ul.notes {
                    @for part in lone {
                        li { "In " @if part.in_a { "A" } @else { "B" } " alone: " (part.what) }
                    }
                }
            }
            @if !verdicts.is_empty() {
                p { "Verdicts that differ although no change of the number is proved:" }
                ul.notes {
                    @for one in verdicts {
                        li { (one.subject) ": " (one.a.title()) ", then " (one.b.title()) }
                    }
                }
            }
        }
    }
}

fn plans(keys: &[KeyChange]) -> Markup {
    html! {
        details {
            summary { "The runs differ in " (keys.len()) " keys" }
            ul.notes {
                @for KeyChange { key, a, b } in keys {
                    li { code { (key) } ": " (value(a.as_ref())) ", then " (value(b.as_ref())) }
                }
            }
        }
    }
}

fn table(title: &str, changes: &[Change]) -> Markup {
    scrolling(
        &format!("Changes: {title}"),
        html! {
            table.changes {
                thead { tr {
                    th scope="col" { "Number" }
                    th.number scope="col" { "A" }
                    th.number scope="col" { "B" }
                    th.number scope="col" { "Change" }
                    th.number scope="col" { "p" }
                } }
                tbody {
                    @for change in changes {
                        tr class=[matches!(change.subject, Subject::Claim { .. }).then_some("claim")] {
                            th scope="row" { (change.subject) }
                            td.number { (show(change.unit, &change.a)) }
                            td.number { (show(change.unit, &change.b)) }
                            td.number { (percent(change)) }
                            td.number { (format!("{:.1e}", change.p)) }
                        }
                    }
                }
            }
        },
    )
}

//! `swath compare`: what changed from one report to another.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use swath_lab::report::compare::find::{Comparison, FAMILY_ALPHA, StudyChanges, compare};
use swath_lab::report::compare::page;

use crate::failure::Failure;

/// The most changes of a study that are printed; all of them are in the page and in JSON.
const ROWS_MAX: usize = 40;

/// Arguments of `swath compare`.
#[derive(Args)]
#[command(after_help = "Exit codes: 0 nothing changed; 1 something changed; 2 an error.")]
pub(crate) struct CompareArgs {
    /// A report's folder, or a study's folder in one.
    a: PathBuf,
    /// The folder that it is compared with.
    b: PathBuf,
    /// Write the comparison as a page, too.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the command: true if something changed.
pub(crate) fn run(args: &CompareArgs) -> Result<bool, Failure> {
    let comparison = compare(&args.a, &args.b).map_err(|error| Failure::new(2, error))?;
    if let Some(path) = &args.out {
        let names = (args.a.to_string_lossy(), args.b.to_string_lossy());
        page::write(path, (&names.0, &names.1), &comparison)
            .map_err(|error| Failure::new(2, error))?;
    }
    let changed = comparison.changed();
    if args.json {
        let bound = json!({ "method": "Holm", "alpha": FAMILY_ALPHA });
        say!("{}", json!({ "changed": changed, "bound": bound, "comparison": comparison }));
    } else {
        print(&comparison);
    }
    Ok(changed > 0)
}

fn print(comparison: &Comparison) {
    comparison.studies.iter().for_each(print_study);
    for (names, which) in [(&comparison.only_a, "first"), (&comparison.only_b, "second")] {
        if !names.is_empty() {
            say!("in the {which} alone: {}", names.join(", "));
        }
    }
    say!("{}", page::summary(comparison));
    say!("{}", page::bound());
}

fn print_study(study: &StudyChanges) {
    let StudyChanges { study, plan, changes, lone, verdicts, .. } = study;
    if changes.is_empty() && lone.is_empty() && verdicts.is_empty() {
        return;
    }
    say!("{study}");
    for key in plan {
        say!("  {}: {} → {}", key.key, page::value(key.a.as_ref()), page::value(key.b.as_ref()));
    }
    let rows: Vec<[String; 5]> = changes
        .iter()
        .take(ROWS_MAX)
        .map(|one| {
            let show = |estimate| page::show(one.unit, estimate);
            let p = format!("p = {:.1e}", one.p);
            [one.subject.to_string(), show(&one.a), show(&one.b), page::percent(one), p]
        })
        .collect();
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths = [0, 1, 2, 3].map(|column| widest(column).unwrap_or(0));
    for [what, a, b, change, p] in &rows {
        let [first, second, third, fourth] = widths;
        say!("  {what:first$}  {a:>second$} → {b:third$}  {change:>fourth$}  {p}");
    }
    if changes.len() > ROWS_MAX {
        say!("  and {} more (--json and --out have all)", changes.len() - ROWS_MAX);
    }
    for part in lone {
        say!("  in the {} alone: {}", if part.in_a { "first" } else { "second" }, part.what);
    }
    for one in verdicts {
        let (a, b) = (one.a.title(), one.b.title());
        say!("  {a} → {b}, though its number is not proved to have changed: {}", one.subject);
    }
}

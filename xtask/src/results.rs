//! Results of long runs, kept in `results/`: of each study that was run in its full form its
//! tables and claims, and one page with every claim beside its verdict.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use serde_json::{Value, json};

/// What of a study's results its claims need beside themselves.
const KEPT: [&str; 8] = ["study", "title", "paper", "reference", "seed", "n", "finding", "fitted"];

/// The page's name in `results/`.
const PAGE: &str = "claims.md";

/// Copies the tables and claims of each study in the reports' folders to `results/`, and writes
/// the page anew from all that is there. A quick form is refused, and then nothing is changed.
pub(crate) fn keep(metadata: &Metadata, reports: &[PathBuf]) -> Result<()> {
    let room = metadata.workspace_root.as_std_path().join("results");
    let mut studies = Vec::new();
    for report in reports {
        let before = studies.len();
        for folder in folders(report)? {
            let path = folder.join("results.json");
            if !path.is_file() {
                continue;
            }
            let results = read(&path)?;
            ensure!(results["quick"] == false, "{}: not a full form", path.display());
            let host = folder.join("host.json");
            let host = host.is_file().then(|| read(&host)).transpose()?;
            let claims = claims_of(&results, host.as_ref());
            studies.push((word(&results, "study")?.to_owned(), folder, claims));
        }
        ensure!(studies.len() > before, "{}: no study's results", report.display());
    }
    for (name, from, claims) in &studies {
        let to = room.join(name);
        if to.exists() {
            fs::remove_dir_all(&to)?;
        }
        fs::create_dir(&to)?;
        for file in files(from)? {
            if file.extension().is_some_and(|ending| ending == "csv") {
                fs::copy(&file, to.join(file.file_name().context("a file without a name")?))?;
            }
        }
        fs::write(to.join("claims.json"), format!("{claims:#}\n"))?;
    }
    let page = page(&all_claims(&room)?)?;
    fs::write(room.join(PAGE), page)?;
    println!("{} studies kept; the page is at {}", studies.len(), room.join(PAGE).display());
    Ok(())
}

/// Sees that the page is what the claims in `results/` say.
pub(crate) fn check(metadata: &Metadata) -> Result<()> {
    let room = metadata.workspace_root.as_std_path().join("results");
    let is = fs::read_to_string(room.join(PAGE)).context(PAGE)?;
    ensure!(is == page(&all_claims(&room)?)?, "results/{PAGE} is not what its claims say");
    Ok(())
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

fn word<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("no {key}"))
}

fn folders(of: &Path) -> Result<Vec<PathBuf>> {
    entries(of, Path::is_dir)
}

fn files(of: &Path) -> Result<Vec<PathBuf>> {
    entries(of, Path::is_file)
}

/// Entries of a folder, in the order of their names.
fn entries(of: &Path, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(of).with_context(|| of.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.retain(|path| wanted(path));
    paths.sort();
    Ok(paths)
}

/// A study's claims with what they need beside themselves, those of the machine that ran it among them.
fn claims_of(results: &Value, host: Option<&Value>) -> Value {
    let mut kept = json!({});
    for key in KEPT {
        if !results[key].is_null() {
            kept[key] = results[key].clone();
        }
    }
    let of = |from: &Value| from["claims"].as_array().cloned().unwrap_or_default();
    let mut claims = of(results);
    if let Some(host) = host {
        kept["host"] = host["host"].clone();
        claims.extend(of(host));
    }
    for claim in claims.iter_mut().filter_map(Value::as_object_mut) {
        // Where in the tables a figure stands, at length: the report has it.
        claim.remove("source");
    }
    kept["claims"] = claims.into();
    kept
}

/// The claims of every study in `room`, in the order of their names.
fn all_claims(room: &Path) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for folder in folders(room)? {
        let path = folder.join("claims.json");
        if path.is_file() {
            all.push(read(&path)?);
        }
    }
    Ok(all)
}

/// The page: how many claims have which verdict, then each study's claims.
fn page(studies: &[Value]) -> Result<String> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, u64>> = BTreeMap::new();
    let mut examples: BTreeMap<&str, u64> = BTreeMap::new();
    let mut fitted: BTreeMap<&str, u64> = BTreeMap::new();
    let mut beyond: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut parts = String::new();
    for study in studies {
        let paper = word(study, "paper")?;
        let claims = study["claims"].as_array().context("no claims")?;
        write!(parts, "\n## {}\n\n", word(study, "title")?)?;
        writeln!(
            parts,
            "`swath study {}`, seed {}. {}",
            word(study, "study")?,
            study["seed"],
            word(study, "reference")?
        )?;
        if let Some(finding) = study["finding"].as_str() {
            writeln!(parts, "\n{finding}")?;
        }
        for fitted in study["fitted"].as_array().into_iter().flatten() {
            write!(parts, "\nChosen after looking: {}.\n", fitted.as_str().unwrap_or_default())?;
        }
        if let Some(host) = study["host"].as_str() {
            write!(parts, "\nInstructions and times are those of one machine: {host}.\n")?;
        }
        if claims.is_empty() {
            parts.push_str("\nNo claim of the paper's: the tables are beside this page.\n");
            continue;
        }
        parts.push_str(
            "\n| where | claim | paper | agrees | measured | 95% interval | n | verdict |\n",
        );
        parts.push_str("|---|---|--:|--:|--:|--:|--:|---|\n");
        for claim in claims {
            let verdict = word(claim, "verdict")?;
            let agrees = Agreeing::of(claim)?;
            ensure!(
                agrees.allows(verdict, &claim["interval"]),
                "{}: {} does not follow from its figures",
                word(claim, "says")?,
                verdict
            );
            let is_beyond = is_beyond(word(claim, "says")?);
            let of_paper = counts.entry(paper).or_default().entry(verdict).or_default();
            *of_paper += u64::from(!is_beyond);
            *examples.entry(paper).or_default() += u64::from(claim["example"] == true);
            let is_fitted = verdict == "holds" && !is_beyond && !claim["fitted"].is_null();
            *fitted.entry(paper).or_default() += u64::from(is_fitted);
            let [held, judged] = beyond.entry(paper).or_default();
            *held += u64::from(is_beyond && verdict == "holds");
            *judged += u64::from(is_beyond && matches!(verdict, "holds" | "differs" | "undecided"));
            writeln!(
                parts,
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                cell(word(claim, "where")?),
                cell(word(claim, "says")?),
                show(&claim["paper"], &claim["unit"]),
                agrees.show(&claim["unit"]),
                show(&claim["measured"], &claim["unit"]),
                interval(&claim["interval"], &claim["unit"]),
                claim["n"],
                cell(&said(claim, verdict)),
            )?;
        }
    }
    let mut text = String::from(
        "# What the full forms found\n\n\
         Written by `cargo xtask results`; what a verdict means is said in\n\
         [the laboratory's README](../crates/swath-lab/README.md). What agrees with the paper, its tolerance included, was stated\n\
         before the run; a claim holds if the interval lies inside. The tables of each study are in the folder of its name.\n\n",
    );
    let verdicts = ["holds", "differs", "undecided", "not-measured", "not-comparable", "identity"];
    let names = verdicts.map(|verdict| verdict.replace('-', " ")).join(" | ");
    let more = [
        "worked examples among them",
        "held with something chosen after looking",
        "beyond the paper, held of judged",
    ];
    writeln!(text, "| paper | {names} | {} |", more.join(" | "))?;
    writeln!(text, "|---|{}", "--:|".repeat(verdicts.len() + more.len()))?;
    for (paper, of) in &counts {
        if let Some(unknown) = of.keys().find(|verdict| !verdicts.contains(verdict)) {
            bail!("{paper}: no verdict is called {unknown:?}");
        }
        let [held, judged] = beyond[paper];
        let each = verdicts.map(|verdict| of.get(verdict).copied().unwrap_or(0).to_string());
        writeln!(
            text,
            "| {paper} | {} | {} | {} | {held} of {judged} |",
            each.join(" | "),
            examples[paper],
            fitted[paper]
        )?;
    }
    text.push_str(&parts);
    Ok(text)
}

/// Returns true for a statement on what the paper does not have, which says so: it is shown, and is
/// none of the paper's claims.
fn is_beyond(says: &str) -> bool {
    says.starts_with("Beyond: ") || says.contains(": beyond the paper, ")
}

/// The numbers that agree with the paper's figure, from the least to the most; a side without a
/// bound has none.
struct Agreeing {
    least: Option<f64>,
    most: Option<f64>,
}

impl Agreeing {
    /// Those of a claim: its paper's figure with its tolerance.
    fn of(claim: &Value) -> Result<Self> {
        let (low, high) = match &claim["paper"] {
            Value::Array(ends) => (ends[0].as_f64(), ends[1].as_f64()),
            one => (one.as_f64(), one.as_f64()),
        };
        let (low, high) = low.zip(high).context("no figure of the paper")?;
        let tolerance = &claim["tolerance"];
        if tolerance == "exactly" {
            return Ok(Self { least: Some(low), most: Some(high) });
        }
        let named = tolerance.as_object().and_then(|kinds| kinds.iter().next());
        let (kind, slack) = named.context("no tolerance")?;
        let slack = slack.as_f64().context("a tolerance that is no number")?;
        let slack = if kind == "relative" { slack * low.abs() } else { slack };
        let (least, most) = (Some(low - slack), Some(high + slack));
        match kind.as_str() {
            "at-least" => Ok(Self { least, most: None }),
            "at-most" => Ok(Self { least: None, most }),
            "relative" | "absolute" | "between" => Ok(Self { least, most }),
            other => bail!("no tolerance is called {other:?}"),
        }
    }

    /// Returns false for a verdict on an interval that its ends contradict.
    fn allows(&self, verdict: &str, interval: &Value) -> bool {
        let ends = interval[0].as_f64().zip(interval[1].as_f64());
        let Some((low, high)) = ends else { return !matches!(verdict, "holds" | "differs") };
        let least = self.least.unwrap_or(f64::NEG_INFINITY);
        let most = self.most.unwrap_or(f64::INFINITY);
        let inside = least <= low && high <= most;
        let outside = high < least || most < low;
        match verdict {
            "holds" => inside,
            "differs" => outside,
            "undecided" => !inside && !outside,
            _ => true,
        }
    }

    /// As a reader wants it.
    fn show(&self, unit: &Value) -> String {
        let shown = |bound: f64| show(&bound.into(), unit);
        match (self.least, self.most) {
            (Some(least), Some(most)) if least == most => shown(least),
            (Some(least), Some(most)) => format!("{} to {}", shown(least), shown(most)),
            (Some(least), None) => format!("from {}", shown(least)),
            (None, Some(most)) => format!("up to {}", shown(most)),
            (None, None) => "–".to_owned(),
        }
    }
}

/// A verdict with what the report says of it.
fn said(claim: &Value, verdict: &str) -> String {
    let mut said = format!("**{}**", verdict.replace('-', " "));
    for key in ["reason", "cause"] {
        if let Some(text) = claim[key].as_str() {
            write!(said, ". {text}").expect("a string grows");
        }
    }
    if let Some(parameter) = claim["fitted"].as_str() {
        let end = if said.ends_with('.') { "" } else { "." };
        write!(said, "{end} Chosen after looking: {parameter}").expect("a string grows");
    }
    said
}

/// A figure of a claim: shares in percent, all with four digits.
fn show(figure: &Value, unit: &Value) -> String {
    let Some(value) = figure.as_f64() else {
        return match figure {
            Value::Null => "–".to_owned(),
            Value::Array(ends) if ends.len() == 2 => {
                format!("{} to {}", show(&ends[0], unit), show(&ends[1], unit))
            }
            Value::String(words) => cell(words),
            other => cell(&other.to_string()),
        };
    };
    let (value, sign) = if unit == "share" { (value * 100.0, "%") } else { (value, "") };
    let digits = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    // Four digits in all, and none of them after a whole number's.
    let places = (3.0 - digits).clamp(0.0, 6.0) as usize;
    let mut text = format!("{value:.places$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text + sign
}

fn interval(interval: &Value, unit: &Value) -> String {
    match interval.as_array().map(Vec::as_slice) {
        Some([low, high]) => format!("{} to {}", show(low, unit), show(high, unit)),
        _ => "–".to_owned(),
    }
}

/// Text as a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod unit {
    use super::*;

    fn study(verdict: &str) -> Value {
        json!({
            "study": "a-study", "title": "A study", "paper": "A paper", "reference": "Its place",
            "seed": 1, "quick": false, "n": 3, "series": [1, 2],
            "claims": [{
                "where": "Fig. 1", "says": "a | b", "paper": 0.5, "measured": 0.123_456,
                "interval": [0.1, 0.2], "n": 3, "unit": "share", "verdict": verdict,
                "tolerance": { "at-least": 0.05 }, "cause": "Why.", "source": "long",
            }],
        })
    }

    #[test]
    fn a_claim_is_a_row_with_its_figures_and_its_verdict() {
        let kept = claims_of(&study("differs"), None);
        assert!(kept["series"].is_null() && kept["claims"][0]["source"].is_null());
        let text = page(&[kept]).unwrap();
        let row =
            "| Fig. 1 | a \\| b | 50% | from 45% | 12.35% | 10% to 20% | 3 | **differs**. Why. |";
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(
            text.lines().any(|line| line == "| A paper | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 of 0 |"),
            "{text}"
        );
    }

    #[test]
    fn claims_of_the_machine_stand_with_it() {
        let mut own = study("holds")["claims"].clone();
        own[0]["tolerance"] = json!({ "at-most": 0.0 });
        let kept = claims_of(&study("differs"), Some(&json!({ "host": "Ours", "claims": own })));
        assert!(kept["claims"][1]["source"].is_null());
        let text = page(&[kept]).unwrap();
        assert!(
            text.contains("| A paper | 1 | 1 |") && text.contains("one machine: Ours."),
            "{text}"
        );
    }

    /// A reader finds each verdict again with the row's own figures.
    #[test]
    fn a_row_says_what_agrees_and_its_verdict_follows() {
        let row = |tolerance: Value, paper: Value, verdict: &str| {
            let mut one = study(verdict);
            one["claims"][0]["tolerance"] = tolerance;
            one["claims"][0]["paper"] = paper;
            page(&[claims_of(&one, None)])
        };
        for (tolerance, paper, verdict, shown) in [
            (json!({ "at-most": 0.05 }), json!(0.16), "holds", "| 16% | up to 21% |"),
            (json!({ "at-most": 0.0 }), json!(0.16), "undecided", "| 16% | up to 16% |"),
            (json!({ "relative": 0.1 }), json!(0.5), "differs", "| 50% | 45% to 55% |"),
            (json!({ "absolute": 0.1 }), json!(0.15), "holds", "| 15% | 5% to 25% |"),
            (json!({ "between": 0.05 }), json!([0.1, 0.2]), "holds", "| 10% to 20% | 5% to 25% |"),
            (json!("exactly"), json!(0.3), "differs", "| 30% | 30% |"),
        ] {
            let text = row(tolerance.clone(), paper.clone(), verdict).unwrap();
            assert!(text.contains(shown), "{shown}: {text}");
            for other in ["holds", "differs", "undecided"].iter().filter(|one| **one != verdict) {
                let error = row(tolerance.clone(), paper.clone(), other).unwrap_err().to_string();
                assert!(error.contains("does not follow"), "{tolerance} {other}: {error}");
            }
        }
        let mut none = study("undecided");
        none["claims"][0]["interval"] = Value::Null;
        assert!(page(&[claims_of(&none, None)]).is_ok(), "one seed has no interval");
        assert!(row(json!({ "near": 1 }), json!(0.5), "holds").is_err());
        assert!(row(Value::Null, json!(0.5), "holds").is_err());
    }

    /// What was chosen after looking stands in the row and is counted beside what holds.
    #[test]
    fn what_was_chosen_after_looking_is_shown_and_counted() {
        let fitted = |verdict, cause: Value| {
            let mut one = study(verdict);
            let claim = &mut one["claims"][0];
            claim["fitted"] = json!("a size");
            claim["cause"] = cause;
            claim["tolerance"] = json!({ "at-most": if verdict == "holds" { 0.0 } else { -0.45 } });
            page(&[claims_of(&one, None)]).unwrap()
        };
        let text = fitted("holds", Value::Null);
        assert!(text.contains("| **holds**. Chosen after looking: a size |"), "{text}");
        assert!(text.contains("| A paper | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 0 of 0 |"), "{text}");
        let text = fitted("differs", json!("Why."));
        assert!(text.contains("| **differs**. Why. Chosen after looking: a size |"), "{text}");
        assert!(text.contains("| A paper | 0 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 of 0 |"), "{text}");
    }

    /// What goes beyond the paper is no claim of the paper's: it stands beside the count.
    #[test]
    fn what_goes_beyond_a_paper_is_counted_apart() {
        let counted = |says: &str, verdict: &str| {
            let mut one = study(verdict);
            let most = if verdict == "holds" { 0.0 } else { -0.45 };
            let claim = &mut one["claims"][0];
            claim["says"] = says.into();
            claim["fitted"] = json!("a size");
            claim["tolerance"] = json!({ "at-most": most });
            let text = page(&[claims_of(&one, None)]).unwrap();
            let row = text.lines().find(|line| line.starts_with("| A paper | "));
            row.unwrap().trim_start_matches("| A paper | ").to_owned()
        };
        for says in ["Beyond: packed pools", "fork_test: beyond the paper, packed pools"] {
            assert_eq!(counted(says, "holds"), "0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 1 of 1 |");
            assert_eq!(counted(says, "differs"), "0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 of 1 |");
        }
        let own = counted("fallbacks beyond those recorded", "holds");
        assert_eq!(own, "1 | 0 | 0 | 0 | 0 | 0 | 0 | 1 | 0 of 0 |");
    }

    #[test]
    fn a_verdict_that_nobody_knows_is_an_error() {
        let error = page(&[claims_of(&study("perhaps"), None)]).unwrap_err().to_string();
        assert!(error.contains("perhaps"), "{error}");
    }

    #[test]
    fn figures_have_four_digits() {
        let shown = |value: f64| show(&json!(value), &Value::Null);
        assert_eq!(shown(0.0), "0");
        assert_eq!(shown(4387.0), "4387");
        assert_eq!(shown(1.23456), "1.235");
        assert_eq!(shown(0.00012345), "0.000123");
        assert_eq!(shown(96035.0), "96035");
        assert_eq!(show(&Value::Null, &Value::Null), "–");
    }
}

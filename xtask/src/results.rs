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
        parts.push_str("\n| where | claim | paper | measured | 95% interval | n | verdict |\n");
        parts.push_str("|---|---|--:|--:|--:|--:|---|\n");
        for claim in claims {
            let verdict = word(claim, "verdict")?;
            *counts.entry(paper).or_default().entry(verdict).or_default() += 1;
            *examples.entry(paper).or_default() += u64::from(claim["example"] == true);
            writeln!(
                parts,
                "| {} | {} | {} | {} | {} | {} | {} |",
                cell(word(claim, "where")?),
                cell(word(claim, "says")?),
                show(&claim["paper"], &claim["unit"]),
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
         [the laboratory's README](../crates/swath-lab/README.md). The tables of each study are in the folder of its name.\n\n",
    );
    let verdicts = ["holds", "differs", "undecided", "not-measured", "not-comparable", "identity"];
    let names = verdicts.map(|verdict| verdict.replace('-', " ")).join(" | ");
    writeln!(text, "| paper | {names} | worked examples among them |")?;
    writeln!(text, "|---|{}", "--:|".repeat(verdicts.len() + 1))?;
    for (paper, of) in &counts {
        if let Some(unknown) = of.keys().find(|verdict| !verdicts.contains(verdict)) {
            bail!("{paper}: no verdict is called {unknown:?}");
        }
        let each = verdicts.map(|verdict| of.get(verdict).copied().unwrap_or(0).to_string());
        writeln!(text, "| {paper} | {} | {} |", each.join(" | "), examples[paper])?;
    }
    text.push_str(&parts);
    Ok(text)
}

/// A verdict with what the report says of it.
fn said(claim: &Value, verdict: &str) -> String {
    let mut said = format!("**{}**", verdict.replace('-', " "));
    for key in ["reason", "cause"] {
        if let Some(text) = claim[key].as_str() {
            write!(said, ". {text}").expect("a string grows");
        }
    }
    said
}

/// A figure of a claim: shares in percent, all with four digits.
fn show(figure: &Value, unit: &Value) -> String {
    let Some(value) = figure.as_f64() else {
        return match figure {
            Value::Null => "–".to_owned(),
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
                "cause": "Why.", "source": "long",
            }],
        })
    }

    #[test]
    fn a_claim_is_a_row_with_its_figures_and_its_verdict() {
        let kept = claims_of(&study("differs"), None);
        assert!(kept["series"].is_null() && kept["claims"][0]["source"].is_null());
        let text = page(&[kept]).unwrap();
        let row = "| Fig. 1 | a \\| b | 50% | 12.35% | 10% to 20% | 3 | **differs**. Why. |";
        assert!(text.lines().any(|line| line == row), "{text}");
        assert!(
            text.lines().any(|line| line == "| A paper | 0 | 1 | 0 | 0 | 0 | 0 | 0 |"),
            "{text}"
        );
    }

    #[test]
    fn claims_of_the_machine_stand_with_it() {
        let own = study("holds")["claims"].clone();
        let kept = claims_of(&study("differs"), Some(&json!({ "host": "Ours", "claims": own })));
        assert!(kept["claims"][1]["source"].is_null());
        let text = page(&[kept]).unwrap();
        assert!(
            text.contains("| A paper | 1 | 1 |") && text.contains("one machine: Ours."),
            "{text}"
        );
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

//! The steadiness of verdicts: studies run with many fresh seeds, and every claim whose verdict is
//! not the same with all of them is listed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use serde_json::Value;
use xshell::{Shell, cmd};

/// Which studies, in which form, with how many seeds.
#[derive(clap::Args)]
pub(crate) struct Seeds {
    /// Studies, by name.
    #[arg(required = true)]
    names: Vec<String>,
    /// Number of seeds for each study.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    seeds: u64,
    /// The first seed; the others follow it.
    #[arg(long, default_value_t = 1_000_000)]
    first: u64,
    /// The quick form in place of the full one.
    #[arg(long)]
    quick: bool,
}

/// Runs each study with each seed and compares the verdicts. A claim whose verdict changes makes
/// it fail, after all studies have run.
pub(crate) fn verdicts(shell: &Shell, metadata: &Metadata, args: &Seeds) -> Result<()> {
    cmd!(shell, "cargo build --release -p swath").run()?;
    let target = metadata.target_directory.as_std_path();
    let (swath, room) = (target.join("release/swath"), target.join("verdicts"));
    let form = if args.quick { "quick" } else { "full" };
    let last = args.first.checked_add(args.seeds - 1).context("the seeds end beyond 64 bits")?;
    let mut changed = 0;
    for name in &args.names {
        let mut counts = Counts::default();
        for seed in args.first..=last {
            let out = room.join(format!("{name}-{form}-{seed}"));
            // Its journal resumes a run that was cut short.
            let text = seed.to_string();
            cmd!(shell, "{swath} study {name} --{form} --seed {text} --out {out}")
                .quiet()
                .ignore_stdout()
                .run()?;
            counts.add(&out.join(name).join("results.json"))?;
        }
        println!(
            "{name}, {form} form, {} seeds from {}: {}",
            args.seeds,
            args.first,
            counts.line()
        );
        for (claim, verdicts) in counts.changing() {
            println!("  {claim}: {}", list(verdicts));
            changed += 1;
        }
    }
    ensure!(changed == 0, "{changed} verdicts change with the seed");
    Ok(())
}

/// How often each claim, by place and words, had which verdict.
#[derive(Default)]
struct Counts(BTreeMap<String, BTreeMap<String, u64>>);

impl Counts {
    fn add(&mut self, results: &Path) -> Result<()> {
        let text = fs::read_to_string(results).with_context(|| results.display().to_string())?;
        self.take(&serde_json::from_str(&text)?).with_context(|| results.display().to_string())
    }

    fn take(&mut self, results: &Value) -> Result<()> {
        let claims = results["claims"].as_array().context("no claims")?;
        for (i, claim) in claims.iter().enumerate() {
            let word = |key: &str| claim[key].as_str().with_context(|| format!("claim {i}: {key}"));
            let name = format!("{}: {}", word("where")?, word("says")?);
            let verdict = word("verdict")?.to_owned();
            *self.0.entry(name).or_default().entry(verdict).or_default() += 1;
        }
        Ok(())
    }

    fn changing(&self) -> impl Iterator<Item = (&String, &BTreeMap<String, u64>)> {
        self.0.iter().filter(|(_, verdicts)| verdicts.len() > 1)
    }

    fn line(&self) -> String {
        let changing = self.changing().count();
        format!("{} claims, the verdict of {changing} changes", self.0.len())
    }
}

fn list(verdicts: &BTreeMap<String, u64>) -> String {
    let each = verdicts.iter().map(|(verdict, count)| format!("{count} {verdict}"));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_verdict_that_changes_is_listed_with_its_counts() {
        let results = |verdict: &str| {
            serde_json::json!({ "claims": [
                { "where": "Fig. 1", "says": "steady", "verdict": "holds" },
                { "where": "Fig. 2", "says": "unsteady", "verdict": verdict },
            ]})
        };
        let mut counts = Counts::default();
        for verdict in ["holds", "undecided", "holds"] {
            counts.take(&results(verdict)).unwrap();
        }
        let changing: Vec<_> =
            counts.changing().map(|(name, verdicts)| (name.as_str(), list(verdicts))).collect();
        assert_eq!(changing, [("Fig. 2: unsteady", "2 holds, 1 undecided".to_owned())]);
        assert_eq!(counts.line(), "2 claims, the verdict of 1 changes");
        assert!(counts.take(&serde_json::json!({})).is_err());
    }
}

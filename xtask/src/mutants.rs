//! Mutation testing: the cores' code with one operator or value changed at a time, each change
//! to be found by a test of the crate.
//!
//! `cargo-mutants` does it; what stands here is which files are cores, with which tests, and the
//! list of reviewed changes that no test can find because they change nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use xshell::{Shell, cmd};

/// The reviewed changes that change nothing: `name of the change | reason`, a line each, as
/// cargo-mutants names them but without line and column.
const EQUIVALENTS: &str = ".cargo/mutants-equivalent.txt";

/// The part of the changes that is to be found, in hundredths.
const SCORE_MIN: usize = 95;

/// Runs the changes of one file.
pub(crate) fn mutants(shell: &Shell, metadata: &Metadata, files: &[String]) -> Result<()> {
    ensure!(!files.is_empty(), "no file is named");
    if cmd!(shell, "cargo mutants --version").quiet().ignore_stdout().run().is_err() {
        bail!("cargo-mutants is not installed, nothing was tested: `cargo install cargo-mutants`");
    }
    let root = metadata.workspace_root.as_std_path();
    let equivalents = Equivalents::read(&root.join(EQUIVALENTS))?;
    let mut bad = Vec::new();
    for file in files {
        let package = package_of(metadata, file)?;
        let out = metadata.target_directory.join("mutants").join(file.replace('/', "-"));
        shell.create_dir(&out)?;
        // It ends with an error if a change is missed, which is judged below.
        cmd!(shell, "cargo mutants --package {package} --file {file} --output {out}")
            .ignore_status()
            .run()?;
        let outcome = Outcome::read(out.join("mutants.out").as_std_path(), &equivalents)?;
        println!("{file}: {}", outcome.summary());
        for missed in &outcome.missed {
            println!("  not found: {missed}");
        }
        if outcome.score() < SCORE_MIN {
            bad.push(file.as_str());
        }
    }
    ensure!(bad.is_empty(), "below {SCORE_MIN}%: {}", bad.join(", "));
    Ok(())
}

/// Returns the name of the crate that a file of the workspace belongs to.
fn package_of<'a>(metadata: &'a Metadata, file: &str) -> Result<&'a str> {
    let path = metadata.workspace_root.join(file);
    ensure!(path.is_file(), "{file} is no file of the workspace");
    let packages = metadata.workspace_packages();
    let holds = |root: Option<&cargo_metadata::camino::Utf8Path>| {
        root.is_some_and(|root| path.starts_with(root))
    };
    let package = packages.iter().find(|package| holds(package.manifest_path.parent()));
    Ok(package.with_context(|| format!("{file} is in no crate"))?.name.as_str())
}

/// The reviewed changes that change nothing.
#[derive(Debug, PartialEq)]
struct Equivalents(BTreeSet<String>);

impl Equivalents {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut names = BTreeSet::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let parts = line.split_once(" | ").map(|(name, reason)| (name.trim(), reason.trim()));
            let Some((name, reason)) = parts else { bail!("no ` | ` and reason in: {line}") };
            ensure!(!reason.is_empty(), "no reason in: {line}");
            ensure!(names.insert(name.to_owned()), "stands there twice: {name}");
        }
        Ok(Self(names))
    }
}

/// What became of the changes of a file.
#[derive(Debug, PartialEq)]
struct Outcome {
    found: usize,
    equivalent: usize,
    missed: Vec<String>,
}

impl Outcome {
    /// Reads what cargo-mutants left in its folder.
    fn read(folder: &Path, equivalents: &Equivalents) -> Result<Self> {
        let lines = |name: &str| -> Result<Vec<String>> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            Ok(text.lines().map(str::to_owned).collect())
        };
        // A change that makes the tests run for ever is found, too.
        let found = lines("caught.txt")?.len() + lines("timeout.txt")?.len();
        Self::judge(found, lines("missed.txt")?, equivalents)
    }

    fn judge(found: usize, missed: Vec<String>, equivalents: &Equivalents) -> Result<Self> {
        ensure!(found + missed.len() > 0, "no change was tested");
        let is_equivalent = |name: &String| equivalents.0.contains(&without_place(name));
        let (equivalent, missed): (Vec<_>, Vec<_>) = missed.into_iter().partition(is_equivalent);
        Ok(Self { found, equivalent: equivalent.len(), missed })
    }

    /// Hundredths of the changes that change something which were found, rounded down.
    fn score(&self) -> usize {
        match self.found + self.missed.len() {
            0 => 100,
            all => 100 * self.found / all,
        }
    }

    fn summary(&self) -> String {
        let Self { found, equivalent, missed } = self;
        let (score, missed) = (self.score(), missed.len());
        format!("{score}%: {found} found, {missed} not found, {equivalent} change nothing")
    }
}

/// Returns the name of a change, `FILE:LINE:COLUMN: WHAT`, as `FILE: WHAT`: lines move.
fn without_place(name: &str) -> String {
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_reviewed_change_is_known_wherever_it_has_moved() {
        let equivalents = Equivalents::parse(
            "# heading\n\na/b.rs: replace < with <= in f | both are the same there\n",
        );
        let missed = ["a/b.rs:7:9: replace < with <= in f", "a/b.rs:8:9: replace + with - in f"];
        let missed = missed.map(str::to_owned).to_vec();
        let outcome = Outcome::judge(19, missed, &equivalents.unwrap()).unwrap();
        assert_eq!(outcome.missed, ["a/b.rs:8:9: replace + with - in f"]);
        assert_eq!((outcome.equivalent, outcome.score()), (1, 95));
        assert_eq!(outcome.summary(), "95%: 19 found, 1 not found, 1 change nothing");
    }

    #[test]
    fn a_change_without_a_reason_is_refused_and_so_is_a_run_without_changes() {
        assert!(Equivalents::parse("a.rs: replace f with ()").is_err());
        assert!(Equivalents::parse("a.rs: replace f with () | ").is_err());
        let none = Equivalents::parse("").unwrap();
        assert!(Outcome::judge(0, Vec::new(), &none).is_err());
    }
}

//! The project's whole test.

use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Metadata, TargetKind};

use crate::bench::BENCH;

/// This crate. Cargo builds what is tested with the union of all features in the build, so that
/// with the others its dependencies would be built once more, in another form than the one that
/// runs here.
const HERE: &str = "xtask";

/// The end of the name of a test that is a model check, to be run under loom.
const MODEL: &str = "loom";

/// Sum of what cargo's test programs said of themselves.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Tally {
    programs: u64,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    ignored: u64,
}

impl Tally {
    /// Takes note of a line such as
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) =
            line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        let before = self.passed + self.failed;
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
        // Many a program has no test in it.
        self.programs += u64::from(self.passed + self.failed > before);
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Runs every test and model check, also after one has failed; the last line says how many
/// passed and failed.
pub(crate) fn test(metadata: &Metadata) -> Result<()> {
    let root = metadata.workspace_root.as_std_path();
    let cargo = |args: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(args).current_dir(root);
        command
    };
    let (checks, models) = model_checks(metadata)?;
    let workspace =
        ["test", "--workspace", "--exclude", BENCH, "--exclude", HERE, "--no-fail-fast"];
    // Each with the number of its programs that have a test, at least.
    let runs = [(cargo(&workspace), 1), (cargo(&["test", "-p", HERE]), 1), (checks, models)];

    let mut tally = Tally::default();
    let mut failed = Vec::new();
    for (mut command, programs_min) in runs {
        let (counted, is_well) = run(&mut command)?;
        if !is_well || counted.programs < programs_min {
            failed.push(format!("{command:?}"));
        }
        tally += counted;
    }
    println!(
        "tested: {} programs and documentations, {} of them models under loom; {} tests ignored",
        tally.programs, models, tally.ignored
    );
    for command in &failed {
        println!("failed: {command}");
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    ensure!(failed.is_empty() && tally.failed == 0, "not every test is well");
    Ok(())
}

/// Returns the command that runs the model checks, and the number of their programs. It is one
/// command, as they share what they are built from.
pub(crate) fn model_checks(metadata: &Metadata) -> Result<(Command, u64)> {
    let models = models(metadata);
    ensure!(!models.is_empty(), "the workspace has no test whose name ends in {MODEL}");
    let mut command = Command::new("cargo");
    command.args(["test", "--profile", "model", "--no-fail-fast"]);
    for (package, name) in &models {
        command.args(["-p", package, "--test", name]);
    }
    command.current_dir(&metadata.workspace_root);
    // Flags of the compiler change every crate: a directory of its own
    // keeps them from rebuilding the workspace to and fro.
    command.env("CARGO_TARGET_DIR", metadata.target_directory.join("loom"));
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} --cfg loom"));
    Ok((command, models.len() as u64))
}

/// Returns the model checks, each with its package.
fn models(metadata: &Metadata) -> Vec<(&str, &str)> {
    let mut models = Vec::new();
    for package in metadata.workspace_packages() {
        for target in &package.targets {
            if target.kind.contains(&TargetKind::Test) && target.name.ends_with(MODEL) {
                models.push((package.name.as_str(), target.name.as_str()));
            }
        }
    }
    models
}

/// Runs cargo's tests, lets their output through and counts them; returns as well whether cargo
/// ended well.
pub(crate) fn run(command: &mut Command) -> Result<(Tally, bool)> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let lines = BufReader::new(child.stdout.take().context("cargo's output")?);
    let mut tally = Tally::default();
    let mut out = std::io::stdout().lock();
    for line in lines.split(b'\n') {
        let line = line.context("cargo's output")?;
        tally.read(&String::from_utf8_lossy(&line));
        out.write_all(&line)?;
        out.write_all(b"\n")?;
    }
    Ok((tally, child.wait()?.success()))
}

#[cfg(test)]
mod unit {
    use super::Tally;

    #[test]
    fn results_are_summed_and_other_lines_ignored() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.10s",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result of something else. 9 passed",
        ] {
            tally.read(line);
        }
        assert_eq!(tally, Tally { programs: 2, passed: 7, failed: 2, ignored: 1 });
        tally += Tally { programs: 1, passed: 1, failed: 0, ignored: 0 };
        assert_eq!(tally, Tally { programs: 3, passed: 8, failed: 2, ignored: 1 });
    }
}

//! The project's whole test.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;
use xshell::Shell;

use crate::BENCH;

/// The model checks, each with the crate that it belongs to.
const MODELS: [(&str, &str); 2] = [("swath-frame", "front_loom"), ("swath-pool", "loom")];

/// What cargo's test programs said of themselves.
#[derive(Default, PartialEq, Eq, Debug)]
struct Tally {
    programs: u64,
    passed: u64,
    failed: u64,
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

pub(crate) fn test(shell: &Shell, metadata: &Metadata) -> Result<()> {
    let root = metadata.workspace_root.as_std_path();
    let all = ["test", "--workspace", "--exclude", BENCH, "--no-fail-fast"];
    let tally = run(Command::new("cargo").args(all).current_dir(root))?;

    let mut models = 0;
    for (package, name) in MODELS {
        ensure!(shell.path_exists(format!("crates/{package}/tests/{name}.rs")), "no {name}");
        let mut command = Command::new("cargo");
        command.args(["test", "--release", "-p", package, "--test", name]).current_dir(root);
        // Flags of the compiler change every crate: a directory of its own
        // keeps them from rebuilding the workspace to and fro.
        command.env("CARGO_TARGET_DIR", metadata.target_directory.join("loom"));
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        command.env("RUSTFLAGS", format!("{flags} --cfg loom"));
        models += run(&mut command).with_context(|| format!("the model check {name}"))?.passed;
    }
    let Tally { programs, passed, ignored, .. } = tally;
    println!(
        "tested: {passed} tests in {programs} programs and documentations ({ignored} ignored), \
         {models} models under loom"
    );
    Ok(())
}

/// Runs cargo's tests, lets their output through and counts them. No test at
/// all is a failure.
fn run(command: &mut Command) -> Result<Tally> {
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
    let status = child.wait()?;
    ensure!(
        status.success() && tally.failed == 0,
        "cargo test: {status}; {} passed, {} failed",
        tally.passed,
        tally.failed
    );
    ensure!(tally.passed > 0, "cargo test ran no test at all");
    Ok(tally)
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
    }
}

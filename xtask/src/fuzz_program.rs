//! The programs that libFuzzer drives, whose coverage comes from the compiler's own passes: the
//! stable toolchain will do. The targets of parsers have one that also tells comparisons, so that
//! the fuzzer finds the words of a text; the bytes of an operation language are choices, which no
//! comparison shows, and there that would be two thirds of the time.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The crate of the targets.
pub(crate) const FUZZ: &str = "swath-fuzz";

/// What makes the compiler count edges, as `cargo fuzz` has it.
const EDGES: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table";

/// What makes it tell comparisons as well.
const COMPARISONS: &str = "-Cllvm-args=-sanitizer-coverage-trace-compares";

/// The programs that a campaign needs, built.
pub(crate) struct Programs {
    parsers: Option<PathBuf>,
    operations: Option<PathBuf>,
}

impl Programs {
    /// Builds those that are wanted, apart from everything else.
    pub(crate) fn build(root: &Path, work: &Path, parsers: bool, operations: bool) -> Result<Self> {
        Ok(Self {
            parsers: parsers.then(|| build(root, work, true)).transpose()?,
            operations: operations.then(|| build(root, work, false)).transpose()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn only(operations: PathBuf) -> Self {
        Self { parsers: None, operations: Some(operations) }
    }

    /// The program that a target is part of.
    pub(crate) fn of(&self, is_parser: bool) -> Result<&Path> {
        let program = if is_parser { &self.parsers } else { &self.operations };
        program.as_deref().context("a program that was not built")
    }
}

fn build(root: &Path, work: &Path, parsers: bool) -> Result<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc says no host")?;
    let mut flags = format!("{} {EDGES}", std::env::var("RUSTFLAGS").unwrap_or_default());
    let (mut features, mut folder) = ("libfuzzer", work.join("operations"));
    if parsers {
        flags = format!("{flags} {COMPARISONS}");
        (features, folder) = ("libfuzzer,parsers", work.to_owned());
    }
    let status = Command::new("cargo")
        .args(["build", "--package", FUZZ, "--bin", FUZZ])
        .args(["--no-default-features", "--features", features])
        // A target that is named keeps the flags from build scripts and macros.
        .args(["--profile", "fuzz", "--target", host])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", flags)
        .current_dir(root)
        .status()
        .context("cargo build")?;
    ensure!(status.success(), "the program for the fuzzer was not built");
    Ok(folder.join(host).join("fuzz").join(FUZZ))
}

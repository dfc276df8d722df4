//! Failures of the benchmarks, and commands that must succeed.

use std::process::Command;

/// Reasons why the program ends without success.
pub(crate) enum Failure {
    /// A bound is passed, a row is lost or a result is wrong.
    Result(String),
    /// The command line or the machine does not allow a run.
    Setup(String),
}

/// A command line or a machine that does not allow a run.
pub(crate) fn setup(what: impl Into<String>) -> Failure {
    Failure::Setup(what.into())
}

/// Runs a command; what it says is shown only if it fails.
pub(crate) fn make(command: &mut Command) -> Result<(), Failure> {
    let output = command.output().map_err(|error| setup(format!("{command:?}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(setup(format!("{command:?}: {}\n{said}", output.status)))
}

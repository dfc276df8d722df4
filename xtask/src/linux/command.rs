//! Programs that must succeed.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a program, and shows what it said if it fails.
pub(super) fn run_well(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let output = command.output().with_context(|| name.clone())?;
    ensure!(
        output.status.success(),
        "{name} fails:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns what a program printed.
pub(super) fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?} fails");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

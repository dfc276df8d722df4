//! The work that a child process does for a study.

use std::process::Command;

/// The command that does a job of a study in a child process.
///
/// # Errors
/// [`std::io::Error`] if the program does not know where it is.
pub fn child_command(kind: &str, job: &str) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["child", kind, job]);
    Ok(command)
}

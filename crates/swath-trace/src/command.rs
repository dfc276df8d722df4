//! The command that a recorder runs.

use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::container::check_name;

/// The command's first word.
pub(crate) fn name(command: &[OsString]) -> String {
    command.first().map_or_else(String::new, |word| word.to_string_lossy().into_owned())
}

/// The name under which a program is recorded: the last part of its path, or
/// nothing where a file cannot hold that.
pub(crate) fn program_name(command: &[OsString]) -> String {
    let name = command.first().and_then(|word| Path::new(word).file_name()?.to_str());
    name.filter(|name| check_name(name.as_bytes()).is_ok()).unwrap_or_default().to_owned()
}

/// Keeps a pipe open until the child has ended, which is not reaped.
///
/// # Errors
/// The system has no thread to give.
pub(crate) fn close_after(child: &Child, pipe: PipeWriter) -> io::Result<()> {
    let pid = Pid::from_raw(child.id().cast_signed());
    let waits = move || {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(pid), flags) == Err(nix::errno::Errno::EINTR) {}
        drop(pipe);
    };
    thread::Builder::new().spawn(waits).map(drop)
}

/// Returns true if Ctrl-C was pressed.
pub(crate) fn cancelled(cancel: Option<&AtomicBool>) -> bool {
    cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_file_can_hold() {
        assert_eq!(program_name(&["/usr/bin/make".into(), "all".into()]), "make");
        assert_eq!(program_name(&["/tmp/\u{e4}".into()]), "");
        assert_eq!(program_name(&["x".repeat(256).into()]), "");
        assert_eq!(program_name(&[]), "");
    }
}

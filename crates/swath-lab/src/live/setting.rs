//! A setting of the kernel's that is changed for a while.

use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The subcommand of this program that waits and writes; see [`restore_setting`].
const RESTORE_SETTING: &str = "restore-setting";

/// A setting that a process of its own sets back when this is dropped, or when this process ends in
/// any way: it waits for the end of a pipe that only this process holds open.
pub(super) struct Setting {
    guard: Child,
}

impl Setting {
    /// Changes a setting, if the kernel has it.
    pub(super) fn change(file: &Path, to: &str) -> io::Result<Option<Self>> {
        let before = match fs::read_to_string(file) {
            Ok(before) => before,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let guard = Command::new(std::env::current_exe()?)
            .arg(RESTORE_SETTING)
            .args([file.as_os_str(), chosen(&before).as_ref()])
            .stdin(Stdio::piped())
            // The terminal's interrupt is not for it.
            .process_group(0)
            .spawn()?;
        let setting = Self { guard };
        fs::write(file, to)?;
        Ok(Some(setting))
    }
}

/// The value of a setting: the word in brackets where the file lists all that there are.
fn chosen(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text.trim(), |(word, _)| word)
}

impl Drop for Setting {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Waits until standard input ends, and writes a setting.
///
/// # Errors
/// The system's, if it cannot be written.
pub fn restore_setting(file: &Path, value: &str) -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut bytes = [0; 64];
    while !matches!(input.read(&mut bytes), Ok(0)) {}
    fs::write(file, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_that_in_brackets() {
        assert_eq!(chosen("20\n"), "20");
        assert_eq!(chosen("always defer [defer+madvise] madvise never\n"), "defer+madvise");
        assert_eq!(chosen("[always]"), "always");
        assert_eq!(chosen(""), "");
    }
}

//! The journal of what is offline: a run that was killed can be undone.
//!
//! A line `- NUMBER STATE` stands before a block goes offline, with the state to write to undo it;
//! `+ NUMBER` after it is online. Who works with it holds a lock on it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Longer files are none of ours.
const LEN_BYTES_MAX: u64 = 1 << 24;

/// The journal's file, locked.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Blocks that may be offline, with the state that undoes it, in the order in which they went.
    offline: Vec<(u64, String)>,
}

impl Journal {
    /// Opens the journal, and reads what a run before has left.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new(1, format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.display();
                return Err(Failure::new(2, format!("{path}: another `swath green` is at work")));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = String::new();
        (&mut file).take(LEN_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let offline = parse(&text).map_err(|(line, what)| {
            Failure::new(1, format!("{}, line {line}: {what}", path.display()))
        })?;
        // What was begun of a last line would stand before the next.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), offline })
    }

    pub(super) fn offline(&self) -> &[(u64, String)] {
        &self.offline
    }

    /// Returns the state that undoes a block's being offline.
    pub(super) fn state_of(&self, number: u64) -> Option<&str> {
        let (_, state) = self.offline.iter().find(|(other, _)| *other == number)?;
        Some(state)
    }

    /// Notes that a block may be offline from now on.
    pub(super) fn add(&mut self, number: u64, state: &str) -> io::Result<()> {
        self.file.write_all(format!("- {number} {state}\n").as_bytes())?;
        self.offline.push((number, state.to_owned()));
        Ok(())
    }

    /// Notes that a block is online. If that cannot be written, a run after this one finds it
    /// online and says so.
    pub(super) fn remove(&mut self, number: u64) {
        self.offline.retain(|(other, _)| *other != number);
        let _ = self.file.write_all(format!("+ {number}\n").as_bytes());
    }

    /// Removes the file if nothing is offline.
    pub(super) fn close(self) -> io::Result<()> {
        if self.offline.is_empty() { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// What is offline after the lines of a journal, or the first wrong line. A last line without an
/// end is one whose writer was killed: nothing was done yet.
fn parse(text: &str) -> Result<Vec<(u64, String)>, (usize, &'static str)> {
    let mut offline: Vec<(u64, String)> = Vec::new();
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let Some(line) = line.strip_suffix('\n') else { break };
        let wrong = |what| (i + 1, what);
        let mut words = line.split(' ');
        let (sign, number) = (words.next(), words.next());
        let number = number.and_then(|number| number.parse().ok());
        let Some(number) = number else { return Err(wrong("no block's number")) };
        match (sign, words.next(), words.next()) {
            (Some("-"), Some(state @ ("online_movable" | "online_kernel")), None) => {
                offline.push((number, state.to_owned()));
            }
            (Some("+"), None, None) => offline.retain(|(other, _)| *other != number),
            _ => return Err(wrong("neither `- NUMBER STATE` nor `+ NUMBER`")),
        }
    }
    Ok(offline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offline_survives_a_kill() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::open(&path).ok().unwrap();
        journal.add(7, "online_movable").unwrap();
        journal.add(9, "online_kernel").unwrap();
        journal.add(11, "online_movable").unwrap();
        journal.remove(9);
        // Locked as long as it is open.
        let locked = Journal::open(&path).err().unwrap();
        assert!(locked.code == 2 && locked.message.contains("at work"), "{}", locked.message);
        drop(journal);
        // The writer was killed within a line.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"- 13 onl").unwrap();
        let mut journal = Journal::open(&path).ok().unwrap();
        let movable = |number| (number, "online_movable".to_owned());
        assert_eq!(journal.offline(), [movable(7), movable(11)]);
        assert_eq!(journal.state_of(11), Some("online_movable"));
        assert_eq!(journal.state_of(9), None);
        journal.remove(7);
        drop(journal);
        let mut journal = Journal::open(&path).ok().unwrap();
        assert_eq!(journal.offline(), [movable(11)]);
        journal.remove(11);
        journal.close().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, line) in [
            ("x\n", 1),
            ("- 1 online_movable\n- 2 offline\n", 2),
            ("- 1 online_movable\n\n", 2),
            ("+ 1 online_kernel\n", 1),
            ("- -1 online_kernel\n", 1),
            ("- 1 online_kernel and\n", 1),
        ] {
            assert_eq!(parse(text).unwrap_err().0, line, "{text:?}");
        }
    }
}

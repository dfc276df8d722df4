//! The journal of what is offline: a run that was killed can be undone.
//!
//! A line `- NUMBER STATE` stands before a block goes offline, with the state to write to undo it;
//! `+ NUMBER` after it is online. Who works with it holds a lock on it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::live::error::LiveError;

/// Longer files are none of ours.
const LEN_BYTES_MAX: u64 = 1 << 24;

/// The journal's file, locked.
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Blocks that may be offline, with the state that undoes it, in the order in which they went.
    offline: Vec<(u64, String)>,
}

impl Journal {
    /// Opens the journal, and reads what a run before has left.
    ///
    /// # Errors
    /// [`LiveError`]: the file cannot be read, is none of ours, or another run has it.
    pub fn open(path: &Path) -> Result<Self, LiveError> {
        let failed = |source| LiveError::Journal { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LiveError::AtWork { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = String::new();
        (&mut file).take(LEN_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let offline = parse(&text).map_err(|(line, what)| LiveError::JournalLine {
            path: path.to_owned(),
            line,
            what,
        })?;
        // What was begun of a last line would stand before the next.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        Ok(Self { file, path: path.to_owned(), offline })
    }

    /// The blocks that may be offline, each with the state that undoes it, in the order in which
    /// they went.
    pub fn offline(&self) -> &[(u64, String)] {
        &self.offline
    }

    /// Returns the state that undoes a block's being offline.
    pub fn state_of(&self, number: u64) -> Option<&str> {
        let (_, state) = self.offline.iter().find(|(other, _)| *other == number)?;
        Some(state)
    }

    /// Fails if a run that was killed has left blocks offline.
    ///
    /// # Errors
    /// [`LiveError::LeftOffline`].
    pub fn check_empty(&self) -> Result<(), LiveError> {
        let blocks = self.offline.len();
        if blocks == 0 {
            return Ok(());
        }
        Err(LiveError::LeftOffline { path: self.path.clone(), blocks })
    }

    /// Notes that a block may be offline from now on.
    ///
    /// # Errors
    /// The system's, if the file cannot be written.
    pub fn add(&mut self, number: u64, state: &str) -> io::Result<()> {
        self.file.write_all(format!("- {number} {state}\n").as_bytes())?;
        self.offline.push((number, state.to_owned()));
        Ok(())
    }

    /// Notes that a block is online. If that cannot be written, a run after this one finds it
    /// online and says so.
    pub fn remove(&mut self, number: u64) {
        self.offline.retain(|(other, _)| *other != number);
        let _ = self.file.write_all(format!("+ {number}\n").as_bytes());
    }

    /// Removes the file if nothing is offline.
    ///
    /// # Errors
    /// The system's, if the file cannot be removed.
    pub fn close(self) -> Result<(), LiveError> {
        if !self.offline.is_empty() {
            return Ok(());
        }
        fs::remove_file(&self.path).map_err(|source| LiveError::Journal { path: self.path, source })
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
        assert!(matches!(locked, LiveError::AtWork { .. }), "{locked}");
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

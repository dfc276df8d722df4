//! The programs that a recorded command ran, as a recording lists them at its
//! end.

use std::io::{self, Read};

use serde::Serialize;

use crate::container::{Content, FileError, check_name, invalid, put_name};
use crate::input::put_number;

/// The most programs that a recording lists.
pub const PROGRAMS_MAX: usize = 1024;

/// A program that ran under the recorder: one process from one `exec` to the
/// next or to its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProgramRun {
    /// Name of the program's file, without its directory; empty if it is not
    /// printable ASCII.
    pub program: String,
    /// Number of its process: 0 is the command's own, the others follow in the
    /// order in which they first ran a program.
    pub process: u64,
    /// Number of its accesses that were seen.
    pub accesses: u64,
    /// True if the recording is of this program.
    pub recorded: bool,
    /// True if it ended by replacing itself with another program.
    pub replaced: bool,
}

/// The programs of a command.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CommandPrograms {
    /// The programs in the order in which they began, [`PROGRAMS_MAX`] at most.
    pub programs: Vec<ProgramRun>,
    /// Number of further programs, which are not listed.
    pub unlisted: u64,
    /// Number of processes that were forked and ran no program of their own:
    /// nothing of them was seen.
    pub forked: u64,
}

/// Flags of a program in a file.
const RECORDED: u64 = 1;
const REPLACED: u64 = 2;

impl CommandPrograms {
    /// Appends the list as a file has it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.programs.len() > PROGRAMS_MAX {
            return Err(invalid("more programs than a recording lists"));
        }
        put_number(out, self.programs.len() as u64);
        for run in &self.programs {
            check_name(run.program.as_bytes()).map_err(invalid)?;
            put_name(out, &run.program);
            put_number(out, run.process);
            put_number(out, run.accesses);
            let replaced = if run.replaced { REPLACED } else { 0 };
            let recorded = if run.recorded { RECORDED } else { 0 };
            put_number(out, recorded | replaced);
        }
        put_number(out, self.unlisted);
        put_number(out, self.forked);
        Ok(())
    }

    /// Reads what [`put`](Self::put) writes.
    pub(crate) fn read<S: ProgramSource>(from: &mut S) -> Result<Self, S::Error> {
        const WHAT: &str = "the list of programs";
        let mut list = Self::default();
        let count = from.number(WHAT)?;
        if count > PROGRAMS_MAX as u64 {
            return Err(from.wrong("before this, more programs than a recording lists"));
        }
        for _ in 0..count {
            let program = from.name(WHAT)?;
            let (process, accesses) = (from.number(WHAT)?, from.number(WHAT)?);
            let flags = from.number(WHAT)?;
            if flags & !(RECORDED | REPLACED) != 0 {
                return Err(from.wrong("before this, a program's flag that nobody knows"));
            }
            let (recorded, replaced) = (flags & RECORDED != 0, flags & REPLACED != 0);
            list.programs.push(ProgramRun { program, process, accesses, recorded, replaced });
        }
        list.unlisted = from.number(WHAT)?;
        list.forked = from.number(WHAT)?;
        Ok(list)
    }

    /// Returns a line for each program that was not recorded, and one for the
    /// processes that were only forked.
    pub fn left_out(&self) -> Vec<String> {
        let others = self.programs.iter().filter(|run| !run.recorded);
        let mut lines: Vec<_> = others
            .map(|run| {
                let ProgramRun { program, process, accesses, .. } = run;
                let end = if run.replaced { ", which gave way to another program" } else { "" };
                format!("left out: {program} (process {process}), {accesses} accesses{end}")
            })
            .collect();
        if self.unlisted > 0 {
            lines.push(format!("left out: {} more programs", self.unlisted));
        }
        if self.forked > 0 {
            lines.push(format!(
                "left out: {} processes forked without a program of their own",
                self.forked
            ));
        }
        lines
    }
}

/// A file that a list of programs is read from.
pub(crate) trait ProgramSource {
    /// The file's errors.
    type Error;
    /// Reads a number.
    fn number(&mut self, what: &'static str) -> Result<u64, Self::Error>;
    /// Reads a name.
    fn name(&mut self, what: &'static str) -> Result<String, Self::Error>;
    /// Returns the error of a value that cannot be.
    fn wrong(&self, what: &'static str) -> Self::Error;
}

impl<R: Read> ProgramSource for Content<R> {
    type Error = FileError;

    fn number(&mut self, what: &'static str) -> Result<u64, FileError> {
        Self::number(self, what)
    }

    fn name(&mut self, what: &'static str) -> Result<String, FileError> {
        Self::name(self, what)
    }

    fn wrong(&self, what: &'static str) -> FileError {
        self.malformed(what)
    }
}

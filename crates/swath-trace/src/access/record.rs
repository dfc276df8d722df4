//! Recording the accesses of a program.
//!
//! [`record_accesses`] runs a command under `valgrind --tool=lackey` and
//! converts the log of each of its programs on the way through a pipe; the
//! text, some fifteen bytes to an access, never reaches a disk. The program
//! keeps its standard input, output and error: valgrind opens the pipe by a
//! name, so the log needs none of the three.
//!
//! System calls stand in the same log, so the trace tells what the program did
//! to its address space between which accesses. A run too long to keep is
//! thinned out by [`Sampling`](crate::access::Sampling).

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;

use crate::programs::CommandPrograms;
use crate::valgrind::options::{RecordError, RecordOptions, check};

/// Facts of a recording of accesses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessRecording {
    /// Number of accesses of the program that was recorded.
    pub run_accesses: u64,
    /// Number of accesses written.
    pub accesses: u64,
    /// Number of events written.
    pub events: u64,
    /// Programs of the command, the recorded one among them.
    pub programs: CommandPrograms,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Status with which the command ended; `None` if it was stopped at the
    /// limit.
    pub exit: Option<ExitStatus>,
}

/// Runs `command` (the program and its arguments) under valgrind and writes
/// the accesses of the program that counts to `output`, which appears whole or
/// not at all: of the programs that ran to their end (and did not give way to
/// another by `exec`) the one with most accesses. Lackey gives about a million
/// accesses a second.
///
/// # Errors
/// A [`RecordError`].
pub fn record_accesses(
    command: &[OsString],
    output: &Path,
    options: &mut RecordOptions<'_>,
) -> Result<AccessRecording, RecordError> {
    check(command, options)?;
    system::record(command, output, options)
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    pub(crate) fn record(
        _: &[OsString],
        _: &Path,
        _: &mut RecordOptions<'_>,
    ) -> Result<AccessRecording, RecordError> {
        Err(RecordError::Unsupported { os: std::env::consts::OS })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io::{BufWriter, Write};

    use super::*;
    use crate::access::event::{Sampling, TraceHeader, TraceItem};
    use crate::access::file::TraceWriter;
    use crate::access::reader::TraceItems;
    use crate::access::sample::Sampler;
    use crate::valgrind::run::{Made, Program, Share, Unfinished, record as record_programs};

    pub(crate) fn record(
        command: &[OsString],
        output: &Path,
        options: &mut RecordOptions<'_>,
    ) -> Result<AccessRecording, RecordError> {
        let (sampling, level) = (options.sampling, options.level);
        let made = record_programs(
            command,
            output,
            options,
            &["--trace-syscalls=yes"],
            None,
            |program, items, file, share| convert(&program, items, file, share, sampling, level),
            |sampler, programs, _| {
                let run_accesses = sampler.seen();
                let writer = sampler.finish()?;
                let counts = (run_accesses, writer.count(), writer.events());
                writer.finish_with(programs)?.flush()?;
                Ok(counts)
            },
        )?;
        let Made { made: (run_accesses, accesses, events), programs, file_bytes, exit } = made;
        Ok(AccessRecording { run_accesses, accesses, events, programs, file_bytes, exit })
    }

    /// Copies the log of a program into a trace that lacks its end.
    fn convert(
        program: &Program,
        items: TraceItems,
        file: BufWriter<File>,
        mut share: Share,
        sampling: Option<Sampling>,
        level: i32,
    ) -> Result<Unfinished<Sampler<BufWriter<File>>>, RecordError> {
        let header = TraceHeader { program: program.name.clone(), sampling };
        let writer = TraceWriter::with_header(file, level, &header)?;
        let mut sampler = Sampler::new(writer, sampling);
        // The log has begun, so the program is loaded and little more. Without
        // the list its image is mapped page by page.
        if let Ok(maps) = std::fs::read_to_string(format!("/proc/{}/maps", program.pid)) {
            sampler.started_with(&maps);
        }
        for item in items {
            match item.map_err(|source| RecordError::Trace { source })? {
                TraceItem::Access(access) => {
                    if !share.take() {
                        break;
                    }
                    sampler.access(access)?;
                }
                TraceItem::Event(event) => sampler.event(event)?,
            }
        }
        Ok(Unfinished { accesses: sampler.seen(), stream: sampler })
    }
}

//! `swath record`: a module of the program, over the library's recorders.

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Subcommand;
use swath_trace::access::{AccessRecording, Sampling, record_accesses as record_trace};
use swath_trace::heap::HeapTotals;
use swath_trace::pages::{PageRecordError, PageRecordOptions};
use swath_trace::valgrind::{CommandPrograms, RecordError, RecordOptions};
use swath_trace::{heap, pages};

use crate::failure::Failure;
use crate::progress::{INTERRUPTED, bytes_bar, watch_for_interrupts};

/// The accesses that a trace holds unless told otherwise: what valgrind gives in
/// less than half a minute on a slow machine.
const LIMIT: u64 = 4_000_000;

/// The seconds that a recording without limits of its own takes at most, however slow or busy
/// the machine.
const SECONDS: u32 = 25;

/// Where a recording is stopped, by what comes first.
#[derive(Clone, Copy)]
struct Bounds {
    accesses: Option<u64>,
    seconds: Option<u32>,
}

impl fmt::Display for Bounds {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.accesses, self.seconds) {
            (Some(accesses), Some(seconds)) => {
                write!(to, "{accesses} accesses or {seconds} seconds")
            }
            (Some(accesses), None) => write!(to, "{accesses} accesses"),
            (None, Some(seconds)) => write!(to, "{seconds} seconds"),
            (None, None) => to.write_str("its end"),
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum RecordCommand {
    /// Record every memory access of a command, and what it does to its address
    /// space, by valgrind's lackey.
    Accesses {
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        out: PathBuf,
        /// Stop after so many accesses of all the command's programs together; 0
        /// records to the end. Valgrind gives up to a million a second.
        /// [default: 4000000, or 25 seconds if that is less]
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Stop after so many seconds.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        seconds: Option<u32>,
        /// Write only so many accesses at a stretch, and what can fault in
        /// between; with --every.
        #[arg(long, value_name = "N", requires = "every")]
        burst: Option<u64>,
        /// Begin such a stretch every so many accesses.
        #[arg(long, value_name = "N", requires = "burst")]
        every: Option<u64>,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Record what a command does with its heap: every allocation and release, and
    /// the accesses to what is allocated, by valgrind's lackey.
    Heap {
        /// The file to write.
        #[arg(short, long, value_name = "FILE", default_value = "heap.swheap")]
        out: PathBuf,
        /// Stop after so many accesses, fetches and all others included.
        #[arg(long, value_name = "N")]
        limit: Option<u64>,
        /// Stop after so many seconds.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        seconds: Option<u32>,
        /// Write only so many accesses to blocks at a stretch, and the first
        /// to each piece of a block in between; with --every.
        #[arg(long, value_name = "N", requires = "every")]
        burst: Option<u64>,
        /// Begin such a stretch every so many accesses to blocks.
        #[arg(long, value_name = "N", requires = "burst")]
        every: Option<u64>,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Record what the kernel's page allocator does while a command runs.
    ///
    /// Reads the kernel's tracepoints kmem:mm_page_* through tracefs, as root.
    Pages {
        /// The file to write.
        #[arg(short, long, value_name = "FILE", default_value = "pages.swpages")]
        out: PathBuf,
        /// The whole system instead of the command and its children.
        #[arg(long)]
        system: bool,
        /// The kernel's buffer for each processor.
        #[arg(long, value_name = "N", default_value_t = pages::BUFFER_KIB,
              value_parser = clap::value_parser!(u64).range(64..=1 << 22))]
        buffer_kib: u64,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
}

pub(crate) fn run(command: RecordCommand) -> Result<ExitCode, Failure> {
    match command {
        RecordCommand::Accesses { out, limit, seconds, burst, every, command } => {
            // Whoever names one limit means that one alone.
            let bounds = if limit.is_none() && seconds.is_none() {
                Bounds { accesses: Some(LIMIT), seconds: Some(SECONDS) }
            } else {
                Bounds { accesses: limit.filter(|&limit| limit > 0), seconds }
            };
            record_accesses(&out, bounds, sampling(burst, every), &command)
        }
        RecordCommand::Heap { out, limit, seconds, burst, every, command } => {
            let bounds = Bounds { accesses: limit, seconds };
            record_heap(&out, bounds, sampling(burst, every), &command)
        }
        RecordCommand::Pages { out, system, buffer_kib, command } => {
            record_pages(&out, system, buffer_kib, &command)
        }
    }
}

/// Returns the exit code that passes on how the recorded command ended: 128 and
/// the signal's number if a signal ended it, 0 if the recorder stopped it.
fn exit_code(status: Option<ExitStatus>) -> ExitCode {
    let Some(status) = status else { return ExitCode::SUCCESS };
    let code = status.code().or_else(|| signal(status).map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

fn sampling(burst: Option<u64>, every: Option<u64>) -> Option<Sampling> {
    let (burst_accesses, period_accesses) = burst.zip(every)?;
    Some(Sampling { burst_accesses, period_accesses })
}

/// Records with valgrind, a bar of accesses beside it.
fn with_valgrind<T>(
    bounds: Bounds,
    sampling: Option<Sampling>,
    record: impl FnOnce(&mut RecordOptions<'_>) -> Result<T, RecordError>,
) -> Result<T, Failure> {
    watch_for_interrupts();
    let bar = bytes_bar("accesses");
    let recording = record(&mut RecordOptions {
        accesses_max: bounds.accesses,
        time_max: bounds.seconds.map(|seconds| Duration::from_secs(seconds.into())),
        sampling,
        level: 12,
        valgrind: PathBuf::from("valgrind"),
        cancel: Some(&INTERRUPTED),
        progress: &mut |accesses| bar.0.set_position(accesses),
    })
    .map_err(|error| match error {
        RecordError::Cancelled => Failure::new(130, "interrupted"),
        RecordError::Sampling => Failure::new(2, error),
        error => Failure::new(1, error),
    })?;
    bar.0.finish_and_clear();
    Ok(recording)
}

fn record_heap(
    out: &Path,
    bounds: Bounds,
    sampling: Option<Sampling>,
    command: &[OsString],
) -> Result<ExitCode, Failure> {
    let recording =
        with_valgrind(bounds, sampling, |options| heap::record_heap(command, out, options))?;
    let HeapTotals { reads, writes, failed_calls, unknown_calls, lost_calls, .. } =
        recording.totals;
    say!(
        "{}: {} events of {reads} reads and {writes} writes, {failed_calls} failed calls, \
         {unknown_calls} unknown, {lost_calls} lost, {} bytes, {}",
        recorded(&recording.programs),
        recording.events,
        recording.file_bytes,
        out.display()
    );
    left_out(&recording.programs, bounds, recording.exit);
    Ok(exit_code(recording.exit))
}

/// The name of the program that the recording is of.
fn recorded(programs: &CommandPrograms) -> &str {
    let run = programs.programs.iter().find(|run| run.recorded);
    run.map_or("", |run| run.program.as_str())
}

/// Says on standard error what is not in the recording.
fn left_out(programs: &CommandPrograms, bounds: Bounds, exit: Option<ExitStatus>) {
    for line in programs.left_out() {
        let _ = writeln!(std::io::stderr(), "swath: {line}");
    }
    if exit.is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "swath: left out: everything after {bounds}, where the command was stopped \
             (--limit 0 records to its end; behind a launcher, name the program itself)"
        );
    }
}

fn record_accesses(
    out: &Path,
    bounds: Bounds,
    sampling: Option<Sampling>,
    command: &[OsString],
) -> Result<ExitCode, Failure> {
    if let Some(accesses) = bounds.accesses {
        // Valgrind gives 0.2 to 1 million accesses a second.
        let (least, most) = (accesses.div_ceil(1_000_000), accesses.div_ceil(200_000));
        let _ = writeln!(
            std::io::stderr(),
            "swath: at most {bounds}; the accesses alone take some {least} to {most} seconds"
        );
    }
    let recording = with_valgrind(bounds, sampling, |options| record_trace(command, out, options))?;
    let AccessRecording { accesses, events, run_accesses, programs, file_bytes, exit } = recording;
    let of = match run_accesses {
        run if run == accesses => String::new(),
        run => format!(" of {run}"),
    };
    let program = recorded(&programs);
    say!(
        "{program}: {accesses}{of} accesses, {events} events, {file_bytes} bytes, {}",
        out.display()
    );
    left_out(&programs, bounds, exit);
    Ok(exit_code(exit))
}

fn record_pages(
    out: &Path,
    whole_system: bool,
    buffer_kib: u64,
    command: &[OsString],
) -> Result<ExitCode, Failure> {
    // No way out at once here: the kernel's buffer has to be given back, and
    // the recording looks at the flag ten times a second.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
    let bar = bytes_bar("page events");
    let recording = pages::record_pages(
        command,
        out,
        &mut PageRecordOptions {
            whole_system,
            buffer_kib,
            level: 12,
            tracefs: &pages::usual_tracefs(),
            cancel: Some(&INTERRUPTED),
            progress: &mut |events| bar.0.set_position(events),
        },
    )
    .map_err(|error| match error {
        PageRecordError::Cancelled => Failure::new(130, "interrupted"),
        error => Failure::new(1, error),
    })?;
    bar.0.finish_and_clear();
    say!(
        "{} page events in {:.1} s, {} lost, {} bytes, {}",
        recording.events,
        recording.duration_us as f64 / 1e6,
        recording.lost,
        recording.file_bytes,
        out.display()
    );
    if recording.is_cut {
        return Err(Failure::new(130, "interrupted: the file has what there was until then"));
    }
    Ok(exit_code(Some(recording.exit)))
}

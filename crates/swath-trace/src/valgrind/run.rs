//! Running a command, turning the log of each of its programs into a
//! recording, and keeping the one that counts.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::access::content::TraceError;
use crate::access::reader::{TraceFormat, TraceItems, TraceReader};
use crate::command::{cancelled, name, program_name};
use crate::output::{self, Beside, Scratch};
use crate::programs::{CommandPrograms, PROGRAMS_MAX, ProgramRun};
use crate::valgrind::options::{RecordError, RecordOptions};
use crate::valgrind::supervise::{Begun, Ended, Processes, supervise};

/// The time between two looks at the outside.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Accesses that a program may take of the limit at a time.
const SHARE: u64 = 4096;

/// Number of accesses that are left, over all programs of the command.
pub(crate) struct Limit {
    left: AtomicU64,
    seen: AtomicU64,
    reached: AtomicBool,
    processes: Processes,
}

impl Limit {
    /// Counts accesses of one program. The command is stopped at the limit.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { limit: Arc::clone(self), left: 0 }
    }

    /// Stops the command as one that has come to its limit.
    fn reach(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.reached.store(true, Ordering::Relaxed);
        self.processes.stop();
    }
}

/// One program's part of the limit.
pub(crate) struct Share {
    limit: Arc<Limit>,
    left: u64,
}

impl Share {
    /// Returns true if one more access is within the limit.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        if self.left == 0 {
            return self.refill();
        }
        self.left -= 1;
        true
    }

    #[cold]
    fn refill(&mut self) -> bool {
        let taken = self.limit.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left - left.min(SHARE))
        });
        let taken = taken.map_or(0, |left| left.min(SHARE));
        self.limit.seen.fetch_add(taken, Ordering::Relaxed);
        if taken == 0 {
            self.limit.reach();
            return false;
        }
        self.left = taken - 1;
        true
    }
}

/// A program of the command, for the one that turns its log into a recording.
pub(crate) struct Program {
    /// The system's number of its process, which may have ended.
    pub(crate) pid: i32,
    /// Its name as a file can hold it.
    pub(crate) name: String,
}

/// A recording that lacks nothing but its end.
pub(crate) struct Unfinished<S> {
    /// Writer of the recording.
    pub(crate) stream: S,
    /// Accesses that were seen.
    pub(crate) accesses: u64,
}

/// A file that was made.
pub(crate) struct Made<T> {
    /// Value that `finish` gave.
    pub(crate) made: T,
    /// The programs of the command.
    pub(crate) programs: CommandPrograms,
    pub(crate) file_bytes: u64,
    /// Status with which the command ended; `None` if it was stopped.
    pub(crate) exit: Option<ExitStatus>,
}

/// Message of a thread.
enum Message<S> {
    Begun(Begun),
    Converted(usize, Result<Option<(Beside, Unfinished<S>)>, RecordError>),
    Ended(io::Result<Ended>),
}

/// Facts known of a program that began.
struct Known<S> {
    run: ProgramRun,
    replaced: Arc<AtomicBool>,
    kept: Option<(Beside, Unfinished<S>)>,
}

/// Runs `command` under lackey, with further `arguments` for valgrind and a
/// library to preload. `convert` turns the log of a program into a recording;
/// that of the program that counts becomes the file `path` after `finish`, which
/// is told whether the command was stopped at the limit.
/// The file appears whole or not at all.
pub(crate) fn record<S: Send, T>(
    command: &[OsString],
    path: &Path,
    options: &mut RecordOptions<'_>,
    arguments: &[&str],
    preload: Option<&OsStr>,
    convert: impl Fn(Program, TraceItems, BufWriter<File>, Share) -> Result<Unfinished<S>, RecordError>
    + Sync,
    finish: impl FnOnce(S, &CommandPrograms, bool) -> Result<T, RecordError>,
) -> Result<Made<T>, RecordError> {
    let failed = |source| RecordError::Output { path: path.to_owned(), source };
    // Nothing is run if nothing could be written.
    output::prepare(path).map_err(failed)?;
    let valgrind = find(&options.valgrind)
        .ok_or_else(|| RecordError::NoValgrind { valgrind: options.valgrind.clone() })?;
    let logs = Scratch::new()
        .map_err(|source| RecordError::Output { path: std::env::temp_dir(), source })?;
    let mut start = lackey(&valgrind, arguments, logs.path(), command);
    if let Some(library) = preload {
        start.env("LD_PRELOAD", library);
    }
    let limit = Arc::new(Limit {
        left: AtomicU64::new(options.accesses_max.unwrap_or(u64::MAX)),
        seen: AtomicU64::new(0),
        reached: AtomicBool::new(false),
        processes: Processes::default(),
    });
    let (sender, messages) = channel();
    let (known, ended) = thread::scope(|scope| {
        let supervisor = (sender.clone(), Arc::clone(&limit), logs.path());
        let spawned = thread::Builder::new().spawn_scoped(scope, move || {
            let (sender, limit, logs) = supervisor;
            let begun = |begun| drop(sender.send(Message::Begun(begun)));
            let ended = supervise(&mut start, logs, &limit.processes, begun);
            drop(sender.send(Message::Ended(ended)));
        });
        spawned.map_err(|source| RecordError::Follow { source })?;
        let one = |number: usize, program: Program, begun: Begun, sender: Sender<Message<S>>| {
            let (shared, convert, answer) = (Arc::clone(&limit), &convert, sender.clone());
            let spawned = thread::Builder::new().spawn_scoped(scope, move || {
                let made = convert_one(program, begun, path, &shared, convert);
                if made.is_err() {
                    shared.processes.stop();
                }
                drop(answer.send(Message::Converted(number, made)));
            });
            if let Err(source) = spawned {
                limit.processes.stop();
                let failed = Err(RecordError::Follow { source });
                drop(sender.send(Message::Converted(number, failed)));
            }
        };
        collect(&messages, &sender, logs.path(), &limit, options, one)
    })?;
    let stopped = limit.reached.load(Ordering::Relaxed);
    let Ended { status, forked } = ended.map_err(|source| RecordError::Follow { source })?;
    let (programs, kept) = choose(known, forked);
    let Some((file, unfinished)) = kept else {
        return Err(RecordError::NothingRecorded { command: name(command), status });
    };
    (options.progress)(unfinished.accesses);
    let made = finish(unfinished.stream, &programs, stopped).map_err(|error| match error {
        RecordError::Io { source } => failed(source),
        error => error,
    })?;
    output::put(file, path).map_err(failed)?;
    let file_bytes = std::fs::metadata(path).map_err(failed)?.len();
    let exit = if stopped { None } else { Some(status) };
    Ok(Made { made, programs, file_bytes, exit })
}

/// The file of valgrind, so that its absence is known before anything runs.
fn find(valgrind: &Path) -> Option<PathBuf> {
    if valgrind.components().count() > 1 {
        return valgrind.is_file().then(|| valgrind.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(valgrind)).find(|file| file.is_file())
}

fn lackey(valgrind: &Path, arguments: &[&str], logs: &Path, command: &[OsString]) -> Command {
    let mut start = Command::new(valgrind);
    start
        .args(["-q", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .args(["--trace-children=yes", "--child-silent-after-fork=yes"])
        .args(arguments)
        .arg(log_argument(logs))
        .arg("--")
        .args(command);
    start
}

/// The last argument before the program's name.
fn log_argument(logs: &Path) -> OsString {
    let mut argument = OsString::from("--log-file=");
    argument.push(logs.join("%p"));
    argument
}

/// The name of the program that valgrind's arguments run.
fn program_of(arguments: &[Vec<u8>], logs: &Path) -> String {
    let last = log_argument(logs);
    let after = arguments.iter().skip_while(|argument| argument[..] != *last.as_bytes());
    let program = after.skip(1).find(|argument| argument[..] != *b"--");
    program.map_or_else(String::new, |path| program_name(&[OsStr::from_bytes(path).to_owned()]))
}

/// Receives what the threads say until all of them are done.
fn collect<S>(
    messages: &Receiver<Message<S>>,
    sender: &Sender<Message<S>>,
    logs: &Path,
    limit: &Limit,
    options: &mut RecordOptions<'_>,
    convert: impl Fn(usize, Program, Begun, Sender<Message<S>>),
) -> Result<(Vec<Known<S>>, io::Result<Ended>), RecordError> {
    let mut known: Vec<Known<S>> = Vec::new();
    let (mut converting, mut ended, mut failure) = (0, None, None);
    let began = Instant::now();
    while ended.is_none() || converting > 0 {
        match messages.recv_timeout(LOOK_EVERY) {
            Ok(Message::Begun(begun)) => {
                let name = program_of(&begun.arguments, logs);
                let run = ProgramRun {
                    program: name.clone(),
                    process: begun.process,
                    accesses: 0,
                    recorded: false,
                    replaced: false,
                };
                let replaced = Arc::clone(&begun.replaced);
                converting += 1;
                let program = Program { pid: begun.pid, name };
                convert(known.len(), program, begun, sender.clone());
                known.push(Known { run, replaced, kept: None });
            }
            Ok(Message::Converted(number, made)) => {
                converting -= 1;
                match made {
                    Ok(kept) => keep(&mut known, number, kept),
                    Err(error) => {
                        failure.get_or_insert(error);
                    }
                }
            }
            Ok(Message::Ended(how)) => ended = Some(how),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        (options.progress)(limit.seen.load(Ordering::Relaxed));
        let is_late = options.time_max.is_some_and(|most| began.elapsed() >= most);
        if is_late && ended.is_none() {
            limit.reach();
        }
        if cancelled(options.cancel) {
            failure = Some(RecordError::Cancelled);
            limit.processes.stop();
        }
    }
    match (failure, ended) {
        (Some(error), _) => Err(error),
        (None, Some(ended)) => Ok((known, ended)),
        (None, None) => Err(RecordError::Io { source: io::ErrorKind::BrokenPipe.into() }),
    }
}

/// Enters a program's recording, and drops those that cannot count any more.
fn keep<S>(known: &mut [Known<S>], number: usize, kept: Option<(Beside, Unfinished<S>)>) {
    let program = &mut known[number];
    program.run.accesses = kept.as_ref().map_or(0, |(_, unfinished)| unfinished.accesses);
    program.run.replaced = program.replaced.load(Ordering::Relaxed);
    if !program.run.replaced {
        program.kept = kept;
    }
    let best = known.iter().filter(|program| program.kept.is_some());
    let best = best.map(|program| program.run.accesses).max();
    for program in known {
        // The command's own process counts where none has more.
        if Some(program.run.accesses) != best {
            program.kept = None;
        }
    }
}

/// The list of programs, and the recording of the one that counts: of those
/// that ran to their end the one with most accesses, the earliest of several.
fn choose<S>(
    known: Vec<Known<S>>,
    forked: u64,
) -> (CommandPrograms, Option<(Beside, Unfinished<S>)>) {
    let mut programs = CommandPrograms { forked, ..CommandPrograms::default() };
    let mut chosen = None;
    for program in known {
        let Known { mut run, kept, .. } = program;
        if run.accesses == 0 {
            // The launcher of valgrind, not a program of the command's.
            continue;
        }
        if chosen.is_none() && kept.is_some() {
            run.recorded = true;
            chosen = kept;
        }
        if programs.programs.len() < PROGRAMS_MAX - usize::from(chosen.is_none()) {
            programs.programs.push(run);
        } else {
            programs.unlisted += 1;
        }
    }
    (programs, chosen)
}

/// Turns one program's log into a recording; `None` if there is nothing in it.
fn convert_one<S>(
    program: Program,
    begun: Begun,
    path: &Path,
    limit: &Arc<Limit>,
    convert: &impl Fn(Program, TraceItems, BufWriter<File>, Share) -> Result<Unfinished<S>, RecordError>,
) -> Result<Option<(Beside, Unfinished<S>)>, RecordError> {
    let failed = |source| RecordError::Output { path: path.to_owned(), source };
    let items = match TraceReader::from_reader(begun.log, Some(TraceFormat::Lackey)) {
        Ok(accesses) => accesses.items(),
        Err(TraceError::Empty) => return Ok(None),
        Err(source) => return Err(RecordError::Trace { source }),
    };
    let file = output::beside(path).map_err(failed)?;
    let to = BufWriter::new(file.as_file().try_clone().map_err(failed)?);
    match convert(program, items, to, limit.share()) {
        Ok(unfinished) if unfinished.accesses > 0 => Ok(Some((file, unfinished))),
        Ok(_) | Err(RecordError::Trace { source: TraceError::NoAccesses { .. } }) => Ok(None),
        Err(RecordError::Io { source }) => Err(failed(source)),
        Err(error) => Err(error),
    }
}

//! Following a command through `fork` and `exec`.
//!
//! Valgrind started with `--trace-children=yes` runs every program that the
//! command runs, but lackey's lines do not say whose they are. So each program
//! gets a log of its own. The log's name ends in the process's number, and what
//! that name leads to has to change at each `exec`, before the new program
//! opens it. The kernel stops a traced process exactly there: the supervisor
//! traces the command with `ptrace`, puts a new pipe behind the name, and lets
//! the process go on. It looks at nothing else of the process, so nothing is
//! slower for it.
//!
//! A forked process inherits its parent's valgrind, which is silent in it
//! (`--child-silent-after-fork=yes`) until it runs a program of its own.
#![allow(
    unsafe_code,
    reason = "ptrace and waitid with signals that nix does not know: each with its proof"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::valgrind::log::Log;

/// Waits until the supervisor has taken hold of the process, then becomes the
/// command. Standard input stays the command's.
const GATE: &str = "read -r go <\"$1\"; shift; exec \"$@\"";

/// A program that has just begun, and its log.
pub(crate) struct Begun {
    /// The system's number of its process.
    pub(crate) pid: i32,
    /// Its process, numbered from 0 in the order of first programs.
    pub(crate) process: u64,
    /// Its arguments, valgrind's included.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Lines that valgrind writes of it.
    pub(crate) log: Log,
    /// Set when it has ended by `exec`.
    pub(crate) replaced: Arc<AtomicBool>,
}

/// End of a command.
pub(crate) struct Ended {
    /// The status of its own process.
    pub(crate) status: ExitStatus,
    /// Processes that were forked and never ran a program.
    pub(crate) forked: u64,
}

/// The processes of a command, to be ended from another thread.
#[derive(Default)]
pub(crate) struct Processes {
    /// Those not reaped yet, so that their numbers are theirs.
    live: Mutex<BTreeSet<i32>>,
    stopped: AtomicBool,
}

impl Processes {
    fn live(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.live.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends all of them, and those that they are just starting.
    pub(crate) fn stop(&self) {
        let live = self.live();
        self.stopped.store(true, Ordering::Relaxed);
        for &pid in &*live {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// The log of the program that a process runs now.
struct Current {
    /// Keeps the pipe's name under `/proc` valid until valgrind opens it.
    _open: PipeWriter,
    ended: Arc<AtomicBool>,
    replaced: Arc<AtomicBool>,
}

impl Current {
    fn end(self, by_exec: bool) {
        self.replaced.store(by_exec, Ordering::Relaxed);
        self.ended.store(true, Ordering::Release);
    }
}

/// An event of a traced process.
enum Stop {
    Ended { pid: i32, status: i32 },
    Stopped { pid: i32, signal: i32, event: i32 },
}

/// Waits for the next event of a process that this thread traces; `None` if
/// there are no processes left.
fn wait(processes: &Processes) -> io::Result<Option<Stop>> {
    let any = libc::__WALL | libc::__WNOTHREAD;
    loop {
        // SAFETY: all bytes zero are a value of this C struct of integers.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // Only looked at: until it is reaped below, under the lock, the number is the process's.
        let what = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
        // SAFETY: `info` is valid for writes for the whole call.
        let failed = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, what | any) } != 0;
        if !failed {
            let mut live = processes.live();
            // SAFETY: waitid has filled in the fields of a child's state.
            let pid = unsafe { info.si_pid() };
            let mut status = 0;
            // SAFETY: `status` is valid for writes for the whole call.
            let reaped = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
            if reaped == pid && libc::WIFSTOPPED(status) {
                let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
                return Ok(Some(Stop::Stopped { pid, signal, event }));
            }
            if reaped == pid {
                live.remove(&pid);
                return Ok(Some(Stop::Ended { pid, status }));
            }
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::ECHILD) if failed => return Ok(None),
            // A thread that another one's exec has ended between the two calls.
            Some(libc::ECHILD | libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// Makes a request to a process that this thread traces. One that has been
/// killed meanwhile takes none, which its end then shows.
fn request(request: libc::c_uint, pid: i32, data: i32) {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let data = std::ptr::without_provenance_mut::<libc::c_void>(data as usize);
    // SAFETY: the requests made here (CONT, LISTEN) read and write no memory of this process.
    unsafe { libc::ptrace(request, pid, nothing, data) };
}

/// Takes hold of a process of this user's without stopping it.
fn seize(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_EXITKILL;
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let options = std::ptr::without_provenance_mut::<libc::c_void>(options as usize);
    // SAFETY: SEIZE reads and writes no memory of this process.
    match unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, nothing, options) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number that an event tells of: after a fork the new process's, after an
/// exec the one that its thread had before.
fn message(pid: i32) -> Option<i32> {
    let mut number: libc::c_ulong = 0;
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: `number` is valid for writes for the whole call, and as large as GETEVENTMSG writes.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, nothing, &raw mut number) };
    i32::try_from(number).ok().filter(|_| done == 0)
}

/// Runs a command of valgrind's, whose `--log-file` is `logs/%p`, to its end and
/// to that of all processes that it started; hands each program to `begun` as
/// it begins. To be called on a thread of its own: it is that thread's children
/// that are waited for.
pub(crate) fn supervise(
    command: &mut Command,
    logs: &Path,
    processes: &Processes,
    mut begun: impl FnMut(Begun),
) -> io::Result<Ended> {
    let (gate, mut opener) = io::pipe()?;
    let gate_name = format!("/proc/{}/fd/{}", std::process::id(), gate.as_raw_fd());
    let mut start = Command::new("/bin/sh");
    start.args(["-c", GATE, "sh", &gate_name]).arg(command.get_program());
    start.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => start.env(name, value),
            None => start.env_remove(name),
        };
    }
    let mut child = start.spawn()?;
    let main = child.id().cast_signed();
    if let Err(error) = seize(main) {
        child.kill()?;
        child.wait()?;
        return Err(error);
    }
    processes.live().insert(main);
    opener.write_all(b"\n")?;
    let mut current: BTreeMap<i32, Current> = BTreeMap::new();
    let (mut numbers, mut next_number) = (BTreeMap::new(), 0);
    let mut silent = BTreeSet::new();
    let (mut status, mut forked_count, mut failure) = (None, 0, None);
    while let Some(stop) = wait(processes)? {
        match stop {
            Stop::Ended { pid, status: raw } => {
                if let Some(log) = current.remove(&pid) {
                    log.end(false);
                }
                numbers.remove(&pid);
                forked_count += u64::from(silent.remove(&pid));
                if pid == main {
                    status = Some(ExitStatus::from_raw(raw));
                }
            }
            Stop::Stopped { pid, signal, event } => {
                if processes.live().insert(pid) && processes.stopped.load(Ordering::Relaxed) {
                    processes.stop();
                }
                match event {
                    0 => request(libc::PTRACE_CONT, pid, signal),
                    libc::PTRACE_EVENT_EXEC => {
                        if let Some(log) = current.remove(&pid) {
                            log.end(true);
                        }
                        silent.remove(&pid);
                        if let Some(thread) = message(pid).filter(|&thread| thread != pid) {
                            // It had another number before it became its process's only one.
                            processes.live().remove(&thread);
                        }
                        let process = *numbers.entry(pid).or_insert_with(|| {
                            next_number += 1;
                            next_number - 1
                        });
                        match new_log(pid, process, logs) {
                            Ok((log, program)) => {
                                current.insert(pid, log);
                                begun(program);
                            }
                            Err(error) => {
                                failure.get_or_insert(error);
                                processes.stop();
                            }
                        }
                        request(libc::PTRACE_CONT, pid, 0);
                    }
                    libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                        silent.extend(message(pid).filter(|child| !current.contains_key(child)));
                        request(libc::PTRACE_CONT, pid, 0);
                    }
                    libc::PTRACE_EVENT_STOP
                        if [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU]
                            .contains(&signal) =>
                    {
                        request(libc::PTRACE_LISTEN, pid, 0);
                    }
                    _ => request(libc::PTRACE_CONT, pid, 0),
                }
            }
        }
    }
    current.into_values().for_each(|log| log.end(false));
    // Reaped above; only its pipes are left.
    drop(child);
    match (failure, status) {
        (Some(error), _) => Err(error),
        (None, Some(status)) => Ok(Ended { status, forked: forked_count }),
        (None, None) => Err(io::Error::other("the command's end was not seen")),
    }
}

/// Puts a new pipe behind the name of the process's log.
fn new_log(pid: i32, process: u64, logs: &Path) -> io::Result<(Current, Begun)> {
    let (pipe, open) = io::pipe()?;
    let name = logs.join(pid.to_string());
    match fs::remove_file(&name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let target = format!("/proc/{}/fd/{}", std::process::id(), open.as_raw_fd());
    std::os::unix::fs::symlink(target, &name)?;
    let (ended, replaced) = (Arc::default(), Arc::default());
    let log = Log::new(pipe, Arc::clone(&ended))?;
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = arguments.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
    let begun = Begun { pid, process, arguments, log, replaced: Arc::clone(&replaced) };
    Ok((Current { _open: open, ended, replaced }, begun))
}

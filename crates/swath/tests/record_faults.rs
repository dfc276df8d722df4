//! Every call of the system's that a recorder makes fails once: the recording is then
//! whole, or there is an error in one line and nothing of it is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hostile::finish;

const PROGRAM: &str = env!("CARGO_BIN_EXE_swath");

/// Stands before the C library's functions: lets call number FAULT_NUMBER of FAULT_CALL
/// fail, and says at the end how many there were. Programs that are started know nothing
/// of it. Calls are counted from `main` on.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
static long count, number;
static int error;
static char call[64], report[512];
static void from_environment(char *to, size_t len, const char *name) {
    const char *text = getenv(name);
    snprintf(to, len, "%s", text ? text : "");
    unsetenv(name);
}
__attribute__((constructor)) static void begin(void) {
    char text[32];
    from_environment(call, sizeof call, "FAULT_CALL");
    from_environment(report, sizeof report, "FAULT_REPORT");
    from_environment(text, sizeof text, "FAULT_NUMBER");
    number = atol(text);
    from_environment(text, sizeof text, "FAULT_ERROR");
    error = atoi(text);
    unsetenv("LD_PRELOAD");
}
__attribute__((destructor)) static void end(void) {
    char text[32];
    int len = snprintf(text, sizeof text, "%ld", __atomic_load_n(&count, __ATOMIC_RELAXED));
    int file = (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file >= 0) syscall(SYS_write, file, text, len);
}
static int fails(const char *name) {
    if (strcmp(name, call)) return 0;
    if (__atomic_add_fetch(&count, 1, __ATOMIC_RELAXED) != number) return 0;
    errno = error;
    return 1;
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
static int regular(int file) {
    struct stat about;
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode);
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    return fails("open") ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
ssize_t write(int file, const void *from, size_t len) {
    if (regular(file) ? fails("write") : file > 2 && fails("write_pipe")) return -1;
    return syscall(SYS_write, file, from, len);
}
ssize_t read(int file, void *to, size_t len) {
    return fails("read") ? -1 : syscall(SYS_read, file, to, len);
}
int fdatasync(int file) { return fails("fdatasync") ? -1 : NEXT(fdatasync)(file); }
int pipe2(int *files, int flags) { return fails("pipe") ? -1 : NEXT(pipe2)(files, flags); }
int symlink(const char *to, const char *at) { return fails("symlink") ? -1 : NEXT(symlink)(to, at); }
int mkdir(const char *path, mode_t mode) { return fails("mkdir") ? -1 : NEXT(mkdir)(path, mode); }
int flock(int file, int what) { return fails("flock") ? -1 : NEXT(flock)(file, what); }
int poll(struct pollfd *files, nfds_t count, int ms) { return fails("poll") ? -1 : NEXT(poll)(files, count, ms); }
int waitid(idtype_t type, id_t id, siginfo_t *info, int what) {
    return fails("waitid") ? -1 : NEXT(waitid)(type, id, info, what);
}
pid_t waitpid(pid_t pid, int *status, int what) { return fails("waitpid") ? -1 : NEXT(waitpid)(pid, status, what); }
long ptrace(enum __ptrace_request request, ...) {
    va_list rest;
    va_start(rest, request);
    long pid = va_arg(rest, long);
    void *at = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    // A continuation that fails stands for a process that was killed.
    int seizes = (int)request == PTRACE_SEIZE;
    return (seizes && fails("ptrace")) ? -1 : syscall(SYS_ptrace, request, pid, at, data);
}
int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const *args, char *const *env) {
    if (fails("spawn")) return error;
    return NEXT(posix_spawnp)(pid, file, actions, attributes, args, env);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *with) {
    if (fails("thread")) return error;
    return NEXT(pthread_create)(thread, attributes, run, with);
}
int fcntl64(int file, int what, ...) {
    va_list rest;
    va_start(rest, what);
    long with = va_arg(rest, long);
    va_end(rest);
    return fails("fcntl") ? -1 : (int)syscall(SYS_fcntl, file, what, with);
}
int fcntl(int file, int what, ...) {
    va_list rest;
    va_start(rest, what);
    long with = va_arg(rest, long);
    va_end(rest);
    return fails("fcntl") ? -1 : (int)syscall(SYS_fcntl, file, what, with);
}
"#;

/// A valgrind that writes a few of lackey's lines where it is told to; `$MAKES`, if there
/// is one, becomes a directory meanwhile.
const VALGRIND: &str = r#"#!/bin/sh
for argument; do
    case $argument in --log-file=*) log=${argument#--log-file=} ;; esac
done
echo $$ >>"$PIDS"
[ -z "$MAKES" ] || mkdir "$MAKES"
line=0
while [ $line -lt 300 ]; do
    printf 'I  00001000,4\n L 0000200%d,8\n' $((line % 8))
    line=$((line + 1))
done >"${log%\%p}$$"
"#;

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        let room = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["out", "tmp", "bin"] {
            fs::create_dir(room.path(name)).unwrap();
        }
        fs::write(room.path("shim.c"), SHIM).unwrap();
        let built = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-w", "shim.c", "-o", "shim.so", "-ldl"])
            .current_dir(room.dir.path())
            .output()
            .expect("a C compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let valgrind = room.path("bin/valgrind");
        fs::write(&valgrind, VALGRIND).unwrap();
        fs::set_permissions(&valgrind, fs::Permissions::from_mode(0o755)).unwrap();
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A recording with the stand-in for valgrind.
    fn record(&self) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["record", "accesses", "-o", "out/file.swtrace", "true"]);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.dir.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("TMPDIR", self.path("tmp"))
            .env("PIDS", self.path("pids"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The same with a call that fails; gives how many calls there were, too.
    fn with_fault(&self, call: &str, number: u64, error: Errno) -> (Output, u64) {
        let report = self.path("count");
        let mut command = self.record();
        command
            .env("LD_PRELOAD", self.path("shim.so"))
            .env("FAULT_CALL", call)
            .env("FAULT_NUMBER", number.to_string())
            .env("FAULT_ERROR", (error as i32).to_string())
            .env("FAULT_REPORT", &report);
        let output = finish(command, &format!("{call} {number}"));
        let count = fs::read_to_string(&report).unwrap_or_default().parse();
        (output, count.unwrap_or(0))
    }

    /// No process is left of those that were started; the kernel ends them a moment later.
    fn is_quiet(&self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        let pids = fs::read_to_string(self.path("pids")).unwrap_or_default();
        let running = |pid: &str| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let bin = self.path("bin").into_os_string().into_encoded_bytes();
            arguments.windows(bin.len()).any(|part| part == bin)
        };
        while pids.lines().any(running) {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Calls of a kind that are made to fail: all but of those that a loop makes.
const CALLS_MAX: u64 = 25;

/// Calls, and what they fail with.
const CALLS: [(&str, Errno); 16] = [
    ("open", Errno::EMFILE),
    ("open", Errno::EACCES),
    ("write", Errno::ENOSPC),
    ("write_pipe", Errno::EPIPE),
    ("read", Errno::EIO),
    ("fdatasync", Errno::EIO),
    ("pipe", Errno::EMFILE),
    ("symlink", Errno::ENOSPC),
    ("mkdir", Errno::ENOSPC),
    ("flock", Errno::ENOLCK),
    ("poll", Errno::ENOMEM),
    ("waitid", Errno::EINVAL),
    ("ptrace", Errno::EPERM),
    ("spawn", Errno::EAGAIN),
    ("thread", Errno::EAGAIN),
    ("fcntl", Errno::EMFILE),
];

#[test]
fn every_system_call_of_a_recorder_fails_once() {
    let room = Room::new();
    for (call, error) in CALLS {
        // None fails, which says how many there are; a few more or less by the threads' turns.
        let (output, total) = room.with_fault(call, 0, error);
        assert!(output.status.success() && total > 0, "{call}: {total} calls: {output:?}");
        fs::remove_file(room.path("out/file.swtrace")).unwrap();
        let mut refused = 0;
        for number in 1..=total.min(CALLS_MAX) {
            let (output, count) = room.with_fault(call, number, error);
            let what = format!("{call} {number} of {count} with {error}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{what}: {}: {stderr}", output.status);
            assert!(!stderr.contains("panicked"), "{what}: {stderr}");
            let file = room.path("out/file.swtrace");
            if code == Some(0) {
                let show = Command::new(PROGRAM).arg("show").arg(&file).output().unwrap();
                assert!(show.status.success(), "{what}: {show:?}");
                assert!(String::from_utf8_lossy(&show.stdout).contains("300 reads"), "{what}");
                fs::remove_file(&file).unwrap();
            } else {
                refused += 1;
                let errors = stderr.lines().filter(|line| !line.contains("at most")).count();
                assert_eq!(errors, 1, "{what}: {stderr}");
            }
            assert_eq!(names(&room.path("out")), [""; 0], "{what}: {stderr}");
            assert_eq!(names(&room.path("tmp")), [""; 0], "{what}: {stderr}");
            assert!(room.is_quiet(), "{what}: a process is left");
            let _ = fs::remove_file(room.path("pids"));
        }
        println!("{call} ({error}): {total} calls, {refused} refused");
    }
}

/// The place is taken while the command runs, so the file cannot be moved there.
#[test]
fn a_place_that_is_taken_meanwhile() {
    let room = Room::new();
    let mut command = room.record();
    command.env("MAKES", room.path("out/file.swtrace"));
    let output = finish(command, "a directory in the way");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("out/file.swtrace"), "{stderr}");
    assert_eq!(names(&room.path("out")), ["file.swtrace"]);
    assert!(names(&room.path("out/file.swtrace")).is_empty());
}

/// Killed in the middle, a recorder cannot tidy up; the next one does.
#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let room = Room::new();
    fs::write(room.path("bin/valgrind"), format!("{VALGRIND}sleep 600\n")).unwrap();
    let mut first = room.record().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let begun = || room.path("pids").exists() && !names(&room.path("out")).is_empty();
    while !begun() {
        assert!(Instant::now() < deadline && first.try_wait().unwrap().is_none());
        std::thread::yield_now();
    }
    // A second one while the first lives takes nothing away.
    let left = names(&room.path("out"));
    fs::write(room.path("bin/valgrind"), VALGRIND).unwrap();
    let output = finish(room.record(), "beside a living one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in &left {
        assert!(names(&room.path("out")).contains(name), "{name} was a living recorder's");
    }
    let pid = Pid::from_raw(first.id().try_into().unwrap());
    kill(pid, Signal::SIGKILL).unwrap();
    first.wait().unwrap();
    assert!(names(&room.path("out")).len() > 1, "nothing was left");
    let output = finish(room.record(), "after a killed one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(&room.path("out")), ["file.swtrace"]);
    assert_eq!(names(&room.path("tmp")), [""; 0]);
}

//! A directory in which the program runs while calls of the system's fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::hostile::finish;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_swath");

/// The library that lets calls fail.
const SHIM: &str = include_str!("shim.c");

/// A valgrind that writes a few of lackey's lines where it is told to; `$MAKES`, if there
/// is one, becomes a directory meanwhile.
pub(crate) const VALGRIND: &str = r#"#!/bin/sh
for argument; do
    case $argument in --log-file=*) log=${argument#--log-file=} ;; esac
done
echo $$ >>"$PIDS"
[ -z "$MAKES" ] || mkdir "$MAKES"
# The library says that it is there, and then that it allocated 16 bytes.
printf ' S 5357000000,8\n S 5357000000,4\n S 5357000008,8\n S 5357000010,2\n' >"${log%\%p}$$"
printf ' S 5357000000,1\n S 5357000200,2\n S 5357000004,4\n' >>"${log%\%p}$$"
line=0
while [ $line -lt 300 ]; do
    printf 'I  00001000,4\n L 0000200%d,8\n' $((line % 8))
    line=$((line + 1))
done >>"${log%\%p}$$"
"#;

/// A call, and what it fails with.
pub(crate) type Fault = (&'static str, Errno);

pub(crate) struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with the stand-in for valgrind.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(args)
            .current_dir(self.dir.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("TMPDIR", self.path("tmp"))
            .env("PIDS", self.path("pids"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A recording of accesses.
    pub(crate) fn record(&self) -> Command {
        self.command(&["record", "accesses", "-o", "out/file.swtrace", "true"])
    }

    /// A command whose call of that number fails, and none if it is 0; gives how many such calls
    /// there were, too.
    pub(crate) fn with_fault(
        &self,
        mut command: Command,
        fault: Fault,
        number: u64,
    ) -> (Output, u64) {
        let report = self.path("count");
        command
            .env("LD_PRELOAD", self.path("shim.so"))
            .env("FAULT_CALL", fault.0)
            .env("FAULT_NUMBER", number.to_string())
            .env("FAULT_ERROR", (fault.1 as i32).to_string())
            .env("FAULT_REPORT", &report);
        let output = finish(command, &format!("{} {number}", fault.0));
        let count = fs::read_to_string(&report).unwrap_or_default().parse();
        (output, count.unwrap_or(0))
    }

    /// No process is left of those that were started; the kernel ends them a moment later.
    pub(crate) fn is_quiet(&self) -> bool {
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

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

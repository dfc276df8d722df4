//! The programs that libFuzzer drives, whose coverage comes from the compiler's own passes: the
//! stable toolchain will do. The targets of parsers have one that also tells comparisons, so that
//! the fuzzer finds the words of a text; the bytes of an operation language are choices, which no
//! comparison shows, and there that would be two thirds of the time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use wait4::Wait4;

/// The crate of the targets.
pub(crate) const FUZZ: &str = "swath-fuzz";

/// What makes the compiler count edges, as `cargo fuzz` has it.
const EDGES: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table";

/// What makes it tell comparisons as well.
const COMPARISONS: &str = "-Cllvm-args=-sanitizer-coverage-trace-compares";

/// Between two looks at what the fuzzer has used.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Of the unit in which the kernel tells a process's time, on every architecture that this runs on.
const MILLISECONDS_A_TICK: u64 = 10;

/// The programs that a campaign needs, built.
pub(crate) struct Programs {
    parsers: Option<PathBuf>,
    operations: Option<PathBuf>,
}

impl Programs {
    /// Builds those that are wanted, apart from everything else.
    pub(crate) fn build(root: &Path, work: &Path, parsers: bool, operations: bool) -> Result<Self> {
        Ok(Self {
            parsers: parsers.then(|| build(root, work, true)).transpose()?,
            operations: operations.then(|| build(root, work, false)).transpose()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn only(operations: PathBuf) -> Self {
        Self { parsers: None, operations: Some(operations) }
    }

    /// Runs the program that a target is part of. It is asked to end when it has used so much of a
    /// processor. Returns whether it ended well, and the processor time that it took.
    pub(crate) fn run(
        &self,
        (name, is_parser): (&str, bool),
        args: &[String],
        log: &Path,
        most: Duration,
    ) -> Result<(bool, Duration)> {
        let program = if is_parser { &self.parsers } else { &self.operations };
        let program = program.as_deref().context("a program that was not built")?;
        let mut child = Command::new(program)
            .args(args)
            .env("SWATH_FUZZ_TARGET", name)
            .stdout(Stdio::null())
            .stderr(File::create(log)?)
            .spawn()
            .context("the fuzzer")?;
        let (id, (ended, runs)) = (child.id(), mpsc::channel());
        let used = thread::scope(|scope| {
            scope.spawn(move || end_after(id, most, &runs));
            let used = child.wait4().context("the fuzzer");
            drop(ended);
            used
        })?;
        Ok((used.status.success(), used.rusage.utime + used.rusage.stime))
    }
}

/// Asks a process to end, once it has used so much of a processor, unless `runs` is closed before.
fn end_after(id: u32, most: Duration, runs: &mpsc::Receiver<()>) {
    while runs.recv_timeout(LOOK_AFTER) == Err(RecvTimeoutError::Timeout) {
        if processor_time(id).is_some_and(|used| used >= most) {
            // The fuzzer then ends as after its time by the clock; without an answer, it does so then.
            let _ = Command::new("kill").args(["-USR1", &id.to_string()]).status();
            return;
        }
    }
}

/// The time that a process has used of processors, on Linux.
fn processor_time(id: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Its name, which may hold anything, ends with the last bracket; the 14th and 15th field are ticks.
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * MILLISECONDS_A_TICK))
}

/// Writes a program that stands for the fuzzer.
#[cfg(test)]
pub(crate) fn write_program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, script).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn build(root: &Path, work: &Path, parsers: bool) -> Result<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let version = String::from_utf8(version.stdout)?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc says no host")?;
    let mut flags = format!("{} {EDGES}", std::env::var("RUSTFLAGS").unwrap_or_default());
    let (mut features, mut folder) = ("libfuzzer", work.join("operations"));
    if parsers {
        flags = format!("{flags} {COMPARISONS}");
        (features, folder) = ("libfuzzer,parsers", work.to_owned());
    }
    let status = Command::new("cargo")
        .args(["build", "--package", FUZZ, "--bin", FUZZ])
        .args(["--no-default-features", "--features", features])
        // A target that is named keeps the flags from build scripts and macros.
        .args(["--profile", "fuzz", "--target", host])
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", flags)
        .current_dir(root)
        .status()
        .context("cargo build")?;
    ensure!(status.success(), "the program for the fuzzer was not built");
    Ok(folder.join(host).join("fuzz").join(FUZZ))
}

#[cfg(test)]
mod unit {
    use std::time::Duration;

    use super::{Programs, write_program};

    /// A program that would work for an hour ends as it is asked to.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_turn_ends_when_its_processor_time_is_used() {
        let room = tempfile::tempdir().unwrap();
        let (program, log) = (room.path().join("fuzzer"), room.path().join("log"));
        let script = "#!/bin/sh\ntrap 'exit 0' USR1\nwhile :; do :; done\n";
        write_program(&program, script);
        let programs = Programs::only(program);
        let (is_well, used) =
            programs.run(("it", false), &[], &log, Duration::from_millis(50)).unwrap();
        assert!(is_well && used >= Duration::from_millis(50), "{used:?}");
    }
}

//! A command under every failure of some calls, and what is demanded of it.

use std::fs::{self, File};

use nix::errno::Errno;

use super::room::{Fault, PROGRAM, Room, names};

/// A command.
pub(crate) struct Attack {
    pub(crate) args: &'static [&'static str],
    /// True if what it prints goes to a file, on which writing can fail.
    pub(crate) prints_to_file: bool,
    /// One of these stands in every error.
    pub(crate) names: &'static [&'static str],
    pub(crate) faults: &'static [Fault],
    /// Calls of a kind that are made to fail: all but of those that a loop makes.
    pub(crate) calls_max: u64,
}

/// File into which a command prints.
pub(crate) const SAID: &str = "said";

impl Attack {
    /// Lets each call fail once. `whole` looks at what a run wrote that says it did well, and takes
    /// it away; `left` at what one left that failed.
    pub(crate) fn run(&self, room: &Room, whole: impl Fn(&str), left: impl Fn(&str)) {
        let run = |fault, number| {
            let mut command = room.command(self.args);
            command.env("FAULT_ROOT", room.path("root"));
            if self.prints_to_file {
                command.stdout(File::create(room.path(SAID)).unwrap());
            }
            room.with_fault(command, fault, number)
        };
        for &fault in self.faults {
            let (call, error) = fault;
            let (output, mut total) = run(fault, 0);
            assert!(output.status.success(), "{call}: {output:?}");
            whole(call);
            if call == EVERY_RENAME {
                total = 1;
            }
            assert!(total > 0, "{:?} make no call of {call}", self.args);
            let mut refused = 0;
            // What is interrupted is tried again, by the same few functions everywhere.
            let calls_max = if error == Errno::EINTR { 4 } else { self.calls_max };
            for number in 1..=total.min(calls_max) {
                let (output, count) = run(fault, number);
                let what = format!("{:?}: {call} {number} of {count} with {error}", self.args);
                let stderr = String::from_utf8_lossy(&output.stderr);
                let code = output.status.code();
                assert!(matches!(code, Some(0..=2)), "{what}: {}: {stderr}", output.status);
                assert!(!stderr.contains("panicked"), "{what}: {stderr}");
                if code == Some(0) {
                    whole(&what);
                } else {
                    refused += 1;
                    assert_ne!(error, Errno::EINTR, "{what}: {stderr}");
                    // A shell that was begun for the program may find it gone, and says so.
                    let is_others =
                        |line: &&str| line.contains("at most") || line.starts_with("sh: ");
                    let said = stderr.lines().filter(|line| !is_others(line));
                    let said: Vec<&str> = said.collect();
                    assert_eq!(said.len(), 1, "{what}: {stderr}");
                    let is_named = self.names.iter().any(|name| said[0].contains(name));
                    assert!(is_named, "{what}: {stderr}");
                    left(&what);
                }
                assert_eq!(names(&room.path("tmp")), [""; 0], "{what}: {stderr}");
                assert!(room.is_quiet(), "{what}: a process is left");
                let _ = fs::remove_file(room.path("pids"));
            }
            println!("{:?}: {call} ({error}): {total} calls, {refused} refused", self.args);
        }
    }

    /// The same of a command that writes one file into `out`, which `show` reads and says `words`
    /// of.
    pub(crate) fn run_on_file(&self, room: &Room, words: &str) {
        let whole = |what: &str| {
            let written = names(&room.path("out"));
            assert_eq!(written.len(), 1, "{what}: {written:?}");
            let file = room.path("out").join(&written[0]);
            let show = std::process::Command::new(PROGRAM).arg("show").arg(&file).output().unwrap();
            assert!(show.status.success(), "{what}: {show:?}");
            let said = String::from_utf8_lossy(&show.stdout);
            assert!(said.contains(words), "{what}: no {words:?} in {said}");
            fs::remove_file(file).unwrap();
        };
        let left = |what: &str| assert_eq!(names(&room.path("out")), [""; 0], "{what}");
        self.run(room, whole, left);
    }
}

/// The kernel refuses all renaming: not a call of the C library's.
pub(crate) const EVERY_RENAME: &str = "every rename";

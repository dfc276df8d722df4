//! Commands that are several programs: launchers that replace themselves by
//! `exec`, and shells that start others. Recorded where valgrind is installed.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use swath_trace::access::{AccessRecording, TraceReader, record_accesses};
use swath_trace::heap::{HeapReader, HeapRecording, record_heap};
use swath_trace::valgrind::{CommandPrograms, RecordError, RecordOptions};

/// Asks for a number of blocks that nobody else comes near, writes them, and
/// ends with 7.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *volatile block[1400];
    for (int i = 0; i < 1400; i++)
        memset(block[i] = malloc(500 + i), 1, 500 + i);
    for (int i = 0; i < 1400; i += 2)
        free(block[i]);
    return 7;
}
"#;

fn has_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIPPED: valgrind is not installed, so nothing was recorded");
    }
    found
}

fn compile(dir: &Path) -> String {
    let (source, program) = (dir.join("blocks.c"), dir.join("blocks"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-w", "-fno-builtin"]).arg(&source).arg("-o").arg(&program);
    assert!(cc.status().unwrap().success(), "{cc:?}");
    program.into_os_string().into_string().unwrap()
}

fn options(progress: &mut dyn FnMut(u64)) -> RecordOptions<'_> {
    RecordOptions {
        accesses_max: None,
        time_max: None,
        sampling: None,
        level: 1,
        valgrind: "valgrind".into(),
        cancel: None,
        progress,
    }
}

fn words(command: &[&str]) -> Vec<OsString> {
    command.iter().map(Into::into).collect()
}

fn heap(command: &[&str], output: &Path) -> Result<HeapRecording, RecordError> {
    record_heap(&words(command), output, &mut options(&mut |_| {}))
}

fn accesses(command: &[&str], output: &Path) -> Result<AccessRecording, RecordError> {
    record_accesses(&words(command), output, &mut options(&mut |_| {}))
}

/// The programs' names, and the name of the one that was recorded.
fn names(programs: &CommandPrograms) -> (Vec<&str>, &str) {
    let names = programs.programs.iter().map(|run| run.program.as_str()).collect();
    let mut recorded = programs.programs.iter().filter(|run| run.recorded);
    let name = recorded.next().expect("one is recorded").program.as_str();
    assert!(recorded.next().is_none(), "only one is recorded");
    (names, name)
}

fn within_a_percent(a: u64, b: u64, what: &str) {
    assert!(a.abs_diff(b) * 100 <= b, "{what}: {a} instead of {b}");
}

#[test]
fn the_last_program_s_heap_is_that_of_a_direct_recording() {
    if !has_valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let output = dir.path().join("blocks.swheap");
    let direct = heap(&[&program], &output).unwrap();
    assert_eq!(names(&direct.programs), (vec!["blocks"], "blocks"));
    let (exec, wait) = (format!("exec {program}"), format!("{program}; exit 7"));
    let launchers: [(&[&str], &[&str]); 5] = [
        (&["sh", "-c", &exec], &["sh", "blocks"]),
        (&["env", &program], &["env", "blocks"]),
        (&["nice", "-n", "1", &program], &["nice", "blocks"]),
        (&["sh", "-c", &wait], &["sh", "blocks"]),
        (&["env", "nice", &program], &["env", "nice", "blocks"]),
    ];
    for (command, expected) in launchers {
        let recording = heap(command, &output).unwrap();
        assert_eq!(recording.exit.unwrap().code(), Some(7), "{command:?}");
        let mut reader = HeapReader::open(&output).unwrap();
        assert_eq!(reader.head().program, "blocks", "{command:?}");
        assert_eq!(reader.by_ref().map(Result::unwrap).count() as u64, recording.events);
        assert_eq!(reader.programs(), Some(&recording.programs));
        let (found, recorded) = names(&recording.programs);
        assert_eq!((found.as_slice(), recorded), (expected, "blocks"), "{command:?}");
        let (there, here) = (&direct.totals, &recording.totals);
        within_a_percent(here.reads, there.reads, "reads");
        within_a_percent(here.writes, there.writes, "writes");
        within_a_percent(recording.events, direct.events, "events");
        assert_eq!((here.lost_calls, here.unknown_calls), (0, 0), "{command:?}");
    }
}

#[test]
fn a_trace_is_that_of_the_last_program() {
    if !has_valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let output = dir.path().join("blocks.swtrace");
    let direct = accesses(&[&program], &output).unwrap();
    let (exec, wait) = (format!("exec {program}"), format!("{program} & wait; exit 7"));
    for command in
        [&["sh", "-c", &exec][..], &["env", &program], &["nice", &program], &["sh", "-c", &wait]]
    {
        let recording = accesses(command, &output).unwrap();
        assert_eq!(recording.exit.unwrap().code(), Some(7), "{command:?}");
        within_a_percent(recording.run_accesses, direct.run_accesses, "accesses");
        let mut items = TraceReader::open(&output).unwrap().items();
        assert_eq!(items.header().unwrap().program, "blocks");
        let count = items.by_ref().map(Result::unwrap).count() as u64;
        assert_eq!(count, recording.accesses + recording.events);
        assert_eq!(items.programs(), Some(&recording.programs));
        let launcher = &recording.programs.programs[0];
        assert_eq!(launcher.replaced, !command.contains(&wait.as_str()), "{command:?}");
        assert_eq!(names(&recording.programs).1, "blocks");
    }
}

/// A script that gives way to the program, as version managers put before
/// theirs.
#[test]
fn a_shim_is_a_launcher() {
    use std::os::unix::fs::PermissionsExt;
    if !has_valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path());
    let shim = dir.path().join("shim");
    std::fs::write(&shim, format!("#!/bin/sh\nset -e\nexec \"{program}\" \"$@\"\n")).unwrap();
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = dir.path().join("shim.swheap");
    let recording = heap(&[shim.to_str().unwrap()], &output).unwrap();
    assert_eq!(names(&recording.programs), (vec!["shim", "blocks"], "blocks"));
    assert_eq!(recording.exit.unwrap().code(), Some(7));
}

#[test]
fn forked_processes_without_a_program_are_counted() {
    if !has_valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("sh.swtrace");
    let recording = accesses(&["sh", "-c", "(:); (:); exit 3"], &output).unwrap();
    assert_eq!(recording.exit.unwrap().code(), Some(3));
    assert_eq!((recording.programs.forked, recording.programs.programs.len()), (2, 1));
    let lines = recording.programs.left_out();
    assert!(lines.iter().any(|line| line.contains("2 processes forked")), "{lines:?}");
    // A signal ends the command, and its status says so.
    let recording = accesses(&["sh", "-c", "kill -TERM $$"], &output).unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&recording.exit.unwrap());
    assert_eq!(signal, Some(15));
}

#[test]
fn an_unwritable_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for output in [dir.path().join("none/x.swtrace"), dir.path().to_owned()] {
        let errors = [
            accesses(&["true"], &output).map(drop).unwrap_err(),
            heap(&["true"], &output).map(drop).unwrap_err(),
        ];
        for error in errors {
            if matches!(error, RecordError::NoValgrind { .. }) {
                continue;
            }
            let text = error.to_string();
            assert!(text.starts_with(output.to_str().unwrap()), "{text}");
            assert!(!text.contains(".swath-"), "{text}");
        }
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}

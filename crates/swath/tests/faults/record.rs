//! Recorders at the end of what they do: a place that is taken, and what was left behind.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::room::{Room, VALGRIND, names};
use crate::hostile::finish;

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

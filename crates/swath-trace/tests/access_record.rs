//! Recording real programs, where valgrind is installed.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use swath_trace::access::{
    AccessKind, AccessRecording, MapBacking, Sampling, TraceEvent, TraceFormat, TraceItem,
    TraceReader, record_accesses,
};
use swath_trace::valgrind::{RecordError, RecordOptions};

fn run(
    command: &[&str],
    output: &Path,
    change: impl FnOnce(&mut RecordOptions<'_>),
) -> Result<AccessRecording, RecordError> {
    let command: Vec<OsString> = command.iter().map(Into::into).collect();
    let mut told = Vec::new();
    let mut progress = |count| told.push(count);
    let mut options = RecordOptions {
        accesses_max: None,
        time_max: None,
        sampling: None,
        level: 3,
        valgrind: "valgrind".into(),
        cancel: None,
        progress: &mut progress,
    };
    change(&mut options);
    let result = record_accesses(&command, output, &mut options);
    if let Ok(recording) = &result {
        assert_eq!(told.last(), Some(&recording.run_accesses));
    }
    result
}

fn has_valgrind() -> bool {
    let found = std::process::Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: valgrind is not installed");
    }
    found
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_whole_program() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("true.swtrace");
    if !has_valgrind() {
        return;
    }
    let recording = run(&["true"], &output, |_| {}).unwrap();
    assert!(recording.exit.unwrap().success());
    assert_eq!(recording.file_bytes, fs::metadata(&output).unwrap().len());
    let accesses = TraceReader::open(&output).unwrap();
    assert_eq!(accesses.format(), TraceFormat::Swath);
    let accesses: Vec<_> = accesses.map(Result::unwrap).collect();
    assert_eq!(accesses.len() as u64, recording.accesses);
    for kind in [AccessKind::Read, AccessKind::Write, AccessKind::Fetch] {
        assert!(accesses.iter().any(|access| access.kind == kind), "{kind:?}");
    }
    assert_eq!(accesses[0].kind, AccessKind::Fetch);
    // A program that fails is a recording all the same.
    let recording = run(&["false"], &output, |_| {}).unwrap();
    assert_eq!(recording.exit.unwrap().code(), Some(1));
}

#[test]
fn a_limit_stops_a_program_that_never_ends() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("loop.swtrace");
    if !has_valgrind() {
        return;
    }
    let endless = ["sh", "-c", "while :; do :; done"];
    let recording = run(&endless, &output, |o| o.accesses_max = Some(100_000)).unwrap();
    assert_eq!((recording.accesses, recording.exit), (100_000, None));
    assert_eq!(TraceReader::open(&output).unwrap().map(Result::unwrap).count(), 100_000);
    // Time ends a program as well, one that does nothing too.
    for command in [&endless[..], &["sh", "-c", "sleep 1000; :"]] {
        let time = |o: &mut RecordOptions<'_>| o.time_max = Some(Duration::from_secs(2));
        let recording = run(command, &output, time).unwrap();
        assert_eq!(recording.exit, None);
        let kept = TraceReader::open(&output).unwrap().map(Result::unwrap).count();
        assert_eq!(kept as u64, recording.accesses);
    }
    // Cancelled: the old file is as it was, and nothing lies beside it.
    let before = fs::read(&output).unwrap();
    let cancel = AtomicBool::new(true);
    let mut progress = |_| {};
    let mut options = RecordOptions {
        accesses_max: None,
        time_max: None,
        sampling: None,
        level: 3,
        valgrind: "valgrind".into(),
        cancel: Some(&cancel),
        progress: &mut progress,
    };
    let command = endless.map(OsString::from);
    let error = record_accesses(&command, &output, &mut options).unwrap_err();
    assert!(matches!(error, RecordError::Cancelled));
    assert_eq!(fs::read(&output).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_recorded_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("none.swtrace");
    assert!(matches!(run(&[], &output, |_| {}), Err(RecordError::NoCommand)));
    let missing = |o: &mut RecordOptions<'_>| o.valgrind = "/no/such/valgrind".into();
    let error = run(&["true"], &output, missing).unwrap_err();
    assert!(error.to_string().contains("install valgrind"), "{error}");
    // Something else in valgrind's place writes no log.
    let other = |o: &mut RecordOptions<'_>| o.valgrind = "true".into();
    let error = run(&["true"], &output, other).unwrap_err();
    assert!(matches!(error, RecordError::NothingRecorded { .. }), "{error:?}");
    if has_valgrind() {
        let error = run(&["/no/such/program"], &output, |_| {}).unwrap_err();
        assert!(matches!(error, RecordError::NothingRecorded { .. }), "{error:?}");
    }
    assert!(is_empty(dir.path()));
}

/// Every access lies in a mapping that the trace has told of, whole or thinned
/// out, and both tell of the same run.
#[test]
fn what_a_program_maps() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("true.swtrace");
    if !has_valgrind() {
        return;
    }
    let mut runs = Vec::new();
    for sampling in [None, Sampling::new(100, 10_000)] {
        let recording = run(&["true"], &output, |o| o.sampling = sampling).unwrap();
        let accesses = TraceReader::open(&output).unwrap();
        let header = accesses.header().unwrap();
        assert_eq!((header.program.as_str(), header.sampling), ("true", sampling));
        let mut mapped = std::collections::BTreeSet::new();
        let mut touched = std::collections::BTreeSet::new();
        let (mut files, mut changes, mut skipped, mut events, mut kept) = (0, 0, 0, 0, 0);
        for item in accesses.items() {
            match item.unwrap() {
                TraceItem::Access(access) => {
                    kept += 1;
                    assert!(access.pages().iter().all(|page| mapped.contains(&page)));
                    touched.extend(access.pages().iter());
                }
                TraceItem::Event(event) => {
                    events += 1;
                    match event {
                        TraceEvent::Map { pages, backing, .. } => {
                            files += u32::from(backing != MapBacking::Anonymous);
                            mapped.extend(pages.iter());
                        }
                        TraceEvent::Unmap { pages } => mapped.retain(|&page| !pages.contains(page)),
                        TraceEvent::Protect { .. } => changes += 1,
                        TraceEvent::Skip { accesses } => skipped += accesses,
                        _ => {}
                    }
                }
            }
        }
        assert!(files > 0 && changes > 0);
        assert_eq!((kept, events), (recording.accesses, recording.events));
        assert_eq!(kept + skipped, recording.run_accesses);
        assert_eq!(skipped > 0, sampling.is_some());
        runs.push((files, changes, touched));
    }
    assert_eq!(runs[0], runs[1]);
    let wrong = Some(Sampling { burst_accesses: 5, period_accesses: 5 });
    let error = run(&["true"], &output, |o| o.sampling = wrong).unwrap_err();
    assert!(matches!(error, RecordError::Sampling));
}

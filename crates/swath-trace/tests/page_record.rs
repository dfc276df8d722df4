//! Recording page events of this machine, where it allows that.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use swath_trace::pages::{
    BUFFER_KIB, PageRecordError, PageRecordOptions, PageRecording, record_pages, usual_tracefs,
};
use swath_trace::pages::{PageChange, PageReader};

fn run(
    command: &[&str],
    output: &Path,
    whole_system: bool,
    tracefs: &[PathBuf],
    cancel: Option<&AtomicBool>,
) -> Result<PageRecording, PageRecordError> {
    let command: Vec<OsString> = command.iter().map(Into::into).collect();
    let mut told = 0;
    let mut progress = |count| told = count;
    let options = &mut PageRecordOptions {
        whole_system,
        buffer_kib: BUFFER_KIB,
        level: 3,
        tracefs,
        cancel,
        progress: &mut progress,
    };
    let result = record_pages(&command, output, options);
    if let Ok(recording) = &result {
        assert_eq!(told, recording.events);
    }
    result
}

/// The instances of this process that are still there.
fn instances() -> Vec<PathBuf> {
    let own = format!("swath-{}-", std::process::id());
    let entries =
        usual_tracefs().into_iter().filter_map(|root| fs::read_dir(root.join("instances")).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    paths.filter(|path| path.to_string_lossy().contains(&own)).collect()
}

/// One test, because it looks at what all of this process leaves behind.
#[test]
fn this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("pages.swpages");
    assert!(matches!(
        run(&[], &output, false, &usual_tracefs(), None),
        Err(PageRecordError::NoCommand)
    ));
    let nowhere = [dir.path().join("tracing")];
    let error = run(&["true"], &output, false, &nowhere, None).unwrap_err();
    assert!(error.to_string().contains("mount -t tracefs"), "{error}");
    let recording = match run(
        &["sh", "-c", "head -c 4000000 /dev/zero | tail -c 1"],
        &output,
        false,
        &usual_tracefs(),
        None,
    ) {
        Ok(recording) => recording,
        Err(error @ (PageRecordError::NotPermitted { .. } | PageRecordError::NoTracefs { .. })) => {
            eprintln!("skipped: {error}");
            assert!(fs::read_dir(dir.path()).unwrap().next().is_none());
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(recording.exit.success());
    assert_eq!(recording.file_bytes, fs::metadata(&output).unwrap().len());
    let mut reader = PageReader::open(&output).unwrap();
    let head = reader.head().clone();
    assert_eq!((head.program.as_str(), head.whole_system), ("sh", false));
    assert!(!head.facts.zones.is_empty());
    let events: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(events.len() as u64, recording.events);
    assert_eq!(reader.lost().iter().sum::<u64>(), recording.lost);
    assert_eq!(events.last().unwrap().time_us, recording.duration_us);
    let allocs = events.iter().filter(|e| matches!(e.change, PageChange::Alloc { .. })).count();
    // `tail` holds a thousand pages or so, the processes take the rest.
    assert!(allocs > 100, "{allocs}");
    // A program that fails is a recording all the same.
    let recording = run(&["false"], &output, true, &usual_tracefs(), None).unwrap();
    assert_eq!(recording.exit.code(), Some(1));
    assert!(PageReader::open(&output).unwrap().head().whole_system);

    // One that is cut has what there was until then.
    let (cut, ready) = (dir.path().join("cut.swpages"), dir.path().join("ready"));
    let script = format!("echo > {}; exec sleep 1000", ready.display());
    let cancel = AtomicBool::new(false);
    let recording = thread::scope(|scope| {
        scope.spawn(|| {
            while !ready.exists() {
                thread::yield_now();
            }
            cancel.store(true, Ordering::Relaxed);
        });
        run(&["sh", "-c", &script], &cut, false, &usual_tracefs(), Some(&cancel)).unwrap()
    });
    assert!(recording.is_cut && !recording.exit.success());
    let events = PageReader::open(&cut).unwrap().map(Result::unwrap).count() as u64;
    assert_eq!(events, recording.events);
    fs::remove_file(cut).unwrap();
    fs::remove_file(ready).unwrap();

    // Whatever goes wrong leaves the old file, nothing beside it, no instance.
    let before = fs::read(&output).unwrap();
    let error = run(&["/no/such/program"], &output, false, &usual_tracefs(), None).unwrap_err();
    assert!(matches!(error, PageRecordError::Command { .. }), "{error}");
    let error = run(&["true"], Path::new("/no/such/directory/file"), false, &usual_tracefs(), None)
        .unwrap_err();
    assert!(matches!(error, PageRecordError::Output { .. }), "{error}");
    assert_eq!(fs::read(&output).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(instances(), Vec::<PathBuf>::new());
}

//! Recording real heaps, where valgrind is installed.
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use swath_trace::access::Sampling;
use swath_trace::heap::{HeapEvent, HeapReader, HeapRecording, PIECE_BYTES, record_heap};
use swath_trace::valgrind::{RecordError, RecordOptions};

/// Each kind of call, with sizes that nobody else asks for and accesses that
/// can be counted.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/wait.h>
static void *volatile block[300];
static volatile char *volatile many;
static void *other(void *p) {
    for (int i = 0; i < 100; i++)
        free(malloc(77777 + i));
    block[299] = malloc(66666);
    return p;
}
int main(void) {
    for (int i = 0; i < 200; i++)
        block[i] = malloc(6000 + i);
    for (int i = 0; i < 100; i++)
        block[i] = realloc(block[i], 8000 + i);
    for (int i = 0; i < 200; i += 2)
        free(block[i]);
    many = calloc(1000, 33);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 33000; i++)
            many[i] = 1;
    block[200] = aligned_alloc(4096, 45056);
    posix_memalign((void **)&block[201], 64, 30001);
    block[202] = memalign(256, 30002);
    block[203] = valloc(30003);
    block[204] = reallocarray(NULL, 10001, 3);
    block[205] = malloc((size_t)1 << 62);
    block[206] = realloc(block[202], (size_t)1 << 62);
    pthread_t thread;
    pthread_create(&thread, NULL, other, NULL);
    pthread_join(thread, NULL);
    int status;
    if (fork() == 0) {
        block[207] = malloc(88888);
        _exit(0);
    }
    wait(&status);
    return 7;
}
"#;

fn record(
    command: &[&str],
    output: &Path,
    sampling: Option<Sampling>,
) -> Result<HeapRecording, RecordError> {
    let command: Vec<OsString> = command.iter().map(Into::into).collect();
    let mut options = RecordOptions {
        accesses_max: None,
        time_max: None,
        sampling,
        level: 3,
        valgrind: "valgrind".into(),
        cancel: None,
        progress: &mut |_| {},
    };
    record_heap(&command, output, &mut options)
}

fn has_valgrind() -> bool {
    let found = Command::new("valgrind").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: valgrind is not installed");
    }
    found
}

fn compile(dir: &Path, flags: &[&str]) -> String {
    let (source, program) = (dir.join("calls.c"), dir.join("calls"));
    std::fs::write(&source, PROGRAM).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-w", "-fno-builtin", "-pthread"])
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&program);
    assert!(cc.status().unwrap().success(), "{cc:?}");
    program.into_os_string().into_string().unwrap()
}

#[test]
fn every_call_of_a_known_program() {
    if !has_valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), &[]);
    let output = dir.path().join("calls.swheap");
    for sampling in [None, Sampling::new(10, 1000)] {
        let recording = record(&[&program], &output, sampling).unwrap();
        assert_eq!(recording.exit.unwrap().code(), Some(7));
        assert_eq!(recording.file_bytes, std::fs::metadata(&output).unwrap().len());
        let totals = recording.totals;
        assert_eq!((totals.failed_calls, totals.unknown_calls, totals.lost_calls), (2, 0, 0));
        let mut reader = HeapReader::open(&output).unwrap();
        assert_eq!((reader.head().program.as_str(), reader.head().sampling), ("calls", sampling));
        let events: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(events.len() as u64, recording.events);
        assert_eq!(reader.totals(), Some(&totals));

        let allocated = |wanted: std::ops::Range<u64>| {
            let sizes = events.iter().filter_map(move |event| match event {
                HeapEvent::Allocate { size_bytes, align_bytes, zeroed, thread, block } => {
                    let said = (*block, *size_bytes, *align_bytes, *zeroed, *thread);
                    wanted.contains(size_bytes).then_some(said)
                }
                _ => None,
            });
            sizes.collect::<Vec<_>>()
        };
        let released = |block| {
            events
                .iter()
                .any(|event| matches!(event, HeapEvent::Release { block: b, .. } if *b == block))
        };
        let first = allocated(6000..6200);
        for (i, &(block, size, align, zeroed, thread)) in first.iter().enumerate() {
            assert_eq!((size, align, zeroed, thread), (6000 + i as u64, 1, false, 0));
            assert_eq!(released(block), i % 2 == 0, "block {i}");
        }
        assert_eq!(first.len(), 200);
        let resized = events.iter().filter_map(|event| match event {
            HeapEvent::Resize { block, size_bytes: size @ 8000..8100, .. } => Some((*block, *size)),
            _ => None,
        });
        let expected = first.iter().take(100).zip(8000..).map(|(said, size)| (said.0, size));
        assert!(resized.eq(expected));
        let others = allocated(30000..33001);
        let said: Vec<_> = others.iter().map(|said| (said.1, said.2, said.3)).collect();
        let expected = [
            (33000, 1, true),
            (30001, 64, false),
            (30002, 256, false),
            (30003, 4096, false),
            (30003, 1, false),
        ];
        assert_eq!(said, expected);
        assert!(!released(others[2].0), "a realloc that fails leaves the block");
        assert_eq!(allocated(45056..45057)[0].2, 4096);
        // The other thread's; nothing of the child process's.
        let thread = allocated(77777..77877);
        assert_eq!(thread.len(), 100);
        assert!(thread.iter().all(|said| said.4 == 1 && released(said.0)));
        assert_eq!(allocated(66666..66667)[0].4, 1);
        assert!(allocated(88888..88889).is_empty());

        // 3 rounds over the bytes of `many`, and nobody else touches it.
        let many = others[0].0;
        let mut written = vec![0u32; 33000];
        let mut skipped = 0;
        for event in &events {
            match *event {
                HeapEvent::Write { block, offset_bytes, len_bytes } if block == many => {
                    assert_eq!(len_bytes, 1);
                    written[offset_bytes as usize] += 1;
                }
                HeapEvent::Read { block, .. } => assert_ne!(block, many),
                HeapEvent::Skip { accesses } => skipped += accesses,
                _ => {}
            }
        }
        if sampling.is_none() {
            assert!(written.iter().all(|&times| times == 3));
            assert_eq!(skipped, 0);
        } else {
            let pieces = (0..33000).step_by(PIECE_BYTES as usize);
            assert!(pieces.into_iter().all(|start| written[start] >= 1));
            let times: u32 = written.iter().sum();
            assert!(
                (900..1200).contains(&times),
                "{times} of 99,000, 10 in 1000 and 65 first ones"
            );
            assert!(skipped > 90_000);
        }
    }
}

/// A program without the library is told apart from one without a heap.
#[test]
fn what_tells_nothing() {
    if !has_valgrind() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("none.swheap");
    let recording = record(&["true"], &output, None).unwrap();
    assert_eq!(recording.totals.lost_calls, 0);
    std::fs::remove_file(&output).unwrap();
    let program = compile(dir.path(), &["-static"]);
    let error = record(&[&program], &output, None).unwrap_err();
    assert!(matches!(error, RecordError::NotPreloaded { .. }), "{error:?}");
    let error = record(&["/no/such/program"], &output, None).unwrap_err();
    assert!(matches!(error, RecordError::NothingRecorded { .. }), "{error:?}");
    assert!(matches!(record(&[], &output, None), Err(RecordError::NoCommand)));
    assert!(!output.exists());
}

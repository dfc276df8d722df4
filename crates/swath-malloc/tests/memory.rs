//! The most memory that small programs have at a time, beside what they have with the C library's heap.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The library, as this test's build made it.
fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("this test");
    let library = exe.with_file_name("libswath_malloc.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

/// Bytes of the program's memory at most, those of files that are mapped among them; the median of 15 runs.
/// `None` if it does not run.
fn peak(program: &[&str], preload: bool) -> Option<u64> {
    let mut peaks = Vec::new();
    for _ in 0..15 {
        let mut command = Command::new(program[0]);
        if preload {
            command.env("LD_PRELOAD", library());
        }
        let command = command.args(&program[1..]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: a child of this process that nobody has waited for; both are written to.
        let ended = unsafe { libc::wait4(child.id() as i32, &mut status, 0, usage.as_mut_ptr()) };
        assert_eq!(ended, child.id() as i32);
        let _ = child.wait();
        if status != 0 {
            return None;
        }
        // SAFETY: written by the call above.
        peaks.push(unsafe { usage.assume_init() }.ru_maxrss as u64 * 1024);
    }
    peaks.sort_unstable();
    Some(peaks[7])
}

/// Bytes of the library's file that are mapped and never written: all processes share them. How many of them are
/// present is the kernel's affair: with large folios it is nearly all.
fn shared_bytes() -> u64 {
    let file = std::fs::read(library()).expect("the library");
    let number = |at: usize, bytes: usize| {
        file[at..at + bytes].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    // The headers of an ELF file for 64 bits: where the table of segments is, and how many there are.
    let (table, size, count) = (number(32, 8) as usize, number(54, 2) as usize, number(56, 2));
    let segments = (0..count as usize).map(|nth| table + nth * size);
    // Loaded (1), and without the right to write (2).
    let shared = segments.filter(|&at| number(at, 4) == 1 && number(at + 4, 4) & 2 == 0);
    shared.map(|at| number(at + 32, 8)).sum()
}

/// A small program has no more than 1.2 times the memory, but for what all processes share of the library,
/// though a huge page is longer than all of it.
#[test]
fn small_programs_stay_small() {
    let shared = shared_bytes();
    assert!((100_000..2_000_000).contains(&shared), "{shared}");
    for program in
        [&["ls", "-l", "/usr/bin"][..], &["perl", "-e", "print 1"], &["python3", "-c", "pass"]]
    {
        let (Some(plain), Some(ours)) = (peak(program, false), peak(program, true)) else {
            println!("skipped: no {}", program[0]);
            continue;
        };
        println!(
            "{}: {ours} bytes, {plain} with the C library's heap, {shared} shared",
            program[0]
        );
        assert!(ours - shared <= plain / 10 * 12, "{program:?}: {ours} for {plain} bytes");
    }
}

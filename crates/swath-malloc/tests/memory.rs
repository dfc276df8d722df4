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

/// A small program has no more than 1.3 times the memory, the library itself included, which is larger here
/// than when it is optimised, though a huge page is longer than all of it.
#[test]
fn small_programs_stay_small() {
    for program in
        [&["ls", "-l", "/usr/bin"][..], &["perl", "-e", "print 1"], &["python3", "-c", "pass"]]
    {
        let (Some(plain), Some(ours)) = (peak(program, false), peak(program, true)) else {
            println!("skipped: no {}", program[0]);
            continue;
        };
        println!("{}: {ours} bytes, {plain} with the C library's heap", program[0]);
        assert!(ours <= plain / 10 * 13, "{program:?}: {ours} for {plain} bytes");
    }
}

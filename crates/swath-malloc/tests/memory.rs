//! The most memory that small programs have at a time, beside what they have with the C library's heap.

mod freestanding;

use std::path::Path;
use std::process::{Command, Stdio};

use freestanding::freestanding;

/// Bytes of the program's memory at most, those of files that are mapped among them; the median of 15 runs.
/// `None` if it does not run.
fn peak(program: &[&str], preload: Option<&Path>) -> Option<u64> {
    let mut peaks = Vec::new();
    for _ in 0..15 {
        let mut command = Command::new(program[0]);
        if let Some(library) = preload {
            command.env("LD_PRELOAD", library);
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

/// A small program has no more than 1.2 times the memory, all of the library in it, though a huge page is
/// longer than the program.
#[test]
fn small_programs_stay_small() {
    let library = freestanding();
    for program in
        [&["ls", "-l", "/usr/bin"][..], &["perl", "-e", "print 1"], &["python3", "-c", "pass"]]
    {
        let (Some(plain), Some(ours)) = (peak(program, None), peak(program, Some(&library))) else {
            println!("skipped: no {}", program[0]);
            continue;
        };
        println!("{}: {ours} bytes, {plain} with the C library's heap", program[0]);
        assert!(ours <= plain / 10 * 12, "{program:?}: {ours} for {plain} bytes");
    }
}

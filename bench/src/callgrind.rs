//! Counting by valgrind's callgrind: this program is run again under it, and a function of its own
//! marks what is counted.
//!
//! Callgrind's instrumentation makes a program some fifty times slower, valgrind alone five times.
//! So it is off while an entry builds what it needs, and on from its first measured call.

use std::hint::black_box;
use std::io::ErrorKind;
use std::process::Command;

use crate::failure::Failure;

/// Runs the measured calls, whose instructions are counted, and those of what they call.
pub(crate) fn count(work: &mut dyn FnMut()) {
    start_instrumentation();
    swath_bench_counted(work);
}

/// Callgrind counts inside this function only. Its name is what `--toggle-collect` looks for.
#[unsafe(no_mangle)]
#[inline(never)]
fn swath_bench_counted(work: &mut dyn FnMut()) {
    work();
    // Something after the call, or it would become a jump out of here.
    black_box(());
}

/// Asks callgrind to instrument from here on; nothing happens if it does already, or if this is
/// not under valgrind (`CALLGRIND_START_INSTRUMENTATION` of the Callgrind manual, "Client request
/// reference").
fn start_instrumentation() {
    #[cfg(target_arch = "x86_64")]
    {
        /// Request 4 of the tool with the letters CT.
        const REQUEST: u64 = u64::from_be_bytes([0, 0, 0, 0, b'C', b'T', 0, 4]);
        let arguments: [u64; 6] = [REQUEST, 0, 0, 0, 0, 0];
        // SAFETY: without valgrind the instructions change nothing but flags: RDI is rotated by
        // 128 places in all, and RBX exchanged with itself. Valgrind knows them by their bytes,
        // reads the six words at RAX and writes RDX, which is named as an output.
        unsafe {
            std::arch::asm!(
                "rol rdi, 3",
                "rol rdi, 13",
                "rol rdi, 61",
                "rol rdi, 51",
                "xchg rbx, rbx",
                in("rax") arguments.as_ptr(),
                inout("rdx") 0_u64 => _,
                options(nostack)
            );
        }
    }
}

/// Runs one entry under callgrind: calls and instructions.
pub(crate) fn run(name: &str) -> Result<(u64, u64), Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Setup(format!("cannot find this program: {error}")))?;
    // Where the program cannot ask for it, callgrind instruments all.
    let at_start = if cfg!(target_arch = "x86_64") { "no" } else { "yes" };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=swath_bench_counted"])
        .arg(format!("--instr-atstart={at_start}"))
        .arg("--callgrind-out-file=/dev/null")
        .arg(program)
        .args(["measure", name])
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::Setup(
                "gates need valgrind, which is not installed (package `valgrind` in most systems)"
                    .into(),
            ),
            _ => Failure::Setup(format!("cannot start valgrind: {error}")),
        })?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::Result(format!("{name} failed ({}):\n{stderr}", output.status)));
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    let calls = stdout.lines().find_map(|line| line.strip_prefix("calls "));
    // "==PID== Collected : N"
    let collected = stderr.lines().find_map(|line| line.split("== Collected :").nth(1));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
    match (number(calls), number(collected)) {
        (Some(calls @ 1..), Some(instructions @ 1..)) => Ok((calls, instructions)),
        _ => Err(Failure::Result(format!("{name}: nothing was counted:\n{stderr}"))),
    }
}

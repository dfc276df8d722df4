//! Boots the kernel of `kernel/` under an emulator, once for each architecture.

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::bare_metal::{Toolchain, build_library};
use crate::emulator::follow;

/// An emulated machine.
struct Machine {
    name: &'static str,
    target: &'static str,
    emulator: &'static str,
    /// The distribution's package that has it.
    package: &'static str,
    args: &'static [&'static str],
    /// What `clang` makes of C for it.
    c: &'static [&'static str],
}

const MACHINES: &[Machine] = &[
    Machine {
        name: "x86_64",
        target: "x86_64-unknown-none",
        emulator: "qemu-system-x86_64",
        package: "qemu-system-x86",
        args: &["-M", "q35", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"],
        c: &["--target=x86_64-none-elf", "-mno-red-zone", "-mgeneral-regs-only"],
    },
    Machine {
        name: "aarch64",
        target: "aarch64-unknown-none-softfloat",
        emulator: "qemu-system-aarch64",
        package: "qemu-system-arm",
        args: &["-M", "virt", "-cpu", "cortex-a57", "-semihosting"],
        c: &["--target=aarch64-none-elf", "-mgeneral-regs-only", "-mstrict-align"],
    },
    Machine {
        name: "armv7",
        target: "armv7a-none-eabi",
        emulator: "qemu-system-arm",
        package: "qemu-system-arm",
        args: &["-M", "virt,highmem=off", "-cpu", "cortex-a15", "-semihosting"],
        c: &["--target=armv7a-none-eabi", "-mfloat-abi=soft", "-mno-unaligned-access"],
    },
    Machine {
        name: "riscv64",
        target: "riscv64gc-unknown-none-elf",
        emulator: "qemu-system-riscv64",
        package: "qemu-system-misc",
        args: &["-M", "virt", "-cpu", "rv64,svnapot=on,svpbmt=on", "-bios", "none"],
        c: &["--target=riscv64-none-elf", "-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany"],
    },
];

/// Small, so that the random steps run short of it.
const MEMORY: &str = "40M";

/// The exit code of a kernel for which all was well: no code of the emulator's own.
const WELL: i32 = 33;

/// A run takes seconds; a kernel that is silent for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Names of the machines, in the order in which they boot.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    MACHINES.iter().map(|machine| machine.name)
}

/// The scenario that the kernel runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// Superpages that arise and vanish, of two programs.
    Pages,
    /// The same over the C interface.
    PagesInC,
    /// A task's heap over real-time regions, in instructions.
    Heap,
}

/// What compiles C for each machine.
const CLANG: &str = "clang";

/// Boots the kernel on the machines named, or on all, with each of the scenarios; the last line says
/// how many passed, failed and were not run.
///
/// # Errors
/// A kernel that failed, or none that could be run.
pub(crate) fn boot(metadata: &Metadata, named: &[String]) -> Result<()> {
    let wanted = |machine: &&Machine| named.is_empty() || named.iter().any(|n| n == machine.name);
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    for machine in MACHINES.iter().filter(wanted) {
        for scenario in [Scenario::Pages, Scenario::PagesInC, Scenario::Heap] {
            let name = match scenario {
                Scenario::Pages => machine.name.to_owned(),
                Scenario::PagesInC => format!("{}, in C", machine.name),
                Scenario::Heap => format!("{}, a heap", machine.name),
            };
            let lack = if !is_there(machine.emulator) {
                Err(machine.package)
            } else if scenario == Scenario::PagesInC && !is_there(CLANG) {
                Err(CLANG)
            } else {
                Ok(())
            };
            let lack = lack.map_err(|package| format!("needs the package {package}"));
            match lack.and_then(|()| Toolchain::find(machine.target)) {
                Err(lack) => {
                    left += 1;
                    println!("{name}: not run, {lack}");
                }
                Ok(toolchain) => match run(metadata, machine, &toolchain, scenario) {
                    Ok(took) => {
                        passed += 1;
                        println!("{name}: passed in {:.1} s", took.as_secs_f64());
                    }
                    Err(error) => {
                        failed += 1;
                        println!("{name}: failed, {error:#}");
                    }
                },
            }
        }
    }
    println!("{passed} passed, {failed} failed, {left} not run");
    ensure!(failed == 0, "a kernel failed");
    ensure!(passed > 0, "no kernel could be run here");
    Ok(())
}

/// Compiles the scenario in C, and builds what it is linked with; returns the files for the linker.
fn c_scenario(metadata: &Metadata, machine: &Machine, toolchain: &Toolchain) -> Result<OsString> {
    let library = build_library(metadata, toolchain)?;
    let root = metadata.workspace_root.as_std_path();
    let object = metadata.target_directory.join(format!("kernel/{}.o", machine.name));
    std::fs::create_dir_all(object.parent().context("a file in a folder")?)?;
    let flags =
        ["-std=c11", "-O2", "-ffreestanding", "-fno-pic", "-Wall", "-Wextra", "-Werror", "-c"];
    let mut clang = Command::new(CLANG);
    clang.args(machine.c).args(flags).arg("-I").arg(root.join("crates/swath-ffi/include"));
    let status = clang.arg(root.join("kernel/c/scenario.c")).arg("-o").arg(&object).status()?;
    ensure!(status.success(), "the scenario in C does not compile");
    Ok(std::env::join_paths([object.as_std_path(), &library])?)
}

/// Builds the kernel and runs it, showing what it says; returns how long it ran.
fn run(
    metadata: &Metadata,
    machine: &Machine,
    toolchain: &Toolchain,
    scenario: Scenario,
) -> Result<Duration> {
    let directory = metadata.workspace_root.join("kernel").into_std_path_buf();
    let room = metadata.target_directory.join("kernel").into_std_path_buf();
    // What is linked with the kernel is no flag for its parts: they are the same in all.
    let (features, linked) = match scenario {
        Scenario::Pages => ("", OsString::new()),
        Scenario::PagesInC => ("c", c_scenario(metadata, machine, toolchain)?),
        Scenario::Heap => ("heap", OsString::new()),
    };
    let status = toolchain
        .cargo("build", &directory)
        .env("SWATH_LINKED", linked)
        .args(["--release", "--quiet", "--features", features, "--target-dir"])
        .arg(&room)
        .status()?;
    ensure!(status.success(), "it does not build");
    let kernel = room.join(machine.target).join("release/swath-kernel");
    let began = Instant::now();
    let mut emulator = Command::new(machine.emulator);
    emulator
        .args(machine.args)
        .args(["-m", MEMORY, "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel"])
        .arg(&kernel);
    if scenario == Scenario::Heap {
        // An instruction takes a nanosecond of the machine's time.
        emulator.args(["-icount", "shift=0"]);
    }
    let status = follow(&mut emulator, SILENCE_MAX, |line| println!("  {line}"))?;
    match status.code() {
        Some(WELL) => Ok(began.elapsed()),
        _ => bail!("the emulator ended with {status}"),
    }
}

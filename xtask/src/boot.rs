//! Boots the kernel of `kernel/` under an emulator, once for each architecture.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use cargo_metadata::Metadata;

use crate::bare_metal::Toolchain;
use crate::emulator::follow;

/// An emulated machine.
struct Machine {
    name: &'static str,
    target: &'static str,
    emulator: &'static str,
    /// The distribution's package that has it.
    package: &'static str,
    args: &'static [&'static str],
}

const MACHINES: &[Machine] = &[
    Machine {
        name: "x86_64",
        target: "x86_64-unknown-none",
        emulator: "qemu-system-x86_64",
        package: "qemu-system-x86",
        args: &["-M", "q35", "-device", "isa-debug-exit,iobase=0xf4,iosize=4"],
    },
    Machine {
        name: "aarch64",
        target: "aarch64-unknown-none-softfloat",
        emulator: "qemu-system-aarch64",
        package: "qemu-system-arm",
        args: &["-M", "virt", "-cpu", "cortex-a57", "-semihosting"],
    },
    Machine {
        name: "armv7",
        target: "armv7a-none-eabi",
        emulator: "qemu-system-arm",
        package: "qemu-system-arm",
        args: &["-M", "virt,highmem=off", "-cpu", "cortex-a15", "-semihosting"],
    },
    Machine {
        name: "riscv64",
        target: "riscv64gc-unknown-none-elf",
        emulator: "qemu-system-riscv64",
        package: "qemu-system-misc",
        args: &["-M", "virt", "-cpu", "rv64,svnapot=on,svpbmt=on", "-bios", "none"],
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

/// Boots the kernel on the machines named, or on all; the last line says how many passed, failed
/// and were not run.
///
/// # Errors
/// A kernel that failed, or none that could be run.
pub(crate) fn boot(metadata: &Metadata, named: &[String]) -> Result<()> {
    let wanted = |machine: &&Machine| named.is_empty() || named.iter().any(|n| n == machine.name);
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    for machine in MACHINES.iter().filter(wanted) {
        let name = machine.name;
        let installed = Command::new(machine.emulator).arg("--version").output().is_ok();
        let lack = (!installed).then(|| format!("needs the package {}", machine.package));
        match lack.map_or_else(|| Toolchain::find(machine.target), Err) {
            Err(lack) => {
                left += 1;
                println!("{name}: not run, {lack}");
            }
            Ok(toolchain) => match run(metadata, machine, &toolchain) {
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
    println!("{passed} passed, {failed} failed, {left} not run");
    ensure!(failed == 0, "a kernel failed");
    ensure!(passed > 0, "no kernel could be run here");
    Ok(())
}

/// Builds the kernel and runs it, showing what it says; returns how long it ran.
fn run(metadata: &Metadata, machine: &Machine, toolchain: &Toolchain) -> Result<Duration> {
    let room = metadata.target_directory.join("kernel").into_std_path_buf();
    let directory = metadata.workspace_root.join("kernel").into_std_path_buf();
    let status = toolchain
        .cargo("build", &directory)
        .args(["--release", "--quiet", "--target-dir"])
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
    let status = follow(&mut emulator, SILENCE_MAX, |line| println!("  {line}"))?;
    match status.code() {
        Some(WELL) => Ok(began.elapsed()),
        _ => bail!("the emulator ended with {status}"),
    }
}

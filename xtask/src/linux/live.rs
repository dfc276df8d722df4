//! The program on a running Linux: `swath green` and `swath age` in guests.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::Metadata;

use super::command::{printed, run_well};
use super::guest::{Green, Guest};
use super::packages::Packages;

/// Of the free memory, what is to be offline on average under a compile.
const SHARE_MIN: f64 = 0.8;

/// Of the blocks that are tried, those that may not go.
const FAILED_MAX: f64 = 0.05;

/// The package whose C files the guest compiles: a dependency that brings its source.
const SOURCE: &str = "zstd-sys";

/// A machine for the guest.
struct Machine {
    name: &'static str,
    /// Memory that is there from the start, in MiB.
    boot_mib: u32,
    /// Memory that is plugged in, in MiB; the kernel puts it into the movable zone.
    plugged_mib: u32,
}

const MACHINES: &[Machine] = &[
    Machine { name: "auto-movable", boot_mib: 1024, plugged_mib: 3072 },
    Machine { name: "kernel zones", boot_mib: 6144, plugged_mib: 0 },
];

/// The program in a guest, without what it compiles.
fn program(
    metadata: &Metadata,
    packages: &Packages,
    steps: &str,
) -> Result<Vec<(String, PathBuf)>> {
    let root = metadata.workspace_root.as_std_path();
    run_well(Command::new("cargo").args(["build", "--release", "-p", "swath"]).current_dir(root))?;
    let swath = metadata.target_directory.join("release/swath").into_std_path_buf();
    let mut files = vec![
        ("init".to_owned(), root.join("linux/test/init")),
        ("steps".to_owned(), root.join("linux/test").join(steps)),
        ("bin/busybox".to_owned(), packages.root.join("bin/busybox")),
    ];
    add(&mut files, "swath", swath)?;
    Ok(files)
}

/// Adds a program with its libraries, of which those that are there already are the same.
fn add(files: &mut Vec<(String, PathBuf)>, name: &str, program: PathBuf) -> Result<()> {
    for path in libraries_of(&program)? {
        let name = path.to_string_lossy().trim_start_matches('/').to_owned();
        if !files.iter().any(|(other, _)| *other == name) {
            files.push((name, path));
        }
    }
    files.push((format!("bin/{name}"), program));
    Ok(())
}

/// Brings a guest's memory into pieces, again and again.
pub(super) fn age(metadata: &Metadata, room: &Path, packages: &Packages, seed: u64) -> Result<()> {
    let mut files = program(metadata, packages, "age")?;
    let snapshot = metadata.workspace_root.join("crates/swath-lab/data/machine.swsnap");
    files.push(("machine.swsnap".to_owned(), snapshot.into_std_path_buf()));
    let kernel = packages.kernel()?;
    let initramfs = room.join("age.cpio");
    let guest = Guest { kernel: &kernel, initramfs: &initramfs, memory_mib: 4096, plugged_mib: 0 };
    let words = format!("swath_part=age swath_seed={seed}");
    guest.run(&files, &words)?.green("age").map(drop)
}

/// Runs a compile under the daemon, and judges what the guests measured.
pub(super) fn green(metadata: &Metadata, room: &Path, packages: &Packages) -> Result<()> {
    let cc1 = PathBuf::from(printed(Command::new("gcc").arg("-print-prog-name=cc1"))?.trim());
    let assembler = PathBuf::from(printed(Command::new("gcc").arg("-print-prog-name=as"))?.trim());
    let assembler = which(&assembler)?;
    let mut files = program(metadata, packages, "green")?;
    add(&mut files, "cc1", cc1)?;
    add(&mut files, "as", assembler)?;
    files.extend(preprocessed(metadata, room)?);
    let kernel = packages.kernel()?;
    for machine in MACHINES {
        let initramfs = room.join("green.cpio");
        let guest = Guest {
            kernel: &kernel,
            initramfs: &initramfs,
            memory_mib: machine.boot_mib,
            plugged_mib: machine.plugged_mib,
        };
        println!("green: {}", machine.name);
        // The kernel's own policy for memory that is plugged in.
        let words = "swath_part=green memory_hotplug.online_policy=auto-movable";
        let green = guest.run(&files, words)?.green("green")?;
        judge(machine, &green)?;
    }
    Ok(())
}

fn judge(machine: &Machine, measured: &[Green]) -> Result<()> {
    let of = |choice: &str| {
        let found = measured.iter().find(|green| green.choice == choice);
        found.with_context(|| format!("{}: nothing was measured of {choice}", machine.name))
    };
    let (none, ours, highest) = (of("none")?, of("emptiest")?, of("highest")?);
    for green in [none, ours, highest] {
        println!(
            "{}, {}: {:.3} of the free memory offline, {} blocks went and {} did not, {} s",
            machine.name, green.choice, green.share, green.offlined, green.failed, green.seconds
        );
    }
    ensure!(ours.failed_share() <= FAILED_MAX, "more than one block in 20 did not go");
    if machine.plugged_mib > 0 {
        ensure!(ours.share >= SHARE_MIN, "less than {SHARE_MIN} of the free memory was offline");
    }
    ensure!(ours.share + 0.02 >= highest.share, "the naive choice has more offline");
    Ok(())
}

/// The path of a program that is found by its name.
fn which(program: &Path) -> Result<PathBuf> {
    if program.is_absolute() {
        return Ok(program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
        .with_context(|| format!("{} is nowhere", program.display()))
}

/// The shared libraries of a program, and its loader.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let list = printed(Command::new("ldd").arg(program))?;
    let paths = list.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

/// Preprocesses the C files, so that the guest needs no headers.
fn preprocessed(metadata: &Metadata, room: &Path) -> Result<Vec<(String, PathBuf)>> {
    let package = metadata.packages.iter().find(|package| package.name == SOURCE);
    let package = package.with_context(|| format!("{SOURCE} is no dependency"))?;
    let library = package.manifest_path.with_file_name("zstd").join("lib").into_std_path_buf();
    let to = room.join("green-source");
    std::fs::create_dir_all(&to)?;
    let mut files = Vec::new();
    for folder in ["common", "compress", "decompress", "dictBuilder"] {
        for entry in std::fs::read_dir(library.join(folder))? {
            let path = entry?.path();
            if path.extension() != Some(OsStr::new("c")) {
                continue;
            }
            let name = path.file_stem().context("a file without a name")?.to_string_lossy();
            let name = format!("{name}.i");
            let out = to.join(&name);
            let mut gcc = Command::new("gcc");
            gcc.args(["-E", "-P", "-O2", "-DZSTD_DISABLE_ASM", "-o"]).arg(&out).arg(&path);
            run_well(&mut gcc)?;
            files.push((format!("src/{name}"), out));
        }
    }
    ensure!(!files.is_empty(), "{}: no C files", library.display());
    Ok(files)
}

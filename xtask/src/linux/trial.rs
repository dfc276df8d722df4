//! The parts of a trial, one after the other.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;

use super::fault::FAULTS;
use super::guest::{Guest, Latency, Seen};
use super::library::Built;
use super::live;
use super::module::Source;
use super::packages::{Kernel, Packages};

/// Programs that a machine may lack, and the packages that have them.
const NEEDED: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("apt-get", "apt"),
    ("dpkg", "dpkg"),
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
];

/// What the small kernels are built with besides.
const NEEDED_TO_BUILD: &[(&str, &str)] = &[("flex", "flex"), ("bison", "bison"), ("bc", "bc")];

/// What is tried.
#[derive(clap::Args)]
pub(crate) struct Trial {
    /// Random allocations and frees of each policy, as many of the one as of the other; a tenth where a kernel
    /// checks itself.
    #[arg(long, default_value_t = 70_000)]
    steps: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Parts to run, one after the other.
    #[arg(value_enum, default_values_t = [Part::Heap])]
    parts: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The distribution's kernel: all that the heap does.
    Heap,
    /// A small kernel, built from the packaged source, that has contiguous memory of its own (CMA): both under
    /// the same fragmentation.
    Cma,
    /// Such a kernel with checks of locks, of leaks and of addresses, and all policies there.
    Checks,
    /// `swath green` beside a compile, in guests with and without memory in the movable zone.
    Green,
    /// `swath age` in a guest: its free memory in a stated shape, at rest and under load.
    Age,
    /// Faults planted in the module, each of which the checks must find.
    Planted,
}

/// What all parts need.
struct Workshop<'a> {
    trial: &'a Trial,
    root: PathBuf,
    room: PathBuf,
    built: Built,
    packages: Packages,
}

/// Builds and tries the module.
///
/// # Errors
/// What is missing, does not build, or does not hold.
pub(crate) fn run(metadata: &Metadata, trial: &Trial) -> Result<()> {
    let builds =
        trial.parts.iter().any(|part| matches!(part, Part::Cma | Part::Checks | Part::Planted));
    let more = if builds { NEEDED_TO_BUILD } else { &[] };
    for (program, package) in NEEDED.iter().chain(more) {
        let found = Command::new(program).arg("--version").output().is_ok();
        if !found {
            println!("linux: not run, needs the package {package}");
            return Ok(());
        }
    }
    let room = metadata.target_directory.join("linux").into_std_path_buf();
    fs::create_dir_all(&room)?;
    let packages = Packages::fetch(&room, builds)?;
    for part in &trial.parts {
        match part {
            Part::Green => live::green(metadata, &room, &packages)?,
            Part::Age => live::age(metadata, &room, &packages, trial.seed)?,
            _ => {}
        }
    }
    if trial.parts.iter().all(|part| matches!(part, Part::Green | Part::Age)) {
        return Ok(());
    }
    let built = match Built::new(metadata, &room)? {
        Ok(built) => built,
        Err(lack) => {
            println!("linux: not run, {lack}");
            return Ok(());
        }
    };
    let root = metadata.workspace_root.clone().into_std_path_buf();
    let workshop = Workshop { trial, root, room, built, packages };
    for part in &trial.parts {
        match part {
            Part::Heap => workshop.heap()?,
            Part::Cma => workshop.cma()?,
            Part::Checks => workshop.checks()?,
            Part::Planted => workshop.planted()?,
            // They need no module, and were first.
            Part::Green | Part::Age => {}
        }
    }
    Ok(())
}

impl Workshop<'_> {
    fn heap(&self) -> Result<()> {
        let kernel = self.packages.kernel()?;
        let seen = self.guest(&kernel, "heap", &self.source()?)?;
        compare(&seen.well("heap")?, "bitmap", "demand", "taken from the system on demand")?;
        Ok(())
    }

    fn cma(&self) -> Result<()> {
        let kernel = self.packages.build(&self.root, &self.room, "cma", &["small.config"])?;
        let seen = self.guest(&kernel, "cma", &self.source()?)?;
        let worst = compare(&seen.well("cma")?, "swath", "reserved", "of the kernel's CMA heap")?;
        ensure!(worst <= 0.1, "an allocation takes more than a tenth of CMA's time");
        Ok(())
    }

    fn checks(&self) -> Result<()> {
        let kernel = self.checking()?;
        self.packages.check_style(&self.root, &self.room)?;
        let seen = self.guest(&kernel, "checks", &self.source()?)?;
        seen.well("checks")?;
        Ok(())
    }

    fn planted(&self) -> Result<()> {
        let kernel = self.checking()?;
        self.guest(&kernel, "planted", &self.source()?)?.well("planted")?;
        for fault in FAULTS {
            println!("planted: {}", fault.what);
            let source = Source::copy(&self.root, &self.room.join("planted"))?;
            fault.plant(&source)?;
            let seen = self.guest(&kernel, "planted", &source)?;
            if !seen.has_reported(fault.found_by) {
                bail!("planted: {}: \"{}\" was not said", fault.what, fault.found_by);
            }
        }
        println!("planted: {} faults, all found", FAULTS.len());
        Ok(())
    }

    fn checking(&self) -> Result<Kernel> {
        let configs = ["small.config", "checks.config"];
        self.packages.build(&self.root, &self.room, "checks", &configs)
    }

    fn source(&self) -> Result<Source> {
        Source::copy(&self.root, &self.room.join("modules"))
    }

    /// Builds what a part of linux/test/steps needs, and runs it in a guest.
    fn guest(&self, kernel: &Kernel, part: &str, source: &Source) -> Result<Seen> {
        let files = [
            ("init", self.root.join("linux/test/init")),
            ("steps", self.root.join("linux/test/steps")),
            ("bin/busybox", self.packages.root.join("bin/busybox")),
            ("bin/heap_test", source.program(&self.room, "heap_test", None)?),
            ("bin/cmt_test", source.program(&self.room, "cmt_test", Some(&self.built.hosted))?),
            ("swath_heap.ko", source.heap(kernel, &self.built.object)?),
            ("swath_edu.ko", source.edu(kernel)?),
        ];
        let initramfs = self.room.join(format!("{part}.cpio"));
        // Checks take a part of it, and their own pages would lie where the heap's were.
        let (memory_mib, steps) = match part {
            "checks" | "planted" => (3072, self.trial.steps / 10),
            _ => (1536, self.trial.steps),
        };
        // What follows a kernel's fault tells nothing more, and may never end.
        let stops = if part == "planted" { " loglevel=5 oops=panic kasan.fault=panic" } else { "" };
        Guest { kernel, initramfs: &initramfs, memory_mib, plugged_mib: 0 }.run(
            &files,
            &format!(
                "reserve_mem=64M:2M:swath swath_part={part} swath_seed={} swath_steps={}{stops}",
                self.trial.seed, steps
            ),
        )
    }
}

/// Prints the times of one heap beside another's, and returns the largest ratio.
///
/// # Errors
/// There are none of both for any length.
fn compare(latencies: &[Latency], of: &str, to: &str, what: &str) -> Result<f64> {
    let mut worst: Option<f64> = None;
    for ours in latencies.iter().filter(|latency| latency.heap.contains(of)) {
        let Some(theirs) =
            latencies.iter().find(|other| other.heap.contains(to) && other.bytes == ours.bytes)
        else {
            continue;
        };
        for (name, a, b) in
            [("p50", ours.p50_us, theirs.p50_us), ("p99", ours.p99_us, theirs.p99_us)]
        {
            println!("{} MiB, {name}: {a:.1} us, {b:.1} us {what}: {:.4}", ours.bytes >> 20, a / b);
            worst = Some(worst.map_or(a / b, |worst| worst.max(a / b)));
        }
    }
    worst.context("the guest measured nothing to compare")
}

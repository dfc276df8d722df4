//! Builds the Linux module in linux/ for a kernel of the distribution's, and tries it in a guest of that
//! kernel under an emulator. Packages are fetched and unpacked beside the build; none is installed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use cpio::newc::{Builder, trailer};

use crate::bare_metal::Toolchain;
use crate::emulator::follow;

/// The newest long-term kernel that the distribution packages.
const KERNEL: &str = "6.12";

const TARGET: &str = "x86_64-unknown-none";

/// What code in this kernel is built with: its place in the address space, its mitigations, and calls
/// that its loader of modules can bind.
const FLAGS: &str = "-Crelocation-model=static -Ccode-model=kernel -Cjump-tables=no -Zplt=yes \
    -Zfunction-return=thunk-extern -Zcf-protection=branch -Zretpoline -Zretpoline-external-thunk";

/// A kernel's stack has 16 KiB; half of that is for who calls.
const FRAME_BYTES_MAX: u64 = 2048;

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

/// A guest that is silent for so long hangs: loading searches memory, and emulation is slow.
const SILENCE_MAX: Duration = Duration::from_secs(240);

/// What is tried.
#[derive(clap::Args)]
pub(crate) struct Trial {
    /// Random allocations and frees of each policy.
    #[arg(long, default_value_t = 5000)]
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
}

/// What is built of the C library.
struct Built {
    /// What the module calls of it, for a kernel's address space.
    object: PathBuf,
    /// All of it, for a program.
    hosted: PathBuf,
}

/// A kernel to run, and where modules for it are built.
struct Kernel {
    image: PathBuf,
    build: PathBuf,
}

/// One figure of a guest: a heap's allocations of a length.
struct Latency {
    heap: String,
    bytes: u64,
    p50_us: f64,
    p99_us: f64,
}

/// Builds and tries the module.
///
/// # Errors
/// What is missing, does not build, or does not hold.
pub(crate) fn run(metadata: &Metadata, trial: &Trial) -> Result<()> {
    let builds = trial.parts.iter().any(|&part| part != Part::Heap);
    let more = if builds { NEEDED_TO_BUILD } else { &[] };
    for (program, package) in NEEDED.iter().chain(more) {
        let found = Command::new(program).arg("--version").output().is_ok();
        if !found {
            println!("linux: not run, needs the package {package}");
            return Ok(());
        }
    }
    let toolchain = match Toolchain::from_source(TARGET) {
        Ok(toolchain) => toolchain,
        Err(lack) => {
            println!("linux: not run, {lack}");
            return Ok(());
        }
    };
    let room = metadata.target_directory.join("linux").into_std_path_buf();
    fs::create_dir_all(&room)?;
    let root = metadata.workspace_root.as_std_path();
    let built = Built { object: library(root, &room, &toolchain)?, hosted: hosted(metadata)? };
    let packages = Packages::fetch(&room, builds)?;

    for part in &trial.parts {
        match part {
            Part::Heap => {
                let kernel = packages.kernel()?;
                let latencies = guest(root, &room, &packages, &kernel, &built, "heap", trial)?;
                compare(&latencies, "bitmap", "demand", "taken from the system on demand")?;
            }
            Part::Cma => {
                let kernel = packages.build(root, &room, "cma", &["small.config"])?;
                let latencies = guest(root, &room, &packages, &kernel, &built, "cma", trial)?;
                let worst = compare(&latencies, "swath", "reserved", "of the kernel's CMA heap")?;
                ensure!(worst <= 0.1, "an allocation takes more than a tenth of CMA's time");
            }
            Part::Checks => {
                let configs = ["small.config", "checks.config"];
                let kernel = packages.build(root, &room, "checks", &configs)?;
                guest(root, &room, &packages, &kernel, &built, "checks", trial)?;
            }
        }
    }
    Ok(())
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

fn run_well(command: &mut Command) -> Result<()> {
    let name = format!("{command:?}");
    let output = command.output().with_context(|| name.clone())?;
    ensure!(
        output.status.success(),
        "{name} fails:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?} fails");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes one object of what the module calls of the C library, for a kernel's address space.
fn library(root: &Path, room: &Path, toolchain: &Toolchain) -> Result<PathBuf> {
    let status = toolchain
        .cargo_with("rustc", root, FLAGS)
        .args(["-p", "swath-ffi", "--profile", "freestanding", "--no-default-features"])
        .args(["--crate-type", "staticlib", "--quiet", "--target-dir"])
        .arg(room)
        .status()?;
    ensure!(status.success(), "the library does not build for a kernel");
    let archive = room.join(TARGET).join("freestanding/libswath.a");
    let ours = room.join("libswath.a");
    fs::copy(&archive, &ours)?;
    // The kernel has `memcpy` and its kin.
    for member in printed(Command::new("ar").arg("t").arg(&ours))?.lines() {
        if member.contains("compiler_builtins") {
            run_well(Command::new("ar").arg("d").arg(&ours).arg(member))?;
        }
    }
    let called = fs::read_to_string(root.join("linux/heap/policy.c"))?;
    let defined = printed(Command::new("nm").args(["--defined-only", "--quiet"]).arg(&ours))?;
    let mut symbols = Vec::new();
    for line in defined.lines() {
        if let Some((_, name)) = line.split_once(" T ")
            && called.contains(&format!("{name}("))
        {
            symbols.push(name.to_owned());
        }
    }
    ensure!(!symbols.is_empty(), "the library has nothing that the module calls");
    let whole = room.join("whole.o");
    let mut link = Command::new("ld");
    link.args(["-r", "--gc-sections"]);
    for symbol in &symbols {
        link.args(["-u", symbol]);
    }
    run_well(link.arg("-o").arg(&whole).arg(&ours))?;
    let object = room.join("libswath.o_shipped");
    let mut keep = Command::new("objcopy");
    keep.args(["--strip-debug", "--remove-section=.eh_frame", "--remove-section=.comment"]);
    for symbol in &symbols {
        keep.arg(format!("--keep-global-symbol={symbol}"));
    }
    run_well(keep.arg(&whole).arg(&object))?;
    examine(&object)?;
    Ok(object)
}

/// Builds the C library for a program.
fn hosted(metadata: &Metadata) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--quiet", "-p", "swath-ffi"]);
    run_well(build.current_dir(&metadata.workspace_root))?;
    Ok(metadata.target_directory.join("release/libswath.a").into_std_path_buf())
}

/// Looks at the object's instructions: stack frames that a kernel has no room for.
fn examine(object: &Path) -> Result<()> {
    let text = printed(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(object))?;
    let mut function = String::new();
    let mut bytes = 0;
    for line in text.lines() {
        if let Some(head) = line.strip_suffix(">:") {
            function = head.split('<').nth(1).unwrap_or(head).to_owned();
            bytes = 0;
        } else if let Some(amount) =
            line.split_once("sub ").and_then(|(_, operands)| taken(operands.trim_start()))
        {
            // A large frame is taken a page at a time.
            bytes += amount;
            ensure!(bytes <= FRAME_BYTES_MAX, "{function} takes {bytes} bytes of a kernel's stack");
        }
    }
    Ok(())
}

/// Returns how much of the stack `sub` with these operands takes.
fn taken(operands: &str) -> Option<u64> {
    let amount = operands.strip_prefix("$0x")?.strip_suffix(",%rsp")?;
    u64::from_str_radix(amount, 16).ok()
}

/// The distribution's packages, unpacked.
struct Packages {
    /// As the packages' names have it, such as `6.12.1+deb12-amd64`.
    version: String,
    root: PathBuf,
}

impl Packages {
    /// Fetches what is not there yet.
    fn fetch(room: &Path, with_source: bool) -> Result<Self> {
        let headers = format!("linux-headers-{KERNEL}-amd64");
        let depends = printed(Command::new("apt-cache").args(["depends", &headers]))?;
        let version = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: linux-headers-"))
            .with_context(|| format!("no package {headers}: `apt-get update`, or another release"))?
            .to_owned();
        let root = room.join(&version);
        let common = version.trim_end_matches("-amd64");
        let mut wanted = vec![
            format!("linux-headers-{version}"),
            format!("linux-headers-{common}-common"),
            format!("linux-kbuild-{common}"),
            format!("linux-image-{version}-unsigned"),
            "busybox-static".to_owned(),
        ];
        if with_source {
            wanted.push(format!("linux-source-{KERNEL}"));
        }
        fs::create_dir_all(&root)?;
        for package in wanted {
            let done = root.join(format!(".{package}"));
            if done.exists() {
                continue;
            }
            let at = tempfile::tempdir_in(room)?;
            run_well(Command::new("apt-get").args(["download", &package]).current_dir(at.path()))?;
            for file in fs::read_dir(at.path())? {
                run_well(Command::new("dpkg").arg("-x").arg(file?.path()).arg(&root))?;
            }
            File::create(done)?;
        }
        let packages = Self { version, root };
        packages.mend_paths()?;
        Ok(packages)
    }

    fn headers(&self) -> PathBuf {
        self.root.join(format!("usr/src/linux-headers-{}", self.version))
    }

    /// The headers name each other by where they would be installed.
    fn mend_paths(&self) -> Result<()> {
        let common = self.version.trim_end_matches("-amd64");
        let makefile = self.headers().join("Makefile");
        let path = self.root.join(format!("usr/src/linux-headers-{common}-common/Makefile"));
        fs::write(makefile, format!("include {}\n", path.display()))?;
        // Types for tracing would be made from it, by a program that need not be there.
        let vmlinux = self.headers().join("vmlinux");
        if vmlinux.exists() {
            fs::remove_file(vmlinux)?;
        }
        Ok(())
    }

    fn kernel(&self) -> Result<Kernel> {
        let image = self.root.join(format!("boot/vmlinuz-{}", self.version));
        ensure!(image.is_file(), "{} is not in its package", image.display());
        Ok(Kernel { image, build: self.headers() })
    }

    /// Builds a small kernel from the packaged source; one that stands is kept.
    fn build(&self, root: &Path, room: &Path, name: &str, configs: &[&str]) -> Result<Kernel> {
        let source = room.join(format!("linux-source-{KERNEL}"));
        if !source.is_dir() {
            let at = tempfile::tempdir_in(room)?;
            let archive = self.root.join(format!("usr/src/linux-source-{KERNEL}.tar.xz"));
            run_well(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(at.path()))?;
            fs::rename(at.path().join(format!("linux-source-{KERNEL}")), &source)?;
        }
        let build = room.join(format!("kernel-{name}"));
        fs::create_dir_all(&build)?;
        let mut wanted = String::new();
        for config in configs {
            wanted += &fs::read_to_string(root.join("linux/test").join(config))?;
        }
        let file = room.join(format!("{name}.config"));
        fs::write(&file, &wanted)?;
        let make = || {
            let mut make = Command::new("make");
            make.arg("-C").arg(&source).arg(format!("O={}", build.display()));
            make
        };
        run_well(make().arg("tinyconfig").env("KCONFIG_ALLCONFIG", &file))?;
        let config = fs::read_to_string(build.join(".config"))?;
        fs::write(build.join(".config"), config + &wanted)?;
        run_well(make().arg("olddefconfig"))?;
        let config = fs::read_to_string(build.join(".config"))?;
        for line in wanted.lines().filter(|line| line.ends_with("=y")) {
            ensure!(
                config.lines().any(|set| set == line),
                "the kernel's source does not know {line}"
            );
        }
        let jobs = std::thread::available_parallelism()?;
        run_well(make().arg(format!("-j{jobs}")).args(["bzImage", "modules"]))?;
        Ok(Kernel { image: build.join("arch/x86/boot/bzImage"), build })
    }
}

/// Builds a module of linux/ for a kernel, with `libswath.o` if it has that; returns its file.
fn module(
    root: &Path,
    room: &Path,
    kernel: &Kernel,
    (directory, name): (&str, &str),
    library: Option<&Path>,
) -> Result<PathBuf> {
    let build = room.join("modules");
    // A module is built in its own directory: in a copy, so that nothing is left in the source.
    for from in ["linux", "crates/swath-ffi/include"] {
        let to = build.join(from);
        fs::create_dir_all(&to)?;
        run_well(Command::new("cp").args(["-rT", "-u"]).arg(root.join(from)).arg(&to))?;
    }
    let at = build.join(directory);
    if let Some(library) = library {
        fs::copy(library, at.join("libswath.o_shipped"))?;
    }
    let make = |word: &str| {
        let mut make = Command::new("make");
        make.arg("-C").arg(&kernel.build).arg(format!("M={}", at.display())).arg(word);
        make
    };
    run_well(&mut make("clean"))?;
    run_well(make("modules").arg("KCFLAGS=-Werror"))?;
    let file = at.join(name);
    run_well(Command::new("strip").arg("-g").arg(&file))?;
    Ok(file)
}

/// Builds a program of linux/test that needs nothing of the guest's, with a library of ours if it has that.
fn program(root: &Path, room: &Path, name: &str, library: Option<&Path>) -> Result<PathBuf> {
    let file = room.join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static"]);
    for include in ["linux/include", "crates/swath-ffi/include"] {
        gcc.arg("-I").arg(root.join(include));
    }
    gcc.arg("-o").arg(&file).arg(root.join("linux/test").join(format!("{name}.c"))).args(library);
    run_well(&mut gcc)?;
    Ok(file)
}

/// Writes the guest's first file system.
fn pack(to: &Path, files: &[(&str, &Path)]) -> Result<()> {
    let mut out = BufWriter::new(File::create(to)?);
    for directory in ["bin", "dev", "proc", "sys", "tmp"] {
        let entry = Builder::new(directory).mode(0o040_755).nlink(2).write(&mut out, 0);
        entry.finish()?;
    }
    for (name, path) in files {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let len = u32::try_from(bytes.len()).context("a file of the guest is too large")?;
        let mut entry = Builder::new(name).mode(0o100_755).write(&mut out, len);
        entry.write_all(&bytes)?;
        entry.finish()?;
    }
    trailer(&mut out)?.flush()?;
    Ok(())
}

/// Runs a part of linux/test/steps in a guest of a kernel; returns the latencies that it printed.
fn guest(
    root: &Path,
    room: &Path,
    packages: &Packages,
    kernel: &Kernel,
    built: &Built,
    part: &str,
    trial: &Trial,
) -> Result<Vec<Latency>> {
    let heap = module(root, room, kernel, ("linux/heap", "swath_heap.ko"), Some(&built.object))?;
    let edu = module(root, room, kernel, ("linux/test/edu", "swath_edu.ko"), None)?;
    let heap_test = program(root, room, "heap_test", None)?;
    let cmt_test = program(root, room, "cmt_test", Some(&built.hosted))?;
    let initramfs = room.join(format!("{part}.cpio"));
    let files = [
        ("init", root.join("linux/test/init")),
        ("steps", root.join("linux/test/steps")),
        ("bin/busybox", packages.root.join("bin/busybox")),
        ("bin/heap_test", heap_test),
        ("bin/cmt_test", cmt_test),
        ("swath_heap.ko", heap),
        ("swath_edu.ko", edu),
    ];
    let files: Vec<_> = files.iter().map(|(name, path)| (*name, path.as_path())).collect();
    pack(&initramfs, &files)?;

    let words = format!(
        "console=ttyS0 quiet panic=-1 reserve_mem=64M:2M:swath swath_part={part} swath_seed={} \
         swath_steps={}",
        trial.seed, trial.steps
    );
    // Checks take a part of it, and their own pages would lie where the heap's were.
    let memory = if part == "checks" { "3072" } else { "1536" };
    let mut emulator = Command::new("qemu-system-x86_64");
    emulator
        .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-m", memory, "-smp", "2"])
        .args(["-display", "none", "-serial", "stdio", "-no-reboot", "-nic", "none"])
        .args(["-device", "edu", "-kernel"])
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&initramfs)
        .args(["-append", &words]);
    let began = Instant::now();
    let mut seen = Seen::default();
    let status = follow(&mut emulator, SILENCE_MAX, |line| {
        println!("  {line}");
        seen.read(line);
    })?;
    ensure!(status.success(), "the emulator ended with {status}");
    if let Some(complaint) = seen.complaint {
        bail!("{part}: {complaint}");
    }
    ensure!(seen.well, "{part}: the guest ended early");
    println!("{part}: passed in {:.0} s", began.elapsed().as_secs_f64());
    Ok(seen.latencies)
}

/// What a guest has said so far.
#[derive(Default)]
struct Seen {
    policy: String,
    heap: String,
    latencies: Vec<Latency>,
    complaint: Option<String>,
    well: bool,
}

impl Seen {
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["guest:", "well"] => self.well = true,
            ["kernel", "says:", ..] | ["failed:", ..] => {
                self.complaint.get_or_insert(line.to_owned());
            }
            ["==", "memory", "in", "pieces,", policy, ..] | ["==", policy] => {
                self.policy = (*policy).to_owned();
            }
            ["=", heap] => self.heap = (*heap).to_owned(),
            // All that was asked for is one run each, in memory that the heap has from the start.
            ["availability", "bytes", _, "asked", asked, "given", _, "one_run", one, ..]
                if asked != one && !self.heap.ends_with("reserved") && self.policy != "demand" =>
            {
                self.complaint.get_or_insert(line.to_owned());
            }
            ["latency", "bytes", bytes, .., "p50_us", p50, "p99_us", p99, "max_us", _] => {
                if let (Ok(bytes), Ok(p50_us), Ok(p99_us)) =
                    (bytes.parse(), p50.parse(), p99.parse())
                {
                    let heap = format!("{} {}", self.policy, self.heap);
                    self.latencies.push(Latency { heap, bytes, p50_us, p99_us });
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_guest_says_is_judged() {
        let mut seen = Seen::default();
        for line in [
            "== memory in pieces, bitmap",
            "= /dev/dma_heap/swath",
            "availability bytes 20971520 asked 12 given 12 one_run 12 us_each 31.5",
            "latency bytes 4194304 asked 200 given 200 p50_us 89.0 p99_us 130.5 max_us 200.0",
            "guest: well",
        ] {
            seen.read(line);
        }
        assert!(seen.well && seen.complaint.is_none());
        assert_eq!(seen.latencies.len(), 1);
        assert_eq!(seen.latencies[0].heap, "bitmap /dev/dma_heap/swath");
        assert_eq!((seen.latencies[0].bytes, seen.latencies[0].p99_us), (4 << 20, 130.5));
        let mut seen = Seen::default();
        seen.read("== demand");
        seen.read("availability bytes 20971520 asked 12 given 11 one_run 11 us_each 31.5");
        assert!(seen.complaint.is_none());
        for line in [
            "availability bytes 20971520 asked 12 given 12 one_run 11 us_each 31.5",
            "kernel says: [  1.0] BUG: bad page state",
            "failed: heap_test /dev/dma_heap/swath full",
        ] {
            let mut seen = Seen::default();
            seen.read(line);
            assert_eq!(seen.complaint.as_deref(), Some(line));
        }
    }

    #[test]
    fn a_stack_frame_is_read() {
        assert_eq!(taken("$0x1c8,%rsp"), Some(0x1c8));
        assert_eq!(taken("$0x1c8,%rax"), None);
        assert_eq!(taken("%rcx,%rsp"), None);
    }
}

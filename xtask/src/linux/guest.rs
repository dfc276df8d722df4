//! A kernel in an emulator, with a file system of ours, and what it says.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cpio::newc::{Builder, trailer};

use super::packages::Kernel;
use crate::emulator::follow;

/// A guest that is silent for so long hangs: loading searches memory, and emulation is slow.
const SILENCE_MAX: Duration = Duration::from_secs(240);

/// Words of the kernel's own reports.
const REPORTS: &[&str] = &[
    "BUG:",
    "kernel BUG",
    "WARNING:",
    "possible circular locking dependency",
    "suspected memory leaks",
    "Kernel panic",
];

/// One figure of a guest: a heap's allocations of a length.
pub(super) struct Latency {
    pub(super) heap: String,
    pub(super) bytes: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Writes the guest's first file system.
fn pack(to: &Path, files: &[(&str, PathBuf)]) -> Result<()> {
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

/// A kernel to boot, and where its first file system is written.
pub(super) struct Guest<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) initramfs: &'a Path,
    pub(super) memory_mib: u32,
}

impl Guest<'_> {
    /// Runs `init` of the files, with words of the kernel's command line; returns what it said.
    pub(super) fn run(&self, files: &[(&str, PathBuf)], words: &str) -> Result<Seen> {
        pack(self.initramfs, files)?;
        let mut emulator = Command::new("qemu-system-x86_64");
        emulator
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-smp", "2"])
            .args(["-m", &self.memory_mib.to_string()])
            .args(["-display", "none", "-serial", "stdio", "-no-reboot", "-nic", "none"])
            .args(["-device", "edu", "-kernel"])
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", &format!("console=ttyS0 quiet panic=-1 {words}")]);
        let began = Instant::now();
        let mut seen = Seen::default();
        let ended = follow(&mut emulator, SILENCE_MAX, |line| {
            println!("  {line}");
            seen.read(line);
        });
        match ended {
            Ok(status) => ensure!(status.success(), "the emulator ended with {status}"),
            // What it said tells more than its silence after.
            Err(_) if !seen.reports.is_empty() => {}
            Err(error) => return Err(error),
        }
        seen.seconds = began.elapsed().as_secs_f64();
        Ok(seen)
    }
}

/// What a guest has said so far.
#[derive(Default)]
pub(super) struct Seen {
    policy: String,
    heap: String,
    latencies: Vec<Latency>,
    reports: Vec<String>,
    well: bool,
    seconds: f64,
}

impl Seen {
    /// Returns the times that the guest printed, if it ended well.
    pub(super) fn well(self, part: &str) -> Result<Vec<Latency>> {
        if let Some(report) = self.reports.first() {
            bail!("{part}: {report}");
        }
        ensure!(self.well, "{part}: the guest ended early");
        println!("{part}: passed in {:.0} s", self.seconds);
        Ok(self.latencies)
    }

    /// Returns true if something that went wrong was reported in these words.
    pub(super) fn has_reported(&self, words: &str) -> bool {
        self.reports.iter().any(|report| report.contains(words))
    }

    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["guest:", "well"] => self.well = true,
            ["kernel", "says:", ..] | ["failed:", ..] => {
                self.reports.push(line.to_owned());
            }
            ["==", "memory", "in", "pieces,", policy, ..] | ["==", policy] => {
                self.policy = (*policy).to_owned();
            }
            ["=", heap] => self.heap = (*heap).to_owned(),
            // All that was asked for is one run each, in memory that the heap has from the start.
            ["availability", "bytes", _, "asked", asked, "given", _, "one_run", one, ..]
                if asked != one && !self.heap.ends_with("reserved") && self.policy != "demand" =>
            {
                self.reports.push(line.to_owned());
            }
            ["latency", "bytes", bytes, .., "p50_us", p50, "p99_us", p99, "max_us", _] => {
                if let (Ok(bytes), Ok(p50_us), Ok(p99_us)) =
                    (bytes.parse(), p50.parse(), p99.parse())
                {
                    let heap = format!("{} {}", self.policy, self.heap);
                    self.latencies.push(Latency { heap, bytes, p50_us, p99_us });
                }
            }
            _ if REPORTS.iter().any(|words| line.contains(words)) => {
                self.reports.push(line.to_owned());
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
        assert!(seen.well && seen.reports.is_empty());
        assert_eq!(seen.latencies.len(), 1);
        assert_eq!(seen.latencies[0].heap, "bitmap /dev/dma_heap/swath");
        assert_eq!((seen.latencies[0].bytes, seen.latencies[0].p99_us), (4 << 20, 130.5));
        let mut seen = Seen::default();
        seen.read("== demand");
        seen.read("availability bytes 20971520 asked 12 given 11 one_run 11 us_each 31.5");
        assert!(seen.reports.is_empty());
        for line in [
            "availability bytes 20971520 asked 12 given 12 one_run 11 us_each 31.5",
            "kernel says: [  1.0] BUG: bad page state",
            "failed: heap_test /dev/dma_heap/swath full",
            "[    4.1] BUG: KASAN: slab-use-after-free in clean+0x230/0x3a3",
        ] {
            let mut seen = Seen::default();
            seen.read(line);
            assert_eq!(seen.reports, [line]);
            assert!(seen.well("part").is_err());
        }
    }
}

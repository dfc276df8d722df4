//! A kernel in an emulator, with a file system of ours, and what it says.

use std::collections::BTreeSet;
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

/// What a guest measured of `swath green` under a load.
pub(super) struct Green {
    /// The way that blocks were chosen; `none` without it.
    pub(super) choice: String,
    /// Of the free memory, the share that was offline.
    pub(super) share: f64,
    pub(super) seconds: u64,
    pub(super) offlined: u64,
    pub(super) failed: u64,
}

impl Green {
    /// Of the blocks that were tried, those that did not go.
    pub(super) fn failed_share(&self) -> f64 {
        self.failed as f64 / (self.offlined + self.failed).max(1) as f64
    }
}

/// Writes the guest's first file system.
fn pack(to: &Path, files: &[(impl AsRef<str>, PathBuf)]) -> Result<()> {
    let mut out = BufWriter::new(File::create(to)?);
    let mut folders: BTreeSet<&str> = ["bin", "dev", "proc", "sys", "tmp"].into();
    for (name, _) in files {
        let parents = name.as_ref().match_indices('/').map(|(end, _)| &name.as_ref()[..end]);
        folders.extend(parents);
    }
    for folder in folders {
        let entry = Builder::new(folder).mode(0o040_755).nlink(2).write(&mut out, 0);
        entry.finish()?;
    }
    for (name, path) in files {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let len = u32::try_from(bytes.len()).context("a file of the guest is too large")?;
        let mut entry = Builder::new(name.as_ref()).mode(0o100_755).write(&mut out, len);
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
    /// Memory that is plugged in beside it, which the kernel can take offline as a whole.
    pub(super) plugged_mib: u32,
}

impl Guest<'_> {
    fn memory(&self) -> String {
        let (boot, plugged) = (self.memory_mib, self.plugged_mib);
        if plugged == 0 {
            boot.to_string()
        } else {
            format!("{boot},slots=1,maxmem={}M", boot + plugged)
        }
    }

    fn plugged(&self) -> Vec<String> {
        if self.plugged_mib == 0 {
            return Vec::new();
        }
        let backend = format!("memory-backend-ram,id=plugged,size={}M", self.plugged_mib);
        ["-object", &backend, "-device", "pc-dimm,memdev=plugged"].map(str::to_owned).into()
    }

    /// Runs `init` of the files, with words of the kernel's command line; returns what it said.
    pub(super) fn run(&self, files: &[(impl AsRef<str>, PathBuf)], words: &str) -> Result<Seen> {
        pack(self.initramfs, files)?;
        let mut emulator = Command::new("qemu-system-x86_64");
        emulator
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-smp", "2"])
            .args(["-m", &self.memory()])
            .args(self.plugged())
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
    green: Vec<Green>,
    reports: Vec<String>,
    well: bool,
    seconds: f64,
}

impl Seen {
    /// Returns the times that the guest printed, if it ended well.
    pub(super) fn well(self, part: &str) -> Result<Vec<Latency>> {
        self.check(part)?;
        Ok(self.latencies)
    }

    /// Returns what the guest measured of `swath green`, if it ended well.
    pub(super) fn green(self, part: &str) -> Result<Vec<Green>> {
        self.check(part)?;
        Ok(self.green)
    }

    fn check(&self, part: &str) -> Result<()> {
        if let Some(report) = self.reports.first() {
            bail!("{part}: {report}");
        }
        ensure!(self.well, "{part}: the guest ended early");
        println!("{part}: passed in {:.0} s", self.seconds);
        Ok(())
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
            [
                "green",
                choice,
                "share",
                share,
                _,
                _,
                "seconds",
                seconds,
                "offlined",
                offlined,
                "failed",
                failed,
                ..,
            ] => {
                let count = |word: &str| word.parse().ok();
                if let (Ok(share), Some(seconds), Some(offlined), Some(failed)) =
                    (share.parse(), count(seconds), count(offlined), count(failed))
                {
                    let choice = (*choice).to_owned();
                    self.green.push(Green { choice, share, seconds, offlined, failed });
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

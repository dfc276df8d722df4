//! The library `swath-cmt` itself on this machine, beside its simulation: blocks of `cmt_malloc` in a process
//! of its own, their time, and the runs of physical memory in which they lie.
//!
//! Runs are counted from `/proc/self/pagemap`, not by the library. A process without the right to see
//! frame numbers reads zeroes there: the runs are unknown then.

use std::fs::File;
use std::io;
use std::process::Stdio;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::clmalloc::areas::Mib;
use crate::study::bounds::{Forms, Repeats};
use crate::study::child::child_command;
use crate::study::grid::{Metrics, mean, metrics};

/// The runs on this machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RealPlan {
    /// MiB of the physical reserve that a process takes at start.
    pub reserve_mib: Mib,
    /// Number of processes that measure each point.
    pub repeats: Forms<Repeats>,
}

/// The work of a child.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlocksJob {
    /// 0: none.
    pub(crate) reserve_mib: u64,
    pub(crate) request_mib: u64,
    pub(crate) count: u64,
}

/// The answer of a child, of its first round of requests and the second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Ran {
    first_ns: f64,
    later_ns: f64,
    /// Blocks of the first round that were allocated.
    served: u64,
    /// Runs of physical memory of each of them; none where frames cannot be seen.
    runs: Option<Vec<u64>>,
}

impl Ran {
    /// Microseconds, blocks, and runs where they are known.
    pub(crate) fn metrics(&self, count: u64) -> Metrics {
        let us = |ns: f64| ns.max(1.0) / 1000.0;
        let mut all = metrics([
            ("first_us", us(self.first_ns)),
            ("later_us", us(self.later_ns)),
            ("served", self.served as f64),
        ]);
        if let Some(runs) = &self.runs {
            let one = runs.iter().filter(|&&runs| runs == 1).count() as f64;
            let each: Vec<f64> = runs.iter().map(|&runs| runs as f64).collect();
            all.push(("one_run_share".to_owned(), one / count.max(1) as f64));
            all.push(("runs_per_block".to_owned(), mean(&each)));
        }
        all
    }

    /// Returns true if frames could be seen.
    pub(crate) fn knows_frames(&self) -> bool {
        self.runs.is_some()
    }
}

/// The words of a study where frames cannot be seen.
pub(crate) const UNKNOWN: &str = "The physical runs of cmt_malloc's blocks are unknown: this process has no \
                                  right to see frame numbers (root has).";

/// Does a job in a child of the study `kind`.
pub(crate) fn run(kind: &str, job: &BlocksJob) -> Result<Ran, String> {
    let text = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let output = child_command(kind, &text)
        .and_then(|mut command| command.stdin(Stdio::null()).output())
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// Does a job, in the child, and prints its answer.
///
/// # Errors
/// The fault, for the program to say.
pub(crate) fn child(job: &BlocksJob) -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", serde_json::to_string(&ran(job)?)?);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn ran(_: &BlocksJob) -> Result<Ran, Box<dyn std::error::Error>> {
    Err(crate::papers::clmalloc::rounds::ELSEWHERE.into())
}

#[cfg(target_os = "linux")]
fn ran(job: &BlocksJob) -> Result<Ran, Box<dyn std::error::Error>> {
    use std::time::Instant;

    use swath_cmt::Options;

    use crate::papers::clmalloc::blocks::Touched;
    let options = Options { reserve_bytes: job.reserve_mib << 20, ..Options::from_env() };
    swath_cmt::begin_with(options)?;
    let len = usize::try_from(job.request_mib << 20)?;
    let round = || {
        let start = Instant::now();
        let blocks: Vec<Touched> = (0..job.count).map_while(|_| Touched::new(len)).collect();
        (start.elapsed().as_nanos() as f64, blocks)
    };
    let (first_ns, blocks) = round();
    let runs = blocks.iter().map(|block| runs(block.address(), len)).collect::<io::Result<_>>();
    // Where there is no such file, frames are not known either.
    let runs: Option<Vec<u64>> = runs.unwrap_or_default();
    let served = blocks.len() as u64;
    drop(blocks);
    let (later_ns, _) = round();
    Ok(Ran { first_ns, later_ns, served, runs })
}

/// Counts the runs of physical memory behind `len` bytes from the page at `address` on; `None` if frames
/// are not told. Pages that are not there count as runs of their own.
fn runs(address: usize, len: usize) -> io::Result<Option<u64>> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    const PAGE_BYTES: usize = 4096;
    let pages = (address % PAGE_BYTES + len).div_ceil(PAGE_BYTES);
    let mut entries = vec![0_u8; 8 * pages];
    read_at(&File::open("/proc/self/pagemap")?, &mut entries, address / PAGE_BYTES * 8)?;
    let (mut runs, mut next) = (0, None);
    for entry in entries.chunks_exact(8) {
        let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
        let frame = (entry & PRESENT != 0).then_some(entry & FRAME);
        if frame == Some(0) {
            return Ok(None);
        }
        runs += u64::from(frame.is_none() || frame != next);
        next = frame.map(|frame| frame + 1);
    }
    Ok(Some(runs))
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: usize) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    file.read_exact_at(bytes, offset as u64)
}

#[cfg(not(unix))]
fn read_at(_: &File, _: &mut [u8], _: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_frames_has_no_runs() {
        let ran = |runs| Ran { first_ns: 5000.0, later_ns: 0.0, served: 3, runs };
        let times = [("first_us", 5.0), ("later_us", 0.001), ("served", 3.0)];
        let known = [("one_run_share", 0.5), ("runs_per_block", 2.0)];
        let all: Metrics =
            times.iter().chain(&known).map(|&(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(ran(Some(vec![1, 1, 4])).metrics(4), all);
        assert_eq!(ran(None).metrics(4), metrics(times));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn runs_of_pages_that_are_there() {
        let bytes = vec![1_u8; 1 << 20];
        let found = runs(bytes.as_ptr().addr(), bytes.len()).unwrap();
        // Between one and as many as pages; or not known.
        assert!(found.is_none_or(|runs| (1..=257).contains(&runs)), "{found:?}");
    }
}

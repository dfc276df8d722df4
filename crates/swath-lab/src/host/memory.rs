//! Large pages on the machine that runs a study: random updates and the release
//! of memory, measured on Linux.
//!
//! Three kinds of anonymous memory are compared: 4 KiB pages
//! (`MADV_NOHUGEPAGE`), transparent huge pages (`MADV_HUGEPAGE`; how much of
//! the memory really has them is read from `/proc/self/smaps`), and hugetlb
//! pages of 2 MiB (`MAP_HUGETLB`, where the system has some reserved). For each
//! it runs HPCC's RandomAccess over a table, as
//! [`benchmark::Gups`](crate::papers::superpages::benchmark::Gups) simulates it, and times the
//! `munmap` of memory that was touched, against its size.
//!
//! Each repeat of each kind is a process of its own, the program started
//! again: none inherits the memory of another, and one that the kernel ends is
//! a reason, not the end. Kinds take turns, so that what changes slowly on the
//! machine changes for all.
//!
//! A table is verified as HPCC does: the same updates again undo themselves,
//! and every word must be what it was before. The tables of all kinds must
//! also have had the same sum.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::study::grid::{Grid, metrics};

/// A kind of memory: the pages that it is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Pages of 4 KiB.
    Base,
    /// Transparent huge pages, of 2 MiB on x86-64.
    Transparent,
    /// Pages of 2 MiB that the administrator has reserved.
    HugeTlb,
}

impl MemoryKind {
    /// All three, in the order in which they are measured.
    pub const ALL: [Self; 3] = [Self::Base, Self::Transparent, Self::HugeTlb];

    /// Its name in a figure.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "4 KiB pages",
            Self::Transparent => "transparent huge pages",
            Self::HugeTlb => "hugetlb 2 MiB",
        }
    }
}

/// A plan of measuring.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryPlan {
    /// RandomAccess's table in bytes: a power of two, 2 MiB or more.
    pub table_bytes: u64,
    /// Its updates; HPCC makes four for each word.
    pub updates: u64,
    /// Steps of its sequence to start after.
    pub seed: u64,
    /// Lengths to release, each a multiple of 1 MiB. What is less than a huge page has
    /// none; hugetlb rounds up to whole ones.
    pub release_bytes: Vec<u64>,
    /// Processes of each kind, 1 or more.
    pub repeats: u32,
}

/// Reasons why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Not Linux.
    #[error("real memory is measured on Linux; this is {os}")]
    Unsupported {
        /// The operating system.
        os: &'static str,
    },
    /// A plan that cannot be run.
    #[error("{what}")]
    Plan {
        /// The fault.
        what: &'static str,
    },
    /// The machine has too little memory for the plan.
    #[error("{needs_bytes} bytes are needed twice over, and {available_bytes} are available")]
    TooLarge {
        /// The largest piece of memory in the plan.
        needs_bytes: u64,
        /// `MemAvailable` of `/proc/meminfo`.
        available_bytes: u64,
    },
    /// The process that measures could not be started or read.
    #[error("the process that measures: {source}")]
    Child {
        /// The system's words.
        #[from]
        source: std::io::Error,
    },
    /// Memory did not hold what was written to it.
    #[error("{words} words of the table are wrong on {}", .kind.name())]
    Wrong {
        /// The memory.
        kind: MemoryKind,
        /// Number of wrong words.
        words: u64,
    },
    /// Two tables that had the same updates differ.
    #[error("the table on {} differs from the one on {}", .kind.name(), .other.name())]
    Differs {
        /// One.
        kind: MemoryKind,
        /// The other.
        other: MemoryKind,
    },
}

/// Values of one quantity, one for each process, in the order of measuring.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Runs {
    /// Each process's value.
    pub values: Vec<f64>,
}

/// The release of memory of one length.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Release {
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Nanoseconds to write one word to each of its 4 KiB, from unmapped on:
    /// what its page faults cost.
    pub touch_ns: Runs,
    /// Nanoseconds of its `munmap` after that.
    pub release_ns: Runs,
}

/// The measurements of one kind of memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Bytes of the table that lay on huge pages, in each process.
    pub huge_bytes: Runs,
    /// Giga-updates per second.
    pub gups: Runs,
    /// In the order of the plan.
    pub releases: Vec<Release>,
}

/// One kind of memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct KindResult {
    /// The kind.
    pub kind: MemoryKind,
    /// The measurements; or in words why this machine does not offer it.
    pub outcome: Result<Measured, String>,
}

/// Facts of the machine on which the numbers depend.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HostFacts {
    /// `model name` of `/proc/cpuinfo`, empty if it has none.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: u64,
    /// `uname -r`.
    pub kernel_release: String,
    /// The kernel's use of transparent huge pages: the choice in brackets.
    pub transparent_enabled: String,
    /// Its effort to make one at a fault.
    pub transparent_defrag: String,
    /// Bytes of a transparent huge page, 0 if the kernel does not say.
    pub transparent_bytes: u64,
    /// Pages reserved for hugetlb, of the default size.
    pub hugetlb_pages: u64,
    /// `MemTotal` in bytes.
    pub memory_bytes: u64,
}

/// Real measurements of all kinds of memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RealMemory {
    /// The plan.
    pub plan: MemoryPlan,
    /// The machine.
    pub host: HostFacts,
    /// In the order of [`MemoryKind::ALL`].
    pub kinds: Vec<KindResult>,
}

/// Axis of the measurements: the kind of memory.
pub const MEMORY: &str = "memory";
/// Axis of the measurements: the length that is released.
pub const RELEASED_MIB: &str = "released_mib";

impl RealMemory {
    fn measured(&self) -> impl Iterator<Item = (MemoryKind, &Measured)> {
        self.kinds.iter().filter_map(|one| Some((one.kind, one.outcome.as_ref().ok()?)))
    }

    /// Returns the metric `gups`, updates in billions a second, by [`MEMORY`].
    pub fn updates(&self) -> Grid {
        let mut grid = Grid::new(&[MEMORY], self.plan.repeats as usize);
        for (kind, measured) in self.measured() {
            let runs = measured.gups.values.iter().map(|&gups| metrics([("gups", gups)]));
            grid.add(vec![kind.name().into()], &runs.collect::<Vec<_>>());
        }
        grid
    }

    /// Returns the metric `release_ns` by [`MEMORY`] and [`RELEASED_MIB`].
    pub fn releases(&self) -> Grid {
        let mut grid = Grid::new(&[MEMORY, RELEASED_MIB], self.plan.repeats as usize);
        for (kind, measured) in self.measured() {
            for release in &measured.releases {
                let runs = release.release_ns.values.iter();
                let runs: Vec<_> = runs.map(|&ns| metrics([("release_ns", ns)])).collect();
                let mib = release.len_bytes as f64 / f64::from(1 << 20);
                grid.add(vec![kind.name().into(), mib.into()], &runs);
            }
        }
        grid
    }

    /// Returns a sentence for each kind that this machine lacks.
    pub fn lacking(&self) -> Vec<String> {
        let lacking = self.kinds.iter().filter_map(|one| {
            let reason = one.outcome.as_ref().err()?;
            Some(format!("Without {}: {reason}.", one.kind.name()))
        });
        lacking.collect()
    }
}

impl HostFacts {
    /// The facts of this machine, those empty that the system does not tell.
    pub fn here() -> Self {
        host_facts()
    }

    /// The machine in words.
    pub fn describe(&self) -> String {
        let Self { processor, processors, kernel_release, transparent_enabled, .. } = self;
        format!(
            "{processor}, {processors} processors, Linux {kernel_release}, transparent huge pages: \
             {transparent_enabled}"
        )
    }
}

/// A parent's request to a child.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    kind: MemoryKind,
    plan: MemoryPlan,
}

/// A child's answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    huge_bytes: u64,
    gups: f64,
    /// Of the table's words after the updates.
    sum: u64,
    wrong_words: u64,
    /// Nanoseconds to touch and to release, in the plan's order.
    releases: Vec<(f64, f64)>,
}

const HUGE_BYTES: u64 = 2 << 20;

impl MemoryPlan {
    fn check(&self) -> Result<(), MemoryError> {
        let plan = |what| Err(MemoryError::Plan { what });
        if !self.table_bytes.is_power_of_two() || self.table_bytes < HUGE_BYTES {
            return plan("a table that is not 2^n bytes, 2 MiB or more");
        }
        if self.release_bytes.iter().any(|&len| len == 0 || !len.is_multiple_of(HUGE_BYTES / 2)) {
            return plan("a length to release that is no multiple of 1 MiB");
        }
        if self.repeats == 0 || self.updates == 0 {
            return plan("no repeats or no updates");
        }
        Ok(())
    }

    fn largest_bytes(&self) -> u64 {
        self.release_bytes.iter().copied().fold(self.table_bytes, u64::max)
    }
}

/// Measures all kinds of memory. `child` gives the command that calls [`child`]
/// with a request.
///
/// Takes, on each kind and repeat, two passes of the plan's updates and the
/// touching of all its lengths.
///
/// # Errors
/// A [`MemoryError`]. A kind of memory that this machine lacks is none: it is
/// that kind's outcome.
pub fn measure(
    child: &dyn Fn(&str) -> std::io::Result<Command>,
    plan: &MemoryPlan,
) -> Result<RealMemory, MemoryError> {
    if !cfg!(target_os = "linux") {
        return Err(MemoryError::Unsupported { os: std::env::consts::OS });
    }
    plan.check()?;
    let host = host_facts();
    let meminfo = read("/proc/meminfo");
    let available_bytes = kib_of(&meminfo, "MemAvailable:").unwrap_or(0) << 10;
    let needs_bytes = plan.largest_bytes();
    if available_bytes / 2 < needs_bytes {
        return Err(MemoryError::TooLarge { needs_bytes, available_bytes });
    }
    let nothing = || {
        let release = |&len_bytes| {
            let (touch_ns, release_ns) = (Runs::default(), Runs::default());
            Release { len_bytes, touch_ns, release_ns }
        };
        let releases = plan.release_bytes.iter().map(release).collect();
        Ok(Measured { huge_bytes: Runs::default(), gups: Runs::default(), releases })
    };
    let mut kinds = MemoryKind::ALL.map(|kind| KindResult { kind, outcome: nothing() });
    let mut sum: Option<(MemoryKind, u64)> = None;
    for _ in 0..plan.repeats {
        for KindResult { kind, outcome } in &mut kinds {
            if let Ok(measured) = outcome {
                match ask(child, *kind, plan)? {
                    Err(reason) => *outcome = Err(reason),
                    Ok(answer) if answer.wrong_words > 0 => {
                        let words = answer.wrong_words;
                        return Err(MemoryError::Wrong { kind: *kind, words });
                    }
                    Ok(answer) => {
                        let (other, known) = *sum.get_or_insert((*kind, answer.sum));
                        if known != answer.sum {
                            return Err(MemoryError::Differs { kind: *kind, other });
                        }
                        measured.huge_bytes.values.push(answer.huge_bytes as f64);
                        measured.gups.values.push(answer.gups);
                        for (release, (touch, free)) in
                            measured.releases.iter_mut().zip(answer.releases)
                        {
                            release.touch_ns.values.push(touch);
                            release.release_ns.values.push(free);
                        }
                    }
                }
            }
        }
    }
    Ok(RealMemory { plan: plan.clone(), host, kinds: kinds.into() })
}

/// One process's answer, or the reason for there being none.
fn ask(
    child: &dyn Fn(&str) -> std::io::Result<Command>,
    kind: MemoryKind,
    plan: &MemoryPlan,
) -> Result<Result<Answer, String>, MemoryError> {
    let request = Request { kind, plan: plan.clone() };
    let request = serde_json::to_string(&request).map_err(std::io::Error::other)?;
    let output = child(&request)?.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        // The kernel ends a process for which it has no huge page left.
        return Ok(Err(format!("the process that measured ended with {}", output.status)));
    }
    let answer: Result<Answer, String> =
        serde_json::from_slice(&output.stdout).map_err(std::io::Error::other)?;
    let whole = |answer: &Answer| answer.releases.len() == plan.release_bytes.len();
    if answer.as_ref().is_ok_and(|answer| !whole(answer)) {
        return Err(std::io::Error::other("an answer to another question").into());
    }
    Ok(answer)
}

/// Measures in the child that [`measure`] has started, as `request` says, and
/// returns the text to print on standard output.
///
/// # Errors
/// A request that no parent made, and memory that the system refuses.
pub fn child(request: &str) -> Result<String, MemoryError> {
    let request: Request = serde_json::from_str(request).map_err(std::io::Error::other)?;
    request.plan.check()?;
    let answer = system::measure(request.kind, &request.plan)?;
    Ok(serde_json::to_string(&answer).map_err(std::io::Error::other)?)
}

/// A file's text, empty if it cannot be read.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The number after `label` in text of `LABEL NUMBER kB` lines.
pub(crate) fn kib_of(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_whitespace().next()?.parse().ok()
}

fn host_facts() -> HostFacts {
    let one_line = |path: &str| read(path).trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let meminfo = read("/proc/meminfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let processor = model.map_or("", |line| line.trim_start_matches([' ', '\t', ':']));
    let transparent = "/sys/kernel/mm/transparent_hugepage";
    HostFacts {
        processor: processor.to_owned(),
        processors: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
        kernel_release: one_line("/proc/sys/kernel/osrelease"),
        transparent_enabled: one_line(&format!("{transparent}/enabled")),
        transparent_defrag: one_line(&format!("{transparent}/defrag")),
        transparent_bytes: one_line(&format!("{transparent}/hpage_pmd_size")).parse().unwrap_or(0),
        hugetlb_pages: kib_of(&meminfo, "HugePages_Total:").unwrap_or(0),
        memory_bytes: kib_of(&meminfo, "MemTotal:").unwrap_or(0) << 10,
    }
}

/// Bytes on huge pages in the mapping of `/proc/PID/smaps` that `addr` lies
/// in: transparent ones, and hugetlb's private ones.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn huge_bytes(smaps: &str, addr: u64) -> u64 {
    let mut here = false;
    let mut kib = 0;
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        if let Some((Some(start), Some(end))) = range.map(|(s, e)| (hex(s), hex(e))) {
            here = (start..end).contains(&addr);
        } else if here {
            kib += kib_of(line, "AnonHugePages:").unwrap_or(0);
            kib += kib_of(line, "Private_Hugetlb:").unwrap_or(0);
        }
    }
    kib << 10
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    pub(super) fn measure(
        _: MemoryKind,
        _: &MemoryPlan,
    ) -> Result<Result<Answer, String>, MemoryError> {
        Err(MemoryError::Unsupported { os: std::env::consts::OS })
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::hint::black_box;
    use std::io;
    use std::time::Instant;

    use memmap2::{Advice, MmapMut, MmapOptions};

    use super::*;
    use crate::papers::superpages::benchmark::{gups_next, gups_start};

    const BASE_BYTES: usize = 4096;

    /// Memory of a kind, of which `bytes` starts at a multiple of 2 MiB, as
    /// huge pages need it.
    struct Memory {
        map: MmapMut,
        start: usize,
        len: usize,
    }

    impl Memory {
        /// The reason in words, if this machine does not offer it.
        fn new(kind: MemoryKind, len_bytes: u64) -> Result<Result<Self, String>, MemoryError> {
            let too_large = |_| io::Error::other("more bytes than this processor can address");
            let len = usize::try_from(len_bytes).map_err(too_large)?;
            let mut options = MmapOptions::new();
            let advice = match kind {
                MemoryKind::HugeTlb => {
                    let len = len.next_multiple_of(HUGE_BYTES as usize);
                    let map = match options.len(len).huge(Some(21)).map_anon() {
                        Ok(map) => map,
                        Err(error) => {
                            return Ok(Err(format!(
                                "{error}: {} pages of 2 MiB are free, {} are needed \
                             (/proc/sys/vm/nr_hugepages)",
                                kib_of(&read("/proc/meminfo"), "HugePages_Free:").unwrap_or(0),
                                len_bytes / HUGE_BYTES,
                            )));
                        }
                    };
                    return Ok(Ok(Self { map, start: 0, len }));
                }
                MemoryKind::Base => Advice::NoHugePage,
                MemoryKind::Transparent => Advice::HugePage,
            };
            let map = options.len(len + HUGE_BYTES as usize).map_anon()?;
            if let Err(error) = map.advise(advice) {
                return match kind {
                    MemoryKind::Transparent => Ok(Err(format!("{error}: no transparent pages"))),
                    // A kernel without them has none to refuse.
                    _ if error.raw_os_error() == Some(22) => {
                        let start = map.as_ptr().align_offset(HUGE_BYTES as usize);
                        Ok(Ok(Self { map, start, len }))
                    }
                    _ => Err(error.into()),
                };
            }
            let start = map.as_ptr().align_offset(HUGE_BYTES as usize);
            Ok(Ok(Self { map, start, len }))
        }

        fn bytes(&mut self) -> &mut [u8] {
            &mut self.map[self.start..self.start + self.len]
        }

        /// Writes a word to each base page.
        fn touch(&mut self) {
            for page in self.bytes().chunks_mut(BASE_BYTES) {
                page[0] = 1;
            }
            black_box(self.bytes());
        }

        fn huge_bytes(&self) -> u64 {
            let addr = self.map[self.start..].as_ptr().addr() as u64;
            huge_bytes(&read("/proc/self/smaps"), addr)
        }
    }

    /// RandomAccess's updates, as fast as this processor makes them.
    fn update(table: &mut [[u8; 8]], plan: &MemoryPlan) {
        let mask = table.len() - 1;
        let mut ran = gups_start(plan.seed);
        for _ in 0..plan.updates {
            ran = gups_next(ran);
            let word = &mut table[ran as usize & mask];
            *word = (u64::from_ne_bytes(*word) ^ ran).to_ne_bytes();
        }
    }

    pub(super) fn measure(
        kind: MemoryKind,
        plan: &MemoryPlan,
    ) -> Result<Result<Answer, String>, MemoryError> {
        let mut memory = match Memory::new(kind, plan.table_bytes)? {
            Ok(memory) => memory,
            Err(reason) => return Ok(Err(reason)),
        };
        let (table, _) = memory.bytes().as_chunks_mut::<8>();
        for (i, word) in (0u64..).zip(table.iter_mut()) {
            *word = i.to_ne_bytes();
        }
        let huge_bytes = memory.huge_bytes();
        if kind == MemoryKind::Transparent && huge_bytes == 0 {
            return Ok(Err("the kernel gave not one transparent huge page".to_owned()));
        }
        if kind == MemoryKind::Base && huge_bytes > 0 {
            return Ok(Err("the kernel gave huge pages that were not asked for".to_owned()));
        }
        let (table, _) = memory.bytes().as_chunks_mut::<8>();
        let start = Instant::now();
        update(table, plan);
        let seconds = start.elapsed().as_secs_f64();
        let words = || table.iter().map(|word| u64::from_ne_bytes(*word));
        // A word counts with its place, or exchanged words would not show.
        let sum = (1u64..)
            .zip(words())
            .fold(0u64, |sum, (i, word)| sum.wrapping_add(word.wrapping_mul(2 * i + 1)));
        update(table, plan);
        let words = table.iter().map(|word| u64::from_ne_bytes(*word));
        let wrong_words = (0u64..).zip(words).filter(|(i, word)| i != word).count() as u64;
        drop(memory);

        let mut releases = Vec::new();
        for &len_bytes in &plan.release_bytes {
            let mut memory = match Memory::new(kind, len_bytes)? {
                Ok(memory) => memory,
                Err(reason) => return Ok(Err(reason)),
            };
            let start = Instant::now();
            memory.touch();
            let touched = start.elapsed();
            let start = Instant::now();
            drop(memory);
            let released = start.elapsed();
            releases.push((touched.as_nanos() as f64, released.as_nanos() as f64));
        }
        let gups = plan.updates as f64 / seconds / 1e9;
        Ok(Ok(Answer { huge_bytes, gups, sum, wrong_words, releases }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_in_smaps() {
        let smaps = "\
7f00000000-7f00400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      2048 kB
VmFlags: rd wr
7f00400000-7f00800000 rw-p 00000000 00:0f 1   /anon_hugepage (deleted)
AnonHugePages:         0 kB
Private_Hugetlb:    4096 kB
";
        assert_eq!(huge_bytes(smaps, 0x7f_0000_0000), 2 << 20);
        assert_eq!(huge_bytes(smaps, 0x7f_003f_ffff), 2 << 20);
        assert_eq!(huge_bytes(smaps, 0x7f_0040_0000), 4 << 20);
        assert_eq!(huge_bytes(smaps, 0x7f_0080_0000), 0);
        assert_eq!(kib_of(smaps, "Size:"), Some(4096));
        assert_eq!(kib_of(smaps, "Rss:"), None);
    }

    #[test]
    fn plans_and_requests_that_are_refused() {
        let plan = MemoryPlan {
            table_bytes: 2 << 20,
            updates: 1,
            seed: 0,
            release_bytes: vec![2 << 20],
            repeats: 1,
        };
        assert!(plan.check().is_ok());
        for bad in [
            MemoryPlan { table_bytes: 3 << 20, ..plan.clone() },
            MemoryPlan { table_bytes: 1 << 20, ..plan.clone() },
            MemoryPlan { release_bytes: vec![0], ..plan.clone() },
            MemoryPlan { release_bytes: vec![4096], ..plan.clone() },
            MemoryPlan { repeats: 0, ..plan.clone() },
            MemoryPlan { updates: 0, ..plan },
        ] {
            let request = Request { kind: MemoryKind::Base, plan: bad };
            let request = serde_json::to_string(&request).unwrap();
            assert!(matches!(child(&request), Err(MemoryError::Plan { .. })), "{request}");
        }
        assert!(child("{}").is_err());
        assert!(child("").is_err());
    }
}

//! Machine snapshots: what each frame of a real machine was used for.
//!
//! A [`Snapshot`] is a list of runs of frames of one [`FrameKind`] over the
//! machine's RAM, with the few facts needed to judge it.
//! [`capture`](crate::machine::capture) takes one from a live Linux machine, and
//! its own methods read and write its file.
//!
//! **Unknown frames.** Linux marks a frame as free only once the buddy
//! allocator has it. A frame without any flag and without a mapping is one of
//! three: not yet initialised by the kernel (deferred initialisation leaves
//! gigabytes so), free in a per-CPU list, or handed to kernel code that marks
//! nothing. They cannot be told apart frame by frame, so they are
//! [`FrameKind::Unknown`], and a study says how it counts them
//! ([`UnknownFrames`]).

use serde::Serialize;
use swath_arch::{BASE_PAGE_BYTES, BASE_PAGE_SHIFT, Extent, Pfn, PhysAddr};

use crate::container::Misfit;
use crate::histogram::Histogram;
use crate::machine::facts::{MachineFacts, check_facts};

/// The most runs a snapshot may have: 512 MiB of memory once read, enough for
/// 256 GiB of RAM in which no two neighbours are alike.
pub const RUNS_MAX: usize = 1 << 26;

/// The most RAM ranges.
pub const RANGES_MAX: usize = 1 << 12;

/// Use of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FrameKind {
    /// No flag and no mapping: not initialised yet, in a per-CPU list, or used
    /// by kernel code that marks nothing.
    Unknown = 0,
    /// In the kernel's buddy allocator.
    Free = 1,
    /// Page cache and other mapped files; movable.
    File = 2,
    /// Anonymous memory of processes; movable.
    Anon = 3,
    /// Part of a folio of several frames (transparent huge page or smaller),
    /// of anonymous memory or of a file; movable.
    LargeFolio = 4,
    /// Part of a hugetlbfs page.
    HugeTlb = 5,
    /// Kernel objects of the slab allocator.
    Slab = 6,
    /// A page table.
    PageTable = 7,
    /// Any other use by the kernel.
    Kernel = 8,
    /// Reserved: the kernel's image, firmware, the zero page.
    Reserved = 9,
    /// Offline (hot-removed, ballooned) or poisoned by a hardware error.
    Offline = 10,
    /// RAM by the map, but the kernel keeps no record of the frame.
    Absent = 11,
}

impl FrameKind {
    /// Number of kinds.
    pub const COUNT: usize = 12;

    /// Every kind, in the order of the codes in the file.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Unknown,
        Self::Free,
        Self::File,
        Self::Anon,
        Self::LargeFolio,
        Self::HugeTlb,
        Self::Slab,
        Self::PageTable,
        Self::Kernel,
        Self::Reserved,
        Self::Offline,
        Self::Absent,
    ];

    /// The kinds whose frames can be moved. Linux does not show which of them are pinned.
    pub const MOVABLE: [Self; 4] = [Self::File, Self::Anon, Self::LargeFolio, Self::HugeTlb];

    /// Returns true if its frames can be moved.
    pub fn is_movable(self) -> bool {
        Self::MOVABLE.contains(&self)
    }

    /// Returns true if its frames are free.
    pub fn is_free(self, unknown: UnknownFrames) -> bool {
        match self {
            Self::Free => true,
            Self::Unknown => unknown == UnknownFrames::Free,
            _ => false,
        }
    }

    /// The kind's code in the file.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The kind of a code, or `None` for a code that means nothing.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The kind's name, as in the JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Free => "free",
            Self::File => "file",
            Self::Anon => "anon",
            Self::LargeFolio => "large_folio",
            Self::HugeTlb => "huge_tlb",
            Self::Slab => "slab",
            Self::PageTable => "page_table",
            Self::Kernel => "kernel",
            Self::Reserved => "reserved",
            Self::Offline => "offline",
            Self::Absent => "absent",
        }
    }
}

/// Rule by which a study counts [`FrameKind::Unknown`] frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownFrames {
    /// As used: nothing is called free that may not be.
    #[default]
    Used,
    /// As free: right for a machine most of whose memory the kernel has not
    /// initialised yet, and slightly too much on any other.
    Free,
}

/// A range of RAM in bytes, as the firmware gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
pub struct RamRange {
    /// Address of the first byte.
    #[serde(serialize_with = "raw_address")]
    pub start: PhysAddr,
    /// Length in bytes.
    pub len_bytes: u64,
}

fn raw_address<S: serde::Serializer>(addr: &PhysAddr, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(addr.raw())
}

impl RamRange {
    /// The frames that lie in the range as a whole. O(1).
    pub fn frames(self) -> Extent {
        let start = self.start.raw();
        let first = start.div_ceil(BASE_PAGE_BYTES);
        let end = start.saturating_add(self.len_bytes) >> BASE_PAGE_SHIFT;
        Extent::new(Pfn::new(first), end.saturating_sub(first))
    }
}

/// Frames that follow one another and are of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRun {
    /// The frames.
    pub extent: Extent,
    /// Their kind.
    pub kind: FrameKind,
}

/// The kinds of all frames of a machine's RAM.
///
/// Invariants (walked by [`Snapshot::check`]): the ranges ascend with at least
/// a byte between them; the runs tile the ranges' whole frames, none is empty,
/// none crosses from one range into the next, and neighbours within a range
/// differ in kind. So two equal machines have equal snapshots, and the file is
/// a function of the snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    facts: MachineFacts,
    ranges: Vec<RamRange>,
    /// `count << 4 | kind`, as in the file.
    runs: Vec<u64>,
}

/// A count of frames fits beside the kind's four bits.
const COUNT_LIMIT: u64 = 1 << (64 - BASE_PAGE_SHIFT);

fn split(run: u64) -> (u64, Option<FrameKind>) {
    (run >> 4, FrameKind::from_code(run as u8 & 15))
}

/// Puts a snapshot together frame by frame or run by run, in ascending order.
#[derive(Debug)]
pub(crate) struct Builder {
    snapshot: Snapshot,
    /// The frames of each range that are still to come, by range.
    range: usize,
    left: u64,
}

impl Builder {
    pub(crate) fn new(facts: MachineFacts, ranges: Vec<RamRange>) -> Result<Self, Misfit> {
        check_facts(&facts)?;
        check_ranges(&ranges)?;
        let mut builder =
            Self { snapshot: Snapshot { facts, ranges, runs: Vec::new() }, range: 0, left: 0 };
        builder.left = builder.range_frames(0);
        builder.skip_empty();
        Ok(builder)
    }

    fn range_frames(&self, index: usize) -> u64 {
        self.snapshot.ranges.get(index).map_or(0, |range| range.frames().count)
    }

    /// Moves on to the next range with frames; whether it did.
    fn skip_empty(&mut self) {
        while self.left == 0 && self.range < self.snapshot.ranges.len() {
            self.range += 1;
            self.left = self.range_frames(self.range);
        }
    }

    /// Returns true if all frames of all ranges are there.
    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Adds a run as the file has it.
    pub(crate) fn push(&mut self, run: u64) -> Result<(), Misfit> {
        let (count, kind) = split(run);
        let Some(kind) = kind else { return Err("a kind of frame that does not exist") };
        if count == 0 {
            return Err("a run of no frames");
        }
        if count > self.left {
            return Err("a run beyond the end of its RAM range");
        }
        let starts_range = self.left == self.range_frames(self.range);
        let last = self.snapshot.runs.last().map(|&run| split(run).1);
        if !starts_range && last == Some(Some(kind)) {
            return Err("two runs of the same kind in a row");
        }
        if self.snapshot.runs.len() == RUNS_MAX {
            return Err("more runs than a snapshot may have");
        }
        self.snapshot.runs.push(run);
        self.left -= count;
        self.skip_empty();
        Ok(())
    }

    /// Adds frames that may continue the run before.
    pub(crate) fn extend(&mut self, kind: FrameKind, count: u64) -> Result<(), Misfit> {
        let run = count << 4 | u64::from(kind.code());
        let starts_range = self.left == self.range_frames(self.range);
        match self.snapshot.runs.last_mut() {
            Some(last) if !starts_range && split(*last).1 == Some(kind) && count <= self.left => {
                *last += count << 4;
                self.left -= count;
                self.skip_empty();
                Ok(())
            }
            _ => self.push(run),
        }
    }

    pub(crate) fn finish(self) -> Result<Snapshot, Misfit> {
        if self.is_complete() { Ok(self.snapshot) } else { Err("frames without a kind") }
    }
}

fn check_ranges(ranges: &[RamRange]) -> Result<(), Misfit> {
    if ranges.len() > RANGES_MAX {
        return Err("more RAM ranges than a snapshot may have");
    }
    let mut end = None;
    for range in ranges {
        let start = range.start.raw();
        if range.len_bytes == 0 {
            return Err("a RAM range of no bytes");
        }
        if end.is_some_and(|end| start <= end) {
            return Err("RAM ranges that touch, overlap or do not ascend");
        }
        let Some(next) = start.checked_add(range.len_bytes) else {
            return Err("a RAM range beyond the last address");
        };
        end = Some(next);
    }
    Ok(())
}

impl Snapshot {
    /// The snapshot of a machine with these runs, ascending, where runs of one
    /// kind may follow one another. O(runs).
    ///
    /// # Errors
    /// What is wrong: ranges that are empty, touch, overlap or do not ascend,
    /// names that are no printable ASCII, or runs that do not cover exactly
    /// the frames of the ranges.
    pub fn new(
        facts: MachineFacts,
        ranges: Vec<RamRange>,
        runs: impl IntoIterator<Item = (FrameKind, u64)>,
    ) -> Result<Self, &'static str> {
        let mut builder = Builder::new(facts, ranges)?;
        for (kind, count) in runs {
            if count >= COUNT_LIMIT {
                return Err("a run beyond the end of its RAM range");
            }
            builder.extend(kind, count)?;
        }
        builder.finish()
    }

    /// Returns the kernel's account of its memory.
    pub fn facts(&self) -> &MachineFacts {
        &self.facts
    }

    /// The RAM, in bytes, ascending: the usable ranges of a memory map.
    pub fn ranges(&self) -> &[RamRange] {
        &self.ranges
    }

    /// The runs, ascending. O(1) for each.
    pub fn runs(&self) -> impl Iterator<Item = FrameRun> + '_ {
        let mut ranges = self.ranges.iter().map(|range| range.frames());
        let mut rest = Extent::default();
        self.runs.iter().filter_map(move |&run| {
            while rest.is_empty() {
                rest = ranges.next()?;
            }
            let (count, kind) = split(run);
            let extent = Extent::new(rest.start, count);
            rest = Extent::new(extent.end(), rest.count - count);
            Some(FrameRun { extent, kind: kind? })
        })
    }

    /// The free frames as extents, ascending, each as long as it can be
    /// within its RAM range. O(runs) for all.
    pub fn free_extents(&self, unknown: UnknownFrames) -> impl Iterator<Item = Extent> + '_ {
        let mut runs = self
            .runs()
            .filter(move |run| run.kind.is_free(unknown))
            .map(|run| run.extent)
            .peekable();
        std::iter::from_fn(move || {
            let mut extent = runs.next()?;
            // A free run beside an unknown one; ranges never touch.
            while let Some(next) = runs.next_if(|next| next.start == extent.end()) {
                extent.count += next.count;
            }
            Some(extent)
        })
    }

    /// Counts and histograms. O(runs).
    pub fn summary(&self) -> SnapshotSummary {
        let mut frames = [0; FrameKind::COUNT];
        for run in self.runs() {
            frames[usize::from(run.kind.code())] += run.extent.count;
        }
        let lengths = |unknown| self.free_extents(unknown).map(|extent| extent.count).collect();
        SnapshotSummary {
            frames,
            runs: self.runs.len() as u64,
            free: lengths(UnknownFrames::Used),
            free_or_unknown: lengths(UnknownFrames::Free),
        }
    }

    /// Walks every invariant of the struct. O(ranges + runs).
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut builder = Builder::new(self.facts.clone(), self.ranges.clone())?;
        for &run in &self.runs {
            builder.push(run)?;
        }
        builder.finish().map(drop)
    }
}

/// A snapshot in figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SnapshotSummary {
    /// Frames of each kind, by [`FrameKind::code`].
    pub frames: [u64; FrameKind::COUNT],
    /// Runs in all.
    pub runs: u64,
    /// The free extents by frames, unknown frames counted as used.
    pub free: Histogram,
    /// The free extents by frames, unknown frames counted as free.
    pub free_or_unknown: Histogram,
}

impl SnapshotSummary {
    /// Frames of one kind.
    pub fn count(&self, kind: FrameKind) -> u64 {
        self.frames[usize::from(kind.code())]
    }

    /// Frames of all kinds.
    pub fn total_frames(&self) -> u64 {
        self.frames.iter().sum()
    }

    /// Returns how many more frames are marked free than the kernel's own sum over
    /// its free lists says (negative: fewer). The two are read one after the
    /// other, so a busy machine differs by what it took and gave between.
    pub fn free_beyond_buddyinfo(&self, facts: &MachineFacts) -> i64 {
        self.count(FrameKind::Free).wrapping_sub(facts.buddy_frames) as i64
    }
}

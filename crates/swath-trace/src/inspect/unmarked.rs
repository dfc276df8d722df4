//! An account of the frames that Linux marks as nothing, and the mobility of its blocks.

use std::path::Path;

use serde::Serialize;
use swath_arch::BASE_PAGE_BYTES;

use crate::inspect::device_heap::DeviceHeap;
use crate::machine::record::{memory_frames, optional_text};
use crate::machine::{CaptureError, MachineFacts, UnknownFrames};

/// The fewest frames of a section of memory, over all architectures that defer their initialisation.
const SECTION_FRAMES: u64 = 1 << 15;

/// An account of the frames without a flag and without a mapping ([`FrameKind::Unknown`](crate::machine::FrameKind)).
///
/// Linux marks a frame once it is in the buddy allocator, in user memory, in slab or in a page
/// table. It keeps sums of what it marks nowhere else, which explain the others; which frame is
/// which it does not show. The sums are read a moment after the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Unmarked {
    /// Frames without a mark in all.
    pub frames: u64,
    /// Free frames that the kernel has not given to its buddy allocator yet: `MemFree` of
    /// `/proc/meminfo` beyond the sum over `/proc/buddyinfo`. Deferred initialisation leaves
    /// gigabytes so.
    pub not_initialised: u64,
    /// Free frames in the lists of single processors, of `/proc/zoneinfo`, at most.
    pub in_cpu_lists: u64,
    /// Held by Swath's heap for devices.
    pub device_heap: u64,
    /// Memory of `vmalloc`, at most: some of it is mapped.
    pub vmalloc: u64,
    /// Kernel stacks.
    pub stacks: u64,
    /// Data of single processors.
    pub per_cpu_data: u64,
    /// The rest: what the kernel's code, drivers and file systems above all, took from the page
    /// allocator without marking it.
    pub taken_by_code: u64,
}

/// The kernel's sums of its own memory, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KernelSums {
    /// `VmallocUsed` of `/proc/meminfo`, stacks included.
    pub vmalloc: u64,
    /// `KernelStack`.
    pub stacks: u64,
    /// `Percpu`.
    pub per_cpu_data: u64,
    /// Frames that Swath's heap for devices holds; 0 where there is none, or it is not for this user.
    pub device_heap: u64,
}

impl KernelSums {
    /// Reads the sums of the machine whose `/proc` stands at `proc`, and takes over what its heap for devices
    /// holds.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub fn read(proc: &Path, heap: Option<&DeviceHeap>) -> Result<Self, CaptureError> {
        let keys = ["VmallocUsed:", "KernelStack:", "Percpu:"];
        let [vmalloc, stacks, per_cpu_data] = memory_frames(proc, keys)?;
        let device_heap = heap.map_or(0, |heap| heap.held_bytes / BASE_PAGE_BYTES);
        Ok(Self { vmalloc, stacks, per_cpu_data, device_heap })
    }
}

impl Unmarked {
    /// Accounts for `frames` unmarked frames. A snapshot has the facts, not the kernel's sums.
    pub fn of(frames: u64, facts: &MachineFacts, sums: KernelSums) -> Self {
        let mut rest = frames;
        // Each takes what is left, so that the parts never exceed the whole.
        let mut part = |frames: u64| {
            let taken = frames.min(rest);
            rest -= taken;
            taken
        };
        let lists = facts.zones.iter().map(|zone| zone.per_cpu_frames);
        Self {
            frames,
            not_initialised: part(facts.free_frames.saturating_sub(facts.buddy_frames)),
            in_cpu_lists: part(lists.fold(0, u64::saturating_add)),
            device_heap: part(sums.device_heap),
            // Stacks lie in the area of vmalloc.
            stacks: part(sums.stacks),
            vmalloc: part(sums.vmalloc.saturating_sub(sums.stacks)),
            per_cpu_data: part(sums.per_cpu_data),
            taken_by_code: rest,
        }
    }

    /// Returns how to count units without any mark, which hold `frames`: as free where the kernel has as
    /// many to initialise still, to a tenth. It does that by sections of 128 MiB and more.
    pub const fn count_whole_as(&self, frames: u64) -> UnknownFrames {
        match frames >= SECTION_FRAMES && self.not_initialised / 9 >= frames / 10 {
            true => UnknownFrames::Free,
            false => UnknownFrames::Used,
        }
    }

    /// Returns the parts, each with its name.
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        [
            ("free, not initialised yet", self.not_initialised),
            ("free, in the lists of processors", self.in_cpu_lists),
            ("Swath's heap for devices", self.device_heap),
            ("vmalloc", self.vmalloc),
            ("kernel stacks", self.stacks),
            ("data of processors", self.per_cpu_data),
            ("taken by kernel code that marks nothing", self.taken_by_code),
        ]
    }
}

/// The blocks of one zone by the mobility that the kernel keeps in them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BlockTypes {
    /// The NUMA node.
    pub node: u64,
    /// The zone's name.
    pub zone: String,
    /// Each type's name, and its blocks.
    pub blocks: Vec<(String, u64)>,
}

/// Returns the last table of `/proc/pagetypeinfo`; nothing where the kernel or the rights have
/// none.
///
/// # Errors
/// [`CaptureError::Io`].
pub fn block_types(proc: &Path) -> Result<Vec<BlockTypes>, CaptureError> {
    let text = optional_text(&proc.join("pagetypeinfo"))?;
    Ok(text.map_or_else(Vec::new, |text| parse_block_types(&text)))
}

/// Lines `Node 0, zone Normal 118 10193 …` below `Number of blocks type Unmovable Movable …`.
fn parse_block_types(text: &str) -> Vec<BlockTypes> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("Number of blocks type"));
    let Some(head) = lines.next() else { return Vec::new() };
    let names: Vec<&str> = head.split_whitespace().skip(4).collect();
    let zone = |line: &str| {
        let mut words = line.split_whitespace();
        let ("Node", node, "zone", zone) =
            (words.next()?, words.next()?, words.next()?, words.next()?)
        else {
            return None;
        };
        let blocks = names.iter().zip(words);
        let blocks = blocks.map(|(&name, count)| Some((name.to_owned(), count.parse().ok()?)));
        Some(BlockTypes {
            node: node.trim_end_matches(',').parse().ok()?,
            zone: zone.to_owned(),
            blocks: blocks.collect::<Option<_>>()?,
        })
    };
    lines.map_while(zone).collect()
}

#[cfg(test)]
mod unit {
    use std::fs;

    use super::*;

    #[test]
    fn block_types_are_those_of_the_last_table() {
        let text = "Page block order: 9\nPages per block:  512\n\n\
            Free pages count per migrate type at order       0      1 \n\
            Node    0, zone      DMA, type    Unmovable      0      0 \n\n\
            Number of blocks type     Unmovable      Movable  Reclaimable \n\
            Node 0, zone      DMA            1            7            0 \n\
            Node 1, zone   Normal          118        10193          441 \n";
        let zones = parse_block_types(text);
        assert_eq!(zones.len(), 2);
        assert_eq!((zones[1].node, &*zones[1].zone), (1, "Normal"));
        let blocks = zones[1].blocks.iter().map(|(name, count)| (&**name, *count));
        let expected = [("Unmovable", 118), ("Movable", 10193), ("Reclaimable", 441)];
        assert!(blocks.eq(expected), "{zones:?}");
        assert_eq!(parse_block_types("Number of blocks type\nNode x"), []);
        assert_eq!(parse_block_types(""), []);
    }

    #[test]
    fn the_parts_never_exceed_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let text = "VmallocUsed: 4000 kB\nKernelStack: 400 kB\nPercpu: 80 kB\n";
        fs::write(folder.path().join("meminfo"), text).unwrap();
        fs::write(folder.path().join("swath_heap"), "held_bytes 28672\n").unwrap();
        let heap = DeviceHeap::read(folder.path()).unwrap();
        let sums = KernelSums::read(folder.path(), heap.as_ref()).unwrap();
        let facts = MachineFacts { free_frames: 50, buddy_frames: 40, ..MachineFacts::default() };
        for frames in [0, 5, 10, 15, 500, 5000] {
            let parts = Unmarked::of(frames, &facts, sums).parts();
            assert_eq!(parts.iter().map(|(_, frames)| frames).sum::<u64>(), frames);
        }
        let parts = Unmarked::of(5000, &facts, sums).parts().map(|(_, frames)| frames);
        assert_eq!(parts, [10, 0, 7, 900, 100, 20, 3963]);
    }

    #[test]
    fn units_without_a_mark_count_as_free_where_nine_of_ten_frames_are_to_be_initialised() {
        let facts = MachineFacts {
            free_frames: 1_000_000,
            buddy_frames: 100_000,
            ..MachineFacts::default()
        };
        let unmarked = Unmarked::of(2_000_000, &facts, KernelSums::default());
        assert_eq!(unmarked.count_whole_as(900_000), UnknownFrames::Free);
        assert_eq!(unmarked.count_whole_as(1_000_000), UnknownFrames::Free);
        assert_eq!(unmarked.count_whole_as(1_010_000), UnknownFrames::Used);
        // A few are no section.
        assert_eq!(unmarked.count_whole_as(SECTION_FRAMES - 1), UnknownFrames::Used);
        assert_eq!(unmarked.count_whole_as(0), UnknownFrames::Used);
    }

    #[test]
    fn a_missing_sum_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("meminfo"), "VmallocUsed: 4000 kB\n").unwrap();
        let error = KernelSums::read(folder.path(), None).unwrap_err().to_string();
        assert!(error.contains("KernelStack:"), "{error}");
    }
}

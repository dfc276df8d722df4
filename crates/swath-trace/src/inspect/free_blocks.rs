//! The largest free blocks of the kernel's buddy allocator, found without reading all of their frames.
//!
//! Of a free frame Linux looks up the block that holds it, order by order, which takes it several
//! times as long as a frame in use. A machine that is mostly free would so be the slowest to read.

use std::path::Path;

use swath_arch::{Extent, Pfn};

use crate::machine::record::{Frames, free_blocks};
use crate::machine::{
    CaptureError, FrameKind, FreeBlocks, MachineFacts, RamRange, ZoneFacts, classify,
};

/// The order below which the frames of a block are read: those of a unit of 2 MiB.
const ORDER_MIN: u32 = 9;

/// The order above which a count of blocks is not believed: no kernel has such.
const ORDER_MAX: u32 = 20;

/// The most frames of a block that are asked for.
const ASKED_MAX: u64 = 32;

/// So few blocks that are taken for free wrongly are looked for by one frame after the other.
const WRONG_FEW: u64 = 32;

/// Frames of each block that are asked for before it is counted how many were.
const ASKED_FIRST: usize = 8;

/// So many frames are asked for after those, in 2 ms.
const ASKED_MORE_MAX: u64 = 4096;

/// Blocks of a zone that are asked first, of more.
const SAMPLE_BLOCKS: usize = 64;

/// The frames of a block by which nearly all that are in use turn out to be, unless memory is free in pieces.
const TELLING: usize = 4;

/// Returns the free blocks of the largest order of the machine whose `/proc` stands at `proc`,
/// ascending within a zone: all of a zone's or none.
///
/// All frames of such a block are free, so the true ones are among the aligned blocks of which some
/// frame is free, whichever. The kernel says how many true ones there are, in `/proc/buddyinfo`:
/// frame after frame is asked for until as many are left, which then are the true ones. A frame far
/// from the one before takes the kernel as long as ten in a row, so where more are left and few of
/// them turn out to be in use, as in memory that is free in pieces, which a sample of the blocks
/// shows, or where the count has changed meanwhile, nothing is said of the zone. O(blocks of RAM),
/// 32 frames of each at most.
///
/// # Errors
/// [`CaptureError`].
pub(crate) fn largest_free_blocks(
    proc: &Path,
    facts: &MachineFacts,
    ranges: &[RamRange],
) -> Result<Vec<Extent>, CaptureError> {
    let mut frames = Frames::open(proc)?;
    let mut found = Vec::new();
    let before = free_blocks(proc)?;
    for lists in &before {
        let is_its = |zone: &&ZoneFacts| zone.node == lists.node && zone.name == lists.zone;
        let Some(zone) = facts.zones.iter().find(is_its) else { continue };
        if let Some((order, count)) = largest(lists) {
            found.push((lists, free_in_zone(&mut frames, zone, ranges, order, count)?));
        }
    }
    let after = free_blocks(proc)?;
    let is_still = |lists: &FreeBlocks| {
        let now = after.iter().find(|now| now.node == lists.node && now.zone == lists.zone);
        now.and_then(largest) == largest(lists)
    };
    found.retain(|(lists, _)| is_still(lists));
    Ok(found.into_iter().flat_map(|(_, blocks)| blocks).collect())
}

/// The largest order and the number of its blocks, if there are any and they hold whole units.
fn largest(lists: &FreeBlocks) -> Option<(u32, u64)> {
    let (&count, lower) = lists.blocks.split_last()?;
    let order = lower.len() as u32;
    (count > 0 && (ORDER_MIN..=ORDER_MAX).contains(&order)).then_some((order, count))
}

/// The free blocks of the order in a zone that has `count` of them, if they can be told.
fn free_in_zone(
    frames: &mut Frames,
    zone: &ZoneFacts,
    ranges: &[RamRange],
    order: u32,
    count: u64,
) -> Result<Vec<Extent>, CaptureError> {
    let size = 1 << order;
    let zone_end = zone.start_frame.saturating_add(zone.spanned_frames);
    let within = ranges.iter().flat_map(|range| {
        let (first, end) = (range.frames().start.raw(), range.frames().end().raw());
        let first = first.max(zone.start_frame).checked_next_multiple_of(size).unwrap_or(end);
        let blocks = end.min(zone_end).saturating_sub(first) / size;
        (0..blocks).map(move |i| Extent::new(Pfn::new(first + i * size), size))
    });
    let mut left: Vec<_> = within.collect();
    // The last frame of the block, of its first half, of the quarters between, and so on.
    let asked = (0..size.min(ASKED_MAX)).map(|i| !i.reverse_bits() >> (u64::BITS - order));
    let mut is_free = |block: &Extent, offset| {
        let flags = frames.flags(Pfn::new(block.start.raw() + offset))?;
        Ok::<_, CaptureError>(classify(flags) == FrameKind::Free)
    };
    let sample_step = left.len().div_ceil(SAMPLE_BLOCKS);
    if sample_step > 1 {
        for block in left.iter().step_by(sample_step) {
            for (i, offset) in asked.clone().enumerate() {
                match is_free(block, offset)? {
                    true => {}
                    false if i < TELLING => break,
                    false => return Ok(Vec::new()),
                }
            }
        }
    }
    let mut asked_more = 0;
    for (i, offset) in asked.enumerate() {
        let before = left.len() as u64;
        let mut free = Vec::new();
        for block in left {
            if is_free(&block, offset)? {
                free.push(block);
            }
        }
        left = free;
        let wrong = (left.len() as u64).saturating_sub(count);
        // Where a frame finds few of those that are wrong, the next finds fewer still. Of a handful it
        // is chance, but after some frames it is most likely that few of theirs are in use.
        let found = before - left.len() as u64;
        asked_more += if i < ASKED_FIRST { 0 } else { before };
        if wrong == 0 || wrong > WRONG_FEW && found < wrong / 3 * 2 || asked_more > ASKED_MORE_MAX {
            break;
        }
    }
    // Fewer: the kernel took some meanwhile.
    Ok(if left.len() as u64 == count { left } else { Vec::new() })
}

#[cfg(test)]
mod unit {
    use std::fs;

    use swath_arch::PhysAddr;

    use super::*;

    const BUDDY: u64 = 1 << 10;
    const SIZE: usize = 1 << 10;

    /// A zone of eight blocks of order 10 from the second on, the last with a hole, of which `buddyinfo` counts some as free.
    struct Machine {
        dir: tempfile::TempDir,
        flags: Vec<u64>,
    }

    impl Machine {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap(), flags: vec![BUDDY; 9 * SIZE] }
        }

        fn largest(&self, counted: u64) -> Vec<u64> {
            let bytes: Vec<u8> = self.flags.iter().flat_map(|word| word.to_ne_bytes()).collect();
            fs::write(self.dir.path().join("kpageflags"), bytes).unwrap();
            let lists =
                format!("Node 0, zone DMA 1\nNode 0, zone Normal{} {counted}\n", " 7".repeat(10));
            fs::write(self.dir.path().join("buddyinfo"), lists).unwrap();
            let size = SIZE as u64;
            let zone = ZoneFacts {
                name: "Normal".into(),
                start_frame: size,
                spanned_frames: 8 * size,
                ..ZoneFacts::default()
            };
            let facts = MachineFacts { zones: vec![zone], ..MachineFacts::default() };
            let range = |start: u64, end: u64| RamRange {
                start: PhysAddr::new(start << 12),
                len_bytes: (end - start) << 12,
            };
            let ranges = [range(1, 8 * size + 100), range(8 * size + 101, 9 * size)];
            let found = largest_free_blocks(self.dir.path(), &facts, &ranges).unwrap();
            found.iter().map(|block| block.start.raw() / size).collect()
        }
    }

    #[test]
    fn all_blocks_are_found_where_the_kernel_counts_as_many() {
        let mut machine = Machine::new();
        // The blocks at the edges of the zone and with a hole do not count.
        assert_eq!(machine.largest(7), [1, 2, 3, 4, 5, 6, 7]);
        for (block, used) in [(2, 31), (3, SIZE - 1), (5, 255), (7, 32 * 9 - 1)] {
            machine.flags[block * SIZE + used] = 1 << 5;
        }
        assert_eq!(machine.largest(3), [1, 4, 6]);
    }

    #[test]
    fn nothing_is_said_where_the_counts_differ() {
        let mut machine = Machine::new();
        assert_eq!(machine.largest(8), []);
        // None of the frames that are asked for is used.
        machine.flags[4 * SIZE + 700] = 1 << 7;
        assert_eq!(machine.largest(6), []);
        assert_eq!(machine.largest(0), []);
    }

    #[test]
    fn a_sample_shows_memory_that_is_free_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let (blocks, size) = (200u64, SIZE as u64);
        let mut flags = vec![BUDDY; blocks as usize * SIZE];
        let write = |flags: &[u64]| {
            let bytes: Vec<u8> = flags.iter().flat_map(|word| word.to_ne_bytes()).collect();
            fs::write(dir.path().join("kpageflags"), bytes).unwrap();
        };
        let zone = ZoneFacts { spanned_frames: blocks * size, ..ZoneFacts::default() };
        let ranges = [RamRange { start: PhysAddr::new(0), len_bytes: (blocks * size) << 12 }];
        let found = |count| {
            let mut frames = Frames::open(dir.path()).unwrap();
            free_in_zone(&mut frames, &zone, &ranges, 10, count).unwrap().len() as u64
        };
        // Whole blocks in use, each found by the first frame.
        for block in (0..blocks as usize).step_by(3) {
            flags[block * SIZE..(block + 1) * SIZE].fill(1 << 5);
        }
        write(&flags);
        let free = blocks - blocks.div_ceil(3);
        assert_eq!(found(free), free);
        // One that only the 32nd frame shows, outside of the sample and in it.
        flags[5 * SIZE + 31] = 1 << 7;
        write(&flags);
        assert_eq!(found(free - 1), free - 1);
        flags[4 * SIZE + 31] = 1 << 7;
        write(&flags);
        assert_eq!(found(free - 2), 0);
    }

    #[test]
    fn a_table_that_ends_early_holds_no_free_frame() {
        let mut machine = Machine::new();
        machine.flags.truncate(4 * SIZE + 1);
        assert_eq!(machine.largest(3), [1, 2, 3]);
    }
}

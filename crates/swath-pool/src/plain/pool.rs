//! The plain pool: lists and sets, searched from end to end.

extern crate std;

use core::ptr::NonNull;
use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use crate::heap::kept::Kept;
use crate::heap::run::Run;
use crate::options::BufferOptions;
use crate::plain::fixture::first_fit;
use crate::source::first_fit::FirstFit;
use crate::source::segment_source::SegmentSource;
use crate::superblock::class::{CLASSES, LAYOUTS, SLOT_BYTES_MAX, UNIT_BYTES, class_for};

/// Who frees a slot. Behind a front short ones that come back side by side make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    Heap,
    /// The heap, by [`free_in_superblock`](crate::LocalHeap::free_in_superblock): one by one.
    Superblock,
    Front,
}

/// The global heap's number.
pub(crate) const GLOBAL: usize = 0;

/// A superblock.
pub(crate) struct PlainBlock {
    pub(crate) class: usize,
    /// The number of the heap that has it.
    pub(crate) heap: usize,
    /// Offsets of its free slots, and of those that others returned.
    pub(crate) free: BTreeSet<usize>,
    pub(crate) returned: BTreeSet<usize>,
    /// Slots in use at which something is to be done, if they are counted.
    mark: usize,
    counted: bool,
    pub(crate) full: bool,
}

impl PlainBlock {
    fn slots(&self) -> usize {
        LAYOUTS[self.class].slots as usize
    }

    /// Slots that are not free.
    pub(crate) fn used(&self) -> usize {
        self.slots() - self.free.len()
    }

    fn set_mark(&mut self, low: usize) {
        self.mark = if self.used() > low { low } else { 0 };
        self.counted = true;
    }

    pub(crate) fn is_due(&self) -> bool {
        self.counted && self.used() <= self.mark
    }
}

/// A heap; of the global one some lists only.
pub(crate) struct PlainHeap {
    pub(crate) attached: bool,
    /// For each class offsets of slots at hand, the next one last.
    pub(crate) caches: Vec<Vec<usize>>,
    pub(crate) current: Vec<Option<u32>>,
    pub(crate) partial: Vec<Vec<u32>>,
    pub(crate) sparse: Vec<u32>,
    pub(crate) kept: Kept,
    /// Superblocks with returned slots, the next one last.
    pub(crate) list: Vec<u32>,
    pub(crate) remote: u64,
    /// The last slot that came back as the first of its word.
    last: usize,
}

/// The pool.
pub(crate) struct PlainPool {
    pub(crate) options: BufferOptions,
    pub(crate) crowded: bool,
    pub(crate) unusable: bool,
    units: usize,
    page: u32,
    pub(crate) source: FirstFit<Vec<u64>>,
    /// Free units with memory, each with whether a purge has seen it.
    pub(crate) dirty: BTreeMap<u32, bool>,
    releases: u64,
    pub(crate) due: u64,
    /// Superblocks and segments by their first unit.
    pub(crate) blocks: BTreeMap<u32, PlainBlock>,
    pub(crate) segments: BTreeMap<u32, u32>,
    /// Offsets of slots in use.
    pub(crate) live: BTreeSet<usize>,
    pub(crate) heaps: Vec<PlainHeap>,
}

/// Slots that a heap has at hand of a class at most.
fn room(class: usize) -> usize {
    match LAYOUTS[class].size {
        0..=128 => 126,
        129..=512 => 34,
        513..=2048 => 26,
        2049..=8192 => 20,
        _ => 14,
    }
}

/// The word in which a slot has its bit: those of up to 128 bytes lie by granules, others by their number.
fn word(first: u32, class: usize, offset: usize) -> (u32, usize) {
    let within = offset - first as usize * UNIT_BYTES;
    let size = LAYOUTS[class].size as usize;
    (first, if size <= 128 { within / 16 / 64 } else { within / size / 64 })
}

impl PlainPool {
    pub(crate) fn new(
        base: NonNull<u8>,
        units: usize,
        heaps: usize,
        page: u32,
        options: BufferOptions,
    ) -> Self {
        let heap = |_| PlainHeap {
            attached: false,
            caches: vec![Vec::new(); CLASSES],
            current: vec![None; CLASSES],
            partial: vec![Vec::new(); CLASSES],
            sparse: vec![0; CLASSES],
            kept: Kept::new(),
            list: Vec::new(),
            remote: 0,
            last: 0,
        };
        Self {
            options,
            crowded: false,
            unusable: false,
            units,
            page,
            source: first_fit(base, units),
            dirty: BTreeMap::new(),
            releases: 0,
            due: 0,
            blocks: BTreeMap::new(),
            segments: BTreeMap::new(),
            live: BTreeSet::new(),
            heaps: (0..=heaps).map(heap).collect(),
        }
    }

    /// The superblock in which an offset lies.
    pub(crate) fn block_of(&self, offset: usize) -> Option<u32> {
        let unit = (offset / UNIT_BYTES) as u32;
        let (&first, block) = self.blocks.range(..=unit).next_back()?;
        (unit - first < LAYOUTS[block.class].units).then_some(first)
    }

    fn low(&self, slots: usize) -> usize {
        (slots * (8 - self.options.empty_eighths as usize) / 8).max(1)
    }

    pub(crate) fn guard(&self) -> u32 {
        u32::from(self.options.guard_segments)
    }

    /// Units of a segment for so many bytes.
    pub(crate) fn units_for(&self, size: usize) -> Option<u32> {
        u32::try_from(size.max(1).div_ceil(UNIT_BYTES)).ok()?.checked_add(self.guard())
    }

    // Units.

    fn release(&mut self, first: u32, units: u32) {
        self.source.release(first, units);
        self.releases += 1;
        self.dirty.extend((first..first + units).map(|unit| (unit, false)));
    }

    /// Units that are in use now, with whether they read as zeroes.
    fn acquired(&mut self, first: u32, units: u32) -> (u32, bool) {
        let before = self.dirty.len();
        self.dirty.retain(|unit, _| !(first..first + units).contains(unit));
        (first, before == self.dirty.len())
    }

    /// Acquires units, if need be of what heaps have left.
    fn acquire(&mut self, units: u32, align: u32) -> Option<(u32, bool)> {
        loop {
            if let Some(first) = self.source.acquire(units, align) {
                let acquired = self.acquired(first, units);
                if self.unusable {
                    self.release(first, units);
                    return None;
                }
                return Some(acquired);
            }
            if !self.gather() {
                return None;
            }
        }
    }

    /// What heaps keep, and what came back to heaps without a thread.
    fn gather(&mut self) -> bool {
        let before = self.releases;
        self.collect_list(GLOBAL);
        let mut any = false;
        for number in 1..self.heaps.len() {
            if !self.heaps[number].attached && !self.heaps[number].list.is_empty() {
                self.collect_list(number);
                any = true;
            }
            self.release_kept(number);
        }
        any || self.releases != before
    }

    pub(crate) fn release_kept(&mut self, number: usize) {
        let runs: Vec<Run> = self.heaps[number].kept.gather().collect();
        runs.into_iter().for_each(|run| self.release(run.first, run.units));
    }

    pub(crate) fn purge(&mut self, now: Option<u64>) -> u64 {
        if let Some(now) = now {
            if now < self.due {
                return 0;
            }
            self.due = now + self.options.purge_delay;
        }
        self.gather();
        let before = self.dirty.len();
        self.dirty.retain(|_, old| now.is_some() && !*old);
        self.dirty.values_mut().for_each(|old| *old = true);
        (before - self.dirty.len()) as u64
    }

    // Segments.

    /// Allocates a segment, and tells whether it reads as zeroes; of units that the heap kept, if it may.
    pub(crate) fn allocate_segment(
        &mut self,
        number: usize,
        size: usize,
        align: usize,
    ) -> Option<(usize, bool)> {
        let units = self.units_for(size)?;
        let kept = if align <= UNIT_BYTES { self.take_kept(number, size, units) } else { None };
        let (first, zero) = match kept {
            Some(first) => (first, false),
            None => self.acquire(units, u32::try_from(align / UNIT_BYTES).ok()?.max(1))?,
        };
        self.segments.insert(first, units);
        Some((first as usize * UNIT_BYTES, zero))
    }

    fn take_kept(&mut self, number: usize, size: usize, units: u32) -> Option<u32> {
        if self.options.guard_segments {
            return None;
        }
        // Of the short ones none serves a request for no bytes.
        let short = self.heaps[number].kept.short.take(size.div_ceil(UNIT_BYTES));
        if short.is_some() || units > 64 {
            return short;
        }
        let mut left = Vec::new();
        let taken = self.heaps[number].kept.take(units, self.page, |run| left.push(run));
        left.into_iter().for_each(|run: Run| self.release(run.first, run.units));
        taken
    }

    /// Keeps units of which nothing is in use, if the heap has room.
    fn keep_short(&mut self, number: usize, first: u32, units: u32) -> bool {
        let short = &self.heaps[number].kept.short;
        let keep = || short.keep(units, || Some(first));
        !self.options.guard_segments && (keep() || (short.count() && keep()))
    }

    /// A heap counts what it keeps anew wherever a segment might begin that it is told to free.
    pub(crate) fn look_at(&self, number: usize, offset: usize) {
        let is_in = offset < self.units * UNIT_BYTES && offset.is_multiple_of(16);
        if is_in && self.block_of(offset).is_none() {
            self.heaps[number].kept.short.count();
        }
    }

    /// Takes a short segment that was kept, and nothing else.
    pub(crate) fn take_segment(&mut self, number: usize, size: usize) -> Option<usize> {
        let units = size.div_ceil(UNIT_BYTES);
        let first = self.heaps[number].kept.short.take(units)?;
        self.segments.insert(first, units as u32);
        Some(first as usize * UNIT_BYTES)
    }

    /// Frees a segment as a front does, which counts, and keeps it or does nothing.
    pub(crate) fn free_segment_quickly(&mut self, number: usize, first: u32) -> bool {
        let Some(&units) = self.segments.get(&first) else { return false };
        let short = &self.heaps[number].kept.short;
        let kept =
            !self.options.guard_segments && short.is_quick() && short.keep(units, || Some(first));
        if kept {
            self.segments.remove(&first);
        }
        kept
    }

    /// Frees a segment; `number` is the heap's that may keep it.
    pub(crate) fn free_segment(&mut self, number: usize, first: u32) {
        let units = self.segments.remove(&first).unwrap();
        if number != GLOBAL && self.keep_short(number, first, units) {
            return;
        }
        if number == GLOBAL || !self.crowded || self.guard() != 0 || units > 64 {
            return self.release(first, units);
        }
        let mut left = Vec::new();
        self.heaps[number].kept.keep(Run { first, units }, |run| left.push(run));
        left.into_iter().for_each(|run: Run| self.release(run.first, run.units));
    }

    /// Makes a segment as long as is wanted, if it can where it is.
    pub(crate) fn resize_segment(&mut self, first: u32, size: usize) -> bool {
        let Some(wanted) = self.units_for(size) else { return false };
        let units = self.segments[&first];
        if wanted > units {
            if !self.source.extend(first, units, wanted - units) {
                return false;
            }
            self.acquired(first + units, wanted - units);
            if self.unusable {
                self.release(first + units, wanted - units);
                return false;
            }
        } else if wanted < units {
            self.release(first + wanted, units - wanted);
        }
        self.segments.insert(first, wanted);
        true
    }

    // Slots.

    /// Takes what is at hand.
    pub(crate) fn take(&mut self, number: usize, class: usize) -> Option<usize> {
        let offset = self.heaps[number].caches[class].pop()?;
        assert!(self.live.insert(offset));
        Some(offset)
    }

    /// Takes what is at hand, or of the current superblock, whose first free slots are at hand then.
    pub(crate) fn take_current(&mut self, number: usize, class: usize) -> Option<usize> {
        if self.heaps[number].caches[class].is_empty()
            && let Some(current) = self.heaps[number].current[class]
        {
            let half = (room(class) + 2) / 2;
            let free = &mut self.blocks.get_mut(&current).unwrap().free;
            let slots: Vec<usize> = core::iter::from_fn(|| free.pop_first()).take(half).collect();
            self.heaps[number].caches[class] = slots.into_iter().rev().collect();
        }
        self.take(number, class)
    }

    /// Allocates a slot or a segment.
    pub(crate) fn allocate(&mut self, number: usize, size: usize, align: usize) -> Option<usize> {
        if !align.is_power_of_two() && align > 16 {
            return None;
        }
        // What is gathered meanwhile is looked for twice, and so leaves more places of the stack empty.
        if size > SLOT_BYTES_MAX && align <= 16 {
            let kept = self.take_segment(number, size);
            if kept.is_some() {
                return kept;
            }
        }
        let align = align.max(16);
        let Some(class) = class_for(size, align) else {
            return self.allocate_segment(number, size, align).map(|(offset, _)| offset);
        };
        let current = self.take_current(number, class);
        current.or_else(|| self.allocate_of_next(number, class)).or_else(|| {
            let may_be_long = LAYOUTS[class].units > 1;
            let segment = may_be_long.then(|| self.allocate_segment(number, size, align));
            segment.flatten().map(|(offset, _)| offset)
        })
    }

    /// Makes another superblock current.
    fn allocate_of_next(&mut self, number: usize, class: usize) -> Option<usize> {
        if let Some(full) = self.heaps[number].current[class].take() {
            self.fill(full);
        }
        self.collect_list(number);
        let partial = &mut self.heaps[number].partial[class];
        let next = if partial.is_empty() {
            self.take_units(number, class)?
        } else {
            let next = partial.remove(0);
            self.heaps[number].sparse[class] -= u32::from(self.blocks[&next].mark == 0);
            next
        };
        self.blocks.get_mut(&next).unwrap().counted = false;
        self.heaps[number].current[class] = Some(next);
        self.take_current(number, class)
    }

    /// No slot of a superblock is free: the first one that comes back is to be noticed.
    fn fill(&mut self, first: u32) {
        let block = self.blocks.get_mut(&first).unwrap();
        (block.full, block.counted, block.mark) = (true, true, block.slots() - 1);
    }

    /// A superblock of kept units, of the global heap, or of new units.
    fn take_units(&mut self, number: usize, class: usize) -> Option<u32> {
        let units = LAYOUTS[class].units;
        if let Some(first) = self.heaps[number].kept.short.take(units as usize) {
            self.begin(first, number, class);
            return Some(first);
        }
        loop {
            self.collect_list(GLOBAL);
            if !self.heaps[GLOBAL].partial[class].is_empty() {
                let first = self.heaps[GLOBAL].partial[class].remove(0);
                self.blocks.get_mut(&first).unwrap().heap = number;
                return Some(first);
            }
            if let Some(first) = self.source.acquire(units, 1) {
                self.acquired(first, units);
                if self.unusable {
                    self.release(first, units);
                    return None;
                }
                self.begin(first, number, class);
                return Some(first);
            }
            if !self.gather() {
                return None;
            }
        }
    }

    fn begin(&mut self, first: u32, heap: usize, class: usize) {
        let (size, slots) = (LAYOUTS[class].size as usize, LAYOUTS[class].slots as usize);
        let start = first as usize * UNIT_BYTES;
        let free = (0..slots).map(|slot| start + slot * size).collect();
        let returned = BTreeSet::new();
        let block =
            PlainBlock { class, heap, free, returned, mark: 0, counted: false, full: false };
        self.blocks.insert(first, block);
    }

    /// Frees a slot of the heap's own that was not returned.
    pub(crate) fn free_own(&mut self, number: usize, offset: usize, by: By) {
        assert!(self.live.remove(&offset));
        let first = self.block_of(offset).unwrap();
        let class = self.blocks[&first].class;
        if self.heaps[number].caches[class].len() < room(class) {
            return self.heaps[number].caches[class].push(offset);
        }
        let block = &self.blocks[&first];
        let own = word(first, class, offset);
        let is_first = !block.free.iter().any(|&free| word(first, class, free) == own);
        // A heap that finds returned slots there does not look at the last one.
        let is_slow = by == By::Superblock || (by == By::Heap && !block.returned.is_empty());
        let mut follows = false;
        if is_first && offset / UNIT_BYTES == first as usize && !is_slow {
            let granule = offset / 16;
            let last = core::mem::replace(&mut self.heaps[number].last, granule);
            follows = by == By::Front && last ^ granule < 512 && LAYOUTS[class].size <= 128;
        }
        if self.free_slot(offset) {
            self.at_mark(number, first);
        } else if follows && let Some(due) = self.spill(number, class, (room(class) + 2) / 2) {
            self.at_mark(number, due);
        }
    }

    /// A slot is free with its superblock; true if something is to be done with that.
    pub(crate) fn free_slot(&mut self, offset: usize) -> bool {
        let first = self.block_of(offset).unwrap();
        let block = self.blocks.get_mut(&first).unwrap();
        assert!(block.free.insert(offset));
        block.is_due()
    }

    /// The slots at hand but for the lowest go back, those of one word side by side at once, until something is to be done.
    pub(crate) fn spill(&mut self, number: usize, class: usize, keep: usize) -> Option<u32> {
        while self.heaps[number].caches[class].len() > keep {
            let cache = &mut self.heaps[number].caches[class];
            let top = cache.pop().unwrap();
            let first = self.block_of(top).unwrap();
            let mut due = self.free_slot(top);
            while LAYOUTS[class].units == 1
                && self.heaps[number].caches[class].len() > keep
                && let Some(&next) = self.heaps[number].caches[class].last()
                && self.block_of(next) == Some(first)
                && word(first, class, next) == word(first, class, top)
            {
                self.heaps[number].caches[class].pop();
                due = self.free_slot(next);
            }
            if due {
                return Some(first);
            }
        }
        None
    }

    /// A superblock has a free slot again, or is as empty as the threshold says, or wholly.
    pub(crate) fn at_mark(&mut self, number: usize, first: u32) {
        let slack = self.options.slack;
        let low = self.low(self.blocks[&first].slots());
        let block = self.blocks.get_mut(&first).unwrap();
        let class = block.class;
        let heap = &mut self.heaps[number];
        if core::mem::take(&mut block.full) {
            heap.partial[class].push(first);
            block.set_mark(low);
            if block.mark != 0 {
                return;
            }
            heap.sparse[class] += 1;
        } else if block.mark != 0 {
            heap.sparse[class] += 1;
        }
        if block.used() > 0 && heap.sparse[class] <= slack {
            return block.set_mark(0);
        }
        heap.partial[class].retain(|&unit| unit != first);
        heap.sparse[class] -= 1;
        self.give(number, first);
    }

    /// A superblock without a slot in use is kept as units; another goes to the global heap, with its slots at hand.
    fn give(&mut self, number: usize, first: u32) {
        let class = self.blocks[&first].class;
        let units = LAYOUTS[class].units;
        if self.blocks[&first].used() == 0 && self.keep_short(number, first, units) {
            self.blocks.remove(&first);
            return;
        }
        let mut cached = core::mem::take(&mut self.heaps[number].caches[class]);
        cached.retain(|&offset| {
            let stays = self.block_of(offset) != Some(first);
            if !stays {
                self.free_slot(offset);
            }
            stays
        });
        self.heaps[number].caches[class] = cached;
        self.receive(first);
    }

    /// The global heap has a superblock now, or its units go back.
    pub(crate) fn receive(&mut self, first: u32) {
        let block = self.blocks.get_mut(&first).unwrap();
        let (class, used) = (block.class, block.used());
        if used == 0 {
            self.blocks.remove(&first);
            return self.release(first, LAYOUTS[class].units);
        }
        (block.heap, block.counted) = (GLOBAL, false);
        block.full = used == block.slots();
        if !block.full {
            self.heaps[GLOBAL].partial[class].push(first);
        }
    }

    /// Returns a slot that is another heap's.
    pub(crate) fn free_remote(&mut self, offset: usize) {
        assert!(self.live.remove(&offset));
        let first = self.block_of(offset).unwrap();
        let block = self.blocks.get_mut(&first).unwrap();
        if block.returned.is_empty() {
            self.heaps[block.heap].list.push(first);
        }
        assert!(block.returned.insert(offset));
    }

    /// Superblocks on a heap's list are collected by their heap, or by the global one for a heap without a thread.
    pub(crate) fn collect_list(&mut self, number: usize) {
        let list = core::mem::take(&mut self.heaps[number].list);
        for first in list.into_iter().rev() {
            let block = self.blocks.get_mut(&first).unwrap();
            let owner = block.heap;
            let collects = if self.heaps[number].attached { number } else { GLOBAL };
            if owner != collects {
                self.heaps[owner].list.push(first);
                continue;
            }
            let collected = self.collect_block(first);
            self.heaps[owner].remote += collected as u64;
            let block = self.blocks.get_mut(&first).unwrap();
            if owner != GLOBAL {
                if block.is_due() {
                    self.at_mark(owner, first);
                }
                continue;
            }
            let class = block.class;
            if core::mem::take(&mut block.full) {
                self.heaps[GLOBAL].partial[class].push(first);
            }
            if block.used() == 0 {
                self.heaps[GLOBAL].partial[class].retain(|&unit| unit != first);
                self.blocks.remove(&first);
                self.release(first, LAYOUTS[class].units);
            }
        }
    }

    /// Makes the returned slots of a superblock free, and returns their number.
    pub(crate) fn collect_block(&mut self, first: u32) -> usize {
        let block = self.blocks.get_mut(&first).unwrap();
        let returned = core::mem::take(&mut block.returned);
        let count = returned.len();
        block.free.extend(returned);
        count
    }

    /// A slot that was freed comes second.
    pub(crate) fn bury(&mut self, number: usize, class: usize) {
        let cache = &mut self.heaps[number].caches[class];
        if let [.., next, top] = &mut cache[..] {
            core::mem::swap(next, top);
        }
    }

    /// Returns true if a heap has room for another slot.
    pub(crate) fn has_room(&self, number: usize, class: usize) -> bool {
        self.heaps[number].caches[class].len() < room(class)
    }

    // What is told.

    /// The bytes of a block in use.
    pub(crate) fn len(&self, offset: usize) -> Option<usize> {
        if self.live.contains(&offset) {
            return Some(LAYOUTS[self.blocks[&self.block_of(offset)?].class].size as usize);
        }
        let unit = u32::try_from(offset / UNIT_BYTES).ok()?;
        let units = self.segments.get(&unit).filter(|_| offset.is_multiple_of(UNIT_BYTES))?;
        Some((units - self.guard()) as usize * UNIT_BYTES)
    }

    pub(crate) fn remote_frees(&self) -> u64 {
        self.heaps.iter().map(|heap| heap.remote).sum()
    }

    /// Returns true if a block that is so long serves so many bytes where it is.
    pub(crate) fn serves(&self, old: usize, size: usize, align: usize) -> bool {
        size <= old && (size > old / 2 || class_for(size, align) == class_for(old, align))
    }
}

//! The use of each aligned 2 MiB of RAM.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use swath_arch::{Extent, Pfn};

use crate::histogram::Histogram;
use crate::inspect::free_blocks::largest_free_blocks;
use crate::machine::record::{Frames, read_facts, read_ranges, read_zones};
use crate::machine::{CaptureError, FrameKind, MachineFacts, RamRange, Snapshot, classify};

/// Frames of a unit: a huge page of 2 MiB.
pub const HUGE_FRAMES: u64 = 512;

/// Units that a thread takes at a time: 256 KiB of the kernel's table, the time of some milliseconds.
const UNITS_AT_ONCE: usize = 64;

/// Flags of the first and the further frames of a folio of several.
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;

/// The longest folio that is counted by its length: of one unit.
const FOLIO_ORDER_MAX: usize = HUGE_FRAMES.ilog2() as usize;

/// The uses of an aligned 2 MiB.
///
/// Invariants: the counts sum to the unit's frames that are RAM, at most [`HUGE_FRAMES`]; as many
/// bits of `free` are set as [`FrameKind::Free`] has frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// The first frame's number, divided by [`HUGE_FRAMES`].
    pub number: u64,
    /// Frames of each kind, by [`FrameKind::code`].
    pub counts: [u16; FrameKind::COUNT],
    /// A bit for each frame: whether it is free.
    free: [u64; HUGE_FRAMES as usize / 64],
    /// Folios of user memory by their order; those longer than a unit count once in each.
    folios: [u16; FOLIO_ORDER_MAX + 1],
}

impl Unit {
    const fn new(number: u64) -> Self {
        let free = [0; HUGE_FRAMES as usize / 64];
        Self { number, counts: [0; FrameKind::COUNT], free, folios: [0; FOLIO_ORDER_MAX + 1] }
    }

    /// Returns the frames of one kind.
    pub fn count(&self, kind: FrameKind) -> u64 {
        u64::from(self.counts[usize::from(kind.code())])
    }

    /// Returns true if the whole unit is one huge page in use: of hugetlbfs, or a folio of its
    /// size; from a snapshot, which does not tell folios apart, if all of it is in folios.
    pub fn is_huge(&self) -> bool {
        let is_whole = |kind| self.count(kind) == HUGE_FRAMES;
        let folios: u64 = self.folios.iter().map(|&count| u64::from(count)).sum();
        is_whole(FrameKind::HugeTlb)
            || is_whole(FrameKind::LargeFolio) && (folios == 0 || self.folios[FOLIO_ORDER_MAX] == 1)
    }

    /// Returns the frames to be moved for the unit to be free: in use, and of kinds that can be; `None` if it
    /// is free or in use as one, or has others.
    pub fn frames_to_move(&self) -> Option<u64> {
        let can_move: u64 = FrameKind::MOVABLE.into_iter().map(|kind| self.count(kind)).sum();
        let is_rest_free = self.count(FrameKind::Free) + can_move == HUGE_FRAMES;
        (can_move > 0 && is_rest_free && !self.is_huge()).then_some(can_move)
    }

    /// Returns true if no frame of the unit has a mark.
    pub fn is_unmarked(&self) -> bool {
        self.count(FrameKind::Unknown) == HUGE_FRAMES
    }

    /// Counts frames of one kind, `from` the unit's start.
    fn add(&mut self, kind: FrameKind, from: u64, count: u64) {
        self.counts[usize::from(kind.code())] += count as u16;
        if kind == FrameKind::Free {
            let (mut at, end) = (from, from + count);
            while at < end {
                let len = (64 - at % 64).min(end - at);
                self.free[at as usize / 64] |= (u64::MAX >> (64 - len)) << (at % 64);
                at += len;
            }
        }
    }

    /// Counts a folio of so many frames, if any, and begins with the next.
    fn add_folio(&mut self, frames: &mut u64) {
        if let Some(order) = frames.checked_ilog2() {
            self.folios[order as usize] += 1;
        }
        *frames = 0;
    }

    /// Returns true if the use of every frame is known.
    fn is_known(&self) -> bool {
        self.counts.iter().map(|&count| u64::from(count)).sum::<u64>() == HUGE_FRAMES
    }
}

/// The use of a machine's RAM, unit by unit.
///
/// Invariants: the units ascend by number, and are those in which RAM lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineMemory {
    facts: MachineFacts,
    ranges: Vec<RamRange>,
    units: Vec<Unit>,
    /// Where the running machine's `/proc` stands.
    proc: Option<PathBuf>,
}

impl MachineMemory {
    /// The memory of a snapshot. O(runs + units).
    pub fn of(snapshot: &Snapshot) -> Self {
        let units = units(snapshot.ranges());
        let facts = snapshot.facts().clone();
        let mut memory = Self { facts, ranges: snapshot.ranges().to_vec(), units, proc: None };
        let mut at = 0;
        for run in snapshot.runs() {
            let mut rest = run.extent;
            while !rest.is_empty() {
                let first = rest.start.raw();
                let number = first / HUGE_FRAMES;
                while memory.units[at].number < number {
                    at += 1;
                }
                let from = first % HUGE_FRAMES;
                let count = rest.count.min(HUGE_FRAMES - from);
                memory.units[at].add(run.kind, from, count);
                rest = Extent::new(Pfn::new(first + count), rest.count - count);
            }
        }
        memory
    }

    /// The memory of this machine, read by as many threads as there are processors. O(frames);
    /// a frame takes the kernel 45 to 130 ns, but for those of the largest free blocks, of which 32
    /// are asked for at most, and those of a huge page, of which two are.
    ///
    /// # Errors
    /// [`CaptureError`], which says what to do about missing rights.
    pub fn read() -> Result<Self, CaptureError> {
        Self::read_from(Path::new("/proc"))
    }

    /// The memory of the machine whose `/proc` stands at `proc`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_from(proc: &Path) -> Result<Self, CaptureError> {
        let ranges = read_ranges(proc)?;
        let mut units = units(&ranges);
        let facts = read_all(proc, &ranges, &mut units)?;
        Ok(Self { facts, ranges, units, proc: Some(proc.to_owned()) })
    }

    /// Reads units of the running machine anew, and the kernel's own account; those of a snapshot
    /// stay as they are. On an error nothing is changed.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Panics
    /// If there are no such units.
    pub fn read_again(&mut self, which: Range<usize>) -> Result<(), CaptureError> {
        let Some(proc) = &self.proc else { return Ok(()) };
        let mut units: Vec<_> =
            self.units[which.clone()].iter().map(|unit| Unit::new(unit.number)).collect();
        self.facts = if which.len() == self.units.len() {
            read_all(proc, &self.ranges, &mut units)?
        } else {
            let facts = read_facts(proc)?;
            read_parts(proc, &self.ranges, &mut units)?;
            facts
        };
        self.units.splice(which, units);
        Ok(())
    }

    /// Returns the kernel's account of its memory.
    pub fn facts(&self) -> &MachineFacts {
        &self.facts
    }

    /// Returns the units, ascending.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// Returns the unit of a number, if there is RAM in it. O(log units).
    pub fn unit(&self, number: u64) -> Option<&Unit> {
        let at = self.units.binary_search_by_key(&number, |unit| unit.number).ok()?;
        self.units.get(at)
    }

    /// Returns the units whose first frame lies in the range of frames. O(log units).
    pub fn units_within(&self, frames: Range<u64>) -> &[Unit] {
        let begins = |end: u64| {
            self.units.partition_point(|unit| unit.number.saturating_mul(HUGE_FRAMES) < end)
        };
        let start = begins(frames.start);
        &self.units[start..begins(frames.end).max(start)]
    }

    /// Returns the frames of one kind. O(units).
    pub fn count(&self, kind: FrameKind) -> u64 {
        self.units.iter().map(|unit| unit.count(kind)).sum()
    }

    /// Returns the lengths of the longest runs of free frames, of any alignment, which cross the
    /// blocks of the kernel's buddy allocator. O(frames / 64).
    pub fn free_runs(&self) -> Histogram {
        self.free_runs_within(0..u64::MAX)
    }

    /// Returns the lengths of the longest runs of free frames in the units that lie in a range of
    /// frames as a whole. O(frames / 64).
    pub fn free_runs_within(&self, frames: Range<u64>) -> Histogram {
        let mut lengths = Histogram::default();
        let (mut run, mut next) = (0, 0);
        for unit in self.units_within(frames) {
            for (i, &word) in unit.free.iter().enumerate() {
                let start = unit.number * HUGE_FRAMES + i as u64 * 64;
                if start != next {
                    add_run(&mut lengths, &mut run);
                }
                next = start + 64;
                let (mut rest, mut left) = (word, 64);
                while left > 0 {
                    let ones = rest.trailing_ones().min(left);
                    run += u64::from(ones);
                    left -= ones;
                    if left == 0 {
                        break;
                    }
                    add_run(&mut lengths, &mut run);
                    rest = rest.unbounded_shr(ones);
                    let zeros = rest.trailing_zeros().min(left);
                    left -= zeros;
                    rest = rest.unbounded_shr(zeros);
                }
            }
        }
        add_run(&mut lengths, &mut run);
        lengths
    }

    /// Returns the number of user memory's folios of each order, from 1 on; nothing from a
    /// snapshot, which does not tell them apart. O(units).
    pub fn folios(&self) -> Option<Vec<u64>> {
        self.proc.as_ref()?;
        let of = |order| self.units.iter().map(|unit| u64::from(unit.folios[order])).sum();
        Some((1..=FOLIO_ORDER_MAX).map(of).collect())
    }
}

fn add_run(lengths: &mut Histogram, run: &mut u64) {
    if *run > 0 {
        lengths.add(*run);
    }
    *run = 0;
}

/// Sets the units of a free block, which holds whole ones, as free.
fn add_free(units: &mut [Unit], block: Extent) {
    let begins = |frame: Pfn| units.partition_point(|unit| unit.number * HUGE_FRAMES < frame.raw());
    let (first, end) = (begins(block.start), begins(block.end()));
    for unit in units[first..end].iter_mut().filter(|unit| !unit.is_known()) {
        unit.add(FrameKind::Free, 0, HUGE_FRAMES);
    }
}

/// The units in which RAM lies.
fn units(ranges: &[RamRange]) -> Vec<Unit> {
    let within = || ranges.iter().map(|range| range.frames()).filter(|frames| !frames.is_empty());
    let ends =
        |frames: Extent| (frames.start.raw() / HUGE_FRAMES, (frames.end().raw() - 1) / HUGE_FRAMES);
    // Memory never touched before may cost a guest far more than what is written to it.
    let most: u64 = within().map(ends).map(|(first, last)| last - first + 1).sum();
    let mut units: Vec<Unit> = Vec::with_capacity(most as usize);
    for (first, last) in within().map(ends) {
        let next = units.last().map_or(0, |unit| unit.number + 1);
        units.extend((first.max(next)..=last).map(Unit::new));
    }
    units
}

/// Reads all units of the machine, ascending and empty so far, and the kernel's own account.
fn read_all(
    proc: &Path,
    ranges: &[RamRange],
    units: &mut [Unit],
) -> Result<MachineFacts, CaptureError> {
    let mut facts = read_facts(proc)?;
    for block in largest_free_blocks(proc, &facts, ranges)? {
        add_free(units, block);
    }
    read_parts(proc, ranges, units)?;
    // Programs that end meanwhile fill the lists of processors with frames that were seen in use.
    facts.raise_lists(&read_zones(proc)?);
    Ok(facts)
}

/// Reads those of the units, ascending, that are not known already, by as many threads as there are processors.
fn read_parts(proc: &Path, ranges: &[RamRange], units: &mut [Unit]) -> Result<(), CaptureError> {
    let count = units.len();
    // A part that is free takes several times as long as one that is not: who is done takes the next.
    let parts = Mutex::new(units.chunks_mut(UNITS_AT_ONCE));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut frames = Frames::open(proc)?;
        while let Some(part) = next() {
            read_units(&mut frames, ranges, part)?;
        }
        Ok(())
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let others: Vec<_> = (1..workers.min(count.div_ceil(UNITS_AT_ONCE)))
            // Without a further thread the others read more.
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mine = work();
        let joined = others.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.fold(mine, Result::and)
    })
}

/// Reads those of the units, ascending, that are not known already.
fn read_units(
    frames: &mut Frames,
    ranges: &[RamRange],
    units: &mut [Unit],
) -> Result<(), CaptureError> {
    for unit in units.iter_mut().filter(|unit| !unit.is_known() && is_whole(ranges, unit.number)) {
        read_if_in_a_folio(frames, unit)?;
    }
    let follow = |a: &Unit, b: &Unit| !a.is_known() && !b.is_known() && a.number + 1 == b.number;
    for units in units.chunk_by_mut(follow).filter(|units| !units[0].is_known()) {
        let first = units[0].number * HUGE_FRAMES;
        let end = first + units.len() as u64 * HUGE_FRAMES;
        let before = ranges.partition_point(|range| range.frames().end().raw() <= first);
        for range in &ranges[before..] {
            let (from, to) = (range.frames().start.raw(), range.frames().end().raw());
            let (from, to) = (from.max(first), to.min(end));
            if from >= to {
                break;
            }
            read_range(frames, units, from - first, to - from)?;
        }
    }
    Ok(())
}

/// Returns true if RAM fills the unit.
fn is_whole(ranges: &[RamRange], unit: u64) -> bool {
    let (first, end) = (unit * HUGE_FRAMES, (unit + 1) * HUGE_FRAMES);
    let at = ranges.partition_point(|range| range.frames().end().raw() < end);
    ranges.get(at).is_some_and(|range| range.frames().start.raw() <= first)
}

/// Reads a unit that lies within one folio, by two frames.
///
/// A folio is aligned to its length. One that begins in the first half of the unit, or before, and
/// goes on in the middle frame, so holds the unit as a whole. The second frame is asked for before:
/// most units end there, and those beside it are read next.
fn read_if_in_a_folio(frames: &mut Frames, unit: &mut Unit) -> Result<(), CaptureError> {
    for frame in [1, HUGE_FRAMES / 2] {
        let flags = frames.flags(Pfn::new(unit.number * HUGE_FRAMES + frame))?;
        let kind = classify(flags);
        // The further frames of others have not all flags of their first.
        let is_user = matches!(kind, FrameKind::LargeFolio | FrameKind::HugeTlb);
        if !is_user || flags & COMPOUND_TAIL == 0 {
            break;
        }
        if frame == HUGE_FRAMES / 2 {
            unit.add(kind, 0, HUGE_FRAMES);
            unit.folios[FOLIO_ORDER_MAX] += u16::from(kind == FrameKind::LargeFolio);
        }
    }
    Ok(())
}

/// Adds `count` frames `from` the first unit's start to the units, of which each follows the one before.
fn read_range(
    frames: &mut Frames,
    units: &mut [Unit],
    from: u64,
    count: u64,
) -> Result<(), CaptureError> {
    let extent = Extent::new(Pfn::new(units[0].number * HUGE_FRAMES + from), count);
    let (mut at, mut folio) = (from, 0);
    frames.read(extent, &mut |flags, mut count| {
        let kind = classify(flags);
        let is = |flag| flags & flag != 0 && kind == FrameKind::LargeFolio;
        while count > 0 {
            let unit = &mut units[(at / HUGE_FRAMES) as usize];
            let part = count.min(HUGE_FRAMES - at % HUGE_FRAMES);
            unit.add(kind, at % HUGE_FRAMES, part);
            // A tail without a head belongs to a folio that began in another unit.
            if is(COMPOUND_TAIL) {
                folio += part;
            } else {
                unit.add_folio(&mut folio);
                if is(COMPOUND_HEAD) {
                    // Heads in a row: folios that changed while they were read.
                    (1..part).for_each(|_| unit.add_folio(&mut 1));
                    folio = 1;
                }
            }
            at += part;
            count -= part;
            if at % HUGE_FRAMES == 0 || at == from + extent.count {
                unit.add_folio(&mut folio);
            }
        }
    })
}

//! From page events to requests that drive any allocator.
//!
//! A recording names frames; another allocator will choose other frames. So
//! [`replay`] gives every block that is allocated a handle, and says at each
//! free which handle it is: what remains is the sequence of requests.
//!
//! **Pairing.** Blocks are matched by the frames they cover.
//!
//! | what the recording shows | what it means | what is handed out |
//! |---|---|---|
//! | an allocation | | `Alloc` with a handle of its own |
//! | a free of exactly that block | | `Free` of the handle |
//! | frees of parts of it | the kernel split the block (a huge page, a buffer of exact size) | `Free` with the last part |
//! | a free of frames whose allocation was not seen | they were allocated before, by somebody who is not recorded, or in bulk | nothing, but it is counted; see [`held_before`] |
//! | an allocation of frames that are allocated | their free was not seen: lost, or by somebody who is not recorded | `Free` of the old handle first |
//! | an allocation that is never freed | still in use at the end, or as above | no `Free` |
//! | a batched free, drain, take, fallback | what the kernel did with its per-CPU lists and free lists on the way; each batched free has a free of its own | nothing: an allocator under test does that in its own way |
//!
//! Lost events leave wrong pairs behind for as long as the frames concerned
//! stay allocated; [`ReplayCounts::lost`] says how many there were.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use foldhash::{HashMap, HashMapExt};
use serde::Serialize;
use swath_arch::{Order, Pfn};
use swath_frame::Mobility;

use swath_trace::container::FileError;
use swath_trace::pages::{MigrateType, ORDER_MAX, PAGE_FORMAT, PageChange, PageEvent, ZoneMax};

/// Returns the mobility that a migrate type stands for; `None` for a reserve.
pub fn mobility_of(migrate_type: MigrateType) -> Option<Mobility> {
    match migrate_type {
        MigrateType::UNMOVABLE => Some(Mobility::Unmovable),
        MigrateType::MOVABLE => Some(Mobility::Movable),
        MigrateType::RECLAIMABLE => Some(Mobility::Reclaimable),
        _ => None,
    }
}

/// Returns the migrate type of requests of this mobility.
pub const fn migrate_type_of(mobility: Mobility) -> MigrateType {
    match mobility {
        Mobility::Unmovable => MigrateType::UNMOVABLE,
        Mobility::Movable => MigrateType::MOVABLE,
        Mobility::Reclaimable => MigrateType::RECLAIMABLE,
    }
}

/// One request to an allocator.
///
/// Handles are dense: one that was freed is handed out again, so a table by
/// handle is no longer than the most blocks that were allocated at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplayOp {
    /// Allocate a block.
    Alloc {
        /// The handle by which it is freed.
        id: u32,
        /// The block's order.
        order: Order,
        /// The mobility of its owner.
        mobility: Mobility,
        /// The highest zone that may serve it.
        zone_max: ZoneMax,
        /// True for a clean page of a file, which can be dropped at once and read again.
        cached: bool,
        /// The processor that asks.
        cpu: u16,
    },
    /// Free a block.
    Free {
        /// Its handle.
        id: u32,
    },
}

impl ReplayOp {
    /// The same request with another handle.
    #[must_use]
    pub fn renamed(self, rename: impl Fn(u32) -> u32) -> Self {
        match self {
            Self::Alloc { id, order, mobility, zone_max, cached, cpu } => {
                Self::Alloc { id: rename(id), order, mobility, zone_max, cached, cpu }
            }
            Self::Free { id } => Self::Free { id: rename(id) },
        }
    }

    /// Returns the handle.
    pub const fn id(self) -> u32 {
        match self {
            Self::Alloc { id, .. } | Self::Free { id } => id,
        }
    }
}

/// A request and when it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedOp {
    /// Microseconds since the beginning; never before the request before.
    pub time_us: u64,
    /// The request.
    pub op: ReplayOp,
}

/// Number of handles that requests have: one more than the highest.
pub(crate) fn handles(ops: &[TimedOp]) -> u32 {
    ops.iter().map(|op| op.op.id() + 1).max().unwrap_or(0)
}

/// Microseconds until the last of requests in the order of time is over; 0 for none.
pub(crate) fn duration_us(ops: &[TimedOp]) -> u64 {
    ops.last().map_or(0, |op| op.time_us + 1)
}

/// A block that was allocated before the recording began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HeldBlock {
    /// Its first frame.
    pub start: Pfn,
    /// Its order, as far as the frees tell.
    pub order: Order,
}

/// Counts of what a replay came across.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ReplayCounts {
    /// Blocks allocated, without those held before.
    pub allocs: u64,
    /// Blocks freed: their last frame was.
    pub frees: u64,
    /// Of these, blocks whose free was not seen: the frames were allocated
    /// again.
    pub frees_implied: u64,
    /// Of these, blocks that were freed in parts.
    pub frees_in_parts: u64,
    /// Frames freed whose allocation was not seen.
    pub unseen_frames: u64,
    /// Requests that the kernel refused; they are not replayed.
    pub refused: u64,
    /// Events that the buffer lost, as far as the events themselves say.
    pub lost: u64,
    /// Blocks allocated at the end.
    pub live_blocks: u64,
    /// Frames allocated at the end.
    pub live_frames: u64,
    /// The most frames allocated at once.
    pub peak_frames: u64,
}

/// The most blocks, and parts of blocks, that are allocated at once in a recording of so
/// many bytes: a short file that says more is made to take memory. Real ones have one for
/// three bytes.
pub fn blocks_max(file_bytes: u64) -> usize {
    const FREE: u64 = 1_800_000;
    usize::try_from((file_bytes / 4).saturating_mul(7).max(FREE)).unwrap_or(usize::MAX)
}

/// A block, or what is left of one: its order and the handle.
type Piece = (Order, u32);

/// The blocks that are allocated.
///
/// Invariants: pieces do not overlap; `pieces_of[id]` is how many pieces have
/// that handle (0 for a free one); `of_order[k]` is how many have order k; `starts` has a bit for
/// each key of `pieces`, and no word without one.
struct Blocks {
    /// By first frame.
    pieces: HashMap<u64, Piece>,
    /// The first frames, by the 64 frames that they are of. Of the frames that an event names most have
    /// no piece, which one look here tells for all orders to 6.
    starts: HashMap<u64, u64>,
    of_order: [u64; ORDER_MAX.k() as usize + 1],
    pieces_of: Vec<u32>,
    /// True if the block was freed in part.
    parted: Vec<bool>,
    free_ids: Vec<u32>,
    frames: u64,
}

impl Blocks {
    fn new() -> Self {
        Self {
            pieces: HashMap::new(),
            starts: HashMap::new(),
            of_order: [0; ORDER_MAX.k() as usize + 1],
            pieces_of: Vec::new(),
            parted: Vec::new(),
            free_ids: Vec::new(),
            frames: 0,
        }
    }

    fn put(&mut self, start: u64, piece: Piece) {
        self.pieces.insert(start, piece);
        *self.starts.entry(start / 64).or_default() |= 1 << (start % 64);
        self.of_order[piece.0.k() as usize] += 1;
        self.pieces_of[piece.1 as usize] += 1;
        self.frames += piece.0.frames();
    }

    fn cut(&mut self, start: u64, piece: Piece) {
        self.pieces.remove(&start);
        if let Entry::Occupied(mut starts) = self.starts.entry(start / 64) {
            *starts.get_mut() &= !(1 << (start % 64));
            if *starts.get() == 0 {
                starts.remove();
            }
        }
        self.of_order[piece.0.k() as usize] -= 1;
        self.pieces_of[piece.1 as usize] -= 1;
        self.frames -= piece.0.frames();
    }

    /// Adds a block where nothing is: its handle.
    fn add(&mut self, start: u64, order: Order) -> u32 {
        let id = self.free_ids.pop().unwrap_or_else(|| {
            self.pieces_of.push(0);
            self.parted.push(false);
            // 2^32 blocks at once are 16 TiB of single frames.
            (self.pieces_of.len() - 1) as u32
        });
        self.parted[id as usize] = false;
        self.put(start, (order, id));
        id
    }

    /// The first frames of pieces among the 64 that this frame is of.
    fn starts_beside(&self, frame: u64) -> u64 {
        self.starts.get(&(frame / 64)).copied().unwrap_or_default()
    }

    /// The piece that covers these frames as a whole.
    fn covering(&self, start: u64, order: Order) -> Option<(u64, Piece)> {
        let beside = self.starts_beside(start);
        (order.k()..=ORDER_MAX.k()).filter(|&k| self.of_order[k as usize] > 0).find_map(|k| {
            let at = start & !((1 << k) - 1);
            if at / 64 == start / 64 && beside >> (at % 64) & 1 == 0 {
                return None;
            }
            let piece = self.pieces.get(&at).filter(|piece| piece.0.k() == k)?;
            Some((at, *piece))
        })
    }

    /// Returns true if a piece may begin within an aligned range.
    fn may_begin_within(&self, start: u64, order: Order) -> bool {
        if order.frames() > 64 {
            return self.of_order[..order.k() as usize].iter().any(|&count| count > 0);
        }
        self.starts_beside(start) >> (start % 64) & (u64::MAX >> (64 - order.frames())) != 0
    }

    /// Takes an aligned range out of whatever pieces lie in it. `gone` gets
    /// each handle that has no piece left, `unseen` each part of the range
    /// that no piece covered, in the largest aligned blocks. Returns how many
    /// frames pieces covered.
    fn release(
        &mut self,
        start: u64,
        order: Order,
        gone: &mut Vec<(u32, bool)>,
        unseen: &mut impl FnMut(HeldBlock),
    ) -> u64 {
        let covered = self.release_within(start, order, gone, unseen);
        if covered == 0 {
            unseen(HeldBlock { start: Pfn::new(start), order });
        }
        covered
    }

    fn release_within(
        &mut self,
        start: u64,
        order: Order,
        gone: &mut Vec<(u32, bool)>,
        unseen: &mut impl FnMut(HeldBlock),
    ) -> u64 {
        if let Some((mut at, (mut whole, id))) = self.covering(start, order) {
            self.cut(at, (whole, id));
            while whole > order {
                self.parted[id as usize] = true;
                whole = Order::known(whole.k() as u8 - 1);
                let upper = at + whole.frames();
                let (keep, within) = if start < upper { (upper, at) } else { (at, upper) };
                self.put(keep, (whole, id));
                at = within;
            }
            if self.pieces_of[id as usize] == 0 {
                gone.push((id, self.parted[id as usize]));
                self.free_ids.push(id);
            }
            return order.frames();
        }
        if order.k() == 0 || !self.may_begin_within(start, order) {
            return 0;
        }
        let half = Order::known(order.k() as u8 - 1);
        let starts = [start, start + half.frames()];
        let covered = starts.map(|start| self.release_within(start, half, gone, unseen));
        match covered {
            [0, 0] => {}
            [0, _] => unseen(HeldBlock { start: Pfn::new(starts[0]), order: half }),
            [_, 0] => unseen(HeldBlock { start: Pfn::new(starts[1]), order: half }),
            _ => {}
        }
        covered.iter().sum()
    }
}

/// Turns events into requests, in order, with the times of the events. O(1)
/// for an event on average over hashing; O(2^order) for a free whose
/// allocation was not seen. Memory is O(blocks allocated at once).
///
/// No more than `blocks_max` blocks and parts of blocks are allocated at once; what
/// [`blocks_max`] gives suits a file.
///
/// The blocks in `held` are allocated first, at time 0 on processor 0, as
/// movable memory (a recording does not say what it was): what
/// [`held_before`] found in the same recording, or nothing.
///
/// # Errors
/// The first error of `events`, or [`FileError::TooLarge`]; what came before was handed
/// out.
pub fn replay<E: From<FileError>>(
    events: impl IntoIterator<Item = Result<PageEvent, E>>,
    held: &[HeldBlock],
    blocks_max: usize,
    sink: &mut impl FnMut(TimedOp),
) -> Result<ReplayCounts, E> {
    pair(events, held, blocks_max, sink, &mut |_| Ok(()))
}

/// Frames as disjoint aligned blocks, of which no two buddies are both there.
#[derive(Default)]
struct Frames(BTreeMap<u64, Order>);

impl Frames {
    /// Adds a block; returns true if none of its frames was there. O(log n).
    fn add(&mut self, start: u64, order: Order) -> bool {
        let end = start + order.frames();
        if let Some((&at, &there)) = self.0.range(..=start).next_back()
            && at + there.frames() >= end
        {
            return false;
        }
        let mut new = true;
        while let Some((&inside, _)) = self.0.range(start..end).next() {
            self.0.remove(&inside);
            new = false;
        }
        let (mut start, mut order) = (start, order);
        while order < ORDER_MAX && self.0.get(&(start ^ order.frames())) == Some(&order) {
            self.0.remove(&(start ^ order.frames()));
            start &= !order.frames();
            order = Order::known(order.k() as u8 + 1);
        }
        self.0.insert(start, order);
        new
    }
}

/// The blocks that are freed without having been allocated in the recording,
/// in the order of the frees. Costs as [`replay`], and O(blocks found) memory, of which
/// there are at most `blocks_max`.
///
/// # Errors
/// As [`replay`].
pub fn held_before<E: From<FileError>>(
    events: impl IntoIterator<Item = Result<PageEvent, E>>,
    blocks_max: usize,
) -> Result<Vec<HeldBlock>, E> {
    Ok(look_through(events, blocks_max)?.held)
}

/// The facts of a recording that a replay event by event has to know before it begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outline {
    /// The blocks that [`held_before`] finds.
    pub held: Vec<HeldBlock>,
    /// Handles that its requests use, those of `held` among them.
    pub handles: usize,
    /// Requests and releases, without those of `held`.
    pub requests: u64,
    /// The time of the last of them.
    pub last_us: u64,
}

/// Goes through a recording once. Costs as [`held_before`].
///
/// # Errors
/// As [`replay`].
pub fn look_through<E: From<FileError>>(
    events: impl IntoIterator<Item = Result<PageEvent, E>>,
    blocks_max: usize,
) -> Result<Outline, E> {
    // A frame that was not allocated when it was freed for the first time was
    // held before; a second time, an allocation in between was not seen.
    let mut seen = Frames::default();
    let mut outline = Outline::default();
    let mut pairing = Pairing::new(blocks_max);
    let Outline { held, requests, last_us, .. } = &mut outline;
    for event in events {
        let event = event?;
        let mut sink = |op: TimedOp| {
            *requests += 1;
            *last_us = op.time_us;
        };
        let mut releases = (0, 0);
        pairing.see(event, &mut sink, &mut |found| {
            match found {
                Observed::Unseen(block) => {
                    if seen.add(block.start.raw(), block.order) {
                        held.push(block);
                        // Its release, once it is held.
                        releases = (releases.0 + 1, event.time_us);
                    }
                }
                Observed::Allocated(block) => {
                    seen.add(block.start.raw(), block.order);
                }
            }
            within(seen.0.len().max(held.len()), blocks_max)
        })?;
        if releases.0 > 0 {
            *requests += releases.0;
            *last_us = releases.1;
        }
    }
    outline.handles = pairing.handles() + outline.held.len();
    Ok(outline)
}

fn within(count: usize, blocks_max: usize) -> Result<(), FileError> {
    if count > blocks_max {
        return Err(PAGE_FORMAT.too_large(blocks_max as u64, "blocks to be kept at once"));
    }
    Ok(())
}

/// The part of an event that [`held_before`] looks at.
enum Observed {
    Unseen(HeldBlock),
    Allocated(HeldBlock),
}

fn pair<E: From<FileError>>(
    events: impl IntoIterator<Item = Result<PageEvent, E>>,
    held: &[HeldBlock],
    blocks_max: usize,
    sink: &mut impl FnMut(TimedOp),
    found: &mut impl FnMut(Observed) -> Result<(), FileError>,
) -> Result<ReplayCounts, E> {
    let mut pairing = Pairing::new(blocks_max);
    for &block in held {
        pairing.hold(block, sink);
    }
    for event in events {
        pairing.see(event?, sink, found)?;
    }
    Ok(pairing.counts())
}

/// The blocks that are allocated while events become requests, one event after the other.
pub(crate) struct Pairing {
    blocks: Blocks,
    counts: ReplayCounts,
    gone: Vec<(u32, bool)>,
    blocks_max: usize,
}

impl Pairing {
    /// Nothing is allocated, and at most so many blocks and parts of blocks will be at once.
    pub(crate) fn new(blocks_max: usize) -> Self {
        let (blocks, counts) = (Blocks::new(), ReplayCounts::default());
        Self { blocks, counts, gone: Vec::new(), blocks_max }
    }

    /// Allocates what was held before the first event. Blocks that do not overlap get the handles 0,
    /// 1, 2, … in turn.
    pub(crate) fn hold(&mut self, block: HeldBlock, sink: &mut impl FnMut(TimedOp)) {
        let HeldBlock { start, order } = block;
        if (PageChange::Free { start, order }).fault().is_some() {
            return;
        }
        let Self { blocks, gone, .. } = self;
        // Overlapping blocks, which no recording gives, would make two handles
        // of one frame.
        blocks.release(start.raw(), order, gone, &mut |_| {});
        for (id, _) in gone.drain(..) {
            sink(TimedOp { time_us: 0, op: ReplayOp::Free { id } });
        }
        let id = blocks.add(start.raw(), order);
        let op = ReplayOp::Alloc {
            id,
            order,
            mobility: Mobility::Movable,
            zone_max: ZoneMax::Movable,
            cached: false,
            cpu: 0,
        };
        sink(TimedOp { time_us: 0, op });
        self.counts.peak_frames = self.counts.peak_frames.max(self.blocks.frames);
    }

    /// Hands out the requests that an event means. Costs as for [`replay`].
    ///
    /// # Errors
    /// [`FileError::TooLarge`], or that of `found`.
    fn see(
        &mut self,
        event: PageEvent,
        sink: &mut impl FnMut(TimedOp),
        found: &mut impl FnMut(Observed) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let Self { blocks, counts, gone, .. } = self;
        let PageEvent { time_us, cpu, change } = event;
        if change.fault().is_some() {
            return Ok(());
        }
        match change {
            PageChange::Alloc { start, order, migrate_type, zone_max, read_ahead: cached } => {
                blocks.release(start.raw(), order, gone, &mut |_| {});
                for (id, parted) in gone.drain(..) {
                    counts.frees += 1;
                    counts.frees_implied += 1;
                    counts.frees_in_parts += u64::from(parted);
                    sink(TimedOp { time_us, op: ReplayOp::Free { id } });
                }
                found(Observed::Allocated(HeldBlock { start, order }))?;
                let id = blocks.add(start.raw(), order);
                counts.allocs += 1;
                counts.peak_frames = counts.peak_frames.max(blocks.frames);
                // The reserves serve requests, but no request names them.
                let mobility = mobility_of(migrate_type).unwrap_or(Mobility::Unmovable);
                let op = ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu };
                sink(TimedOp { time_us, op });
            }
            PageChange::Free { start, order } => {
                let mut failed = Ok(());
                let mut unseen = |block: HeldBlock| {
                    counts.unseen_frames += block.order.frames();
                    if failed.is_ok() {
                        failed = found(Observed::Unseen(block));
                    }
                };
                blocks.release(start.raw(), order, gone, &mut unseen);
                failed?;
                for (id, parted) in gone.drain(..) {
                    counts.frees += 1;
                    counts.frees_in_parts += u64::from(parted);
                    sink(TimedOp { time_us, op: ReplayOp::Free { id } });
                }
            }
            PageChange::AllocFailed { .. } => counts.refused += 1,
            PageChange::Lost { count } => counts.lost = counts.lost.saturating_add(count),
            PageChange::FreeBatched { .. }
            | PageChange::Drain { .. }
            | PageChange::Take { .. }
            | PageChange::Fallback { .. } => {}
        }
        within(self.blocks.pieces.len(), self.blocks_max)
    }

    /// Hands out the requests that an event means; frames that were not seen before are passed over.
    ///
    /// # Errors
    /// [`FileError::TooLarge`].
    pub(crate) fn event(
        &mut self,
        event: PageEvent,
        sink: &mut impl FnMut(TimedOp),
    ) -> Result<(), FileError> {
        self.see(event, sink, &mut |_| Ok(()))
    }

    /// Returns the number of handles that were in use at once.
    fn handles(&self) -> usize {
        self.blocks.pieces_of.len()
    }

    /// Returns what was counted so far.
    fn counts(&self) -> ReplayCounts {
        let Self { blocks, counts, .. } = self;
        ReplayCounts {
            live_blocks: (blocks.pieces_of.len() - blocks.free_ids.len()) as u64,
            live_frames: blocks.frames,
            ..*counts
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use swath_arch::testing::Random;

    use super::*;

    #[test]
    fn blocks_of_frames_against_a_set_of_frames() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let (mut frames, mut model) = (Frames::default(), BTreeSet::new());
            for _ in 0..200 {
                let k = random.within(0..6) as u8;
                let start = random.within(0..512) >> k << k;
                let range = start..start + (1 << k);
                let new = range.clone().all(|frame| !model.contains(&frame));
                model.extend(range);
                assert_eq!(frames.add(start, Order::known(k)), new, "seed {seed}");
                let held = frames.0.iter().flat_map(|(&at, order)| at..at + order.frames());
                assert!(held.eq(model.iter().copied()), "seed {seed}");
                for (&at, order) in &frames.0 {
                    let buddy = frames.0.get(&(at ^ order.frames()));
                    assert_ne!(buddy, Some(order), "seed {seed}: two buddies");
                }
            }
        }
    }

    #[test]
    fn more_blocks_than_are_kept() {
        let order = Order::BASE;
        let change = |start| PageChange::Alloc {
            start: Pfn::new(start),
            order,
            migrate_type: MigrateType::MOVABLE,
            zone_max: ZoneMax::Movable,
            read_ahead: false,
        };
        let event = |start| Ok(PageEvent { time_us: 0, cpu: 0, change: change(start) });
        for (count, fits) in [(100, true), (101, false)] {
            let counts: Result<_, FileError> = replay((0..count).map(event), &[], 100, &mut |_| {});
            match counts {
                Ok(counts) => assert!(fits && counts.live_blocks == 100),
                Err(FileError::TooLarge { limit, .. }) => assert!(!fits && limit == 100),
                Err(error) => panic!("{error}"),
            }
        }
        let free = |start: u64| {
            let change = PageChange::Free { start: Pfn::new(3 * start), order };
            Ok(PageEvent { time_us: 0, cpu: 0, change })
        };
        for (count, fits) in [(100, true), (101, false)] {
            let held: Result<_, FileError> = held_before((0..count).map(free), 100);
            assert_eq!(held.is_ok(), fits);
        }
    }
}

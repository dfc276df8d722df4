//! The state in which a machine begins when it is not all free: frames in use, as a snapshot of a
//! real machine has them or as a [target](crate::papers::green::machine::age) says.

use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::linux::ORDER_MAX;
use swath_frame::{ByteRange, Mobility};
use swath_trace::machine::{Snapshot, UnknownFrames};

use crate::papers::green::machine::blocks::{Blocks, Tie};
use crate::papers::green::pages::requests::HeldBlock;

/// The most frames of memory, from the first to the last: 1 TiB.
const SPAN_MAX: u64 = 1 << 28;

/// The most frames of memory: 256 GiB.
const FRAMES_MAX: u64 = 1 << 26;

/// Reasons why a machine cannot begin so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// The memory is more than is simulated.
    #[error("{frames} frames over {span}: more than {FRAMES_MAX}, or than {SPAN_MAX} to the last")]
    TooLarge {
        /// Frames.
        frames: u64,
        /// Frames from 0 to the last.
        span: u64,
    },
    /// There is no frame.
    #[error("no frame of memory")]
    Empty,
    /// A node's memory lies between another's.
    #[error("node {node} begins at frame {start}, before node {before} ends")]
    Nodes {
        /// The node.
        node: u64,
        /// Its first frame.
        start: u64,
        /// The node before it.
        before: u64,
    },
}

/// The memory of a machine, and its frames in use.
///
/// Invariants: the extents of `used` ascend, do not overlap, lie in `ranges`, and neighbours differ in
/// mobility; a frame that is not in one is free.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineStart {
    ranges: Vec<ByteRange>,
    nodes: Vec<Extent>,
    used: Vec<(Extent, Mobility)>,
    frames: u64,
    used_frames: u64,
    seed: u64,
}

impl MachineStart {
    /// A snapshot's machine. Frames of files, of anonymous memory and of folios are movable, all
    /// others in use are not; those whose state is unknown are unmovable or free. Linux's free lists
    /// are in an order drawn from `seed`, as those of a machine that has run for long are in none.
    /// O(runs).
    ///
    /// # Errors
    /// A [`StartError`].
    pub fn of_snapshot(
        snapshot: &Snapshot,
        unknown: UnknownFrames,
        seed: u64,
    ) -> Result<Self, StartError> {
        let areas: Vec<Extent> = snapshot.ranges().iter().map(|range| range.frames()).collect();
        let frames = areas.iter().map(|area| area.count).sum();
        let span = areas.last().map_or(0, |area| area.end().raw());
        if frames > FRAMES_MAX || span > SPAN_MAX {
            return Err(StartError::TooLarge { frames, span });
        }
        if frames == 0 {
            return Err(StartError::Empty);
        }
        let nodes = nodes(snapshot)?;
        let areas = areas.into_iter().filter(|area| !area.is_empty());
        let ranges = areas.map(ByteRange::of_frames).collect();
        let used = snapshot.runs().filter_map(|run| {
            let mobility = match run.kind {
                kind if kind.is_free(unknown) => return None,
                kind if kind.is_movable() => Mobility::Movable,
                _ => Mobility::Unmovable,
            };
            Some((run.extent, mobility))
        });
        Ok(Self::new(ranges, nodes, used, frames, seed))
    }

    /// So many frames in these ranges, with these of them in use, ascending.
    pub(crate) fn new(
        ranges: Vec<ByteRange>,
        nodes: Vec<Extent>,
        used: impl IntoIterator<Item = (Extent, Mobility)>,
        frames: u64,
        seed: u64,
    ) -> Self {
        let mut joined: Vec<(Extent, Mobility)> = Vec::new();
        for (run, mobility) in used {
            match joined.last_mut() {
                Some((last, own)) if last.end() == run.start && *own == mobility => {
                    last.count += run.count;
                }
                _ => joined.push((run, mobility)),
            }
        }
        let used_frames = joined.iter().map(|(run, _)| run.count).sum();
        Self { ranges, nodes, used: joined, frames, used_frames, seed }
    }

    /// Its memory.
    pub(crate) fn ranges(&self) -> &[ByteRange] {
        &self.ranges
    }

    /// The memory of each node.
    pub(crate) fn nodes(&self) -> &[Extent] {
        &self.nodes
    }

    /// The frames in use, ascending.
    pub fn used(&self) -> &[(Extent, Mobility)] {
        &self.used
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the number of frames in use.
    pub fn used_frames(&self) -> u64 {
        self.used_frames
    }

    /// Returns the seed of what is drawn.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of the first run that ends behind a frame.
    fn at(&self, frame: Pfn) -> usize {
        self.used.partition_point(|(run, _)| run.end() <= frame)
    }

    /// The mobility of the owner of a block's frames, if all are in use by owners of one. O(log n) for n
    /// runs.
    pub(crate) fn owner(&self, start: Pfn, order: Order) -> Option<Mobility> {
        let (run, mobility) = self.used.get(self.at(start))?;
        let block = Extent::new(start, order.frames());
        (run.intersect(block) == block).then_some(*mobility)
    }

    /// The free extents of an area of memory, ascending. O(log n) and O(1) for each.
    pub(crate) fn free(&self, area: Extent) -> impl Iterator<Item = Extent> {
        let runs = self.used[self.at(area.start)..].iter().map(|(run, _)| *run);
        let runs = runs.take_while(move |run| run.start < area.end());
        let mut at = area.start;
        runs.chain([Extent::new(area.end(), 0)]).filter_map(move |run| {
            let free = Extent::between(at, run.start.max(at));
            at = run.end();
            (!free.is_empty()).then_some(free)
        })
    }

    /// Counts the movable frames of an extent and the others in use.
    fn users(&self, extent: Extent) -> (u64, u64) {
        let (mut movable, mut unmovable) = (0, 0);
        let runs = self.used[self.at(extent.start)..].iter();
        for (run, mobility) in runs.take_while(|(run, _)| run.start < extent.end()) {
            let count = run.intersect(extent).count;
            *(if *mobility == Mobility::Movable { &mut movable } else { &mut unmovable }) += count;
        }
        (movable, unmovable)
    }

    /// The mobility of a pageblock, which a snapshot does not say: unmovable if one of its frames is, and
    /// such a request would claim it, so that half of it is free or unmovable; else movable.
    pub(crate) fn pageblock(&self, pageblock: Extent) -> Mobility {
        let (movable, unmovable) = self.users(pageblock);
        match unmovable > 0 && 2 * movable <= pageblock.count {
            true => Mobility::Unmovable,
            false => Mobility::Movable,
        }
    }

    /// The blocks in which owners have the frames in use but for those of `held`, which ascend and are in
    /// use: single frames if they are movable, so that each can go elsewhere, and else blocks as large
    /// as they can be.
    pub(crate) fn blocks(&self, held: &[Extent], visit: &mut dyn FnMut(Pfn, Order, Mobility)) {
        let mut held = held.iter().copied().peekable();
        for &(run, mobility) in &self.used {
            let mut at = run.start;
            while at < run.end() {
                let next = held.peek().copied().filter(|block| block.start < run.end());
                let end = next.map_or(run.end(), |block| block.start);
                let top = if mobility == Mobility::Movable { Order::BASE } else { ORDER_MAX };
                for (start, order) in Extent::between(at, end).blocks(top) {
                    visit(start, order, mobility);
                }
                at = next.map_or(run.end(), |block| block.end());
                if next.is_some() {
                    held.next();
                }
            }
        }
    }
}

/// A machine's start and who has its frames.
#[derive(Clone, Copy, Debug)]
pub struct Begin<'a> {
    /// The state.
    pub start: &'a MachineStart,
    /// Blocks whose frames are the requests' own from the beginning, by their handles 0, 1, 2, …, as far
    /// as the state [has](Self::has) them.
    pub held: &'a [HeldBlock],
    /// The first handle that no request uses.
    pub handles_from: u32,
}

impl Begin<'_> {
    /// Returns true if a block's frames are in use at the start, all by owners of one mobility.
    pub fn has(&self, block: HeldBlock) -> bool {
        self.owner(block).is_some()
    }

    /// The mobility of a block's owner at the start. Longer ones than a zone's are not one block there.
    fn owner(&self, HeldBlock { start, order }: HeldBlock) -> Option<Mobility> {
        (order <= ORDER_MAX).then(|| self.start.owner(start, order)).flatten()
    }

    /// Gives every frame in use to a handle, `tie` saying what ties a block there. O(frames in use).
    pub(crate) fn place(&self, blocks: &mut Blocks, tie: &dyn Fn(Pfn, Order, Mobility) -> Tie) {
        let mut held = Vec::new();
        for (id, &block) in (0..).zip(self.held) {
            let HeldBlock { start, order } = block;
            if let Some(mobility) = self.owner(block) {
                blocks.place(id, &[start], order, 0, tie(start, order, mobility));
                held.push(Extent::new(start, order.frames()));
            }
        }
        held.sort_unstable_by_key(|block| block.start);
        let mut id = self.handles_from;
        self.start.blocks(&held, &mut |start, order, mobility| {
            blocks.place(id, &[start], order, 0, tie(start, order, mobility));
            id += 1;
        });
    }
}

/// The span of each node, from the node's first frame to the next node's.
fn nodes(snapshot: &Snapshot) -> Result<Vec<Extent>, StartError> {
    // Number, first frame, end.
    let mut spans: Vec<(u64, u64, u64)> = Vec::new();
    for zone in &snapshot.facts().zones {
        let end = zone.start_frame.saturating_add(zone.spanned_frames);
        if zone.spanned_frames == 0 {
            continue;
        }
        match spans.iter_mut().find(|(node, ..)| *node == zone.node) {
            Some((_, first, last)) => {
                *first = zone.start_frame.min(*first);
                *last = end.max(*last);
            }
            None => spans.push((zone.node, zone.start_frame, end)),
        }
    }
    spans.sort_by_key(|&(_, first, _)| first);
    for two in spans.windows(2) {
        let [(before, _, end), (node, start, _)] = [two[0], two[1]];
        if start < end {
            return Err(StartError::Nodes { node, start, before });
        }
    }
    let mut borders: Vec<u64> = spans.iter().map(|&(_, first, _)| first).collect();
    // Frames before the first zone, as those that firmware has, are the first node's.
    borders.resize(borders.len().max(1), 0);
    borders[0] = 0;
    borders.push(SPAN_MAX.max(borders[borders.len() - 1] + 1));
    let span = |two: &[u64]| Extent::between(Pfn::new(two[0]), Pfn::new(two[1]));
    Ok(borders.windows(2).map(span).collect())
}

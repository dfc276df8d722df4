//! The handles of a replay and the frames that each owns, so that frames can be
//! moved under their owners.

use foldhash::{HashMap, HashMapExt};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::Mobility;
use swath_frame::zone::linux::ORDER_MAX;
use swath_vm::migrate::daemon::{Owners, Stuck};

/// The tie of a block to its frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tie {
    /// It stays where it is.
    Fixed,
    /// It can be moved.
    Movable,
    /// It can be moved, or dropped at once and read again.
    Cached,
}

impl Tie {
    /// The tie of a block that cannot be dropped.
    pub(crate) const fn of(mobility: Mobility) -> Self {
        match mobility {
            Mobility::Movable => Self::Movable,
            Mobility::Unmovable | Mobility::Reclaimable => Self::Fixed,
        }
    }
}

/// The place of a handle's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandlePlace {
    /// The handle is not in use.
    Nowhere,
    /// Its request failed; its release has nothing to give back.
    Failed,
    /// One block, which cannot be moved.
    Block,
    /// One block that can.
    Movable,
    /// One block that can be dropped as well.
    Cached,
    /// Single frames that can be moved, in `parts`.
    Parts,
    /// Single frames that can be dropped as well, in `parts`.
    CachedParts,
}

impl HandlePlace {
    const fn is_block(self) -> bool {
        matches!(self, Self::Block | Self::Movable | Self::Cached)
    }

    const fn is_parts(self) -> bool {
        matches!(self, Self::Parts | Self::CachedParts)
    }
}

/// A handle's block. Eight bytes: most of a removal is the wait for one of them.
#[derive(Clone, Copy, Debug)]
struct BlockEntry {
    /// The number of a block's first frame.
    number: u32,
    cpu: u16,
    order: Order,
    place: HandlePlace,
}

impl BlockEntry {
    const VACANT: Self =
        Self { number: 0, cpu: 0, order: Order::BASE, place: HandlePlace::Nowhere };
}

/// Handles and, if frames are moved, frames the other way round.
///
/// Invariants: `heads[f - first]`, where there are heads, is one more than the handle whose block
/// begins at frame f, or of which f is a single part; for other frames it is 0 or one more than a handle
/// that has no block there any more. `parts` has exactly the handles in parts.
#[derive(Debug)]
pub(crate) struct Blocks {
    first: Pfn,
    heads: Vec<u32>,
    entries: Vec<BlockEntry>,
    parts: HashMap<u32, Vec<Pfn>>,
}

impl Blocks {
    /// No handles, over the frames of `span`; the handles of frames are known only if frames
    /// are `moved` or dropped.
    pub(crate) fn new(span: Extent, moved: bool) -> Self {
        Self {
            first: span.start,
            heads: vec![0; if moved { span.count as usize } else { 0 }],
            entries: Vec::new(),
            parts: HashMap::new(),
        }
    }

    /// The handle that last had a block or part that begins at a frame.
    fn head(&self, frame: Pfn) -> Option<u32> {
        let at = frame.raw().checked_sub(self.first.raw())?;
        self.heads.get(at as usize)?.checked_sub(1)
    }

    fn set_head(&mut self, frame: Pfn, head: u32) {
        let at = frame - self.first;
        if let Some(place) = self.heads.get_mut(at as usize) {
            *place = head;
        }
    }

    /// Counts the handles from this one on, up to `count`, that may name new blocks.
    pub(crate) fn count_vacant(&self, id: u32, count: u32) -> u32 {
        let known = self.entries.iter().skip(id as usize).take(count as usize);
        let mut used = known.enumerate();
        let used = used.find(|(_, entry)| entry.place != HandlePlace::Nowhere);
        used.map_or(count, |(nth, _)| nth as u32)
    }

    fn enter(&mut self, id: u32, entry: BlockEntry) {
        self.reach(id, 1)[0] = entry;
    }

    /// The entries of handles in a row.
    fn reach(&mut self, id: u32, count: usize) -> &mut [BlockEntry] {
        let first = id as usize;
        if first + count > self.entries.len() {
            self.entries.resize(first + count, BlockEntry::VACANT);
        }
        &mut self.entries[first..first + count]
    }

    /// Returns the number of a frame from the first. The studies' machines have far fewer than
    /// 2^32 frames.
    fn number(&self, frame: Pfn) -> u32 {
        debug_assert!(frame - self.first <= u64::from(u32::MAX));
        (frame - self.first) as u32
    }

    fn frame(&self, number: u32) -> Pfn {
        self.first + u64::from(number)
    }

    /// Names blocks of one order by vacant handles in a row, the first of which is `id`.
    pub(crate) fn place(&mut self, id: u32, blocks: &[Pfn], order: Order, cpu: u16, tie: Tie) {
        let place = match tie {
            Tie::Fixed => HandlePlace::Block,
            Tie::Movable => HandlePlace::Movable,
            Tie::Cached => HandlePlace::Cached,
        };
        let first = self.first;
        for (entry, &block) in self.reach(id, blocks.len()).iter_mut().zip(blocks) {
            *entry = BlockEntry { number: (block - first) as u32, cpu, order, place };
        }
        if !self.heads.is_empty() {
            for (head, &block) in (id + 1..).zip(blocks) {
                self.set_head(block, head);
            }
        }
    }

    /// Names single frames by the vacant handle, in place of a block.
    pub(crate) fn place_parts(
        &mut self,
        id: u32,
        frames: Vec<Pfn>,
        order: Order,
        cpu: u16,
        tie: Tie,
    ) {
        for &frame in &frames {
            self.set_head(frame, id + 1);
        }
        let cached = tie == Tie::Cached;
        let place = if cached { HandlePlace::CachedParts } else { HandlePlace::Parts };
        self.enter(id, BlockEntry { number: 0, cpu, order, place });
        self.parts.insert(id, frames);
    }

    /// The vacant handle's request has failed.
    pub(crate) fn fail(&mut self, id: u32) {
        self.enter(id, BlockEntry { place: HandlePlace::Failed, ..BlockEntry::VACANT });
    }

    /// Reads what handles have that are about to be removed, so that one wait for memory does for
    /// all of them.
    pub(crate) fn fetch(&self, rows: impl Iterator<Item = (u32, u32)>) {
        let mut all = 0;
        for (id, count) in rows {
            let past = (id as usize + count as usize).min(self.entries.len());
            let mut at = id as usize;
            while at < past {
                all ^= self.entries[at].number;
                at += 8;
            }
        }
        std::hint::black_box(all);
    }

    /// Makes handles in a row vacant, from `id` on, as long as each has one block of this order,
    /// taken on this CPU (if none is said, those of the first), and `blocks` has room for them;
    /// returns their number.
    pub(crate) fn remove_row(
        &mut self,
        id: u32,
        kind: &mut Option<(Order, u16)>,
        blocks: &mut [Pfn],
    ) -> usize {
        let first = self.first;
        let entries = self.entries.get_mut(id as usize..).unwrap_or_default();
        let mut count = 0;
        for (block, entry) in blocks.iter_mut().zip(entries) {
            let own = (entry.order, entry.cpu);
            if !entry.place.is_block() || *kind.get_or_insert(own) != own {
                break;
            }
            *block = first + u64::from(entry.number);
            entry.place = HandlePlace::Nowhere;
            count += 1;
        }
        count
    }

    /// Makes a handle vacant that has no block: its single frames, of which there are none if its
    /// request had failed, and the CPU on which they were taken. `None` if it was vacant.
    pub(crate) fn remove_parts(&mut self, id: u32) -> Option<(Vec<Pfn>, u16)> {
        let entry = self.entries.get_mut(id as usize)?;
        if entry.place != HandlePlace::Failed && !entry.place.is_parts() {
            return None;
        }
        entry.place = HandlePlace::Nowhere;
        Some((self.parts.remove(&id).unwrap_or_default(), entry.cpu))
    }

    /// The handle and the block around a frame: of a handle in parts, the frame
    /// alone.
    pub(crate) fn block_of(&self, frame: Pfn) -> Option<(u32, Pfn, Order)> {
        (0..=ORDER_MAX.k()).find_map(|k| {
            let start = frame.align_down(k);
            let id = self.head(start)?;
            let entry = self.entries.get(id as usize)?;
            if entry.place.is_parts() {
                let is_part = k == 0 && self.parts.get(&id)?.contains(&start);
                return is_part.then_some((id, start, Order::BASE));
            }
            let covers = frame - start < entry.order.frames();
            let is_own = entry.place.is_block() && self.frame(entry.number) == start;
            (is_own && covers).then_some((id, start, entry.order))
        })
    }

    /// Returns true if a handle's frames may be moved.
    pub(crate) fn is_movable(&self, id: u32) -> bool {
        let entry = self.entries.get(id as usize);
        entry.is_some_and(|entry| {
            !matches!(entry.place, HandlePlace::Nowhere | HandlePlace::Failed | HandlePlace::Block)
        })
    }

    /// Returns true if a handle's frames may be dropped.
    pub(crate) fn is_cached(&self, id: u32) -> bool {
        let place = self.entries.get(id as usize).map(|entry| entry.place);
        matches!(place, Some(HandlePlace::Cached | HandlePlace::CachedParts))
    }

    /// Drops what a handle has, a block or single frames, and returns it with its order; `None` if it cannot be dropped.
    /// The handle's release will give nothing back.
    pub(crate) fn drop_cached(&mut self, id: u32) -> Option<(Vec<Pfn>, Order)> {
        if !self.is_cached(id) {
            return None;
        }
        let BlockEntry { number, order, .. } = self.entries[id as usize];
        self.fail(id);
        let parts = self.parts.remove(&id).map(|parts| (parts, Order::BASE));
        Some(parts.unwrap_or_else(|| (vec![self.frame(number)], order)))
    }

    /// Notes that the block at `from` has moved to `to`. Returns false if there is none.
    pub(crate) fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> bool {
        let Some((id, start, whole)) = self.block_of(from) else { return false };
        if (start, whole) != (from, order) {
            return false;
        }
        self.set_head(from, 0);
        self.set_head(to, id + 1);
        let number = self.number(to);
        match self.parts.get_mut(&id) {
            Some(parts) => {
                parts.iter_mut().filter(|part| **part == from).for_each(|part| *part = to);
            }
            None => self.entries[id as usize].number = number,
        }
        true
    }

    /// Makes single frames of the block at `start`. Returns false if there is none.
    pub(crate) fn split(&mut self, start: Pfn, order: Order) -> bool {
        let Some((id, at, whole)) = self.block_of(start) else { return false };
        if (at, whole) != (start, order) || order == Order::BASE {
            return false;
        }
        let frames: Vec<Pfn> = Extent::new(start, order.frames()).iter().collect();
        for &frame in &frames {
            self.set_head(frame, id + 1);
        }
        let place = &mut self.entries[id as usize].place;
        let cached = *place == HandlePlace::Cached;
        *place = if cached { HandlePlace::CachedParts } else { HandlePlace::Parts };
        self.parts.insert(id, frames);
        true
    }

    /// Visits every block: its frames and whether they may be moved. O(handles
    /// and parts).
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(Extent, bool)) {
        for (id, entry) in self.entries.iter().enumerate() {
            match entry.place {
                HandlePlace::Block | HandlePlace::Movable | HandlePlace::Cached => {
                    let extent = Extent::new(self.frame(entry.number), entry.order.frames());
                    visit(extent, entry.place != HandlePlace::Block);
                }
                HandlePlace::Parts | HandlePlace::CachedParts => {
                    for &frame in &self.parts[&(id as u32)] {
                        visit(Extent::new(frame, 1), true);
                    }
                }
                HandlePlace::Nowhere | HandlePlace::Failed => {}
            }
        }
    }

    /// Walks the invariants. O(frames and handles).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        for (id, entry) in self.entries.iter().enumerate() {
            let is_own =
                |frame: &Pfn| self.heads.is_empty() || self.head(*frame) == Some(id as u32);
            let parts = self.parts.get(&(id as u32));
            if entry.place.is_block() && !is_own(&self.frame(entry.number))
                || parts.is_some_and(|parts| !parts.iter().all(is_own))
            {
                return Err("a handle whose frame is another's");
            }
            if parts.is_some() != entry.place.is_parts() {
                return Err("parts of a handle that is not in parts");
            }
        }
        Ok(())
    }
}

/// The owners of the frames of a node's banks.
pub(crate) struct NodeOwners<'a> {
    blocks: &'a mut Blocks,
    /// Frames that blocks were moved to.
    pub(crate) targets: Vec<Pfn>,
}

impl<'a> NodeOwners<'a> {
    pub(crate) fn new(blocks: &'a mut Blocks) -> Self {
        Self { blocks, targets: Vec::new() }
    }
}

impl Owners for NodeOwners<'_> {
    fn block(&self, frame: Pfn) -> Result<Option<(Pfn, Order)>, Stuck> {
        match self.blocks.block_of(frame) {
            None => Ok(None),
            Some((id, _, _)) if !self.blocks.is_movable(id) => Err(Stuck::Unmovable),
            Some((_, start, order)) => Ok(Some((start, order))),
        }
    }

    fn relocate(&mut self, from: Pfn, to: Pfn, order: Order) -> Result<bool, Stuck> {
        let moved = self.blocks.relocate(from, to, order);
        if moved {
            self.targets.push(to);
        }
        Ok(moved)
    }

    fn split(&mut self, start: Pfn, order: Order) -> Result<bool, Stuck> {
        Ok(self.blocks.split(start, order))
    }
}

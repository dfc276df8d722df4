//! The handles of a replay and the frames that each owns, so that frames can be
//! moved under their owners.

use foldhash::{HashMap, HashMapExt};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::zone::linux::ORDER_MAX;
use swath_vm::migrate::daemon::{Owners, Stuck};

/// The place of a handle's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandlePlace {
    /// The handle is not in use.
    Nowhere,
    /// Its request failed; its release has nothing to give back.
    Failed,
    /// One block, which begins this many frames after the first.
    Block(u32),
    /// Single frames, in `parts`.
    Parts,
}

/// A handle's block. Twelve bytes: handles come back in no order, and most of a removal is the
/// wait for one of them.
#[derive(Clone, Copy, Debug)]
struct BlockEntry {
    place: HandlePlace,
    order: Order,
    cpu: u16,
    movable: bool,
}

/// The frames that a handle has given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// Its request had failed.
    Nothing,
    /// One extent.
    Extent(Extent),
    /// Single frames.
    Frames(Vec<Pfn>),
}

/// Handles and frames both ways.
///
/// Invariants: `heads[f - first]` is one more than the handle whose block
/// begins at frame f, or of which f is a single part; 0 for all other frames.
/// `parts` has exactly the handles in parts.
#[derive(Debug)]
pub(crate) struct Blocks {
    first: Pfn,
    heads: Vec<u32>,
    entries: Vec<BlockEntry>,
    parts: HashMap<u32, Vec<Pfn>>,
}

impl Blocks {
    /// No handles, over the frames of `span`.
    pub(crate) fn new(span: Extent) -> Self {
        Self {
            first: span.start,
            heads: vec![0; span.count as usize],
            entries: Vec::new(),
            parts: HashMap::new(),
        }
    }

    fn head(&self, frame: Pfn) -> Option<u32> {
        let at = frame.raw().checked_sub(self.first.raw())?;
        self.heads.get(at as usize)?.checked_sub(1)
    }

    fn set_head(&mut self, frame: Pfn, head: u32) {
        let at = frame - self.first;
        self.heads[at as usize] = head;
    }

    /// Returns true if the handle may name a new block.
    pub(crate) fn is_vacant(&self, id: u32) -> bool {
        self.entries.get(id as usize).is_none_or(|entry| entry.place == HandlePlace::Nowhere)
    }

    fn enter(&mut self, id: u32, place: HandlePlace, order: Order, cpu: u16, movable: bool) {
        let vacant =
            BlockEntry { place: HandlePlace::Nowhere, order: Order::BASE, cpu: 0, movable: false };
        if id as usize >= self.entries.len() {
            self.entries.resize(id as usize + 1, vacant);
        }
        self.entries[id as usize] = BlockEntry { place, order, cpu, movable };
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

    /// Names a block by the vacant handle.
    pub(crate) fn place(&mut self, id: u32, start: Pfn, order: Order, cpu: u16, movable: bool) {
        self.enter(id, HandlePlace::Block(self.number(start)), order, cpu, movable);
        self.set_head(start, id + 1);
    }

    /// Names single frames by the vacant handle, in place of a block.
    pub(crate) fn place_parts(&mut self, id: u32, frames: Vec<Pfn>, order: Order, cpu: u16) {
        for &frame in &frames {
            self.set_head(frame, id + 1);
        }
        self.enter(id, HandlePlace::Parts, order, cpu, true);
        self.parts.insert(id, frames);
    }

    /// The vacant handle's request has failed.
    pub(crate) fn fail(&mut self, id: u32) {
        self.enter(id, HandlePlace::Failed, Order::BASE, 0, false);
    }

    /// Makes the handle vacant: its frames, and the CPU on which they were taken.
    /// `None` if it was vacant.
    pub(crate) fn remove(&mut self, id: u32) -> Option<(Released, u16)> {
        let entry = self.entries.get_mut(id as usize)?;
        let place = std::mem::replace(&mut entry.place, HandlePlace::Nowhere);
        let BlockEntry { order, cpu, .. } = *entry;
        let released = match place {
            HandlePlace::Nowhere => return None,
            HandlePlace::Failed => Released::Nothing,
            HandlePlace::Block(number) => {
                let start = self.frame(number);
                self.set_head(start, 0);
                Released::Extent(Extent::new(start, order.frames()))
            }
            HandlePlace::Parts => {
                let frames = self.parts.remove(&id).unwrap_or_default();
                for &frame in &frames {
                    self.set_head(frame, 0);
                }
                Released::Frames(frames)
            }
        };
        Some((released, cpu))
    }

    /// The handle and the block around a frame: of a handle in parts, the frame
    /// alone.
    pub(crate) fn block_of(&self, frame: Pfn) -> Option<(u32, Pfn, Order)> {
        (0..=ORDER_MAX.k()).find_map(|k| {
            let start = frame.align_down(k);
            let id = self.head(start)?;
            let entry = self.entries[id as usize];
            match entry.place {
                HandlePlace::Block(number) => {
                    let at = self.frame(number);
                    (frame - at < entry.order.frames()).then_some((id, at, entry.order))
                }
                HandlePlace::Parts if k == 0 => Some((id, start, Order::BASE)),
                _ => None,
            }
        })
    }

    /// Returns true if a handle's frames may be moved.
    pub(crate) fn is_movable(&self, id: u32) -> bool {
        self.entries.get(id as usize).is_some_and(|entry| entry.movable)
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
        match &mut self.entries[id as usize].place {
            HandlePlace::Block(start) => *start = number,
            _ => {
                let parts = self.parts.get_mut(&id).into_iter().flatten();
                parts.filter(|part| **part == from).for_each(|part| *part = to);
            }
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
        self.entries[id as usize].place = HandlePlace::Parts;
        self.parts.insert(id, frames);
        true
    }

    /// Visits every block: its frames and whether they may be moved. O(handles
    /// and parts).
    pub(crate) fn for_each(&self, visit: &mut dyn FnMut(Extent, bool)) {
        for (id, entry) in self.entries.iter().enumerate() {
            match entry.place {
                HandlePlace::Block(number) => {
                    let start = self.frame(number);
                    visit(Extent::new(start, entry.order.frames()), entry.movable);
                }
                HandlePlace::Parts => {
                    for &frame in &self.parts[&(id as u32)] {
                        visit(Extent::new(frame, 1), entry.movable);
                    }
                }
                HandlePlace::Nowhere | HandlePlace::Failed => {}
            }
        }
    }

    /// Walks the invariants. O(frames and handles).
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut heads = 0;
        for (id, entry) in self.entries.iter().enumerate() {
            let is_own = |frame: &Pfn| self.head(*frame) == Some(id as u32);
            let parts = self.parts.get(&(id as u32));
            match entry.place {
                HandlePlace::Block(number) if is_own(&self.frame(number)) => heads += 1,
                HandlePlace::Parts if parts.is_some_and(|parts| parts.iter().all(is_own)) => {
                    heads += parts.map_or(0, Vec::len);
                }
                HandlePlace::Nowhere | HandlePlace::Failed => {}
                HandlePlace::Block(_) | HandlePlace::Parts => {
                    return Err("a handle whose frame is another's");
                }
            }
            if parts.is_some() != (entry.place == HandlePlace::Parts) {
                return Err("parts of a handle that is not in parts");
            }
        }
        if self.heads.iter().filter(|head| **head != 0).count() != heads {
            return Err("a frame whose handle has no such block");
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

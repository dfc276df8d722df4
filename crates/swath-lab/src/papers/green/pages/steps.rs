//! The meaning of a recording's events for the blocks of a zone: when they leave
//! and enter the free lists, and when they count as movable.
//!
//! Four things are not said by an event of their own, but follow from others:
//!
//! * **A claim within a pageblock** shows as a take and then, on the same
//!   processor, as the fallback that led to it.
//! * **A batch** is takes of a kind by one processor, between which neither the
//!   lists change nor the processor does anything else: the request that made it
//!   refill its per-CPU list shows right after them.
//! * **A free past the per-CPU lists**, which the kernel does when they are locked:
//!   what was freed is next taken from the free lists, without having been
//!   drained to them.
//! * **Being movable.** When the kernel looks at a pageblock it counts the frames
//!   that are on an LRU list as movable. A processor adds new ones to those lists
//!   31 at a time, or all it has when one of them is to be given back.

use std::collections::BTreeMap;
use std::ops::Range;

use swath_arch::{Order, Pfn};
use swath_frame::zone::linux::PAGEBLOCK_ORDER;

use swath_trace::pages::{MigrateType, PageChange, PageEvent};

/// A change of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockStep {
    pub(crate) start: Pfn,
    pub(crate) order: Order,
    pub(crate) what: BlockChange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockChange {
    /// It leaves the free lists, for a per-CPU list or its owner; whether as the
    /// next of a batch.
    Take { wanted: MigrateType, found: Option<FallbackFound>, next: bool },
    /// It enters the free lists.
    Give { list: Option<MigrateType> },
    /// It counts as movable from now on, until it is given back.
    Movable,
    /// Its owner gives it back, to a per-CPU list.
    Disown,
}

/// A fallback's other half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FallbackFound {
    pub(crate) order: Order,
    pub(crate) from: MigrateType,
    pub(crate) claimed: bool,
}

impl BlockStep {
    /// True if it enters the free lists, false if it leaves them; `None` for neither.
    pub(crate) fn is_free_after(&self) -> Option<bool> {
        match self.what {
            BlockChange::Take { .. } => Some(false),
            BlockChange::Give { .. } => Some(true),
            BlockChange::Movable | BlockChange::Disown => None,
        }
    }

    /// Its frames among `end` ones.
    pub(crate) fn frames(&self, end: usize) -> Range<usize> {
        let start = self.start.raw() as usize;
        start.min(end)..start.saturating_add(self.order.frames() as usize).min(end)
    }
}

/// For a request of this order there are per-CPU lists.
fn per_cpu(order: Order) -> bool {
    order.k() <= 3 || order == PAGEBLOCK_ORDER
}

/// Movable blocks that have got an owner and are not on an LRU list yet, by
/// processor.
#[derive(Default)]
struct NewMovable {
    rows: BTreeMap<u16, Vec<(Pfn, Order)>>,
}

impl NewMovable {
    const FULL: usize = 31;

    /// Takes a new block in. Larger ones do not wait.
    fn add(&mut self, start: Pfn, order: Order, cpu: u16, steps: &mut Vec<BlockStep>) {
        let row = self.rows.entry(cpu).or_default();
        row.push((start, order));
        if row.len() == Self::FULL || order > Order::BASE {
            Self::empty(row, steps);
        }
    }

    /// A block is given back, which cannot happen while it waits.
    fn give_back(&mut self, start: Pfn, steps: &mut Vec<BlockStep>) {
        let holds = |row: &&mut Vec<(Pfn, Order)>| row.iter().any(|(at, _)| *at == start);
        if let Some(row) = self.rows.values_mut().find(holds) {
            Self::empty(row, steps);
        }
    }

    fn empty(row: &mut Vec<(Pfn, Order)>, steps: &mut Vec<BlockStep>) {
        let step = |(start, order)| BlockStep { start, order, what: BlockChange::Movable };
        steps.extend(row.drain(..).map(step));
    }
}

/// The steps among the events. O(n log n) for n events.
pub(crate) fn steps(events: &[PageEvent]) -> Vec<BlockStep> {
    let mut steps: Vec<BlockStep> = Vec::new();
    let mut last_take = BTreeMap::new();
    let mut batch = None;
    let mut new_movable = NewMovable::default();
    // What was given back and has not been seen since: at which step.
    let mut given: BTreeMap<u64, usize> = BTreeMap::new();
    for event in events {
        let cpu = event.cpu;
        let own_last_take = last_take.remove(&cpu);
        let mut take = |start: Pfn, order: Order, wanted, found| {
            let next = batch.replace((cpu, order, wanted)) == Some((cpu, order, wanted));
            BlockStep { start, order, what: BlockChange::Take { wanted, found, next } }
        };
        let step = match event.change {
            PageChange::Take { start, order, migrate_type, .. } => {
                last_take.insert(cpu, steps.len());
                take(start, order, migrate_type, None)
            }
            PageChange::Fallback { start, order, fallback_order, wanted, found, claimed } => {
                let new = FallbackFound { order: fallback_order, from: found, claimed };
                if let Some(nth) = own_last_take
                    && let BlockStep {
                        start: at,
                        order: of,
                        what: BlockChange::Take { wanted: by, found, .. },
                    } = &mut steps[nth]
                    && (*at, *of, *by) == (start, order, wanted)
                {
                    *found = Some(new);
                    continue;
                }
                take(start, order, wanted, Some(new))
            }
            PageChange::Drain { start, order, migrate_type } => {
                given.remove(&start.raw());
                batch = None;
                BlockStep { start, order, what: BlockChange::Give { list: Some(migrate_type) } }
            }
            PageChange::Free { start, order } => {
                new_movable.give_back(start, &mut steps);
                if per_cpu(order) {
                    given.insert(start.raw(), steps.len());
                    batch = batch.filter(|(of, ..)| *of != cpu);
                    BlockStep { start, order, what: BlockChange::Disown }
                } else {
                    batch = None;
                    BlockStep { start, order, what: BlockChange::Give { list: None } }
                }
            }
            PageChange::Alloc { start, order, migrate_type, .. } => {
                given.remove(&start.raw());
                batch = batch.filter(|(of, ..)| *of != cpu);
                if migrate_type == MigrateType::MOVABLE {
                    new_movable.add(start, order, cpu, &mut steps);
                }
                continue;
            }
            _ => continue,
        };
        if let BlockChange::Take { .. } = step.what {
            let frames = step.start.raw()..step.start.raw().saturating_add(step.order.frames());
            let unseen: Vec<u64> = given.range(frames).map(|(start, _)| *start).collect();
            for nth in unseen.iter().filter_map(|start| given.remove(start)) {
                steps[nth].what = BlockChange::Give { list: None };
            }
        }
        steps.push(step);
    }
    steps
}

//! The free blocks that a CPU keeps of a zone, so that most requests do not
//! reach the zone: the kernel's per-CPU page lists (6.18).
//!
//! There is a list for each order from 0 to 3 and each mobility, and two for
//! the order of huge pages, one of them for movable blocks. A request takes the
//! head; if the list is empty, a batch of blocks comes from the zone, in the
//! order in which the zone hands them out, and the batches grow while a CPU
//! only allocates. A block that is freed becomes the head; once there are `high`
//! frames, the blocks at the tails go back to the zone: first those of the same
//! list, then list by list. The more a CPU frees without allocating, the more go
//! back at once.
//!
//! A CPU that frees many blocks of orders 1 to 3 returns all it has, since
//! such blocks fragment memory. The kernel does this at once or after a batch,
//! as the CPU's share of the cache is small or large; here it is large.

use core::fmt;

use swath_arch::{Order, Pfn};

use crate::machine::watermark::{HUGE_ORDER, LIST_ORDER_MAX};
use crate::zone::allocator::{Mobility, ZoneAllocator};

const MOBILITIES: usize = Mobility::ALL.len();
const HUGE_LISTS: usize = (LIST_ORDER_MAX as usize + 1) * MOBILITIES;
/// The number of lists.
pub(crate) const LISTS: usize = HUGE_LISTS + 2;
/// The number of times that a batch may double (`CONFIG_PCP_BATCH_SCALE_MAX`).
const SCALE_MAX: u32 = 5;
const NONE: u32 = u32::MAX;
/// Words of one entry: its block's first frame; the entries before and after.
const ENTRY_WORDS: usize = 2;

/// Returns true if blocks of this order are kept in per-CPU lists.
#[inline]
pub(crate) fn has_list(order: Order) -> bool {
    order.k() <= LIST_ORDER_MAX || order.k() == HUGE_ORDER
}

#[inline]
fn list_of(order: Order, mobility: Mobility) -> usize {
    if order.k() <= LIST_ORDER_MAX {
        order.k() as usize * MOBILITIES + mobility as usize
    } else {
        HUGE_LISTS + usize::from(mobility == Mobility::Movable)
    }
}

fn order_of(list: usize) -> Order {
    Order::known(if list < HUGE_LISTS { (list / MOBILITIES) as u8 } else { HUGE_ORDER as u8 })
}

/// The frames that move at once, and those that stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Marks {
    pub(crate) batch: u32,
    pub(crate) high: u32,
}

impl Marks {
    /// Returns the most entries that can be in the lists at once: each list is
    /// refilled only when it is empty, and freeing stops at `high`.
    const fn entries(self) -> usize {
        self.high as usize + LISTS * (self.batch as usize + 2) + 1
    }

    /// Words for the entries of one CPU.
    pub(crate) const fn words(self) -> usize {
        self.entries() * ENTRY_WORDS
    }
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// The lists of one CPU and zone; the caller keeps an array of them.
///
/// Invariants: each entry is in one list or unused; `count_frames` are in the
/// lists.
#[derive(Clone)]
pub struct PerCpuLists {
    lists: [List; LISTS],
    unused: u32,
    count_frames: u32,
    /// Frames given since the last request, halved by each request.
    given_frames: u32,
    /// log2 of by how much the next batch is larger.
    scale: u32,
    gave_high_order: bool,
}

impl Default for PerCpuLists {
    fn default() -> Self {
        Self {
            lists: [List { first: NONE, last: NONE }; LISTS],
            unused: NONE,
            count_frames: 0,
            given_frames: 0,
            scale: 0,
            gave_high_order: false,
        }
    }
}

impl fmt::Debug for PerCpuLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerCpuLists {{ count_frames: {} }}", self.count_frames)
    }
}

fn links(entries: &[u64], entry: u32) -> (u32, u32) {
    let word = entries[entry as usize * ENTRY_WORDS + 1];
    (word as u32, (word >> 32) as u32)
}

fn set_links(entries: &mut [u64], entry: u32, previous: u32, next: u32) {
    entries[entry as usize * ENTRY_WORDS + 1] = u64::from(previous) | u64::from(next) << 32;
}

fn frame(entries: &[u64], entry: u32) -> Pfn {
    Pfn::new(entries[entry as usize * ENTRY_WORDS])
}

impl PerCpuLists {
    /// Empty lists over `entries`, all of which are unused.
    pub(crate) fn reset(&mut self, entries: &mut [u64]) {
        *self = Self::default();
        for entry in (0..(entries.len() / ENTRY_WORDS) as u32).rev() {
            set_links(entries, entry, NONE, self.unused);
            self.unused = entry;
        }
    }

    pub(crate) fn count_frames(&self) -> u32 {
        self.count_frames
    }

    /// Visits the blocks, list by list, from the heads on.
    pub(crate) fn for_each(&self, entries: &[u64], visit: &mut dyn FnMut(Pfn, Order)) {
        for (list, ends) in self.lists.iter().enumerate() {
            let mut at = ends.first;
            while at != NONE {
                visit(frame(entries, at), order_of(list));
                at = links(entries, at).1;
            }
        }
    }

    /// Adds a block to a list; `false` if all entries are used.
    #[inline]
    fn push(&mut self, entries: &mut [u64], list: usize, block: Pfn, last: bool) -> bool {
        let entry = self.unused;
        if entry == NONE {
            return false;
        }
        self.unused = links(entries, entry).1;
        entries[entry as usize * ENTRY_WORDS] = block.raw();
        let List { first: old_first, last: old_last } = self.lists[list];
        if last {
            set_links(entries, entry, old_last, NONE);
            self.lists[list].last = entry;
            if old_last == NONE {
                self.lists[list].first = entry;
            } else {
                set_links(entries, old_last, links(entries, old_last).0, entry);
            }
        } else {
            set_links(entries, entry, NONE, old_first);
            self.lists[list].first = entry;
            if old_first == NONE {
                self.lists[list].last = entry;
            } else {
                set_links(entries, old_first, entry, links(entries, old_first).1);
            }
        }
        self.count_frames += 1 << order_of(list).k();
        true
    }

    /// Removes an end of a list, which is not empty.
    #[inline]
    fn pop(&mut self, entries: &mut [u64], list: usize, last: bool) -> Pfn {
        let ends = &mut self.lists[list];
        let entry = if last { ends.last } else { ends.first };
        let (previous, next) = links(entries, entry);
        if last {
            ends.last = previous;
        } else {
            ends.first = next;
        }
        let (neighbour, end) =
            if last { (previous, &mut ends.first) } else { (next, &mut ends.last) };
        if neighbour == NONE {
            *end = NONE;
        } else {
            let (before, after) = links(entries, neighbour);
            let (before, after) = if last { (before, NONE) } else { (NONE, after) };
            set_links(entries, neighbour, before, after);
        }
        set_links(entries, entry, NONE, self.unused);
        self.unused = entry;
        self.count_frames -= 1 << order_of(list).k();
        frame(entries, entry)
    }

    /// Returns the number of blocks in the next batch.
    fn batch(&mut self, marks: Marks, order: Order) -> u32 {
        if marks.high < marks.batch {
            return 1;
        }
        let mut frames = marks.batch;
        if order.k() == 0 {
            frames = marks.batch << self.scale;
            let room = marks.high.saturating_sub(self.count_frames + marks.batch);
            let frames_max = room.max(marks.batch);
            if frames <= frames_max && self.scale < SCALE_MAX {
                self.scale += 1;
            }
            frames = frames.min(frames_max);
        }
        if frames > 1 { (frames >> order.k()).max(2) } else { frames }
    }

    /// Allocates a block of an order that has lists, from the zone if need be.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        entries: &mut [u64],
        marks: Marks,
        zone: &mut impl ZoneAllocator,
        (order, mobility, unmixed): (Order, Mobility, bool),
    ) -> Option<Pfn> {
        self.given_frames >>= 1;
        let list = list_of(order, mobility);
        if self.lists[list].first == NONE
            && !self.refill(entries, marks, zone, order, mobility, unmixed)
        {
            return None;
        }
        Some(self.pop(entries, list, false))
    }

    #[cold]
    fn refill(
        &mut self,
        entries: &mut [u64],
        marks: Marks,
        zone: &mut impl ZoneAllocator,
        order: Order,
        mobility: Mobility,
        unmixed: bool,
    ) -> bool {
        let list = list_of(order, mobility);
        let count = self.batch(marks, order);
        let mut pushed = true;
        zone.allocate_batch(order, mobility, unmixed, count, &mut |block| {
            pushed &= self.push(entries, list, block, true);
        });
        debug_assert!(pushed, "more entries than there can be");
        self.lists[list].first != NONE
    }

    /// Keeps a freed block of an order that has lists, and returns others to the zone
    /// if there are too many.
    #[inline]
    pub(crate) fn free(
        &mut self,
        entries: &mut [u64],
        marks: Marks,
        zone: &mut impl ZoneAllocator,
        (block, order, mobility): (Pfn, Order, Mobility),
    ) {
        self.scale >>= 1;
        let list = list_of(order, mobility);
        let pushed = self.push(entries, list, block, false);
        debug_assert!(pushed, "more entries than there can be");
        let fragments = order.k() > 0 && order.k() <= LIST_ORDER_MAX;
        let give_all = fragments
            && self.gave_high_order
            && self.given_frames >= marks.batch + marks.high / 2
            && self.count_frames >= marks.batch;
        self.gave_high_order = fragments;
        if self.given_frames < marks.batch << SCALE_MAX {
            self.given_frames += 1 << order.k();
        }
        if give_all || self.count_frames >= marks.high {
            let frames = if give_all {
                self.count_frames.min(marks.batch << SCALE_MAX)
            } else if marks.high < marks.batch {
                1
            } else {
                let most = (marks.high - marks.batch).max(marks.batch);
                self.given_frames.clamp(marks.batch, most)
            };
            self.give_back(entries, zone, frames, list);
        }
    }

    /// Drains everything to the zone.
    pub(crate) fn drain(&mut self, entries: &mut [u64], zone: &mut impl ZoneAllocator) {
        self.give_back(entries, zone, self.count_frames, 0);
    }

    /// Drains `frames` frames or a few more to the zone, from the tails: from
    /// `list`, then from the next lists in turn, each until it is empty.
    #[cold]
    fn give_back(
        &mut self,
        entries: &mut [u64],
        zone: &mut impl ZoneAllocator,
        frames: u32,
        list: usize,
    ) {
        let mut rest = frames.min(self.count_frames);
        for nth in 0..LISTS {
            let list = (list + nth) % LISTS;
            let order = order_of(list);
            while rest > 0 && self.lists[list].last != NONE {
                let block = self.pop(entries, list, true);
                let given = zone.free(block, order);
                debug_assert!(given.is_ok(), "a waiting block that the zone does not know");
                rest = rest.saturating_sub(1 << order.k());
            }
        }
    }

    /// Checks that the lists and the counts agree.
    pub(crate) fn check(&self, entries: &[u64]) -> Result<(), &'static str> {
        let capacity = entries.len() / ENTRY_WORDS;
        let (mut frames, mut used) = (0, 0);
        for (list, ends) in self.lists.iter().enumerate() {
            let (mut previous, mut at) = (NONE, ends.first);
            while at != NONE {
                let (before, next) = links(entries, at);
                if before != previous || used == capacity {
                    return Err("a per-CPU list whose links disagree");
                }
                frames += 1 << order_of(list).k();
                used += 1;
                (previous, at) = (at, next);
            }
            if previous != ends.last {
                return Err("a per-CPU list with another end");
            }
        }
        let mut at = self.unused;
        while at != NONE && used <= capacity {
            used += 1;
            at = links(entries, at).1;
        }
        if used != capacity || frames != self.count_frames {
            return Err("per-CPU lists that count wrongly");
        }
        Ok(())
    }
}

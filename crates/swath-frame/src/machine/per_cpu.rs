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
/// The number of blocks that go back to a zone at once.
const BLOCKS_AT_ONCE: usize = 64;
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

    /// Adds a block to the head of a list; `false` if all entries are used.
    #[inline]
    fn push(&mut self, entries: &mut [u64], list: usize, block: Pfn) -> bool {
        let entry = self.unused;
        if entry == NONE {
            return false;
        }
        self.unused = links(entries, entry).1;
        entries[entry as usize * ENTRY_WORDS] = block.raw();
        let old_first = self.lists[list].first;
        set_links(entries, entry, NONE, old_first);
        self.lists[list].first = entry;
        if old_first == NONE {
            self.lists[list].last = entry;
        } else {
            set_links(entries, old_first, entry, links(entries, old_first).1);
        }
        self.count_frames += 1 << order_of(list).k();
        true
    }

    /// Removes the first block of a list, which is not empty.
    #[inline]
    fn pop(&mut self, entries: &mut [u64], list: usize) -> Pfn {
        let entry = self.lists[list].first;
        let next = links(entries, entry).1;
        self.lists[list].first = next;
        if next == NONE {
            self.lists[list].last = NONE;
        } else {
            set_links(entries, next, NONE, links(entries, next).1);
        }
        set_links(entries, entry, NONE, self.unused);
        self.unused = entry;
        self.count_frames -= 1 << order_of(list).k();
        frame(entries, entry)
    }

    /// Removes blocks from the head of a list, up to as many as `blocks` has room for;
    /// returns their number.
    #[inline]
    fn pop_first(&mut self, entries: &mut [u64], list: usize, blocks: &mut [Pfn]) -> usize {
        let first = self.lists[list].first;
        let (mut at, mut last, mut count) = (first, NONE, 0);
        while count < blocks.len() && at != NONE {
            blocks[count] = frame(entries, at);
            count += 1;
            last = at;
            at = links(entries, at).1;
        }
        if count == 0 {
            return 0;
        }
        // They hang together as unused entries do.
        set_links(entries, last, NONE, self.unused);
        self.unused = first;
        self.lists[list].first = at;
        if at == NONE {
            self.lists[list].last = NONE;
        } else {
            set_links(entries, at, NONE, links(entries, at).1);
        }
        self.count_frames -= (count as u32) << order_of(list).k();
        count
    }

    /// Removes blocks from the tail of a list, up to as many as `blocks` has room for, the
    /// last one first; returns their number.
    #[inline]
    fn pop_last(&mut self, entries: &mut [u64], list: usize, blocks: &mut [Pfn]) -> usize {
        let last = self.lists[list].last;
        let (mut at, mut first, mut count) = (last, NONE, 0);
        while count < blocks.len() && at != NONE {
            blocks[count] = frame(entries, at);
            count += 1;
            first = at;
            at = links(entries, at).0;
        }
        if count == 0 {
            return 0;
        }
        set_links(entries, last, NONE, self.unused);
        self.unused = first;
        self.lists[list].last = at;
        if at == NONE {
            self.lists[list].first = NONE;
        } else {
            set_links(entries, at, links(entries, at).0, NONE);
        }
        self.count_frames -= (count as u32) << order_of(list).k();
        count
    }

    /// Adds blocks to a list, each at the head; returns false if there are not as many unused
    /// entries.
    #[inline]
    fn push_first(&mut self, entries: &mut [u64], list: usize, blocks: &[Pfn]) -> bool {
        let (behind, last) = (self.lists[list].first, self.unused);
        let (mut first, mut count) = (behind, 0);
        while count < blocks.len() && self.unused != NONE {
            let entry = self.unused;
            self.unused = links(entries, entry).1;
            entries[entry as usize * ENTRY_WORDS] = blocks[count].raw();
            // The next unused one will stand before it.
            set_links(entries, entry, self.unused, first);
            first = entry;
            count += 1;
        }
        if count == 0 {
            return blocks.is_empty();
        }
        set_links(entries, first, NONE, links(entries, first).1);
        self.lists[list].first = first;
        if behind == NONE {
            self.lists[list].last = last;
        } else {
            set_links(entries, behind, last, links(entries, behind).1);
        }
        self.count_frames += (count as u32) << order_of(list).k();
        count == blocks.len()
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
        Some(self.pop(entries, list))
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
        let first = self.unused;
        let (mut last, mut pushed) = (NONE, 0);
        // The list is empty, and unused entries hang together as its own will.
        let taken = zone.allocate_batch(order, mobility, unmixed, count, &mut |block| {
            let entry = self.unused;
            if entry != NONE {
                self.unused = links(entries, entry).1;
                entries[entry as usize * ENTRY_WORDS] = block.raw();
                set_links(entries, entry, last, self.unused);
                last = entry;
                pushed += 1;
            }
        });
        debug_assert!(pushed == taken, "more entries than there can be");
        if last == NONE {
            return false;
        }
        set_links(entries, last, links(entries, last).0, NONE);
        self.lists[list] = List { first, last };
        self.count_frames += pushed << order.k();
        true
    }

    /// Allocates blocks of an order that has lists, up to as many as `blocks` has room for,
    /// without the zone; returns their number. Changes what as many calls of
    /// [`allocate`](Self::allocate) would.
    #[inline]
    pub(crate) fn allocate_run(
        &mut self,
        entries: &mut [u64],
        (order, mobility): (Order, Mobility),
        blocks: &mut [Pfn],
    ) -> usize {
        let count = self.pop_first(entries, list_of(order, mobility), blocks);
        self.given_frames = self.given_frames.checked_shr(count as u32).unwrap_or(0);
        count
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
        let pushed = self.push(entries, list, block);
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
            } else {
                self.given_back(marks)
            };
            self.give_back(entries, zone, frames, list);
        }
    }

    /// Keeps freed single frames, as many calls of [`free`](Self::free) would.
    #[inline]
    pub(crate) fn free_singles(
        &mut self,
        entries: &mut [u64],
        marks: Marks,
        zone: &mut impl ZoneAllocator,
        mobility: Mobility,
        mut frames: &[Pfn],
    ) {
        let list = list_of(Order::BASE, mobility);
        while !frames.is_empty() {
            let room = marks.high.saturating_sub(self.count_frames).max(1);
            let (kept, rest) = frames.split_at(frames.len().min(room as usize));
            frames = rest;
            let pushed = self.push_first(entries, list, kept);
            debug_assert!(pushed, "more entries than there can be");
            self.scale = self.scale.checked_shr(kept.len() as u32).unwrap_or(0);
            self.gave_high_order = false;
            let most = marks.batch << SCALE_MAX;
            if self.given_frames < most {
                self.given_frames = (self.given_frames + kept.len() as u32).min(most);
            }
            if self.count_frames >= marks.high {
                self.give_back(entries, zone, self.given_back(marks), list);
            }
        }
    }

    /// Returns the number of frames that go back to the zone where there are too many.
    #[inline]
    fn given_back(&self, marks: Marks) -> u32 {
        if marks.high < marks.batch {
            return 1;
        }
        self.given_frames.clamp(marks.batch, (marks.high - marks.batch).max(marks.batch))
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
        let mut blocks = [Pfn::new(0); BLOCKS_AT_ONCE];
        for nth in 0..LISTS {
            let list = (list + nth) % LISTS;
            let order = order_of(list);
            while rest > 0 && self.lists[list].last != NONE {
                let most = rest.div_ceil(1 << order.k()).min(BLOCKS_AT_ONCE as u32);
                let count = self.pop_last(entries, list, &mut blocks[..most as usize]);
                let given = zone.free_batch(order, &blocks[..count]);
                debug_assert!(given.is_ok(), "a waiting block that the zone does not know");
                rest = rest.saturating_sub((count as u32) << order.k());
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

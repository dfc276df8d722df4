//! Superpages by reservation.
//!
//! The first fault in an aligned range of an object's pages sets the frames of
//! a whole superpage aside, a **reservation**, and takes one of them; each
//! further fault in the range **populates** another. Once all are populated,
//! the range lies in physical memory as it lies in the object, and one
//! descriptor can map it. No program has to ask for superpages, and none is copied
//! together. Under shortage the reservation that was populated least recently
//! is **broken up**: its unpopulated frames are free again, and the others stay
//! with whoever holds them (the talk's "Reservation-based allocation"; what
//! FreeBSD's `vm_reserv` does).
//!
//! ```text
//!  pages of object 7   |  0 ..  7 |  8 .. 15 | 16 .. 23 |     one level, order 3
//!                           |          |
//!                           v          '-----------.
//!  slots            0            1            2     v      3
//!  frames   |. . # . . # # .|# # # # # # # #|r # r # # r r r|. . . . . . . .|
//!            held one by one   full            3 populated     free beneath
//!                                              ^
//!  queue                              oldest --'-- … -- last populated
//! ```
//!
//! # What is stored
//! * One bit for each frame: somebody **holds** it. In a reservation this is
//!   the map of populated frames, which a breaking-up leaves as it is. It also
//!   says what may be freed, so a bad free is refused before anything moved.
//! * A record for each **slot**, an aligned range of frames of a level's
//!   order: object and page, a count of populated frames, the time of the last
//!   population, links of a queue. Frame to reservation is a shift and a flag.
//! * A table from object and page to the reservation
//!   ([`storage_words`](Reservations::storage_words) counts all three).
//!
//! **Levels.** A reservation of a higher level consists of slots of the level
//! below, its **parts**: each counts its own population and, while it is
//! partially populated, stands in a queue of its parent's. Broken up, empty
//! parts go back, the others stay reserved, and the partial ones take their
//! place in the queue by their own last population. A **sub-level** is a test
//! of the bits only.
//!
//! **Time** is an argument: any number that does not fall. A reservation moves
//! to the queue's tail on a population, but only if the time is another one
//! than at its last move (FreeBSD's ticks). Freeing a frame moves nothing; a
//! full reservation that loses a frame joins at the tail, at the time of the
//! last population of all; a full part, at the tail of its queue, at the time
//! of the reservation around it.
//!
//! **Alignment is virtual alignment.** The caller numbers an object's pages so
//! that number and virtual page agree modulo the largest superpage where the
//! object is to be mapped (FreeBSD's colour).
//!
//! **One pool.** [`Reservations`] is a [`FrameAllocator`] too. What it hands out
//! that way is held frame by frame; where the allocator beneath has nothing
//! left, reservations are broken up. So a request for one frame fails only if
//! every frame is held.
//!
//! # What it costs
//! Bytes of state per frame, for one level of order 9: 0.31 (0.13 for the bit,
//! 0.09 each for record and table); a second level of order 18 makes that 0.41.
//!
//! Populating a page of a reservation touches one or two cache lines each of
//! table, record and bits, and two records more if it moves in the queue; L
//! levels make that L records. It is O(L), whatever the orders are.
//!
//! Instructions, counted on x86-64 with all of 2^20 frames reserved at order
//! 9, pages in random order: 409 to populate a page at a new time, so that its
//! reservation moves in the queue; 421 on average from empty memory, with one
//! call in 32 making a reservation; 197 to free a frame. With a second level
//! populating costs 545.

use core::ops::{DerefMut, Range};

use swath_arch::{Extent, Order, Pfn};

use crate::allocator::FrameAllocator;
use crate::hardening::{Hardening, Latch, Table as Words, Trusting};
use crate::map::MemoryMap;
use crate::reserve::error::{PopulateError, ReservationsError};
use crate::reserve::levels::ReservationLevels;
use crate::reserve::reservation::{FrameSource, Populated, Reservation, ReservationCounters};
use crate::reserve::slots::{NONE, Slot, Slots};
use crate::reserve::table::{Entry, Key, Table};

/// Reservations of superpages over an allocator `A`, with their state in `W`,
/// any owner of a slice of words.
///
/// The allocator beneath has no other user. `H` is the tier of [checks](crate::hardening) of the
/// words; the default makes none. The checked tier keeps the bits of held frames twice, and stops at
/// the first contradiction between bits, records and table. Times and the order of queues have no
/// second word: what is changed in them makes another reservation the next to be broken up.
///
/// In what follows L is the number of levels.
///
/// Invariants, all walked by [`check`](Self::check):
/// * reservations are disjoint, in frames and in the pages of an object; each
///   has at least one populated frame; their frames are allocated beneath;
/// * a frame's bit is set exactly if somebody holds it: a frame of a
///   reservation, because it is populated; any other, because it was handed
///   out by itself, or was in a reservation that has been broken up. Outside
///   reservations, the frames without are free beneath;
/// * a slot's count is the number of bits of its frames if it is a reservation
///   or part of one, and 0 otherwise;
/// * the queue of all holds exactly the partially populated reservations, and
///   the queue of a slot in a reservation exactly its partially populated
///   parts;
/// * the table has an entry for each reservation, and one for each larger
///   aligned range around reservations, with their number;
/// * `reserved` is the number of unpopulated frames in reservations, `roots`
///   that of reservations.
///
/// # Examples
/// ```
/// use swath_arch::{Extent, Order, Pfn};
/// use swath_frame::reserve::{ReservationLevels, Reservations, FrameSource};
/// use swath_frame::{ByteRange, BuddyConfig, FrameAllocator, MemoryMap, PageBuddy};
///
/// let mut areas = [Extent::default(); 1];
/// let memory = ByteRange::of_frames(Extent::new(Pfn::new(0), 1024));
/// let map = MemoryMap::new(&[memory], &mut areas).unwrap();
/// let config = BuddyConfig::PBS_ARMV7;
/// let words = PageBuddy::<Vec<u64>>::storage_words(&map, config);
/// let buddy = PageBuddy::<_>::new(&map, config, vec![0; words]).unwrap();
///
/// let words = Reservations::<PageBuddy<Vec<u64>>, Vec<u64>>::storage_words(&map, ReservationLevels::ARMV7);
/// let mut pool = Reservations::<_, _>::new(&map, ReservationLevels::ARMV7, buddy, vec![0; words]).unwrap();
///
/// // Pages 256 to 511 of object 7, which has 700 pages, in any order.
/// let section = Order::known(8);
/// let first = pool.populate(7, 300, 0..700, 0).unwrap();
/// assert_eq!(first.source, FrameSource::Reserved(section));
/// for index in (256..512).filter(|&index| index != 300) {
///     let page = pool.populate(7, index, 0..700, 0).unwrap();
///     assert_eq!(page.frame.raw() + 300, first.frame.raw() + index);
///     assert_eq!(page.full == Some(section), index == 511);
/// }
/// assert!(pool.is_full(first.frame, section));
/// // The object's end is too near for a reservation.
/// assert_eq!(pool.populate(7, 699, 0..700, 1).unwrap().source, FrameSource::Single);
/// assert_eq!(pool.free_frames(), 1024 - 257);
/// ```
#[derive(Clone, Debug)]
pub struct Reservations<A, W, H: Hardening = Trusting> {
    pub(crate) under: A,
    pub(crate) storage: W,
    pub(crate) slots: Slots<H>,
    pub(crate) table: Table,
    pub(crate) roots: u64,
    pub(crate) reserved: u64,
    /// The time of the last population.
    pub(crate) latest: u64,
    pub(super) counters: ReservationCounters,
    /// The contradiction at which the checked tier stopped.
    pub(crate) latch: H::Latch,
}

/// The place of a page, as the table has it.
pub(crate) enum PagePlace {
    /// It lies in this reservation.
    Root(usize, Slot),
    /// In none; this is the highest level that could be reserved for it
    /// without meeting another reservation.
    Vacant(usize),
    /// In the checked tier, in none: the slot that the table has is not the page's by its record.
    Contradicted,
}

/// A contradiction of the checked tier, not yet looked for where it is returned. It has no size, so
/// that a call which meets none has nothing to put down.
pub(crate) struct Contradiction;

/// Lays everything out in the words and counts them; `None` if there are too
/// many.
fn layout<H: Hardening>(
    map: &MemoryMap<'_>,
    levels: ReservationLevels,
) -> Option<(Slots<H>, Table, usize)> {
    let mut slots = Slots::<H>::new(map, levels)?;
    // Each reservation has an entry and at most one more for each higher
    // level, and holds at least one slot of the lowest.
    let keys = slots.slots(0).len().checked_mul(levels.orders().len())?;
    let slot_words = slots.storage_words()?;
    let words = slot_words.checked_add(Table::storage_words(keys as u64)?)?;
    let copy_start = usize::try_from(words).ok()?;
    let bits = slots.bits_range();
    slots.copy_at = copy_start - bits.start;
    let copy_words = if H::CHECKED { bits.len() } else { 0 };
    let words = copy_start.checked_add(copy_words)?;
    Some((slots, Table::new(slot_words as usize, keys), words))
}

impl<A: FrameAllocator, W: DerefMut<Target = [u64]>, H: Hardening> Reservations<A, W, H> {
    /// Counts the words of storage that the frames of `map` need; `usize::MAX`
    /// if they cannot be addressed. O(L).
    pub fn storage_words(map: &MemoryMap<'_>, levels: ReservationLevels) -> usize {
        layout::<H>(map, levels).map_or(usize::MAX, |(_, _, words)| words)
    }

    /// Reservations over `allocator`, whose frames are those of `map`. Frames
    /// that are not free in it are held, and can be freed here. Overwrites
    /// what `storage` holds; words beyond
    /// [`storage_words`](Self::storage_words) are not used. O(words + free
    /// blocks).
    ///
    /// # Errors
    /// [`ReservationsError`].
    pub fn new(
        map: &MemoryMap<'_>,
        levels: ReservationLevels,
        allocator: A,
        mut storage: W,
    ) -> Result<Self, ReservationsError> {
        let (map_frames, allocator_frames) = (map.total_frames(), allocator.total_frames());
        if map_frames != allocator_frames {
            return Err(ReservationsError::OtherFrames { map_frames, allocator_frames });
        }
        let span = map.span();
        let (slots, table, needed_words) =
            layout::<H>(map, levels).ok_or(ReservationsError::Span { frames: span.count })?;
        let given_words = storage.len();
        if given_words < needed_words {
            return Err(ReservationsError::Storage { needed_words, given_words });
        }
        let mut foreign = None;
        allocator.for_each_free(&mut |block| {
            let whole = block.checked_end().is_some_and(|end| end <= span.end());
            if block.start < span.start || !whole {
                foreign = foreign.or(Some(block));
            }
        });
        if let Some(block) = foreign {
            return Err(ReservationsError::Foreign { block });
        }
        let words = &mut storage[..needed_words];
        words.fill(0);
        slots.build(words);
        map.areas().iter().for_each(|&area| slots.hold(words, area));
        allocator.for_each_free(&mut |block| slots.let_go(words, block));
        Ok(Self {
            under: allocator,
            storage,
            slots,
            table,
            roots: 0,
            reserved: 0,
            latest: 0,
            counters: ReservationCounters::default(),
            latch: H::Latch::default(),
        })
    }

    /// Gives page `index` of `object` a frame, at the time `now`. If a
    /// reservation covers the page, it is the frame that belongs there. Else
    /// the largest level is tried whose aligned range around the page lies
    /// within `bounds` and meets no other reservation of the object, then each
    /// lower one; and if no frames can be reserved at any, a single frame is
    /// taken, for which reservations may be broken up.
    ///
    /// `bounds` are pages of the object. The caller narrows them to exclude
    /// what has frames of its own (pages that were populated singly, or whose
    /// reservation was broken up): a reservation that covers such a page can
    /// never be full. Nothing worse happens if it does not.
    ///
    /// O(L) in a reservation; to make one, O(L) and what
    /// [`allocate_aligned`](FrameAllocator::allocate_aligned) costs beneath.
    ///
    /// # Errors
    /// [`PopulateError`]; nothing changes. A page is known to be populated
    /// only while a reservation covers it.
    pub fn populate(
        &mut self,
        object: u64,
        index: u64,
        bounds: Range<u64>,
        now: u64,
    ) -> Result<Populated, PopulateError> {
        // What has stopped holds no frame, so its fault is asked for only where none is to be held.
        if !bounds.contains(&index) {
            let Range { start, end } = bounds;
            let outside = PopulateError::OutOfBounds { index, start, end };
            return Err(self.latch.fault().map_or(outside, PopulateError::Corrupt));
        }
        let (level, slot, frames, source) = match self.place(object, index) {
            PagePlace::Root(level, slot) => {
                let order = self.slots.order(level);
                let frames = self.slots.frames(level, slot);
                (level, slot, frames, FrameSource::InReservation(order))
            }
            PagePlace::Contradicted => {
                return Err(PopulateError::Corrupt(self.stop(Words::Ranges)));
            }
            PagePlace::Vacant(top) => match self.reserve_below(object, index, &bounds, top) {
                Some((level, slot)) => {
                    let order = self.slots.order(level);
                    (level, slot, self.slots.frames(level, slot), FrameSource::Reserved(order))
                }
                None => return self.populate_single(object, index),
            },
        };
        let frame = frames.start.raw() + (index & (frames.count - 1));
        match self.slots.hold_one(&mut self.storage, frame) {
            Ok(true) => {}
            Ok(false) => {
                let frame = Pfn::new(frame);
                return Err(PopulateError::AlreadyPopulated { object, index, frame });
            }
            Err(()) => return Err(PopulateError::Corrupt(self.stop(Words::Allocated))),
        }
        let Ok(full) = self.populate_frame(level, slot, frame, now) else {
            return Err(PopulateError::Corrupt(self.stop(Words::Reservations)));
        };
        Ok(Populated { frame: Pfn::new(frame), full, source })
    }

    /// Returns the place of page `index` of `object`. O(L) expected.
    #[inline(always)]
    pub(crate) fn place(&self, object: u64, index: u64) -> PagePlace {
        let Self { slots, table, .. } = self;
        let words = &*self.storage;
        for (level, order) in slots.levels.orders().iter().enumerate().rev() {
            let key = Key { object, index: index & !(order.frames() - 1), level };
            match table.get(words, key) {
                Some(Entry::Root(slot)) => {
                    if H::CHECKED && !slots.is_root_of(words, level, slot, object, key.index) {
                        return PagePlace::Contradicted;
                    }
                    return PagePlace::Root(level, slot);
                }
                Some(Entry::Below(_)) => {}
                None => return PagePlace::Vacant(level),
            }
        }
        // At the lowest level nothing lies below.
        PagePlace::Vacant(0)
    }

    /// Reserves frames for the range of `top` around page `index` or, if there are none, of the next lower
    /// level that has them: the level and slot. `None` if no level has, or at a contradiction.
    #[inline(never)]
    fn reserve_below(
        &mut self,
        object: u64,
        index: u64,
        bounds: &Range<u64>,
        top: usize,
    ) -> Option<(usize, Slot)> {
        (0..=top).rev().find_map(|level| {
            // At a contradiction all lower levels are refused, too.
            if self.latch.fault().is_some() {
                return None;
            }
            Some((level, self.reserve(object, index, bounds, level)?))
        })
    }

    /// Gives page `index` of `object`, for which nothing could be reserved, a frame by itself.
    #[inline(never)]
    fn populate_single(&mut self, object: u64, index: u64) -> Result<Populated, PopulateError> {
        if let Some(fault) = self.latch.fault() {
            return Err(PopulateError::Corrupt(fault));
        }
        if H::CHECKED && self.look(object, index).is_err() {
            return Err(PopulateError::Corrupt(self.stop(Words::Ranges)));
        }
        let Some(frame) = self.allocate_frame() else {
            return Err(self.fault().map_or(PopulateError::OutOfFrames, PopulateError::Corrupt));
        };
        self.counters.single += 1;
        Ok(Populated { frame, full: None, source: FrameSource::Single })
    }

    /// Reserves frames for the range of `level` around page `index`, if it
    /// lies within `bounds` and there are such frames.
    fn reserve(
        &mut self,
        object: u64,
        index: u64,
        bounds: &Range<u64>,
        level: usize,
    ) -> Option<Slot> {
        let order = self.slots.order(level);
        let first = index & !(order.frames() - 1);
        if first < bounds.start || first.checked_add(order.frames())? > bounds.end {
            return None;
        }
        let extent = self.under.allocate_aligned(order).ok()?;
        let span = self.slots.span;
        if extent.start < span.start || extent.end() > span.end() {
            debug_assert!(false, "the allocator beneath has other frames than the map");
            // A fault stands in the latch, which is asked next.
            let _ = self.give_back(extent);
            return None;
        }
        let slot = self.slots.slot(level, extent.start.raw());
        if H::CHECKED && !self.is_vacant(level, slot) {
            self.stop(Words::Reservations);
            return None;
        }
        if self.make_root(level, slot, object, first).is_err() {
            self.stop(Words::Ranges);
            return None;
        }
        self.reserved += order.frames();
        self.counters.reserved += 1;
        Some(slot)
    }

    /// Counts a frame of the reservation `root` of `level`, which is held now, as populated; the
    /// largest order that is full around it now.
    #[inline]
    fn populate_frame(
        &mut self,
        level: usize,
        root: Slot,
        frame: u64,
        now: u64,
    ) -> Result<Option<Order>, Contradiction> {
        let Self { slots, counters, .. } = self;
        let words = &mut *self.storage;
        self.reserved -= 1;
        self.latest = now;
        counters.populated += 1;
        let mut full = None;
        for part in 0..=level {
            // The checked tier has looked at the reservation's record.
            let is_looked_at = H::CHECKED && part == level;
            let slot = if is_looked_at { root } else { slots.slot(part, frame) };
            let owner = if part == level { slots.all } else { slots.slot(part + 1, frame) };
            let order = slots.order(part);
            let populated = slots.populated(words, slot) + 1;
            slots.set_populated(words, slot, populated);
            if populated == order.frames() {
                if H::CHECKED && !slots.all_held(words, frame, order) {
                    return Err(Contradiction);
                }
                slots.turn(words, owner, slot, true, now);
                counters.full += 1;
                full = Some(order);
            } else if populated == 1 {
                slots.turn(words, owner, slot, false, now);
            } else if slots.stamp(words, slot) != now {
                slots.move_to_tail(words, owner, slot);
                slots.set_stamp(words, slot, now);
                counters.moved += 1;
            }
        }
        Ok(full.or_else(|| self.full_suborder(frame)))
    }

    /// Depopulates `extent`, which lies in one slot of the lowest level and in
    /// the reservation `root` of `level`, and whose frames are not held any more.
    #[inline(always)]
    pub(crate) fn depopulate(
        &mut self,
        level: usize,
        root: Slot,
        extent: Extent,
    ) -> Result<(), Contradiction> {
        let frame = extent.start.raw();
        let Self { slots, storage, .. } = self;
        let words = &mut **storage;
        // A part joins no later than the reservation around it stands.
        let (mut time, mut left) = (self.latest, 0);
        for part in (0..=level).rev() {
            let slot = slots.slot(part, frame);
            let owner = if part == level { slots.all } else { slots.slot(part + 1, frame) };
            let was = slots.populated(words, slot);
            if H::CHECKED && was < extent.count {
                return Err(Contradiction);
            }
            let populated = was - extent.count;
            slots.set_populated(words, slot, populated);
            if part == level {
                left = populated;
            }
            match (was == slots.order(part).frames(), populated == 0) {
                (true, false) => {
                    slots.enqueue(words, owner, slot, NONE);
                    slots.set_stamp(words, slot, time);
                }
                (false, true) => slots.dequeue(words, owner, slot),
                _ => {}
            }
            time = slots.stamp(words, slot);
        }
        self.reserved += extent.count;
        if left == 0 {
            let frames = self.slots.frames(level, root);
            let entry = self.entry_of(level, root, 0);
            if H::CHECKED && entry.is_none() {
                return Err(Contradiction);
            }
            self.drop_root(level, root, entry);
            self.reserved -= frames.count;
            self.counters.emptied += 1;
            self.give_back(frames)?;
        }
        Ok(())
    }

    /// Makes `slot` a reservation and enters it in the table.
    ///
    /// # Errors
    /// In the checked tier, if an entry of the table was overwritten by which its pages may be reserved
    /// already. Nothing changes.
    pub(super) fn make_root(
        &mut self,
        level: usize,
        slot: Slot,
        object: u64,
        index: u64,
    ) -> Result<(), Contradiction> {
        let key = Key { object, index, level };
        let entry = self.table.look::<H>(&self.storage, key).map_err(|_| Contradiction)?;
        if H::CHECKED && !self.look_above(key) {
            return Err(Contradiction);
        }
        self.table.put(&mut self.storage, entry, key, Entry::Root(slot));
        self.slots.make_root(&mut self.storage, slot, object, index);
        self.count_around(level, object, index, 1);
        self.roots += 1;
        Ok(())
    }

    /// Makes `slot` no reservation any more: neither in the table, where this is its entry, nor with
    /// a record. Its parts' records stay.
    pub(super) fn drop_root(&mut self, level: usize, slot: Slot, entry: Option<usize>) {
        let object = self.slots.object(&self.storage, slot);
        let index = self.slots.index(&self.storage, slot);
        if let Some(entry) = entry {
            self.table.remove_entry(&mut self.storage, entry);
        }
        if level + 1 < self.slots.levels.orders().len() {
            self.count_around(level, object, index, -1);
        }
        self.slots.forget(&mut self.storage, slot);
        self.roots -= 1;
    }

    /// Adds `change` to the number of reservations below each larger range.
    fn count_around(&mut self, level: usize, object: u64, index: u64, change: i32) {
        for (level, order) in self.slots.levels.orders().iter().enumerate().skip(level + 1) {
            let key = Key { object, index: index & !(order.frames() - 1), level };
            let ranges = match self.table.get(&self.storage, key) {
                Some(Entry::Below(ranges)) => ranges,
                _ => 0,
            };
            match ranges.saturating_add_signed(change) {
                0 => self.table.remove(&mut self.storage, key),
                ranges => self.table.set(&mut self.storage, key, Entry::Below(ranges)),
            }
        }
    }

    /// Returns frames of which nobody holds any.
    ///
    /// # Errors
    /// In the checked tier, if the allocator beneath has them already.
    pub(crate) fn give_back(&mut self, extent: Extent) -> Result<(), Contradiction> {
        let freed = self.under.free(extent);
        debug_assert!(H::CHECKED || freed == Ok(()), "frames taken beneath are not taken back");
        if H::CHECKED && freed.is_err() {
            self.stop(Words::Allocated);
            return Err(Contradiction);
        }
        Ok(())
    }

    /// Returns true if the aligned 2^`order` frames around `frame` are
    /// populated in full, in one reservation. A level is a count to compare, a
    /// sub-level (or any order below the lowest level) up to order 6 one word
    /// to test, 2^(order-6) words above; an order between two levels is a count
    /// for each slot of the lower. O(L) besides.
    pub fn is_full(&self, frame: Pfn, order: Order) -> bool {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let Some((level, _)) = slots.root_of(words, frame.raw()) else { return false };
        if order > slots.order(level) {
            return false;
        }
        let start = frame.raw() & !(order.frames() - 1);
        match (0..=level).rfind(|&part| slots.order(part) <= order) {
            None => slots.all_held(words, start, order),
            Some(part) => {
                let part_frames = slots.order(part).frames();
                let first = slots.slot(part, start);
                let parts = (order.frames() / part_frames) as Slot;
                (first..first + parts).all(|slot| slots.populated(words, slot) == part_frames)
            }
        }
    }

    /// The largest level or sub-level that [`is_full`](Self::is_full) around
    /// `frame`. O(L + words of the sub-levels).
    pub fn full_order(&self, frame: Pfn) -> Option<Order> {
        let Self { slots, .. } = self;
        let words = &*self.storage;
        let (level, _) = slots.root_of(words, frame.raw())?;
        let is_full = |&part: &usize| {
            slots.populated(words, slots.slot(part, frame.raw())) == slots.order(part).frames()
        };
        match (0..=level).rfind(is_full) {
            Some(part) => Some(slots.order(part)),
            None => self.full_suborder(frame.raw()),
        }
    }

    /// The largest sub-level that is full around `frame`, in a reservation.
    #[inline]
    fn full_suborder(&self, frame: u64) -> Option<Order> {
        let is_full = |order: &&Order| self.slots.all_held(&self.storage, frame, **order);
        self.slots.levels.suborders().iter().rev().find(is_full).copied()
    }

    /// The reservation that `frame` belongs to. O(L).
    pub fn reservation_of(&self, frame: Pfn) -> Option<Reservation> {
        let (level, slot) = self.slots.root_of(&self.storage, frame.raw())?;
        Some(self.view(level, slot))
    }

    /// The reservation that covers page `index` of `object`. O(L) expected.
    pub fn reservation_at(&self, object: u64, index: u64) -> Option<Reservation> {
        match self.place(object, index) {
            PagePlace::Root(level, slot) => Some(self.view(level, slot)),
            PagePlace::Vacant(_) | PagePlace::Contradicted => None,
        }
    }

    /// The frame that page `index` of `object` has in a reservation. O(L)
    /// expected.
    pub fn frame_at(&self, object: u64, index: u64) -> Option<Pfn> {
        let reservation = self.reservation_at(object, index)?;
        let frame = reservation.start.raw() + (index - reservation.index);
        self.slots.is_held(&self.storage, frame).then_some(Pfn::new(frame))
    }

    /// Visits the partially populated reservations in the order in which they
    /// would be broken up. O(L) for each.
    pub fn for_each_queued(&self, visit: &mut dyn FnMut(Reservation)) {
        let mut slot = self.slots.queue(&self.storage, self.slots.all).0;
        for _ in 0..self.slots.all {
            if slot == NONE {
                return;
            }
            visit(self.view(self.slots.level(slot), slot));
            slot = self.slots.links(&self.storage, slot).1;
        }
    }

    fn view(&self, level: usize, slot: Slot) -> Reservation {
        Reservation {
            object: self.slots.object(&self.storage, slot),
            index: self.slots.index(&self.storage, slot),
            order: self.slots.order(level),
            start: self.slots.frames(level, slot).start,
            populated: self.slots.populated(&self.storage, slot),
        }
    }

    /// Returns the counts of what happened so far.
    pub fn counters(&self) -> ReservationCounters {
        self.counters
    }

    /// Returns the number of reservations.
    pub fn reservations(&self) -> u64 {
        self.roots
    }

    /// Returns the number of frames that are reserved and not populated.
    pub fn reserved_frames(&self) -> u64 {
        self.reserved
    }

    /// The levels.
    pub fn levels(&self) -> ReservationLevels {
        self.slots.levels
    }

    /// The allocator beneath.
    pub fn allocator(&self) -> &A {
        &self.under
    }
}

//! Every invariant of a pool, walked.

use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::heap::cache::Caches;
use crate::heap::slot::Overwritten;
use crate::pool::buffer_pool::BufferPool;
use crate::pool::global::Global;
use crate::source::segment_source::SegmentSource;
use crate::superblock::claim::CLOSED;
use crate::superblock::class::{CLASSES, LAYOUTS, STARTS, UNIT_GRANULES_SHIFT, word_of};
use crate::superblock::list::List;
use crate::superblock::owner::{Owner, Role};
use crate::superblock::record::Superblock;

/// An invariant that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unit {unit}: {what}")]
pub struct BufferFault {
    /// The unit at which it shows.
    pub unit: u32,
    /// The invariant, in words.
    pub what: &'static str,
}

fn ensure(unit: u32, holds: bool, what: &'static str) -> Result<(), BufferFault> {
    if holds { Ok(()) } else { Err(BufferFault { unit, what }) }
}

impl<'m, L: RawMutex, S: SegmentSource> BufferPool<'m, L, S> {
    /// Walks every invariant. No other call may be under way.
    ///
    /// # Errors
    /// The first [`BufferFault`] found.
    pub fn check(&self) -> Result<(), BufferFault> {
        let global = self.lock();
        let mut listed = 0;
        let what = "the bits of 64 dirty units and their seal";
        global.overwritten_dirty().map_or(Ok(()), |unit| Err(BufferFault { unit, what }))?;
        self.check_kept(&global)?;
        let mut cached = 0;
        for (index, slot) in self.heaps().iter().enumerate() {
            if !slot.is_attached() {
                continue;
            }
            let number = index as u32 + 1;
            ensure(0, slot.is_intact(number), "a heap's number")?;
            for class in 0..CLASSES {
                let owner = Owner::of(number, class);
                let partial = &slot.partial[class];
                let (count, sparse) = self.check_list(&partial.list, Some(owner), false)?;
                let kept = partial.sparse.load(Relaxed);
                ensure(0, kept == sparse, "a heap's count of sparse superblocks")?;
                ensure(0, sparse <= self.options().slack, "no more sparse superblocks than slack")?;
                listed += count;
                let what = "a heap's current superblock and its complement";
                let current = slot.current[class].read();
                if let Some(unit) = current.map_err(|Overwritten| BufferFault { unit: 0, what })? {
                    self.check_place(unit, Some(owner), false)?;
                    listed += 1;
                }
                cached += self.check_cache(&slot.caches, class, owner)?;
            }
            listed += self.check_list(&slot.full, None, true)?.0;
        }
        for (class, list) in global.partial.iter().enumerate() {
            listed += self.check_list(list, Some(Owner::of(0, class)), false)?.0;
        }
        let (counted, at_hand) = self.check_units(&global)?;
        ensure(0, cached == at_hand, "each slot live, free or in one cache")?;
        ensure(0, listed == counted, "each superblock in exactly one place")?;
        self.check_returns(&global)
    }

    /// The units that heaps keep are free, and in one run each.
    fn check_kept(&self, global: &Global<'m, S>) -> Result<(), BufferFault> {
        let overwritten = self.heaps().iter().any(|slot| slot.kept.is_overwritten());
        ensure(0, !overwritten, "a heap's kept runs and their seals")?;
        let runs = || self.heaps().iter().flat_map(|slot| slot.kept.runs());
        for run in runs() {
            let end = run.first.checked_add(run.units);
            let inside = end.is_some_and(|end| end <= global.high);
            ensure(run.first, inside, "kept units below the highest")?;
            let units = run.first..run.first + run.units;
            for unit in units.clone() {
                let role = self.superblocks()[unit as usize].owner().role();
                ensure(unit, role == Role::Free, "kept units that are free")?;
                ensure(unit, !global.is_dirty(unit), "kept units that the source has not")?;
            }
            let holding = runs().filter(|other| units.contains(&other.first)).count();
            ensure(run.first, holding == 1, "each unit in one kept run")?;
        }
        Ok(())
    }

    /// The record of a unit that a list names.
    fn known(&self, unit: u32) -> Result<&'m Superblock, BufferFault> {
        let record = self.superblocks().get(unit as usize);
        record.ok_or(BufferFault { unit, what: "a unit of the arena in a list" })
    }

    fn check_place(&self, unit: u32, owner: Option<Owner>, full: bool) -> Result<(), BufferFault> {
        let superblock = self.known(unit)?;
        let right = owner.is_none_or(|owner| superblock.owner() == owner);
        ensure(unit, right, "the owner, and the class, in whose list it is")?;
        ensure(unit, superblock.is_full() == full, "the list of full superblocks, or another")
    }

    /// Slots in the cache of a class of a heap whose owner word is `owner`: each is neither live nor free.
    fn check_cache(&self, caches: &Caches, class: usize, owner: Owner) -> Result<u32, BufferFault> {
        let what = "the top of a cache among its entries";
        let len = caches.len(class).ok_or(BufferFault { unit: 0, what })?;
        for index in 0..len {
            let entry = caches.get(class, index);
            let told = self.start_of(entry.granule) == entry.address;
            ensure(0, told, "an entry of a cache, its granule and its address")?;
            let what = "a cache's slots in superblocks";
            let place = self.first_of(entry.granule);
            let (unit, superblock) = place.ok_or(BufferFault { unit: 0, what })?;
            ensure(unit, superblock.owner() == owner, "a cache's slots of its heap and class")?;
            let position = self.position(unit, entry.granule);
            let has = |word: u64| word >> (position % 64) & 1 != 0;
            ensure(unit, has(STARTS[class][word_of(position)]), what)?;
            let free = has(superblock.free[word_of(position)].load(Relaxed));
            let live = self.live().has(entry.granule);
            ensure(unit, !free && !live, "a cache's slots neither free nor live")?;
        }
        ensure(0, caches.is_marked(class), "the marks of a cache that is full")?;
        Ok(len as u32)
    }

    /// Superblocks in the list, and how many have passed their mark.
    fn check_list(
        &self,
        list: &List,
        owner: Option<Owner>,
        full: bool,
    ) -> Result<(u32, u32), BufferFault> {
        let (mut count, mut sparse, mut before) = (0, 0, 0);
        let mut next = list.first();
        while let Some(unit) = next {
            self.check_place(unit, owner, full)?;
            let superblock = &self.superblocks()[unit as usize];
            ensure(unit, superblock.before.load(Relaxed) == before, "the link back")?;
            ensure(unit, count <= self.superblocks().len() as u32, "a list with an end")?;
            count += 1;
            sparse += u32::from(superblock.mark.load(Relaxed) == 0);
            before = unit + 1;
            next = superblock.after.load(Relaxed).checked_sub(1);
        }
        ensure(0, list.ends_with(before), "the list's end")?;
        Ok((count, sparse))
    }

    /// Superblocks that belong in some list, all but the global heap's full ones; and slots that are neither
    /// live nor free.
    fn check_units(&self, global: &Global<'m, S>) -> Result<(u32, u32), BufferFault> {
        let (mut unit, mut count, mut at_hand) = (0_u32, 0, 0);
        while (unit as usize) < self.superblocks().len() {
            let superblock = &self.superblocks()[unit as usize];
            let units = superblock.units.load(Relaxed);
            let fits = unit.checked_add(units).is_some_and(|end| units >= 1 && end <= global.high);
            let fits = fits || superblock.owner() == Owner::FREE;
            ensure(unit, fits, "units below the highest")?;
            match superblock.owner().role() {
                Role::Free => {
                    unit += 1;
                    continue;
                }
                Role::Inner(_) => {
                    return ensure(unit, false, "a superblock before").map(|()| (0, 0));
                }
                Role::Segment => {
                    ensure(unit, superblock.segment_units().is_some(), "a segment's units")?;
                }
                Role::Superblock { heap } => {
                    at_hand += self.check_superblock(unit, heap)?;
                    count += u32::from(heap != 0 || !superblock.is_full());
                }
            }
            for inside in unit..unit + units {
                ensure(inside, !global.is_dirty(inside), "no dirty unit in use")?;
            }
            unit += units;
        }
        Ok((count, at_hand))
    }

    /// Slots of a superblock that are neither live nor free.
    fn check_superblock(&self, unit: u32, heap: u32) -> Result<u32, BufferFault> {
        let superblock = &self.superblocks()[unit as usize];
        let what = "a class and its layout";
        let class = superblock.class().ok_or(BufferFault { unit, what })?;
        let (layout, slots) = (LAYOUTS[class], LAYOUTS[class].slots);
        for distance in 1..layout.units {
            let inner = self.superblocks()[(unit + distance) as usize].owner();
            ensure(unit + distance, inner == Owner::inner(distance), "the way to its first unit")?;
        }
        let owner = Owner::of(heap, class);
        ensure(unit, superblock.owner() == owner, "an owner, a class and their parity")?;
        for inside in unit..unit + layout.units {
            let front = self.claims()[inside as usize].front();
            let is_open = front == owner.0 && heap != 0 && superblock.queued() == 0;
            ensure(inside, is_open || front == CLOSED, "the front that frees its slots")?;
        }
        let returned = self.returned_bits(unit);
        let open = superblock.open.load(Relaxed);
        let first = (unit as usize) << UNIT_GRANULES_SHIFT;
        let (mut live, mut free) = (0, 0);
        let is_whole = (0..superblock.free.len()).all(|index| !returned.is_overwritten(index));
        ensure(unit, is_whole, "the two bits of a returned slot")?;
        for (index, word) in superblock.free.iter().enumerate() {
            let word = word.load(Relaxed);
            let lives = self.live().among(first, index, layout.step, STARTS[class][index]);
            let bits = word | returned.word(index);
            ensure(unit, bits & !STARTS[class][index] == 0, "no bits where no slot begins")?;
            ensure(unit, word & lives == 0, "no slot both free and live")?;
            ensure(unit, returned.word(index) & !lives == 0, "no slot returned that is not live")?;
            ensure(unit, word == 0 || open >> index & 1 != 0, "the summary of free slots")?;
            let queued = superblock.queued() >> (index / 2) & 1 != 0;
            ensure(unit, returned.word(index) == 0 || queued, "the summary of returned slots")?;
            live += lives.count_ones();
            free += word.count_ones();
        }
        let all = self.live().count(unit, layout.units);
        ensure(unit, all == live, "no live bit where no slot begins")?;
        ensure(unit, superblock.left.load(Relaxed) > 0, "frees until something is to be done")?;
        let slot = heap.checked_sub(1).and_then(|index| self.heaps().get(index as usize));
        if slot.is_none_or(|slot| !slot.is_current(class, unit)) {
            let used = slots - free;
            ensure(unit, superblock.is_full() == (used == slots), "full if no slot is free")?;
            ensure(unit, superblock.used() == used as i32, "the count of slots not free")?;
        }
        Ok(slots - live - free)
    }

    /// Each superblock with returned slots is on one list.
    fn check_returns(&self, global: &Global<'m, S>) -> Result<(), BufferFault> {
        let lists = self.heaps().iter().map(|slot| &slot.returned).chain([&self.list]);
        let mut listed = 0;
        for list in lists {
            let mut next = list.first();
            while let Some(unit) = next {
                let superblock = self.known(unit)?;
                ensure(unit, superblock.queued() != 0, "a reason to be on a list")?;
                listed += 1;
                ensure(unit, listed <= self.superblocks().len(), "a list with an end")?;
                next = superblock.link();
            }
        }
        let units = &self.superblocks()[..global.high as usize];
        let queued = units.iter().filter(|superblock| superblock.queued() != 0).count();
        ensure(0, listed == queued, "each superblock with returned slots on one list")
    }
}

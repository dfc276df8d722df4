//! Overwritten tables, and what calls make of them: nothing in use is handed out, and no unit of it goes back.

extern crate std;

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeSet;
use std::vec::Vec;

use crate::error::BufferFreeError;
use crate::heap::front::Freed;
use crate::heap::local::LocalHeap;
use crate::options::BufferOptions;
use crate::plain::fixture::{Leaked, Lock, Source, TestPool, leaked};
use crate::superblock::claim::{CLOSED, Claim};
use crate::superblock::class::{CLASSES, LAYOUTS, SLOT_BYTES_MAX, STARTS, UNIT_BYTES, class_of};
use crate::superblock::live::clear;
use crate::superblock::owner::{Owner, Role};
use crate::superblock::record::Superblock;

const OPTIONS: BufferOptions =
    BufferOptions { empty_eighths: 7, slack: 4, purge_delay: 100, guard_segments: false };

/// Sizes of all kinds of classes: of words by granules and by numbers, in one unit and in several.
const SIZES: [usize; 9] = [16, 64, 112, 128, 144, 512, 2048, 9000, SLOT_BYTES_MAX];

/// A superblock of which every `step`th slot from `from` on is in use, and no slot is at hand.
struct Used {
    pool: &'static TestPool,
    heap: LocalHeap<'static, 'static, Lock, Source>,
    /// Slots in use, and those that are not.
    used: Vec<NonNull<u8>>,
    free: Vec<NonNull<u8>>,
    record: &'static Superblock,
}

impl Used {
    fn new(size: usize, from: usize, step: usize) -> Self {
        let class = class_of(size);
        let Leaked { pool, .. } = leaked(8, 1, OPTIONS);
        let mut heap = pool.attach().unwrap();
        let (mut used, mut free) = (Vec::new(), Vec::new());
        for nth in 0..LAYOUTS[class].slots as usize {
            let is_used = nth >= from && (nth - from).is_multiple_of(step);
            let blocks = if is_used { &mut used } else { &mut free };
            blocks.push(heap.allocate(size, 16).unwrap());
        }
        for &block in &free {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
        }
        heap.collect();
        let first = pool.heaps()[0].current(class).unwrap();
        Self { pool, heap, used, free, record: &pool.superblocks()[first as usize] }
    }

    /// What the current superblock serves.
    fn served(&mut self, size: usize) -> Vec<NonNull<u8>> {
        let served = core::iter::from_fn(|| self.heap.allocate_current(size));
        served.take(self.used.len() + self.free.len() + 1).collect()
    }
}

/// Of which slots all those are made that are in use: some, one, or all from one on.
fn patterns(size: usize) -> [(usize, usize); 9] {
    let slots = LAYOUTS[class_of(size)].slots as usize;
    let word = 64.min(slots - 1);
    [
        (0, 2),
        (3, 7),
        (0, 64),
        (word - 1, 64),
        (1, 65),
        (0, slots),
        (slots / 2, slots),
        (slots / 2, 1),
        (word, 1),
    ]
}

/// Whatever the bits of free slots say, the current superblock gives those that are not in use, each once.
#[test]
fn a_free_bit_of_a_slot_in_use_is_not_believed() {
    let all = SIZES.into_iter().flat_map(|size| patterns(size).map(|at| (size, at)));
    for ((size, (from, step)), is_right) in all.flat_map(|at| [(at, false), (at, true)]) {
        let mut used = Used::new(size, from, step);
        // Where slots begin, or everywhere.
        let starts = STARTS[class_of(size)].map(|starts| if is_right { starts } else { u64::MAX });
        used.record.free.iter().zip(starts).for_each(|(word, bits)| word.store(bits, Relaxed));
        used.record.open.store(u64::MAX, Relaxed);
        let served = used.served(size);
        assert_eq!(served, used.free, "{size} bytes from {from} by {step}");
        for block in served.into_iter().chain(used.used) {
            // SAFETY: not used after.
            unsafe { used.heap.free(block).unwrap() };
        }
        drop(used.heap);
        used.pool.check().unwrap();
        assert_eq!(used.pool.stats().held_bytes, 0, "{size} from {from} by {step}");
    }
}

/// Nor does a slot in use that is not live any more, as its bit says, come back.
#[test]
fn a_live_bit_that_is_lost_frees_nothing() {
    for (size, (from, step)) in
        SIZES.into_iter().flat_map(|size| patterns(size).map(|at| (size, at)))
    {
        let mut used = Used::new(size, from, step);
        for &block in &used.used {
            let granule = used.pool.cached_slot(block.addr().get()).granule;
            // SAFETY: it lies in the arena.
            assert!(unsafe { clear(used.pool.live().first(), granule) });
        }
        assert_eq!(used.served(size), used.free, "{size} bytes from {from} by {step}");
        core::mem::forget(used.heap);
    }
}

/// A slot at hand that seems live is in use once it is handed out, and free once it came back.
#[test]
fn a_slot_at_hand_that_seems_live_is_handed_out() {
    for size in SIZES {
        let Leaked { pool, .. } = leaked(8, 1, OPTIONS);
        let mut heap = pool.attach().unwrap();
        let block = heap.allocate(size, 16).unwrap();
        // SAFETY: not used after.
        unsafe { heap.free(block).unwrap() };
        pool.live().set(pool.cached_slot(block.addr().get()).granule);
        assert_eq!(heap.allocate(size, 16), Ok(block), "{size} bytes");
        assert!(pool.usable_size(block).is_ok());
        // SAFETY: as above.
        unsafe { heap.free(block).unwrap() };
        pool.check().unwrap();
    }
}

/// A superblock with this many slots in use, and one more that is freed last.
struct Sparse {
    leaked: Leaked,
    heap: LocalHeap<'static, 'static, Lock, Source>,
    in_use: Vec<NonNull<u8>>,
    last: NonNull<u8>,
    unit: usize,
}

impl Sparse {
    fn new(size: usize, in_use: usize) -> Self {
        let slots = LAYOUTS[class_of(size)].slots as usize;
        let leaked = leaked(32, 2, OPTIONS);
        let mut heap = leaked.pool.attach().unwrap();
        let mut blocks: Vec<_> = (0..=slots).map(|_| heap.allocate(size, 16).unwrap()).collect();
        // Another one is current.
        blocks.pop();
        let unit = (blocks[0].addr().get() - leaked.base.addr().get()) / UNIT_BYTES;
        let in_use = blocks.split_off(slots - in_use);
        let last = blocks.pop().unwrap();
        for block in blocks {
            // SAFETY: not used after.
            unsafe { heap.free(block).unwrap() };
        }
        heap.collect();
        leaked.pool.check().unwrap();
        Self { leaked, heap, in_use, last, unit }
    }

    fn record(&self) -> &'static Superblock {
        &self.leaked.pool.superblocks()[self.unit]
    }
}

/// No flipped bit of its count ends a superblock in which a slot is in use, whoever has it then.
#[test]
fn a_count_of_none_in_use_is_not_believed() {
    for (in_use, bit) in
        [1, 2, 4].into_iter().flat_map(|in_use| (0..8).map(move |bit| (in_use, bit)))
    {
        for (in_mark, case) in
            [false, true].into_iter().flat_map(|word| [(word, 0), (word, 1), (word, 2)])
        {
            let mut sparse = Sparse::new(512, in_use);
            let (record, pool) = (sparse.record(), sparse.leaked.pool);
            let flip = || match in_mark {
                true => drop(record.mark.fetch_xor(1 << bit, Relaxed)),
                false => drop(record.left.fetch_xor(1 << bit, Relaxed)),
            };
            match case {
                // It goes to the global heap as soon as it seems empty, or with its heap's end.
                0 => {
                    flip();
                    // SAFETY: not used after.
                    unsafe { sparse.heap.free(sparse.last).unwrap() };
                    sparse.heap.collect();
                    drop(sparse.heap);
                }
                1 => {
                    // SAFETY: as above.
                    unsafe { sparse.heap.free(sparse.last).unwrap() };
                    sparse.heap.collect();
                    flip();
                    drop(sparse.heap);
                }
                // The global heap has it.
                _ => {
                    drop(sparse.heap);
                    flip();
                    // SAFETY: as above.
                    unsafe { pool.free(sparse.last).unwrap() };
                    pool.purge_all();
                }
            }
            let what = std::format!("{in_use} in use, bit {bit}, {in_mark}, case {case}");
            assert_ne!(record.owner().role(), Role::Free, "{what}");
            let mut heap = pool.attach().unwrap();
            let others: BTreeSet<_> = (0..300).map(|_| heap.allocate(512, 16).unwrap()).collect();
            assert!(sparse.in_use.iter().all(|block| !others.contains(block)), "{what}");
            assert_eq!(others.len(), 300, "{what}");
            core::mem::forget(heap);
        }
    }
}

/// Nor do its bits of free slots, as long as slots are live.
#[test]
fn a_superblock_with_live_slots_is_not_empty() {
    for size in [16, 512, 9000] {
        let sparse = Sparse::new(size, 3);
        let record = sparse.record();
        let starts = STARTS[class_of(size)];
        record.free.iter().zip(starts).for_each(|(word, bits)| word.store(bits, Relaxed));
        record.set_used(0, 0);
        drop(sparse.heap);
        assert_eq!((record.owner().role(), record.used()), (Role::Superblock { heap: 0 }, 4));
    }
}

/// A superblock in a heap's list whose owner or class was overwritten is nobody's to allocate from.
#[test]
fn a_listed_superblock_that_was_overwritten_is_left_out() {
    for size in [16, 512, 9000] {
        let class = class_of(size);
        let slots = LAYOUTS[class].slots as usize;
        for case in 0..4 {
            let Leaked { pool, base, .. } = leaked(64, 2, OPTIONS);
            let mut heap = pool.attach().unwrap();
            let unit_of =
                |block: NonNull<u8>| (block.addr().get() - base.addr().get()) / UNIT_BYTES;
            let blocks: Vec<_> = (0..3 * slots).map(|_| heap.allocate(size, 16).unwrap()).collect();
            for block in blocks.iter().take(2 * slots).step_by(2) {
                // SAFETY: not used after.
                unsafe { heap.free(*block).unwrap() };
            }
            if case >= 2 {
                // The global heap has both, and the next heap takes one.
                drop(heap);
                heap = pool.attach().unwrap();
            } else {
                heap.collect();
            }
            pool.check().unwrap();
            let [wrong, right] = [unit_of(blocks[0]), unit_of(blocks[slots])];
            let record = &pool.superblocks()[wrong];
            if case % 2 == 0 {
                record.set_owner(Owner(record.owner().0 ^ 4));
            } else {
                record.class.store(class as u8 ^ 1, Relaxed);
            }
            let units = LAYOUTS[class].units as usize;
            let is_in = |block, first: usize| (first..first + units).contains(&unit_of(block));
            let more: Vec<_> = (0..slots / 2).map(|_| heap.allocate(size, 16).unwrap()).collect();
            assert!(more.iter().all(|&block| is_in(block, right)), "{size} bytes, case {case}");
            let next = heap.allocate(size, 16).unwrap();
            assert!(!is_in(next, wrong) && !is_in(next, right), "{size} bytes, case {case}");
            core::mem::forget(heap);
        }
    }
}

/// The global heap keeps a superblock of which nobody knows how long it is, and hands out nothing of it.
#[test]
fn a_superblock_of_no_class_stays_where_it_is() {
    for in_use in [0, 3] {
        let sparse = Sparse::new(512, in_use);
        let (record, pool) = (sparse.record(), sparse.leaked.pool);
        let units = pool.with_source(|source| source.free.free_units());
        record.class.fetch_xor(1, Relaxed);
        if in_use == 0 {
            record.set_used(0, 0);
        }
        drop(sparse.heap);
        assert_eq!(record.owner(), Owner::of(0, CLASSES), "{in_use}");
        assert_eq!(pool.claims()[sparse.unit].front(), CLOSED);
        let free = pool.with_source(|source| source.free.free_units());
        assert_eq!(free, units, "{in_use}");
        assert!(pool.lock().partial.iter().all(|list| list.first() != Some(sparse.unit as u32)));
        let corrupt = BufferFreeError::Corrupt { unit: sparse.unit as u32 };
        assert_eq!(pool.usable_size(sparse.last), Err(corrupt));
        // SAFETY: it is not freed.
        assert_eq!(unsafe { pool.free(sparse.last) }, Err(corrupt));
    }
}

/// A unit that lies on the list of those with returned slots, but has none, leaves it; one of a heap that there is not stays
/// with the global heap.
#[test]
fn what_is_wrongly_on_a_list_leaves_it() {
    let Leaked { pool, .. } = leaked(16, 1, OPTIONS);
    let class = class_of(512);
    let owners = [Owner::FREE, Owner::SEGMENT, Owner::inner(1), Owner::of(77, class)];
    for (index, owner) in (3..).zip(owners) {
        let record = &pool.superblocks()[index as usize];
        record.set_owner(owner);
        assert_eq!(record.return_slot(70, pool.returned_bits(index)), Ok(Some(owner)));
        pool.list.push(pool.superblocks(), index);
        pool.collect_global(&mut pool.lock());
        let stays = owner == owners[3];
        assert_eq!((record.queued() != 0, pool.list.first() == Some(index)), (stays, stays));
        assert_eq!(pool.list.is_empty(), !stays);
        record.set_owner(Owner::FREE);
    }
}

/// A slot that its heap freed and another thread returned is counted, and free once.
#[test]
fn a_slot_freed_twice_is_counted() {
    for size in [16, 512, 9000] {
        let Leaked { pool, .. } = leaked(16, 1, OPTIONS);
        let mut heap = pool.attach().unwrap();
        let [block, other] = [(); 2].map(|()| heap.allocate(size, 16).unwrap());
        for block in [block, other] {
            // SAFETY: not used after.
            unsafe { pool.free(block).unwrap() };
        }
        let granule = pool.cached_slot(block.addr().get()).granule;
        // SAFETY: it lies in the arena.
        assert!(unsafe { clear(pool.live().first(), granule) });
        heap.collect();
        let stats = pool.stats();
        assert_eq!((stats.late_double_frees, stats.remote_frees), (1, 1), "{size} bytes");
    }
}

/// Of a record that was overwritten only so many units' fronts are closed as a superblock has at most, and only its first
/// one's is opened.
#[test]
fn fronts_beyond_a_superblock_stay_as_they_are() {
    let Leaked { pool, base, .. } = leaked(32, 2, OPTIONS);
    let [mut heap, other] = [pool.attach().unwrap(), pool.attach().unwrap()];
    let blocks: Vec<_> = (0..24).map(|_| heap.allocate(SLOT_BYTES_MAX, 16).unwrap()).collect();
    let first = (blocks[8].addr().get() - base.addr().get()) / UNIT_BYTES;
    let fronts = || -> Vec<u32> { pool.claims().iter().map(|claim| claim.front()).collect() };
    let open = Owner::of(1, CLASSES - 1).0;
    let before = fronts();
    assert!(before[..12].iter().all(|&front| front == open) && first == 4);
    let record = &pool.superblocks()[first];
    for units in [u32::MAX, 5, 4, 2, 1, 0] {
        record.units.store(units, Relaxed);
        // SAFETY: not used after.
        let freed = unsafe { other.front().free_shared(blocks[8].as_ptr()) };
        assert_eq!(freed, Freed::Done);
        let closed = first..first + units.clamp(1, 4) as usize;
        let expected =
            (0..32).map(|unit| if closed.contains(&unit) { CLOSED } else { before[unit] });
        assert!(fronts().into_iter().eq(expected), "{units} units");
        // The slot is in use again.
        record.units.store(4, Relaxed);
        heap.collect_returned();
        assert_eq!(fronts(), before, "{units} units");
        assert_eq!(heap.allocate(SLOT_BYTES_MAX, 16), Ok(blocks[8]));
    }
    pool.claims()[first..first + 4].iter().for_each(|claim| claim.set_front(CLOSED));
    record.units.store(5, Relaxed);
    pool.open_front(first as u32);
    assert_eq!(fronts()[first..first + 4], [open, CLOSED, CLOSED, CLOSED]);
}

/// A distance to a unit before the arena's first one leads nowhere, nor does one to what is no superblock.
#[test]
fn a_way_to_no_superblock_is_refused() {
    let Leaked { pool, base, .. } = leaked(16, 1, OPTIONS);
    for (unit, distance, error) in [
        (1, 2, Some(BufferFreeError::Corrupt { unit: 1 })),
        (0, 1, Some(BufferFreeError::Corrupt { unit: 0 })),
        (3, 3, None),
        (3, 2, None),
    ] {
        let record = &pool.superblocks()[unit];
        record.set_owner(Owner::inner(distance));
        let block = base.map_addr(|at| at.checked_add(unit * UNIT_BYTES).unwrap());
        let address = block.addr().get();
        let error = error.unwrap_or(BufferFreeError::NotAllocated { address });
        assert_eq!(pool.usable_size(block), Err(error));
        assert!(pool.first_of(unit << 12).is_none());
        record.set_owner(Owner::FREE);
    }
}

/// An entry of a cache that was overwritten frees nothing, wherever its two numbers lead, when its superblock is given up.
#[test]
fn an_overwritten_entry_is_nobodys() {
    let class = class_of(512);
    let (room, slots, low) = (34, 128, 112);
    for (word, granules) in
        [(0, 32), (0, 96), (0, 1), (0, 1 << 40), (1, 512), (1, 16), (1, 1 << 40)]
    {
        let options = BufferOptions { slack: 0, empty_eighths: 1, ..OPTIONS };
        let Leaked { pool, .. } = leaked(16, 1, options);
        let mut heap = pool.attach().unwrap();
        let blocks: Vec<_> = (0..=slots).map(|_| heap.allocate(512, 16).unwrap()).collect();
        // The cache has slots of the second superblock, and becomes full with ones of the first.
        let (caches, record) = (&pool.heaps()[0].caches, &pool.superblocks()[0]);
        let at_hand = caches.len(class).unwrap();
        let frees = room - at_hand + (slots - low) - 1;
        // SAFETY: not used after.
        let mut free = |block| unsafe { heap.free(block).unwrap() };
        blocks.iter().copied().skip(4).step_by(2).take(frees).for_each(&mut free);
        assert_eq!((record.used(), caches.len(class)), (low as i32 + 1, Some(room)));
        let entry = caches.get(class, at_hand + 1);
        assert_eq!(entry.address, blocks[6].addr().get());
        let (start, words) = (core::ptr::from_ref(caches).cast::<usize>().cast_mut(), 60 << 10);
        // SAFETY: the entries are the first words of the caches.
        let words = unsafe { core::slice::from_raw_parts_mut(start, words / 8) };
        let at = words.windows(2).position(|two| two == [entry.granule, entry.address]).unwrap();
        words[at + word] ^= granules;
        let before: u32 = record.free.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        // It has as few slots in use as the threshold says, and goes to the global heap with its slots at hand.
        free(blocks[4 + 2 * frees]);
        assert_eq!(record.owner(), Owner::of(0, class), "{word}, {granules}");
        let after: u32 = record.free.iter().map(|word| word.load(Relaxed).count_ones()).sum();
        let own = (room - at_hand) as u32;
        assert_eq!(after, before + own, "{word}, {granules}: one by its free, all at hand but one");
        for &block in [0, 1, 2, 3, 5, 7, 9].map(|nth| &blocks[nth]) {
            assert!(pool.usable_size(block).is_ok());
            let position = pool.position(0, pool.cached_slot(block.addr().get()).granule);
            assert!(record.free[0].load(Relaxed) >> position & 1 == 0, "{word}, {granules}");
        }
        core::mem::forget(heap);
    }
}

/// The words that a reach of one's own is made of are the pool's.
#[test]
fn table_words_are_those_of_the_tables() {
    let Leaked { pool, base, .. } = leaked(16, 1, OPTIONS);
    let [start, live, claim_zero, granules] = pool.table_words();
    let claims = pool.claims().as_ptr().addr();
    assert_eq!((start, granules), (base.addr().get(), 16 << 12));
    assert_eq!(live, core::ptr::from_ref(pool.live().unit(0).unwrap()).addr());
    assert_eq!(claim_zero.wrapping_add((start / UNIT_BYTES) * size_of::<Claim>()), claims);
}

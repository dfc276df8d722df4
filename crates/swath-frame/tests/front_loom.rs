//! The front under the model checker: every interleaving of a few threads.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p swath-frame --release --test
//! front_loom`. In this build a slot's buffer holds two frames, so that it
//! overflows here.
#![cfg(loom)]

use std::sync::OnceLock;

use lock_api::{GuardSend, RawMutex};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Front, Reuse, Slot};
use swath_frame::{
    FrameAllocateError, FrameAllocator, FrameFreeError, FrameHotplug, FrameHotplugError,
};

/// A lock whose waiting threads stand still: the checker need not look at
/// every turn of a spinning one. Its parts cannot be made in a constant, so
/// they are made at the first use.
struct LoomLock(OnceLock<(Mutex<bool>, Condvar)>);

impl LoomLock {
    fn parts(&self) -> &(Mutex<bool>, Condvar) {
        self.0.get_or_init(|| (Mutex::new(false), Condvar::new()))
    }
}

// All threads see one mutex, filled once: the checker runs them in turn on one thread.
// SAFETY: `lock` and `try_lock` return only where they changed the flag from false to true
// under the checker's mutex, which nobody can again until `unlock` stores false; that mutex
// orders what is inside.
unsafe impl RawMutex for LoomLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(OnceLock::new());
    type GuardMarker = GuardSend;

    fn lock(&self) {
        let (flag, freed) = self.parts();
        let mut held = flag.lock().unwrap();
        while *held {
            held = freed.wait(held).unwrap();
        }
        *held = true;
    }

    fn try_lock(&self) -> bool {
        !std::mem::replace(&mut *self.parts().0.lock().unwrap(), true)
    }

    unsafe fn unlock(&self) {
        let (flag, freed) = self.parts();
        *flag.lock().unwrap() = false;
        freed.notify_one();
    }
}

/// Up to 64 frames from `first` on, in one word: the allocator has no
/// interleavings of its own. A block is never longer than `block_max`.
struct Pool {
    first: u64,
    all: u64,
    free: u64,
    block_max: u64,
}

impl Pool {
    fn new(first: u64, frames: u64, block_max: u64) -> Self {
        let all = u64::MAX >> (64 - frames);
        Self { first, all, free: all, block_max }
    }
}

impl FrameAllocator for Pool {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        if self.free == 0 || frames_max == 0 {
            return None;
        }
        let start = self.free.trailing_zeros();
        let run = u64::from((self.free >> start).trailing_ones());
        let count = run.min(frames_max).min(self.block_max);
        self.free &= !(((1 << count) - 1) << start);
        Some(Extent::new(Pfn::new(self.first + u64::from(start)), count))
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        for start in (0..64).step_by(order.frames() as usize) {
            let block = ((1 << order.frames()) - 1) << start;
            if self.free & block == block {
                self.free &= !block;
                return Ok(Extent::new(Pfn::new(self.first + start), order.frames()));
            }
        }
        Err(FrameAllocateError::NoBlock { order })
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        for frame in extent.iter() {
            let bit = 1 << (frame.raw() - self.first);
            assert!(self.all & bit != 0 && self.free & bit == 0, "{frame} comes back twice");
            self.free |= bit;
        }
        Ok(())
    }

    fn free_frames(&self) -> u64 {
        u64::from(self.free.count_ones())
    }

    fn total_frames(&self) -> u64 {
        u64::from(self.all.count_ones())
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        (0..64).filter(|i| self.free >> i & 1 != 0).for_each(|i| {
            visit(Extent::new(Pfn::new(self.first + i), 1));
        });
    }
}

type Checked = Front<'static, LoomLock, Pool>;

/// A front whose locks have all been used once. The storage is leaked: the
/// checker's threads want it to last, and a run makes few kilobytes.
fn front(pool: Pool, cpus: usize) -> Arc<Checked> {
    Arc::new(made(pool, cpus))
}

fn made(pool: Pool, cpus: usize) -> Checked {
    let bits = (0..Checked::bits_len(&pool)).map(|_| AtomicUsize::new(0)).collect();
    let slots = (0..cpus).map(|_| Slot::new()).collect();
    let front = Front::new(pool, Vec::leak(slots), Vec::leak(bits)).unwrap();
    assert_eq!(front.free_frames(), front.total_frames());
    front
}

/// Runs `body` in every interleaving, none left out, and says how many.
fn explore(body: impl Fn() + Send + Sync + 'static) {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = std::sync::Arc::clone(&runs);
    loom::model::Builder::new().check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    println!("{} interleavings", runs.load(Ordering::Relaxed));
}

/// Two CPUs take the last frames: nobody gets a frame twice, and all come
/// back.
#[test]
fn frames_are_handed_out_once() {
    explore(|| take_the_last(&front(Pool::new(64, 3, 2), 2)));
}

/// As above where what is in use gathers below.
#[test]
fn gathered_frames_are_handed_out_once() {
    explore(|| take_the_last(&Arc::new(made(Pool::new(64, 3, 2), 2).gathering())));
}

fn take_the_last<U: Reuse + 'static>(front: &Arc<Front<'static, LoomLock, Pool, U>>) {
    let other = Arc::clone(front);
    let there = thread::spawn(move || {
        let cpu = other.on(1).unwrap();
        let frame = cpu.allocate_frame();
        frame.inspect(|&frame| cpu.free_frame(frame).unwrap());
        cpu.allocate_frame()
    });
    let here = front.on(0).unwrap().allocate_frame();
    let there = there.join().unwrap();
    assert!(here.is_some() || there.is_some());
    assert!(here.is_none() || here != there);
    front.check().unwrap();
    for frame in here.into_iter().chain(there) {
        front.on(0).unwrap().free_frame(frame).unwrap();
    }
    assert_eq!(front.free_frames(), 3);
    front.check().unwrap();
}

/// Three threads free one frame, one of them among others: exactly one
/// succeeds.
#[test]
fn a_double_free_fails() {
    explore(|| {
        let front = front(Pool::new(0, 4, 4), 2);
        front.allocate(4, &mut |_| ()).unwrap();
        let frame = Pfn::new(2);
        let alone = |cpu| {
            let front = Arc::clone(&front);
            thread::spawn(move || front.on(cpu).unwrap().free_frame(frame))
        };
        let (zero, one) = (alone(0), alone(1));
        let whole = front.free(Extent::new(Pfn::new(0), 4));
        let answers = [zero.join().unwrap(), one.join().unwrap(), whole];
        let refused = Err(FrameFreeError::NotAllocated { frame });
        assert_eq!(answers.iter().filter(|&&answer| answer == Ok(())).count(), 1);
        assert_eq!(answers.iter().filter(|&&answer| answer == refused).count(), 2);
        assert_eq!(front.free_frames(), if whole.is_ok() { 4 } else { 1 });
        front.check().unwrap();
    });
}

/// A free of several frames fails and rolls back while another thread frees
/// some of them rightly: that one must not notice.
#[test]
fn a_rollback_is_not_seen() {
    explore(|| {
        // Frames 62 to 65 lie in two words of bits.
        let front = front(Pool::new(62, 4, 4), 2);
        front.allocate(4, &mut |_| ()).unwrap();
        front.free(Extent::new(Pfn::new(65), 1)).unwrap();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || other.on(1).unwrap().free_frame(Pfn::new(62)));
        let whole = front.free(Extent::new(Pfn::new(62), 4));
        assert_eq!(there.join().unwrap(), Ok(()));
        // The one that was free before, or the one that the other freed.
        let named = |frame| Err(FrameFreeError::NotAllocated { frame: Pfn::new(frame) });
        assert!(whole == named(65) || whole == named(62), "{whole:?}");
        assert_eq!(front.free_frames(), 2);
        front.check().unwrap();
        assert_eq!(front.free(Extent::new(Pfn::new(63), 2)), Ok(()));
    });
}

/// A full buffer makes room while the other CPU, finding the allocator dry,
/// empties the slots.
#[test]
fn flushing_meets_draining() {
    explore(|| {
        let front = front(Pool::new(64, 6, 1), 2);
        front.allocate(6, &mut |_| ()).unwrap();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            let cpu = other.on(1).unwrap();
            // Two fill the buffer, the third makes one of them an area. (Frames below 64
            // would go into the word of the new slot, whose base is 0.)
            for frame in [69, 67, 68] {
                cpu.free_frame(Pfn::new(frame)).unwrap();
            }
        });
        let pair = front.allocate_aligned(Order::known(1));
        there.join().unwrap();
        let held = pair.map_or(0, |extent| extent.count);
        assert_eq!(front.free_frames() + held, 3);
        front.check().unwrap();
        // At rest, what is free can be had, wherever it lies.
        assert_eq!(front.allocate(3 - held, &mut |_| ()), Ok(()));
        front.check().unwrap();
    });
}

/// A front of two CPUs over ten frames, 64 to 73, of which all but 66, 68, 70 and 72 are out; two of these are in
/// CPU 1's buffer and two are its areas: as many as there can be.
fn front_with_a_full_slot() -> Arc<Checked> {
    let front = front(Pool::new(64, 10, 1), 2);
    front.allocate(10, &mut |_| ()).unwrap();
    for frame in [66, 68, 70, 72] {
        front.on(1).unwrap().free_frame(Pfn::new(frame)).unwrap();
    }
    front
}

/// Areas for which there is no room go back while the other CPU, finding the allocator dry, empties the
/// slots.
#[test]
fn areas_go_back_while_slots_are_emptied() {
    explore(|| {
        let front = front_with_a_full_slot();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            other.on(1).unwrap().free_frame(Pfn::new(65)).unwrap();
            other.on(1).unwrap().free_frame(Pfn::new(73)).unwrap();
        });
        assert_eq!(front.allocate(3, &mut |_| ()), Ok(()));
        there.join().unwrap();
        assert_eq!(front.free_frames(), 3);
        front.check().unwrap();
    });
}

/// Areas for which there is no room become spare while another CPU claims: what that gets are frames that came
/// back, each once.
#[test]
fn spare_areas_go_out_once() {
    explore(|| {
        let front = front_with_a_full_slot();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            other.on(1).unwrap().free_frame(Pfn::new(65)).unwrap();
        });
        let taken = [0, 1].map(|_| front.on(0).unwrap().allocate_frame().unwrap().raw());
        there.join().unwrap();
        assert_ne!(taken[0], taken[1]);
        assert!(taken.iter().all(|frame| [65, 66, 68, 70, 72].contains(frame)), "{taken:?}");
        assert_eq!(front.free_frames(), 3);
        front.check().unwrap();
    });
}

/// The order of half a unit in this build, a huge page: its frames have two words, which are its parts.
const HALF: Order = Order::known(3);

/// The order of a unit.
const UNIT: Order = Order::known(4);

/// A front of three CPUs over five huge pages, of which one is out. Two are the areas of CPU 1, as many frames as these
/// may be, and two are its blocks, as many as there can be.
fn front_with_huge_pages() -> Arc<Checked> {
    let front = front(Pool::new(0, 40, 8), 3);
    front.allocate(40, &mut |_| ()).unwrap();
    for start in [0, 8, 16, 24] {
        front.on(1).unwrap().free(Extent::new(Pfn::new(start), 8)).unwrap();
    }
    front
}

/// Huge pages for which there is no room are pooled while another CPU claims and a third empties the slots: each
/// goes out once, and none is kept from who asks for them.
#[test]
fn pooled_pages_go_out_once() {
    for whole in [HALF, UNIT] {
        explore(move || {
            let front = front_with_huge_pages();
            let other = Arc::clone(&front);
            let there = thread::spawn(move || {
                other.on(1).unwrap().free(Extent::new(Pfn::new(32), 8)).unwrap();
            });
            let here = front.on(0).unwrap().allocate_aligned(whole).unwrap();
            there.join().unwrap();
            assert_eq!(front.free_frames(), 40 - here.count);
            front.check().unwrap();
            front.on(0).unwrap().free(here).unwrap();
            assert_eq!(front.allocate(40, &mut |_| ()), Ok(()));
            front.check().unwrap();
        });
    }
}

/// Two CPUs take pooled pages, which are all that is free but for what CPU 1 has.
#[test]
fn two_take_pooled_pages() {
    explore(|| {
        let front = front_with_huge_pages();
        front.on(1).unwrap().free(Extent::new(Pfn::new(32), 8)).unwrap();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || other.on(2).unwrap().allocate_aligned(HALF).unwrap());
        let here = front.on(0).unwrap().allocate_aligned(HALF).unwrap();
        let there = there.join().unwrap();
        assert_ne!(here, there);
        assert_eq!(front.free_frames(), 24);
        front.check().unwrap();
        assert_eq!(front.allocate(24, &mut |_| ()), Ok(()));
    });
}

fn free(front: &Arc<Checked>, start: u64, count: u64) -> Result<(), FrameFreeError> {
    front.on(0).unwrap().free(Extent::new(Pfn::new(start), count))
}

/// A whole unit, or half of one, comes back on one CPU while the other frees one of its frames, or half of it:
/// exactly one of the two succeeds, and the other names a frame.
#[test]
fn a_whole_block_and_its_parts_come_back_once() {
    let halves = [(1, 1), (4, 4), (3, 2), (0, 8)].map(|part| (HALF, part));
    let units = [(1, 1), (8, 8), (7, 2), (0, 16)].map(|part| (UNIT, part));
    for (order, (start, count)) in halves.into_iter().chain(units) {
        explore(move || {
            let frames = order.frames();
            let front = front(Pool::new(0, frames, frames), 2);
            let block = front.on(0).unwrap().allocate_aligned(order).unwrap();
            let other = Arc::clone(&front);
            let there = thread::spawn(move || {
                other.on(1).unwrap().free(Extent::new(Pfn::new(start), count))
            });
            let whole = front.on(0).unwrap().free(block);
            let part = there.join().unwrap();
            let refused = Err(FrameFreeError::NotAllocated { frame: Pfn::new(start) });
            let freed = if whole.is_ok() { frames } else { count };
            assert!(if whole.is_ok() { part == refused } else { part.is_ok() }, "{part:?}");
            assert!(whole.is_ok() || whole == refused, "{whole:?}");
            assert_eq!(front.free_frames(), freed);
            front.check().unwrap();
        });
    }
}

/// A unit was taken as two halves: both come back on one CPU while the other frees all of it, or a frame of one half
/// while that comes back.
#[test]
fn halves_come_back_once() {
    for (start, count) in [(0, 16), (12, 1)] {
        explore(move || {
            let front = front(Pool::new(0, 16, 16), 2);
            let [low, high] = [0, 1].map(|_| front.on(0).unwrap().allocate_aligned(HALF).unwrap());
            let other = Arc::clone(&front);
            let there = thread::spawn(move || {
                other.on(1).unwrap().free(Extent::new(Pfn::new(start), count))
            });
            let here = [low, high].map(|half| front.on(0).unwrap().free(half));
            let there = there.join().unwrap();
            let freed: u64 = here.iter().map(|freed| if freed.is_ok() { 8 } else { 0 }).sum();
            assert_eq!(front.free_frames(), freed + if there.is_ok() { count } else { 0 });
            assert!(here[0].is_ok() || there.is_ok());
            front.check().unwrap();
        });
    }
}

/// The parts of a whole unit come back on two CPUs, rightly: both succeed, and then the unit can be
/// had again.
#[test]
fn parts_of_a_whole_block_come_back_together() {
    explore(|| {
        let front = front(Pool::new(0, 8, 8), 2);
        front.on(0).unwrap().allocate_aligned(HALF).unwrap();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            other.on(1).unwrap().free(Extent::new(Pfn::new(3), 5)).unwrap();
        });
        front.on(0).unwrap().free_frame(Pfn::new(2)).unwrap();
        assert_eq!(free(&front, 0, 2), Ok(()));
        there.join().unwrap();
        front.check().unwrap();
        assert_eq!(front.on(0).unwrap().allocate_aligned(HALF).unwrap().count, 8);
        front.check().unwrap();
    });
}

/// What one CPU splits, another frees, and a third takes: it sees that the unit is whole no more.
#[test]
fn a_split_is_seen_with_the_frames() {
    explore(|| {
        let front = front(Pool::new(0, 8, 8), 2);
        front.on(0).unwrap().allocate_aligned(HALF).unwrap();
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            let cpu = other.on(1).unwrap();
            cpu.free_frame(Pfn::new(1)).unwrap();
            cpu.allocate_frame()
        });
        let cpu = front.on(0).unwrap();
        cpu.free_frame(Pfn::new(0)).unwrap();
        let here = cpu.allocate_frame();
        let there = there.join().unwrap();
        assert!(here.is_some() && there.is_some() && here != there);
        assert_eq!(front.fault(), None);
        front.check().unwrap();
    });
}

/// Two CPUs take blocks of the last unit while a third request empties the slots.
#[test]
fn blocks_are_handed_out_once() {
    explore(|| {
        let front = front(Pool::new(0, 8, 8), 2);
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            let mut cpu = other.on(1).unwrap();
            let block = cpu.allocate_aligned(Order::known(1)).ok();
            block.inspect(|&block| cpu.free(block).unwrap());
            cpu.allocate_block(3)
        });
        let mut cpu = front.on(0).unwrap();
        let here = cpu.allocate_aligned(Order::known(2)).ok();
        let there = there.join().unwrap();
        let held = [here, there].into_iter().flatten();
        let mut seen = 0_u64;
        for block in held.clone() {
            let bits = ((1 << block.count) - 1) << block.start.raw();
            assert_eq!(seen & bits, 0, "{block} was handed out twice");
            seen |= bits;
        }
        front.check().unwrap();
        held.for_each(|block| assert_eq!({ cpu }.free(block), Ok(())));
        assert_eq!(front.free_frames(), 8);
        front.check().unwrap();
    });
}

impl FrameHotplug for Pool {
    fn span(&self) -> Extent {
        Extent::new(Pfn::new(self.first), 64)
    }

    fn add_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        for frame in extent.iter() {
            let bit = 1 << (frame.raw() - self.first);
            assert!(self.all & bit == 0, "{frame} is there already");
            self.all |= bit;
            self.free |= bit;
        }
        Ok(())
    }

    fn remove_frames(&mut self, extent: Extent) -> Result<(), FrameHotplugError> {
        let bit = |frame: Pfn| 1 << (frame.raw() - self.first);
        if let Some(frame) = extent.iter().find(|&frame| self.free & bit(frame) == 0) {
            return Err(FrameHotplugError::InUse { frame });
        }
        let bits = extent.iter().map(bit).fold(0, |bits, bit| bits | bit);
        self.all &= !bits;
        self.free &= !bits;
        Ok(())
    }
}

/// Frames are removed, and perhaps come again, while a wrong free of one or of both goes on: it fails, and
/// nothing is in circulation that is not there.
#[test]
fn what_is_removed_cannot_be_freed() {
    for (comes_again, count) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        explore(move || {
            let front = front(Pool::new(0, 4, 4), 2);
            let other = Arc::clone(&front);
            let there = thread::spawn(move || {
                other.on(1).unwrap().free(Extent::new(Pfn::new(2), count)).is_ok()
            });
            let gone = Extent::new(Pfn::new(2), 2);
            front.remove_frames(gone).unwrap();
            assert_eq!(front.total_frames(), 2);
            if comes_again {
                front.add_frames(gone).unwrap();
            }
            assert!(!there.join().unwrap(), "a free of what nobody holds");
            front.check().unwrap();
            assert_eq!(front.fault(), None);
            assert_eq!(front.free_frames(), if comes_again { 4 } else { 2 });
        });
    }
}

/// One CPU takes and frees while another removes what is free by chance and adds it again: a frame that
/// is out is not removed, and all come back.
#[test]
fn what_is_out_is_not_removed() {
    explore(|| {
        let front = front(Pool::new(0, 4, 2), 2);
        let other = Arc::clone(&front);
        let there = thread::spawn(move || {
            let cpu = other.on(1).unwrap();
            let frame = cpu.allocate_frame();
            frame.inspect(|&frame| cpu.free_frame(frame).unwrap());
            cpu.allocate_frame()
        });
        let part = Extent::new(Pfn::new(0), 2);
        let removed = front.remove_frames(part);
        let held = there.join().unwrap();
        assert!(removed.is_err() || held.is_none_or(|frame| !part.contains(frame)));
        front.check().unwrap();
        if removed.is_ok() {
            front.add_frames(part).unwrap();
        }
        held.inspect(|&frame| front.on(0).unwrap().free_frame(frame).unwrap());
        assert_eq!((front.total_frames(), front.free_frames()), (4, 4));
        front.check().unwrap();
    });
}

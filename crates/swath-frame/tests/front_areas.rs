//! The areas of the front's slots: what comes back in a row, and goes from one CPU to another.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::Front;
use swath_frame::{FrameAllocateError, FrameAllocator, FrameFreeError};

use crate::front::{Pool, bits, slots};

/// What comes back in a row, up or down, goes on to the allocator together, on whichever CPU it was
/// taken; what comes back in no order goes on, too, and nothing is lost.
#[test]
fn what_comes_back_in_a_row_goes_on_together() {
    // More than waits in a slot, in spare areas and among pooled pages.
    const FRAMES: u64 = 1 << 17;
    for order in [0, 3, 6, 9, 10].map(Order::known) {
        let pool = Pool::new(0..FRAMES);
        let frees = Arc::clone(&pool.frees);
        let (mut slots, mut bits) = (slots(2), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap();
        let [mut here, mut there] = [0, 1].map(|cpu| front.on(cpu).unwrap());
        for turn in ["up", "down", "shuffled"] {
            let taken = || here.allocate_aligned(order).ok();
            let mut blocks: Vec<u64> = std::iter::from_fn(taken).map(|b| b.start.raw()).collect();
            assert_eq!(blocks.len() as u64, FRAMES / order.frames());
            blocks.sort_unstable();
            match turn {
                "up" => {}
                "down" => blocks.reverse(),
                _ => Random::new(1).shuffle(&mut blocks),
            }
            frees.store(0, Ordering::Relaxed);
            for start in blocks {
                there.free(Extent::new(Pfn::new(start), order.frames())).unwrap();
            }
            let calls = frees.load(Ordering::Relaxed);
            assert!(calls > 0 && (calls <= 8 || turn == "shuffled"), "{order}, {turn}: {calls}");
            assert_eq!(front.free_frames(), FRAMES);
            front.check().unwrap();
        }
    }
}

/// What waits for other CPUs does not cut a long request in pieces.
#[test]
fn long_requests_get_long_runs() {
    const FRAMES: u64 = 1 << 18;
    let order = Order::known(9);
    let pool = Pool::new(0..FRAMES);
    let (mut slots, mut bits) = (slots(2), bits(&pool));
    let front = Front::new(pool, &mut slots, &mut bits).unwrap();
    let [mut here, mut there] = [0, 1].map(|cpu| front.on(cpu).unwrap());
    let taken = || here.allocate_aligned(order).ok();
    let blocks: Vec<Extent> = std::iter::from_fn(taken).collect();
    // Every second page first, so that what is pooled lies among what is not.
    for parity in [0, 1] {
        for block in blocks.iter().filter(|block| block.start.raw() >> 9 & 1 == parity) {
            there.free(*block).unwrap();
        }
    }
    let mut longest = 0;
    front.allocate(FRAMES / 2, &mut |run| longest = longest.max(run.count)).unwrap();
    // The slot that they were freed on keeps some.
    assert!(longest >= FRAMES / 4, "{longest}");
    front.check().unwrap();
}

/// Where some CPUs free what others allocate, areas go from hand to hand: once enough frames are under
/// way the allocator is not asked any more. Of orders between some do go back to it, those of a full stack
/// that lie in two areas.
#[test]
fn areas_go_from_one_cpu_to_another() {
    const FRAMES: u64 = 1 << 19;
    for order in [0, 9, 10].map(Order::known) {
        let pool = Pool::new(0..FRAMES);
        let frees = Arc::clone(&pool.frees);
        let (mut slots, mut bits) = (slots(4), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap();
        let cpus = [0, 1, 2, 3].map(|cpu| front.on(cpu).unwrap());
        for turn in 0..20 {
            if turn == 10 {
                frees.store(0, Ordering::Relaxed);
            }
            for pair in [0, 2] {
                let (mut taker, mut giver) = (cpus[pair], cpus[pair + 1]);
                let count = 8192 / order.frames();
                let blocks: Vec<Extent> =
                    (0..count).map(|_| taker.allocate_aligned(order).unwrap()).collect();
                blocks.into_iter().try_for_each(|block| giver.free(block)).unwrap();
            }
        }
        assert_eq!(frees.load(Ordering::Relaxed), 0, "{order}");
        assert_eq!(front.free_frames(), FRAMES);
        front.check().unwrap();
        // Nor is any of them kept from who needs all memory.
        front.allocate(FRAMES, &mut |_| ()).unwrap();
    }
}

/// Huge pages that come back in whatever order, more than a CPU's slot holds, wait in a pool for whichever CPU wants
/// some, one or two side by side, and the allocator does not hear of them; nor are they kept from who needs more.
#[test]
fn huge_pages_wait_for_any_cpu() {
    const FRAMES: u64 = 1 << 18;
    for seed in 0..4 {
        let pool = Pool::new(0..FRAMES);
        let frees = Arc::clone(&pool.frees);
        let (mut slots, mut bits) = (slots(3), bits(&pool));
        let front = Front::new(pool, &mut slots, &mut bits).unwrap();
        let [mut here, mut there, mut elsewhere] = [0, 1, 2].map(|cpu| front.on(cpu).unwrap());
        let [page, pair] = [9, 10].map(Order::known);
        let mut pages: Vec<Extent> =
            std::iter::from_fn(|| here.allocate_aligned(page).ok()).collect();
        assert_eq!(pages.len() as u64, FRAMES / page.frames());
        frees.store(0, Ordering::Relaxed);
        // A slot holds 40, and half of the memory is 256 of them.
        let mut back = pages.split_off(512 - 160);
        Random::new(seed).shuffle(&mut back);
        back.into_iter().try_for_each(|page| there.free(page)).unwrap();
        let taken: Vec<Extent> =
            (0..80).map(|_| elsewhere.allocate_aligned(page).unwrap()).collect();
        assert_eq!(frees.load(Ordering::Relaxed), 0, "seed {seed}");
        front.check().unwrap();
        taken.into_iter().try_for_each(|page| elsewhere.free(page)).unwrap();
        let pairs = std::iter::from_fn(|| here.allocate_aligned(pair).ok()).count();
        assert_eq!(pairs, 80, "seed {seed}");
        assert_eq!(front.free_frames(), 0);
        front.check().unwrap();
    }
}

/// Where a free says that it has begun, and waits for leave to go on.
type FreeGate = (Sender<()>, Receiver<()>);

/// A pool one of whose frees waits for a word, if it is given a gate.
struct SlowPool {
    pool: Pool,
    gate: Arc<Mutex<Option<FreeGate>>>,
}

impl FrameAllocator for SlowPool {
    fn allocate_block(&mut self, frames_max: u64) -> Option<Extent> {
        self.pool.allocate_block(frames_max)
    }

    fn allocate_aligned(&mut self, order: Order) -> Result<Extent, FrameAllocateError> {
        self.pool.allocate_aligned(order)
    }

    fn free(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if let Some((begun, go_on)) = self.gate.lock().unwrap().take() {
            begun.send(()).unwrap();
            go_on.recv_timeout(Duration::from_secs(60)).expect("the other CPU waits for the lock");
        }
        self.pool.free(extent)
    }

    fn free_frames(&self) -> u64 {
        self.pool.free_frames()
    }

    fn total_frames(&self) -> u64 {
        self.pool.total_frames()
    }

    fn for_each_free(&self, visit: &mut dyn FnMut(Extent)) {
        self.pool.for_each_free(visit);
    }
}

/// While one CPU's frames go back to the allocator, another's come in without waiting for its lock,
/// until they are twice as many as go back otherwise.
#[test]
fn who_gives_back_much_in_a_row_does_not_wait() {
    // So many that huge pages find no more room.
    const FRAMES: u64 = 1 << 18;
    let order = Order::known(10);
    let gate = Arc::default();
    let pool = SlowPool { pool: Pool::new(0..FRAMES), gate: Arc::clone(&gate) };
    let (mut slots, mut bits) = (slots(2), bits(&pool));
    let front = Front::new(pool, &mut slots, &mut bits).unwrap();
    let [mut here, mut there] = [0, 1].map(|cpu| front.on(cpu).unwrap());
    let mut blocks: Vec<Extent> =
        std::iter::from_fn(|| here.allocate_aligned(order).ok()).collect();
    blocks.sort_unstable_by_key(|block| block.start);
    let theirs = blocks.split_off(blocks.len() / 4 * 3);
    let (begun, has_begun) = channel();
    let (leave, go_on) = channel();
    *gate.lock().unwrap() = Some((begun, go_on));
    std::thread::scope(|scope| {
        scope.spawn(|| blocks.iter().try_for_each(|&block| here.free(block)).unwrap());
        has_begun.recv().unwrap();
        // 16,384 frames would go back by themselves.
        theirs.iter().take(32).try_for_each(|&block| there.free(block)).unwrap();
        leave.send(()).unwrap();
        theirs.iter().skip(32).try_for_each(|&block| there.free(block)).unwrap();
    });
    assert_eq!(front.free_frames(), FRAMES);
    front.check().unwrap();
}

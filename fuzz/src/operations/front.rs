//! The per-CPU front over the page buddy system.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

use parking_lot::RawMutex;
use swath_arch::testing::Random;
use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Front, NoSuchCpu, Reuse, Slot};
use swath_frame::{
    BuddyConfig, FrameAllocateError, FrameAllocator, FrameFreeError, MemoryMap, PageBuddy,
};

use super::memory::{GARBAGE, STEPS_MAX, areas, extent, with_map};

type Buddy = PageBuddy<Vec<u64>>;

/// Sets of frames: all that are the front's, and those of them in use.
#[derive(Default)]
struct Model {
    all: BTreeSet<u64>,
    used: BTreeSet<u64>,
}

impl Model {
    fn free(&self) -> u64 {
        (self.all.len() - self.used.len()) as u64
    }

    fn take(&mut self, block: Extent) {
        for frame in block.iter() {
            assert!(self.all.contains(&frame.raw()), "{frame} is not the front's");
            assert!(self.used.insert(frame.raw()), "{frame} is handed out twice");
        }
    }

    /// Frees frames; the result that a free has to have.
    fn give(&mut self, extent: Extent) -> Result<(), FrameFreeError> {
        if extent.is_empty() {
            return Err(FrameFreeError::Empty);
        }
        if extent.checked_end().is_none() {
            return Err(FrameFreeError::Overflow { extent });
        }
        match extent.iter().find(|frame| !self.used.contains(&frame.raw())) {
            Some(frame) if self.all.contains(&frame.raw()) => {
                Err(FrameFreeError::NotAllocated { frame })
            }
            Some(frame) => Err(FrameFreeError::Foreign { frame }),
            None => {
                extent.iter().for_each(|frame| assert!(self.used.remove(&frame.raw())));
                Ok(())
            }
        }
    }

    fn has_aligned(&self, order: Order) -> bool {
        let is_free = |frame: u64| self.all.contains(&frame) && !self.used.contains(&frame);
        let mut starts = self.all.iter().filter(|&frame| frame.is_multiple_of(order.frames()));
        starts.any(|&start| (start..start + order.frames()).all(is_free))
    }

    /// Frames in use from one of them on, a run around them, or what cannot be.
    fn extent(&self, random: &mut Random) -> Extent {
        let nth = random.index(self.used.len().max(1));
        let start = self.used.iter().nth(nth).copied().unwrap_or(3);
        let run = (start..).take_while(|frame| self.used.contains(frame)).count() as u64;
        match random.below(8) {
            0 => extent(random.below(0x1600), random.below(10)),
            1 => extent(u64::MAX - random.below(3), random.below(5)),
            2 => extent(start, run + 1),
            3 => extent(start, u64::MAX - random.below(2 * start + 1)),
            4 => extent(start.saturating_sub(1), run),
            _ => extent(start, 1 + random.below(run.max(1))),
        }
    }
}

/// Draws memory, an allocator of which some is in use, and processors, and drives the front beside
/// sets of frames.
pub fn run(bytes: &[u8]) {
    let mut random = Random::given(bytes);
    let areas = areas(&mut random, 400);
    let configs = [BuddyConfig::BBS, BuddyConfig::PBS_ARMV7, BuddyConfig::PBS_ARMV8];
    let config = configs[random.index(3)];
    with_map(&areas, |map| drive(&map, config, random));
}

fn drive(map: &MemoryMap<'_>, config: BuddyConfig, mut random: Random) {
    let words = vec![GARBAGE; Buddy::storage_words(map, config)];
    let mut buddy = Buddy::new(map, config, words).expect("as many words as needed");
    // What was handed out before is not the front's until it has ended.
    let mut before = Vec::new();
    let frames = random.below(map.total_frames() / 2 + 1);
    assert_eq!(buddy.allocate(frames, &mut |block| before.push(block)).is_ok(), frames > 0);
    let mut model = Model::default();
    buddy.for_each_free(&mut |block| model.all.extend(block.iter().map(Pfn::raw)));

    let cpus = 1 + random.index(4);
    let mut slots: Vec<Slot<RawMutex>> = (0..cpus).map(|_| Slot::new()).collect();
    let len = Front::<RawMutex, Buddy>::bits_len(&buddy);
    let mut bits: Vec<_> = (0..len).map(|_| AtomicUsize::new(GARBAGE as usize)).collect();
    let front =
        Front::new(buddy, &mut slots, &mut bits).expect("slots, and as many bits as needed");
    let mut buddy = match random.below(2) {
        0 => serve(front, cpus, model, random),
        _ => serve(front.gathering(), cpus, model, random),
    };
    before.into_iter().for_each(|block| assert_eq!(buddy.free(block), Ok(())));
    assert_eq!(buddy.free_frames(), map.total_frames());
}

/// Runs operations by all processors; returns the allocator, with every frame back in it.
fn serve<U: Reuse>(
    front: Front<'_, RawMutex, Buddy, U>,
    cpus: usize,
    mut model: Model,
    mut random: Random,
) -> Buddy {
    assert_eq!(front.on(cpus).err(), Some(NoSuchCpu { cpu: cpus, cpus }));
    for step in 0..STEPS_MAX {
        if random.is_spent() {
            break;
        }
        let cpu = random.index(cpus);
        operate(&front, cpu, &mut model, &mut random);
        check(&front, &model, step % 8 == 0);
    }
    check(&front, &model, true);
    for &frame in &model.used {
        assert_eq!(front.free(extent(frame, 1)), Ok(()), "frame {frame:#x} at last");
    }
    let buddy = front.into_inner();
    assert_eq!(buddy.check(), Ok(()));
    assert_eq!(buddy.free_frames(), model.all.len() as u64);
    buddy
}

/// One operation of a processor. None may fail for what lies in another's slot.
fn operate<U: Reuse>(
    front: &Front<'_, RawMutex, Buddy, U>,
    cpu: usize,
    model: &mut Model,
    random: &mut Random,
) {
    let mut cpu = front.on(cpu).expect("a processor of the front's");
    let free = model.free();
    match random.below(16) {
        // Runs, so that words are claimed and used up, and buffers overflow.
        0..4 => {
            for _ in 0..1 + random.below(80) {
                let free = model.free();
                match cpu.allocate_frame() {
                    Some(frame) => model.take(Extent::new(frame, 1)),
                    None => assert_eq!(free, 0, "a frame is free"),
                }
            }
        }
        4..8 => {
            let first = random.index(model.used.len().max(1));
            let count = 1 + random.index(80);
            let frames: Vec<u64> = model.used.iter().skip(first).take(count).copied().collect();
            // Every other one, so that what goes back is in pieces.
            let stride = 1 + random.index(2);
            for &frame in frames.iter().step_by(stride) {
                assert_eq!(cpu.free_frame(Pfn::new(frame)), Ok(()));
                assert_eq!(model.give(extent(frame, 1)), Ok(()));
                let again = Err(FrameFreeError::NotAllocated { frame: Pfn::new(frame) });
                assert_eq!(cpu.free_frame(Pfn::new(frame)), again);
            }
        }
        8..10 => {
            let extent = model.extent(random);
            assert_eq!(front.free(extent), model.give(extent), "{extent}");
        }
        10 => {
            let extent = model.extent(random);
            assert_eq!(cpu.free(extent), model.give(extent), "{extent}");
        }
        11 => {
            let wanted = random.below(300);
            let mut got = 0;
            let done = front.allocate(wanted, &mut |block| {
                got += block.count;
                model.take(block);
            });
            let expected = match wanted {
                0 => Err(FrameAllocateError::Empty),
                _ if wanted > free => Err(FrameAllocateError::OutOfFrames { wanted, free }),
                _ => Ok(()),
            };
            assert_eq!(done, expected, "{wanted} frames");
            assert_eq!(got, if expected.is_ok() { wanted } else { 0 });
        }
        12..14 => {
            let order = Order::known(random.below(11) as u8);
            match front.allocate_aligned(order) {
                Ok(block) => {
                    assert!(block.count == order.frames() && block.start.is_aligned(order.k()));
                    model.take(block);
                }
                Err(error) => {
                    let wanted = order.frames();
                    let expected = if wanted > free {
                        FrameAllocateError::OutOfFrames { wanted, free }
                    } else {
                        FrameAllocateError::NoBlock { order }
                    };
                    assert_eq!(error, expected);
                    assert!(!model.has_aligned(order), "a block of order {order} is free");
                }
            }
        }
        14 => {
            let frames_max = random.below(100);
            match cpu.allocate_block(frames_max) {
                Some(block) => {
                    assert!((1..=frames_max).contains(&block.count));
                    model.take(block);
                }
                None => assert!(frames_max == 0 || free == 0, "a frame is free"),
            }
        }
        _ => front.drain(),
    }
}

/// The front's invariants and counts, and if `all` each frame's place.
fn check<U: Reuse>(front: &Front<'_, RawMutex, Buddy, U>, model: &Model, all: bool) {
    assert_eq!(front.check(), Ok(()));
    assert_eq!(front.free_frames(), model.free());
    if !all {
        return;
    }
    let mut free = BTreeSet::new();
    front.on(0).expect("the first processor").for_each_free(&mut |block| {
        for frame in block.iter() {
            assert!(free.insert(frame.raw()), "{frame} is free twice");
        }
    });
    assert!(free.is_disjoint(&model.used), "a frame in use is free");
    assert_eq!(free.len() as u64, model.free());
    assert!(free.is_subset(&model.all));
}

//! The cost of the per-CPU front over the page buddy system with granularity 9.

use std::sync::atomic::AtomicUsize;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::front::{Fifo, Front, Gather, Reuse, Slot};
use swath_frame::{BuddyConfig, FrameAllocator, HeadOfList, PageBuddy, Trusting};

use crate::random::Random;
use crate::setup::{CALLS, FRAMES, SpinLock, buddy, check_taken};

type Counted = fn(&mut dyn FnMut());

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    /// An aligned block of an order.
    Aligned(u8),
    /// A run of so many frames.
    Run(u64),
}

/// How many blocks are in use while pairs are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Live {
    /// None but the one that is taken and comes back.
    Alone,
    /// A quarter of the memory, or 4,096 of them. A random one comes back, another is taken.
    Many,
}

type FrontOver<'m, U = Fifo> = Front<'m, SpinLock, PageBuddy<Vec<u64>, HeadOfList>, U>;

/// How a front is made of a plain one.
type Made<U> = for<'m> fn(FrontOver<'m>) -> FrontOver<'m, U>;

const PLAIN: Made<Fifo> = |front| front;
const GATHERING: Made<Gather> = |front| front.gathering();

/// Runs `body` with a front on a map of which a half is used, by users of the
/// front, and these frames: a random half in random order, or the lower half
/// in rising order.
fn with_front<U: Reuse>(
    random: bool,
    made: Made<U>,
    body: impl FnOnce(&FrontOver<'_, U>, Vec<Pfn>) -> Result<u64, String>,
) -> Result<u64, String> {
    let allocator: PageBuddy<_, _, Trusting> = buddy(BuddyConfig::PBS_ARMV8, true);
    let mut bits = Vec::new();
    bits.resize_with(FrontOver::bits_len(&allocator), || AtomicUsize::new(0));
    let mut slots: [Slot<SpinLock>; 4] = std::array::from_fn(|_| Slot::new());
    let front = FrontOver::new(allocator, &mut slots, &mut bits);
    let front = made(front.map_err(|error| error.to_string())?);
    let mut frames: Vec<Pfn> = Vec::new();
    front
        .allocate(FRAMES, &mut |block| frames.extend(block.iter()))
        .map_err(|error| error.to_string())?;
    if random {
        Random::new(1).shuffle(&mut frames);
    }
    let cpu = front.on(0).map_err(|error| error.to_string())?;
    for frame in frames.drain(FRAMES as usize / 2..) {
        cpu.free_frame(frame).map_err(|error| error.to_string())?;
    }
    front.drain();
    let calls = body(&front, frames)?;
    front.check().map_err(|fault| fault.to_string())?;
    Ok(calls)
}

pub(crate) fn get(random: bool, counted: Counted) -> Result<u64, String> {
    with_front(random, PLAIN, |front, used| {
        let cpu = front.on(1).map_err(|error| error.to_string())?;
        let mut taken = vec![None; CALLS];
        counted(&mut || taken.iter_mut().for_each(|frame| *frame = cpu.allocate_frame()));
        check_taken(&taken, &used, front.free_frames())
    })
}

pub(crate) fn put(random: bool, counted: Counted) -> Result<u64, String> {
    with_front(random, PLAIN, |front, mut used| {
        let cpu = front.on(1).map_err(|error| error.to_string())?;
        let frames = used.split_off(used.len() - CALLS);
        let mut freed = 0;
        counted(&mut || {
            frames.iter().for_each(|&frame| freed += u64::from(cpu.free_frame(frame).is_ok()));
        });
        check_taken(&[], &used, front.free_frames())?;
        if freed == CALLS as u64 { Ok(freed) } else { Err("a free failed".into()) }
    })
}

/// A random frame comes back, another is taken: one call is the two together,
/// the steady state of a busy CPU.
pub(crate) fn pair(counted: Counted) -> Result<u64, String> {
    with_front(true, PLAIN, |front, used| turns_of_one(front, used, counted))
}

/// As [`pair`] where what is in use gathers: it lies side by side already, or anywhere.
pub(crate) fn gathered_pair(scattered: bool, counted: Counted) -> Result<u64, String> {
    with_front(scattered, GATHERING, |front, mut used| {
        Random::new(2).shuffle(&mut used);
        turns_of_one(front, used, counted)
    })
}

fn turns_of_one<U: Reuse>(
    front: &FrontOver<'_, U>,
    mut used: Vec<Pfn>,
    counted: Counted,
) -> Result<u64, String> {
    let cpu = front.on(1).map_err(|error| error.to_string())?;
    let mut failed = 0_u64;
    counted(&mut || {
        for frame in &mut used[..CALLS] {
            failed += u64::from(cpu.free_frame(*frame).is_err());
            match cpu.allocate_frame() {
                Some(taken) => *frame = taken,
                None => failed += 1,
            }
        }
    });
    if failed > 0 {
        return Err(format!("{failed} calls failed"));
    }
    check_taken(&[], &used, front.free_frames())?;
    Ok(CALLS as u64)
}

/// Takes a block and gives one back, in steady state, through the front (on one CPU) or in the bare
/// allocator; one call is the two together.
pub(crate) fn pairs(front: bool, ask: Ask, live: Live, counted: Counted) -> Result<u64, String> {
    let mut allocator: PageBuddy<_, _, Trusting> = buddy(BuddyConfig::PBS_ARMV8, true);
    if !front {
        let calls = steady(&mut allocator, ask, live, counted)?;
        allocator.check()?;
        return Ok(calls);
    }
    let mut bits = Vec::new();
    bits.resize_with(FrontOver::bits_len(&allocator), || AtomicUsize::new(0));
    let mut slots: [Slot<SpinLock>; 4] = std::array::from_fn(|_| Slot::new());
    let front =
        FrontOver::new(allocator, &mut slots, &mut bits).map_err(|error| error.to_string())?;
    let mut cpu = front.on(1).map_err(|error| error.to_string())?;
    let calls = steady(&mut cpu, ask, live, counted)?;
    front.check().map_err(|fault| fault.to_string())?;
    Ok(calls)
}

fn steady<A: FrameAllocator>(
    allocator: &mut A,
    ask: Ask,
    live: Live,
    counted: Counted,
) -> Result<u64, String> {
    match ask {
        Ask::Aligned(k) => {
            let order = Order::known(k);
            let take = |allocator: &mut A| allocator.allocate_aligned(order).ok();
            repeat(allocator, order.frames(), take, live, counted)
        }
        Ask::Run(frames) => {
            let take = |allocator: &mut A| allocator.allocate_block(frames);
            repeat(allocator, frames, take, live, counted)
        }
    }
}

fn repeat<A: FrameAllocator>(
    allocator: &mut A,
    frames: u64,
    take: impl Fn(&mut A) -> Option<Extent>,
    live: Live,
    counted: Counted,
) -> Result<u64, String> {
    const PAIRS: usize = 1 << 13;
    let blocks = if live == Live::Alone { 0 } else { (FRAMES / 4 / frames).min(4096) };
    let mut used: Vec<Extent> = (0..blocks).filter_map(|_| take(allocator)).collect();
    let mut random = Random::new(1);
    let places: Vec<usize> = (0..2 * PAIRS).map(|_| random.below(blocks.max(1)) as usize).collect();
    let (warm, measured) = places.split_at(PAIRS);
    let mut failed = 0;
    let mut pairs = |places: &[usize]| failed += turns(allocator, &mut used, places, &take);
    pairs(warm);
    counted(&mut || pairs(measured));
    let held: u64 = used.iter().map(|block| block.count).sum();
    // A run is shorter where one of the allocator's blocks ends.
    let short = held < blocks * frames * 4 / 5;
    if failed > 0 || short || held + allocator.free_frames() != FRAMES {
        return Err(format!("{failed} frees failed, {held} frames are held"));
    }
    Ok(PAIRS as u64)
}

/// Gives back the blocks at `places`, one by one, and takes another for each; where none is in use,
/// takes one and gives it back. Counts the calls that failed.
fn turns<A: FrameAllocator>(
    allocator: &mut A,
    used: &mut [Extent],
    places: &[usize],
    take: impl Fn(&mut A) -> Option<Extent>,
) -> u64 {
    let mut failed = 0;
    for &place in places {
        if let Some(block) = used.get_mut(place) {
            failed += u64::from(allocator.free(*block).is_err());
            match take(allocator) {
                Some(new) => *block = new,
                None => failed += 1,
            }
        } else {
            let block = take(allocator).unwrap_or_default();
            failed += u64::from(allocator.free(block).is_err());
        }
    }
    failed
}

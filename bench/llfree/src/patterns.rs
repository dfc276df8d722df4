//! The patterns in which blocks are taken and given back. Each leaves all frames free.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use crate::contender::{Cpu, Shared};
use crate::random::Random;
use crate::threads::{self, Gate};

/// A place without a block, where none was available.
pub(crate) const NONE: u64 = u64::MAX;

/// Blocks on their way from one thread to another at a time, at most.
const BATCH: u64 = 256;

/// Batches that wait in a queue, at most.
pub(crate) const QUEUE: usize = 4;

/// A pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pattern {
    /// Takes half of the memory, then gives it back in the order taken.
    Bulk,
    /// Takes a block and gives it back, again and again, where all else is free.
    Repeat,
    /// Half of the memory was taken in one go. Gives a random block back and takes another.
    Random,
    /// A random half of all blocks is taken. Gives a random one back and takes another.
    Aged,
    /// One thread takes, another gives back what comes through a queue of bounded length. A thread
    /// alone takes on one CPU and gives back on another.
    Cross,
}

/// How a pattern is run.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Frames of the memory.
    pub(crate) frames: u64,
    /// Threads, each on a CPU of its own.
    pub(crate) threads: usize,
    /// The order of all blocks.
    pub(crate) order: u8,
    /// Calls that each thread makes, about; each of a pair counts for itself.
    pub(crate) calls: usize,
}

/// What calls took.
#[derive(Default)]
pub(crate) struct Tally {
    /// Nanoseconds of each part of the pattern.
    nanos: [u64; 2],
    /// Calls of each part, or pairs.
    calls: [u64; 2],
    /// Calls that failed.
    pub(crate) failed: u64,
    /// True if a thread had to wait for a processor.
    pub(crate) disturbed: bool,
}

impl Tally {
    /// Nanoseconds per call of a part of the pattern.
    pub(crate) fn per_call(&self, part: usize) -> f64 {
        self.nanos[part] as f64 / self.calls[part].max(1) as f64
    }

    fn add(&mut self, part: usize, nanos: u64, calls: usize) {
        self.nanos[part] += nanos;
        self.calls[part] += calls as u64;
    }

    fn and(mut self, other: &Self) -> Self {
        for part in 0..2 {
            self.nanos[part] += other.nanos[part];
            self.calls[part] += other.calls[part];
        }
        self.failed += other.failed;
        self
    }
}

impl Plan {
    /// CPUs that the allocators are set up for: a thread alone has two for [`Pattern::Cross`].
    pub(crate) fn cpus(&self) -> usize {
        self.threads.max(2)
    }

    /// Blocks of a thread when all of them together hold half of the memory.
    pub(crate) fn blocks(&self) -> usize {
        ((self.frames / 2) >> self.order) as usize / self.threads
    }
}

impl Pattern {
    /// All patterns.
    pub(crate) const ALL: [Self; 5] =
        [Self::Bulk, Self::Repeat, Self::Random, Self::Aged, Self::Cross];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Repeat => "repeat",
            Self::Random => "random",
            Self::Aged => "aged",
            Self::Cross => "cross",
        }
    }

    /// What is timed by itself: takes and gives, or a pair of both.
    pub(crate) fn parts(self) -> &'static [&'static str] {
        match self {
            Self::Bulk | Self::Cross => &["get", "put"],
            Self::Repeat | Self::Random | Self::Aged => &["pair"],
        }
    }

    /// Runs the pattern on an allocator whose frames are all free.
    pub(crate) fn run<S: Shared>(self, shared: &S, plan: Plan) -> Result<Tally, String> {
        // From here on no thread may leave the others waiting.
        for cpu in 0..plan.cpus() {
            shared.on(cpu, plan.order)?;
        }
        let ran = match self {
            Self::Bulk => threads::run(plan.threads, |at, gate| bulk(shared, plan, at, gate)),
            Self::Repeat => threads::run(plan.threads, |at, gate| repeat(shared, plan, at, gate)),
            Self::Random => threads::run(plan.threads, |at, gate| {
                let mut held = vec![NONE; plan.blocks()];
                let failed = take(&mut shared.on(at, plan.order)?, &mut held);
                exchanges(shared, plan, at, gate, held, failed)
            }),
            Self::Aged => {
                let used = random_half(shared, plan)?;
                let each = used.len() / plan.threads;
                threads::run(plan.threads, |at, gate| {
                    exchanges(shared, plan, at, gate, used[at * each..][..each].to_vec(), 0)
                })
            }
            Self::Cross if plan.threads == 1 => threads::run(1, |_, _| cross_alone(shared, plan)),
            Self::Cross => {
                let queues: Vec<_> = (0..plan.threads / 2).map(|_| Queue::new()).collect();
                threads::run(plan.threads, |at, gate| {
                    cross(shared, plan, at, gate, &queues[at / 2])
                })
            }
        }?;
        let start = Tally { disturbed: ran.disturbed, ..Tally::default() };
        let tally =
            ran.each.into_iter().try_fold(start, |sum, tally| Ok::<_, String>(sum.and(&tally?)))?;
        shared.check(plan.frames)?;
        Ok(tally)
    }
}

/// Takes a block for each place: how many were not available.
#[inline(always)]
fn take(cpu: &mut impl Cpu, places: &mut [u64]) -> u64 {
    let mut failed = 0;
    for place in places {
        *place = cpu.get().unwrap_or_else(|| {
            failed += 1;
            NONE
        });
    }
    failed
}

/// Gives blocks back: how many were refused.
#[inline(always)]
fn give(cpu: &mut impl Cpu, blocks: &[u64]) -> u64 {
    let mut failed = 0;
    for &block in blocks {
        if block != NONE {
            failed += u64::from(!cpu.put(block));
        }
    }
    failed
}

/// Gives each block back and takes another: how many calls failed.
#[inline(always)]
fn exchange(cpu: &mut impl Cpu, blocks: &mut [u64]) -> u64 {
    let mut failed = 0;
    for block in blocks {
        if *block != NONE {
            failed += u64::from(!cpu.put(*block));
        }
        *block = cpu.get().unwrap_or_else(|| {
            failed += 1;
            NONE
        });
    }
    failed
}

/// Takes a block and gives it back, so many times: how many calls failed.
#[inline(always)]
pub(crate) fn pairs(cpu: &mut impl Cpu, count: usize) -> u64 {
    let mut failed = 0;
    for _ in 0..count {
        match cpu.get() {
            Some(block) => failed += u64::from(!cpu.put(block)),
            None => failed += 1,
        }
    }
    failed
}

/// What work returned, and how many nanoseconds it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed().as_nanos() as u64)
}

fn bulk<S: Shared>(shared: &S, plan: Plan, at: usize, gate: &Gate) -> Result<Tally, String> {
    let mut cpu = shared.on(at, plan.order)?;
    let mut held = vec![NONE; plan.blocks()];
    let mut tally = Tally::default();
    let passes = plan.calls / 2 / held.len().max(1) + 1;
    // The first makes the allocators' pages present.
    for pass in 0..=passes {
        gate.wait();
        let (failed_get, get) = timed(|| take(&mut cpu, &mut held));
        gate.wait();
        let (failed_put, put) = timed(|| give(&mut cpu, &held));
        tally.failed += failed_get + failed_put;
        if pass > 0 {
            tally.add(0, get, held.len());
            tally.add(1, put, held.len());
        }
    }
    Ok(tally)
}

fn repeat<S: Shared>(shared: &S, plan: Plan, at: usize, gate: &Gate) -> Result<Tally, String> {
    let mut cpu = shared.on(at, plan.order)?;
    let mut tally = Tally { failed: pairs(&mut cpu, plan.calls / 16), ..Tally::default() };
    gate.wait();
    let count = plan.calls / 2;
    let (failed, nanos) = timed(|| pairs(&mut cpu, count));
    tally.failed += failed;
    tally.add(0, nanos, count);
    Ok(tally)
}

/// Takes all of the memory and gives a random half of it back: the other half, in random order.
pub(crate) fn random_half<S: Shared>(shared: &S, plan: Plan) -> Result<Vec<u64>, String> {
    let mut cpu = shared.on(0, plan.order)?;
    let all = (plan.frames >> plan.order) as usize;
    let mut blocks: Vec<u64> = (0..all).map_while(|_| cpu.get()).collect();
    if blocks.len() < all {
        return Err(format!("of {all} blocks {} were available", blocks.len()));
    }
    Random::new(1).shuffle(&mut blocks);
    let back = blocks.split_off(plan.blocks() * plan.threads);
    match give(&mut cpu, &back) {
        0 => Ok(blocks),
        failed => Err(format!("{failed} blocks were refused")),
    }
}

/// Exchanges what a thread holds, random ones first, and gives all of it back.
fn exchanges<S: Shared>(
    shared: &S,
    plan: Plan,
    at: usize,
    gate: &Gate,
    mut held: Vec<u64>,
    failed: u64,
) -> Result<Tally, String> {
    let mut cpu = shared.on(at, plan.order)?;
    let mut tally = Tally { failed, ..Tally::default() };
    let mut random = Random::new(at as u64 + 1);
    let count = held.len().min(plan.calls / 2);
    let passes = plan.calls / 2 / count.max(1);
    let warm = passes.div_ceil(8);
    for pass in 0..warm + passes {
        random.shuffle(&mut held);
        gate.wait();
        let (failed, nanos) = timed(|| exchange(&mut cpu, &mut held[..count]));
        tally.failed += failed;
        if pass >= warm {
            tally.add(0, nanos, count);
        }
    }
    gate.wait();
    tally.failed += give(&mut cpu, &held);
    Ok(tally)
}

/// Blocks of a batch, and batches, that two threads pass on.
pub(crate) fn batches(plan: Plan) -> (usize, usize) {
    let pairs = (plan.threads as u64 / 2).max(1);
    let batch = ((plan.frames / 16 / pairs) >> plan.order).clamp(1, BATCH) as usize;
    (batch, plan.calls.div_ceil(batch))
}

fn cross_alone<S: Shared>(shared: &S, plan: Plan) -> Result<Tally, String> {
    let (mut taker, mut giver) = (shared.on(0, plan.order)?, shared.on(1, plan.order)?);
    let (batch, count) = batches(plan);
    let mut blocks = vec![NONE; batch];
    let mut tally = Tally::default();
    let warm = count.div_ceil(8);
    for turn in 0..warm + count {
        let (failed_get, get) = timed(|| take(&mut taker, &mut blocks));
        let (failed_put, put) = timed(|| give(&mut giver, &blocks));
        tally.failed += failed_get + failed_put;
        if turn >= warm {
            tally.add(0, get, batch);
            tally.add(1, put, batch);
        }
    }
    Ok(tally)
}

/// The way of full batches to who gives back, and of empty ones to who takes.
struct Queue {
    full: (SyncSender<Vec<u64>>, Mutex<Receiver<Vec<u64>>>),
    empty: (SyncSender<Vec<u64>>, Mutex<Receiver<Vec<u64>>>),
}

impl Queue {
    fn new() -> Self {
        let way = || {
            let (sender, receiver) = sync_channel(QUEUE);
            (sender, Mutex::new(receiver))
        };
        Self { full: way(), empty: way() }
    }
}

/// Takes, if the thread's number is even, or gives back. What waiting at the queue takes is not
/// counted.
fn cross<S: Shared>(
    shared: &S,
    plan: Plan,
    at: usize,
    gate: &Gate,
    queue: &Queue,
) -> Result<Tally, String> {
    let mut cpu = shared.on(at, plan.order)?;
    let (batch, count) = batches(plan);
    let warm = count.div_ceil(8);
    let mut tally = Tally::default();
    let takes = at.is_multiple_of(2);
    let (from, to) = if takes { (&queue.empty, &queue.full) } else { (&queue.full, &queue.empty) };
    let receiver = from.1.lock().unwrap_or_else(|error| error.into_inner());
    gate.wait();
    if !takes {
        for _ in 0..QUEUE {
            to.0.send(vec![NONE; batch]).map_err(|error| error.to_string())?;
        }
    }
    for turn in 0..warm + count {
        // No sleep: what follows a wake would be timed.
        let mut blocks = threads::until(|| receiver.try_recv().ok());
        let (failed, nanos) = if takes {
            timed(|| take(&mut cpu, &mut blocks))
        } else {
            timed(|| give(&mut cpu, &blocks))
        };
        tally.failed += failed;
        if turn >= warm {
            tally.add(usize::from(!takes), nanos, batch);
        }
        // The last ones find room, as no more than these are under way.
        to.0.send(blocks).map_err(|error| error.to_string())?;
    }
    Ok(tally)
}

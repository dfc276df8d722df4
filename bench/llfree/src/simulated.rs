//! Patterns of many CPUs in one thread, which says in its trace of memory accesses whose call it is in.
//!
//! [`many`](crate::many) runs this under valgrind, which writes the trace, and prices the accesses. A store to a word
//! of [`MARKS`] is a word of the trace.

use std::cell::Cell;
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use lock_api::{GuardSend, RawMutex};

use crate::contender::{Contender, Cpu, Shared};
use crate::many::{CPUS_MOST, Mark};
use crate::patterns::{NONE, Pattern, Plan, QUEUE, batches, random_half};
use crate::random::Random;
use crate::setup::SpinLock;

/// Words to which a store is a [`Mark`], by its number.
static MARKS: [AtomicU64; Mark::COUNT] = [const { AtomicU64::new(0) }; Mark::COUNT];

fn mark(mark: Mark) {
    MARKS[mark.number()].store(1, Ordering::Relaxed);
}

/// A lock that tells of itself in the trace.
pub(crate) struct MarkedLock(SpinLock);

// SAFETY: it is a `SpinLock`, and every call is one of that.
unsafe impl RawMutex for MarkedLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the trait has it so")]
    const INIT: Self = Self(SpinLock::INIT);
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        mark(Mark::Lock);
        self.0.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        mark(Mark::Lock);
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        mark(Mark::Unlock);
        // SAFETY: who calls this holds the lock, as it has to for that one.
        unsafe { self.0.unlock() }
    }
}

/// Blocks that a CPU holds: no more than it makes calls.
fn blocks(plan: Plan) -> usize {
    plan.blocks().min(plan.calls)
}

/// CPUs in turn.
struct Simulation<C> {
    cpus: Vec<C>,
    random: Random,
    failed: Cell<u64>,
}

impl<C: Cpu> Simulation<C> {
    /// Makes a call, or some, as one CPU, in a part of the pattern; no part if it is not counted.
    fn call<T>(&mut self, cpu: usize, part: Option<usize>, work: impl FnOnce(&mut C) -> T) -> T {
        mark(Mark::Call { cpu, part });
        let result = work(&mut self.cpus[cpu]);
        mark(Mark::Idle);
        result
    }

    /// All CPUs, in an order that is another each time.
    fn turns(&mut self) -> Vec<usize> {
        let mut turns: Vec<usize> = (0..self.cpus.len()).collect();
        self.random.shuffle(&mut turns);
        turns
    }

    fn get(&mut self, cpu: usize, part: Option<usize>) -> u64 {
        let block = self.call(cpu, part, |cpu| cpu.get());
        self.failed.set(self.failed.get() + u64::from(block.is_none()));
        block.unwrap_or(NONE)
    }

    fn put(&mut self, cpu: usize, part: Option<usize>, block: u64) {
        if block != NONE && !self.call(cpu, part, |cpu| cpu.put(block)) {
            self.failed.set(self.failed.get() + 1);
        }
    }

    /// Each CPU takes so many blocks, in turn.
    fn take_all(&mut self, count: usize, part: Option<usize>) -> Vec<Vec<u64>> {
        let mut held = vec![Vec::with_capacity(count); self.cpus.len()];
        for _ in 0..count {
            for cpu in self.turns() {
                let block = self.get(cpu, part);
                held[cpu].push(block);
            }
        }
        held
    }

    /// Each CPU gives its blocks back in the order taken, in turn.
    fn give_all(&mut self, held: &[Vec<u64>], part: Option<usize>) {
        let count = held.iter().map(Vec::len).max().unwrap_or_default();
        for at in 0..count {
            for cpu in self.turns() {
                if let Some(&block) = held[cpu].get(at) {
                    self.put(cpu, part, block);
                }
            }
        }
    }

    fn bulk(&mut self, plan: Plan) {
        let blocks = blocks(plan);
        for pass in 0..=plan.calls.div_ceil(blocks) {
            let [get, put] = if pass == 0 { [None; 2] } else { [Some(0), Some(1)] };
            let held = self.take_all(blocks, get);
            self.give_all(&held, put);
        }
    }

    fn repeat(&mut self, plan: Plan) {
        for call in 0..plan.calls + plan.calls / 8 {
            let part = (call >= plan.calls / 8).then_some(0);
            for cpu in self.turns() {
                let done =
                    self.call(cpu, part, |cpu| cpu.get().is_some_and(|block| cpu.put(block)));
                self.failed.set(self.failed.get() + u64::from(!done));
            }
        }
    }

    /// Each CPU gives a random one of its blocks back and takes another.
    fn exchanges(&mut self, plan: Plan, mut held: Vec<Vec<u64>>) {
        for call in 0..plan.calls + plan.calls / 8 {
            let part = (call >= plan.calls / 8).then_some(0);
            for cpu in self.turns() {
                let at = self.random.below(held[cpu].len() as u64) as usize;
                let block = held[cpu][at];
                let taken = self.call(cpu, part, |cpu| {
                    (block == NONE || cpu.put(block)).then(|| cpu.get()).flatten()
                });
                self.failed.set(self.failed.get() + u64::from(taken.is_none()));
                held[cpu][at] = taken.unwrap_or(NONE);
            }
        }
        self.give_all(&held, None);
    }

    /// CPUs in pairs: one takes, the other gives back what has come in batches.
    fn cross(&mut self, plan: Plan) {
        let (batch, count) = batches(plan);
        let (warm, pairs) = (count.div_ceil(8), self.cpus.len() / 2);
        // Of each pair: batches that wait, the one that is filled, the one that is emptied, and batches taken and given.
        let mut queues = vec![(Vec::<Vec<u64>>::new(), Vec::new(), Vec::new(), 0, 0); pairs];
        loop {
            let mut idle = true;
            for cpu in self.turns() {
                let (waiting, filled, emptied, taken, given) = &mut queues[cpu / 2];
                if cpu % 2 == 0 && *taken < warm + count && waiting.len() < QUEUE {
                    let part = (*taken >= warm).then_some(0);
                    filled.push(0);
                    let full = filled.len() == batch;
                    let block = self.get(cpu, part);
                    let (waiting, filled, _, taken, _) = &mut queues[cpu / 2];
                    if let Some(place) = filled.last_mut() {
                        *place = block;
                    }
                    if full {
                        waiting.push(std::mem::take(filled));
                        *taken += 1;
                    }
                    idle = false;
                } else if cpu % 2 == 1 {
                    if emptied.is_empty() && !waiting.is_empty() {
                        *emptied = waiting.remove(0);
                        emptied.reverse();
                        *given += 1;
                    }
                    let Some(block) = emptied.pop() else { continue };
                    let part = (*given > warm).then_some(1);
                    self.put(cpu, part, block);
                    idle = false;
                }
            }
            if idle {
                return;
            }
        }
    }
}

/// Runs a pattern whose calls are marked; says before, where the trace goes, where the marks and the stack are.
pub(crate) fn run<C: Contender>(pattern: Pattern, plan: Plan, seed: u64) -> Result<u64, String> {
    assert!(plan.threads <= CPUS_MOST);
    let here = 0_u64;
    let stack = std::ptr::from_ref(black_box(&here)).addr();
    // In one piece, as valgrind's lines come in between.
    let places = format!("marks {} stack {stack}\n", MARKS.as_ptr().addr());
    std::io::stderr().write_all(places.as_bytes()).map_err(|error| error.to_string())?;
    C::with(plan.frames, plan.cpus(), |shared| {
        let cpus = (0..plan.threads).map(|cpu| shared.on(cpu, plan.order));
        let mut simulation = Simulation {
            cpus: cpus.collect::<Result<Vec<_>, _>>()?,
            random: Random::new(seed),
            failed: Cell::new(0),
        };
        match pattern {
            Pattern::Bulk => simulation.bulk(plan),
            Pattern::Repeat => simulation.repeat(plan),
            Pattern::Random => {
                let held = simulation.take_all(blocks(plan), None);
                simulation.exchanges(plan, held);
            }
            Pattern::Aged => {
                let used = random_half(shared, plan)?;
                let held = used.chunks(used.len() / plan.threads).map(<[u64]>::to_vec).collect();
                simulation.exchanges(plan, held);
            }
            Pattern::Cross => simulation.cross(plan),
        }
        Ok(simulation.failed.get())
    })
}

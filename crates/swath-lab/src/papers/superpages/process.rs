//! Programs as streams of what they do to memory: mappings, forks, accesses.
//!
//! A program is an iterator of [`Step`]s. It says what a process asks of the
//! system (map these pages, fork, exit) and what its instructions load and
//! store, but nothing of frames, tables or time: those are the answer of
//! whatever runs it.
//!
//! The programs are those of [`benchmark`](crate::papers::superpages::benchmark), and any recorded
//! one ([`replay`]).

use std::collections::VecDeque;

use swath_arch::VirtAddr;

use swath_trace::access::{
    AccessKind, MemoryAccess, Sampling, TraceError, TraceEvent, TraceItem, TraceItems, TraceReader,
};

/// One thing that a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The process; the first is 0, the others are named by [`Action::Fork`].
    pub process: u32,
    /// Its action.
    pub action: Action,
}

/// An action of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A load, a store or a fetch.
    Access {
        /// Address of the first byte.
        addr: VirtAddr,
        /// Length in bytes, 1 or more.
        len_bytes: u16,
        /// The kind of access.
        kind: AccessKind,
        /// The address was loaded by the process's access before: this one
        /// cannot begin until that one's data are there.
        dependent: bool,
        /// Cycles of the process's own work before the access.
        compute_cycles: u32,
    },
    /// Changes the address space. Never [`TraceEvent::Fork`], which is
    /// [`Action::Fork`].
    Memory(TraceEvent),
    /// A child starts with a copy of this process's address space: private
    /// mappings are shared until one of the two writes.
    Fork {
        /// The child, whose steps may follow.
        child: u32,
    },
    /// A thread starts in this process's address space.
    Thread {
        /// The thread, whose steps may follow, until it exits before its process.
        child: u32,
    },
    /// The process ends, and all that it has mapped is given back; or the thread ends.
    Exit,
    /// Here begins what the benchmark measures, which stands for `weight` times as much.
    Begin {
        /// 1 if all is measured.
        weight: u64,
    },
    /// Here it ends.
    End,
}

impl Action {
    /// Here begins what stands for itself.
    pub const BEGIN: Self = Self::Begin { weight: 1 };
}

/// A recorded program as process 0: its accesses, one after the other, with
/// `access_cycles` cycles of work before each, and its events. A recording
/// does not say which addresses depend on which loads. Its children are forked
/// and exit at once, since what they did is not recorded.
///
/// What is measured ([`Action::Begin`] to [`Action::End`]) is each burst of a
/// sampled recording but for its first quarter, in which caches and TLBs warm up, and all of a
/// whole one. A burst stands for its period. [`TraceEvent::Skip`] stands where accesses were left out. Memory: the recording's buffers.
pub fn replay(
    trace: TraceReader,
    access_cycles: u32,
) -> impl Iterator<Item = Result<Step, TraceError>> {
    let sampling = trace.header().and_then(|header| header.sampling);
    Replay {
        items: trace.items(),
        sampling,
        access_cycles,
        position: 0,
        measuring: false,
        weight: sampling.map_or(1, Sampling::weight),
        child: 0,
        ready: VecDeque::with_capacity(4),
        ended: false,
    }
}

/// Recorded programs one after the other, as children of process 0, which does nothing else: a
/// build. Each is replayed as [`replay`] does; files with one number are one file in all of them.
pub fn replay_in_turn(
    traces: impl IntoIterator<Item = TraceReader>,
    access_cycles: u32,
) -> impl Iterator<Item = Result<Step, TraceError>> {
    // The children of each have the numbers after its own.
    const APART: u32 = 1 << 16;
    let programs = traces.into_iter().zip(1..).flat_map(move |(trace, nth)| {
        let own = nth * APART;
        let start = Step { process: 0, action: Action::Fork { child: own } };
        let steps = replay(trace, access_cycles).map(move |step| {
            let Step { process, action } = step?;
            let action = match action {
                Action::Fork { child } => Action::Fork { child: own + child },
                action => action,
            };
            Ok(Step { process: own + process, action })
        });
        std::iter::once(Ok(start)).chain(steps)
    });
    programs.chain([Ok(Step { process: 0, action: Action::Exit })])
}

/// The steps of [`replay`].
struct Replay {
    items: TraceItems,
    sampling: Option<Sampling>,
    access_cycles: u32,
    /// Accesses of the run so far, left out or not.
    position: u64,
    measuring: bool,
    /// Bursts that a period has room for; 1 if all accesses were recorded.
    weight: u64,
    /// The last child.
    child: u32,
    /// Steps that come first.
    ready: VecDeque<Step>,
    ended: bool,
}

impl Replay {
    fn measure(&mut self, on: bool) {
        if self.measuring != on {
            self.measuring = on;
            let action = if on { Action::Begin { weight: self.weight } } else { Action::End };
            self.ready.push_back(Step { process: 0, action });
        }
    }

    fn access(&mut self, access: MemoryAccess) -> Step {
        let on = self.sampling.is_none_or(|sampling| {
            let within = self.position % sampling.period_accesses;
            (sampling.burst_accesses / 4..sampling.burst_accesses).contains(&within)
        });
        self.measure(on);
        self.position = self.position.saturating_add(1);
        let MemoryAccess { addr, len_bytes, kind } = access;
        let (dependent, compute_cycles) = (false, self.access_cycles);
        let action = Action::Access { addr, len_bytes, kind, dependent, compute_cycles };
        Step { process: 0, action }
    }
}

impl Iterator for Replay {
    type Item = Result<Step, TraceError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(Ok(step));
            }
            if self.ended {
                return None;
            }
            let step = match self.items.next() {
                Some(Ok(TraceItem::Access(access))) => {
                    let step = self.access(access);
                    if self.ready.is_empty() {
                        return Some(Ok(step));
                    }
                    step
                }
                Some(Ok(TraceItem::Event(TraceEvent::Fork))) => {
                    self.child = self.child.wrapping_add(1).max(1);
                    let child = self.child;
                    self.ready.push_back(Step { process: 0, action: Action::Fork { child } });
                    Step { process: child, action: Action::Exit }
                }
                Some(Ok(TraceItem::Event(event))) => {
                    if let TraceEvent::Skip { accesses } = event {
                        self.measure(false);
                        self.position = self.position.saturating_add(accesses);
                    }
                    Step { process: 0, action: Action::Memory(event) }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => {
                    self.ended = true;
                    self.measure(false);
                    Step { process: 0, action: Action::Exit }
                }
            };
            self.ready.push_back(step);
        }
    }
}

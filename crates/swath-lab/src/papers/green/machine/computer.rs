//! A machine of the green memory manager's studies: an allocator, driven by the
//! requests of a load or a recording, with a migration daemon and banks that
//! rest, looked at in intervals of simulated time.
//!
//! ```text
//!  requests --> GreenMachine ---------------------------> looks, energy
//!   (handles)     | blocks: handle <-> frames
//!                 | Machine: zonelists, watermarks, per-CPU lists, hotplug
//!                 | Daemon of each node, stepped each 100 ms with a budget
//!                 | BankPower: deep power-down while a bank rests
//! ```
//!
//! **What rests.** Adaptive-Buddy knows: the banks of POOL_OFFLINE. For the
//! others, a bank rests while it happens to be wholly free, which favours them,
//! and while hotplug has taken it offline. A bank goes down at the next second
//! and comes back with the first frame that is taken from it. Banks that cross
//! zones or have holes never rest.
//!
//! **What a failed request means.** Blocks beyond order 3 fall back to single
//! frames, as the kernel does for huge pages and page cache, if they are
//! movable; everything else has failed, is counted, and is not there to be
//! freed.

use std::cell::RefCell;

use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Layout, ZoneKind};
use swath_frame::machine::{Isolation, MachineAllocateError, MemoryUnit, UnitState};
use swath_frame::zone::bank::{AdaptiveBuddy, ArrayBuddy, BoundaryBuddy, ListBuddy, TreeBuddy};
use swath_frame::zone::linux::{ORDER_MAX, PAGEBLOCK_ORDER};
use swath_frame::{BlockRequest, Mobility, PageZone};
use swath_hw::power::{BankPower, PowerState, PowerTable};
use swath_vm::migrate::daemon;
use swath_vm::migrate::daemon::{Daemon, MigrationStep};
use swath_vm::migrate::units::NodeBanks;

use crate::host::callgrind::counted_call;
use crate::papers::green::machine::allocator::{AllocatorName, GreenZone};
use crate::papers::green::machine::blocks::{Blocks, NodeOwners, Tie};
use crate::papers::green::machine::build::{Linux, Zones, build};
use crate::papers::green::machine::config::{GreenConfig, GreenError, Interleaved};
use crate::papers::green::machine::start::Begin;
use crate::papers::green::machine::view::{MachineCounts, MachineView};
use crate::papers::green::pages::requests::{ReplayOp, TimedOp};
use crate::papers::green::pages::runs::{Clock, OpRun, Requests, Stretch};
use swath_trace::pages::ZoneMax;

/// Simulated microseconds from one step of the daemons to the next.
pub const TICK_US: u64 = 100_000;

/// Simulated microseconds from one look at the banks to the next.
pub const LOOK_US: u64 = 1_000_000;

/// Blocks above this order are requested only if there is one at once.
const COSTLY_ORDER: Order = Order::known(3);

/// Requests of a run that are served at once.
const AT_ONCE: usize = 256;

/// Runs whose handles are fetched together.
const RUNS_AHEAD: usize = 16;

/// A request, and what ties its blocks to their frames.
#[derive(Clone, Copy)]
struct Asked {
    block: BlockRequest,
    tie: Tie,
}

impl Asked {
    const fn cpu(&self) -> u16 {
        self.block.cpu as u16
    }
}

/// True if a run goes on after a look.
pub type GoOn = bool;

/// Runs a machine from time 0 until `until_us`, with the requests that come
/// before, and calls `observe` each `every_us` and at the end.
///
/// # Errors
/// A [`GreenError`].
pub fn drive(
    config: GreenConfig,
    requests: &mut dyn Requests,
    until_us: u64,
    every_us: u64,
    observe: &mut dyn FnMut(&dyn MachineView) -> GoOn,
) -> Result<(), GreenError> {
    drive_from(None, config, requests, until_us, every_us, observe)
}

/// As [`drive`], for a machine that begins with frames in use; then `observe` is called at time 0,
/// too.
///
/// # Errors
/// A [`GreenError`].
pub fn drive_from(
    begin: Option<Begin<'_>>,
    config: GreenConfig,
    requests: &mut dyn Requests,
    until_us: u64,
    every_us: u64,
    observe: &mut dyn FnMut(&dyn MachineView) -> GoOn,
) -> Result<(), GreenError> {
    use AllocatorName as Name;
    let course = Course { begin, config, requests, until_us, every_us, observe };
    match config.allocator {
        Name::Linux | Name::LinuxMovable | Name::LinuxDefrag | Name::LinuxGuaranteed => {
            course.run::<Linux>()
        }
        Name::Pbs => course.run::<PageZone<Vec<u64>>>(),
        Name::BankArray => course.run::<ArrayBuddy<_>>(),
        Name::BankList => course.run::<ListBuddy<_>>(),
        Name::Contiguitas => course.run::<BoundaryBuddy<_>>(),
        Name::Llfree => course.run::<TreeBuddy<_>>(),
        Name::Adaptive | Name::AdaptivePacked => course.run::<AdaptiveBuddy<_>>(),
    }
}

/// What a machine of any allocator goes through.
struct Course<'a> {
    begin: Option<Begin<'a>>,
    config: GreenConfig,
    requests: &'a mut dyn Requests,
    until_us: u64,
    every_us: u64,
    observe: &'a mut dyn FnMut(&dyn MachineView) -> GoOn,
}

impl Course<'_> {
    fn run<Z: GreenZone>(self) -> Result<(), GreenError> {
        let mut machine = GreenMachine::<Z>::new(self.config, self.begin)?;
        if self.begin.is_some() && !(self.observe)(&machine) {
            return Ok(());
        }
        machine.drive(self.requests, self.until_us, self.every_us, self.observe)
    }
}

/// The machine. Invariants: `blocks` and the machine agree on every frame in
/// use; a bank that is `down` has no frame in use.
pub(crate) struct GreenMachine<Z> {
    pub(crate) config: GreenConfig,
    pub(crate) machine: RefCell<Zones<Z>>,
    pub(crate) layout: Layout,
    pub(crate) blocks: Blocks,
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) power: BankPower,
    pub(crate) down: Vec<bool>,
    pub(crate) total_frames: u64,
    pub(crate) counts: MachineCounts,
    /// Banks opened and requests fallen back before the start, as allocators count them.
    pub(crate) before: (u64, u64),
    pub(crate) emptied: Vec<u64>,
    pub(crate) clock: Clock,
    /// Blocks on their way between handles and machine.
    buffer: [Pfn; AT_ONCE],
}

impl<Z: GreenZone> GreenMachine<Z> {
    fn new(config: GreenConfig, begin: Option<Begin<'_>>) -> Result<Self, GreenError> {
        let (mut machine, span) = build::<Z>(&config, begin.map(|begin| begin.start))?;
        if config.allocator == AllocatorName::LinuxDefrag {
            machine.set_defrag_mode();
        }
        let layout = machine.layout().clone();
        let total_frames = layout.zones().iter().map(|zone| zone.present_frames).sum();
        let first = layout.bank(0).unwrap_or_default().start;
        // A bank that is all hole takes no power.
        let power = BankPower::new(first, layout.bank_frames(), layout.banks(), PowerTable::PAPER);
        let down = vec![false; layout.banks()];
        let count = if config.is_guaranteed() { layout.zones().len() } else { layout.nodes() };
        let daemon = config.daemon.map(|plan| {
            Daemon::new(daemon::MigrationConfig {
                interval_ns: plan.interval_ms * 1_000_000,
                retry_ns: plan.retry_ms * 1_000_000,
                occupied_permille_max: plan.occupied_permille_max,
                settle_ns: plan.settle_ms * 1_000_000,
                // Hotplug brings a bank back when less than one is free, and
                // should not have to at once.
                reserve_frames: if Z::RESTS {
                    plan.reserve_frames
                } else {
                    plan.reserve_frames + 2 * layout.bank_frames()
                },
            })
        });
        let mut blocks = Blocks::new(span, config.is_guaranteed() || config.daemon.is_some());
        if let Some(begin) = begin {
            // In the guaranteed area nothing but files can have been movable.
            let is_guaranteed = config.is_guaranteed();
            let is_lent = |frame| {
                let zone = layout.zone_of(frame).filter(|_| is_guaranteed);
                zone.is_some_and(|zone| layout.zones()[zone].kind == ZoneKind::Movable)
            };
            begin.place(&mut blocks, &|start, order, mobility| match Tie::of(mobility) {
                Tie::Movable if order < PAGEBLOCK_ORDER && is_lent(start) => Tie::Cached,
                tie => tie,
            });
        }
        let mut green = Self {
            config,
            blocks,
            daemons: daemon.map_or_else(Vec::new, |daemon| vec![daemon; count]),
            machine: RefCell::new(machine),
            layout,
            power,
            down,
            total_frames,
            counts: MachineCounts::default(),
            before: (0, 0),
            emptied: Vec::new(),
            clock: Clock::at(0),
            buffer: [Pfn::new(0); AT_ONCE],
        };
        green.before = (green.opened(), green.fallbacks().unwrap_or(0));
        Ok(green)
    }

    /// Banks that left POOL_OFFLINE, as the allocators count them.
    pub(crate) fn opened(&self) -> u64 {
        self.machine.borrow().zones().iter().map(Z::opened).sum()
    }

    /// Requests that fell back, as the allocators count them.
    pub(crate) fn fallbacks(&self) -> Option<u64> {
        self.machine.borrow().zones().iter().map(Z::fallbacks).sum()
    }

    pub(crate) fn fault(&self, what: impl std::fmt::Display) -> GreenError {
        GreenError::Machine { time_us: self.clock.now_us(), what: what.to_string() }
    }

    fn drive(
        &mut self,
        requests: &mut dyn Requests,
        until_us: u64,
        every_us: u64,
        observe: &mut dyn FnMut(&dyn MachineView) -> GoOn,
    ) -> Result<(), GreenError> {
        let mut next_look_us = every_us.max(1);
        let mut pass = |green: &mut Self, to_us: u64| -> Result<GoOn, GreenError> {
            let mut now_us = green.clock.now_us();
            if to_us < now_us {
                return Err(GreenError::Past { time_us: to_us, now_us });
            }
            while (now_us / TICK_US + 1) * TICK_US <= to_us {
                now_us = (now_us / TICK_US + 1) * TICK_US;
                green.clock = Clock::at(now_us);
                green.tick()?;
                if now_us >= next_look_us {
                    next_look_us = now_us + every_us.max(1);
                    if !observe(green) {
                        return Ok(false);
                    }
                }
            }
            green.clock = Clock::at(to_us);
            Ok(true)
        };
        'requests: while let Some(stretch) = requests.next_stretch() {
            // The machine stands still up to the next tick.
            let still_until_us = (stretch.start_us / TICK_US + 1) * TICK_US;
            let end_us = stretch.start_us + u64::from(stretch.length_us);
            if end_us <= still_until_us.min(until_us) && stretch.start_us < until_us {
                if !pass(self, stretch.start_us)? {
                    return Ok(());
                }
                self.serve(&stretch)?;
                continue;
            }
            for TimedOp { time_us, op } in stretch.ops() {
                if time_us >= until_us {
                    break 'requests;
                }
                if !pass(self, time_us)? {
                    return Ok(());
                }
                let runs = &[OpRun { first: op, count: 1 }];
                let stretch =
                    Stretch { runs, count: 1, start_us: time_us, length_us: 0, ids_from: 0 };
                self.serve(&stretch)?;
            }
        }
        if pass(self, until_us)? {
            observe(self);
        }
        Ok(())
    }

    /// Serves requests between which nothing else happens.
    fn serve(&mut self, stretch: &Stretch<'_>) -> Result<(), GreenError> {
        self.clock = stretch.clock();
        let mut rest = stretch.runs;
        while let Some((run, others)) = rest.split_first() {
            let first = run.first.renamed(|id| id + stretch.ids_from);
            if let ReplayOp::Alloc { id, order, mobility, zone_max, cached, cpu } = first {
                let asked = self.asked(order, mobility, (zone_max, cached), cpu);
                self.allocate_run(id, run.count, asked)?;
                rest = others;
            } else {
                let is_free = |run: &&OpRun| matches!(run.first, ReplayOp::Free { .. });
                let frees = rest.iter().take_while(is_free).count();
                self.free_runs(&rest[..frees], stretch.ids_from)?;
                rest = &rest[frees..];
            }
        }
        self.clock = Clock::at(stretch.time_us(stretch.count.saturating_sub(1)));
        Ok(())
    }

    fn asked(
        &self,
        order: Order,
        mobility: Mobility,
        (zone_max, cached): (ZoneMax, bool),
        cpu: u16,
    ) -> Asked {
        let cpu = cpu % self.config.cpus;
        // What is as large as the blocks of the guaranteed area is not dropped for them.
        let cached = cached && order < PAGEBLOCK_ORDER && mobility == Mobility::Movable;
        let tie = if cached { Tie::Cached } else { Tie::of(mobility) };
        let highest = match zone_max {
            ZoneMax::Dma => ZoneKind::Dma,
            ZoneMax::Dma32 => ZoneKind::Dma32,
            ZoneMax::Movable if cached || !self.config.is_guaranteed() => ZoneKind::Movable,
            ZoneMax::Normal | ZoneMax::Movable => ZoneKind::Normal,
        };
        let node = usize::from(cpu) * self.layout.nodes() / usize::from(self.config.cpus);
        let cpu = cpu.into();
        Asked { block: BlockRequest { order, mobility, highest, node, cpu, urgent: false }, tie }
    }

    /// Serves requests that are alike, with handles from `id` on.
    fn allocate_run(
        &mut self,
        mut id: u32,
        mut count: u32,
        asked: Asked,
    ) -> Result<(), GreenError> {
        while count > 0 {
            let vacant = self.blocks.count_vacant(id, count.min(AT_ONCE as u32));
            if vacant == 0 {
                return Err(GreenError::HandleInUse { time_us: self.clock.now_us(), id });
            }
            let lacking = |counts: &MachineCounts| counts.failed + counts.split;
            let before = lacking(&self.counts);
            let served = if asked.tie == Tie::Fixed {
                // Whether an unmovable block spoils a section is to be seen before the next.
                self.counts.requests += 1;
                self.allocate(id, asked)?;
                1
            } else {
                self.allocate_some(id, vacant, asked)?
            };
            if asked.block.order >= PAGEBLOCK_ORDER {
                let lacked = lacking(&self.counts) - before;
                self.counts.huge_requests += u64::from(served);
                self.counts.huge_served += u64::from(served) - lacked;
            }
            self.clock.number += served;
            id += served;
            count -= served;
        }
        Ok(())
    }

    /// Serves movable requests with vacant handles from `id` on, up to the first that the machine
    /// refuses; returns how many.
    fn allocate_some(&mut self, id: u32, count: u32, asked: Asked) -> Result<u32, GreenError> {
        let blocks = &mut self.buffer[..count as usize];
        let machine = self.machine.get_mut();
        let taken = match counted_call(|| machine.allocate_run(asked.block, blocks)) {
            Ok(()) => blocks.len(),
            Err((taken, MachineAllocateError::NoBlock { .. })) => taken,
            Err((_, error)) => return Err(self.fault(error)),
        };
        let (served, order) = (taken as u32, asked.block.order);
        self.counts.requests += u64::from(served);
        self.blocks.place(id, &blocks[..taken], order, asked.cpu(), asked.tie);
        let first = self.clock.number;
        for nth in 0..taken {
            if let Some(bank) = self.down_bank(self.buffer[nth]) {
                self.clock.number = first + nth as u32;
                self.wake_bank(bank)?;
            }
        }
        self.clock.number = first;
        if served < count {
            self.clock.number += served;
            self.counts.requests += 1;
            self.allocate_refused(id + served, asked)?;
            self.clock.number = first;
            return Ok(served + 1);
        }
        Ok(served)
    }

    /// Frees the blocks of runs of handles, to each of which `ids_from` is added.
    fn free_runs(&mut self, runs: &[OpRun], ids_from: u32) -> Result<(), GreenError> {
        // Blocks of one order that were taken on one CPU go back together.
        let (mut waiting, mut kind) = (0, None);
        for (nth, run) in runs.iter().enumerate() {
            if nth % RUNS_AHEAD == 0 {
                let ahead = &runs[nth..runs.len().min(nth + RUNS_AHEAD)];
                self.blocks.fetch(ahead.iter().map(|run| (run.first.id() + ids_from, run.count)));
            }
            let (mut id, mut left) = (run.first.id() + ids_from, run.count as usize);
            while left > 0 {
                let past = AT_ONCE.min(waiting + left);
                let blocks = &mut self.buffer[waiting..past];
                let removed = self.blocks.remove_row(id, &mut kind, blocks);
                waiting += removed;
                left -= removed;
                id += removed as u32;
                if left > 0 && waiting > 0 {
                    self.free_waiting(waiting, kind.take())?;
                    waiting = 0;
                } else if left > 0 {
                    let Some((frames, cpu)) = self.blocks.remove_parts(id) else {
                        return Err(GreenError::NoHandle { time_us: self.clock.now_us(), id });
                    };
                    self.give(&frames, Order::BASE, cpu)?;
                    self.clock.number += 1;
                    left -= 1;
                    id += 1;
                }
            }
        }
        self.free_waiting(waiting, kind)
    }

    /// Frees the first blocks of the buffer, of this order and CPU.
    fn free_waiting(&mut self, count: usize, kind: Option<(Order, u16)>) -> Result<(), GreenError> {
        let Some((order, cpu)) = kind else { return Ok(()) };
        let blocks = &self.buffer[..count];
        let machine = self.machine.get_mut();
        let given = counted_call(|| machine.free_run(blocks, order, cpu.into()));
        given.map_err(|(_, error)| self.fault(error))?;
        self.clock.number += count as u32;
        Ok(())
    }

    pub(crate) fn give(
        &mut self,
        frames: &[Pfn],
        order: Order,
        cpu: u16,
    ) -> Result<(), GreenError> {
        let machine = self.machine.get_mut();
        let given = counted_call(|| machine.free_run(frames, order, cpu.into()));
        given.map_err(|(_, error)| self.fault(error))
    }

    fn take(&mut self, request: BlockRequest) -> Result<Option<Pfn>, GreenError> {
        let machine = self.machine.get_mut();
        match counted_call(|| machine.allocate(request)) {
            Ok(start) => {
                self.wake(start)?;
                Ok(Some(start))
            }
            Err(MachineAllocateError::NoBlock { .. }) if self.online_any()? => {
                self.counts.stalled += 1;
                self.take(request)
            }
            Err(MachineAllocateError::NoBlock { .. }) => Ok(None),
            Err(error) => Err(self.fault(error)),
        }
    }

    fn allocate(&mut self, id: u32, asked: Asked) -> Result<(), GreenError> {
        match self.take(asked.block)? {
            Some(start) => {
                self.place(id, start, asked);
                Ok(())
            }
            None => self.allocate_without_block(id, asked),
        }
    }

    /// Names a block that was taken.
    fn place(&mut self, id: u32, start: Pfn, asked: Asked) {
        let order = asked.block.order;
        self.blocks.place(id, &[start], order, asked.cpu(), asked.tie);
        if asked.tie == Tie::Fixed {
            self.note_spoiled(start, order);
        }
    }

    /// Goes on with a request that the machine has just refused.
    #[cold]
    fn allocate_refused(&mut self, id: u32, asked: Asked) -> Result<(), GreenError> {
        if self.online_any()? {
            self.counts.stalled += 1;
            return self.allocate(id, asked);
        }
        self.allocate_without_block(id, asked)
    }

    /// Serves a request for which there is no block: from the guaranteed area, or by single frames.
    fn allocate_without_block(&mut self, id: u32, asked: Asked) -> Result<(), GreenError> {
        if let Some(start) = self.take_guaranteed(asked.block)? {
            self.place(id, start, asked);
            return Ok(());
        }
        self.counts.stalled += 1;
        self.allocate_parts(id, asked)
    }

    /// Serves a request for which there is no block by single frames, if the kernel would.
    fn allocate_parts(&mut self, id: u32, asked: Asked) -> Result<(), GreenError> {
        let BlockRequest { order, mobility, .. } = asked.block;
        // Longer ones than a zone's no kernel gives in parts: only a recording that was made up
        // asks for them.
        if mobility != Mobility::Movable || order <= COSTLY_ORDER || order > ORDER_MAX {
            self.counts.failed += 1;
            self.blocks.fail(id);
            return Ok(());
        }
        let mut frames = Vec::new();
        for _ in 0..order.frames() {
            match self.take(BlockRequest { order: Order::BASE, ..asked.block })? {
                Some(frame) => frames.push(frame),
                None => {
                    self.give(&frames, Order::BASE, asked.cpu())?;
                    self.counts.failed += 1;
                    self.blocks.fail(id);
                    return Ok(());
                }
            }
        }
        self.counts.split += 1;
        self.blocks.place_parts(id, frames, order, asked.cpu(), asked.tie);
        Ok(())
    }

    /// MachineCounts an unmovable block if it is its section's first beside movable ones.
    fn note_spoiled(&mut self, start: Pfn, order: Order) {
        let section = self.layout.section_of(start);
        let state = section.and_then(|section| self.machine.get_mut().section_state(section));
        let spoils = |state: UnitState| state.movable > 0 && state.unmovable == order.frames();
        self.counts.spoiled += u64::from(state.is_some_and(spoils));
    }

    /// The bank around a frame, if it is down.
    #[inline]
    fn down_bank(&self, frame: Pfn) -> Option<usize> {
        self.layout.bank_of(frame).filter(|&bank| self.down[bank])
    }

    /// A frame of this bank is in use from now on.
    #[inline]
    pub(crate) fn wake(&mut self, frame: Pfn) -> Result<(), GreenError> {
        match self.down_bank(frame) {
            Some(bank) => self.wake_bank(bank),
            None => Ok(()),
        }
    }

    #[cold]
    fn wake_bank(&mut self, bank: usize) -> Result<(), GreenError> {
        self.down[bank] = false;
        self.counts.woken += 1;
        let now_ns = self.clock.now_us() * 1000;
        let ready = self.power.set(now_ns, bank, PowerState::ActiveIdle, &mut |_| {});
        self.counts.waited_ns += ready.map_err(|error| self.fault(error))?.saturating_sub(now_ns);
        Ok(())
    }

    /// Brings a bank back that hotplug has taken offline. Returns true if there was one.
    #[cold]
    fn online_any(&mut self) -> Result<bool, GreenError> {
        self.online_in(None)
    }

    fn online_in(&mut self, node: Option<usize>) -> Result<bool, GreenError> {
        if Z::RESTS || self.daemons.is_empty() {
            return Ok(false);
        }
        let layout = &self.layout;
        let is_of = |bank: usize| {
            let start = layout.bank(bank).unwrap_or_default().start;
            let zone = layout.zone_of(start).map(|zone| layout.zones()[zone].node);
            node.is_none_or(|node| zone == Some(node))
        };
        let is_offline = |&bank: &usize| {
            let state = self.machine.borrow().bank_state(bank);
            state.is_some_and(|state| state.isolation == Isolation::Offline) && is_of(bank)
        };
        let Some(bank) = (0..layout.banks()).find(is_offline) else { return Ok(false) };
        self.machine.get_mut().online(MemoryUnit::Bank(bank)).map_err(|error| self.fault(error))?;
        self.counts.onlined += 1;
        Ok(true)
    }

    fn tick(&mut self) -> Result<(), GreenError> {
        if let Some(plan) = self.config.daemon {
            // Interleaved banks are read and written at the same time; two of them, as rows are compared.
            let ways = if self.config.interleaving == Interleaved::None { 1 } else { 2 };
            let mut budgets = vec![plan.budget_frames * ways; self.layout.nodes()];
            for nth in 0..self.daemons.len() {
                self.step_daemon(nth, &mut budgets)?;
            }
            for node in 0..self.layout.nodes() {
                if !Z::RESTS && self.free_in(node) < self.layout.bank_frames() {
                    self.online_in(Some(node))?;
                }
            }
        }
        if self.clock.now_us().is_multiple_of(LOOK_US) {
            self.let_rest()?;
        }
        Ok(())
    }

    fn free_in(&self, node: usize) -> u64 {
        let machine = self.machine.borrow();
        let zones = self.layout.zones().iter().zip(machine.zones());
        zones.filter(|(place, _)| place.node == node).map(|(_, zone)| zone.free_frames()).sum()
    }

    /// Steps the nth daemon, of a zone or of a node, by what the node's budget has left.
    fn step_daemon(&mut self, nth: usize, budgets: &mut [u64]) -> Result<(), GreenError> {
        let now_ns = self.clock.now_us() * 1000;
        let (banks, node) = match self.config.is_guaranteed() {
            true => (NodeBanks::of_zone(&self.machine, nth, 0), self.layout.zones()[nth].node),
            false => (NodeBanks::new(&self.machine, nth, 0), nth),
        };
        let Some(mut banks) = banks else { return Ok(()) };
        let mut owners = NodeOwners::new(&mut self.blocks);
        let (daemon, budget) = (&mut self.daemons[nth], &mut budgets[node]);
        let moved = daemon.statistics().moved_frames;
        let step = daemon.step(now_ns, *budget, &mut banks, &mut owners);
        *budget = budget.saturating_sub(daemon.statistics().moved_frames - moved);
        for frame in owners.targets {
            self.wake(frame)?;
        }
        if let MigrationStep::Emptied { moved_frames, .. } = step {
            self.emptied.push(moved_frames);
        }
        Ok(())
    }

    /// Powers down the banks that rest.
    fn let_rest(&mut self) -> Result<(), GreenError> {
        let now_ns = self.clock.now_us() * 1000;
        for bank in 0..self.down.len() {
            if self.down[bank] || !self.rests(bank) {
                continue;
            }
            self.down[bank] = true;
            let machine = self.machine.get_mut();
            let mut lost = 0;
            let mut lose = |frames: Extent| {
                lost += frames.iter().filter(|frame| machine.is_used(*frame) == Some(true)).count();
            };
            let set = self.power.set(now_ns, bank, PowerState::DeepPowerDown, &mut lose);
            self.counts.lost_frames += lost as u64;
            set.map_err(|error| self.fault(error))?;
        }
        Ok(())
    }
}

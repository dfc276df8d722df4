//! Masters with IOMMUs on an interconnect with a memory, in simulated time:
//! *Duong and Hur*, Fig. 9, with the figures of their Table 3 as the default.
//!
//! **Time moves from event to event**: data that arrive, a place in a queue, a
//! request at the arbiter, a master that can issue. One clock drives
//! everything, the DRAM's command clock. **Within a cycle**, what has ended
//! arrives first, then masters issue, then the arbiter hands the memory a
//! request, then the memory issues commands; so an arrival lets its master issue in
//! the same cycle, and with an interconnect of no cycles the memory sees the request in that
//! cycle, too.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::iter;

use swath_arch::{Attributes, Format, PhysAddr, PhysMemory, VirtAddr};

use crate::clock::Cycle;
use crate::dram::memory::Dram;
use crate::dram::request::Completion;
use crate::system::config::{Pace, SystemConfig, SystemConfigError};
use crate::system::error::{SystemError, SystemErrorCause};
use crate::system::event::SystemEvent;
use crate::system::interconnect::{Granted, Id, Interconnect, MASTERS_MAX, PortKind};
use crate::system::iommu::{DESCRIPTOR_CYCLES_MAX, DESCRIPTOR_LINES_MAX, Iommu, Lookup, WALKS_MAX};
use crate::system::master::{Blocked, InFlight, Master, OUTSTANDING_MAX};
use crate::system::paging::Paging;
use crate::system::shared::Lines;
use crate::system::stats::{MasterStats, SystemStats};
use crate::system::transaction::{TRANSACTION_BYTES, Transaction};
use crate::translate::permit::{AccessKind, Denied, Operation, permit};
use crate::translate::translator::Translate;

/// A system before its run.
///
/// ```
/// use swath_arch::{Coalescing, Format, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr};
/// use swath_hw::{Geometry, Mmu, System, SystemConfig, Transaction, WalkOrder};
///
/// // One ARMv7 page table, at 0x4000, that maps page 0x10 to frame 0x80.
/// let mut words = vec![0; 0x8000 / 8];
/// let memory = SliceMemory::new(Pfn::new(0), &mut words);
/// memory.write_u32(PhysAddr::new(0), 0x4000 | 0x1)?;
/// memory.write_u32(PhysAddr::new(0x4000 + 4 * 0x10), 0x80_000 | 0x83e)?;
///
/// let regime =
///     Regime { format: Format::ArmV7, root: PhysAddr::new(0), coalescing: Coalescing::None };
/// let mmu = Mmu::new(regime, Geometry::default(), WalkOrder::default())?;
/// let read = |n: u64| Transaction { addr: VirtAddr::new(0x10_000 + 64 * n), write: false };
/// let page = (0..64).map(read);
/// let stats = System::new(&SystemConfig::paper(), [(mmu, page)])?.run(&memory)?;
/// // Two reads of descriptors, one after the other, then 64 of data.
/// assert_eq!(stats.dram.total().reads, 2 + 64);
/// assert_eq!(stats.masters[0].reads, 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct System<T: Translate, I> {
    now: Cycle,
    dram: Dram,
    /// The memory's next event; what is before it changes nothing there.
    next_memory: Cycle,
    interconnect: Interconnect,
    masters: Vec<Master<T, I>>,
    lines: Lines,
    /// The arrivals at the masters, by cycle and then by the order in which they were sent.
    arrivals: VecDeque<(Cycle, Id)>,
}

impl<T: Translate, I: Iterator<Item = Transaction>> System<T, I> {
    /// Creates a system of the masters given, each with what translates for it and its
    /// transactions in order, which are taken one at a time.
    /// O(masters (outstanding_max + descriptor_lines) + shared bytes / 512), and the memory's.
    ///
    /// # Errors
    /// [`SystemConfigError`].
    pub fn new(
        config: &SystemConfig,
        masters: impl IntoIterator<Item = (T, I)>,
    ) -> Result<Self, SystemConfigError> {
        let masters: Vec<(T, I)> = masters.into_iter().take(MASTERS_MAX + 1).collect();
        let within = |field, value: u64, min: u64, max: u64| {
            let fits = (min..=max).contains(&value);
            if fits { Ok(()) } else { Err(SystemConfigError::Count { field, value, min, max }) }
        };
        let in_range = |field, value, max| within(field, value, 1, max);
        in_range("masters", masters.len() as u64, MASTERS_MAX as u64)?;
        in_range("outstanding_max", config.outstanding_max.into(), OUTSTANDING_MAX.into())?;
        in_range("walks_max", config.iommu.walks_max.into(), WALKS_MAX.into())?;
        let (lines, cycles) = (config.iommu.descriptor_lines, config.iommu.descriptor_cycles);
        within("descriptor_lines", lines.into(), 0, DESCRIPTOR_LINES_MAX.into())?;
        in_range("descriptor_cycles", cycles.into(), DESCRIPTOR_CYCLES_MAX.into())?;
        for Pace { transactions, .. } in config.paces.iter().flatten() {
            in_range("transactions of a pace", *transactions, u64::MAX)?;
        }
        let beat_bytes = config.interconnect.beat_bytes;
        if !beat_bytes.is_power_of_two() || !(8..=64).contains(&beat_bytes) {
            return Err(SystemConfigError::Beat { beat_bytes });
        }
        let mut dram = Dram::new(&config.dram)?;
        if config.record_commands {
            dram.record_commands();
        }
        let burst_bytes = config.dram.part.burst_bytes();
        if u64::from(burst_bytes) != TRANSACTION_BYTES {
            return Err(SystemConfigError::Burst { burst_bytes });
        }
        let lines = Lines::new(&config.shared).map_err(SystemConfigError::Shared)?;
        let interconnect = Interconnect::new(&config.interconnect, masters.len());
        let slot = InFlight {
            transaction: Transaction { addr: VirtAddr::new(0), write: false },
            number: 0,
            issued: 0,
        };
        let slots = config.outstanding_max << u32::from(config.outstanding_each);
        let paces = config.paces.iter().copied().chain(iter::repeat(None));
        let masters = masters.into_iter().zip(paces).map(|((mmu, mut stream), pace)| Master {
            next: stream.next(),
            stream,
            number: 0,
            blocked: Blocked::Not(0),
            idle: 0,
            pace,
            outstanding_max: config.outstanding_max,
            outstanding_each: config.outstanding_each,
            in_flight: [0; 2],
            slots: vec![slot; slots as usize].into(),
            free: (0..slots as u16).rev().collect(),
            iommu: Iommu::new(&config.iommu, mmu),
            stats: MasterStats::default(),
        });
        Ok(Self {
            now: 0,
            dram,
            next_memory: Cycle::MAX,
            interconnect,
            masters: masters.collect(),
            lines,
            arrivals: VecDeque::new(),
        })
    }

    /// Runs until every transaction of every master has completed. `memory` holds
    /// the tables' bytes; a descriptor is read from it when it arrives at the
    /// walker.
    ///
    /// For each event O(masters + channels), for each transaction those of the TLB and the
    /// memory; memory does not grow with the transactions.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn run<M: PhysMemory + ?Sized>(self, memory: &M) -> Result<SystemStats, SystemError> {
        self.run_observed(memory, |_| {})
    }

    /// Runs as [`run`](Self::run) does, showing each event to `observe`, in order of time.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn run_observed<M: PhysMemory + ?Sized>(
        self,
        memory: &M,
        observe: impl FnMut(SystemEvent),
    ) -> Result<SystemStats, SystemError> {
        self.run_on(memory, None::<Paging<fn(VirtAddr) -> bool>>, observe)
    }

    /// Runs as [`run_observed`](Self::run_observed) does, with pages that come when a master touches
    /// them: a walk that finds none stands still until `paging` has brought it.
    ///
    /// # Errors
    /// [`SystemError`], among them the fault of a page that is not brought.
    pub fn run_paged<M: PhysMemory + ?Sized, F: FnMut(VirtAddr) -> bool>(
        self,
        memory: &M,
        paging: Paging<F>,
        observe: impl FnMut(SystemEvent),
    ) -> Result<SystemStats, SystemError> {
        self.run_on(memory, Some(paging), observe)
    }

    fn run_on<M: PhysMemory + ?Sized, F: FnMut(VirtAddr) -> bool>(
        mut self,
        memory: &M,
        mut paging: Option<Paging<F>>,
        mut observe: impl FnMut(SystemEvent),
    ) -> Result<SystemStats, SystemError> {
        let mut done = None;
        let mut next_issue = 0;
        loop {
            let now = self.now;
            if done.is_some() {
                while let Some(Completion { id, write, .. }) = done {
                    let id = Id::unpack(id);
                    if !write {
                        let bytes = match id.walk {
                            true => self.masters[usize::from(id.master)].iommu.read_bytes(id.slot),
                            false => TRANSACTION_BYTES,
                        };
                        self.interconnect.read_back(id, bytes);
                    } else if let Some(cycle) = self.interconnect.written(now) {
                        self.arrive(cycle, id);
                    }
                    done = self.dram.take_done(now);
                }
                self.next_memory = self.dram.next_event().unwrap_or(Cycle::MAX);
            }
            while let Some((cycle, id)) = self.interconnect.begin_transfer(now) {
                self.arrive(cycle, id);
            }
            let mut may_issue = next_issue <= now;
            while let Some(&(cycle, id)) = self.arrivals.front()
                && cycle <= now
            {
                self.arrivals.pop_front();
                may_issue = true;
                if id.walk {
                    self.walk_arrived(id, memory, &mut paging)?;
                } else {
                    self.completed(id, &mut observe);
                }
            }
            if may_issue {
                next_issue = Cycle::MAX;
                for index in 0..self.masters.len() {
                    if self.masters[index].blocked == Blocked::Not(now) {
                        self.issue(index, &mut observe)?;
                    }
                    if let Blocked::Not(cycle) = self.masters[index].blocked {
                        next_issue = next_issue.min(cycle);
                    }
                }
            }
            self.arbitrate(&mut observe)?;
            let arrival = self.arrivals.front().map_or(Cycle::MAX, |&(cycle, _)| cycle);
            let next = next_issue
                .min(arrival)
                .min(self.interconnect.next_request())
                .min(self.interconnect.next_transfer());
            // The memory goes on by itself until another part has something to do.
            loop {
                self.now = next.min(self.next_memory);
                if self.now == Cycle::MAX {
                    self.now = now;
                    return self.end();
                }
                if self.now < self.next_memory {
                    break;
                }
                self.dram.advance(self.now);
                done = self.dram.take_done(self.now);
                if done.is_none() {
                    self.next_memory = self.dram.next_event().unwrap_or(Cycle::MAX);
                }
                if done.is_some() || self.now == next || self.interconnect.has_turn(&self.dram) {
                    break;
                }
            }
        }
    }

    /// Schedules an arrival at a master in `cycle`. O(arrivals that are later).
    #[inline]
    fn arrive(&mut self, cycle: Cycle, id: Id) {
        let overtakes = self.arrivals.back().is_some_and(|&(last, _)| cycle < last);
        self.arrivals.push_back((cycle, id));
        if overtakes {
            let mut at = self.arrivals.len() - 1;
            while at > 0 && self.arrivals[at - 1].0 > cycle {
                self.arrivals.swap(at - 1, at);
                at -= 1;
            }
        }
    }

    /// Lets a master issue its next transaction, or notes what it waits for.
    fn issue(
        &mut self,
        index: usize,
        observe: &mut impl FnMut(SystemEvent),
    ) -> Result<(), SystemError> {
        let now = self.now;
        let master = &mut self.masters[index];
        let Some(transaction) = master.next else {
            master.blocked = Blocked::Ended;
            return Ok(());
        };
        let due = master.pace.map_or(0, |pace| pace.due(master.number));
        if due > now {
            master.blocked = Blocked::Not(due);
            return Ok(());
        }
        let slot = master.free.last().copied().filter(|_| !master.is_full(transaction.write));
        let Some(slot) = slot else {
            master.blocked = Blocked::Outstanding;
            return Ok(());
        };
        if master.iommu.is_blocked() {
            master.blocked = Blocked::Miss;
            return Ok(());
        }
        let Transaction { addr, write } = transaction;
        let number = master.number;
        let error =
            |cause| SystemError { master: index, transaction: number, addr, cycle: now, cause };
        if addr.raw() % TRANSACTION_BYTES != 0 {
            return Err(error(SystemErrorCause::Misaligned));
        }
        if !write
            && let Some(line) = self.lines.line(addr)
            && !self.lines.is_written(line)
        {
            master.blocked = Blocked::Line(line, now);
            return Ok(());
        }
        let lookup = master
            .iommu
            .lookup(now, addr, number, slot)
            .map_err(|fault| error(SystemErrorCause::Fault(fault)))?;
        let mut cached = None;
        match lookup {
            Lookup::Stall => {
                master.blocked = Blocked::Miss;
                return Ok(());
            }
            Lookup::Hit(access, end) => {
                check(master.iommu.mmu.format(), &access.attributes, write)
                    .map_err(|denied| error(SystemErrorCause::Denied(denied)))?;
                let id = Id { master: index as u16, walk: false, slot };
                self.interconnect.send(end, id, kind(write), access.addr);
            }
            Lookup::Walk(walk, read, end) => {
                let id = Id { master: index as u16, walk: true, slot: walk };
                cached = master.iommu.cached(end, read).map(|cycle| (cycle, id));
                if cached.is_none() {
                    self.interconnect.send(end, id, PortKind::Walk, read);
                }
            }
            Lookup::Join => {}
        }
        master.free.pop();
        master.in_flight[usize::from(write)] += 1;
        master.slots[usize::from(slot)] = InFlight { transaction, number, issued: now };
        master.next = master.stream.next();
        master.number += 1;
        master.idle = now + 1;
        master.blocked = if master.next.is_some() { Blocked::Not(now + 1) } else { Blocked::Ended };
        let stats = &mut master.stats;
        if number == 0 {
            stats.first_issue_cycle = now;
        }
        stats.in_flight_max =
            stats.in_flight_max.max((master.slots.len() - master.free.len()) as u32);
        observe(SystemEvent::Issued { cycle: now, master: index, number, transaction });
        if let Some((cycle, id)) = cached {
            self.arrive(cycle, id);
        }
        Ok(())
    }

    /// Steps the walk whose descriptor has arrived, or begins it anew if its page has come.
    fn walk_arrived<M: PhysMemory + ?Sized, F: FnMut(VirtAddr) -> bool>(
        &mut self,
        id: Id,
        memory: &M,
        paging: &mut Option<Paging<F>>,
    ) -> Result<(), SystemError> {
        let now = self.now;
        let index = usize::from(id.master);
        let master = &mut self.masters[index];
        let failed = |(addr, transaction, fault)| {
            let cause = SystemErrorCause::Fault(fault);
            SystemError { master: index, transaction, addr, cycle: now, cause }
        };
        if let Some(paging) = paging
            && let Some(fault) = master.iommu.awaits(id.slot)
        {
            let (number, addr) = master.iommu.walking(id.slot);
            if !(paging.bring)(addr) {
                return Err(failed((addr, number, fault)));
            }
            let read = master.iommu.begin_anew(id.slot);
            if let Some(read) = read.map_err(|fault| failed((addr, number, fault)))? {
                self.read_descriptor(id, read);
            }
            return Ok(());
        }
        let stepped = match master.iommu.arrive(now, id.slot, memory) {
            Ok(stepped) => stepped,
            Err(error) => {
                let Some(Paging { fault_cycles, .. }) = paging else { return Err(failed(error)) };
                if !master.iommu.await_page(id.slot, error.2) {
                    return Err(failed(error));
                }
                self.arrive(now + Cycle::from(*fault_cycles), id);
                return Ok(());
            }
        };
        if let Some((frame, attributes)) = stepped.known {
            let format = master.iommu.mmu.format();
            let waiters = master.iommu.take_waiters(id.slot);
            for &slot in &waiters {
                let InFlight { transaction: Transaction { addr, write }, number, .. } =
                    master.slots[usize::from(slot)];
                check(format, &attributes, write).map_err(|denied| {
                    let cause = SystemErrorCause::Denied(denied);
                    SystemError { master: index, transaction: number, addr, cycle: now, cause }
                })?;
                let at = PhysAddr::new(frame.address().raw() | addr.page_offset());
                let id = Id { walk: false, slot, ..id };
                self.interconnect.send(now, id, kind(write), at);
            }
            master.iommu.recycle(id.slot, waiters);
        }
        match stepped.next_read {
            Some(read) => self.read_descriptor(id, read),
            None if master.blocked == Blocked::Miss => master.wake(now),
            None => {}
        }
        Ok(())
    }

    /// Lets a walk read its next descriptor.
    #[inline]
    fn read_descriptor(&mut self, id: Id, read: PhysAddr) {
        match self.masters[usize::from(id.master)].iommu.cached(self.now, read) {
            Some(cycle) => self.arrive(cycle, id),
            None => self.interconnect.send(self.now, id, PortKind::Walk, read),
        }
    }

    /// Ends a transaction that has completed.
    #[inline]
    fn completed(&mut self, id: Id, observe: &mut impl FnMut(SystemEvent)) {
        let now = self.now;
        let index = usize::from(id.master);
        let master = &mut self.masters[index];
        let InFlight { transaction, number, issued } = master.slots[usize::from(id.slot)];
        master.free.push(id.slot);
        master.in_flight[usize::from(transaction.write)] -= 1;
        if master.blocked == Blocked::Outstanding {
            master.wake(now);
        }
        let stats = &mut master.stats;
        stats.last_completion_cycle = now;
        if transaction.write {
            stats.writes += 1;
            stats.write_latency.record(now - issued);
        } else {
            stats.reads += 1;
            stats.read_latency.record(now - issued);
        }
        observe(SystemEvent::Completed { cycle: now, master: index, number, transaction });
        if transaction.write
            && let Some(line) = self.lines.line(transaction.addr)
            && !self.lines.is_written(line)
        {
            self.lines.set_written(line);
            for master in &mut self.masters {
                if let Blocked::Line(awaited, since) = master.blocked
                    && awaited == line
                {
                    master.stats.shared_wait_cycles += now - since;
                    master.wake(now);
                }
            }
        }
    }

    /// Hands the memory a request, if one can go.
    #[inline]
    fn arbitrate(&mut self, observe: &mut impl FnMut(SystemEvent)) -> Result<(), SystemError> {
        let now = self.now;
        let granted = self.interconnect.arbitrate(now, &mut self.dram);
        let granted = granted.map_err(|(id, addr, error)| {
            let master = &self.masters[usize::from(id.master)];
            let (transaction, of) = if id.walk {
                master.iommu.walking(id.slot)
            } else {
                let InFlight { transaction, number, .. } = master.slots[usize::from(id.slot)];
                (number, transaction.addr)
            };
            SystemError {
                master: id.master.into(),
                transaction,
                addr: of,
                cycle: now,
                cause: SystemErrorCause::Memory { addr, error },
            }
        })?;
        if let Some(granted) = granted {
            let Granted { id, addr, write, complete } = granted;
            self.next_memory = self.dram.next_event().unwrap_or(Cycle::MAX);
            if let Some(cycle) = complete {
                self.arrive(cycle, id);
            }
            let master = id.master.into();
            observe(SystemEvent::Accepted { cycle: now, master, addr, write, walk: id.walk });
        }
        Ok(())
    }

    /// Ends the run, as nothing will happen any more: all is done, or a master waits for a line
    /// that is never written.
    fn end(mut self) -> Result<SystemStats, SystemError> {
        for (index, master) in self.masters.iter().enumerate() {
            if let (Some(Transaction { addr, .. }), Blocked::Line(..)) =
                (master.next, master.blocked)
            {
                return Err(SystemError {
                    master: index,
                    transaction: master.number,
                    addr,
                    cycle: self.now,
                    cause: SystemErrorCause::NeverWritten,
                });
            }
        }
        self.dram.advance(self.now);
        let dram = self.dram.stats();
        let commands = self.dram.take_commands();
        let masters = self.masters.into_iter().map(|master| MasterStats {
            translation: master.iommu.mmu.stats(),
            walk_cycles: master.iommu.walk_cycles,
            descriptor_hits: master.iommu.descriptor_hits,
            miss_latency: master.iommu.miss_latency,
            ..master.stats
        });
        Ok(SystemStats {
            masters: masters.collect(),
            interconnect: self.interconnect.into_stats(),
            dram,
            total_cycles: self.now,
            commands,
        })
    }
}

#[inline]
const fn kind(write: bool) -> PortKind {
    if write { PortKind::Write } else { PortKind::Read }
}

#[inline]
fn check(format: Format, attributes: &Attributes, write: bool) -> Result<(), Denied> {
    let operation = if write { Operation::Write } else { Operation::Read };
    permit(format, attributes, AccessKind { operation, privileged: false })
}

//! A processor in simulated time: an in-order core, its translation, two data caches, and
//! the memory behind them.
//!
//! The core takes one [`MemoryAccess`] at a time, so its driver can do in between
//! what a kernel does: an access that may not be made stops with an [`Exception`], and is
//! made again once the page is mapped and its stale translations are invalidated.
//!
//! **What takes how long**, in cycles of the core:
//! * Translation goes beside the first cache and takes nothing if the first TLB has the
//!   page; behind that, what the [`Translate`] says. A miss takes
//!   [`tlb_miss_cycles`](ProcessorConfig::tlb_miss_cycles), then its reads, one after the
//!   other, each begun where [`walks_from`](ProcessorConfig::walks_from) says. Nothing overtakes it.
//! * A read takes [`l1_cycles`](ProcessorConfig::l1_cycles) if the first cache has the line; else
//!   [`l2_cycles`](ProcessorConfig::l2_cycles) more; else what [`Dram`] takes from the first of its
//!   cycles that begins then, and [`memory_cycles`](ProcessorConfig::memory_cycles) for the way there and back.
//! * A core of one [outstanding](ProcessorConfig::outstanding_max) load waits for each. One of more
//!   issues an access each cycle and waits where an access
//!   [depends](MemoryAccess::depends) on the one before, or where all places for
//!   missing loads are taken.
//! * A write takes one cycle of the core. If its line is missing it takes a place in the write
//!   buffer until the line is there (write-allocate); the core waits if there is none. Writes
//!   to one line share a place. Without a write buffer a write takes what a read does.
//! * A dirty line that is replaced costs no time but the memory's.
//! * Writes [stream](ProcessorConfig::stream_after_lines), and lines are
//!   [prefetched](ProcessorConfig::prefetch_lines), where the processor does that:
//!   [`patterns`](crate::processor::patterns) says when.
//!
//! * A fetch takes what a read does, in the [cache of instructions](ProcessorConfig::l1_instructions) if there is
//!   one, and nothing overtakes it: only where its line is there, a core of more than one outstanding load goes on
//!   in the next cycle.
//!
//! Instructions are fetched where the driver says so; nothing is speculated, and there is one core.
//!
//! **Costs.** An access that hits touches neither queue nor memory: a few dozen
//! instructions. One that misses both caches is one request and two to four events of the
//! memory, plus as many for the dirty line that it may throw out; each walk is up to four
//! such reads. Nothing depends on how many cycles pass.

use swath_arch::{MemoryKind, PageRange, PhysAddr, PhysMemory, VirtAddr, Vpn};

use crate::clock::Cycle;
use crate::dram::memory::Dram;
use crate::dram::request::OfferError;
use crate::processor::access::{Exception, ExceptionCause, MemoryAccess};
use crate::processor::cache::{Cache, CacheStats};
use crate::processor::config::{ProcessorConfig, ProcessorConfigError, WalksFrom};
use crate::processor::data_path::{Clocks, DataPath, Ready, Waiting};
use crate::processor::patterns::{Strides, WriteRuns};
use crate::translate::miss::TranslatedAccess;
use crate::translate::permit::{AccessKind, Denied, Operation, permit};
use crate::translate::translator::{PendingMiss, Translate, TranslationStats};

/// The counters of a processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorStats {
    /// Cycles of the core.
    pub cycles: Cycle,
    /// Accesses made that read, the kernel's with them.
    pub reads: u64,
    /// Accesses made that wrote.
    pub writes: u64,
    /// Instructions fetched.
    pub fetches: u64,
    /// Accesses that stopped with an exception.
    pub exceptions: u64,
    /// The counters of the translation.
    pub translation: TranslationStats,
    /// Walks begun: misses of all TLBs.
    pub walks: u64,
    /// Reads of descriptors.
    pub walk_reads: u64,
    /// Cycles of the core spent in walks, from the miss of the last TLB to the translation.
    pub walk_cycles: Cycle,
    /// The first data cache. Reads of walks that begin there count, and fetches if there is no
    /// cache of instructions.
    pub l1: CacheStats,
    /// The first cache of instructions.
    pub l1_instructions: CacheStats,
    /// The second cache.
    pub l2: CacheStats,
    /// Lines and descriptors read from the memory.
    pub dram_reads: u64,
    /// Lines written to it.
    pub dram_writes: u64,
    /// Reads and writes of the memory that had to close another row of their bank.
    pub row_conflicts: u64,
}

/// A processor.
///
/// ```
/// use swath_arch::{Coalescing, Format, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr};
/// use swath_hw::processor::presets;
/// use swath_hw::{ExceptionCause, MemoryAccess, Mmu, Processor};
///
/// // One ARMv7 section: the megabyte at 0 lies at 0x100000.
/// let mut words = vec![0; 0x8000 / 8];
/// let memory = SliceMemory::new(Pfn::new(0), &mut words);
/// memory.write_u32(PhysAddr::new(0), 0x10_0000 | 0xc0e)?;
/// let regime =
///     Regime { format: Format::ArmV7, root: PhysAddr::new(0), coalescing: Coalescing::None };
/// let mmu = Mmu::new(regime, Default::default(), Default::default())?;
/// let mut core = Processor::new(&presets::ARMADA_XP.processor(), mmu)?;
///
/// core.access(&memory, &MemoryAccess::read(VirtAddr::new(0x1000)))?;
/// let stopped = core.access(&memory, &MemoryAccess::read(VirtAddr::new(0x10_0000)));
/// assert!(matches!(stopped.unwrap_err().cause, ExceptionCause::Fault(_)));
///
/// memory.write_u32(PhysAddr::new(4), 0x20_0000 | 0xc0e)?;
/// core.access(&memory, &MemoryAccess::read(VirtAddr::new(0x10_0000)))?;
/// assert_eq!(core.stats().walks, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Processor<T> {
    now: Cycle,
    /// The cycle from which everything that hit has its data.
    hits_until: Cycle,
    /// The arrival of the data of the access before.
    last: Ready,
    mmu: T,
    path: DataPath,
    walks_from: WalksFrom,
    tlb_miss_cycles: Cycle,
    outstanding_max: u32,
    write_buffer_entries: u32,
    privileged: bool,
    /// The cycle from which is counted.
    counted_from: Cycle,
    stats: ProcessorStats,
}

impl<T: Translate> Processor<T> {
    /// Creates a processor with empty caches at cycle 0, translating with `mmu`.
    /// O(lines of the caches), and the memory's.
    ///
    /// # Errors
    /// [`ProcessorConfigError`].
    pub fn new(config: &ProcessorConfig, mmu: T) -> Result<Self, ProcessorConfigError> {
        let counts = [
            ("l1_cycles", config.l1_cycles, 1, 1000),
            ("l2_cycles", config.l2_cycles, 0, 1000),
            ("memory_cycles", config.memory_cycles, 0, 10_000),
            ("tlb_miss_cycles", config.tlb_miss_cycles, 0, 10_000),
            ("core_clock", config.core_clock, 1, u32::MAX),
            ("dram_clock", config.dram_clock, 1, u32::MAX),
            ("outstanding_max", config.outstanding_max, 1, 64),
            ("write_buffer_entries", config.write_buffer_entries, 0, 64),
            ("stream_after_lines", config.stream_after_lines, 0, 1024),
            ("prefetch_lines", config.prefetch_lines, 0, 64),
        ];
        for (field, value, min, max) in counts {
            if value < min || value > max {
                return Err(ProcessorConfigError::Count { field, value, min, max });
            }
        }
        let l1 = Cache::new(&config.l1).map_err(ProcessorConfigError::L1)?;
        let instructions = config.l1_instructions.as_ref().map(Cache::new).transpose();
        let instructions = instructions.map_err(ProcessorConfigError::Instructions)?;
        let l2 = Cache::new(&config.l2).map_err(ProcessorConfigError::L2)?;
        let dram = Dram::new(&config.dram)?;
        let burst_bytes = config.dram.part.burst_bytes();
        let (l1_bytes, l2_bytes) = (config.l1.line_bytes, config.l2.line_bytes);
        let instructions_bytes = config.l1_instructions.map_or(l1_bytes, |cache| cache.line_bytes);
        if l1_bytes != l2_bytes || l1_bytes != instructions_bytes || l1_bytes > burst_bytes {
            return Err(ProcessorConfigError::Lines {
                l1_bytes,
                instructions_bytes,
                l2_bytes,
                burst_bytes,
            });
        }
        let cycles = [config.l1_cycles, config.l2_cycles, config.memory_cycles];
        let clocks = Clocks { core: config.core_clock, dram: config.dram_clock };
        let mut path = DataPath::new([l1, l2], cycles, dram, config.dram.len_bytes(), clocks);
        path.instructions = instructions;
        path.runs = WriteRuns::new(config.stream_after_lines, l1_bytes);
        path.strides = Strides::new(config.prefetch_lines, l1_bytes);
        Ok(Self {
            now: 0,
            hits_until: 0,
            last: Ready::At(0),
            mmu,
            path,
            walks_from: config.walks_from,
            tlb_miss_cycles: config.tlb_miss_cycles.into(),
            outstanding_max: config.outstanding_max,
            write_buffer_entries: config.write_buffer_entries,
            privileged: config.privileged,
            counted_from: 0,
            stats: ProcessorStats::default(),
        })
    }

    /// Makes one access; returns the cycle in which the core goes on. `memory` holds the
    /// tables' bytes. For the costs see the [module](self).
    ///
    /// # Errors
    /// The [`Exception`]. The access can be made [`again`](MemoryAccess::again).
    #[inline]
    pub fn access<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        access: &MemoryAccess,
    ) -> Result<Cycle, Exception> {
        let &MemoryAccess { addr, operation, depends, compute_cycles } = access;
        self.now = self.now.saturating_add(compute_cycles.into());
        if depends {
            match self.path.wait(self.last) {
                Ok(ready) => self.now = self.now.max(ready),
                Err(error) => return Err(self.stop(access, ExceptionCause::Memory(error))),
            }
        }
        let (found, more_cycles) = self.mmu.lookup(addr);
        self.now = self.now.saturating_add(more_cycles.into());
        let found = match found {
            Some(found) => found,
            None => match self.walk(memory, addr) {
                Ok(found) => found,
                Err(cause) => return Err(self.stop(access, cause)),
            },
        };
        let kind = AccessKind { operation, privileged: self.privileged };
        if let Err(denied) = permit(self.mmu.format(), &found.attributes, kind) {
            self.forget_denied(addr, denied);
            return Err(self.stop(access, ExceptionCause::Denied(denied)));
        }
        let device = found.attributes.memory == MemoryKind::Device;
        match self.touch(found.addr, operation, device) {
            Ok(()) => Ok(self.now),
            Err(error) => Err(self.stop(access, ExceptionCause::Memory(error))),
        }
    }

    /// Makes an access at a physical address, as a kernel does that clears a frame or writes a
    /// descriptor by a mapping that never misses. It takes the same time and
    /// the same caches as any other.
    ///
    /// # Errors
    /// An address beyond the memory, or a time that the memory cannot count.
    pub fn access_physical(&mut self, addr: PhysAddr, write: bool) -> Result<Cycle, OfferError> {
        let operation = if write { Operation::Write } else { Operation::Read };
        self.touch(addr, operation, false)?;
        Ok(self.now)
    }

    /// Fetches an instruction at a physical address, in the time and by the caches of any other fetch.
    ///
    /// # Errors
    /// An address beyond the memory, or a time that the memory cannot count.
    pub fn fetch_physical(&mut self, addr: PhysAddr) -> Result<Cycle, OfferError> {
        self.touch(addr, Operation::Fetch, false)?;
        Ok(self.now)
    }

    /// Lets `cycles` pass in the core: what a handler or a maintenance operation takes.
    pub const fn spend(&mut self, cycles: Cycle) {
        self.now = self.now.saturating_add(cycles);
    }

    /// Makes all of `accesses`. Each exception goes to `handle`, which mends its cause, with
    /// the invalidations that it owes, or gives it back; then the access is made again.
    ///
    /// # Errors
    /// The first exception that `handle` gave back.
    pub fn run<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        accesses: impl IntoIterator<Item = MemoryAccess>,
        mut handle: impl FnMut(&mut Self, Exception) -> Result<(), Exception>,
    ) -> Result<Cycle, Exception> {
        for access in accesses {
            let mut made = self.access(memory, &access);
            while let Err(exception) = made {
                handle(self, exception)?;
                made = self.access(memory, &access.again());
            }
        }
        Ok(self.now)
    }

    /// Waits until all data that are under way have arrived (dirty lines apart); gives that
    /// cycle.
    ///
    /// # Errors
    /// A time that the memory cannot count.
    pub fn finish(&mut self) -> Result<Cycle, OfferError> {
        self.now = self.now.max(self.path.wait_for_all()?).max(self.hits_until);
        Ok(self.now)
    }

    fn walk<M: PhysMemory + ?Sized>(
        &mut self,
        memory: &M,
        addr: VirtAddr,
    ) -> Result<TranslatedAccess, ExceptionCause> {
        let began = self.now;
        let mut miss = self.mmu.begin(addr).map_err(ExceptionCause::Fault)?;
        self.now = self.now.saturating_add(self.tlb_miss_cycles);
        let result = loop {
            let at = miss.next_read();
            let ready = self.path.read_and_wait(self.now, at, self.walks_from);
            self.now = self.now.max(ready.map_err(ExceptionCause::Memory)?);
            match self.mmu.step(&mut miss, memory) {
                Ok(None) => {}
                Ok(Some(resolved)) => break Ok(resolved),
                Err(fault) => break Err(fault),
            }
        };
        self.stats.walk_cycles += self.now - began;
        self.mmu.complete(addr, &miss, result).map_err(ExceptionCause::Fault)
    }

    /// ARM caches no translation whose access flag is clear (DDI 0406C, section B3.7.2), and
    /// an x86-64 page fault drops what was cached for its address (SDM volume 3, section
    /// 4.10.4.1): there, software owes nothing after it has granted more.
    fn forget_denied(&mut self, addr: VirtAddr, denied: Denied) {
        let x86 = matches!(self.mmu.format(), swath_arch::Format::X86_64);
        if x86 || denied == Denied::AccessFlag {
            self.mmu.invalidate_page(addr.page());
        }
    }

    #[inline]
    fn touch(
        &mut self,
        addr: PhysAddr,
        operation: Operation,
        device: bool,
    ) -> Result<(), OfferError> {
        self.path.locate(addr)?;
        match operation {
            Operation::Read => self.stats.reads += 1,
            Operation::Write => self.stats.writes += 1,
            Operation::Fetch => {
                self.stats.fetches += 1;
                return self.fetch(addr, device);
            }
        }
        let write = operation == Operation::Write;
        if device {
            return self.touch_device(addr, write);
        }
        let buffered = write && self.write_buffer_entries > 0;
        let (waiting, flights_max) = if buffered {
            (Waiting::Store, self.write_buffer_entries)
        } else {
            (Waiting::Load, self.outstanding_max)
        };
        let (began, ready) = if buffered && self.path.runs.streams(addr) {
            self.path.stream(self.now, addr, flights_max)?
        } else if !write && self.path.strides.lines_ahead > 0 {
            self.path.load_and_look_ahead(self.now, addr, flights_max)?
        } else {
            self.path.access(self.now, addr, write, waiting, flights_max)?
        };
        if buffered {
            self.now = began.saturating_add(1);
            self.last = Ready::At(self.now);
        } else if self.outstanding_max > 1 {
            self.now = began.saturating_add(1);
            self.last = ready;
            if let Ready::At(cycle) = ready {
                self.hits_until = self.hits_until.max(cycle);
            }
        } else {
            self.now = self.now.max(self.path.wait(ready)?);
            self.last = Ready::At(self.now);
        }
        Ok(())
    }

    /// Fetches an instruction. What the access of data before brings is under way still.
    fn fetch(&mut self, addr: PhysAddr, device: bool) -> Result<(), OfferError> {
        if device {
            self.now = self.path.read_and_wait(self.now, addr, WalksFrom::Memory)?;
            return Ok(());
        }
        let (began, ready) = self.path.fetch(self.now, addr, self.outstanding_max)?;
        let there = self.path.wait(ready)?;
        let is_hit = there <= began.saturating_add(self.path.l1_cycles);
        self.now = match is_hit && self.outstanding_max > 1 {
            true => began.saturating_add(1),
            false => began.max(there),
        };
        Ok(())
    }

    /// Reads or writes past the caches; the core waits for what it reads.
    fn touch_device(&mut self, addr: PhysAddr, write: bool) -> Result<(), OfferError> {
        if write {
            self.path.write(self.now, addr);
            self.now = self.now.saturating_add(1);
        } else {
            self.now = self.path.read_and_wait(self.now, addr, WalksFrom::Memory)?;
        }
        self.last = Ready::At(self.now);
        Ok(())
    }

    fn stop(&mut self, access: &MemoryAccess, cause: ExceptionCause) -> Exception {
        self.stats.exceptions += 1;
        Exception { addr: access.addr, operation: access.operation, cycle: self.now, cause }
    }

    /// Returns the present cycle of the core.
    pub const fn now(&self) -> Cycle {
        self.now
    }

    /// Returns the translating machine.
    pub const fn mmu(&self) -> &T {
        &self.mmu
    }

    /// Returns the translating machine to be changed: invalidated, or given another address space.
    /// That takes no time; see [`spend`](Self::spend).
    pub const fn mmu_mut(&mut self) -> &mut T {
        &mut self.mmu
    }

    /// Forgets the translation of `page`; see [`Translate::invalidate_page`].
    pub fn invalidate_page(&mut self, page: Vpn) {
        self.mmu.invalidate_page(page);
    }

    /// Forgets the translation of all of `pages`.
    pub fn invalidate_range(&mut self, pages: PageRange) {
        self.mmu.invalidate_range(pages);
    }

    /// Forgets all translations.
    pub fn invalidate_all(&mut self) {
        self.mmu.invalidate_all();
    }

    /// Returns the first data cache.
    pub const fn l1(&self) -> &Cache {
        &self.path.l1
    }

    /// Returns the first cache of instructions, if there is one.
    pub const fn l1_instructions(&self) -> Option<&Cache> {
        self.path.instructions.as_ref()
    }

    /// Returns the second cache.
    pub const fn l2(&self) -> &Cache {
        &self.path.l2
    }

    /// Returns the memory, as far as it was driven.
    pub const fn dram(&self) -> &Dram {
        &self.path.dram
    }

    /// Returns the counters since the start or the last [`reset_stats`](Self::reset_stats).
    pub fn stats(&self) -> ProcessorStats {
        let translation = self.mmu.stats();
        ProcessorStats {
            cycles: self.now - self.counted_from,
            translation,
            walks: translation.walk.walks(),
            walk_reads: translation.walk.reads(),
            l1: self.path.l1.stats(),
            l1_instructions: self.path.instructions.as_ref().map(Cache::stats).unwrap_or_default(),
            l2: self.path.l2.stats(),
            dram_reads: self.path.dram_reads,
            dram_writes: self.path.dram_writes,
            row_conflicts: self.path.dram.stats().total().row_conflicts,
            ..self.stats
        }
    }

    /// Sets every counter to 0, that of the cycles, too; all else stays.
    pub fn reset_stats(&mut self) {
        self.counted_from = self.now;
        self.stats = ProcessorStats::default();
        self.mmu.reset_stats();
        self.path.l1.reset_stats();
        if let Some(instructions) = &mut self.path.instructions {
            instructions.reset_stats();
        }
        self.path.l2.reset_stats();
        self.path.dram.reset_stats();
        (self.path.dram_reads, self.path.dram_writes) = (0, 0);
    }

    /// Walks every invariant of the caches, the memory and what is between them.
    /// O(lines ways).
    ///
    /// # Errors
    /// The invariant that does not hold, in words.
    pub fn check(&self) -> Result<(), &'static str> {
        self.path.check()
    }
}

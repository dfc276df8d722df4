//! A processor in simulated time: an in-order core, its translation, two data caches, and
//! the memory behind them.
//!
//! The core takes one [`MemoryAccess`] at a time, so whoever drives it can do in between
//! what a kernel does: an access that may not be made stops with an [`Exception`], and is
//! made again once the page is mapped and the owed invalidations are done.
//!
//! **What takes how long**, in cycles of the core:
//! * Translation goes beside the first cache and takes nothing if the first TLB has the
//!   page; behind that, what the [`Translate`] says. A miss takes
//!   [`tlb_miss_cycles`](Config::tlb_miss_cycles), then its reads, one after the
//!   other, each begun where [`walks_from`](Config::walks_from) says. Nothing overtakes it.
//! * A read takes [`l1_cycles`](Config::l1_cycles) if the first cache has the line; else
//!   [`l2_cycles`](Config::l2_cycles) more; else what [`Dram`] takes from the first of its
//!   cycles that begins then, and [`memory_cycles`](Config::memory_cycles) to and fro.
//! * A core of one [outstanding](Config::outstanding_max) load waits for each. One of more
//!   issues an access each cycle and waits where an access
//!   [depends](MemoryAccess::depends) on the one before, or where all places for
//!   missing loads are taken.
//! * A write takes one cycle of the core. If its line is missing it takes a place in the write
//!   buffer until the line is there (write-allocate); the core waits if there is none. Writes
//!   to one line share a place. Without a write buffer a write takes what a read does.
//! * A dirty line that has to go delays nobody but by the memory's time.
//!
//! No instructions are fetched, nothing is prefetched or speculated, and there is one core.
//!
//! **Costs.** An access that hits touches neither queue nor memory: a few dozen
//! instructions. One that misses both caches is one request and two to four events of the
//! memory, plus as many for the dirty line that it may throw out; each walk is up to four
//! such reads. Nothing depends on how many cycles pass.

use core::fmt;

use swath_arch::{MemoryKind, PageRange, PhysAddr, PhysMemory, VirtAddr, Vpn};

use crate::dram::memory;
use crate::dram::memory::{Dram, OfferError};
use crate::dram::timing::Cycle;
use crate::processor::cache::{
    Cache, CacheStats, {self},
};
pub use crate::processor::data_path::Source;
use crate::processor::data_path::{Clocks, DataPath, Ready, Waiting};
use crate::system::iommu::{Translate, TranslationStats};
use crate::translate::mmu;
use crate::translate::walker::{AccessKind, Denied, Fault, Operation, permit};

/// A processor to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The first data cache.
    pub l1: cache::Config,
    /// Cycles of the core until it answers: 1 or more.
    pub l1_cycles: u32,
    /// The second cache, whose lines are as long.
    pub l2: cache::Config,
    /// Cycles of the core until it answers, after the first has not.
    pub l2_cycles: u32,
    /// Cycles of the core for the ways between the second cache and the memory's controller.
    pub memory_cycles: u32,
    /// The memory. A line may not be longer than its burst, which is what is read.
    pub dram: memory::Config,
    /// The core's clock: this many cycles of it are `dram_clock` of the memory.
    pub core_clock: u32,
    /// The memory's clock. 1600 and 800 are a core of 1.6 GHz with DDR3-1600.
    pub dram_clock: u32,
    /// Where the reads of walks begin.
    pub walks_from: Source,
    /// Cycles of the core that a TLB miss takes besides its reads.
    pub tlb_miss_cycles: u32,
    /// Loads that may be missing at once: 1 to 64; with 1 the core waits for each load.
    pub outstanding_max: u32,
    /// Missing lines that writes may wait for behind the core's back: 0 to 64.
    pub write_buffer_entries: u32,
    /// Whether the code is privileged.
    pub privileged: bool,
}

/// A processor that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The first cache.
    L1(cache::ConfigError),
    /// The second cache.
    L2(cache::ConfigError),
    /// Caches of different lines, or lines longer than the memory's burst.
    Lines {
        /// Bytes of a line of the first cache.
        l1_bytes: u32,
        /// Of the second.
        l2_bytes: u32,
        /// Bytes of a burst.
        burst_bytes: u32,
    },
    /// The memory.
    Dram(memory::ConfigError),
    /// A number outside its range.
    Count {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u32,
        /// The least that it may be.
        min: u32,
        /// The most.
        max: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::L1(error) => write!(f, "first cache: {error}"),
            Self::L2(error) => write!(f, "second cache: {error}"),
            Self::Lines { l1_bytes, l2_bytes, burst_bytes } => write!(
                f,
                "lines of {l1_bytes} and {l2_bytes} bytes: not alike, or longer than the \
                 memory's burst of {burst_bytes}"
            ),
            Self::Dram(error) => error.fmt(f),
            Self::Count { field, value, min, max } => {
                write!(f, "{value} {field}: {min} to {max}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

/// One access of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryAccess {
    /// Where. One access touches one line: what crosses lines is two of them.
    pub addr: VirtAddr,
    /// Whether it writes.
    pub write: bool,
    /// Whether it needs the data of the access before, as its address or what it writes.
    pub depends: bool,
    /// Cycles that the core computes before it.
    pub compute_cycles: u32,
}

impl MemoryAccess {
    /// A read that needs nothing, at once.
    pub const fn read(addr: VirtAddr) -> Self {
        Self { addr, write: false, depends: false, compute_cycles: 0 }
    }

    /// A write that needs nothing, at once.
    pub const fn write(addr: VirtAddr) -> Self {
        Self { addr, write: true, depends: false, compute_cycles: 0 }
    }

    /// The same, needing the data of the access before.
    #[must_use]
    pub const fn depending(self) -> Self {
        Self { depends: true, ..self }
    }

    /// The same access once more, after its exception: what went before it is over.
    #[must_use]
    pub const fn again(self) -> Self {
        Self { depends: false, compute_cycles: 0, ..self }
    }
}

/// Why an access was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The page has no translation.
    Fault(Fault),
    /// The page may not be accessed so.
    Denied(Denied),
    /// The memory has no such address, or cannot count so far.
    Memory(OfferError),
}

/// An access that was not made. The core has come to `cycle`, walks it did are paid for;
/// the TLBs hold nothing new of a page without translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exception {
    /// The address.
    pub addr: VirtAddr,
    /// Whether it was to be written.
    pub write: bool,
    /// When.
    pub cycle: Cycle,
    /// Why.
    pub cause: Cause,
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, write, cycle, cause } = self;
        let what = if *write { "write" } else { "read" };
        write!(f, "{what} at {addr}, cycle {cycle}: ")?;
        match cause {
            Cause::Fault(fault) => fault.fmt(f),
            Cause::Denied(denied) => denied.fmt(f),
            Cause::Memory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Exception {}

/// What a processor has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorStats {
    /// Cycles of the core.
    pub cycles: Cycle,
    /// Accesses made that read, the kernel's with them.
    pub reads: u64,
    /// Accesses made that wrote.
    pub writes: u64,
    /// Accesses that stopped with an exception.
    pub exceptions: u64,
    /// What the translation counted.
    pub translation: TranslationStats,
    /// Walks begun: misses of all TLBs.
    pub walks: u64,
    /// Reads of descriptors.
    pub walk_reads: u64,
    /// Cycles of the core spent in walks, from the miss of the last TLB to the translation.
    pub walk_cycles: Cycle,
    /// The first data cache. Reads of walks that begin there count.
    pub l1: CacheStats,
    /// The second cache.
    pub l2: CacheStats,
    /// Lines and descriptors read from the memory.
    pub dram_reads: u64,
    /// Lines written to it.
    pub dram_writes: u64,
}

/// A processor.
///
/// ```
/// use swath_arch::{Coalescing, Format, Pfn, PhysAddr, PhysMemory, Regime, SliceMemory, VirtAddr};
/// use swath_hw::{MemoryAccess, Mmu, Processor, presets, processor};
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
/// assert!(matches!(stopped.unwrap_err().cause, processor::Cause::Fault(_)));
///
/// memory.write_u32(PhysAddr::new(4), 0x20_0000 | 0xc0e)?;
/// core.access(&memory, &MemoryAccess::read(VirtAddr::new(0x10_0000)))?;
/// assert_eq!(core.stats().walks, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Processor<T> {
    now: Cycle,
    /// When everything that hit has its data.
    hits_until: Cycle,
    /// When the data of the access before are there.
    last: Ready,
    mmu: T,
    path: DataPath,
    walks_from: Source,
    tlb_miss_cycles: Cycle,
    outstanding_max: u32,
    write_buffer_entries: u32,
    privileged: bool,
    /// The cycle from which is counted.
    counted_from: Cycle,
    stats: ProcessorStats,
}

impl<T: Translate> Processor<T> {
    /// A processor with empty caches at cycle 0, translating with `mmu`.
    /// O(lines of the caches), and the memory's.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &Config, mmu: T) -> Result<Self, ConfigError> {
        let counts = [
            ("l1_cycles", config.l1_cycles, 1, 1000),
            ("l2_cycles", config.l2_cycles, 0, 1000),
            ("memory_cycles", config.memory_cycles, 0, 10_000),
            ("tlb_miss_cycles", config.tlb_miss_cycles, 0, 10_000),
            ("core_clock", config.core_clock, 1, u32::MAX),
            ("dram_clock", config.dram_clock, 1, u32::MAX),
            ("outstanding_max", config.outstanding_max, 1, 64),
            ("write_buffer_entries", config.write_buffer_entries, 0, 64),
        ];
        for (field, value, min, max) in counts {
            if value < min || value > max {
                return Err(ConfigError::Count { field, value, min, max });
            }
        }
        let l1 = Cache::new(&config.l1).map_err(ConfigError::L1)?;
        let l2 = Cache::new(&config.l2).map_err(ConfigError::L2)?;
        let dram = Dram::new(&config.dram).map_err(ConfigError::Dram)?;
        let burst_bytes = config.dram.part.burst_bytes();
        let (l1_bytes, l2_bytes) = (config.l1.line_bytes, config.l2.line_bytes);
        if l1_bytes != l2_bytes || l1_bytes > burst_bytes {
            return Err(ConfigError::Lines { l1_bytes, l2_bytes, burst_bytes });
        }
        let cycles = [config.l1_cycles, config.l2_cycles, config.memory_cycles];
        let clocks = Clocks { core: config.core_clock, dram: config.dram_clock };
        Ok(Self {
            now: 0,
            hits_until: 0,
            last: Ready::At(0),
            mmu,
            path: DataPath::new([l1, l2], cycles, dram, config.dram.len_bytes(), clocks),
            walks_from: config.walks_from,
            tlb_miss_cycles: config.tlb_miss_cycles.into(),
            outstanding_max: config.outstanding_max,
            write_buffer_entries: config.write_buffer_entries,
            privileged: config.privileged,
            counted_from: 0,
            stats: ProcessorStats::default(),
        })
    }

    /// Makes one access; gives the cycle in which the core goes on. `memory` holds the
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
        let &MemoryAccess { addr, write, depends, compute_cycles } = access;
        self.now = self.now.saturating_add(compute_cycles.into());
        if depends {
            match self.path.wait(self.last) {
                Ok(ready) => self.now = self.now.max(ready),
                Err(error) => return Err(self.stop(access, Cause::Memory(error))),
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
        let operation = if write { Operation::Write } else { Operation::Read };
        let kind = AccessKind { operation, privileged: self.privileged };
        if let Err(denied) = permit(self.mmu.regime().format, &found.attributes, kind) {
            self.forget_denied(addr, denied);
            return Err(self.stop(access, Cause::Denied(denied)));
        }
        let device = found.attributes.memory == MemoryKind::Device;
        match self.touch(found.addr, write, device) {
            Ok(()) => Ok(self.now),
            Err(error) => Err(self.stop(access, Cause::Memory(error))),
        }
    }

    /// Makes an access at a physical address, as a kernel does that clears a frame or writes a
    /// descriptor by a mapping that never misses. It takes the same time and
    /// the same caches as any other.
    ///
    /// # Errors
    /// An address beyond the memory, or a time that the memory cannot count.
    pub fn access_physical(&mut self, addr: PhysAddr, write: bool) -> Result<Cycle, OfferError> {
        self.touch(addr, write, false)?;
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
    ) -> Result<mmu::Access, Cause> {
        let began = self.now;
        let mut miss = self.mmu.begin(addr).map_err(Cause::Fault)?;
        self.now = self.now.saturating_add(self.tlb_miss_cycles);
        let result = loop {
            let at = miss.next_read();
            let ready = self.path.read_and_wait(self.now, at, self.walks_from);
            self.now = self.now.max(ready.map_err(Cause::Memory)?);
            match self.mmu.step(&mut miss, memory) {
                Ok(None) => {}
                Ok(Some(resolved)) => break Ok(resolved),
                Err(fault) => break Err(fault),
            }
        };
        self.stats.walk_cycles += self.now - began;
        self.mmu.complete(addr, &miss, result).map_err(Cause::Fault)
    }

    /// ARM caches no translation whose access flag is clear (DDI 0406C, section B3.7.2), and
    /// an x86-64 page fault drops what was cached for its address (SDM volume 3, section
    /// 4.10.4.1): there, software owes nothing after it has granted more.
    fn forget_denied(&mut self, addr: VirtAddr, denied: Denied) {
        let x86 = matches!(self.mmu.regime().format, swath_arch::Format::X86_64);
        if x86 || denied == Denied::AccessFlag {
            self.mmu.invalidate_page(addr.page());
        }
    }

    #[inline]
    fn touch(&mut self, addr: PhysAddr, write: bool, device: bool) -> Result<(), OfferError> {
        self.path.locate(addr)?;
        if write {
            self.stats.writes += 1;
        } else {
            self.stats.reads += 1;
        }
        if device {
            return self.touch_device(addr, write);
        }
        let buffered = write && self.write_buffer_entries > 0;
        let (waiting, flights_max) = if buffered {
            (Waiting::Store, self.write_buffer_entries)
        } else {
            (Waiting::Load, self.outstanding_max)
        };
        let (began, ready) = self.path.access(self.now, addr, write, waiting, flights_max)?;
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

    /// Past the caches; the core waits for what it reads.
    fn touch_device(&mut self, addr: PhysAddr, write: bool) -> Result<(), OfferError> {
        if write {
            self.path.write(self.now, addr);
            self.now = self.now.saturating_add(1);
        } else {
            self.now = self.path.read_and_wait(self.now, addr, Source::Memory)?;
        }
        self.last = Ready::At(self.now);
        Ok(())
    }

    fn stop(&mut self, access: &MemoryAccess, cause: Cause) -> Exception {
        self.stats.exceptions += 1;
        Exception { addr: access.addr, write: access.write, cycle: self.now, cause }
    }

    /// The present cycle of the core.
    pub const fn now(&self) -> Cycle {
        self.now
    }

    /// What translates.
    pub const fn mmu(&self) -> &T {
        &self.mmu
    }

    /// The same to be changed: invalidated, or given another address space. That takes no
    /// time; see [`spend`](Self::spend).
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

    /// The first data cache.
    pub const fn l1(&self) -> &Cache {
        &self.path.l1
    }

    /// The second cache.
    pub const fn l2(&self) -> &Cache {
        &self.path.l2
    }

    /// The memory, as far as it was driven.
    pub const fn dram(&self) -> &Dram {
        &self.path.dram
    }

    /// Counters since the start or the last [`reset_stats`](Self::reset_stats).
    pub fn stats(&self) -> ProcessorStats {
        let translation = self.mmu.stats();
        ProcessorStats {
            cycles: self.now - self.counted_from,
            translation,
            walks: translation.walk.walks(),
            walk_reads: translation.walk.reads(),
            l1: self.path.l1.stats(),
            l2: self.path.l2.stats(),
            dram_reads: self.path.dram_reads,
            dram_writes: self.path.dram_writes,
            ..self.stats
        }
    }

    /// Sets every counter to 0, that of the cycles, too; all else stays.
    pub fn reset_stats(&mut self) {
        self.counted_from = self.now;
        self.stats = ProcessorStats::default();
        self.mmu.reset_stats();
        self.path.l1.reset_stats();
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

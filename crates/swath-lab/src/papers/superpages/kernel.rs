//! A small kernel over Swath's parts, to run programs in simulated time.
//!
//! It is what a study of demand paging needs and no more: processes with
//! mappings, objects that own their pages' frames, page faults, copy on
//! write. Frames come from [`Reservations`] over a [`PageBuddy`], mappings go
//! through a [`Pmap`], and a [`Processor`](swath_hw::processor::Processor) makes the accesses; each of them is
//! the same code that a kernel would link.
//!
//! ```text
//!  process -- mapping --> object -- page index --> frame (reservations)
//!     |                     | shadows (copy on write)
//!     |                     v
//!   space (tables) <-- pmap --> reverse map
//! ```
//!
//! **Pages are numbered in an object as they are in the space** where it was
//! first mapped, so that index and page agree modulo every superpage and a
//! reservation's frames can be promoted. A file's pages are numbered as its first
//! mapping shows them ([`files`](crate::papers::superpages::files)); where another
//! shows them shifted, promotion finds them not aligned.
//!
//! **Processors.** The caller says which one acts; a switch to another process flushes its TLBs (no
//! address-space identifiers). Each has its own caches, memory and time: they share the tables,
//! and the flushes that these owe ([`processors`](crate::papers::superpages::processors)).
//!
//! What the kernel does takes the time that its [`Costs`](crate::papers::superpages::config::Costs) say, beside the accesses of walks: a
//! descriptor that is written is cleaned to memory, from where walks read, and its timer's
//! [`ticks`](crate::papers::superpages::ticks) touch pages of its own. A chain of shadows is never collapsed.

use std::cell::RefCell;
use std::collections::BTreeMap;

use swath_arch::{Attributes, Extent, Format, PageRange, Pfn, Regime, SliceMemory, Vpn};
use swath_frame::reserve::{PopulateError, ReservationCounters, Reservations};
use swath_frame::{ByteRange, FrameAllocator, MemoryMap, PageBuddy};
use swath_hw::processor::{Exception, ExceptionCause, MemoryAccess, ProcessorStats};
use swath_hw::{Denied, Operation, Translate, TranslationFault};
use swath_vm::pmap::mappings::Reached;
use swath_vm::{
    AddressSpace, Faulted, Flush, KeptPermissions, PageAccess, Pmap, PmapError, PmapStatistics,
    ReverseMap, Site, SpaceId, Spaces,
};

use crate::papers::superpages::config::Config;
use crate::papers::superpages::objects::Objects;
use crate::papers::superpages::processors::{Processors, Shootdowns, descriptors};
use swath_trace::access::MapBacking;

/// Words of table memory; the frames after it hold data, which have no bytes.
const WORDS_PER_FRAME: usize = 512;

/// Reasons why the kernel could not go on.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// There is no such process.
    #[error("no process {0}")]
    NoProcess(usize),
    /// A process accessed what it has not mapped, or not so.
    #[error("process {process}: {what} at {addr:#x} is not permitted")]
    NotPermitted {
        /// The process.
        process: usize,
        /// "read", "write" or "fetch".
        what: &'static str,
        /// The address.
        addr: u64,
    },
    /// A mapping would lie over another, or is empty.
    #[error("process {process}: pages {start} to {end} cannot be mapped")]
    Overlap {
        /// The process.
        process: usize,
        /// The first page.
        start: Vpn,
        /// One past the last.
        end: Vpn,
    },
    /// Memory is used up.
    #[error("no frame is left: {0}")]
    OutOfMemory(&'static str),
    /// The machine cannot be, or a part of it refused.
    #[error("{0}")]
    Machine(String),
}

fn machine(error: impl std::fmt::Display) -> KernelError {
    KernelError::Machine(error.to_string())
}

/// A part of a process's space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) pages: u64,
    pub(super) object: u64,
    /// The object's index of the first page.
    pub(super) index: u64,
    pub(super) writable: bool,
    executable: bool,
    /// The object is shared with others, who must not see what is written here.
    copy: bool,
}

type Allocator = Reservations<PageBuddy<Vec<u64>>, Vec<u64>>;
type Tables<'m> = &'m RefCell<PageBuddy<Vec<u64>>>;
type Space<'m> = AddressSpace<&'m SliceMemory<'m>, Tables<'m>, Tables<'m>>;

struct Process<'m> {
    space: Space<'m>,
    mappings: BTreeMap<u64, Mapping>,
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelStats {
    /// The processor's counters; cycles include the kernel's.
    pub processor: ProcessorStats,
    /// Page faults: first touches, copies, and writes to clean pages.
    pub faults: u64,
    /// Frames copied on a write.
    pub copies: u64,
    /// Frames that tables took at most.
    pub table_frames_max: u64,
    /// Cycles that the kernel's costs made up.
    pub kernel_cycles: u64,
    /// Promotions, demotions and their like.
    pub pmap: PmapStatistics,
    /// Reservations.
    pub reservations: ReservationCounters,
    /// Frames reserved and not populated, at the end.
    pub reserved_frames: u64,
    /// Switches between processes.
    pub switches: u64,
    /// Ticks of the timers.
    pub ticks: u64,
    /// Descriptors cleaned to memory.
    pub cleaned: u64,
    /// Flushes of TLBs.
    pub shootdowns: Shootdowns,
}

/// The kernel with its machine.
pub struct Kernel<'m, T> {
    pub(super) memory: &'m SliceMemory<'m>,
    tables: Tables<'m>,
    pub(super) frames: Allocator,
    pmap: Pmap<Vec<u64>>,
    pub(super) config: &'m Config,
    pub(super) processors: Processors<T>,
    processes: Vec<Option<Process<'m>>>,
    pub(super) objects: Objects,
    pub(super) stats: KernelStats,
}

/// The processes' spaces, as a pmap reaches them.
pub(super) struct Reach<'k, 'm, I> {
    processes: &'k mut [Option<Process<'m>>],
    invalidate: I,
}

impl<'m, I: FnMut(SpaceId, Flush)> Spaces for Reach<'_, 'm, I> {
    type Memory = &'m SliceMemory<'m>;
    type Frames = Tables<'m>;
    type Tables = Tables<'m>;

    fn reach(&mut self, space: SpaceId) -> Option<Reached<'_, Self>> {
        let process = self.processes.get_mut(usize::try_from(space.0).ok()?)?.as_mut()?;
        Some((&mut process.space, &mut self.invalidate))
    }
}

/// Boots a kernel and hands it to `run`. `make` builds what translates for each
/// `processor`.
///
/// # Errors
/// [`KernelError`]: the machine cannot be, or `run` failed.
pub fn boot<T: Translate, R>(
    config: &Config,
    processor: &swath_hw::ProcessorConfig,
    make: impl Fn(Regime) -> Result<T, KernelError>,
    run: impl FnOnce(&mut Kernel<'_, T>) -> Result<R, KernelError>,
) -> Result<R, KernelError> {
    if config.processors == 0 {
        return Err(KernelError::Machine("a machine without processors".to_owned()));
    }
    let mut words = vec![0; config.table_frames as usize * WORDS_PER_FRAME];
    let memory = SliceMemory::new(Pfn::new(0), &mut words);
    let orders = crate::papers::page_buddy::setting::pbs(
        config.format.granularity().k() as u8,
        top(config.format),
    )
    .map_err(machine)?;
    let table_map = [ByteRange::of_frames(Extent::new(Pfn::new(0), config.table_frames))];
    let mut areas = vec![Extent::default(); config.data.len().max(1)];
    let map = MemoryMap::new(&table_map, &mut areas).map_err(machine)?;
    let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, orders)];
    let tables = RefCell::new(PageBuddy::new(&map, orders, storage).map_err(machine)?);

    let ranges: Vec<ByteRange> = config.data.iter().copied().map(ByteRange::of_frames).collect();
    let map = MemoryMap::new(&ranges, &mut areas).map_err(machine)?;
    let span = map.span();
    let storage = vec![0; PageBuddy::<Vec<u64>>::storage_words(&map, orders)];
    let under = PageBuddy::new(&map, orders, storage).map_err(machine)?;
    let levels = config.levels;
    let storage = vec![0; Allocator::storage_words(&map, levels)];
    let frames = Reservations::new(&map, levels, under, storage).map_err(machine)?;

    let sizes = config.sizes;
    let needed = ReverseMap::words_needed(span, sizes, config.status, config.reverse_entries);
    let needed = needed.ok_or(KernelError::Machine("too much memory for a reverse map".into()))?;
    let reverse =
        ReverseMap::new(span, config.sizes, config.status, vec![0; needed]).map_err(machine)?;

    // A translation of nothing, until the first process runs.
    let nothing =
        AddressSpace::new(config.format, swath_arch::Coalescing::None, &memory, &tables, &tables)
            .map_err(machine)?;
    let mmus: Result<Vec<T>, KernelError> =
        (0..config.processors).map(|_| make(nothing.regime())).collect();
    let shootdown_cycles = config.costs.shootdown_cycles;
    let processors =
        Processors::new(mmus?, processor, config.ticks, shootdown_cycles).map_err(machine)?;
    let mut kernel = Kernel {
        memory: &memory,
        tables: &tables,
        frames,
        pmap: Pmap::new(reverse),
        config,
        processors,
        processes: Vec::new(),
        objects: Objects::default(),
        stats: KernelStats::default(),
    };
    run(&mut kernel)
}

/// The highest order of the free lists: the format's largest usual superpage.
const fn top(format: Format) -> u8 {
    match format {
        Format::ArmV7 => 12,
        Format::ArmV8 | Format::X86_64 | Format::Sv39 | Format::Sv48 => 18,
    }
}

impl<'m, T: Translate> Kernel<'m, T> {
    /// A new process that has mapped nothing.
    ///
    /// # Errors
    /// [`KernelError`]: no frame for its root table.
    pub fn spawn(&mut self) -> Result<usize, KernelError> {
        let Config { format, sizes, .. } = *self.config;
        let space =
            AddressSpace::with_superpages(format, sizes, self.memory, self.tables, self.tables)
                .map_err(machine)?;
        let process = Process { space, mappings: BTreeMap::new() };
        let id = self.processes.iter().position(Option::is_none).unwrap_or_else(|| {
            self.processes.push(None);
            self.processes.len() - 1
        });
        self.processes[id] = Some(process);
        Ok(id)
    }

    /// Maps pages, which must not be mapped yet.
    ///
    /// # Errors
    /// [`KernelError::Overlap`], [`KernelError::NoProcess`].
    pub fn map(
        &mut self,
        id: usize,
        range: PageRange,
        writable: bool,
        executable: bool,
        backing: MapBacking,
    ) -> Result<(), KernelError> {
        let start = range.start.raw();
        let overlap = KernelError::Overlap { process: id, start: range.start, end: range.end() };
        let mappings = &self.process(id)?.mappings;
        let before = mappings.range(..range.end().raw()).next_back();
        if range.is_empty() || before.is_some_and(|(&at, m)| at + m.pages > start) {
            return Err(overlap);
        }
        let (object, index, copy) = match backing {
            MapBacking::Anonymous => (self.objects.make(None), start, false),
            // What is written stays private.
            MapBacking::File { file, first_page } => {
                let (object, index) = self.map_file(file, start, first_page, range.count)?;
                (object, index, true)
            }
        };
        let mapping = Mapping { pages: range.count, object, index, writable, executable, copy };
        self.process_mut(id)?.mappings.insert(start, mapping);
        Ok(())
    }

    /// Unmaps whatever is mapped in the range.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn unmap(&mut self, id: usize, range: PageRange) -> Result<(), KernelError> {
        self.split(id, range)?;
        let removed =
            self.with_pmap(id, |pmap, spaces| pmap.remove(spaces, space_id(id), range))?;
        self.spend(removed * self.config.costs.unmap_cycles);
        let mappings = &mut self.process_mut(id)?.mappings;
        let gone: Vec<u64> =
            mappings.range(range.start.raw()..range.end().raw()).map(|(&at, _)| at).collect();
        let gone: Vec<Mapping> = gone.iter().filter_map(|at| mappings.remove(at)).collect();
        for mapping in gone {
            self.objects.release(mapping.object, |run| self.frames.free(run)).map_err(machine)?;
        }
        Ok(())
    }

    /// Changes what the pages of the range permit.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn protect(
        &mut self,
        id: usize,
        range: PageRange,
        writable: bool,
        executable: bool,
    ) -> Result<(), KernelError> {
        self.split(id, range)?;
        let mappings = &mut self.process_mut(id)?.mappings;
        let mut widened = false;
        for (_, mapping) in mappings.range_mut(range.start.raw()..range.end().raw()) {
            widened |= executable && !mapping.executable;
            (mapping.writable, mapping.executable) = (writable, executable);
        }
        if widened {
            // Permissions that are added are faulted in.
            self.with_pmap(id, |pmap, spaces| pmap.remove(spaces, space_id(id), range))?;
        } else {
            let protection = KeptPermissions { writable, executable };
            self.with_pmap(id, |pmap, spaces| {
                pmap.protect(spaces, space_id(id), range, protection)
            })?;
        }
        Ok(())
    }

    /// Forgets what the range holds; the mapping stays, and the next access to
    /// each page faults anew. Pages that others share are forgotten here alone.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn discard(&mut self, id: usize, range: PageRange) -> Result<(), KernelError> {
        self.split(id, range)?;
        let within = |mapping: (&u64, &Mapping)| (*mapping.0, *mapping.1);
        let mappings = self.process(id)?.mappings.range(range.start.raw()..range.end().raw());
        let mappings: Vec<(u64, Mapping)> = mappings.map(within).collect();
        for (start, mapping) in mappings {
            let pages = PageRange::new(Vpn::new(start), mapping.pages);
            let Mapping { writable, executable, .. } = mapping;
            // A file's pages are read again, all else is new.
            if mapping.copy {
                self.with_pmap(id, |pmap, spaces| pmap.remove(spaces, space_id(id), pages))?;
            } else {
                self.unmap(id, pages)?;
                self.map(id, pages, writable, executable, MapBacking::Anonymous)?;
            }
        }
        Ok(())
    }

    /// Returns whether the page, if it is mapped, may be written and executed.
    ///
    /// # Errors
    /// [`KernelError::NoProcess`].
    pub fn permissions(&self, id: usize, page: Vpn) -> Result<Option<(bool, bool)>, KernelError> {
        let mapping = self.mapping_at(id, page)?;
        Ok(mapping.map(|(_, mapping)| (mapping.writable, mapping.executable)))
    }

    /// A child with the same memory, copied when either writes.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn fork(&mut self, id: usize) -> Result<usize, KernelError> {
        let child = self.spawn()?;
        let parent = self.process_mut(id)?;
        for mapping in parent.mappings.values_mut() {
            mapping.copy = true;
        }
        let mappings = parent.mappings.clone();
        for (&start, mapping) in &mappings {
            self.objects.share(mapping.object);
            let range = PageRange::new(Vpn::new(start), mapping.pages);
            let read_only = KeptPermissions { writable: false, executable: mapping.executable };
            self.with_pmap(id, |pmap, spaces| {
                pmap.protect(spaces, space_id(id), range, read_only)
            })?;
        }
        self.process_mut(child)?.mappings = mappings;
        self.spend(self.config.costs.fault_cycles);
        Ok(child)
    }

    /// Ends a process: everything it had goes back.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn exit(&mut self, id: usize) -> Result<(), KernelError> {
        let ranges: Vec<PageRange> = self
            .process(id)?
            .mappings
            .iter()
            .map(|(&at, mapping)| PageRange::new(Vpn::new(at), mapping.pages))
            .collect();
        for range in ranges {
            self.unmap(id, range)?;
        }
        self.note_tables();
        self.processors.stop(space_id(id));
        self.processes[id] = None;
        Ok(())
    }

    /// Lets all that follows happen on a processor, `processor` modulo their number.
    pub fn act_on(&mut self, processor: usize) {
        self.processors.choose(processor);
    }

    /// Makes an access of a process, with the faults it takes.
    ///
    /// # Errors
    /// [`KernelError`].
    pub fn access(&mut self, id: usize, access: &MemoryAccess) -> Result<(), KernelError> {
        if self.processors.running() != Some(space_id(id)) {
            self.switch(id)?;
        }
        if let Some(ticks) = self.config.ticks
            && self.processors.tick_is_due(ticks.period_cycles)
        {
            self.tick(id, ticks.pages)?;
        }
        let mut made = self.processors.core().access(self.memory, access);
        while let Err(exception) = made {
            self.handle(id, exception)?;
            made = self.processors.core().access(self.memory, &access.again());
        }
        Ok(())
    }

    /// Sets all counters but those of reservations and the pmap to 0.
    pub fn reset_stats(&mut self) {
        self.processors.reset_stats();
        self.stats = KernelStats::default();
    }

    /// Returns the cost so far. Waits for the data under way.
    ///
    /// # Errors
    /// [`KernelError`]: simulated time is used up.
    pub fn stats(&mut self) -> Result<KernelStats, KernelError> {
        self.note_tables();
        Ok(KernelStats {
            processor: self.processors.finish().map_err(machine)?,
            shootdowns: self.processors.shootdowns,
            pmap: self.pmap.statistics(),
            reservations: self.frames.counters(),
            reserved_frames: self.frames.reserved_frames(),
            ..self.stats
        })
    }

    /// Frames that are free or only reserved.
    pub fn free_frames(&self) -> u64 {
        self.frames.free_frames()
    }

    /// Walks the invariants of all parts.
    ///
    /// # Errors
    /// What does not hold.
    pub fn check(&mut self) -> Result<(), KernelError> {
        self.frames.check().map_err(machine)?;
        if self.objects.count_frames() + self.frames.free_frames() != self.frames.total_frames() {
            return Err(KernelError::Machine("a frame is lost".to_owned()));
        }
        let ids: Vec<SpaceId> = (0..self.processes.len())
            .filter(|&id| self.processes[id].is_some())
            .map(space_id)
            .collect();
        let mut reach = Reach { processes: &mut self.processes, invalidate: |_, _| {} };
        self.pmap.check(&mut reach, ids.into_iter()).map_err(machine)
    }

    /// Returns a processor and the page of `pages` for which its TLBs hold what the tables of the
    /// process that it runs do not.
    pub fn stale(&self, pages: PageRange) -> Option<(usize, Vpn)>
    where
        T: Clone,
    {
        self.processors.stale(pages, |space, page| {
            let process = self.processes.get(usize::try_from(space.0).ok()?)?.as_ref()?;
            process.space.translate(page).ok()
        })
    }

    fn process(&self, id: usize) -> Result<&Process<'m>, KernelError> {
        self.processes.get(id).and_then(Option::as_ref).ok_or(KernelError::NoProcess(id))
    }

    fn process_mut(&mut self, id: usize) -> Result<&mut Process<'m>, KernelError> {
        self.processes.get_mut(id).and_then(Option::as_mut).ok_or(KernelError::NoProcess(id))
    }

    /// Runs an operation of the pmap, with the flushes and the cleaning of descriptors that it owes.
    /// `id` only has to exist.
    pub(super) fn with_pmap<R>(
        &mut self,
        id: usize,
        operation: impl FnOnce(
            &mut Pmap<Vec<u64>>,
            &mut Reach<'_, 'm, &mut dyn FnMut(SpaceId, Flush)>,
        ) -> Result<R, PmapError>,
    ) -> Result<R, KernelError> {
        self.process(id)?;
        let before = descriptors(&self.pmap.statistics());
        let processors = &mut self.processors;
        let mut invalidate = |space: SpaceId, flush: Flush| processors.flush(space, flush.range);
        let mut reach = Reach {
            processes: &mut self.processes,
            invalidate: &mut invalidate as &mut dyn FnMut(SpaceId, Flush),
        };
        let done = operation(&mut self.pmap, &mut reach).map_err(machine)?;
        let cleaned = descriptors(&self.pmap.statistics()) - before;
        self.stats.cleaned += cleaned;
        self.spend(cleaned * self.config.costs.clean_cycles);
        Ok(done)
    }

    fn switch(&mut self, id: usize) -> Result<(), KernelError> {
        let root = self.process(id)?.space.regime().root;
        self.processors.run(space_id(id), root).map_err(machine)?;
        self.spend(self.config.costs.switch_cycles);
        self.stats.switches += 1;
        Ok(())
    }

    fn spend(&mut self, cycles: u64) {
        self.processors.core().spend(cycles);
        self.stats.kernel_cycles += cycles;
    }

    fn note_tables(&mut self) {
        let tables = self.tables.borrow();
        let used = tables.total_frames() - tables.free_frames();
        self.stats.table_frames_max = self.stats.table_frames_max.max(used);
    }

    fn handle(&mut self, id: usize, exception: Exception) -> Result<(), KernelError> {
        let refused = KernelError::NotPermitted {
            process: id,
            what: exception.operation.name(),
            addr: exception.addr.raw(),
        };
        match exception.cause {
            ExceptionCause::Fault(TranslationFault::Translation { .. })
            | ExceptionCause::Denied(Denied::Write | Denied::AccessFlag) => {}
            ExceptionCause::Fault(other) => return Err(machine(other)),
            ExceptionCause::Denied(_) => return Err(refused),
            ExceptionCause::Memory(other) => return Err(machine(other)),
        }
        self.stats.faults += 1;
        self.spend(self.config.costs.fault_cycles);
        let page = exception.addr.page();
        let Some((start, mapping)) = self.mapping_at(id, page)? else { return Err(refused) };
        let write = exception.operation == Operation::Write;
        if write && !mapping.writable {
            return Err(refused);
        }
        self.resolve(id, page, write, start, mapping)
    }

    /// The mapping around a page, and its first page.
    pub(super) fn mapping_at(
        &self,
        id: usize,
        page: Vpn,
    ) -> Result<Option<(u64, Mapping)>, KernelError> {
        let before = self.process(id)?.mappings.range(..=page.raw()).next_back();
        Ok(before.filter(|(at, m)| page.raw() - **at < m.pages).map(|(&at, &m)| (at, m)))
    }

    /// Gives the page a frame, and maps it as the access needs.
    fn resolve(
        &mut self,
        id: usize,
        page: Vpn,
        write: bool,
        start: u64,
        mut mapping: Mapping,
    ) -> Result<(), KernelError> {
        if write && mapping.copy {
            let shadow = self.objects.make(Some(mapping.object));
            mapping = Mapping { object: shadow, copy: false, ..mapping };
            self.process_mut(id)?.mappings.insert(start, mapping);
        }
        let index = mapping.index + (page.raw() - start);
        let site = Site { space: space_id(id), page };
        let found = self.objects.find(mapping.object, index);
        let own = found.filter(|&(owner, _)| owner == mapping.object).map(|(_, frame)| frame);
        let access = if write { PageAccess::Write } else { PageAccess::Read };
        let frame = match (own, found) {
            (Some(frame), _) => frame,
            (None, Some((_, frame))) if !write => frame,
            (None, found) => {
                let bounds = mapping.index..mapping.index + mapping.pages;
                let frame = self.populate(mapping.object, index, bounds)?;
                if found.is_some() {
                    // What is mapped there is the original.
                    let one = PageRange::new(page, 1);
                    self.with_pmap(id, |pmap, spaces| pmap.remove(spaces, site.space, one))?;
                    self.stats.copies += 1;
                    self.spend(self.config.costs.copy_cycles);
                } else {
                    self.spend(self.config.costs.zero_cycles);
                }
                frame
            }
        };
        let full = self.frames.full_order(frame);
        let mapped = self.process(id)?.space.translate(page).is_ok();
        if mapped {
            let faulted =
                self.with_pmap(id, |pmap, spaces| pmap.fault(spaces, site, access, full))?;
            if matches!(faulted, Faulted::Mapped { .. }) {
                return Ok(());
            }
        }
        let attributes = Attributes {
            writable: mapping.writable && !mapping.copy,
            executable: mapping.executable,
            ..Attributes::USER_DATA
        };
        let whole =
            own.is_some() && self.enter_whole(id, site, (start, &mapping), frame, attributes)?;
        if !whole {
            self.with_pmap(id, |pmap, spaces| {
                pmap.enter(spaces, site, frame, attributes, access, full)
            })?;
        }
        self.note_tables();
        Ok(())
    }

    /// Gives a page of an object a frame, of a reservation within `bounds` if it can.
    pub(super) fn populate(
        &mut self,
        object: u64,
        index: u64,
        bounds: std::ops::Range<u64>,
    ) -> Result<Pfn, KernelError> {
        let now = self.processors.core().now();
        let populated =
            self.frames.populate(object, index, bounds, now).map_err(|error| match error {
                PopulateError::OutOfFrames => KernelError::OutOfMemory("a page fault"),
                other => machine(other),
            })?;
        self.objects.put(object, index, populated.frame);
        Ok(populated.frame)
    }

    /// Cuts mappings at the borders of the range.
    fn split(&mut self, id: usize, range: PageRange) -> Result<(), KernelError> {
        for border in [range.start, range.end()] {
            let Some((start, mapping)) = self.mapping_at(id, border)? else { continue };
            let head = border.raw() - start;
            if head == 0 {
                continue;
            }
            self.objects.share(mapping.object);
            let mappings = &mut self.process_mut(id)?.mappings;
            mappings.insert(start, Mapping { pages: head, ..mapping });
            let tail =
                Mapping { pages: mapping.pages - head, index: mapping.index + head, ..mapping };
            mappings.insert(border.raw(), tail);
        }
        Ok(())
    }
}

/// A process's space has the process's number.
pub(super) fn space_id(id: usize) -> SpaceId {
    SpaceId(u32::try_from(id).unwrap_or(u32::MAX))
}

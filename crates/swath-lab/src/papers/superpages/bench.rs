//! The points of the study and the programs that measure them.
//!
//! Every point boots a [kernel](crate::papers::superpages::kernel) with empty memory on one core of
//! the plan's processor, lets a program touch each of its pages once, and then
//! counts the cost of its accesses.

use rand::RngExt;
use swath_arch::{BASE_PAGE_BYTES, Extent, Format, PageRange, VirtAddr};
use swath_frame::{BuddyConfig, FrameAllocator, HeadOfList};
use swath_hw::{Geometry, TlbForm};
use swath_trace::access::{AccessKind, MapBacking, MapProtection, TraceError, TraceEvent};
use swath_vm::Status;

use crate::papers::page_buddy::design::Design;
use crate::papers::page_buddy::setting;
use crate::papers::page_buddy::setting::ContiguityBits;
use crate::papers::page_buddy::translation;
use crate::papers::page_buddy::translation::{Accesses, Hardware};
use crate::papers::superpages::benchmark;
use crate::papers::superpages::benchmark::{
    Gups, MissLoop, ProgramError, RandomLatency, Sweep, Threads,
};
use crate::papers::superpages::config::Config;
use crate::papers::superpages::execute::{Cost, Fold};
use crate::papers::superpages::kernel::KernelError;
use crate::papers::superpages::machine::{Mode, SimulatedMachine, TABLE_FRAMES, source};
use crate::papers::superpages::plan::{Benchmark, BufferMib, SuperpagesPlan, WalksFrom};
use crate::papers::superpages::process;
use crate::papers::superpages::process::{Action, Step};
use crate::source::memory::{Random, Source, random};
use crate::source::real::{Compiler, Trace};
use crate::study::bounds::Forms;
use crate::study::plan::PlanError;

/// A point that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Point {
    /// A benchmark of the plan.
    Benchmark { index: usize, mode: usize, from: Option<WalksFrom> },
    /// One that copies, its destination some KiB further on.
    Copy { index: usize, mode: usize, shift_kib: u64 },
    /// The tree of processes.
    Forkbomb { mode: usize },
    /// Threads of one process.
    Threads { mode: usize },
    /// A recorded compiler.
    Compiler { compiler: Compiler, mode: usize },
    /// A recorded build, from files that lie aligned or a page off.
    Build { compiler: Compiler, mode: usize, files_aligned: bool },
    /// A recorded build, with so much work for each access.
    Work { compiler: Compiler, mode: usize, cycles: u32 },
    /// Memory that was touched is unmapped.
    Release { mode: usize },
    /// The loop of TLB misses, with the plan's TLB or with one that never misses.
    Misses { reading: usize, mode: usize, ideal: bool },
    /// First writes to superpages that were read.
    FirstWrites { flags: Flags },
    /// Random updates on free blocks of one size, on a design of coalescing or
    /// with a mode's superpages.
    Blocks { block_frames: u64, design: usize },
    /// A table of which every fourth page is touched, with a mode's superpages on
    /// free blocks of one size.
    Sparse { block_frames: u64, mode: usize },
}

/// The place of the accessed and dirty flags.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flags {
    InTable,
    InReverseMap,
}

impl Flags {
    pub(crate) const ALL: [Self; 2] = [Self::InTable, Self::InReverseMap];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InTable => "flags in the table",
            Self::InReverseMap => "flags in the PV entries",
        }
    }

    const fn status(self) -> Status {
        match self {
            Self::InTable => Status::InTable,
            Self::InReverseMap => Status::InReverseMap,
        }
    }
}

/// Readings of the talk's machine: what a walk's reads may find, and how many
/// loads may be missing at once.
pub(crate) const READINGS: [(&str, WalksFrom, u32); 5] = [
    ("walks from L1", WalksFrom::L1, 4),
    ("from L2", WalksFrom::L2, 4),
    ("from L2, blocking", WalksFrom::L2, 1),
    ("from memory", WalksFrom::Memory, 4),
    ("from memory, blocking", WalksFrom::Memory, 1),
];

/// Cycles of work for each access of a recorded build.
pub(crate) const WORK_CYCLES: [u32; 4] = [0, 1, 2, 3];

/// Distances by which a copy's destination lies further on: on the talk's machine half a row of a
/// bank, each of the banks, and the first bank again.
pub(crate) const SHIFTS_KIB: [u64; 10] = [0, 4, 8, 16, 24, 32, 40, 48, 56, 64];

/// The means by which points are measured.
pub(crate) struct Bench<'a> {
    pub(crate) plan: &'a SuperpagesPlan,
    pub(crate) machine: &'a SimulatedMachine,
    pub(crate) modes: &'a [Mode],
    pub(crate) coalescing: &'a [Design],
    pub(crate) quick: bool,
}

/// A point that could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    Blocks(String),
}

/// The address of the programs' data, at 256 MiB; a copy's other half lies 512 MiB on.
const BASE: VirtAddr = VirtAddr::new(0x1000_0000);
const OTHER: VirtAddr = VirtAddr::new(0x3000_0000);

/// The seed of a repeat: the plan's for the first.
fn seed(plan: u64, repeat: u64) -> u64 {
    // GUPS starts 2^32 steps further for each seed, so that half of the bits are left.
    if repeat == 0 { plan } else { u64::from(random(plan, repeat).random::<u32>()) }
}

impl Bench<'_> {
    /// Measures a point with the random numbers of a repeat.
    pub(crate) fn measure(&self, point: Point, repeat: u64) -> Result<Cost, BenchError> {
        let Self { plan, machine, modes, .. } = *self;
        let on = |mode: usize| machine.kernel(&modes[mode], Status::InTable);
        let seed = seed(plan.about.seed, repeat);
        match point {
            Point::Benchmark { index, mode, from } => {
                let mut machine = machine.clone();
                if let Some(from) = from {
                    machine.core.walks_from = source(from);
                }
                let bench = Bench { machine: &machine, ..*self };
                bench.benchmark(&on(mode), &plan.benchmarks[index], seed, 0)
            }
            Point::Copy { index, mode, shift_kib } => {
                self.benchmark(&on(mode), &plan.benchmarks[index], seed, shift_kib)
            }
            Point::Release { mode } => self.run(&on(mode), release()),
            Point::Forkbomb { mode } => {
                let bomb = &plan.forkbomb;
                let steps = benchmark::Forkbomb {
                    data: BASE,
                    data_pages: bomb.heap_kib.get() / 4,
                    written_pages: bomb.written_pages.get(),
                    children: bomb.children.small(),
                    depth: bomb.depth.of(self.quick).small(),
                    write_cycles: plan.loop_cycles.small(),
                };
                self.run(&Config { processors: machine.processors, ..on(mode) }, steps.steps()?)
            }
            Point::Threads { mode } => {
                let threads = Threads {
                    start: BASE,
                    len_bytes: plan.threads.mib.get() << 20,
                    threads: plan.threads.threads.small(),
                    superpage_pages: self.superpage_bytes() / BASE_PAGE_BYTES,
                };
                self.run(&Config { processors: machine.processors, ..on(mode) }, threads.steps()?)
            }
            Point::Compiler { compiler, mode } => {
                let cycles = plan.recorded_cycles.small();
                let steps = process::replay(Trace::compiler(compiler).open()?, cycles);
                self.recorded(&on(mode), steps)
            }
            Point::Build { compiler, mode, files_aligned } => {
                let cycles = plan.recorded_cycles.small();
                self.build(&Config { files_aligned, ..on(mode) }, compiler, cycles)
            }
            Point::Work { compiler, mode, cycles } => self.build(&on(mode), compiler, cycles),
            Point::Misses { reading, mode, ideal } => self.misses(reading, &on(mode), ideal),
            Point::FirstWrites { flags } => {
                let last = &modes[modes.len() - 1];
                self.run(&machine.kernel(last, flags.status()), first_writes())
            }
            Point::Blocks { block_frames, design } => self.on_blocks(block_frames, design, seed),
            Point::Sparse { block_frames, mode } => {
                let config = self.fragmented(block_frames, &modes[mode], seed)?;
                self.run(&config, sparse(plan.blocks.table_mib.get() << 8))
            }
        }
    }

    /// A recorded build, with `cycles` of work for each access.
    fn build(&self, on: &Config, compiler: Compiler, cycles: u32) -> Result<Cost, BenchError> {
        let traces: Result<Vec<_>, TraceError> =
            Trace::build(compiler).iter().map(Trace::open).collect();
        self.recorded(on, process::replay_in_turn(traces?, cycles))
    }

    /// A recorded program, its addresses moved into the format's space.
    fn recorded(
        &self,
        on: &Config,
        steps: impl Iterator<Item = Result<Step, TraceError>>,
    ) -> Result<Cost, BenchError> {
        let mut fold = Fold::new(self.machine.preset.format);
        let steps = steps.flat_map(|step| {
            let step = step.map_err(|error| KernelError::Machine(error.to_string()));
            match step.and_then(|step| fold.step(step)) {
                Ok(steps) => steps.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            }
        });
        Ok(self.machine.run(on, &self.machine.translation, steps)?)
    }

    fn run(&self, on: &Config, steps: impl Iterator<Item = Step>) -> Result<Cost, BenchError> {
        let steps = steps.map(Ok::<_, KernelError>);
        Ok(self.machine.run(on, &self.machine.translation, steps)?)
    }

    /// A benchmark; the destination of one that copies lies `shift_kib` further on.
    fn benchmark(
        &self,
        on: &Config,
        benchmark: &Benchmark,
        seed: u64,
        shift_kib: u64,
    ) -> Result<Cost, BenchError> {
        let cycles = self.plan.loop_cycles.small();
        let bytes = |mib: &Forms<BufferMib>| mib.of(self.quick).get() << 20;
        let sweep = |mib, write: bool, file: Option<u64>| Sweep {
            start: BASE,
            len_bytes: bytes(mib),
            word_bytes: 4,
            stride_bytes: 4,
            write,
            file,
            remap: false,
            passes: 1,
            word_cycles: cycles,
        };
        let copy = |mib, word_bytes: u16, block_bytes: u64| benchmark::Copy {
            source: BASE,
            destination: OTHER + (shift_kib << 10),
            len_bytes: bytes(mib),
            word_bytes,
            block_bytes,
            passes: 1,
            block_cycles: cycles,
        };
        match benchmark {
            Benchmark::Gups { table_mib, updates } => {
                let table_bytes = (table_mib.get() << 20).next_power_of_two();
                let (updates, seed) = (updates.of(self.quick).get(), seed << 32);
                let gups = Gups { table: BASE, table_bytes, updates, seed, update_cycles: cycles };
                self.run(on, gups.steps()?)
            }
            Benchmark::MmapReread { mib } => self.run(on, sweep(mib, false, Some(0)).steps()?),
            Benchmark::MemRead { mib } => self.run(on, sweep(mib, false, None).steps()?),
            Benchmark::MemWrite { mib } => self.run(on, sweep(mib, true, None).steps()?),
            Benchmark::BcopyLibc { mib } => self.run(on, copy(mib, 8, 32).steps()?),
            Benchmark::BcopyHand { mib } => self.run(on, copy(mib, 4, 4).steps()?),
            Benchmark::RandomLatency { mib, reads } => {
                let ring = RandomLatency {
                    start: BASE,
                    len_bytes: mib.of(self.quick).get() << 20,
                    stride_bytes: 64,
                    loads: reads.of(self.quick).get(),
                    seed,
                    pointer_bytes: 4,
                };
                self.run(on, ring.steps()?)
            }
        }
    }

    /// One read in each base page of twice what the TLB reaches with
    /// superpages. `reading` 0 is the plan's, the others are [`READINGS`].
    fn misses(&self, reading: usize, on: &Config, ideal: bool) -> Result<Cost, BenchError> {
        let superpage_bytes = self.superpage_bytes();
        // As much as memory holds.
        let most = self.machine.data_frames * 4096 / 3 / superpage_bytes;
        let misses = MissLoop {
            start: BASE,
            tlb_entries: self.machine.translation.l2.entries().min(most),
            superpage_bytes,
            touch_first: true,
            skew_bytes: 64,
            passes: 1,
            turn_cycles: self.plan.loop_cycles.small(),
        };
        let mut machine = self.machine.clone();
        if let Some((_, from, outstanding_max)) = reading.checked_sub(1).map(|i| READINGS[i]) {
            machine.core.walks_from = source(from);
            machine.core.outstanding_max = outstanding_max;
        }
        if ideal {
            let pages = misses.pages().unwrap_or(1).next_power_of_two();
            let all = u32::try_from(pages).unwrap_or(Geometry::ENTRIES_MAX);
            machine.translation.l1 = TlbForm::from(Geometry::fully_associative(all));
            machine.translation.l2 = machine.translation.l1;
        }
        let steps = misses.steps()?.map(Ok::<_, KernelError>);
        Ok(machine.run(on, &machine.translation, steps)?)
    }

    /// Bytes of the format's whole superpage.
    fn superpage_bytes(&self) -> u64 {
        if self.machine.preset.format == Format::ArmV7 { 1 << 20 } else { 2 << 20 }
    }

    /// Free blocks of one size at random places, in numbers for the plan's table.
    fn blocks(&self, block_frames: u64, seed: u64) -> (Source<'static>, Random) {
        let blocks = &self.plan.blocks;
        let pages = blocks.table_mib.get() << 8;
        let free = (pages as f64 * blocks.free_per_requested).ceil() as u64;
        let source = Source::blocks(block_frames, free, blocks.free_share.get());
        (source, random(seed, block_frames))
    }

    /// A kernel on such memory.
    fn fragmented(&self, block_frames: u64, mode: &Mode, seed: u64) -> Result<Config, BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Blocks(error.to_string());
        let (source, mut random) = self.blocks(block_frames, seed);
        let orders = page_buddy(self.machine.preset.format).map_err(|error| failed(&error))?;
        let prepared =
            source.prepare::<HeadOfList>(orders, &mut random).map_err(|error| failed(&error))?;
        let mut data = Vec::new();
        prepared.for_each_free(&mut |block| {
            data.push(Extent::new(block.start + TABLE_FRAMES, block.count));
        });
        data.sort_unstable_by_key(|block| block.start);
        Ok(Config { data, ..self.machine.kernel(mode, Status::InTable) })
    }

    fn on_blocks(&self, block_frames: u64, design: usize, seed: u64) -> Result<Cost, BenchError> {
        let Self { plan, machine, modes, coalescing, .. } = *self;
        let blocks = &plan.blocks;
        let format = machine.preset.format;
        let failed = |error: &dyn std::fmt::Display| BenchError::Blocks(error.to_string());
        let gups = Gups {
            table: BASE,
            table_bytes: blocks.table_mib.get() << 20,
            updates: blocks.updates.get(),
            seed: seed << 32,
            update_cycles: 0,
        };
        let tlb = u32::try_from(machine.translation.l2.entries()).unwrap_or(Geometry::ENTRIES_MAX);
        let (source, mut random) = self.blocks(block_frames, seed);
        if let Some(design) = coalescing.get(design) {
            let listed = gups.steps()?.skip_while(|step| step.action != Action::BEGIN);
            let listed = listed.filter_map(|step| match step.action {
                Action::Access { addr, .. } => Some(addr),
                _ => None,
            });
            let program = translation::Program {
                requests: vec![PageRange::new(BASE.page(), blocks.table_mib.get() << 8)],
                masters: vec![Accesses::Listed(listed.collect())],
            };
            let one = Hardware::new(format, tlb, ContiguityBits::Ideal(16));
            let measured = translation::measure(&one, design, &source, &program, &mut random)
                .map_err(|error| failed(&error))?;
            let walks = measured.accesses - measured.hits;
            return Ok(Cost { accesses: measured.accesses, walks, ..Cost::default() });
        }
        let config = self.fragmented(block_frames, &modes[design - coalescing.len() + 1], seed)?;
        // One TLB, as the other designs have.
        let mut translation = machine.translation;
        translation.l1 = Geometry::fully_associative(1).into();
        translation.l2 = Geometry::fully_associative(tlb).into();
        let steps = gups.steps()?.map(Ok::<_, KernelError>);
        Ok(machine.run(&config, &translation, steps)?)
    }
}

/// 64 megabytes are written, then unmapped.
fn release() -> impl Iterator<Item = Step> {
    const PAGES: u64 = (64 << 20) / BASE_PAGE_BYTES;
    let pages = PageRange::new(BASE.page(), PAGES);
    let unmap = Action::Memory(TraceEvent::Unmap { pages });
    std::iter::once(map(pages))
        .chain((0..PAGES).map(|page| word(page, AccessKind::Write)))
        .chain([Action::BEGIN, unmap, Action::End, Action::Exit])
        .map(|action| Step { process: 0, action })
}

fn map(pages: PageRange) -> Action {
    Action::Memory(TraceEvent::Map {
        pages,
        protection: MapProtection::READ_WRITE,
        backing: MapBacking::Anonymous,
        shared: false,
    })
}

/// An access to the first word of a page of the buffer.
fn word(page: u64, kind: AccessKind) -> Action {
    Action::Access {
        addr: BASE + page * BASE_PAGE_BYTES,
        len_bytes: 4,
        kind,
        dependent: false,
        compute_cycles: 0,
    }
}

/// Four megabytes are read, and so promoted read-only; then each page is
/// written for the first time, in an order that goes everywhere, and each
/// write but the last of a superpage tries to promote it in vain.
fn first_writes() -> impl Iterator<Item = Step> {
    const PAGES: u64 = 1024;
    // An odd stride meets each page once.
    std::iter::once(map(PageRange::new(BASE.page(), PAGES)))
        .chain((0..PAGES).map(|page| word(page, AccessKind::Read)))
        .chain([Action::BEGIN])
        .chain((0..PAGES).map(|i| word(i * 389 % PAGES, AccessKind::Write)))
        .chain([Action::End, Action::Exit])
        .map(|action| Step { process: 0, action })
}

/// Every fourth page of a table is written.
fn sparse(pages: u64) -> impl Iterator<Item = Step> {
    std::iter::once(map(PageRange::new(BASE.page(), pages)))
        .chain([Action::BEGIN])
        .chain((0..pages).step_by(4).map(|page| word(page, AccessKind::Write)))
        .chain([Action::End, Action::Exit])
        .map(|action| Step { process: 0, action })
}

/// The page buddy of coalescing in this format.
pub(crate) fn page_buddy(format: Format) -> Result<BuddyConfig, PlanError> {
    let top = match format {
        Format::ArmV7 => 8,
        Format::ArmV8 | Format::X86_64 | Format::Sv39 | Format::Sv48 => 9,
    };
    setting::pbs(format.granularity().k() as u8, top)
}

//! Superpages by reservation: the talk's benchmarks in simulated time.
//!
//! Every point boots a [kernel](crate::papers::superpages::kernel) with empty memory on one core of
//! the plan's processor, lets a program touch each of its pages once, and then
//! counts what its accesses cost. The modes differ in the superpage sizes that
//! are on.

use swath_arch::{BASE_PAGE_BYTES, Extent, Format, Order, PageRange, Pfn, Regime, VirtAddr};
use swath_frame::{FrameAllocator, HeadOfList, ReservationLevels};
use swath_hw::processor::presets::{ARMADA_XP, CORTEX_A53, ProcessorPreset, SKYLAKE};
use swath_hw::{Geometry, Hierarchy, HierarchyConfig, ProcessorConfig, TlbForm};
use swath_vm::{Sizes, Status};

use crate::papers::page_buddy::setting::ContiguityBits;
use crate::papers::page_buddy::translation::{
    Accesses, Design, Hardware, {self},
};
use crate::papers::superpages::benchmark::{
    Gups, MissLoop, ProgramError, RandomLatency, Sweep, {self},
};
use crate::papers::superpages::execute::{Cost, Fold, execute};
use crate::papers::superpages::figures::Found;
use crate::papers::superpages::kernel::{Config, Costs, KernelError, boot};
use crate::papers::superpages::plan::{Benchmark, ProcessorName, SuperpagesPlan, WalksFrom};
use crate::papers::superpages::process::{
    Action, Step, {self},
};
use crate::papers::superpages::real;
use crate::papers::superpages::real::Simulated;
use crate::source::memory::{Random, Source, random};
use crate::source::real::Trace;
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};
use swath_trace::access::{AccessKind, MapBacking, MapProtection, TraceError, TraceEvent};

/// Which superpages are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) sizes: Sizes,
    pub(crate) levels: ReservationLevels,
}

/// Off, on with the size of a whole table, and on with the intermediate size,
/// which is then reserved where the larger one cannot be.
pub(crate) fn modes(format: Format) -> Vec<Mode> {
    let (whole, levels, name) = match format {
        Format::ArmV7 => (Order::known(8), ReservationLevels::ARMV7, "1 MiB"),
        Format::ArmV8 => (Order::known(9), ReservationLevels::ARMV8, "2 MiB"),
        Format::X86_64 => (Order::known(9), ReservationLevels::X86_64, "2 MiB"),
    };
    let on = Sizes::NONE.with(whole);
    let mut modes =
        vec![Mode { name: "4 KiB", sizes: Sizes::NONE, levels }, Mode { name, sizes: on, levels }];
    let middle = Order::known(4);
    if Sizes::all(format).contains(middle)
        && let Ok(levels) = ReservationLevels::new(&[middle, whole], &[])
    {
        let name = if format == Format::ArmV7 { "64 KiB, 1 MiB" } else { "64 KiB, 2 MiB" };
        modes.push(Mode { name, sizes: on.with(middle), levels });
    }
    modes
}

/// The plan's processor.
pub(crate) struct Hardwares {
    pub(crate) preset: &'static ProcessorPreset,
    pub(crate) core: ProcessorConfig,
    pub(crate) translation: HierarchyConfig,
    pub(crate) costs: Costs,
    pub(crate) data_frames: u64,
}

/// Frames for tables: 16 MiB.
pub(crate) const TABLE_FRAMES: u64 = 4096;

impl Hardwares {
    pub(crate) fn of(plan: &SuperpagesPlan) -> Self {
        let machine = &plan.machine;
        let preset = match machine.processor {
            ProcessorName::ArmadaXp => &ARMADA_XP,
            ProcessorName::CortexA53 => &CORTEX_A53,
            ProcessorName::Skylake => &SKYLAKE,
        };
        let mut core = preset.processor();
        let mut translation = preset.translation;
        if let Some(entries) = machine.tlb_entries {
            translation.l2 = Geometry::fully_associative(entries).into();
        }
        if let Some(entries) = machine.micro_tlb_entries {
            translation.l1 = Geometry::fully_associative(entries).into();
        }
        core.l1.len_bytes = machine.l1_kib.map_or(core.l1.len_bytes, |kib| kib << 10);
        core.l2.len_bytes = machine.l2_kib.map_or(core.l2.len_bytes, |kib| kib << 10);
        core.l1_cycles = machine.l1_cycles.unwrap_or(core.l1_cycles);
        core.l2_cycles = machine.l2_cycles.unwrap_or(core.l2_cycles);
        core.memory_cycles = machine.memory_cycles.unwrap_or(core.memory_cycles);
        core.tlb_miss_cycles = machine.tlb_miss_cycles.unwrap_or(core.tlb_miss_cycles);
        core.outstanding_max = machine.outstanding_max.unwrap_or(core.outstanding_max);
        if let Some(from) = machine.walks_from {
            core.walks_from = source(from);
        }
        Self {
            preset,
            core,
            translation,
            costs: Costs {
                fault_cycles: machine.fault_cycles,
                zero_cycles: machine.zero_cycles,
                copy_cycles: machine.copy_cycles,
                switch_cycles: machine.switch_cycles,
                unmap_cycles: machine.unmap_cycles,
            },
            data_frames: machine.memory_mib << 8,
        }
    }

    /// A kernel on this machine, with memory that is free as a whole.
    pub(crate) fn kernel(&self, mode: &Mode, status: Status) -> Config {
        Config {
            format: self.preset.format,
            sizes: mode.sizes,
            levels: mode.levels,
            status,
            table_frames: TABLE_FRAMES,
            data: vec![Extent::new(Pfn::new(TABLE_FRAMES), self.data_frames)],
            reverse_entries: u32::try_from(2 * self.data_frames).unwrap_or(u32::MAX),
            costs: self.costs,
        }
    }

    /// Boots it and runs a program there. `translation` stands for the plan's,
    /// where it has to be another.
    fn run<E: std::fmt::Display>(
        &self,
        config: &Config,
        translation: &HierarchyConfig,
        steps: impl Iterator<Item = Result<Step, E>>,
    ) -> Result<Cost, KernelError> {
        let make = |regime: Regime| {
            Hierarchy::new(regime, translation)
                .map_err(|error| KernelError::Machine(error.to_string()))
        };
        let line_bytes = self.core.l1.line_bytes.into();
        boot(config, &self.core, make, |kernel| execute(kernel, steps, line_bytes))
    }

    /// Seconds of simulated time.
    pub(crate) fn seconds(&self, cycles: u64) -> f64 {
        cycles as f64 / (f64::from(self.preset.core_clock_mhz) * 1e6)
    }
}

/// What is measured at a point.
#[derive(Clone, Copy)]
enum Point {
    /// A benchmark of the plan.
    Benchmark { index: usize, mode: usize, from: Option<WalksFrom> },
    /// The tree of processes.
    Forkbomb { mode: usize },
    /// The recorded compiler.
    Compiler { mode: usize },
    /// Memory that was touched is unmapped.
    Release { mode: usize },
    /// The loop of TLB misses, with the plan's TLB or with one that never misses.
    Misses { reading: usize, mode: usize, ideal: bool },
    /// First writes to superpages that were read.
    FirstWrites { status: Status },
    /// Random updates on free blocks of one size, on a design of coalescing or
    /// with a mode's superpages.
    Blocks { block_frames: u64, design: usize },
    /// A table of which every fourth page is touched, with a mode's superpages on
    /// free blocks of one size.
    Sparse { block_frames: u64, mode: usize },
}

/// What a walk's reads may find, and how many loads may be missing at once.
pub(crate) const READINGS: [(&str, WalksFrom, u32); 5] = [
    ("walks from L1", WalksFrom::L1, 4),
    ("from L2", WalksFrom::L2, 4),
    ("from L2, blocking", WalksFrom::L2, 1),
    ("from memory", WalksFrom::Memory, 4),
    ("from memory, blocking", WalksFrom::Memory, 1),
];

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &SuperpagesPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let hardware = Hardwares::of(plan);
    let modes = modes(hardware.preset.format);
    let sizes = if run.quick { &plan.blocks.block_frames_quick } else { &plan.blocks.block_frames };
    let coalescing =
        Design::all(crate::papers::page_buddy::setting::bbs(9)?, pbs(hardware.preset.format)?);
    let coalescing = &coalescing[..coalescing.len() - 1];
    let bench = Bench { plan, hardware: &hardware, modes: &modes, coalescing, quick: run.quick };

    let benchmarks = || 0..plan.benchmarks.len();
    let mut points = Vec::new();
    for mode in 0..modes.len() {
        points.extend(benchmarks().map(|index| Point::Benchmark { index, mode, from: None }));
        let (forkbomb, compiler) = (Point::Forkbomb { mode }, Point::Compiler { mode });
        points.extend([forkbomb, compiler, Point::Release { mode }]);
        for reading in 0..=READINGS.len() {
            points.extend([false, true].map(|ideal| Point::Misses { reading, mode, ideal }));
        }
    }
    let per_mode = points.len() / modes.len();
    let statuses = points.len();
    points.extend(
        [Status::InTable, Status::InReverseMap].map(|status| Point::FirstWrites { status }),
    );
    let from_l2 = points.len();
    for mode in 0..2 {
        let from = Some(WalksFrom::L2);
        points.extend(benchmarks().map(|index| Point::Benchmark { index, mode, from }));
    }
    let blocks = points.len();
    for &block_frames in sizes {
        let designs = 0..coalescing.len() + modes.len() - 1;
        points.extend(designs.map(|design| Point::Blocks { block_frames, design }));
    }
    let sparse = points.len();
    for &block_frames in sizes {
        points.extend((1..modes.len()).map(|mode| Point::Sparse { block_frames, mode }));
    }
    let measured = run.points(about, &points, |&point| {
        bench.measure(point).map_err(|error| StudyError::Machine {
            study: about.study.clone(),
            what: error.to_string(),
        })
    })?;
    let found = Found {
        bench: &bench,
        measured: &measured,
        per_mode,
        statuses,
        from_l2,
        blocks,
        sparse,
        sizes,
    };
    let mut result = run::result(about, plan, run, found.finding());
    found.programs(&mut result);
    found.lmbench(&mut result);
    found.compiler(&mut result);
    found.misses(&mut result);
    found.status(&mut result);
    found.fragmented(&mut result);
    result.notes.push(format!(
        "One core of {}, with the second cache and the memory to itself. Its numbers:",
        hardware.preset.name
    ));
    result.notes.extend(hardware.preset.sources.iter().map(|source| {
        let kind = if source.assumed { "assumed, after" } else { "from" };
        format!("{}: {kind} {}.", source.what, source.from)
    }));
    result.notes.push(
        "Every page is touched before the count begins, so what is counted has no first faults; \
         forkbomb and the compiler count theirs."
            .to_owned(),
    );
    let host = run.real.measure.then(|| {
        let simulated = Simulated {
            name: format!("{}, {}", hardware.preset.name, modes[1].name),
            gups_ratio: found.gups_ratio(),
            release_ratio: found.release_ratio(),
        };
        real::run(&plan.real, run.quick, about.seed, &about.study, &simulated)
    });
    let host = host.transpose().map_err(|error| StudyError::Machine {
        study: about.study.clone(),
        what: error.to_string(),
    })?;
    Ok(Outcome { result, host })
}

/// What the points are measured with.
pub(crate) struct Bench<'a> {
    pub(crate) plan: &'a SuperpagesPlan,
    pub(crate) hardware: &'a Hardwares,
    pub(crate) modes: &'a [Mode],
    pub(crate) coalescing: &'a [Design],
    quick: bool,
}

/// A point that could not be measured.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("{0}")]
    Blocks(String),
}

/// Where programs have their data: at 256 MiB, and a copy's other half 512 MiB on.
const BASE: VirtAddr = VirtAddr::new(0x1000_0000);
const OTHER: VirtAddr = VirtAddr::new(0x3000_0000);

impl Bench<'_> {
    fn measure(&self, point: Point) -> Result<Cost, BenchError> {
        let Self { plan, hardware, modes, .. } = *self;
        let on = |mode: usize| hardware.kernel(&modes[mode], Status::InTable);
        match point {
            Point::Benchmark { index, mode, from } => {
                let mut hardware = Hardwares { core: hardware.core.clone(), ..*hardware };
                if let Some(from) = from {
                    hardware.core.walks_from = source(from);
                }
                let bench = Bench { hardware: &hardware, ..*self };
                bench.benchmark(&on(mode), &plan.benchmarks[index])
            }
            Point::Release { mode } => self.run(&on(mode), release()),
            Point::Forkbomb { mode } => {
                let bomb = &plan.forkbomb;
                let steps = benchmark::Forkbomb {
                    data: BASE,
                    data_pages: bomb.heap_kib / 4,
                    written_pages: bomb.written_pages,
                    children: bomb.children,
                    depth: if self.quick { bomb.depth_quick } else { bomb.depth },
                    write_cycles: plan.loop_cycles,
                };
                self.run(&on(mode), steps.steps()?)
            }
            Point::Compiler { mode } => {
                let mut fold = Fold::new(hardware.preset.format);
                let steps = process::replay(Trace::compiler().open()?, plan.recorded_cycles);
                let steps = steps.flat_map(|step| {
                    let step = step.map_err(|error| KernelError::Machine(error.to_string()));
                    match step.and_then(|step| fold.step(step)) {
                        Ok(steps) => steps.into_iter().map(Ok).collect::<Vec<_>>(),
                        Err(error) => vec![Err(error)],
                    }
                });
                Ok(hardware.run(&on(mode), &hardware.translation, steps)?)
            }
            Point::Misses { reading, mode, ideal } => self.misses(reading, &on(mode), ideal),
            Point::FirstWrites { status } => {
                let last = &modes[modes.len() - 1];
                self.run(&hardware.kernel(last, status), first_writes())
            }
            Point::Blocks { block_frames, design } => self.on_blocks(block_frames, design),
            Point::Sparse { block_frames, mode } => {
                let config = self.fragmented(block_frames, &modes[mode])?;
                self.run(&config, sparse(plan.blocks.table_mib << 8))
            }
        }
    }

    fn run(&self, on: &Config, steps: impl Iterator<Item = Step>) -> Result<Cost, BenchError> {
        let steps = steps.map(Ok::<_, KernelError>);
        Ok(self.hardware.run(on, &self.hardware.translation, steps)?)
    }

    fn benchmark(&self, on: &Config, benchmark: &Benchmark) -> Result<Cost, BenchError> {
        let plan = self.plan;
        let share = if self.quick { plan.quick_divisor } else { 1 };
        let cycles = plan.loop_cycles;
        let bytes = |mib: u64| ((mib << 20) / share).next_multiple_of(4096);
        let sweep = |mib: u64, write: bool, file: Option<u64>| Sweep {
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
        let copy = |mib: u64, word_bytes: u16, block_bytes: u64| benchmark::Copy {
            source: BASE,
            destination: OTHER,
            len_bytes: bytes(mib),
            word_bytes,
            block_bytes,
            passes: 1,
            block_cycles: cycles,
        };
        match *benchmark {
            Benchmark::Gups { table_mib, updates } => {
                let table_bytes = (table_mib << 20).next_power_of_two();
                let (updates, seed) = (updates / share, plan.about.seed << 32);
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
                    len_bytes: mib << 20,
                    stride_bytes: 64,
                    loads: reads / share,
                    seed: plan.about.seed,
                    pointer_bytes: 4,
                };
                self.run(on, ring.steps()?)
            }
        }
    }

    /// One read in each base page of twice what the TLB reaches with
    /// superpages. `reading` 0 is the plan's, the others are [`READINGS`].
    fn misses(&self, reading: usize, on: &Config, ideal: bool) -> Result<Cost, BenchError> {
        let armv7 = self.hardware.preset.format == Format::ArmV7;
        let superpage_bytes = if armv7 { 1 << 20 } else { 2 << 20 };
        // As much as memory holds.
        let most = self.hardware.data_frames * 4096 / 3 / superpage_bytes;
        let misses = MissLoop {
            start: BASE,
            tlb_entries: self.hardware.translation.l2.entries().min(most),
            superpage_bytes,
            touch_first: true,
            skew_bytes: 64,
            passes: 1,
            turn_cycles: self.plan.loop_cycles,
        };
        let mut hardware = Hardwares { core: self.hardware.core.clone(), ..*self.hardware };
        if let Some((_, from, outstanding_max)) = reading.checked_sub(1).map(|i| READINGS[i]) {
            hardware.core.walks_from = source(from);
            hardware.core.outstanding_max = outstanding_max;
        }
        if ideal {
            let pages = misses.pages().unwrap_or(1).next_power_of_two();
            let all = u32::try_from(pages).unwrap_or(Geometry::ENTRIES_MAX);
            hardware.translation.l1 = TlbForm::from(Geometry::fully_associative(all));
            hardware.translation.l2 = hardware.translation.l1;
        }
        let steps = misses.steps()?.map(Ok::<_, KernelError>);
        Ok(hardware.run(on, &hardware.translation, steps)?)
    }

    /// Free blocks of one size at random places, in numbers for the plan's table.
    fn blocks(&self, block_frames: u64) -> (Source<'static>, Random) {
        let blocks = &self.plan.blocks;
        let pages = blocks.table_mib << 8;
        let free = (pages as f64 * blocks.free_per_requested).ceil() as u64;
        let source = Source::blocks(block_frames, free, blocks.free_share);
        (source, random(self.plan.about.seed, block_frames))
    }

    /// A kernel on such memory.
    fn fragmented(&self, block_frames: u64, mode: &Mode) -> Result<Config, BenchError> {
        let failed = |error: &dyn std::fmt::Display| BenchError::Blocks(error.to_string());
        let (source, mut random) = self.blocks(block_frames);
        let orders = pbs(self.hardware.preset.format).map_err(|error| failed(&error))?;
        let prepared =
            source.prepare::<HeadOfList>(orders, &mut random).map_err(|error| failed(&error))?;
        let mut data = Vec::new();
        prepared.for_each_free(&mut |block| {
            data.push(Extent::new(Pfn::new(block.start.raw() + TABLE_FRAMES), block.count));
        });
        data.sort_unstable_by_key(|block| block.start);
        Ok(Config { data, ..self.hardware.kernel(mode, Status::InTable) })
    }

    fn on_blocks(&self, block_frames: u64, design: usize) -> Result<Cost, BenchError> {
        let Self { plan, hardware, modes, coalescing, .. } = *self;
        let blocks = &plan.blocks;
        let format = hardware.preset.format;
        let failed = |error: &dyn std::fmt::Display| BenchError::Blocks(error.to_string());
        let gups = Gups {
            table: BASE,
            table_bytes: blocks.table_mib << 20,
            updates: blocks.updates,
            seed: plan.about.seed << 32,
            update_cycles: 0,
        };
        let tlb = u32::try_from(hardware.translation.l2.entries()).unwrap_or(Geometry::ENTRIES_MAX);
        let (source, mut random) = self.blocks(block_frames);
        if let Some(design) = coalescing.get(design) {
            let listed = gups.steps()?.skip_while(|step| step.action != Action::Begin);
            let listed = listed.filter_map(|step| match step.action {
                Action::Access { addr, .. } => Some(addr),
                _ => None,
            });
            let program = translation::Program {
                requests: vec![PageRange::new(BASE.page(), blocks.table_mib << 8)],
                masters: vec![Accesses::Listed(listed.collect())],
            };
            let one = Hardware::new(format, tlb, ContiguityBits::Ideal(16));
            let measured = translation::measure(&one, design, &source, &program, &mut random)
                .map_err(|error| failed(&error))?;
            let walks = measured.accesses - measured.hits;
            return Ok(Cost { accesses: measured.accesses, walks, ..Cost::default() });
        }
        let config = self.fragmented(block_frames, &modes[design - coalescing.len() + 1])?;
        // One TLB, as the other designs have.
        let mut translation = hardware.translation;
        translation.l1 = Geometry::fully_associative(1).into();
        translation.l2 = Geometry::fully_associative(tlb).into();
        let steps = gups.steps()?.map(Ok::<_, KernelError>);
        Ok(hardware.run(&config, &translation, steps)?)
    }
}

/// 64 megabytes are written, then unmapped.
fn release() -> impl Iterator<Item = Step> {
    const PAGES: u64 = (64 << 20) / BASE_PAGE_BYTES;
    let pages = PageRange::new(BASE.page(), PAGES);
    let unmap = Action::Memory(TraceEvent::Unmap { pages });
    std::iter::once(map(pages))
        .chain((0..PAGES).map(|page| word(page, AccessKind::Write)))
        .chain([Action::Begin, unmap, Action::End, Action::Exit])
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
        addr: VirtAddr::new(BASE.raw() + page * BASE_PAGE_BYTES),
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
        .chain([Action::Begin])
        .chain((0..PAGES).map(|i| word(i * 389 % PAGES, AccessKind::Write)))
        .chain([Action::End, Action::Exit])
        .map(|action| Step { process: 0, action })
}

/// Every fourth page of a table is written.
fn sparse(pages: u64) -> impl Iterator<Item = Step> {
    std::iter::once(map(PageRange::new(BASE.page(), pages)))
        .chain([Action::Begin])
        .chain((0..pages).step_by(4).map(|page| word(page, AccessKind::Write)))
        .chain([Action::End, Action::Exit])
        .map(|action| Step { process: 0, action })
}

fn source(from: WalksFrom) -> swath_hw::WalksFrom {
    match from {
        WalksFrom::L1 => swath_hw::WalksFrom::L1,
        WalksFrom::L2 => swath_hw::WalksFrom::L2,
        WalksFrom::Memory => swath_hw::WalksFrom::Memory,
    }
}

fn pbs(format: Format) -> Result<swath_frame::BuddyConfig, StudyError> {
    let top = match format {
        Format::ArmV7 => 8,
        Format::ArmV8 | Format::X86_64 => 9,
    };
    Ok(crate::papers::page_buddy::setting::pbs(format.granularity().k() as u8, top)?)
}

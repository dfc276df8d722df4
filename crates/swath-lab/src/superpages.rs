//! Superpages by reservation: the talk's benchmarks in simulated time.
//!
//! Every point boots a [kernel](crate::kernel) with empty memory on one core of
//! the plan's processor, lets a program touch each of its pages once, and then
//! counts what its accesses cost. The modes differ in the superpage sizes that
//! are on.

use swath_arch::{BASE_PAGE_BYTES, Extent, Format, Order, PageRange, Pfn, Regime, VirtAddr};
use swath_frame::FrameAllocator;
use swath_frame::{HeadOfList, Levels};
use swath_hw::hierarchy::{self, Hierarchy};
use swath_hw::presets::{ARMADA_XP, CORTEX_A53, Preset, SKYLAKE};
use swath_hw::{Geometry, TlbForm, processor};
use swath_vm::{Sizes, Status};

use crate::access::{AccessKind, TraceError};
use crate::access_event::{Backing, Event, Protection};
use crate::benchmark::{self, Gups, MissLoop, ProgramError, RandomLatency, Sweep};
use crate::execute::{Cost, Fold, execute};
use crate::kernel::{Config, Costs, KernelError, boot};
use crate::memory::{Random, Source, random};
use crate::plan::ContiguityBits;
use crate::plan_superpages::{Benchmark, ProcessorName, SuperpagesPlan, WalksFrom};
use crate::process::{self, Action, Step};
use crate::real::Trace;
use crate::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::study::{self, Outcome, Run, StudyError};
use crate::superpages_real::{self, Simulated};
use crate::translation::{self, Accesses, Design, Hardware};

/// Which superpages are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) sizes: Sizes,
    pub(crate) levels: Levels,
}

/// Off, on with the size of a whole table, and on with the intermediate size,
/// which is then reserved where the larger one cannot be.
pub(crate) fn modes(format: Format) -> Vec<Mode> {
    let (whole, levels, name) = match format {
        Format::ArmV7 => (Order::known(8), Levels::ARMV7, "1 MiB"),
        Format::ArmV8 => (Order::known(9), Levels::ARMV8, "2 MiB"),
        Format::X86_64 => (Order::known(9), Levels::X86_64, "2 MiB"),
    };
    let on = Sizes::NONE.with(whole);
    let mut modes =
        vec![Mode { name: "4 KiB", sizes: Sizes::NONE, levels }, Mode { name, sizes: on, levels }];
    let middle = Order::known(4);
    if Sizes::all(format).contains(middle)
        && let Ok(levels) = Levels::new(&[middle, whole], &[])
    {
        let name = if format == Format::ArmV7 { "64 KiB, 1 MiB" } else { "64 KiB, 2 MiB" };
        modes.push(Mode { name, sizes: on.with(middle), levels });
    }
    modes
}

/// The plan's processor.
pub(crate) struct Hardwares {
    pub(crate) preset: &'static Preset,
    pub(crate) core: processor::Config,
    pub(crate) translation: hierarchy::Config,
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
        translation: &hierarchy::Config,
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
    fn seconds(&self, cycles: u64) -> f64 {
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
const READINGS: [(&str, WalksFrom, u32); 5] = [
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
    let coalescing = Design::all(crate::plan::bbs(9)?, pbs(hardware.preset.format)?);
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
    let mut result = study::result(about, plan, run, found.finding());
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
        superpages_real::run(&plan.real, run.quick, about.seed, &about.study, &simulated)
    });
    let host = host.transpose().map_err(|error| StudyError::Machine {
        study: about.study.clone(),
        what: error.to_string(),
    })?;
    Ok(Outcome { result, host })
}

/// What the points are measured with.
struct Bench<'a> {
    plan: &'a SuperpagesPlan,
    hardware: &'a Hardwares,
    modes: &'a [Mode],
    coalescing: &'a [Design],
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
    let unmap = Action::Memory(Event::Unmap { pages });
    std::iter::once(map(pages))
        .chain((0..PAGES).map(|page| word(page, AccessKind::Write)))
        .chain([Action::Begin, unmap, Action::End, Action::Exit])
        .map(|action| Step { process: 0, action })
}

fn map(pages: PageRange) -> Action {
    Action::Memory(Event::Map {
        pages,
        protection: Protection::READ_WRITE,
        backing: Backing::Anonymous,
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

fn source(from: WalksFrom) -> processor::Source {
    match from {
        WalksFrom::L1 => processor::Source::L1,
        WalksFrom::L2 => processor::Source::L2,
        WalksFrom::Memory => processor::Source::Memory,
    }
}

/// All that was measured, by point.
struct Found<'a> {
    bench: &'a Bench<'a>,
    measured: &'a [Cost],
    /// Points of a mode: the benchmarks, forkbomb, the compiler, the release, the
    /// loops of misses.
    per_mode: usize,
    /// The first of the points on status flags.
    statuses: usize,
    /// The first of the benchmarks with walks from the second cache: without
    /// superpages, then with them.
    from_l2: usize,
    /// The first of those on free blocks.
    blocks: usize,
    /// The first of those that touch a table in part.
    sparse: usize,
    sizes: &'a [u64],
}

impl Found<'_> {
    fn of(&self, mode: usize, index: usize) -> &Cost {
        &self.measured[mode * self.per_mode + index]
    }

    fn count(&self) -> usize {
        self.bench.plan.benchmarks.len()
    }

    /// How much a program gains: bandwidth that is more, latency that is less.
    fn gain(&self, mode: usize, index: usize) -> f64 {
        self.gained(index, self.of(0, index), self.of(mode, index))
    }

    fn gained(&self, index: usize, off: &Cost, on: &Cost) -> f64 {
        let ratio = off.cycles as f64 / on.cycles.max(1) as f64;
        match self.bench.plan.benchmarks.get(index) {
            Some(Benchmark::RandomLatency { .. }) => 1.0 - 1.0 / ratio,
            _ => ratio - 1.0,
        }
    }

    /// The share of the compiler's time that superpages save.
    fn compiler_saved(&self) -> f64 {
        1.0 - 1.0 / (1.0 + self.gain(1, self.count() + 1))
    }

    /// Updates a second with superpages, against those without.
    fn gups_ratio(&self) -> f64 {
        let is_gups = |benchmark: &Benchmark| matches!(benchmark, Benchmark::Gups { .. });
        let gups = self.bench.plan.benchmarks.iter().position(is_gups);
        gups.map_or(1.0, |i| 1.0 + self.gain(1, i))
    }

    /// Time of unmapping with superpages, against that without.
    fn release_ratio(&self) -> f64 {
        1.0 / (1.0 + self.gain(1, self.count() + 2))
    }

    fn finding(&self) -> String {
        let Bench { plan, hardware, .. } = *self.bench;
        let gups = plan.benchmarks.iter().position(|b| matches!(b, Benchmark::Gups { .. }));
        let rates = gups.map(|i| {
            let updates = |mode: usize| {
                let cost = self.of(mode, i);
                cost.accesses as f64 / 2.0 / hardware.seconds(cost.cycles) / 1e9
            };
            format!(
                " GUPS: {:.4} billion updates a second without superpages, {:.4} with them.",
                updates(0),
                updates(1)
            )
        });
        format!(
            "{}{} A compiler's run takes {:.1}% less time with them.",
            plan.about.purpose,
            rates.unwrap_or_default(),
            100.0 * self.compiler_saved()
        )
    }

    /// Time, misses, walking, tables and promotions of all programs.
    fn programs(&self, result: &mut StudyResult) {
        let Bench { plan, modes, .. } = *self.bench;
        let mut titles: Vec<&str> = plan.benchmarks.iter().map(Benchmark::title).collect();
        titles.extend(["forkbomb", "compiler", "munmap"]);
        type Part<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(&Cost, &Cost) -> f64);
        let parts: [Part<'_>; 5] = [
            ("Time", "time (4 KiB pages = 1)", "time_ratio", &|cost, base| {
                cost.cycles as f64 / base.cycles.max(1) as f64
            }),
            ("TLB misses", "walks per 1000 accesses", "walks_per_1000", &|cost, _| {
                1000.0 * cost.walks as f64 / cost.accesses.max(1) as f64
            }),
            ("Walking", "cycles in walks (share)", "walk_cycles_share", &|cost, _| {
                cost.walk_cycles as f64 / cost.cycles.max(1) as f64
            }),
            ("Tables", "frames of page tables", "table_frames", &|cost, _| {
                cost.table_frames_max as f64
            }),
            ("Promotions", "promotions, while memory is filled too", "promotions", &|cost, _| {
                cost.total.pmap.promotions as f64
            }),
        ];
        for (id, y_label, y, part) in parts {
            let figure = Figure::new(id, "of programs", FigureKind::Bars, "program", y_label);
            result.figures.push(figure);
            for (m, mode) in modes.iter().enumerate() {
                let points = titles.iter().enumerate();
                let points = points.map(|(i, &title)| (title, part(self.of(m, i), self.of(0, i))));
                result.series.push(Series::new(id, "program", y, mode.name, points));
            }
        }
    }

    /// LMbench beside the talk's table.
    fn lmbench(&self, result: &mut StudyResult) {
        let Bench { plan, modes, .. } = *self.bench;
        let talked: Vec<(usize, &str, f64)> = plan
            .benchmarks
            .iter()
            .enumerate()
            .filter_map(|(i, b)| b.talk_percent().map(|percent| (i, b.title(), percent)))
            .collect();
        if talked.is_empty() {
            return;
        }
        let id = "LMbench";
        let y_label = "gain over 4 KiB pages (percent)";
        let figure = Figure::new(id, "beside the talk", FigureKind::Bars, "program", y_label);
        result.figures.push(figure);
        let mut add = |name: &str, of: &dyn Fn(usize, f64) -> f64| {
            let points = talked.iter().map(|&(i, title, percent)| (title, of(i, percent)));
            result.series.push(Series::new(id, "program", "gain_percent", name, points));
        };
        add("the talk", &|_, percent| percent);
        for (m, mode) in modes.iter().enumerate().skip(1) {
            add(mode.name, &|i, _| 100.0 * self.gain(m, i));
        }
        let at = |mode: usize, i: usize| &self.measured[self.from_l2 + mode * self.count() + i];
        let name = format!("{}, walks from L2", modes[1].name);
        add(&name, &|i, _| 100.0 * self.gained(i, at(0, i), at(1, i)));
        if plan.claims {
            for &(i, title, percent) in &talked {
                let says = format!("LMbench, {title}: {percent}% faster with superpages");
                let (paper, measured) = (percent / 100.0, self.gain(1, i));
                let claim = Claim::within("Benchmarking", &says, paper, measured, 0.02);
                push(result, claim.with_unit(Unit::Share), LMBENCH_CAUSE);
            }
        }
    }

    fn compiler(&self, result: &mut StudyResult) {
        if !self.bench.plan.claims {
            return;
        }
        let minutes = |hours: f64, minutes: f64| hours * 60.0 + minutes;
        for (name, off, on) in [
            ("GCC", minutes(6.0, 36.0), minutes(5.0, 14.0)),
            ("CLANG", minutes(6.0, 16.0), minutes(6.0, 15.0)),
        ] {
            let saved = 1.0 - on / off;
            let says = format!("World build by {name}: {:.1}% less time", 100.0 * saved);
            let measured = self.compiler_saved();
            let claim = Claim::within("Benchmarking", &says, saved, measured, 0.03);
            push(result, claim.with_unit(Unit::Share), COMPILER_CAUSE);
        }
    }

    /// The TLB-miss experiment.
    fn misses(&self, result: &mut StudyResult) {
        let Bench { plan, modes, .. } = *self.bench;
        let first = self.count() + 3;
        // Cycles of a miss: those above a TLB that never misses.
        let cycles = |mode: usize, reading: usize| {
            let at = first + 2 * reading;
            let (x, y) = (self.of(mode, at), self.of(mode, at + 1));
            (x.cycles as f64 - y.cycles as f64) / x.walks.max(1) as f64
        };
        let id = "TLB miss";
        let y_label = "cycles per TLB miss, (X - Y) / T";
        let title = "one read in each base page of 2 x TLB x superpage";
        result.figures.push(Figure::new(id, title, FigureKind::Bars, "reading", y_label));
        let names = std::iter::once("the plan").chain(READINGS.iter().map(|&(name, ..)| name));
        let names: Vec<&str> = names.collect();
        for (m, mode) in modes.iter().enumerate() {
            let points = names.iter().enumerate().map(|(r, &name)| (name, cycles(m, r)));
            let talk = [157.0, 60.0].get(m).map(|&cycles| ("the talk", cycles));
            let points = talk.into_iter().chain(points);
            result.series.push(Series::new(id, "reading", "cycles_per_miss", mode.name, points));
        }
        if plan.claims {
            let place = "Test results";
            let misses = |mode: usize| self.of(mode, first).walks as f64;
            let says = "32,882 TLB misses without superpages";
            push(result, Claim::about(place, says, 32_882.0, misses(0), 0.01), MISSES_CAUSE);
            let says = "193 TLB misses with superpages";
            push(result, Claim::about(place, says, 193.0, misses(1), 0.01), MISSES_CAUSE);
            let says = "157 cycles for a TLB miss without superpages";
            push(result, Claim::about(place, says, 157.0, cycles(0, 0), 0.25), CPM_CAUSE);
            let says = "60 cycles for a TLB miss with superpages";
            push(result, Claim::about(place, says, 60.0, cycles(1, 0), 0.25), CPM_CAUSE);
        }
    }

    /// Where the flags stand.
    fn status(&self, result: &mut StudyResult) {
        let id = "Failed promotions";
        let y_label = "words read by promotions that failed";
        let title = "first writes to superpages that were read";
        result.figures.push(Figure::new(id, title, FigureKind::Bars, "words of", y_label));
        for (i, name) in ["flags in the table", "flags in the PV entries"].into_iter().enumerate() {
            let pmap = self.measured[self.statuses + i].total.pmap;
            let points = [
                ("tables", pmap.failed_table_words as f64),
                ("the reverse map", pmap.failed_reverse_words as f64),
            ];
            result.series.push(Series::new(id, "words", "words", name, points));
        }
    }

    /// PCAD, AT, PBS and superpages on the same memory.
    fn fragmented(&self, result: &mut StudyResult) {
        let Bench { plan, modes, coalescing, .. } = *self.bench;
        let names = coalescing.iter().map(|design| design.name);
        let names: Vec<&str> = names.chain(modes.iter().skip(1).map(|mode| mode.name)).collect();
        let (hits, held) = ("Coalescing and superpages", "Held in reserve");
        let x_label = "free block size (pages)";
        let figure =
            |id, title, y_label| Figure::new(id, title, FigureKind::LinesLog2, x_label, y_label);
        result.figures.push(
            figure(hits, "random updates", "TLB hit rate (share of accesses)")
                .with_y_range(0.0, 1.0)
                .with_caption(
                    "Free blocks of one size at random places, a quarter of memory. A superpage \
                     needs a block that holds it aligned.",
                ),
        );
        result.figures.push(
            figure(held, "a table of which every fourth page is touched", "frames held in vain")
                .with_caption(
                    "For each frame that is used. Eager paging, which PCAD, AT and PBS rest on, \
                     takes every frame that was asked for; a reservation holds what it may need, \
                     until somebody else does.",
                ),
        );
        let x = "free_block_frames";
        let sizes = || self.sizes.iter().map(|&size| size as f64).enumerate();
        for (d, name) in names.iter().enumerate() {
            let at = |s: usize| &self.measured[self.blocks + s * names.len() + d];
            let points =
                sizes().map(|(s, x)| (x, 1.0 - at(s).walks as f64 / at(s).accesses.max(1) as f64));
            result.series.push(Series::new(hits, x, "tlb_hit_rate", name, points));
        }
        let used = (plan.blocks.table_mib << 6) as f64;
        let eager = sizes().map(|(_, x)| (x, (plan.blocks.table_mib << 8) as f64 / used - 1.0));
        result.series.push(Series::new(held, x, "held_ratio", "PCAD, AT, PBS", eager));
        let on = modes.len() - 1;
        for (m, mode) in modes.iter().skip(1).enumerate() {
            let points = sizes().map(|(s, x)| {
                (x, self.measured[self.sparse + s * on + m].reserved_frames as f64 / used)
            });
            result.series.push(Series::new(held, x, "held_ratio", mode.name, points));
        }
    }
}

fn push(result: &mut StudyResult, claim: Claim, cause: &str) {
    result.claims.push(if claim.holds() { claim } else { claim.with_cause(cause) });
}

const MISSES_CAUSE: &str = "2 x 64 x 256 base pages are 32,768 misses, 2 x 64 sections 128; the talk's other 114 and 65 \
     are the program's own and the kernel's, which are not simulated.";
const COMPILER_CAUSE: &str = "One run of GCC's cc1 on a small file, a sample of its accesses. A world build has larger \
     files, many processes and a disc; the talk's own two compilers differ by more than this does.";
const LMBENCH_CAUSE: &str = "What a benchmark gains is the share of its time that it walks. Where walks read from memory, \
     as the talk's cost of a miss suggests, streams gain more than the talk says and random reads \
     much more; where they find the second cache, both gain less (series \"walks from L2\"). The \
     talk's processor lies between, prefetches, and does not say how its sizes were chosen.";
const CPM_CAUSE: &str = "Where walks read, and how much of a walk other loads hide, is not known of the talk's \
     processor: the figure shows the readings.";

fn pbs(format: Format) -> Result<swath_frame::Config, StudyError> {
    let top = match format {
        Format::ArmV7 => 8,
        Format::ArmV8 | Format::X86_64 => 9,
    };
    Ok(crate::plan::pbs(format.granularity().k() as u8, top)?)
}

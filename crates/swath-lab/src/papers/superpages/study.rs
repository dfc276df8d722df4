//! Superpages by reservation: the talk's benchmarks in simulated time.
//!
//! The modes differ in the superpage sizes that are on.

use crate::host::memory;
use crate::papers::page_buddy::design::Design;
use crate::papers::page_buddy::setting::{bbs, blocks_bytes};
use crate::papers::superpages::bench::{
    Bench, Flags, Point, READINGS, SHIFTS_KIB, WORK_CYCLES, page_buddy,
};
use crate::papers::superpages::claims;
use crate::papers::superpages::figures;
use crate::papers::superpages::found::{
    BUILD, CLANG, COMPILE, FORKBOMB, FROM_L2, GCC, IDEAL, NO_COMPILER, PLAN, RELEASE,
    SHIFTED_BUILD, THREADS, TalkFound, numbers,
};
use crate::papers::superpages::machine::{SimulatedMachine, modes};
use crate::papers::superpages::plan::{Benchmark, SuperpagesPlan, WalksFrom};
use crate::papers::superpages::real;
use crate::source::real::Compiler;
use crate::study::bounds::Bounded;
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Value};
use crate::study::kind::{Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::run::{Run, StudyError};

/// Superpages off and on.
pub struct Superpages;

impl Study for Superpages {
    const KIND: &'static str = "superpages";
    const USES: Uses = Uses { machine: true, ..Uses::NOTHING };
    type Plan = SuperpagesPlan;
    type Found = TalkFound;

    fn seeds(plan: &SuperpagesPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &SuperpagesPlan, run: &Run<'_>) -> Needs {
        let (machine, blocks) = (&plan.machine, &plan.blocks);
        let frames = machine.memory_mib.get() << 8;
        let kib = |own: Option<Bounded<1, 65_536>>| own.map_or(2048, Bounded::get);
        let entries = |own: Option<Bounded<1, 65_536>>| own.map_or(0, Bounded::get);
        let tlbs = entries(machine.tlb_entries) + entries(machine.micro_tlb_entries);
        let sizes = blocks.block_frames.of(run.quick);
        let pages = blocks.table_mib.get() << 8;
        let memory = blocks_bytes(pages, sizes, blocks.free_per_requested, blocks.free_share);
        let most = plan.benchmarks.iter().map(Benchmark::mib).max().unwrap_or(0);
        // A page of the loop of misses for each entry, and a TLB that holds them all.
        Needs::small()
            .once("repeats", bytes(&[2048, plan.repeats.of(run.quick).get(), 64]))
            .each("machine.memory_mib", bytes(&[128, frames]))
            .each("machine.tlb_entries", bytes(&[256, tlbs, 64]))
            .each("machine.l2_kib", bytes(&[512, kib(machine.l1_kib) + kib(machine.l2_kib)]))
            .each("benchmarks", bytes(&[most, 1 << 16]))
            .each("blocks.free_per_requested", memory)
            .each("blocks.updates", bytes(&[16, blocks.updates.get()]))
    }

    fn measure(plan: &SuperpagesPlan, run: &Run<'_>) -> Result<TalkFound, StudyError> {
        let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
        let machine = SimulatedMachine::of(plan);
        let modes = modes(machine.preset.format);
        let coalescing = &Design::paper(bbs(9)?, page_buddy(machine.preset.format)?);
        let quick = run.quick;
        let bench = Bench { plan, machine: &machine, modes: &modes, coalescing, quick };
        let seeds = Self::seeds(plan, quick);
        let points = points(&bench);
        let repeats = |point: &Point| if is_random(plan, point) { seeds } else { 1 };
        let jobs: Vec<(Point, u64)> = points
            .iter()
            .flat_map(|point| (0..repeats(point)).map(|repeat| (*point, repeat)))
            .collect();
        let measured = run.points(&plan.about, &jobs, |&(point, repeat)| {
            let cost = bench.measure(point, repeat).map_err(|error| failed(error.to_string()))?;
            Ok(numbers(&cost))
        })?;
        let mut found = TalkFound::new(usize::try_from(seeds).unwrap_or(usize::MAX));
        let mut rest = measured.as_slice();
        for point in &points {
            let count = usize::try_from(repeats(point)).unwrap_or(usize::MAX);
            let (runs, others) = rest.split_at(count);
            let (grid, at) = place(&bench, point, &mut found);
            grid.add(at, runs);
            rest = others;
        }
        let measured: &[()] = if run.real.measure { &[()] } else { &[] };
        let measured = run.points_in_turn(&plan.about, measured, |()| {
            let real = real::measure(&plan.real, quick, plan.about.seed);
            real.map_err(|error| failed(error.to_string()))
        })?;
        found.real = measured.into_iter().next();
        Ok(found)
    }

    fn claims(plan: &SuperpagesPlan, _: &Run<'_>) -> Vec<Statement<TalkFound>> {
        claims::claims(&plan.machine.conditions())
    }

    fn show(plan: &SuperpagesPlan, run: &Run<'_>, found: &TalkFound) -> Shown {
        figures::show(plan, run.quick, found)
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        println!("{}", memory::child(job)?);
        Ok(())
    }
}

/// All points of a plan.
fn points(bench: &Bench<'_>) -> Vec<Point> {
    let benchmarks = || 0..bench.plan.benchmarks.len();
    let mut points = Vec::new();
    for mode in 0..bench.modes.len() {
        points.extend(benchmarks().map(|index| Point::Benchmark { index, mode, from: None }));
        points.extend([Point::Forkbomb { mode }, Point::Threads { mode }, Point::Release { mode }]);
        for compiler in [Compiler::Gcc, Compiler::Clang] {
            let build = |files_aligned| Point::Build { compiler, mode, files_aligned };
            // The quick form has what claims are judged on.
            if mode < 2 || !bench.quick {
                points.push(build(true));
            }
            if !bench.quick {
                points.extend([build(false), Point::Compiler { compiler, mode }]);
                let work = |&cycles: &u32| Point::Work { compiler, mode, cycles };
                // The plan's own is the build above.
                let others = |&&cycles: &&u32| cycles != bench.plan.recorded_cycles.small();
                points.extend(WORK_CYCLES.iter().filter(others).filter(|_| mode < 2).map(work));
            }
        }
        for reading in 0..=READINGS.len() {
            points.extend([false, true].map(|ideal| Point::Misses { reading, mode, ideal }));
        }
    }
    points.extend(Flags::ALL.map(|flags| Point::FirstWrites { flags }));
    for mode in 0..2 {
        let from = Some(WalksFrom::L2);
        points.extend(benchmarks().map(|index| Point::Benchmark { index, mode, from }));
        // The quick form has every other distance.
        let step = if bench.quick { 2 } else { 1 };
        let copies =
            |&index: &usize| bench.plan.benchmarks[index].copied_bytes(bench.quick).is_some();
        for index in benchmarks().filter(copies) {
            let shifts = SHIFTS_KIB.into_iter().step_by(step);
            points.extend(shifts.map(|shift_kib| Point::Copy { index, mode, shift_kib }));
        }
    }
    let sizes = bench.plan.blocks.block_frames.of(bench.quick);
    for block_frames in sizes.iter().map(|size| size.get()) {
        let designs = 0..bench.coalescing.len() + bench.modes.len() - 1;
        points.extend(designs.map(|design| Point::Blocks { block_frames, design }));
        points.extend((1..bench.modes.len()).map(|mode| Point::Sparse { block_frames, mode }));
    }
    points
}

/// Returns true if a point depends on a seed.
fn is_random(plan: &SuperpagesPlan, point: &Point) -> bool {
    match *point {
        Point::Benchmark { index, .. } => plan.benchmarks[index].is_random(),
        Point::Blocks { .. } | Point::Sparse { .. } => true,
        Point::Forkbomb { .. }
        | Point::Copy { .. }
        | Point::Threads { .. }
        | Point::Compiler { .. }
        | Point::Build { .. }
        | Point::Work { .. }
        | Point::Release { .. }
        | Point::Misses { .. }
        | Point::FirstWrites { .. } => false,
    }
}

/// The name of a recorded compiler on its axis.
const fn compiler_name(compiler: Compiler) -> &'static str {
    match compiler {
        Compiler::Gcc => GCC,
        Compiler::Clang => CLANG,
    }
}

/// The grid of a point, and its coordinates there.
fn place<'f>(
    bench: &Bench<'_>,
    point: &Point,
    found: &'f mut TalkFound,
) -> (&'f mut Grid, Vec<Value>) {
    let mode = |mode: usize| bench.modes[mode].name;
    let program = |title: &str, compiler: &str, mode: &str, walks: &str| -> Vec<Value> {
        vec![title.into(), compiler.into(), mode.into(), walks.into()]
    };
    match *point {
        Point::Benchmark { index, mode: at, from } => {
            let benchmark = &bench.plan.benchmarks[index];
            let walks = if from.is_some() { FROM_L2 } else { PLAN };
            let grid = if benchmark.is_random() { &mut found.random } else { &mut found.exact };
            (grid, program(benchmark.title(), NO_COMPILER, mode(at), walks))
        }
        Point::Copy { index, mode: at, shift_kib } => {
            let program = bench.plan.benchmarks[index].title();
            (&mut found.copies, vec![program.into(), mode(at).into(), shift_kib.into()])
        }
        Point::Forkbomb { mode: at } => {
            (&mut found.exact, program(FORKBOMB, NO_COMPILER, mode(at), PLAN))
        }
        Point::Threads { mode: at } => {
            (&mut found.exact, program(THREADS, NO_COMPILER, mode(at), PLAN))
        }
        Point::Compiler { compiler, mode: at } => {
            (&mut found.exact, program(COMPILE, compiler_name(compiler), mode(at), PLAN))
        }
        Point::Build { compiler, mode: at, files_aligned } => {
            let title = if files_aligned { BUILD } else { SHIFTED_BUILD };
            (&mut found.exact, program(title, compiler_name(compiler), mode(at), PLAN))
        }
        Point::Work { compiler, mode: at, cycles } => {
            let at =
                vec![compiler_name(compiler).into(), mode(at).into(), u64::from(cycles).into()];
            (&mut found.work, at)
        }
        Point::Release { mode: at } => {
            (&mut found.exact, program(RELEASE, NO_COMPILER, mode(at), PLAN))
        }
        Point::Misses { reading, mode: at, ideal } => {
            let reading = reading.checked_sub(1).map_or(PLAN, |nth| READINGS[nth].0);
            let tlb = if ideal { IDEAL } else { PLAN };
            (&mut found.misses, vec![reading.into(), mode(at).into(), tlb.into()])
        }
        Point::FirstWrites { flags } => (&mut found.flags, vec![flags.name().into()]),
        Point::Blocks { block_frames, design } => {
            let name = bench.coalescing.get(design).map_or_else(
                || mode(design - bench.coalescing.len() + 1),
                |coalescing| coalescing.name,
            );
            (&mut found.blocks, vec![name.into(), block_frames.into()])
        }
        Point::Sparse { block_frames, mode: at } => {
            (&mut found.sparse, vec![mode(at).into(), block_frames.into()])
        }
    }
}

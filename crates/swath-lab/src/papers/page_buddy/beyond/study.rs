//! The study of what the paper leaves out: its plan, and its parts put together.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_frame::BuddyConfig;

use crate::papers::page_buddy::beyond::cycles::{self, CyclesPlan, TimedTogether};
use crate::papers::page_buddy::beyond::demand::{self, DemandPlan, Paging, Together};
use crate::papers::page_buddy::beyond::large::{self, LargePlan};
use crate::papers::page_buddy::beyond::mixed::{self, MixedPlan};
use crate::papers::page_buddy::beyond::orders::{self, OrdersPlan, Reading};
use crate::papers::page_buddy::design::{self, Design, DesignsPlan};
use crate::papers::page_buddy::dram::DramPlan;
use crate::papers::page_buddy::dram::plan::TimedMemory;
use crate::papers::page_buddy::fields::name_under;
use crate::papers::page_buddy::savings::{DESIGN, LEVEL, READING, WORKLOAD};
use crate::papers::page_buddy::setting::{ContiguityBits, MachinePlan, blocks_bytes, check_free};
use crate::papers::page_buddy::timed::{self, Point, Timed, TimedSystem};
use crate::papers::page_buddy::translation::{Hardware, MeasureError, Program, measure};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::random;
use crate::study::bounds::{Forms, Repeats, Share};
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, metrics};
use crate::study::kind::{Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, PlanError, Refused, require};
use crate::study::run::{Run, StudyError};

/// Orders of loops, large pages, demand paging and mixed memory; two of them in cycles, too.
pub struct Beyond;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeyondPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// The designs; all if not given. TRAD with large pages is measured beside those that it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: DesignsPlan,
    /// The machine.
    pub machine: MachinePlan,
    /// The memory of the timed system; Table 3's if not given.
    #[serde(default)]
    pub dram: DramPlan,
    /// Matrix multiplication's loops.
    pub orders: OrdersPlan,
    /// TRAD with large pages.
    pub large: LargePlan,
    /// Demand paging.
    pub demand: DemandPlan,
    /// Large pages and demand paging in the timed system.
    pub cycles: CyclesPlan,
    /// The CPU and devices in one memory.
    pub mixed: MixedPlan,
}

crate::plan!(BeyondPlan, check);

fn check(plan: &BeyondPlan) -> Result<(), Refused> {
    check_free("", plan.free_per_requested, plan.free_share)?;
    plan.machine.check()?;
    design::plan::check(&plan.designs)?;
    plan.dram.check()?;
    let anchors = plan.machine.anchor_log2.is_none() || plan.cycles.system.anchor_log2.is_none();
    let key = "cycles.system.anchor_log2";
    require(anchors, key, || "machine.anchor_log2 is given, too".to_owned())?;
    plan.demand.check()?;
    plan.cycles.check(&plan.machine)?;
    let (bbs, _) = orders_of(&plan.machine).map_err(|error| Refused {
        key: "machine.bbs_max_order".to_owned(),
        why: error.to_string(),
    })?;
    plan.mixed.check(bbs.top())
}

/// The orders of BBS and of PBS.
fn orders_of(machine: &MachinePlan) -> Result<(BuddyConfig, BuddyConfig), PlanError> {
    Ok((machine.bbs()?, machine.pbs()?))
}

/// The measurements of each part.
pub struct BeyondFound {
    /// Hit rates by order of the loops.
    pub orders: Grid,
    /// Hit rates with large pages.
    pub large: Grid,
    /// Hit rates on demand.
    pub demand: Grid,
    /// Cycles with large pages.
    pub large_cycles: Grid,
    /// Cycles on demand.
    pub demand_cycles: Grid,
    /// Blocks and hit rates in a memory that the CPU shares.
    pub mixed: Grid,
}

impl BeyondPlan {
    /// Memory in free blocks of this size.
    const fn memory(&self, block_frames: u64) -> (u64, f64, f64) {
        (block_frames, self.free_per_requested, self.free_share.get())
    }

    /// Points of all parts.
    fn points(&self, quick: bool) -> u64 {
        let (orders, large, demand) = (&self.orders, &self.large, &self.demand);
        let together = demand.workloads.of(quick).len() * demand.together.of(quick).len();
        let (in_large, in_demand) = (&self.cycles.large, &self.cycles.demand);
        let programs = in_demand.workloads.of(quick).len() * self.cycles.programs.of(quick).len();
        let designs = design::plan::count(&self.designs) as usize;
        let parts = [
            [1 + 6 * orders.tile_elements.of(quick).len(), orders.block_frames.len(), designs],
            [
                WorkloadName::with_added(&large.workloads).len(),
                large.block_frames.len(),
                designs + 2,
            ],
            [together * Paging::all(demand).len(), demand.block_frames.of(quick).len(), designs],
            [
                in_large.workloads.of(quick).len(),
                in_large.block_frames.of(quick).len(),
                designs + 2,
            ],
            [programs * Paging::all(demand).len(), in_demand.block_frames.of(quick).len(), designs],
            [1, self.mixed.used_shares.len(), mixed::DESIGNS.len()],
        ];
        parts.map(|part| part.iter().product::<usize>() as u64).iter().sum()
    }

    fn failed(&self, what: &str, error: &MeasureError) -> StudyError {
        StudyError::Machine { study: self.about.study.clone(), what: format!("{what}: {error}") }
    }

    /// The hit rate of a design on a program that is mapped whole.
    fn eager(
        &self,
        design: &Design,
        program: &Program,
        block_frames: u64,
        repeat: u64,
    ) -> Result<Metrics, StudyError> {
        let (size, per_requested, share) = self.memory(block_frames);
        let source = program.scattered(size, per_requested, share);
        let mut random = random(self.about.seed, repeat);
        let hardware = Hardware::of(&self.machine);
        let measured = measure(&hardware, design, &source, program, &mut random);
        let measured = measured.map_err(|error| self.failed(design.name, &error))?;
        Ok(metrics([("hit_rate", measured.hit_rate())]))
    }
}

impl Study for Beyond {
    const KIND: &'static str = "beyond";
    type Plan = BeyondPlan;
    type Found = BeyondFound;

    fn seeds(plan: &BeyondPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &BeyondPlan, run: &Run<'_>) -> Needs {
        let (shapes, quick) = (Shapes::default(), run.quick);
        let pages = |names: &[WorkloadName]| {
            names.iter().map(|name| name.build(&shapes).pages()).max().unwrap_or(0)
        };
        let in_large = WorkloadName::with_added(&plan.large.workloads);
        let transactions = in_large.iter().map(|name| name.build(&shapes));
        let large = transactions.map(|one| bytes(&[16, one.transactions_max()]));
        let names = plan.demand.workloads.of(quick);
        let programs = plan.demand.together.of(quick).iter().map(|together| together.0.get());
        let most = programs.clone().max().unwrap_or(1);
        let together = programs.flat_map(|programs| {
            names.iter().map(move |&name| Together::needs_bytes(name, programs))
        });
        let (share, per_requested) = (plan.free_share, plan.free_per_requested);
        let memory = |pages, sizes: &[_]| blocks_bytes(pages, sizes, per_requested, share);
        let demanded = bytes(&[pages(names), most]);
        let sizes = plan.demand.block_frames.of(quick);
        // What comes with each fault, and the tables of a request.
        let faults = bytes(&[256, demanded]).saturating_add(bytes(&[1 << 17, most]));
        // No workload has more than three masters.
        let entries = design::plan::entries_max(&plan.designs, plan.machine.tlb_entries.get());
        let tlbs = bytes(&[256, entries, 3, most]);
        let seeds = plan.repeats.of(quick).get().max(plan.mixed.repeats.of(quick).get());
        let cells = bytes(&[512, plan.points(quick), seeds]);
        let timed = plan.cycles.needs(quick);
        let timed_memory = memory(timed.pages, plan.cycles.large.block_frames.of(quick))
            .max(memory(timed.pages, plan.cycles.demand.block_frames.of(quick)));
        let timed_faults = bytes(&[256, timed.pages]).saturating_add(bytes(&[1 << 17, 4]));
        Needs::small()
            .once("orders.tile_elements", orders::needs_bytes(&plan.orders, quick))
            .once("large.workloads", large.fold(0, u64::saturating_add))
            .once("demand.together", together.fold(0, u64::saturating_add))
            .once("repeats", cells)
            .each("large.block_frames", memory(pages(&in_large), &plan.large.block_frames))
            .each("orders.block_frames", memory(demanded.max(2000), &plan.orders.block_frames))
            .each("demand.block_frames", memory(demanded, sizes).saturating_add(faults))
            .each("machine.tlb_entries", tlbs)
            .once("cycles.demand.workloads", timed.accesses_bytes)
            .each("cycles.demand.block_frames", timed_memory.saturating_add(timed_faults))
            .each("mixed.frames", plan.mixed.needs_bytes())
    }

    fn measure(plan: &BeyondPlan, run: &Run<'_>) -> Result<BeyondFound, StudyError> {
        let (bbs, pbs) = orders_of(&plan.machine)?;
        let designs = design::plan::designs(&plan.designs, bbs, pbs);
        // Tables that another crate writes are written whole.
        let one_by_one = designs.iter().copied().filter(|design| design.tables.is_none());
        let one_by_one: Vec<Design> = one_by_one.collect();
        Ok(BeyondFound {
            orders: by_order(plan, run, &designs)?,
            large: with_large(plan, run, &designs)?,
            demand: on_demand(plan, run, &one_by_one)?,
            large_cycles: cycles_with_large(plan, run, &designs)?,
            demand_cycles: cycles_on_demand(plan, run, &one_by_one)?,
            mixed: in_mixed(plan, run)?,
        })
    }

    /// None of this is in the paper.
    fn claims(_: &BeyondPlan, _: &Run<'_>) -> Vec<Statement<BeyondFound>> {
        Vec::new()
    }

    fn show(plan: &BeyondPlan, run: &Run<'_>, found: &BeyondFound) -> Shown {
        let mut figures = orders::figures(&found.orders);
        figures.extend(large::figures(&found.large));
        figures.extend(demand::figures(&plan.demand, &found.demand));
        let (pagings, fault_cycles) = (Paging::all(&plan.demand), plan.cycles.fault_cycles.get());
        figures.extend(cycles::large_figures(&found.large_cycles));
        figures.extend(cycles::demand_figures(&pagings, fault_cycles, &found.demand_cycles));
        figures.extend(mixed::figures(&plan.mixed, &found.mixed));
        let findings = [
            orders::finding(&found.orders),
            large::finding(&found.large),
            demand::finding(&found.demand),
            cycles::finding(&found.large_cycles, &found.demand_cycles),
            mixed::finding(&plan.mixed, &found.mixed),
        ];
        let notes = vec![
            format!(
                "Each point is {} independent states of memory, {} where the CPU shares it.",
                Self::seeds(plan, run.quick),
                plan.mixed.repeats.of(run.quick)
            ),
            "None of this is in the paper, so nothing of it is judged; its own order of matrix \
             multiplication is the one pass of Table 4."
                .to_owned(),
            "A fault counts as a miss. Split and joined are two readings of the paper's words that the \
             pages of a block need to be split to multiple TLB entries on demand."
                .to_owned(),
            "The boundary between two zones is fixed, and no owner gets frames of the other's.".to_owned(),
        ];
        Shown { finding: findings.join(" "), figures, notes, host: None }
    }
}

fn by_order(plan: &BeyondPlan, run: &Run<'_>, designs: &[Design]) -> Result<Grid, StudyError> {
    let readings = orders::readings(&plan.orders, run.quick);
    let mut points: Vec<(&Reading, u64, &Design)> = Vec::new();
    for reading in &readings {
        for size in plan.orders.block_frames.iter().map(|size| size.get()) {
            points.extend(designs.iter().map(|design| (reading, size, design)));
        }
    }
    let at = |(reading, size, design): &(&Reading, u64, &Design)| {
        vec![reading.name.as_str().into(), (*size).into(), design.name.into()]
    };
    let axes = [READING, LEVEL, DESIGN];
    let seeds = Beyond::seeds(plan, run.quick);
    run.grid(&plan.about, &axes, seeds, &points, at, |(reading, size, design), repeat| {
        plan.eager(design, &reading.program, *size, repeat)
    })
}

fn with_large(plan: &BeyondPlan, run: &Run<'_>, designs: &[Design]) -> Result<Grid, StudyError> {
    let designs = large::designs(designs);
    let build = |name: &WorkloadName| (name.title(), Program::of(&name.build(&Shapes::default())));
    let names = WorkloadName::with_added(&plan.large.workloads);
    let programs: Vec<(&str, Program)> = names.iter().map(build).collect();
    let mut points: Vec<(&(&str, Program), u64, &Design)> = Vec::new();
    for program in &programs {
        for size in plan.large.block_frames.iter().map(|size| size.get()) {
            points.extend(designs.iter().map(|design| (program, size, design)));
        }
    }
    let at = |(program, size, design): &(&(&str, Program), u64, &Design)| {
        vec![program.0.into(), (*size).into(), design.name.into()]
    };
    let axes = [WORKLOAD, LEVEL, DESIGN];
    let seeds = Beyond::seeds(plan, run.quick);
    run.grid(&plan.about, &axes, seeds, &points, at, |(program, size, design), repeat| {
        plan.eager(design, &program.1, *size, repeat)
    })
}

fn on_demand(plan: &BeyondPlan, run: &Run<'_>, designs: &[Design]) -> Result<Grid, StudyError> {
    let mut together = Vec::new();
    for (programs, turn) in plan.demand.together.of(run.quick).iter() {
        let names = plan.demand.workloads.of(run.quick).iter();
        together.extend(names.map(|&name| Together::new(name, programs.get(), turn.get())));
    }
    let pagings = Paging::all(&plan.demand);
    let mut points: Vec<(&Together, Paging, u64, &Design)> = Vec::new();
    for one in &together {
        for &paging in &pagings {
            for size in plan.demand.block_frames.of(run.quick).iter().map(|size| size.get()) {
                points.extend(designs.iter().map(|design| (one, paging, size, design)));
            }
        }
    }
    let at = |(one, paging, size, design): &(&Together, Paging, u64, &Design)| {
        let (name, turns) = (one.name.into(), one.turns.as_str().into());
        vec![name, turns, paging.title().into(), (*size).into(), design.name.into()]
    };
    let axes = [WORKLOAD, demand::TURNS, demand::PAGING, LEVEL, DESIGN];
    let hardware = Hardware::of(&plan.machine);
    let seeds = Beyond::seeds(plan, run.quick);
    run.grid(&plan.about, &axes, seeds, &points, at, |&(one, paging, size, design), repeat| {
        let mut random = random(plan.about.seed, repeat);
        let measured =
            demand::measure(&hardware, design, paging, one, plan.memory(size), &mut random);
        measured.map_err(|error| plan.failed(&format!("{} on {}", design.name, one.name), &error))
    })
}

/// The timed system in this study's memory.
fn timed_system<'a>(
    plan: &'a BeyondPlan,
    hardware: &'a Hardware,
    memory: &'a TimedMemory,
) -> TimedSystem<'a> {
    TimedSystem {
        study: &plan.about.study,
        seed: plan.about.seed,
        hardware,
        hierarchy: None,
        free_per_requested: plan.free_per_requested,
        free_share: plan.free_share.get(),
        real: None,
        memory,
        record_commands: false,
    }
}

fn cycles_with_large(
    plan: &BeyondPlan,
    run: &Run<'_>,
    designs: &[Design],
) -> Result<Grid, StudyError> {
    let load = &plan.cycles.large;
    let designs = large::designs(designs);
    let names = load.workloads.of(run.quick).iter();
    let timed: Vec<Timed> = names.map(|name| Timed::new(&name.build(&Shapes::default()))).collect();
    let designs = plan.cycles.with_fields(&plan.machine, &designs);
    let mut points: Vec<Point<'_>> = Vec::new();
    for timed in &timed {
        for block_frames in load.block_frames.of(run.quick).iter().map(|size| size.get()) {
            points.extend(designs.iter().map(|&(design, contiguity)| Point {
                machine: &plan.cycles.system,
                timed,
                block_frames,
                design,
                contiguity,
            }));
        }
    }
    let at = |point: &Point<'_>| {
        let name = name_under(&plan.machine, point.contiguity, point.design.name);
        vec![point.timed.name.into(), point.block_frames.into(), name.into()]
    };
    let memory = plan.dram.memory_of(&plan.about.study)?;
    let hardware = timed::hardware(&plan.machine, &memory);
    let system = timed_system(plan, &hardware, &memory);
    let (axes, seeds) = ([WORKLOAD, LEVEL, DESIGN], Beyond::seeds(plan, run.quick));
    run.grid(&plan.about, &axes, seeds, &points, at, |&point, repeat| {
        Ok(metrics([("cycles", system.cycles(point, repeat)? as f64)]))
    })
}

fn cycles_on_demand(
    plan: &BeyondPlan,
    run: &Run<'_>,
    designs: &[Design],
) -> Result<Grid, StudyError> {
    let load = &plan.cycles.demand;
    let mut together = Vec::new();
    for programs in plan.cycles.programs.of(run.quick).iter() {
        let names = load.workloads.of(run.quick).iter();
        together.extend(names.map(|&name| TimedTogether::new(name, programs.get())));
    }
    let pagings = Paging::all(&plan.demand);
    let designs = plan.cycles.with_fields(&plan.machine, designs);
    let mut points: Vec<(&TimedTogether, Paging, u64, (&Design, ContiguityBits))> = Vec::new();
    for one in &together {
        for &paging in &pagings {
            for size in load.block_frames.of(run.quick).iter().map(|size| size.get()) {
                points.extend(designs.iter().map(|&design| (one, paging, size, design)));
            }
        }
    }
    let at = |&(one, paging, size, (design, contiguity)): &(
        &TimedTogether,
        Paging,
        u64,
        (&Design, ContiguityBits),
    )| {
        let (name, turns) = (one.together.name.into(), one.together.turns.as_str().into());
        let design = name_under(&plan.machine, contiguity, design.name);
        vec![name, turns, paging.title().into(), size.into(), design.into()]
    };
    let axes = [WORKLOAD, demand::TURNS, demand::PAGING, LEVEL, DESIGN];
    let memory = plan.dram.memory_of(&plan.about.study)?;
    let hardware = timed::hardware(&plan.machine, &memory);
    let system = timed_system(plan, &hardware, &memory);
    let seeds = Beyond::seeds(plan, run.quick);
    run.grid(&plan.about, &axes, seeds, &points, at, |&(one, paging, size, design), repeat| {
        let (memory, mut random) = (plan.memory(size), random(plan.about.seed, repeat));
        cycles::on_demand(&plan.cycles, &system, design, paging, one, memory, &mut random)
            .map_err(|error| system.failed(design.0, &one.timed, &error))
    })
}

fn in_mixed(plan: &BeyondPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
    let mixed = &plan.mixed;
    let mut points: Vec<(mixed::Design, Share)> = Vec::new();
    for &used in &mixed.used_shares {
        points.extend(mixed::DESIGNS.map(|design| (design, used)));
    }
    let at = |(design, used): &(mixed::Design, Share)| vec![used.get().into(), design.name.into()];
    let (hardware, orders) = (Hardware::of(&plan.machine), orders_of(&plan.machine)?);
    let operations = mixed.operations.of(run.quick).get();
    let (axes, seeds) = ([mixed::LEVEL, DESIGN], mixed.repeats.of(run.quick).get());
    run.grid(&plan.about, &axes, seeds, &points, at, |&point, repeat| {
        let mut random = random(plan.about.seed, repeat);
        let measured = mixed::measure(mixed, &hardware, point, orders, operations, &mut random);
        measured.map_err(|error| plan.failed(point.0.name, &error))
    })
}

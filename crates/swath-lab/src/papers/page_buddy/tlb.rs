//! TLB hit rates of the designs (Duong and Hur, section V-B, Fig. 10 to 14), on
//! synthetic, aged and real memory, under Table 4's workloads and real accesses.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_trace::machine::UnknownFrames;

use crate::papers::page_buddy::design::{self, Design, DesignsPlan};
use crate::papers::page_buddy::savings::{CATEGORY, DESIGN, LEVEL, WORKLOAD};
use crate::papers::page_buddy::setting::{
    AccessPlan, Blocks, MachinePlan, MemoryPlan, blocks_bytes,
};
use crate::papers::page_buddy::translation::{Hardware, Program, measure};
use crate::papers::page_buddy::workload::{Category, Shapes, WorkloadName};
use crate::source::memory::{Ageing, Source, random};
use crate::source::real::{Machine, Trace};
use crate::study::bounds::{Forms, Repeats, Share};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{
    CellView, Grid, Metrics, Missing, Selection, Value, View, largest, least, mean, metrics,
};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// TLB hit rates of designs on workloads.
pub struct Tlb;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlbPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// True if the paper's claims on these figures are judged.
    pub claims: bool,
    /// True if PBS with best fit is measured beside the paper's four designs.
    pub best_fit: bool,
    /// The designs; all if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: DesignsPlan,
    /// The machine.
    pub machine: MachinePlan,
    /// Memory before the requests.
    pub memory: MemoryPlan,
    /// The accesses.
    pub accesses: AccessPlan,
}

crate::plan!(TlbPlan, check);

fn check(plan: &TlbPlan) -> Result<(), Refused> {
    plan.machine.check()?;
    design::plan::check(&plan.designs)?;
    plan.memory.check()?;
    plan.accesses.check()
}

/// One state of memory: a column of the x axis.
struct MemoryLevel {
    x: Value,
    state: MemoryOf,
}

enum MemoryOf {
    Blocks { block_frames: u64, free_per_requested: f64, free_share: f64 },
    Aged { frames: u64, ageing: Ageing },
    Machine(Arc<Machine>),
}

/// A program with its name in the figures.
struct Named {
    name: String,
    category: Category,
    program: Program,
}

/// One measured point.
struct TlbPoint<'a> {
    named: &'a Named,
    level: &'a MemoryLevel,
    design: Design,
}

/// Pages of a recorded program that an estimate of memory allows for.
const TRACED_PAGES_MAX: u64 = 1 << 16;

impl Study for Tlb {
    const KIND: &'static str = "tlb";
    const USES: Uses = Uses { memory: true, accesses: true, machine: false };
    type Plan = TlbPlan;
    type Found = Grid;

    fn seeds(plan: &TlbPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &TlbPlan, run: &Run<'_>) -> Needs {
        let quick = run.quick;
        let (mut once, mut pages) = (0, TRACED_PAGES_MAX);
        let mut programs = 1;
        if let (None, AccessPlan::Table4 { workloads, shapes }) =
            (&run.real.accesses, &plan.accesses)
        {
            let all = WorkloadName::with_added(workloads);
            let all: Vec<_> = all.iter().map(|name| name.build(shapes)).collect();
            once = all
                .iter()
                .map(|one| bytes(&[16, one.transactions_max()]))
                .fold(0, u64::saturating_add);
            pages = all.iter().map(|one| one.pages()).max().unwrap_or(0);
            programs = all.len() as u64;
        }
        let table = bytes(&[96, pages]);
        let (key, memory, levels) = match (&run.real.memory, &plan.memory) {
            (Some(_), _) | (None, MemoryPlan::Snapshot { .. }) => ("memory.snapshot", 64 << 20, 1),
            (None, MemoryPlan::Blocks(blocks)) => {
                let Blocks { block_frames, free_per_requested, free_share } = blocks;
                let memory = blocks_bytes(pages, block_frames, *free_per_requested, *free_share);
                ("memory.blocks.free_per_requested", memory, block_frames.len() as u64)
            }
            (None, MemoryPlan::Aged(aged)) => {
                ("memory.aged.frames", aged.needs_bytes(quick), aged.used_shares.len() as u64)
            }
        };
        let designs = design::plan::count(&plan.designs);
        let entries = design::plan::entries_max(&plan.designs, plan.machine.tlb_entries.get());
        let cells = bytes(&[512, plan.repeats.of(quick).get(), programs, levels, designs]);
        Needs::small()
            .once("accesses", once)
            .once("repeats", cells)
            .each(key, memory)
            .each("accesses", table)
            .each("machine.tlb_entries", bytes(&[256, entries]))
    }

    fn measure(plan: &TlbPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let hardware = Hardware::of(&plan.machine);
        let (bbs, pbs) = (plan.machine.bbs()?, plan.machine.pbs()?);
        let mut designs = design::plan::designs(&plan.designs, bbs, pbs);
        let best_fit = Design::best_fit(pbs);
        if plan.best_fit && designs.iter().all(|design| design.name != best_fit.name) {
            designs.push(best_fit);
        }
        let programs = programs(plan, run)?;
        let levels = levels(plan, run)?;
        let mut points = Vec::new();
        for named in &programs {
            for level in &levels {
                points.extend(designs.iter().map(|&design| TlbPoint { named, level, design }));
            }
        }
        let axes = [CATEGORY, WORKLOAD, LEVEL, DESIGN];
        let at = |point: &TlbPoint<'_>| {
            let name = point.named.name.clone().into();
            let category = point.named.category.title().into();
            vec![category, name, point.level.x.clone(), point.design.name.into()]
        };
        let seeds = Self::seeds(plan, run.quick);
        let one = |point: &TlbPoint<'_>, repeat| one(&hardware, point, &plan.about, repeat);
        run.grid(&plan.about, &axes, seeds, &points, at, one)
    }

    fn claims(plan: &TlbPlan, run: &Run<'_>) -> Vec<Statement<Grid>> {
        if plan.claims { claims(&conditions(plan, run)) } else { Vec::new() }
    }

    fn fitted(plan: &TlbPlan) -> Vec<String> {
        match &plan.accesses {
            AccessPlan::Table4 { shapes, .. } if plan.claims => shapes.fitted(),
            _ => Vec::new(),
        }
    }

    fn show(plan: &TlbPlan, run: &Run<'_>, grid: &Grid) -> Shown {
        let mut figures = rate_figures(plan, grid);
        figures.extend(sum_figures(plan, grid));
        Shown { finding: finding(grid), figures, notes: notes(plan, run), host: None }
    }
}

/// The machine and load of the paper.
fn conditions(plan: &TlbPlan, run: &Run<'_>) -> Conditions {
    let conditions = plan.machine.conditions();
    let conditions = match &plan.memory {
        MemoryPlan::Blocks(blocks) => blocks.conditions(conditions),
        _ => conditions.met(false, "memory that is not free blocks of one size"),
    };
    let paper = Shapes::default();
    let shapes = matches!(&plan.accesses, AccessPlan::Table4 { shapes, .. } if *shapes == paper);
    conditions
        .met(shapes, "other accesses or sizes than those of Table 4")
        .met(run.real.memory.is_none(), "the free memory of a real machine")
        .met(run.real.accesses.is_none(), "the accesses of a real program")
}

/// The programs that access memory: the plan's workloads, or a real one.
fn programs(plan: &TlbPlan, run: &Run<'_>) -> Result<Vec<Named>, StudyError> {
    let (workloads, shapes) = match (&run.real.accesses, &plan.accesses) {
        (Some(file), _) => return Ok(vec![traced(Some(file), plan)?]),
        (None, AccessPlan::Trace { file }) => {
            let file = (!file.is_empty()).then_some(Path::new(file));
            return Ok(vec![traced(file, plan)?]);
        }
        (None, AccessPlan::Table4 { workloads, shapes }) => (workloads, shapes),
    };
    let named = |name: &WorkloadName| {
        let workload = name.build(shapes);
        let program = Program::of(&workload);
        Named { name: workload.name.to_owned(), category: workload.category, program }
    };
    Ok(WorkloadName::with_added(workloads).iter().map(named).collect())
}

fn traced(file: Option<&Path>, plan: &TlbPlan) -> Result<Named, StudyError> {
    let trace = Trace::new(file);
    let name = trace.name();
    let program = Program::recorded(trace, plan.machine.format.format())?;
    Ok(Named { name, category: Category::II, program })
}

/// The states of memory: the plan's, or a real machine's.
fn levels(plan: &TlbPlan, run: &Run<'_>) -> Result<Vec<MemoryLevel>, StudyError> {
    let machine = |machine: Arc<Machine>| {
        vec![MemoryLevel { x: machine.name.clone().into(), state: MemoryOf::Machine(machine) }]
    };
    if let Some(real) = &run.real.memory {
        return Ok(machine(real.clone()));
    }
    Ok(match &plan.memory {
        MemoryPlan::Snapshot { file } => {
            let file = (!file.is_empty()).then_some(Path::new(file));
            machine(Arc::new(Machine::load(file, UnknownFrames::Used)?))
        }
        MemoryPlan::Blocks(blocks) => {
            let level = |size: u64| MemoryLevel {
                x: size.into(),
                state: MemoryOf::Blocks {
                    block_frames: size,
                    free_per_requested: blocks.free_per_requested,
                    free_share: blocks.free_share.get(),
                },
            };
            blocks.block_frames.iter().map(|size| level(size.get())).collect()
        }
        MemoryPlan::Aged(aged) => {
            let level = |share: Share| MemoryLevel {
                x: Value::Number(share.get()),
                state: MemoryOf::Aged {
                    frames: aged.frames.get(),
                    ageing: aged.ageing(share, run.quick),
                },
            };
            aged.used_shares.iter().copied().map(level).collect()
        }
    })
}

/// One seed of one point. The random numbers depend on the plan's seed and on
/// the repeat alone, so that all designs see the same memory.
fn one(
    hardware: &Hardware,
    point: &TlbPoint<'_>,
    about: &Head,
    repeat: u64,
) -> Result<Metrics, StudyError> {
    let program = &point.named.program;
    let mut random = random(about.seed, repeat);
    let below;
    let source = match &point.level.state {
        MemoryOf::Blocks { block_frames, free_per_requested, free_share } => {
            program.scattered(*block_frames, *free_per_requested, *free_share)
        }
        MemoryOf::Aged { frames, ageing } => Source::Aged { frames: *frames, ageing: *ageing },
        MemoryOf::Machine(machine) => {
            below = hardware.free_of(machine, program);
            Source::Free(&below)
        }
    };
    let measured = measure(hardware, &point.design, &source, program, &mut random);
    let measured = measured.map_err(|error| {
        let (design, workload, level) = (point.design.name, &point.named.name, &point.level.x);
        StudyError::Machine {
            study: about.study.clone(),
            what: format!("{design} on {workload} at {level}: {error}"),
        }
    })?;
    Ok(metrics([
        ("accesses", measured.accesses as f64),
        ("hits", measured.hits as f64),
        ("reads", measured.reads as f64),
        ("blocks", measured.blocks as f64),
    ]))
}

/// The share of accesses that hit.
fn rate(cell: &CellView<'_>) -> Result<f64, Missing> {
    let (hits, accesses) = (cell.get("hits")?, cell.get("accesses")?);
    Ok(if accesses == 0.0 { 1.0 } else { hits / accesses })
}

/// The paper's figure of a workload of category II.
fn figure_of(workload: &str) -> Option<&'static str> {
    [
        (WorkloadName::RotatedPreview, "Fig. 11"),
        (WorkloadName::RotatedDisplay, "Fig. 12"),
        (WorkloadName::MatrixMultiplication, "Fig. 13"),
        (WorkloadName::MatrixTranspose, "Fig. 14"),
    ]
    .into_iter()
    .find(|(name, _)| name.title() == workload)
    .map(|(_, figure)| figure)
}

/// The x axis: kind, name with unit, and words.
fn x_axis(plan: &TlbPlan, grid: &Grid) -> (FigureKind, &'static str, &'static str) {
    match (&plan.memory, grid.values(LEVEL).first()) {
        (_, Some(Value::Word(_))) => (FigureKind::Bars, "memory", "memory"),
        (MemoryPlan::Blocks(_), _) => {
            (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)")
        }
        _ => (FigureKind::Lines, "used_share", "memory in use (share of frames)"),
    }
}

fn words(values: &[&Value]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// Fig. 10 and its kin as bars, Fig. 11 to 14 as lines.
fn rate_figures(plan: &TlbPlan, grid: &Grid) -> Vec<Drawn> {
    let y_label = "TLB hit rate (share of accesses)";
    let (kind, x, x_label) = x_axis(plan, grid);
    let (workloads, designs) = (words(&grid.values(WORKLOAD)), words(&grid.values(DESIGN)));
    let one_level = grid.values(LEVEL).len() == 1;
    let in_category_1 = |workload: &&String| {
        let found = |view: &View<'_>| {
            view.select().is(CATEGORY, "I").is(WORKLOAD, workload.as_str()).mean("hits")
        };
        grid.evidence(found).is_ok()
    };
    let (bars, lines): (Vec<&String>, Vec<&String>) =
        workloads.iter().partition(|workload| one_level || in_category_1(workload));
    let mut figures = Vec::new();
    if !bars.is_empty() {
        let id = if plan.claims { "Fig. 10" } else { "Programs" };
        let title = match one_level {
            true => "TLB hit rate of each program",
            false => "Workloads of category I, mean over all levels",
        };
        let figure = Figure::new(id, title, FigureKind::Bars, "program", y_label);
        let of = |design: &String| {
            let points = bars.iter().filter_map(|workload| {
                let mean = |view: &View<'_>| {
                    let cells = view.select().is(WORKLOAD, workload.as_str());
                    Ok(mean(&cells.is(DESIGN, design.as_str()).each(rate)?))
                };
                Some(grid.evidence(mean).ok()?.point(workload.as_str()))
            });
            Series::new(id, "program", "tlb_hit_rate", design, points)
        };
        let series = designs.iter().map(of).collect();
        figures.push(Drawn { figure: figure.with_y_range(0.0, 1.0), series });
    }
    for workload in lines {
        let id = figure_of(workload).filter(|_| plan.claims);
        let (id, title) = id.map_or((workload.as_str(), "TLB hit rate"), |id| (id, workload));
        let figure = Figure::new(id, title, kind, x_label, y_label).with_y_range(0.0, 1.0);
        let of = |design: &String| {
            let points = grid.points(
                LEVEL,
                |all| all.is(WORKLOAD, workload.as_str()).is(DESIGN, design.as_str()),
                rate,
            );
            Series::new(id, x, "tlb_hit_rate", design, points)
        };
        figures.push(Drawn { figure, series: designs.iter().map(of).collect() });
    }
    figures
}

/// Misses, page-table reads and blocks of all programs together.
fn sum_figures(plan: &TlbPlan, grid: &Grid) -> Vec<Drawn> {
    let (kind, x, x_label) = x_axis(plan, grid);
    let one_level = grid.values(LEVEL).len() == 1;
    let kind = if one_level { FigureKind::Bars } else { kind };
    type Of = fn(&Selection<'_>) -> Result<f64, Missing>;
    let sums: [(&str, &str, &str, Of); 3] = [
        ("Misses", "TLB misses per 1000 accesses", "misses_per_1000", |cells| {
            let (accesses, hits) = (total(cells, "accesses")?, total(cells, "hits")?);
            Ok(1000.0 * (accesses - hits) / accesses.max(1.0))
        }),
        ("Page-table reads", "page-table reads per 1000 accesses", "reads_per_1000", |cells| {
            Ok(1000.0 * total(cells, "reads")? / total(cells, "accesses")?.max(1.0))
        }),
        ("Blocks", "blocks for all requests", "blocks", |cells| total(cells, "blocks")),
    ];
    let drawn = |(id, y_label, y, of): (&str, &str, &str, Of)| {
        let figure = Figure::new(id, "all programs together", kind, x_label, y_label);
        let line = |design: &String| {
            let points = grid.values(LEVEL).into_iter().filter_map(|level| {
                let sum = |view: &View<'_>| {
                    of(&view.select().is(LEVEL, level.clone()).is(DESIGN, design.as_str()))
                };
                let evidence = grid.evidence(sum).ok()?;
                // Bars have categories, be the level a number or not.
                Some(match one_level {
                    true => evidence.point(level.to_string().as_str()),
                    false => evidence.point(level.clone()),
                })
            });
            Series::new(id, x, y, design, points)
        };
        let series = words(&grid.values(DESIGN)).iter().map(line).collect();
        Drawn { figure, series }
    };
    sums.into_iter().map(drawn).collect()
}

/// The sum of a metric over cells.
fn total(cells: &Selection<'_>, metric: &str) -> Result<f64, Missing> {
    Ok(cells.numbers(metric)?.iter().sum())
}

fn finding(grid: &Grid) -> String {
    let designs = words(&grid.values(DESIGN));
    let means = designs.iter().filter_map(|design| {
        let rates =
            |view: &View<'_>| Ok(mean(&view.select().is(DESIGN, design.as_str()).each(rate)?));
        let evidence = grid.evidence(rates).ok()?;
        Some(format!("{design} {:.2}%", 100.0 * evidence.estimate().value))
    });
    format!("Mean hit rates over all points: {}.", means.collect::<Vec<_>>().join(", "))
}

fn notes(plan: &TlbPlan, run: &Run<'_>) -> Vec<String> {
    let mut notes = vec![format!(
        "Each point is {} independent states of memory; accesses and hits are added up over the \
         masters of a workload, each of which has a TLB of its own.",
        Tlb::seeds(plan, run.quick)
    )];
    if let Some(machine) = &run.real.memory {
        notes.push(format!("Free memory of a real machine: {}.", machine.name));
    }
    if let Some(file) = run.real.accesses_name() {
        notes.push(format!("Accesses of a real program: {file}."));
    }
    notes
}

const ALL_LEVELS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
const REFERENCES: [&str; 3] = ["TRAD", "PCAD", "AT"];

/// The cells of a category at the paper's block sizes: all its workloads, and
/// each of the sizes.
fn cells<'v>(view: &'v View<'_>, category: &str, sizes: &[u64]) -> Selection<'v> {
    let workloads =
        WorkloadName::ALL.into_iter().filter(|name| name.category().title() == category);
    view.select()
        .all(WORKLOAD, workloads.map(|name| name.title()))
        .all(LEVEL, sizes.iter().copied())
}

/// The gains of PBS over a reference, as shares of the reference.
fn gains(cells: &Selection<'_>, over: &str) -> Result<Vec<f64>, Missing> {
    cells.pairs(DESIGN, "PBS", over, |pbs, other| Ok(rate(pbs)? / rate(other)? - 1.0))
}

/// The parameters that were chosen by their results.
const FITTED: &str =
    "the bytes of a column and of a block, which Table 4 leaves open (study pbs-readings)";

/// The statements of section V-B on these figures. Tolerances: rates that the
/// paper gives as bounds have none; gains that it gives in whole per cent and
/// that are read off small figures have 5 points, "2x" has a tenth.
fn claims(conditions: &Conditions) -> Vec<Statement<Grid>> {
    let share = |statement: Statement<Grid>| statement.unit(Unit::Share).under(conditions);
    let place = "Section V-B, Fig. 10";
    let mut claims = vec![
        share(
            Statement::at_least(
                place,
                "Category I: the TLB hit rates of all designs are higher than 98%",
                0.98,
                0.0,
            )
            .fitted(FITTED),
        )
        .measured(|grid: &Grid| {
            grid.evidence(|view| {
                let designs = ["TRAD", "PCAD", "AT", "PBS"];
                Ok(least(&cells(view, "I", &ALL_LEVELS).all(DESIGN, designs).each(rate)?))
            })
        }),
        share(
            Statement::at_most(
                place,
                "Category I: the improvement by PBS is less than 2%",
                0.02,
                0.0,
            )
            .fitted(FITTED),
        )
        .measured(|grid: &Grid| {
            grid.evidence(|view| {
                let cells = cells(view, "I", &ALL_LEVELS);
                let best = |over| Ok(largest(&gains(&cells, over)?));
                let all: Result<Vec<f64>, Missing> = REFERENCES.into_iter().map(best).collect();
                Ok(largest(&all?))
            })
        }),
        share(Statement::exactly(
            "Section V-B, 1",
            "Block size 1: all designs have the same TLB hit rates (largest difference)",
            0.0,
        ))
        .measured(|grid: &Grid| {
            grid.evidence(|view| {
                let cells = cells(view, "II", &[1]);
                let difference = |over| {
                    cells.pairs(DESIGN, "PBS", over, |pbs, other| {
                        Ok((rate(pbs)? - rate(other)?).abs())
                    })
                };
                let all: Result<Vec<Vec<f64>>, Missing> =
                    REFERENCES.into_iter().map(difference).collect();
                Ok(largest(&all?.concat()))
            })
        }),
    ];
    for (over, says, paper) in [
        ("PCAD", "Block sizes 2 to 64: PBS is up to 22% better than PCAD", 0.22),
        ("AT", "Block sizes 2 to 64: PBS is up to 30% better than AT", 0.30),
    ] {
        let statement =
            share(Statement::within("Section V-B, 2", says, paper, 0.05).fitted(FITTED));
        claims.push(statement.measured(move |grid: &Grid| {
            grid.evidence(|view| Ok(largest(&gains(&cells(view, "II", &ALL_LEVELS[1..7]), over)?)))
        }));
    }
    let says = "Block sizes 128 to 256: PBS is up to 2x better than TRAD";
    let statement =
        Statement::about("Section V-B, 3", says, 2.0, 0.1).unit(Unit::Ratio).fitted(FITTED);
    claims.push(statement.under(conditions).measured(|grid: &Grid| {
        grid.evidence(|view| {
            Ok(1.0 + largest(&gains(&cells(view, "II", &ALL_LEVELS[7..]), "TRAD")?))
        })
    }));
    for (over, says) in [
        ("PCAD", "Block sizes 128 to 256: PBS is comparable to PCAD (largest difference)"),
        ("AT", "Block sizes 128 to 256: PBS is comparable to AT (largest difference)"),
    ] {
        let statement = share(Statement::within("Section V-B, 3", says, 0.0, 0.05).fitted(FITTED));
        claims.push(statement.measured(move |grid: &Grid| {
            grid.evidence(|view| {
                let gains = gains(&cells(view, "II", &ALL_LEVELS[7..]), over)?;
                Ok(largest(&gains.iter().map(|gain| gain.abs()).collect::<Vec<_>>()))
            })
        }));
    }
    claims
}

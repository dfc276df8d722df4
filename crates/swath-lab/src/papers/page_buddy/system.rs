//! Execution cycles in the timed system (section V-C, Fig. 15 to 18).

use std::cmp::Ordering;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::design::plan::FigureName;
use crate::papers::page_buddy::design::{self, Design, DesignsPlan};
use crate::papers::page_buddy::dram::DramPlan;
use crate::papers::page_buddy::dram::plan::TimedMemory;
use crate::papers::page_buddy::energy;
use crate::papers::page_buddy::fields::{self, FieldsPlan, Gains, designs_of, name_under};
use crate::papers::page_buddy::savings::{
    self, AS_MEASURED, CATEGORY, DESIGN, LEVEL, READING, Scope, WORKLOAD,
};
use crate::papers::page_buddy::setting::blocks_bytes;
use crate::papers::page_buddy::setting::{
    BlockFrames, MachinePlan, check_free, check_shapes, free_conditions,
};
use crate::papers::page_buddy::timed::{
    Exported, HierarchyPlan, Point as TimedPoint, SystemMachine, Timed, TimedSystem, hardware,
};
use crate::papers::page_buddy::translation::Hardware;
use crate::papers::page_buddy::workload::{
    Category, MixMaster, MixPlan, Shapes, Workload, WorkloadName, mixed,
};
use crate::source::real::InputError;
use crate::study::bounds::{Ascending, Distinct, Forms, Repeats, Share};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{CellView, Grid, Missing, Value, View, largest, mean};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, PlanError, Refused, require};
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};

/// Cycles of designs on workloads in the timed system.
pub struct System;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// True if the paper's claims on these figures are judged.
    pub claims: bool,
    /// The designs; all if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: DesignsPlan,
    /// The machine.
    pub machine: MachinePlan,
    /// A second TLB and a page-walk cache behind the first, as a processor has
    /// them.
    pub hierarchy: Option<HierarchyPlan>,
    /// The machine between the masters and the memory.
    #[serde(default)]
    pub system: SystemMachine,
    /// The memory; Table 3's if not given.
    #[serde(default)]
    pub dram: DramPlan,
    /// Contiguity fields beside the machine's own, on which the figures are shown, too.
    pub fields: Option<FieldsPlan>,
    /// Other readings of what Table 3 leaves open.
    pub variants: Option<SystemVariants>,
    /// Sizes of the free blocks, one point of the x axis each.
    pub block_frames: Forms<Ascending<BlockFrames>>,
    /// Those for the workloads of category I, of which the paper shows one bar
    /// each; all of them if not given.
    pub category_i_block_frames: Option<Forms<Ascending<BlockFrames>>>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// The workloads.
    pub workloads: Distinct<WorkloadName>,
    /// Workloads composed of recorded programs and the masters of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixes: Vec<MixPlan>,
    /// The workloads' sizes.
    #[serde(default)]
    pub shapes: Shapes,
}

/// Other readings of what Table 3 leaves open, on which the claims' figures are
/// shown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemVariants {
    /// Sizes of the free blocks.
    pub block_frames: Ascending<BlockFrames>,
    /// Workloads among the plan's.
    pub workloads: Forms<Distinct<WorkloadName>>,
    /// The readings.
    pub readings: Vec<SystemVariant>,
}

/// Another reading of what Table 3 leaves open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemVariant {
    /// The difference in a few words.
    pub name: String,
    /// The whole of it.
    pub system: SystemMachine,
}

crate::plan!(SystemPlan, check);

fn check(plan: &SystemPlan) -> Result<(), Refused> {
    plan.machine.check()?;
    design::plan::check(&plan.designs)?;
    plan.system.check("system.walks_max")?;
    let anchors = plan.machine.anchor_log2.is_none() || plan.system.anchor_log2.is_none();
    require(anchors, "system.anchor_log2", || "machine.anchor_log2 is given, too".to_owned())?;
    plan.dram.check()?;
    plan.hierarchy.as_ref().map_or(Ok(()), HierarchyPlan::check)?;
    let caches = plan.hierarchy.is_none() || plan.system.walk_cache_entries.is_none();
    require(caches, "system.walk_cache_entries", || "the hierarchy has its own".to_owned())?;
    plan.fields.as_ref().map_or(Ok(()), |fields| fields.check(&plan.machine))?;
    check_free("", plan.free_per_requested, plan.free_share)?;
    mixed::check(&plan.mixes)?;
    if let Some(variants) = &plan.variants {
        for name in variants.workloads.full.iter().chain(&variants.workloads.quick) {
            require(plan.workloads.contains(name), "variants.workloads", || {
                format!("{} is not among the plan's workloads", name.as_str())
            })?;
        }
        for (nth, variant) in variants.readings.iter().enumerate() {
            variant.system.check(&format!("variants.readings.{nth}"))?;
            let before = variants.readings[..nth].iter().map(|other| other.name.as_str());
            let taken = before.chain([AS_MEASURED]).any(|name| name == variant.name);
            require(!taken, &format!("variants.readings.{nth}"), || {
                format!("the name {:?} stands twice", variant.name)
            })?;
        }
    }
    check_shapes("shapes", &plan.shapes)
}

impl SystemPlan {
    /// The workloads that are measured: the plan's, and those that other crates added; none where a
    /// recorded program takes their place.
    fn workloads(&self, run: &Run<'_>) -> Vec<WorkloadName> {
        match run.real.accesses {
            Some(_) => Vec::new(),
            None => WorkloadName::with_added(&self.workloads),
        }
    }

    /// The workloads that are composed: the plan's, or the recorded program.
    fn mixes(&self, run: &Run<'_>) -> Vec<MixPlan> {
        let (Some(file), Some(name)) = (&run.real.accesses, run.real.accesses_name()) else {
            return self.mixes.clone();
        };
        let masters = vec![MixMaster::program(file.display().to_string())];
        vec![MixPlan { name: FigureName::shortened(&name), masters }]
    }

    /// All of them, ready to run.
    fn timed_workloads(
        &self,
        run: &Run<'_>,
    ) -> Result<Vec<(Option<WorkloadName>, Timed)>, InputError> {
        let ready = |workload: &Workload| Timed::new(workload);
        let named = self.workloads(run).into_iter();
        let named = named.map(|name| Ok((Some(name), ready(&name.build(&self.shapes)))));
        let mixes = self.mixes(run).into_iter();
        let mixes = mixes.map(|mix| Ok((None, ready(&mix.build(&self.shapes)?))));
        named.chain(mixes).collect()
    }

    /// Sizes of the free blocks for a category.
    fn sizes(&self, category: Category, quick: bool) -> Vec<u64> {
        let all = &self.block_frames;
        let sizes = match category {
            Category::I => self.category_i_block_frames.as_ref().unwrap_or(all).of(quick),
            Category::II | Category::Added => all.of(quick),
        };
        sizes.iter().map(|size| size.get()).collect()
    }

    /// The designs that are measured.
    fn designs(&self) -> Result<Vec<Design>, PlanError> {
        let machine = &self.machine;
        Ok(design::plan::designs(&self.designs, machine.bbs()?, machine.pbs()?))
    }

    fn timed<'a>(&'a self, hardware: &'a Hardware, memory: &'a TimedMemory) -> TimedSystem<'a> {
        TimedSystem {
            study: &self.about.study,
            seed: self.about.seed,
            hardware,
            hierarchy: self.hierarchy.as_ref(),
            free_per_requested: self.free_per_requested,
            free_share: self.free_share.get(),
            real: None,
            memory,
            record_commands: false,
        }
    }
}

/// One measured point with its reading and its place on the x axis.
struct Placed<'a> {
    reading: &'a str,
    x: Value,
    point: TimedPoint<'a>,
}

impl Study for System {
    const KIND: &'static str = "system";
    const USES: Uses = Uses { memory: true, accesses: true, machine: false };
    type Plan = SystemPlan;
    type Found = Grid;

    fn seeds(plan: &SystemPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &SystemPlan, run: &Run<'_>) -> Needs {
        let bounds = |name: WorkloadName| {
            let one = name.build(&plan.shapes);
            (one.transactions_max(), one.pages())
        };
        let mut all: Vec<(u64, u64)> = plan.workloads(run).into_iter().map(bounds).collect();
        all.extend(plan.mixes(run).iter().map(|mix| mix.bounds(&plan.shapes)));
        let transactions = all.iter().map(|(transactions, _)| *transactions);
        let largest = transactions.clone().max().unwrap_or(0);
        let once = transactions.fold(0, u64::saturating_add);
        let pages = all.iter().map(|(_, pages)| *pages).max().unwrap_or(0);
        let (sizes, share) = (plan.block_frames.of(run.quick), plan.free_share);
        let memory = blocks_bytes(pages, sizes, plan.free_per_requested, share);
        let variants = plan.variants.as_ref().map_or(0, |variants| variants.readings.len()) as u64;
        let designs = design::plan::count(&plan.designs);
        let points = bytes(&[all.len() as u64, sizes.len() as u64, designs, 1 + variants]);
        let tlbs = design::plan::entries_max(&plan.designs, plan.machine.tlb_entries.get())
            + plan.hierarchy.as_ref().map_or(0, |own| own.l2_sets.get() * own.l2_ways.get());
        Needs::small()
            .once("workloads", bytes(&[48, once]))
            .once("repeats", bytes(&[512, plan.repeats.of(run.quick).get(), points]))
            .each("workloads", bytes(&[16, largest]))
            .each("free_per_requested", memory)
            .each("machine.tlb_entries", bytes(&[512, tlbs]))
    }

    fn measure(plan: &SystemPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let memory = plan.dram.memory_of(&plan.about.study)?;
        let hardware = hardware(&plan.machine, &memory);
        let real = run.real.memory.as_deref();
        let system = TimedSystem { real, ..plan.timed(&hardware, &memory) };
        let designs = plan.designs()?;
        let timed = plan.timed_workloads(run)?;
        let mut points = Vec::new();
        let mut sweep = |reading, machine, timed, contiguity, sizes: &[u64]| {
            let levels: Vec<(Value, u64)> = match real {
                Some(real) => vec![(real.name.clone().into(), 1)],
                None => sizes.iter().map(|&size| (size.into(), size)).collect(),
            };
            // A table that tells of no contiguity is the same with every field.
            let own = contiguity == plan.machine.contiguity_bits;
            let designs = designs.iter().filter(|design| own || design.scheme.tells());
            for (x, block_frames) in levels {
                points.extend(designs.clone().map(|design| Placed {
                    reading,
                    x: x.clone(),
                    point: TimedPoint { machine, timed, block_frames, design, contiguity },
                }));
            }
        };
        let own = plan.machine.contiguity_bits;
        for (_, timed) in &timed {
            let sizes = plan.sizes(timed.category, run.quick);
            sweep(AS_MEASURED, &plan.system, timed, own, &sizes);
            for fields in plan.fields.iter() {
                let sizes = fields.sizes(&sizes, run.quick);
                for field in fields.others(&plan.machine) {
                    sweep(AS_MEASURED, &plan.system, timed, field, &sizes);
                }
            }
        }
        for variants in plan.variants.iter().filter(|_| real.is_none()) {
            let sizes: Vec<u64> = variants.block_frames.iter().map(|size| size.get()).collect();
            for variant in &variants.readings {
                let chosen = variants.workloads.of(run.quick);
                let is_chosen =
                    |name: &Option<WorkloadName>| name.is_some_and(|one| chosen.contains(&one));
                for (_, timed) in timed.iter().filter(|(name, _)| is_chosen(name)) {
                    sweep(&variant.name, &variant.system, timed, own, &sizes);
                }
            }
        }
        let at = |Placed { reading, x, point }: &Placed<'_>| {
            let TimedPoint { timed, design, contiguity, .. } = point;
            let category = timed.category.title().into();
            let design = name_under(&plan.machine, *contiguity, design.name).into();
            vec![(*reading).into(), category, timed.name.into(), x.clone(), design]
        };
        let axes = [READING, CATEGORY, WORKLOAD, LEVEL, DESIGN];
        let seeds = Self::seeds(plan, run.quick);
        run.grid(&plan.about, &axes, seeds, &points, at, |one, repeat| {
            system.measure(one.point, repeat)
        })
    }

    fn claims(plan: &SystemPlan, run: &Run<'_>) -> Vec<Statement<Grid>> {
        if plan.claims {
            savings::claims(&conditions(plan, run), &Scope::paper())
        } else {
            Vec::new()
        }
    }

    fn fitted(plan: &SystemPlan) -> Vec<String> {
        if !plan.claims {
            return Vec::new();
        }
        let walks = "one walk at a time that nothing passes, open in Table 3 (figure \"Readings\")";
        let mut fitted = plan.shapes.fitted();
        fitted.push(walks.to_owned());
        fitted
    }

    fn show(plan: &SystemPlan, run: &Run<'_>, grid: &Grid) -> Shown {
        let mut figures = cycle_figures(plan, run, grid);
        figures.extend(share_figures(grid));
        figures.extend(energy_figures(grid));
        figures.extend(reading_figure(plan, run.quick, grid));
        let gains = plan.fields.as_ref().filter(|_| run.real.memory.is_none());
        let gains = gains.map(|fields| {
            let sizes = fields.sizes(&plan.sizes(Category::II, run.quick), run.quick);
            Gains::of(fields, &plan.machine, sizes, grid)
        });
        figures.extend(gains.iter().filter_map(Gains::figure));
        // The plan was checked; of a file that has gone since, nothing is said.
        let memory = plan.dram.memory().ok();
        let clock = memory.as_ref().map_or(String::new(), |memory| {
            let mhz = 1e6 / f64::from(memory.config.part.clock_period_ps);
            format!("{mhz:.0} MHz ")
        });
        let mut finding = format!(
            "Cycles are those of the {clock}command clock until the last transaction of every master \
             has completed. In the default reading one walk is under way at a time and nothing passes \
             a miss; figure \"Readings\" has others."
        );
        if let Some(gains) = &gains {
            finding += &gains.finding();
        }
        let seeds = Self::seeds(plan, run.quick);
        let mut notes = vec![
            format!("Each point is the mean over {seeds} independent states of memory."),
            "A master reads a line that another writes only once it is written: the display of a \
             rotated preview waits for the camera's whole image."
                .to_owned(),
            "\"Better\" is the share of cycles saved: 1 - PBS / other.".to_owned(),
            energy::note(memory.as_ref().and_then(|memory| memory.currents.as_ref())),
            plan.dram.describe(),
        ];
        if !plan.mixes(run).is_empty() {
            let note = "A recorded program goes as fast as it can, without a cache before it: each run \
                        of its accesses to one line, all reads or all writes, is one transaction.";
            notes.push(note.to_owned());
        }
        if gains.is_some() {
            notes.extend(fields::NOTES.map(str::to_owned));
        }
        Shown { finding, figures, notes, host: None }
    }
}

/// The machine and load of the paper. Of the system, Table 3 states the
/// transactions in flight; the rest is a reading.
fn conditions(plan: &SystemPlan, run: &Run<'_>) -> Conditions {
    let conditions = plan.machine.conditions();
    let conditions = plan.dram.conditions(conditions);
    free_conditions(conditions, plan.free_per_requested, plan.free_share)
        .same("transactions in flight", 16, plan.system.outstanding_max.get())
        .met(plan.hierarchy.is_none(), "a second TLB and a page-walk cache")
        .met(plan.shapes == Shapes::default(), "other sizes than those of Table 4")
        .met(run.real.memory.is_none(), "the free memory of a real machine")
        .met(run.real.accesses.is_none(), "the accesses of a real program")
}

/// Writes to `path` what the memory is asked for in one run of a plan, or commanded to do. Returns
/// their number.
///
/// # Errors
/// [`StudyError`]; `path` is then as it was.
pub fn export(
    plan: &SystemPlan,
    workload: WorkloadName,
    design: &str,
    block_frames: u64,
    exported: Exported,
    path: &Path,
) -> Result<u64, StudyError> {
    let designs = plan.designs()?;
    let named = designs.iter().find(|known| known.name.eq_ignore_ascii_case(design));
    let design = named.ok_or_else(|| {
        let names: Vec<_> = designs.iter().map(|design| design.name).collect();
        StudyError::NoDesign { design: design.to_owned(), known: names.join(", ") }
    })?;
    let timed = Timed::new(&workload.build(&plan.shapes));
    let memory = plan.dram.memory_of(&plan.about.study)?;
    if let Exported::Commands { channel } = exported
        && channel >= memory.config.channels
    {
        let what = format!("no channel {channel} of {}", memory.config.channels);
        return Err(StudyError::Machine { study: plan.about.study.clone(), what });
    }
    let hardware = hardware(&plan.machine, &memory);
    let contiguity = plan.machine.contiguity_bits;
    let machine = &plan.system;
    let point = TimedPoint { machine, timed: &timed, block_frames, design, contiguity };
    plan.timed(&hardware, &memory).export(point, exported, path)
}

/// The x axis: kind, name with unit, and words.
fn x_axis(grid: &Grid) -> (FigureKind, &'static str, &'static str) {
    match grid.values(LEVEL).first() {
        Some(Value::Word(_)) => (FigureKind::Bars, "memory", "memory"),
        _ => (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)"),
    }
}

/// The workloads of a category that were measured, by their names in the figures.
fn measured(grid: &Grid, category: Category) -> Vec<&'static str> {
    let names = WorkloadName::known().into_iter().filter(|name| name.category() == category);
    let values = grid.values(WORKLOAD);
    let names = names.map(WorkloadName::title);
    names.filter(|name| values.contains(&&(*name).into())).collect()
}

/// The paper's figure of a workload of category II.
fn figure_of(workload: &str) -> Option<&'static str> {
    [
        (WorkloadName::RotatedPreview, "Fig. 15"),
        (WorkloadName::RotatedDisplay, "Fig. 16"),
        (WorkloadName::MatrixMultiplication, "Fig. 17"),
        (WorkloadName::MatrixTranspose, "Fig. 18"),
    ]
    .into_iter()
    .find(|(name, _)| name.title() == workload)
    .map(|(_, figure)| figure)
}

/// Fig. 15 to 18 as lines, category I as bars.
fn cycle_figures(plan: &SystemPlan, run: &Run<'_>, grid: &Grid) -> Vec<Drawn> {
    let (kind, x, x_label) = x_axis(grid);
    let mut figures = Vec::new();
    let mut alone =
        [Category::II, Category::Added].map(|category| measured(grid, category)).concat();
    alone.extend(plan.mixes(run).iter().map(|mix| mix.name.get()));
    for name in alone {
        let id = figure_of(name).filter(|_| plan.claims);
        let (id, title) = id.map_or((name, "execution"), |id| (id, name));
        let of = |design: &str| {
            let points = grid.points(
                LEVEL,
                |all| all.is(READING, AS_MEASURED).is(WORKLOAD, name).is(DESIGN, design),
                |cell| Ok(cell.get("cycles")? / 1e6),
            );
            Series::new(id, x, "cycles_millions", design, points)
        };
        let figure = Figure::new(id, title, kind, x_label, "execution (million cycles)");
        figures.push(Drawn {
            figure,
            series: designs_of(grid).iter().map(|design| of(design)).collect(),
        });
    }
    let linear = measured(grid, Category::I);
    if !linear.is_empty() {
        let id = "Category I";
        let y_label = "cycles (TRAD = 1, mean over the sizes)";
        let to_trad = |design: &str, workload: &str| {
            let ratio = |view: &View<'_>| {
                let cells = view.select().is(READING, AS_MEASURED).is(WORKLOAD, workload);
                if design == "TRAD" {
                    // Its own measure, if it was measured.
                    return cells.is(DESIGN, design).numbers("cycles").map(|_| 1.0);
                }
                let of = |one: &CellView<'_>, trad: &CellView<'_>| {
                    Ok(one.get("cycles")? / trad.get("cycles")?)
                };
                Ok(mean(&cells.pairs(DESIGN, design, "TRAD", of)?))
            };
            Some(grid.evidence(ratio).ok()?.point(workload))
        };
        let of = |design: &str| {
            let points = linear.iter().filter_map(|workload| to_trad(design, workload));
            Series::new(id, "workload", "cycles_to_trad", design, points)
        };
        let figure = Figure::new(id, "execution", FigureKind::Bars, "workload", y_label);
        figures.push(Drawn {
            figure,
            series: designs_of(grid).iter().map(|design| of(design)).collect(),
        });
    }
    figures
}

/// At each level of category II the statistic of a design's cells.
fn by_level(
    grid: &Grid,
    design: &str,
    statistic: impl Fn(&CellView<'_>) -> Result<f64, Missing>,
) -> Vec<Point> {
    let at_level = |level: &Value| {
        let mean = |view: &View<'_>| {
            let cells = view.select().is(READING, AS_MEASURED).is(CATEGORY, "II");
            let cells = cells.is(LEVEL, level.clone()).is(DESIGN, design);
            Ok(mean(&cells.each(&statistic)?))
        };
        Some(grid.evidence(mean).ok()?.point(level.clone()))
    };
    // Category I may have been measured at fewer sizes, and comes first.
    let mut levels = grid.values(LEVEL);
    levels.sort_by(|one, two| match (one, two) {
        (Value::Number(one), Value::Number(two)) => one.total_cmp(two),
        _ => Ordering::Equal,
    });
    levels.into_iter().filter_map(at_level).collect()
}

/// The shares of cycles behind misses and of accesses to open rows, and what it takes to write
/// the tables.
fn share_figures(grid: &Grid) -> Vec<Drawn> {
    let (kind, x, x_label) = x_axis(grid);
    let drawn = |(id, y_label, y, metric): (&str, &str, &str, &str)| {
        let figure = Figure::new(id, "mean over category II", kind, x_label, y_label);
        let of = |design: &str| {
            Series::new(id, x, y, design, by_level(grid, design, |cell| cell.get(metric)))
        };
        let series = designs_of(grid).iter().map(|design| of(design)).collect();
        Drawn { figure, series }
    };
    let writes = "words of tables written for each page";
    let shares = [
        ("Walking", "cycles behind a miss (share)", "walk_cycles_share", "walking"),
        ("Row hits", "column accesses to an open row (share)", "row_hit_share", "row_hits"),
    ];
    let mut figures: Vec<Drawn> = shares
        .map(drawn)
        .map(|one| Drawn { figure: one.figure.with_y_range(0.0, 1.0), ..one })
        .into();
    figures.push(drawn(("Table writes", writes, "writes_per_page", "writes_per_page")));
    figures
}

/// The memory's energy over the sizes, and its parts.
fn energy_figures(grid: &Grid) -> Vec<Drawn> {
    let (kind, x, x_label) = x_axis(grid);
    let [total, split] = energy::figures(kind, x_label);
    let designs = designs_of(grid);
    let total_of = |design: &str| {
        let points =
            by_level(grid, design, |cell| energy::PARTS.iter().map(|part| cell.get(part)).sum());
        Series::new(energy::TOTAL, x, energy::Y, design, points)
    };
    let parts_of = |design: &str| {
        let points = energy::PARTS.iter().filter_map(|part| {
            let mean = |view: &View<'_>| {
                let cells = view.select().is(READING, AS_MEASURED).is(CATEGORY, "II");
                cells.is(DESIGN, design).mean(part)
            };
            Some(grid.evidence(mean).ok()?.point(*part))
        });
        Series::new(energy::SPLIT, "part", energy::Y, design, points)
    };
    let both = vec![
        Drawn { figure: total, series: designs.iter().map(|design| total_of(design)).collect() },
        Drawn { figure: split, series: designs.iter().map(|design| parts_of(design)).collect() },
    ];
    // Of a part whose currents are not known there is none.
    let is_known = |drawn: &Drawn| drawn.series.iter().any(|series| !series.points.is_empty());
    both.into_iter().filter(is_known).collect()
}

/// The columns of figure "Readings": name, category, block sizes, and the
/// design over which PBS saves.
const COLUMNS: [(&str, Category, u64, u64, &str); 6] = [
    ("Category I, TRAD", Category::I, 1, 256, "TRAD"),
    ("size 1, AT", Category::II, 1, 1, "AT"),
    ("2 to 64, PCAD", Category::II, 2, 64, "PCAD"),
    ("2 to 64, AT", Category::II, 2, 64, "AT"),
    ("2 to 64, TRAD", Category::II, 2, 64, "TRAD"),
    ("128 to 256, AT", Category::II, 128, 256, "AT"),
];

/// The largest shares that PBS saves under each reading of Table 3.
fn reading_figure(plan: &SystemPlan, quick: bool, grid: &Grid) -> Option<Drawn> {
    let variants = plan.variants.as_ref()?;
    let chosen = variants.workloads.of(quick);
    let id = "Readings";
    let series = COLUMNS.into_iter().map(|(name, category, from, to, over)| {
        let workloads = chosen.iter().filter(|name| name.category() == category);
        let workloads: Vec<&str> = workloads.map(|name| name.title()).collect();
        let sizes = variants.block_frames.iter().map(|size| size.get());
        let sizes: Vec<u64> = sizes.filter(|size| (from..=to).contains(size)).collect();
        let points = grid.values(READING).into_iter().filter_map(|reading| {
            let most = |view: &View<'_>| {
                let cells = view.select().is(READING, reading.clone());
                let cells = cells.all(WORKLOAD, workloads.iter().copied());
                let cells = cells.all(LEVEL, sizes.iter().copied());
                Ok(largest(&savings::saved(&cells, "PBS", over)?))
            };
            Some(grid.evidence(most).ok()?.point(reading.clone()))
        });
        Series::new(id, "reading", "saved_share", name, points.collect::<Vec<_>>())
    });
    let series: Vec<Series> = series.filter(|series| !series.points.is_empty()).collect();
    let names: Vec<&str> = chosen.iter().map(|name| name.title()).collect();
    let sizes: Vec<String> = variants.block_frames.iter().map(ToString::to_string).collect();
    let y_label = "largest share of cycles saved by PBS";
    let title = "of what Table 3 leaves open";
    let figure = Figure::new(id, title, FigureKind::Bars, "reading", y_label);
    let caption = format!("{}; block sizes {}.", names.join(", "), sizes.join(", "));
    (!series.is_empty()).then(|| Drawn { figure: figure.with_caption(&caption), series })
}

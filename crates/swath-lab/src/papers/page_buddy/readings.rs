//! Hit rates under other readings of what Table 4 leaves open: the width of a
//! vertical scan's columns and the size of the blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Format, Order};
use swath_frame::BuddyConfig;

use crate::papers::page_buddy::design::{self, Design, DesignsPlan};
use crate::papers::page_buddy::savings::{DESIGN, LEVEL, READING, WORKLOAD};
use crate::papers::page_buddy::setting::{
    AnchorLog2, BlockFrames, ContiguityBits, ReplacementName, WalkOrderName, blocks_bytes,
    check_free, is_default,
};
use crate::papers::page_buddy::translation::{Hardware, Program, measure};
use crate::papers::page_buddy::workload::{Shapes, Workload, WorkloadName};
use crate::source::memory::{Source, random};
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Repeats, Share};
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, Value, View, largest, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};

/// TLB hit rates under other readings of the workloads.
pub struct Readings;

/// Bytes or rows of an access pattern.
pub type Side = Bounded<1, { 1 << 14 }>;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadingsPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// Bytes that a vertical scan reads before it steps down, one point each.
    pub column_bytes: Ascending<Side>,
    /// Bytes and rows of a block in the blockwise patterns, one point each.
    pub blocks: Distinct<(Side, Side)>,
    /// Sizes of the free blocks over which the largest gain is sought.
    pub block_frames: Ascending<BlockFrames>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// The designs; all if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: DesignsPlan,
    /// The choice of the entry that gives way in the TLB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tlb_replacement: ReplacementName,
    /// The order of AT's two walks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub walk_order: WalkOrderName,
    /// log2 of AT's anchor distance in pages; the distance that suits the mapped blocks best if not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_log2: Option<AnchorLog2>,
}

crate::plan!(ReadingsPlan, check);

fn check(plan: &ReadingsPlan) -> Result<(), Refused> {
    design::plan::check(&plan.designs)?;
    check_free("", plan.free_per_requested, plan.free_share)
}

/// The workload that reads columns, and the one that reads blocks.
const VERTICAL: WorkloadName = WorkloadName::RotatedDisplay;
const BLOCKED: WorkloadName = WorkloadName::EdgeDetection;

/// A workload under one reading.
struct Reading {
    workload: WorkloadName,
    x: Value,
    program: Program,
}

impl Reading {
    fn all(plan: &ReadingsPlan) -> Vec<Self> {
        let programs = Self::workloads(plan).into_iter();
        let of = |(workload, x, built)| Self { workload, x, program: Program::of(&built) };
        programs.map(of).collect()
    }

    /// The workloads, with their places on the x axis.
    fn workloads(plan: &ReadingsPlan) -> Vec<(WorkloadName, Value, Workload)> {
        let paper = Shapes::default();
        let of = |workload: WorkloadName, x, shapes| (workload, x, workload.build(&shapes));
        let columns = plan.column_bytes.iter().map(|bytes| {
            of(VERTICAL, bytes.get().into(), Shapes { column_bytes: bytes.get(), ..paper })
        });
        let blocks = plan.blocks.iter().map(|(bytes, rows)| {
            let shapes = Shapes { block_bytes: bytes.get(), block_rows: rows.get(), ..paper };
            of(BLOCKED, format!("{bytes} B × {rows}").into(), shapes)
        });
        columns.chain(blocks).collect()
    }
}

/// A state of memory: free blocks of a size, or a real machine's.
struct MemoryLevel {
    x: Value,
    block_frames: Option<u64>,
}

impl Study for Readings {
    const KIND: &'static str = "readings";
    const USES: Uses = Uses { memory: true, accesses: false, machine: false };
    type Plan = ReadingsPlan;
    type Found = Grid;

    fn seeds(plan: &ReadingsPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &ReadingsPlan, run: &Run<'_>) -> Needs {
        let readings = Reading::workloads(plan);
        let transactions = readings.iter().map(|(_, _, workload)| workload.transactions_max());
        let once = transactions.fold(0, u64::saturating_add);
        let pages = readings.iter().map(|(_, _, workload)| workload.pages()).max().unwrap_or(0);
        let (per_requested, share) = (plan.free_per_requested, plan.free_share);
        let memory = blocks_bytes(pages, &plan.block_frames, per_requested, share);
        let designs = design::plan::count(&plan.designs);
        let points = bytes(&[readings.len() as u64, plan.block_frames.len() as u64, designs]);
        let entries = design::plan::entries_max(&plan.designs, 32);
        Needs::small()
            .once("blocks", bytes(&[16, once]))
            .once("repeats", bytes(&[256, plan.repeats.of(run.quick).get(), points]))
            .each("free_per_requested", memory)
            .each("designs", bytes(&[256, entries]))
    }

    fn measure(plan: &ReadingsPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let readings = Reading::all(plan);
        let levels: Vec<MemoryLevel> = match &run.real.memory {
            Some(machine) => {
                vec![MemoryLevel { x: machine.name.clone().into(), block_frames: None }]
            }
            None => {
                let sizes = plan.block_frames.iter().map(|size| size.get());
                sizes.map(|size| MemoryLevel { x: size.into(), block_frames: Some(size) }).collect()
            }
        };
        let (bbs, pbs) = (BuddyConfig::BBS, BuddyConfig::PBS_ARMV7);
        let designs = design::plan::designs(&plan.designs, bbs, pbs);
        let mut points = Vec::new();
        for reading in &readings {
            for level in &levels {
                points.extend(designs.iter().map(|design| (reading, level, design)));
            }
        }
        let at = |&(reading, level, design): &(&Reading, &MemoryLevel, &Design)| {
            let (workload, name) = (reading.workload.title(), design.name);
            vec![workload.into(), reading.x.clone(), level.x.clone(), name.into()]
        };
        let seeds = Self::seeds(plan, run.quick);
        let axes = [WORKLOAD, READING, LEVEL, DESIGN];
        run.grid(&plan.about, &axes, seeds, &points, at, |point, repeat| {
            one(plan, run, *point, repeat)
        })
    }

    /// The paper does not say which reading is its own.
    fn claims(_: &ReadingsPlan, _: &Run<'_>) -> Vec<Statement<Grid>> {
        Vec::new()
    }

    fn show(plan: &ReadingsPlan, run: &Run<'_>, grid: &Grid) -> Shown {
        let finding = "Columns of 128 bytes (two transactions) and blocks of 16 × 16 elements come \
                       closest to the paper on every claim: with one transaction a vertical scan \
                       never hits without coalescing, where the paper has PBS 2x better; with \
                       larger blocks edge detection falls below the 98% of Fig. 10. The other \
                       studies use this reading.";
        let seeds = Self::seeds(plan, run.quick);
        let notes = vec![format!("Each point is {seeds} independent states of memory.")];
        Shown { finding: finding.to_owned(), figures: figures(grid), notes, host: None }
    }
}

/// One seed of one point.
fn one(
    plan: &ReadingsPlan,
    run: &Run<'_>,
    (reading, level, design): (&Reading, &MemoryLevel, &Design),
    repeat: u64,
) -> Result<Metrics, StudyError> {
    let program = &reading.program;
    let hardware = Hardware {
        replacement: plan.tlb_replacement.replacement(),
        order: plan.walk_order.order(),
        anchor_log2: plan.anchor_log2.and_then(|log2| Order::new(log2.tiny())),
        ..Hardware::new(Format::ArmV7, 32, ContiguityBits::Ideal(16))
    };
    let below;
    let source = match (&run.real.memory, level.block_frames) {
        (Some(machine), _) => {
            below = hardware.free_of(machine, program);
            Source::Free(&below)
        }
        (None, size) => {
            program.scattered(size.unwrap_or(1), plan.free_per_requested, plan.free_share.get())
        }
    };
    let mut random = random(plan.about.seed, repeat);
    let measured = measure(&hardware, design, &source, program, &mut random);
    let measured = measured.map_err(|error| StudyError::Machine {
        study: plan.about.study.clone(),
        what: format!("{}: {error}", design.name),
    })?;
    Ok(metrics([("hit_rate", measured.hit_rate())]))
}

/// For each reading of a workload a point with the statistic of its levels.
fn points(
    grid: &Grid,
    workload: WorkloadName,
    statistic: impl Fn(&View<'_>, &Value) -> Result<f64, crate::study::grid::Missing>,
) -> Vec<Point> {
    let blocked = |reading: &Value| reading.word().is_some();
    let readings = grid.values(READING).into_iter();
    let readings = readings.filter(|reading| blocked(reading) == (workload == BLOCKED));
    let point = |reading: &Value| {
        Some(grid.evidence(|view| statistic(view, reading)).ok()?.point(reading.clone()))
    };
    readings.filter_map(point).collect()
}

fn figures(grid: &Grid) -> Vec<Drawn> {
    let column_label = "column of a vertical scan (bytes)";
    let y_label = "TLB hit rate (share of accesses)";

    let id = "Gains of vertical scans";
    let title = "Rotated display: largest gain of PBS over the block sizes";
    let gain_label = "gain in TLB hit rate (PBS / other - 1)";
    let gains = Figure::new(id, title, FigureKind::LinesLog2, column_label, gain_label);
    let gain_over = |name: &str| {
        let points = points(grid, VERTICAL, |view, reading| {
            let cells = view.select().is(WORKLOAD, VERTICAL.title()).is(READING, reading.clone());
            let gains = cells.pairs(DESIGN, "PBS", name, |pbs, other| {
                Ok(pbs.get("hit_rate")? / other.get("hit_rate")? - 1.0)
            })?;
            Ok(largest(&gains))
        });
        Series::new(id, "column_bytes", "gain", name, points)
    };
    let gains = Drawn { figure: gains, series: ["PCAD", "AT"].map(gain_over).to_vec() };

    let id = "TRAD on vertical scans";
    let title = "Rotated display: hit rate without coalescing";
    let trad = Figure::new(id, title, FigureKind::LinesLog2, column_label, y_label);
    let lowest = |workload: WorkloadName, name: &str| {
        points(grid, workload, |view, reading| {
            let cells = view.select().is(WORKLOAD, workload.title()).is(READING, reading.clone());
            cells.is(DESIGN, name).min("hit_rate")
        })
    };
    // Without coalescing the size of the free blocks makes no difference.
    let points = lowest(VERTICAL, "TRAD");
    let series = vec![Series::new(id, "column_bytes", "tlb_hit_rate", "TRAD", points)];
    let trad = Drawn { figure: trad.with_y_range(0.0, 1.0), series };

    let id = "Lowest hit rate of block reads";
    let title = "Edge detection: lowest hit rate over the block sizes";
    let blocks = Figure::new(id, title, FigureKind::Bars, "block (bytes × rows)", y_label);
    let names: Vec<String> = grid.values(DESIGN).iter().map(ToString::to_string).collect();
    let of = |name: &str| Series::new(id, "block", "tlb_hit_rate", name, lowest(BLOCKED, name));
    let series = names.iter().map(|name| of(name)).collect();
    vec![gains, trad, Drawn { figure: blocks.with_y_range(0.0, 1.0), series }]
}

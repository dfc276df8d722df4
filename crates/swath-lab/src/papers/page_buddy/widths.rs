//! The cost of the real width of a format's contiguity fields: hit rates
//! against the width, with the width that the descriptors leave free, and that of a
//! line of them, beside ideal ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::Order;

use crate::papers::page_buddy::design::{self, Design, DesignsPlan};
use crate::papers::page_buddy::setting::blocks_bytes;
use crate::papers::page_buddy::setting::{
    AnchorLog2, BlockFrames, ContiguityBits, FormatName, FormatWord, ReplacementName, TlbEntries,
    WalkOrderName, bbs, check_free, check_shapes, is_default, pbs,
};
use crate::papers::page_buddy::translation::{Hardware, Program, measure};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::{Source, random};
use crate::source::real::Trace;
use crate::study::bounds::{Ascending, Distinct, Forms, Repeats, Share};
use crate::study::claim::Statement;
use crate::study::grid::{CellView, Grid, Metrics, Missing, Value, View, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};

/// TLB hit rates against the width of the contiguity fields.
pub struct Widths;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WidthsPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// Widths of an ideal field in bits, one point of the x axis each.
    pub widths: Ascending<u8>,
    /// The formats, each measured with its own width and the ideal ones.
    pub formats: Distinct<FormatName>,
    /// Size of the free blocks.
    pub block_frames: BlockFrames,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// The designs; all if not given. One that tells of no contiguity is left out unless it is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: DesignsPlan,
    /// Entries in the TLB.
    pub tlb_entries: TlbEntries,
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
    /// The workload.
    pub workload: WorkloadName,
    /// Its sizes.
    #[serde(default)]
    pub shapes: Shapes,
}

crate::plan!(WidthsPlan, check);

fn check(plan: &WidthsPlan) -> Result<(), Refused> {
    for &format in &plan.formats {
        for &bits in &plan.widths {
            ContiguityBits::Ideal(bits).check("widths", format)?;
        }
    }
    design::plan::check(&plan.designs)?;
    check_free("", plan.free_per_requested, plan.free_share)?;
    check_shapes("shapes", &plan.shapes)
}

const FORMAT: &str = "format";
const WIDTH: &str = "contiguity_bits";
const DESIGN: &str = "design";

/// The width of the format's own field.
const OWN: &str = "own";

/// The width of a line's.
const LINE: &str = "line";

/// The design that writes no contiguity.
const TRAD: &str = "TRAD";

/// One measured point.
struct WidthPoint<'a> {
    format: FormatName,
    contiguity: ContiguityBits,
    design: Design,
    program: &'a Program,
}

impl Study for Widths {
    const KIND: &'static str = "widths";
    const USES: Uses = Uses { memory: true, accesses: true, machine: false };
    type Plan = WidthsPlan;
    type Found = Grid;

    fn seeds(plan: &WidthsPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &WidthsPlan, run: &Run<'_>) -> Needs {
        let workload = plan.workload.build(&plan.shapes);
        let pages = workload.pages();
        let sizes = [plan.block_frames];
        let memory = blocks_bytes(pages, &sizes, plan.free_per_requested, plan.free_share);
        let formats = plan.formats.len() as u64;
        let points =
            bytes(&[formats, plan.widths.len() as u64 + 2, design::plan::count(&plan.designs)]);
        let entries = design::plan::entries_max(&plan.designs, plan.tlb_entries.get());
        Needs::small()
            .once("workload", bytes(&[16, workload.transactions_max(), formats]))
            .once("repeats", bytes(&[256, plan.repeats.of(run.quick).get(), points]))
            .each("free_per_requested", memory)
            .each("tlb_entries", bytes(&[256, entries]))
    }

    fn measure(plan: &WidthsPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let program = |format: &FormatName| {
            Ok(match &run.real.accesses {
                None => Program::of(&plan.workload.build(&plan.shapes)),
                Some(file) => Program::recorded(Trace::new(Some(file)), format.format())?,
            })
        };
        let programs: Result<Vec<Program>, StudyError> = plan.formats.iter().map(program).collect();
        let programs = programs?;
        let real = [FormatWord::Format, FormatWord::Line].map(ContiguityBits::Format);
        let mut points = Vec::new();
        for (&format, program) in plan.formats.iter().zip(&programs) {
            let widths = plan.widths.iter().map(|&bits| ContiguityBits::Ideal(bits));
            for contiguity in widths.chain(real) {
                let point = |design| WidthPoint { format, contiguity, design, program };
                points.extend(designs(plan, format)?.into_iter().map(point));
            }
        }
        let at = |point: &WidthPoint<'_>| {
            let width: Value = match point.contiguity {
                ContiguityBits::Ideal(bits) => u32::from(bits).into(),
                ContiguityBits::Format(FormatWord::Format) => OWN.into(),
                ContiguityBits::Format(FormatWord::Line) => LINE.into(),
            };
            vec![point.format.title().into(), width, point.design.name.into()]
        };
        let seeds = Self::seeds(plan, run.quick);
        let one = |point: &WidthPoint<'_>, repeat| one(plan, run, point, repeat);
        run.grid(&plan.about, &[FORMAT, WIDTH, DESIGN], seeds, &points, at, one)
    }

    /// The paper does not say where the fields stand nor how wide they are.
    fn claims(_: &WidthsPlan, _: &Run<'_>) -> Vec<Statement<Grid>> {
        Vec::new()
    }

    fn show(plan: &WidthsPlan, _: &Run<'_>, grid: &Grid) -> Shown {
        let notes = [
            "A run longer than the field can say saturates: each descriptor then tells of a \
             window around its own page, and a block takes several TLB entries.",
            "The ideal field stands beside the table and arrives with the descriptor at no \
             cost; no processor has it.",
            "A line is the 64 bytes of descriptors in which a walk's last read falls. Hardware that \
             takes it in whole compares the descriptors in it, and their free bits together tell how \
             far the blocks at its two ends go on (swath-arch, formats::line).",
        ];
        let (figures, notes) = (figures(plan, grid), notes.map(str::to_owned).to_vec());
        Shown { finding: finding(plan, grid), figures, notes, host: None }
    }
}

/// All but [`TRAD`], or the plan's own, with PBS at the format's granularity.
fn designs(plan: &WidthsPlan, format: FormatName) -> Result<Vec<Design>, StudyError> {
    let granularity = format.format().granularity().k() as u8;
    let (bbs, pbs) = (bbs(9)?, pbs(granularity, 2 * granularity)?);
    let mut all = design::plan::designs(&plan.designs, bbs, pbs);
    all.retain(|design| plan.designs.is_some() || design.name != TRAD);
    Ok(all)
}

/// One seed of one point.
fn one(
    plan: &WidthsPlan,
    run: &Run<'_>,
    point: &WidthPoint<'_>,
    repeat: u64,
) -> Result<Metrics, StudyError> {
    let WidthPoint { format, contiguity, design, program } = point;
    let hardware = Hardware {
        replacement: plan.tlb_replacement.replacement(),
        order: plan.walk_order.order(),
        anchor_log2: plan.anchor_log2.and_then(|log2| Order::new(log2.tiny())),
        ..Hardware::new(format.format(), plan.tlb_entries.small(), *contiguity)
    };
    let below;
    let source = match &run.real.memory {
        None => program.scattered(
            plan.block_frames.get(),
            plan.free_per_requested,
            plan.free_share.get(),
        ),
        Some(machine) => {
            below = hardware.free_of(machine, program);
            Source::Free(&below)
        }
    };
    let mut random = random(plan.about.seed, repeat);
    let measured = measure(&hardware, design, &source, program, &mut random);
    let measured = measured.map_err(|error| StudyError::Machine {
        study: plan.about.study.clone(),
        what: format!("{} on {}: {error}", design.name, format.title()),
    })?;
    Ok(metrics([("hit_rate", measured.hit_rate())]))
}

fn rate(cell: &CellView<'_>) -> Result<f64, Missing> {
    cell.get("hit_rate")
}

fn figures(plan: &WidthsPlan, grid: &Grid) -> Vec<Drawn> {
    let y_label = "TLB hit rate (share of accesses)";
    let names: Vec<String> = grid.values(DESIGN).iter().map(ToString::to_string).collect();
    let real = |(id, title, width): (&str, &str, &str)| {
        let figure = Figure::new(id, title, FigureKind::Bars, "format", y_label);
        let of = |name: &str| {
            let points = grid.points(FORMAT, |all| all.is(WIDTH, width).is(DESIGN, name), rate);
            Series::new(id, "format", "tlb_hit_rate", name, points)
        };
        Drawn {
            figure: figure.with_y_range(0.0, 1.0),
            series: names.iter().map(|name| of(name)).collect(),
        }
    };
    let own = "With the bits that each format leaves free";
    let line = "With the free bits of all descriptors of 64 bytes, which a walk reads together";
    let mut figures =
        [("The format's own width", own, OWN), ("A line's width", line, LINE)].map(real).to_vec();
    for format in &plan.formats {
        let id = format!("Ideal width, {}", format.title());
        let x_label = "width of each contiguity number (bits)";
        let figure = Figure::new(&id, "TLB hit rate", FigureKind::Lines, x_label, y_label);
        let ideal = |name: &str| {
            let widths = plan.widths.iter().map(|&bits| u32::from(bits));
            let points = grid.points(
                WIDTH,
                |all| all.is(FORMAT, format.title()).all(WIDTH, widths.clone()).is(DESIGN, name),
                rate,
            );
            Series::new(&id, "contiguity_bits", "tlb_hit_rate", name, points)
        };
        let series = names.iter().map(|name| ideal(name)).collect();
        figures.push(Drawn { figure: figure.with_y_range(0.0, 1.0), series });
    }
    figures
}

fn finding(plan: &WidthsPlan, grid: &Grid) -> String {
    let widest = plan.widths.iter().copied().max().unwrap_or(1);
    let percent = |format: FormatName, width: Value| {
        let rate = |view: &View<'_>| {
            let of_format = view.select().is(FORMAT, format.title()).is(DESIGN, "PBS");
            of_format.is(WIDTH, width.clone()).one("hit_rate")
        };
        grid.evidence(rate).map(|found| 100.0 * found.estimate().value)
    };
    let cost = |&format: &FormatName| {
        let of = format.format();
        let own = percent(format, OWN.into()).ok()?;
        let line = percent(format, LINE.into()).ok()?;
        let ideal = percent(format, u32::from(widest).into()).ok()?;
        Some(format!(
            "{} leaves {} + {} bits for PCAD and {} for an anchor: PBS hits {own:.1}% instead of \
             {ideal:.1}%, and with the bits of a line {line:.1}%",
            format.title(),
            of.ascend().width(),
            of.descend().width(),
            of.anchor().width(),
        ))
    };
    let costs: Vec<String> = plan.formats.iter().filter_map(cost).collect();
    format!("{}.", costs.join("; "))
}

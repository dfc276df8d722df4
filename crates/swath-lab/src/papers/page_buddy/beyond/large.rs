//! TRAD whose table uses the format's large pages.
//!
//! The paper's TRAD maps base pages alone; section II-B names large pages as the conventional way to
//! fewer misses, and section IV-D says what stands against them: page and frame have to be aligned to
//! the page's size. Here every block is mapped in pages as large as the places of its pages and frames
//! allow, on the memory of BBS, whose blocks are aligned, and on that of PBS, whose blocks are longer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::design::{Design, Scheme};
use crate::papers::page_buddy::savings::{DESIGN, LEVEL, WORKLOAD};
use crate::papers::page_buddy::setting::BlockFrames;
use crate::papers::page_buddy::workload::WorkloadName;
use crate::study::bounds::{Ascending, Distinct};
use crate::study::grid::{Evidence, Grid, Value, View, mean};
use crate::study::kind::Drawn;
use crate::study::results::{Figure, FigureKind, Series};

/// The plan of this part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LargePlan {
    /// The workloads.
    pub workloads: Distinct<WorkloadName>,
    /// Sizes of the free blocks.
    pub block_frames: Ascending<BlockFrames>,
}

/// TRAD on either memory, with large pages and without, two that coalesce, and those that other
/// crates added.
pub(crate) fn designs(all: &[Design]) -> Vec<Design> {
    let named = |name: &str| all.iter().find(|design| design.name == name).copied();
    let large = |name, of: &str| named(of).map(|of| Design { name, scheme: Scheme::Large, ..of });
    let five = [
        named("TRAD"),
        large("TRAD, large pages", "TRAD"),
        large("TRAD, large pages on PBS", "PBS"),
        named("PCAD"),
        named("PBS"),
    ];
    let added = all.iter().filter(|design| !PAPER.contains(&design.name)).copied();
    five.into_iter().flatten().chain(added).collect()
}

/// The paper's designs.
const PAPER: [&str; 4] = ["TRAD", "PCAD", "AT", "PBS"];

/// The mean hit rate over the workloads.
fn rate(grid: &Grid, level: &Value, design: &str) -> Option<Evidence> {
    let mean_rate = |view: &View<'_>| {
        let cells = view.select().is(LEVEL, level.clone()).is(DESIGN, design);
        Ok(mean(&cells.numbers("hit_rate")?))
    };
    grid.evidence(mean_rate).ok()
}

/// The hit rates, mean over the workloads.
pub(crate) fn figures(grid: &Grid) -> Vec<Drawn> {
    let id = "Large pages";
    let workloads: Vec<String> = grid.values(WORKLOAD).iter().map(ToString::to_string).collect();
    let x_label = "free block size (pages)";
    let y_label = "TLB hit rate (share of accesses)";
    let title = "TRAD with the format's large pages, mean over workloads";
    let figure = Figure::new(id, title, FigureKind::LinesLog2, x_label, y_label);
    let figure = figure.with_y_range(0.0, 1.0).with_caption(&format!("{}.", workloads.join(", ")));
    let of = |design: &String| {
        let points = grid
            .values(LEVEL)
            .into_iter()
            .filter_map(|level| Some(rate(grid, level, design)?.point(level.clone())));
        Series::new(id, LEVEL, "tlb_hit_rate", design, points.collect::<Vec<_>>())
    };
    let designs: Vec<String> = grid.values(DESIGN).iter().map(ToString::to_string).collect();
    vec![Drawn { figure, series: designs.iter().map(of).collect() }]
}

/// The finding in one sentence.
pub(crate) fn finding(grid: &Grid) -> String {
    let said = |design: &str, level: u64| {
        rate(grid, &level.into(), design).map_or_else(
            || "-".to_owned(),
            |found| format!("{:.1}%", 100.0 * found.estimate().value),
        )
    };
    let at = |level| {
        let designs =
            ["TRAD", "TRAD, large pages", "PCAD", "PBS"].map(|design| said(design, level));
        format!(
            "{} ({} as it was, {} with PCAD, {} with PBS)",
            designs[1], designs[0], designs[2], designs[3]
        )
    };
    format!(
        "Large pages give TRAD a mean hit rate of {} on free blocks of 16 pages and of {} on 256.",
        at(16),
        at(256)
    )
}

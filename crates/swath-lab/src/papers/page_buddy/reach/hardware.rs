//! The study of what a TLB of runs costs in hardware: the synthesised forms of `rtl/tlb`, each beside the hits that it
//! has on the memory of BBS and of PBS.
//!
//! The costs are a table that `cargo xtask rtl cost` writes; the hits are measured here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_hw::Geometry;

use crate::papers::page_buddy::design::DesignFrames;
use crate::papers::page_buddy::reach::costs::{self, Cost, FORMS, Form};
use crate::papers::page_buddy::reach::study::{
    InBlocks, hits, names, orders_of, over_workloads, programs,
};
use crate::papers::page_buddy::reach::ways;
use crate::papers::page_buddy::savings::{LEVEL, WORKLOAD};
use crate::papers::page_buddy::setting::{
    BlockFrames, MachinePlan, ReplacementName, TlbEntries, blocks_bytes, check_free,
};
use crate::papers::page_buddy::translation::{Hardware, Program};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::study::bounds::{Ascending, Distinct, Forms, Repeats, Share};
use crate::study::claim::Statement;
use crate::study::grid::{Evidence, Grid};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Point, Series};
use crate::study::run::{Run, StudyError};

/// Costs of TLBs in hardware beside their hits.
pub struct InHardware;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HardwarePlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// Sizes of the free blocks.
    pub block_frames: Forms<Ascending<BlockFrames>>,
    /// Frames that are free for each frame that is requested, 1 to 1000.
    pub free_per_requested: f64,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// The workloads; a recorded program takes their place.
    pub workloads: Forms<Distinct<WorkloadName>>,
    /// Entries of the TLBs: of those that were synthesised.
    pub tlb_entries: Ascending<TlbEntries>,
    /// The machine, whose TLB is fully associative.
    pub machine: MachinePlan,
}

crate::plan!(HardwarePlan, check);

/// The replacement in the table of costs; `None` of one that is not in hardware.
const fn replaced(name: ReplacementName) -> Option<&'static str> {
    match name {
        ReplacementName::Lru => Some("LRU"),
        ReplacementName::Fifo => Some("in turn"),
        ReplacementName::Random => None,
    }
}

fn check(plan: &HardwarePlan) -> Result<(), Refused> {
    check_free("", plan.free_per_requested, plan.free_share)?;
    plan.machine.check()?;
    require(plan.machine.tlb_ways.is_none(), "machine.tlb_ways", || {
        "the hardware is fully associative".to_owned()
    })?;
    let replacement = replaced(plan.machine.tlb_replacement);
    require(replacement.is_some(), "machine.tlb_replacement", || {
        "the hardware has lru and fifo".to_owned()
    })?;
    let there = costs::entries(replacement.unwrap_or_default());
    for entries in plan.tlb_entries.iter().map(|entries| entries.get()) {
        require(there.contains(&entries), "tlb_entries", || {
            format!("no TLB of {entries} entries so replaced was synthesised, but of {there:?}")
        })?;
    }
    orders_of(&plan.machine).map(drop)
}

const FORM: &str = "form";
const FRAMES: &str = "allocator";
const ENTRIES: &str = "tlb_entries";

/// A program, the size of the free blocks, an allocator, the entries and what each maps.
type FormPoint<'a> =
    (&'a (&'static str, Program), u64, (&'static str, DesignFrames), u32, &'a Form);

/// The allocators of the memory.
const ALLOCATORS: [&str; 2] = ["BBS", "PBS"];

impl HardwarePlan {
    fn memory(&self) -> InBlocks {
        InBlocks {
            free_per_requested: self.free_per_requested,
            free_share: self.free_share.get(),
            seed: self.about.seed,
        }
    }

    /// The cost of a form with so many entries on a target, with 20 bits for pages and for frames.
    fn cost(&self, form: &Form, entries: u64, target: &str) -> Option<&'static Cost> {
        costs::tlb(form, entries, replaced(self.machine.tlb_replacement)?, target)
    }

    /// The entries at which all targets were looked at, or the most that the plan has.
    fn middle(&self) -> u64 {
        let all = || self.tlb_entries.iter().map(|entries| entries.get());
        all()
            .find(|entries| *entries == costs::MIDDLE)
            .or_else(|| all().max())
            .unwrap_or(costs::MIDDLE)
    }
}

impl Study for InHardware {
    const KIND: &'static str = "hardware";
    const USES: Uses = Uses { memory: false, accesses: true, machine: false };
    type Plan = HardwarePlan;
    type Found = Grid;

    fn seeds(plan: &HardwarePlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &HardwarePlan, run: &Run<'_>) -> Needs {
        let (mut pages, mut accesses) = (0_u64, 0_u64);
        for name in plan.workloads.of(run.quick).iter() {
            let built = name.build(&Shapes::default());
            pages = pages.max(built.pages());
            accesses = accesses.saturating_add(built.transactions_max());
        }
        let sizes = plan.block_frames.of(run.quick);
        let memory = blocks_bytes(pages, sizes, plan.free_per_requested, plan.free_share);
        let points = sizes.len() * plan.tlb_entries.len() * FORMS.len() * ALLOCATORS.len();
        Needs::small()
            .once("workloads", bytes(&[16, accesses]))
            .once("repeats", bytes(&[512, 8, points as u64, Self::seeds(plan, run.quick)]))
            .each("block_frames", memory)
            .each("tlb_entries", bytes(&[768, costs::MIDDLE * 2]))
    }

    fn measure(plan: &HardwarePlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let failed = |what: &str, error: &dyn std::fmt::Display| StudyError::Machine {
            study: plan.about.study.clone(),
            what: format!("{what}: {error}"),
        };
        let programs = programs(plan.machine.format.format(), plan.workloads.of(run.quick), run)?;
        let (bbs, pbs) =
            orders_of(&plan.machine).map_err(|refused| failed("orders", &refused.why))?;
        let allocators = [(ALLOCATORS[0], bbs), (ALLOCATORS[1], pbs)];
        let mut points: Vec<FormPoint<'_>> = Vec::new();
        for program in &programs {
            for size in plan.block_frames.of(run.quick).iter().map(|size| size.get()) {
                for (name, orders) in allocators {
                    let frames = (name, DesignFrames::Buddy(orders));
                    for entries in plan.tlb_entries.iter().map(|entries| entries.small()) {
                        points.extend(
                            FORMS.iter().map(|form| (program, size, frames, entries, form)),
                        );
                    }
                }
            }
        }
        let axes = [WORKLOAD, LEVEL, FRAMES, ENTRIES, FORM];
        let seeds = Self::seeds(plan, run.quick);
        let memory = plan.memory();
        run.grid(
            &plan.about,
            &axes,
            seeds,
            &points,
            |(program, size, frames, entries, form)| {
                vec![
                    program.0.into(),
                    (*size).into(),
                    frames.0.into(),
                    (*entries).into(),
                    form.name.into(),
                ]
            },
            |(program, size, frames, entries, form), repeat| {
                let hardware = Hardware {
                    tlb: Geometry::fully_associative(*entries),
                    ..Hardware::of(&plan.machine)
                };
                memory
                    .serve(&program.1, frames.1, *size, repeat)
                    .and_then(|blocks| ways::measure(form.way, &hardware, &program.1, &blocks))
                    .map(hits)
                    .map_err(|error| failed(form.name, &error))
            },
        )
    }

    /// The paper has no hardware.
    fn claims(_: &HardwarePlan, _: &Run<'_>) -> Vec<Statement<Grid>> {
        Vec::new()
    }

    fn show(plan: &HardwarePlan, _: &Run<'_>, grid: &Grid) -> Shown {
        let mut figures: Vec<Drawn> =
            ALLOCATORS.iter().map(|frames| hits_for_cells(plan, grid, frames)).collect();
        figures.extend([table_of_forms(plan), table_of_units()]);
        let notes = vec![
            "The hardware is rtl/tlb, rtl/rtmmu: `cargo xtask rtl cosim` runs it beside the models, `cargo xtask rtl prove` \
             proves it, and `cargo xtask rtl cost` writes the table of costs anew (yosys, nextpnr). Numbers of pages and of \
             frames have 20 bits. Cells are lookup tables of four inputs, a carry of the ECP5 as two, \
             or gates of two inputs; the clock is that of one placement (of the other units the median of three), from register to register. \
             Nothing was pipelined."
                .to_owned(),
            "Aligned: an entry maps the largest aligned power of two of pages in a block that lies on aligned frames. \
             Run: the whole block, wherever it begins. One table: of it what lies in one leaf table \
             of 512 pages."
                .to_owned(),
            "The hits are those of the functional models, which have no time; each is the mean over the workloads and \
             the sizes of the free blocks."
                .to_owned(),
        ];
        Shown { finding: finding(plan, grid), figures, notes, host: None }
    }
}

/// The share of accesses without a walk, over workloads and sizes of the free blocks.
fn rate(grid: &Grid, frames: &str, entries: u64, form: &Form) -> Option<Evidence> {
    let keys = [(FRAMES, frames.into()), (ENTRIES, entries.into()), (FORM, form.name.into())];
    over_workloads(grid, "hit_rate", None, &keys)
}

fn hits_for_cells(plan: &HardwarePlan, grid: &Grid, frames: &str) -> Drawn {
    let id = format!("Hits for cells, {frames}");
    let entries: Vec<String> = plan.tlb_entries.iter().map(|one| one.get().to_string()).collect();
    let title = format!("Memory of {frames}: what cells buy, with {} entries", entries.join(", "));
    let y_label = "share of accesses that wait for no walk";
    let caption = format!(
        "Mean over {} and free blocks of {} pages.",
        names(grid, WORKLOAD).join(", "),
        names(grid, LEVEL).join(", ")
    );
    let figure = Figure::new(&id, &title, FigureKind::LinesLog2, "LUT4 of an ECP5", y_label);
    let series = FORMS.iter().map(|form| {
        let mut points: Vec<(u64, Point)> = plan
            .tlb_entries
            .iter()
            .filter_map(|entries| {
                let cost = plan.cost(form, entries.get(), costs::ECP5)?;
                let rate = rate(grid, frames, entries.get(), form)?;
                Some((cost.cells, rate.point(cost.cells)))
            })
            .collect();
        points.sort_by_key(|(cells, _)| *cells);
        Series::new(
            &id,
            "lut4",
            "share_without_wait",
            form.name,
            points.into_iter().map(|(_, point)| point),
        )
    });
    Drawn { series: series.collect(), figure: figure.with_y_range(0.0, 1.0).with_caption(&caption) }
}

/// A table whose rows are these, each with the costs on the targets.
fn table(id: &str, title: &str, rows: &[(String, Vec<&Cost>)], category: &str) -> Drawn {
    let figure = Figure::new(id, title, FigureKind::Table, category, "cells, flip-flops, MHz");
    let mut columns: Vec<Series> = Vec::new();
    let mut add = |name: &str, of: &dyn Fn(&Cost) -> Option<f64>, target: Option<&str>| {
        let points = rows.iter().filter_map(|(row, costs)| {
            let cost =
                costs.iter().find(|cost| target.is_none_or(|target| cost.target == target))?;
            Some(Point::named(row, of(cost)?))
        });
        columns.push(Series::new(id, "unit", "cost", name, points));
    };
    for target in costs::TARGETS {
        add(target, &|cost| Some(cost.cells as f64), Some(target));
    }
    add("flip-flops", &|cost| Some(cost.flip_flops as f64), None);
    for target in costs::TARGETS {
        if rows
            .iter()
            .flat_map(|(_, costs)| costs)
            .any(|one| one.target == target && one.clock_mhz.is_some())
        {
            let part = target.split(' ').next().unwrap_or(target);
            add(&format!("MHz, {part}"), &|cost| cost.clock_mhz, Some(target));
        }
    }
    Drawn { figure, series: columns }
}

fn table_of_forms(plan: &HardwarePlan) -> Drawn {
    let entries = plan.middle();
    let of = |form: &Form| {
        let there = costs::TARGETS.iter().filter_map(|target| plan.cost(form, entries, target));
        (form.name.to_owned(), there.collect())
    };
    let rows: Vec<(String, Vec<&Cost>)> = FORMS.iter().map(of).collect();
    table("TLB", &format!("{entries} entries"), &rows, "an entry maps")
}

fn table_of_units() -> Drawn {
    table("Other units", "as the real-time paper has them", &costs::units(), "unit")
}

fn finding(plan: &HardwarePlan, grid: &Grid) -> String {
    // Cells, and the share on memory of PBS.
    let said = |form: &Form, entries: u64| {
        let cells = plan.cost(form, entries, costs::ECP5)?.cells;
        let rate = 100.0 * rate(grid, "PBS", entries, form)?.estimate().value;
        Some(format!("{} {rate:.1}% for {cells}", form.name))
    };
    let entries = plan.middle();
    let all: Vec<String> = FORMS.iter().filter_map(|form| said(form, entries)).collect();
    let ends = || plan.tlb_entries.iter().map(|entries| entries.get());
    let least = ends().min().and_then(|least| Some((least, said(costs::form("run")?, least)?)));
    let most = ends().max().and_then(|most| Some((most, said(costs::form("aligned")?, most)?)));
    let beside = least.zip(most).map(|((least, run), (most, aligned))| {
        format!(" With {least} entries {run}, with {most} {aligned}.")
    });
    format!(
        "What an entry maps, the share of accesses that wait for no walk on memory of PBS, and the LUT4 of an ECP5, with \
         {entries} entries: {}.{}",
        all.join("; "),
        beside.unwrap_or_default()
    )
}

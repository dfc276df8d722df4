//! The number of nodes in the free lists (section V-E, Fig. 21), on synthetic,
//! aged and real memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_frame::{BuddyConfig, FrameAllocator};

use crate::papers::page_buddy::lists::{self, BBS, MaxOrder, PBS, PbsVariant};
use crate::papers::page_buddy::setting::{Aged, BlockFrames, check_free};
use crate::source::memory::scattered_bytes;
use crate::source::memory::{Allocator, Source, random};
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, Missing, Selection, Value, View, mean, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Nodes of the free lists.
pub struct Freelist;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FreelistPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each synthetic point is measured.
    pub repeats: Forms<Repeats>,
    /// Number of seeds with which memory is aged.
    pub aged_repeats: Forms<Repeats>,
    /// Number of free lists of BBS.
    pub bbs_max_order: MaxOrder,
    /// The variants of PBS.
    pub pbs: Vec<PbsVariant>,
    /// Sizes of the free blocks, one point of the x axis each.
    pub block_frames: Ascending<BlockFrames>,
    /// Frames that are free in all.
    pub free_frames: Bounded<1, { 1 << 24 }>,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// Memory aged by random use, measured beside.
    pub aged: Option<Aged>,
}

crate::plan!(FreelistPlan, check);

fn check(plan: &FreelistPlan) -> Result<(), Refused> {
    lists::check(plan.bbs_max_order, &plan.pbs)?;
    check_free("", 1.0, plan.free_share)?;
    plan.aged.as_ref().map_or(Ok(()), |aged| aged.check("aged"))
}

/// The nodes; a grid is empty if its kind of memory was not measured.
pub struct FreelistFound {
    /// On free blocks of one size.
    pub blocks: Grid,
    /// On aged memory.
    pub aged: Grid,
    /// On a real machine's memory.
    pub real: Grid,
}

const LEVEL: &str = "memory";
const DESIGN: &str = "design";
const AXES: [&str; 2] = [LEVEL, DESIGN];

/// One state of memory with its place on the x axis.
type Level<'a> = (Value, Source<'a>);

impl Study for Freelist {
    const KIND: &'static str = "freelist";
    const USES: Uses = Uses { memory: true, accesses: false, machine: false };
    type Plan = FreelistPlan;
    type Found = FreelistFound;

    fn seeds(plan: &FreelistPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &FreelistPlan, run: &Run<'_>) -> Needs {
        let (free, share) = (plan.free_frames.get(), plan.free_share.get());
        let sizes = &plan.block_frames;
        let least = sizes.first().map_or(1, |size| size.get());
        let most = sizes.last().map_or(1, |size| size.get());
        let designs = 1 + plan.pbs.len() as u64;
        let cells = bytes(&[256, plan.repeats.of(run.quick).get(), sizes.len() as u64, designs]);
        let blocks = scattered_bytes(free.max(most), least, share);
        let aged = plan.aged.as_ref().map_or(0, |aged| aged.needs_bytes(run.quick));
        Needs::small().once("repeats", cells).each("free_frames", blocks).each("aged.frames", aged)
    }

    fn measure(plan: &FreelistPlan, run: &Run<'_>) -> Result<FreelistFound, StudyError> {
        let empty = || Grid::new(&AXES, 0);
        if let Some(machine) = &run.real.memory {
            let level = (machine.name.clone().into(), Source::Free(&machine.free));
            let real = nodes(plan, run, 0, &[level])?;
            return Ok(FreelistFound { blocks: empty(), aged: empty(), real });
        }
        let blocks = |size: &BlockFrames| {
            let (free, share) = (plan.free_frames.get(), plan.free_share.get());
            (size.get().into(), Source::blocks(size.get(), free, share))
        };
        let blocks: Vec<Level<'_>> = plan.block_frames.iter().map(blocks).collect();
        let aged = plan.aged.iter().flat_map(|aged| {
            aged.used_shares.iter().map(|&share| {
                let frames = aged.frames.get();
                let ageing = aged.ageing(share, run.quick);
                (share.get().into(), Source::Aged { frames, ageing })
            })
        });
        let aged: Vec<Level<'_>> = aged.collect();
        let seeds = Self::seeds(plan, run.quick);
        let blocks = nodes(plan, run, seeds, &blocks)?;
        let aged = match aged.as_slice() {
            [] => empty(),
            levels => nodes(plan, run, plan.aged_repeats.of(run.quick).get(), levels)?,
        };
        Ok(FreelistFound { blocks, aged, real: empty() })
    }

    fn claims(plan: &FreelistPlan, run: &Run<'_>) -> Vec<Statement<FreelistFound>> {
        let conditions = lists::conditions(plan.bbs_max_order, &plan.pbs)
            .same("free frames", 1024, plan.free_frames.get())
            .met(run.real.memory.is_none(), "the free memory of a real machine");
        claims(&conditions)
    }

    fn show(plan: &FreelistPlan, run: &Run<'_>, found: &FreelistFound) -> Shown {
        let finding = found.blocks.evidence(|view| Ok(mean(&reductions(&view.select())?)));
        let finding = finding.map_or_else(
            |_| String::new(),
            |share| {
                let percent = 100.0 * share.estimate().value;
                format!(
                    "{PBS} has {percent:.0}% fewer nodes than BBS, averaged over the block sizes."
                )
            },
        );
        let notes = vec![
            format!(
                "Synthetic points are means over {} random placements, aged ones over {} lives.",
                plan.repeats.of(run.quick),
                plan.aged_repeats.of(run.quick)
            ),
            "A PBS node is a run of free pages of one page size, cut where it would reach the \
             next page size: 1 to 15 frames, 1 to 15 times 16 frames, or any number of 256 frames \
             on ARMv7."
                .to_owned(),
        ];
        Shown { finding, figures: figures(plan, found), notes, host: None }
    }
}

/// The nodes of each design in each of these memories.
fn nodes(
    plan: &FreelistPlan,
    run: &Run<'_>,
    seeds: u64,
    levels: &[Level<'_>],
) -> Result<Grid, StudyError> {
    let designs = lists::designs(plan.bbs_max_order, &plan.pbs)?;
    let of = |level| designs.iter().map(move |design| (level, design));
    let points: Vec<(&Level<'_>, &(String, BuddyConfig))> = levels.iter().flat_map(of).collect();
    let at = |(level, design): &(&Level<'_>, &(String, BuddyConfig))| {
        vec![level.0.clone(), design.0.as_str().into()]
    };
    run.grid(&plan.about, &AXES, seeds, &points, at, |(level, design), repeat| {
        one(plan, &level.1, design.1, repeat)
    })
}

/// One seed of one point.
fn one(
    plan: &FreelistPlan,
    source: &Source<'_>,
    config: BuddyConfig,
    repeat: u64,
) -> Result<Metrics, StudyError> {
    let prepared = source.prepare(config, &mut random(plan.about.seed, repeat));
    let allocator: Allocator = prepared.map_err(|error| StudyError::Machine {
        study: plan.about.study.clone(),
        what: error.to_string(),
    })?;
    let mut nodes = 0;
    allocator.for_each_free(&mut |_| nodes += 1);
    Ok(metrics([("nodes", f64::from(nodes))]))
}

/// The shares of nodes that PBS saves.
fn reductions(cells: &Selection<'_>) -> Result<Vec<f64>, Missing> {
    cells.pairs(DESIGN, PBS, BBS, |pbs, bbs| Ok(1.0 - pbs.get("nodes")? / bbs.get("nodes")?))
}

const ALL_LEVELS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The statements of section V-E. The mean is read off a figure and given in
/// whole per cent: 5 points.
fn claims(conditions: &Conditions) -> Vec<Statement<FreelistFound>> {
    let place = "Section V-E, Fig. 21";
    let says = "Block size 1: PBS and BBS have the identical number of nodes (difference)";
    let identical = Statement::exactly(place, says, 0.0)
        .identity("frames that stand alone are one node each in any free list")
        .under(conditions);
    let identical = identical.measured(|found: &FreelistFound| {
        found.blocks.evidence(|view: &View<'_>| {
            let cells = view.select().is(LEVEL, 1_u64);
            let difference = cells.pairs(DESIGN, PBS, BBS, |pbs, bbs| {
                Ok((pbs.get("nodes")? - bbs.get("nodes")?).abs())
            })?;
            Ok(mean(&difference))
        })
    });
    let says = "PBS reduces the free-list nodes by 46% (mean over the block sizes)";
    let fewer = Statement::within(place, says, 0.46, 0.05).unit(Unit::Share).under(conditions);
    let fewer = fewer.measured(|found: &FreelistFound| {
        found.blocks.evidence(|view| Ok(mean(&reductions(&view.select().all(LEVEL, ALL_LEVELS))?)))
    });
    vec![identical, fewer]
}

fn figures(plan: &FreelistPlan, found: &FreelistFound) -> Vec<Drawn> {
    let free = format!("{} free frames", plan.free_frames);
    let aged = plan.aged.as_ref().map(|aged| aged.frames.get()).unwrap_or_default();
    let aged = format!("{aged} frames aged by random use");
    let machine = found.real.values(LEVEL).first().map(ToString::to_string).unwrap_or_default();
    let (blocks_label, used_label) = ("free block size (pages)", "memory in use (share of frames)");
    let parts = [
        (&found.blocks, "Fig. 21", free, FigureKind::LinesLog2, "free_block_frames", blocks_label),
        (&found.aged, "Aged memory", aged, FigureKind::Lines, "used_share", used_label),
        (&found.real, "Real memory", machine, FigureKind::Bars, "memory", "memory"),
    ];
    let drawn = |(grid, id, title, kind, x, x_label): (&Grid, &str, String, _, &str, &str)| {
        let figure = Figure::new(id, &title, kind, x_label, "free-list nodes (mean)");
        let of = |design: &&Value| {
            let points =
                grid.points(LEVEL, |all| all.is(DESIGN, (*design).clone()), |c| c.get("nodes"));
            Series::new(id, x, "freelist_nodes", &design.to_string(), points)
        };
        Drawn { figure, series: grid.values(DESIGN).iter().map(of).collect() }
    };
    parts.into_iter().filter(|part| !part.0.is_empty()).map(drawn).collect()
}

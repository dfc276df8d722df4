//! The number of nodes in the free lists (section V-E, Fig. 21), on synthetic,
//! aged and real memory, and what follows from it: their bytes, and the lists
//! that are looked through for a page.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Pfn};
use swath_frame::FrameAllocator;
use swath_frame::testing::lists::Steps;

use crate::papers::page_buddy::design::DesignFrames;
use crate::papers::page_buddy::design::allocators::{self, AllocatorsPlan, Named, allocators};
use crate::papers::page_buddy::lists::{self, BBS, MaxOrder, PBS, PbsVariant};
use crate::papers::page_buddy::setting::{Aged, BlockFrames, check_free};
use crate::papers::page_buddy::subject::paper_lists;
use crate::source::memory::{Source, random, scattered_blocks, scattered_bytes};
use crate::study::bounds::{Ascending, Bounded, Forms, Repeats, Share};
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, Missing, Selection, Value, View, mean, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
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
    /// The allocators; BBS, all variants and what other crates added if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub designs: AllocatorsPlan,
    /// Sizes of the free blocks, one point of the x axis each.
    pub block_frames: Ascending<BlockFrames>,
    /// Frames that are free in all.
    pub free_frames: Bounded<1, { 1 << 24 }>,
    /// The share of memory that is free, 0.001 and more.
    pub free_share: Share,
    /// Memory aged by random use, measured beside.
    pub aged: Option<Aged>,
    /// Other shares of free memory and other places of the blocks, measured
    /// beside.
    pub varied: Option<Varied>,
}

/// Free blocks of which the share and the places are varied.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Varied {
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// The shares of memory that are free, 0.001 to 0.5: between any two
    /// blocks there is room for another.
    pub free_shares: Ascending<Share>,
}

crate::plan!(FreelistPlan, check);

fn check(plan: &FreelistPlan) -> Result<(), Refused> {
    allocators::check(&plan.designs, plan.bbs_max_order, &plan.pbs, &[])?;
    check_free("", 1.0, plan.free_share)?;
    for share in plan.varied.iter().flat_map(|varied| &varied.free_shares) {
        require((0.001..=0.5).contains(&share.get()), "varied.free_shares", || {
            format!("{} is not between 0.001 and 0.5", share.get())
        })?;
    }
    plan.aged.as_ref().map_or(Ok(()), |aged| aged.check("aged"))
}

/// The nodes; a grid is empty if its kind of memory was not measured.
pub struct FreelistFound {
    /// On free blocks of one size.
    pub blocks: Grid,
    /// On aged memory.
    pub aged: Grid,
    /// On other shares and places of free blocks.
    pub varied: Grid,
    /// On a real machine's memory.
    pub real: Grid,
}

const LEVEL: &str = "memory";
const DESIGN: &str = "design";
const AXES: [&str; 2] = [LEVEL, DESIGN];
const SHARE: &str = "free_share";
const PLACES: &str = "places";
const SIZE: &str = "free_block_frames";

/// The places of free blocks: any frame number, or multiples of their size.
const ANYWHERE: &str = "anywhere";
const ALIGNED: &str = "aligned";

/// Bytes of a list's head, of the link of a node, and of an integer, on the
/// paper's machine of 32 bits.
const WORD_BYTES: f64 = 4.0;

/// One state of memory with its place on the x axis.
type MemoryLevel<'a> = (Value, Source<'a>);

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
        let designs = plan.designs.as_ref().map_or(1 + plan.pbs.len(), Vec::len) as u64;
        let cells = bytes(&[256, plan.repeats.of(run.quick).get(), sizes.len() as u64, designs]);
        let blocks = scattered_bytes(free.max(most), least, share);
        let aged = plan.aged.as_ref().map_or(0, |aged| aged.needs_bytes(run.quick));
        // The paper's lists have a node for each block.
        let blocks = blocks.saturating_add(bytes(&[64, free.max(most)]));
        let varied = plan.varied.as_ref().map_or(0, |varied| {
            let share = varied.free_shares.first().map_or(1.0, |share| share.get());
            scattered_bytes(free.max(most), least, share)
                .saturating_add(bytes(&[32, free.max(most)]))
        });
        Needs::small()
            .each("varied.free_shares", varied)
            .once("repeats", cells)
            .each("free_frames", blocks)
            .each("aged.frames", aged)
    }

    fn measure(plan: &FreelistPlan, run: &Run<'_>) -> Result<FreelistFound, StudyError> {
        let empty = || Grid::new(&AXES, 0);
        if let Some(machine) = &run.real.memory {
            let level = (machine.name.clone().into(), Source::Free(&machine.free));
            let real = nodes(plan, run, 0, &[level], false)?;
            return Ok(FreelistFound { blocks: empty(), aged: empty(), varied: empty(), real });
        }
        let blocks = |size: &BlockFrames| {
            let (free, share) = (plan.free_frames.get(), plan.free_share.get());
            (size.get().into(), Source::blocks(size.get(), free, share))
        };
        let blocks: Vec<MemoryLevel<'_>> = plan.block_frames.iter().map(blocks).collect();
        let aged = plan.aged.iter().flat_map(|aged| {
            aged.used_shares.iter().map(|&share| {
                let frames = aged.frames.get();
                let ageing = aged.ageing(share, run.quick);
                (share.get().into(), Source::Aged { frames, ageing })
            })
        });
        let aged: Vec<MemoryLevel<'_>> = aged.collect();
        let seeds = Self::seeds(plan, run.quick);
        let blocks = nodes(plan, run, seeds, &blocks, true)?;
        let aged = match aged.as_slice() {
            [] => empty(),
            levels => nodes(plan, run, plan.aged_repeats.of(run.quick).get(), levels, false)?,
        };
        let varied =
            plan.varied.as_ref().map_or_else(|| Ok(empty()), |one| varied(plan, run, one))?;
        Ok(FreelistFound { blocks, aged, varied, real: empty() })
    }

    fn claims(plan: &FreelistPlan, run: &Run<'_>) -> Vec<Statement<FreelistFound>> {
        let conditions = lists::conditions(plan.bbs_max_order, &plan.pbs)
            .same("free frames", 1024, plan.free_frames.get())
            .met(run.real.memory.is_none(), "the free memory of a real machine");
        claims(&conditions)
    }

    fn show(plan: &FreelistPlan, run: &Run<'_>, found: &FreelistFound) -> Shown {
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
            "Bytes are those of the paper's machine: a head of 4 bytes for each list; a link of 4 \
             bytes and an integer of 4 for each node of BBS, whose length is its list's. A node \
             of PBS is a base and a length: two integers, or packed into one, 20 bits for the \
             frame and 12 for the length in pages of its list."
                .to_owned(),
            "Lists looked at: those of the scan of Fig. 4, and upwards for a block to split, for \
             all free pages one after the other."
                .to_owned(),
        ];
        let finding = finding(found);
        Shown { finding, figures: figures(plan, found), notes, host: None }
    }
}

/// The nodes of each design in each of these memories.
fn nodes(
    plan: &FreelistPlan,
    run: &Run<'_>,
    seeds: u64,
    levels: &[MemoryLevel<'_>],
    lists: bool,
) -> Result<Grid, StudyError> {
    let designs = allocators(&plan.designs, plan.bbs_max_order, &plan.pbs)?;
    let of = |level| designs.iter().map(move |design| (level, design));
    let points: Vec<(&MemoryLevel<'_>, &Named)> = levels.iter().flat_map(of).collect();
    let at = |(level, design): &(&MemoryLevel<'_>, &Named)| {
        vec![level.0.clone(), design.0.as_str().into()]
    };
    run.grid(&plan.about, &AXES, seeds, &points, at, |(level, design), repeat| {
        one(plan, &level.1, design.1, repeat, lists)
    })
}

/// The nodes of each design in free blocks of these shares and places.
fn varied(plan: &FreelistPlan, run: &Run<'_>, varied: &Varied) -> Result<Grid, StudyError> {
    let designs = allocators(&plan.designs, plan.bbs_max_order, &plan.pbs)?;
    let mut points = Vec::new();
    for &share in &varied.free_shares {
        for places in [ANYWHERE, ALIGNED] {
            for &size in &plan.block_frames {
                points.extend(designs.iter().map(|design| (share, places, size, design)));
            }
        }
    }
    let at = |&(share, places, size, design): &(Share, &str, BlockFrames, &(String, _))| {
        vec![share.get().into(), places.into(), size.get().into(), design.0.as_str().into()]
    };
    let (axes, seeds) = ([SHARE, PLACES, SIZE, DESIGN], varied.repeats.of(run.quick).get());
    run.grid(&plan.about, &axes, seeds, &points, at, |&(share, places, size, design), repeat| {
        let (size, free) = (size.get(), plan.free_frames.get());
        let anywhere = Source::blocks(size, free, share.get());
        if places == ANYWHERE {
            return one(plan, &anywhere, design.1, repeat, false);
        }
        // Blocks as the frames of a memory that is so much smaller.
        let count = free.div_ceil(size);
        let span = (count as f64 / share.get()).ceil() as u64;
        let blocks = scattered_blocks(count, 1, span, &mut random(plan.about.seed, repeat));
        let mut blocks = blocks.map_err(|error| failed(plan, &error))?;
        for block in &mut blocks {
            *block = Extent::new(Pfn::new(block.start.raw() * size), size);
        }
        one(plan, &Source::Free(&blocks), design.1, repeat, false)
    })
}

fn failed(plan: &FreelistPlan, what: &dyn std::fmt::Display) -> StudyError {
    StudyError::Machine { study: plan.about.study.clone(), what: what.to_string() }
}

/// One seed of one point, with the steps of the paper's lists if they are
/// wanted.
fn one(
    plan: &FreelistPlan,
    source: &Source<'_>,
    frames: DesignFrames,
    repeat: u64,
    lists: bool,
) -> Result<Metrics, StudyError> {
    let prepared = frames.over(source, &mut random(plan.about.seed, repeat));
    let allocator = prepared.map_err(|error| failed(plan, &error))?;
    let mut nodes = 0.0;
    allocator.for_each_free(&mut |_| nodes += 1.0);
    let (DesignFrames::Buddy(config) | DesignFrames::BestFit(config)) = frames else {
        // What its nodes take is not known.
        return Ok(metrics([("nodes", nodes)]));
    };
    let heads = config.classes() as f64;
    let bytes = |integers: f64| WORD_BYTES * (heads + nodes * (1.0 + integers));
    let mut found =
        metrics([("nodes", nodes), ("packed_bytes", bytes(1.0)), ("tuple_bytes", bytes(2.0))]);
    // The steps are those of the rule that the paper's lists follow.
    if lists && matches!(frames, DesignFrames::Buddy(_)) {
        let mut random = random(plan.about.seed, repeat);
        let lists = paper_lists(source, config, &mut random, Steps::default());
        let mut lists = lists.map_err(|error| failed(plan, &error))?;
        let pages = lists.free_frames();
        lists.watch = Steps::default();
        while lists.allocate_frame().is_some_and(|_| lists.free_frames() > 0) {}
        found.extend(metrics([("lists", lists.watch.lists as f64 / pages as f64)]));
    }
    Ok(found)
}

/// The shares of nodes that PBS saves.
fn reductions(cells: &Selection<'_>) -> Result<Vec<f64>, Missing> {
    saved(cells, PBS, "nodes", "nodes")
}

/// The shares that a design saves by one metric of what BBS has by another.
fn saved(cells: &Selection<'_>, design: &str, metric: &str, of: &str) -> Result<Vec<f64>, Missing> {
    cells.pairs(DESIGN, design, BBS, |pbs, bbs| Ok(1.0 - pbs.get(metric)? / bbs.get(of)?))
}

/// Means over the block sizes, in words; empty if they were not measured.
fn finding(found: &FreelistFound) -> String {
    let percent = |metric, of| {
        let mean = found.blocks.evidence(|view| Ok(mean(&saved(&view.select(), PBS, metric, of)?)));
        mean.map(|share| 100.0 * share.estimate().value)
    };
    let lists = |design| {
        let lists = found.blocks.evidence(|view| view.select().is(DESIGN, design).mean("lists"));
        lists.map(|lists| lists.estimate().value)
    };
    let aligned =
        found.varied.evidence(|view| Ok(mean(&reductions(&view.select().is(PLACES, ALIGNED))?)));
    let aligned = aligned.map_or_else(
        |_| String::new(),
        |share| {
            let percent = 100.0 * share.estimate().value;
            format!(" Where every block is aligned to its size, it has {percent:.0}% fewer.")
        },
    );
    let words = |nodes: f64, packed: f64, tuple: f64, lists: (f64, f64)| {
        let tuple = match tuple {
            fewer if fewer >= 0.0 => format!("{fewer:.0}% fewer"),
            more => format!("{:.0}% more", -more),
        };
        format!(
            "{PBS} has {nodes:.0}% fewer nodes than BBS, averaged over the block sizes.{aligned} Its \
             lists take {packed:.0}% fewer bytes with the paper's packed node, and {tuple} with \
             two integers in a node. For a page it looks at {:.1} lists, BBS at {:.1}.",
            lists.0, lists.1
        )
    };
    let all = || {
        let nodes = percent("nodes", "nodes")?;
        let (packed, tuple) =
            (percent("packed_bytes", "packed_bytes")?, percent("tuple_bytes", "packed_bytes")?);
        Ok::<_, Missing>(words(nodes, packed, tuple, (lists(PBS)?, lists(BBS)?)))
    };
    all().unwrap_or_default()
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
    let parts = parts.into_iter().filter(|part| !part.0.is_empty());
    let mut all: Vec<Drawn> = parts.map(drawn).collect();
    if !found.blocks.is_empty() {
        all.extend([bytes_figure(&found.blocks), lists_figure(&found.blocks)]);
    }
    if !found.varied.is_empty() {
        all.push(varied_figure(&found.varied));
    }
    all
}

const SIZE_LABEL: &str = "free block size (pages)";

/// Bytes of the lists: BBS, and each PBS with both kinds of node.
fn bytes_figure(grid: &Grid) -> Drawn {
    let (id, title) = ("Bytes", "Heads and nodes of the free lists on a machine of 32 bits");
    let figure = Figure::new(id, title, FigureKind::LinesLog2, SIZE_LABEL, "bytes (mean)");
    let line = |design: &str, name: &str, metric: &str| {
        let points = grid.points(LEVEL, |all| all.is(DESIGN, design), |cell| cell.get(metric));
        Series::new(id, SIZE, "freelist_bytes", name, points)
    };
    let of = |design: &&Value| {
        let design = design.to_string();
        if design == BBS {
            return vec![line(&design, &design, "packed_bytes")];
        }
        let two = format!("{design}, two integers in a node");
        vec![line(&design, &design, "packed_bytes"), line(&design, &two, "tuple_bytes")]
    };
    Drawn { figure, series: grid.values(DESIGN).iter().flat_map(of).collect() }
}

/// The lists that are looked at for a page.
fn lists_figure(grid: &Grid) -> Drawn {
    let (id, title) = ("Lists for a page", "Free lists that are looked at for a single page");
    let figure = Figure::new(id, title, FigureKind::LinesLog2, SIZE_LABEL, "lists (mean)");
    let of = |design: &&Value| {
        let points =
            grid.points(LEVEL, |all| all.is(DESIGN, (*design).clone()), |cell| cell.get("lists"));
        Series::new(id, SIZE, "lists", &design.to_string(), points)
    };
    Drawn { figure, series: grid.values(DESIGN).iter().map(of).collect() }
}

/// What PBS saves where the share and the places of the blocks are others.
fn varied_figure(grid: &Grid) -> Drawn {
    let (id, title) =
        ("Share and alignment", "Nodes saved, by the free share and the blocks' places");
    let y_label = "nodes saved over BBS (share, mean over the block sizes)";
    let figure = Figure::new(id, title, FigureKind::Lines, "free share of memory", y_label);
    let mut series = Vec::new();
    for design in grid.values(DESIGN).into_iter().filter(|design| design.word() != Some(BBS)) {
        let design = design.to_string();
        for places in [ANYWHERE, ALIGNED] {
            let points = grid.values(SHARE).into_iter().filter_map(|share| {
                let nodes = grid.evidence(|view| {
                    let cells = view.select().is(SHARE, share.clone()).is(PLACES, places);
                    Ok(mean(&saved(&cells, &design, "nodes", "nodes")?))
                });
                Some(nodes.ok()?.point(share.clone()))
            });
            let name = format!("{design}, blocks {places}");
            series.push(Series::new(id, SHARE, "nodes_saved", &name, points.collect::<Vec<_>>()));
        }
    }
    Drawn { figure, series }
}

//! The study of TLBs that are sold and of other proposals: its plan and figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Format, Vpn};
use swath_frame::BuddyConfig;
use swath_hw::Geometry;

use crate::papers::page_buddy::design::compared::added;
use crate::papers::page_buddy::design::{AddedFrames, DesignFrames};
use crate::papers::page_buddy::reach::nested::{self, Both};
use crate::papers::page_buddy::reach::ways::{self, Met, Way};
use crate::papers::page_buddy::savings::{LEVEL, WORKLOAD};
use crate::papers::page_buddy::setting::{BlockFrames, MachinePlan, blocks_bytes, check_free};
use crate::papers::page_buddy::translation::{Hardware, MeasureError, Program, serve};
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::random;
use crate::source::real::Trace;
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Repeats, Share};
use crate::study::claim::Statement;
use crate::study::grid::{Evidence, Grid, Metrics, Value, View, mean, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};

/// Hit rates of TLBs that are sold and of other proposals, on the memory of BBS and of PBS.
pub struct Reach;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReachPlan {
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
    /// The machine.
    pub machine: MachinePlan,
    /// The same under a hypervisor.
    pub nested: NestedPlan,
}

/// The part under a hypervisor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NestedPlan {
    /// The workloads; a recorded program takes their place.
    pub workloads: Forms<Distinct<WorkloadName>>,
    /// Sizes of the free blocks, in the guest's memory and in the host's.
    pub block_frames: Forms<Ascending<BlockFrames>>,
    /// Entries in the TLB of the host's part; 0 for none.
    pub host_tlb_entries: Ascending<Bounded<0, { 1 << 16 }>>,
}

crate::plan!(ReachPlan, check);

fn check(plan: &ReachPlan) -> Result<(), Refused> {
    check_free("", plan.free_per_requested, plan.free_share)?;
    plan.machine.check()?;
    orders_of(&plan.machine).map(drop)
}

/// The orders of BBS and of PBS.
pub(super) fn orders_of(machine: &MachinePlan) -> Result<(BuddyConfig, BuddyConfig), Refused> {
    let refused = |error: crate::study::plan::PlanError| Refused {
        key: "machine.bbs_max_order".to_owned(),
        why: error.to_string(),
    };
    Ok((machine.bbs().map_err(refused)?, machine.pbs().map_err(refused)?))
}

const WAY: &str = "tlb";
const FRAMES: &str = "allocator";
const HOST_TLB: &str = "host_tlb_entries";

/// The measurements.
pub struct ReachFound {
    /// Hit rates by TLB, allocator, workload and size of the free blocks.
    ways: Grid,
    /// Reads of tables under a hypervisor.
    nested: Grid,
}

/// The programs: the recorded one, or the workloads.
pub(super) fn programs(
    format: Format,
    names: &[WorkloadName],
    run: &Run<'_>,
) -> Result<Vec<(&'static str, Program)>, StudyError> {
    match &run.real.accesses {
        None => {
            let of =
                |name: &WorkloadName| (name.title(), Program::of(&name.build(&Shapes::default())));
            Ok(names.iter().map(of).collect())
        }
        Some(file) => Ok(vec![("recorded", Program::recorded(Trace::new(Some(file)), format)?)]),
    }
}

impl ReachPlan {
    /// The orders of BBS and of PBS.
    fn orders(&self) -> Result<(BuddyConfig, BuddyConfig), StudyError> {
        orders_of(&self.machine).map_err(|refused| StudyError::Machine {
            study: self.about.study.clone(),
            what: refused.why,
        })
    }

    const fn state(&self, block_frames: u64) -> nested::State {
        (block_frames, self.free_per_requested, self.free_share.get())
    }

    fn failed(&self, what: &str, error: &MeasureError) -> StudyError {
        StudyError::Machine { study: self.about.study.clone(), what: format!("{what}: {error}") }
    }
}

/// Memory in free blocks of one size, of which programs' requests are served.
pub(super) struct InBlocks {
    /// Frames that are free for each frame that is requested.
    pub(super) free_per_requested: f64,
    /// The share of memory that is free.
    pub(super) free_share: f64,
    pub(super) seed: u64,
}

impl InBlocks {
    /// Serves a program's requests on an allocator, of free blocks of one size.
    pub(super) fn serve(
        &self,
        program: &Program,
        frames: DesignFrames,
        block_frames: u64,
        repeat: u64,
    ) -> Result<Vec<(Vpn, Extent)>, MeasureError> {
        let source = program.scattered(block_frames, self.free_per_requested, self.free_share);
        let mut allocator = frames.over(&source, &mut random(self.seed, repeat))?;
        let mut blocks = Vec::new();
        for request in &program.requests {
            blocks.extend(serve(*request, allocator.as_mut())?);
        }
        Ok(blocks)
    }
}

/// The numbers of a measurement.
pub(super) fn hits(met: Met) -> Metrics {
    metrics([("hit_rate", met.hit_rate()), ("reads", met.reads_per_access())])
}

impl Study for Reach {
    const KIND: &'static str = "reach";
    const USES: Uses = Uses { memory: false, accesses: true, machine: false };
    type Plan = ReachPlan;
    type Found = ReachFound;

    fn seeds(plan: &ReachPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &ReachPlan, run: &Run<'_>) -> Needs {
        let quick = run.quick;
        let built = |names: &Distinct<WorkloadName>| -> (u64, u64) {
            let all = names.iter().map(|name| name.build(&Shapes::default()));
            all.fold((0, 0), |(pages, accesses), one| {
                (pages.max(one.pages()), accesses.saturating_add(one.transactions_max()))
            })
        };
        let (pages, accesses) = built(plan.workloads.of(quick));
        let (guest_pages, guest_accesses) = built(plan.nested.workloads.of(quick));
        let memory = |pages, sizes: &[_]| {
            blocks_bytes(pages, sizes, plan.free_per_requested, plan.free_share)
        };
        // The host gives as many pages as the guest has in all.
        let of_guest = guest_pages as f64 * plan.free_per_requested / plan.free_share.get();
        let of_guest = (of_guest as u64).saturating_add(guest_pages).saturating_add(1 << 20);
        let levels = plan.block_frames.of(quick).len() + plan.nested.block_frames.of(quick).len();
        let seeds = Self::seeds(plan, quick);
        Needs::small()
            .once("workloads", bytes(&[16, accesses]))
            .once("nested.workloads", bytes(&[16, guest_accesses]))
            .once("repeats", bytes(&[512, 32, levels as u64, seeds]))
            .each("block_frames", memory(pages, plan.block_frames.of(quick)))
            .each("nested.block_frames", memory(of_guest, plan.nested.block_frames.of(quick)))
            .each("machine.tlb_entries", bytes(&[768, plan.machine.tlb_entries.get()]))
    }

    fn measure(plan: &ReachPlan, run: &Run<'_>) -> Result<ReachFound, StudyError> {
        Ok(ReachFound { ways: by_way(plan, run)?, nested: under_host(plan, run)? })
    }

    /// None of this is in the paper.
    fn claims(_: &ReachPlan, _: &Run<'_>) -> Vec<Statement<ReachFound>> {
        Vec::new()
    }

    fn show(plan: &ReachPlan, run: &Run<'_>, found: &ReachFound) -> Shown {
        let mut figures = way_figures(plan, run, &found.ways);
        figures.extend(nested_figures(plan, &found.nested));
        let entries = plan.machine.tlb_entries.get();
        let notes = vec![
            format!(
                "All TLBs have {entries} entries; RMM's are half for pages and half for ranges. SpOT has 32 \
                 offsets besides, for regions of 1 MiB where the paper has one for an instruction: \
                 these masters have no instructions. A right prediction counts as a hit, as it hides \
                 the walk; the walk is made all the same."
            ),
            "Zen joins four aligned pages on four aligned frames; CoLT what goes on within a line of \
             descriptors; a fragment is the largest aligned power of two in a block that lies \
             on aligned frames, up to 2 MiB. Pages of 64 KiB are Arm's contiguous bit, ARMv7's \
             large pages or RISC-V's Svnapot; x86-64 has none. In hardware a run that may lie anywhere costs more than \
             one within a leaf table (rtl/README.md)."
                .to_owned(),
            "AT has the anchor distance that suits the blocks best; AT and PCAD have fields as wide as \
             machine.contiguity_bits says, which no processor has (pbs-widths)."
                .to_owned(),
            "Under a hypervisor the guest's tables and the host's tell of contiguity alike, and neither has \
             large pages. The host gives the guest's memory whole before the guest begins, both \
             from memory in free blocks of the same size. Upper levels are read at each walk."
                .to_owned(),
        ];
        Shown { finding: finding(plan, run, found), figures, notes, host: None }
    }
}

/// A program, the size of the free blocks, an allocator and a TLB.
type WayPoint<'a> = (&'a (&'static str, Program), u64, (&'static str, DesignFrames), Way);

fn by_way(plan: &ReachPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
    let programs = programs(plan.machine.format.format(), plan.workloads.of(run.quick), run)?;
    let hardware = Hardware::of(&plan.machine);
    let (bbs, pbs) = plan.orders()?;
    let mut allocators = vec![("BBS", DesignFrames::Buddy(bbs)), ("PBS", DesignFrames::Buddy(pbs))];
    allocators.extend(added().iter().filter_map(|one| match one.frames {
        AddedFrames::Own(new) => Some((one.name, DesignFrames::Own(new))),
        AddedFrames::Bbs | AddedFrames::Pbs => None,
    }));
    let mut points: Vec<WayPoint<'_>> = Vec::new();
    for program in &programs {
        for size in plan.block_frames.of(run.quick).iter().map(|size| size.get()) {
            for &frames in &allocators {
                let ways = Way::all(hardware.format).into_iter();
                points.extend(ways.map(|way| (program, size, frames, way)));
            }
        }
    }
    let at = |(program, size, frames, way): &WayPoint<'_>| {
        vec![program.0.into(), (*size).into(), frames.0.into(), way.title().into()]
    };
    let axes = [WORKLOAD, LEVEL, FRAMES, WAY];
    let memory = InBlocks {
        free_per_requested: plan.free_per_requested,
        free_share: plan.free_share.get(),
        seed: plan.about.seed,
    };
    let seeds = Reach::seeds(plan, run.quick);
    run.grid(&plan.about, &axes, seeds, &points, at, |(program, size, frames, way), repeat| {
        memory
            .serve(&program.1, frames.1, *size, repeat)
            .and_then(|blocks| ways::measure(*way, &hardware, &program.1, &blocks))
            .map(hits)
            .map_err(|error| plan.failed(&format!("{} on {}", way.title(), frames.0), &error))
    })
}

fn under_host(plan: &ReachPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
    let programs =
        programs(plan.machine.format.format(), plan.nested.workloads.of(run.quick), run)?;
    let hardware = Hardware::of(&plan.machine);
    let orders = plan.orders()?;
    let mut points: Vec<(&(&str, Program), u64, u32, Both)> = Vec::new();
    for program in &programs {
        for size in plan.nested.block_frames.of(run.quick).iter().map(|size| size.get()) {
            for entries in plan.nested.host_tlb_entries.iter().map(|entries| entries.small()) {
                points.extend(nested::ALL.map(|both| (program, size, entries, both)));
            }
        }
    }
    let at = |(program, size, entries, both): &(&(&str, Program), u64, u32, Both)| {
        vec![program.0.into(), (*size).into(), (*entries).into(), both.name.into()]
    };
    let axes = [WORKLOAD, LEVEL, HOST_TLB, WAY];
    let seeds = Reach::seeds(plan, run.quick);
    run.grid(&plan.about, &axes, seeds, &points, at, |(program, size, entries, both), repeat| {
        let host_tlb = (*entries > 0).then(|| Geometry::fully_associative(*entries));
        let mut random = random(plan.about.seed, repeat);
        let state = plan.state(*size);
        nested::measure(*both, &hardware, host_tlb, orders, (&program.1, state), &mut random)
            .map(hits)
            .map_err(|error| plan.failed(both.name, &error))
    })
}

/// The mean of a number over the workloads, and over the sizes of the free blocks if none is given.
pub(super) fn over_workloads(
    grid: &Grid,
    metric: &str,
    level: Option<&Value>,
    given: &[(&str, Value)],
) -> Option<Evidence> {
    let number = |view: &View<'_>| {
        let keys = level.map(|level| (LEVEL, level)).into_iter();
        let keys = keys.chain(given.iter().map(|(axis, value)| (*axis, value)));
        let cells = keys.fold(view.select(), |cells, (axis, value)| cells.is(axis, value.clone()));
        Ok(mean(&cells.numbers(metric)?))
    };
    grid.evidence(number).ok()
}

/// The size of free blocks in the middle of the list, at which all stand side by side.
fn middle(sizes: &Ascending<BlockFrames>) -> u64 {
    sizes.iter().map(|size| size.get()).nth(sizes.len() / 2).unwrap_or(1)
}

pub(super) fn names(grid: &Grid, axis: &str) -> Vec<String> {
    grid.values(axis).into_iter().map(ToString::to_string).collect()
}

fn way_figures(plan: &ReachPlan, run: &Run<'_>, grid: &Grid) -> Vec<Drawn> {
    let y_label = "share of accesses that wait for no walk";
    let workloads = names(grid, WORKLOAD).join(", ");
    let level = middle(plan.block_frames.of(run.quick));
    let rate = |level: &Value, frames: &str, way: &str| {
        let keys = [(FRAMES, frames.into()), (WAY, way.into())];
        over_workloads(grid, "hit_rate", Some(level), &keys)
    };
    let (ways, allocators) = (names(grid, WAY), names(grid, FRAMES));
    let id = "Side by side";
    let title = format!("Free blocks of {level} pages: what each TLB gains from which allocator");
    let figure = Figure::new(id, &title, FigureKind::Bars, "TLB", y_label);
    let figure = figure.with_y_range(0.0, 1.0).with_caption(&format!("Mean over {workloads}."));
    let of = |frames: &str| {
        let points = ways
            .iter()
            .filter_map(|way| Some(rate(&level.into(), frames, way)?.point(way.as_str())));
        Series::new(id, WAY, "share_without_wait", frames, points.collect::<Vec<_>>())
    };
    let mut figures =
        vec![Drawn { figure, series: allocators.iter().map(|frames| of(frames)).collect() }];
    for frames in &allocators {
        let id = format!("On {frames}");
        let title = format!("The TLBs on memory of {frames}");
        let x_label = "free block size (pages)";
        let figure = Figure::new(&id, &title, FigureKind::LinesLog2, x_label, y_label);
        let figure = figure.with_y_range(0.0, 1.0).with_caption(&format!("Mean over {workloads}."));
        let of = |way: &String| {
            let points = grid
                .values(LEVEL)
                .into_iter()
                .filter_map(|level| Some(rate(level, frames, way)?.point(level.clone())));
            Series::new(&id, LEVEL, "share_without_wait", way, points.collect::<Vec<_>>())
        };
        figures.push(Drawn { figure, series: ways.iter().map(of).collect() });
    }
    figures
}

fn reads(grid: &Grid, level: &Value, entries: &Value, both: &str) -> Option<Evidence> {
    let keys = [(HOST_TLB, entries.clone()), (WAY, both.into())];
    over_workloads(grid, "reads", Some(level), &keys)
}

fn nested_figures(plan: &ReachPlan, grid: &Grid) -> Vec<Drawn> {
    let workloads = names(grid, WORKLOAD).join(", ");
    let figure_of = |entries: u32| {
        let id = match entries {
            0 => "Under a hypervisor".to_owned(),
            _ => format!("Under a hypervisor, {entries} entries for the host"),
        };
        let title = match entries {
            0 => "Reads of tables, without a TLB for the host's part".to_owned(),
            _ => format!("Reads of tables, with a TLB of {entries} entries for the host's part"),
        };
        let x_label = "free block size in guest and host (pages)";
        let y_label = "reads of tables for each access";
        let figure = Figure::new(&id, &title, FigureKind::LinesLog2, x_label, y_label);
        let figure = figure.with_caption(&format!("Mean over {workloads}."));
        let of = |both: &Both| {
            let points = grid.values(LEVEL).into_iter().filter_map(|level| {
                Some(reads(grid, level, &entries.into(), both.name)?.point(level.clone()))
            });
            Series::new(&id, LEVEL, "reads_per_access", both.name, points.collect::<Vec<_>>())
        };
        Drawn { figure, series: nested::ALL.iter().map(of).collect() }
    };
    plan.nested.host_tlb_entries.iter().map(|entries| figure_of(entries.small())).collect()
}

fn finding(plan: &ReachPlan, run: &Run<'_>, found: &ReachFound) -> String {
    let level = middle(plan.block_frames.of(run.quick));
    let said = |way: Way| {
        let of = |frames: &str| {
            let keys = [(FRAMES, frames.into()), (WAY, way.title().into())];
            let rate = over_workloads(&found.ways, "hit_rate", Some(&level.into()), &keys)?;
            Some(100.0 * rate.estimate().value)
        };
        let (bbs, pbs) = (of("BBS")?, of("PBS")?);
        Some(format!("{} {bbs:.1}% on BBS and {pbs:.1}% on PBS", way.title()))
    };
    let all: Vec<String> =
        Way::all(plan.machine.format.format()).into_iter().filter_map(said).collect();
    let size = middle(plan.nested.block_frames.of(run.quick));
    let entries = plan.nested.host_tlb_entries.iter().map(|entries| entries.small()).min();
    let entries: Value = entries.unwrap_or(0).into();
    let under = |name: &str| {
        let found = reads(&found.nested, &size.into(), &entries, name)?;
        Some(format!("{:.2} with {name}", found.estimate().value))
    };
    let under: Vec<String> = nested::ALL.iter().filter_map(|both| under(both.name)).collect();
    format!(
        "On free blocks of {level} pages no walk is waited for by: {}. Under a hypervisor an access costs so many \
         reads of tables on free blocks of {size} pages: {}.",
        all.join("; "),
        under.join(", ")
    )
}

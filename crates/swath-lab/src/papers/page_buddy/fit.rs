//! The cost of the head-of-list rule against best fit: blocks per request, and
//! requests that would fail if they needed one block.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Pfn};
use swath_frame::FrameAllocator;

use crate::papers::page_buddy::design::compared::added;
use crate::papers::page_buddy::design::{AddedFrames, DesignFrames};
use crate::papers::page_buddy::setting::{Aged, check_orders, pbs};
use crate::source::memory::{Ageing, Random, Source, age, random, release_one};
use crate::source::real::Machine;
use crate::study::bounds::{Bounded, Forms, Repeats, Share};
use crate::study::claim::Statement;
use crate::study::grid::{Grid, Metrics, Value, View, metrics};
use crate::study::kind::{Drawn, Shown, Study, Uses};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};

/// Head of list against best fit.
pub struct Fit;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FitPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
    /// PBS: the distance between adjacent orders.
    pub granularity: Bounded<1, 64>,
    /// PBS: the highest order.
    pub top_order: Bounded<0, 63>,
    /// Requests measured at each level of use.
    pub requests: Bounded<1, { 1 << 32 }>,
    /// The way in which memory is aged before.
    pub aged: Aged,
}

crate::plan!(FitPlan, check);

fn check(plan: &FitPlan) -> Result<(), Refused> {
    check_orders("top_order", pbs(plan.granularity.tiny(), plan.top_order.tiny()))?;
    plan.aged.check("aged")
}

const LEVEL: &str = "memory";
const RULE: &str = "rule";

/// The rules by which a node is chosen.
const HEAD: &str = "head of list";
const BEST: &str = "best fit";

/// PBS by both rules, and the allocators that other crates added.
fn allocators(plan: &FitPlan) -> Result<Vec<(&'static str, DesignFrames)>, StudyError> {
    let orders = pbs(plan.granularity.tiny(), plan.top_order.tiny())?;
    let added = added().into_iter().filter_map(|added| match added.frames {
        AddedFrames::Own(new) => Some((added.name, DesignFrames::Own(new))),
        AddedFrames::Bbs | AddedFrames::Pbs => None,
    });
    let rules = [(HEAD, DesignFrames::Buddy(orders)), (BEST, DesignFrames::BestFit(orders))];
    Ok(rules.into_iter().chain(added).collect())
}

/// The memory of one point.
#[derive(Clone, Copy)]
enum Memory<'a> {
    /// Aged to this share in use.
    Aged(Share),
    /// A real machine's free frames, of which requests take nine tenths.
    Machine(&'a Machine),
}

impl Memory<'_> {
    fn x(&self) -> Value {
        match self {
            Memory::Aged(share) => share.get().into(),
            Memory::Machine(machine) => machine.name.clone().into(),
        }
    }
}

impl Study for Fit {
    const KIND: &'static str = "fit";
    const USES: Uses = Uses { memory: true, accesses: false, machine: false };
    type Plan = FitPlan;
    type Found = Grid;

    fn seeds(plan: &FitPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &FitPlan, run: &Run<'_>) -> Needs {
        let requests = plan.requests.get().min(4 * plan.aged.frames.get());
        Needs::small()
            .each("aged.frames", plan.aged.needs_bytes(run.quick))
            .each("requests", bytes(&[64, requests]))
    }

    fn measure(plan: &FitPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let allocators = allocators(plan)?;
        let memories: Vec<Memory<'_>> = match run.real.memory.as_deref() {
            Some(machine) => vec![Memory::Machine(machine)],
            None => plan.aged.used_shares.iter().map(|&share| Memory::Aged(share)).collect(),
        };
        let mut points = Vec::new();
        for memory in memories {
            points.extend(allocators.iter().map(|one| (memory, one)));
        }
        let at = |(memory, (name, _)): &(Memory<'_>, &(&'static str, DesignFrames))| {
            vec![memory.x(), (*name).into()]
        };
        let seeds = Self::seeds(plan, run.quick);
        run.grid(&plan.about, &[LEVEL, RULE], seeds, &points, at, |(memory, one), repeat| {
            let random = random(plan.about.seed, repeat);
            let measured = measure(plan, one.1, *memory, run.quick, random);
            measured.map_err(|error| StudyError::Machine {
                study: plan.about.study.clone(),
                what: error.to_string(),
            })
        })
    }

    /// The paper states the rule and not what it costs.
    fn claims(_: &FitPlan, _: &Run<'_>) -> Vec<Statement<Grid>> {
        Vec::new()
    }

    fn show(plan: &FitPlan, run: &Run<'_>, grid: &Grid) -> Shown {
        let notes = vec![format!(
            "Each rule ages its own memory with the same random requests; then {} requests are \
             measured while random releases hold the level. A split request is one that would \
             fail if it had to be one block. Each point is the mean over {} such lives.",
            plan.requests,
            Self::seeds(plan, run.quick)
        )];
        Shown { finding: finding(grid), figures: figures(grid), notes, host: None }
    }
}

type MeasureError = crate::source::memory::PrepareError;

/// The requests of one life of a memory.
fn measure(
    plan: &FitPlan,
    frames: DesignFrames,
    memory: Memory<'_>,
    quick: bool,
    mut random: Random,
) -> Result<Metrics, MeasureError> {
    let (mut allocator, mut held, ageing, level) =
        prepare(plan, frames, memory, quick, &mut random)?;
    let allocator = allocator.as_mut();
    let (mut blocks, mut split) = (0u64, 0u64);
    for _ in 0..plan.requests.get() {
        let length = ageing.length(&mut random);
        while allocator.free_frames() < length.max(level) && !held.is_empty() {
            release_one(allocator, &mut held, &mut random)?;
        }
        let mut request = Vec::new();
        allocator.allocate(length, &mut |block| request.push(block))?;
        blocks += request.len() as u64;
        split += u64::from(request.len() > 1);
        held.push(request);
    }
    let requests = plan.requests.get() as f64;
    Ok(metrics([("blocks", blocks as f64 / requests), ("split_share", split as f64 / requests)]))
}

/// An allocator over the memory, what it has allocated, and the number of free
/// frames that releases uphold.
type Prepared = (Box<dyn FrameAllocator>, Vec<Vec<Extent>>, Ageing, u64);

fn prepare(
    plan: &FitPlan,
    frames: DesignFrames,
    memory: Memory<'_>,
    quick: bool,
    random: &mut Random,
) -> Result<Prepared, MeasureError> {
    match memory {
        Memory::Aged(share) => {
            let ageing = plan.aged.ageing(share, quick);
            let all = [Extent::new(Pfn::new(0), plan.aged.frames.get())];
            let mut allocator = frames.over(&Source::Free(&all), random)?;
            let held = age(allocator.as_mut(), &ageing, random)?;
            let level = allocator.free_frames();
            Ok((allocator, held, ageing, level))
        }
        Memory::Machine(machine) => {
            // Only the lengths of its requests are used.
            let ageing = plan.aged.ageing(plan.aged.peak_share, quick);
            let allocator = frames.over(&Source::Free(&machine.free), random)?;
            Ok((allocator, Vec::new(), ageing, machine.free_frames() / 10))
        }
    }
}

fn figures(grid: &Grid) -> Vec<Drawn> {
    let real = grid.values(LEVEL).iter().any(|level| level.word().is_some());
    let (kind, x, x_label) = match real {
        true => (FigureKind::Bars, "memory", "memory"),
        false => (FigureKind::Lines, "used_share", "memory in use (share of frames)"),
    };
    let drawn = |(id, title, y, metric, y_label): (&str, &str, &str, &str, &str)| {
        let figure = Figure::new(id, title, kind, x_label, y_label);
        let of = |rule: &&Value| {
            let points =
                grid.points(LEVEL, |all| all.is(RULE, (*rule).clone()), |cell| cell.get(metric));
            Series::new(id, x, y, &rule.to_string(), points)
        };
        Drawn { figure, series: grid.values(RULE).iter().map(of).collect() }
    };
    [
        ("Blocks per request", "mean", "blocks_per_request", "blocks", "blocks per request"),
        (
            "Split requests",
            "that more than one block served",
            "split_share",
            "split_share",
            "share of requests",
        ),
    ]
    .map(drawn)
    .to_vec()
}

/// The level of use at which the head-of-list rule splits most requests.
fn finding(grid: &Grid) -> String {
    let of = |level: &Value, rule: &str, metric: &str| {
        let one =
            |view: &View<'_>| view.select().is(LEVEL, level.clone()).is(RULE, rule).one(metric);
        grid.evidence(one).map(|found| found.estimate().value)
    };
    let split = |level: &Value| of(level, HEAD, "split_share").unwrap_or(f64::NAN);
    let worst = grid.values(LEVEL).into_iter().max_by(|a, b| split(a).total_cmp(&split(b)));
    let sentence = |level: &Value| {
        let place = match level {
            Value::Number(share) => format!("At {:.0}% in use", 100.0 * share),
            Value::Word(machine) => format!("On {machine}"),
        };
        Some(format!(
            "{place}, the head-of-list rule splits {:.1}% of requests and takes {:.2} blocks for \
             each; best fit splits {:.1}% and takes {:.2}.",
            100.0 * of(level, HEAD, "split_share").ok()?,
            of(level, HEAD, "blocks").ok()?,
            100.0 * of(level, BEST, "split_share").ok()?,
            of(level, BEST, "blocks").ok()?,
        ))
    };
    worst.and_then(sentence).unwrap_or_default()
}

//! What the head-of-list rule costs against best fit: blocks per request, and
//! requests that would fail if they needed one block.

use swath_arch::{Extent, Pfn};
use swath_frame::{BestFit, BuddyConfig, FrameAllocator, HeadOfList, Rule};

use crate::source::memory::{Allocator, Random, Source, age, new_allocator, random, release_one};
use crate::source::real::Machine;
use crate::study::old::plan::FitPlan;
use crate::study::results::{Figure, FigureKind, Point, Series, StudyResult};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// What a level of use gave.
struct Found {
    blocks_per_request: f64,
    split_share: f64,
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &FitPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let config = crate::study::old::plan::pbs(plan.granularity, plan.top_order)?;
    let machine = run.real.memory.as_deref();
    let memories: Vec<Memory<'_>> = match machine {
        Some(machine) => vec![Memory::Machine(machine)],
        None => plan.aged.used_shares.iter().map(|&share| Memory::Aged(share)).collect(),
    };
    const RULES: [&str; 2] = ["head of list", "best fit"];
    let points: Vec<(Memory<'_>, usize)> = memories
        .iter()
        .flat_map(|&memory| (0..RULES.len()).map(move |rule| (memory, rule)))
        .collect();
    let found = run.points(about, &points, |&(memory, rule)| {
        let random = random(about.seed, 0);
        match rule {
            0 => measure::<HeadOfList>(plan, config, memory, run.quick, random),
            _ => measure::<BestFit>(plan, config, memory, run.quick, random),
        }
    })?;
    let column = |rule: usize, of: &dyn Fn(&Found) -> f64| -> Vec<Point> {
        let found = found.iter().skip(rule).step_by(RULES.len());
        memories.iter().zip(found).map(|(memory, found)| memory.point(of(found))).collect()
    };
    let (kind, x, x_label) = match machine {
        Some(_) => (FigureKind::Bars, "memory", "memory"),
        None => (FigureKind::Lines, "used_share", "memory in use (share of frames)"),
    };
    let blocks = "Blocks per request";
    let split = "Split requests";
    let figures = vec![
        Figure::new(blocks, "mean", kind, x_label, "blocks per request"),
        Figure::new(split, "that more than one block served", kind, x_label, "share of requests"),
    ];
    let mut series = Vec::new();
    for (rule, name) in RULES.into_iter().enumerate() {
        let points = column(rule, &|found| found.blocks_per_request);
        series.push(Series::new(blocks, x, "blocks_per_request", name, points));
        let points = column(rule, &|found| found.split_share);
        series.push(Series::new(split, x, "split_share", name, points));
    }
    let worst = found
        .chunks(RULES.len())
        .zip(&memories)
        .max_by(|(a, _), (b, _)| a[0].split_share.total_cmp(&b[0].split_share));
    let finding = worst.map_or_else(
        || about.purpose.clone(),
        |(found, memory)| {
            let place = match memory {
                Memory::Aged(share) => format!("At {:.0}% in use", 100.0 * share),
                Memory::Machine(machine) => format!("On {}", machine.name),
            };
            format!(
                "{} {place}, the head-of-list rule splits {:.1}% of requests and takes \
                 {:.2} blocks for each; best fit splits {:.1}% and takes {:.2}.",
                about.purpose,
                100.0 * found[0].split_share,
                found[0].blocks_per_request,
                100.0 * found[1].split_share,
                found[1].blocks_per_request,
            )
        },
    );
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            notes: vec![format!(
                "Each rule ages its own memory with the same random requests; then {} requests \
                 are measured while random releases hold the level. A split request is one that \
                 would fail if it had to be one block.",
                plan.requests
            )],
            ..run::result(about, plan, run, finding)
        },
        host: None,
    })
}

/// The memory of one point.
#[derive(Clone, Copy)]
enum Memory<'a> {
    /// Aged to this share in use.
    Aged(f64),
    /// A real machine's free frames, of which requests take nine tenths.
    Machine(&'a Machine),
}

impl Memory<'_> {
    fn point(&self, y: f64) -> Point {
        match self {
            Memory::Aged(share) => Point::at(*share, y),
            Memory::Machine(machine) => Point::named(machine.name.clone(), y),
        }
    }
}

fn measure<R: Rule>(
    plan: &FitPlan,
    config: BuddyConfig,
    memory: Memory<'_>,
    quick: bool,
    mut random: Random,
) -> Result<Found, StudyError> {
    let error = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
    let share = if let Memory::Aged(share) = memory { share } else { 0.0 };
    let ageing = plan.aged.ageing(share, quick);
    let (mut allocator, mut held, level) = match memory {
        Memory::Aged(_) => {
            let frames = Extent::new(Pfn::new(0), plan.aged.frames);
            let mut allocator: Allocator<R> =
                new_allocator(frames, config, true).map_err(|e| error(e.to_string()))?;
            let held = age(&mut allocator, &ageing, &mut random);
            let level = allocator.free_frames();
            (allocator, held.map_err(|e| error(e.to_string()))?, level)
        }
        Memory::Machine(machine) => {
            let prepared = Source::Free(&machine.free).prepare(config, &mut random);
            let allocator: Allocator<R> = prepared.map_err(|e| error(e.to_string()))?;
            (allocator, Vec::new(), machine.free_frames() / 10)
        }
    };
    let (mut blocks, mut split) = (0u64, 0u64);
    for _ in 0..plan.requests {
        let length = ageing.length(&mut random);
        while allocator.free_frames() < length.max(level) && !held.is_empty() {
            release_one(&mut allocator, &mut held, &mut random)
                .map_err(|e| error(e.to_string()))?;
        }
        let mut request = Vec::new();
        allocator
            .allocate(length, &mut |block| request.push(block))
            .map_err(|e| error(e.to_string()))?;
        blocks += request.len() as u64;
        split += u64::from(request.len() > 1);
        held.push(request);
    }
    let requests = plan.requests as f64;
    Ok(Found { blocks_per_request: blocks as f64 / requests, split_share: split as f64 / requests })
}

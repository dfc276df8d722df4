//! What the head-of-list rule costs against best fit: blocks per request, and
//! requests that would fail if they needed one block.

use swath_frame::{BestFit, Config, FrameAllocator, HeadOfList, Rule};

use crate::memory::{Random, age, new_allocator, random, release_one};
use crate::plan::FitPlan;
use crate::results::{Figure, FigureKind, Point, Series, StudyResult};
use crate::study::{self, Outcome, Run, StudyError};

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
    let config = study::pbs(plan.granularity, plan.top_order)?;
    let shares = &plan.aged.used_shares;
    const RULES: [&str; 2] = ["head of list", "best fit"];
    let points: Vec<(f64, usize)> =
        shares.iter().flat_map(|&share| (0..RULES.len()).map(move |rule| (share, rule))).collect();
    let found = run.points(about, &points, |&(share, rule)| {
        let random = random(about.seed, 0);
        match rule {
            0 => measure::<HeadOfList>(plan, config, share, run.quick, random),
            _ => measure::<BestFit>(plan, config, share, run.quick, random),
        }
    })?;
    let column = |rule: usize, of: &dyn Fn(&Found) -> f64| -> Vec<Point> {
        let found = found.iter().skip(rule).step_by(RULES.len());
        shares.iter().zip(found).map(|(&share, found)| Point::At(share, of(found))).collect()
    };
    let x_label = "memory in use (share of frames)";
    let blocks = "Blocks per request";
    let split = "Split requests";
    let figures = vec![
        Figure::new(blocks, blocks, FigureKind::Lines, x_label, "blocks per request"),
        Figure::new(
            split,
            "Requests that more than one block served",
            FigureKind::Lines,
            x_label,
            "share of requests",
        ),
    ];
    let mut series = Vec::new();
    for (rule, name) in RULES.into_iter().enumerate() {
        let points = column(rule, &|found| found.blocks_per_request);
        series.push(Series::new(blocks, "used_share", "blocks_per_request", name, points));
        let points = column(rule, &|found| found.split_share);
        series.push(Series::new(split, "used_share", "split_share", name, points));
    }
    let worst = found
        .chunks(RULES.len())
        .zip(shares)
        .max_by(|(a, _), (b, _)| a[0].split_share.total_cmp(&b[0].split_share));
    let finding = worst.map_or_else(
        || about.purpose.clone(),
        |(found, share)| {
            format!(
                "{} At {:.0}% in use, the head-of-list rule splits {:.1}% of requests and takes \
                 {:.2} blocks for each; best fit splits {:.1}% and takes {:.2}.",
                about.purpose,
                100.0 * share,
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
            ..study::result(about, plan, run, finding)
        },
        host: None,
    })
}

fn measure<R: Rule>(
    plan: &FitPlan,
    config: Config,
    used_share: f64,
    quick: bool,
    mut random: Random,
) -> Result<Found, StudyError> {
    let error = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
    let frames = swath_arch::Extent::new(swath_arch::Pfn::new(0), plan.aged.frames);
    let mut allocator =
        new_allocator::<R>(frames, config, true).map_err(|e| error(e.to_string()))?;
    let ageing = plan.aged.ageing(used_share, quick);
    let mut held =
        age(&mut allocator, &ageing, &mut random).map_err(|e| error(e.to_string()))?;
    let level = allocator.free_frames();
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

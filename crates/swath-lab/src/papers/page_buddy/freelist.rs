//! How many nodes the free lists have (section V-E, Fig. 21), on synthetic,
//! aged and real memory.

use swath_frame::{BuddyConfig, FrameAllocator};

use crate::source::memory::{Allocator, Source, random};
use crate::study::old::plan::ListsPlan;
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// BBS and the PBS variants of a plan, by name.
pub(crate) fn designs(plan: &ListsPlan) -> Result<Vec<(String, BuddyConfig)>, StudyError> {
    let mut designs = vec![("BBS".to_owned(), crate::study::old::plan::bbs(plan.bbs_max_order)?)];
    for variant in &plan.pbs {
        let config = crate::study::old::plan::pbs(variant.granularity, variant.top_order)?;
        designs.push((variant.design.clone(), config));
    }
    Ok(designs)
}

/// One state of memory with its place on the x axis, in one figure.
struct Level<'a> {
    figure: usize,
    x: Point,
    source: Source<'a>,
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &ListsPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let repeats = if run.quick { plan.repeats_quick } else { plan.repeats };
    let designs = designs(plan)?;
    let y = "free-list nodes (mean)";
    let mut figures = Vec::new();
    let mut levels = Vec::new();
    if let Some(machine) = &run.real.memory {
        figures.push(Figure::new("Real memory", &machine.name, FigureKind::Bars, "memory", y));
        let x = (machine.name.as_str(), 0.0).into();
        levels.push(Level { figure: 0, x, source: Source::Free(&machine.free) });
    } else {
        figures.push(Figure::new(
            "Fig. 21",
            &format!("{} free frames", plan.free_frames),
            FigureKind::LinesLog2,
            "free block size (pages)",
            y,
        ));
        levels.extend(plan.block_frames.iter().map(|&size| Level {
            figure: 0,
            x: Point::at(size as f64, 0.0),
            source: Source::blocks(size, plan.free_frames, plan.free_share),
        }));
        if let Some(aged) = &plan.aged {
            figures.push(Figure::new(
                "Aged memory",
                &format!("{} frames aged by random use", aged.frames),
                FigureKind::Lines,
                "memory in use (share of frames)",
                y,
            ));
            levels.extend(aged.used_shares.iter().map(|&share| Level {
                figure: 1,
                x: Point::at(share, 0.0),
                source: Source::Aged { frames: aged.frames, ageing: aged.ageing(share, run.quick) },
            }));
        }
    }
    let points: Vec<(usize, usize)> =
        (0..levels.len()).flat_map(|l| (0..designs.len()).map(move |d| (l, d))).collect();
    let nodes = run.points(about, &points, |&(l, d)| {
        let repeats = if matches!(levels[l].source, Source::Blocks { .. }) { repeats } else { 1 };
        let mut nodes = 0u64;
        for repeat in 0..repeats {
            let mut random = random(about.seed, repeat);
            let allocator: Allocator =
                levels[l].source.prepare(designs[d].1, &mut random).map_err(|error| {
                    StudyError::Machine { study: about.study.clone(), what: error.to_string() }
                })?;
            allocator.for_each_free(&mut |_| nodes += 1);
        }
        Ok(nodes as f64 / repeats as f64)
    })?;
    let value = |l: usize, d: usize| nodes[l * designs.len() + d];

    let mut series = Vec::new();
    for (f, figure) in figures.iter().enumerate() {
        let x = ["free_block_frames", "used_share"][f];
        for (d, (name, _)) in designs.iter().enumerate() {
            let points = levels
                .iter()
                .enumerate()
                .filter(|(_, level)| level.figure == f)
                .map(|(l, level)| level.x.with_y(value(l, d)));
            series.push(Series::new(&figure.id, x, "freelist_nodes", name, points));
        }
    }
    let blocks: Vec<usize> =
        (0..levels.len()).filter(|&l| matches!(levels[l].source, Source::Blocks { .. })).collect();
    let reduction = |l: usize| 1.0 - value(l, 1) / value(l, 0);
    let mean = blocks.iter().map(|&l| reduction(l)).sum::<f64>() / blocks.len().max(1) as f64;
    let mut claims = Vec::new();
    if plan.claims && !blocks.is_empty() {
        let place = "Section V-E, Fig. 21";
        if let Some(&one) = blocks.iter().find(|&&l| plan.block_frames.get(l) == Some(&1)) {
            let says = "Block size 1: PBS and BBS have the identical number of nodes (difference)";
            claims.push(Claim::exactly(place, says, 0.0, value(one, 1) - value(one, 0)));
        }
        let says = "PBS reduces the free-list nodes by 46% (mean over the block sizes)";
        claims.push(Claim::within(place, says, 0.46, mean, 0.05).with_unit(Unit::Share));
    }
    let finding = if blocks.is_empty() {
        about.purpose.clone()
    } else {
        format!(
            "{} {} has {:.0}% fewer nodes than BBS, averaged over the block sizes.",
            about.purpose,
            designs[1].0,
            100.0 * mean
        )
    };
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes: vec![
                format!("Synthetic points are means over {repeats} random placements."),
                "A PBS node is a run of free pages of one page size, cut where it would reach \
                 the next page size: 1 to 15 frames, 1 to 15 times 16 frames, or any number of \
                 256 frames on ARMv7."
                    .to_owned(),
            ],
            ..run::result(about, plan, run, finding)
        },
        host: None,
    })
}

//! The measurement of readings: what several of them share is simulated once.

use std::collections::HashMap;

use crate::papers::page_buddy::design::{Design, Scheme};
use crate::papers::page_buddy::savings::{
    self, AS_MEASURED, CATEGORY, DESIGN, LEVEL, READING, Scope, WORKLOAD,
};
use crate::papers::page_buddy::search::plan::SearchPlan;
use crate::papers::page_buddy::timed::{Point, SystemMachine, Timed, TimedSystem, hardware};
use crate::papers::page_buddy::workload::{Category, Shapes};
use crate::study::claim::{Claim, Conditions};
use crate::study::grid::{Grid, metrics};
use crate::study::run::{Run, StudyError};

/// A run of the timed system.
struct Job<'a> {
    machine: SystemMachine,
    timed: &'a Timed,
    block_frames: u64,
    design: &'a Design,
}

/// The part of a reading that a design on a workload can notice: what it cannot is the base's, so
/// that readings that differ in that alone share a run.
fn noticed(machine: &SystemMachine, timed: &Timed, design: &Design) -> SystemMachine {
    let mut machine = *machine;
    if design.scheme != Scheme::At {
        machine.anchor_log2 = None;
        machine.early_regular = false;
    }
    if !timed.has_frames() {
        machine.frames_per_second = None;
    }
    let [reads, writes] = timed.kinds();
    machine.posted_writes &= writes;
    machine.outstanding_each &= reads && writes;
    machine
}

/// Measures the claims of readings on the cells of `scope` with so many seeds: for each the ten claims,
/// and the number of different runs.
///
/// # Errors
/// [`StudyError`].
pub(crate) fn measure(
    plan: &SearchPlan,
    run: &Run<'_>,
    readings: &[SystemMachine],
    scope: &Scope,
    seeds: u64,
) -> Result<(Vec<Vec<Claim>>, u64), StudyError> {
    let memory = plan.dram.memory_of(&plan.about.study)?;
    let hardware = hardware(&plan.machine, &memory);
    // The readings are of the paper's system, and so are the designs.
    let designs = Design::paper(plan.machine.bbs()?, plan.machine.pbs()?);
    let system = TimedSystem {
        study: &plan.about.study,
        seed: plan.about.seed,
        hardware: &hardware,
        hierarchy: None,
        free_per_requested: plan.free_per_requested,
        free_share: plan.free_share.get(),
        real: None,
        memory: &memory,
        record_commands: false,
    };
    let built = scope.workloads.iter().map(|name| Timed::new(&name.build(&Shapes::default())));
    let timed: Vec<Timed> = built.collect();
    let mut cells = Vec::new();
    for one in &timed {
        for block_frames in sizes(scope, one.category) {
            cells.extend(designs.iter().map(|design| (one, block_frames, design)));
        }
    }
    // The runs, each once, and which one is each reading's in each cell.
    let (mut jobs, mut places) = (Vec::new(), Vec::with_capacity(readings.len() * cells.len()));
    let mut known: HashMap<(usize, String), usize> = HashMap::new();
    for reading in readings {
        for (cell, &(timed, block_frames, design)) in cells.iter().enumerate() {
            let machine = noticed(reading, timed, design);
            let place = *known.entry((cell, format!("{machine:?}"))).or_insert_with(|| {
                jobs.push(Job { machine, timed, block_frames, design });
                jobs.len() - 1
            });
            places.push(place);
        }
    }
    let runs: Vec<(&Job<'_>, u64)> =
        jobs.iter().flat_map(|job| (0..seeds).map(move |seed| (job, seed))).collect();
    let cycles = run.points(&plan.about, &runs, |(job, seed)| {
        let Job { machine, timed, block_frames, design } = *job;
        let contiguity = plan.machine.contiguity_bits;
        system.cycles(
            Point { machine, timed, block_frames: *block_frames, design, contiguity },
            *seed,
        )
    })?;
    let seeds = usize::try_from(seeds).unwrap_or(usize::MAX);
    let judged = places.chunks(cells.len()).map(|places| {
        let mut grid = Grid::new(&[READING, CATEGORY, WORKLOAD, LEVEL, DESIGN], seeds);
        for (&(timed, block_frames, design), &place) in cells.iter().zip(places) {
            let at = vec![
                AS_MEASURED.into(),
                timed.category.title().into(),
                timed.name.into(),
                block_frames.into(),
                design.name.into(),
            ];
            let of_seeds = &cycles[place * seeds..(place + 1) * seeds];
            let of_seeds = of_seeds.iter().map(|&cycles| metrics([("cycles", cycles as f64)]));
            grid.add(at, &of_seeds.collect::<Vec<_>>());
        }
        let statements = savings::claims(&Conditions::new(), scope);
        statements.into_iter().map(|statement| statement.judge(&grid)).collect()
    });
    Ok((judged.collect(), jobs.len() as u64))
}

/// The sizes of free blocks at which a category is measured.
fn sizes(scope: &Scope, category: Category) -> Vec<u64> {
    match category {
        Category::I => scope.linear.clone(),
        Category::II | Category::Added => [&[1], &*scope.small, &*scope.large].concat(),
    }
}

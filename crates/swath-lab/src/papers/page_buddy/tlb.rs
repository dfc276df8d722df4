//! TLB hit rates of the designs (section V-B, Fig. 10 to 14), on synthetic,
//! aged and real memory, under Table 4's workloads and real accesses.

use std::sync::Arc;

use crate::papers::page_buddy::translation::{Design, Hardware, Measured, Program, measure};
use crate::papers::page_buddy::workload::Category;
use crate::source::memory::{Ageing, Source, random};
use crate::source::real::{Machine, Trace};
use crate::study::plan::{About, AccessPlan, MemoryPlan, TlbPlan};
use crate::study::results::{Claim, Figure, FigureKind, Point, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// One state of memory: a column of the x axis.
struct Level {
    x: Point,
    state: State,
}

enum State {
    Blocks { block_frames: u64, free_per_requested: f64, free_share: f64 },
    Aged { frames: u64, ageing: Ageing },
    Machine(Arc<Machine>),
}

/// A program with its name in the figures.
struct Named {
    name: String,
    category: Category,
    program: Program,
}

/// One measured point: all repeats added up.
struct Measurement<'a> {
    named: &'a Named,
    level: &'a Level,
    design: Design,
}

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &TlbPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let hardware = Hardware::of(&plan.machine);
    let mut designs = Design::of(&plan.machine)?.to_vec();
    designs.retain(|design| plan.best_fit || !design.best_fit);
    let programs = programs(plan, run)?;
    let levels = levels(plan, run)?;
    let repeats = if run.quick { plan.repeats_quick } else { plan.repeats };
    let mut points = Vec::new();
    for named in &programs {
        for level in &levels {
            points.extend(designs.iter().map(|&design| Measurement { named, level, design }));
        }
    }
    let measured = run.points(about, &points, |point| {
        (0..repeats).try_fold(Measured::default(), |sum, repeat| {
            Ok(sum + one(&hardware, point, about, repeat)?)
        })
    })?;
    let rate = |program: usize, level: usize, design: usize| {
        measured[(program * levels.len() + level) * designs.len() + design].hit_rate()
    };

    let mut figures = Vec::new();
    let mut series = Vec::new();
    let y_label = "TLB hit rate (share of accesses)";
    let in_bars = |p: usize| levels.len() == 1 || programs[p].category == Category::I;
    let bars: Vec<usize> = (0..programs.len()).filter(|&p| in_bars(p)).collect();
    if !bars.is_empty() {
        let id = if plan.claims { "Fig. 10" } else { "Programs" };
        let title = if levels.len() == 1 {
            "TLB hit rate of each program"
        } else {
            "Workloads of category I, mean over all levels"
        };
        figures.push(
            Figure::new(id, title, FigureKind::Bars, "program", y_label).with_y_range(0.0, 1.0),
        );
        for (d, design) in designs.iter().enumerate() {
            let mean = |p: usize| {
                (0..levels.len()).map(|l| rate(p, l, d)).sum::<f64>() / levels.len() as f64
            };
            let points = bars.iter().map(|&p| (programs[p].name.clone(), mean(p)));
            series.push(Series::new(id, "program", "tlb_hit_rate", design.name, points));
        }
    }
    let (kind, x, x_label) = match plan.memory {
        MemoryPlan::Blocks { .. } => {
            (FigureKind::LinesLog2, "free_block_frames", "free block size (pages)")
        }
        _ => (FigureKind::Lines, "used_share", "memory in use (share of frames)"),
    };
    for (n, (p, named)) in programs.iter().enumerate().filter(|(p, _)| !in_bars(*p)).enumerate() {
        let (id, title) = if plan.claims {
            (format!("Fig. {}", 11 + n), named.name.as_str())
        } else {
            (named.name.clone(), "TLB hit rate")
        };
        figures.push(Figure::new(&id, title, kind, x_label, y_label).with_y_range(0.0, 1.0));
        for (d, design) in designs.iter().enumerate() {
            let points = levels.iter().enumerate().map(|(l, level)| level.x.with_y(rate(p, l, d)));
            series.push(Series::new(&id, x, "tlb_hit_rate", design.name, points));
        }
    }
    let all = |level: usize, design: usize| {
        (0..programs.len()).fold(Measured::default(), |sum, p| {
            sum + measured[(p * levels.len() + level) * designs.len() + design]
        })
    };
    let kind = if levels.len() == 1 { FigureKind::Bars } else { kind };
    let per_1000 = |count: u64, sum: &Measured| 1000.0 * count as f64 / sum.accesses.max(1) as f64;
    type Of<'a> = &'a dyn Fn(&Measured) -> f64;
    let sums: [(&str, &str, &str, Of<'_>); 3] = [
        ("Misses", "TLB misses per 1000 accesses", "misses_per_1000", &|m| {
            per_1000(m.accesses - m.hits, m)
        }),
        ("Page-table reads", "page-table reads per 1000 accesses", "reads_per_1000", &|m| {
            per_1000(m.reads, m)
        }),
        ("Blocks", "blocks for all requests", "blocks", &|m| m.blocks as f64 / repeats as f64),
    ];
    for (id, y_label, y, of) in sums {
        let x_label = if levels.len() == 1 { "memory" } else { x_label };
        figures.push(Figure::new(id, "all programs together", kind, x_label, y_label));
        for (d, design) in designs.iter().enumerate() {
            let points = levels.iter().enumerate().map(|(l, x)| x.x.with_y(of(&all(l, d))));
            series.push(Series::new(id, x, y, design.name, points));
        }
    }

    let judged = plan.claims && run.real.memory.is_none() && run.real.accesses.is_none();
    let claims = if judged { claims(plan, &programs, &rate) } else { Vec::new() };
    let means = designs.iter().enumerate().map(|(d, design)| {
        let points = (0..programs.len()).flat_map(|p| (0..levels.len()).map(move |l| (p, l)));
        let sum: f64 = points.map(|(p, l)| rate(p, l, d)).sum();
        let mean = sum / (programs.len() * levels.len()) as f64;
        format!("{} {:.2}%", design.name, 100.0 * mean)
    });
    let means = means.collect::<Vec<_>>().join(", ");
    let finding = format!("{} Mean hit rates over all points: {means}.", about.purpose);
    let mut notes = vec![format!(
        "Each point is {repeats} independent states of memory; accesses and hits are added up \
         over them and over the masters of a workload, each of which has a TLB of its own."
    )];
    if let Some(machine) = &run.real.memory {
        notes.push(format!("Free memory of a real machine: {}.", machine.name));
    }
    if let Some(file) = &run.real.accesses {
        notes.push(format!("Accesses of a real program: {}.", file.display()));
    }
    Ok(Outcome {
        result: StudyResult {
            figures,
            series,
            claims,
            notes,
            ..run::result(about, plan, run, finding)
        },
        host: None,
    })
}

fn label(x: &Point) -> String {
    match x {
        Point::At(x, _) => x.to_string(),
        Point::In(name, _) => name.clone(),
    }
}

/// What accesses memory: the plan's workloads, or a real program.
fn programs(plan: &TlbPlan, run: &Run<'_>) -> Result<Vec<Named>, StudyError> {
    let (workloads, shapes) = match (&run.real.accesses, &plan.accesses) {
        (Some(file), _) => return Ok(vec![traced(Some(file), plan)?]),
        (None, AccessPlan::Trace { file }) => {
            let file = (!file.is_empty()).then_some(std::path::Path::new(file));
            return Ok(vec![traced(file, plan)?]);
        }
        (None, AccessPlan::Table4 { workloads, shapes }) => (workloads, shapes),
    };
    Ok(workloads
        .iter()
        .map(|name| {
            let workload = name.build(shapes);
            Named {
                name: workload.name.to_owned(),
                category: workload.category,
                program: Program::of(&workload),
            }
        })
        .collect())
}

fn traced(file: Option<&std::path::Path>, plan: &TlbPlan) -> Result<Named, StudyError> {
    let trace = Trace::new(file);
    let name = trace.name();
    let program = Program::recorded(trace, plan.machine.format.format())?;
    Ok(Named { name, category: Category::II, program })
}

/// The states of memory: the plan's, or a real machine's.
fn levels(plan: &TlbPlan, run: &Run<'_>) -> Result<Vec<Level>, StudyError> {
    let machine = |machine: Arc<Machine>| {
        vec![Level { x: (machine.name.as_str(), 0.0).into(), state: State::Machine(machine) }]
    };
    if let Some(real) = &run.real.memory {
        return Ok(machine(real.clone()));
    }
    Ok(match &plan.memory {
        MemoryPlan::Snapshot { file } => {
            let file = (!file.is_empty()).then_some(std::path::Path::new(file));
            machine(Arc::new(Machine::load(file, swath_trace::machine::UnknownFrames::Used)?))
        }
        MemoryPlan::Blocks { block_frames, free_per_requested, free_share } => block_frames
            .iter()
            .map(|&block_frames| Level {
                x: Point::At(block_frames as f64, 0.0),
                state: State::Blocks {
                    block_frames,
                    free_per_requested: *free_per_requested,
                    free_share: *free_share,
                },
            })
            .collect(),
        MemoryPlan::Aged(aged) => aged
            .used_shares
            .iter()
            .map(|&share| Level {
                x: Point::At(share, 0.0),
                state: State::Aged { frames: aged.frames, ageing: aged.ageing(share, run.quick) },
            })
            .collect(),
    })
}

/// One repeat of one point. The random numbers depend on the seed and the
/// repeat alone, so that all designs see the same memory.
fn one(
    hardware: &Hardware,
    point: &Measurement<'_>,
    about: &About,
    repeat: u64,
) -> Result<Measured, StudyError> {
    let program = &point.named.program;
    let mut random = random(about.seed, repeat);
    let below;
    let source = match &point.level.state {
        State::Blocks { block_frames, free_per_requested, free_share } => {
            program.scattered(*block_frames, *free_per_requested, *free_share)
        }
        State::Aged { frames, ageing } => Source::Aged { frames: *frames, ageing: *ageing },
        State::Machine(machine) => {
            below = hardware.free_of(machine, program);
            Source::Free(&below)
        }
    };
    measure(hardware, &point.design, &source, program, &mut random).map_err(|error| {
        StudyError::Machine {
            study: about.study.clone(),
            what: format!(
                "{} on {} at {}: {error}",
                point.design.name,
                point.named.name,
                label(&point.level.x)
            ),
        }
    })
}

/// The statements of sections V-B on these figures.
fn claims(
    plan: &TlbPlan,
    programs: &[Named],
    rate: &dyn Fn(usize, usize, usize) -> f64,
) -> Vec<Claim> {
    let MemoryPlan::Blocks { block_frames, .. } = &plan.memory else { return Vec::new() };
    // As Design::all has them.
    const TRAD: usize = 0;
    const PCAD: usize = 1;
    const AT: usize = 2;
    const PBS: usize = 3;
    let of = |category| (0..programs.len()).filter(move |&p| programs[p].category == category);
    let sizes = |from: u64, to: u64| {
        (0..block_frames.len()).filter(move |&l| (from..=to).contains(&block_frames[l]))
    };
    let points =
        |category, from, to| of(category).flat_map(move |p| sizes(from, to).map(move |l| (p, l)));
    let gain = |(p, l): (usize, usize), over: usize| rate(p, l, PBS) / rate(p, l, over) - 1.0;
    let largest = |points: &mut dyn Iterator<Item = (usize, usize)>, over: usize| {
        points.map(|point| gain(point, over)).fold(f64::MIN, f64::max)
    };
    let mut claims = Vec::new();

    let lowest = points(Category::I, 1, 256)
        .flat_map(|(p, l)| [TRAD, PCAD, AT, PBS].map(|d| rate(p, l, d)))
        .fold(1.0, f64::min);
    let place = "Section V-B, Fig. 10";
    let says = "Category I: the TLB hit rates of all designs are higher than 98%";
    claims.push(Claim::at_least(place, says, 0.98, lowest, 0.0).with_unit(Unit::Share));
    let best = [TRAD, PCAD, AT]
        .map(|over| largest(&mut points(Category::I, 1, 256), over))
        .into_iter()
        .fold(f64::MIN, f64::max);
    let says = "Category I: the improvement by PBS is less than 2%";
    claims.push(Claim::at_most(place, says, 0.02, best, 0.0).with_unit(Unit::Share));

    let spread = points(Category::II, 1, 1)
        .flat_map(|(p, l)| [TRAD, PCAD, AT].map(|d| (rate(p, l, d) - rate(p, l, PBS)).abs()))
        .fold(0.0, f64::max);
    let place = "Section V-B, 1";
    let says = "Block size 1: all designs have the same TLB hit rates (largest difference)";
    claims.push(Claim::exactly(place, says, 0.0, spread).with_unit(Unit::Share));

    let place = "Section V-B, 2";
    for (over, name, paper) in [(PCAD, "PCAD", 0.22), (AT, "AT", 0.30)] {
        let says =
            format!("Block sizes 2 to 64: PBS is up to {:.0}% better than {name}", paper * 100.0);
        let measured = largest(&mut points(Category::II, 2, 64), over);
        claims.push(Claim::within(place, &says, paper, measured, 0.05).with_unit(Unit::Share));
    }

    let place = "Section V-B, 3";
    let best = largest(&mut points(Category::II, 128, 256), TRAD) + 1.0;
    let says = "Block sizes 128 to 256: PBS is up to 2x better than TRAD";
    claims.push(Claim::about(place, says, 2.0, best, 0.1).with_unit(Unit::Ratio));
    for (over, name) in [(PCAD, "PCAD"), (AT, "AT")] {
        let worst =
            points(Category::II, 128, 256).map(|point| gain(point, over).abs()).fold(0.0, f64::max);
        let says =
            format!("Block sizes 128 to 256: PBS is comparable to {name} (largest difference)");
        claims.push(Claim::within(place, &says, 0.0, worst, 0.05).with_unit(Unit::Share));
    }
    claims
}

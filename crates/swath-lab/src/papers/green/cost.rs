//! What the green memory manager's allocators cost (Tables II and III):
//! instructions and time of single frames taken one after the other, and the
//! bytes of the management structures.
//!
//! Instructions are exact: chosen allocations are stepped in a child process
//! ([`green_sample`](crate::papers::green::sample) says which, and what they say of the
//! others). The paper times `__rmqueue`; here it is the allocator's `take`,
//! called through its trait, which costs the same few instructions for all.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use swath_arch::{Extent, Order, Pfn};
use swath_frame::layout::{Layout, LayoutPreset};
use swath_frame::{LayoutConfig, MemoryMap};

use crate::host::count::{CountError, Counter, Marks};
use crate::papers::green::allocator::AllocatorName;
use crate::papers::green::plan_cost::{CostPlan, CostSampling};
use crate::papers::green::sample::{Classes, Estimate, Sample};
use crate::papers::green::zone::{MEASURED, Sequence, storage_words, zone};
use crate::papers::page_buddy::allocation::host_name;
use crate::study::results::{Claim, Figure, FigureKind, HostResult, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

/// The most steps of one allocation.
const STEPS_MAX: u64 = 20_000_000;

/// What the child is to do.
#[derive(Serialize, Deserialize)]
struct Job {
    design: AllocatorName,
    sequence: Sequence,
    /// The allocations to step, ascending.
    indices: Vec<u32>,
}

/// The child: takes the whole sequence, the chosen allocations between marks.
///
/// # Errors
/// What went wrong, for the program to say.
pub fn count_child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
    let Job { design, sequence, indices } = serde_json::from_str(job)?;
    let mut zone = sequence.zone(design)?;
    let mobility = sequence.mobility();
    let mut marks = Marks::begin()?;
    let mut next = 0;
    for index in indices {
        while next < index {
            zone.allocate(Order::BASE, mobility).ok_or("no frame is left")?;
            next += 1;
        }
        let mut taken = None;
        marks.region("", &mut || taken = black_box(zone.allocate(Order::BASE, mobility)))?;
        taken.ok_or("no frame is left")?;
        next += 1;
    }
    Ok(())
}

/// The parent's side of [`count_child`].
fn count(
    design: AllocatorName,
    sequence: &Sequence,
    samples: &[Sample],
) -> Result<Vec<(Sample, u64)>, CountError> {
    let mut command = Command::new(std::env::current_exe().map_err(CountError::Spawn)?);
    let indices = samples.iter().map(|sample| sample.index).collect();
    let job = Job { design, sequence: sequence.clone(), indices };
    command.args(["child", "count-takes", &serde_json::to_string(&job).unwrap_or_default()]);
    let mut counter = Counter::spawn(command, STEPS_MAX)?;
    let mut counted = Vec::with_capacity(samples.len());
    for &sample in samples {
        match counter.next_region()? {
            Some(region) => counted.push((sample, region.instructions)),
            None => return Err(CountError::Protocol("fewer regions than expected".to_owned())),
        }
    }
    Ok(counted)
}

/// The allocations of a sequence by class, and the smallest time of each over
/// some runs.
struct Survey {
    classes: Classes,
    times_ns: Vec<u32>,
}

impl Survey {
    fn new(design: AllocatorName, sequence: &Sequence, runs: usize) -> Result<Self, String> {
        let mut classes = Classes::new(sequence.is_whole());
        let mut times_ns = vec![u32::MAX; sequence.len() as usize];
        for run in 0..runs {
            let mut zone = sequence.zone(design)?;
            let mobility = sequence.mobility();
            for (at, least_ns) in times_ns.iter_mut().enumerate() {
                let start = Instant::now();
                let frame = black_box(zone.allocate(Order::BASE, mobility));
                let time_ns = start.elapsed().as_nanos();
                *least_ns = u32::try_from(time_ns).unwrap_or(u32::MAX).min(*least_ns);
                let Some(frame) = frame else {
                    return Err(format!("{}: no frame is left after {at}", design.title()));
                };
                if run == 0 {
                    classes.push(frame.raw(), frame.raw() / sequence.bank_frames);
                    if sequence.ends.contains(&(at as u64 + 1)) {
                        classes.end_segment();
                    }
                }
            }
        }
        Ok(Self { classes, times_ns })
    }
}

/// Nanoseconds per allocation up to each end: medians over the runs, the
/// designs taken in turn.
fn time(sequence: &Sequence, runs: usize) -> Result<Vec<Vec<f64>>, String> {
    let mut times = vec![vec![Vec::with_capacity(runs); sequence.ends.len()]; MEASURED.len()];
    for _ in 0..runs {
        for (design, times) in MEASURED.into_iter().zip(&mut times) {
            let mut zone = sequence.zone(design)?;
            let mobility = sequence.mobility();
            let mut taken = 0;
            let mut total_ns = 0.0;
            for (&end, times) in sequence.ends.iter().zip(times) {
                let start = Instant::now();
                while taken < end && black_box(zone.allocate(Order::BASE, mobility)).is_some() {
                    taken += 1;
                }
                total_ns += start.elapsed().as_nanos() as f64;
                times.push(total_ns / end as f64);
            }
        }
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2].max(f64::MIN_POSITIVE)
    };
    Ok(times.into_iter().map(|ends| ends.into_iter().map(median).collect()).collect())
}

/// What is measured of one design on one sequence.
struct Measured {
    /// At each end.
    instructions: Result<Vec<Estimate>, String>,
    /// The largest of the smallest times, up to each end.
    worst_ns: Vec<f64>,
    stepped: usize,
}

fn measure(
    plan: &CostPlan,
    sampling: &CostSampling,
    design: AllocatorName,
    sequence: &Sequence,
    survey: &Survey,
) -> Result<Measured, StudyError> {
    let Survey { classes, times_ns } = survey;
    let samples =
        if sequence.is_whole() { sampling.class_samples } else { sampling.scattered_samples };
    let chosen = classes.choose(samples, sampling.rare, sampling.slowest as usize, times_ns);
    let instructions = match count(design, sequence, &chosen) {
        Ok(counted) => Ok(classes.estimate(&counted)),
        // The rest of the study does not need the counts.
        Err(error @ (CountError::Unsupported { .. } | CountError::NotAllowed(_))) => {
            Err(error.to_string())
        }
        Err(error) => return Err(failed(plan, error.to_string())),
    };
    let worst = |&end: &u64| times_ns[..end as usize].iter().copied().max().unwrap_or(0);
    let worst_ns = sequence.ends.iter().map(|end| f64::from(worst(end))).collect();
    Ok(Measured { instructions, worst_ns, stepped: chosen.len() })
}

fn failed(plan: &CostPlan, what: String) -> StudyError {
    StudyError::Machine { study: plan.about.study.clone(), what }
}

const AVERAGE: &str = "Table III, average";
const WORST: &str = "Table III, worst";
const AVERAGE_TIME: &str = "Table III, average time";
const WORST_TIME: &str = "Table III, worst time";
const SCATTERED: &str = "Scattered frames, worst";
const SCATTERED_AVERAGE: &str = "Scattered frames, average";
const STRUCTURES: &str = "Table II";
const STORAGE: &str = "All storage";

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &CostPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let (taken, banks, sampling) = if run.quick {
        (&plan.taken_frames_quick, &plan.scattered.banks_quick, &plan.sampling_quick)
    } else {
        (&plan.taken_frames, &plan.scattered.banks, &plan.sampling)
    };
    let whole = Sequence {
        frames: plan.frames,
        bank_frames: plan.bank_frames,
        free_share: 1.0,
        movable: true,
        ends: taken.clone(),
        seed: about.seed,
    };
    let scattered = banks.iter().map(|banks| {
        let mut sequence = Sequence {
            frames: banks * plan.scattered.bank_frames,
            bank_frames: plan.scattered.bank_frames,
            free_share: plan.scattered.free_share,
            movable: false,
            ends: Vec::new(),
            seed: about.seed,
        };
        sequence.ends = vec![sequence.given_back().len() as u64];
        sequence
    });
    let sequences: Vec<Sequence> = [whole].into_iter().chain(scattered).collect();
    let jobs: Vec<(usize, AllocatorName)> =
        (0..sequences.len()).flat_map(|s| MEASURED.map(|design| (s, design))).collect();
    // Times first, one at a time; then as many children as there are threads.
    let times = time(&sequences[0], sampling.runs).map_err(|what| failed(plan, what))?;
    let surveys = jobs.iter().map(|&(s, design)| Survey::new(design, &sequences[s], sampling.runs));
    let surveys: Result<Vec<Survey>, String> = surveys.collect();
    let surveys = surveys.map_err(|what| failed(plan, what))?;
    let points: Vec<_> = jobs.iter().zip(&surveys).collect();
    let measured = run.points(about, &points, |&(&(s, design), survey)| {
        measure(plan, sampling, design, &sequences[s], survey)
    })?;

    let (structures, storage) = structures(plan)?;
    let mut result = StudyResult {
        figures: structure_figures(),
        notes: notes(plan),
        ..run::result(about, plan, run, about.purpose.clone())
    };
    for (figure, y, sizes) in
        [(STRUCTURES, "structure_bytes", &structures), (STORAGE, "bytes_per_frame", &storage)]
    {
        for (design, points) in sizes {
            let points = points.iter().map(|&(category, bytes)| (category, bytes));
            result.series.push(Series::new(figure, "part", y, design.title(), points));
        }
    }
    if plan.claims {
        result.claims = structure_claims(&structures);
    }
    let mut host = HostResult::new(&about.study, host_name(), time_figures());
    let at = |values: Vec<f64>| taken.iter().map(|&end| end as f64).zip(values);
    let designs = MEASURED.len();
    for (d, design) in MEASURED.into_iter().enumerate().skip(1) {
        let ratios = |of: &[f64], to: &[f64]| -> Vec<f64> {
            of.iter().zip(to).map(|(of, to)| of / to.max(1.0)).collect()
        };
        for (figure, values) in [
            (AVERAGE_TIME, ratios(&times[d], &times[0])),
            (WORST_TIME, ratios(&measured[d].worst_ns, &measured[0].worst_ns)),
        ] {
            let series =
                Series::new(figure, "taken_frames", "time_ratio", design.title(), at(values));
            host.series.push(series);
        }
    }
    let counted: Result<Vec<&Vec<Estimate>>, &String> =
        measured.iter().map(|measured| measured.instructions.as_ref()).collect();
    match counted {
        Err(why) => host.notes.push(format!("Instructions were not measured: {why}.")),
        Ok(counted) => {
            host.figures.splice(0..0, count_figures(plan));
            for (d, design) in MEASURED.into_iter().enumerate() {
                let averages = counted[d].iter().map(|estimate| estimate.average).collect();
                let worst = counted[d].iter().map(|estimate| estimate.worst as f64).collect();
                for (figure, values) in [(AVERAGE, averages), (WORST, worst)] {
                    let points = at(values);
                    let name = design.title();
                    host.series.push(Series::new(
                        figure,
                        "taken_frames",
                        "instructions",
                        name,
                        points,
                    ));
                }
                let of = |value: fn(&Estimate) -> f64| {
                    let rows = counted[designs..].iter().skip(d).step_by(designs);
                    let last = rows.filter_map(|row| row.last()).map(value);
                    banks.iter().map(|&banks| banks as f64).zip(last.collect::<Vec<_>>())
                };
                for (figure, points) in [
                    (SCATTERED_AVERAGE, of(|estimate| estimate.average)),
                    (SCATTERED, of(|estimate| estimate.worst as f64)),
                ] {
                    let name = design.title();
                    host.series.push(Series::new(figure, "banks", "instructions", name, points));
                }
            }
            let stepped: usize = measured.iter().map(|measured| measured.stepped).sum();
            let error = |of: &[&Vec<Estimate>]| {
                let all = of.iter().flat_map(|row| row.iter());
                all.map(|e| e.error / e.average).fold(0.0, f64::max) * 100.0
            };
            host.notes.push(format!(
                "{stepped} allocations were stepped. By the spread within the classes, the averages' \
                 standard error is at most {:.1}% in Table III, and {:.0}% on scattered frames.",
                error(&counted[..designs]),
                error(&counted[designs..]),
            ));
            if plan.claims {
                host.claims = claims(&counted[..designs], taken);
            }
        }
    }
    Ok(Outcome { result, host: Some(host) })
}

fn count_figures(plan: &CostPlan) -> Vec<Figure> {
    let lines = FigureKind::LinesLog2;
    let (x, y) = ("frames taken, one after the other", "instructions");
    let scattered = format!(
        "Unmovable requests until nothing is left. All memory was movable, and {:.0}% of it, at \
         random places, has been given back: no bank is wholly free. Banks of {} frames.",
        plan.scattered.free_share * 100.0,
        plan.scattered.bank_frames,
    );
    vec![
        Figure::new(AVERAGE, "instructions of an allocation", lines, x, y),
        Figure::new(WORST, "instructions of the longest allocation", lines, x, y).with_caption(
            "The longest of all that were stepped: every change of bank, the allocations that \
             took longest, and some of each class.",
        ),
        Figure::new(SCATTERED_AVERAGE, "instructions of an unmovable request", lines, "banks", y)
            .with_caption(&scattered),
        Figure::new(SCATTERED, "instructions of the longest unmovable request", lines, "banks", y)
            .with_caption(&scattered),
    ]
}

fn time_figures() -> Vec<Figure> {
    let lines = FigureKind::LinesLog2;
    let (x, y) = ("frames taken, one after the other", "time (design / Linux)");
    vec![
        Figure::new(AVERAGE_TIME, "against Linux's buddy in the same run", lines, x, y)
            .with_caption("Medians of runs taken in turn."),
        Figure::new(WORST_TIME, "against Linux's buddy in the same run", lines, x, y).with_caption(
            "Each allocation's smallest time over all runs of the same sequence, which leaves \
             out interrupts; of these the largest. The clock's own time is in both.",
        ),
    ]
}

fn structure_figures() -> Vec<Figure> {
    vec![
        Figure::new(STRUCTURES, "management structures", FigureKind::Bars, "", "bytes")
            .with_caption(
                "Beside what each frame has: a zone of 16 GiB with banks of 256 MiB, and the three \
                 zones of the first node of a machine with 32 GiB.",
            ),
        Figure::new(STORAGE, "with what each frame has", FigureKind::Bars, "", "bytes per frame"),
    ]
}

const ZONE: &str = "zone";
const NODE: &str = "node";

type Sizes = Vec<(AllocatorName, Vec<(&'static str, f64)>)>;

/// Bytes of the management structures of a zone and of a node, and all bytes of
/// the zone per frame.
fn structures(plan: &CostPlan) -> Result<(Sizes, Sizes), StudyError> {
    let failed = |what: String| failed(plan, what);
    let preset = LayoutPreset::ThirtyTwoGib;
    let mut areas = [Extent::default(); 8];
    let map = MemoryMap::new(preset.ranges(), &mut areas).map_err(|e| failed(e.to_string()))?;
    let config = LayoutConfig { bank_frames: plan.bank_frames, ..LayoutConfig::default() };
    let layout = Layout::new(&map, preset.nodes(), config).map_err(|e| failed(e.to_string()))?;
    let mut one_area = [Extent::default(); 1];
    let span = Extent::new(Pfn::new(0), plan.frames);
    let range = [swath_frame::ByteRange::of_frames(span)];
    let one = MemoryMap::new(&range, &mut one_area).map_err(|e| failed(e.to_string()))?;
    let (mut structures, mut storage) = (Vec::new(), Vec::new());
    for design in [
        AllocatorName::Linux,
        AllocatorName::BankArray,
        AllocatorName::BankList,
        AllocatorName::Adaptive,
    ] {
        let bytes = |map: &MemoryMap<'_>, span| -> Result<f64, StudyError> {
            let zone = zone(design, map, span, plan.bank_frames).map_err(failed)?;
            Ok(zone.structure_bytes() as f64)
        };
        let zone = bytes(&one, span)?;
        let mut node = 0.0;
        for zone in layout.zones().iter().filter(|zone| zone.node == 0) {
            node += bytes(&map, zone.span)?;
        }
        structures.push((design, vec![(ZONE, zone), (NODE, node)]));
        let words = storage_words(design, &one, span, plan.bank_frames).map_err(failed)?;
        storage.push((design, vec![(ZONE, words as f64 * 8.0 / plan.frames as f64)]));
    }
    Ok((structures, storage))
}

fn notes(plan: &CostPlan) -> Vec<String> {
    vec![
        format!(
            "A zone of {} frames in banks of {}, of which nothing was taken before; the \
             requests are movable, as a process's. Bank-List asks the bank that served last \
             before it walks the list.",
            plan.frames, plan.bank_frames,
        ),
        "Linux's structures hold the mobility of each pageblock, 4 bits for 2 MiB, which the kernel \
         keeps in its table of sections: most of its bytes in the zone. Linux's zone and node \
         hold much that no allocator needs (statistics, per-CPU sets, zone lists), so only \
         the growth over it could be compared, and that follows from Table II's four numbers."
            .to_owned(),
        "On scattered frames Linux tries to claim a pageblock, which counts its free frames, for \
         each request before it takes a single block of another mobility. A batch that refills a \
         per-CPU list tries once; here each request stands alone."
            .to_owned(),
    ]
}

/// Table II: name, zone and pg_data_t in the paper.
const TABLE_II: [(f64, f64); 4] =
    [(1920.0, 17152.0), (68864.0, 284_928.0), (71040.0, 293_632.0), (5696.0, 32256.0)];

fn structure_claims(structures: &Sizes) -> Vec<Claim> {
    let mut claims = Vec::new();
    for ((design, sizes), paper) in structures.iter().zip(TABLE_II) {
        for (&(part, bytes), paper) in sizes.iter().zip([paper.0, paper.1]) {
            let says = format!("{}: bytes of a {part}'s structures", design.title());
            let claim = Claim::at_most("Table II", &says, paper, bytes, 0.0);
            let cause = match design {
                AllocatorName::Linux => {
                    "The pageblocks' mobilities are counted here; Linux keeps them elsewhere."
                }
                _ => "The lists' heads, 32 for each order and pool, are most of it.",
            };
            claims.push(if claim.holds() { claim } else { claim.with_cause(cause) });
        }
    }
    claims
}

/// Table III: frames; average of Linux and Adaptive-Buddy, worst of both.
const TABLE_III: [(u64, [f64; 4]); 5] = [
    (10_000, [285.0, 267.0, 755.0, 1305.0]),
    (100_000, [266.0, 260.0, 988.0, 2596.0]),
    (1_000_000, [260.0, 255.0, 999.0, 20794.0]),
    (2_000_000, [250.0, 255.0, 999.0, 20794.0]),
    (4_000_000, [249.0, 277.0, 999.0, 21432.0]),
];

fn claims(counted: &[&Vec<Estimate>], taken: &[u64]) -> Vec<Claim> {
    let place = "Table III";
    let mut claims = Vec::new();
    let buddy = counted[0];
    let adaptive = counted[3];
    for (i, taken) in taken.iter().enumerate() {
        let Some((_, [buddy_ns, adaptive_ns, ..])) = TABLE_III.iter().find(|row| row.0 == *taken)
        else {
            continue;
        };
        let says =
            format!("{taken} frames: average of Adaptive-Buddy against Linux (instructions)");
        let ratio = adaptive[i].average / buddy[i].average;
        let claim = Claim::at_most(place, &says, adaptive_ns / buddy_ns, ratio, 0.0);
        let cause = "A frame comes from the word of the last one; Linux splits a block for every \
                     second frame.";
        claims.push(claim.with_unit(Unit::Ratio).with_cause(if ratio < 1.0 { cause } else { "" }));
    }
    let Some((&last, (buddy_last, adaptive_last))) =
        taken.last().zip(buddy.last().zip(adaptive.last()))
    else {
        return claims;
    };
    let Some((_, [_, average_ns, buddy_ns, worst_ns])) = TABLE_III.iter().find(|row| row.0 == last)
    else {
        return claims;
    };
    let below = |says: &str, paper: f64, measured: f64, cause: &str| {
        let says = format!("{last} frames: {says} (instructions)");
        let claim = Claim::at_most(place, &says, paper, measured, 0.0);
        claim.with_unit(Unit::Ratio).with_cause(cause)
    };
    let moved = "A bank that is opened keeps its blocks: a few words change, whatever is in it.";
    claims.push(below(
        "worst of Adaptive-Buddy against worst of Linux",
        worst_ns / buddy_ns,
        adaptive_last.worst as f64 / buddy_last.worst as f64,
        moved,
    ));
    for (design, estimates) in
        [AllocatorName::Adaptive, AllocatorName::AdaptivePacked].into_iter().zip(&counted[3..])
    {
        let Some(estimate) = estimates.last() else { continue };
        claims.push(below(
            &format!("worst of {} against its average", design.title()),
            worst_ns / average_ns,
            estimate.worst as f64 / estimate.average,
            moved,
        ));
        let says = format!(
            "{last} frames: beyond the paper, {} is no slower than Linux on average (instructions)",
            design.title(),
        );
        let ratio = estimate.average / buddy_last.average;
        claims.push(Claim::at_most(place, &says, 1.0, ratio, 0.0).with_unit(Unit::Ratio));
    }
    claims
}

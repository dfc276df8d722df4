//! Costs of the green memory manager's allocators (Panwar and Gopinath, Tables II
//! and III). The paper times `__rmqueue`; here it is the allocator's `take`, called
//! through its trait, which costs the same few instructions for all.

use crate::host::count::CountError;
use crate::host::machine::host_name;
use crate::papers::green::cost::count::{Measured, Survey, count_child, time};
use crate::papers::green::cost::plan::CostPlan;
use crate::papers::green::cost::structures;
use crate::papers::green::cost::structures::structures;
use crate::papers::green::machine::allocator::AllocatorName;
use crate::papers::green::machine::zone::MEASURED;
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, Missing, View};
use crate::study::kind::{Drawn, HostShown, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Costs of the allocators.
pub struct Cost;

/// The measurements.
pub struct CostFound {
    /// Bytes of the management structures.
    structures: Grid,
    /// Frames taken from a zone of which nothing was taken before.
    whole: Grid,
    /// Frames that lie here and there.
    scattered: Grid,
    /// Number of allocations that were stepped.
    stepped: usize,
    /// The reason why instructions were not counted.
    uncounted: Option<String>,
}

const DESIGN: &str = "design";
const TAKEN: &str = "taken_frames";
const BANKS: &str = "banks";

impl Study for Cost {
    const KIND: &'static str = "green-cost";
    type Plan = CostPlan;
    type Found = CostFound;

    fn seeds(plan: &CostPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &CostPlan, run: &Run<'_>) -> Needs {
        let taken = plan.taken_frames.of(run.quick).last().map_or(0, |taken| taken.get());
        let banks = plan.scattered.banks.of(run.quick).last().map_or(0, |banks| banks.get());
        let scattered = bytes(&[banks, plan.scattered.bank_frames.get()]);
        // A child has a zone, too.
        Needs::small()
            .each("frames", bytes(&[8, plan.frames.get()]))
            .each("taken_frames", bytes(&[16, taken]))
            .each("scattered.banks", bytes(&[32, scattered]))
    }

    fn measure(plan: &CostPlan, run: &Run<'_>) -> Result<CostFound, StudyError> {
        measure(plan, run)
    }

    fn claims(plan: &CostPlan, _: &Run<'_>) -> Vec<Statement<CostFound>> {
        let conditions = plan.conditions();
        let mut claims = structures::claims(&conditions, |found: &CostFound| &found.structures);
        claims.extend(TABLE_III.iter().flat_map(|row| time_claims(row, &conditions)));
        claims
    }

    fn show(plan: &CostPlan, run: &Run<'_>, found: &CostFound) -> Shown {
        let host = HostShown {
            machine: host_name(),
            figures: host_figures(plan, found),
            notes: host_notes(plan, run, found),
        };
        Shown {
            finding: String::new(),
            figures: structures::figures(&found.structures),
            notes: notes(plan),
            host: Some(host),
        }
    }

    fn child(job: &str) -> Result<(), Box<dyn std::error::Error>> {
        count_child(job)
    }
}

/// The costs of a design on a sequence, by repeat.
struct Row {
    design: AllocatorName,
    /// The place in the sequences; the first is whole.
    sequence: usize,
    /// For each end and each repeat.
    runs: Vec<Vec<Metrics>>,
}

fn measure(plan: &CostPlan, run: &Run<'_>) -> Result<CostFound, StudyError> {
    let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
    let repeats = Cost::seeds(plan, run.quick);
    let (mut rows, mut stepped, mut uncounted) = (Vec::<Row>::new(), 0, None);
    for repeat in 0..repeats {
        let sequences = plan.sequences(run.quick, repeat);
        let runs = plan.sampling.runs.of(run.quick).size();
        let jobs: Vec<(usize, AllocatorName)> =
            (0..sequences.len()).flat_map(|s| MEASURED.map(|design| (s, design))).collect();
        // Times first, one at a time; then as many children as there are threads.
        let times = run.points_in_turn(&plan.about, &sequences[..1], |whole| {
            time(whole, runs).map_err(failed)
        })?;
        let surveys = run.points_in_turn(&plan.about, &jobs, |&(s, design)| {
            Survey::new(&plan.sampling, run.quick, design, &sequences[s]).map_err(failed)
        })?;
        let points: Vec<_> = jobs.iter().zip(&surveys).collect();
        let measured = run.points(&plan.about, &points, |&(&(s, design), survey)| {
            survey
                .measure(Cost::KIND, design, &sequences[s])
                .map_err(|error: CountError| failed(error.to_string()))
        })?;
        for (nth, (&(sequence, design), own)) in jobs.iter().zip(&measured).enumerate() {
            stepped += own.stepped;
            uncounted = uncounted.or_else(|| own.instructions.as_ref().err().cloned());
            if repeat == 0 {
                let runs = vec![Vec::new(); sequences[sequence].ends.len()];
                rows.push(Row { design, sequence, runs });
            }
            let baseline = &measured[sequence * MEASURED.len()];
            for (end, runs) in rows[nth].runs.iter_mut().enumerate() {
                let mut metrics = costs(own, baseline, end);
                if sequence == 0 {
                    let ratio = times[0][nth][end] / times[0][0][end];
                    metrics.push(("time_ratio".to_owned(), ratio));
                }
                runs.push(metrics);
            }
        }
    }
    let seeds = usize::try_from(repeats).unwrap_or(usize::MAX);
    let mut whole = Grid::new(&[DESIGN, TAKEN], seeds);
    let mut scattered = Grid::new(&[DESIGN, BANKS], seeds);
    let banks = plan.scattered.banks.of(run.quick);
    for Row { design, sequence, runs } in &rows {
        let design = || design.title().into();
        if let Some(nth) = sequence.checked_sub(1) {
            runs.iter()
                .for_each(|runs| scattered.add(vec![design(), banks[nth].get().into()], runs));
            continue;
        }
        for (end, runs) in plan.taken_frames.of(run.quick).iter().zip(runs) {
            whole.add(vec![design(), end.get().into()], runs);
        }
    }
    let structures = structures(plan).map_err(failed)?;
    Ok(CostFound { structures, whole, scattered, stepped, uncounted })
}

/// The costs of a design up to an end, beside those of Linux.
fn costs(own: &Measured, baseline: &Measured, end: usize) -> Metrics {
    let worst_time = own.worst_ns[end] / baseline.worst_ns[end].max(1.0);
    let mut metrics = vec![("worst_time_ratio".to_owned(), worst_time)];
    if let Some(estimate) = own.instructions.as_ref().ok().and_then(|all| all.get(end)) {
        let error = estimate.error / estimate.average;
        metrics.extend([
            ("average".to_owned(), estimate.average),
            ("worst".to_owned(), estimate.worst as f64),
            ("error_share".to_owned(), error),
        ]);
    }
    metrics
}

/// The figures that depend on the machine: instructions and times.
fn host_figures(plan: &CostPlan, found: &CostFound) -> Vec<Drawn> {
    let scattered = format!(
        "Unmovable requests until nothing is left. All memory was movable, and {:.0}% of it, at \
         random places, has been freed: no bank is wholly free. Banks of {} frames.",
        plan.scattered.free_share.get() * 100.0,
        plan.scattered.bank_frames,
    );
    let lines = FigureKind::LinesLog2;
    let (taken, y) = ("frames taken, one after the other", "instructions");
    let ratio = "time (design / Linux)";
    let figure = |id: &str, title: &str, x: &str, y: &str, caption: &str| {
        Figure::new(id, title, lines, x, y).with_caption(caption)
    };
    let title = "instructions of an unmovable request";
    let against = "against Linux's buddy in the same run";
    let mut drawn = Vec::new();
    if found.uncounted.is_none() {
        let longest = "The longest of all that were stepped: every change of bank, the \
                       allocations that took longest, and some of each class.";
        let id = "Table III, average";
        let average = figure(id, "instructions of an allocation", taken, y, "");
        drawn.push(draw(average, &found.whole, TAKEN, "average", "instructions", 0));
        let title_worst = "instructions of the longest allocation";
        let worst = figure("Table III, worst", title_worst, taken, y, longest);
        drawn.push(draw(worst, &found.whole, TAKEN, "worst", "instructions", 0));
        let average = figure("Scattered frames, average", title, "banks", y, &scattered);
        drawn.push(draw(average, &found.scattered, BANKS, "average", "instructions", 0));
        let title = "instructions of the longest unmovable request";
        let worst = figure("Scattered frames, worst", title, "banks", y, &scattered);
        drawn.push(draw(worst, &found.scattered, BANKS, "worst", "instructions", 0));
    }
    let caption = "Medians of runs taken in turn.";
    let average = figure("Table III, average time", against, taken, ratio, caption);
    drawn.push(draw(average, &found.whole, TAKEN, "time_ratio", "time_ratio", 1));
    let caption = "Each allocation's smallest time over all runs of the same sequence, which \
                   leaves out interrupts; of these the largest. The clock's own time is in both.";
    let worst = figure("Table III, worst time", against, taken, ratio, caption);
    drawn.push(draw(worst, &found.whole, TAKEN, "worst_time_ratio", "time_ratio", 1));
    drawn
}

/// A figure with a line for each design from the nth on.
fn draw(
    figure: Figure,
    grid: &Grid,
    axis: &str,
    metric: &'static str,
    y: &str,
    from: usize,
) -> Drawn {
    let line = |design: AllocatorName| {
        let title = design.title();
        let points = grid.points(axis, |all| all.is(DESIGN, title), |cell| cell.get(metric));
        Series::new(&figure.id, axis, y, title, points)
    };
    let series = MEASURED.into_iter().skip(from).map(line).collect();
    Drawn { figure, series }
}

fn host_notes(plan: &CostPlan, run: &Run<'_>, found: &CostFound) -> Vec<String> {
    if let Some(why) = &found.uncounted {
        return vec![format!("Instructions were not measured: {why}.")];
    }
    let error = |grid: &Grid| {
        let largest = grid.evidence(|view| view.select().max("error_share"));
        largest.map_or(f64::NAN, |found| 100.0 * found.estimate().value)
    };
    vec![format!(
        "Everything is measured {} times; {} allocations were stepped. By the spread within the \
         classes, the averages' standard error is at most {:.1}% in Table III, and {:.0}% on \
         scattered frames.",
        plan.repeats.of(run.quick),
        found.stepped,
        error(&found.whole),
        error(&found.scattered),
    )]
}

fn notes(plan: &CostPlan) -> Vec<String> {
    vec![
        format!(
            "A zone of {} frames in banks of {}, of which nothing was taken before; the \
             requests are movable, as a process's. Bank-List tries the bank that served last \
             before it walks the list.",
            plan.frames, plan.bank_frames,
        ),
        "Linux's structures hold the mobility of each pageblock, 4 bits for 2 MiB, which the kernel \
         keeps in its table of sections: most of its bytes in the zone. Linux's zone and node \
         hold much that no allocator needs (statistics, per-CPU sets, zone lists): those bytes \
         are taken off the paper's figure where there is a verdict, and where they cannot be, \
         there is none."
            .to_owned(),
        "On scattered frames Linux tries to claim a pageblock, which counts its free frames, for \
         each request before it takes a single block of another mobility. A batch that refills a \
         per-CPU list tries once; here each request stands alone."
            .to_owned(),
    ]
}

/// Table III: frames; average of Linux and Adaptive-Buddy, worst of both.
const TABLE_III: [(u64, [f64; 4]); 5] = [
    (10_000, [285.0, 267.0, 755.0, 1305.0]),
    (100_000, [266.0, 260.0, 988.0, 2596.0]),
    (1_000_000, [260.0, 255.0, 999.0, 20794.0]),
    (2_000_000, [250.0, 255.0, 999.0, 20794.0]),
    (4_000_000, [249.0, 277.0, 999.0, 21432.0]),
];

/// A ratio of two numbers of two designs at one number of frames.
#[derive(Clone, Copy)]
struct RatioOf {
    taken: u64,
    design: AllocatorName,
    metric: &'static str,
    over: AllocatorName,
    over_metric: &'static str,
}

impl RatioOf {
    fn of(self, view: &View<'_>) -> Result<f64, Missing> {
        let cells = view.select().is(TAKEN, self.taken);
        let own = cells.clone().is(DESIGN, self.design.title()).one(self.metric)?;
        Ok(own / cells.is(DESIGN, self.over.title()).one(self.over_metric)?)
    }
}

/// The statements of a row of Table III, as ratios, so that the paper's clock does
/// not matter: no more than the paper's, without tolerance. The paper has one
/// allocator; what is beyond it is to keep to the same bounds.
fn time_claims(
    &(taken, [buddy_average, average, buddy_worst, worst]): &(u64, [f64; 4]),
    conditions: &Conditions,
) -> Vec<Statement<CostFound>> {
    use AllocatorName::{Adaptive, AdaptivePacked, Linux};
    let claim = |says: &str, paper: f64, cause: &str, ratio: RatioOf| {
        let says = format!("{taken} frames: {says} (instructions)");
        let statement = Statement::at_most("Table III", &says, paper, 0.0).unit(Unit::Ratio);
        statement
            .cause(cause)
            .under(conditions)
            .on_host()
            .measured(move |found: &CostFound| found.whole.evidence(|view| ratio.of(view)))
    };
    let ratio =
        |design, metric, over, over_metric| RatioOf { taken, design, metric, over, over_metric };
    let moved = "A bank that is opened keeps its blocks: a few words change, whatever is in it.";
    let word = "A frame comes from the word of the last one; Linux splits a block for every second \
                frame.";
    vec![
        claim(
            "average of Adaptive-Buddy against Linux",
            average / buddy_average,
            word,
            ratio(Adaptive, "average", Linux, "average"),
        ),
        claim(
            "worst of Adaptive-Buddy against worst of Linux",
            worst / buddy_worst,
            moved,
            ratio(Adaptive, "worst", Linux, "worst"),
        ),
        claim(
            "worst of Adaptive-Buddy against its average",
            worst / average,
            moved,
            ratio(Adaptive, "worst", Adaptive, "average"),
        ),
        claim(
            "beyond the paper, average of Adaptive-Buddy, packed, against Linux",
            1.0,
            word,
            ratio(AdaptivePacked, "average", Linux, "average"),
        ),
        claim(
            "beyond the paper, worst of Adaptive-Buddy, packed, against its average",
            worst / average,
            moved,
            ratio(AdaptivePacked, "worst", AdaptivePacked, "average"),
        ),
    ]
}

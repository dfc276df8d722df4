//! Which requests are served (Table 2 of 003_f9a9d8482224280c.txt), on the
//! paper's machine and on one with areas of unequal size; and how much memory
//! requests of each size can have.

use crate::papers::clmalloc::plan::{AreasPlan, AvailabilityPlan, MIB_FRAMES, RequestRow};
use crate::papers::clmalloc::segments::{Candidate, serve};
use crate::study::results::{Claim, Figure, FigureKind, Series, StudyResult, Unit};
use crate::study::run;
use crate::study::run::{Outcome, Run, StudyError};

const TABLE: &str = "Table 2";
const LARGEST: &str = "Largest";
const SERVED: &str = "Served";
const LOST: &str = "Lost";
const SPACE: &str = "Space";

/// Table 2: MiB, how often, and whether huge pages, baseline and CLMalloc can.
const PAPER: [(u64, u64, [bool; 3]); 6] = [
    (1, 1, [true, true, true]),
    (8, 1, [false, true, true]),
    (100, 1, [false, true, true]),
    (20, 8, [false, true, true]),
    (20, 9, [false, false, true]),
    (20, 12, [false, false, true]),
];
/// The columns of Table 2.
const COLUMNS: [Candidate; 3] =
    [Candidate::HugePages, Candidate::Baseline, Candidate::PreAllocated];
/// The request that the paper measures everything with.
const REQUEST_MIB: u64 = 20;

/// What one allocator can do on one machine.
struct Found {
    /// Requests served of each row of the table.
    rows: Vec<u64>,
    /// The largest single request in frames.
    largest_frames: u64,
    /// How many requests of 20 MiB are served.
    served: u64,
    /// Frames that are free after them, and all that belong to units.
    free_frames: u64,
    total_frames: u64,
    /// How many requests of each size are served.
    sizes: Vec<u64>,
}

fn measure(
    plan: &AvailabilityPlan,
    machine: &AreasPlan,
    candidate: Candidate,
) -> Result<Found, String> {
    let unit = plan.unit();
    let count = |mib: u64, most: u64| {
        candidate.with(machine, unit, |allocator| serve(allocator, mib, most))
    };
    let rows = plan.requests.iter().map(|&RequestRow { mib, count: most }| count(mib, most));
    let sizes = plan.sizes_mib.iter().map(|&mib| count(mib, u64::MAX));
    candidate.with(machine, unit, |allocator| {
        let largest_frames = allocator.largest_frames();
        let served = serve(allocator, REQUEST_MIB, u64::MAX);
        let (free_frames, total_frames) =
            (allocator.free_frames(), allocator.space().total_frames());
        Ok(Found {
            rows: rows.collect::<Result<_, _>>()?,
            largest_frames,
            served,
            free_frames,
            total_frames,
            sizes: sizes.collect::<Result<_, _>>()?,
        })
    })?
}

/// The table's figure for a machine: the first is the paper's.
fn table_of(plan: &AvailabilityPlan, machine: &AreasPlan) -> String {
    if machine == &plan.machines[0] { TABLE.into() } else { format!("{TABLE}, {}", machine.name) }
}

fn space_of(plan: &AvailabilityPlan, machine: &AreasPlan) -> String {
    if machine == &plan.machines[0] { SPACE.into() } else { format!("{SPACE}, {}", machine.name) }
}

/// What is drawn of one allocator on one machine.
type Values<'v> = &'v dyn Fn(&AreasPlan, &Found) -> Vec<(String, f64)>;

/// Runs the plan.
///
/// # Errors
/// [`StudyError`].
pub fn run(plan: &AvailabilityPlan, run: &Run<'_>) -> Result<Outcome, StudyError> {
    let about = &plan.about;
    let points: Vec<(&AreasPlan, Candidate)> = plan
        .machines
        .iter()
        .flat_map(|machine| Candidate::ALL.map(|candidate| (machine, candidate)))
        .collect();
    let found = run.points(about, &points, |&(machine, candidate)| {
        measure(plan, machine, candidate)
            .map_err(|what| StudyError::Machine { study: about.study.clone(), what })
    })?;
    let mut result = StudyResult {
        figures: figures(plan),
        notes: notes(plan),
        ..run::result(about, plan, run, about.purpose.clone())
    };
    for (&(machine, candidate), found) in points.iter().zip(&found) {
        let shares = plan.requests.iter().zip(&found.rows);
        let shares = shares.map(|(row, &served)| (row.title(), served as f64 / row.count as f64));
        let total = machine.total_mib() as f64;
        let space = plan.sizes_mib.iter().zip(&found.sizes);
        let space = space.map(|(&mib, &served)| (mib as f64, (mib * served) as f64 / total));
        let name = candidate.name();
        let table = table_of(plan, machine);
        result.series.push(Series::new(&table, "request", "served_share", name, shares));
        let figure = space_of(plan, machine);
        result.series.push(Series::new(&figure, "request_mib", "memory_share", name, space));
    }
    for candidate in Candidate::ALL {
        let of = |value: Values<'_>| -> Vec<(String, f64)> {
            let own = points.iter().zip(&found).filter(|((_, other), _)| *other == candidate);
            own.flat_map(|((machine, _), found)| value(machine, found)).collect()
        };
        let mib = |frames: u64| frames as f64 / MIB_FRAMES as f64;
        let name = candidate.name();
        let largest = of(&|machine, found| vec![(machine.name.clone(), mib(found.largest_frames))]);
        let served = of(&|machine, found| vec![(machine.name.clone(), found.served as f64)]);
        let lost = of(&|machine, found| {
            let used = found.served * REQUEST_MIB * MIB_FRAMES;
            let held = found.total_frames - found.free_frames - used;
            let out = machine.total_mib() * MIB_FRAMES - found.total_frames;
            let name = &machine.name;
            vec![
                (format!("{name}: free"), mib(found.free_frames)),
                (format!("{name}: held"), mib(held)),
                (format!("{name}: in no unit"), mib(out)),
            ]
        });
        for (figure, y, points) in
            [(LARGEST, "largest_mib", largest), (SERVED, "requests", served), (LOST, "mib", lost)]
        {
            result.series.push(Series::new(figure, "machine", y, name, points));
        }
    }
    if plan.claims {
        result.claims = claims(plan, &found[..Candidate::ALL.len()]);
    }
    Ok(Outcome { result, host: None })
}

fn figures(plan: &AvailabilityPlan) -> Vec<Figure> {
    let bars = FigureKind::Bars;
    let mut figures = Vec::new();
    for machine in &plan.machines {
        let title = format!("requests served, {}", machine.name);
        figures.push(
            Figure::new(&table_of(plan, machine), &title, bars, "", "share of the requests")
                .with_y_range(0.0, 1.0)
                .with_caption("A full bar is the table's √, all others its ×."),
        );
    }
    for machine in &plan.machines {
        let title = format!("memory that requests of one size can have, {}", machine.name);
        let (x, y) = ("size of each request (MiB)", "share of all memory");
        let id = space_of(plan, machine);
        figures.push(Figure::new(&id, &title, FigureKind::Lines, x, y).with_y_range(0.0, 1.0));
    }
    figures.push(Figure::new(LARGEST, "single request on free memory", bars, "", "MiB"));
    figures.push(Figure::new(SERVED, "requests of 20 MiB", bars, "", "requests"));
    figures.push(
        Figure::new(
            LOST,
            "memory that is left when no request of 20 MiB is served",
            bars,
            "",
            "MiB",
        )
        .with_caption(
            "Free, in pieces too short or not in reach; held by blocks of a power of two \
                 beyond their requests; or in no whole unit of an area. Huge pages are 2 MiB, \
                 and no request gets more than one.",
        ),
    );
    figures
}

fn notes(plan: &AvailabilityPlan) -> Vec<String> {
    let machines = plan.machines.iter().map(|machine| {
        let areas = machine.areas_mib.iter();
        let list: Vec<String> = areas.map(|(first, len)| format!("{len} at {first}")).collect();
        format!("{}, in MiB: {}.", machine.name, list.join(", "))
    });
    let units = format!(
        "One bit stands for {} frames of 4 KiB. Each request finds memory as those before it \
         left it; nothing is migrated.",
        plan.unit().frames(),
    );
    [units].into_iter().chain(machines).collect()
}

/// On the first machine; `found` is in the order of [`Candidate::ALL`].
fn claims(plan: &AvailabilityPlan, found: &[Found]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let of = |candidate: Candidate| {
        let at = Candidate::ALL.iter().position(|&other| other == candidate).unwrap_or(0);
        &found[at]
    };
    for (mib, count, expected) in PAPER {
        let row = RequestRow { mib, count };
        let Some(at) = plan.requests.iter().position(|&other| other == row) else { continue };
        for (candidate, expected) in COLUMNS.into_iter().zip(expected) {
            let served = of(candidate).rows[at] == count;
            let word = if expected { "served" } else { "not served" };
            let says = format!("{}, {}: {word}", row.title(), candidate.name());
            let figure = |served: bool| f64::from(u8::from(served));
            claims.push(Claim::exactly(TABLE, &says, figure(expected), figure(served)));
        }
    }
    let (baseline, ours) = (of(Candidate::Baseline), of(Candidate::PreAllocated));
    let ratio = |of: u64, to: u64| of as f64 / to.max(1) as f64;
    let says = "space utilization is increased by 2×: requests of 20 MiB, CLMalloc / Baseline";
    let claim = Claim::about("Abstract", says, 2.0, ratio(ours.served, baseline.served), 0.1);
    claims.push(claim.with_unit(Unit::Ratio).with_cause(
        "By the paper's own Table 2 it is 12 to 8. Twice as much is where a request is little \
         longer than an area; see the next row.",
    ));
    let best = ours.sizes.iter().zip(&baseline.sizes).zip(&plan.sizes_mib);
    let best = best.map(|((&of, &to), &mib)| (ratio(of, to), mib));
    let (ratio, mib) = best.fold((0.0, 0), |best, one| if one.0 > best.0 { one } else { best });
    let says = "space utilization is increased by nearly 2×: most over all sizes of requests";
    claims.push(
        Claim::about("Section 1", says, 2.0, ratio, 0.1)
            .with_unit(Unit::Ratio)
            .with_cause(&format!("For requests of {mib} MiB.")),
    );
    claims
}

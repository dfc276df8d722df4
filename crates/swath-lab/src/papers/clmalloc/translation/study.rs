//! Segment registers and IOMMUs timed on the same requests and the same memory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::clmalloc::areas::{AreasPlan, Mib};
use crate::papers::clmalloc::translation::load::{Load, Placed, place, transactions};
use crate::papers::clmalloc::translation::machine::Way;
use crate::papers::page_buddy::design::Scheme;
use crate::source::memory::random;
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms, Repeats};
use crate::study::claim::Statement;
use crate::study::grid::{CellView, Grid, Missing, Value, View, least};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::{Needs, bytes};
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};
use crate::study::verdict::Unit;

/// Segment registers beside IOMMUs.
pub struct SegmentTranslation;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TranslationPlan {
    /// Name, title, seed.
    pub about: Head,
    /// The machine.
    pub machine: AreasPlan,
    /// MiB of each segment.
    pub request_mib: Mib,
    /// Numbers of segments that the accelerator works on.
    pub segments: Ascending<Bounded<1, 64>>,
    /// Numbers of segment registers.
    pub registers: Ascending<Bounded<1, 1024>>,
    /// Entries in the TLB of each IOMMU.
    pub tlb_entries: Bounded<1, 1024>,
    /// The accelerator's work.
    pub loads: Distinct<Load>,
    /// Requests of 64 bytes in each run.
    pub requests: Forms<Bounded<1, 10_000_000>>,
    /// Number of seeds with which each point is measured.
    pub repeats: Forms<Repeats>,
}

crate::plan!(TranslationPlan, check);

fn check(plan: &TranslationPlan) -> Result<(), Refused> {
    plan.machine.check("machine")?;
    let end = plan.machine.areas().map(|(first, len)| first + len).max().unwrap_or(0);
    require(end <= 512, "machine.areas_mib", || {
        format!("memory up to {end} MiB, more than 512 below the tables")
    })?;
    let most = plan.segments.last().map_or(0, |count| count.get()) * plan.request_mib.get();
    let total = plan.machine.total_mib();
    require(most <= total, "segments", || format!("{most} of {total} MiB"))
}

/// The measurements: by load, number of segments and way of translation.
pub struct TranslationFound(Grid);

const LOAD: &str = "load";
const SEGMENTS: &str = "segments";
const WAY: &str = "translation";

const TIME: &str = "Time";
const READS: &str = "Reads";
const GROWING: &str = "Segments";

/// The ways of an IOMMU.
const SCHEMES: [Scheme; 4] = [Scheme::Trad, Scheme::Large, Scheme::Pcad, Scheme::At];

impl TranslationPlan {
    fn ways(&self) -> Vec<Way> {
        let registers = self.registers.iter().map(|count| Way::Registers(count.small()));
        let schemes = SCHEMES.map(|scheme| Way::Iommu(scheme, self.tlb_entries.small()));
        std::iter::once(Way::Map).chain(registers).chain(schemes).collect()
    }
}

impl Study for SegmentTranslation {
    const KIND: &'static str = "cl-translation";
    type Plan = TranslationPlan;
    type Found = TranslationFound;

    fn seeds(plan: &TranslationPlan, quick: bool) -> u64 {
        plan.repeats.of(quick).get()
    }

    fn needs(plan: &TranslationPlan, run: &Run<'_>) -> Needs {
        // Requests, and tables of eight bytes a page.
        let pages = plan.segments.last().map_or(0, |count| count.get()) * plan.request_mib.get();
        Needs::small()
            .each("requests", bytes(&[16, plan.requests.of(run.quick).get()]))
            .each("segments", bytes(&[16 * 256, pages]))
    }

    fn measure(plan: &TranslationPlan, run: &Run<'_>) -> Result<TranslationFound, StudyError> {
        let failed = |what: String| StudyError::Machine { study: plan.about.study.clone(), what };
        let mut placed: Vec<(u64, Placed)> = Vec::new();
        for count in plan.segments.iter().map(|count| count.get()) {
            let segments = place(&plan.machine, plan.request_mib.get(), count).map_err(failed)?;
            placed.push((count, segments));
        }
        let points: Vec<(Load, &(u64, Placed), Way)> = plan
            .loads
            .iter()
            .flat_map(|&load| placed.iter().map(move |placed| (load, placed)))
            .flat_map(|(load, placed)| plan.ways().into_iter().map(move |way| (load, placed, way)))
            .collect();
        let requests = plan.requests.of(run.quick).get();
        let grid = run.grid(
            &plan.about,
            &[LOAD, SEGMENTS, WAY],
            plan.repeats.of(run.quick).get(),
            &points,
            |(load, (count, _), way)| {
                vec![load.name().into(), (*count).into(), way.name().as_str().into()]
            },
            |(load, (_, placed), way), repeat| {
                let mut random = random(plan.about.seed, repeat);
                let requests = transactions(*load, &placed.segments, requests, &mut random);
                way.run(placed, &requests)
                    .map_err(|error| failed(format!("{}, {}: {error}", way.name(), load.name())))
            },
        )?;
        Ok(TranslationFound(grid))
    }

    fn claims(plan: &TranslationPlan, _: &Run<'_>) -> Vec<Statement<TranslationFound>> {
        claims(plan)
    }

    fn show(plan: &TranslationPlan, run: &Run<'_>, found: &TranslationFound) -> Shown {
        let figures = vec![
            by_load(plan, found, TIME, "cycles for each request", "cycles"),
            by_load(plan, found, READS, "of lists or tables for each request", "reads"),
            growing(plan, found),
        ];
        Shown { finding: finding(plan, found), figures, notes: notes(plan, run), host: None }
    }
}

/// The most segments of the plan.
fn most(plan: &TranslationPlan) -> u64 {
    plan.segments.last().map_or(0, |count| count.get())
}

fn by_load(
    plan: &TranslationPlan,
    found: &TranslationFound,
    id: &str,
    title: &str,
    metric: &'static str,
) -> Drawn {
    let count = most(plan);
    let title = format!("{title}, {count} segments of {} MiB", plan.request_mib);
    let figure = Figure::new(id, &title, FigureKind::Bars, "", metric);
    let series = plan.ways().into_iter().map(|way| {
        let points = found.0.points(
            LOAD,
            |all| all.is(SEGMENTS, count).is(WAY, way.name().as_str()),
            |cell| cell.get(metric),
        );
        Series::new(id, LOAD, metric, &way.name(), points)
    });
    let series = series.collect();
    Drawn { figure, series }
}

fn growing(plan: &TranslationPlan, found: &TranslationFound) -> Drawn {
    let load = plan.loads.iter().last().copied().unwrap_or(Load::Random);
    let title = format!("cycles for each request, {}, over the number of segments", load.name());
    let x = format!("segments of {} MiB", plan.request_mib);
    let figure = Figure::new(GROWING, &title, FigureKind::Lines, &x, "cycles");
    let series = plan.ways().into_iter().map(|way| {
        let of = |cell: &CellView<'_>| cell.get("cycles");
        let name = way.name();
        let points =
            found.0.points(SEGMENTS, |all| all.is(LOAD, load.name()).is(WAY, name.as_str()), of);
        Series::new(GROWING, SEGMENTS, "cycles", &name, points)
    });
    let series = series.collect();
    Drawn { figure, series }
}

/// The time that the segment map saves against another way, the least over all loads and numbers of
/// segments.
fn saved(view: &View<'_>, plan: &TranslationPlan, other: Way) -> Result<f64, Missing> {
    let ours = Way::Map.name();
    let loads = plan.loads.iter().map(|load| Value::from(load.name()));
    let counts = plan.segments.iter().map(|count| Value::from(count.get()));
    let cells = view.select().all(LOAD, loads).all(SEGMENTS, counts);
    let saved = cells.pairs(WAY, ours.as_str(), other.name().as_str(), |ours, other| {
        Ok(1.0 - ours.get("cycles")? / other.get("cycles")?)
    });
    Ok(least(&saved?))
}

fn finding(plan: &TranslationPlan, found: &TranslationFound) -> String {
    let of = |way: Way| {
        let saved = found.0.evidence(|view| saved(view, plan, way)).ok()?;
        Some(format!("{} {:.1}%", way.name(), 100.0 * saved.estimate().value))
    };
    let all: Vec<String> = SCHEMES
        .into_iter()
        .filter_map(|scheme| of(Way::Iommu(scheme, plan.tlb_entries.small())))
        .collect();
    format!(
        "Time that the segment map saves, the least over loads and numbers of segments, against {}.",
        all.join(", ")
    )
}

fn notes(plan: &TranslationPlan, run: &Run<'_>) -> Vec<String> {
    let placed: Vec<(u64, Placed)> = plan
        .segments
        .iter()
        .map(|count| count.get())
        .filter_map(|count| {
            Some((count, place(&plan.machine, plan.request_mib.get(), count).ok()?))
        })
        .collect();
    let extents = placed
        .iter()
        .map(|(count, placed)| format!("{count} are {} extents", placed.extents.len()));
    let registers = placed.first().map_or(0, |(_, placed)| placed.areas.len());
    vec![
        format!(
            "One accelerator, {} requests of 64 bytes in a run, before the memory of Duong and Hur's \
             Table 3; up to 16 are in flight. Segments of {} MiB are allocated one after the other \
             by CLMalloc: {}. All ways of translation get the same requests, and the data lie in \
             the same frames; list or tables lie behind them.",
            plan.requests.of(run.quick),
            plan.request_mib,
            extents.collect::<Vec<_>>().join(", "),
        ),
        format!(
            "The segment map has {registers} registers, one for each area, or for several that lie side by \
             side: \"different memory bars are still \
             continuous from the perspective of accelerators, and accelerators can access them through \
             the segment map\" (the paper, Section 4.1). The driver loads it when it starts the \
             accelerator, and no allocation changes it; but it shows the accelerator all of \
             memory, and protects nothing. Segment registers show it its own segments, a register for \
             each extent."
        ),
        format!(
            "An IOMMU has {} entries, fully associative, and ARMv7's tables of two levels; PCAD and \
             AT have fields wide enough for every extent. A lookup takes a cycle in all ways. A \
             miss of the registers reads the list by halves, an entry of 32 bytes a read. Nothing \
             passes a miss, and no way has a cache of descriptors.",
            plan.tlb_entries,
        ),
    ]
}

/// The paper's statement, which it gives without a number or a machine: taken for any time saved,
/// against each way of an IOMMU.
fn claims(plan: &TranslationPlan) -> Vec<Statement<TranslationFound>> {
    let claim = |scheme: Scheme| {
        let way = Way::Iommu(scheme, plan.tlb_entries.small());
        let says = format!(
            "direct access through segment mapping takes less time than through an IOMMU ({}): \
             time saved, the least over all loads",
            way.name()
        );
        let plan = plan.clone();
        Statement::at_least("Section 1", &says, 0.0, 0.0)
            .unit(Unit::Share)
            .cause(
                "The paper names no machine, load or number; all here are ours. The map never misses. Where \
                 the other's entries hold all that a load touches, what differs is the first access to \
                 each, a few hundred-thousandths of the time, and in which bank of the memory the two \
                 then meet.",
            )
            .measured(move |found: &TranslationFound| {
                found.0.evidence(|view| saved(view, &plan, way))
            })
    };
    SCHEMES.into_iter().map(claim).collect()
}

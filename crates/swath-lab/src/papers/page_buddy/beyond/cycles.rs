//! Large pages and demand paging once more, in the cycles of the timed system.
//!
//! The machine is that of the study `pbs-system`. The memory and its blocks are those of the hit
//! rates: on demand, frames are handed out in the order of the accesses side by side, whatever the
//! timed masters overtake. A walk that finds no page stands still until the page has come, so many
//! cycles later, and is then made anew.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::papers::page_buddy::beyond::demand::{
    PAGING, Paging, Placed, TURNS, Together, with_tables, workload,
};
use crate::papers::page_buddy::design::Design;
use crate::papers::page_buddy::design::tlb_kind::Bringing;
use crate::papers::page_buddy::fields::designs_of;
use crate::papers::page_buddy::savings::{DESIGN, LEVEL, WORKLOAD};
use crate::papers::page_buddy::setting::{BlockFrames, ContiguityBits, MachinePlan};
use crate::papers::page_buddy::timed::{SystemMachine, Timed, TimedSystem};
use crate::papers::page_buddy::translation::MeasureError;
use crate::papers::page_buddy::workload::{Shapes, WorkloadName};
use crate::source::memory::Random;
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms};
use crate::study::grid::{CellView, Evidence, Grid, Metrics, Missing, Value, View, mean, metrics};
use crate::study::kind::Drawn;
use crate::study::needs::bytes;
use crate::study::plan::Refused;
use crate::study::results::{Figure, FigureKind, Series};

/// The plan of this part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CyclesPlan {
    /// The machine between the masters and the memory.
    #[serde(default)]
    pub system: SystemMachine,
    /// Cycles from the walk that finds no page until the page has come.
    pub fault_cycles: Bounded<0, 10_000_000>,
    /// Contiguity fields that are measured beside the machine's own.
    pub fields: Distinct<ContiguityBits>,
    /// Large pages.
    pub large: CyclesLoad,
    /// Demand paging.
    pub demand: CyclesLoad,
    /// Programs at once under demand paging, each with buffers and masters of its own, whose
    /// frames come in step.
    pub programs: Forms<Distinct<Bounded<1, 4>>>,
}

/// The workloads of one part, and its memory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CyclesLoad {
    /// The workloads.
    pub workloads: Forms<Distinct<WorkloadName>>,
    /// Sizes of the free blocks.
    pub block_frames: Forms<Ascending<BlockFrames>>,
}

impl CyclesPlan {
    /// Refuses a machine that cannot be.
    pub(crate) fn check(&self, machine: &MachinePlan) -> Result<(), Refused> {
        self.fields.iter().try_for_each(|field| field.check("cycles.fields", machine.format))?;
        self.system.check("cycles.system.walks_max")
    }

    /// Returns each design with each field: TRAD, whose table tells of no contiguity, also with large
    /// pages, with the machine's own alone.
    pub(crate) fn with_fields<'d>(
        &self,
        machine: &MachinePlan,
        designs: &'d [Design],
    ) -> Vec<(&'d Design, ContiguityBits)> {
        let own = machine.contiguity_bits;
        let others = self.fields.iter().copied().filter(|&field| field != own);
        let fields = [own].into_iter().chain(others);
        let with = |field| {
            let designs =
                designs.iter().filter(move |design| field == own || design.scheme.tells());
            designs.map(move |design| (design, field))
        };
        fields.flat_map(with).collect()
    }

    /// The memory of one form.
    pub(crate) fn needs(&self, quick: bool) -> CyclesNeeds {
        let most = self.programs.of(quick).iter().map(|programs| programs.get()).max().unwrap_or(1);
        let mut needs = CyclesNeeds { accesses_bytes: 0, pages: 0 };
        let large = self.large.workloads.of(quick).iter().map(|name| (name, 1));
        let all = self.programs.of(quick).iter().map(|programs| programs.get());
        let demand = all.flat_map(|programs| {
            self.demand.workloads.of(quick).iter().map(move |name| (name, programs))
        });
        for (&name, programs) in large.chain(demand) {
            let workload = name.build(&Shapes::default());
            // A transaction of 16 bytes, while it is made too, beside the accesses side by side.
            let timed = bytes(&[32, workload.transactions_max(), programs]);
            let side_by_side = Together::needs_bytes(name, programs);
            needs.accesses_bytes =
                needs.accesses_bytes.saturating_add(timed).saturating_add(side_by_side);
            needs.pages = needs.pages.max(bytes(&[workload.pages(), most]));
        }
        needs
    }
}

/// What the runs in cycles take.
pub(crate) struct CyclesNeeds {
    /// Of all accesses, which are held at once.
    pub(crate) accesses_bytes: u64,
    /// The most pages of one run.
    pub(crate) pages: u64,
}

/// Programs side by side, and their masters.
pub(crate) struct TimedTogether {
    pub(crate) together: Together,
    pub(crate) timed: Timed,
}

impl TimedTogether {
    pub(crate) fn new(name: WorkloadName, programs: u64) -> Self {
        Self {
            together: Together::new(name, programs, 1),
            timed: Timed::new(&workload(name, programs)),
        }
    }
}

/// Measures a design on programs that run together, in this memory: the cycles of a run in which
/// the pages come, and of one more with all of them there.
///
/// # Errors
/// [`MeasureError`].
pub(crate) fn on_demand(
    plan: &CyclesPlan,
    system: &TimedSystem<'_>,
    (design, contiguity): (&Design, ContiguityBits),
    paging: Paging,
    TimedTogether { together, timed }: &TimedTogether,
    memory: (u64, f64, f64),
    random: &mut Random,
) -> Result<Metrics, MeasureError> {
    let placed = Placed::of(design, paging, together, memory, random)?;
    let hardware = &system.hardware_of(&plan.system, contiguity);
    with_tables(hardware, design, paging, together, &placed, |regime, memory, fault| {
        let run = |paging: Option<Bringing<'_>>| {
            let stats =
                system.run(&plan.system, timed, (design, regime), memory, paging, &mut |_| {})?;
            Ok::<_, MeasureError>(stats.total_cycles)
        };
        let mut coming = None;
        if paging.is_on_demand() {
            let mut came = vec![false; placed.windows.len()];
            let mut failed = Ok(());
            let mut bring = |address| {
                let Some(window) = placed.window_of(address) else { return false };
                if !std::mem::replace(&mut came[window], true) {
                    failed = fault(placed.blocks_of(window));
                }
                failed.is_ok()
            };
            let fault_cycles = plan.fault_cycles.small();
            let cycles = run(Some(swath_hw::system::Paging { fault_cycles, bring: &mut bring }));
            failed?;
            coming = Some(cycles?);
        }
        let there = run(None)?;
        let coming = coming.unwrap_or(there);
        Ok(metrics([("coming", coming as f64), ("there", there as f64)]))
    })
}

/// The mean over workloads of a design's cycles, those of another being 1.
fn to(grid: &Grid, level: Option<&Value>, design: &str, other: &str) -> Option<Evidence> {
    let ratio = |view: &View<'_>| {
        let cells = view.select();
        let cells = level.into_iter().fold(cells, |cells, level| cells.is(LEVEL, level.clone()));
        let of = |one: &CellView<'_>, two: &CellView<'_>| {
            Ok::<_, Missing>(one.get("cycles")? / two.get("cycles")?)
        };
        if design == other {
            return cells.is(DESIGN, design).numbers("cycles").map(|_| 1.0);
        }
        Ok(mean(&cells.pairs(DESIGN, design, other, of)?))
    };
    grid.evidence(ratio).ok()
}

/// The cycles with large pages over the sizes.
pub(crate) fn large_figures(grid: &Grid) -> Vec<Drawn> {
    let id = "Large pages, cycles";
    let workloads: Vec<String> = grid.values(WORKLOAD).iter().map(ToString::to_string).collect();
    let title = "TRAD with the format's large pages, mean over workloads";
    let x_label = "free block size (pages)";
    let figure = Figure::new(id, title, FigureKind::LinesLog2, x_label, "cycles (TRAD = 1)");
    let figure = figure.with_caption(&format!("{}.", workloads.join(", ")));
    let of = |design: &String| {
        let points = grid
            .values(LEVEL)
            .into_iter()
            .filter_map(|level| Some(to(grid, Some(level), design, "TRAD")?.point(level.clone())));
        Series::new(id, LEVEL, "cycles_to_trad", design, points.collect::<Vec<_>>())
    };
    vec![Drawn { figure, series: designs_of(grid).iter().map(of).collect() }]
}

/// The mean of a metric of demand paging over workloads and sizes, in millions.
fn millions(
    grid: &Grid,
    turns: &str,
    paging: &str,
    design: &str,
    metric: &str,
) -> Option<Evidence> {
    let found = |view: &View<'_>| {
        let cells = view.select().is(TURNS, turns).is(PAGING, paging).is(DESIGN, design);
        Ok(mean(&cells.numbers(metric)?) / 1e6)
    };
    grid.evidence(found).ok()
}

/// The cycles under each way of paging.
pub(crate) fn demand_figures(pagings: &[Paging], fault_cycles: u64, grid: &Grid) -> Vec<Drawn> {
    let mut figures = Vec::new();
    for turns in grid.values(TURNS).iter().map(ToString::to_string) {
        for (id, title, metric) in [
            ("Demand paging, cycles", "once all pages are there", "there"),
            ("First touches, cycles", "while the pages come", "coming"),
        ] {
            let id = &format!("{id}, {turns}");
            let title = format!("mean over workloads and block sizes, {title}");
            let y_label = "execution (million cycles)";
            let figure = Figure::new(id, &title, FigureKind::Bars, "pages of a fault", y_label);
            let caption =
                format!("A page comes {fault_cycles} cycles after the walk that misses it.");
            let series = |design: &str| {
                let points = pagings.iter().map(|paging| paging.title()).filter_map(|paging| {
                    let found = millions(grid, &turns, &paging, design, metric)?;
                    Some(found.point(paging.as_str()))
                });
                Series::new(id, PAGING, "cycles_millions", design, points.collect::<Vec<_>>())
            };
            let series = designs_of(grid).iter().map(|design| series(design)).collect();
            figures.push(Drawn { figure: figure.with_caption(&caption), series });
        }
    }
    figures
}

/// The finding in two sentences.
pub(crate) fn finding(large: &Grid, demand: &Grid) -> String {
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", 100.0 * share))
    };
    let saved = |design: &str, level: u64| {
        let found = to(large, Some(&level.into()), design, "TRAD");
        percent(found.map(|found| 1.0 - found.estimate().value))
    };
    let large_at = |level| {
        let [large, pcad, pbs] =
            ["TRAD, large pages", "PCAD", "PBS"].map(|design| saved(design, level));
        format!("{large} on free blocks of {level} pages (PCAD {pcad}, PBS {pbs})")
    };
    let turns: Vec<String> = demand.values(TURNS).iter().map(ToString::to_string).collect();
    let pbs_saves = |turns: &str, paging: Paging, metric| {
        let of = |design| millions(demand, turns, &paging.title(), design, metric);
        let [pbs, pcad] = ["PBS", "PCAD"].map(|design| of(design).map(|one| one.estimate().value));
        percent(pbs.zip(pcad).map(|(pbs, pcad)| 1.0 - pbs / pcad))
    };
    let said = |turns: &String| {
        let page = Paging::Demand { around: 1, joined: true };
        format!(
            "{turns}: {} with pages that came one by one and were joined ({} while they come), {} eager",
            pbs_saves(turns, page, "there"),
            pbs_saves(turns, page, "coming"),
            pbs_saves(turns, Paging::Eager { joined: false }, "there"),
        )
    };
    let demand: Vec<String> = turns.iter().map(said).collect();
    format!(
        "In cycles large pages save TRAD {} and {}. Of PCAD's cycles PBS saves, with {}.",
        large_at(16),
        large_at(256),
        demand.join("; with ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::page_buddy::dram::DramPlan;
    use crate::papers::page_buddy::setting::MachinePlan;
    use crate::papers::page_buddy::timed::{Point, hardware};
    use crate::source::memory::random;

    fn part<T: serde::de::DeserializeOwned>(name: &str) -> T {
        let plan: toml::Table = toml::from_str(include_str!("beyond.toml")).unwrap();
        plan[name].clone().try_into().unwrap()
    }

    /// Eager paging is the run of the study `pbs-system`, and a fault takes its cycles.
    #[test]
    fn pages_that_are_there_take_what_they_took_and_a_fault_its_cycles() {
        let (plan, machine): (CyclesPlan, MachinePlan) = (part("cycles"), part("machine"));
        let memory = DramPlan::default().memory().unwrap();
        let hardware = hardware(&machine, &memory);
        let system = TimedSystem {
            study: "pbs-beyond",
            seed: 1,
            hardware: &hardware,
            hierarchy: None,
            free_per_requested: 1.2,
            free_share: 0.25,
            real: None,
            memory: &memory,
            record_commands: false,
        };
        let one = TimedTogether::new(WorkloadName::RotatedDisplay, 1);
        let designs = Design::all(machine.bbs().unwrap(), machine.pbs().unwrap());
        let design = designs.iter().find(|design| design.name == "PBS").unwrap();
        let run = |plan: &CyclesPlan, field, paging| {
            let (memory, mut random) = ((16, 1.2, 0.25), random(1, 0));
            on_demand(plan, &system, (design, field), paging, &one, memory, &mut random).unwrap()
        };
        let pbs = std::slice::from_ref(design);
        let fields = plan.with_fields(&machine, pbs);
        assert_eq!(fields.len(), 3);
        for (design, contiguity) in fields {
            let eager = run(&plan, contiguity, Paging::Eager { joined: false });
            let (machine, timed) = (&plan.system, &one.timed);
            let point = Point { machine, timed, block_frames: 16, design, contiguity };
            let cycles = system.cycles(point, 0).unwrap() as f64;
            assert_eq!(eager, metrics([("coming", cycles), ("there", cycles)]));
        }
        let own = machine.contiguity_bits;
        let of = |fault_cycles| {
            let plan = CyclesPlan { fault_cycles, ..plan.clone() };
            let found = run(&plan, own, Paging::Demand { around: 16, joined: true });
            [found[0].1, found[1].1]
        };
        let [short, long] = [400, 20_400].map(|cycles| of(Bounded::new(cycles).unwrap()));
        assert_eq!(short[1], long[1], "what is there does not depend on how it came");
        // 900 pages in windows of 16.
        let faults = (long[0] - short[0]) / 20_000.0;
        assert!((faults - 57.0).abs() < 0.5 && short[0] > short[1], "{faults} faults");
    }
}

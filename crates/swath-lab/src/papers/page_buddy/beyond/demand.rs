//! Demand paging: pages that are allocated when they are first touched.
//!
//! Section IV-G has the requested size fixed at one then, and section V-A adds that the pages of a
//! block "need to be split to multiple TLB entries potentially due to the limitation of the PCAD TLB
//! coalescing scheme"; its figures are of eager paging alone. Here the masters' accesses go on side
//! by side in turns, each in proportion to its length, and the first to touch a page that is not there brings
//! the aligned pages around it, as many as the plan says, from the allocator to the table. Two
//! readings of the limitation: **split**, where what is mapped at one fault is a block for ever, and
//! **joined**, where the descriptors of all pages whose frames go on are written anew at each fault.
//!
//! The accesses are made twice: once while the pages come, once with all of them there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;

use swath_arch::{Attributes, Extent, PageRange, Regime, SliceMemory, VirtAddr, Vpn};
use swath_frame::{BuddyConfig, FrameAllocator};
use swath_hw::{TlbOutcome, TranslationFault};
use swath_vm::AddressSpace;

use crate::papers::page_buddy::design::Design;
use crate::papers::page_buddy::design::tlb_kind::WithoutTime;
use crate::papers::page_buddy::savings::DESIGN;
use crate::papers::page_buddy::setting::BlockFrames;
use crate::papers::page_buddy::translation::{
    Accesses, Hardware, MeasureError, Program, failed, room_below, serve, table_extent,
};
use crate::papers::page_buddy::workload::{Shapes, Workload, WorkloadName};
use crate::source::memory::{Allocator, Random, Source, new_allocator};
use crate::study::bounds::{Ascending, Bounded, Distinct, Forms};
use crate::study::grid::{CellView, Grid, Metrics, Missing, View, mean, metrics};
use crate::study::kind::Drawn;
use crate::study::plan::{Refused, require};
use crate::study::results::{Figure, FigureKind, Series};

/// The plan of this part.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemandPlan {
    /// The workloads.
    pub workloads: Forms<Distinct<WorkloadName>>,
    /// Number of programs at once, each with buffers and masters of its own, and the transactions
    /// that a master makes in its turn: with one, all go on in step.
    pub together: Forms<Distinct<(Bounded<1, 64>, Bounded<1, { 1 << 20 }>)>>,
    /// Pages that a fault brings: powers of two up to 256.
    pub fault_around: Ascending<Bounded<1, 256>>,
    /// Sizes of the free blocks.
    pub block_frames: Forms<Ascending<BlockFrames>>,
}

impl DemandPlan {
    /// Refuses windows that are no power of two.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        self.fault_around.iter().try_for_each(|pages| {
            require(pages.get().is_power_of_two(), "demand.fault_around", || {
                format!("{pages} is not a power of two")
            })
        })
    }
}

/// The time at which pages come, and what is said of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paging {
    /// Whole requests before the first access.
    Eager { joined: bool },
    /// At the first touch, so many pages at once.
    Demand { around: u64, joined: bool },
}

impl Paging {
    pub(crate) fn all(plan: &DemandPlan) -> Vec<Self> {
        let mut all = Vec::new();
        for around in plan.fault_around.iter().map(|pages| pages.get()) {
            all.extend([false, true].map(|joined| Self::Demand { around, joined }));
        }
        all.extend([false, true].map(|joined| Self::Eager { joined }));
        all
    }

    pub(crate) fn title(self) -> String {
        let said = if self.is_joined() { "joined" } else { "split" };
        match self {
            Self::Eager { .. } => format!("eager, {said}"),
            Self::Demand { around: 1, .. } => format!("1 page, {said}"),
            Self::Demand { around, .. } => format!("{around} pages, {said}"),
        }
    }

    /// Returns true if pages come when they are touched.
    pub(crate) const fn is_on_demand(self) -> bool {
        matches!(self, Self::Demand { .. })
    }

    const fn is_joined(self) -> bool {
        match self {
            Self::Eager { joined } | Self::Demand { joined, .. } => joined,
        }
    }
}

/// Programs side by side.
pub(crate) struct Together {
    pub(crate) name: &'static str,
    /// How they run, in words.
    pub(crate) turns: String,
    program: Program,
    /// Each access with its master's number.
    accesses: Vec<(u32, VirtAddr)>,
}

/// A workload of so many programs, each with buffers and masters of its own.
pub(crate) fn workload(name: WorkloadName, programs: u64) -> Workload {
    let one = name.build(&Shapes::default());
    let mut all = Workload { buffers: Vec::new(), masters: Vec::new(), ..one };
    for _ in 0..programs {
        let first = all.buffers.len();
        all.buffers.extend(&one.buffers);
        all.masters.extend(one.masters.iter().map(|master| master.moved(first)));
    }
    all
}

/// How so many programs run, in words.
fn turns(programs: u64, turn: u64) -> String {
    match (programs, turn) {
        (1, 1) => "one program".to_owned(),
        (1, turn) => format!("one program, turns of {turn}"),
        (more, 1) => format!("{more} programs in step"),
        (more, turn) => format!("{more} programs, turns of {turn}"),
    }
}

impl Together {
    pub(crate) fn new(name: WorkloadName, programs: u64, turn: u64) -> Self {
        let mut program = Program::of(&workload(name, programs));
        let masters = std::mem::take(&mut program.masters);
        let listed: Vec<Vec<VirtAddr>> = masters
            .into_iter()
            .filter_map(|master| match master {
                Accesses::Listed(addresses) => Some(addresses),
                Accesses::Recorded { .. } => None,
            })
            .collect();
        let accesses = interleaved(&listed, turn);
        Self { name: name.title(), turns: turns(programs, turn), program, accesses }
    }

    /// Bytes of its accesses, also while they are made.
    pub(crate) fn needs_bytes(name: WorkloadName, programs: u64) -> u64 {
        name.build(&Shapes::default())
            .transactions_max()
            .saturating_mul(programs.saturating_mul(32))
    }

    /// Its windows of `around` pages in the order in which they are first touched; the requests if
    /// nothing is allocated on demand.
    fn windows(&self, paging: Paging) -> Vec<PageRange> {
        let Paging::Demand { around, .. } = paging else { return self.program.requests.clone() };
        let base = self.program.requests.first().map_or(0, |first| first.start.raw());
        let end = self.program.requests.last().map_or(0, |last| last.end().raw());
        let mut seen = vec![false; ((end - base) / around + 1) as usize];
        let mut windows = Vec::new();
        for &(_, address) in &self.accesses {
            let window = (address.page().raw() - base) / around;
            if std::mem::replace(&mut seen[window as usize], true) {
                continue;
            }
            let pages = PageRange::new(Vpn::new(base + window * around), around);
            let request = self.program.requests.iter().find(|request| request.overlaps(pages));
            windows.extend(request.map(|request| {
                let end = pages.end().min(request.end());
                PageRange::new(pages.start, end - pages.start)
            }));
        }
        windows
    }
}

/// The accesses of all masters, of each in proportion to its length.
fn interleaved(masters: &[Vec<VirtAddr>], turn: u64) -> Vec<(u32, VirtAddr)> {
    let longest = masters.iter().map(Vec::len).max().unwrap_or(0);
    let turn = usize::try_from(turn).unwrap_or(longest).max(1);
    let mut all = Vec::with_capacity(masters.iter().map(Vec::len).sum());
    let mut done = vec![0; masters.len()];
    for nth in 1..=longest.div_ceil(turn) {
        for (number, master) in (0..).zip(masters) {
            let due = master.len() * (nth * turn).min(longest) / longest;
            let done = &mut done[number as usize];
            all.extend(master[*done..due].iter().map(|&address| (number, address)));
            *done = due;
        }
    }
    all
}

/// The frames of programs that run together.
pub(crate) struct Placed {
    /// The pages of each fault, in the order of the first touches; the requests of eager paging.
    pub(crate) windows: Vec<PageRange>,
    /// The blocks that each brings.
    faults: Vec<Vec<(Vpn, Extent)>>,
    /// All blocks, joined.
    runs: Vec<(Vpn, Extent)>,
}

impl Placed {
    /// Asks an allocator for the frames of each window, in their order.
    fn new(
        allocator: &mut dyn FrameAllocator,
        windows: Vec<PageRange>,
    ) -> Result<Self, MeasureError> {
        let serve = |window: &PageRange| serve(*window, allocator);
        let faults: Vec<_> = windows.iter().map(serve).collect::<Result<_, _>>()?;
        let runs = joined(faults.iter().flatten().copied());
        Ok(Self { windows, faults, runs })
    }

    /// Asks the allocator of a design in this memory, as `measure` does.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub(crate) fn of(
        design: &Design,
        paging: Paging,
        together: &Together,
        (block_frames, free_per_requested, free_share): (u64, f64, f64),
        random: &mut Random,
    ) -> Result<Self, MeasureError> {
        let source: Source<'_> =
            together.program.scattered(block_frames, free_per_requested, free_share);
        Self::new(design.frames.over(&source, random)?.as_mut(), together.windows(paging))
    }

    /// Returns the number of the window that holds an address. O(windows).
    pub(crate) fn window_of(&self, address: VirtAddr) -> Option<usize> {
        self.windows.iter().position(|window| window.contains(address.page()))
    }

    /// Returns the blocks of a window.
    pub(crate) fn blocks_of(&self, window: usize) -> &[(Vpn, Extent)] {
        &self.faults[window]
    }
}

/// Blocks joined where pages and frames go on, ascending.
fn joined(blocks: impl Iterator<Item = (Vpn, Extent)>) -> Vec<(Vpn, Extent)> {
    let mut blocks: Vec<(Vpn, Extent)> = blocks.collect();
    blocks.sort_unstable_by_key(|(page, _)| *page);
    let mut runs: Vec<(Vpn, Extent)> = Vec::new();
    for (page, block) in blocks {
        match runs.last_mut() {
            Some((first, run)) if *first + run.count == page && run.end() == block.start => {
                run.count += block.count;
            }
            _ => runs.push((page, block)),
        }
    }
    runs
}

/// The hits of one pass over all accesses.
struct Passes {
    first: u64,
    second: u64,
}

/// Measures a design on programs that run together, in this memory.
///
/// # Errors
/// [`MeasureError`].
pub(crate) fn measure(
    hardware: &Hardware,
    design: &Design,
    paging: Paging,
    together: &Together,
    memory: (u64, f64, f64),
    random: &mut Random,
) -> Result<Metrics, MeasureError> {
    let hardware = &hardware.under(design);
    let placed = Placed::of(design, paging, together, memory, random)?;
    let passes = translate(hardware, design, paging, together, &placed)?;
    let runs = &placed.runs;
    let pages = runs.iter().map(|(_, run)| run.count).sum::<u64>();
    let accesses = together.accesses.len().max(1) as f64;
    Ok(metrics([
        ("coming", passes.first as f64 / accesses),
        ("there", passes.second as f64 / accesses),
        ("run_pages", pages as f64 / runs.len().max(1) as f64),
    ]))
}

/// Tables of programs that run together, under a way of paging: hands over what the hardware is told,
/// physical memory, and what maps the blocks of one more fault. Of eager paging all is mapped.
///
/// # Errors
/// [`MeasureError`], or that of `run`.
pub(crate) fn with_tables<T>(
    hardware: &Hardware,
    design: &Design,
    paging: Paging,
    together: &Together,
    placed: &Placed,
    run: impl FnOnce(
        Regime,
        &SliceMemory<'_>,
        &mut dyn FnMut(&[(Vpn, Extent)]) -> Result<(), MeasureError>,
    ) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let map_error = |error: &dyn std::fmt::Display| MeasureError::Map(error.to_string());
    let hardware = &hardware.under(design);
    let join = paging.is_joined();
    let blocks: Vec<(Vpn, Extent)> = placed.faults.iter().flatten().copied().collect();
    let coalescing = hardware.coalescing(design.scheme, if join { &placed.runs } else { &blocks });
    let extent = table_extent(hardware.frames, &together.program.requests);
    room_below(extent, &blocks)?;
    let mut words = vec![0; extent.count as usize * 512];
    let memory = SliceMemory::new(extent.start, &mut words);
    let tables: RefCell<Allocator> = RefCell::new(new_allocator(extent, BuddyConfig::BBS, true)?);
    let mut space = AddressSpace::new(hardware.format, coalescing, &memory, &tables, &tables)
        .map_err(|error| map_error(&error))?;
    let regime = space.regime();
    let mut fault = |blocks: &[(Vpn, Extent)]| {
        for &(page, block) in blocks {
            space.map(page, block, Attributes::USER_DATA).map_err(|error| map_error(&error))?;
            if join {
                space.join_blocks(page).map_err(|error| map_error(&error))?;
            }
        }
        Ok::<(), MeasureError>(())
    };
    if !paging.is_on_demand() {
        placed.faults.iter().try_for_each(|blocks| fault(blocks))?;
    }
    run(regime, &memory, &mut fault)
}

fn translate(
    hardware: &Hardware,
    design: &Design,
    paging: Paging,
    together: &Together,
    placed: &Placed,
) -> Result<Passes, MeasureError> {
    with_tables(hardware, design, paging, together, placed, |regime, memory, fault| {
        let mut coming = placed.faults.iter().filter(|_| paging.is_on_demand());
        let masters =
            together.accesses.iter().map(|access| access.0).max().map_or(0, |last| last + 1);
        let mmu = |_| -> Result<Box<dyn WithoutTime>, MeasureError> {
            match &design.tlb {
                Some(own) => own.without_time(regime, hardware.tlb).map_err(failed),
                None => match hardware.mmu(regime) {
                    Ok(mmu) => Ok(Box::new(mmu)),
                    Err(error) => Err(failed(error)),
                },
            }
        };
        let mut mmus = (0..masters).map(mmu).collect::<Result<Vec<_>, _>>()?;
        let mut pass = || {
            let mut hits = 0;
            for &(master, address) in &together.accesses {
                let mmu = &mut mmus[master as usize];
                let mut access = mmu.access(address, memory);
                if let Err(TranslationFault::Translation { .. }) = access
                    && let Some(blocks) = coming.next()
                {
                    fault(blocks)?;
                    access = mmu.access(address, memory);
                }
                let outcome = access.map_err(failed)?.outcome;
                hits += u64::from(matches!(outcome, TlbOutcome::Hit(_)));
            }
            Ok::<u64, MeasureError>(hits)
        };
        let (first, second) = (pass()?, pass()?);
        Ok(Passes { first, second })
    })
}

pub(crate) const TURNS: &str = "programs";
pub(crate) const PAGING: &str = "paging";

/// The mean of a metric over workloads and block sizes.
fn of(
    grid: &Grid,
    turns: &str,
    paging: &str,
    design: &str,
    metric: impl Fn(&CellView<'_>) -> Result<f64, Missing>,
) -> Option<crate::study::grid::Evidence> {
    let found = grid.evidence(|view: &View<'_>| {
        let cells = view.select().is(TURNS, turns).is(PAGING, paging).is(DESIGN, design);
        Ok(mean(&cells.each(&metric)?))
    });
    found.ok()
}

/// The hit rates while pages come and once they are there, and what is contiguous.
pub(crate) fn figures(plan: &DemandPlan, grid: &Grid) -> Vec<Drawn> {
    let mut figures = Vec::new();
    let pagings: Vec<String> = Paging::all(plan).into_iter().map(Paging::title).collect();
    let hit_rate = "TLB hit rate (share of accesses)";
    for turns in grid.values(TURNS).iter().map(ToString::to_string) {
        let kinds = [
            ("Demand paging", "once all pages are there", hit_rate, "tlb_hit_rate", "there"),
            ("First touches", "while the pages come", hit_rate, "tlb_hit_rate", "coming"),
            ("Runs", "on demand", "pages in a run of the table", "run_pages", "run_pages"),
        ];
        for (id, title, y_label, y, metric) in kinds {
            let id = &format!("{id}, {turns}");
            let title = format!("mean over workloads and block sizes, {title}");
            let figure = Figure::new(id, &title, FigureKind::Bars, "pages of a fault", y_label);
            let rate = y == "tlb_hit_rate";
            let figure = if rate { figure.with_y_range(0.0, 1.0) } else { figure };
            let series = |design: &str| {
                let points = pagings.iter().filter_map(|paging| {
                    let found = of(grid, &turns, paging, design, |cell| cell.get(metric))?;
                    Some(found.point(paging.as_str()))
                });
                Series::new(id, PAGING, y, design, points.collect::<Vec<_>>())
            };
            // Of runs there are as many as the allocator makes.
            let same = |design: &String| !rate && ["TRAD", "AT"].contains(&design.as_str());
            let mut designs: Vec<String> =
                grid.values(DESIGN).iter().map(ToString::to_string).collect();
            designs.retain(|design| !same(design));
            figures.push(Drawn { figure, series: designs.iter().map(|one| series(one)).collect() });
        }
    }
    figures
}

/// The finding in a few sentences.
pub(crate) fn finding(grid: &Grid) -> String {
    let gain = |turns: &str, paging: Paging| {
        let rate = |design| of(grid, turns, &paging.title(), design, |cell| cell.get("there"));
        let [pbs, other] =
            ["PBS", "PCAD"].map(|design| rate(design).map(|one| one.estimate().value));
        pbs.zip(other).map_or_else(
            || "-".to_owned(),
            |(pbs, other)| format!("{:.1}%", 100.0 * (pbs / other - 1.0)),
        )
    };
    let fault = |around, joined| Paging::Demand { around, joined };
    let said = |turns: &String| {
        let of = |paging| gain(turns, paging);
        let [split, joined] = [false, true].map(|joined| of(fault(1, joined)));
        let [eager, eager_joined] = [false, true].map(|joined| of(Paging::Eager { joined }));
        format!(
            "{turns}: {split} page by page and split, {joined} joined, where eager paging has \
             {eager} and {eager_joined}"
        )
    };
    let turns: Vec<String> = grid.values(TURNS).iter().map(ToString::to_string).collect();
    let all: Vec<String> = turns.iter().map(said).collect();
    format!("On demand PBS gains over PCAD in the mean, with {}.", all.join("; with "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::RngExt;
    use swath_arch::Format;

    use super::*;
    use crate::papers::page_buddy::setting::ContiguityBits;
    use crate::source::memory::random;

    fn addresses(pages: &[u64]) -> Vec<VirtAddr> {
        pages.iter().map(|&page| Vpn::new(page).address()).collect()
    }

    #[test]
    fn masters_go_on_in_proportion() {
        let all = [addresses(&[1, 2, 3, 4]), addresses(&[5, 6])];
        let pages = |turn| {
            let all = interleaved(&all, turn).into_iter();
            all.map(|(master, address)| (master, address.page().raw())).collect::<Vec<_>>()
        };
        assert_eq!(pages(1), [(0, 1), (0, 2), (1, 5), (0, 3), (0, 4), (1, 6)]);
        assert_eq!(pages(3), [(0, 1), (0, 2), (0, 3), (1, 5), (0, 4), (1, 6)]);
        assert_eq!(pages(9), [(0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (1, 6)]);
    }

    /// Two requests, touched at random by two masters.
    fn small(random: &mut Random) -> Together {
        let requests = [(0x1000, 90), (0x1100, 37)];
        let requests = requests.map(|(start, count)| PageRange::new(Vpn::new(start), count));
        let mut access = || {
            let request = requests[random.random_range(0..2)];
            let page = request.start + random.random_range(0..request.count);
            (random.random_range(0..2), page.address())
        };
        let accesses = (0..2000).map(|_| access()).collect();
        let program = Program { requests: requests.to_vec(), masters: Vec::new() };
        Together { name: "small", turns: turns(1, 1), program, accesses }
    }

    /// A list of entries in the order of their use for each TLB, and a map of what is mapped.
    fn naive(
        together: &Together,
        paging: Paging,
        coalesces: bool,
        placed: &[Vec<(Vpn, Extent)>],
        entries_max: usize,
    ) -> (u64, u64) {
        // By page its frame and its block as it was mapped.
        let mut mapped: BTreeMap<u64, (u64, (u64, u64))> = BTreeMap::new();
        let mut coming = placed.iter();
        let map = |mapped: &mut BTreeMap<_, _>, blocks: &[(Vpn, Extent)]| {
            for (page, block) in blocks {
                let first = page.raw();
                for i in 0..block.count {
                    let said = (block.start.raw() + i, (first, first + block.count));
                    assert_eq!(mapped.insert(first + i, said), None, "mapped twice");
                }
            }
        };
        if matches!(paging, Paging::Eager { .. }) {
            coming.by_ref().for_each(|blocks| map(&mut mapped, blocks));
        }
        let joined = paging.is_joined();
        let mut tlbs = vec![Vec::<(u64, u64)>::new(); 2];
        let mut pass = || {
            let mut hits = 0;
            for (master, address) in &together.accesses {
                let (tlb, page) = (&mut tlbs[*master as usize], address.page().raw());
                if let Some(at) = tlb.iter().position(|one| (one.0..one.1).contains(&page)) {
                    let entry = tlb.remove(at);
                    tlb.push(entry);
                    hits += 1;
                    continue;
                }
                if !mapped.contains_key(&page) {
                    map(&mut mapped, coming.next().unwrap());
                }
                let (frame, block) = mapped[&page];
                let goes_on = |other: u64| {
                    let found = mapped.get(&other);
                    found.is_some_and(|one| one.0.wrapping_sub(other) == frame.wrapping_sub(page))
                };
                let run = (
                    (0..page).rev().find(|&other| !goes_on(other)).unwrap() + 1,
                    (page..).find(|&other| !goes_on(other)).unwrap(),
                );
                if tlb.len() == entries_max {
                    tlb.remove(0);
                }
                tlb.push(match (coalesces, joined) {
                    (false, _) => (page, page + 1),
                    (true, false) => block,
                    (true, true) => run,
                });
            }
            hits
        };
        (pass(), pass())
    }

    /// Every paging with and without coalescing, on random touches, against lists.
    #[test]
    fn hits_are_those_of_lists() {
        let entries = 6;
        let hardware = Hardware::new(Format::ArmV7, entries, ContiguityBits::Ideal(16));
        let designs = Design::all(BuddyConfig::BBS, BuddyConfig::PBS_ARMV7);
        for seed in 0..6 {
            let mut random = random(seed, 0);
            let together = small(&mut random);
            for around in [1, 4, 16] {
                for paging in [
                    Paging::Eager { joined: false },
                    Paging::Eager { joined: true },
                    Paging::Demand { around, joined: false },
                    Paging::Demand { around, joined: true },
                ] {
                    let windows = together.windows(paging);
                    let pages: u64 = windows.iter().map(|window| window.count).sum();
                    assert_eq!(pages, 127, "every page comes once");
                    for design in [&designs[0], &designs[1], &designs[3]] {
                        let source = together.program.scattered(8, 1.2, 0.25);
                        let mut allocator = design.frames.over(&source, &mut random).unwrap();
                        let placed = Placed::new(allocator.as_mut(), windows.clone()).unwrap();
                        let found = translate(&hardware, design, paging, &together, &placed);
                        let found = found.unwrap();
                        let pcad = design.name != "TRAD";
                        let expected =
                            naive(&together, paging, pcad, &placed.faults, entries as usize);
                        let place = format!("seed {seed}, {}, {}", paging.title(), design.name);
                        assert_eq!((found.first, found.second), expected, "{place}");
                    }
                }
            }
        }
    }
}

//! The worked examples: Fig. 2, 3, 5, 6, 7, 8 and Table 2 of Duong and Hur.
//!
//! Each layout is allocated from, mapped and walked for real; every number of
//! the paper holds exactly or not at all.

use std::cell::RefCell;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use swath_arch::{
    Attributes, Coalescing, Extent, Format, PageRange, Pfn, SliceMemory, VirtAddr, Vpn,
};
use swath_frame::BuddyConfig;
use swath_hw::walk;
use swath_vm::AddressSpace;

use crate::papers::page_buddy::design::compared::added;
use crate::papers::page_buddy::design::{AddedFrames, Design, DesignFrames, Scheme};
use crate::papers::page_buddy::setting::ContiguityBits;
use crate::papers::page_buddy::translation::{Accesses, Hardware, Program, measure};
use crate::source::memory::{Allocator, Source, new_allocator, random};
use crate::study::bounds::Bounded;
use crate::study::claim::{Conditions, Statement};
use crate::study::grid::{Grid, Metrics, metrics};
use crate::study::kind::{Drawn, Shown, Study};
use crate::study::needs::Needs;
use crate::study::plan::{Head, Refused, require};
use crate::study::results::{Figure, FigureKind, Series};
use crate::study::run::{Run, StudyError};

/// The worked examples, every number of them.
pub struct Cases;

/// The plan.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CasesPlan {
    /// Name, title, seed.
    pub about: Head,
    /// Free frames of each of Fig. 8's cases.
    pub fig_8: Fig8,
}

/// Free frames: the first, and their number.
pub type FreeRange = (Bounded<0, 65_536>, Bounded<1, 65_536>);

/// The layouts of Fig. 8, which the paper draws; its text gives the numbers of
/// ranges and of free pages.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fig8 {
    /// Frames requested.
    pub request_frames: u64,
    /// Case (a): two aligned ranges.
    pub a: Vec<FreeRange>,
    /// Case (b): two ranges.
    pub b: Vec<FreeRange>,
    /// Case (c): four ranges.
    pub c: Vec<FreeRange>,
    /// Case (d): three ranges.
    pub d: Vec<FreeRange>,
}

impl Fig8 {
    /// The cases by name.
    fn cases(&self) -> [(&'static str, &Vec<FreeRange>); 4] {
        [("(a)", &self.a), ("(b)", &self.b), ("(c)", &self.c), ("(d)", &self.d)]
    }
}

crate::plan!(CasesPlan, check);

fn check(plan: &CasesPlan) -> Result<(), Refused> {
    let requested = plan.fig_8.request_frames;
    for (name, ranges) in plan.fig_8.cases() {
        let key = format!("fig_8.{}", name.trim_matches(['(', ')']));
        let (mut end, mut free) = (0, 0);
        for (start, count) in ranges {
            require(start.get() >= end, &key, || format!("the range at {start} is out of order"))?;
            end = start.get() + count.get();
            free += count.get();
        }
        require((1..=free).contains(&requested), "fig_8.request_frames", || {
            format!("{requested} of {free} free frames in case {name}")
        })?;
    }
    Ok(())
}

const EXAMPLE: &str = "example";
const DESIGN: &str = "design";

/// The columns of Table 2.
const TRAD: &str = "BBS + Trad.";
const PCAD: &str = "BBS + PCAD";
const PBS: &str = "PBS + PCAD";

const FIVE: &str = "Fig. 3 and 5";
const ARM_V7: &str = "Fig. 6, ARMv7";
const ARM_V8: &str = "Fig. 6, ARMv8";
const FIG_7: &str = "Fig. 7";
const TABLE_2: [&str; 4] = ["(a)", "(b)", "(c)", "(d)"];

/// A request in a layout of free frames.
struct CaseLayout {
    name: &'static str,
    free: Vec<Extent>,
    /// The pages to which the request is mapped.
    pages: PageRange,
    format: Format,
    pbs: BuddyConfig,
}

impl CaseLayout {
    fn new(name: &'static str, free: Vec<Extent>, first_page: u64, pages: u64) -> Self {
        let pages = PageRange::new(Vpn::new(first_page), pages);
        Self { name, free, pages, format: Format::ArmV7, pbs: BuddyConfig::PBS_ARMV7 }
    }

    /// All of them.
    fn all(plan: &CasesPlan) -> Vec<Self> {
        let range = |start, count| vec![Extent::new(Pfn::new(start), count)];
        let mut layouts = vec![
            Self::new(FIVE, range(16, 6), 4, 5),
            Self::new(ARM_V7, range(1, 256), 0x100, 256),
            Self {
                format: Format::ArmV8,
                pbs: BuddyConfig::PBS_ARMV8,
                ..Self::new(ARM_V8, range(1, 256), 0x100, 256)
            },
        ];
        layouts.extend(plan.fig_8.cases().map(|(name, ranges)| {
            let extent =
                |&(start, count): &FreeRange| Extent::new(Pfn::new(start.get()), count.get());
            let free = ranges.iter().map(extent).collect();
            Self::new(name, free, 0x100, plan.fig_8.request_frames)
        }));
        layouts
    }

    /// The columns of Table 2, then the designs that other crates added.
    fn designs(&self) -> Vec<Design> {
        let design = |name, orders, scheme| Design::new(name, DesignFrames::Buddy(orders), scheme);
        let columns = [
            design(TRAD, BuddyConfig::BBS, Scheme::Trad),
            design(PCAD, BuddyConfig::BBS, Scheme::Pcad),
            design(PBS, self.pbs, Scheme::Pcad),
        ];
        let added = added().into_iter().map(|added| added.with(BuddyConfig::BBS, self.pbs));
        columns.into_iter().chain(added).collect()
    }

    /// Nodes of the free lists before the request, blocks that serve it, and
    /// page-table walks to touch each page once.
    fn measure(&self, design: &Design, about: &Head) -> Result<Metrics, StudyError> {
        let error = |what: &dyn std::fmt::Display| failed(about, self.name, what);
        let source = Source::Free(&self.free);
        let mut random = random(about.seed, 0);
        let allocator = design.frames.over(&source, &mut random).map_err(|e| error(&e))?;
        let mut nodes = 0;
        allocator.for_each_free(&mut |_| nodes += 1);
        let program = Program {
            requests: vec![self.pages],
            masters: vec![Accesses::Listed(self.pages.iter().map(Vpn::address).collect())],
        };
        let hardware = Hardware::new(self.format, 32, ContiguityBits::Ideal(16));
        let measured = measure(&hardware, design, &source, &program, &mut random);
        let measured = measured.map_err(|e| error(&e))?;
        Ok(metrics([
            ("nodes", f64::from(nodes)),
            ("blocks", measured.blocks as f64),
            ("walks", measured.walks as f64),
        ]))
    }
}

fn failed(about: &Head, example: &str, what: &dyn std::fmt::Display) -> StudyError {
    StudyError::Machine { study: about.study.clone(), what: format!("{example}: {what}") }
}

/// One measured point.
enum CasePoint<'a> {
    CaseLayout(&'a CaseLayout, Design),
    Fig7,
}

impl Study for Cases {
    const KIND: &'static str = "cases";
    type Plan = CasesPlan;
    type Found = Grid;

    fn seeds(_: &CasesPlan, _: bool) -> u64 {
        0
    }

    fn needs(_: &CasesPlan, _: &Run<'_>) -> Needs {
        // Layouts of at most 2^17 frames.
        Needs::small()
    }

    fn measure(plan: &CasesPlan, run: &Run<'_>) -> Result<Grid, StudyError> {
        let layouts = CaseLayout::all(plan);
        let of = |layout| {
            CaseLayout::designs(layout)
                .into_iter()
                .map(move |design| CasePoint::CaseLayout(layout, design))
        };
        let mut points: Vec<CasePoint<'_>> = layouts.iter().flat_map(of).collect();
        points.push(CasePoint::Fig7);
        let at = |point: &CasePoint<'_>| match point {
            CasePoint::CaseLayout(layout, design) => vec![layout.name.into(), design.name.into()],
            CasePoint::Fig7 => vec![FIG_7.into(), PBS.into()],
        };
        run.grid(&plan.about, &[EXAMPLE, DESIGN], 0, &points, at, |point, _| match point {
            CasePoint::CaseLayout(layout, design) => layout.measure(design, &plan.about),
            CasePoint::Fig7 => fig_7(&plan.about),
        })
    }

    fn claims(plan: &CasesPlan, _: &Run<'_>) -> Vec<Statement<Grid>> {
        claims(plan)
    }

    fn show(_: &CasesPlan, _: &Run<'_>, grid: &Grid) -> Shown {
        let notes = [
            "The paper draws the layouts of Fig. 8; its text gives the numbers of ranges and \
             nodes. The layouts here have exactly those; they stand in the plan.",
            "The numbers of the blocks in section IV-F count the nodes that a figure draws; \
             only how many blocks are allocated is judged.",
            "The layouts are the paper's; real memory and real accesses are not used here.",
        ];
        let notes = notes.map(str::to_owned).to_vec();
        Shown { finding: String::new(), figures: figures(grid), notes, host: None }
    }
}

/// The example of Fig. 7: VPN 5 of five pages mapped from VPN 4 on, through
/// tables written by the operating system's side and read by the hardware's.
fn fig_7(about: &Head) -> Result<Metrics, StudyError> {
    let error = |what: &dyn std::fmt::Display| failed(about, FIG_7, what);
    let free = [Extent::new(Pfn::new(16), 6)];
    let mut random = random(about.seed, 0);
    let prepared = Source::Free(&free).prepare(BuddyConfig::PBS_ARMV7, &mut random);
    let frames: RefCell<Allocator> = RefCell::new(prepared.map_err(|e| error(&e))?);
    let tables = Extent::new(Pfn::new(64), 64);
    let mut words = vec![0; 64 * 512];
    let memory = SliceMemory::new(tables.start, &mut words);
    let table_frames = new_allocator(tables, BuddyConfig::BBS, true).map_err(|e| error(&e))?;
    let table_frames: RefCell<Allocator> = RefCell::new(table_frames);
    let coalescing = Coalescing::Pcad(ContiguityBits::Ideal(16).field());
    let mut space = AddressSpace::new(Format::ArmV7, coalescing, &memory, &frames, &table_frames)
        .map_err(|e| error(&e))?;
    let five = PageRange::new(Vpn::new(4), 5);
    space.allocate_eager(five, Attributes::USER_DATA, &mut |_| {}).map_err(|e| error(&e))?;
    let page = VirtAddr::new(5 << 12).page();
    let translation = walk(&space.regime(), page, &memory, &mut 0).map_err(|e| error(&e))?;
    let (pages, frames) = translation.block(Format::ArmV7, page);
    Ok(metrics([
        ("ppn", translation.frame.raw() as f64),
        ("base_vpn", pages.start.raw() as f64),
        ("base_ppn", frames.start.raw() as f64),
        ("block_size", pages.count as f64),
    ]))
}

/// One number of the paper: its place, words and value, and the cell and metric
/// that it stands for.
type Number = (&'static str, String, u64, &'static str, &'static str, &'static str);

/// The numbers of the figures and of section IV-D.
fn figure_numbers() -> Vec<Number> {
    let nodes = "nodes in the";
    [
        (
            "Fig. 3",
            format!("Six free frames from 16 on: {nodes} BBS free lists"),
            2,
            FIVE,
            PCAD,
            "nodes",
        ),
        (
            "Fig. 3",
            "A request for five pages: blocks that BBS allocates".into(),
            2,
            FIVE,
            PCAD,
            "blocks",
        ),
        (
            "Fig. 5",
            format!("Six free frames from 16 on: {nodes} PBS free lists"),
            1,
            FIVE,
            PBS,
            "nodes",
        ),
        (
            "Fig. 5",
            "A request for five pages: blocks that PBS allocates".into(),
            1,
            FIVE,
            PBS,
            "blocks",
        ),
        ("Fig. 2", "Five pages on BBS: TLB entries with PCAD".into(), 2, FIVE, PCAD, "walks"),
        ("Fig. 7", "Five pages on PBS: TLB entries with PCAD".into(), 1, FIVE, PBS, "walks"),
        ("Fig. 7", "VPN 5: the demanding PPN".into(), 17, FIG_7, PBS, "ppn"),
        ("Fig. 7", "VPN 5: BaseVPN = VPN - Descend".into(), 4, FIG_7, PBS, "base_vpn"),
        ("Fig. 7", "VPN 5: BasePPN = PPN - Descend".into(), 16, FIG_7, PBS, "base_ppn"),
        ("Fig. 7", "VPN 5: BlockSize = Ascend + Descend + 1".into(), 5, FIG_7, PBS, "block_size"),
        ("Fig. 6(a)", "PPNs 1 to 256 are free: nodes in BBS".into(), 9, ARM_V7, PCAD, "nodes"),
        ("Fig. 6(b)", "The same: nodes in PBS for ARMv7".into(), 3, ARM_V7, PBS, "nodes"),
        ("Fig. 6(c)", "The same: nodes in PBS for ARMv8".into(), 1, ARM_V8, PBS, "nodes"),
        ("Section IV-D", "Page-table walks without coalescing".into(), 256, ARM_V7, TRAD, "walks"),
        ("Section IV-D", "Page-table walks with PCAD on BBS".into(), 9, ARM_V7, PCAD, "walks"),
    ]
    .into()
}

/// A row of Table 2.
fn table_numbers(case: &'static str, row: [u64; 7]) -> Vec<Number> {
    let columns = [
        ("free-list nodes, BBS", PCAD, "nodes"),
        ("mapped blocks, BBS", PCAD, "blocks"),
        ("free-list nodes, PBS", PBS, "nodes"),
        ("mapped blocks, PBS", PBS, "blocks"),
        ("TLB entries, BBS + Trad.", TRAD, "walks"),
        ("TLB entries, BBS + PCAD", PCAD, "walks"),
        ("TLB entries, PBS + PCAD", PBS, "walks"),
    ];
    let number = |((what, design, metric), paper)| {
        ("Table 2", format!("Case {case}: {what}"), paper, case, design, metric)
    };
    columns.into_iter().zip(row).map(number).collect()
}

/// The worked examples. They are whole numbers, so nothing but the same number
/// will do.
fn claims(plan: &CasesPlan) -> Vec<Statement<Grid>> {
    let exact = |(place, says, paper, example, design, metric): Number| {
        let statement = Statement::exactly(place, &says, paper as f64).example();
        statement.measured(move |grid: &Grid| {
            grid.evidence(|view| view.select().is(EXAMPLE, example).is(DESIGN, design).one(metric))
        })
    };
    let mut claims: Vec<_> = figure_numbers().into_iter().map(exact).collect();
    // Nodes and blocks of BBS, then of PBS; entries of the three designs.
    let rows = [
        (2, [2, 1, 2, 1, 4, 1, 1]),
        (2, [6, 2, 2, 1, 4, 2, 1]),
        (4, [8, 4, 4, 2, 4, 4, 2]),
        (3, [6, 2, 3, 1, 4, 2, 1]),
    ];
    for ((name, ranges), (paper_ranges, row)) in plan.fig_8.cases().into_iter().zip(rows) {
        let free: u64 = ranges.iter().map(|(_, count)| count.get()).sum();
        let conditions = Conditions::new()
            .same("pages requested", 4, plan.fig_8.request_frames)
            .same("free pages", 8, free)
            .same("free ranges", paper_ranges, ranges.len());
        let numbers = table_numbers(name, row).into_iter();
        claims.extend(numbers.map(|number| exact(number).under(&conditions)));
    }
    claims
}

fn figures(grid: &Grid) -> Vec<Drawn> {
    let bars = |id: &str,
                title: &str,
                y: &str,
                examples: &[&'static str],
                metric: &str,
                designs: &[(&'static str, &'static str)]| {
        let figure = Figure::new(id, title, FigureKind::Bars, "layout", title);
        let of = |(name, design): &(&str, &str)| {
            let points = grid.points(
                EXAMPLE,
                |all| all.all(EXAMPLE, examples.iter().copied()).is(DESIGN, *design),
                |cell| cell.get(metric),
            );
            Series::new(id, "layout", y, name, points)
        };
        Drawn { figure, series: designs.iter().map(of).collect() }
    };
    let mut lists = vec![("BBS", PCAD), ("PBS", PBS)];
    let mut entries = vec![("TRAD", TRAD), ("PCAD", PCAD), ("PBS", PBS)];
    for added in added() {
        entries.push((added.name, added.name));
        if matches!(added.frames, AddedFrames::Own(_)) {
            lists.push((added.name, added.name));
        }
    }
    let title = "Free-list nodes, PPNs 1 to 256 free";
    vec![
        bars("Fig. 6", title, "nodes", &[ARM_V7, ARM_V8], "nodes", &lists),
        bars("Table 2, nodes", "Free-list nodes", "nodes", &TABLE_2, "nodes", &lists),
        bars(
            "Table 2, entries",
            "TLB entries for four pages",
            "tlb_entries",
            &TABLE_2,
            "walks",
            &entries,
        ),
    ]
}
